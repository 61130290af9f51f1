//! Draining: every dirty page is written below while requests go on. A change of the mode does the same.
//!
//! During a drain, writes of requests are sent below at once, as in write-through: no other page becomes dirty, and
//! the drain ends however much is written. No hold of the core's lock looks at more than [`LOOKED_AT`] pages.

use super::durability::DEPTH_MAX;
use super::locks::CoreGuard;
use super::maintenance::{self, StoreAccess};
use super::search::LOOKED_AT;
use super::{BlockCache, CacheConfig, FRAMES_PER_HOLD, Mode};
use entresol_store::mutant::{self, Mutant};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

/// Pages written below in one hold of the core's lock.
const WRITTEN_PER_HOLD: usize = DEPTH_MAX;
/// Searches for dirty pages in one drain: the first, and more for pages that a device failed to read.
const PASSES_MAX: usize = 8;

impl BlockCache {
    /// Waits until no other change that takes many holds of the core's lock is under way, and keeps others waiting.
    pub(super) fn one_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes every dirty page below, durably: afterwards the backing store alone has all earlier writes. Requests go
    /// on meanwhile. Their writes are sent below at once, and are durable there with the next flush or drain.
    ///
    /// # Errors
    /// The error of a store that failed.
    pub fn drain(&self) -> io::Result<()> {
        let _one = self.one_change();
        self.locks.guard()?.core().send_through(!mutant::is(Mutant::DrainedBehind));
        let drained = self.write_all_below();
        self.locks.guard()?.core().send_through(false);
        drained
    }

    /// Changes the mode. Requests go on in the new mode. A change from write-back to another mode writes every dirty
    /// page below, durably, before it returns. A policy that counts writes otherwise in the new mode begins anew, with the
    /// pages that are cached.
    ///
    /// # Errors
    /// The error of a store that failed. The mode is then the previous one, unless the policy alone could not begin anew.
    pub fn set_mode(&self, mode: Mode) -> io::Result<()> {
        let change = self.one_change();
        let CacheConfig { mode: before, policy, options, tiers, .. } = self.config();
        self.put_mode(mode)?;
        if before == Mode::WriteBack && mode != Mode::WriteBack {
            self.write_all_below().or_else(|error| self.put_mode(before).and(Err(error)))?;
        }
        if policy.through.is_some() && (before == Mode::WriteBack) != (mode == Mode::WriteBack) {
            self.replace_policy_within(&change, policy, &options, &tiers).map_err(io::Error::other)?;
            drop(change);
            self.show_the_rest();
        }
        Ok(())
    }

    fn put_mode(&self, mode: Mode) -> io::Result<()> {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        self.locks.guard()?.core().set_mode(mode);
        config.mode = mode;
        self.read_only.store(mode == Mode::ReadOnly, Ordering::Relaxed);
        Ok(())
    }

    /// Writes all dirty pages below, while no page becomes dirty without being sent there.
    pub(super) fn write_all_below(&self) -> io::Result<()> {
        let lost_before = self.locks.guard()?.write_back().counts.pages_lost;
        let written = self.write_parts_below();
        let mut guard = self.exclusive_after(written)?;
        guard.mend()?;
        let mut ended = Ok(());
        if !guard.core().is_off() {
            ended = maintenance::flush(&mut guard, true);
            guard.mend()?;
        }
        if guard.core().is_off() {
            return maintenance::flush_without_store(&mut guard);
        }
        ended?;
        if guard.write_back().counts.pages_lost > lost_before {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the only copy of a dirty page was lost"));
        }
        drop(guard);
        self.enter_clean_pages()?;
        self.maintained(|guard| maintenance::sync_store(guard))
    }

