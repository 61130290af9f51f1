//! Memory of the process alone, where the file could not grow: what it has is missing after a kill.

use super::{AT_MISSING, Arena, Word, moment};
use crate::mutant::{self, Mutant};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// Something that should be in the arena and is in memory of the process alone, as long as this lives.
pub struct Missing(Arc<Arena>);

impl Missing {
    /// Notes that something is about to be in memory of the process alone.
    pub(crate) fn begin(arena: &Arc<Arena>) -> Self {
        if !mutant::is(Mutant::ArenaMissingUnsaid) {
            arena.missing().fetch_add(1, AcqRel);
            moment();
        }
        Missing(Arc::clone(arena))
    }
}

impl Drop for Missing {
    fn drop(&mut self) {
        if !mutant::is(Mutant::ArenaMissingUnsaid) {
            moment();
            self.0.missing().fetch_sub(1, AcqRel);
        }
    }
}

impl Arena {
    fn missing(&self) -> &Word {
        self.header.word(AT_MISSING)
    }

    /// True if something is in memory of this process alone, or was in that of the former one when it ended.
    pub fn is_incomplete(&self) -> bool {
        self.missing().load(Acquire) != 0
    }

    /// True if the former process had something in memory of its own alone when it ended.
    pub fn was_incomplete(&self) -> bool {
        self.missed != 0
    }

    /// Notes that what the former process lost is somebody else's to report, and that what was repeated is durable.
    pub fn forgive_missed(&self) {
        self.missing().fetch_sub(self.missed, AcqRel);
    }
}
