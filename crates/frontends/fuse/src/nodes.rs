//! The files that the kernel knows, each with a handle of its own: renames and removals need no table of paths.

use crate::keep::{Kept, of_node};
use crate::mutant::{Mutant, is};
use crate::passthrough::Ways;
use crate::table::{self, Asked, Entry, Image, Table};
use entresol_files::places::{Change, Holder, Identity, Place, Places};
use entresol_files::{DirectFiles, Directory, FileData, FileId, FileLayer, HIDDEN, NamesBelow, open_despite_mode};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The kernel's number for the root of a mount.
pub(super) const ROOT: u64 = 1;

/// The attribute in which a file has its capabilities.
const CAPABILITIES: &str = "security.capability";

/// A file, directory or other object that the kernel knows.
pub(super) struct Node {
    /// This node, for the holder of descriptors, which may close them.
    me: Weak<Node>,
    /// Descriptor with O_PATH: it names the file, and gives no access to the bytes.
    place: Place<OwnedFd>,
    places: Arc<Places>,
    /// Inode number for the kernel: the backing file's, so that programs see the same. The root has [`ROOT`].
    pub number: u64,
    pub id: FileId,
    layer: Arc<dyn FileLayer>,
    opened: Mutex<Option<Opened>>,
    /// True if the file is known to have no capabilities.
    incapable: AtomicBool,
    /// The kernel's access to the bytes.
    pub ways: Arc<Ways>,
}

impl Drop for Node {
    /// Runs when the kernel has forgotten the file and no handle is left. An open `place` keeps the number unused.
    fn drop(&mut self) {
        // A file whose descriptor was closed had a name.
        let is_gone = |place: Arc<OwnedFd>| rustix::fs::fstat(&*place).is_ok_and(|stat| stat.st_nlink == 0);
        if self.place.if_open().is_some_and(is_gone) {
            self.layer.removed(self.id);
        }
    }
}

/// The bytes, if a handle holds them.
struct Opened {
    data: Weak<dyn FileData>,
    writable: bool,
    /// True for the backing file as it is, whatever the layer.
    plain: bool,
}

impl Node {
    fn new(place: OwnedFd, stat: &Stat, number: u64, layer: Arc<dyn FileLayer>, places: &Arc<Places>) -> Arc<Self> {
        let id = FileId { device: stat.st_dev, inode: stat.st_ino };
        Self::at(|_| Place::new(place, Some(places.clone())), id, number, layer, places)
    }