    /// Enters which pages are clean, where no entry on the device says so: what the device calls dirty, a later start
    /// writes below once more, over whatever somebody has written there since.
    fn enter_clean_pages(&self) -> io::Result<()> {
        if mutant::is(Mutant::CleanUnsaid) {
            return Ok(());
        }
        let mut first = 0;
        loop {
            let mut guard = self.locks.guard()?;
            if guard.core().is_off() {
                return Ok(());
            }
            let index = guard.write_back().store.index();
            if index.unsaid_len() == 0 || first >= index.blocks() {
                return Ok(());
            }
            let pages: Vec<u64> = index.unsaid_in(first..first + LOOKED_AT as usize).collect();
            first += LOOKED_AT as usize;
            drop(guard);
            for page in pages {
                // Each entry may take a block of what maintenance needs.
                let mut guard = self.locks.ready()?;
                if guard.core().is_off() {
                    return Ok(());
                }
                let write_back = guard.write_back();
                let entered = write_back.store.enter_clean(page);
                write_back.noted(entered)?;
            }
        }
    }

    /// Does work of maintenance. A failure of the cache device is no error where it costs nothing.
    fn maintained(&self, work: impl FnOnce(&mut CoreGuard<'_>) -> io::Result<()>) -> io::Result<()> {
        let mut guard = self.locks.exclusive()?;
        guard.mend()?;
        if guard.core().is_off() {
            return Ok(());
        }
        let done = work(&mut guard);
        guard.mend()?;
        if guard.core().is_off() { Ok(()) } else { done }
    }

    /// Enters in the store all that is known to be clean. Comes after a flush, and before the close.
    pub(super) fn settle_all(&self) -> io::Result<()> {
        self.maintained(|guard| maintenance::settle(guard).map(|_| ()))?;
        self.enter_clean_pages()
    }

    fn write_parts_below(&self) -> io::Result<()> {
        self.store_all_frames()?;
        let mut bytes = vec![0; self.page_bytes as usize];
        for again in 0..PASSES_MAX {
            let owed = self.owed()?;
            if owed.is_empty() {
                return Ok(());
            }
            if again > 0 {
                // The bytes of these pages could not be read when they were to be written.
                owed.iter().try_for_each(|&page| self.peek(page, &mut bytes))?;
            }
            for pages in owed.chunks(WRITTEN_PER_HOLD) {
                let mut guard = self.locks.ready()?;
                if guard.core().is_off() {
                    return Ok(());
                }
                guard.own()?;
                guard.core().queue_owed(pages)?;
                maintenance::write_these(&mut guard, pages)?;
            }
        }
        Err(io::Error::other("some readable pages could not be written below"))
    }

    /// Hands frames that only volatile memory has to the store, a few in one hold of the core's lock.
    pub(super) fn store_all_frames(&self) -> io::Result<()> {
        let mut guard = self.locks.guard()?;
        guard.mend()?;
        let mut frames = guard.core().unstored(0, FRAMES_PER_HOLD);
        drop(guard);
        while let Some(last) = frames.last().copied() {
            let mut guard = self.locks.ready()?;
            let stored = guard.core().store_frames(&frames);
            let rest = stored.as_ref().map_or(0, |&stored| frames.len() - stored);
            if rest > 0 {
                frames.drain(..frames.len() - rest);
            } else {
                frames = guard.core().unstored(last.0 + 1, FRAMES_PER_HOLD);
            }
            let plan = guard.core().take_plan();
            drop(guard);
            plan.carry_out_copies();
            stored?;
        }
        Ok(())
    }

    /// Pages to be written below that are not on their way, ascending, without lost ones. No version moves meanwhile.
    fn owed(&self) -> io::Result<Vec<u64>> {
        let mut owed = Vec::new();
        let mut guard = self.locks.exclusive()?;
        let blocks = if guard.core().is_off() { 0 } else { guard.write_back().store.index().blocks() };
        for first in (0..blocks).step_by(LOOKED_AT as usize) {
            owed.extend(guard.write_back().owed_in(first..first + LOOKED_AT as usize));
            guard.pass()?;
        }
        owed.sort_unstable();
        Ok(owed)
    }
}
