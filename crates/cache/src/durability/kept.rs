//! The part of the write-back state that outlives the process, in an arena.

use super::write_back::WriteBack;
use crate::page_copy::PageCopy;
use entresol_store::Unfilled;
use entresol_store::arena::{Arena, Slot};
use entresol_store::mutant::{self, Mutant};
use std::sync::Arc;

impl WriteBack {
    /// Has everything that is answered, and that memory alone has, be in an arena from now on.
    pub fn keep_in(&mut self, arena: Option<&Arc<Arena>>) {
        self.arena = arena.cloned();
    }

    /// The newest version of a page, which memory alone has.
    pub fn keep(&self, page: u64, bytes: &[u8]) -> PageCopy {
        let arena = self.arena.as_ref().filter(|_| !mutant::is(Mutant::ArenaPagePrivate));
        PageCopy::newest(arena, page, bytes)
    }

    /// Has what the arena has of a page by itself count until the `newest` version is in its block. A version that
    /// reclaim appends again need not be the newest.
    pub(super) fn replace_kept(&self, page: u64, newest: bool, block: &mut Unfilled) {
        if let Some(arena) = self.arena.as_ref().filter(|_| newest || mutant::is(Mutant::ArenaOlderSettles)) {
            block.replaces(arena.older(page));
        }
    }

    /// Notes in the arena that a page was changed below, though the store has a dirty copy.
    pub(super) fn note_void(&self, page: u64) -> Option<Arc<Slot>> {
        let arena = self.arena.as_ref().filter(|_| !mutant::is(Mutant::ArenaVoidUnsaid))?;
        arena.void(page).ok()
    }

    /// Notes that a former process may have left writes below unsynced.
    pub fn inherit_unsynced(&mut self) {
        self.inherited = !mutant::is(Mutant::InheritedNotSynced);
    }
}
