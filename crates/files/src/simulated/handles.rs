//! Handles of the simulated file system, which answer as the operating system's do.

use super::state::{BLOCK, Call, Node, ROOT, State};
use crate::below::{
    Attributes, Directory, Entries, File, For, Found, Kind, Modified, OpenDirectory, OpenFile, Paths, Rights,
};
use crate::{FileId, NamesBelow, Sought};
use entresol_engine::disk::Power;
use rustix::fs::{FallocateFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// How often a read or write does less than it was asked for.
const SHORT: f64 = 0.05;
/// A write that fails has done so many bytes, times some number: less is of no interest, and harder to compare.
const GRAIN: usize = 128;
const DEVICE: u64 = 1;

/// The file system; clones are handles of the same one.
#[derive(Clone)]
pub(crate) struct SimFileSystem {
    state: Arc<Mutex<State>>,
    power: Power,
}

/// A node that is open. It counts as such until it is dropped.
struct Open {
    system: SimFileSystem,
    inode: u64,
    epoch: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.system.lock();
        if state.epoch == self.epoch {
            *state.open.get_mut(&self.inode).expect("an open node") -= 1;
            state.free(self.inode);
        }
    }
}

/// An open file.
pub struct SimFile(Open);

/// An open directory.
pub struct SimDirectory(Open);

impl SimFileSystem {
    /// One with an empty root.
    pub fn new(seed: u64, ordered: bool, power: &Power) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(seed, ordered))), power: power.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }

    /// The state for a call that changes nothing.
    fn look(&self) -> rustix::io::Result<MutexGuard<'_, State>> {
        if self.power.is_off() { Err(Errno::IO) } else { Ok(self.lock()) }
    }

    /// Does something that takes a moment, in which the power may go: whether it was done nobody learns then.
    fn act<T>(&self, call: Call, act: impl FnOnce(&mut State) -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        let cut = self.power.consume().map_err(|_| Errno::IO)?;
        let mut state = self.lock();
        if let Some(error) = state.fails(call) {
            return Err(error);
        }
        let done = act(&mut state);
        // A handle that is dropped takes the lock.
        drop(state);
        if cut { Err(Errno::IO) } else { done }
    }

    fn sync(&self, inode: Option<u64>, data_only: bool) -> rustix::io::Result<()> {
        if self.power.consume().map_err(|_| Errno::IO)? {
            return Err(Errno::IO);
        }
        let mut state = self.lock();
        if let Some(error) = state.fails(Call::Sync) {
            state.drop_unsynced(inode);
            return Err(error);
        }
        match inode {
            Some(inode) => state.sync(inode, data_only),
            None => state.sync_all(),
        }
        Ok(())
    }

    /// The call of this kind after so many others fails.
    pub fn fail(&self, call: Call, after: u64, error: Errno) {
        self.lock().fault = Some((call, after, error));
    }

    /// No call fails any more; how many have so far.
    pub fn heal(&self) -> u64 {
        let mut state = self.lock();
        state.fault = None;
        state.failed
    }

    /// How many calls have failed because they were made to.
    pub fn failed(&self) -> u64 {
        self.lock().failed
    }

    /// How often a file or directory was synced with all that is known of it.
    pub fn whole_syncs(&self, inode: u64) -> u64 {
        self.lock().whole_syncs.get(&inode).copied().unwrap_or_default()
    }

    /// Looks without any effect on what comes: a trace must not change the run.
    pub fn aside<T>(&self, look: impl FnOnce() -> T) -> T {
        let random = self.lock().random.clone();
        let seen = look();
        self.lock().random = random;
        seen
    }

    /// Makes everything durable.
    pub fn sync_all(&self) {
        self.lock().sync_all();
    }

    /// Whoever used it is gone; what it did is there.
    pub fn kill(&self) {
        self.lock().let_go();
    }

    /// The power goes.
    pub fn crash(&self, seed: u64) {
        self.lock().crash(seed);
    }

    /// A directory.
    pub fn directory(&self, path: &Path) -> SimDirectory {
        let inode = self.walk(&self.lock(), path).expect("a directory that is there");
        SimDirectory(self.open(inode))
    }

    fn open(&self, inode: u64) -> Open {
        self.open_in(&mut self.lock(), inode)
    }

    fn open_in(&self, state: &mut State, inode: u64) -> Open {
        *state.open.entry(inode).or_default() += 1;
        Open { system: self.clone(), inode, epoch: state.epoch }
    }

    fn walk(&self, state: &State, path: &Path) -> rustix::io::Result<u64> {
        let names = path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        });
        names.into_iter().try_fold(ROOT, |directory, name| state.look_up(directory, &text(name)))
    }
}

