//! Write-backs by a thread, as in the live cache. Pages wait in a queue; the thread takes some and writes them below
//! together, and takes the next when all of them are written. Without the thread each write-back starts at once, by
//! itself.

use super::work::Op;
use std::collections::VecDeque;

/// Limits of the cache's own write-back thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Pages that may wait; while the queue is full no new request starts.
    pub queue: usize,
    /// Waiting pages at which the thread begins.
    pub soft: usize,
    /// Concurrent writes of the thread with a nearly empty queue; more as the queue fills.
    pub least: usize,
    /// Concurrent writes of the thread with a full queue.
    pub most: usize,
}

impl Behind {
    /// Returns the limits of the live cache (`crates/cache/src/watermarks.rs`).
    ///
    /// The thread begins when half a segment waits, four segments may wait, and 4 to 64 writes are under way at a time.
    /// Segments are of 1 MiB, or smaller if fewer than 64 of them fit (`entresol format`). The log has a third more
    /// slots than `pages`.
    pub fn live(pages: u64, page_bytes: u32) -> Self {
        let pages = segment_pages(pages * u64::from(page_bytes) * 4 / 3, page_bytes) as usize;
        Behind { queue: 4 * pages, soft: pages / 2, least: 4, most: 64 }
    }

    /// Number of pages that the thread takes at a time while `waiting` pages wait: none before the soft limit.
    fn depth(&self, waiting: usize) -> usize {
        let Some(excess) = waiting.checked_sub(self.soft) else { return 0 };
        let space = (self.queue - self.soft).max(1);
        self.least + (self.most - self.least) * (excess * excess).min(space * space) / (space * space)
    }
}

/// Pages of a live cache's segment on a device of so many bytes: the largest power of two that fits 64 times, but at
/// least 16 pages and at most 1 MiB.
fn segment_pages(device_bytes: u64, page_bytes: u32) -> u64 {
    let segment = 1u64 << (device_bytes / 64).clamp(1, 1 << 20).ilog2();
    (segment / u64::from(page_bytes)).max(16)
}

/// Slots that a live cache of `pages` pages leaves free in its slots layout: four segments' worth, and one slot in 64.
pub(super) fn spare_slots(pages: u64, page_bytes: u32) -> u64 {
    let four = 4 * segment_pages(pages * u64::from(page_bytes), page_bytes);
    four + (pages + four).saturating_sub(1) / 63
}

/// Queue of chains for the thread, and the number of taken chains under way.
pub(super) struct Queue {
    behind: Behind,
    waiting: VecDeque<Vec<Op>>,
    flying: usize,
}

impl Queue {
    pub fn new(behind: Behind) -> Self {
        Queue { behind, waiting: VecDeque::new(), flying: 0 }
    }

    pub fn is_full(&self) -> bool {
        self.waiting.len() >= self.behind.queue
    }

    pub fn push(&mut self, chain: &[Op]) {
        self.waiting.push_back(chain.to_vec());
    }

    /// Records the completion of a taken chain.
    pub fn landed(&mut self) {
        self.flying -= 1;
    }

    /// Takes the next chains, if none is under way.
    pub fn take(&mut self) -> Vec<Vec<Op>> {
        if self.flying > 0 {
            return Vec::new();
        }
        let depth = self.behind.depth(self.waiting.len());
        let taken: Vec<Vec<Op>> = self.waiting.drain(..depth.min(self.waiting.len())).collect();
        self.flying = taken.len();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuller_the_queue_the_more_is_written_at_a_time() {
        // 62 MiB: 64 segments of half a MiB fit, of 64 pages each.
        let behind = Behind::live(5958, 8192);
        assert_eq!(behind, Behind { queue: 256, soft: 32, least: 4, most: 64 });
        assert_eq!(Behind::live(1489, 8192).queue, 64);
        assert_eq!(Behind::live(1 << 20, 8192).queue, 512);
        assert_eq!(Behind::live(1, 8192).queue, 64);
        let depths = [0, 31, 32, 144, 256, 1000].map(|waiting| behind.depth(waiting));
        assert_eq!(depths, [0, 0, 4, 19, 64, 64]);
    }

    #[test]
    fn a_live_cache_with_as_many_slots_holds_the_pages() {
        let near = (1000..1130).map(|pages| (pages, 4096));
        for (pages, page_bytes) in near.chain([(5958, 8192), (1 << 20, 4096)]) {
            let spare = spare_slots(pages, page_bytes);
            let (slots, four) = (pages + spare, 4 * segment_pages(pages * u64::from(page_bytes), page_bytes));
            // The rule of `docs/cache-format.md`: all slots but four segments' worth and one in 64 are for pages.
            assert_eq!(slots - slots / 64 - four, pages, "pages of {page_bytes} B");
        }
    }

    #[test]
    fn what_is_taken_is_done_before_more_is() {
        let mut queue = Queue::new(Behind { queue: 8, soft: 2, least: 1, most: 3 });
        let push = |queue: &mut Queue, count: u64| (0..count).for_each(|at| queue.push(&[Op::write(0, at, 1)]));
        push(&mut queue, 1);
        assert!(queue.take().is_empty(), "one is too few");
        push(&mut queue, 7);
        assert!(queue.is_full());
        assert_eq!(queue.take().len(), 3);
        assert!(!queue.is_full() && queue.take().is_empty(), "three are under way");
        (0..3).for_each(|_| queue.landed());
        assert_eq!(queue.take().len(), 1, "half full");
        assert_eq!(queue.waiting.len(), 4);
    }
}
