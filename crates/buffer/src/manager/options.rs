//! Options of a buffer manager.

use super::error::OpenError;
use crate::pool::PAGE_BYTES;
use crate::ring::{MAX_HANDLES, RING};

/// Time of a request, for policies that ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Microseconds since the manager was made.
    Real,
    /// Each request takes a microsecond, as in the simulator where a trace has no times.
    Requests,
}

/// Sizes and settings of a buffer manager.
#[derive(Clone, Debug)]
pub struct BufferOptions {
    /// Pages that the policies may hold, in all shards together.
    pub pages: usize,
    /// Page size in bytes: a power of two from 4096 to 65536.
    pub page_bytes: usize,
    /// Parts that decide independently, each with its own policy and share of the pages; a power of two. More shards
    /// let more misses be decided at once. One shard decides exactly as the simulator does.
    pub shards: usize,
    /// Frames that each shard has beyond its share, for pages that are leaving or only passing through. A thread that
    /// finds no free frame waits for one.
    pub spare_frames: usize,
    /// Handles per page for the policies' directories, for resident pages and ghosts together. A policy that knows more
    /// pages than there are handles restarts with the pages that it holds.
    pub handles_per_page: usize,
    /// Hits that a thread gathers before it tries to deliver them, 1 to 64.
    pub hit_batch: usize,
    /// Dirty share of the pages, 0 to 1, above which a [`Cleaner`](super::Cleaner) begins to clean. Cleaning stops at
    /// three quarters of that share.
    pub dirty_high: f64,
    /// Objects that are counted apart. Further objects are counted in the last.
    pub objects: usize,
    /// Time of a request, for policies that ask.
    pub clock: Clock,
    /// Seed of random choices.
    pub seed: u64,
    /// For MQ: the most frequent distance between two requests of a page, in requests.
    pub peak_temporal_distance: Option<u32>,
}

impl BufferOptions {
    /// Options for this many pages of 4 KiB: one shard, and defaults for the rest.
    pub fn new(pages: usize) -> Self {
        BufferOptions {
            pages,
            page_bytes: 4096,
            shards: 1,
            spare_frames: 64,
            handles_per_page: 4,
            hit_batch: RING / 2,
            dirty_high: 0.5,
            objects: 16,
            clock: Clock::Real,
            seed: 42,
            peak_temporal_distance: None,
        }
    }

    /// Frames of each shard.
    pub fn frames_per_shard(&self) -> usize {
        self.pages.div_ceil(self.shards) + self.spare_frames
    }

    /// Pages that the policy of a shard may hold.
    pub(super) fn pages_of_shard(&self, shard: usize) -> usize {
        self.pages / self.shards + usize::from(shard < self.pages % self.shards)
    }

    pub(super) fn handles_per_shard(&self) -> usize {
        // Ghosts of a cache of few pages need some handles too.
        self.pages.div_ceil(self.shards).saturating_mul(self.handles_per_page).saturating_add(64)
    }

    pub(super) fn check(&self) -> Result<(), OpenError> {
        let demand = |holds: bool, name, value: String, range| match holds {
            true => Ok(()),
            false => Err(OpenError::Option { name, value, range }),
        };
        check_page_bytes(self.page_bytes)?;
        let shards = self.shards.is_power_of_two() && self.shards <= self.pages.max(1);
        demand(shards, "shards", self.shards.to_string(), "a power of two, and no more than there are pages")?;
        demand(self.pages > 0, "pages", self.pages.to_string(), "at least 1")?;
        demand(self.spare_frames > 0, "spare_frames", self.spare_frames.to_string(), "at least 1")?;
        demand(self.handles_per_page > 0, "handles_per_page", self.handles_per_page.to_string(), "at least 1")?;
        let handles = self.handles_per_shard();
        demand(handles < MAX_HANDLES, "handles per shard", handles.to_string(), "less than 2^30 - 1: use more shards")?;
        let frames = self.frames_per_shard().saturating_mul(self.shards);
        demand(frames < u32::MAX as usize, "frames", frames.to_string(), "less than 2^32 - 1")?;
        demand((1..=RING).contains(&self.hit_batch), "hit_batch", self.hit_batch.to_string(), "from 1 to 64")?;
        demand((0.0..=1.0).contains(&self.dirty_high), "dirty_high", self.dirty_high.to_string(), "from 0 to 1")?;
        demand(self.objects > 0, "objects", self.objects.to_string(), "at least 1")
    }
}

pub(super) fn check_page_bytes(page_bytes: usize) -> Result<(), OpenError> {
    if page_bytes.is_power_of_two() && (PAGE_BYTES.0..=PAGE_BYTES.1).contains(&page_bytes) {
        return Ok(());
    }
    let range = "a power of two from 4096 to 65536";
    Err(OpenError::Option { name: "page_bytes", value: page_bytes.to_string(), range })
}
