//! Write batches: queued pages on their way to the backing store. A batch is begun, written without the lock,
//! completed.

use super::write_back::{QueuedPage, WriteBack};
use crate::page_copy::PageCopy;
use crate::transfers::{read_pages, runs};
use entresol_disk::{AlignedBytes, Disk, Transfer};
use entresol_store::arena::Slot;
use entresol_store::mutant::{self, Mutant};
use entresol_store::{Entry, check_page};
use std::io;
use std::sync::Arc;

/// Pages settled in one hold of the core's lock after a sync of the backing store.
const SETTLED_PER_HOLD: usize = 64;

/// Relation between the version that is written below and the store's version of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogRelation {
    /// Same version as the one at this log address.
    Same(u64),
    /// Newer than the store's version; a dirty copy at this log address is obsolete once the newer version is durable.
    Newer(Option<u64>),
}

impl LogRelation {
    /// True if the store does not have the version.
    pub fn is_past(self) -> bool {
        matches!(self, LogRelation::Newer(_))
    }
}

/// Change that is to be made to a page below.
#[derive(Clone)]
pub(crate) enum Payload {
    /// Write of these bytes.
    Bytes(PageCopy),
    /// Write of this version in the store, read when the batch is written.
    Stored(Entry),
    /// Discard.
    Discard,
}

/// A page that was written below and is not known to be durable there.
pub(crate) struct InFlight {
    pub relation: LogRelation,
    /// Payload that was sent, kept until synced while the store has no copy, so that a failed sync can be repaired.
    /// None where the store has the version, or somebody else changed the page below.
    pub payload: Option<Payload>,
    /// Note in the arena that the page was changed below, as long as the store has a dirty copy that is obsolete.
    _void: Option<Arc<Slot>>,
    /// Second at which the version was taken; later changes of the page are not in it.
    taken: u64,
}

impl InFlight {
    /// A page whose bytes the store has, or that somebody else changed below.
    pub fn elsewhere(relation: LogRelation, taken: u64) -> Self {
        InFlight { relation, payload: None, _void: None, taken }
    }

    /// A page that was changed below, though the store has a dirty copy at this log address.
    pub fn changed_below(obsolete: u64, void: Option<Arc<Slot>>) -> Self {
        InFlight { _void: void, ..InFlight::elsewhere(LogRelation::Newer(Some(obsolete)), 0) }
    }
}

/// A page of a write batch.
pub(crate) struct BatchPage {
    page: u64,
    pub payload: Payload,
    pub relation: LogRelation,
    pub ticket: u64,
    taken: u64,
    /// Offset of the version on the cache device in bytes, if its bytes are to come from there.
    pub byte_in_store: u64,
}

/// Queued pages that are being written below.
pub(crate) struct WriteBatch {
    /// Ascending by page.
    pages: Vec<BatchPage>,
    pub page_bytes: usize,
    pub backing_bytes: u64,
}

/// Result of a [`WriteBatch`].
pub(crate) struct WriteResult {
    /// Positions of pages whose bytes could not be read from the store, ascending, with the errors.
    pub bad: Vec<(usize, io::Error)>,
    /// Result of writing all other pages below: success if all are there.
    pub result: io::Result<()>,
    /// Pages read from the store.
    pub store_reads: u64,
    /// Pages written below.
    pub pages: u64,
    /// Writes that this took.
    pub ios: u64,
}

impl WriteBack {
    /// Begins a batch of all queued pages. A page stays in the queue until it has been written.
    pub fn begin_batch(&mut self) -> WriteBatch {
        let waiting = self.dirty_queue.iter().filter(|(_, queued)| !queued.writing);
        let pages = waiting.map(|(&page, _)| page).collect();
        self.add_pages(pages)
    }

    /// Begins a batch of the queued ones of these ascending pages that need not wait for the store, with their
    /// neighbours.
    pub fn begin_batch_with(&mut self, pages: &[u64]) -> WriteBatch {
        let is_ripe = |page: &&u64| self.dirty_queue.get(page).is_some_and(|queued| self.is_ripe(queued));
        let pages: Vec<u64> = pages.iter().filter(is_ripe).copied().collect();
        let pages = self.with_neighbours(&pages);
        self.add_pages(pages)
    }

