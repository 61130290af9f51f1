//! Neighbours of what is written below: dirty pages beside one that is on its way, about as cold, go along in the same write.
//!
//! A disk takes milliseconds to come to a place and microseconds for one more page there. What lies beside a page that the
//! policy has given up, and was written about when that was, would be given up soon: of a log that a database appends to and never
//! reads, single pages become runs. What is written again and again is younger than its neighbours, and stays. The pages stay
//! cached and become clean; as in [cleaning ahead](super::clean), the policy is not told.

use super::write_back::WriteBack;
use super::write_batch::LogRelation;
use crate::mutant::{self, Mutant};

/// Bytes of a run that neighbours are added to: at the 150 MB/s of a disk as long as half of its seek.
const RUN_BYTES: usize = 256 << 10;

/// A neighbour has been in the cache at least this part of the time that the page beside it has.
const AGE_SHARE: u64 = 2;

impl WriteBack {
    /// Queues the neighbours that go along with these pages of the queue; all of them, ascending as these are.
    pub(super) fn with_neighbours(&mut self, pages: &[u64]) -> Vec<u64> {
        let most = RUN_BYTES / self.page_bytes;
        let mut all = Vec::with_capacity(pages.len());
        for run in pages.chunk_by(|page, next| page + 1 == *next) {
            let (mut from, mut to) = (run[0], run[run.len() - 1] + 1);
            let mut room = most.saturating_sub(run.len());
            if let Some(age) = self.age_in_queue(from) {
                while room > 0 && from > 0 && self.takes_along(from - 1, age) {
                    from -= 1;
                    room -= 1;
                }
            }
            if let Some(age) = self.age_in_queue(to - 1) {
                while room > 0 && self.takes_along(to, age) {
                    to += 1;
                    room -= 1;
                }
            }
            all.extend(from..to);
        }
        all
    }

    /// The age of the version that a page of the queue is a copy of; none where the log has no such.
    fn age_in_queue(&self, page: u64) -> Option<u64> {
        match self.dirty_queue.get(&page)?.relation {
            LogRelation::Same(address) => Some(self.store.age(address)),
            LogRelation::Newer(_) => None,
        }
    }

    /// Queues a page if it has to be written below, may be now, and is not much younger than a page of this age.
    fn takes_along(&mut self, page: u64, age: u64) -> bool {
        let Some(entry) = self.store.index().get(page).filter(|entry| entry.dirty && !entry.lost) else { return false };
        let elsewhere = self.dirty_queue.contains_key(&page) || self.unsynced.contains(page);
        let durable = self.store.is_version_durable(entry.address) || mutant::is(Mutant::UnripeTaken);
        if elsewhere || !durable || AGE_SHARE * self.store.age(entry.address) < age {
            return false;
        }
        self.write_back_stored(page, entry);
        // Nothing was appended of it since its version, which is durable.
        self.dirty_queue.entry(page).and_modify(|queued| queued.after = 0);
        self.counts.cleaned_beside += 1;
        true
    }
}
