//! A store in either layout, with one interface. In the slots layout the journal and its slots serve as the log.

use super::ages::Ages;
use super::arena::Arena;
use super::batch::Batch;
use super::clock::Clock;
use super::counts::{Recovered, StoreCounts};
use super::error::StoreError;
use super::generation::{Generation, Generations};
use super::geometry::{Geometry, Layout};
use super::hit_table::{Hit, HitTable};
use super::index::{Entry, Index};
use super::log::LogStore;
use super::memory::Unfilled;
use super::rewrite::Past;
use super::slots::Slots;
use super::standing::{Standing, SyncPoint};
use super::superblock::{Identity, Superblock};
use entresol_disk::Disk;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A store in the layout that its superblock states.
#[allow(clippy::large_enum_variant, reason = "there is one of it in a cache")]
pub enum AnyStore<D> {
    /// A log.
    Log(LogStore<D>),
    /// Slots, with a journal.
    Slots(Slots<D>),
}

/// Evaluates an expression with a store of either layout.
macro_rules! either {
    ($store:expr, $it:ident => $what:expr) => {
        match $store {
            AnyStore::Log($it) => $what,
            AnyStore::Slots($it) => $what,
        }
    };
}

impl<D: Disk> AnyStore<D> {
    /// Finds the contents of a store, for a backing store of this identity and size in pages. The device is not
    /// changed: the store must [`begin`](AnyStore::begin) before any other call. With a clock it keeps ages by it.
    ///
    /// # Errors
    /// Any fault of the store, except for an unsynced end that a crash may have torn.
    pub fn find(
        disk: D,
        backing: [u8; 16],
        backing_pages: u64,
        clock: Option<&Clock>,
    ) -> Result<(Self, Recovered), StoreError> {
        Self::find_in_spite(disk, backing, backing_pages, clock, None)
    }

    /// As [`find`](AnyStore::find), of a store in which tables, or blocks of the journal, may be missing with all
    /// copies. A repair must settle the pages in doubt.
    ///
    /// # Errors
    /// As [`find`](AnyStore::find), except for such missing tables or blocks.
    pub fn find_past(disk: D, backing: [u8; 16], backing_pages: u64) -> Result<Self, StoreError> {
        Self::find_in_spite(disk, backing, backing_pages, None, Some(Past::default())).map(|(log, _)| log)
    }

    fn find_in_spite(
        disk: D,
        backing: [u8; 16],
        backing_pages: u64,
        clock: Option<&Clock>,
        past: Option<Past>,
    ) -> Result<(Self, Recovered), StoreError> {
        Ok(match Superblock::read(&disk)?.geometry.layout {
            Layout::Log => {
                let (log, recovered) = LogStore::find(disk, backing, backing_pages, clock, past)?;
                (AnyStore::Log(log), recovered)
            }
            Layout::Slots | Layout::Segments => {
                let (slots, recovered) = Slots::find(disk, backing, backing_pages, clock, past)?;
                (AnyStore::Slots(slots), recovered)
            }
        })
    }

    /// Takes the findings about missing tables, if there are any.
    pub(super) fn take_past(&mut self) -> Option<Past> {
        either!(self, store => store.past.take())
    }

