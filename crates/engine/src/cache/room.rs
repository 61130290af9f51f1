//! How much room there is for requests, and how much there should be: the marks at which requests wait, and those at which
//! threads of the cache's own begin to make room.

use super::keeper::Keeper;
use crate::store::{Geometry, Layout};

/// Free segments below which reclaim begins: two for what it appends itself, one for the request that asked.
pub(super) const FREE_MIN: u64 = 3;

/// Segments' worth of pages that may wait to be written below before requests have to wait too, where threads of the
/// cache's own write them; one where requests do.
const QUEUE_SEGMENTS: usize = 4;

/// Segments' worth of pages written below after which the backing store is synced without being asked.
const UNSYNCED_SEGMENTS: usize = 16;

/// Ranges changed below past the log after which it is synced without being asked.
const CHANGED_MAX: usize = 64;

/// Complete batches that may be in memory, on their way to the log's device, where a thread of the cache's own writes them.
const BATCHES_MAX: usize = 4;

/// Writes below that threads of the cache's own have under way at a time: at least, and when the queue is full.
const DEPTH_MIN: usize = 4;
pub(super) const DEPTH_MAX: usize = 64;

/// Pages that may wait to be written below before requests do.
pub(super) fn queue_max(segment_pages: usize, background: bool) -> usize {
    if background { QUEUE_SEGMENTS * segment_pages } else { segment_pages }
}

/// Pages that one request may append to the log, by the number of tiers: a policy with memory above may move a group that is
/// kept and one that comes from memory (`face-gsc`), one without moves a few.
pub(super) fn moved_max(tiers: usize) -> u64 {
    if tiers > 1 { 128 } else { 8 }
}

impl Keeper {
    /// Must the queue be written before a request may add to it?
    pub fn is_queue_full(&self) -> bool {
        self.queued() >= self.queue_max
    }

    /// Pages that wait to be written below.
    fn queued(&self) -> usize {
        self.pending.len() - self.flying
    }

    /// How many writes at a time should threads of the cache's own send below now? The more, the less room is left in the
    /// queue: reads of the same disk wait the longer for it.
    pub fn depth(&self) -> usize {
        let Some(excess) = self.queue_soft.and_then(|soft| self.queued().checked_sub(soft)) else { return 0 };
        let room = self.queue_max - self.queue_soft.unwrap_or(0);
        DEPTH_MIN + (DEPTH_MAX - DEPTH_MIN) * (excess * excess).min(room * room) / (room * room)
    }

    /// Has the cache threads of its own?
    pub fn has_help(&self) -> bool {
        self.queue_soft.is_some()
    }

    /// Is there less room than threads of the cache's own should keep?
    pub fn lacks_room(&self) -> bool {
        let segments = self.lacks_segments() || self.awaits_segments();
        self.has_help() && (self.depth() > 0 || segments || self.is_account_half_full())
    }

    /// Segments that a request has to find free between two parts of somebody's upkeep, for it cannot make room itself
    /// then: what it may need is there beforehand.
    fn free_apart(&self) -> u64 {
        FREE_MIN + self.moved_max.div_ceil(u64::from(self.log.geometry().segment_pages))
    }

    /// Segments that are reclaimed together ahead of need: what is to be written below for them is written at once.
    fn together(&self) -> u64 {
        u64::from(self.log.geometry().segments / 32).clamp(1, 8)
    }

    /// Free segments below which threads of the cache's own reclaim. Of a log no more than half of those that its pages leave,
    /// for the fewer are left to it, the sooner it comes back to pages that are still needed; slots stay where they are.
    fn free_low(&self) -> u64 {
        let geometry = self.log.geometry();
        let low = self.free_apart() + self.together();
        if geometry.layout == Layout::Slots {
            return low;
        }
        let spare = u64::from(geometry.blocks()).saturating_sub(self.log.index().len() as u64);
        low.min(spare / u64::from(2 * geometry.segment_pages)).max(FREE_MIN + 1)
    }

    /// Are there fewer free segments than threads of the cache's own should keep? Those count that are free at the next
    /// sync, for which requests ask often enough as a rule.
    pub fn lacks_segments(&self) -> bool {
        let free = self.log.free_segments_once_durable();
        self.has_help() && free < self.free_low() && self.log.rear() >= self.reclaim_from
    }

    /// Segments to reclaim ahead of need, now that some are lacking.
    pub fn lacking_segments(&self) -> u64 {
        self.free_low().saturating_sub(self.log.free_segments_once_durable()) + self.together()
    }

    /// Would a sync of the log help requests that need free segments?
    pub fn awaits_segments(&self) -> bool {
        let free = self.log.free_segments();
        self.has_help() && free < self.free_apart() && free < self.log.free_segments_once_durable()
    }

    /// A reclaim ahead of need has ended. One that gained nothing is not repeated until the log has gone on.
    pub fn reclaimed_ahead(&mut self, free_before: u64) {
        if self.log.free_segments_once_durable() <= free_before {
            let Geometry { layout, segment_pages, .. } = self.log.geometry();
            // The journal of slots goes on by a block for every sync, and pages leave the policy all the time.
            let step = if layout == Layout::Slots { 1 } else { segment_pages };
            self.reclaim_from = self.log.rear() + u64::from(step);
        }
    }

    /// Should threads of the cache's own sync the log?
    pub fn lacks_sync(&self) -> bool {
        self.has_help() && self.log.should_sync()
    }

    /// Are there as many batches in memory, on their way to the log's device, as there may be?
    pub fn has_many_batches(&self) -> bool {
        self.log.sealed_len() >= if self.has_help() { BATCHES_MAX } else { 1 }
    }

    /// Must the log's device catch up before a request may add to the log?
    pub fn must_catch_up(&self) -> bool {
        self.log.must_sync() || self.has_many_batches()
    }

    /// Is half of what may be written below without a sync of the backing store used up?
    pub fn is_account_half_full(&self) -> bool {
        self.unsynced.len() >= self.account_max() / 2
    }

    fn account_max(&self) -> usize {
        UNSYNCED_SEGMENTS * self.log.geometry().segment_pages as usize
    }

    /// Must the backing store be synced before more is written there?
    pub fn is_account_full(&self) -> bool {
        self.unsynced.len() >= self.account_max() || self.changed.len() >= CHANGED_MAX
    }

    /// Is there room for a request?
    pub fn is_ready(&self) -> bool {
        let free = if self.apart { self.free_apart() } else { FREE_MIN };
        let room = !self.is_queue_full() && !self.is_account_full() && self.log.free_segments() >= free;
        room && !self.must_catch_up()
    }
}
