//! All files of a directory over one cache.
//!
//! The cache knows one range of bytes, so the directory is one address space, of which a growing file gets regions of a
//! GiB. The file map says which file a region belongs to, and is durable before the cache has a page of the region. No
//! region is assigned twice, so old pages cannot appear in a new file.
//!
//! Names, sizes, holes and attributes are always those of the backing directory; only bytes are cached. A page beyond
//! the end of its file is invalid, and a page across the end is zeroes beyond the end.

mod advised;
mod blocks;
mod changed;
#[cfg(test)]
mod crash;
mod disk;
mod file;
mod kept;
mod last_change;
mod learned;
mod leaving;
mod map;
mod pair;
mod places;
mod placing;
mod reserved;
mod start;
mod states;
mod unwritten;

pub use changed::{Conflict, Keep, News};
pub use disk::{FilesDisk, NotWritten, Nowhere};
pub use pair::{Standing, standing};
pub use places::FilePage;
pub use reserved::Reserved;
pub use start::{Backing, Found};
pub use states::FileStates;

use crate::below::{Directory, File, Found as FoundBelow, OpenDirectory as _, OpenFile};
use crate::mutant::{self, Mutant};
use crate::places::Places;
use crate::record::{Mismatch, Pairing};
use crate::{AtOnce, DirectFile, FileData, FileId, FileLayer, OpenDirectory, Pattern, Sought};
use changed::UnderWay;
use disk::Below;
use entresol_cache::{BlockCache, CacheError, ObjectCounts, REST};
use entresol_core::ObjectId;
use file::CachedFile;
use last_change::LastChange;
use leaving::{Backlog, DirectorySyncs, Emptied, Errand, Janitor};
use map::{FileKey, FileMap, REGION_BYTES, State};
use placing::Placer;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;

/// Name in a backing directory that belongs to the cache. A mount does not show it.
pub const HIDDEN: &str = ".entresol";

/// Most files that a cache distinguishes; further ones are counted, and seen by policies, as one.
pub const OBJECTS_MAX: usize = if cfg!(test) { 16 } else { 1 << 16 };

/// Reason why a directory cannot be served through a cache.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The directory has no file map.
    #[error("no cache was made for this directory; `entresol format` makes one")]
    NotFormatted,
    /// The file in place of the map is not a file map.
    #[error("the file map is not one of Entresol's")]
    NotAMap,
    /// The map is of another version.
    #[error("a file map of version {0}; this program knows versions 1 and 2")]
    MapVersion(u32),
    /// The map does not agree with its checksums.
    #[error("the file map is damaged at byte {byte}")]
    MapDamaged {
        /// Offset of the damage, in bytes.
        byte: u64,
    },
    /// Another process serves the directory or checks its cache.
    #[error("in use by another process")]
    InUse,
    /// The map was copied together with its directory, or restored into another.
    #[error("this directory is a copy of the one that the cache was made for; the cache's pages belong to that one")]
    Copied,
    /// The file system does not keep the time of making.
    #[error("its file system does not keep the time when a file was made, so a cache cannot tell files apart")]
    NoTimeOfMaking,
    /// The cache has bytes of missing files, and no record says that they were removed.
    #[error(
        "{} of {} are in the cache alone, and no such file is there; no record says that it was removed through the \
         cache{}; bring back the missing files, or give --drop-gone to lose these pages", counted(.pages, "page"),
        counted(.files, "file"), candidates(.absent)
    )]
    Missing {
        /// Number of dirty pages.
        pages: usize,
        /// Number of files that they belong to.
        files: usize,
        /// Folders that were not searched: mount points of other file systems, links and unreadable folders.
        absent: Vec<PathBuf>,
    },
    /// The cache and the directory are no pair.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The error of the cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// An error of the system.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// An error of the system on a file.
    #[error("{}: {error}", path.display())]
    Path {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

/// A number with its noun: 1 page, 2 pages.
fn counted(number: &usize, thing: &str) -> String {
    format!("{number} {thing}{}", if *number == 1 { "" } else { "s" })
}

fn candidates(absent: &[PathBuf]) -> String {
    const NAMED_MAX: usize = 5;
    let names: Vec<String> = absent.iter().take(NAMED_MAX).map(|path| path.display().to_string()).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!(" (not looked into: {})", names.join(", ")),
    }
}

