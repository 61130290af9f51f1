//! The part of the write-back state that outlives the process, in an arena.

use super::write_back::WriteBack;
use crate::page_copy::PageCopy;
use entresol_store::Unfilled;
use entresol_store::arena::{Arena, Slot};
use entresol_store::mutant::{self, Mutant};
use std::ops::Range;
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
        Some(arena.void(page))
    }

    /// Notes that a former process may have left writes below unsynced, and failures unreported.
    pub fn inherit_unsynced(&mut self) {
        self.inherited = !mutant::is(Mutant::InheritedNotSynced);
        if let Some(arena) = &self.arena {
            arena.inherit_sync();
            self.changes_failed += arena.failures();
        }
    }

    /// Notes changes below that cannot be repeated from here, and that no sync covers yet.
    pub(super) fn note_changed(&mut self, pages: Range<u64>) {
        self.arena.iter().for_each(|arena| arena.note_change());
        self.changed.push(pages);
    }

    /// Notes a failure that may have lost changes which cannot be repeated from here.
    pub(super) fn note_failed_changes(&mut self) {
        self.arena.iter().for_each(|arena| arena.note_failure());
        self.changes_failed += 1;
    }

    /// Notes, for a later process alone, that the cache device may lack what memory no longer has. The next flush that
    /// succeeds ends that.
    pub(super) fn note_failed_device(&self) {
        self.arena.iter().for_each(|arena| arena.note_failure());
    }

    /// Begins a sync of the backing store, which [`synced_below`](WriteBack::synced_below) ends.
    pub fn begin_sync_below(&self) {
        self.arena.iter().for_each(|arena| arena.begin_sync());
    }

    /// Ends it. A failure of it has been noted.
    pub(super) fn end_sync_below(&self, is_durable: bool) {
        self.arena.iter().for_each(|arena| arena.end_sync(is_durable));
    }

    /// Notes that all failures were reported, once a flush after the report has succeeded: this process may be killed
    /// before its caller gets a report.
    pub(super) fn failures_reported(&self) {
        self.arena.iter().for_each(|arena| arena.failures_reported());
    }
}
