//! From a formatted directory to files that are served: what the cache holds is brought together with what is there.

use super::disk::{Below, FilesDisk, stamp};
use super::leaving::sync_names;
use super::map::{self, Contents, Extent, FileKey, FileMap, REGION_BYTES, State};
use super::{CachedFiles, FilesError, HIDDEN, OBJECTS_MAX, Shared, at, key};
use crate::Pattern;
use crate::descriptors;
use crate::record::{Choices, Record, volume};
use entresol_core::ObjectId;
use entresol_engine::Block;
use entresol_engine::cache::{BlockCache, CacheConfig, Objects};
use entresol_engine::disk::Disk;
use entresol_engine::store::{Geometry, StoreError};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};

/// A directory for which a cache was made, held by this process alone.
pub struct Backing {
    path: PathBuf,
    root: File,
    device: u64,
    hidden: OwnedFd,
    contents: Contents,
    drop_gone: bool,
    pub(super) overruled: bool,
}

/// What a start found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Files that the cache has room for pages of.
    pub files: usize,
    /// Files that are there no more; what the cache had of them is dropped.
    pub gone: usize,
    /// Dirty pages that were dropped with files of whose removal nothing is known, because that was asked for.
    pub dropped_pages: usize,
    /// Files that were changed without the cache; the clean pages that it had of them are dropped.
    pub changed: usize,
}

/// A file that the map speaks of and that is still there.
struct Present {
    below: Arc<Below>,
    path: PathBuf,
    parts: BTreeMap<u64, u64>,
}

impl Present {
    fn regions(&self) -> Vec<Option<u64>> {
        let len = self.parts.keys().next_back().map_or(0, |last| last + 1);
        (0..len).map(|part| self.parts.get(&part).copied()).collect()
    }
}

/// Whether a folder, or what is mounted there, cannot be looked into for a reason of its own: lost+found, say, or the mount
/// of a server that was killed.
fn is_passed_by(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, NotConnected, NotFound, PermissionDenied};
    matches!(error.kind(), PermissionDenied | NotConnected | ConnectionAborted | NotFound)
}

pub(super) fn open_hidden(root: &File) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(root, HIDDEN, flags, Mode::empty())
}

