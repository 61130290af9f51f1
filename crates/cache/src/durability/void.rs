//! Rule 7: pages that somebody discards, or changes in the backing store without the cache. No held version of them is
//! served or written below any more.

use super::write_back::WriteBack;
use super::write_batch::{InFlight, LogRelation};
use entresol_store::Entry;
use entresol_store::mutant::{self, Mutant};
use std::io;
use std::ops::Range;

impl WriteBack {
    /// Invalidates the queued and stored versions of a page that somebody else changed in the backing store.
    pub fn make_void(&mut self, page: u64) {
        self.is_void(page);
        if let Some(address) = self.supersede(page) {
            let void = self.note_void(page);
            self.dirty_queue.remove(&page);
            self.unsynced.insert(page, InFlight::changed_below(address, void));
        } else {
            // A newer version than the store's clean copy may be dropped before that is declared gone.
            if let Some(void) = self.store.index().get(page).and_then(|_| self.note_void(page)) {
                self.voids.insert(page, void);
            }
            self.dirty_queue.remove(&page);
            self.unsynced.remove(page);
        }
    }

    /// Declares an invalidated page gone in the store. A dirty copy is obsolete only once the version below is durable.
    pub fn declare_void(&mut self, page: u64) -> io::Result<()> {
        let is_obsolete = |entry: &Entry| !entry.dirty || mutant::is(Mutant::GoneTooEarly);
        if self.store.index().get(page).filter(is_obsolete).is_some() {
            self.declare_gone(page)?;
        }
        self.voids.remove(&page);
        Ok(())
    }

    /// Begins to invalidate pages that were changed below, bypassing the queue, and not synced since: none is queued
    /// any more.
    pub fn begin_void(&mut self, pages: Range<u64>) {
        let queued: Vec<u64> = self.dirty_queue.range(pages.clone()).map(|(&page, _)| page).collect();
        for page in queued {
            let queued = self.dirty_queue.remove(&page);
            // What the arena has of a page counts until the page is invalid there: else an older version would, after a
            // kill meanwhile.
            let counts = self.arena.is_some() && !mutant::is(Mutant::ArenaQueuedFreed);
            self.voided.extend(queued.filter(|_| counts));
        }
        if !mutant::is(Mutant::ForgottenNotSynced) {
            self.note_changed(pages.clone());
        }
        self.voiding = Some(pages).filter(|_| !mutant::is(Mutant::VoidQueued));
    }

    /// True if a page is about to be invalidated and is not yet.
    pub(crate) fn awaits_void(&self, page: u64) -> bool {
        let is_within = self.voiding.as_ref().is_some_and(|pages| pages.contains(&page));
        is_within
            && !matches!(self.unsynced.get(page), Some(InFlight { relation: LogRelation::Newer(_), payload: None, .. }))
    }

    /// Invalidates a page ahead of its part of the range: its block is wanted, and the page can no longer be queued.
    pub(crate) fn hasten_void(&mut self, page: u64) {
        if self.awaits_void(page) && !mutant::is(Mutant::VoidAwaited) {
            self.make_void(page);
        }
    }

    /// Ends an invalidation: all of the range is invalid, durably so once the store is durable up to here.
    pub fn end_void(&mut self) {
        self.voiding = None;
        self.voided.clear();
        self.forgot = self.store.rear();
    }

    /// True if an invalidation is not yet durable.
    pub fn must_commit_what_was_forgotten(&self) -> bool {
        !self.is_broken() && !self.store.is_durable_to(self.forgot)
    }

    /// Notes that pages are about to be changed below, bypassing the queue. Returns their first byte and size in bytes.
    pub fn changes_below(&mut self, pages: Range<u64>) -> (u64, u64) {
        let at = pages.start * self.page_bytes as u64;
        let inside = (self.backing_bytes - at).min((pages.end - pages.start) * self.page_bytes as u64);
        self.note_changed(pages);
        (at, inside)
    }

    pub(crate) fn declare_gone(&mut self, page: u64) -> io::Result<()> {
        if mutant::is(Mutant::NoGone) {
            self.store.index_mut().remove(page);
            return Ok(());
        }
        let result = self.store.gone(page);
        self.noted(result)
    }

    /// True if the queue, the store or the account of unsynced writes holds something of a page.
    pub fn holds(&self, page: u64) -> bool {
        self.store.index().get(page).is_some() || self.dirty_queue.contains_key(&page) || self.unsynced.contains(page)
    }

    /// Pages of a range of which the queue, the store or the account of unsynced writes holds something, ascending.
    #[cfg(test)]
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
}