/// State shared by all files.
struct Shared {
    cache: Arc<BlockCache>,
    disk: Arc<FilesDisk>,
    map: Arc<Mutex<FileMap>>,
    /// Shared while a range is being invalidated, exclusive while none may be.
    voiding: RwLock<()>,
    page_bytes: u64,
    emptied: Emptied,
    backlog: Backlog,
    directory_syncs: DirectorySyncs,
    last_change: Arc<LastChange>,
    /// States of files that outlive the process.
    states: Option<Arc<FileStates>>,
    /// The cache goes on after a kill: until its first sync it takes pages that it reads for dirty.
    reads_are_dirty: bool,
    /// Names that a former process removed may not be removed durably.
    names_unsynced: AtomicBool,
    /// The map cannot be written: no page may become dirty without a record in it.
    read_only: bool,
    /// Time of the start by the clock of the file system, in nanoseconds since 1970. Files made since then may be
    /// missing after a crash until they are synced.
    started: u64,
}

impl Shared {
    fn map(&self) -> MutexGuard<'_, FileMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the cached pages of a file that is gone.
    fn drop_file(&self, file: &CachedFile) {
        let end = file.size().next_multiple_of(self.page_bytes);
        for (part, region) in file.regions() {
            let bytes = end.saturating_sub(part * REGION_BYTES).min(REGION_BYTES);
            // The next start repeats a failed step: a region without a file is invalid.
            let _void = self.cache.forget(region * REGION_BYTES, bytes);
            self.disk.part(region);
            let _noted = self.map().release(region);
        }
        self.map().forget_leaving(file.below.key);
        self.map().forget_conflict(file.below.key);
        file.below.watch.give_back();
        if let Some(object) = file.object() {
            // The object number will be used for another file.
            let _stopped = self.cache.unplace(object);
            let _stopped = self.cache.with_objects(|objects| objects.remove(object));
        }
    }
}

/// Files whose bytes go through one cache, except those that the patterns name.
pub struct CachedFiles {
    shared: Arc<Shared>,
    /// Names of files with closed descriptors.
    places: Option<Arc<Places>>,
    /// The backing directory, held open. Its path is removed from a file's path to get the path relative to it.
    root: Directory,
    direct: Vec<Pattern>,
    files: Arc<Mutex<HashMap<FileId, Known>>>,
    device: u64,
    /// Sender of the errands, work that no caller waits for.
    errands: Arc<Mutex<Option<Sender<Errand>>>>,
    janitor: Mutex<Option<Errands>>,
    placer: Placer,
    pairing: Pairing,
    under_way: UnderWay,
}

/// Runner of the errands.
enum Errands {
    Thread(JoinHandle<()>),
    /// The test itself: a thread would make runs differ.
    #[cfg(test)]
    ByHand(Janitor),
}

/// Counts for one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCounts {
    /// Number by which policies know the file as an object.
    pub object: ObjectId,
    /// Identity of the file; none for the entry of all other files.
    pub id: Option<FileId>,
    /// Current path of the file in the backing directory, if it exists.
    pub path: Option<PathBuf>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Counts of operations on the file's pages since this process knows it.
    pub counts: ObjectCounts,
}

struct Known {
    file: Arc<CachedFile>,
    /// Number of open handles of the file.
    handles: usize,
}

/// Key of a file, by its number and time of making.
fn key(found: &FoundBelow) -> Result<FileKey, FilesError> {
    let made = found.made.ok_or(FilesError::NoTimeOfMaking)?;
    Ok(FileKey { inode: found.id.inode, made })
}

fn invalid(error: FilesError) -> io::Error {
    match error {
        FilesError::Io(error) => error,
        other => io::Error::other(other),
    }
}

impl CachedFiles {
    fn new(
        shared: Shared,
        root: Directory,
        places: Option<Arc<Places>>,
        device: u64,
        direct: Vec<Pattern>,
        pairing: Pairing,
    ) -> io::Result<Self> {
        let shared = Arc::new(shared);
        let (errands, to_run) = channel::<Errand>();
        let janitor = Janitor::new(to_run, shared.clone());
        let janitor = match root {
            #[cfg(test)]
            Directory::Simulated(_) => Errands::ByHand(janitor),
            _ => {
                let run = move || janitor.run();
                Errands::Thread(std::thread::Builder::new().name("removed files".into()).spawn(run)?)
            }
        };
        Ok(Self {
            shared,
            places,
            root,
            direct,
            files: Arc::default(),
            device,
            errands: Arc::new(Mutex::new(Some(errands))),
            janitor: Mutex::new(Some(janitor)),
            placer: Placer::new(),
            pairing,
            under_way: UnderWay::default(),
        })
    }

