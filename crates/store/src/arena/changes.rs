//! Failures of syncs below that no flush has reported, and changes below that no sync has covered. A failed sync may
//! have lost changes that nobody can repeat.

use super::{AT_CHANGED, AT_FAILED, Arena, moment};
use crate::mutant::{self, Mutant};
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// States of the changes below that cannot be repeated.
const SYNCED: u64 = 0;
const UNSYNCED: u64 = 1;
const SYNCING: u64 = 2;

/// Bit of the failures: a sync has begun that was to settle them. It has not, unless all failures are gone.
const SETTLING: u64 = 1 << 63;

impl Arena {
    /// Failures, unreported, that may have lost changes below.
    pub fn failures(&self) -> u64 {
        self.header.word(AT_FAILED).load(Acquire) & !SETTLING
    }

    /// Notes another failure.
    pub fn note_failure(&self) {
        moment();
        if !mutant::is(Mutant::ArenaFailureUnsaid) {
            self.header.word(AT_FAILED).fetch_add(1, AcqRel);
            moment();
        }
    }

    /// Notes that all failures have been reported.
    pub fn failures_reported(&self) {
        if self.header.word(AT_FAILED).load(Acquire) != 0 {
            self.header.word(AT_FAILED).store(0, Release);
            moment();
        }
    }

    fn set_changed(&self, state: u64) {
        self.header.word(AT_CHANGED).store(state, Release);
        moment();
    }

    /// True if changes below are not known to be durable.
    fn has_changes(&self) -> bool {
        self.header.word(AT_CHANGED).load(Acquire) != SYNCED
    }

    /// Notes a change below that cannot be repeated from here.
    pub fn note_change(&self) {
        self.set_changed(UNSYNCED);
    }

    /// Notes that a sync begins. Its failure may be reported to a process that is killed before it notes that.
    pub fn begin_sync(&self) {
        if self.has_changes() && !mutant::is(Mutant::ArenaSyncUnsaid) {
            self.set_changed(SYNCING);
        }
    }

    /// Notes that the sync has ended, and a failure of it been noted. No change came meanwhile.
    pub fn end_sync(&self, is_durable: bool) {
        if self.has_changes() {
            self.set_changed(if is_durable { SYNCED } else { UNSYNCED });
        }
    }

    /// True if a sync of a former process failed and no flush has reported that, or if nobody knows how one ended.
    fn has_doubtful_sync(&self) -> bool {
        self.header.word(AT_FAILED).load(Acquire) != 0 || self.header.word(AT_CHANGED).load(Acquire) == SYNCING
    }

    /// Settles a failed sync of a former process that no flush has reported, or one of which nobody knows how it ended.
    /// `sync` syncs what is below, and fails if anything written there since before the first process was lost. It may
    /// tell once. So it is called once: a failure that it leaves is for a flush to report, and so is one after a kill
    /// meanwhile. Where there is nothing to settle it is not called.
    pub fn settle_syncs(&self, sync: impl FnOnce() -> io::Result<()>) {
        if !self.has_doubtful_sync() || mutant::is(Mutant::ArenaNotSettled) {
            return;
        }
        let settling = if mutant::is(Mutant::ArenaSettledTwice) { 0 } else { SETTLING };
        if self.header.word(AT_FAILED).fetch_or(settling, AcqRel) & SETTLING != 0 {
            return;
        }
        moment();
        if sync().is_ok() || mutant::is(Mutant::ArenaSettledAnyway) {
            self.set_changed(SYNCED);
            self.failures_reported();
        }
    }

    /// Takes over from a former process. If a sync of its changes was under way, nobody knows whether that has failed.
    pub fn inherit_sync(&self) {
        if self.header.word(AT_CHANGED).load(Acquire) == SYNCING {
            self.note_failure();
            self.set_changed(UNSYNCED);
        }
    }
}
