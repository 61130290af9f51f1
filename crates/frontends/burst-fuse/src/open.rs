//! Open files: readers of committed ones, and files that are being written, which all openings of this mount share.

use crate::exit::{is_of, process_of};
use crate::nodes::{Path, lock, named};
use entresol_burst_live::client::{FileError, FileReader, FileWriter, Files, WriteBuffer};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// One opening of a file for writing.
#[derive(Default)]
struct Opening {
    /// The process that opened the file; 0 if it is unknown.
    owner: u32,
    progress: Mutex<Progress>,
}

/// Bytes and state of an opening.
#[derive(Default)]
struct Progress {
    buffer: WriteBuffer,
    /// True if the owner has closed it: what others write through it counts from then on when they close it.
    left: bool,
    /// True if it was closed, and not written to since.
    closed: bool,
}

/// A file that is being written.
pub(super) struct Writing {
    writer: FileWriter,
    openings: Mutex<BTreeMap<u64, Arc<Opening>>>,
    /// True if the process that opened the file has failed, or the opening itself: the file is not whole.
    failed: AtomicBool,
}

impl Writing {
    fn new(writer: FileWriter) -> Writing {
        Writing { writer, openings: Mutex::default(), failed: AtomicBool::new(false) }
    }

    fn opening(&self, handle: u64) -> Arc<Opening> {
        Arc::clone(lock(&self.openings).entry(handle).or_default())
    }

    fn all(&self) -> Vec<Arc<Opening>> {
        lock(&self.openings).values().cloned().collect()
    }

    pub fn write(&self, handle: u64, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let opening = self.opening(handle);
        let mut progress = lock(&opening.progress);
        progress.closed = false;
        self.writer.write(&mut progress.buffer, offset, bytes)
    }

    /// Stores and commits all bytes of this opening, and those of others that are stored.
    pub fn sync(&self, handle: u64) -> Result<(), FileError> {
        let since = Instant::now();
        self.writer.send(&mut lock(&self.opening(handle).progress).buffer, since)?;
        self.writer.commit(since)
    }

    /// Stores the bytes of an opening of which a thread closes a descriptor. The file is committed when the processes that
    /// opened it have closed it. A child that has inherited a descriptor closes it at its end, or as it begins another
    /// program, and the file is not whole by that. Nor is it while the process that opened it has another descriptor of this
    /// opening, as a shell has copies of the one that it writes to; `has_another` looks for one in a process. Where that cannot be
    /// known a descriptor to which nothing was written counts as such a copy.
    pub fn close(&self, handle: u64, thread: u32, has_another: impl Fn(u32) -> bool) -> Result<(), FileError> {
        let since = Instant::now();
        {
            let opening = self.opening(handle);
            let mut progress = lock(&opening.progress);
            self.writer.send(&mut progress.buffer, since)?;
            if self.writer.is_untouched() {
                return Ok(());
            }
            let owner = opening.owner;
            progress.left |= is_of(thread, owner) && !(self.has_one_opening(owner) && has_another(owner));
            if !progress.left {
                return Ok(());
            }
            progress.closed = true;
        }
        match self.all().iter().all(|opening| lock(&opening.progress).closed) {
            true => self.writer.commit(since),
            false => Ok(()),
        }
    }

    /// True if a process has opened the file once, so that its descriptors are all of this opening.
    fn has_one_opening(&self, owner: u32) -> bool {
        lock(&self.openings).values().filter(|opening| opening.owner == owner).count() == 1
    }

