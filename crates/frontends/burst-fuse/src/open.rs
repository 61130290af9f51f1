//! Open files: readers of committed ones, and files that are being written, which all openings of this mount share.

use crate::exit::{is_of, process_of};
use crate::nodes::{Path, is_temporary, lock, named};
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
    path: Mutex<Path>,
    writer: FileWriter,
    openings: Mutex<BTreeMap<u64, Arc<Opening>>>,
    /// True if the process that opened the file has failed, or the opening itself: the file is not whole.
    failed: AtomicBool,
}

impl Writing {
    fn new(path: &Path, writer: FileWriter) -> Writing {
        let (path, openings, failed) = (Mutex::new(path.clone()), Mutex::default(), AtomicBool::new(false));
        Writing { path, writer, openings, failed }
    }

    /// The path that the file has now.
    pub fn path(&self) -> Path {
        lock(&self.path).clone()
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
        match self.is_closed() {
            true => self.writer.commit(since),
            false => Ok(()),
        }
    }

    /// True if all openings are closed, and were not written to since.
    fn is_closed(&self) -> bool {
        self.all().iter().all(|opening| lock(&opening.progress).closed)
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
        !self.writer.is_temporary() && self.writer.is_committed() && self.is_closed()
    }

    /// True if the file is whole, and waits for another name than its temporary one.
    pub fn is_waiting(&self) -> bool {
        self.writer.is_temporary() && self.writer.is_committed() && self.is_closed()
    }

