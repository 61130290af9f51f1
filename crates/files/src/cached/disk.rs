//! The backing store of a cache over all files of a directory: an address space in which each file has regions.

mod nowhere;

pub use nowhere::{NotWritten, Nowhere};

use super::blocks::{Blocks, Extents};
use super::changed::{Change, Changes, Watch};
use super::map::{Extent, FileKey, REGION_BYTES, Stamp};
use crate::below::{Attributes, File, Modified, OpenFile};
use crate::mutant::{self, Mutant};
use crate::places::{Holder, Place, Places};
use entresol_disk::Disk;
use nowhere::{NotWrittenCounts, Went};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::ops::Deref;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

/// A backing file.
pub(super) struct Below {
    pub key: FileKey,
    /// Reference to itself, for the pool that closes descriptors.
    me: Weak<Self>,
    /// Shared to read and write bytes, exclusive to shorten the file: a write under way must not lengthen the file
    /// again.
    shape: RwLock<()>,
    place: Place<File>,
    writable: AtomicBool,
    /// Watch for changes that another program makes to the file.
    pub watch: Watch,
    /// Writes to the file have not been synced.
    unsynced: AtomicBool,
    /// Syncs of writes under way.
    syncs: AtomicUsize,
    /// A sync failed and the cache has not been notified.
    failed: AtomicBool,
    /// A write or a sync by the cache failed since the last call of `failures`.
    fails: AtomicBool,
    /// Size or allocation may not be durable.
    reshaped: AtomicBool,
    /// Bytes of the file that are known to have blocks.
    blocks: Blocks,
    /// Held to make attributes durable: a caller with nothing to do must not return before a sync under way has ended.
    syncing: Mutex<()>,
    /// Time of the last write to the cache that the file's times do not show yet: nanoseconds since 1970, else 0.
    modified: AtomicI64,
    /// The file may have rights that a write here would remove; changed under `times`.
    privileged: AtomicBool,
    times: Mutex<Times>,
}

#[derive(Default)]
struct Times {
    /// Time of the last attribute change that is durable, or that a write-back made and that need not be durable.
    durable: Option<(i64, i64)>,
}

fn nanoseconds((seconds, more): (i64, i64)) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(more)
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as i64)
}

impl Below {
    /// A file of which nothing is known to be durable. `left` is its stamp after our last change, if known, and the
    /// number of our changes under way.
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
            syncs: AtomicUsize::new(0),
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

    /// Enters the file into the pool of descriptors that may be closed. The caller must hold no lock that `removed`
    /// takes.
    pub fn admit(&self) {
        self.place.admit(self.holder());
    }

    fn holder(&self) -> Weak<dyn Holder> {
        self.me.clone()
    }

    /// Opens the file again by its `O_PATH` descriptor.
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

    /// The file, guarded against being shortened meanwhile.
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

    /// Current path of the file relative to the backing directory, whose path is `root`; the absolute path if the file
    /// is outside.
    pub fn path(&self, root: &Path) -> io::Result<PathBuf> {
        // Nothing is opened here, so a caller may hold any lock. The file may be opened between the two looks.
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

    /// Replaces a read-only handle with a writable one.
    pub fn may_write(&self, file: File) {
        if !self.writable.load(Relaxed) {
            let _alone = self.alone();
            self.writable.store(true, Relaxed);
            self.place.replace(file);
        }
    }

    /// Makes the handle writable. The file may have been opened read-only because of its mode, as `git` sets it for its
    /// objects, while the cache had dirty pages of it.
    ///
    /// # Errors
    /// The error of the system: for example the file belongs to another user, or its file system is read-only.
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

    /// Like [`read`](Self::read), but true only if all of it is in the page cache and the file is not being shortened.
    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let (Some(file), Ok(_shape)) = (self.place.if_open(), self.shape.try_read()) else { return false };
        // Fewer bytes may mean the end of the file. An error is left to a read that may wait.
        file.read_now(offset, bytes).is_ok_and(|count| count == bytes.len())
    }

