//! Reclaim in the layouts with slots: gives up slots that the policy does not hold, or empties segments of them, and
//! renews the journal's oldest blocks.

use super::segment_reclaim::empty_segments;
use super::{StoreAccess, settle, sync_store, write_these};
use crate::durability::WriteBack;
use entresol_disk::{AlignedBytes, Disk};
use entresol_store::Entry;
use entresol_store::mutant::{self, Mutant};
use std::io;
use std::ops::Range;

/// Rounds of the journal's ring that one renewal may rewrite before the journal counts as too full.
const ROUNDS_MAX: u64 = 3;

/// Frees slots, or segments of them; false in the log layout, where it does nothing. Segments that are emptied `ahead` of
/// need are free after later syncs, unless requests wait for them.
pub(crate) fn reclaim_slots(access: &mut impl StoreAccess, ahead: bool) -> io::Result<bool> {
    if access.write_back().store.slots().is_none() {
        return Ok(false);
    }
    if renew_journal(access)? && mutant::is(Mutant::BlockTooEarly) {
        return Ok(true);
    }
    if access.write_back().reclaim.is_some() {
        empty_segments(access, ahead)?;
    } else {
        free_slots(access)?;
    }
    let later = ahead && access.write_back().reclaim.is_some() && !access.write_back().awaits_segments();
    if later || !access.write_back().store.slots().is_some_and(|slots| slots.has_waiting()) {
        return Ok(true);
    }
    free_waiting(access)?;
    Ok(true)
}

/// Makes free what only waits for a sync: segments of the log, or slots.
pub(super) fn free_waiting(access: &mut impl StoreAccess) -> io::Result<()> {
    sync_store(access)?;
    // A slot is written again only when a durable block states that the entries which freed it are durable.
    let Some(slots) = access.write_back().store.slots().filter(|slots| slots.has_waiting()) else { return Ok(()) };
    slots.state_what_is_durable();
    sync_store(access)
}

/// Repeats the entries of the journal's oldest blocks that still hold, while few blocks are free. True if it did.
fn renew_journal(access: &mut impl StoreAccess) -> io::Result<bool> {
    let mut renewed = 0;
    loop {
        // Where all entries of the oldest blocks hold, each block given up costs one written, at the next sync.
        if access.write_back().store.slots().is_some_and(|slots| slots.awaits_blocks()) {
            sync_store(access)?;
        }
        let begun = renewed > 0;
        let Some(oldest) = access.write_back().store.slots().and_then(|slots| slots.oldest_blocks(begun)) else {
            break;
        };
        renewed += oldest.end - oldest.start;
        renew(access, oldest)?;
        let write_back = access.write_back();
        // After a round or two all entries that hold have been repeated. Only a journal that this program did not
        // write holds more than fits.
        if write_back.store.slots().is_some_and(|slots| renewed > ROUNDS_MAX * slots.journal_bytes()) {
            let error = io::Error::new(io::ErrorKind::StorageFull, "the cache's journal has more entries than fit");
            return write_back.noted(Err(error));
        }
    }
    if renewed > 0 && !mutant::is(Mutant::BlockTooEarly) {
        sync_store(access)?;
    }
    Ok(renewed > 0)
}

fn renew(access: &mut impl StoreAccess, oldest: Range<u64>) -> io::Result<()> {
    let write_back = access.write_back();
    let disk = write_back.store.disk().clone();
    let mut bytes = AlignedBytes::zeroed((oldest.end - oldest.start) as usize);
    let read = access.unlocked(|| disk.read_at(oldest.start, &mut bytes))?;
    let write_back = access.write_back();
    write_back.store.count_reads(1);
    let is_whole = |write_back: &mut WriteBack, bytes: &[u8]| {
        write_back.store.slots().is_some_and(|slots| slots.are_oldest(bytes))
    };
    if read.is_ok() && is_whole(write_back, &bytes) {
        return renew_from(write_back, &bytes, &[]);
    }
    // A second read: the bytes may have been damaged on the way from the device.
    let again = disk.read_at(oldest.start, &mut bytes);
    write_back.noted(again)?;
    if is_whole(write_back, &bytes) {
        return renew_from(write_back, &bytes, &[]);
    }
    // The block after each one has a copy of it, once that block is on the device.
    sync_store(access)?;
    let write_back = access.write_back();
    let slots = write_back.store.slots().expect("the layout of a store does not change");
    let byte_after = slots.byte_after_oldest(bytes.len());
    let mut after = AlignedBytes::zeroed(slots.geometry().page_bytes as usize);
    for _ in 0..if mutant::is(Mutant::ReadOnce) { 1 } else { 2 } {
        let read = disk.read_at(oldest.start, &mut bytes).and_then(|()| disk.read_at(byte_after, &mut after));
        write_back.noted(read)?;
        if write_back.store.slots().is_some_and(|slots| slots.can_mend(&bytes, &after)) {
            break;
        }
    }
    renew_from(write_back, &bytes, &after)
}