    fn at(
        place: impl FnOnce(&Weak<dyn Holder>) -> Place<OwnedFd>,
        id: FileId,
        number: u64,
        layer: Arc<dyn FileLayer>,
        places: &Arc<Places>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me: &Weak<Self>| Self {
            me: me.clone(),
            place: place(&(me.clone() as Weak<dyn Holder>)),
            places: places.clone(),
            number,
            id,
            layer,
            opened: Mutex::default(),
            incapable: AtomicBool::new(false),
            ways: Arc::new(Ways::new(number)),
        })
    }

    fn holder(&self) -> Weak<dyn Holder> {
        self.me.clone()
    }

    /// The descriptor, opened again if it was closed meanwhile.
    pub fn place(&self) -> rustix::io::Result<Arc<OwnedFd>> {
        let place = self.place.get(&self.holder(), Ok);
        place.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// Runs `act` with a path that leads to the file, whatever the file's name is now.
    pub fn by_path<T>(&self, act: impl FnOnce(&str) -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        let place = self.place()?;
        act(&format!("/proc/self/fd/{}", place.as_raw_fd()))
    }

    /// Opens the file with these flags.
    pub fn open(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        self.by_path(|path| rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()))
    }

    /// Attributes of the file. While it is open, the size is the layer's.
    pub fn stat(&self) -> io::Result<Stat> {
        let data = self.opened().as_ref().and_then(|opened| opened.data.upgrade());
        if let Some(data) = &data {
            data.settle()?;
        }
        let (place, mut found) = (self.place()?, None);
        let mut look = || {
            found = Some(rustix::fs::fstat(&*place)?);
            Ok(())
        };
        self.layer.while_still(self.id, &mut look)?;
        let mut stat = found.expect("it was looked at");
        if let Some(data) = data {
            stat.st_size = data.size_bytes()? as i64;
        }
        Ok(stat)
    }

    /// Finishes earlier writes before anything but the bytes is changed.
    pub fn settle(&self) -> io::Result<()> {
        let data = self.opened().as_ref().and_then(|opened| opened.data.upgrade());
        data.map_or(Ok(()), |data| data.settle())
    }

    /// Runs a change of anything but the bytes, so that the layer does not take the change for another program's.
    pub fn changing<T>(&self, act: impl FnOnce() -> T) -> T {
        let ours = self.layer.changing(self.id);
        let done = act();
        drop(ours);
        done
    }

    /// `unlink` and `rmdir`.
    pub fn remove(&self, name: &OsStr, flags: AtFlags) -> rustix::io::Result<()> {
        let place = self.place()?;
        let change = Change::Remove(place.as_fd(), Path::new(name));
        self.places.changing(change, || rustix::fs::unlinkat(&*place, name, flags))
    }

    /// Removes set-user-ID and set-group-ID after a write.
    pub fn disown(&self) -> rustix::io::Result<()> {
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&*self.place()?)?.st_mode);
        let group = if mode.contains(Mode::XGRP) { Mode::SGID } else { Mode::empty() };
        let rights = mode & (Mode::SUID | group);
        if rights.is_empty() { Ok(()) } else { self.set_mode(mode - rights) }
    }

    /// `chmod`.
    pub fn set_mode(&self, mode: Mode) -> rustix::io::Result<()> {
        self.changing_rights(|path| rustix::fs::chmod(path, mode))
    }

    /// `utimensat`.
    pub fn set_times(&self, times: &Timestamps) -> io::Result<()> {
        let act = |path: &str| rustix::fs::utimensat(rustix::fs::CWD, path, times, AtFlags::empty());
        self.layer.while_still(self.id, &mut || Ok(self.by_path(act)?))
    }

    /// Changes mode or capabilities. A layer that writes the file later must not undo this.
    fn changing_rights(&self, act: impl Fn(&str) -> rustix::io::Result<()>) -> rustix::io::Result<()> {
        let changed = self.changing(|| self.layer.changing_rights(self.id, &mut || Ok(self.by_path(&act)?)));
        changed.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    /// `setxattr`.
    pub fn set_attribute(&self, name: &OsStr, value: &[u8], flags: XattrFlags) -> rustix::io::Result<()> {
        let set = |path: &str| rustix::fs::setxattr(path, name, value, flags);
        if name != CAPABILITIES {
            return self.changing(|| self.by_path(set));
        }
        self.incapable.store(false, Relaxed);
        self.changing_rights(set)
    }

    /// Removes the capabilities of a file that was written. The backing file system does that when it sees the write,
    /// but a cache may write the file later.
    pub fn lose_capabilities(&self) -> rustix::io::Result<()> {
        if self.incapable.load(Relaxed) {
            return Ok(());
        }
        self.incapable.store(true, Relaxed);
        // A file system without such attributes stores no capabilities.
        if self.by_path(|path| rustix::fs::getxattr_query(path, CAPABILITIES)).is_err() {
            return Ok(());
        }
        match self.changing_rights(|path| rustix::fs::removexattr(path, CAPABILITIES)) {
            // A process that may not remove capabilities may set the file's present owner, which removes them.
            Err(Errno::PERM) => {
                let place = self.place()?;
                self.changing(|| rustix::fs::chownat(&*place, "", None, None, AtFlags::EMPTY_PATH))
            }
            other => other,
        }
    }

    fn opened(&self) -> MutexGuard<'_, Option<Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file's bytes: those that are open already, or newly opened.
    pub fn data(&self, writable: bool) -> io::Result<Arc<dyn FileData>> {
        let mut opened = self.opened();
        let fits = opened.as_ref().filter(|opened| opened.writable || !writable);
        if let Some(data) = fits.and_then(|opened| opened.data.upgrade()) {
            return Ok(data);
        }
        // Opened for writing even for a reader: the next opener may write, and both must see the same bytes.
        let (file, may) = match self.open(OFlags::RDWR) {
            Ok(file) => (file, true),
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY) if !writable => {
                (self.open(OFlags::RDONLY)?, false)
            }
            // The file may be written but not read, which the kernel checks. The layer must read what it writes.
            Err(Errno::ACCESS) => {
                let place = self.place()?;
                (self.changing(|| open_despite_mode(place.as_fd(), true))?.0.into(), true)
            }
            Err(error) => return Err(error.into()),
        };
        self.open_bytes(&mut opened, file, may)
    }

    /// Registers a file just created as the open one.
    pub fn adopt(&self, file: OwnedFd) -> io::Result<Arc<dyn FileData>> {
        let mut opened = self.opened();
        if let Some(data) = opened.as_ref().filter(|opened| opened.writable).and_then(|opened| opened.data.upgrade()) {
            return Ok(data);
        }
        self.open_bytes(&mut opened, file, true)
    }

    /// Opens the bytes of a file: through the layer, unless the kernel reads and writes the file past it.
    fn open_bytes(&self, opened: &mut Option<Opened>, file: OwnedFd, writable: bool) -> io::Result<Arc<dyn FileData>> {
        let is_plain = |opened: &Opened| opened.plain && opened.data.strong_count() > 0;
        let plain = self.ways.are_past_layer() || opened.as_ref().is_some_and(is_plain);
        let layer: &dyn FileLayer = if plain { &DirectFiles } else { &*self.layer };
        let data = layer.open(self.id, File::from(file), writable)?;
        *opened = Some(Opened { data: Arc::downgrade(&data), writable, plain });
        Ok(data)
    }
}

