//! Room in the slots layout: slots that the policy does not hold are given up, and the journal's oldest blocks are renewed.

use super::keeper::Keeper;
use super::upkeep::{Lease, settle, sync_log, write_these};
use crate::disk::{AlignedBytes, Disk};
use crate::mutant::{self, Mutant};
use crate::store::Entry;
use std::io;
use std::ops::Range;

/// Turns of the journal in which it is renewed without a request in between.
const TURNS_MAX: u64 = 3;

/// Makes room, if the store is one of slots; false if it is a log.
pub(super) fn reclaim_slots(lease: &mut impl Lease) -> io::Result<bool> {
    if lease.keeper().log.slots().is_none() {
        return Ok(false);
    }
    if renew_journal(lease)? && mutant::is(Mutant::BlockTooEarly) {
        return Ok(true);
    }
    free_slots(lease)?;
    if !lease.keeper().log.slots().is_some_and(|slots| slots.has_waiting()) {
        return Ok(true);
    }
    sync_log(lease)?;
    // A slot is written again only when a durable block says that all is durable by which it became free.
    if let Some(slots) = lease.keeper().log.slots() {
        slots.state_what_is_durable();
    }
    sync_log(lease)?;
    Ok(true)
}

/// Repeats what still holds of the journal's oldest blocks, while it is running out of room; true if there was need.
fn renew_journal(lease: &mut impl Lease) -> io::Result<bool> {
    let mut renewed = 0;
    loop {
        // Where all of the oldest blocks holds, as many blocks are written as are given up, and those only at the next sync.
        if lease.keeper().log.slots().is_some_and(|slots| slots.awaits_blocks()) {
            sync_log(lease)?;
        }
        let Some(oldest) = lease.keeper().log.slots().and_then(|slots| slots.oldest_blocks()) else { break };
        renewed += oldest.end - oldest.start;
        renew(lease, oldest)?;
        let keeper = lease.keeper();
        // After a turn or two all that holds has been said anew: only a journal that nobody wrote like that says more than it has
        // room for.
        if keeper.log.slots().is_some_and(|slots| renewed > TURNS_MAX * slots.journal_bytes()) {
            let error =
                io::Error::new(io::ErrorKind::StorageFull, "the cache's journal says more than it has room for");
            return keeper.noted(Err(error));
        }
    }
    if renewed > 0 && !mutant::is(Mutant::BlockTooEarly) {
        sync_log(lease)?;
    }
    Ok(renewed > 0)
}

fn renew(lease: &mut impl Lease, oldest: Range<u64>) -> io::Result<()> {
    let keeper = lease.keeper();
    let disk = keeper.log.disk().clone();
    let mut bytes = AlignedBytes::zeroed((oldest.end - oldest.start) as usize);
    let read = lease.unlocked(|| disk.read_at(oldest.start, &mut bytes))?;
    let keeper = lease.keeper();
    keeper.log.count_reads(1);
    let is_whole = |keeper: &mut Keeper, bytes: &[u8]| keeper.log.slots().is_some_and(|slots| slots.are_oldest(bytes));
    if read.is_ok() && is_whole(keeper, &bytes) {
        return renew_from(keeper, &bytes, &[]);
    }
    // What is wrong on the way may be right on the device.
    let again = disk.read_at(oldest.start, &mut bytes);
    keeper.noted(again)?;
    if is_whole(keeper, &bytes) {
        return renew_from(keeper, &bytes, &[]);
    }
    // The block after each has a copy of it, once it is on the device.
    sync_log(lease)?;
    let keeper = lease.keeper();
    let slots = keeper.log.slots().expect("the layout of a store does not change");
    let byte_after = slots.byte_after_oldest(bytes.len());
    let mut after = AlignedBytes::zeroed(slots.geometry().page_bytes as usize);
    for _ in 0..if mutant::is(Mutant::ReadOnce) { 1 } else { 2 } {
        let read = disk.read_at(oldest.start, &mut bytes).and_then(|()| disk.read_at(byte_after, &mut after));
        keeper.noted(read)?;
        if keeper.log.slots().is_some_and(|slots| slots.can_mend(&bytes, &after)) {
            break;
        }
    }
    renew_from(keeper, &bytes, &after)
}

/// Renews the oldest blocks, which were read, with the help of the one after them.
fn renew_from(keeper: &mut Keeper, blocks: &[u8], after: &[u8]) -> io::Result<()> {
    let slots = keeper.log.slots().expect("the layout of a store does not change");
    let renewed = slots.renew(blocks, after);
    keeper.noted(renewed)
}

/// Gives up slots whose pages the policy does not hold: those that the backing store has first, for others have to be written
/// there before. (Of a page that is in memory it holds no copy in a slot, though a flush has put one there.)
fn free_slots(lease: &mut impl Lease) -> io::Result<()> {
    let keeper = lease.keeper();
    let (enough, enough_owed) = keeper.enough_slots();
    for (page, entry) in keeper.unheld_slots(enough, false) {
        keeper.vacate_clean(page, entry)?;
    }
    let mut owed = Vec::new();
    for (page, entry) in keeper.unheld_slots(enough_owed, true) {
        if keeper.vacate(page, entry)? {
            owed.push((page, entry));
        }
    }
    if owed.is_empty() {
        return Ok(());
    }
    if !mutant::is(Mutant::TailTooEarly) {
        let mut pages: Vec<u64> = owed.iter().map(|&(page, _)| page).collect();
        pages.sort_unstable();
        write_these(lease, &pages)?;
        settle(lease)?;
    }
    let keeper = lease.keeper();
    for (page, entry) in owed {
        // One that could not be written below stays, and is tried again.
        keeper.vacate_clean(page, entry)?;
    }
    Ok(())
}

impl Keeper {
    fn unheld_slots(&mut self, enough: u64, dirty: bool) -> Vec<(u64, Entry)> {
        self.log.slots().map_or_else(Vec::new, |slots| slots.unheld(enough, dirty))
    }

    /// Sees to it that a slot is not needed any more, if the policy does not hold it; true when that takes a sync of the
    /// backing store.
    pub(super) fn vacate(&mut self, page: u64, seen: Entry) -> io::Result<bool> {
        if self.vacate_clean(page, seen)? {
            return Ok(false);
        }
        let Some(entry) = self.unheld(page, seen) else { return Ok(false) };
        self.hasten_void(page);
        if self.is_owed(page, entry) {
            self.counts.rescued += 1;
            self.write_back_logged(page, entry);
        }
        Ok(true)
    }

    /// Gives up the slot of a page that the backing store has.
    fn vacate_clean(&mut self, page: u64, seen: Entry) -> io::Result<bool> {
        let Some(entry) = self.unheld(page, seen) else { return Ok(false) };
        if entry.dirty && !mutant::is(Mutant::DirtyNotKept) && !mutant::is(Mutant::TailTooEarly) {
            return Ok(false);
        }
        self.declare_gone(page)?;
        self.counts.slots_freed += 1;
        Ok(true)
    }

    /// Entry of a page, if it is the version that was seen, the policy does not hold it, and it is not lost.
    fn unheld(&self, page: u64, seen: Entry) -> Option<Entry> {
        self.log.index().get(page).filter(|entry| entry.place == seen.place && !entry.resident && !entry.lost)
    }
}