    /// Begins a batch of the queued ones of these ascending pages that need not wait for the store, without neighbours.
    pub fn begin_batch_only(&mut self, pages: &[u64]) -> WriteBatch {
        let is_ripe = |page: &&u64| self.dirty_queue.get(page).is_some_and(|queued| self.is_ripe(queued));
        let ripe = pages.iter().filter(is_ripe).copied().collect();
        self.add_pages(ripe)
    }

    /// Begins a batch of queued pages that need not wait for the store: at most `runs_max` runs in page order, and
    /// neighbours. The sweep goes on where the last such batch ended.
    pub fn begin_batch_some(&mut self, runs_max: usize) -> WriteBatch {
        let mut pages = self.ripe_from(self.sweep, runs_max);
        if pages.is_empty() {
            pages = self.ripe_from(0, runs_max);
        }
        let pages = self.with_neighbours(&pages);
        self.sweep = pages.last().map_or(0, |page| page + 1);
        self.add_pages(pages)
    }

    /// True if a page is being written below at the moment.
    pub fn is_being_written(&self, page: u64) -> bool {
        self.dirty_queue.get(&page).is_some_and(|queued| queued.writing)
    }

    /// True if a queued page may be written now (rule 1). A version that the store does not have also waits for the
    /// store's tail to be durable. Otherwise a crash would bring back the dropped copy (rule 3).
    fn is_ripe(&self, queued: &QueuedPage) -> bool {
        let is_durable = match queued.relation {
            LogRelation::Same(_) => self.store.is_written_durably(queued.after),
            LogRelation::Newer(_) if mutant::is(Mutant::TailNotAwaited) => self.store.is_written_durably(queued.after),
            LogRelation::Newer(_) => self.store.is_durable_to(queued.after),
        };
        !queued.writing && (is_durable || mutant::is(Mutant::UnripeTaken))
    }

    fn ripe_from(&self, first: u64, runs_max: usize) -> Vec<u64> {
        let mut pages: Vec<u64> = Vec::new();
        let mut runs = 0;
        for (&page, queued) in self.dirty_queue.range(first..) {
            if !self.is_ripe(queued) {
                continue;
            }
            runs += usize::from(pages.last().is_none_or(|last| last + 1 != page));
            if runs > runs_max {
                break;
            }
            pages.push(page);
        }
        pages
    }

    fn add_pages(&mut self, pages: Vec<u64>) -> WriteBatch {
        self.writing += pages.len();
        let add_pages = |page| {
            let queued = self.dirty_queue.get_mut(&page).expect("it was found in the queue");
            queued.writing = true;
            let byte_in_store = match queued.payload {
                Payload::Stored(entry) => self.store.byte_of(entry.address),
                _ => 0,
            };
            let &mut QueuedPage { ref payload, relation, ticket, taken, .. } = queued;
            BatchPage { page, payload: payload.clone(), relation, ticket, taken, byte_in_store }
        };
        let pages = pages.into_iter().map(add_pages).collect();
        WriteBatch { pages, page_bytes: self.page_bytes, backing_bytes: self.backing_bytes }
    }

    /// Aborts a batch that was not written: its pages stay queued.
    pub fn abort_batch(&mut self, write_batch: WriteBatch) {
        for batch_page in write_batch.pages {
            self.stay(&batch_page);
        }
    }

    /// Leaves a page in the queue for another batch, unless its version is no longer the store's newest.
    fn stay(&mut self, batch_page: &BatchPage) {
        let Some(queued) = self.dirty_queue.get_mut(&batch_page.page).filter(|now| now.ticket == batch_page.ticket)
        else {
            return;
        };
        queued.writing = false;
        self.writing -= 1;
        let newest = self.store.index().get(batch_page.page).map(|entry| entry.address);
        if matches!(queued.payload, Payload::Stored(entry) if newest != Some(entry.address)) {
            self.dirty_queue.remove(&batch_page.page);
        }
    }

