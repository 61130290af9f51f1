//! From a formatted directory to served files: the contents of the cache are reconciled with the files.

use super::changed::{Change, kept, remove_aside};
use super::disk::{Below, FilesDisk, Nowhere, stamp};
use super::file::CachedFile;
use super::last_change::{self, LastChange};
use super::learned;
use super::leaving::{Backlog, DirectorySyncs, Emptied, sync_names};
use super::map::{self, Contents, Extent, FileKey, FileMap, REGION_BYTES, Stamp, State};
use super::states::{FileState, FileStates};
use super::{CachedFiles, FilesError, HIDDEN, OBJECTS_MAX, Shared, at, key};
use crate::Pattern;
use crate::below::{Attributes, Directory, File, FileSystem, Kind, OpenDirectory, OpenFile, Paths, System};
use crate::descriptors;
use crate::kind;
use crate::mutant::{self, Mutant};
use crate::places::Places;
use crate::record::{Choices, Record, volume};
use entresol_cache::{BlockCache, CacheConfig, Mode, Objects, Opening};
use entresol_core::ObjectId;
use entresol_disk::Disk;
use entresol_store::{Geometry, StoreError};
use rustix::fs::{Mode as Access, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

/// Pause between two attempts to lock a directory.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// A directory with a file map, locked for this process.
pub struct Backing {
    system: FileSystem,
    /// Path by which the directory is read.
    path: PathBuf,
    /// Path of the directory in messages.
    shown: PathBuf,
    root: Directory,
    places: Option<Arc<Places>>,
    device: u64,
    hidden: Directory,
    contents: Contents,
    drop_gone: bool,
    pub(super) overruled: bool,
    /// States of files that outlive the process.
    states: Option<Arc<FileStates>>,
    /// Files that programs may have open though no name leads to them.
    open: Vec<File>,
    /// The mark that a crashed process has left, if the files were complete: they may have been used without their cache
    /// since.
    left_mark: Option<i64>,
    last_change: Arc<LastChange>,
}

/// Counts of the files and dirty pages that a start found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Files with regions in the cache.
    pub files: usize,
    /// Missing files; their cached pages are dropped.
    pub gone: usize,
    /// Dirty pages dropped on request, with missing files whose removal is not recorded.
    pub dropped_pages: usize,
    /// Dirty pages dropped because their files were removed through the cache.
    pub removed_pages: usize,
    /// Dirty pages dropped because they lie beyond the ends of their files.
    pub beyond_pages: usize,
    /// Files changed without the cache; their clean pages are dropped.
    pub changed: usize,
    /// Files that were changed without the cache after a crash; all that was cached of them is dropped.
    pub changed_since: usize,
    /// Files whose attributes alone were changed: their bytes are those in the cache.
    pub touched: usize,
    /// Files changed while the cache had dirty pages of them, for which it is not decided yet which bytes count.
    pub conflicts: usize,
}

/// A file of the map that still exists.
struct Present {
    below: Arc<Below>,
    /// Path in messages.
    path: PathBuf,
    parts: BTreeMap<u64, u64>,
    /// No name leads to the file.
    is_nameless: bool,
    /// State that a former process left.
    state: FileState,
}

/// A file that was opened at a start.
struct Opened {
    file: File,
    /// Attributes before the file was opened, for which its mode may have been changed.
    before: Attributes,
    writable: bool,
}

/// True if a folder, or a mount at its place, cannot be searched for a reason of its own: lost+found, for example, or
/// the mount of a killed server.
fn is_passed_by(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, NotConnected, NotFound, PermissionDenied};
    matches!(error.kind(), PermissionDenied | NotConnected | ConnectionAborted | NotFound)
}