    /// Runs the waiting errands, in place of the thread.
    #[cfg(test)]
    fn run_errands(&self) {
        if let Some(Errands::ByHand(janitor)) = &mut *self.janitor.lock().unwrap_or_else(PoisonError::into_inner) {
            janitor.turn();
        }
    }

    fn changes(&self) -> &changed::Changes {
        &self.shared.disk.changes
    }

    /// Current path of the backing directory, as the system gives it.
    fn root_path(&self) -> io::Result<PathBuf> {
        self.root.path()
    }

    fn files(&self) -> MutexGuard<'_, HashMap<FileId, Known>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a file that had regions in an earlier run.
    fn know(&self, below: Arc<Below>, object: ObjectId, regions: BTreeMap<u64, u64>) -> io::Result<Arc<CachedFile>> {
        let id = FileId { device: self.device, inode: below.key.inode };
        let file = Arc::new(CachedFile::new(self.shared.clone(), below, Some((object, regions)))?);
        self.files().insert(id, Known { file: file.clone(), handles: 0 });
        Ok(file)
    }

    fn handle(&self, id: FileId, file: Arc<CachedFile>) -> Arc<dyn FileData> {
        Arc::new(Handle { id, file, files: self.files.clone(), errands: self.errands.clone() })
    }

    /// True if a pattern names the file, by its current path.
    fn is_direct(&self, file: &File) -> io::Result<bool> {
        if self.direct.is_empty() {
            return Ok(false);
        }
        // A file whose path is too long for the system to give is cached, whatever its name.
        let path = match self.path_within(file) {
            Err(error) if error.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) => return Ok(false),
            path => path?.to_string_lossy().into_owned(),
        };
        Ok(self.direct.iter().any(|pattern| pattern.matches(&path)))
    }

    /// Current path of a file, relative to the backing directory.
    fn path_within(&self, file: &File) -> io::Result<PathBuf> {
        let (path, root) = (file.path()?, self.root.path()?);
        Ok(path.strip_prefix(&root).map(Path::to_owned).unwrap_or(path))
    }

    /// Counts for every file that has regions in the cache, in no order. One more entry counts the rest: removed files,
    /// and files beyond [`OBJECTS_MAX`].
    ///
    /// # Errors
    /// When the cache has stopped after an internal fault.
    pub fn counts(&self) -> io::Result<Vec<FileCounts>> {
        let counted = self.shared.cache.with_objects(|objects| objects.counts())?;
        let (files, root) = (self.files(), self.root.path()?);
        let named = |(id, known): (&FileId, &Known)| {
            let object = known.file.object().filter(|&object| object != REST)?;
            // The name may be being removed.
            let path = known.file.below.path(&root).ok()?;
            Some((object, (*id, path, known.file.size())))
        };
        let mut names: HashMap<ObjectId, (FileId, PathBuf, u64)> = files.iter().filter_map(named).collect();
        let counts = counted.into_iter().map(|(object, counts)| {
            let (id, path, size_bytes) =
                names.remove(&object).map_or((None, None, 0), |(id, p, s)| (Some(id), Some(p), s));
            FileCounts { object, id, path, size_bytes, counts }
        });
        Ok(counts.collect())
    }

    /// Object number of the file at a path in the backing directory. None for a file that never had a page in the
    /// cache, and for a file without a number of its own.
    fn object_at(&self, path: &Path) -> Option<ObjectId> {
        let files = self.files();
        let root = self.root.path().ok()?;
        let is_there = |known: &&Known| known.file.below.path(&root).is_ok_and(|found| found == path);
        files.values().find(is_there)?.file.object().filter(|&object| object != REST)
    }

    /// Has the policy hold the whole file from now on, at its present length; its pages are prefetched. True if the
    /// policy accepts: false if the whole file does not fit. None for a file that never had a page in the cache.
    ///
    /// # Errors
    /// When the cache has stopped after an internal fault.
    pub fn place(&self, path: &Path) -> io::Result<Option<bool>> {
        let Some(object) = self.object_at(path) else { return Ok(None) };
        let placed = self.shared.cache.place(object)?;
        self.placer.wake(&self.shared.cache, self.shared.page_bytes);
        Ok(Some(placed))
    }

    /// Ends the policy's hold on a whole file; true if the cache knows the file.
    ///
    /// # Errors
    /// When the cache has stopped after an internal fault.
    pub fn unplace(&self, path: &Path) -> io::Result<bool> {
        let Some(object) = self.object_at(path) else { return Ok(false) };
        self.shared.cache.unplace(object)?;
        self.placer.wake(&self.shared.cache, self.shared.page_bytes);
        Ok(true)
    }

    /// Waits until the pages of all files placed so far are in the cache, and those of files no longer placed have
    /// left.
    pub fn wait_placed(&self) {
        self.placer.wait();
    }

    /// True if pages are still to be prefetched or to leave.
    pub fn is_placing(&self) -> bool {
        self.placer.is_busy()
    }

    /// Limits the bytes prefetched per second; 0, the initial value, is no limit.
    pub fn set_place_rate(&self, bytes_per_s: u64) {
        self.placer.set_rate(bytes_per_s);
    }

    /// The cache of the files' bytes, to be counted, drained or changed. Bytes are read and written through files, and
    /// the cache is closed by [`close`](Self::close).
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.shared.cache
    }

    /// Flushes, and notes the stamp of every file and the close in good order. No file may be open any more.
    ///
    /// # Errors
    /// The error of a file or of the cache; the next start is then as after a crash.
    pub fn close(&self) -> io::Result<()> {
        self.placer.end();
        let poisoned = PoisonError::into_inner;
        drop(self.errands.lock().unwrap_or_else(poisoned).take());
        self.look_at_all();
        match self.janitor.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Work left undone falls to the next start.
            Some(Errands::Thread(janitor)) => drop(janitor.join()),
            #[cfg(test)]
            Some(Errands::ByHand(mut janitor)) => janitor.turn(),
            None => {}
        }
        // A failed close still leaves a pair.
        let raised = self.raise_generation();
        self.shared.cache.close()?;
        if self.shared.read_only {
            return Ok(());
        }
        let dirty = self.shared.cache.stats()?.dirty_pages > 0 || !self.shared.cache.lost_pages()?.is_empty();
        let dirty = dirty || !self.shared.map().contents().conflicts.is_empty();
        let mut stamps = BTreeMap::new();
        let known: Vec<Arc<CachedFile>> = self.files().values().map(|known| known.file.clone()).collect();
        let cached = known.iter().filter(|file| !file.regions().is_empty());
        let mut below: Vec<&Arc<Below>> = cached.map(|file| &file.below).collect();
        below.sort_unstable_by_key(|below| below.key);
        for below in below {
            stamps.insert(below.key, below.leave()?);
        }
        self.shared.map().close(if dirty { State::Dirty } else { State::Clean }, stamps)?;
        // Of no use to the next start, which finds the map closed.
        let _unused = self.shared.states.as_ref().map(|states| states.end());
        raised
    }
}

