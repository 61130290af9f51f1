//! A parallel file system in memory, of which each host sees all changes at once, and whose power loss loses what the
//! host has not synced.
//!
//! Of the bytes of a file that are not synced, any may be lost, and so may each change of a folder's names. A sync that
//! fails has dropped the bytes, as Linux drops a page cache that it could not write; a later sync does not bring them back.

use super::cluster::seat;
use crate::pfs::{FileSystem, NewFile};
use crate::server::lock;
use crate::simulated::Actor;
use entresol_core::Random;
use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longest time of a call.
const CALL: Duration = Duration::from_micros(400);

#[derive(Clone, Debug)]
struct Written {
    host: usize,
    at: usize,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    visible: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Written>,
}

#[derive(Clone, Debug)]
enum Change {
    Link(String, usize),
    Unlink(String),
    Rename(String, String),
}

#[derive(Clone, Debug, Default)]
struct Folder {
    durable: BTreeMap<String, usize>,
    visible: BTreeMap<String, usize>,
    unsynced: Vec<(usize, Change)>,
}

impl Folder {
    fn apply(names: &mut BTreeMap<String, usize>, change: &Change) {
        match change {
            Change::Link(name, inode) => drop(names.insert(name.clone(), *inode)),
            Change::Unlink(name) => drop(names.remove(name)),
            Change::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }

    fn change(&mut self, host: usize, change: Change) {
        Folder::apply(&mut self.visible, &change);
        self.unsynced.push((host, change));
    }

    fn sync(&mut self) {
        self.durable.clone_from(&self.visible);
        self.unsynced.clear();
    }
}

/// A folder's own name has no change of its own: a folder is an inode of its parent.
struct State {
    random: Random,
    inodes: Vec<Inode>,
    folders: BTreeMap<PathBuf, Folder>,
    full: bool,
    stalled_until: Duration,
    /// The call that fails next.
    fails: Option<&'static str>,
    failed: u64,
}

/// The file system; clones are the same one.
#[derive(Clone)]
pub struct SimPfs {
    state: Arc<Mutex<State>>,
}

/// Calls that may be made to fail.
pub const CALLS: [&str; 8] = ["folder", "create", "bytes", "sync", "rename", "sync names", "read", "list"];

/// The path at which every process has the file system.
pub const ROOT: &str = "/pfs";

impl SimPfs {
    pub fn new(seed: u64) -> SimPfs {
        let state = State {
            random: Random::new(seed),
            inodes: Vec::new(),
            folders: BTreeMap::from([(PathBuf::from(ROOT), Folder::default())]),
            full: false,
            stalled_until: Duration::ZERO,
            fails: None,
            failed: 0,
        };
        SimPfs { state: Arc::new(Mutex::new(state)) }
    }

    /// The file system as a host sees it.
    pub fn on(&self, host: usize) -> Box<dyn FileSystem> {
        Box::new(OnHost { pfs: self.clone(), host })
    }

    pub fn set_full(&self, full: bool) {
        lock(&self.state).full = full;
    }

    pub fn stall(&self, until: Duration) {
        lock(&self.state).stalled_until = until;
    }

    pub fn fail(&self, call: &'static str) {
        lock(&self.state).fails = Some(call);
    }

    pub fn heal(&self) {
        let mut state = lock(&self.state);
        (state.full, state.stalled_until, state.fails) = (false, Duration::ZERO, None);
    }

    /// Number of calls that were made to fail.
    pub fn failed(&self) -> u64 {
        lock(&self.state).failed
    }

