//! Handles of the simulated file system, with the results of the operating system's calls.

use super::state::{BLOCK, Call, Node, ROOT, State};
use crate::Power;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// Probability that a read of more than one block returns at most half of the bytes that were asked for.
const SHORT: f64 = 0.05;
/// A failed write has written a multiple of so many bytes. Smaller steps would find no more, and are harder to compare.
const GRAIN: usize = 128;

/// Attributes of a file or directory, as `stat` returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Number, which another node may get when this one is gone.
    pub inode: u64,
    /// Moment of creation, different for each node.
    pub made: u64,
    /// True for a directory, false for a file.
    pub is_directory: bool,
    /// Bytes.
    pub size: u64,
    /// Time of the last change of its bytes: seconds and nanoseconds.
    pub modified: (i64, i64),
    /// Time of the last change of anything about it: seconds and nanoseconds.
    pub changed: (i64, i64),
}

/// The file system; clones are handles of the same one.
#[derive(Clone)]
pub struct SimFileSystem {
    state: Arc<Mutex<State>>,
    power: Power,
}

/// An open node, which counts as open until it is dropped.
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
    /// A file system with an empty root.
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

    /// Performs a call during which the power may go. The caller then does not learn whether it was done.
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

    /// Makes the call of this kind after so many others fail.
    pub fn fail(&self, call: Call, after: u64, error: Errno) {
        self.lock().fault = Some((call, after, error));
    }

    /// Lets no call fail any more. Returns the number of calls that failed so far.
    pub fn heal(&self) -> u64 {
        let mut state = self.lock();
        state.fault = None;
        state.failed
    }

    /// Number of calls that failed because they were made to.
    pub fn failed(&self) -> u64 {
        self.lock().failed
    }

    /// Number of syncs of a file or directory with all its metadata (`fsync`, not `fdatasync`).
    pub fn whole_syncs(&self, inode: u64) -> u64 {
        self.lock().whole_syncs.get(&inode).copied().unwrap_or_default()
    }

    /// Runs `look` without any effect on later calls: a trace must not change the run.
    pub fn aside<T>(&self, look: impl FnOnce() -> T) -> T {
        let random = self.lock().random.clone();
        let seen = look();
        self.lock().random = random;
        seen
    }

    /// Lets so many nanoseconds of the file system's time pass; a call by itself takes one.
    pub fn pass(&self, nanoseconds: u64) {
        self.lock().pass(nanoseconds);
    }

    /// Makes everything durable.
    pub fn sync_all(&self) {
        self.lock().sync_all();
    }

    /// Ends all processes that use the file system. Their changes stay.
    pub fn kill(&self) {
        self.lock().let_go();
    }

    /// Another file system with the state of this one, in which all processes are killed but one that holds some files
    /// by their numbers. Also returns the handles of that one.
    pub fn fork(&self, held: &[u64]) -> (SimFileSystem, Vec<SimFile>) {
        let state = Arc::new(Mutex::new(self.lock().clone()));
        let system = SimFileSystem { state, power: self.power.clone() };
        let mut state = system.lock();
        state.epoch += 1;
        let there = held.iter().filter(|inode| state.live.nodes.contains_key(inode)).copied().collect::<Vec<_>>();
        state.open = there.iter().map(|&inode| (inode, 1)).collect();
        let files = there.iter().map(|&inode| SimFile(Open { system: system.clone(), inode, epoch: state.epoch }));
        let files = files.collect();
        state.fault = None;
        let nodes: Vec<u64> = state.live.nodes.keys().copied().collect();
        nodes.into_iter().for_each(|inode| state.free(inode));
        drop(state);
        (system, files)
    }

    /// Cuts the power.
    pub fn crash(&self, seed: u64) {
        self.lock().crash(seed);
    }

    /// Opens a directory.
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
    let Node { made, size, modified, changed, .. } = *node;
    Found { inode, made, is_directory: node.names.is_some(), size, modified, changed }
}

/// Calls by paths.
impl SimFileSystem {
    /// `open` of a directory.
    pub fn open_directory(&self, path: &Path) -> io::Result<SimDirectory> {
        let mut state = self.look()?;
        let inode = self.walk(&state, path)?;
        Ok(SimDirectory(self.open_in(&mut state, inode)))
    }

    /// `open` of a file.
    pub fn open_file(&self, path: &Path) -> io::Result<SimFile> {
        let mut state = self.look()?;
        let inode = self.walk(&state, path)?;
        Ok(SimFile(self.open_in(&mut state, inode)))
    }

    /// `readdir`: the names in a directory, in order.
    pub fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = self.look()?;
        let inode = self.walk(&state, path)?;
        let names = state.node(inode).names.clone().ok_or(Errno::NOTDIR)?;
        Ok(names.into_keys().collect())
    }

    /// `stat`.
    pub fn found(&self, path: &Path) -> io::Result<Found> {
        let state = self.look()?;
        let inode = self.walk(&state, path)?;
        Ok(found(inode, state.node(inode)))
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

    /// Unique path of the node: its number under the root, which is not a name of the node.
    fn path(&self) -> PathBuf {
        Path::new("/").join(self.inode.to_string())
    }
}

impl SimFile {
    /// Another handle of the same file.
    pub fn again(&self) -> SimFile {
        SimFile(self.0.system.open(self.0.inode))
    }

    /// Number of the file.
    pub fn inode(&self) -> u64 {
        self.0.inode
    }

    /// True if a name leads to the file.
    pub fn has_name(&self) -> bool {
        self.0.look().is_ok_and(|state| state.live.links(self.0.inode) > 0)
    }

