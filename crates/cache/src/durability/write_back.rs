//! The write-back state: the store on the cache device, the way to the backing store, and the pages between them.

use super::ages::Aging;
use super::clean::DirtyLimits;
use super::unsynced::Unsynced;
use super::watermarks;
use super::write_batch::{InFlight, LogRelation, Payload};
use crate::page_copy::PageCopy;
use entresol_disk::Disk;
use entresol_policy::{Reclaim, Wear};
use entresol_store::arena::{Arena, Slot};
use entresol_store::mutant::{self, Mutant};
use entresol_store::{AnyStore, Entry, Layout, Unfilled};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A disk that is also used while the core's lock is free.
pub(crate) type SharedDisk = Arc<dyn Disk>;

/// A page on its way below.
pub(crate) struct QueuedPage {
    pub payload: Payload,
    pub relation: LogRelation,
    /// Number that tells this queued version from later ones of the page.
    pub ticket: u64,
    /// A write batch is writing the page.
    pub writing: bool,
    /// Second at which the page was queued; later changes of the page are not in this version.
    pub taken: u64,
    /// Rear of the store when the page was queued. The store must be durable up to it before the page goes below (rule
    /// 1).
    pub after: u64,
}

/// Source of a version's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Memory: the bytes have been copied.
    Memory,
    /// The store, on the cache device.
    Store(Entry),
    /// The backing store.
    Below,
}

/// Counts of the work for durability, in pages unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteBackCounts {
    /// Pages written to the backing store.
    pub below_pages: u64,
    /// Writes that this took.
    pub below_ios: u64,
    /// Syncs of the backing store.
    pub below_syncs: u64,
    /// Pages read from the backing store.
    pub below_reads: u64,
    /// Those of them in gaps of long sequential streams, which the cache held as well.
    pub below_gap_reads: u64,
    /// Those of them that the cache held as well, between pages that it did not hold: one transfer in place of three.
    pub below_bridge_reads: u64,
    /// Pages that reclaim appended again.
    pub copied: u64,
    /// Dirty pages that reclaim wrote below because the policy no longer held them.
    pub evicted_dirty: u64,
    /// Pages written below because more were dirty than the limit allows.
    pub cleaned_ahead: u64,
    /// Pages written below because they lay beside a page that was.
    pub cleaned_beside: u64,
    /// Segments reclaimed.
    pub segments_reclaimed: u64,
    /// Slots given up because the policy no longer held their pages (slots layout only).
    pub slots_freed: u64,
    /// Clean copies with wrong or unreadable bytes; these pages were read from below instead.
    pub clean_copies_bad: u64,
    /// Pages whose only copy could not be read.
    pub pages_lost: u64,
}

/// Pages to be written to the backing store, by page.
pub(crate) type DirtyQueue = BTreeMap<u64, QueuedPage>;

