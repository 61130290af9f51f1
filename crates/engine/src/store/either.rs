//! A store in either layout, used in the same way: what its users call the log is then a journal and its slots.

use super::clock::Clock;
use super::generation::{Generation, Generations};
use super::rewrite::Past;
use super::slots::Slots;
use super::standing::Standing;
use super::superblock::{Identity, Superblock};
use super::{Ages, Batch, Entry, Geometry, Index, Layout, LogStore, Recovered, StoreCounts, StoreError, SyncPoint};
use crate::disk::Disk;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A store whose superblock says in which layout it is.
#[allow(clippy::large_enum_variant, reason = "there is one of it in a cache")]
pub(crate) enum AnyStore<D> {
    Log(LogStore<D>),
    Slots(Slots<D>),
}

/// Does the same with the store in whichever layout.
macro_rules! either {
    ($store:expr, $it:ident => $what:expr) => {
        match $store {
            AnyStore::Log($it) => $what,
            AnyStore::Slots($it) => $what,
        }
    };
}

impl<D: Disk> AnyStore<D> {
    /// Finds what the store on a device holds for a backing store of this identity and size in pages. Nothing is changed:
    /// before anything else is asked of it the store has to [`begin`](AnyLog::begin). With a clock it keeps ages by it.
    ///
    /// # Errors
    /// Anything but a store in order whose unsynced end may be torn.
    pub fn find(
        disk: D,
        backing: [u8; 16],
        backing_pages: u64,
        clock: Option<&Clock>,
    ) -> Result<(Self, Recovered), StoreError> {
        Self::find_in_spite(disk, backing, backing_pages, clock, None)
    }

