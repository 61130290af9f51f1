//! Pages of the queue on their way to the backing store: taken off the queue, written without the lock, landed.

use super::keeper::{Keeper, Pending};
use super::upkeep::{read_pages, runs};
use crate::disk::{AlignedBytes, Disk, Transfer};
use crate::mutant::{self, Mutant};
use crate::store::{Entry, check_page};
use std::io;
use std::sync::Arc;

/// Pages that are settled in one turn after a sync below.
const SETTLED_PER_TURN: usize = 64;

/// Relation between the version that is written below and the log's version of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cover {
    /// Same version as the one at this place.
    Same(u64),
    /// Newer version than what the log holds; a dirty copy at this place is obsolete once this one is durable.
    Newer(Option<u64>),
}

impl Cover {
    /// It is a version that the log does not have.
    pub fn is_past(self) -> bool {
        matches!(self, Cover::Newer(_))
    }
}

/// Change that is to be made to a page below.
#[derive(Clone)]
pub(super) enum Cargo {
    /// These bytes are written.
    Bytes(Arc<[u8]>),
    /// The bytes of this version in the log, which is read when the queue is written.
    Logged(Entry),
    /// It is discarded.
    Discard,
}

/// A page that was written below and is not known to be durable there.
pub(super) struct Sent {
    pub cover: Cover,
    /// Payload that was sent, kept as long as the log does not have it: after a sync that fails nobody else may have it
    /// any more. None where the log has it, or somebody else changed the page below.
    pub cargo: Option<Cargo>,
    /// The second at which it was taken: what came later of the page is not in it.
    taken: u64,
}

impl Sent {
    /// Page below whose bytes the log has, or that somebody else changed.
    pub fn elsewhere(cover: Cover, taken: u64) -> Self {
        Sent { cover, cargo: None, taken }
    }
}

/// A page of the queue while it is being written.
pub(super) struct Passenger {
    page: u64,
    pub cargo: Cargo,
    pub cover: Cover,
    pub ticket: u64,
    taken: u64,
    /// Offset of the version on the device of the log in bytes, if its bytes are to come from there.
    pub byte_in_log: u64,
}

/// Pages that are being written below.
pub(super) struct Flight {
    /// By page.
    pages: Vec<Passenger>,
    pub page_bytes: usize,
    pub backing_bytes: u64,
}

/// Result of a [`Flight`].
pub(super) struct Landing {
    /// Pages whose bytes could not be read from the log, by their position.
    pub bad: Vec<(usize, io::Error)>,
    /// Result of writing all the others below: success if all of them are there.
    pub result: io::Result<()>,
    /// Pages read from the log.
    pub log_reads: u64,
    /// Pages written below.
    pub pages: u64,
    /// Writes by which that was done.
    pub ios: u64,
}

impl Keeper {
    /// Takes what is queued, to be written below without the lock; it stays in the queue until it is there.
    pub fn take_off(&mut self) -> Flight {
        let waiting = self.pending.iter().filter(|(_, pending)| !pending.flying);
        let pages = waiting.map(|(&page, _)| page).collect();
        self.board(pages)
    }

    /// Takes those of these pages that are queued and need not wait for the log, and what goes along; they are ascending.
    pub fn take_off_with(&mut self, pages: &[u64]) -> Flight {
        let is_ripe = |page: &&u64| self.pending.get(page).is_some_and(|pending| self.is_ripe(pending));
        let pages: Vec<u64> = pages.iter().filter(is_ripe).copied().collect();
        let pages = self.with_neighbours(&pages);
        self.board(pages)
    }

    /// Takes those of these pages that are queued and need not wait for the log, and nothing beside them; they are ascending.
    pub fn take_off_only(&mut self, pages: &[u64]) -> Flight {
        let is_ripe = |page: &&u64| self.pending.get(page).is_some_and(|pending| self.is_ripe(pending));
        let ripe = pages.iter().filter(is_ripe).copied().collect();
        self.board(ripe)
    }