/// Renews the oldest blocks from their bytes, with the help of the block after them.
fn renew_from(write_back: &mut WriteBack, blocks: &[u8], after: &[u8]) -> io::Result<()> {
    let slots = write_back.store.slots().expect("the layout of a store does not change");
    let renewed = slots.renew(blocks, after);
    write_back.noted(renewed)
}

/// Gives up slots whose pages the policy does not hold. Slots of pages that the backing store has come first, since
/// dirty ones have to be written there before. (The policy does not count a slot as held while the page is in memory,
/// even after a flush has put a copy there.)
fn free_slots(access: &mut impl StoreAccess) -> io::Result<()> {
    let write_back = access.write_back();
    let (enough, enough_owed) = write_back.enough_slots();
    for (page, entry) in write_back.unheld_slots(enough, false) {
        write_back.reclaim_clean_slots(page, entry)?;
    }
    let mut owed = Vec::new();
    for (page, entry) in write_back.unheld_slots(enough_owed, true) {
        if write_back.reclaim_slots(page, entry)? {
            owed.push((page, entry));
        }
    }
    if owed.is_empty() {
        return Ok(());
    }
    if !mutant::is(Mutant::TailTooEarly) {
        let mut pages: Vec<u64> = owed.iter().map(|&(page, _)| page).collect();
        pages.sort_unstable();
        write_these(access, &pages)?;
        settle(access)?;
    }
    let write_back = access.write_back();
    for (page, entry) in owed {
        // A page that could not be written below keeps its slot and is tried again.
        write_back.reclaim_clean_slots(page, entry)?;
    }
    Ok(())
}

impl WriteBack {
    fn unheld_slots(&mut self, enough: u64, dirty: bool) -> Vec<(u64, Entry)> {
        self.store.slots().map_or_else(Vec::new, |slots| slots.unheld(enough, dirty))
    }

    /// Makes a slot superfluous if the policy does not hold it; true when that takes a sync of the backing store.
    pub(crate) fn reclaim_slots(&mut self, page: u64, seen: Entry) -> io::Result<bool> {
        if self.reclaim_clean_slots(page, seen)? {
            return Ok(false);
        }
        let Some(entry) = self.unheld(page, seen) else { return Ok(false) };
        self.hasten_void(page);
        if self.is_owed(page, entry) {
            self.counts.evicted_dirty += 1;
            self.write_back_stored(page, entry);
        }
        Ok(true)
    }

    /// Gives up the slot of a page that the backing store has; true if it did.
    fn reclaim_clean_slots(&mut self, page: u64, seen: Entry) -> io::Result<bool> {
        let Some(entry) = self.unheld(page, seen) else { return Ok(false) };
        if entry.dirty && !mutant::is(Mutant::DirtyNotKept) && !mutant::is(Mutant::TailTooEarly) {
            return Ok(false);
        }
        self.declare_gone(page)?;
        self.counts.slots_freed += 1;
        Ok(true)
    }

    /// Entry of a page, if it is the version that was seen, is not held by the policy and is not lost.
    fn unheld(&self, page: u64, seen: Entry) -> Option<Entry> {
        self.store.index().get(page).filter(|entry| entry.address == seen.address && !entry.resident && !entry.lost)
    }
}
