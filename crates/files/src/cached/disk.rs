//! The backing store of a cache that is all files of a directory: an address space in which each file has regions.

mod nowhere;

pub use nowhere::{NotWritten, Nowhere};

use super::blocks::{Blocks, Extents};
use super::changed::{Changes, Watch};
use super::map::{Extent, FileKey, REGION_BYTES, Stamp};
use crate::below::{Attributes, File, Modified, OpenFile};
use crate::mutant::{self, Mutant};
use crate::places::{Holder, Place, Places};
use entresol_engine::disk::Disk;
use nowhere::{NotWrittenCounts, Went};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::ops::Deref;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

/// A file below the cache.
pub(super) struct Below {
    pub key: FileKey,
    /// Ourselves, for who closes descriptors.
    me: Weak<Self>,
    /// Held to read and write bytes, and alone to make the file shorter: a write that is under way must not lengthen it
    /// again.
    shape: RwLock<()>,
    place: Place<File>,
    writable: AtomicBool,
    /// Watch for changes that somebody else makes to the file.
    pub watch: Watch,
    /// Something was written here that is not synced.
    unsynced: AtomicBool,
    /// A sync failed and the cache has not been told.
    failed: AtomicBool,
    /// A write or a sync of the cache's failed since that was last asked.
    fails: AtomicBool,
    /// Size or allocation may not be durable.
    reshaped: AtomicBool,
    /// Bytes of the file that are known to have blocks.
    blocks: Blocks,
    /// Held to make attributes durable: who finds nothing to do must not return before it is done.
    syncing: Mutex<()>,
    /// When a write above was not yet told to the file's times: nanoseconds since 1970, else 0.
    modified: AtomicI64,
    /// It may have rights that a write here takes away; changed under `times`.
    privileged: AtomicBool,
    times: Mutex<Times>,
}

#[derive(Default)]
struct Times {
    /// Time of the last change of attributes that is durable, or is of no importance because it was made by a
    /// write-back.
    durable: Option<(i64, i64)>,
}

fn nanoseconds((seconds, more): (i64, i64)) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(more)
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as i64)
}

