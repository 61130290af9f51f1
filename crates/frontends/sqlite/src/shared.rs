//! The cache of one database, shared by all connections of this process.

use crate::backing::GrowingFile;
use crate::error::Error;
use crate::options::{Options, policy};
use crate::record::Recorder;
use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, CacheError, Mode, Objects, Tag, default_policy};
use entresol_core::Op;
use entresol_disk::{Caching, Disk, FileDisk, patiently, take_room};
use entresol_files::record::{
    FileRecord, LastWrite, PairError, Record, RecordPlace, StateFile, StorePair, compare, read_record,
};
use entresol_store::{Geometry, Layout, StoreError};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

/// Page number that no request continues.
const NOWHERE: u64 = u64::MAX - 1;

/// Target of the requests to a database file.
enum Store {
    Cache(Arc<BlockCache>),
    /// No cache, but a disk in front of the file.
    Plain(Arc<dyn Disk>),
}

/// An open database file with its cache.
pub(crate) struct Shared {
    store: Store,
    file: Arc<GrowingFile>,
    /// The cache with the record of the database; `None` where the record may not be written.
    pair: Option<StorePair>,
    page_bytes: u64,
    /// Held to change the size.
    resizing: Mutex<()>,
    /// True if the size has changed since the last sync.
    resized: AtomicBool,
    /// The last page of the last read, and of the last write.
    last: [AtomicU64; 2],
    /// True if the policy or a recorder needs the time.
    timed: bool,
    recorder: Option<Recorder>,
    read_only: bool,
    /// Time of the first request, which counts as 0.
    started: std::sync::OnceLock<Instant>,
    /// True if the record says that the database has every byte, although the mode is write-back. The next write takes
    /// that back first. Writes hold the lock shared; a change of the value holds it alone.
    complete: RwLock<bool>,
    /// Permissions of a cache file that others could open; 0 if there were none, or once reported.
    permissions: AtomicU32,
}

