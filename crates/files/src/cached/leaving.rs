//! Files whose names are removed. The cache may durably forget pages of such a file only after the directories were
//! synced. Until then a crash brings the name back, perhaps with bytes that the cache alone has.

use super::Shared;
use super::file::CachedFile;
use super::map::FileMap;
use crate::below::{Directory, OpenDirectory as _, OpenFile};
use crate::mutant::{self, Mutant};
use crate::places::descriptors_bound;
use crate::{FileId, OpenDirectory};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Time after which a failed sync of a directory is tried again for the removals that wait for it.
const AGAIN: Duration = Duration::from_secs(1);
/// Most removals that share the syncs of their directories.
const AT_ONCE: usize = 1024;

/// State of a file whose names may be removed.
#[derive(Default)]
pub(super) struct Leaving {
    /// The map says, perhaps not durably, that the file may be missing.
    pub announced: AtomicBool,
    /// The file was written since its last sync.
    pub unsynced: AtomicBool,
    /// Pages that may have been dirty were forgotten, but not durably: a crash brings them back.
    pub forgot: AtomicBool,
    /// A range was cut off or zeroed since the start. Reads of that range count as dirty in the cache until the backing
    /// file system was synced, even after a crash.
    pub voided: AtomicBool,
    /// The file was made after the start and not synced since: a crash may remove it.
    unborn: AtomicBool,
    /// The file was cut to zero bytes while it was open.
    pub emptied: AtomicBool,
    /// A directory that had a name of the file could not be opened.
    unreadable: AtomicBool,
    /// Directories in which names of the file were removed.
    directories: Mutex<BTreeMap<FileId, Arc<Directory>>>,
}

impl Leaving {
    /// Notes that a crash may remove the file until it is synced.
    pub fn is_unborn(&self) {
        self.unborn.store(true, SeqCst);
    }
}

/// Directories in which names were removed, each open once for all its removals.
#[derive(Default)]
pub(super) struct Emptied(Mutex<BTreeMap<FileId, Weak<Directory>>>);

impl Emptied {
    fn share(&self, id: FileId, directory: Directory) -> Arc<Directory> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = known.get(&id).and_then(Weak::upgrade) {
            return open;
        }
        known.retain(|_, directory| directory.strong_count() > 0);
        let directory = Arc::new(directory);
        known.insert(id, Arc::downgrade(&directory));
        directory
    }
}

/// Number of removed files that are not dropped yet. Each keeps its descriptor, as it has no name. A program that
/// removes a whole folder faster than directories can be synced could otherwise use up all descriptors.
#[derive(Default)]
pub(super) struct Backlog {
    files: Mutex<usize>,
    fewer: Condvar,
}

impl Backlog {
    /// Counts a removed file.
    pub fn add(&self) {
        *self.files.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// Counts a dropped file, whose descriptor is closed.
    pub fn take(&self) {
        *self.files.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.fewer.notify_all();
    }

    /// Waits while these files hold more than their share, a quarter of the pool's bound, and their number falls. It
    /// does not fall where a directory cannot be synced.
    fn wait(&self) {
        let many = descriptors_bound() / 4;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        while *files > many {
            let (now, waited) = self.fewer.wait_timeout(files, AGAIN).unwrap_or_else(PoisonError::into_inner);
            files = now;
            if waited.timed_out() {
                return;
            }
        }
    }
}

/// Work on a file that no caller waits for.
pub(super) enum Errand {
    /// A file is gone: its pages in the cache are dropped.
    Removed(Arc<CachedFile>),
    /// A file that was emptied and rewritten was closed.
    Replaced(Arc<CachedFile>),
}

impl CachedFile {
    /// Called before a name in `directory` is removed.
    pub fn leave(&self, directory: OpenDirectory<'_>) -> io::Result<()> {
        self.shared().backlog.wait();
        match directory().and_then(|directory| Ok((directory.attributes()?, directory))) {
            Ok((found, directory)) => {
                let directory = self.shared().emptied.share(found.id, directory);
                self.leaving
                    .directories
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .entry(found.id)
                    .or_insert(directory);
            }
            // A directory that may be written but not read cannot be opened: the whole file system is synced instead.
            Err(_) => self.leaving.unreadable.store(true, SeqCst),
        }
        let mut map = self.shared().map();
        map.note_leaving(self.below.key)?;
        // A write noted from now on sees `announced`; a write noted earlier is seen by the check that follows.
        self.leaving.announced.store(true, SeqCst);
        let Leaving { forgot, voided, .. } = &self.leaving;
        let reads_are_dirty = self.shared().reads_are_dirty && !mutant::is(Mutant::InheritedNotHeeded);
        let may_be_dirty = self.may_be_dirty() || forgot.load(SeqCst) || voided.load(SeqCst) || reads_are_dirty;
        if may_be_dirty && !mutant::is(Mutant::LeavingUnsynced) { map.sync() } else { Ok(()) }
    }

