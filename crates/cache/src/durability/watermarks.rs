//! Watermarks: limits on queued and unsynced pages, and on free segments or slots. Requests wait at the hard limits.
//! At the soft ones the maintenance threads begin to work.

use super::write_back::WriteBack;
use entresol_store::{Geometry, Layout};

/// Free segments below which requests reclaim: two for the appends of reclaim itself, one for the request.
pub(crate) const FREE_MIN: u64 = 3;

/// Segments' worth of queued pages at which requests wait, with maintenance threads; without threads it is one segment.
const QUEUE_SEGMENTS: usize = 4;

/// Segments' worth of pages written below and not synced at which requests sync the backing store.
const UNSYNCED_SEGMENTS: usize = 16;

/// Ranges changed below, bypassing the store, and not synced at which requests sync the backing store.
const CHANGED_MAX: usize = 64;

/// Sync thresholds of the store, in segments of unsynced appends. MUST: requests wait for a sync. SOON: a maintenance
/// thread syncs. IDLE: the thread syncs when it has no batch to write. A start after a crash reads and checks all
/// unsynced batches before it serves, so these thresholds bound the time of a start.
pub(crate) const SYNC_MUST: u64 = 8;
const SYNC_SOON: u64 = 6;
pub(crate) const SYNC_IDLE: u64 = 2;

/// Segments' worth of slots to keep free, unless fewer are left by the policy or more are needed.
const SLOTS_SEGMENTS: u64 = 16;

/// Complete batches in memory, not yet on the cache device, at which requests wait where a maintenance thread writes.
const BATCHES_MAX: usize = 4;

/// Writes below that the maintenance threads have under way at a time: at least, and when the queue is full.
const DEPTH_MIN: usize = 4;
pub(crate) const DEPTH_MAX: usize = 64;

/// Queued pages at which requests wait.
pub(crate) fn queue_max(segment_pages: usize, background: bool) -> usize {
    if background { QUEUE_SEGMENTS * segment_pages } else { segment_pages }
}

/// Pages that one request may append to the store, by the number of tiers. A policy with memory above may move a kept
/// group and one that comes from memory (`face-gsc`); a policy without moves a few pages.
pub(crate) fn moved_max(tiers: usize) -> u64 {
    if tiers > 1 { 128 } else { 8 }
}

impl WriteBack {
    /// Notes the tier capacities, in pages, of the policy that decides from now on.
    pub fn serve(&mut self, tiers: &[usize]) {
        self.moved_max = moved_max(tiers.len());
        self.held_max = tiers.last().map_or(0, |&pages| pages as u64);
    }

    /// True if a decision may append a page. The last free segments are for maintenance.
    pub fn has_room_to_put(&self) -> bool {
        self.store.free_segments() >= FREE_MIN - 1
    }

    /// True if the queue must be written before a request may add to it.
    pub fn is_queue_full(&self) -> bool {
        self.queued() >= self.queue_max
    }

    /// Queued pages that are in no write batch.
    fn queued(&self) -> usize {
        self.dirty_queue.len() - self.writing
    }

    /// Writes below that the maintenance threads should have under way; 0 below the soft mark of the queue. The number
    /// grows with the square of the queue's excess, since more writes delay reads of the same disk.
    pub fn depth(&self) -> usize {
        let Some(excess) = self.queue_soft.and_then(|soft| self.queued().checked_sub(soft)) else { return 0 };
        let space = self.queue_max - self.queue_soft.unwrap_or(0);
        DEPTH_MIN + (DEPTH_MAX - DEPTH_MIN) * (excess * excess).min(space * space) / (space * space)
    }

    /// True if the cache has maintenance threads.
    pub fn has_help(&self) -> bool {
        self.queue_soft.is_some()
    }

    /// True if a soft limit of the backing store's maintenance thread is reached.
    pub fn lacks_room(&self) -> bool {
        let segments = self.lacks_segments() || self.awaits_segments();
        self.has_help() && (self.depth() > 0 || segments || self.is_unsynced_half_full())
    }

    /// Free segments that a request may need while maintenance is under way, since it cannot reclaim then.
    fn needed_apart(&self) -> u64 {
        FREE_MIN + self.moved_max.div_ceil(u64::from(self.store.geometry().segment_pages))
    }

    /// Those of them that a request must find. Over slots the number is capped: the policy's pages may never leave
    /// more, so that waiting would be in vain. A request that needs more goes on without.
    pub fn free_apart(&self) -> u64 {
        match self.store.geometry().layout {
            Layout::Log => self.needed_apart(),
            Layout::Slots | Layout::Segments => self.needed_apart().min(FREE_MIN + (self.free_most() - FREE_MIN) / 2),
        }
    }

    /// Free segments that copies of reclaim ahead of need leave to requests.
    pub fn free_for_requests(&self) -> u64 {
        self.free_apart() + 1
    }

    /// Segments that are reclaimed together ahead of need: their writes below are made together.
    fn together(&self) -> u64 {
        u64::from(self.store.geometry().segments / 32).clamp(1, 8)
    }

    /// Most free segments that maintenance aims for: half of those that the policy's pages leave. With fewer left, a
    /// log comes back sooner to pages that are still needed. Over slots the other half is the amount freed at once.
    fn free_most(&self) -> u64 {
        let segment_pages = u64::from(self.store.geometry().segment_pages);
        (self.store.spare_pages(self.held_max) / (2 * segment_pages)).max(FREE_MIN + 1)
    }