/// The store on the cache device, the backing store, and the pages between them.
pub(crate) struct WriteBack {
    pub store: AnyStore<SharedDisk>,
    backing: SharedDisk,
    pub(crate) backing_bytes: u64,
    pub(crate) page_bytes: usize,
    /// Queue of pages to be written below, by page.
    pub(crate) dirty_queue: DirtyQueue,
    pub(crate) queue_max: usize,
    /// Queued pages from which on maintenance threads write them below. None without such threads.
    pub(crate) queue_soft: Option<usize>,
    /// Choice of the segments to reclaim, in the layout of that name.
    pub(crate) reclaim: Option<Reclaim>,
    /// Rear that the store must reach before the next reclaim ahead of need.
    pub(crate) reclaim_from: u64,
    /// Page at which the sweep through the queue goes on.
    pub(crate) sweep: u64,
    /// Queued pages in a write batch.
    pub(crate) writing: usize,
    tickets: u64,
    /// Pages written below since the last sync of the backing store.
    pub(crate) unsynced: Unsynced,
    /// Memory that outlives the process.
    pub(super) arena: Option<Arc<Arena>>,
    /// Notes in the arena on clean copies that are obsolete and not declared gone yet.
    pub(super) voids: BTreeMap<u64, Arc<Slot>>,
    /// A former process may have left writes below that no sync has made durable.
    pub(super) inherited: bool,
    /// Ranges of pages changed below, bypassing the queue, since the last sync of the backing store.
    pub(crate) changed: Vec<Range<u64>>,
    /// Pages that the backing store refused at the last try.
    pub(crate) refused: BTreeSet<u64>,
    /// Failures, of a sync below or of the cache device, that may have lost changes which cannot be repeated from here.
    pub(crate) changes_failed: u64,
    /// Number of these failures that a flush has reported.
    pub changes_told: u64,
    /// Rear up to which the store must be durable for all invalidations to be durable.
    pub(super) forgot: u64,
    /// Pages that are being invalidated: none of them is queued, whatever the policy decides meanwhile.
    pub(super) voiding: Option<Range<u64>>,
    /// Versions that were queued of these pages, until all of them are invalid.
    pub(super) voided: Vec<QueuedPage>,
    pub(crate) dirty_limits: DirtyLimits,
    pub(crate) aging: Aging,
    /// A decision has moved a page since the maintenance threads were last asked whether they have work.
    pub stirred: bool,
    /// A sync of the store is under way.
    pub syncing: bool,
    /// A hold of the core's lock owns maintenance.
    pub owned: bool,
    /// Threads that wait for ownership.
    pub wanting: usize,
    /// The owner of maintenance has given the core's lock back for a while.
    pub apart: bool,
    /// Pages that one request may make the policy append.
    pub moved_max: u64,
    /// Pages that the policy may hold in the store.
    pub held_max: u64,
    /// Description of the cache device's failure, if it failed. Nothing unsynced on the device can then be relied on.
    pub failure: Option<String>,
    pub counts: WriteBackCounts,
}

impl WriteBack {
    /// `background` when maintenance threads work ahead of need.
    pub fn new(store: AnyStore<SharedDisk>, backing: SharedDisk, background: bool) -> Self {
        let geometry = store.geometry();
        let by_segments = geometry.layout == Layout::Segments;
        let segment_pages = geometry.segment_pages as usize;
        WriteBack {
            backing_bytes: backing.size_bytes(),
            page_bytes: geometry.page_bytes as usize,
            queue_max: watermarks::queue_max(segment_pages, background),
            queue_soft: background.then_some(segment_pages.div_ceil(if by_segments { 8 } else { 2 })),
            reclaim: by_segments.then(|| {
                let segments = store.slots_len() / geometry.segment_pages;
                Reclaim::new(segments, geometry.segment_pages, geometry.page_bytes, Wear::Unbounded, 0)
            }),
            reclaim_from: 0,
            sweep: 0,
            store,
            backing,
            dirty_queue: DirtyQueue::new(),
            writing: 0,
            tickets: 0,
            unsynced: Unsynced::default(),
            arena: None,
            voids: BTreeMap::new(),
            inherited: false,
            changed: Vec::new(),
            refused: BTreeSet::new(),
            changes_failed: 0,
            changes_told: 0,
            forgot: 0,
            voiding: None,
            voided: Vec::new(),
            dirty_limits: DirtyLimits::NONE,
            aging: Aging::new(None),
            stirred: false,
            syncing: false,
            owned: false,
            wanting: 0,
            apart: false,
            moved_max: watermarks::moved_max(2),
            held_max: geometry.capacity_pages(),
            failure: None,
            counts: WriteBackCounts::default(),
        }
    }

    /// The backing store.
    pub fn backing(&self) -> &SharedDisk {
        &self.backing
    }

    /// True if the cache device has failed.
    pub fn is_broken(&self) -> bool {
        self.failure.is_some()
    }

    /// Notes that the cache device has failed; the first description stays.
    pub fn fail(&mut self, why: &impl std::fmt::Display) {
        if self.failure.is_none() {
            // A process that is killed before the device is given up leaves a cache that seems to be in order.
            self.note_failed_device();
            self.failure = Some(why.to_string());
        }
    }