fn text(name: &OsStr) -> String {
    name.to_str().expect("names of tests").to_owned()
}

fn found(inode: u64, node: &Node) -> Found {
    let kind = if node.names.is_some() { Kind::Directory } else { Kind::File };
    Found { kind, id: FileId { device: DEVICE, inode }, made: Some(node.made), size: node.size }
}

impl Paths for SimFileSystem {
    fn open_directory(&self, path: &Path) -> io::Result<Directory> {
        let mut state = self.look()?;
        let inode = self.walk(&state, path)?;
        Ok(Directory::Simulated(SimDirectory(self.open_in(&mut state, inode))))
    }

    fn open_file(&self, path: &Path, _writable: bool) -> io::Result<File> {
        let mut state = self.look()?;
        let inode = self.walk(&state, path)?;
        Ok(File::Simulated(SimFile(self.open_in(&mut state, inode))))
    }

    fn open_despite_mode(&self, path: &Path) -> io::Result<(File, Attributes)> {
        let file = Paths::open_file(self, path, false)?;
        let attributes = file.attributes()?;
        Ok((file, attributes))
    }

    fn entries(&self, path: &Path) -> io::Result<Entries> {
        let state = self.look()?;
        let inode = self.walk(&state, path)?;
        let names = state.node(inode).names.clone().ok_or(Errno::NOTDIR)?;
        let path = path.to_owned();
        Ok(Box::new(names.into_keys().map(move |name| Ok(path.join(name)))))
    }

    fn found(&self, path: &Path) -> io::Result<Found> {
        let state = self.look()?;
        let inode = self.walk(&state, path)?;
        Ok(found(inode, state.node(inode)))
    }

    fn is_directory(&self, path: &Path) -> bool {
        Paths::found(self, path).is_ok_and(|found| found.kind == Kind::Directory)
    }
}

impl Open {
    fn look(&self) -> rustix::io::Result<MutexGuard<'_, State>> {
        let state = self.system.look()?;
        if state.epoch == self.epoch { Ok(state) } else { Err(Errno::STALE) }
    }

    fn act<T>(&self, call: Call, act: impl FnOnce(&mut State) -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        self.system.act(call, |state| if state.epoch == self.epoch { act(state) } else { Err(Errno::STALE) })
    }

    fn sync(&self, data_only: bool) -> rustix::io::Result<()> {
        drop(self.look()?);
        self.system.sync(Some(self.inode), data_only)
    }

    fn found(&self) -> rustix::io::Result<Found> {
        Ok(found(self.inode, self.look()?.node(self.inode)))
    }

    fn attributes(&self) -> rustix::io::Result<Attributes> {
        let state = self.look()?;
        let node = state.node(self.inode);
        let id = FileId { device: DEVICE, inode: self.inode };
        Ok(Attributes { id, size: node.size, modified: node.modified, changed: node.changed })
    }

    /// Where it is: by the first name that leads to it, as nobody here asks for more.
    fn path(&self) -> PathBuf {
        Path::new("/").join(self.inode.to_string())
    }
}

impl SimFile {
    /// Another handle of the same file.
    pub fn again(&self) -> SimFile {
        SimFile(self.0.system.open(self.0.inode))
    }
}