/// Locks the hidden directory, within `wait` at most.
fn hold(hidden: &Directory, wait: Duration) -> Result<(), FilesError> {
    let started = Instant::now();
    loop {
        match hidden.lock() {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if started.elapsed() < wait => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK) => return Err(FilesError::InUse),
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

/// The state in which a former process left a file, which is so now. None if that is not known.
fn left_by(state: &FileState, now: Stamp) -> Option<Stamp> {
    match state.under_way {
        _ if mutant::is(Mutant::FormerStampIgnored) => None,
        None => state.stamp,
        // The change may be made or not, and the kernel sends the request again.
        Some((least, greatest)) if (least..=greatest).contains(&now.size) => Some(now),
        Some((_, greatest)) => Some(Stamp { size: greatest, ..now }),
    }
}

impl Backing {
    /// Locks a directory that has a file map. Nothing is changed.
    ///
    /// # Errors
    /// When there is no map, the map is damaged or of another directory, or another process holds the lock.
    pub fn open(path: &Path) -> Result<Self, FilesError> {
        Self::open_in(FileSystem::System(System), path)
    }

    /// [`open`](Self::open), in any file system.
    pub(crate) fn open_in(system: FileSystem, path: &Path) -> Result<Self, FilesError> {
        let root = system.open_directory(path).map_err(at(path))?;
        Self::open_root(system, root, [path, path], Duration::ZERO)
    }

    /// Like [`open`](Self::open), for a directory that a mount may cover. The descriptor `directory`, perhaps of `O_PATH`,
    /// leads to it; `path` names it in messages. The lock of a process that is ending is waited for, within `wait` at
    /// most.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_held(directory: BorrowedFd<'_>, path: &Path, wait: Duration) -> Result<Self, FilesError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root =
            rustix::fs::openat(directory, ".", flags, Access::empty()).map_err(|error| at(path)(error.into()))?;
        // The link leads to the directory itself, and not to what is mounted over it.
        let link = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
        Self::open_root(FileSystem::System(System), root.into(), [&link, path], wait)
    }

    /// Opens the directory `root`, which is read by the first path and named in messages by the second.
    fn open_root(
        system: FileSystem,
        root: Directory,
        [read_by, path]: [&Path; 2],
        wait: Duration,
    ) -> Result<Self, FilesError> {
        let found = root.found().map_err(at(path))?;
        let hidden = match root.open_directory(HIDDEN) {
            Ok(hidden) => hidden,
            Err(Errno::NOENT | Errno::NOTDIR) => return Err(FilesError::NotFormatted),
            Err(error) => return Err(at(&path.join(HIDDEN))(error.into())),
        };
        hold(&hidden, wait)?;
        let contents = map::read(&hidden)?.ok_or(FilesError::NotFormatted)?;
        if contents.directory != key(&found)? {
            return Err(FilesError::Copied);
        }
        let places = root.descriptor().and_then(|root| root.try_clone_to_owned().ok()).map(Places::new);
        let left_mark = match contents.state == State::Open && contents.is_complete() {
            true => last_change::read(&hidden).map_err(at(&path.join(HIDDEN)))?,
            false => None,
        };
        Ok(Self {
            system,
            path: read_by.into(),
            shown: path.into(),
            root,
            places,
            device: found.id.device,
            hidden,
            contents,
            drop_gone: false,
            overruled: false,
            states: None,
            open: Vec::new(),
            left_mark,
            last_change: Arc::default(),
        })
    }

    /// Keeps the states of files in `states` from the start on. The start takes over those that a killed process left
    /// there, if the cache's arena is that process's too.
    #[must_use]
    pub fn keeping(self, states: Arc<FileStates>) -> Self {
        Self { states: Some(states), ..self }
    }

    /// Takes files that programs may have open though no name leads to them (descriptors of `O_PATH` serve). Without
    /// them the start drops their pages. Files with names and directories among them do no harm.
    #[must_use]
    pub fn with_open(self, files: Vec<OwnedFd>) -> Self {
        self.with_open_files(files.into_iter().map(|file| std::fs::File::from(file).into()).collect())
    }

    /// [`with_open`](Self::with_open), in any file system.
    pub(crate) fn with_open_files(self, open: Vec<File>) -> Self {
        Self { open, ..self }
    }

    /// Error of a file that was found by a path in the directory.
    fn at<'a>(&self, path: &'a Path) -> impl Fn(io::Error) -> FilesError + use<'a> {
        let path = self.shown_path(path);
        move |error| FilesError::Path { path: path.clone(), error }
    }

    /// Path in messages.
    fn shown_path(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.path) {
            Ok(inside) if !inside.as_os_str().is_empty() => self.shown.join(inside),
            Ok(_) => self.shown.clone(),
            Err(_) => path.into(),
        }
    }

    /// Time of the first start with the states of a former process, in nanoseconds since 1970, if this start takes over
    /// what that process left.
    fn former_start(&self, config: &CacheConfig) -> Option<u64> {
        let is_left = self.contents.state == State::Open && config.arena.as_ref().is_some_and(|arena| !arena.is_new());
        self.states.as_ref().filter(|_| is_left)?.former_start(self.contents.id)
    }

    /// Syncs the file system if a sync of a killed process failed that no flush has reported, or if nobody knows how one
    /// ended: it reports what was lost, and else nothing was. A failure that is not settled here fails the first flush,
    /// which may be that of a write.
    fn settle_syncs(&self, config: &CacheConfig) {
        config.arena.iter().for_each(|arena| arena.settle_syncs(|| Ok(self.root.sync_file_system()?)));
    }

    pub(super) fn contents(&self) -> &Contents {
        &self.contents
    }

    pub(super) fn root(&self) -> &Directory {
        &self.root
    }

    pub(super) fn hidden(&self) -> &Directory {
        &self.hidden
    }

    /// True if the files may lack bytes that only their cache has.
    ///
    /// # Errors
    /// As [`open`](Self::open), except that a directory without a map gives false.
    pub fn needs_its_cache(path: &Path) -> Result<bool, FilesError> {
        match Self::open(path) {
            Ok(backing) => Ok(!backing.contents.is_complete()),
            Err(FilesError::NotFormatted) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes an empty cache for a directory, and its file map. `id`, new with every format, ties the two together. The
    /// map of another cache is replaced.
    ///
    /// # Errors
    /// When the directory cannot be written or is in use, or the cache is too small or fails.
    pub fn format<C: Disk>(
        path: &Path,
        cache: &C,
        geometry: Geometry,
        uuid: [u8; 16],
        id: [u8; 16],
    ) -> Result<(), FilesError> {
        Self::format_as(path, cache, geometry, uuid, id, None)
    }

    /// Like [`format`](Self::format), with choices for the record.
    ///
    /// # Errors
    /// As [`format`](Self::format).
    pub fn format_as<C: Disk>(
        path: &Path,
        cache: &C,
        geometry: Geometry,
        uuid: [u8; 16],
        id: [u8; 16],
        choices: Option<Choices>,
    ) -> Result<(), FilesError> {
        Self::format_in(&FileSystem::System(System), path, cache, geometry, uuid, id, choices)
    }

    /// [`format_as`](Self::format_as), in any file system.
    pub(crate) fn format_in<C: Disk>(
        system: &FileSystem,
        path: &Path,
        cache: &C,
        geometry: Geometry,
        uuid: [u8; 16],
        id: [u8; 16],
        choices: Option<Choices>,
    ) -> Result<(), FilesError> {
        let root = system.open_directory(path).map_err(at(path))?;
        let directory = key(&root.found().map_err(at(path))?)?;
        match root.make_directory(HIDDEN) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(at(&path.join(HIDDEN))(error.into())),
        }
        let hidden = root.open_directory(HIDDEN).map_err(|error| at(&path.join(HIDDEN))(error.into()))?;
        hold(&hidden, Duration::ZERO)?;
        let disk = FilesDisk::new(geometry.page_bytes.into());
        let volume = root.descriptor().map_or(Ok(None), volume::of)?;
        let record = Record::first(uuid, volume, choices);
        BlockCache::format_of(cache, geometry, &disk, uuid, id, record.generation)
            .map_err(|error| FilesError::Cache(error.into()))?;
        map::make(&hidden, &Contents::of_record(id, directory, record))?;
        Ok(root.sync().map_err(io::Error::from)?)
    }

    /// Replaces the record of the directory's cache, durably. If the record says that the files are complete, so does
    /// the map: no cache has bytes that they lack.
    ///
    /// # Errors
    /// The error of the system.
    pub fn note_record(&mut self, record: Record) -> Result<(), FilesError> {
        let state = if record.complete { State::Clean } else { self.contents.state };
        let contents = Contents { state, record: Some(record), ..self.contents.clone() };
        map::make(&self.hidden, &contents)?;
        self.contents = contents;
        Ok(())
    }

    /// Makes an empty cache for the directory, with the UUID and generation of `record`. The map stays as it is.
    ///
    /// # Errors
    /// When the cache is too small or fails.
    pub fn make_cache<C: Disk>(&self, cache: &C, geometry: Geometry, record: &Record) -> Result<(), FilesError> {
        let disk = FilesDisk::new(geometry.page_bytes.into());
        let made = BlockCache::format_of(cache, geometry, &disk, record.cache, self.contents.id, record.generation);
        made.map_err(|error| FilesError::Cache(error.into()))
    }

    /// With `drop_gone`, a start drops the dirty pages of missing files whose removal is not recorded.
    #[must_use]
    pub fn dropping_gone(self, drop_gone: bool) -> Self {
        Self { drop_gone, ..self }
    }

    /// Identifier that ties the directory and its cache together.
    pub fn id(&self) -> [u8; 16] {
        self.contents.id
    }

    /// Pages of the address space for which a cache of a directory is made.
    pub fn pages(page_bytes: u64) -> u64 {
        FilesDisk::new(page_bytes).size_bytes() / page_bytes
    }

    /// All files as one read-only disk, to be compared with their cache.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn disk(&self, page_bytes: u64) -> Result<FilesDisk, FilesError> {
        let mut disk = FilesDisk::new(page_bytes);
        disk.remember(&self.contents.voids);
        let (present, absent) = self.present(false, false)?;
        disk.miss(self.missing(&present), absent);
        disk.miss_aside(self.missing_aside(&present, page_bytes)?);
        for file in present.into_values() {
            for (&part, &region) in &file.parts {
                disk.join(region, file.below.clone(), Extent { file: file.below.key, part });
            }
        }
        Ok(disk)
    }

    /// Files of which the map says from this start on that they may be missing after a crash.
    fn leaving(&self, present: &BTreeMap<FileKey, Present>, takes_over: bool) -> Result<BTreeSet<FileKey>, FilesError> {
        let nameless = present.iter().filter(|(_, file)| file.is_nameless).map(|(&key, _)| key);
        let mut leaving: BTreeSet<FileKey> = nameless.collect();
        for open in &self.open {
            let found = open.found().map_err(self.at(&self.path))?;
            if found.kind == Kind::File {
                // Of a file without regions the next handle finds it there.
                leaving.extend(Some(key(&found)?).filter(|key| self.contents.leaving.contains(key)));
            }
        }
        if takes_over && !mutant::is(Mutant::FormerUnbornUnsaid) {
            leaving.extend(self.contents.leaving.iter().filter(|key| present.contains_key(key)));
        }
        Ok(leaving)
    }

    /// Regions of missing files whose removal is not recorded.
    fn missing(&self, present: &BTreeMap<FileKey, Present>) -> HashMap<u64, FileKey> {
        let missing = |file: &FileKey| !present.contains_key(file) && !self.contents.leaving.contains(file);
        let regions = self.contents.regions.iter().map(|(&region, extent)| (region, extent.file));
        regions.filter(|(_, file)| missing(file)).collect()
    }

    /// Pages kept aside of missing files whose removal is not recorded; one entry of the file per page.
    fn missing_aside(&self, present: &BTreeMap<FileKey, Present>, page_bytes: u64) -> io::Result<Vec<FileKey>> {
        let is_missing = |key: &&FileKey| !present.contains_key(key) && !self.contents.leaving.contains(key);
        let mut pages = Vec::new();
        for &key in self.contents.conflicts.keys().filter(is_missing) {
            pages.extend(kept(&self.hidden, key, page_bytes as usize)?.iter().map(|_| key));
        }
        Ok(pages)
    }

    /// The map's files that exist, each opened, and the folders that were not searched: mount points of other file
    /// systems, links and unreadable folders. With `takes_over` the states that a former process left count.
    fn present(
        &self,
        writable: bool,
        takes_over: bool,
    ) -> Result<(BTreeMap<FileKey, Present>, Vec<PathBuf>), FilesError> {
        descriptors::allow_many();
        let mut wanted: HashMap<FileKey, BTreeMap<u64, u64>> = HashMap::new();
        for (&region, extent) in &self.contents.regions {
            wanted.entry(extent.file).or_default().insert(extent.part, region);
        }
        // Where directories give inode numbers, files without cached pages are not opened: there may be a million of
        // them.
        let numbers: HashSet<u64> = wanted.keys().map(|key| key.inode).collect();
        let told = self.root.descriptor().is_some() && kind::tells_numbers(&self.path)?;
        let (mut present, mut absent) = (BTreeMap::new(), Vec::new());
        let mut directories = vec![self.path.clone()];
        while let Some(directory) = directories.pop() {
            if wanted.is_empty() {
                break;
            }
            let entries =
                if told { self.system.entries_of(&directory, &numbers) } else { self.system.entries(&directory) };
            let entries = match entries {
                Err(error) if directory != self.path && is_passed_by(&error) => {
                    absent.push(self.shown_path(&directory));
                    continue;
                }
                entries => entries.map_err(self.at(&directory))?,
            };
            for entry in entries {
                let path = entry.map_err(self.at(&directory))?;
                let found = match self.system.found(&path) {
                    Err(error) if is_passed_by(&error) => {
                        absent.push(self.shown_path(&path));
                        continue;
                    }
                    found => found.map_err(self.at(&path))?,
                };
                if path == self.path.join(HIDDEN) {
                    continue;
                }
                let linked = || found.kind == Kind::Link && self.system.is_directory(&path);
                if found.id.device != self.device || linked() {
                    absent.push(self.shown_path(&path));
                } else if found.kind == Kind::Directory {
                    directories.push(path);
                } else if found.kind == Kind::File
                    && let Some(parts) = wanted.remove(&key(&found)?)
                {
                    let opened = self.open_by_path(&path, writable)?;
                    let file = self.known(opened, (self.shown_path(&path), parts), false, takes_over)?;
                    present.insert(file.below.key, file);
                }
            }
        }
        for open in &self.open {
            if mutant::is(Mutant::NamelessGone) {
                break;
            }
            let found = open.found().map_err(self.at(&self.path))?;
            if found.kind == Kind::File
                && let Some(parts) = wanted.remove(&key(&found)?)
            {
                let path = self.shown.join(format!("(removed file {})", found.id.inode));
                let opened = Self::open_again(open, writable).map_err(at(&path))?;
                let file = self.known(opened, (path, parts), true, takes_over)?;
                present.insert(file.below.key, file);
            }
        }
        Ok((present, absent))
    }

    fn open_by_path(&self, path: &Path, writable: bool) -> Result<Opened, FilesError> {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        let opened = |file: File, writable| {
            let before = file.attributes().map_err(|error| self.at(path)(error.into()))?;
            Ok(Opened { file, before, writable })
        };
        match self.system.open_file(path, writable) {
            Ok(file) => opened(file, writable),
            Err(error) if matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem) => {
                match self.system.open_file(path, false) {
                    Ok(file) => opened(file, false),
                    // A file whose mode forbids reading to its owner is opened too; opening it does not count as a
                    // change.
                    Err(error) if error.kind() == PermissionDenied => {
                        let (file, before) = self.system.open_despite_mode(path).map_err(self.at(path))?;
                        Ok(Opened { file, before, writable: false })
                    }
                    Err(error) => Err(self.at(path)(error)),
                }
            }
            Err(error) => Err(self.at(path)(error)),
        }
    }

    /// Opens an open file again, whatever its mode.
    fn open_again(open: &File, writable: bool) -> io::Result<Opened> {
        let before = open.attributes()?;
        match open.again(writable) {
            Err(error) if writable && error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                Ok(Opened { file: open.again(false)?, before, writable: false })
            }
            file => Ok(Opened { file: file?, before, writable }),
        }
    }

    /// A file of the map that was opened, with its path in messages and its regions.
    fn known(
        &self,
        Opened { file, before, writable }: Opened,
        (path, parts): (PathBuf, BTreeMap<u64, u64>),
        is_nameless: bool,
        takes_over: bool,
    ) -> Result<Present, FilesError> {
        let key = key(&file.found().map_err(at(&path))?)?;
        let now = stamp(&before);
        let former = self.states.as_ref().filter(|_| takes_over).and_then(|states| states.former(key));
        let left = former.as_ref().and_then(|(state, _)| left_by(state, now));
        let left = left.or_else(|| self.contents.stamps.get(&key).copied());
        let is_foreign = left.is_none() && !takes_over && last_change::is_foreign(now.changed, self.left_mark);
        let below = Below::new(key, file, writable, (Some(left.unwrap_or(now)), 0), self.places.clone());
        below.watch.follow(self.last_change.clone());
        if is_foreign {
            below.set_change(Change::Since);
        }
        if self.contents.conflicts.contains_key(&key) {
            below.set_change(Change::Conflict);
        }
        // Nothing is known of a file for which the former process had not yet made a state.
        let mut state = FileState { unsynced: takes_over, ..FileState::default() };
        if let Some((former, slot)) = former {
            state = former;
            if state.touched {
                below.set_change(Change::Attributes);
            }
            below.watch.keep_in(slot);
        }
        below.look_as(now).map_err(at(&path))?;
        below.admit();
        Ok(Present { below, path, parts, is_nameless, state })
    }
}