impl CachedFiles {
    /// [`FileLayer::open`], for files of any file system.
    fn open_file(&self, id: FileId, file: File, writable: bool) -> io::Result<Arc<dyn FileData>> {
        let mut files = self.files();
        if let Some(known) = files.get_mut(&id) {
            if writable {
                known.file.below.may_write(file);
            }
            known.handles += 1;
            return Ok(self.handle(id, known.file.clone()));
        }
        // A file with cached pages is known and stays so, whatever its name is now.
        if self.is_direct(&file)? {
            return Ok(direct(file));
        }
        let key = key(&file.found()?).map_err(invalid)?;
        let left = disk::stamp(&file.attributes()?);
        let ours = self.under_way.of(id);
        let below = Below::new(key, file, writable, (Some(left), ours), self.places.clone());
        below.watch.follow(self.shared.last_change.clone());
        let file = Arc::new(CachedFile::new(self.shared.clone(), below, None)?);
        files.insert(id, Known { file: file.clone(), handles: 1 });
        drop(files);
        if self.shared.map().contents().leaving.contains(&key) && !mutant::is(Mutant::NamelessUnsaid) {
            // A former process had it open when its name went; the record is durable.
            file.leaving.announced.store(true, SeqCst);
        }
        file.below.admit();
        Ok(self.handle(id, file))
    }
}

