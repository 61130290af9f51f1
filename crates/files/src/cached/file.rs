//! One file whose bytes go through the cache.

use super::Shared;
use super::disk::{Below, within};
use super::leaving::Leaving;
use super::map::{Extent, REGION_BYTES};
use super::states::FileState;
use crate::below::OpenFile;
use crate::mutant::{self, Mutant};
use crate::{AtOnce, Sought};
use entresol_cache::{Block, BlockCache, Tag};
use entresol_core::ObjectId;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Ranges in the map beyond which a flush of the cache clears them.
const VOIDS_MAX: usize = if cfg!(test) { 8 } else { 4096 };

/// A file of the backing directory, its regions and the facts about its shape that the cache needs.
pub(super) struct CachedFile {
    shared: Arc<Shared>,
    pub below: Arc<Below>,
    /// Exact at any time, and equal to the backing file's except within a call.
    size: AtomicU64,
    /// Shared by reads and writes, exclusive for changes of the size and punched holes.
    shape: RwLock<Shape>,
    /// By part of a GiB: in a sparse file only the used ones, however far out.
    regions: RwLock<BTreeMap<u64, u64>>,
    written: Mutex<Written>,
    /// Number of the file as an object of the cache, once the file has a region.
    object: OnceLock<ObjectId>,
    /// State that decides the consequences when names of the file are removed.
    pub leaving: Leaving,
    /// The page after the last one read, and after the last one written.
    runs: [AtomicU64; 2],
    /// Pages of a file in conflict that are not served, once they are known.
    pub unserved: Mutex<Option<Arc<BTreeSet<u64>>>>,
}

/// Work on the file's size and tail that is still to be done, or may be since the last run.
pub(super) struct Shape {
    /// Beyond the end of the file the last page is zeroes, in the cache and in the backing file.
    tail_is_zero: bool,
    /// These zeroes survive a crash, and so does the end of pages beyond the end that the cache forgot.
    end_is_durable: bool,
    /// Pages from here on have to be forgotten before the file may grow.
    forget_from: Option<u64>,
}

/// Pages written to the cache that may be a hole in the backing file: one bit for each.
#[derive(Default)]
struct Written(BTreeMap<u64, u64>);

impl Written {
    fn add(&mut self, pages: Range<u64>) {
        for page in pages {
            *self.0.entry(page / 64).or_default() |= 1 << (page % 64);
        }
    }

    fn remove(&mut self, pages: Range<u64>) {
        let words: Vec<u64> = self.0.range(pages.start / 64..pages.end.div_ceil(64)).map(|(&word, _)| word).collect();
        for word in words {
            let bits = self.0.get_mut(&word).expect("just seen");
            (0..64).filter(|bit| pages.contains(&(word * 64 + bit))).for_each(|bit| *bits &= !(1 << bit));
            if *bits == 0 {
                self.0.remove(&word);
            }
        }
    }

    fn has(&self, page: u64) -> bool {
        self.0.get(&(page / 64)).is_some_and(|bits| bits & 1 << (page % 64) != 0)
    }

    /// The first such page from `page` on.
    fn next(&self, page: u64) -> Option<u64> {
        let mut words = self
            .0
            .range(page / 64..)
            .map(|(&word, &bits)| (word, if word == page / 64 { bits & u64::MAX << (page % 64) } else { bits }));
        let (word, bits) = words.find(|&(_, bits)| bits != 0)?;
        Some(word * 64 + u64::from(bits.trailing_zeros()))
    }
}

impl CachedFile {
    /// A file in its present state. `known` is its object number in the cache and its regions of an earlier run, which
    /// may have pages from then.
    pub fn new(
        shared: Arc<Shared>,
        below: Arc<Below>,
        known: Option<(ObjectId, BTreeMap<u64, u64>)>,
    ) -> io::Result<Self> {
        let (object, regions) = known.map_or((None, BTreeMap::new()), |(object, regions)| (Some(object), regions));
        let size = AtomicU64::new(below.size()?);
        let shape = RwLock::new(Shape { tail_is_zero: regions.is_empty(), end_is_durable: true, forget_from: None });
        let object = object.map_or_else(OnceLock::new, OnceLock::from);
        let (regions, written) = (RwLock::new(regions), Mutex::default());
        let runs = [const { AtomicU64::new(u64::MAX) }; 2];
        let leaving = Leaving::default();
        let unserved = Mutex::default();
        Ok(Self { shared, below, size, shape, regions, written, object, leaving, runs, unserved })
    }