impl CachedFiles {
    /// Opens the files of a directory over their cache. `direct` names those that bypass it.
    ///
    /// # Errors
    /// When the cache is not the directory's or not in order, when a file with dirty pages is missing
    /// ([`Backing::dropping_gone`]), or when the policy is refused: nothing is changed then. Else the error of the
    /// cache, a file or the map.
    pub fn open<C: Disk + 'static>(
        backing: Backing,
        cache: C,
        config: &CacheConfig,
        direct: Vec<Pattern>,
    ) -> Result<(Self, Found), FilesError> {
        Self::open_over(backing, cache, config, direct, |files| Ok(files))
    }

    /// Like [`open`](Self::open), but `below` wraps the disk of the files before the cache uses it, for example to slow
    /// it down.
    ///
    /// # Errors
    /// As [`open`](Self::open), and the error of `below`.
    pub fn open_over<C: Disk + 'static>(
        backing: Backing,
        cache: C,
        config: &CacheConfig,
        direct: Vec<Pattern>,
        below: impl FnOnce(Arc<FilesDisk>) -> io::Result<Arc<dyn Disk>>,
    ) -> Result<(Self, Found), FilesError> {
        let page_bytes = entresol_store::page_bytes(&cache).map_err(|error| FilesError::Cache(error.into()))?;
        let former_start = backing.former_start(config);
        let takes_over = former_start.is_some();
        backing.settle_syncs(config);
        let reads_are_dirty = config.arena.as_ref().is_some_and(|arena| !arena.is_new());
        let (present, absent) = backing.present(true, takes_over)?;
        let (missing, missing_aside) = (backing.missing(&present), backing.missing_aside(&present, page_bytes)?);
        let disk = Arc::new(FilesDisk::new(page_bytes));
        disk.remember(&backing.contents.voids);
        let mut regions = BTreeMap::new();
        for file in present.values() {
            for (&part, &region) in &file.parts {
                let extent = Extent { file: file.below.key, part };
                disk.join(region, file.below.clone(), extent);
                regions.insert(region, extent);
            }
            if file.state.unsynced {
                disk.note(&file.below);
            }
        }
        let mut keys: Vec<FileKey> = backing.contents.regions.values().map(|extent| extent.file).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut found = Found { files: present.len(), gone: keys.len() - present.len(), ..Found::default() };
        let was_left = backing.contents.state == State::Open;
        let (objects, known) = objects(&present, page_bytes)?;
        let mut opening = BlockCache::find(cache, below(disk.clone())?, backing.contents.id, config, objects)?;
        let pairing = backing.pair(&opening)?;
        let leaving = backing.leaving(&present, takes_over)?;
        // Without it the policy learns anew.
        if let Ok(Some(learned)) = learned::read(&backing.hidden) {
            opening.learn(&learned);
        }
        let Backing { root, places, device, hidden, contents, drop_gone, states, last_change, .. } = backing;
        let read_only = config.mode == Mode::ReadOnly && map::is_read_only(&hidden);
        if read_only {
            opening.leave_dirty();
        }
        let mut held = opening.held_pages();
        if mutant::is(Mutant::SurvivorsUnseen) {
            forget_survivors(&mut held, config);
        }
        let lost = held.iter().filter(|&&(_, dirty)| dirty);
        let lost = lost.filter_map(|&(page, _)| missing.get(&(page * page_bytes / REGION_BYTES)).copied());
        let lost: Vec<FileKey> = lost.collect();
        let held_missing = lost.len();
        let lost: Vec<FileKey> = lost.into_iter().chain(missing_aside).collect();
        if !lost.is_empty() && !drop_gone {
            let files = lost.iter().collect::<HashSet<_>>().len();
            return Err(FilesError::Missing { pages: lost.len(), files, absent });
        }
        found.dropped_pages = lost.len();
        let names_unsynced = takes_over && found.gone == 0;
        if (found.gone > 0 || was_left && !takes_over) && !mutant::is(Mutant::StartUnsynced) {
            // Removed names may be gone in memory only: a crash after this start must not bring back files that it
            // forgot. Nor must such a crash remove a file that a killed process made.
            sync_names(&root)?;
        }
        found.touched = compare_touched(&mut opening, &present, &disk, &held, page_bytes)?;
        let conflicts = conflicts(&contents, &present, &disk, &held, page_bytes);
        let resolved: Vec<FileKey> =
            contents.conflicts.keys().filter(|key| !conflicts.contains_key(key)).copied().collect();
        let of = |change| present.values().filter(move |file| file.below.change() == change).map(|file| file.below.key);
        let changed: Vec<FileKey> = of(Change::Bytes).collect();
        (found.changed, found.changed_since) = (changed.len(), of(Change::Since).count());
        found.conflicts = conflicts.len();
        // From here on a crash leaves files without stamps; changed files stay known as such. All checks that could
        // refuse the start have passed.
        let stamps = contents.stamps.into_iter().filter(|(key, _)| changed.contains(key)).collect();
        let mode = opening.mode();
        let record = if read_only {
            // The map cannot be raised, so the cache is not raised either.
            contents.record.clone()
        } else {
            let stays = pairing.stays_complete(mode);
            pairing.propose(&mut opening, stays, |_| map::sync_read(&hidden))?.or(contents.record)
        };
        // The files are not complete while pages are kept from them.
        let record = record.map(|record| Record { complete: record.complete && conflicts.is_empty(), ..record });
        let contents = Contents { state: State::Open, regions, stamps, leaving, conflicts, record, ..contents };
        let contents = contents.of_open(was_left);
        let (cache, (map, started)) = opening.start(|| {
            if let Some(states) = states.as_ref().filter(|_| !takes_over) {
                states.clear()?;
            }
            let id = contents.id;
            let map = FileMap::start(hidden, contents, read_only)?;
            let former_start = former_start.filter(|_| !mutant::is(Mutant::StartedAnew));
            let started = former_start.map_or_else(|| map.written_at(), Ok)?;
            if let Some(states) = &states {
                present.values().for_each(|file| file.below.keep_in(states, file.state.unsynced));
                states.forget_former()?;
                states.begin(id, started)?;
            }
            resolved.into_iter().for_each(|key| remove_aside(map.hidden(), key));
            let map = Arc::new(Mutex::new(map));
            // Write-backs from here on may have to be kept aside.
            disk.changes.begin(map.clone());
            Ok::<_, FilesError>((map, started))
        })?;
        if !read_only {
            pairing.begun(&cache)?;
        }
        let shared = Shared {
            cache: Arc::new(cache),
            disk,
            started,
            map,
            voiding: RwLock::default(),
            page_bytes,
            emptied: Emptied::default(),
            backlog: Backlog::default(),
            directory_syncs: DirectorySyncs::default(),
            last_change,
            states,
            reads_are_dirty,
            names_unsynced: AtomicBool::new(names_unsynced),
            read_only,
        };
        let files = Self::new(shared, root, places, device, direct, pairing)?;
        let (removed, beyond) = files.reconcile(&present, &known, &held, takes_over)?;
        (found.removed_pages, found.beyond_pages) = (removed.saturating_sub(held_missing), beyond);
        files.began(mode)?;
        if was_left {
            // A killed process may have written the files without a sync.
            files.files().values().for_each(|known| known.file.leaving.unsynced.store(true, SeqCst));
        }
        if !files.shared.read_only {
            files.shared.last_change.begin(files.shared.map().hidden());
        }
        Ok((files, found))
    }

    /// Drops the cached pages of missing files, of ranges beyond a file's end, and of changed files. Returns the number
    /// of dirty pages of missing files, and of those beyond the ends of others.
    ///
    /// A start that takes over leaves it to a later flush to make that durable: until then the map has the reasons.
    fn reconcile(
        &self,
        present: &BTreeMap<FileKey, Present>,
        known: &HashMap<FileKey, ObjectId>,
        held: &[(u64, bool)],
        takes_over: bool,
    ) -> Result<(usize, usize), FilesError> {
        let page_bytes = self.shared.page_bytes;
        let mut files = HashMap::new();
        for (&key, file) in present {
            let known = self.know(file.below.clone(), known[&key], file.parts.clone())?;
            if takes_over || file.is_nameless {
                let may_be_missed = self.shared.map().contents().leaving.contains(&key);
                known.take_over(file.is_nameless, may_be_missed, &file.state);
            }
            files.insert(key, known);
        }
        let mut void: Vec<u64> = Vec::new();
        let (mut removed, mut beyond) = (0, 0);
        for &(page, dirty) in held {
            let size = |below: &Below| files.get(&below.key).map(|file: &Arc<CachedFile>| file.size());
            let nowhere = self.shared.disk.nowhere_of(page * page_bytes, dirty, size);
            removed += usize::from(dirty && nowhere == Some(Nowhere::Removed));
            beyond += usize::from(dirty && nowhere == Some(Nowhere::Beyond));
            match self.shared.disk.file_at(page * page_bytes) {
                Some((below, offset)) if !below.change().is_other() && nowhere.is_none() => {
                    if dirty {
                        files[&below.key].note_dirty(offset, page_bytes);
                    }
                }
                _ => void.push(page),
            }
        }
        void.sort_unstable();
        let mut runs = void.chunk_by(|one, next| one + 1 == *next && !(next * page_bytes).is_multiple_of(REGION_BYTES));
        runs.try_for_each(|run| self.shared.cache.forget(run[0] * page_bytes, run.len() as u64 * page_bytes))?;
        let changed: Vec<&Present> = present.values().filter(|file| file.below.change().is_other()).collect();
        let at_once = !takes_over || !changed.is_empty();
        if !void.is_empty() && at_once {
            self.shared.cache.flush_ahead()?;
        }
        self.shared.disk.remember(&[]);
        if !changed.is_empty() || self.shared.map().voids() > 0 && at_once {
            // Before any of their pages is cached again.
            self.shared.map().trust()?;
            changed.into_iter().try_for_each(|file| file.below.accept().map_err(at(&file.path)))?;
        }
        Ok((removed, beyond))
    }
}