    /// Called when the file is not known any more and the cache has no pages of it.
    pub fn gone_unseen(&self) {
        if self.leaving.announced.load(SeqCst) || self.leaving.unborn.load(SeqCst) {
            self.shared().map().forget_leaving(self.below.key);
        }
    }

    /// Called when the file still has a name.
    pub fn stay(&self) {
        let mut map = self.shared().map();
        if !self.leaving.unborn.load(SeqCst) {
            // The record need not be written: the file exists, and is found.
            let _less_missed = map.note_stays(self.below.key);
        }
        self.leaving.announced.store(false, SeqCst);
    }

    /// Notes in the map, before its first region, that a file made since the start may be missing after a crash.
    pub fn announce_unborn(&self, map: &mut FileMap) -> io::Result<()> {
        if self.below.key.made < self.shared().started || mutant::is(Mutant::UnbornUnsaid) {
            return Ok(());
        }
        self.leaving.unborn.store(true, SeqCst);
        map.note_leaving(self.below.key)
    }

    /// Called after a sync of the file's size, which made the file itself durable.
    pub fn is_born(&self) {
        if self.leaving.unborn.load(SeqCst) {
            let mut map = self.shared().map();
            self.leaving.unborn.store(false, SeqCst);
            if !self.leaving.announced.load(SeqCst) {
                let _less_missed = map.note_stays(self.below.key);
            }
        }
    }
}

/// Number of directories that could not be synced. No caller waits for these syncs, so the error is reported only here.
#[derive(Default)]
pub(super) struct DirectorySyncs(Mutex<(u64, Option<String>)>);

impl DirectorySyncs {
    fn lock(&self) -> MutexGuard<'_, (u64, Option<String>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a failure; true if the sync succeeded.
    fn count(&self, synced: io::Result<()>) -> bool {
        if let Err(error) = &synced {
            let mut failed = self.lock();
            *failed = (failed.0 + 1, Some(error.to_string()));
        }
        synced.is_ok()
    }

    /// Number of syncs that failed, and the last error of the system.
    pub fn failed(&self) -> (u64, Option<String>) {
        self.lock().clone()
    }
}

/// Syncs the file system of a file; true if that succeeded.
fn sync_all(file: &CachedFile, shared: &Shared) -> bool {
    let synced = shared.directory_syncs.count(file.below.file().and_then(|file| Ok(file.sync_file_system()?)));
    if !synced && !mutant::is(Mutant::WholeSyncUnheeded) {
        shared.disk.may_have_lost();
    }
    synced
}

/// Syncs the directories of removed files, each once. Returns the files whose directories were synced, and the others.
fn sync_directories(gone: Vec<Arc<CachedFile>>, shared: &Shared) -> (Vec<Arc<CachedFile>>, Vec<Arc<CachedFile>>) {
    let syncs = &shared.directory_syncs;
    let mut synced: BTreeMap<FileId, bool> = BTreeMap::new();
    gone.into_iter().partition(|file| {
        let directories = file.leaving.directories.lock().unwrap_or_else(PoisonError::into_inner);
        let all = || sync_all(file, shared);
        if file.leaving.unreadable.load(SeqCst) && !all() {
            return false;
        }
        directories.iter().all(|(&id, directory)| {
            // Without this sync a crash could bring the name back after the bytes were forgotten.
            let sync = || syncs.count(directory.sync().map_err(io::Error::from));
            *synced.entry(id).or_insert_with(|| mutant::is(Mutant::DirectoryUnsynced) || sync())
        })
    })
}

/// Worker that runs the errands.
pub(super) struct Janitor {
    errands: Receiver<Errand>,
    shared: Arc<Shared>,
    /// Files whose directories are not synced yet.
    gone: Vec<Arc<CachedFile>>,
}

impl Janitor {
    pub fn new(errands: Receiver<Errand>, shared: Arc<Shared>) -> Self {
        Self { errands, shared, gone: Vec::new() }
    }