impl Below {
    /// A file, of which it is not known whether anything about it is durable.
    /// `left` is how our last change left it, if that is known, and how many of ours are under way.
    pub fn new(
        key: FileKey,
        file: File,
        writable: bool,
        left: (Option<Stamp>, usize),
        places: Option<Arc<Places>>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            key,
            shape: RwLock::default(),
            place: Place::new(file, places),
            writable: AtomicBool::new(writable),
            watch: Watch::new(left.0, left.1),
            unsynced: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            fails: AtomicBool::new(false),
            reshaped: AtomicBool::new(true),
            blocks: Blocks::default(),
            syncing: Mutex::default(),
            modified: AtomicI64::new(0),
            privileged: AtomicBool::new(true),
            times: Mutex::default(),
        })
    }

    /// From now on its descriptor may be closed when there are too many. Not to be called with a lock held that `removed` takes.
    pub fn admit(&self) {
        self.place.admit(self.holder());
    }

    fn holder(&self) -> Weak<dyn Holder> {
        self.me.clone()
    }

    /// Opens it again by its place alone.
    fn open_again(&self, place: OwnedFd) -> io::Result<File> {
        let (file, had_another_mode) = File::at(&place, self.writable.load(Relaxed))?;
        if had_another_mode {
            self.forget_stamp();
        }
        Ok(file)
    }

    /// True if the file's descriptor is open.
    pub fn is_open(&self) -> bool {
        self.place.if_open().is_some()
    }

    pub fn opened(&self) -> io::Result<Arc<File>> {
        self.place.get(&self.holder(), |place| self.open_again(place))
    }

    /// The file, which nobody makes shorter meanwhile.
    ///
    /// # Errors
    /// The error of the system when the file has to be opened again.
    pub fn file(&self) -> io::Result<LockedFile<'_>> {
        let file = self.opened()?;
        Ok(LockedFile { file, _shape: self.shape.read().unwrap_or_else(PoisonError::into_inner) })
    }

    fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.shape.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Path of the file now, relative to the backing directory, whose path is `root`; the system's path if it is not in
    /// there.
    pub fn path(&self, root: &Path) -> io::Result<PathBuf> {
        // Nothing is opened for it, so that it can be asked with any lock held. Between the two it may have been opened.
        for _ in 0..2 {
            if let Some(path) = self.place.closed_path() {
                return Ok(path);
            }
            if let Some(file) = self.place.if_open() {
                let path = file.path()?;
                return Ok(path.strip_prefix(root).map(Path::to_owned).unwrap_or(path));
            }
        }
        Err(Errno::STALE.into())
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a handle that may write in place of one that may not.
    pub fn may_write(&self, file: File) {
        if !self.writable.load(Relaxed) {
            let _alone = self.alone();
            self.writable.store(true, Relaxed);
            self.place.replace(file);
        }
    }

    /// Has the file open so that it can be written: it may have been found with a mode that forbids that, as `git` makes its objects,
    /// while the cache had dirty pages of it.
    ///
    /// # Errors
    /// The error of the system: the file is somebody else's, say, or its file system is read-only.
    pub fn ensure_writable(&self) -> io::Result<()> {
        if !self.writable.load(Relaxed) {
            let file = self.opened()?;
            let ours = self.changing_mode(&file)?;
            let again = file.to_write();
            drop(ours);
            self.may_write(again?);
        }
        Ok(())
    }

    /// Size in bytes.
    pub fn size(&self) -> io::Result<u64> {
        Ok(self.file()?.found()?.size)
    }

    /// Fills `bytes`, with zeroes beyond the end.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let file = self.file()?;
        let mut done = 0;
        while done < bytes.len() {
            match file.read_at(offset + done as u64, &mut bytes[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes[done..].fill(0);
        Ok(())
    }

    /// As [`read`](Self::read), if the system has all of it in memory and nobody is making the file shorter; whether it did.
    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let (Some(file), Ok(_shape)) = (self.place.if_open(), self.shape.try_read()) else { return false };
        // Less may be the end of the file. What is wrong with it a read is told that may wait.
        file.read_now(offset, bytes).is_ok_and(|count| count == bytes.len())
    }

    /// Changes mode or capabilities while nothing is written here.
    pub fn changing_rights(&self, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let _times = self.times();
        self.privileged.store(true, Relaxed);
        act()
    }

    /// Looks at times or changes them while nothing is written here: a write gives the file back those that it had before.
    pub fn while_still(&self, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let _times = self.times();
        act()
    }

    /// Does something of the cache's own to the file, which keeps its rights though the file system takes them away for it. Most files
    /// have none, and are not asked again. `times` must be held.
    fn keeping_rights<T>(&self, file: &File, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if !self.privileged.load(Relaxed) {
            return act();
        }
        let rights = file.rights()?;
        self.privileged.store(!rights.is_none(), Relaxed);
        let done = act()?;
        if !rights.is_none() {
            // Who may write a file but does not own it cannot give it back what it had.
            let _not_ours = file.restore(&rights);
        }
        Ok(done)
    }

    /// Writes what the cache has, except what is beyond the end. That is no change of the file, so its time and its rights stay. Where
    /// somebody
    /// else has changed the file it is kept aside.
    fn write(&self, offset: u64, bytes: &[u8], changes: &Changes, page_bytes: u64) -> io::Result<Went> {
        loop {
            if self.change().is_apart() && self.put_aside(offset, bytes, changes, page_bytes)? {
                return Ok(Went::Aside);
            }
            match self.write_ours(offset, bytes) {
                Err(_) if self.change().is_apart() => {}
                done => return done.map(Went::Below),
            }
        }
    }

    /// Writes what lies inside the file; how many bytes that are.
    fn write_ours(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.ensure_writable()?;
        let file = self.file()?;
        let mut times = self.times();
        let (_ours, before) = self.changing(&file)?;
        let inside = before.size.saturating_sub(offset).min(bytes.len() as u64) as usize;
        if inside == 0 {
            return Ok(0);
        }
        let written = self.keeping_rights(&file, || file.write_all_at(offset, &bytes[..inside]));
        self.put_back_time(written, &mut times, &file, before)?;
        Ok(inside)
    }

    /// Gives the file the time of modification that it had before an act of the cache's own, which has ended so.
    fn put_back_time(
        &self,
        done: io::Result<()>,
        times: &mut Times,
        file: &File,
        before: Attributes,
    ) -> io::Result<()> {
        let is_back = done.and_then(|()| times.change(file, before, before.modified));
        if !matches!(is_back, Ok(true)) {
            self.watch.expect_any_time();
        }
        is_back.map(drop)
    }

    /// A write that the cache took.
    pub fn note_write(&self) {
        self.modified.store(now(), Relaxed);
    }

    /// The file's times as they would be without a cache.
    pub fn settle(&self) -> io::Result<()> {
        if self.modified.load(Relaxed) == 0 || self.change().is_apart() {
            return Ok(());
        }
        let file = self.file()?;
        let mut times = self.times();
        // Where somebody else has written since, the time is his.
        let (_ours, before) = match self.changing(&file) {
            Err(_) if self.change().is_apart() => return Ok(()),
            ours => ours?,
        };
        let modified = self.modified.swap(0, Relaxed);
        if modified == 0 {
            return Ok(());
        }
        let told = (modified.div_euclid(1_000_000_000), modified.rem_euclid(1_000_000_000));
        // A file system may keep it less exactly.
        self.watch.expect_any_time();
        match times.change(&file, before, told).map(drop) {
            // It will be told if the file system can be written again; meanwhile the file can be looked at.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                let _newer = self.modified.compare_exchange(0, modified, Relaxed, Relaxed);
                Ok(())
            }
            other => other,
        }
    }

    /// Makes durable what is not bytes of the cache: the size, and with `all` the owner, mode and the like.
    pub fn sync_attributes(&self, all: bool) -> io::Result<()> {
        if mutant::is(Mutant::SizeUnsynced) {
            return Ok(());
        }
        let _one_at_a_time = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.file()?;
        let changed = file.attributes()?.changed;
        let attributes = all && self.times().durable != Some(changed);
        let reshaped = self.reshaped.swap(false, Relaxed);
        let synced = match (attributes, reshaped) {
            (true, _) => file.sync_all(),
            (false, true) => file.sync_data(),
            (false, false) => return Ok(()),
        };
        match synced {
            Ok(()) if attributes => self.times().durable = Some(changed),
            Ok(()) => {}
            // The system says it once, and it may be about what the cache wrote.
            Err(_) => {
                self.reshaped.store(true, Relaxed);
                self.failed.fetch_or(self.unsynced.load(Relaxed), Relaxed);
            }
        }
        synced
    }

    /// Makes durable what the cache wrote here.
    fn sync_writes(&self) -> io::Result<()> {
        self.unsynced.store(false, Relaxed);
        self.sync_aside()?;
        self.file()?.sync_data()?;
        match self.failed.swap(false, Relaxed) {
            false => Ok(()),
            true => Err(Errno::IO.into()),
        }
    }

    /// Makes everything durable and says how we left the file: where somebody else has changed it since, the next start finds that.
    pub fn leave(&self) -> io::Result<Stamp> {
        self.settle()?;
        let file = self.file()?;
        if !mutant::is(Mutant::CloseUnsynced) {
            file.sync_all()?;
        }
        self.look()?;
        self.left().map_or_else(|| Ok(stamp(&file.attributes()?)), Ok)
    }

    /// There is no time of a write above to be told.
    pub fn told(&self) {
        self.modified.store(0, Relaxed);
    }

    /// Gives it the size that it had before somebody else changed it.
    pub fn set_size_back(&self, bytes: u64) -> io::Result<Arc<File>> {
        let file = self.opened()?;
        self.blocks.forget(0..u64::MAX);
        self.reshape(|| {
            let _alone = self.alone();
            if file.attributes()?.size == bytes { Ok(()) } else { file.set_size(bytes) }
        })?;
        Ok(file)
    }

    /// Which of its blocks are there is to be found out again.
    pub fn forget_blocks(&self) {
        self.blocks.forget(0..u64::MAX);
    }

    /// Takes blocks for what the cache is about to take of a range in holes, so that they are not missing when it is written here.
    /// To take blocks is no change of the file, so its time of modification and its rights stay. The reason: a start
    /// takes some for files that nobody writes.
    pub fn take_blocks(&self, range: Range<u64>, size: u64) -> io::Result<()> {
        let file = self.file()?;
        if self.blocks.take(&Unchanged { below: self, file: &file }, range, size)? {
            self.reshaped.store(true, Relaxed);
        }
        Ok(())
    }

    /// Sets the size.
    pub fn resize(&self, bytes: u64) -> io::Result<()> {
        self.blocks.forget(bytes..u64::MAX);
        let file = self.opened()?;
        let _ours = self.changing(&file)?;
        let resized = self.reshape(|| {
            let _alone = self.alone();
            file.set_size(bytes)
        });
        self.watch.expect_size(resized.is_ok().then_some(bytes));
        resized
    }

    /// Changes size or allocation, and notes that they need not be durable: before the change a sync that came in between would
    /// take the note back.
    fn reshape(&self, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let changed = change();
        self.reshaped.store(true, Relaxed);
        changed
    }

    /// Lengthens the file by a range whose blocks are taken now, so that they are not missing later.
    pub fn grow(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let file = self.file()?;
        let (_ours, before) = self.changing(&file)?;
        let grown = self.reshape(|| match file.allocate(FallocateFlags::empty(), offset, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_size(offset + bytes),
            other => {
                other?;
                self.blocks.note(offset..offset + bytes);
                Ok(())
            }
        });
        self.watch.expect_size(grown.is_ok().then_some(before.size.max(offset + bytes)));
        grown
    }

    /// `fallocate`.
    pub fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        let range = offset..offset.saturating_add(bytes);
        if how.contains(FallocateFlags::PUNCH_HOLE) {
            self.blocks.forget(range.clone());
        }
        let file = self.file()?;
        let (_ours, before) = self.changing(&file)?;
        let allocated = self.reshape(|| Ok(file.allocate(how, offset, bytes)?));
        let end = if how.contains(FallocateFlags::KEEP_SIZE) { 0 } else { range.end };
        self.watch.expect_size(allocated.is_ok().then_some(before.size.max(end)));
        allocated?;
        if !how.contains(FallocateFlags::PUNCH_HOLE) {
            self.blocks.note(range);
        }
        Ok(())
    }
}