impl Shared {
    /// Opens a database file and its cache, which is made if the file is missing.
    ///
    /// # Errors
    /// If either is in use, is the wrong file, or fails.
    pub fn open(database: &Path, options: &Options, writable: bool) -> Result<Self, Error> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { path, source }
        };
        let file = Arc::new(GrowingFile::open(database, writable, options.capacity_bytes).map_err(at(database))?);
        let below: Arc<dyn Disk> = match &options.below {
            None => Arc::clone(&file) as Arc<dyn Disk>,
            Some(wrap) => wrap(Arc::clone(&file)).map_err(at(database))?,
        };
        let mut timed = options.trace.is_some();
        let mut pair = None;
        let (store, page_bytes) = match &options.cache {
            None => (Store::Plain(below), u64::from(options.page_bytes)),
            Some(path) => {
                let mode = if writable { options.mode } else { Mode::ReadOnly };
                let identity = identity(database).map_err(at(database))?;
                check_apart(path, database)?;
                let place = FileRecord::over(database, Arc::clone(&file) as _, identity).map_err(at(database))?;
                let place = Arc::new(place);
                let last_write = LastWrite::of(Arc::clone(&place) as _);
                let (device, geometry) = device(path, &below, options, identity, writable.then_some(&*place))?;
                let given = options.policy.as_deref();
                let name = given.unwrap_or_else(|| default_policy(geometry.layout));
                let wrong = |why| Error::Parameter { name: "cache_policy".to_owned(), why };
                let (info, policy) = policy(name).map_err(wrong)?;
                timed |= info.clock;
                let space = geometry.capacity_pages();
                let memory = options.dram.map(|size| size.pages(geometry.page_bytes, space));
                let tiers = entresol_cache::tiers(info, space, memory);
                let mut config = CacheConfig { options: policy, mode, ..CacheConfig::new(info, &tiers) };
                config.handles = options.handles.unwrap_or(config.handles);
                let no_cache = |source| Error::Cache { path: path.clone(), source };
                let mut opening = BlockCache::find(device, last_write.over(below), identity, &config, Objects::new(1))
                    .map_err(no_cache)?;
                let cache = if writable {
                    let started = StorePair::start_in_program(opening, last_write, path);
                    let started = started.map_err(|why| unpaired(path, why))?;
                    let cache = Arc::clone(started.cache());
                    pair = Some(started);
                    cache
                } else {
                    let record = read_record(&*place).map_err(|why| unpaired(path, why))?;
                    let _changed =
                        last_write.compare(&mut opening, record.as_ref(), false).map_err(|why| unpaired(path, why))?;
                    let compared = compare(
                        opening.uuid(),
                        opening.generation(),
                        record.as_ref(),
                        place.volume().map_err(at(database))?,
                    );
                    compared.map_err(|why| unpaired(path, why.into()))?;
                    // Without it the policy learns anew.
                    if let Some(Ok(Some(learned))) = StateFile::beside(path).map(|beside| beside.learned()) {
                        opening.learn(&learned);
                    }
                    Arc::new(opening.start(|| Ok::<_, CacheError>(())).map_err(no_cache)?.0)
                };
                (Store::Cache(cache), u64::from(geometry.page_bytes))
            }
        };
        let opened = options.cache.as_ref().filter(|_| writable).and_then(|path| File::open(path).ok());
        let permissions = opened.and_then(entresol_files::close_to_others);
        let recorder = options.trace.as_ref().map(|path| Recorder::create(path).map_err(at(path))).transpose()?;
        let shared = Shared {
            store,
            file,
            pair,
            page_bytes,
            resizing: Mutex::new(()),
            resized: AtomicBool::new(false),
            last: [AtomicU64::new(NOWHERE), AtomicU64::new(NOWHERE)],
            timed,
            recorder,
            read_only: !writable || options.mode == Mode::ReadOnly,
            started: std::sync::OnceLock::new(),
            complete: RwLock::new(false),
            permissions: AtomicU32::new(permissions.unwrap_or(0)),
        };
        if !shared.read_only {
            // A crash may have come between the move of the file's end and the cache's update.
            shared.forget_beyond(shared.len(), options.capacity_bytes).map_err(at(database))?;
        }
        Ok(shared)
    }

    /// Bytes of the database.
    pub fn len(&self) -> u64 {
        self.file.len()
    }

    /// True if writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Permissions of the cache file, if others could open it until it was opened here. Returned once.
    pub fn was_open_to_others(&self) -> Option<u32> {
        Some(self.permissions.swap(0, Ordering::Relaxed)).filter(|&mode| mode != 0)
    }

    /// The cache, if there is one.
    pub fn cache(&self) -> Option<&BlockCache> {
        match &self.store {
            Store::Cache(cache) => Some(cache),
            Store::Plain(_) => None,
        }
    }

    /// Tag of a request: its time, and true if it is sequential. Notes the request as the last one of its kind, and in
    /// the recording.
    fn tag(&self, op: Op, offset: u64, bytes: usize) -> Tag {
        let (first, last) = (offset / self.page_bytes, (offset + bytes as u64 - 1) / self.page_bytes);
        let before = self.last[usize::from(op.is_write())].swap(last, Ordering::Relaxed);
        let now_us = if self.timed { self.started.get_or_init(Instant::now).elapsed().as_micros() as u64 } else { 0 };
        if let Some(recorder) = &self.recorder {
            recorder.note(now_us, op, offset, bytes as u64);
        }
        Tag { sequential: before + 1 == first, now_us }
    }

    /// Fills `bytes` from `offset` on, with zeros beyond the end of the database; false if the end was reached.
    ///
    /// # Errors
    /// Errors of the cache or of the database file.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<bool> {
        let inside = self.len().saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (within, beyond) = bytes.split_at_mut(inside);
        beyond.fill(0);
        if inside > 0 {
            let tag = self.tag(Op::Read, offset, inside);
            match &self.store {
                Store::Cache(cache) => cache.read_tagged(offset, within, tag)?,
                Store::Plain(disk) => disk.read_at(offset, within)?,
            }
        }
        Ok(beyond.is_empty())
    }

    /// Writes `bytes` from `offset` on. The database grows when they reach beyond its end.
    ///
    /// # Errors
    /// Errors of the cache or of the database file.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset + bytes.len() as u64;
        if end > self.len() {
            self.grow(offset, end)?;
        }
        self.put(offset, bytes)
    }

    /// Begins a write that only the cache may hold when it is answered: the record must no longer claim that the
    /// database has every byte. While the guard is held, no drain can set that claim again.
    fn begin_write(&self) -> io::Result<RwLockReadGuard<'_, bool>> {
        loop {
            let complete = self.complete.read().unwrap_or_else(PoisonError::into_inner);
            if !*complete {
                return Ok(complete);
            }
            drop(complete);
            let mut complete = self.complete.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(pair) = self.pair.as_ref().filter(|_| *complete) {
                pair.note_complete(false)?;
            }
            *complete = false;
        }
    }

    /// Writes every dirty page to the database, and then records that the database has every byte.
    ///
    /// # Errors
    /// Errors of the cache, of the database file or of the record.
    pub fn drain(&self) -> io::Result<()> {
        let Some(cache) = self.cache() else { return Ok(()) };
        // Writes go on during the first drain. They wait during the second, which writes the pages they made dirty.
        cache.drain()?;
        let mut complete = self.complete.write().unwrap_or_else(PoisonError::into_inner);
        cache.drain()?;
        if let Some(pair) = &self.pair {
            // A database whose size is not durable does not have every byte.
            self.file.sync()?;
            pair.note_complete(true)?;
            *complete = cache.config().mode == Mode::WriteBack;
        }
        Ok(())
    }

    fn put(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let _incomplete = self.begin_write()?;
        let tag = self.tag(Op::Write, offset, bytes.len());
        match &self.store {
            Store::Cache(cache) => cache.write_tagged(offset, bytes, tag),
            Store::Plain(disk) => disk.write_at(offset, bytes),
        }
    }

    /// Moves the end of the file.
    fn resize(&self, bytes: u64) -> io::Result<()> {
        self.resized.store(true, Ordering::Release);
        self.pair.iter().for_each(|pair| pair.last_write().precede());
        self.file.resize(bytes)
    }

    /// Moves the end up to `end`. Bytes between the old end and `from` become zeros.
    fn grow(&self, from: u64, end: u64) -> io::Result<()> {
        let _alone = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.len();
        if end <= old {
            return Ok(());
        }
        self.resize(end)?;
        // The cache may hold bytes of the last page beyond the old end. It holds no later page.
        let gap = from.min(old.next_multiple_of(self.page_bytes)).saturating_sub(old);
        if gap > 0 { self.put(old, &vec![0; gap as usize]) } else { Ok(()) }
    }

    /// Moves the end of the database.
    ///
    /// # Errors
    /// Errors of the cache or of the database file.
    pub fn truncate(&self, bytes: u64) -> io::Result<()> {
        if bytes > self.len() {
            return self.grow(bytes, bytes);
        }
        let _alone = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.len();
        self.resize(bytes)?;
        self.forget_beyond(bytes, old.next_multiple_of(self.page_bytes))
    }

    /// Makes the cache forget the whole pages from `bytes` up to `end`.
    fn forget_beyond(&self, bytes: u64, end: u64) -> io::Result<()> {
        let from = bytes.next_multiple_of(self.page_bytes);
        match &self.store {
            Store::Cache(cache) if from < end => cache.forget(from, end - from),
            _ => Ok(()),
        }
    }

    /// Sets the mode of the cache, if there is one, and the database's record with it.
    ///
    /// # Errors
    /// Errors of the cache or of the record.
    pub fn set_mode(&self, mode: Mode) -> io::Result<()> {
        // The claim is taken back first, so that no later write takes back what the new mode records.
        drop(self.begin_write()?);
        match (&self.pair, self.cache()) {
            (Some(pair), _) => pair.set_mode(mode),
            (None, Some(cache)) => cache.set_mode(mode),
            (None, None) => Ok(()),
        }
    }

    /// Makes the written bytes and the size durable.
    ///
    /// # Errors
    /// Errors of the cache or of the database file.
    pub fn sync(&self) -> io::Result<()> {
        let resized = self.resized.swap(false, Ordering::AcqRel);
        let synced = match &self.store {
            Store::Cache(cache) => {
                let size = if resized { self.file.sync() } else { Ok(()) };
                let flushed = size.and_then(|()| cache.flush());
                if let (Ok(()), Some(pair)) = (&flushed, &self.pair) {
                    // A generation that could not be raised is tried again later. The sync holds without it.
                    let _older_copies_are_told_later = pair.raise_if_due();
                }
                flushed
            }
            Store::Plain(disk) => disk.sync(),
        };
        synced.inspect_err(|_| self.resized.store(true, Ordering::Release))
    }

    /// Closes the cache in order, and the recording. Returns the reason for which what the policy has learned is not kept, if there
    /// is one.
    ///
    /// # Errors
    /// Errors of the cache, of the database file or of the recording.
    pub fn close(&self) -> io::Result<Option<io::Error>> {
        let closed = self.sync().and_then(|()| match (&self.pair, self.cache()) {
            (Some(pair), _) => pair.close(),
            (None, Some(cache)) => cache.close(),
            (None, None) => Ok(()),
        });
        closed.and(self.recorder.as_ref().map_or(Ok(()), Recorder::finish))?;
        Ok(self.pair.as_ref().and_then(|pair| pair.keep_learned_if_paid().err()))
    }
}

