//! Changes of whole ranges of pages: discards, and what somebody else changed below.
//!
//! A range may have millions of pages. The locks of its pages are held from the first to the last, and the upkeep is owned, so that
//! nothing of it is written below meanwhile. The core's lock is held for a few pages at a time, and never during I/O: requests for
//! other pages go on in between.

use super::turn::Turn;
use super::upkeep::{self, Lease};
use super::{BlockCache, check_writable};
use std::io;
use std::ops::Range;

/// Pages that are looked at in one hold of the core's lock.
const LOOKED_AT: u64 = 256;

/// A range in parts, each for one hold of the core's lock.
fn parts(turn: &mut Turn, pages: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    // Where little is held at all, that is gone through instead.
    let each = if turn.core().held_at_most() <= LOOKED_AT as usize { pages.end - pages.start } else { LOOKED_AT };
    let end = pages.end;
    (pages.start..end).step_by(each as usize).map(move |start| start..(start + each).min(end))
}

impl BlockCache {
    /// Discards whole pages. What the cache holds something of goes through the queue, so that the order of things is kept; gaps
    /// between such pages are discarded below at once.
    pub(super) fn discard_pages(&self, pages: Range<u64>) -> io::Result<()> {
        let _pages = self.locks.pages.range(&pages);
        let mut turn = self.locks.exclusive()?;
        check_writable(turn.core().mode())?;
        self.unflushed.note();
        let mut free_from = pages.start;
        for part in parts(&mut turn, &pages) {
            for page in turn.core().held_among(&part) {
                discard_gap(&mut turn, free_from..page)?;
                turn.make_ready()?;
                turn.core().discard_held(page)?;
                free_from = page + 1;
            }
            turn.pass()?;
        }
        discard_gap(&mut turn, free_from..pages.end)
    }

    /// Makes void what is held of whole pages, which `change` changes below. Nothing of them is written below meanwhile.
    pub(super) fn change_pages(&self, pages: &Range<u64>, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _pages = self.locks.pages.range(pages);
        let mut turn = self.locks.exclusive()?;
        let changed = turn.unlocked(change)?;
        self.unflushed.note();
        forget(&mut turn, pages).and(changed)
    }
}

/// Discards pages below of which nothing is held.
fn discard_gap(turn: &mut Turn, pages: Range<u64>) -> io::Result<()> {
    if pages.is_empty() {
        return Ok(());
    }
    turn.make_ready()?;
    if turn.keeper().must_commit_what_was_forgotten() {
        // Else a crash might bring back what was forgotten, until it is evicted.
        upkeep::commit(turn)?;
    }
    let (_, backing) = turn.stores();
    let (at, bytes) = turn.keeper().changes_below(pages);
    turn.unlocked(|| backing.discard(at, bytes))?
}

fn forget(turn: &mut Turn, pages: &Range<u64>) -> io::Result<()> {
    // First what takes no I/O, so that nothing of it goes below while room is made for the rest.
    let mut held = Vec::new();
    for part in parts(turn, pages) {
        held.extend(turn.core().make_void(&part));
        turn.pass()?;
    }
    turn.keeper().was_changed_below(pages.clone());
    for pages in held.chunks(LOOKED_AT as usize) {
        for &page in pages {
            turn.make_ready()?;
            turn.core().declare_void(page)?;
        }
        turn.pass()?;
    }
    turn.keeper().has_forgotten();
    Ok(())
}