/// A file whose blocks are taken without a change of its time of modification or its rights.
struct Unchanged<'a> {
    below: &'a Below,
    file: &'a Arc<File>,
}

impl Extents for Unchanged<'_> {
    fn hole_from(&self, offset: u64) -> rustix::io::Result<u64> {
        self.file.hole_from(offset)
    }

    fn data_from(&self, offset: u64) -> rustix::io::Result<u64> {
        self.file.data_from(offset)
    }

    fn take(&self, range: Range<u64>) -> rustix::io::Result<()> {
        let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let mut times = self.below.times();
        let (_ours, before) = self.below.changing(self.file).map_err(errno)?;
        let take = || Ok(Extents::take(&**self.file, range)?);
        let taken = self.below.keeping_rights(self.file, take);
        self.below.put_back_time(taken, &mut times, self.file, before).map_err(errno)
    }
}

/// The file below, as long as nobody makes it shorter.
pub(super) struct LockedFile<'a> {
    file: Arc<File>,
    _shape: RwLockReadGuard<'a, ()>,
}

impl Deref for LockedFile<'_> {
    type Target = Arc<File>;

    fn deref(&self) -> &Arc<File> {
        &self.file
    }
}

impl Holder for Below {
    fn let_go(&self) -> bool {
        let synced = !self.unsynced.load(Relaxed) || self.sync_writes().is_ok();
        if !synced {
            // The system says it once, to this descriptor: the next sync that the cache asks for has to say it again.
            self.unsynced.store(true, Relaxed);
            self.failed.store(true, Relaxed);
        }
        synced && self.place.let_go(&self.holder(), File::descriptor)
    }