impl OpenFile for SimFile {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.look()?;
        if let Some(error) = state.fails(Call::Read) {
            return Err(error.into());
        }
        let short = bytes.len() > BLOCK && state.random.chance(SHORT);
        let len = if short { bytes.len() / 2 } else { bytes.len() };
        Ok(state.read(self.0.inode, offset, &mut bytes[..len]))
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.look()?;
        if state.random.chance(0.5) { Ok(0) } else { Ok(state.read(self.0.inode, offset, bytes)) }
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let cut = self.0.system.power.consume().map_err(|_| Errno::IO)?;
        let mut state = self.0.look().or_else(|error| if cut { Ok(self.0.system.lock()) } else { Err(error) })?;
        let error = if cut { Some(Errno::IO) } else { state.fails(Call::Write) };
        let part = state.random.below(bytes.len() as u64 + 1) as usize / GRAIN * GRAIN;
        let len = if error.is_some() { part } else { bytes.len() };
        if len > 0 {
            state.write(self.0.inode, offset, &bytes[..len]);
        }
        error.map_or(Ok(()), |error| Err(error.into()))
    }

    fn rights(&self) -> io::Result<Rights> {
        Ok(Rights::default())
    }

    fn restore(&self, _rights: &Rights) -> io::Result<()> {
        Ok(())
    }

    fn to_write(&self) -> io::Result<File> {
        Ok(File::Simulated(self.again()))
    }

    fn set_size(&self, bytes: u64) -> io::Result<()> {
        Ok(self.0.act(Call::Write, |state| {
            state.resize(self.0.inode, bytes);
            Ok(())
        })?)
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> rustix::io::Result<()> {
        let keep = how.contains(FallocateFlags::KEEP_SIZE);
        let (inode, end) = (self.0.inode, offset + bytes);
        self.0.act(Call::Write, |state| {
            match how - FallocateFlags::KEEP_SIZE {
                kind if kind.is_empty() => state.reserve(inode, offset, end, keep),
                FallocateFlags::PUNCH_HOLE => state.void(inode, offset, end, true, true),
                FallocateFlags::ZERO_RANGE => state.void(inode, offset, end, false, keep),
                _ => return Err(Errno::OPNOTSUPP),
            }
            Ok(())
        })
    }

    fn seek(&self, sought: Sought, offset: u64) -> rustix::io::Result<u64> {
        let state = self.0.look()?;
        let node = state.node(self.0.inode);
        let data = |at: &u64| node.blocks.contains_key(&(at / BLOCK as u64)) == (sought == Sought::Data);
        let next = |at: &u64| Some((at / BLOCK as u64 + 1) * BLOCK as u64);
        let found = std::iter::successors(Some(offset), next).take_while(|&at| at < node.size).find(data);
        match (found, sought) {
            (Some(found), _) => Ok(found),
            (None, Sought::Hole) if offset < node.size => Ok(node.size),
            (None, _) => Err(Errno::NXIO),
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(self.0.sync(false)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(self.0.sync(true)?)
    }

    fn sync_file_system(&self) -> rustix::io::Result<()> {
        self.0.system.sync(None, false)
    }

    fn found(&self) -> io::Result<Found> {
        Ok(self.0.found()?)
    }

    fn attributes(&self) -> rustix::io::Result<Attributes> {
        self.0.attributes()
    }

    fn set_modified(&self, modified: Modified) -> rustix::io::Result<()> {
        let modified = match modified {
            Modified::At(time) => Some(time),
            Modified::Now => None,
        };
        self.0.act(Call::Write, |state| {
            state.set_modified(self.0.inode, modified);
            Ok(())
        })
    }

    fn path(&self) -> io::Result<PathBuf> {
        Ok(self.0.path())
    }
}

impl SimDirectory {
    /// Makes a file in it, or opens the one that has the name.
    pub fn create(&self, name: &str) -> rustix::io::Result<SimFile> {
        self.0.act(Call::Name, |state| {
            let inode = match state.look_up(self.0.inode, name) {
                Ok(inode) => inode,
                Err(_) => state.make(self.0.inode, name, false),
            };
            Ok(SimFile(self.0.system.open_in(state, inode)))
        })
    }

    /// Gives a file another name, in this directory.
    pub fn link(&self, file: FileId, name: &str) -> rustix::io::Result<()> {
        self.0.act(Call::Name, |state| match state.look_up(self.0.inode, name) {
            Ok(_) => Err(Errno::EXIST),
            Err(_) => {
                state.link(file.inode, self.0.inode, name);
                Ok(())
            }
        })
    }

    /// The file that a name leads to, opened.
    pub fn open(&self, name: &str) -> rustix::io::Result<SimFile> {
        let mut state = self.0.look()?;
        let inode = state.look_up(self.0.inode, name)?;
        Ok(SimFile(self.0.system.open_in(&mut state, inode)))
    }

    /// The names in it.
    pub fn names(&self) -> Vec<String> {
        let state = self.0.system.lock();
        state.node(self.0.inode).names.as_ref().expect("a directory").keys().cloned().collect()
    }
}

impl OpenDirectory for SimDirectory {
    fn found(&self) -> io::Result<Found> {
        Ok(self.0.found()?)
    }

    fn attributes(&self) -> rustix::io::Result<Attributes> {
        self.0.attributes()
    }

    fn path(&self) -> io::Result<PathBuf> {
        Ok(self.0.path())
    }

    fn open_directory(&self, name: &str) -> rustix::io::Result<Directory> {
        let mut state = self.0.look()?;
        let inode = state.look_up(self.0.inode, name)?;
        Ok(Directory::Simulated(SimDirectory(self.0.system.open_in(&mut state, inode))))
    }

    fn make_directory(&self, name: &str) -> rustix::io::Result<()> {
        self.0.act(Call::Name, |state| match state.look_up(self.0.inode, name) {
            Ok(_) => Err(Errno::EXIST),
            Err(_) => {
                state.make(self.0.inode, name, true);
                Ok(())
            }
        })
    }

    /// There is but one process.
    fn lock(&self) -> rustix::io::Result<()> {
        Ok(())
    }

    fn open_file(&self, name: &str, how: For) -> rustix::io::Result<File> {
        let opened = self.open(name);
        let opened = if how == For::Making && matches!(opened, Err(Errno::NOENT)) { self.create(name) } else { opened };
        Ok(File::Simulated(opened?))
    }

    fn size_of(&self, name: &str) -> rustix::io::Result<u64> {
        let state = self.0.look()?;
        Ok(state.node(state.look_up(self.0.inode, name)?).size)
    }

    fn rename(&self, from: &str, to: &str) -> rustix::io::Result<()> {
        self.0.act(Call::Name, |state| state.rename((self.0.inode, from), (self.0.inode, to)))
    }

    fn remove(&self, name: &str) -> rustix::io::Result<()> {
        self.0.act(Call::Name, |state| state.unlink(self.0.inode, name))
    }

    fn exchange(&self, one: &str, other: &str) -> rustix::io::Result<()> {
        self.0.act(Call::Name, |state| state.exchange((self.0.inode, one), (self.0.inode, other)))
    }

    fn sync(&self) -> rustix::io::Result<()> {
        self.0.sync(false)
    }

    fn sync_file_system(&self) -> rustix::io::Result<()> {
        self.0.system.sync(None, false)
    }
}

impl NamesBelow for SimDirectory {
    type Place = SimFile;

    fn find(&self, name: &OsStr) -> io::Result<Option<(SimFile, FileId)>> {
        match self.open(&text(name)) {
            Ok(file) => {
                let id = FileId { device: DEVICE, inode: file.0.inode };
                Ok(Some((file, id)))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn has_name(place: &SimFile) -> bool {
        place.0.look().is_ok_and(|state| state.live.links(place.0.inode) > 0)
    }

    fn open_to_sync(&self) -> io::Result<Directory> {
        drop(self.0.look()?);
        Ok(Directory::Simulated(SimDirectory(self.0.system.open(self.0.inode))))
    }

    fn unlink(&self, name: &OsStr) -> io::Result<()> {
        Ok(self.0.act(Call::Name, |state| state.unlink(self.0.inode, &text(name)))?)
    }

    fn rename_to(&self, name: &OsStr, to: &Self, new_name: &OsStr, flags: RenameFlags) -> io::Result<()> {
        assert!(flags.is_empty(), "a plain rename");
        Ok(self.0.act(Call::Name, |state| state.rename((self.0.inode, &text(name)), (to.0.inode, &text(new_name))))?)
    }
}
