//! Changes that no flush has covered. Kernels write unsynced pages within half a minute, and a server of files is told
//! of neither `sync` nor `syncfs`. So the server of a cache flushes it when a change is as old as that.

use super::BlockCache;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Numbers of changes, and of those that flushes have covered.
#[derive(Debug, Default)]
pub(super) struct Unflushed {
    changes: AtomicU64,
    flushed: AtomicU64,
}

impl Unflushed {
    /// Notes a change, before the hold of the core's lock in which it was made ends.
    pub fn note(&self) {
        self.changes.fetch_add(1, SeqCst);
    }

    /// Changes so far: a flush that begins now covers them.
    pub fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// Notes that a flush that began after so many changes has succeeded.
    pub fn covered(&self, changes: u64) {
        self.flushed.fetch_max(changes, SeqCst);
    }
}

/// Progress of flushes after changes, both counted since the open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushProgress {
    /// Changes made: writes by page, discards, and changes in the backing store.
    pub changes: u64,
    /// Changes that a flush has made durable; these are the first ones.
    pub flushed: u64,
}

impl BlockCache {
    /// Progress of flushes after changes.
    pub fn flush_progress(&self) -> FlushProgress {
        // Read first, so that no more changes are flushed than made.
        let flushed = self.unflushed.flushed.load(SeqCst);
        FlushProgress { changes: self.unflushed.changes(), flushed }
    }

    /// Flushes without being asked to. Failures that may have lost a change are left for a client's flush to report.
    ///
    /// # Errors
    /// The error that a store returned.
    pub fn flush_ahead(&self) -> io::Result<()> {
        let changes = self.unflushed.changes();
        let was_off = self.locks.guard()?.core().is_off();
        let mut result = self.flush_once();
        let mut guard = self.locks.guard()?;
        guard.mend()?;
        if result.is_err() && !was_off && guard.core().is_off() {
            drop(guard);
            // The cache device failed: everything can still become durable in the backing store.
            result = self.flush_once();
        }
        if result.is_ok() {
            self.unflushed.covered(changes);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_covers_what_was_changed_before_it_began_and_nothing_else() {
        let unflushed = Unflushed::default();
        (0..3).for_each(|_| unflushed.note());
        let (first, second) = (unflushed.changes(), {
            unflushed.note();
            unflushed.changes()
        });
        assert_eq!((first, second), (3, 4));
        // Of two flushes the one that began later may end first.
        unflushed.covered(second);
        unflushed.covered(first);
        assert_eq!(unflushed.flushed.load(SeqCst), 4);
    }
}
