//! Keeps the promise that no durable write is lost and no page grows older, by the rules of `docs/cache-format.md`,
//! whatever the policy above decides. It owns the log on the cache device and the way to the backing store.

use crate::disk::Disk;
use crate::mutant::{self, Mutant};
use crate::store::{Entry, Log, PageMap};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// Free segments below which reclaim begins: two for what it appends itself, one for the request that asked.
const FREE_MIN: u64 = 3;

/// Segments' worth of pages written below after which the backing store is synced without being asked.
const UNSYNCED_SEGMENTS: usize = 16;

/// Ranges changed below past the log after which it is synced without being asked.
const CHANGED_MAX: usize = 64;

/// How what is written below relates to what the log holds of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cover {
    /// It is the version at this place.
    Same(u64),
    /// It is newer than what the log holds; a dirty copy at this place is obsolete once it is durable.
    Newer(Option<u64>),
}

/// A page on its way below.
struct Pending {
    /// None for one that is to be discarded there.
    bytes: Option<Box<[u8]>>,
    cover: Cover,
}

/// What the keeper has done, in pages unless it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeeperCounts {
    /// Pages written to the backing store.
    pub below_pages: u64,
    /// Writes by which that was done.
    pub below_ios: u64,
    /// Syncs of the backing store.
    pub below_syncs: u64,
    /// Pages read from the backing store.
    pub below_reads: u64,
    /// Pages that reclaim appended again.
    pub copied: u64,
    /// Pages that reclaim had to write below because the policy did not hold them any more.
    pub rescued: u64,
    /// Segments reclaimed.
    pub segments_reclaimed: u64,
    /// Clean copies whose bytes were wrong or could not be read; they were read from below instead.
    pub clean_copies_bad: u64,
    /// Pages whose only copy could not be read.
    pub pages_lost: u64,
}

/// The log, the backing store and the pages between them.
pub(super) struct Keeper<C, B> {
    pub log: Log<C>,
    backing: B,
    backing_bytes: u64,
    page_bytes: usize,
    pending: BTreeMap<u64, Pending>,
    pending_max: usize,
    /// Pages written below since its last sync.
    unsynced: PageMap<Cover>,
    /// Ranges of pages that were changed below past the queue since its last sync.
    changed: Vec<Range<u64>>,
    /// What was forgotten is not yet so in the durable log.
    forgot: bool,
    /// The log's device has failed: nothing that it did not sync can be counted on.
    pub broken: bool,
    pub counts: KeeperCounts,
}

impl<C: Disk, B: Disk> Keeper<C, B> {
    pub fn new(log: Log<C>, backing: B) -> Self {
        let geometry = log.geometry();
        Keeper {
            backing_bytes: backing.size_bytes(),
            page_bytes: geometry.page_bytes as usize,
            pending_max: geometry.segment_pages as usize,
            log,
            backing,
            pending: BTreeMap::new(),
            unsynced: PageMap::default(),
            changed: Vec::new(),
            forgot: false,
            broken: false,
            counts: KeeperCounts::default(),
        }
    }