    /// Notes that the process of a thread fails, and the kernel closes its files.
    pub fn fail(&self, handle: u64, thread: u32) {
        if is_of(thread, self.opening(handle).owner) {
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Commits a file that was closed and never written to.
    fn commit_empty(&self) -> Result<(), FileError> {
        match self.writer.is_untouched() && !self.failed.load(Ordering::Relaxed) {
            true => self.writer.commit(Instant::now()),
            false => Ok(()),
        }
    }

    /// True if all openings are closed and all their bytes committed: the kernel has not released it yet.
    pub fn is_finished(&self) -> bool {
        self.writer.is_committed() && self.all().iter().all(|opening| lock(&opening.progress).closed)
    }

    pub fn set_length(&self, bytes: u64) {
        self.writer.set_length(bytes);
        self.all().iter().for_each(|opening| lock(&opening.progress).buffer.cut(bytes));
    }

    pub fn length(&self) -> u64 {
        let openings = self.all();
        let locked: Vec<_> = openings.iter().map(|opening| lock(&opening.progress)).collect();
        self.writer.length(locked.iter().map(|progress| &progress.buffer))
    }
}

/// An open handle.
#[derive(Clone)]
pub(super) enum Handle {
    Reader(Arc<Mutex<FileReader>>),
    Writer(Path, Arc<Writing>),
}

/// A file that may be being written. The lock is held while it is opened.
type Slot = Arc<Mutex<Option<Arc<Writing>>>>;

/// The files that are open in this mount.
pub(super) struct OpenFiles {
    files: Arc<Files>,
    handles: Mutex<(u64, HashMap<u64, Handle>)>,
    writing: Mutex<HashMap<Path, Slot>>,
}

impl OpenFiles {
    pub fn new(files: Arc<Files>) -> OpenFiles {
        OpenFiles { files, handles: Mutex::default(), writing: Mutex::default() }
    }

    fn next(&self) -> u64 {
        let mut handles = lock(&self.handles);
        handles.0 += 1;
        handles.0
    }

    pub fn get(&self, handle: u64) -> Option<Handle> {
        lock(&self.handles).1.get(&handle).cloned()
    }

    /// The state of a file that is being written through this mount.
    pub fn writing(&self, path: &Path) -> Option<Arc<Writing>> {
        let slot = lock(&self.writing).get(path).cloned()?;
        lock(&slot).clone().filter(|writing| !writing.is_finished())
    }

    /// Opens a committed file.
    pub fn read(&self, path: &Path) -> Result<u64, FileError> {
        let reader = FileReader::open(Arc::clone(&self.files), path.0, &path.1)?;
        let handle = self.next();
        lock(&self.handles).1.insert(handle, Handle::Reader(Arc::new(Mutex::new(reader))));
        Ok(handle)
    }

    /// Opens a file for a thread to write, of which nothing is left with `truncate`.
    pub fn write(&self, path: &Path, truncate: bool, thread: u32) -> Result<u64, FileError> {
        let slot = Arc::clone(lock(&self.writing).entry(path.clone()).or_default());
        let opened = self.write_in(&slot, path, truncate, thread);
        drop(slot);
        if opened.is_err() {
            self.forget_unused(path);
        }
        opened
    }

    fn write_in(&self, slot: &Slot, path: &Path, truncate: bool, thread: u32) -> Result<u64, FileError> {
        let mut slot = lock(slot);
        let writing = match &*slot {
            Some(writing) if !writing.is_finished() => {
                if truncate {
                    writing.set_length(0);
                }
                Arc::clone(writing)
            }
            _ => {
                let writer = FileWriter::create(Arc::clone(&self.files), path.0, &path.1, truncate)?;
                Arc::new(Writing::new(writer))
            }
        };
        *slot = Some(Arc::clone(&writing));
        let handle = self.next();
        let opening = Opening { owner: process_of(thread), ..Opening::default() };
        lock(&writing.openings).insert(handle, Arc::new(opening));
        lock(&self.handles).1.insert(handle, Handle::Writer(path.clone(), writing));
        Ok(handle)
    }

    /// Takes an opening back that its caller never gets: the file is not committed by it.
    pub fn take_back(&self, handle: u64) {
        if let Some(Handle::Writer(_, writing)) = self.get(handle) {
            writing.failed.store(true, Ordering::Relaxed);
        }
        self.release(handle);
    }

    /// Ends an opening. Returns the path of a file of which bytes are given up: they were not committed.
    pub fn release(&self, handle: u64) -> Option<Path> {
        let Some(Handle::Writer(path, writing)) = lock(&self.handles).1.remove(&handle) else { return None };
        let slot = lock(&self.writing).get(&path).cloned()?;
        let mut locked = lock(&slot);
        lock(&writing.openings).remove(&handle);
        let is_last = lock(&writing.openings).is_empty();
        if is_last && let Err(error) = writing.commit_empty() {
            eprintln!("{}: {error}", named(&path));
        }
        if is_last && locked.as_ref().is_some_and(|current| Arc::ptr_eq(current, &writing)) {
            *locked = None;
        }
        drop(locked);
        drop(slot);
        self.forget_unused(&path);
        (is_last && !writing.writer.is_committed()).then_some(path)
    }

    fn forget_unused(&self, path: &Path) {
        let mut writing = lock(&self.writing);
        // A slot of which the table has the only reference is in no use, and nobody can get it meanwhile.
        if writing.get(path).is_some_and(|slot| Arc::strong_count(slot) == 1 && lock(slot).is_none()) {
            writing.remove(path);
        }
    }

    /// Paths of the files that are being written.
    pub fn unfinished(&self) -> Vec<Path> {
        let slots: Vec<(Path, Slot)> =
            lock(&self.writing).iter().map(|(path, slot)| (path.clone(), Arc::clone(slot))).collect();
        let is_open = |slot: &Slot| lock(slot).as_ref().is_some_and(|writing| !writing.is_finished());
        slots.into_iter().filter(|(_, slot)| is_open(slot)).map(|(path, _)| path).collect()
    }
}