impl NamesBelow for Node {
    type Place = OwnedFd;

    fn find(&self, name: &OsStr) -> io::Result<Option<(OwnedFd, FileId)>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = match rustix::fs::openat(&*self.place()?, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            place => place?,
        };
        let stat = rustix::fs::fstat(&place)?;
        let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile;
        let id = FileId { device: stat.st_dev, inode: stat.st_ino };
        Ok((regular && stat.st_dev == self.id.device).then_some((place, id)))
    }

    fn has_name(place: &OwnedFd) -> bool {
        rustix::fs::fstat(place).is_ok_and(|stat| stat.st_nlink > 0)
    }

    fn open_to_sync(&self) -> io::Result<Directory> {
        Ok(self.open(OFlags::RDONLY | OFlags::DIRECTORY)?.into())
    }

    fn unlink(&self, name: &OsStr) -> io::Result<()> {
        self.remove(name, AtFlags::empty()).map_err(io::Error::from)
    }

    fn rename_to(&self, name: &OsStr, to: &Self, new_name: &OsStr, flags: RenameFlags) -> io::Result<()> {
        let (from, into) = (self.place()?, to.place()?);
        let pair = [(from.as_fd(), Path::new(name)), (into.as_fd(), Path::new(new_name))];
        let exchanged = flags.contains(RenameFlags::EXCHANGE);
        let change = if exchanged { Change::Exchange(pair) } else { Change::Rename(pair) };
        let act = || rustix::fs::renameat_with(&*from, name, &*into, new_name, flags);
        Ok(self.places.changing(change, act)?)
    }
}

impl Holder for Node {
    fn let_go(&self) -> bool {
        self.place.let_go(&self.holder(), |place| Some(place.as_fd()))
    }

    fn hold_again(&self) {
        self.place.hold_again(&self.holder(), Ok);
    }

    fn was_used(&self) -> bool {
        self.place.was_used()
    }
}

/// True if a name is the cache's own: [`HIDDEN`] in the root.
pub(super) fn is_hidden(parent: &Node, name: &OsStr) -> bool {
    parent.number == ROOT && name == HIDDEN
}

/// All nodes by the kernel's number.
pub(super) struct Nodes {
    known: Mutex<HashMap<u64, Known>>,
    device: u64,
    root: u64,
    layer: Arc<dyn FileLayer>,
    places: Arc<Places>,
    /// Table of what outlives this process, if anything does.
    table: Option<Arc<Table>>,
}

struct Known {
    node: Arc<Node>,
    /// Lookups by the kernel that it has not forgotten.
    lookups: u64,
}

impl Nodes {
    /// The root's number in the backing file system; the kernel calls it [`ROOT`].
    pub fn root_below(&self) -> u64 {
        self.root
    }

    /// Starts with the root.
    pub fn new(root: OwnedFd, layer: Arc<dyn FileLayer>, table: Option<Arc<Table>>) -> rustix::io::Result<Self> {
        let stat = rustix::fs::fstat(&root)?;
        // Where the layer closes files too, both must see the same changes of names.
        let places = match layer.places() {
            Some(places) => places,
            None => Places::new(rustix::io::fcntl_dupfd_cloexec(&root, 0)?),
        };
        // No name leads to the root, and it is never closed.
        let node = Node::new(root, &stat, ROOT, layer.clone(), &places);
        let known = HashMap::from([(ROOT, Known { node, lookups: 1 })]);
        Ok(Self { known: Mutex::new(known), device: stat.st_dev, root: stat.st_ino, layer, places, table })
    }