    /// Changes mode or capabilities while no write-back is under way.
    pub fn changing_rights(&self, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let _times = self.times();
        self.privileged.store(true, Relaxed);
        act()
    }

    /// Reads or changes times while no write-back is under way: a write-back restores the times that the file had
    /// before.
    pub fn while_still(&self, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let _times = self.times();
        act()
    }

    /// Runs an act of the cache on the file and restores the rights that the file system removes because of it. Most
    /// files have none and are not examined again. `times` must be held.
    fn keeping_rights<T>(&self, file: &File, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if !self.privileged.load(Relaxed) {
            return act();
        }
        let rights = file.rights()?;
        self.privileged.store(!rights.is_none(), Relaxed);
        let done = act()?;
        if !rights.is_none() {
            // A user who may write a file but does not own it cannot restore its rights.
            let _not_ours = file.restore(&rights);
        }
        Ok(done)
    }

    /// Writes back a range, except bytes beyond the file's end. A write-back is no change of the file, so the file's
    /// time and rights stay. If another program has changed the file, the range is kept aside.
    fn write(&self, offset: u64, bytes: &[u8], changes: &Changes, page_bytes: u64) -> io::Result<Went> {
        loop {
            if self.change() == Change::Since {
                return Ok(Went::Below(0));
            }
            if self.change().is_apart() && self.put_aside(offset, bytes, changes, page_bytes)? {
                return Ok(Went::Aside);
            }
            match self.write_ours(offset, bytes) {
                Err(_) if self.change().is_apart() => {}
                done => return done.map(Went::Below),
            }
        }
    }

    /// Writes the part of a range inside the file; returns its length.
    fn write_ours(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.ensure_writable()?;
        let file = self.file()?;
        let mut times = self.times();
        let (_ours, before) = self.changing_in_place(&file)?;
        let inside = before.size.saturating_sub(offset).min(bytes.len() as u64) as usize;
        if inside == 0 {
            return Ok(0);
        }
        let written = self.keeping_rights(&file, || file.write_all_at(offset, &bytes[..inside]));
        self.put_back_time(written, &mut times, &file, before)?;
        Ok(inside)
    }

    /// Restores the time of modification that the file had before an act of the cache, whose result is `done`.
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

    /// Restores the time of modification that a killed process was about to restore.
    pub fn restore_time(&self, stamp: Stamp) -> io::Result<()> {
        let file = self.file()?;
        let mut times = self.times();
        let (_ours, before) = self.changing(&file)?;
        self.watch.expect_any_time();
        let modified = (stamp.modified.div_euclid(1_000_000_000), stamp.modified.rem_euclid(1_000_000_000));
        times.change(&file, before, modified).map(drop)
    }

    /// Notes a write taken by the cache.
    pub fn note_write(&self) {
        if self.modified.swap(now(), Relaxed) == 0 {
            self.watch.note(|state| state.written = !mutant::is(Mutant::WriteTimeUnsaid));
        }
    }

    /// Notes that the file was written since its times were set, by a process that was killed.
    pub fn was_written(&self) {
        self.modified.store(now(), Relaxed);
    }

