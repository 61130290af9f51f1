//! Draining: every dirty page is written below while requests go on, and a change of the mode, which does the same.
//!
//! While it lasts, what a request writes is sent below at once, as in write-through: nothing else becomes dirty, and a drain comes to
//! an end however much is written. No hold of the core's lock looks at more than [`LOOKED_AT`] pages.

use super::maintenance::{self, StoreAccess};
use super::ranges::LOOKED_AT;
use super::watermarks::DEPTH_MAX;
use super::{BlockCache, FRAMES_PER_HOLD, Mode};
use crate::mutant::{self, Mutant};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

/// Pages that are written below in one turn.
const WRITTEN_PER_HOLD: usize = DEPTH_MAX;
/// Times that a drain looks for what is dirty: once, and again for what a device has failed to read in its turn.
const PASSES_MAX: usize = 8;

impl BlockCache {
    /// Changes that take many turns follow one another.
    pub(super) fn one_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes every dirty page below, durably: afterwards the backing store alone has all that was written before. Requests go on
    /// meanwhile. What they write is sent below at once, and durable there with the next flush or drain.
    ///
    /// # Errors
    /// The answer of a store that failed.
    pub fn drain(&self) -> io::Result<()> {
        let _one = self.one_change();
        self.locks.guard()?.core().send_through(!mutant::is(Mutant::DrainedBehind));
        let drained = self.write_all_below();
        self.locks.guard()?.core().send_through(false);
        drained
    }

    /// Changes what becomes of writes. Requests go on in the new mode; whatever is dirty is written below, durably, before the change
    /// returns, if that is to be.
    ///
    /// # Errors
    /// The answer of a store that failed; the mode is then the one of before.
    pub fn set_mode(&self, mode: Mode) -> io::Result<()> {
        let _one = self.one_change();
        let before = self.config().mode;
        self.put_mode(mode)?;
        if before == Mode::WriteBack && mode != Mode::WriteBack {
            self.write_all_below().or_else(|error| self.put_mode(before).and(Err(error)))?;
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

    /// Writes below all that is dirty, where nothing becomes dirty without being sent there.
    pub(super) fn write_all_below(&self) -> io::Result<()> {
        let lost_before = self.locks.guard()?.write_back().counts.pages_lost;
        let written = self.write_parts_below();
        let mut guard = self.exclusive_after(written)?;
        guard.mend()?;
        let mut ended = Ok(());
        if !guard.core().is_off() {
            ended = maintenance::flush(&mut guard, true).and_then(|()| maintenance::sync_store(&mut guard));
            guard.mend()?;
        }
        if guard.core().is_off() {
            return maintenance::flush_without_store(&mut guard);
        }
        ended?;
        if guard.write_back().counts.pages_lost > lost_before {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the only copy of a dirty page was lost"));
        }
        Ok(())
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
                // Their bytes could not be read in their turn.
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
        Err(io::Error::other("pages that can be read could not be read to be written below"))
    }

    /// Hands over to the log what volatile memory alone has, a few frames in a turn.
    pub(super) fn store_all_frames(&self) -> io::Result<()> {
        let mut guard = self.locks.guard()?;
        guard.mend()?;
        let mut frames = guard.core().unstored(0, FRAMES_PER_HOLD);
        drop(guard);
        while let Some(last) = frames.last().copied() {
            let mut guard = self.locks.ready()?;
            guard.core().store_frames(&frames)?;
            frames = guard.core().unstored(last.0 + 1, FRAMES_PER_HOLD);
        }
        Ok(())
    }

    /// Pages that have to be written below and are not on their way, ascending; lost ones apart. Nothing is moved meanwhile.
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