    /// As [`find`](AnyLog::find), of a store of which tables, or blocks of the journal, are missing with all copies: a repair must see to
    /// what is in doubt by that.
    ///
    /// # Errors
    /// As there, but for that.
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
            Layout::Slots => {
                let (slots, recovered) = Slots::find(disk, backing, backing_pages, clock, past)?;
                (AnyStore::Slots(slots), recovered)
            }
        })
    }

    /// Takes the findings about missing tables, if there are any.
    pub(super) fn take_past(&mut self) -> Option<Past> {
        either!(self, store => store.past.take())
    }

    /// Makes what was found durable, and notes in the superblock that the store is in use from there on.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn begin(&mut self) -> io::Result<()> {
        either!(self, store => store.begin())
    }

    /// Writes anew the tables, or blocks of the journal, that were taken from their copies. Returns their offsets on
    /// the device in bytes. The store is in use.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn rewrite_copied(&mut self) -> io::Result<Vec<u64>> {
        either!(self, store => store.rewrite_copied())
    }

    fn standing(&self) -> &Standing {
        either!(self, store => &store.standing)
    }

    fn standing_mut(&mut self) -> &mut Standing {
        either!(self, store => &mut store.standing)
    }

    /// Whose cache it is.
    pub fn identity(&self) -> Identity {
        self.standing().identity()
    }

    /// The backing store is larger now, or known by another name. The next superblock says so.
    pub fn set_identity(&mut self, identity: Identity) {
        self.standing_mut().set_identity(identity);
    }

    /// Its generations: the backing store has one of them.
    pub fn generations(&self) -> Generations {
        self.standing().generations()
    }

    /// Does it keep generations? One that a program before version 3 left without closing it does not yet.
    pub fn keeps_generations(&self) -> bool {
        self.standing().keeps_generations()
    }

    /// The backing store is about to get this generation. The next superblock says so.
    pub fn propose_generation(&mut self, generation: Generation) {
        self.standing_mut().propose(generation);
    }

    /// The backing store has the pending generation, durably. The next superblock says so.
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

    /// Cache time: it never runs backwards, and goes on only while ages are kept.
    pub fn now(&self) -> Duration {
        self.standing().now()
    }

    /// Should the device be told of it again?
    pub fn is_clock_old(&self) -> bool {
        self.standing().is_clock_old()
    }

    /// Since when pages differ from the backing store, where ages are kept.
    pub fn ages(&self) -> Option<&Ages> {
        self.standing().ages.as_ref()
    }

    /// The same, to be changed.
    pub fn ages_mut(&mut self) -> Option<&mut Ages> {
        self.standing_mut().ages.as_mut()
    }

    /// Keeps ages from now on, by this clock; what is dirty already has been so for as long as can be.
    pub fn keep_ages(&mut self, clock: Clock) {
        let mut ages = Ages::new(self.geometry().blocks() as usize, self.now().as_secs());
        let dirty = self.index().iter().filter(|(_, entry)| entry.dirty && !entry.lost);
        dirty.for_each(|(page, _)| ages.insert(page, 0));
        self.standing_mut().keep_ages(ages, clock);
    }

    /// Keeps none any more.
    pub fn drop_ages(&mut self) {
        self.standing_mut().drop_ages();
    }

    /// Sync point of the last durable end, to be noted once more with the current time. None while a write is not
    /// synced.
    pub fn restated(&self) -> Option<SyncPoint> {
        either!(self, store => store.restated())
    }

    /// The slots, if that is the layout.
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

    /// The same, to be changed.
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

    /// Offset of a place on the device, in bytes.
    pub fn byte_of(&self, address: u64) -> u64 {
        either!(self, store => store.byte_of(address))
    }

    /// The device.
    pub fn disk(&self) -> &D {
        either!(self, store => store.disk())
    }

    /// Counts reads of the device that are performed elsewhere.
    pub fn count_reads(&mut self, reads: u64) {
        either!(self, store => store.count_reads(reads));
    }

    /// Copies a version that only memory holds so far; false when the device has it.
    pub fn read_open(&self, entry: Entry, bytes: &mut [u8]) -> bool {
        either!(self, store => store.read_open(entry, bytes))
    }

    /// Segments' worth of room.
    pub fn free_segments(&self) -> u64 {
        either!(self, store => store.free_segments())
    }

    /// As [`free_segments`](AnyLog::free_segments), once what was dropped is so durably.
    pub fn free_segments_once_durable(&self) -> u64 {
        match self {
            AnyStore::Log(log) => log.free_segments_once_durable(),
            AnyStore::Slots(slots) => slots.free_segments(),
        }
    }

    /// Rear of the store: all that was appended is durable once the store is durable to this.
    /// [`is_durable_to`](AnyLog::is_durable_to) takes it.
    pub fn rear(&self) -> u64 {
        either!(self, store => store.rear())
    }

    /// Is what came before this rear on stable storage?
    pub fn is_durable_to(&self, rear: u64) -> bool {
        either!(self, store => store.is_durable_to(rear))
    }

    /// Is the version at a place on stable storage?
    pub fn is_version_durable(&self, address: u64) -> bool {
        either!(self, store => store.is_version_durable(address))
    }

    /// Age of a version: the number of versions appended since, or a little more.
    pub fn age(&self, address: u64) -> u64 {
        either!(self, store => store.age(address))
    }

    /// Appends a version of a page; it becomes what the store holds of it.
    ///
    /// # Errors
    /// The error that the device returned. `StorageFull` if there is no room: a fault of the code that makes room.
    pub fn append(&mut self, page: u64, bytes: &[u8], dirty: bool, resident: bool) -> io::Result<u64> {
        either!(self, store => store.append(page, bytes, dirty, resident))
    }

    /// Puts a version in the place of one that only memory has; none when the page has no such.
    pub fn rewrite(&mut self, page: u64, bytes: &[u8], dirty: bool, resident: bool) -> Option<u64> {
        either!(self, store => store.rewrite(page, bytes, dirty, resident))
    }

    /// Declares that what the store holds of a page is obsolete.
    ///
    /// # Errors
    /// As [`append`](AnyLog::append).
    pub fn gone(&mut self, page: u64) -> io::Result<()> {
        either!(self, store => store.gone(page))
    }

    /// Declares that the backing store has what the store holds of a page.
    ///
    /// # Errors
    /// As [`append`](AnyLog::append).
    pub fn cleaned(&mut self, page: u64) -> io::Result<()> {
        either!(self, store => store.cleaned(page))
    }

    /// Declares that the only copy of a page cannot be read.
    ///
    /// # Errors
    /// As [`append`](AnyLog::append).
    pub fn lost(&mut self, page: u64) -> io::Result<()> {
        either!(self, store => store.lost(page))
    }

    /// Ends the open batch, if there is anything in it.
    pub fn seal(&mut self) {
        either!(self, store => store.seal());
    }

    /// Batches that the device may not have yet, in the order in which they are written.
    pub fn sealed(&self) -> Vec<Arc<Batch>> {
        either!(self, store => store.sealed())
    }

    /// Number of batches that the device may not have yet.
    pub fn sealed_len(&self) -> usize {
        either!(self, store => store.sealed_len())
    }

    /// Forgets batches that the device has: it can be asked for their pages.
    pub fn tidy(&mut self) {
        either!(self, store => store.tidy());
    }

    /// Writes what only memory has.
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

    /// Segments' worth that was written since the last sync, whole ones.
    pub fn unsynced_segments(&self) -> u64 {
        either!(self, store => store.unsynced_segments())
    }

    /// Blocks that pages leave: those of a log that hold no newest version, slots beyond those that a policy may hold at once.
    pub fn spare_pages(&self, held_max: u64) -> u64 {
        match self {
            AnyStore::Log(log) => u64::from(log.geometry().blocks()).saturating_sub(log.index.len() as u64),
            AnyStore::Slots(slots) => slots.slots().saturating_sub(held_max),
        }
    }

    /// Is what came before this rear on stable storage, whatever is known of the tail?
    pub fn is_written_durably(&self, rear: u64) -> bool {
        either!(self, store => store.is_written_durably(rear))
    }

    /// As [`Log::segment_from`]; slots are gone through one after the other, from 0 on.
    pub fn segment_from(&self, from: u64) -> Option<(u64, Vec<(u64, u64)>)> {
        either!(self, store => store.segment_from(from))
    }

    /// Sync point of a device sync that begins now: the store is durable to there afterwards. None when the store is
    /// durable.
    pub fn unsynced(&self) -> Option<SyncPoint> {
        either!(self, store => store.unsynced())
    }

    /// Notes that the sync of such a point has succeeded.
    pub fn synced(&mut self, point: SyncPoint) {
        either!(self, store => store.synced(point));
    }

    /// Reads a version.
    ///
    /// # Errors
    /// `InvalidData` when the bytes are not those that were written; else what the device answered.
    pub fn read(&mut self, entry: Entry, bytes: &mut [u8]) -> io::Result<()> {
        either!(self, store => store.read(entry, bytes))
    }

    /// As [`Log::segment`].
    pub fn segment(&mut self, n: usize) -> Option<Vec<(u64, u64)>> {
        self.log().segment(n)
    }

    /// As [`Log::drop_oldest_segment`].
    pub fn drop_oldest_segment(&mut self) {
        self.log().drop_oldest_segment();
    }

    /// As [`Log::grow`].
    ///
    /// # Errors
    /// As [`Log::grow`].
    pub fn grow(&mut self, segments: u32) -> Result<(), StoreError> {
        self.log().grow(segments)
    }

    /// Notes in the superblock that all is in good order. Everything must be durable.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn close(&mut self) -> io::Result<()> {
        either!(self, store => store.close())
    }

    /// Notes in the superblock, as far as the device still can, that the contents must not be trusted again.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn retire(&mut self) -> io::Result<()> {
        either!(self, store => store.retire())
    }
}