fn hold(hidden: &OwnedFd) -> Result<(), FilesError> {
    match rustix::fs::flock(hidden, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(FilesError::InUse),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

impl Backing {
    /// Holds a directory that has a file map. Nothing is changed.
    ///
    /// # Errors
    /// When there is none, when it is damaged or of another directory, when another process holds it.
    pub fn open(path: &Path) -> Result<Self, FilesError> {
        let root = File::open(path).map_err(at(path))?;
        let found = root.metadata().map_err(at(path))?;
        let hidden = match open_hidden(&root) {
            Ok(hidden) => hidden,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Err(FilesError::NotFormatted),
            Err(error) => return Err(at(&path.join(HIDDEN))(error.into())),
        };
        hold(&hidden)?;
        let contents = map::read(&hidden)?.ok_or(FilesError::NotFormatted)?;
        if contents.directory != key(&found)? {
            return Err(FilesError::Copied);
        }
        Ok(Self { path: path.into(), root, device: found.dev(), hidden, contents, drop_gone: false, overruled: false })
    }

    pub(super) fn contents(&self) -> &Contents {
        &self.contents
    }

    pub(super) fn root(&self) -> &File {
        &self.root
    }

    /// Whether the files may have to be completed from a cache.
    ///
    /// # Errors
    /// As [`open`](Self::open), except that a directory without a map needs none.
    pub fn needs_its_cache(path: &Path) -> Result<bool, FilesError> {
        match Self::open(path) {
            Ok(backing) => Ok(backing.contents.state != State::Clean),
            Err(FilesError::NotFormatted) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes an empty cache for a directory, and its file map; `id`, new with every format, ties the two together. A map
    /// of another cache is replaced.
    ///
    /// # Errors
    /// When the directory cannot be written or is in use, when the cache is too small or fails.
    pub fn format<C: Disk>(
        path: &Path,
        cache: &C,
        geometry: Geometry,
        uuid: [u8; 16],
        id: [u8; 16],
    ) -> Result<(), FilesError> {
        Self::format_as(path, cache, geometry, uuid, id, None)
    }

    /// As [`format`](Self::format), with what was chosen for the record.
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
        let root = File::open(path).map_err(at(path))?;
        let directory = key(&root.metadata().map_err(at(path))?)?;
        match rustix::fs::mkdirat(&root, HIDDEN, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(at(&path.join(HIDDEN))(error.into())),
        }
        let hidden = open_hidden(&root).map_err(|error| at(&path.join(HIDDEN))(error.into()))?;
        hold(&hidden)?;
        let disk = FilesDisk::new(geometry.page_bytes.into());
        let record = Record::first(uuid, volume::of(&root)?, choices);
        BlockCache::format_of(cache, geometry, &disk, uuid, id, record.generation)
            .map_err(|error| FilesError::Cache(error.into()))?;
        map::make(&hidden, &Contents::of_record(id, directory, record))?;
        Ok(root.sync_all()?)
    }

    /// Has a start drop what the cache alone has of files that are not there and of whose removal it does not know.
    #[must_use]
    pub fn dropping_gone(self, drop_gone: bool) -> Self {
        Self { drop_gone, ..self }
    }

    /// What ties the directory and its cache together.
    pub fn id(&self) -> [u8; 16] {
        self.contents.id
    }

    /// Pages of the address space, which a cache of this directory was made for.
    pub fn pages(page_bytes: u64) -> u64 {
        FilesDisk::new(page_bytes).size_bytes() / page_bytes
    }

    /// All files as one disk, to be read only: for who compares them with their cache.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn disk(&self, page_bytes: u64) -> Result<FilesDisk, FilesError> {
        let mut disk = FilesDisk::new(page_bytes);
        disk.remember(&self.contents.voids);
        let (present, absent) = self.present()?;
        disk.miss(self.missing(&present), absent);
        for file in present.into_values() {
            for (&part, &region) in &file.parts {
                disk.join(region, file.below.clone(), Extent { file: file.below.key, part });
            }
        }
        Ok(disk)
    }

    /// Regions of files that are not there although nothing says that they were removed.
    fn missing(&self, present: &HashMap<FileKey, Present>) -> HashMap<u64, FileKey> {
        let missing = |file: &FileKey| !present.contains_key(file) && !self.contents.leaving.contains(file);
        let regions = self.contents.regions.iter().map(|(&region, extent)| (region, extent.file));
        regions.filter(|(_, file)| missing(file)).collect()
    }

    /// The files of the map that are there, each opened, and the folders that were not looked into: they are on another file
    /// system, are links, or may not be read.
    fn present(&self) -> Result<(HashMap<FileKey, Present>, Vec<PathBuf>), FilesError> {
        descriptors::allow_many();
        let mut wanted: HashMap<FileKey, BTreeMap<u64, u64>> = HashMap::new();
        for (&region, extent) in &self.contents.regions {
            wanted.entry(extent.file).or_default().insert(extent.part, region);
        }
        let (mut present, mut absent) = (HashMap::new(), Vec::new());
        let mut directories = vec![self.path.clone()];
        while let Some(directory) = directories.pop() {
            if wanted.is_empty() {
                break;
            }
            let entries = match std::fs::read_dir(&directory) {
                Err(error) if directory != self.path && is_passed_by(&error) => {
                    absent.push(directory);
                    continue;
                }
                entries => entries.map_err(at(&directory))?,
            };
            for entry in entries {
                let path = entry.map_err(at(&directory))?.path();
                let found = match std::fs::symlink_metadata(&path) {
                    Err(error) if is_passed_by(&error) => {
                        absent.push(path);
                        continue;
                    }
                    found => found.map_err(at(&path))?,
                };
                if path == self.path.join(HIDDEN) {
                    continue;
                }
                if found.dev() != self.device || (found.is_symlink() && path.is_dir()) {
                    absent.push(path);
                } else if found.is_dir() {
                    directories.push(path);
                } else if found.is_file()
                    && let Some(parts) = wanted.remove(&key(&found)?)
                {
                    let below = self.open_below(&path)?;
                    present.insert(below.key, Present { below, path, parts });
                }
            }
        }
        Ok((present, absent))
    }

    fn open_below(&self, path: &Path) -> Result<Arc<Below>, FilesError> {
        let (file, writable) = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (File::open(path).map_err(at(path))?, false)
            }
            Err(error) => return Err(at(path)(error)),
        };
        let found = file.metadata().map_err(at(path))?;
        let key = key(&found)?;
        let now = rustix::fs::statat(&file, "", AtFlags::EMPTY_PATH).map_err(|error| at(path)(error.into()))?;
        let changed = self.contents.stamps.get(&key).is_some_and(|then| *then != stamp(&now));
        Ok(Arc::new(Below::new(key, file, writable, changed)))
    }
}