    /// Completes a batch that has been written below, or has failed.
    pub fn complete_batch(&mut self, write_batch: WriteBatch, written: WriteResult) -> io::Result<()> {
        self.store.count_reads(written.store_reads);
        if written.result.is_ok() {
            self.counts.below_pages += written.pages;
        }
        self.counts.below_ios += written.ios;
        let mut bad = written.bad.into_iter().peekable();
        for (at, batch_page) in write_batch.pages.into_iter().enumerate() {
            if let Some((_, error)) = bad.next_if(|(bad, _)| *bad == at) {
                self.bytes_are_bad(&batch_page, error)?;
            } else if written.result.is_err() {
                self.stay(&batch_page);
                self.note_refused(batch_page.page);
            } else {
                self.note_taken(batch_page.page);
                let now = self.dirty_queue.get(&batch_page.page).filter(|now| now.ticket == batch_page.ticket);
                let relation = now.map_or(batch_page.relation, |now| now.relation);
                if now.is_some() {
                    self.dirty_queue.remove(&batch_page.page);
                    self.writing -= 1;
                }
                let payload = relation.is_past().then_some(batch_page.payload);
                self.unsynced
                    .insert(batch_page.page, InFlight { relation, payload, _void: None, taken: batch_page.taken });
            }
        }
        written.result
    }

    /// Notes that the backing store refused a page.
    pub(crate) fn note_refused(&mut self, page: u64) {
        self.refused.insert(page);
    }

    /// Notes that a page has been written below.
    pub(crate) fn note_taken(&mut self, page: u64) {
        if !self.refused.is_empty() {
            self.refused.remove(&page);
        }
    }