/// A file that bypasses the cache.
fn direct(file: File) -> Arc<dyn FileData> {
    match file {
        File::System(file) => Arc::new(DirectFile(file)),
        #[cfg(test)]
        File::Simulated(_) => unreachable!("no file of a simulated file system goes past its cache"),
    }
}

impl FileLayer for CachedFiles {
    fn open(&self, id: FileId, file: std::fs::File, writable: bool) -> io::Result<Arc<dyn FileData>> {
        self.open_file(id, file.into(), writable)
    }

    fn places(&self) -> Option<Arc<Places>> {
        self.places.clone()
    }

    fn leaving(&self, id: FileId, directory: OpenDirectory<'_>) -> io::Result<()> {
        let file = self.files().get(&id).map(|known| known.file.clone());
        file.map_or(Ok(()), |file| file.leave(directory))
    }

    fn stays(&self, id: FileId) {
        let file = self.files().get(&id).map(|known| known.file.clone());
        if let Some(file) = file {
            file.stay();
        }
    }

    fn replacing(&self, id: FileId) -> io::Result<()> {
        let file = self.files().get(&id).map(|known| known.file.clone());
        let file = file.filter(|_| !mutant::is(Mutant::ReplacingUnsynced));
        file.map_or(Ok(()), |file| file.sync_if_written())
    }

    fn changing(&self, id: FileId) -> Option<Box<dyn Send>> {
        Some(self.under_way.begin(id, &self.files))
    }

    fn when_stale(&self, tell: Box<dyn Fn(u64) + Send + Sync>) {
        self.changes().tell(tell);
    }

    fn removed(&self, id: FileId) {
        if let Some(known) = self.files().remove(&id) {
            self.shared.backlog.add();
            if !send(&self.errands, Errand::Removed(known.file)) {
                // The next start finds that the file is missing.
                self.shared.backlog.take();
            }
        }
    }

    fn changing_rights(&self, id: FileId, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let file = self.files().get(&id).map(|known| known.file.clone());
        match file {
            Some(file) => file.below.changing_rights(act),
            None => act(),
        }
    }

    fn while_still(&self, id: FileId, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let file = self.files().get(&id).map(|known| known.file.clone());
        match file {
            Some(file) => file.below.while_still(act),
            None => act(),
        }
    }
}

/// Sends an errand; true if a runner takes it.
fn send(errands: &Mutex<Option<Sender<Errand>>>, errand: Errand) -> bool {
    let errands = errands.lock().unwrap_or_else(PoisonError::into_inner);
    errands.as_ref().is_some_and(|errands| errands.send(errand).is_ok())
}

/// An open file.
struct Handle {
    id: FileId,
    file: Arc<CachedFile>,
    files: Arc<Mutex<HashMap<FileId, Known>>>,
    errands: Arc<Mutex<Option<Sender<Errand>>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = files.get_mut(&self.id).filter(|known| Arc::ptr_eq(&known.file, &self.file)) else { return };
        known.handles -= 1;
        if known.handles == 0 && known.file.regions().is_empty() {
            files.remove(&self.id);
            self.file.gone_unseen();
        }
        let last = files.get(&self.id).is_none_or(|known| known.handles == 0);
        drop(files);
        // Like ext4 on the close of a file that was cut to nothing: programs replace contents in this way.
        if last && self.file.leaving.emptied.swap(false, SeqCst) {
            self.file.below.watch.note(|state| state.emptied = false);
            send(&self.errands, Errand::Replaced(self.file.clone()));
        }
        // The file may be examined in the backing directory from now on. After a failure its times are slightly too
        // old.
        let _older = self.file.below.settle();
    }
}

impl FileData for Handle {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.file.size())
    }

    fn settle(&self) -> io::Result<()> {
        self.file.below.settle()
    }

    fn look(&self) -> io::Result<bool> {
        self.file.look()
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<AtOnce> {
        Ok(self.file.read_now(offset, bytes).unwrap_or(AtOnce::First(0)))
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.file.read(offset, bytes)
    }

    fn write_now(&self, _offset: u64, _bytes: &[u8]) -> io::Result<usize> {
        // A write may have to wait for an eviction.
        Ok(0)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write(offset, bytes)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.file.sync(data_only)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.file.truncate(bytes)
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        self.file.allocate(how, offset, bytes)
    }

    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        self.file.seek(sought, offset)
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> FilesError + '_ {
    move |error| FilesError::Path { path: path.into(), error }
}