impl CachedFiles {
    /// Opens the files of a directory over their cache. `direct` names those that go past it.
    ///
    /// # Errors
    /// When the cache is not the directory's or not in order, when a file was changed without it while it has dirty pages
    /// of it, when a file of which it has dirty pages is missing ([`Backing::dropping_gone`]), when the policy cannot be had: nothing is changed then. Else what the cache, a file or the map answered.
    pub fn open<C: Disk + 'static>(
        backing: Backing,
        cache: C,
        config: &CacheConfig,
        direct: Vec<Pattern>,
    ) -> Result<(Self, Found), FilesError> {
        Self::open_over(backing, cache, config, direct, |files| Ok(files))
    }

    /// As [`open`](Self::open), with what `below` makes of the files between the cache and them: a disk that takes the time
    /// of another, say.
    ///
    /// # Errors
    /// As [`open`](Self::open), and what `below` answered.
    pub fn open_over<C: Disk + 'static>(
        backing: Backing,
        cache: C,
        config: &CacheConfig,
        direct: Vec<Pattern>,
        below: impl FnOnce(Arc<FilesDisk>) -> io::Result<Arc<dyn Disk>>,
    ) -> Result<(Self, Found), FilesError> {
        let page_bytes = entresol_engine::store::page_bytes(&cache).map_err(|error| FilesError::Cache(error.into()))?;
        let (present, absent) = backing.present()?;
        let missing = backing.missing(&present);
        let disk = Arc::new(FilesDisk::new(page_bytes));
        disk.remember(&backing.contents.voids);
        let mut regions = BTreeMap::new();
        for file in present.values() {
            for (&part, &region) in &file.parts {
                let extent = Extent { file: file.below.key, part };
                disk.join(region, file.below.clone(), extent);
                regions.insert(region, extent);
            }
        }
        let mut keys: Vec<FileKey> = backing.contents.regions.values().map(|extent| extent.file).collect();
        keys.sort_unstable();
        keys.dedup();
        let changed: Vec<FileKey> =
            present.values().filter(|file| file.below.is_changed()).map(|f| f.below.key).collect();
        let mut found =
            Found { files: present.len(), gone: keys.len() - present.len(), changed: changed.len(), dropped_pages: 0 };
        let (objects, known) = objects(&present, page_bytes)?;
        let mut opening = BlockCache::find(cache, below(disk.clone())?, backing.contents.id, config, objects)?;
        let pairing = backing.pair(&opening)?;
        let Backing { root, device, hidden, contents, drop_gone, .. } = backing;
        let held = opening.held_pages();
        let dirty = |&(page, dirty): &(u64, bool)| {
            let (below, _) = disk.file_at(page * page_bytes).filter(|(below, _)| dirty && below.is_changed())?;
            Some(below.key)
        };
        let lost = held.iter().filter(|&&(_, dirty)| dirty);
        let lost: Vec<FileKey> =
            lost.filter_map(|&(page, _)| missing.get(&(page * page_bytes / REGION_BYTES)).copied()).collect();
        if !lost.is_empty() && !drop_gone {
            let files = lost.iter().collect::<HashSet<_>>().len();
            return Err(FilesError::Missing { pages: lost.len(), files, absent });
        }
        found.dropped_pages = lost.len();
        if found.gone > 0 {
            // The names may be gone in memory alone: a crash after this start must not bring back what it forgot.
            sync_names(&root)?;
        }
        if let Some(key) = held.iter().find_map(dirty) {
            return Err(FilesError::Changed(present[&key].path.clone()));
        }
        // From here on a crash leaves files that nobody has stamped; those that were changed stay known as such. Whatever could
        // refuse the start has had its say.
        let stamps = contents.stamps.into_iter().filter(|(key, _)| changed.contains(key)).collect();
        let record = pairing.propose(&mut opening, false, |_| map::sync_read(&hidden))?.or(contents.record);
        let contents = Contents { state: State::Open, regions, stamps, leaving: HashSet::new(), record, ..contents };
        let (cache, map) = opening.start(|| FileMap::start(hidden, contents).map_err(FilesError::Io))?;
        pairing.begun(&cache)?;
        let shared =
            Shared { cache: Arc::new(cache), disk, map: Mutex::new(map), voiding: RwLock::default(), page_bytes };
        let files = Self::new(shared, root, device, direct, pairing)?;
        files.reconcile(&present, &known, &held)?;
        Ok((files, found))
    }

    /// Drops what the cache holds of files that are gone, of what is beyond the end of a file, and of changed files.
    fn reconcile(
        &self,
        present: &HashMap<FileKey, Present>,
        known: &HashMap<FileKey, ObjectId>,
        held: &[(u64, bool)],
    ) -> Result<(), FilesError> {
        let page_bytes = self.shared.page_bytes;
        let mut files = HashMap::new();
        for (&key, file) in present {
            files.insert(key, self.know(file.below.clone(), known[&key], file.regions())?);
        }
        let mut void: Vec<u64> = Vec::new();
        for &(page, dirty) in held {
            match self.shared.disk.file_at(page * page_bytes) {
                Some((below, offset)) if !below.is_changed() && !self.shared.disk.is_void(page * page_bytes, dirty) => {
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
        let changed = present.values().any(|file| file.below.is_changed());
        if !void.is_empty() {
            self.shared.cache.flush()?;
        }
        self.shared.disk.remember(&[]);
        if changed || self.shared.map().voids() > 0 {
            // Before anything of them is cached again.
            self.shared.map().trust()?;
            present.values().for_each(|file| file.below.accept());
        }
        Ok(())
    }
}

/// The files that are there as objects, in the order of their first regions.
fn objects(
    present: &HashMap<FileKey, Present>,
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