    pub fn set_length(&self, bytes: u64) -> Result<(), FileError> {
        let waited = self.is_waiting();
        self.writer.set_length(bytes);
        self.all().iter().for_each(|opening| lock(&opening.progress).buffer.cut(bytes));
        // No descriptor is closed after this.
        if waited { self.writer.commit(Instant::now()) } else { Ok(()) }
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
    Writer(Arc<Writing>),
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

    /// Opens a committed file, or one with a temporary name that is whole.
    pub fn read(&self, path: &Path) -> Result<u64, FileError> {
        let reader = match self.writing(path) {
            Some(writing) => writing.writer.reader()?,
            None => FileReader::open(Arc::clone(&self.files), path.0, &path.1)?,
        };
        let handle = self.next();
        lock(&self.handles).1.insert(handle, Handle::Reader(Arc::new(Mutex::new(reader))));
        Ok(handle)
    }

    /// Opens a file for a thread to write, of which nothing is left with `truncate`.
    pub fn write(&self, path: &Path, truncate: bool, thread: u32) -> Result<u64, FileError> {
        let slot = self.slot(path);
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
                    writing.set_length(0)?;
                }
                Arc::clone(writing)
            }
            _ => {
                let (files, (checkpoint, name)) = (Arc::clone(&self.files), path);
                let writer = match is_temporary(name) {
                    true => FileWriter::create_temporary(files, *checkpoint, name)?,
                    false => FileWriter::create(files, *checkpoint, name, truncate)?,
                };
                Arc::new(Writing::new(path, writer))
            }
        };
        *slot = Some(Arc::clone(&writing));
        let handle = self.next();
        let opening = Opening { owner: process_of(thread), ..Opening::default() };
        lock(&writing.openings).insert(handle, Arc::new(opening));
        lock(&self.handles).1.insert(handle, Handle::Writer(writing));
        Ok(handle)
    }

    /// Takes an opening back that its caller never gets: the file is not committed by it.
    pub fn take_back(&self, handle: u64) {
        if let Some(Handle::Writer(writing)) = self.get(handle) {
            writing.failed.store(true, Ordering::Relaxed);
        }
        self.release(handle);
    }

    /// Ends an opening. Returns the path of a file of which bytes are given up: they were not committed.
    pub fn release(&self, handle: u64) -> Option<Path> {
        let Some(Handle::Writer(writing)) = lock(&self.handles).1.remove(&handle) else { return None };
        loop {
            let path = writing.path();
            let slot = self.slot(&path);
            let released = self.release_in(&mut lock(&slot), &writing, &path, handle);
            drop(slot);
            self.forget_unused(&path);
            if let Some(is_given_up) = released {
                return is_given_up.then_some(path);
            }
        }
    }

    /// Ends an opening of a file. Returns true if bytes are given up; none if the file has another path now.
    fn release_in(
        &self,
        slot: &mut Option<Arc<Writing>>,
        writing: &Arc<Writing>,
        path: &Path,
        handle: u64,
    ) -> Option<bool> {
        if writing.path() != *path {
            return None;
        }
        let opening = lock(&writing.openings).remove(&handle);
        // Bytes that could be stored nowhere are given up, and the file is not whole.
        if opening.is_some_and(|opening| !lock(&opening.progress).buffer.is_empty()) {
            writing.failed.store(true, Ordering::Relaxed);
        }
        if !lock(&writing.openings).is_empty() {
            return Some(false);
        }
        if let Err(error) = writing.commit_empty() {
            eprintln!("{}: {error}", named(path));
        }
        let stays = writing.is_waiting() && !writing.failed.load(Ordering::Relaxed);
        if !stays && slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, writing)) {
            *slot = None;
        }
        Some(!writing.writer.is_committed())
    }

    fn slot(&self, path: &Path) -> Slot {
        Arc::clone(lock(&self.writing).entry(path.clone()).or_default())
    }

    /// Gives a file that was written under a temporary name another path in its checkpoint, in place of another file with
    /// `replace`. Under a final name it is committed as far as it is synced or closed; the rest when it is closed.
    pub fn rename(&self, from: &Path, to: &Path, replace: bool) -> Result<(), FileError> {
        if from == to {
            return Ok(());
        }
        let slots = (self.slot(from), self.slot(to));
        let renamed = {
            // In the order of the paths, so that no two threads wait for each other.
            let first = lock(if from < to { &slots.0 } else { &slots.1 });
            let second = lock(if from < to { &slots.1 } else { &slots.0 });
            let (mut source, mut target) = if from < to { (first, second) } else { (second, first) };
            Self::rename_in(&mut source, &mut target, to, replace)
        };
        drop(slots);
        self.forget_unused(from);
        self.forget_unused(to);
        renamed
    }

    fn rename_in(
        source: &mut Option<Arc<Writing>>,
        target: &mut Option<Arc<Writing>>,
        to: &Path,
        replace: bool,
    ) -> Result<(), FileError> {
        let writing = source.clone().filter(|it| it.writer.is_temporary()).ok_or(FileError::Named)?;
        if !replace && target.as_ref().is_some_and(|it| !it.is_finished()) {
            return Err(FileError::Committed);
        }
        if !is_temporary(&to.1) {
            writing.writer.rename(&to.1, replace, Instant::now())?;
        }
        lock(&writing.path).clone_from(to);
        *source = None;
        let is_used = writing.writer.is_temporary() || !lock(&writing.openings).is_empty();
        *target = is_used.then_some(writing);
        Ok(())
    }

    /// Removes a file with a temporary name. Those who have it open may go on, to no effect.
    pub fn remove(&self, path: &Path) -> Result<(), FileError> {
        let slot = self.slot(path);
        let removed = lock(&slot).take_if(|writing| writing.writer.is_temporary());
        drop(slot);
        self.forget_unused(path);
        removed.map(drop).ok_or(FileError::Named)
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

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_burst::{CheckpointId, JobId, NodeId};
    use entresol_burst_live::client::{Client, ClientSettings};
    use entresol_burst_live::pfs::{Directory, Pfs};
    use entresol_core::Random;
    use std::io::{self, Read};
    use std::time::Duration;

    /// A directory to which nothing can be written while a switch is on.
    struct Switched {
        inner: Directory,
        is_full: AtomicBool,
    }

    impl Pfs for Switched {
        fn create(&self, folder: &str, name: &str, contents: &mut dyn Read) -> io::Result<()> {
            match self.is_full.load(Ordering::SeqCst) {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => self.inner.create(folder, name, contents),
            }
        }

        fn read(&self, folder: &str, name: &str, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
            self.inner.read(folder, name, at, bytes)
        }

        fn read_small(&self, folder: &str, name: &str) -> io::Result<Vec<u8>> {
            self.inner.read_small(folder, name)
        }

        fn list(&self, folder: &str) -> io::Result<Vec<String>> {
            self.inner.list(folder)
        }
    }

    /// The files of a mount without buffers, with the switch of its PFS.
    fn files(root: &std::path::Path) -> (OpenFiles, Arc<Switched>) {
        let directory = || Directory::open(root).expect("a directory");
        let pfs = Arc::new(Switched { inner: directory(), is_full: AtomicBool::new(false) });
        let (coordinator, nodes, node, patience) = (None, Vec::new(), NodeId(0), Duration::ZERO);
        let settings = ClientSettings { coordinator, nodes, node, patience, credential: None };
        let client = Client::new(settings, pfs.clone());
        let files = Files::new(client, Arc::new(directory()), JobId(1), 2).expect("a number of files");
        (OpenFiles::new(Arc::new(files)), pfs)
    }

    fn path(name: &str) -> Path {
        (CheckpointId(1), name.into())
    }

    /// Opens a file for this process and writes to it.
    fn write(open: &OpenFiles, name: &str, bytes: &[u8]) -> (u64, Arc<Writing>) {
        let handle = open.write(&path(name), true, std::process::id()).expect("opened");
        let Some(Handle::Writer(writing)) = open.get(handle) else { panic!("no writer") };
        writing.write(handle, 0, bytes).expect("collected");
        (handle, writing)
    }

    fn close(open: &OpenFiles, (handle, writing): (u64, Arc<Writing>)) -> Option<Path> {
        writing.close(handle, std::process::id(), |_| false).expect("stored");
        open.release(handle)
    }

    fn read(open: &OpenFiles, name: &str) -> Result<Vec<u8>, FileError> {
        let handle = open.read(&path(name))?;
        let Some(Handle::Reader(reader)) = open.get(handle) else { panic!("no reader") };
        open.release(handle);
        lock(&reader).read(0, 1 << 20)
    }

    #[test]
    fn a_file_whose_bytes_were_stored_nowhere_is_not_committed_as_an_empty_one() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (open, pfs) = files(scratch.path());
        for name in ["state", "state.tmp"] {
            let (handle, writing) = write(&open, name, b"bytes");
            pfs.is_full.store(true, Ordering::SeqCst);
            assert!(writing.close(handle, std::process::id(), |_| false).is_err());
            pfs.is_full.store(false, Ordering::SeqCst);
            assert_eq!(open.release(handle), Some(path(name)));
            assert!(matches!(read(&open, name), Err(FileError::Missing)));
            assert!(open.unfinished().is_empty());
        }
    }

    #[test]
    fn a_rename_that_fails_leaves_both_files_and_is_tried_again() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (open, pfs) = files(scratch.path());
        assert_eq!(close(&open, write(&open, "state", b"old")), None);
        assert_eq!(close(&open, write(&open, "state.tmp", b"new")), None);
        pfs.is_full.store(true, Ordering::SeqCst);
        assert!(open.rename(&path("state.tmp"), &path("state"), true).is_err());
        pfs.is_full.store(false, Ordering::SeqCst);
        let both = || (read(&open, "state").expect("a file"), read(&open, "state.tmp").expect("a file"));
        assert_eq!(both(), (b"old".to_vec(), b"new".to_vec()));
        assert!(matches!(open.rename(&path("state.tmp"), &path("state"), false), Err(FileError::Committed)));
        assert_eq!(both(), (b"old".to_vec(), b"new".to_vec()));
        assert_eq!(open.unfinished(), [path("state.tmp")]);
        open.rename(&path("state.tmp"), &path("state"), true).expect("renamed");
        assert_eq!(read(&open, "state").expect("a file"), b"new");
        assert!(matches!(read(&open, "state.tmp"), Err(FileError::Missing)));
        assert!(matches!(open.rename(&path("state.tmp"), &path("other"), true), Err(FileError::Named)));
        assert!(matches!(open.rename(&path("state"), &path("other"), true), Err(FileError::Named)));
        assert!(matches!(open.remove(&path("state")), Err(FileError::Named)));
        assert!(open.unfinished().is_empty() && lock(&open.writing).is_empty());
    }

    #[test]
    fn a_file_that_is_renamed_while_it_is_written_is_committed_when_it_is_closed() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (open, _) = files(scratch.path());
        let (handle, writing) = write(&open, "state.tmp", b"half");
        open.rename(&path("state.tmp"), &path("more.tmp"), true).expect("renamed");
        open.rename(&path("more.tmp"), &path("state"), true).expect("renamed");
        assert_eq!(open.unfinished(), [path("state")]);
        // The name of the first file may be used again meanwhile.
        assert_eq!(close(&open, write(&open, "state.tmp", b"another")), None);
        writing.write(handle, 4, b" and half").expect("collected");
        assert!(matches!(Files::list(&open.files, CheckpointId(1)), Ok(names) if names.is_empty()));
        assert_eq!(close(&open, (handle, writing)), None);
        assert_eq!(read(&open, "state").expect("a file"), b"half and half");
        assert_eq!(read(&open, "state.tmp").expect("a file"), b"another");
        // What is synced is committed by the rename.
        let (handle, writing) = write(&open, "state.tmp", b"synced");
        writing.sync(handle).expect("stored");
        open.rename(&path("state.tmp"), &path("state"), true).expect("renamed");
        assert_eq!(open.files.committed(CheckpointId(1), "state".as_ref()).expect("committed").bytes, 6);
        assert_eq!(close(&open, (handle, writing)), None);
        // A file without a byte, and one that was cut after it was closed.
        let empty = open.write(&path("empty.tmp"), true, std::process::id()).expect("opened");
        open.release(empty);
        open.writing(&path("empty.tmp")).expect("it waits").set_length(3).expect("longer");
        open.rename(&path("empty.tmp"), &path("zeros"), true).expect("renamed");
        assert_eq!(read(&open, "zeros").expect("a file"), [0; 3]);
        // The slots of the checkpoint are those of final names.
        assert_eq!(close(&open, write(&open, "third.tmp", b"x")), None);
        assert!(matches!(open.rename(&path("third.tmp"), &path("third"), true), Err(FileError::Full(2))));
        open.remove(&path("third.tmp")).expect("removed");
        assert!(matches!(read(&open, "third.tmp"), Err(FileError::Missing)) && lock(&open.writing).is_empty());
    }

    #[test]
    fn threads_that_write_rename_and_remove_leave_whole_files() {
        const BYTES: usize = 1000;
        let seed = 12;
        println!("seed {seed}");
        let scratch = tempfile::tempdir().expect("a directory");
        let (open, _) = files(scratch.path());
        let names = ["a.tmp", "b.tmp", "c.tmp", "one", "two"];
        let act = |random: &mut Random, byte: u8| {
            let mut temporary = || path(names[random.below(3) as usize]);
            let (from, other) = (temporary(), temporary());
            // Several threads have the same names: any of these calls may fail.
            match random.below(5) {
                0 => drop(open.remove(&from)),
                1 => drop(open.rename(&from, &other, random.below(2) == 0)),
                2 | 3 => {
                    let Ok(handle) = open.write(&from, true, std::process::id()) else { return };
                    let Some(Handle::Writer(writing)) = open.get(handle) else { panic!("no writer") };
                    writing.write(handle, 0, &[byte; BYTES]).expect("collected");
                    let _closed = writing.close(handle, std::process::id(), |_| false);
                    open.release(handle);
                }
                _ => drop(open.rename(&from, &path(names[3 + random.below(2) as usize]), true)),
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let act = &act;
                scope.spawn(move || {
                    let mut random = Random::new(seed + thread);
                    (0..40).for_each(|round| act(&mut random, 1 + (thread * 40 + round) as u8));
                });
            }
        });
        for name in &names[3..] {
            let bytes = read(&open, name).expect("some rename has succeeded");
            assert!([0, BYTES].contains(&bytes.len()) && bytes.iter().all(|byte| *byte == bytes[0]), "{name}");
        }
        let left = open.unfinished();
        assert!(left.iter().all(|(_, name)| is_temporary(name)), "{left:?}");
        left.iter().for_each(|path| open.remove(path).expect("removed"));
        assert!(lock(&open.writing).is_empty() && lock(&open.handles).1.is_empty());
    }
}