    /// Takes, in the order of pages and going on where the last such flight ended, what need not wait for the log: so many
    /// runs of neighbours at most, and what goes along.
    pub fn take_off_some(&mut self, runs_max: usize) -> Flight {
        let mut pages = self.ripe_from(self.sweep, runs_max);
        if pages.is_empty() {
            pages = self.ripe_from(0, runs_max);
        }
        let pages = self.with_neighbours(&pages);
        self.sweep = pages.last().map_or(0, |page| page + 1);
        self.board(pages)
    }

    /// Is a page being written below just now?
    pub fn is_flying(&self, page: u64) -> bool {
        self.pending.get(&page).is_some_and(|pending| pending.flying)
    }

    /// May it be written now (rule 1)? What the log does not have waits for the word of its tail as well: a crash would bring
    /// back what has been dropped (rule 3).
    fn is_ripe(&self, pending: &Pending) -> bool {
        let is_durable = match pending.cover {
            Cover::Same(_) => self.log.is_written_durably(pending.after),
            Cover::Newer(_) if mutant::is(Mutant::TailNotAwaited) => self.log.is_written_durably(pending.after),
            Cover::Newer(_) => self.log.is_durable_to(pending.after),
        };
        !pending.flying && (is_durable || mutant::is(Mutant::UnripeTaken))
    }