/// Identity of a database file: its inode and the inode's creation time, as for every backing file.
fn identity(path: &Path) -> io::Result<[u8; 16]> {
    let found = std::fs::metadata(path)?;
    let made = found.created().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&found.ino().to_le_bytes());
    identity[8..].copy_from_slice(&made.map_or(0, |since| since.as_nanos() as u64).to_le_bytes());
    Ok(identity)
}

/// Error of a cache and a database that do not form a pair.
fn unpaired(path: &Path, why: PairError) -> Error {
    match why {
        PairError::Cache(source) => Error::Cache { path: path.to_owned(), source },
        other => Error::Parameter { name: "cache_file".to_owned(), why: format!("{}: {other}", path.display()) },
    }
}

fn check_apart(cache: &Path, database: &Path) -> Result<(), Error> {
    if let (Ok(one), Ok(other)) = (std::fs::metadata(cache), std::fs::metadata(database))
        && (one.dev(), one.ino()) == (other.dev(), other.ino())
    {
        let why = format!("{} is the database itself", cache.display());
        return Err(Error::Parameter { name: "cache_file".to_owned(), why });
    }
    Ok(())
}

/// Opens the cache's file or device. Makes a cache there if the file is missing or blank.
fn device(
    path: &Path,
    below: &Arc<dyn Disk>,
    options: &Options,
    identity: [u8; 16],
    place: Option<&FileRecord>,
) -> Result<(FileDisk, Geometry), Error> {
    let made = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
        Err(source) => return Err(Error::File { path: path.to_owned(), source }),
    };
    // The space is reserved now, so that it cannot be missing later.
    let reserved = made.as_ref().map_or(Ok(()), |file| take_room(file, options.size_bytes).map(drop));
    let reserved = reserved.map_err(|source| Error::File { path: path.to_owned(), source });
    let opened = reserved.and_then(|()| formatted(path, below, options, identity, place));
    if made.is_some() && opened.is_err() {
        // The earlier error says more than an error of removing the file would.
        let _ = std::fs::remove_file(path);
    }
    opened
}

