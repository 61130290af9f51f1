//! Dirty pages that the backing store refuses: what a stop has to say of them.
//!
//! Pages of one flight stay queued together when one of them cannot be written, so that it takes another try, of each by itself,
//! to tell which it is. Most are in the log all the same: they are dirty at the next open. One that a policy had written past
//! the log is not, and the cache cannot be closed with it; no flush has called it durable.

use super::flight::Cover;
use super::keeper::Keeper;
use super::upkeep;
use std::collections::BTreeSet;
use std::io;

/// Tries that fail one after another until the rest is taken for refused untried: each may take as long as a device takes to
/// give up.
const FAILURES_MAX: usize = 16;

/// Dirty pages that could not be written to the backing store, and why.
#[derive(Debug, Default)]
pub struct Refused {
    /// The pages, ascending.
    pub pages: Vec<u64>,
    /// What the backing store answered first.
    pub error: Option<io::Error>,
}

impl Keeper {
    /// Notes that a page was to be written below, and could not be.
    pub(super) fn note_refused(&mut self, page: u64) {
        self.refused.insert(page);
    }

    /// Notes that a page has been written below.
    pub(super) fn note_taken(&mut self, page: u64) {
        if !self.refused.is_empty() {
            self.refused.remove(&page);
        }
    }

    /// Writes every page that was refused once more, by itself, and syncs below; those that are refused again. They leave the
    /// queue as far as the log has them, so that the cache can be closed in good order.
    ///
    /// # Errors
    /// What the log's device answered.
    pub(super) fn retry_refused(&mut self) -> io::Result<Refused> {
        let pages = std::mem::take(&mut self.refused);
        if pages.is_empty() {
            return Ok(Refused::default());
        }
        for &page in &pages {
            let owed = self.log.index().get(page).filter(|&entry| self.is_owed(page, entry) && !entry.lost);
            if let Some(entry) = owed.filter(|_| !self.pending.contains_key(&page)) {
                self.write_back_logged(page, entry);
            }
        }
        upkeep::sync_log(self)?;
        let mut error = None;
        let mut failures = 0;
        for &page in &pages {
            if failures == FAILURES_MAX {
                self.note_refused(page);
                continue;
            }
            let flight = self.take_off_alone(page);
            let result = upkeep::fly(self, flight);
            failures = if result.is_err() { failures + 1 } else { 0 };
            error = error.or(result.err());
        }
        match upkeep::settle(self) {
            Ok(urgent) if urgent => upkeep::sync_log(self)?,
            settled => error = error.or(settled.err()),
        }
        let pages = std::mem::take(&mut self.refused);
        self.leave_to_the_log(&pages);
        Ok(Refused { pages: pages.into_iter().collect(), error })
    }

    /// Takes those of these pages off the queue that the log has: they stay dirty there.
    fn leave_to_the_log(&mut self, pages: &BTreeSet<u64>) {
        for page in pages {
            let Some(entry) = self.log.index().get(*page).filter(|entry| entry.dirty && !entry.lost) else { continue };
            if self.pending.get(page).is_some_and(|pending| pending.cover == Cover::Same(entry.place)) {
                self.pending.remove(page);
            }
        }
    }
}