    fn hold_again(&self) {
        self.place.hold_again(&self.holder(), |place| self.open_again(place));
    }

    fn was_used(&self) -> bool {
        self.place.was_used()
    }
}

/// Stamp of a file with these attributes: its size in bytes, and its times in nanoseconds since 1970.
pub(super) fn stamp(found: &Attributes) -> Stamp {
    Stamp { size: found.size, modified: nanoseconds(found.modified), changed: nanoseconds(found.changed) }
}

impl Times {
    /// Sets the time of modification after an act of the cache's own. That attributes have changed by it is of no
    /// importance to who asks for them to be durable.
    /// True if the file has that time now; false if it could only be set to the current time.
    fn change(&mut self, file: &File, before: Attributes, modified: (i64, i64)) -> io::Result<bool> {
        // Who may write a file but does not own it can set no other time than now.
        let is_set = match file.set_modified(Modified::At(modified)) {
            Err(Errno::PERM | Errno::ACCESS) => {
                let _as_close_as_can_be = file.set_modified(Modified::Now);
                false
            }
            other => other.map(|()| true)?,
        };
        if self.durable == Some(before.changed) {
            self.durable = Some(file.attributes()?.changed);
        }
        Ok(is_set)
    }
}

/// All files that have regions, as the one disk below a cache. Bytes of a region that belongs to no file are zeroes, and
/// writing them has no effect: its file is gone.
pub struct FilesDisk {
    size_bytes: u64,
    page_bytes: u64,
    voids: Mutex<HashMap<FileKey, Vec<Range<u64>>>>,
    regions: RwLock<HashMap<u64, (Arc<Below>, u64)>>,
    unsynced: Mutex<Vec<Arc<Below>>>,
    missing: HashMap<u64, FileKey>,
    /// Pages that are kept from files that are missing, each by its file.
    missing_aside: Vec<FileKey>,
    absent: Vec<PathBuf>,
    not_written: NotWrittenCounts,
    /// Link to the map and to the listener, for files that somebody else changed.
    pub(super) changes: Changes,
}