/// Opens a cache, which is made first on a blank device.
fn formatted(
    path: &Path,
    below: &Arc<dyn Disk>,
    options: &Options,
    identity: [u8; 16],
    place: Option<&FileRecord>,
) -> Result<(FileDisk, Geometry), Error> {
    let at = |source| Error::File { path: path.to_owned(), source };
    let device = patiently(|| FileDisk::open(path, Caching::Buffered)).map_err(at)?;
    let cache = |source: StoreError| Error::Cache { path: path.to_owned(), source: CacheError::Store(source) };
    if is_blank(&device).map_err(at)? {
        let geometry =
            Geometry::for_device(device.size_bytes(), options.page_bytes, Layout::default()).map_err(cache)?;
        let mut uuid = [0; 16];
        File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut uuid)).map_err(at)?;
        make(&device, geometry, below, [uuid, identity], path, place)?;
    }
    let geometry = entresol_store::geometry(&device).map_err(cache)?;
    Ok((device, geometry))
}

/// Makes a cache and its record, unless another cache holds bytes that the database lacks.
fn make(
    device: &FileDisk,
    geometry: Geometry,
    below: &Arc<dyn Disk>,
    [uuid, identity]: [[u8; 16]; 2],
    path: &Path,
    place: Option<&FileRecord>,
) -> Result<(), Error> {
    let cache = |source: StoreError| Error::Cache { path: path.to_owned(), source: CacheError::Store(source) };
    let Some(place) = place else {
        return BlockCache::format(device, geometry, below, uuid, identity).map_err(cache);
    };
    if read_record(place).map_err(|why| unpaired(path, why))?.is_some_and(|record| !record.complete) {
        let why = "another cache has what the database has not: give that one, or lose it by `entresol format --force`";
        return Err(Error::Parameter { name: "cache_file".to_owned(), why: why.to_owned() });
    }
    let failed = |error| unpaired(path, PairError::Record { place: place.name(), error });
    // The record first: a process killed in between leaves the record's cache, or a blank one that is made again.
    let record = Record::first(uuid, place.volume().map_err(failed)?, None);
    place.write(&record).map_err(failed)?;
    BlockCache::format_of(device, geometry, below, uuid, identity, record.generation).map_err(cache)
}

/// True if the first MiB is zeros, where a cache, a file system or other data would begin.
fn is_blank(device: &FileDisk) -> io::Result<bool> {
    let mut head = vec![0; device.size_bytes().min(1 << 20) as usize];
    device.read_at(0, &mut head)?;
    Ok(head.iter().all(|&byte| byte == 0))
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