    /// Makes the found contents durable, and notes in the superblock that the store is in use from there on.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn begin(&mut self) -> io::Result<()> {
        either!(self, store => store.begin())
    }

    /// Writes the tables, or blocks of the journal, that were taken from their copies. Returns their offsets on the
    /// device in bytes. The store must be in use.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn rewrite_copied(&mut self) -> io::Result<Vec<u64>> {
        either!(self, store => store.rewrite_copied())
    }

    /// Blocks of a page in a piece of an arena for this store.
    pub fn batch_blocks(&self) -> usize {
        either!(self, store => store.batch_blocks())
    }

    /// Has batches be kept in an arena from now on, whose pieces must [fit](Arena::fits). The store was found, and has
    /// not begun.
    pub fn keep_in(&mut self, arena: &Arc<Arena>) {
        either!(self, store => store.keep_in(arena));
    }

    /// Epoch that begins: number of this use of the store. The device has the one before until then.
    pub fn epoch(&self) -> u64 {
        self.standing().epoch()
    }

    fn standing(&self) -> &Standing {
        either!(self, store => &store.standing)
    }

    fn standing_mut(&mut self) -> &mut Standing {
        either!(self, store => &mut store.standing)
    }

    /// Identity of the store and of its backing store.
    pub fn identity(&self) -> Identity {
        self.standing().identity()
    }

    /// Sets the identity after the backing store has grown or changed its name. The next superblock has it.
    pub fn set_identity(&mut self, identity: Identity) {
        self.standing_mut().set_identity(identity);
    }

    /// Generations of the cache: the backing store has one of them.
    pub fn generations(&self) -> Generations {
        self.standing().generations()
    }

    /// True if the store keeps generations. A store that a program before version 3 left open does not yet.
    pub fn keeps_generations(&self) -> bool {
        self.standing().keeps_generations()
    }

    /// Sets the generation that the backing store is about to get. The next superblock has it.
    pub fn propose_generation(&mut self, generation: Generation) {
        self.standing_mut().propose(generation);
    }

    /// Notes that the backing store has the pending generation, durably. The next superblock says so.
    pub fn settle_generation(&mut self) {
        self.standing_mut().settle();
    }

    /// Writes both superblocks while the store is in use.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn write_open(&mut self) -> io::Result<()> {
        either!(self, store => store.write_open())
    }

    /// Cache time: it never runs backwards, and advances only while ages are kept.
    pub fn now(&self) -> Duration {
        self.standing().now()
    }

    /// True if the device's record of cache time is so old that another is due.
    pub fn is_clock_old(&self) -> bool {
        self.standing().is_clock_old()
    }

    /// Times since which pages differ from the backing store, while ages are kept.
    pub fn ages(&self) -> Option<&Ages> {
        self.standing().ages.as_ref()
    }

    /// Ages of dirty pages, where there is a bound on them.
    pub fn ages_mut(&mut self) -> Option<&mut Ages> {
        self.standing_mut().ages.as_mut()
    }

    /// Keeps ages from now on, by this clock. Pages already dirty count as dirty since second 0.
    pub fn keep_ages(&mut self, clock: Clock) {
        let mut ages = Ages::new(self.geometry().blocks() as usize, self.now().as_secs());
        let dirty = self.index().iter().filter(|(_, entry)| entry.dirty && !entry.lost);
        dirty.for_each(|(page, _)| ages.insert(page, 0));
        self.standing_mut().keep_ages(ages, clock);
    }

    /// Forgets the ages of pages: there is no bound on them.
    pub fn drop_ages(&mut self) {
        self.standing_mut().drop_ages();
    }

    /// Sync point of the last durable end, to be noted once more with the current time. None while a write is not
    /// synced.
    pub fn restated(&self) -> Option<SyncPoint> {
        either!(self, store => store.restated())
    }

    /// Number of slots; 0 in a log.
    pub fn slots_len(&self) -> u32 {
        match self {
            AnyStore::Log(_) => 0,
            AnyStore::Slots(slots) => slots.slots() as u32,
        }
    }

    /// The slots, in a layout that has them.
    pub fn slots(&mut self) -> Option<&mut Slots<D>> {
        match self {
            AnyStore::Log(_) => None,
            AnyStore::Slots(slots) => Some(slots),
        }
    }

    fn log(&mut self) -> &mut LogStore<D> {
        match self {
            AnyStore::Log(log) => log,
            AnyStore::Slots(_) => unreachable!("slots have no segments to reclaim"),
        }
    }

    /// Index: the newest version of each page that the store holds.
    pub fn index(&self) -> &Index {
        either!(self, store => &store.index)
    }

    /// The index, to be changed.
    pub fn index_mut(&mut self) -> &mut Index {
        either!(self, store => &mut store.index)
    }

    /// Sizes of the store.
    pub fn geometry(&self) -> Geometry {
        either!(self, store => store.geometry())
    }

    /// Counts of the store's work since the open.
    pub fn counts(&self) -> StoreCounts {
        either!(self, store => store.counts())
    }

    /// Offset of an address on the device, in bytes.
    pub fn byte_of(&self, address: u64) -> u64 {
        either!(self, store => store.byte_of(address))
    }

    /// Has a table hold versions that may be read without the store, from now on.
    pub fn share(&mut self, hits: Arc<HitTable>) {
        either!(self, store => store.index.share(hits));
    }

    /// Lets the newest version of a page be read without the store, if it is on the device and the page counts as cached.
    pub fn enter_hit(&mut self, page: u64) {
        let Some(entry) = self.index().resident(page).filter(|entry| !entry.lost && !self.is_in_memory(entry.address))
        else {
            return;
        };
        let hit = Hit { at: self.byte_of(entry.address), crc: entry.crc };
        if let Some(hits) = self.index().hits() {
            hits.enter(page, hit);
        }
    }

    /// True if memory has the version at this address.
    fn is_in_memory(&self, address: u64) -> bool {
        either!(self, store => store.is_in_memory(address))
    }

    /// The device that holds the store.
    pub fn disk(&self) -> &D {
        either!(self, store => store.disk())
    }

    /// Counts reads of the device that others perform.
    pub fn count_reads(&mut self, reads: u64) {
        either!(self, store => store.count_reads(reads));
    }

    /// Copies a version that only memory holds; false if the device has it.
    pub fn read_open(&self, entry: Entry, bytes: &mut [u8]) -> bool {
        either!(self, store => store.read_open(entry, bytes))
    }

    /// Bytes of a version that only memory holds, unless its block is still to be filled. Waits for nothing.
    pub fn filled_open(&self, entry: Entry) -> Option<&[u8]> {
        either!(self, store => store.filled_open(entry))
    }

    /// Free segments, or as many segments' worth of free slots and journal.
    pub fn free_segments(&self) -> u64 {
        either!(self, store => store.free_segments())
    }

    /// As [`free_segments`](AnyStore::free_segments), once the drop of segments is durable.
    pub fn free_segments_once_durable(&self) -> u64 {
        match self {
            AnyStore::Log(log) => log.free_segments_once_durable(),
            AnyStore::Slots(slots) => slots.free_segments_once_durable(),
        }
    }

    /// Rear of the store: everything appended is durable once the store is durable to here, by
    /// [`is_durable_to`](AnyStore::is_durable_to).
    pub fn rear(&self) -> u64 {
        either!(self, store => store.rear())
    }

    /// True if everything before this rear is durable, and the current tail as well.
    pub fn is_durable_to(&self, rear: u64) -> bool {
        either!(self, store => store.is_durable_to(rear))
    }

    /// True if the version at an address is durable.
    pub fn is_version_durable(&self, address: u64) -> bool {
        either!(self, store => store.is_version_durable(address))
    }

    /// Age of a version: the number of versions appended since, or a little more.
    pub fn age(&self, address: u64) -> u64 {
        either!(self, store => store.age(address))
    }

    /// Appends a version of a page with this CRC ([`page_crc`](super::page_crc)), which becomes the store's newest.
    /// Returns its address, and its block, which is to be filled: with the core's lock or without it.
    ///
    /// # Errors
    /// The error that the device returned. `StorageFull` without free space: a fault of the code that reclaims.
    pub fn append(&mut self, page: u64, crc: u32, dirty: bool, resident: bool) -> io::Result<(u64, Unfilled)> {
        either!(self, store => store.append(page, crc, dirty, resident))
    }

    /// Puts a version with this CRC in place of one in the open batch; none if the page has no such version. Returns as
    /// [`append`](AnyStore::append) does.
    pub fn rewrite(&mut self, page: u64, crc: u32, dirty: bool, resident: bool) -> Option<(u64, Unfilled)> {
        either!(self, store => store.rewrite(page, crc, dirty, resident))
    }

    /// Declares that the store's version of a page is obsolete.
    ///
    /// # Errors
    /// As [`append`](AnyStore::append).
    pub fn gone(&mut self, page: u64) -> io::Result<()> {
        either!(self, store => store.gone(page))
    }

    /// Declares that the backing store has the store's version of a page. Without an entry on the device where the entry
    /// would cost more than it spares: the page is then [unsaid](Index::unsaid_in).
    ///
    /// # Errors
    /// As [`append`](AnyStore::append).
    pub fn cleaned(&mut self, page: u64) -> io::Result<()> {
        either!(self, store => store.cleaned(page))
    }

    /// Appends the entry that a page is clean, if no entry says so.
    ///
    /// # Errors
    /// As [`append`](AnyStore::append).
    pub fn enter_clean(&mut self, page: u64) -> io::Result<()> {
        either!(self, store => store.enter_clean(page))
    }

    /// Declares that the only copy of a page cannot be read.
    ///
    /// # Errors
    /// As [`append`](AnyStore::append).
    pub fn lost(&mut self, page: u64) -> io::Result<()> {
        either!(self, store => store.lost(page))
    }

    /// Seals the open batch, unless it is empty.
    pub fn seal(&mut self) {
        either!(self, store => store.seal());
    }

    /// Batches that the device may not have yet, in the order of writing.
    pub fn sealed(&self) -> Vec<Arc<Batch>> {
        either!(self, store => store.sealed())
    }

    /// Complete batches in memory that the device does not have yet.
    pub fn sealed_len(&self) -> usize {
        either!(self, store => store.sealed_len())
    }

    /// Forgets batches that the device has: their pages are read from the device from now on.
    pub fn tidy(&mut self) {
        either!(self, store => store.tidy());
    }

    /// Writes everything that only memory has.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn write_out(&mut self) -> io::Result<()> {
        either!(self, store => store.write_out())
    }

    /// Makes everything durable that was written out.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn sync(&mut self) -> io::Result<()> {
        either!(self, store => store.sync())
    }

    /// Whole segments' worth written since the last sync.
    pub fn unsynced_segments(&self) -> u64 {
        either!(self, store => store.unsynced_segments())
    }

    /// Blocks that pages leave free. Of a log these are blocks without a newest version; of slots, those beyond
    /// `held_max`.
    pub fn spare_pages(&self, held_max: u64) -> u64 {
        match self {
            AnyStore::Log(log) => u64::from(log.geometry().blocks()).saturating_sub(log.index.len() as u64),
            AnyStore::Slots(slots) => slots.slots().saturating_sub(held_max),
        }
    }

    /// True if everything before this rear is durable. The tail may not be.
    pub fn is_written_durably(&self, rear: u64) -> bool {
        either!(self, store => store.is_written_durably(rear))
    }

    /// As [`LogStore::segment_from`]; slots are visited one after the other, from 0 on.
    pub fn segment_from(&self, from: u64) -> Option<(u64, Vec<(u64, u64)>)> {
        either!(self, store => store.segment_from(from))
    }

    /// Sync point of a device sync that begins now: the store is durable to there afterwards. None if the store is
    /// durable.
    pub fn unsynced(&self) -> Option<SyncPoint> {
        either!(self, store => store.unsynced())
    }

    /// Notes that the sync of this point has succeeded.
    pub fn synced(&mut self, point: SyncPoint) {
        either!(self, store => store.synced(point));
    }

    /// Reads a version.
    ///
    /// # Errors
    /// `InvalidData` if the bytes are not those that were written; otherwise the device's error.
    pub fn read(&mut self, entry: Entry, bytes: &mut [u8]) -> io::Result<()> {
        either!(self, store => store.read(entry, bytes))
    }

    /// As [`LogStore::segment`].
    pub fn segment(&mut self, n: usize) -> Option<Vec<(u64, u64)>> {
        self.log().segment(n)
    }

    /// As [`LogStore::drop_oldest_segment`].
    pub fn drop_oldest_segment(&mut self) {
        self.log().drop_oldest_segment();
    }

    /// As [`LogStore::grow`].
    ///
    /// # Errors
    /// As [`LogStore::grow`].
    pub fn grow(&mut self, segments: u32) -> Result<(), StoreError> {
        self.log().grow(segments)
    }

    /// Notes in the superblock that the store ends in good order. Everything must be durable.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn close(&mut self) -> io::Result<()> {
        either!(self, store => store.close())
    }

    /// Marks the contents as not to be trusted again, in the superblock, if the device still takes it.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn retire(&mut self) -> io::Result<()> {
        either!(self, store => store.retire())
    }
}