/// Leaves out the pages that are in the arena: a fault for the tests.
fn forget_survivors(held: &mut Vec<(u64, bool)>, config: &CacheConfig) {
    let survivors = config.arena.as_ref().and_then(|arena| arena.survivors().ok());
    let pages: HashSet<u64> = survivors.iter().flat_map(|left| left.pages()).map(|(page, _)| page).collect();
    held.retain(|(page, _)| !pages.contains(page));
}

/// Compares the clean pages of files whose attributes alone changed with the files. Returns the number of files whose
/// bytes agree.
fn compare_touched(
    opening: &mut Opening,
    present: &BTreeMap<FileKey, Present>,
    disk: &FilesDisk,
    held: &[(u64, bool)],
    page_bytes: u64,
) -> Result<usize, FilesError> {
    let touched = |below: &Below| below.change() == Change::Attributes;
    let (mut above, mut below_it) = (vec![0; page_bytes as usize], vec![0; page_bytes as usize]);
    if !present.values().any(|file| touched(&file.below)) {
        return Ok(0);
    }
    for &(page, _) in held.iter().filter(|(page, dirty)| !dirty && disk.nowhere(page * page_bytes, false).is_none()) {
        let Some((below, offset)) = disk.file_at(page * page_bytes).filter(|(below, _)| touched(below)) else {
            continue;
        };
        let path = || at(&present[&below.key].path);
        let inside = below.size().map_err(path())?.saturating_sub(offset).min(page_bytes) as usize;
        below.read(offset, &mut below_it).map_err(path())?;
        // An unreadable copy is found by the first read that needs it.
        if opening.peek(page, &mut above) && above[..inside] != below_it[..inside] {
            below.set_change(Change::Bytes);
        }
    }
    let same = present.values().filter(|file| touched(&file.below));
    same.map(|file| file.below.accept().map_err(at(&file.path))).try_fold(0, |count, done| done.map(|()| count + 1))
}

