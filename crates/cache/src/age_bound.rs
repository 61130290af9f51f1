//! Write-back by age: steps of a maintenance thread, and of a write that waits because the bound could not be kept.
//! `durability/ages.rs` decides when.

use super::durability::DEPTH_MAX;
use super::locks::{CoreGuard, Locks};
use super::maintenance::{self, StoreAccess};
use super::{BlockCache, FRAMES_PER_HOLD};
use entresol_store::mutant::{self, Mutant};
use std::io;
use std::time::Duration;

/// One step of write-back by age, and of writing the time to the device. The hold owns maintenance.
pub(super) fn write_old(guard: &mut CoreGuard) -> io::Result<()> {
    if guard.write_back().is_clock_old() {
        maintenance::store_clock(guard)?;
    }
    // The plan was made for an earlier set of dirty pages.
    if guard.write_back().has_old_pages() {
        guard.write_back().plan_ages();
    }
    if guard.write_back().goes_on_with_old_pages() {
        write_oldest(guard, false)?;
        guard.write_back().plan_ages();
        guard.write_back().goes_on_with_old_pages();
    }
    Ok(())
}

/// Writes the oldest pages below, and syncs. `awaited` when a write waits for the step.
fn write_oldest(guard: &mut CoreGuard, awaited: bool) -> io::Result<()> {
    let write_back = guard.write_back();
    let (began, before) = (write_back.store.now(), write_back.counts.below_pages);
    let mut pages = write_back.oldest_of_a_step(awaited);
    let Some(&oldest) = pages.first() else { return Ok(()) };
    pages.sort_unstable();
    let in_memory: Vec<u64> = match write_back.store.ages() {
        Some(ages) => pages.iter().copied().filter(|&page| ages.is_in_memory(page)).collect(),
        None => Vec::new(),
    };
    for some in in_memory.chunks(FRAMES_PER_HOLD) {
        maintenance::make_ready(guard)?;
        guard.core().hand_down(some)?;
    }
    // The oldest page and those after it come first: the oldest is below even if the others have to wait.
    let (others, first) = pages.split_at(pages.partition_point(|&page| page < oldest));
    for some in first.chunks(DEPTH_MAX).chain(others.chunks(DEPTH_MAX)) {
        guard.write_back().queue_owed(some);
        maintenance::write_these(guard, some)?;
        // Requests wait for ownership: the step ends early.
        if guard.write_back().wanting > 0 {
            break;
        }
    }
    if mutant::is(Mutant::AgeNotSynced) {
        pages.iter().for_each(|&page| guard.write_back().is_void(page));
    } else {
        maintenance::settle(guard)?;
    }
    let write_back = guard.write_back();
    let (written, took) = (write_back.counts.below_pages - before, write_back.store.now().saturating_sub(began));
    write_back.wrote_old_pages(written, took);
    Ok(())
}

/// Does one step for a write that must wait. The write goes on whatever the result. An error of a write below is
/// reported to the requests that wait for space in the queue.
fn hold_back(guard: &mut CoreGuard) -> io::Result<()> {
    guard.write_back().waited_for_age();
    guard.own()?;
    guard.write_back().plan_ages();
    let _told_elsewhere = write_oldest(guard, true);
    guard.write_back().plan_ages();
    Ok(())
}

impl Locks {
    /// A hold of the core's lock within the hard limits for a write of a page. Where dirty pages would exceed the bound
    /// on ages, a write that makes another page dirty first does a step of write-back, and goes on even if that fails.
    pub fn ready_to_write(&self, page: u64) -> io::Result<CoreGuard<'_>> {
        let mut guard = self.ready()?;
        if guard.core().is_off() || !guard.write_back().must_hold_back(page) {
            return Ok(guard);
        }
        hold_back(&mut guard)?;
        drop(guard);
        self.ready()
    }
}

impl BlockCache {
    /// Sets the time for which a page may differ from the backing store, in whole seconds. None is no bound, as after
    /// an open whose configuration sets none.
    ///
    /// The maintenance threads write pages below and sync them before they are older, and writes wait where the
    /// threads are too slow. A cache without threads does so only when a page is written. Only time with the cache
    /// open under a bound counts. Pages that are dirty when a first bound is set count as old as can be.
    ///
    /// # Errors
    /// `InvalidInput` when the bound is less than a second.
    pub fn set_dirty_age(&self, bound: Option<Duration>) -> io::Result<()> {
        if bound.is_some_and(|bound| bound < Duration::from_secs(1)) {
            let why = "dirty pages cannot be kept younger than a second";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut config = self.config.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut guard = self.locks.guard()?;
        if !guard.core().is_off() {
            guard.core().set_dirty_age(bound, &config.clock);
        }
        config.dirty_age = bound;
        Ok(())
    }
}
