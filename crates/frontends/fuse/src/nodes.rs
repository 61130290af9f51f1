//! The files that the kernel knows, each with a handle of its own: renames and removals need no table of paths.

use crate::passthrough::Ways;
use entresol_files::places::{Change, Holder, Place, Places};
use entresol_files::{Directory, FileData, FileId, FileLayer, HIDDEN, NamesBelow, open_despite_mode};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
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
    pub ways: Mutex<Ways>,
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
}

impl Node {
    fn new(place: OwnedFd, stat: &Stat, number: u64, layer: Arc<dyn FileLayer>, places: &Arc<Places>) -> Arc<Self> {
        let id = FileId { device: stat.st_dev, inode: stat.st_ino };
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            place: Place::new(place, Some(places.clone())),
            places: places.clone(),
            number,
            id,
            layer,
            opened: Mutex::default(),
            incapable: AtomicBool::new(false),
            ways: Mutex::default(),
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
        let data = self.layer.open(self.id, File::from(file), may)?;
        *opened = Some(Opened { data: Arc::downgrade(&data), writable: may });
        Ok(data)
    }

    /// Registers a file just created as the open one.
    pub fn adopt(&self, file: OwnedFd) -> io::Result<Arc<dyn FileData>> {
        let mut opened = self.opened();
        if let Some(data) = opened.as_ref().filter(|opened| opened.writable).and_then(|opened| opened.data.upgrade()) {
            return Ok(data);
        }
        let data = self.layer.open(self.id, File::from(file), true)?;
        *opened = Some(Opened { data: Arc::downgrade(&data), writable: true });
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
    pub fn new(root: OwnedFd, layer: Arc<dyn FileLayer>) -> rustix::io::Result<Self> {
        let stat = rustix::fs::fstat(&root)?;
        // Where the layer closes files too, both must see the same changes of names.
        let places = match layer.places() {
            Some(places) => places,
            None => Places::new(rustix::io::fcntl_dupfd_cloexec(&root, 0)?),
        };
        // No name leads to the root, and it is never closed.
        let node = Node::new(root, &stat, ROOT, layer.clone(), &places);
        let known = HashMap::from([(ROOT, Known { node, lookups: 1 })]);
        Ok(Self { known: Mutex::new(known), device: stat.st_dev, root: stat.st_ino, layer, places })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node that the kernel has looked up.
    pub fn get(&self, number: u64) -> rustix::io::Result<Arc<Node>> {
        self.known().get(&number).map(|known| known.node.clone()).ok_or(Errno::STALE)
    }

    /// The node of a name. On success it counts one more lookup by the kernel.
    pub fn look_up(&self, parent: &Node, name: &OsStr) -> io::Result<(Arc<Node>, Stat)> {
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
        let (node, is_new) = self.tell(place, &stat);
        if is_new {
            node.place.admit(node.holder());
        }
        match node.stat() {
            Ok(stat) => Ok((node, stat)),
            Err(error) => {
                self.forget(node.number, 1);
                Err(error)
            }
        }
    }

    /// Counts a lookup of the node of an opened file. True if the node uses the descriptor given.
    fn tell(&self, place: OwnedFd, stat: &Stat) -> (Arc<Node>, bool) {
        let mut known = self.known();
        let lookups = match known.get_mut(&stat.st_ino) {
            Some(entry) => {
                let was_open = entry.node.place.if_open().is_some();
                entry.lookups += 1;
                // While the node's descriptor is open, its number is not reused.
                if was_open {
                    return (entry.node.clone(), false);
                }
                let (node, lookups) = (entry.node.clone(), entry.lookups);
                let Err(place) = node.place.meet(place, AsFd::as_fd) else { return (node, true) };
                let other = Node::new(place, stat, stat.st_ino, self.layer.clone(), &self.places);
                let before = known.insert(stat.st_ino, Known { node: other.clone(), lookups });
                drop(known);
                drop(before);
                return (other, true);
            }
            None => 1,
        };
        let node = Node::new(place, stat, stat.st_ino, self.layer.clone(), &self.places);
        known.insert(stat.st_ino, Known { node: node.clone(), lookups });
        (node, true)
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
        let mut known = self.known();
        let Some(entry) = known.get_mut(&number) else { return };
        entry.lookups = entry.lookups.saturating_sub(count);
        if entry.lookups == 0 && number != ROOT {
            let last = known.remove(&number);
            // Work that follows from the drop needs no lock.
            drop(known);
            drop(last);
        }
    }
}