    /// State shared by all files.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    pub fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    pub fn set_size(&self, bytes: u64) {
        let before = self.size.swap(bytes, Relaxed);
        let pages = |bytes: u64| bytes.div_ceil(self.page_bytes());
        if let Some(&object) = self.object.get().filter(|_| pages(before) != pages(bytes)) {
            // A cache that has stopped reports that to the next request.
            let _stopped = self.shared.cache.with_objects(|objects| objects.resize(object, pages(bytes)));
        }
    }

    /// Number of the file as an object of the cache, if it has one.
    pub fn object(&self) -> Option<ObjectId> {
        self.object.get().copied()
    }

    /// Adds a region to this file, and to its object in the cache.
    fn join(&self, region: u64, part: u64) -> io::Result<()> {
        let pages = REGION_BYTES / self.page_bytes();
        let size = self.size().div_ceil(self.page_bytes());
        self.shared.cache.with_objects(|objects| {
            let object = *self.object.get_or_init(|| objects.add());
            objects.join(object, region * pages, pages, part * pages);
            objects.resize(object, size);
        })
    }

    /// Parts of the file that have a region, each with its region.
    pub fn regions(&self) -> Vec<(u64, u64)> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.iter().map(|(&part, &region)| (part, region)).collect()
    }

    pub fn shape(&self) -> RwLockReadGuard<'_, Shape> {
        self.shape.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn alone(&self) -> RwLockWriteGuard<'_, Shape> {
        self.shape.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn page_bytes(&self) -> u64 {
        self.shared.page_bytes
    }

    /// The pages that a range of bytes touches.
    pub fn pages(&self, offset: u64, end: u64) -> Range<u64> {
        offset / self.page_bytes()..end.div_ceil(self.page_bytes())
    }

    /// Notes that the cache has dirty pages in this range.
    pub fn note_dirty(&self, offset: u64, bytes: u64) {
        self.written().add(self.pages(offset, offset + bytes));
    }

    /// Called before the cache takes a write that was [noted](Self::note_dirty). A start that finds the write but no
    /// file must find the reason in the map.
    fn note_unsynced(&self) -> io::Result<()> {
        self.leaving.unsynced.store(true, SeqCst);
        let announced = self.leaving.announced.load(SeqCst) && !mutant::is(Mutant::LeavingNotHeeded);
        if announced { self.shared.map().sync() } else { Ok(()) }
    }

    /// True if the cache may have bytes that the backing file lacks.
    pub fn may_be_dirty(&self) -> bool {
        !self.written().0.is_empty()
    }

    /// Makes the bytes durable if a write followed the last sync, or if forgotten pages would return after a crash. No
    /// program has asked: what a sync is to report is left to one that a program asks for.
    pub fn sync_if_written(&self) -> io::Result<()> {
        let changed = self.leaving.unsynced.load(SeqCst) || self.leaving.forgot.load(SeqCst);
        if changed { self.sync_with(true, BlockCache::flush_ahead) } else { Ok(()) }
    }

    /// Address of a byte in the cache's address space; none if its part of the file has no region.
    fn find(&self, offset: u64) -> Option<u64> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let region = regions.get(&(offset / REGION_BYTES))?;
        Some(region * REGION_BYTES + offset % REGION_BYTES)
    }

    /// Like [`find`](Self::find), but assigns a region if necessary.
    fn place(&self, offset: u64) -> io::Result<u64> {
        if let Some(at) = self.find(offset) {
            return Ok(at);
        }
        let part = offset / REGION_BYTES;
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let region = match regions.get(&part) {
            Some(&region) => region,
            None => {
                let extent = Extent { file: self.below.key, part };
                let mut map = self.shared.map();
                if regions.is_empty() {
                    self.announce_unborn(&mut map)?;
                }
                let region = map.allocate(extent, self.shared.disk.regions_max())?;
                drop(map);
                self.shared.states.iter().for_each(|states| self.below.keep_in(states, false));
                self.shared.disk.join(region, self.below.clone(), extent);
                self.join(region, part)?;
                regions.insert(part, region);
                region
            }
        };
        Ok(region * REGION_BYTES + offset % REGION_BYTES)
    }

    /// Like [`read`](Self::read), for the part that needs no waiting: for a device, a change of the file's shape or a
    /// region.
    pub fn read_now(&self, offset: u64, bytes: &mut [u8]) -> Option<AtOnce> {
        let _shape = self.shape.try_read().ok()?;
        self.below.check_ours().ok()?;
        let count = self.size().saturating_sub(offset).min(bytes.len() as u64);
        if count == 0 {
            return Some(AtOnce::All(0));
        }
        let region = *self.regions.try_read().ok()?.get(&(offset / REGION_BYTES))?;
        let at = region * REGION_BYTES + offset % REGION_BYTES;
        let bytes = &mut bytes[..within(offset, count) as usize];
        let next = &self.runs[0];
        let tag = self.shared.cache.tag(offset / self.page_bytes() == next.load(Relaxed));
        let done = self.shared.cache.read_some_now_tagged(at, bytes, tag);
        if done > 0 {
            next.store(self.pages(offset, offset + done as u64).end, Relaxed);
        }
        Some(if done as u64 == count { AtOnce::All(done) } else { AtOnce::First(done) })
    }

    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let shape = self.shape();
        if self.below.change().is_apart() {
            drop(shape);
            return self.read_apart(offset, bytes);
        }
        let count = self.size().saturating_sub(offset).min(bytes.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let from = offset + done as u64;
            let len = within(from, (count - done) as u64) as usize;
            let part = &mut bytes[done..done + len];
            match self.place(from) {
                Ok(at) => self.shared.cache.read_tagged(at, part, self.tag(0, from, len))?,
                // The map cannot be written, as on a full or read-only file system. Without a region the cache has no
                // bytes of this part.
                Err(_) => self.below.read(from, part)?,
            }
            done += len;
        }
        Ok(count)
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.while_ours(|| self.write_ours(offset, bytes))
    }

    fn write_ours(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_mode()?;
        let end = end_of(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        {
            let _shape = self.shape();
            self.below.check_ours()?;
            if end <= self.size() {
                return self.put(offset, bytes);
            }
        }
        let mut shape = self.alone();
        self.below.check_ours()?;
        let size = self.size();
        if end <= size {
            return self.put(offset, bytes);
        }
        self.grow_ready(&mut shape)?;
        // The range must exist in the backing file before the cache may write it back there.
        let from = offset.max(size);
        let grown = self.below.grow(from, end - from).and_then(|()| {
            // Whole pages need not be read first; beyond the end they are zeroes in any case.
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len() + (end.next_multiple_of(self.page_bytes()) - end) as usize, 0);
            self.put(offset, &padded)
        });
        match grown {
            Ok(()) => self.set_size(end),
            Err(_) => self.shrink_again(&mut shape, size),
        }
        grown
    }

    /// Undoes the lengthening after a failed write: no program has seen the longer file. If this fails as well, the
    /// file ends in zeroes.
    fn shrink_again(&self, shape: &mut Shape, size: u64) {
        shape.tail_is_zero = false;
        // Pages that the write put into the cache become clean beyond the end, where write-back has nothing to write. They are
        // forgotten before the file grows, durably: else a crash could keep the new size and bring them back.
        shape.end_is_durable &= mutant::is(Mutant::FailedGrowthUnsynced);
        match self.below.resize(size) {
            Ok(()) => shape.forget_from = Some(shape.forget_from.map_or(size, |from| from.min(size))),
            Err(_) => self.look_at_size(),
        }
    }

    /// Takes the size of the backing file after a failed change there; every sync makes that size durable.
    fn look_at_size(&self) {
        if let Ok(bytes) = self.below.size()
            && !mutant::is(Mutant::SizeNotLookedAt)
        {
            self.set_size(bytes);
        }
    }

    /// Tag of a read (0) or a write (1). A request that begins at the page after the last one's continues a run.
    fn tag(&self, kind: usize, offset: u64, len: usize) -> Tag {
        let pages = self.pages(offset, offset + len as u64);
        let expected = self.runs[kind].swap(pages.end, Relaxed);
        self.shared.cache.tag(pages.start == expected)
    }

    /// Writes to the cache.
    fn put(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.take_blocks(offset, offset + bytes.len() as u64)?;
        let mut done = 0;
        while done < bytes.len() {
            let from = offset + done as u64;
            let len = within(from, (bytes.len() - done) as u64) as usize;
            let at = self.place(from)?;
            self.note_dirty(from, len as u64);
            self.note_unsynced()?;
            self.shared.cache.write_tagged(at, &bytes[done..done + len], self.tag(1, from, len))?;
            done += len;
        }
        self.below.note_write();
        Ok(())
    }

    /// Takes the missing blocks of a range of whole pages, because whole pages are written back.
    fn take_blocks(&self, offset: u64, end: u64) -> io::Result<()> {
        let pages = self.pages(offset, end);
        let range = pages.start * self.page_bytes()..pages.end.saturating_mul(self.page_bytes());
        self.below.take_blocks(range, self.size())
    }

    fn check_mode(&self) -> io::Result<()> {
        if self.shared.read_only || self.shared.cache.is_read_only() { Err(Errno::ROFS.into()) } else { Ok(()) }
    }

    /// Writes zeroes over a part of a page of which the cache may have other bytes.
    fn clear(&self, offset: u64, end: u64) -> io::Result<()> {
        match self.find(offset) {
            Some(at) if offset < end => {
                self.take_blocks(offset, end)?;
                self.note_dirty(offset, end - offset);
                self.note_unsynced()?;
                self.shared.cache.write(at, &vec![0; (end - offset) as usize], false)
            }
            _ => Ok(()),
        }
    }

    /// Forgets the pages of a range; the range begins and ends at page boundaries.
    fn forget(&self, offset: u64, end: u64) -> io::Result<()> {
        // The next flush also makes the changes of the backing file durable.
        self.shared.disk.note(&self.below);
        self.leaving.voided.store(true, SeqCst);
        // Only regions in use are visited: in a sparse file there may be a billion unused ones in between.
        for (part, region) in self.regions().into_iter().filter(|(part, _)| is_in(*part, offset, end)) {
            let (from, to) = (offset.max(part * REGION_BYTES), end.min((part + 1).saturating_mul(REGION_BYTES)));
            self.shared.cache.forget(region * REGION_BYTES + from % REGION_BYTES, to - from)?;
        }
        let mut written = self.written();
        if written.next(offset / self.page_bytes()).is_some_and(|page| page * self.page_bytes() < end)
            && !mutant::is(Mutant::ForgottenNotHeeded)
        {
            self.leaving.forgot.store(true, SeqCst);
        }
        written.remove(self.pages(offset, end));
        Ok(())
    }

    /// Notes a range in the map before it is cut off or zeroed in the backing file. Clean copies of the range must not
    /// outlive a crash. The log cannot say so earlier without losing dirty copies. The guard is held until the copies
    /// are forgotten.
    fn announce(&self, offset: u64, end: u64) -> io::Result<RwLockReadGuard<'_, ()>> {
        if self.shared.map().voids() >= VOIDS_MAX
            && let Ok(_alone) = self.shared.voiding.try_write()
        {
            self.shared.cache.flush_ahead()?;
            self.shared.map().trust()?;
        }
        let guard = self.shared.voiding.read().unwrap_or_else(PoisonError::into_inner);
        if offset < end && !self.regions().is_empty() {
            self.shared.map().note_void(self.below.key, offset..end)?;
        }
        Ok(guard)
    }

    /// The end of the last part of the file that has a region.
    fn regions_end(&self) -> u64 {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        regions.last_key_value().map_or(0, |(last, _)| (last + 1) * REGION_BYTES)
    }

    /// Ensures that the bytes which appear when the file grows are zeroes.
    fn make_growable(&self, shape: &mut Shape) -> io::Result<()> {
        let size = self.size();
        let page_end = size.next_multiple_of(self.page_bytes());
        if let Some(from) = shape.forget_from.filter(|_| !mutant::is(Mutant::EndNotForgotten)) {
            self.forget(from.next_multiple_of(self.page_bytes()), self.regions_end())?;
            shape.forget_from = None;
        }
        if !shape.tail_is_zero && !mutant::is(Mutant::TailNotCleared) {
            if size < page_end && self.find(size).is_some() {
                shape.end_is_durable = false;
                self.clear(size, page_end)?;
            }
            shape.tail_is_zero = true;
        }
        Ok(())
    }

    /// Like [`make_growable`](Self::make_growable), to be called before the file grows. A crash could otherwise keep
    /// the new size but undo the zeroes at the end of the last page, or bring back forgotten pages beyond it.
    fn grow_ready(&self, shape: &mut Shape) -> io::Result<()> {
        self.make_growable(shape)?;
        if !shape.end_is_durable && !mutant::is(Mutant::TailUnsynced) {
            self.shared.cache.flush_ahead()?;
        }
        shape.end_is_durable = true;
        Ok(())
    }

    pub fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.while_ours(|| self.truncate_ours(bytes))
    }

    fn truncate_ours(&self, bytes: u64) -> io::Result<()> {
        self.check_mode()?;
        end_of(bytes, 0)?;
        let mut shape = self.alone();
        self.below.check_ours()?;
        let size = self.size();
        if bytes > size {
            self.grow_ready(&mut shape)?;
        }
        self.below.settle()?;
        let _announced = if bytes < size { Some(self.announce(bytes, size)?) } else { None };
        let cut = self.below.resize(bytes);
        match cut {
            Ok(()) => self.set_size(bytes),
            Err(_) => self.look_at_size(),
        }
        let now = self.size();
        if now < size {
            if now == 0 {
                self.leaving.emptied.store(true, SeqCst);
                self.below.watch.note(|state| state.emptied = true);
            }
            // Other bytes beyond the old end go with their page, and may return with it until that is durable.
            let unknown = !shape.tail_is_zero && !size.is_multiple_of(self.page_bytes()) && self.find(size).is_some();
            shape.end_is_durable &= !unknown;
            shape.tail_is_zero = false;
            shape.forget_from = Some(shape.forget_from.map_or(now, |from| from.min(now)));
            // A failure is made good before the file grows: the size is right already.
            let _later = self.make_growable(&mut shape);
        }
        cut
    }

    pub fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        self.while_ours(|| self.allocate_ours(how, offset, bytes))
    }

    fn allocate_ours(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        self.check_mode()?;
        let (keep, punch) = (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE);
        let zeroes = FallocateFlags::ZERO_RANGE;
        let voids = how == punch || how == zeroes || how == zeroes | keep;
        if !voids && how != FallocateFlags::empty() && how != keep {
            return Err(Errno::OPNOTSUPP.into());
        }
        let end = end_of(offset, bytes)?;
        let mut shape = self.alone();
        self.below.check_ours()?;
        let size = self.size();
        if end > size && !how.contains(keep) {
            self.grow_ready(&mut shape)?;
        }
        self.below.settle()?;
        let _announced = self.announce(offset, if voids { end.min(size) } else { offset })?;
        let allocated = self.below.allocate(how, offset, bytes).and_then(|()| {
            if !voids {
                return Ok(());
            }
            self.void(offset, end.min(size), size)?;
            // A dirty page may have been written back in between.
            self.below.allocate(how, offset, bytes)
        });
        match allocated {
            Ok(()) if how.contains(keep) => {}
            Ok(()) => self.set_size(end.max(size)),
            Err(_) => self.look_at_size(),
        }
        allocated
    }

    /// Makes a range zeroes in the cache, as it is in the backing file.
    fn void(&self, offset: u64, end: u64, size: u64) -> io::Result<()> {
        if offset >= end {
            return Ok(());
        }
        let page = self.page_bytes();
        let first = offset.next_multiple_of(page);
        let last = if end == size { end.next_multiple_of(page) } else { end / page * page };
        if first > last {
            return self.clear(offset, end);
        }
        self.forget(first, last)?;
        self.clear(offset, first.min(end))?;
        self.clear(last.min(end), end)
    }

    pub fn sync(&self, data_only: bool) -> io::Result<()> {
        self.sync_with(data_only, BlockCache::flush)
    }

    fn sync_with(&self, data_only: bool, flush: fn(&BlockCache) -> io::Result<()>) -> io::Result<()> {
        self.leaving.unsynced.store(false, SeqCst);
        let synced = self.sync_all(data_only, flush);
        if synced.is_err() {
            self.leaving.unsynced.store(true, SeqCst);
        }
        synced
    }

    fn sync_all(&self, data_only: bool, flush: fn(&BlockCache) -> io::Result<()>) -> io::Result<()> {
        if self.below.change().is_apart() {
            self.examine()?;
        }
        self.below.check_ours()?;
        self.below.sync_attributes(!data_only)?;
        self.is_born();
        let cached = !self.regions.read().unwrap_or_else(PoisonError::into_inner).is_empty();
        let forgot = self.leaving.forgot.swap(false, SeqCst);
        let flushed = if cached { flush(&self.shared.cache) } else { Ok(()) };
        self.leaving.forgot.fetch_or(forgot && flushed.is_err(), SeqCst);
        // The flushed pages may have been kept aside.
        flushed.and_then(|()| self.below.check_ours())
    }

    /// Takes over what is known of the file from a process that was killed: nothing that memory had counts as durable.
    pub fn take_over(&self, is_nameless: bool, may_be_missed: bool, state: &FileState) {
        let Leaving { announced, unsynced, voided, emptied, .. } = &self.leaving;
        [unsynced, voided].into_iter().for_each(|flag| flag.store(true, SeqCst));
        announced.store(is_nameless && !mutant::is(Mutant::NamelessUnsaid), SeqCst);
        emptied.store(state.emptied, SeqCst);
        if may_be_missed && !is_nameless {
            self.leaving.is_unborn();
        }
        if state.written {
            self.below.was_written();
        }
        let restores = state.restores && !mutant::is(Mutant::TimeNotRestored);
        if let (Some(_), true, Some(stamp)) = (state.under_way, restores, state.stamp) {
            // Else the file seems to have been modified when a page of it was written back.
            let _later = self.below.restore_time(stamp);
        }
        self.alone().end_is_durable = mutant::is(Mutant::EndInherited);
    }

    /// Takes the backing file as it is: the cache has no pages of it.
    pub fn take_anew(&self, shape: &mut Shape, size: u64) {
        self.written().0.clear();
        self.take_back(shape, size);
    }

    /// Like [`take_anew`](Self::take_anew), where the cache still has dirty pages.
    pub fn take_back(&self, shape: &mut Shape, size: u64) {
        (shape.tail_is_zero, shape.forget_from) = (false, None);
        self.below.forget_blocks();
        self.set_size(size);
    }

    pub fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        let _shape = self.shape();
        let size = self.size();
        if offset >= size {
            return Err(Errno::NXIO.into());
        }
        let page = self.page_bytes();
        let file = self.below.file()?;
        // A file in conflict shows its own holes.
        let none = self.below.change().is_apart().then(Written::default);
        let known = self.written();
        let written = none.as_ref().unwrap_or(&known);
        if sought == Sought::Data {
            let below = match file.seek(Sought::Data, offset) {
                Ok(found) => Some(found),
                Err(Errno::NXIO) => None,
                Err(error) => return Err(error.into()),
            };
            let above = written.next(offset / page).map(|found| (found * page).max(offset));
            let found = below.into_iter().chain(above).min().filter(|&found| found < size);
            return found.ok_or_else(|| Errno::NXIO.into());
        }
        let mut from = offset;
        while from < size {
            let hole = file.seek(Sought::Hole, from)?.min(size);
            if hole >= size || !written.has(hole / page) {
                return Ok(hole);
            }
            from = (hole / page + 1) * page;
        }
        Ok(size)
    }
}

/// True if a part of the file overlaps the range.
fn is_in(part: u64, offset: u64, end: u64) -> bool {
    part * REGION_BYTES < end && offset < (part + 1) * REGION_BYTES
}

/// The end of a range; `EFBIG` beyond the largest file size of the system.
fn end_of(offset: u64, bytes: u64) -> io::Result<u64> {
    offset.checked_add(bytes).filter(|&end| i64::try_from(end).is_ok()).ok_or_else(|| Errno::FBIG.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_written_are_found_in_order() {
        let mut written = Written::default();
        assert_eq!(written.next(0), None);
        written.add(60..70);
        written.add(200..201);
        assert_eq!((written.next(0), written.next(60), written.next(65)), (Some(60), Some(60), Some(65)));
        assert_eq!((written.next(70), written.next(201)), (Some(200), None));
        assert!(written.has(69) && !written.has(70));
        written.remove(61..200);
        assert_eq!((written.next(0), written.next(61)), (Some(60), Some(200)));
        written.remove(0..1000);
        assert!(written.0.is_empty());
    }
}
