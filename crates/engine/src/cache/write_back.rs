//! Keeps the promise that no durable write is lost and no page grows older, by the rules of `docs/cache-format.md`,
//! whatever the policy above decides. It owns the log on the cache device and the way to the backing store.

use super::aging::Aging;
use super::clean::DirtyLimits;
use super::maintenance;
use super::unsynced::Unsynced;
use super::watermarks::{self, FREE_MIN};
use super::write_batch::{InFlight, LogRelation, Payload, read_page_below};
use crate::disk::Disk;
use crate::mutant::{self, Mutant};
use crate::store::{AnyStore, Entry};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A disk that is also used while the lock around the keeper is free.
pub(super) type SharedDisk = Arc<dyn Disk>;

/// A page on its way below.
pub(super) struct QueuedPage {
    pub payload: Payload,
    pub relation: LogRelation,
    /// Tells it from what is queued of the page later.
    pub ticket: u64,
    /// It is being written.
    pub writing: bool,
    /// The second at which it was queued: what comes later of the page is not in it.
    pub taken: u64,
    /// Rear of the log when the page was queued. The log must be durable to this before the page is written below
    /// (rule 1).
    pub after: u64,
}

/// Source of a version's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// In memory: they have been copied.
    Memory,
    /// In the log, on the device.
    Store(Entry),
    /// In the backing store.
    Below,
}

/// Counts of the keeper's work, in pages unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteBackCounts {
    /// Pages written to the backing store.
    pub below_pages: u64,
    /// Writes by which that was done.
    pub below_ios: u64,
    /// Syncs of the backing store.
    pub below_syncs: u64,
    /// Pages read from the backing store.
    pub below_reads: u64,
    /// Of them those of gaps in long sequential streams: the cache held them as well.
    pub below_gap_reads: u64,
    /// Pages that reclaim appended again.
    pub copied: u64,
    /// Pages that reclaim had to write below because the policy did not hold them any more.
    pub evicted_dirty: u64,
    /// Pages that were written below because more were dirty than the limit allows.
    pub cleaned_ahead: u64,
    /// Pages that were written below because they lay beside one that was.
    pub cleaned_beside: u64,
    /// Segments reclaimed.
    pub segments_reclaimed: u64,
    /// Slots given up because the policy did not hold their pages any more. (In the slots layout.)
    pub slots_freed: u64,
    /// Clean copies whose bytes were wrong or could not be read; they were read from below instead.
    pub clean_copies_bad: u64,
    /// Pages whose only copy could not be read.
    pub pages_lost: u64,
}

/// Pages to be written to the backing store, by page.
pub(super) type DirtyQueue = BTreeMap<u64, QueuedPage>;

/// The store on the cache device, the backing store, and the pages between them.
pub(super) struct WriteBack {
    pub store: AnyStore<SharedDisk>,
    backing: SharedDisk,
    pub(super) backing_bytes: u64,
    pub(super) page_bytes: usize,
    /// Queue of pages to be written below, by page.
    pub(super) dirty_queue: DirtyQueue,
    pub(super) queue_max: usize,
    /// Pages in the queue from which on threads of the cache's own write them below; none when there are no such threads.
    pub(super) queue_soft: Option<usize>,
    /// Rear that the log must have reached for a reclaim ahead of need.
    pub(super) reclaim_from: u64,
    /// Page from which the queue is swept next.
    pub(super) sweep: u64,
    /// Pages of the queue that are being written.
    pub(super) writing: usize,
    tickets: u64,
    /// Pages written below since its last sync.
    pub(super) unsynced: Unsynced,
    /// Ranges of pages that were changed below past the queue since its last sync.
    pub(super) changed: Vec<Range<u64>>,
    /// Pages that the backing store refused when they were last to be written there.
    pub(super) refused: BTreeSet<u64>,
    /// Number of failures that may have lost changes which cannot be made again from here. Each was of a sync below, or
    /// of the cache device.
    pub(super) changes_failed: u64,
    /// Number of these failures that a flush has reported.
    pub changes_told: u64,
    /// Rear to which the log must be durable for what was made void to be so durably.
    forgot: u64,
    /// Pages that are being made void: what the policy makes of them meanwhile goes nowhere.
    voiding: Option<Range<u64>>,
    pub(super) dirty_limits: DirtyLimits,
    pub(super) aging: Aging,
    /// A sync of the log is under way.
    pub syncing: bool,
    /// Somebody owns the upkeep.
    pub owned: bool,
    /// Turns that wait for whoever owns it.
    pub wanting: usize,
    /// Upkeep is under way somewhere and has given the lock back for a while.
    pub apart: bool,
    /// Pages that a request of the policy may append.
    pub moved_max: u64,
    /// Pages that the policy may hold in the log.
    pub held_max: u64,
    /// Failure of the log's device in words, if it has failed: nothing that it did not sync can be counted on.
    pub failure: Option<String>,
    pub counts: WriteBackCounts,
}

