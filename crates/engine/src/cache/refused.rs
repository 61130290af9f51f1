//! Dirty pages that the backing store refuses: what a stop has to say of them.
//!
//! Pages of one flight stay queued together when one of them cannot be written, so that it takes another try, of each by itself,
//! to tell which it is. Most are in the log all the same: they are dirty at the next open. One that a policy had written past
//! the log is not, and the cache cannot be closed with it; no flush has called it durable.

use super::maintenance;
use super::watermarks::DEPTH_MAX;
use super::write_back::WriteBack;
use super::write_batch::LogRelation;
use std::collections::BTreeSet;
use std::io;

/// Tries that fail one after another until the rest of a stretch is taken for refused untried, and stretches in which all tries failed
/// until all the rest is: each may take as long as a device takes to give up.
const FAILURES_MAX: usize = 16;

/// A stretch of the backing store, in bytes: a region of a file, where that is a directory.
const STRETCH_BYTES: u64 = 1 << 30;

/// Dirty pages that could not be written to the backing store, and why.
#[derive(Debug, Default)]
pub struct Refused {
    /// The pages, ascending.
    pub pages: Vec<u64>,
    /// First error of the backing store.
    pub error: Option<io::Error>,
}

impl WriteBack {
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

    /// Writes every page that was refused once more, by itself where it fails with others, and syncs below. Returns
    /// those that are refused again. They leave the queue as far as the log has them, so that the cache can be closed
    /// in good order.
    ///
    /// # Errors
    /// The error that the log's device returned.
    pub(super) fn retry_refused(&mut self) -> io::Result<Refused> {
        let pages: Vec<u64> = self.refused.iter().copied().collect();
        self.write_what_can_be(&pages)
    }

    /// Writes every dirty page below that the backing store takes, and syncs. Returns those that it refuses, as
    /// [`retry_refused`](Keeper::retry_refused).
    ///
    /// # Errors
    /// The error that the log's device returned.
    pub(super) fn drain_past_refused(&mut self) -> io::Result<Refused> {
        let blocks = 0..self.store.index().blocks();
        let mut pages: BTreeSet<u64> = self.owed_in(blocks).collect();
        // What is queued is owed, and on its way.
        pages.extend(self.dirty_queue.keys().chain(&self.refused));
        self.write_what_can_be(&Vec::from_iter(pages))
    }

    /// Writes those of these ascending pages below that have to be there and can be.
    fn write_what_can_be(&mut self, pages: &[u64]) -> io::Result<Refused> {
        self.refused.clear();
        if pages.is_empty() {
            return Ok(Refused::default());
        }
        let mut error = None;
        let mut patience = Patience::new(STRETCH_BYTES / self.page_bytes as u64);
        for pages in pages.chunks(DEPTH_MAX) {
            for &page in pages {
                let owed = self.store.index().get(page).filter(|&entry| self.is_owed(page, entry) && !entry.lost);
                if let Some(entry) = owed.filter(|_| !self.dirty_queue.contains_key(&page)) {
                    self.write_back_stored(page, entry);
                }
            }
            maintenance::sync_store(self)?;
            if !patience.is_over(pages[0]) {
                let together = self.begin_batch_only(pages);
                if maintenance::fly(self, together).is_ok() {
                    patience.note(true);
                    continue;
                }
            }
            for &page in pages {
                if patience.is_over(page) {
                    self.note_refused(page);
                    continue;
                }
                let alone = self.begin_batch_only(&[page]);
                let result = maintenance::fly(self, alone);
                patience.note(result.is_ok());
                error = error.or(result.err());
            }
            let refused = pages.iter().copied().filter(|page| self.refused.contains(page)).collect();
            self.leave_to_the_log(&refused);
        }
        match maintenance::settle(self) {
            Ok(urgent) if urgent => maintenance::sync_store(self)?,
            settled => error = error.or(settled.err()),
        }
        let pages = std::mem::take(&mut self.refused);
        self.leave_to_the_log(&pages);
        Ok(Refused { pages: pages.into_iter().collect(), error })
    }

    /// Takes those of these pages off the queue that the log has: they stay dirty there.
    fn leave_to_the_log(&mut self, pages: &BTreeSet<u64>) {
        for page in pages {
            let Some(entry) = self.store.index().get(*page).filter(|entry| entry.dirty && !entry.lost) else {
                continue;
            };
            if self.dirty_queue.get(page).is_some_and(|queued| queued.relation == LogRelation::Same(entry.address)) {
                self.dirty_queue.remove(page);
            }
        }
    }
}

/// Patience with tries that fail: it says when they end.
struct Patience {
    stretch_pages: u64,
    /// The stretch of the last try.
    stretch: u64,
    /// Tries that failed there since one succeeded.
    failures: usize,
    /// Stretches before it without a try that succeeded, one after another.
    stretches: usize,
}

impl Patience {
    fn new(stretch_pages: u64) -> Self {
        Patience { stretch_pages, stretch: 0, failures: 0, stretches: 0 }
    }

    /// True if a page is not worth a try; pages come in ascending order.
    fn is_over(&mut self, page: u64) -> bool {
        let stretch = page / self.stretch_pages;
        if stretch != self.stretch {
            self.stretches += usize::from(self.failures > 0);
            (self.stretch, self.failures) = (stretch, 0);
        }
        self.failures.max(self.stretches) >= FAILURES_MAX
    }

    fn note(&mut self, succeeded: bool) {
        if succeeded {
            (self.failures, self.stretches) = (0, 0);
        } else {
            self.failures += 1;
        }
    }
}