/// Files in conflict, each with its earlier size: those recorded in the map, and those changed while the cache has
/// dirty pages of them.
fn conflicts(
    contents: &Contents,
    present: &BTreeMap<FileKey, Present>,
    disk: &FilesDisk,
    held: &[(u64, bool)],
    page_bytes: u64,
) -> BTreeMap<FileKey, u64> {
    let known = contents.conflicts.iter().filter(|(key, _)| present.contains_key(key));
    let mut conflicts: BTreeMap<FileKey, u64> = known.map(|(&key, &size)| (key, size)).collect();
    for &(page, _) in held.iter().filter(|(_, dirty)| *dirty) {
        let Some((below, _)) = disk.file_at(page * page_bytes) else { continue };
        if below.change() == Change::Bytes {
            conflicts.insert(below.key, below.left().map_or(0, |left| left.size));
            below.set_change(Change::Conflict);
        }
    }
    conflicts
}

/// The existing files as objects, in the order of their first regions.
fn objects(
    present: &BTreeMap<FileKey, Present>,
    page_bytes: u64,
) -> Result<(Objects, HashMap<FileKey, ObjectId>), FilesError> {
    let mut objects = Objects::new(OBJECTS_MAX);
    let mut known = HashMap::new();
    let mut in_order: Vec<&Present> = present.values().collect();
    in_order.sort_unstable_by_key(|file| file.parts.values().min().copied());
    let pages = REGION_BYTES / page_bytes;
    for file in in_order {
        let object = objects.add();
        file.parts.iter().for_each(|(part, region)| objects.join(object, region * pages, pages, part * pages));
        objects.resize(object, file.below.size().map_err(at(&file.path))?.div_ceil(page_bytes));
        known.insert(file.below.key, object);
    }
    Ok((objects, known))
}

impl From<StoreError> for FilesError {
    fn from(error: StoreError) -> Self {
        Self::Cache(error.into())
    }
}