    /// Sets the file's times as they would be without a cache.
    pub fn settle(&self) -> io::Result<()> {
        if self.modified.load(Relaxed) == 0 || self.change().is_apart() {
            return Ok(());
        }
        let file = self.file()?;
        let mut times = self.times();
        // If another program has written since, its time stands.
        let (_ours, before) = match self.changing(&file) {
            Err(_) if self.change().is_apart() => return Ok(()),
            ours => ours?,
        };
        let modified = self.modified.swap(0, Relaxed);
        if modified == 0 {
            return Ok(());
        }
        let told = (modified.div_euclid(1_000_000_000), modified.rem_euclid(1_000_000_000));
        // The file system may keep the time with less precision.
        self.watch.expect_any_time();
        match times.change(&file, before, told).map(drop) {
            // The time is set once the file system can be written again; meanwhile the file can be examined.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                let _newer = self.modified.compare_exchange(0, modified, Relaxed, Relaxed);
                Ok(())
            }
            other => {
                self.watch.note(|state| state.written = self.modified.load(Relaxed) != 0);
                other
            }
        }
    }

    /// Makes durable the attributes: the size, and with `all` the owner, mode and the like.
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
            // The system reports an error once, and it may concern bytes that the cache wrote.
            Err(_) => {
                self.reshaped.store(true, Relaxed);
                self.failed.fetch_or(self.unsynced.load(Relaxed), Relaxed);
            }
        }
        synced
    }

    /// Makes durable the bytes that the cache wrote here.
    fn sync_writes(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, SeqCst);
        self.unsynced.store(false, Relaxed);
        let synced = self.sync_aside().and_then(|()| self.file()?.sync_data());
        let alone = self.syncs.fetch_sub(1, SeqCst) == 1;
        synced?;
        if self.failed.swap(false, Relaxed) {
            return Err(Errno::IO.into());
        }
        // A change may have begun meanwhile, and another sync that is to cover it.
        self.watch.note(|state| state.unsynced &= !alone || self.unsynced.load(Relaxed));
        Ok(())
    }

    /// Makes everything durable and returns the file's stamp, by which the next start finds changes of other programs.
    pub fn leave(&self) -> io::Result<Stamp> {
        self.settle()?;
        let file = self.file()?;
        if !mutant::is(Mutant::CloseUnsynced) {
            file.sync_all()?;
        }
        self.look()?;
        self.left().map_or_else(|| Ok(stamp(&file.attributes()?)), Ok)
    }

    /// Drops the noted time of a write.
    pub fn told(&self) {
        self.modified.store(0, Relaxed);
        self.watch.note(|state| state.written = false);
    }

    /// Restores the size that the file had before another program changed it.
    pub fn set_size_back(&self, bytes: u64) -> io::Result<Arc<File>> {
        let file = self.opened()?;
        self.blocks.forget(0..u64::MAX);
        self.reshape(|| {
            let _alone = self.alone();
            if file.attributes()?.size == bytes { Ok(()) } else { file.set_size(bytes) }
        })?;
        Ok(file)
    }

    /// Forgets which blocks the file has; they are found again.
    pub fn forget_blocks(&self) {
        self.blocks.forget(0..u64::MAX);
    }

    /// Takes blocks in holes of a range that the cache is about to write, so that they are not missing at write-back.
    /// The file's time of modification and rights stay: a start takes blocks for files that no program writes.
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
        self.watch.may_be_sized(bytes);
        let resized = self.reshape(|| {
            let _alone = self.alone();
            file.set_size(bytes)
        });
        self.watch.expect_size(resized.is_ok().then_some(bytes));
        resized
    }

    /// Changes size or allocation, then notes that they may not be durable: a sync in between would clear an earlier
    /// note.
    fn reshape(&self, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let changed = change();
        self.reshaped.store(true, Relaxed);
        changed
    }

    /// Lengthens the file by a range whose blocks are taken now, so that they are not missing later.
    pub fn grow(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let file = self.file()?;
        let (_ours, before) = self.changing(&file)?;
        self.watch.may_be_sized(offset + bytes);
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
        let end = if how.contains(FallocateFlags::KEEP_SIZE) { 0 } else { range.end };
        self.watch.may_be_sized(before.size.max(end));
        let allocated = self.reshape(|| Ok(file.allocate(how, offset, bytes)?));
        self.watch.expect_size(allocated.is_ok().then_some(before.size.max(end)));
        allocated?;
        if !how.contains(FallocateFlags::PUNCH_HOLE) {
            self.blocks.note(range);
        }
        Ok(())
    }
}