    /// Notes a failure of the log's device.
    fn noted<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        self.broken |= result.is_err();
        result
    }

    /// Reads what a request that misses the cache gets: the queue, a copy of the log that should have been written
    /// below but could not be, else the backing store.
    pub fn read_below(&mut self, page: u64, bytes: &mut [u8]) -> io::Result<()> {
        if let Some(pending) = self.pending.get(&page) {
            match &pending.bytes {
                Some(held) => bytes.copy_from_slice(held),
                None => bytes.fill(0),
            }
            return Ok(());
        }
        if let Some(entry) = self.log.index.get(page).filter(|&entry| self.is_owed(page, entry)) {
            return self.log.read(entry, bytes);
        }
        self.counts.below_reads += 1;
        let at = page * self.page_bytes as u64;
        let inside = (self.backing_bytes - at).min(self.page_bytes as u64) as usize;
        let (inside, beyond) = bytes.split_at_mut(inside);
        beyond.fill(0);
        self.backing.read_at(at, inside)
    }

    /// Reads the copy that the log holds. A clean one that is bad is forgotten, a dirty one declared lost.
    pub fn read_log(&mut self, page: u64, entry: Entry, bytes: &mut [u8]) -> io::Result<()> {
        let Err(error) = self.log.read(entry, bytes) else { return Ok(()) };
        if !entry.dirty {
            self.counts.clean_copies_bad += 1;
            self.log.gone(page)?;
            return self.read_below(page, bytes);
        }
        // A version on its way below, or just there, is not lost with the copy.
        if self.covers(page, entry.place) {
            return self.read_below(page, bytes);
        }
        if error.kind() == io::ErrorKind::InvalidData && !entry.lost {
            self.counts.pages_lost += 1;
            self.log.lost(page)?;
        }
        Err(error)
    }

    /// Is this version, or a newer one, queued or written below?
    fn covers(&self, page: u64, place: u64) -> bool {
        let cover = self.pending.get(&page).map(|pending| pending.cover).or(self.unsynced.get(&page).copied());
        matches!(cover, Some(Cover::Same(p) | Cover::Newer(Some(p))) if p == place)
    }

    /// The version at one place has been appended again at another.
    fn moved(&mut self, page: u64, from: u64, to: u64) {
        let pending = self.pending.get_mut(&page).map(|pending| &mut pending.cover);
        for cover in pending.into_iter().chain(self.unsynced.get_mut(&page)) {
            match cover {
                Cover::Same(place) | Cover::Newer(Some(place)) if *place == from => *place = to,
                _ => {}
            }
        }
    }

    /// Appends a version for the policy, or for durability alone when it is not `resident`. `dirty` when it is newer
    /// than what was sent below; else it is what [`read_below`](Keeper::read_below) returns.
    pub fn put(&mut self, page: u64, bytes: &[u8], dirty: bool, resident: bool) -> io::Result<u64> {
        self.make_room()?;
        let changed = self.changed.iter().any(|pages| pages.contains(&page));
        let on_its_way = changed || self.pending.contains_key(&page) || self.unsynced.contains_key(&page);
        let owed = self.log.index.get(page).is_some_and(|entry| self.is_owed(page, entry));
        let marked = dirty || owed || (on_its_way && !mutant::is(Mutant::CleanTooEarly));
        // What is queued or was written below may be the very version that would be lost.
        if (!on_its_way || mutant::is(Mutant::RewriteCovered))
            && let Some(place) = self.log.rewrite(page, bytes, marked, resident)
        {
            return Ok(place);
        }
        let place = self.log.append(page, bytes, marked, resident);
        let place = self.noted(place)?;
        if !dirty {
            match self.pending.get_mut(&page) {
                // The queue is newer than what was written before.
                Some(Pending { bytes: Some(_), cover }) => *cover = Cover::Same(place),
                // What a discard leaves below need not be these zeros.
                Some(Pending { bytes: None, .. }) => {}
                None if on_its_way => {
                    self.unsynced.insert(page, Cover::Same(place));
                }
                None => {}
            }
        }
        Ok(place)
    }

    /// The policy does not hold the page any more; what durability needs stays.
    pub fn release(&mut self, page: u64) {
        self.log.index.update(page, |entry| entry.resident = false);
    }

    /// No policy holds anything any more; what durability needs stays.
    pub fn release_all(&mut self) {
        let held: Vec<u64> = self.log.index.iter().filter(|(_, entry)| entry.resident).map(|(page, _)| page).collect();
        held.into_iter().for_each(|page| self.release(page));
    }

    /// Queues the version at a place of the log, whose bytes these are, to be written below.
    pub fn write_back(&mut self, page: u64, bytes: &[u8], place: u64) {
        self.queue(page, bytes, Cover::Same(place));
    }

    /// Does the version at this place still have to be written below?
    pub fn is_owed(&self, page: u64, entry: Entry) -> bool {
        entry.dirty && !self.covers(page, entry.place)
    }

    /// Queues a version that the log does not have.
    pub fn write_past(&mut self, page: u64, bytes: &[u8]) -> io::Result<()> {
        let obsolete = self.supersede(page);
        self.queue(page, bytes, Cover::Newer(obsolete));
        self.declare_gone_if_clean(page, obsolete)
    }

    /// Queues a page to be discarded below.
    pub fn discard_past(&mut self, page: u64) -> io::Result<()> {
        let obsolete = self.supersede(page);
        self.pending.insert(page, Pending { bytes: None, cover: Cover::Newer(obsolete) });
        self.declare_gone_if_clean(page, obsolete)
    }

    /// What the log holds of a page is not served any more. The place of a dirty copy, which is needed until what
    /// replaces it is durable.
    fn supersede(&mut self, page: u64) -> Option<u64> {
        self.release(page);
        let dirty = self.log.index.get(page).filter(|entry| entry.dirty && !mutant::is(Mutant::GoneTooEarly));
        dirty.map(|entry| entry.place)
    }

    fn declare_gone_if_clean(&mut self, page: u64, dirty: Option<u64>) -> io::Result<()> {
        if dirty.is_none() && self.log.index.get(page).is_some() { self.declare_gone(page) } else { Ok(()) }
    }

    /// The backing store was changed by somebody else: what the queue and the log hold of these pages of a range, which
    /// are all that they hold anything of, is void.
    pub fn forget(&mut self, range: Range<u64>, pages: &[u64]) -> io::Result<()> {
        // First what takes no I/O, so that nothing of it goes below while room is made for the rest.
        for &page in pages {
            self.pending.remove(&page);
            if let Some(place) = self.supersede(page) {
                self.unsynced.insert(page, Cover::Newer(Some(place)));
            } else {
                self.unsynced.remove(&page);
            }
        }
        if !mutant::is(Mutant::ForgottenNotSynced) {
            self.changed.push(range);
        }
        self.forgot = true;
        for &page in pages {
            self.make_ready()?;
            if self.log.index.get(page).is_some_and(|entry| !entry.dirty || mutant::is(Mutant::GoneTooEarly)) {
                self.declare_gone(page)?;
            }
        }
        Ok(())
    }

    /// As [`forget`](Keeper::forget) when there is no log any more.
    pub fn forget_without_log(&mut self, pages: &[u64]) {
        for &page in pages {
            self.pending.remove(&page);
            self.log.index.remove(page);
        }
    }

    /// Pages of a range that the queue, the log or the account of unsynced writes hold something of, ascending.
    pub fn held_in(&self, range: &Range<u64>) -> Vec<u64> {
        let inside = |page: &u64| range.contains(page);
        let mut held: Vec<u64> = self.pending.range(range.clone()).map(|(&page, _)| page).collect();
        held.extend(self.unsynced.keys().copied().filter(inside));
        if range.end - range.start < self.log.index.len() as u64 {
            held.extend(range.clone().filter(|&page| self.log.index.get(page).is_some()));
        } else {
            held.extend(self.log.index.iter().map(|(page, _)| page).filter(inside));
        }
        held.sort_unstable();
        held.dedup();
        held
    }

    fn declare_gone(&mut self, page: u64) -> io::Result<()> {
        if mutant::is(Mutant::NoGone) {
            self.log.index.remove(page);
            return Ok(());
        }
        let result = self.log.gone(page);
        self.noted(result)
    }

    fn queue(&mut self, page: u64, bytes: &[u8], cover: Cover) {
        self.pending.insert(page, Pending { bytes: Some(bytes.into()), cover });
    }

    /// Makes room for a request: in the queue, in what is remembered of writes below, in the log. Until this succeeds
    /// none is begun, so that within one nothing that leaves the cache is without a place to go.
    pub fn make_ready(&mut self) -> io::Result<()> {
        if self.pending.len() >= self.pending_max {
            self.commit()?;
        }
        if self.unsynced.len() >= UNSYNCED_SEGMENTS * self.pending_max || self.changed.len() >= CHANGED_MAX {
            self.settle()?;
        }
        self.make_room()
    }

    /// Makes the log durable, then writes below what is queued (rule 1).
    pub fn commit(&mut self) -> io::Result<()> {
        if mutant::is(Mutant::BelowOvertakes) {
            self.write_queue()?;
        }
        self.sync_log()?;
        self.write_queue()
    }

    fn sync_log(&mut self) -> io::Result<()> {
        let result = self.log.write_out().and_then(|()| self.log.sync());
        self.noted(result)?;
        self.forgot = false;
        Ok(())
    }

    /// Writes the queue below in runs of neighbours. What cannot be written stays queued.
    fn write_queue(&mut self) -> io::Result<()> {
        let mut queue = std::mem::take(&mut self.pending).into_iter().peekable();
        let mut failed = None;
        let mut run: Vec<(u64, Pending)> = Vec::new();
        while let Some(first) = queue.next() {
            run.clear();
            run.push(first);
            let discards = run[0].1.bytes.is_none();
            let follows = |page: u64, pending: &Pending, run: &[(u64, Pending)]| {
                page == run[0].0 + run.len() as u64 && pending.bytes.is_none() == discards
            };
            while let Some(next) = queue.next_if(|(page, pending)| follows(*page, pending, &run)) {
                run.push(next);
            }
            match self.write_run(&run) {
                Ok(()) => self.unsynced.extend(run.iter().map(|(page, pending)| (*page, pending.cover))),
                Err(error) => {
                    failed.get_or_insert(error);
                    self.pending.extend(run.drain(..));
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn write_run(&mut self, run: &[(u64, Pending)]) -> io::Result<()> {
        let at = run[0].0 * self.page_bytes as u64;
        let inside = (self.backing_bytes - at).min((run.len() * self.page_bytes) as u64) as usize;
        // Where the store takes no discard, zeros are as good.
        if run[0].1.bytes.is_none() && self.backing.discard(at, inside as u64).is_ok() {
            return Ok(());
        }
        let mut bytes = vec![0; run.len() * self.page_bytes];
        for (page, (_, pending)) in bytes.chunks_exact_mut(self.page_bytes).zip(run) {
            pending.bytes.iter().for_each(|held| page.copy_from_slice(held));
        }
        self.counts.below_pages += run.len() as u64;
        self.counts.below_ios += 1;
        self.backing.write_at(at, &bytes[..inside])
    }

    /// Makes durable what was written below and draws the consequences in the log; true when one of them has to be
    /// durable before a flush may return.
    pub fn settle(&mut self) -> io::Result<bool> {
        if self.unsynced.is_empty() && self.changed.is_empty() {
            return Ok(false);
        }
        if !mutant::is(Mutant::NoBackingSync)
            && let Err(error) = self.backing.sync()
        {
            self.queue_again();
            return Err(error);
        }
        self.counts.below_syncs += 1;
        self.changed.clear();
        let mut settled: Vec<(u64, Cover)> = std::mem::take(&mut self.unsynced).into_iter().collect();
        settled.sort_unstable_by_key(|&(page, _)| page);
        let mut urgent = false;
        for (page, cover) in settled {
            let Some(entry) = self.log.index.get(page) else { continue };
            match cover {
                Cover::Same(place) if place == entry.place && entry.dirty => {
                    let result = self.log.cleaned(page);
                    self.noted(result)?;
                }
                Cover::Newer(Some(place)) if place == entry.place => {
                    urgent = true;
                    self.declare_gone(page)?;
                }
                _ => {}
            }
        }
        Ok(urgent)
    }

    /// After a sync that failed nothing is known of what was written below: what the log has is queued again.
    fn queue_again(&mut self) {
        let unsynced = std::mem::take(&mut self.unsynced);
        for (page, cover) in unsynced {
            let entry = self.log.index.get(page);
            match (cover, entry) {
                (Cover::Same(place), Some(entry)) if entry.place == place && !self.pending.contains_key(&page) => {
                    let mut bytes = vec![0; self.page_bytes].into_boxed_slice();
                    if self.log.read(entry, &mut bytes).is_ok() {
                        self.pending.insert(page, Pending { bytes: Some(bytes), cover });
                    }
                }
                // The old copy must not come back while this program runs.
                (Cover::Newer(Some(_)), _) => {
                    self.unsynced.insert(page, cover);
                }
                _ => {}
            }
        }
    }

    /// Makes every version that was handed over durable: in the log, or below if the log does not have it. With
    /// `through` below in any case.
    pub fn flush(&mut self, through: bool) -> io::Result<()> {
        self.commit()?;
        let newer = self.unsynced.values().any(|cover| matches!(cover, Cover::Newer(_)));
        let past = newer || !self.changed.is_empty();
        if (past || through) && self.settle()? {
            self.sync_log()?;
        }
        Ok(())
    }

    fn make_room(&mut self) -> io::Result<()> {
        let rounds = 2 * u64::from(self.log.geometry().segments);
        for _ in 0..rounds {
            if self.log.free_segments() >= FREE_MIN {
                return Ok(());
            }
            self.reclaim()?;
        }
        Err(io::Error::new(io::ErrorKind::StorageFull, "every segment of the cache is full of pages that are needed"))
    }

    /// Frees the oldest segments (rule 6): several at a time on a large cache, for the price of one sync.
    fn reclaim(&mut self) -> io::Result<()> {
        let geometry = self.log.geometry();
        let wanted = (geometry.segments / 64).clamp(1, 8) as u64 * u64::from(geometry.segment_pages);
        let start = self.log.rear();
        let mut taken = Vec::new();
        let mut owed = false;
        // The copies of several segments are packed together: those of one alone might fill as many blocks as it frees.
        loop {
            let freed = taken.len() as u64 * u64::from(geometry.segment_pages);
            let no_room = self.log.free_segments() < FREE_MIN - 1;
            if freed >= wanted + (self.log.rear() - start) || (no_room && !taken.is_empty()) {
                break;
            }
            let Some(versions) = self.log.segment(taken.len()) else { break };
            for &(page, place) in &versions {
                owed |= self.empty_place(page, place)?;
            }
            taken.push(versions);
        }
        if owed && !mutant::is(Mutant::TailTooEarly) {
            self.commit()?;
            self.settle()?;
        }
        for (page, place) in taken.iter().flatten() {
            if self.log.index.get(*page).is_some_and(|entry| entry.place == *place) {
                self.log.index.remove(*page);
            }
        }
        taken.iter().for_each(|_| self.log.drop_oldest_segment());
        self.counts.segments_reclaimed += taken.len() as u64;
        if mutant::is(Mutant::ReuseTooEarly) { Ok(()) } else { self.sync_log() }
    }

    /// Sees to it that a place is not needed any more; true when that takes a sync of the backing store.
    fn empty_place(&mut self, page: u64, place: u64) -> io::Result<bool> {
        let Some(entry) = self.log.index.get(page).filter(|entry| entry.place == place) else { return Ok(false) };
        if entry.lost && !self.covers(page, place) {
            let result = self.log.lost(page);
            return self.noted(result).map(|()| false);
        }
        if !entry.resident && (!entry.dirty || mutant::is(Mutant::DirtyNotKept)) {
            return Ok(false);
        }
        if !entry.resident && self.covers(page, place) {
            return Ok(true);
        }
        let mut bytes = vec![0; self.page_bytes];
        if self.log.read(entry, &mut bytes).is_err() {
            return self.give_up(page, entry);
        }
        if !entry.resident {
            self.counts.rescued += 1;
            self.queue(page, &bytes, Cover::Same(place));
            return Ok(true);
        }
        self.counts.copied += 1;
        let to = self.log.append(page, &bytes, entry.dirty, true);
        let to = self.noted(to)?;
        self.moved(page, place, to);
        Ok(false)
    }

    /// A copy that reclaim cannot read: only a dirty one is a loss.
    fn give_up(&mut self, page: u64, entry: Entry) -> io::Result<bool> {
        if !self.is_owed(page, entry) {
            self.counts.clean_copies_bad += 1;
            return Ok(entry.dirty);
        }
        self.counts.pages_lost += 1;
        let result = self.log.lost(page);
        self.noted(result).map(|()| false)
    }

    /// Discards pages below of which the log and the queue hold nothing.
    pub fn discard_below(&mut self, pages: Range<u64>) -> io::Result<()> {
        if self.forgot && !self.broken {
            // Else a crash might bring back what was forgotten, until it is evicted.
            self.commit()?;
        }
        let at = pages.start * self.page_bytes as u64;
        let inside = (self.backing_bytes - at).min((pages.end - pages.start) * self.page_bytes as u64);
        self.changed.push(pages);
        self.backing.discard(at, inside)
    }

    /// Writes below every dirty version of the log, and makes it durable there.
    pub fn drain(&mut self) -> io::Result<()> {
        let mut owed: Vec<(u64, Entry)> =
            self.log.index.iter().filter(|&(page, entry)| !entry.lost && self.is_owed(page, entry)).collect();
        owed.sort_unstable_by_key(|&(page, _)| page);
        let mut bytes = vec![0; self.page_bytes];
        for (page, _) in owed {
            self.make_ready()?;
            // Making room may have moved it, or written it below.
            let Some(entry) = self.log.index.get(page).filter(|&now| self.is_owed(page, now)) else { continue };
            self.read_log(page, entry, &mut bytes)?;
            self.write_back(page, &bytes, entry.place);
        }
        self.commit()?;
        self.settle()?;
        self.sync_log()
    }

    /// Leaves the log in good order, with all that is known of what is clean. Comes after a flush.
    pub fn close(&mut self) -> io::Result<()> {
        self.settle()?;
        self.sync_log()?;
        let result = self.log.close();
        self.noted(result)
    }

    /// Gives the log up after its device failed: what only it has is queued as far as it can still be read. The rest is
    /// lost until it is written again.
    pub fn abandon_log(&mut self) {
        let owed: Vec<(u64, Entry)> =
            self.log.index.iter().filter(|&(page, entry)| self.is_owed(page, entry)).collect();
        for (page, entry) in owed {
            let mut bytes = vec![0; self.page_bytes];
            // What the queue may hold of the page is older, or it would cover this.
            if self.log.read(entry, &mut bytes).is_ok() {
                self.queue(page, &bytes, Cover::Newer(None));
            } else {
                self.counts.pages_lost += 1;
                self.log.index.update(page, |entry| entry.lost = true);
            }
        }
        self.log.index.retain_lost();
        // The device may refuse this too; then only a format helps, as the documentation says.
        let _refused = self.log.retire();
    }

    /// A flush once the log is given up.
    pub fn flush_without_log(&mut self) -> io::Result<()> {
        self.write_queue()?;
        self.backing.sync()?;
        self.counts.below_syncs += 1;
        self.unsynced.clear();
        self.changed.clear();
        Ok(())
    }

    /// Makes room in the queue when there is no log any more.
    pub fn make_ready_without_log(&mut self) -> io::Result<()> {
        if self.pending.len() >= self.pending_max { self.write_queue() } else { Ok(()) }
    }

    /// Queues a page to be discarded when there is no log any more.
    pub fn discard_without_log(&mut self, page: u64) {
        self.log.index.remove(page);
        self.pending.insert(page, Pending { bytes: None, cover: Cover::Newer(None) });
    }

    /// Writes a page when there is no log any more.
    pub fn write_without_log(&mut self, page: u64, bytes: &[u8]) {
        self.log.index.remove(page);
        self.queue(page, bytes, Cover::Newer(None));
    }

    /// Pages whose only copy was lost, ascending.
    pub fn lost_pages(&self) -> Vec<u64> {
        let mut lost: Vec<u64> = self.log.index.iter().filter(|(_, entry)| entry.lost).map(|(page, _)| page).collect();
        lost.sort_unstable();
        lost
    }
}