    /// Takes the power of hosts: of their unsynced bytes and names, any may be lost.
    pub fn lose_power(&self, hosts: impl Fn(usize) -> bool) {
        let state = &mut *lock(&self.state);
        for inode in &mut state.inodes {
            for written in std::mem::take(&mut inode.unsynced) {
                if !hosts(written.host) {
                    inode.unsynced.push(written);
                } else if state.random.chance(0.5) {
                    write(&mut inode.durable, written.at, &written.bytes);
                }
            }
            inode.visible.clone_from(&inode.durable);
            inode.unsynced.iter().for_each(|written| write(&mut inode.visible, written.at, &written.bytes));
        }
        for folder in state.folders.values_mut() {
            let mut kept = Vec::new();
            for (host, change) in std::mem::take(&mut folder.unsynced) {
                if !hosts(host) || state.random.chance(0.5) {
                    kept.push((host, change));
                }
            }
            folder.visible.clone_from(&folder.durable);
            kept.iter().for_each(|(_, change)| Folder::apply(&mut folder.visible, change));
            // A change that survived on the servers stays unsynced: the loss of all may still take it.
            folder.unsynced = kept;
        }
        state.remove_unnamed_folders();
    }
}

fn write(contents: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    contents.resize(contents.len().max(at + bytes.len()), 0);
    contents[at..at + bytes.len()].copy_from_slice(bytes);
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

fn split(path: &Path) -> (PathBuf, String) {
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
    (path.parent().expect("a folder").to_owned(), name.to_owned())
}

impl State {
    fn folder(&mut self, path: &Path) -> io::Result<&mut Folder> {
        self.folders.get_mut(path).ok_or_else(not_found)
    }

    fn inode(&mut self, path: &Path) -> io::Result<usize> {
        let (folder, name) = split(path);
        self.folder(&folder)?.visible.get(&name).copied().ok_or_else(not_found)
    }

    /// Removes folders that have lost their names.
    fn remove_unnamed_folders(&mut self) {
        let is_named = |state: &State, path: &Path| {
            path == Path::new(ROOT) || {
                let (parent, name) = split(path);
                state.folders.get(&parent).is_some_and(|parent| parent.visible.contains_key(&name))
            }
        };
        // A parent is before its folders.
        let all: Vec<PathBuf> = self.folders.keys().cloned().collect();
        for path in all {
            if !is_named(self, &path) {
                self.folders.remove(&path);
            }
        }
    }
}

struct OnHost {
    pfs: SimPfs,
    host: usize,
}

impl OnHost {
    /// Makes a step of a call, which fails or stalls if it was told to.
    fn step(&self, call: &'static str) -> io::Result<()> {
        let seat = seat();
        let time = seat.cluster.schedule.below(CALL.as_nanos() as u64);
        seat.pause(call, None, Duration::from_nanos(time));
        loop {
            let until = lock(&self.pfs.state).stalled_until;
            let left = until.saturating_sub(seat.cluster.schedule.now());
            if left.is_zero() {
                break;
            }
            seat.pause(call, None, left.min(Duration::from_millis(100)));
        }
        let mut state = lock(&self.pfs.state);
        if state.full && matches!(call, "folder" | "create" | "bytes") {
            state.failed += 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        if state.fails == Some(call) {
            state.fails = None;
            state.failed += 1;
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.pfs.state)
    }
}

impl FileSystem for OnHost {
    fn create_directory(&self, path: &Path, _mode: u32) -> io::Result<()> {
        self.step("folder")?;
        let state = &mut *self.state();
        let (parent, name) = split(path);
        let parent = state.folders.get_mut(&parent).ok_or_else(not_found)?;
        if parent.visible.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        parent.change(self.host, Change::Link(name, usize::MAX));
        state.folders.entry(path.to_owned()).or_default();
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.step("sync names")?;
        self.state().folder(path)?.sync();
        Ok(())
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        self.step("list")?;
        Ok(self.state().folder(path)?.visible.keys().cloned().collect())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        self.step("create")?;
        let state = &mut *self.state();
        let (folder, name) = split(path);
        let inode = state.inodes.len();
        state.folder(&folder)?.change(self.host, Change::Link(name, inode));
        state.inodes.push(Inode::default());
        Ok(Box::new(SimFile { files: OnHost { pfs: self.pfs.clone(), host: self.host }, inode, at: 0 }))
    }

    fn open(&self, path: &Path, at: u64) -> io::Result<Box<dyn Read>> {
        self.step("read")?;
        let mut state = self.state();
        let inode = state.inode(path)?;
        let bytes = state.inodes[inode].visible.get(at as usize..).unwrap_or_default().to_vec();
        Ok(Box::new(Cursor::new(bytes)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let stepped = self.step("rename");
        let mut state = self.state();
        // A rename that fails may have happened.
        if stepped.is_ok() || state.random.chance(0.5) {
            state.inode(from)?;
            let ((folder, from), (_, to)) = (split(from), split(to));
            state.folder(&folder)?.change(self.host, Change::Rename(from, to));
        }
        stepped
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step("remove")?;
        let mut state = self.state();
        state.inode(path)?;
        let (folder, name) = split(path);
        state.folder(&folder)?.change(self.host, Change::Unlink(name));
        Ok(())
    }
}

struct SimFile {
    files: OnHost,
    inode: usize,
    at: usize,
}

impl Write for SimFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.files.step("bytes")?;
        let mut state = self.files.state();
        let inode = &mut state.inodes[self.inode];
        write(&mut inode.visible, self.at, bytes);
        inode.unsynced.push(Written { host: self.files.host, at: self.at, bytes: bytes.to_vec() });
        self.at += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for SimFile {
    fn sync(&mut self) -> io::Result<()> {
        let stepped = self.files.step("sync");
        let mut state = self.files.state();
        let inode = &mut state.inodes[self.inode];
        inode.unsynced.clear();
        if stepped.is_ok() {
            inode.durable.clone_from(&inode.visible);
        }
        stepped
    }
}