    /// Handles a version that was to go below and cannot be read from the store: a loss only if it is still the newest.
    fn bytes_are_bad(&mut self, batch_page: &BatchPage, error: io::Error) -> io::Result<()> {
        let page = batch_page.page;
        if self.dirty_queue.get(&page).is_some_and(|now| now.ticket == batch_page.ticket) {
            self.dirty_queue.remove(&page);
            self.writing -= 1;
        }
        let Some(entry) = self.store.index().get(page).filter(|&entry| self.is_owed(page, entry)) else {
            return Ok(());
        };
        match batch_page.payload {
            Payload::Stored(read) if read.address == entry.address => {
                // The page is listed as lost, or tried again by the next request that needs it.
                let _listed = self.copy_is_bad(page, entry, error);
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends a sync of the backing store.
    pub fn synced_below(&mut self, synced: io::Result<()>) -> io::Result<()> {
        if let Err(error) = synced {
            self.queue_again();
            self.end_sync_below(false);
            return Err(error);
        }
        self.end_sync_below(true);
        self.counts.below_syncs += 1;
        self.changed.clear();
        self.inherited = false;
        Ok(())
    }

    /// Enters in the store that pages covered by a sync of the backing store are clean or gone. Returns true if more
    /// remain. `urgent` becomes true when one of these entries has to be durable before a flush may return.
    pub fn settle_some(&mut self, sync: u64, urgent: &mut bool) -> io::Result<bool> {
        for _ in 0..SETTLED_PER_HOLD {
            // What the arena has of the page counts until the store says that its own copy does not.
            let Some((page, in_flight)) = self.unsynced.settled(sync) else { return Ok(false) };
            let InFlight { relation, taken, .. } = in_flight;
            if let Some(entry) = self.store.index().get(page) {
                // The durable part of the store may have an older dirty copy, which this version replaces.
                *urgent |= !self.store.is_version_durable(entry.address);
                match relation {
                    LogRelation::Same(address)
                        if address == entry.address && entry.dirty && !self.is_superseded(page, address) =>
                    {
                        let result = self.store.cleaned(page);
                        self.noted(result)?;
                    }
                    LogRelation::Newer(Some(address)) if address == entry.address => {
                        *urgent = true;
                        self.declare_gone(page)?;
                    }
                    _ => {}
                }
            }
            self.agreed(page, taken);
        }
        Ok(true)
    }

    /// True if a newer version of the page is on its way below, bypassing the dirty copy at this log address. The copy
    /// then stays dirty until the newer version is durable (rule 4). A clean copy would have to be `gone` before the
    /// newer version is written (rule 3), and the queued write does not wait for that.
    fn is_superseded(&self, page: u64, address: u64) -> bool {
        let newer =
            self.dirty_queue.get(&page).is_some_and(|queued| queued.relation == LogRelation::Newer(Some(address)));
        newer && !mutant::is(Mutant::SupersededCleaned)
    }

    /// Queues all unsynced pages again after a failed sync of the backing store, unless they have been replaced
    /// meanwhile. The system may have dropped their bytes, and the next sync would succeed without them. Changes by
    /// somebody else cannot be repeated: flushes report those.
    fn queue_again(&mut self) {
        let mut unknown = self.inherited || !self.changed.is_empty();
        for (page, in_flight) in self.unsynced.take() {
            let entry = self.store.index().get(page);
            self.note_refused(page);
            if self.dirty_queue.contains_key(&page) {
                continue;
            }
            match in_flight {
                InFlight { relation: LogRelation::Same(address), .. } => {
                    match entry.filter(|entry| entry.address == address) {
                        Some(entry) => self.write_back_stored(page, entry),
                        None => unknown |= self.is_broken(),
                    }
                }
                // Where the store's entry is another one, it is newer.
                InFlight { relation: LogRelation::Newer(obsolete), payload: Some(payload), .. } => {
                    if entry.is_none_or(|entry| obsolete == Some(entry.address)) && !mutant::is(Mutant::PastNotKept) {
                        self.queue(page, payload, LogRelation::Newer(obsolete));
                    }
                }
                // The old copy must not come back while this program runs.
                InFlight { relation: LogRelation::Newer(obsolete), payload: None, .. } => {
                    unknown = true;
                    if obsolete.is_some() {
                        self.unsynced.insert(page, in_flight);
                    }
                }
            }
        }
        if unknown {
            self.note_failed_changes();
        }
    }
}

impl WriteBatch {
    /// True if the batch has no pages.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Reads the stored versions from the cache device, then writes all pages below in runs of neighbours.
    pub fn perform(&self, store: &dyn Disk, backing: &dyn Disk) -> WriteResult {
        let mut bytes = AlignedBytes::zeroed(self.pages.len() * self.page_bytes);
        let (bad, store_reads) = self.load(store, &mut bytes);
        let is_bad = |at: usize| bad.binary_search_by_key(&at, |&(bad, _)| bad).is_ok();
        let discards = |at: usize| matches!(self.pages[at].payload, Payload::Discard);
        let runs = runs(self.pages.len(), |at| {
            let neighbours = self.pages[at].page == self.pages[at - 1].page + 1;
            neighbours && !is_bad(at) && !is_bad(at - 1) && discards(at) == discards(at - 1)
        });
        let mut writes = Vec::new();
        let mut pages = 0;
        for run in runs.into_iter().filter(|run| !is_bad(run.start)) {
            let at = self.pages[run.start].page * self.page_bytes as u64;
            let inside = (self.backing_bytes - at).min((run.len() * self.page_bytes) as u64);
            // Where the backing store takes no discard, zeros are as good.
            if discards(run.start) && backing.discard(at, inside).is_ok() {
                continue;
            }
            pages += run.len() as u64;
            writes.push(Transfer::Write { at, bytes: &bytes[run.start * self.page_bytes..][..inside as usize] });
        }
        let ios = writes.len() as u64;
        let result = if writes.is_empty() { Ok(()) } else { backing.submit(&mut writes) };
        WriteResult { bad, result, store_reads, pages, ios }
    }

    /// Fills in the bytes. Returns the positions that could not be read, ascending, and the number of reads.
    fn load(&self, store: &dyn Disk, bytes: &mut [u8]) -> (Vec<(usize, io::Error)>, u64) {
        let stored = |batch_page: &BatchPage| matches!(batch_page.payload, Payload::Stored(_));
        let at: Vec<u64> = self.pages.iter().filter(|p| stored(p)).map(|p| p.byte_in_store).collect();
        let mut read = AlignedBytes::zeroed(at.len() * self.page_bytes);
        // If any of the reads fails, each is repeated by itself.
        let _checked_below = read_pages(store, &at, &mut read, self.page_bytes);
        let mut read = read.chunks_exact_mut(self.page_bytes);
        let mut bad = Vec::new();
        for (n, (batch_page, into)) in self.pages.iter().zip(bytes.chunks_exact_mut(self.page_bytes)).enumerate() {
            match &batch_page.payload {
                Payload::Bytes(held) => into.copy_from_slice(held),
                Payload::Discard => {}
                &Payload::Stored(entry) => {
                    let from = read.next().expect("one for each");
                    let again = |from: &mut [u8]| store.read_at(batch_page.byte_in_store, from);
                    let good = check_page(entry, from).or_else(|_| again(from).and_then(|()| check_page(entry, from)));
                    match good {
                        Ok(()) => into.copy_from_slice(from),
                        Err(error) => bad.push((n, error)),
                    }
                }
            }
        }
        (bad, at.len() as u64)
    }
}
