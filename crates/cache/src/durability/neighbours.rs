//! Neighbours: dirty pages beside a page that is written below, and about as cold, go along in the same write.
//!
//! A disk takes milliseconds for a seek and microseconds for one more page there. A neighbour written at about the same
//! time as a page that the policy has given up would be given up soon. Single pages become runs, as in a log that a
//! database appends to and never reads. A page that is written again and again is younger than its neighbours, and
//! stays. The pages stay cached and become clean. The policy is not told, as in [cleaning ahead](super::clean).

use super::write_back::WriteBack;
use super::write_batch::LogRelation;
use entresol_store::mutant::{self, Mutant};

/// Bytes of a run up to which neighbours are added: at a disk's 150 MB/s they take half as long as its seek.
const RUN_BYTES: usize = 256 << 10;

/// A neighbour's age is at least one part in so many of the age of the page beside it.
const AGE_SHARE: u64 = 2;

impl WriteBack {
    /// Queues the neighbours that go along with these queued pages. Returns all of them; both lists are ascending.
    pub(crate) fn with_neighbours(&mut self, pages: &[u64]) -> Vec<u64> {
        let most = RUN_BYTES / self.page_bytes;
        let mut all = Vec::with_capacity(pages.len());
        for run in pages.chunk_by(|page, next| page + 1 == *next) {
            let (mut from, mut to) = (run[0], run[run.len() - 1] + 1);
            let mut space = most.saturating_sub(run.len());
            if let Some(age) = self.age_in_queue(from) {
                while space > 0 && from > 0 && self.takes_along(from - 1, age) {
                    from -= 1;
                    space -= 1;
                }
            }
            if let Some(age) = self.age_in_queue(to - 1) {
                while space > 0 && self.takes_along(to, age) {
                    to += 1;
                    space -= 1;
                }
            }
            all.extend(from..to);
        }
        all
    }

    /// Age of the store's version that a queued page is a copy of. None where the store has no such version.
    fn age_in_queue(&self, page: u64) -> Option<u64> {
        match self.dirty_queue.get(&page)?.relation {
            LogRelation::Same(address) => Some(self.store.age(address)),
            LogRelation::Newer(_) => None,
        }
    }

    /// Queues a page, and returns true, if it must be written below, may be now, and is not much younger than `age`.
    fn takes_along(&mut self, page: u64, age: u64) -> bool {
        let Some(entry) = self.store.index().get(page).filter(|entry| entry.dirty && !entry.lost) else { return false };
        let elsewhere = self.dirty_queue.contains_key(&page) || self.unsynced.contains(page);
        let durable = self.store.is_version_durable(entry.address) || mutant::is(Mutant::UnripeTaken);
        if elsewhere || !durable || AGE_SHARE * self.store.age(entry.address) < age {
            return false;
        }
        self.write_back_stored(page, entry);
        // No entry of the page is newer than its version, which is durable.
        self.dirty_queue.entry(page).and_modify(|queued| queued.after = 0);
        self.counts.cleaned_beside += 1;
        true
    }
}