    /// `pread`, which may read less than it was asked for.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.look()?;
        if let Some(error) = state.fails(Call::Read) {
            return Err(error.into());
        }
        let short = bytes.len() > BLOCK && state.random.chance(SHORT);
        let len = if short { bytes.len() / 2 } else { bytes.len() };
        Ok(state.read(self.0.inode, offset, &mut bytes[..len]))
    }

    /// `preadv2` with `RWF_NOWAIT`, which reads nothing half the time.
    pub fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.look()?;
        if state.random.chance(0.5) { Ok(0) } else { Ok(state.read(self.0.inode, offset, bytes)) }
    }

    /// `pwrite`, of a part alone if it fails or the power goes.
    pub fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
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

    /// `ftruncate`.
    pub fn set_size(&self, bytes: u64) -> io::Result<()> {
        Ok(self.0.act(Call::Write, |state| {
            state.resize(self.0.inode, bytes);
            Ok(())
        })?)
    }

    /// `fallocate` of blocks, holes and zeros.
    pub fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> rustix::io::Result<()> {
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

    /// `lseek`: the next position from `offset` on that is `stored`, or is not; `ENXIO` without one.
    pub fn seek(&self, stored: bool, offset: u64) -> rustix::io::Result<u64> {
        let state = self.0.look()?;
        let node = state.node(self.0.inode);
        let fits = |at: &u64| node.blocks.contains_key(&(at / BLOCK as u64)) == stored;
        let next = |at: &u64| Some((at / BLOCK as u64 + 1) * BLOCK as u64);
        let found = std::iter::successors(Some(offset), next).take_while(|&at| at < node.size).find(fits);
        match (found, stored) {
            (Some(found), _) => Ok(found),
            (None, false) if offset < node.size => Ok(node.size),
            (None, _) => Err(Errno::NXIO),
        }
    }

    /// `fsync`.
    pub fn sync_all(&self) -> io::Result<()> {
        Ok(self.0.sync(false)?)
    }

    /// `fdatasync`.
    pub fn sync_data(&self) -> io::Result<()> {
        Ok(self.0.sync(true)?)
    }

    /// `syncfs`.
    pub fn sync_file_system(&self) -> rustix::io::Result<()> {
        self.0.system.sync(None, false)
    }

    /// `fstat`.
    pub fn found(&self) -> rustix::io::Result<Found> {
        self.0.found()
    }

    /// `futimens` of the time of modification; none means now.
    pub fn set_modified(&self, modified: Option<(i64, i64)>) -> rustix::io::Result<()> {
        self.0.act(Call::Write, |state| {
            state.set_modified(self.0.inode, modified);
            Ok(())
        })
    }

    /// Unique path of the file.
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }
}

impl SimDirectory {
    /// Makes a file in the directory, or opens the file of that name.
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
    pub fn link(&self, inode: u64, name: &str) -> rustix::io::Result<()> {
        self.0.act(Call::Name, |state| match state.look_up(self.0.inode, name) {
            Ok(_) => Err(Errno::EXIST),
            Err(_) => {
                state.link(inode, self.0.inode, name);
                Ok(())
            }
        })
    }

    /// Opens the file that a name leads to.
    pub fn open(&self, name: &str) -> rustix::io::Result<SimFile> {
        let mut state = self.0.look()?;
        let inode = state.look_up(self.0.inode, name)?;
        Ok(SimFile(self.0.system.open_in(&mut state, inode)))
    }

    /// The names in the directory.
    pub fn names(&self) -> Vec<String> {
        let state = self.0.system.lock();
        state.node(self.0.inode).names.as_ref().expect("a directory").keys().cloned().collect()
    }

    /// Another handle of the same directory.
    pub fn again(&self) -> rustix::io::Result<SimDirectory> {
        drop(self.0.look()?);
        Ok(SimDirectory(self.0.system.open(self.0.inode)))
    }

    /// `fstat`.
    pub fn found(&self) -> rustix::io::Result<Found> {
        self.0.found()
    }

    /// Unique path of the directory.
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// `openat` of a directory.
    pub fn open_directory(&self, name: &str) -> rustix::io::Result<SimDirectory> {
        let mut state = self.0.look()?;
        let inode = state.look_up(self.0.inode, name)?;
        Ok(SimDirectory(self.0.system.open_in(&mut state, inode)))
    }

    /// `mkdirat`.
    pub fn make_directory(&self, name: &str) -> rustix::io::Result<()> {
        self.0.act(Call::Name, |state| match state.look_up(self.0.inode, name) {
            Ok(_) => Err(Errno::EXIST),
            Err(_) => {
                state.make(self.0.inode, name, true);
                Ok(())
            }
        })
    }

    /// `fstatat`: the size of a file in the directory.
    pub fn size_of(&self, name: &str) -> rustix::io::Result<u64> {
        let state = self.0.look()?;
        Ok(state.node(state.look_up(self.0.inode, name)?).size)
    }

    /// `renameat` to a name in this directory or another.
    pub fn rename(&self, name: &str, to: &Self, new_name: &str) -> rustix::io::Result<()> {
        self.0.act(Call::Name, |state| state.rename((self.0.inode, name), (to.0.inode, new_name)))
    }

    /// `unlinkat`.
    pub fn remove(&self, name: &str) -> rustix::io::Result<()> {
        self.0.act(Call::Name, |state| state.unlink(self.0.inode, name))
    }

    /// `renameat2` with `RENAME_EXCHANGE`.
    pub fn exchange(&self, one: &str, other: &str) -> rustix::io::Result<()> {
        self.0.act(Call::Name, |state| state.exchange((self.0.inode, one), (self.0.inode, other)))
    }

    /// `fsync` of the names in the directory.
    pub fn sync(&self) -> rustix::io::Result<()> {
        self.0.sync(false)
    }

    /// `syncfs`.
    pub fn sync_file_system(&self) -> rustix::io::Result<()> {
        self.0.system.sync(None, false)
    }
}
