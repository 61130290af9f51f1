//! Rules 5 and 6 in a log and in segments: which versions of the oldest segments are still needed, and where they go.

use super::write_back::WriteBack;
use entresol_store::mutant::{self, Mutant};
use entresol_store::{Entry, page_crc};
use std::io;

impl WriteBack {
    /// True if the version must be read before its block can be given up.
    pub fn must_move(&self, page: u64, entry: Entry) -> bool {
        let evicted_dirty = entry.dirty && !mutant::is(Mutant::DirtyNotKept) && !self.covers(page, entry.address);
        !entry.lost && (entry.resident || evicted_dirty) && !self.awaits_void(page)
    }

    /// Makes the version at a log address superfluous there; true when that takes a sync of the backing store. `bytes`
    /// are those of the version, if they are known.
    pub fn empty_address(&mut self, page: u64, address: u64, bytes: Option<&[u8]>) -> io::Result<bool> {
        let Some(entry) = self.store.index().get(page).filter(|entry| entry.address == address) else {
            return Ok(false);
        };
        if entry.lost && !self.covers(page, address) {
            let result = self.store.lost(page);
            return self.noted(result).map(|()| false);
        }
        self.hasten_void(page);
        let entry = self.store.index().get(page).expect("what is void is there until it is declared gone");
        if !entry.resident && (!entry.dirty || mutant::is(Mutant::DirtyNotKept)) {
            return Ok(false);
        }
        if !entry.resident && self.covers(page, address) {
            return Ok(true);
        }
        let mut again = Vec::new();
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => {
                again.resize(self.page_bytes, 0);
                if self.store.read(entry, &mut again).is_err() {
                    return self.give_up(page, entry);
                }
                &again
            }
        };
        if !entry.resident {
            self.counts.evicted_dirty += 1;
            self.write_page_back(page, bytes.into(), address);
            return Ok(true);
        }
        self.counts.copied += 1;
        let appended = self.store.append(page, page_crc(bytes), entry.dirty, true);
        let (to, mut block) = self.noted(appended)?;
        self.replace_kept(page, false, &mut block);
        block.fill(bytes);
        self.moved(page, address, Entry { address: to, ..entry });
        Ok(false)
    }

    /// Pages of these versions that are not yet durable below, ascending. Each is queued or was written there.
    pub fn needed_of(&mut self, segments: &[Vec<(u64, u64)>]) -> io::Result<Vec<u64>> {
        let mut needed = Vec::new();
        for &(page, address) in segments.iter().flatten() {
            if self.store.index().get(page).is_some_and(|entry| entry.address == address && entry.dirty && !entry.lost)
                && self.empty_address(page, address, None)?
            {
                needed.push(page);
            }
        }
        needed.sort_unstable();
        Ok(needed)
    }

    /// Drops the oldest segments, whose versions these are.
    pub fn drop_segments(&mut self, segments: &[Vec<(u64, u64)>]) {
        for (page, address) in segments.iter().flatten() {
            if self.store.index().get(*page).is_some_and(|entry| entry.address == *address) {
                self.store.index_mut().remove(*page);
            }
        }
        segments.iter().for_each(|_| self.store.drop_oldest_segment());
        self.counts.segments_reclaimed += segments.len() as u64;
    }

    /// Handles a copy that reclaim cannot read: only one that is to be written below is a loss.
    fn give_up(&mut self, page: u64, entry: Entry) -> io::Result<bool> {
        if !self.is_owed(page, entry) {
            self.counts.clean_copies_bad += 1;
            return Ok(entry.dirty);
        }
        self.counts.pages_lost += 1;
        let result = self.store.lost(page);
        self.noted(result).map(|()| false)
    }
}