    fn ripe_from(&self, first: u64, runs_max: usize) -> Vec<u64> {
        let mut pages: Vec<u64> = Vec::new();
        let mut runs = 0;
        for (&page, pending) in self.pending.range(first..) {
            if !self.is_ripe(pending) {
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

    fn board(&mut self, pages: Vec<u64>) -> Flight {
        self.flying += pages.len();
        let board = |page| {
            let pending = self.pending.get_mut(&page).expect("it was found in the queue");
            pending.flying = true;
            let byte_in_log = match pending.cargo {
                Cargo::Logged(entry) => self.log.byte_of(entry.place),
                _ => 0,
            };
            let &mut Pending { ref cargo, cover, ticket, taken, .. } = pending;
            Passenger { page, cargo: cargo.clone(), cover, ticket, taken, byte_in_log }
        };
        let pages = pages.into_iter().map(board).collect();
        Flight { pages, page_bytes: self.page_bytes, backing_bytes: self.backing_bytes }
    }

    /// Puts back a flight that was not written: its pages stay queued.
    pub fn call_back(&mut self, flight: Flight) {
        for passenger in flight.pages {
            self.stay(&passenger);
        }
    }

    /// Its turn in the queue comes again; the place in the log where the bytes are, if there, may be another by now.
    fn stay(&mut self, passenger: &Passenger) {
        let Some(pending) = self.pending.get_mut(&passenger.page).filter(|now| now.ticket == passenger.ticket) else {
            return;
        };
        pending.flying = false;
        self.flying -= 1;
        let newest = self.log.index().get(passenger.page).map(|entry| entry.place);
        if matches!(pending.cargo, Cargo::Logged(entry) if newest != Some(entry.place)) {
            self.pending.remove(&passenger.page);
        }
    }

    /// Ends a flight that has been written below, or has failed.
    pub fn land(&mut self, flight: Flight, landing: Landing) -> io::Result<()> {
        self.log.count_reads(landing.log_reads);
        if landing.result.is_ok() {
            self.counts.below_pages += landing.pages;
        }
        self.counts.below_ios += landing.ios;
        let mut bad = landing.bad.into_iter().peekable();
        for (at, passenger) in flight.pages.into_iter().enumerate() {
            if let Some((_, error)) = bad.next_if(|(bad, _)| *bad == at) {
                self.bytes_are_bad(&passenger, error)?;
            } else if landing.result.is_err() {
                self.stay(&passenger);
                self.note_refused(passenger.page);
            } else {
                self.note_taken(passenger.page);
                let now = self.pending.get(&passenger.page).filter(|now| now.ticket == passenger.ticket);
                let cover = now.map_or(passenger.cover, |now| now.cover);
                if now.is_some() {
                    self.pending.remove(&passenger.page);
                    self.flying -= 1;
                }
                let cargo = cover.is_past().then_some(passenger.cargo);
                self.unsynced.insert(passenger.page, Sent { cover, cargo, taken: passenger.taken });
            }
        }
        landing.result
    }

    /// A version that was to be written below cannot be read from the log: only if it is still the newest that is a loss.
    fn bytes_are_bad(&mut self, passenger: &Passenger, error: io::Error) -> io::Result<()> {
        let page = passenger.page;
        if self.pending.get(&page).is_some_and(|now| now.ticket == passenger.ticket) {
            self.pending.remove(&page);
            self.flying -= 1;
        }
        let Some(entry) = self.log.index().get(page).filter(|&entry| self.is_owed(page, entry)) else { return Ok(()) };
        match passenger.cargo {
            Cargo::Logged(read) if read.place == entry.place => {
                // It is listed as lost, or tried again by whoever needs it next.
                let _listed = self.copy_is_bad(page, entry, error);
            }
            _ => {}
        }
        Ok(())
    }

    /// A sync of the backing store has ended.
    pub fn synced_below(&mut self, synced: io::Result<()>) -> io::Result<()> {
        if let Err(error) = synced {
            self.queue_again();
            return Err(error);
        }
        self.counts.below_syncs += 1;
        self.changed.clear();
        Ok(())
    }

    /// Draws the consequences of a sync of the backing store in the log, for some of the pages that it has covered; `urgent` becomes
    /// true when one of the consequences has to be durable before a flush may return. Whether there is more.
    pub fn settle_some(&mut self, sync: u64, urgent: &mut bool) -> io::Result<bool> {
        for _ in 0..SETTLED_PER_TURN {
            let Some((page, Sent { cover, taken, .. })) = self.unsynced.settled(sync) else { return Ok(false) };
            if let Some(entry) = self.log.index().get(page) {
                // What is durable of the log may be a dirty copy, older than what is durable below, that this one replaces.
                *urgent |= !self.log.is_version_durable(entry.place);
                match cover {
                    Cover::Same(place) if place == entry.place && entry.dirty && !self.is_superseded(page, place) => {
                        let result = self.log.cleaned(page);
                        self.noted(result)?;
                    }
                    Cover::Newer(Some(place)) if place == entry.place => {
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

    /// Is a newer version of the page on its way below, past the dirty copy at this place? Then that stays dirty until the newer
    /// one is durable (rule 4): were it clean, it would have to be gone before anything newer is written below (rule 3),
    /// which nobody waits for any more.
    fn is_superseded(&self, page: u64, place: u64) -> bool {
        let newer = self.pending.get(&page).is_some_and(|pending| pending.cover == Cover::Newer(Some(place)));
        newer && !mutant::is(Mutant::SupersededCleaned)
    }

    /// After a sync that failed nothing is known of what was written below, and the system may have dropped it: the next sync
    /// would succeed without it. So all of it is queued again but for what has been replaced meanwhile. What somebody else
    /// changed cannot be: flushes say so.
    fn queue_again(&mut self) {
        let mut unknown = !self.changed.is_empty();
        for (page, sent) in self.unsynced.take() {
            let entry = self.log.index().get(page);
            self.note_refused(page);
            if self.pending.contains_key(&page) {
                continue;
            }
            match sent {
                Sent { cover: Cover::Same(place), .. } => match entry.filter(|entry| entry.place == place) {
                    Some(entry) => self.write_back_logged(page, entry),
                    None => unknown |= self.is_broken(),
                },
                // The log would have something newer.
                Sent { cover: Cover::Newer(obsolete), cargo: Some(cargo), .. } => {
                    if entry.is_none_or(|entry| obsolete == Some(entry.place)) && !mutant::is(Mutant::PastNotKept) {
                        self.queue(page, cargo, Cover::Newer(obsolete));
                    }
                }
                // The old copy must not come back while this program runs.
                Sent { cover: Cover::Newer(obsolete), cargo: None, .. } => {
                    unknown = true;
                    if obsolete.is_some() {
                        self.unsynced.insert(page, sent);
                    }
                }
            }
        }
        self.changes_failed += u64::from(unknown);
    }
}

impl Flight {
    /// Is nobody aboard?
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Reads from the log what is to be written from there, then writes everything below in runs of neighbours.
    pub fn perform(&self, log: &dyn Disk, backing: &dyn Disk) -> Landing {
        let mut bytes = AlignedBytes::zeroed(self.pages.len() * self.page_bytes);
        let (bad, log_reads) = self.load(log, &mut bytes);
        let is_bad = |at: usize| bad.binary_search_by_key(&at, |&(bad, _)| bad).is_ok();
        let discards = |at: usize| matches!(self.pages[at].cargo, Cargo::Discard);
        let runs = runs(self.pages.len(), |at| {
            let neighbours = self.pages[at].page == self.pages[at - 1].page + 1;
            neighbours && !is_bad(at) && !is_bad(at - 1) && discards(at) == discards(at - 1)
        });
        let mut writes = Vec::new();
        let mut pages = 0;
        for run in runs.into_iter().filter(|run| !is_bad(run.start)) {
            let at = self.pages[run.start].page * self.page_bytes as u64;
            let inside = (self.backing_bytes - at).min((run.len() * self.page_bytes) as u64);
            // Where the store takes no discard, zeros are as good.
            if discards(run.start) && backing.discard(at, inside).is_ok() {
                continue;
            }
            pages += run.len() as u64;
            writes.push(Transfer::Write { at, bytes: &bytes[run.start * self.page_bytes..][..inside as usize] });
        }
        let ios = writes.len() as u64;
        let result = if writes.is_empty() { Ok(()) } else { backing.submit(&mut writes) };
        Landing { bad, result, log_reads, pages, ios }
    }

    /// Fills in the bytes; the positions of those that could not be read, ascending, and the number of reads.
    fn load(&self, log: &dyn Disk, bytes: &mut [u8]) -> (Vec<(usize, io::Error)>, u64) {
        let logged = |passenger: &Passenger| matches!(passenger.cargo, Cargo::Logged(_));
        let at: Vec<u64> = self.pages.iter().filter(|p| logged(p)).map(|p| p.byte_in_log).collect();
        let mut read = AlignedBytes::zeroed(at.len() * self.page_bytes);
        // One by one again if any of it fails.
        let _checked_below = read_pages(log, &at, &mut read, self.page_bytes);
        let mut read = read.chunks_exact_mut(self.page_bytes);
        let mut bad = Vec::new();
        for (n, (passenger, into)) in self.pages.iter().zip(bytes.chunks_exact_mut(self.page_bytes)).enumerate() {
            match &passenger.cargo {
                Cargo::Bytes(held) => into.copy_from_slice(held),
                Cargo::Discard => {}
                &Cargo::Logged(entry) => {
                    let from = read.next().expect("one for each");
                    let again = |from: &mut [u8]| log.read_at(passenger.byte_in_log, from);
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

/// Reads a page of a backing store of so many bytes; what lies beyond its end is zeros.
pub(super) fn read_page_below(backing: &dyn Disk, backing_bytes: u64, page: u64, bytes: &mut [u8]) -> io::Result<()> {
    let at = page * bytes.len() as u64;
    let inside = (backing_bytes - at).min(bytes.len() as u64) as usize;
    let (inside, beyond) = bytes.split_at_mut(inside);
    beyond.fill(0);
    backing.read_at(at, inside)
}