    /// Low watermark: free segments below which the maintenance threads reclaim.
    fn free_low(&self) -> u64 {
        if self.reclaim.is_some() {
            return self.free_most();
        }
        (self.needed_apart() + self.together()).min(self.free_most())
    }

    /// High watermarks of free slots, up to which slots that the policy does not hold are given up. The first is for
    /// clean copies: all slots that the policy leaves, at most [`SLOTS_SEGMENTS`] segments' worth unless more are
    /// needed. The second is for dirty copies, which cost a write below: a little above the low watermark.
    pub fn enough_slots(&self) -> (u64, u64) {
        let (segment_pages, spare) =
            (u64::from(self.store.geometry().segment_pages), self.store.spare_pages(self.held_max));
        let least = (self.free_low() + self.together()) * segment_pages;
        (spare.min(least.max(SLOTS_SEGMENTS * segment_pages)), spare.min(least))
    }

    /// True if fewer segments are free than the low watermark. Segments count that are free after the next sync:
    /// requests mostly ask for one soon enough.
    pub fn lacks_segments(&self) -> bool {
        let free = self.store.free_segments_once_durable();
        self.has_help() && free < self.free_low() && self.store.rear() >= self.reclaim_from
    }

    /// As [`lacks_segments`](WriteBack::lacks_segments), without those that a sync would free.
    pub fn lacks_free_segments(&self) -> bool {
        self.store.free_segments() < self.free_low()
    }

    /// Segments to reclaim ahead of need, once below the low watermark.
    pub fn lacking_segments(&self) -> u64 {
        self.free_low().saturating_sub(self.store.free_segments_once_durable()) + self.together()
    }

    /// True if a sync of the store would help requests that need free segments.
    pub fn awaits_segments(&self) -> bool {
        let free = self.store.free_segments();
        self.has_help() && free < self.free_apart() && free < self.store.free_segments_once_durable()
    }

    /// Number of slots that are free after the next syncs, where they are given by segments; or else of segments.
    pub fn free_once_durable(&mut self) -> u64 {
        match self.store.slots().filter(|_| self.reclaim.is_some()) {
            Some(slots) => slots.free_once_durable(),
            None => self.store.free_segments_once_durable(),
        }
    }

    /// Notes the end of a reclaim ahead of need. One that gained nothing is not repeated until the store has gone on.
    pub fn reclaimed_ahead(&mut self, free_before: u64) {
        if self.free_once_durable() <= free_before {
            let Geometry { layout, segment_pages, .. } = self.store.geometry();
            // The journal of slots goes on by a block for every sync, and the policy gives up pages all the time.
            let step = if layout.has_slots() { 1 } else { segment_pages };
            self.reclaim_from = self.store.rear() + u64::from(step);
        }
    }

    /// True if dirty pages on their way below keep the slots of half a segment from being free while segments are
    /// lacking, where slots are given by segments.
    pub fn owes_slots(&self) -> bool {
        let half = self.store.geometry().segment_pages as usize / 2;
        self.reclaim.is_some() && self.lacks_segments() && self.dirty_queue.len() + self.unsynced.len() >= half
    }

    /// True if the maintenance threads should sync the store.
    pub fn lacks_sync(&self) -> bool {
        let unsynced = self.store.unsynced_segments();
        let idle = unsynced >= SYNC_IDLE && self.store.sealed_len() == 0;
        self.has_help() && (unsynced >= SYNC_SOON || idle)
    }

    /// True if so much of the store is unsynced that requests have to wait.
    pub fn must_sync(&self) -> bool {
        self.store.unsynced_segments() >= SYNC_MUST
    }

    /// True if as many complete batches are in memory, not yet on the cache device, as may be.
    pub fn has_many_batches(&self) -> bool {
        self.store.sealed_len() >= if self.has_help() { BATCHES_MAX } else { 1 }
    }

    /// True if the cache device must catch up before a request may append.
    pub fn must_catch_up(&self) -> bool {
        self.must_sync() || self.has_many_batches()
    }

    /// True if half of the pages that may be written below without a sync of the backing store have been; where slots are
    /// given by segments, a segment's worth: each keeps one of them from being given again.
    pub fn is_unsynced_half_full(&self) -> bool {
        let segment_pages = self.store.geometry().segment_pages as usize;
        let enough = if self.reclaim.is_some() { segment_pages } else { self.unsynced_max() / 2 };
        self.unsynced.len() >= enough
    }

    fn unsynced_max(&self) -> usize {
        UNSYNCED_SEGMENTS * self.store.geometry().segment_pages as usize
    }

    /// True if the backing store must be synced before more is written there.
    pub fn is_unsynced_full(&self) -> bool {
        self.unsynced.len() >= self.unsynced_max() || self.changed.len() >= CHANGED_MAX
    }

    /// True if no hard limit keeps a request from beginning.
    pub fn is_ready(&self) -> bool {
        let free = if self.apart { self.free_apart() } else { FREE_MIN };
        let space = !self.is_queue_full() && !self.is_unsynced_full() && self.store.free_segments() >= free;
        space && !self.must_catch_up()
    }
}