impl WriteBack {
    /// `background` when threads of the cache's own keep room ahead of need.
    pub fn new(store: AnyStore<SharedDisk>, backing: SharedDisk, background: bool) -> Self {
        let geometry = store.geometry();
        let segment_pages = geometry.segment_pages as usize;
        WriteBack {
            backing_bytes: backing.size_bytes(),
            page_bytes: geometry.page_bytes as usize,
            queue_max: watermarks::queue_max(segment_pages, background),
            queue_soft: background.then_some(segment_pages.div_ceil(2)),
            reclaim_from: 0,
            sweep: 0,
            store,
            backing,
            dirty_queue: DirtyQueue::new(),
            writing: 0,
            tickets: 0,
            unsynced: Unsynced::default(),
            changed: Vec::new(),
            refused: BTreeSet::new(),
            changes_failed: 0,
            changes_told: 0,
            forgot: 0,
            voiding: None,
            dirty_limits: DirtyLimits::NONE,
            aging: Aging::new(None),
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

    /// Has the log's device failed?
    pub fn is_broken(&self) -> bool {
        self.failure.is_some()
    }

    /// The log's device cannot be counted on from now on.
    pub fn fail(&mut self, why: &impl std::fmt::Display) {
        self.failure.get_or_insert_with(|| why.to_string());
    }

    /// Notes a failure of the log's device.
    pub fn noted<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.fail(error);
        }
        result
    }