    /// Passes a result of the cache device on, and notes a failure.
    pub fn noted<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.fail(error);
        }
        result
    }

    /// Finds the version that a request gets when it misses the tiers; bytes in memory are copied. The order is: the
    /// queue, the store's copy if still to be written below, a version sent below but not durable there, the backing
    /// store.
    pub fn locate_below(&mut self, page: u64, bytes: &mut [u8]) -> io::Result<Source> {
        let stored = self.store.index().get(page);
        // A queued version that is older than the store's dirty copy does not count.
        let newest = |queued: &&QueuedPage| match (queued.relation, stored) {
            (LogRelation::Same(address) | LogRelation::Newer(Some(address)), Some(entry)) => {
                address == entry.address || !entry.dirty
            }
            (LogRelation::Newer(None), Some(entry)) => !entry.dirty || mutant::is(Mutant::OlderQueuedServed),
            (_, None) => true,
        };
        match self.dirty_queue.get(&page).filter(newest).map(|queued| &queued.payload) {
            Some(Payload::Bytes(held)) => bytes.copy_from_slice(held),
            Some(Payload::Discard) => bytes.fill(0),
            Some(&Payload::Stored(entry)) => return self.locate_stored(entry, bytes),
            None => {
                return match stored.filter(|&entry| self.is_owed(page, entry)) {
                    Some(entry) => self.locate_stored(entry, bytes),
                    None => self.locate_sent(page, stored, bytes),
                };
            }
        }
        Ok(Source::Memory)
    }

    /// Finds a version sent below and not durable there: a failing sync may drop it before the failure is known here.
    fn locate_sent(&self, page: u64, stored: Option<Entry>, bytes: &mut [u8]) -> io::Result<Source> {
        match (self.unsynced.get(page), stored) {
            (Some(InFlight { relation: LogRelation::Same(address), .. }), Some(entry))
                if *address == entry.address && !entry.lost =>
            {
                self.locate_stored(entry, bytes)
            }
            (Some(InFlight { payload: Some(Payload::Bytes(in_flight)), .. }), _) => {
                bytes.copy_from_slice(in_flight);
                Ok(Source::Memory)
            }
            _ => Ok(Source::Below),
        }
    }

    /// Finds a version in the store.
    pub fn locate_stored(&self, entry: Entry, bytes: &mut [u8]) -> io::Result<Source> {
        if entry.lost {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the only copy of this page was lost"));
        }
        Ok(if self.store.read_open(entry, bytes) { Source::Memory } else { Source::Store(entry) })
    }

    /// Handles an unreadable copy in the store. An error if the page is lost; otherwise the page is read below.
    pub fn copy_is_bad(&mut self, page: u64, entry: Entry, error: io::Error) -> io::Result<()> {
        let Some(entry) = self.store.index().get(page).filter(|now| now.address == entry.address) else {
            // The version has moved meanwhile.
            return Ok(());
        };
        if !entry.dirty {
            self.counts.clean_copies_bad += 1;
            let declared = self.declare_gone(page);
            // Without its device the cache is given up, and the page is read below.
            return if self.is_broken() { Ok(()) } else { declared };
        }
        if self
            .dirty_queue
            .get(&page)
            .is_some_and(|queued| matches!(queued.payload, Payload::Stored(_)) && !queued.writing)
        {
            self.dirty_queue.remove(&page);
        }
        // A version on its way below, or just written there, is not lost with the copy.
        if self.covers(page, entry.address) {
            self.release(page);
            // The backing store's version serves from now on. If it cannot be synced, no copy of the page is left.
            if let Some(in_flight) =
                self.unsynced.get_mut(page).filter(|in_flight| in_flight.relation == LogRelation::Same(entry.address))
            {
                in_flight.relation = LogRelation::Newer(Some(entry.address));
            }
            return Ok(());
        }
        if error.kind() == io::ErrorKind::InvalidData && !entry.lost {
            self.counts.pages_lost += 1;
            self.store.lost(page)?;
        }
        Err(error)
    }

    /// True if this version, or a newer one, is queued or was written below and not yet synced.
    pub(crate) fn covers(&self, page: u64, address: u64) -> bool {
        let relation = self
            .dirty_queue
            .get(&page)
            .map(|queued| queued.relation)
            .or(self.unsynced.get(page).map(|in_flight| in_flight.relation));
        matches!(relation, Some(LogRelation::Same(p) | LogRelation::Newer(Some(p))) if p == address)
    }

    /// Notes that the version at one log address has been appended again at another.
    pub(crate) fn moved(&mut self, page: u64, from: u64, to: Entry) {
        let moved = |relation: &mut LogRelation| match relation {
            LogRelation::Same(address) | LogRelation::Newer(Some(address)) if *address == from => *address = to.address,
            _ => {}
        };
        if let Some(in_flight) = self.unsynced.get_mut(page) {
            moved(&mut in_flight.relation);
        }
        let rear = self.store.rear();
        if let Some(queued) = self.dirty_queue.get_mut(&page) {
            moved(&mut queued.relation);
            if matches!(queued.payload, Payload::Stored(entry) if entry.address == from) {
                queued.payload = Payload::Stored(to);
                // The version can be read at its new address only once it is there.
                queued.after = rear;
            }
        }
    }

    /// Appends a version with this CRC for the policy, or for durability alone when it is not `resident`. `dirty` when
    /// it is newer than the version sent below; otherwise its bytes are those of the version that
    /// [`locate_below`](WriteBack::locate_below) finds. The block is to be filled with them.
    pub fn put(&mut self, page: u64, crc: u32, dirty: bool, resident: bool) -> io::Result<(Entry, Unfilled)> {
        let changed = self.inherited || self.changed.iter().any(|pages| pages.contains(&page));
        let on_its_way = changed || self.dirty_queue.contains_key(&page) || self.unsynced.contains(page);
        let owed = self.store.index().get(page).is_some_and(|entry| self.is_owed(page, entry));
        let marked = dirty || owed || (on_its_way && !mutant::is(Mutant::CleanTooEarly));
        if marked {
            self.differs(page);
        }
        // An append, not a replacement, if the open batch's version may be the one queued or written below.
        if (!on_its_way || mutant::is(Mutant::RewriteCovered))
            && let Some((_, mut block)) = self.store.rewrite(page, crc, marked, resident)
        {
            self.replace_kept(page, marked, &mut block);
            return Ok((self.store.index().get(page).expect("it was just written"), block));
        }
        let appended = self.store.append(page, crc, marked, resident);
        let (address, mut block) = self.noted(appended)?;
        self.replace_kept(page, marked, &mut block);
        let entry = self.store.index().get(page).expect("it was just appended");
        if owed && !dirty {
            // These are the store's own bytes: the version on its way below is older.
            return Ok((entry, block));
        }
        match self.dirty_queue.get_mut(&page) {
            // The appended version makes the queued one superfluous, whose bytes may soon be gone from the store.
            Some(QueuedPage { payload: Payload::Stored(_), writing: false, .. }) if dirty => {
                self.dirty_queue.remove(&page);
            }
            // A discard need not leave zeros below, as these bytes are.
            Some(QueuedPage { payload: Payload::Discard, .. }) => {}
            // The queued version is newer than any written before.
            Some(queued) if !dirty => {
                queued.relation = LogRelation::Same(address);
                if matches!(queued.payload, Payload::Stored(_)) {
                    queued.payload = Payload::Stored(entry);
                    queued.after = self.store.rear();
                }
            }
            None if !dirty && on_its_way => {
                self.unsynced.replace(page, InFlight::elsewhere(LogRelation::Same(address), self.second()));
            }
            _ => {}
        }
        Ok((entry, block))
    }

    /// Notes that the policy no longer holds the page. A copy needed for durability stays.
    pub fn release(&mut self, page: u64) {
        self.store.index_mut().update(page, |entry| entry.resident = false);
    }

    /// Queues a version of the store, with these bytes, to be written below.
    pub fn write_page_back(&mut self, page: u64, bytes: PageCopy, address: u64) {
        self.queue(page, Payload::Bytes(bytes), LogRelation::Same(address));
    }

    /// Queues a version of the store to be written below. Waits for nothing: a block that is still to be filled is read
    /// from the device, which has it when the store is durable up to here (rule 1).
    pub fn write_back_stored(&mut self, page: u64, entry: Entry) {
        let filled = self.store.filled_open(entry).map(PageCopy::from);
        self.queue(page, filled.map_or(Payload::Stored(entry), Payload::Bytes), LogRelation::Same(entry.address));
    }

    /// True if the version of this entry still has to be written below.
    pub fn is_owed(&self, page: u64, entry: Entry) -> bool {
        entry.dirty && !self.covers(page, entry.address)
    }

    /// Queues a version that bypasses the store.
    pub fn write_past(&mut self, page: u64, bytes: &[u8]) -> io::Result<()> {
        let bytes = self.keep(page, bytes);
        self.queue_past(page, Payload::Bytes(bytes))
    }

    /// Queues a discard of a page below.
    pub fn discard_past(&mut self, page: u64) -> io::Result<()> {
        self.queue_past(page, Payload::Discard)
    }

    fn queue_past(&mut self, page: u64, payload: Payload) -> io::Result<()> {
        let obsolete = self.supersede(page);
        self.queue(page, payload, LogRelation::Newer(obsolete));
        if obsolete.is_some() || self.store.index().get(page).is_none() {
            return Ok(());
        }
        let declared = self.declare_gone(page);
        if !mutant::is(Mutant::GoneNotAwaited) {
            self.await_store(page);
        }
        declared
    }

    /// Makes a queued page wait for all entries that the store has by now.
    fn await_store(&mut self, page: u64) {
        let rear = self.store.rear();
        if let Some(queued) = self.dirty_queue.get_mut(&page) {
            queued.after = rear;
        }
    }

    /// Stops serving the store's copy of a page. Returns a dirty copy's address, needed until its replacement is
    /// durable.
    pub(crate) fn supersede(&mut self, page: u64) -> Option<u64> {
        self.release(page);
        let dirty = self.store.index().get(page).filter(|entry| entry.dirty && !mutant::is(Mutant::GoneTooEarly));
        dirty.map(|entry| entry.address)
    }

    /// True if a version newer than the store's copy is queued or was sent below, or the page is yet to be invalidated.
    pub(crate) fn is_overtaken(&self, page: u64) -> bool {
        let queued = self.dirty_queue.get(&page).is_some_and(|queued| queued.relation.is_past());
        queued
            || self.unsynced.get(page).is_some_and(|in_flight| in_flight.relation.is_past())
            || self.awaits_void(page)
    }

    pub(crate) fn queue(&mut self, page: u64, payload: Payload, relation: LogRelation) {
        if self.voiding.as_ref().is_some_and(|pages| pages.contains(&page)) {
            return;
        }
        self.tickets += 1;
        self.differs(page);
        let (ticket, after, taken) = (self.tickets, self.store.rear(), self.second());
        let replaced =
            self.dirty_queue.insert(page, QueuedPage { payload, relation, ticket, writing: false, taken, after });
        self.writing -= usize::from(replaced.is_some_and(|queued| queued.writing));
    }

    /// The result of a flush. It reports failures that may have lost changes below, of which `told` were already
    /// reported when the flush began.
    pub fn end_flush(&mut self, told: u64, flushed: io::Result<()>) -> io::Result<()> {
        if self.changes_failed != told {
            self.changes_told = self.changes_failed;
            let said = "an earlier failure of the cache or of the backing store may have lost a change";
            return Err(io::Error::other(said));
        }
        flushed.inspect(|()| self.failures_reported())
    }

    /// True if the backing store has something that no sync has made durable.
    pub fn owes_sync_below(&self) -> bool {
        self.inherited || !self.unsynced.is_empty() || !self.changed.is_empty()
    }

    /// True if a version has gone below, or is about to, that the store does not have.
    pub fn went_past(&self) -> bool {
        self.inherited
            || !self.changed.is_empty()
            || self.dirty_queue.values().any(|queued| queued.relation.is_past())
            || self.unsynced.values().any(|in_flight| in_flight.relation.is_past())
    }

    /// True if the store or the queue has something of a page that the backing store is not known to have durably.
    pub fn has_more_than_below(&self, page: u64) -> bool {
        let stored = self.store.index().get(page);
        let is_dirty = stored.is_some_and(|entry| entry.dirty || entry.lost);
        is_dirty || self.dirty_queue.contains_key(&page) || self.unsynced.contains(page)
    }
}