impl FilesDisk {
    /// The address space of a cache with pages of this size.
    pub(super) fn new(page_bytes: u64) -> Self {
        Self {
            // The log numbers pages with 48 bits.
            size_bytes: page_bytes << 47,
            page_bytes,
            voids: Mutex::default(),
            regions: RwLock::default(),
            unsynced: Mutex::default(),
            missing: HashMap::new(),
            missing_aside: Vec::new(),
            absent: Vec::new(),
            not_written: NotWrittenCounts::default(),
            changes: Changes::default(),
        }
    }

    /// Regions there can be.
    pub(super) fn regions_max(&self) -> u64 {
        self.size_bytes / REGION_BYTES
    }

    /// Gives a region to a part of a file.
    pub(super) fn join(&self, region: u64, file: Arc<Below>, extent: Extent) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        regions.insert(region, (file, extent.part * REGION_BYTES));
    }

    /// A region belongs to nobody any more.
    pub(super) fn part(&self, region: u64) {
        self.regions.write().unwrap_or_else(PoisonError::into_inner).remove(&region);
    }

    /// The file that an address belongs to, and where in it.
    pub(super) fn file_at(&self, at: u64) -> Option<(Arc<Below>, u64)> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let (file, start) = regions.get(&(at / REGION_BYTES))?;
        Some((file.clone(), start + at % REGION_BYTES))
    }

    /// The files that have regions, each once.
    pub(super) fn files(&self) -> Vec<Arc<Below>> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let files: HashMap<FileKey, Arc<Below>> = regions.values().map(|(file, _)| (file.key, file.clone())).collect();
        files.into_values().collect()
    }

    /// Something of a file was changed that the next sync shall make durable.
    pub(super) fn note(&self, file: &Arc<Below>) {
        if !file.unsynced.swap(true, Relaxed) {
            self.to_sync().push(file.clone());
        }
    }

    fn to_sync(&self) -> MutexGuard<'_, Vec<Arc<Below>>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of `bytes` from `at` on that lies in one region.
pub(super) fn within(at: u64, bytes: u64) -> u64 {
    bytes.min(REGION_BYTES - at % REGION_BYTES)
}

impl Disk for FilesDisk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = at + done as u64;
            let count = within(at, (bytes.len() - done) as u64) as usize;
            let part = &mut bytes[done..done + count];
            match self.file_at(at) {
                Some((file, offset)) => file.read(offset, part)?,
                None => part.fill(0),
            }
            done += count;
        }
        Ok(())
    }

    fn read_now(&self, at: u64, bytes: &mut [u8]) -> bool {
        let one = within(at, bytes.len() as u64) == bytes.len() as u64;
        one && self.file_at(at).is_some_and(|(file, offset)| file.read_now(offset, bytes))
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = at + done as u64;
            let count = within(at, (bytes.len() - done) as u64) as usize;
            let mut went = None;
            if let Some((file, offset)) = self.file_at(at) {
                // Before too: whose sync fails meanwhile must know that this may be gone with it.
                self.note(&file);
                let written = file.write(offset, &bytes[done..done + count], &self.changes, self.page_bytes);
                // A sync may have come while it was written.
                self.note(&file);
                file.fails.fetch_or(written.is_err(), Relaxed);
                went = Some(written?);
            }
            self.count(count, went);
            done += count;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if mutant::is(Mutant::FilesUnsynced) {
            return Ok(());
        }
        let mut files = std::mem::take(&mut *self.to_sync());
        let mut failed = None;
        while let Some(file) = files.pop() {
            let synced = file.sync_writes();
            file.fails.fetch_or(synced.is_err(), Relaxed);
            if let Err(error) = synced {
                failed.get_or_insert(error);
                // What is written there again has to be synced again; so has what else was not.
                file.unsynced.store(true, Relaxed);
                self.to_sync().push(file);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn discard(&self, _at: u64, _bytes: u64) -> io::Result<()> {
        // Holes are punched by who knows that they are wanted.
        Ok(())
    }
}
