//! Files whose names are removed. What the cache forgets of a file may become durable only after the directories below
//! were synced for it: until then a crash brings the name back, and with it bytes that may be in the cache alone.

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

/// Time after which the sync of a directory that failed is tried again, for the removals that wait for it.
const AGAIN: Duration = Duration::from_secs(1);
/// Removals that share the syncs of their directories.
const AT_ONCE: usize = 1024;

/// State of a file whose names may be removed.
#[derive(Default)]
pub(super) struct Leaving {
    /// The map says that it may not be there, perhaps not durably.
    pub announced: AtomicBool,
    /// It was written since its last sync.
    pub unsynced: AtomicBool,
    /// Pages of it that may have been dirty were forgotten, and that is not durable: a crash brings them back.
    pub forgot: AtomicBool,
    /// A range of it was cut off or made zeroes since the start. What is read of that before the file system below was synced counts as
    /// dirty to the cache, and after a crash still.
    pub voided: AtomicBool,
    /// It was made after the start and not synced since: a crash may leave nothing of it.
    unborn: AtomicBool,
    /// It was cut to nothing while it was open.
    pub emptied: AtomicBool,
    /// A directory that it had a name in could not be opened.
    unreadable: AtomicBool,
    /// Directories in which names of it were removed.
    directories: Mutex<BTreeMap<FileId, Arc<Directory>>>,
}

/// Directories in which names were removed, each open once however many that were.
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

/// Count of removed files that are not dropped yet. Each has its descriptor open, for no name leads to it: whoever removes a whole
/// folder, faster than directories can be synced, would leave no descriptor to anyone.
#[derive(Default)]
pub(super) struct Backlog {
    files: Mutex<usize>,
    fewer: Condvar,
}

impl Backlog {
    /// A file is removed.
    pub fn add(&self) {
        *self.files.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// A file was dropped, and its descriptor is closed.
    pub fn take(&self) {
        *self.files.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.fewer.notify_all();
    }

    /// Waits while these files have more than their share of the descriptors, an eighth of all that may be open, and get fewer. They do
    /// not where a directory cannot be synced.
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

/// Work that is done for a file while nobody waits for it.
pub(super) enum Errand {
    /// A file is gone: what the cache has of it is dropped.
    Removed(Arc<CachedFile>),
    /// A file that was emptied and written anew was closed.
    Replaced(Arc<CachedFile>),
}

impl CachedFile {
    /// A name in `directory` is about to be removed.
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
            // One that may be written but not read: the whole file system is synced instead.
            Err(_) => self.leaving.unreadable.store(true, SeqCst),
        }
        let mut map = self.shared().map();
        map.note_leaving(self.below.key)?;
        // Whoever writes from now on sees this after having noted the write; who noted it before is seen here.
        self.leaving.announced.store(true, SeqCst);
        let Leaving { forgot, voided, .. } = &self.leaving;
        let may_be_dirty = self.may_be_dirty() || forgot.load(SeqCst) || voided.load(SeqCst);
        if may_be_dirty && !mutant::is(Mutant::LeavingUnsynced) { map.sync() } else { Ok(()) }
    }

    /// Nobody knows it any more, and the cache has nothing of it.
    pub fn gone_unseen(&self) {
        if self.leaving.announced.load(SeqCst) || self.leaving.unborn.load(SeqCst) {
            self.shared().map().forget_leaving(self.below.key);
        }
    }

    /// It has a name still.
    pub fn stay(&self) {
        let mut map = self.shared().map();
        if !self.leaving.unborn.load(SeqCst) {
            // The word need not be there: the file is, and is found.
            let _less_missed = map.note_stays(self.below.key);
        }
        self.leaving.announced.store(false, SeqCst);
    }

    /// Before its first region: of a file that was made since the start the map says that it need not be there after a crash.
    pub fn announce_unborn(&self, map: &mut FileMap) -> io::Result<()> {
        if self.below.key.made < self.shared().started || mutant::is(Mutant::UnbornUnsaid) {
            return Ok(());
        }
        self.leaving.unborn.store(true, SeqCst);
        map.note_leaving(self.below.key)
    }

    /// Its size was synced, and with that the file itself.
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

/// Count of directories that could not be synced. Nobody waits for these syncs, so nobody else hears of it.
#[derive(Default)]
pub(super) struct DirectorySyncs(Mutex<(u64, Option<String>)>);

impl DirectorySyncs {
    fn lock(&self) -> MutexGuard<'_, (u64, Option<String>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one if it failed; whether it succeeded.
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

/// Syncs the directories of files that are gone, each once; those whose directories could not be synced come back.
fn sync_directories(
    gone: Vec<Arc<CachedFile>>,
    syncs: &DirectorySyncs,
) -> (Vec<Arc<CachedFile>>, Vec<Arc<CachedFile>>) {
    let mut synced: BTreeMap<FileId, bool> = BTreeMap::new();
    gone.into_iter().partition(|file| {
        let directories = file.leaving.directories.lock().unwrap_or_else(PoisonError::into_inner);
        let all = || syncs.count(file.below.file().and_then(|file| Ok(file.sync_file_system()?)));
        if file.leaving.unreadable.load(SeqCst) && !all() {
            return false;
        }
        directories.iter().all(|(&id, directory)| {
            // Without its sync a crash could bring the name back when the bytes are forgotten.
            let sync = || syncs.count(directory.sync().map_err(io::Error::from));
            *synced.entry(id).or_insert_with(|| mutant::is(Mutant::DirectoryUnsynced) || sync())
        })
    })
}

/// Runner of the errands.
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

    /// Runs errands until nobody can send one any more. What cannot be done then the next start does.
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
            // As the system does, nobody is told whether it succeeded.
            Errand::Replaced(file) => drop(file.sync_if_written()),
        }
    }

    /// Does what there is to do now.
    pub fn turn(&mut self) {
        let more: Vec<Errand> = self.errands.try_iter().take(AT_ONCE).collect();
        more.into_iter().for_each(|errand| self.take(errand));
        let (over, again) = sync_directories(std::mem::take(&mut self.gone), &self.shared.directory_syncs);
        for file in over {
            self.shared.drop_file(&file);
            drop(file);
            self.shared.backlog.take();
        }
        self.gone = again;
    }
}

/// Makes durable whatever is gone from the backing directory, before a start forgets what the cache has of it.
pub(super) fn sync_names(root: &Directory) -> io::Result<()> {
    Ok(root.sync_file_system()?)
}

#[cfg(test)]
mod tests {
    use crate::below::{File, FileSystem, OpenFile as _};
    use crate::cached::{Backing, CachedFiles};
    use crate::simulated::{Call, SimFileSystem};
    use entresol_crashtest::{Power, SimDisk};
    use entresol_engine::cache::{CacheConfig, Maintenance};
    use entresol_engine::store::{Geometry, Layout};
    use entresol_policy::catalogue;
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
