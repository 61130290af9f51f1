//! Dirty pages that the backing store refuses, as a stop of the cache reports them.
//!
//! When a page cannot be written, all pages of its write batch stay queued. Only a try of each by itself tells which
//! page is refused. Most refused pages are in the store and are dirty at the next open. A page that bypasses the store
//! is not, and the cache cannot be closed with it; no flush has reported it as durable.

use super::{carry_out, settle, sync_store};
use crate::durability::{DEPTH_MAX, LogRelation, WriteBack};
use std::collections::BTreeSet;
use std::io;

/// Failed tries in a row after which the rest of a stretch counts as refused without a try, and stretches in a row with
/// failures only after which all the rest does. Each try may take as long as a device takes to give up.
const FAILURES_MAX: usize = 16;

/// Stretch of the backing store, in bytes: where that is a directory, the region of a file.
const STRETCH_BYTES: u64 = 1 << 30;

/// Dirty pages that could not be written to the backing store, and the reason.
#[derive(Debug, Default)]
pub struct Refused {
    /// The pages, ascending.
    pub pages: Vec<u64>,
    /// First error of the backing store.
    pub error: Option<io::Error>,
}

impl WriteBack {
    /// Writes every refused page once more, by itself where it fails with others, and syncs below. Returns the pages
    /// that are refused again. Those that the store has leave the queue, so that the cache can be closed in good order.
    ///
    /// # Errors
    /// The error that the cache device returned.
    pub(crate) fn retry_refused(&mut self) -> io::Result<Refused> {
        let pages: Vec<u64> = self.refused.iter().copied().collect();
        self.write_what_can_be(&pages)
    }

    /// Writes every dirty page below that the backing store takes, and syncs. Returns those that it refuses, as
    /// [`retry_refused`](WriteBack::retry_refused).
    ///
    /// # Errors
    /// The error that the cache device returned.
    pub(crate) fn drain_past_refused(&mut self) -> io::Result<Refused> {
        let blocks = 0..self.store.index().blocks();
        let mut pages: BTreeSet<u64> = self.owed_in(blocks).collect();
        // Queued pages are still to be written below, and on their way.
        pages.extend(self.dirty_queue.keys().chain(&self.refused));
        self.write_what_can_be(&Vec::from_iter(pages))
    }

    /// Writes below those of these ascending pages that have to be there and can be written.
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
            sync_store(self)?;
            if !patience.is_over(pages[0]) {
                let together = self.begin_batch_only(pages);
                if carry_out(self, together).is_ok() {
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
                let result = carry_out(self, alone);
                patience.note(result.is_ok());
                error = error.or(result.err());
            }
            let refused = pages.iter().copied().filter(|page| self.refused.contains(page)).collect();
            self.leave_to_the_log(&refused);
        }
        match settle(self) {
            Ok(urgent) if urgent => sync_store(self)?,
            settled => error = error.or(settled.err()),
        }
        let pages = std::mem::take(&mut self.refused);
        self.leave_to_the_log(&pages);
        Ok(Refused { pages: pages.into_iter().collect(), error })
    }

    /// Takes those of these pages off the queue that the store has: they stay dirty there.
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

/// Decides when failing tries end.
struct Patience {
    stretch_pages: u64,
    /// Stretch of the last try.
    stretch: u64,
    /// Failed tries in that stretch since the last success.
    failures: usize,
    /// Earlier stretches in a row with failures and no success.
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