/// A file whose blocks are taken without a change of its time of modification or rights.
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
        let (_ours, before) = self.below.changing_in_place(self.file).map_err(errno)?;
        let take = || Ok(Extents::take(&**self.file, range)?);
        let taken = self.below.keeping_rights(self.file, take);
        self.below.put_back_time(taken, &mut times, self.file, before).map_err(errno)
    }
}

/// The backing file, guarded against being shortened.
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
            // The system reports the error once, to this descriptor: the cache's next sync has to report it again.
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
    /// Sets the time of modification after an act of the cache. The attribute change that this causes need not be made
    /// durable. True if the file has that time now; false if it could only be set to the current time.
    fn change(&mut self, file: &File, before: Attributes, modified: (i64, i64)) -> io::Result<bool> {
        // A user who may write a file but does not own it can set no time but the current one.
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

/// All files with regions as one disk below a cache. A region without a file reads as zeroes, and writes to it have no
/// effect: its file is gone.
pub struct FilesDisk {
    size_bytes: u64,
    page_bytes: u64,
    voids: Mutex<HashMap<FileKey, Vec<Range<u64>>>>,
    regions: RwLock<HashMap<u64, (Arc<Below>, u64)>>,
    unsynced: Mutex<Vec<Arc<Below>>>,
    missing: HashMap<u64, FileKey>,
    /// Pages kept aside whose files are missing, one entry of its file per page.
    missing_aside: Vec<FileKey>,
    absent: Vec<PathBuf>,
    not_written: NotWrittenCounts,
    /// Link to the map and to the listener, for files that another program changed.
    pub(super) changes: Changes,
}

impl FilesDisk {
    /// The address space of a cache with pages of this size.
    pub(super) fn new(page_bytes: u64) -> Self {
        Self {
            // The log numbers pages with 48 bits; half of them are used.
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

    /// Largest number of regions.
    pub(super) fn regions_max(&self) -> u64 {
        self.size_bytes / REGION_BYTES
    }

    /// Assigns a region to a part of a file.
    pub(super) fn join(&self, region: u64, file: Arc<Below>, extent: Extent) {
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        regions.insert(region, (file, extent.part * REGION_BYTES));
    }

    /// Takes a region from its file.
    pub(super) fn part(&self, region: u64) {
        self.regions.write().unwrap_or_else(PoisonError::into_inner).remove(&region);
    }

    /// The file that an address belongs to, and the offset in that file.
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

    /// Notes that a file has changes which the next sync must make durable.
    pub(super) fn note(&self, file: &Arc<Below>) {
        let noted = file.unsynced.swap(true, Relaxed);
        // Before the change, and after the swap: the end of a sync meanwhile must not hide the change.
        file.watch.note(|state| state.unsynced = !mutant::is(Mutant::UnsyncedUnsaid));
        if !noted {
            self.to_sync().push(file.clone());
        }
    }

    /// Notes that a sync of the whole file system failed: writes of any file may be lost, and only this caller is told.
    pub(super) fn may_have_lost(&self) {
        for file in self.files().into_iter().filter(|file| file.unsynced.load(Relaxed)) {
            file.failed.store(true, Relaxed);
        }
    }

    fn to_sync(&self) -> MutexGuard<'_, Vec<Arc<Below>>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes from `at` on that lie in the same region, at most `bytes`.
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
                // Noted before the write too: a sync that fails meanwhile must count this write among those that may be
                // lost.
                self.note(&file);
                let written = file.write(offset, &bytes[done..done + count], &self.changes, self.page_bytes);
                // A sync may have come during the write.
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
                // Rewritten pages have to be synced again, and so has everything else that was unsynced.
                file.unsynced.store(true, Relaxed);
                self.to_sync().push(file);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn discard(&self, _at: u64, _bytes: u64) -> io::Result<()> {
        // Holes are punched by the caller that knows that they are wanted.
        Ok(())
    }
}