    /// Runs errands until all senders are gone. Work left undone then falls to the next start.
    pub fn run(mut self) {
        loop {
            let next = match self.gone.is_empty() {
                true => self.errands.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => self.errands.recv_timeout(AGAIN),
            };
            let ended = matches!(next, Err(RecvTimeoutError::Disconnected));
            next.into_iter().for_each(|errand| self.take(errand));
            self.turn();
            if ended {
                return;
            }
        }
    }

    fn take(&mut self, errand: Errand) {
        match errand {
            Errand::Removed(file) => self.gone.push(file),
            // As in the system, the result is not reported.
            Errand::Replaced(file) => drop(file.sync_if_written()),
        }
    }

    /// Makes durable the removals of a former process, whose directories are not known; true once they are.
    fn sync_former_names(&self) -> bool {
        let names = &self.shared.names_unsynced;
        if names.load(SeqCst) && !mutant::is(Mutant::FormerNamesUnsynced) {
            names.store(!sync_all(&self.gone[0], &self.shared), SeqCst);
        }
        !names.load(SeqCst) || mutant::is(Mutant::FormerNamesUnsynced)
    }

    /// Runs the errands that are waiting now.
    pub fn turn(&mut self) {
        let more: Vec<Errand> = self.errands.try_iter().take(AT_ONCE).collect();
        more.into_iter().for_each(|errand| self.take(errand));
        if !self.gone.is_empty() && !self.sync_former_names() {
            return;
        }
        let (over, again) = sync_directories(std::mem::take(&mut self.gone), &self.shared);
        for file in over {
            self.shared.drop_file(&file);
            drop(file);
            self.shared.backlog.take();
        }
        self.gone = again;
    }
}

/// Makes removals in the backing directory durable, before a start forgets the pages of missing files.
pub(super) fn sync_names(root: &Directory) -> io::Result<()> {
    Ok(root.sync_file_system()?)
}

#[cfg(test)]
mod tests {
    use crate::below::simulated::{Call, SimFileSystem};
    use crate::below::{File, FileSystem, OpenFile as _};
    use crate::cached::{Backing, CachedFiles};
    use entresol_cache::{CacheConfig, Maintenance};
    use entresol_crashtest::{Power, SimDisk};
    use entresol_policy::catalogue;
    use entresol_store::{Geometry, Layout};
    use rustix::io::Errno;
    use std::ffi::OsStr;
    use std::path::Path;

    #[test]
    fn a_directory_that_cannot_be_synced_is_counted_and_its_removed_file_kept_until_it_can() {
        let geometry = Geometry { page_bytes: 512, segment_pages: 8, segments: 16, layout: Layout::Log };
        let power = Power::steady();
        let (cache, below) = (SimDisk::new(geometry.size_bytes(), &power), SimFileSystem::new(3, true, &power));
        let system = || FileSystem::Simulated(below.clone());
        Backing::format_in(&system(), Path::new("/"), &cache, geometry, [1; 16], [9; 16], None).expect("room");
        let lru = catalogue::info("lru").expect("a policy");
        let config = CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(lru, &[40]) };
        let backing = Backing::open_in(system(), Path::new("/")).expect("a map");
        let (files, _) = CachedFiles::open(backing, cache, &config, Vec::new()).expect("a cache in good order");
        let root = below.directory(Path::new("/"));
        let file = root.create("a").expect("a new file");
        let file = File::Simulated(file);
        let id = file.found().expect("attributes").id;
        let open = files.open_file(id, file, true).expect("a file");
        open.write(0, &[7; 2048]).and_then(|()| open.sync(false)).expect("a write");
        drop(open);
        crate::remove(&files, &root, OsStr::new("a")).expect("its name goes");
        crate::FileLayer::removed(&files, id);
        for failed in 1..=3 {
            below.fail(Call::Sync, 0, Errno::IO);
            files.run_errands();
            let (count, why) = files.failed_directory_syncs();
            assert_eq!(count, failed);
            assert!(why.is_some_and(|why| why.contains("Input/output error")));
            assert_eq!(files.shared.map().contents().regions.len(), 1, "nothing of it is forgotten");
        }
        files.run_errands();
        assert_eq!(files.failed_directory_syncs().0, 3, "a sync that succeeds is none of them");
        assert_eq!(files.shared.map().contents().regions.len(), 0);
    }
}