    /// Restores the nodes of a former server. Files are opened when they are used, except those that the holder kept.
    pub fn restore(&self, image: &Image, kept: &mut Kept) -> io::Result<()> {
        let root = self.get(ROOT)?.place()?;
        let device = Identity::of(&*root)?.map(|root| root.device);
        let mut known = self.known();
        for (&number, node) in image.nodes.iter().filter(|(_, node)| node.lookups > 0) {
            let is_it = |place: &OwnedFd| {
                rustix::fs::fstat(place).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (self.device, number))
            };
            let path = node.place.as_ref().and_then(|place| path_of(image, place));
            let mut open = kept.take(&of_node(number)).filter(|place| node.kept && is_it(place));
            if open.is_none() && node.made.is_none() {
                // Where no time of making is kept, a file cannot be told from a later one, but is compared by its number.
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let found = path.as_ref().and_then(|path| rustix::fs::openat(&*root, path, flags, Mode::empty()).ok());
                open = found.filter(is_it);
            }
            let identity = device.zip(node.made).map(|(device, made)| Identity { device, inode: number, made });
            let id = FileId { device: self.device, inode: number };
            let place = |holder: &Weak<dyn Holder>| match open {
                Some(place) => Place::new(place, Some(self.places.clone())),
                None => Place::closed(&self.places, path.as_deref(), identity, holder),
            };
            let restored = Node::at(place, id, number, self.layer.clone(), &self.places);
            restored.ways.were_passed(node.passed);
            let lookups = if is(Mutant::LookupsForgotten) { 1 } else { node.lookups };
            known.insert(number, Known { node: restored, lookups });
        }
        let open: Vec<_> = known.values().map(|known| known.node.clone()).collect();
        drop(known);
        let open = open.into_iter().filter(|node| node.number != ROOT && node.place.if_open().is_some());
        open.for_each(|node| node.place.admit(node.holder()));
        Ok(())
    }

    pub fn table(&self) -> Option<&Arc<Table>> {
        self.table.as_ref()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node that the kernel has looked up.
    pub fn get(&self, number: u64) -> rustix::io::Result<Arc<Node>> {
        self.known().get(&number).map(|known| known.node.clone()).ok_or(Errno::STALE)
    }

    /// The node of a name. On success it counts one more lookup by the kernel, unless this request has counted it before.
    pub fn look_up(&self, asked: Asked, parent: &Node, name: &OsStr) -> io::Result<(Arc<Node>, Stat)> {
        // The kernel resolves these itself; from the root they would lead out of the backing directory.
        if name == ".." || name == "." || is_hidden(parent, name) {
            return Err(Errno::NOENT.into());
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = rustix::fs::openat(&*parent.place()?, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&place)?;
        if stat.st_dev != self.device {
            return Err(Errno::XDEV.into());
        }
        let (node, is_new) = self.tell(asked, place, &stat, (parent.number, name));
        if is_new {
            node.place.admit(node.holder());
        }
        self.name_again(&node, (parent.number, name));
        match node.stat() {
            Ok(stat) => Ok((node, stat)),
            Err(error) => {
                self.forget_lookups(node.number, 1, Some(asked));
                Err(error)
            }
        }
    }

    /// Counts a lookup of the node of an opened file, found by a name in a directory. True if the node uses the
    /// descriptor given.
    fn tell(&self, asked: Asked, place: OwnedFd, stat: &Stat, name: (u64, &OsStr)) -> (Arc<Node>, bool) {
        let mut known = self.known();
        let number = stat.st_ino;
        let lookups = match known.get_mut(&number) {
            Some(entry) => {
                let was_open = entry.node.place.if_open().is_some();
                if !self.table.as_ref().is_some_and(|table| table.has_counted(asked, number)) {
                    entry.lookups += 1;
                    self.table.iter().for_each(|table| table.counted(number, asked));
                }
                // While the node's descriptor is open, its number is not reused.
                if was_open {
                    return (entry.node.clone(), false);
                }
                let (node, lookups) = (entry.node.clone(), entry.lookups);
                let Err(place) = node.place.meet(place, AsFd::as_fd) else { return (node, true) };
                self.enter(&place, number, name, lookups);
                let other = Node::new(place, stat, number, self.layer.clone(), &self.places);
                let before = known.insert(number, Known { node: other.clone(), lookups });
                drop(known);
                drop(before);
                return (other, true);
            }
            None => 1,
        };
        self.enter(&place, number, name, lookups - 1);
        self.table.iter().for_each(|table| table.counted(number, asked));
        let node = Node::new(place, stat, number, self.layer.clone(), &self.places);
        known.insert(number, Known { node: node.clone(), lookups });
        (node, true)
    }

    /// Enters a node in the table.
    fn enter(&self, place: &OwnedFd, number: u64, (parent, name): (u64, &OsStr), lookups: u64) {
        let Some(table) = &self.table else { return };
        let made = Identity::of(place).ok().flatten().map(|identity| identity.made);
        table.met(number, (parent, name.as_bytes().to_vec()), made, lookups);
    }

    /// Enters the name by which a node was found, unless the entered one leads to it still: that one is kept current by
    /// renames, and this one may be out of date already.
    fn name_again(&self, node: &Node, (parent, name): (u64, &OsStr)) {
        let Some(table) = &self.table else { return };
        if table.is_named(node.number, parent, name.as_bytes()) {
            return;
        }
        let found = table.place(node.number).is_some_and(|(at, name)| {
            self.get(at).is_ok_and(|at| number_at(&at, OsStr::from_bytes(&name)) == node.number)
        });
        if !found {
            table.named(node.number, (parent, name.as_bytes().to_vec()));
        }
    }

    /// Enters that a request makes a name.
    pub fn making(&self, asked: Asked, parent: &Node, name: &OsStr) -> Entry {
        let Some(table) = &self.table else { return Entry::NONE };
        table.begin(asked, || table::Change::Make { at: at(parent, name), before: number_at(parent, name) })
    }

    /// Enters that a request removes a name. The holder gets the file's descriptor: no name may lead to it afterwards.
    pub fn removing(&self, asked: Asked, parent: &Node, name: &OsStr) -> Entry {
        let Some(table) = &self.table else { return Entry::NONE };
        table.begin(asked, || {
            let before = number_at(parent, name);
            self.keep_nameless(table, before, parent, name);
            table::Change::Remove { at: at(parent, name), before }
        })
    }

    /// Enters a rename, which may remove a name too.
    pub fn renaming(&self, asked: Asked, from: (&Node, &OsStr), to: (&Node, &OsStr), flags: RenameFlags) -> Entry {
        let Some(table) = &self.table else { return Entry::NONE };
        table.begin(asked, || {
            let (moved, replaced) = (number_at(from.0, from.1), number_at(to.0, to.1));
            let exchange = flags.contains(RenameFlags::EXCHANGE);
            if !exchange && moved != replaced {
                self.keep_nameless(table, replaced, to.0, to.1);
            }
            table::Change::Rename { from: at(from.0, from.1), to: at(to.0, to.1), moved, replaced, exchange }
        })
    }

    /// Enters that a request sets an extended attribute, or removes it.
    pub fn attributing(&self, asked: Asked, node: &Node, name: &OsStr, set: bool) -> Entry {
        let Some(table) = &self.table else { return Entry::NONE };
        table.begin(asked, || {
            let before = node.by_path(|path| rustix::fs::getxattr_query(path, name)).is_ok();
            table::Change::Attribute { node: node.number, name: name.as_bytes().to_vec(), set, before }
        })
    }

    /// Hands the descriptor of a node to the holder if it is about to lose the name by which it would be found.
    fn keep_nameless(&self, table: &Table, number: u64, parent: &Node, name: &OsStr) {
        if table.place(number).is_none_or(|place| place == at(parent, name))
            && let Ok(place) = self.get(number).and_then(|node| node.place())
        {
            table.keep_node(number, place.as_fd());
        }
    }

    /// `unlink`.
    pub fn remove(&self, parent: &Node, name: &OsStr) -> io::Result<()> {
        entresol_files::remove(&*self.layer, parent, name)
    }

    /// `rename`, from a name in a directory to another.
    pub fn rename(&self, from: (&Node, &OsStr), to: (&Node, &OsStr), flags: RenameFlags) -> io::Result<()> {
        entresol_files::rename(&*self.layer, from, to, flags)
    }

    /// Takes back `count` lookups of a node.
    pub fn forget(&self, number: u64, count: u64) {
        self.forget_lookups(number, count, None);
    }

    fn forget_lookups(&self, number: u64, count: u64, failed: Option<Asked>) {
        let mut known = self.known();
        let Some(entry) = known.get_mut(&number) else { return };
        self.table.iter().for_each(|table| table.forgotten(number, count, failed));
        entry.lookups = entry.lookups.saturating_sub(count);
        if entry.lookups == 0 && number != ROOT {
            let last = known.remove(&number);
            // Work that follows from the drop needs no lock.
            drop(known);
            drop(last);
        }
    }
}

/// Place of a name, for the table.
fn at(parent: &Node, name: &OsStr) -> table::Place {
    (parent.number, name.as_bytes().to_vec())
}

/// Number of the file that a name leads to; 0 if it leads to none.
fn number_at(parent: &Node, name: &OsStr) -> u64 {
    let found = parent.place().and_then(|place| rustix::fs::statat(&*place, name, AtFlags::SYMLINK_NOFOLLOW));
    found.map_or(0, |stat| stat.st_ino)
}

/// Path of a place in the table, relative to the root.
pub(super) fn path_of(image: &Image, place: &table::Place) -> Option<PathBuf> {
    Some(image.path(place, ROOT)?.into_iter().map(|name| OsString::from_vec(name.to_vec())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutant::activate;
    use entresol_files::DirectFiles;
    use std::os::unix::fs::MetadataExt;

    fn restored(backing: &Path, image: &Image) -> Nodes {
        let root = rustix::fs::open(backing, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let nodes = Nodes::new(root, Arc::new(DirectFiles), None).unwrap();
        nodes.restore(image, &mut Kept::default()).unwrap();
        nodes
    }

    /// A file in a directory, and the image of both with so many lookups of the file.
    fn remembered(backing: &Path, lookups: u64) -> (u64, Image) {
        std::fs::create_dir(backing.join("d")).unwrap();
        std::fs::write(backing.join("d/f"), b"bytes").unwrap();
        let mut image = Image::default();
        let mut add = |path: &str, parent, name: &[u8], lookups| {
            let file = File::open(backing.join(path)).unwrap();
            let (number, made) = (file.metadata().unwrap().ino(), Identity::of(&file).unwrap().map(|file| file.made));
            let place = Some((parent, name.to_vec()));
            let node = table::Remembered { place, made, lookups, ..Default::default() };
            image.nodes.insert(number, node);
            number
        };
        let directory = add("d", ROOT, b"d", 1);
        (add("d/f", directory, b"f", lookups), image)
    }

    #[test]
    fn a_node_is_known_again_until_the_kernel_has_forgotten_all_its_lookups() {
        let known = |mutant| {
            let backing = tempfile::tempdir().unwrap();
            let (number, image) = remembered(backing.path(), 3);
            activate(mutant);
            let nodes = restored(backing.path(), &image);
            activate(None);
            assert_eq!(nodes.get(number).unwrap().stat().unwrap().st_size, 5);
            nodes.forget(number, 2);
            let known = nodes.get(number).is_ok();
            nodes.forget(number, 1);
            assert!(nodes.get(number).is_err());
            known
        };
        assert!(known(None));
        assert!(!known(Some(Mutant::LookupsForgotten)), "the test sees the fault");
    }

    #[test]
    fn another_file_at_the_name_of_a_node_is_not_taken_for_it() {
        let backing = tempfile::tempdir().unwrap();
        let (number, image) = remembered(backing.path(), 1);
        // Both are there, so their numbers differ.
        std::fs::write(backing.path().join("other"), b"other").unwrap();
        std::fs::rename(backing.path().join("other"), backing.path().join("d/f")).unwrap();
        let nodes = restored(backing.path(), &image);
        assert_eq!(nodes.get(number).unwrap().place().unwrap_err(), Errno::STALE);
    }

    #[test]
    fn nodes_that_are_their_own_parents_are_lost() {
        let backing = tempfile::tempdir().unwrap();
        let mut image = Image::default();
        for (number, parent) in [(50, 51), (51, 50), (52, 52), (53, 9999)] {
            let place = Some((parent, b"x".to_vec()));
            let made = Some((1, 1));
            let node = table::Remembered { place, made, lookups: 1, kept: true, ..Default::default() };
            image.nodes.insert(number, node);
        }
        let nodes = restored(backing.path(), &image);
        (50..54).for_each(|number| assert_eq!(nodes.get(number).unwrap().place().unwrap_err(), Errno::STALE));
    }
}