    /// Finds what a request that misses the cache gets: the queue, a copy of the log that should have been written
    /// below but could not be, what was sent below and is not durable there, else the backing store. The bytes are copied
    /// if memory has them.
    pub fn locate_below(&mut self, page: u64, bytes: &mut [u8]) -> io::Result<Source> {
        let stored = self.store.index().get(page);
        // What is queued of an older version is not what is looked for.
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

    /// Finds what was sent below of a page and is not durable there: a sync below that fails may drop it there before anybody
    /// here has heard of it.
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

    /// Finds a version of the log.
    pub fn locate_stored(&self, entry: Entry, bytes: &mut [u8]) -> io::Result<Source> {
        if entry.lost {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the only copy of this page was lost"));
        }
        Ok(if self.store.read_open(entry, bytes) { Source::Memory } else { Source::Store(entry) })
    }

    /// Reads what [`locate_below`](Keeper::locate_below) finds.
    pub fn read_below(&mut self, page: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self.locate_below(page, bytes)? {
            Source::Memory => Ok(()),
            Source::Store(entry) => match self.store.read(entry, bytes) {
                Err(error) if self.is_sent(page, entry) => {
                    self.copy_is_bad(page, entry, error)?;
                    self.read_backing(page, bytes)
                }
                other => other,
            },
            Source::Below => self.read_backing(page, bytes),
        }
    }

    fn read_backing(&mut self, page: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.counts.below_reads += 1;
        read_page_below(&*self.backing, self.backing_bytes, page, bytes)
    }

    /// Was this version written below, and is nothing of the page queued?
    fn is_sent(&self, page: u64, entry: Entry) -> bool {
        !self.dirty_queue.contains_key(&page) && self.covers(page, entry.address)
    }

    /// Reads the copy that the log holds. A clean one that is bad is forgotten, a dirty one declared lost.
    pub fn read_store(&mut self, page: u64, entry: Entry, bytes: &mut [u8]) -> io::Result<()> {
        let Err(error) = self.store.read(entry, bytes) else { return Ok(()) };
        self.copy_is_bad(page, entry, error)?;
        self.read_below(page, bytes)
    }

    /// The copy that the log holds cannot be read; the error if that is a loss. Else the page is read below.
    pub fn copy_is_bad(&mut self, page: u64, entry: Entry, error: io::Error) -> io::Result<()> {
        let Some(entry) = self.store.index().get(page).filter(|now| now.address == entry.address) else {
            // It has moved meanwhile.
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
        // A version on its way below, or just there, is not lost with the copy.
        if self.covers(page, entry.address) {
            self.release(page);
            // What is below serves from now on, and if it cannot be synced nobody has the page any more.
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

    /// Is this version, or a newer one, queued or written below?
    fn covers(&self, page: u64, address: u64) -> bool {
        let relation = self
            .dirty_queue
            .get(&page)
            .map(|queued| queued.relation)
            .or(self.unsynced.get(page).map(|in_flight| in_flight.relation));
        matches!(relation, Some(LogRelation::Same(p) | LogRelation::Newer(Some(p))) if p == address)
    }

    /// The version at one place has been appended again at another.
    fn moved(&mut self, page: u64, from: u64, to: Entry) {
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
                // Only when it is there can it be read there.
                queued.after = rear;
            }
        }
    }

    /// Appends a version for the policy, or for durability alone when it is not `resident`. `dirty` when it is newer
    /// than what was sent below; else it is what [`read_below`](Keeper::read_below) returns.
    pub fn put(&mut self, page: u64, bytes: &[u8], dirty: bool, resident: bool) -> io::Result<Entry> {
        if !self.apart {
            maintenance::make_room(self)?;
        } else if self.store.free_segments() < FREE_MIN - 1 {
            // What is left is for the upkeep that is under way.
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "the request moves more pages than there is room for",
            ));
        }
        let changed = self.changed.iter().any(|pages| pages.contains(&page));
        let on_its_way = changed || self.dirty_queue.contains_key(&page) || self.unsynced.contains(page);
        let owed = self.store.index().get(page).is_some_and(|entry| self.is_owed(page, entry));
        let marked = dirty || owed || (on_its_way && !mutant::is(Mutant::CleanTooEarly));
        if marked {
            self.differs(page);
        }
        // What is queued or was written below may be the very version that would be lost.
        if (!on_its_way || mutant::is(Mutant::RewriteCovered))
            && self.store.rewrite(page, bytes, marked, resident).is_some()
        {
            return Ok(self.store.index().get(page).expect("it was just written"));
        }
        let appended = self.store.append(page, bytes, marked, resident);
        let address = self.noted(appended)?;
        let entry = self.store.index().get(page).expect("it was just appended");
        if owed && !dirty {
            // These are the bytes of the log: what is on its way below is older.
            return Ok(entry);
        }
        match self.dirty_queue.get_mut(&page) {
            // The log has what makes the queued version superfluous, and whose bytes need not be there much longer.
            Some(QueuedPage { payload: Payload::Stored(_), writing: false, .. }) if dirty => {
                self.dirty_queue.remove(&page);
            }
            // What a discard leaves below need not be zeros as these are.
            Some(QueuedPage { payload: Payload::Discard, .. }) => {}
            // The queue is newer than what was written before.
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
        Ok(entry)
    }

    /// The policy does not hold the page any more; what durability needs stays.
    pub fn release(&mut self, page: u64) {
        self.store.index_mut().update(page, |entry| entry.resident = false);
    }

    /// Queues a version of the log, whose bytes these are, to be written below.
    pub fn write_page_back(&mut self, page: u64, bytes: &[u8], address: u64) {
        self.queue(page, Payload::Bytes(bytes.into()), LogRelation::Same(address));
    }

    /// Queues a version of the log to be written below.
    pub fn write_back_stored(&mut self, page: u64, entry: Entry) {
        let mut bytes = vec![0; self.page_bytes];
        let open = self.store.read_open(entry, &mut bytes);
        let payload = if open { Payload::Bytes(bytes.into()) } else { Payload::Stored(entry) };
        self.queue(page, payload, LogRelation::Same(entry.address));
    }

    /// Does the version at this place still have to be written below?
    pub fn is_owed(&self, page: u64, entry: Entry) -> bool {
        entry.dirty && !self.covers(page, entry.address)
    }

    /// Queues a version that the log does not have.
    pub fn write_past(&mut self, page: u64, bytes: &[u8]) -> io::Result<()> {
        self.queue_past(page, Payload::Bytes(bytes.into()))
    }

    /// Queues a page to be discarded below.
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

    /// A page of the queue has to wait for all that the log has by now.
    fn await_store(&mut self, page: u64) {
        let rear = self.store.rear();
        if let Some(queued) = self.dirty_queue.get_mut(&page) {
            queued.after = rear;
        }
    }

    /// Stops serving what the log holds of a page. Returns the place of a dirty copy, which is needed until its
    /// replacement is durable.
    fn supersede(&mut self, page: u64) -> Option<u64> {
        self.release(page);
        let dirty = self.store.index().get(page).filter(|entry| entry.dirty && !mutant::is(Mutant::GoneTooEarly));
        dirty.map(|entry| entry.address)
    }

    /// The backing store was changed by somebody else: what the queue and the log hold of this page is void.
    pub fn make_void(&mut self, page: u64) {
        self.is_void(page);
        self.dirty_queue.remove(&page);
        if let Some(address) = self.supersede(page) {
            self.unsynced.insert(page, InFlight::elsewhere(LogRelation::Newer(Some(address)), 0));
        } else {
            self.unsynced.remove(page);
        }
    }

    /// The log is told of a page that was made void. A dirty copy is obsolete once what is below is durable.
    pub fn declare_void(&mut self, page: u64) -> io::Result<()> {
        let is_obsolete = |entry: &Entry| !entry.dirty || mutant::is(Mutant::GoneTooEarly);
        if self.store.index().get(page).filter(is_obsolete).is_some() { self.declare_gone(page) } else { Ok(()) }
    }

    /// A range of pages was changed below past the queue, and no sync has covered that. From now on nothing of it is queued.
    pub fn begin_void(&mut self, pages: Range<u64>) {
        let queued: Vec<u64> = self.dirty_queue.range(pages.clone()).map(|(&page, _)| page).collect();
        for page in queued {
            self.dirty_queue.remove(&page);
        }
        if !mutant::is(Mutant::ForgottenNotSynced) {
            self.changed.push(pages.clone());
        }
        self.voiding = Some(pages).filter(|_| !mutant::is(Mutant::VoidQueued));
    }

    /// True if something newer than any copy in the log was sent below of a page, or is about to be.
    pub(super) fn is_overtaken(&self, page: u64) -> bool {
        let queued = self.dirty_queue.get(&page).is_some_and(|queued| queued.relation.is_past());
        queued
            || self.unsynced.get(page).is_some_and(|in_flight| in_flight.relation.is_past())
            || self.awaits_void(page)
    }

    /// True if a page is about to be made void and is not yet.
    fn awaits_void(&self, page: u64) -> bool {
        let is_within = self.voiding.as_ref().is_some_and(|pages| pages.contains(&page));
        is_within
            && !matches!(self.unsynced.get(page), Some(InFlight { relation: LogRelation::Newer(_), payload: None, .. }))
    }

    /// A page whose place is wanted is made void before its turn comes, if it is about to be: it cannot be queued any more.
    pub(super) fn hasten_void(&mut self, page: u64) {
        if self.awaits_void(page) && !mutant::is(Mutant::VoidAwaited) {
            self.make_void(page);
        }
    }

    /// All of the range was made void, which is not durable before the log is, up to here.
    pub fn end_void(&mut self) {
        self.voiding = None;
        self.forgot = self.store.rear();
    }

    /// As [`make_void`](Keeper::make_void) when there is no log any more.
    pub fn forget_without_store(&mut self, page: u64) {
        self.dirty_queue.remove(&page);
        self.store.index_mut().remove(page);
    }

    /// True if the queue, the log or the account of unsynced writes holds something of a page.
    pub fn holds(&self, page: u64) -> bool {
        self.store.index().get(page).is_some() || self.dirty_queue.contains_key(&page) || self.unsynced.contains(page)
    }

    /// Pages of a range that the queue, the log or the account of unsynced writes hold something of, ascending.
    pub fn held_in(&self, range: &Range<u64>) -> Vec<u64> {
        let inside = |page: &u64| range.contains(page);
        let mut held: Vec<u64> = self.dirty_queue.range(range.clone()).map(|(&page, _)| page).collect();
        held.extend(self.unsynced.pages().filter(inside));
        if range.end - range.start < self.store.index().len() as u64 {
            held.extend(range.clone().filter(|&page| self.store.index().get(page).is_some()));
        } else {
            held.extend(self.store.index().iter().map(|(page, _)| page).filter(inside));
        }
        held.sort_unstable();
        held.dedup();
        held
    }

    pub(super) fn declare_gone(&mut self, page: u64) -> io::Result<()> {
        if mutant::is(Mutant::NoGone) {
            self.store.index_mut().remove(page);
            return Ok(());
        }
        let result = self.store.gone(page);
        self.noted(result)
    }

    pub(super) fn queue(&mut self, page: u64, payload: Payload, relation: LogRelation) {
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

    /// A flush that began when so much had been told says what else has failed of changes below.
    pub fn tell_failed_changes(&mut self, told: u64) -> io::Result<()> {
        if self.changes_failed == told {
            return Ok(());
        }
        self.changes_told = self.changes_failed;
        Err(io::Error::other("an earlier failure of the cache or of the backing store may have lost a change"))
    }

    /// Is there anything below that no sync has made durable?
    pub fn owes_sync_below(&self) -> bool {
        !self.unsynced.is_empty() || !self.changed.is_empty()
    }

    /// Has anything gone below, or is it about to, that the log does not have?
    pub fn went_past(&self) -> bool {
        !self.changed.is_empty()
            || self.dirty_queue.values().any(|queued| queued.relation.is_past())
            || self.unsynced.values().any(|in_flight| in_flight.relation.is_past())
    }

    /// Must the version be read, so that its place can be given up?
    pub fn must_move(&self, page: u64, entry: Entry) -> bool {
        let evicted_dirty = entry.dirty && !mutant::is(Mutant::DirtyNotKept) && !self.covers(page, entry.address);
        !entry.lost && (entry.resident || evicted_dirty) && !self.awaits_void(page)
    }

    /// Sees to it that a place is not needed any more; true when that takes a sync of the backing store. `bytes` are
    /// those of the version, if they are known.
    pub fn empty_address(&mut self, page: u64, address: u64, bytes: Option<&[u8]>) -> io::Result<bool> {
        let Some(entry) = self.store.index().get(page).filter(|entry| entry.address == address) else {
            return Ok(false);
        };
        if entry.lost && !self.covers(page, address) {
            let result = self.store.lost(page);
            return self.noted(result).map(|()| false);
        }
        self.hasten_void(page);
        let entry = self.store.index().get(page).expect("what is void is there until it is declared gone");
        if !entry.resident && (!entry.dirty || mutant::is(Mutant::DirtyNotKept)) {
            return Ok(false);
        }
        if !entry.resident && self.covers(page, address) {
            return Ok(true);
        }
        let mut again = Vec::new();
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => {
                again.resize(self.page_bytes, 0);
                if self.store.read(entry, &mut again).is_err() {
                    return self.give_up(page, entry);
                }
                &again
            }
        };
        if !entry.resident {
            self.counts.evicted_dirty += 1;
            self.write_page_back(page, bytes, address);
            return Ok(true);
        }
        self.counts.copied += 1;
        let appended = self.store.append(page, bytes, entry.dirty, true);
        let to = self.noted(appended)?;
        self.moved(page, address, Entry { address: to, ..entry });
        Ok(false)
    }

    /// Pages of these versions that the backing store does not have yet, durably, ascending. Each is on its way there.
    pub fn needed_of(&mut self, segments: &[Vec<(u64, u64)>]) -> io::Result<Vec<u64>> {
        let mut needed = Vec::new();
        for &(page, address) in segments.iter().flatten() {
            if self.store.index().get(page).is_some_and(|entry| entry.address == address && entry.dirty && !entry.lost)
                && self.empty_address(page, address, None)?
            {
                needed.push(page);
            }
        }
        needed.sort_unstable();
        Ok(needed)
    }

    /// The oldest segments, whose versions these are, are not needed any more.
    pub fn drop_segments(&mut self, segments: &[Vec<(u64, u64)>]) {
        for (page, address) in segments.iter().flatten() {
            if self.store.index().get(*page).is_some_and(|entry| entry.address == *address) {
                self.store.index_mut().remove(*page);
            }
        }
        segments.iter().for_each(|_| self.store.drop_oldest_segment());
        self.counts.segments_reclaimed += segments.len() as u64;
    }

    /// A copy that reclaim cannot read: only a dirty one is a loss.
    fn give_up(&mut self, page: u64, entry: Entry) -> io::Result<bool> {
        if !self.is_owed(page, entry) {
            self.counts.clean_copies_bad += 1;
            return Ok(entry.dirty);
        }
        self.counts.pages_lost += 1;
        let result = self.store.lost(page);
        self.noted(result).map(|()| false)
    }

    /// True if something that was made void is not durably so.
    pub fn must_commit_what_was_forgotten(&self) -> bool {
        !self.is_broken() && !self.store.is_durable_to(self.forgot)
    }

    /// Pages are about to be changed below past the queue: the bytes at which they begin, and how many these are.
    pub fn changes_below(&mut self, pages: Range<u64>) -> (u64, u64) {
        let at = pages.start * self.page_bytes as u64;
        let inside = (self.backing_bytes - at).min((pages.end - pages.start) * self.page_bytes as u64);
        self.changed.push(pages);
        (at, inside)
    }

    /// Leaves the log in good order, with all that is known of what is clean. Comes after a flush.
    pub fn close(&mut self) -> io::Result<()> {
        maintenance::settle(self)?;
        maintenance::sync_store(self)?;
        let result = self.store.close();
        self.noted(result)
    }

    /// Gives the log up after its device failed: what only it has is queued as far as it can still be read. The rest is
    /// lost until it is written again.
    pub fn abandon_store(&mut self) {
        self.aging = Aging::new(None);
        self.store.drop_ages();
        // What is queued by its place in the log is not safe either.
        self.dirty_queue.retain(|_, queued| !matches!(queued.payload, Payload::Stored(_)));
        self.writing = 0;
        let owed: Vec<(u64, Entry)> =
            self.store.index().iter().filter(|&(page, entry)| self.is_owed(page, entry)).collect();
        let lost_before = self.counts.pages_lost;
        for (page, entry) in owed {
            let mut bytes = vec![0; self.page_bytes];
            // What the queue may hold of the page is older, or it would cover this.
            if self.store.read(entry, &mut bytes).is_ok() {
                self.queue(page, Payload::Bytes(bytes.into()), LogRelation::Newer(None));
            } else {
                self.counts.pages_lost += 1;
                self.store.index_mut().update(page, |entry| entry.lost = true);
            }
        }
        if self.counts.pages_lost > lost_before {
            // Some of them may be of writes that no flush has spoken for: the next one must not say that they are durable.
            self.changes_failed += 1;
        }
        self.store.index_mut().retain_lost();
        // The device may refuse this too; then only a format helps, as the documentation says.
        let _refused = self.store.retire();
    }

    /// Queues a page to be discarded when there is no log any more.
    pub fn discard_without_store(&mut self, page: u64) {
        self.store.index_mut().remove(page);
        self.queue(page, Payload::Discard, LogRelation::Newer(None));
    }

    /// Writes a page when there is no log any more.
    pub fn write_without_store(&mut self, page: u64, bytes: &[u8]) {
        self.store.index_mut().remove(page);
        self.queue(page, Payload::Bytes(bytes.into()), LogRelation::Newer(None));
    }

    /// Pages whose only copy was lost, ascending.
    pub fn lost_pages(&self) -> Vec<u64> {
        let mut lost: Vec<u64> =
            self.store.index().iter().filter(|(_, entry)| entry.lost).map(|(page, _)| page).collect();
        lost.sort_unstable();
        lost
    }
}
