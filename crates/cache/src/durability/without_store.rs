//! The write-back state after a failure of the cache device: what can be saved goes below, the rest is listed as lost.

use super::ages::Aging;
use super::write_back::WriteBack;
use super::write_batch::{LogRelation, Payload};
use entresol_store::Entry;

impl WriteBack {
    /// Gives the store up after its device failed. Versions that only the store has are queued as far as they can
    /// still be read. The other pages are lost until they are written again.
    pub fn abandon_store(&mut self) {
        self.aging = Aging::new(None);
        self.store.drop_ages();
        // Versions queued by log address are not safe either.
        self.dirty_queue.retain(|_, queued| !matches!(queued.payload, Payload::Stored(_)));
        self.writing = 0;
        let owed: Vec<(u64, Entry)> =
            self.store.index().iter().filter(|&(page, entry)| self.is_owed(page, entry)).collect();
        let lost_before = self.counts.pages_lost;
        for (page, entry) in owed {
            let mut bytes = vec![0; self.page_bytes];
            // A queued version of the page is older, or it would cover this one.
            if self.store.read(entry, &mut bytes).is_ok() {
                let bytes = self.keep(page, &bytes);
                self.queue(page, Payload::Bytes(bytes), LogRelation::Newer(None));
            } else {
                self.counts.pages_lost += 1;
                self.store.index_mut().update(page, |entry| entry.lost = true);
            }
        }
        if self.counts.pages_lost > lost_before {
            // Some may belong to writes that no flush has covered: the next flush must not report them as durable.
            self.note_failed_changes();
        }
        self.store.index_mut().retain_lost();
        // The device may refuse this too; then only a format helps, as the documentation says.
        let _refused = self.store.retire();
    }

    /// As [`make_void`](WriteBack::make_void) when the store has been given up.
    pub fn forget_without_store(&mut self, page: u64) {
        self.dirty_queue.remove(&page);
        self.store.index_mut().remove(page);
    }

    /// Queues a discard of a page when the store has been given up.
    pub fn discard_without_store(&mut self, page: u64) {
        self.store.index_mut().remove(page);
        self.queue(page, Payload::Discard, LogRelation::Newer(None));
    }

    /// Queues a write of a page when the store has been given up.
    pub fn write_without_store(&mut self, page: u64, bytes: &[u8]) {
        self.store.index_mut().remove(page);
        let bytes = self.keep(page, bytes);
        self.queue(page, Payload::Bytes(bytes), LogRelation::Newer(None));
    }

    /// Pages whose only copy was lost, ascending.
    pub fn lost_pages(&self) -> Vec<u64> {
        self.store.index().lost_among(0..u64::MAX).collect()
    }
}
