//! Writes below by a thread, as in the live cache. Pages wait in a queue, those that go past the cache too, and no request
//! waits for them. The thread takes some in order of their places, with dirty neighbours that the cache holds, and writes
//! them together; it takes the next when all of them are written. A page that waits, is being written or is not synced
//! below yet is read from memory. Without the thread each write-back starts at once, by itself, and a request waits for
//! the write of a page that goes past the cache.

use super::work::Op;
use entresol_device::Io;
use std::collections::{BTreeMap, HashSet};

/// Longest run of neighbours in bytes (`crates/cache/src/durability/neighbours.rs`).
const RUN_BYTES: u32 = 256 << 10;

/// A neighbour goes along if it was written at most so many times as recently.
const AGE_SHARE: u64 = 2;

/// Limits of the cache's own write-back thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Pages that may wait; while the queue is full no new request starts.
    pub queue: usize,
    /// Waiting pages at which the thread begins.
    pub soft: usize,
    /// Concurrent writes of the thread with a nearly empty queue, each of a run of neighbours; more as the queue fills.
    pub least: usize,
    /// Concurrent writes of the thread with a full queue.
    pub most: usize,
    /// Pages that are written before a sync of the level below. The sync itself takes no time.
    pub unsynced: usize,
}

impl Behind {
    /// Returns the limits of the live cache (`crates/cache/src/durability/watermarks.rs`).
    ///
    /// The thread begins when half a segment waits, four segments may wait, and 4 to 64 writes are under way at a time.
    /// A sync below follows eight segments of writes.
    /// Segments are of 1 MiB, or smaller if fewer than 64 of them fit (`entresol format`). The log has a third more
    /// slots than `pages`.
    pub fn live(pages: u64, page_bytes: u32) -> Self {
        let pages = segment_pages(pages * u64::from(page_bytes) * 4 / 3, page_bytes) as usize;
        Behind { queue: 4 * pages, soft: pages / 2, least: 4, most: 64, unsynced: 8 * pages }
    }

    /// Most pages that wait, are being written, or are not synced below yet.
    pub fn pages_max(&self, page_bytes: u32) -> usize {
        2 * self.queue + self.unsynced + self.most * (RUN_BYTES / page_bytes).max(1) as usize
    }

    /// Number of runs that the thread takes at a time while `waiting` pages wait: none before the soft limit.
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

/// A dirty page that the cache holds, or held when it was queued.
#[derive(Clone, Copy)]
struct Dirty {
    /// Number of its last write to the cache among all.
    since: u64,
    /// The I/O that reads it from the cache.
    read: Op,
}

/// A page in the queue.
struct Waiting {
    chain: Vec<Op>,
    /// Number of its last write to the cache; `None` for a page that goes past it.
    since: Option<u64>,
}

/// Queue of the thread, and what it has under way.
pub(super) struct Queue {
    behind: Behind,
    /// Pages by their places below.
    waiting: BTreeMap<u64, Waiting>,
    /// Place at which the thread goes on.
    sweep: u64,
    /// Taken runs that are under way.
    flying: usize,
    /// Places that are being written, or were since the last sync.
    unsynced: HashSet<u64>,
    /// Dirty pages of the cache by their places below.
    dirty: BTreeMap<u64, Dirty>,
    /// Places of pages that the cache holds and neighbours have taken along.
    clean: HashSet<u64>,
    /// Writes to the cache so far.
    writes: u64,
}

impl Queue {
    pub fn new(behind: Behind) -> Self {
        let (waiting, dirty) = (BTreeMap::new(), BTreeMap::new());
        let (unsynced, clean) = (HashSet::new(), HashSet::new());
        Queue { behind, waiting, sweep: 0, flying: 0, unsynced, dirty, clean, writes: 0 }
    }

    pub fn is_full(&self) -> bool {
        self.waiting.len() >= self.behind.queue
    }

    /// Notes the write of a page to the cache, from which `read` reads it; `place` is that of the page below.
    pub fn note_dirty(&mut self, place: u64, read: Op) {
        self.writes += 1;
        self.clean.remove(&place);
        self.dirty.insert(place, Dirty { since: self.writes, read });
    }

    /// Adds a write-back, which ends with the write below. One that a neighbour has taken along is not written again.
    pub fn push(&mut self, chain: &[Op]) {
        let Some(write) = chain.last().filter(|write| !self.clean.remove(&write.io.offset)) else { return };
        let since = self.dirty.remove(&write.io.offset).map(|dirty| dirty.since);
        self.wait(chain, since);
    }

    fn wait(&mut self, chain: &[Op], since: Option<u64>) {
        let place = chain[chain.len() - 1].io.offset;
        self.waiting.insert(place, Waiting { chain: chain.to_vec(), since });
    }

    /// Takes from the I/Os of a request what it does not wait for: writes below, which wait here, and reads of pages that
    /// are in memory.
    pub fn keep(&mut self, below: usize, foreground: &mut Vec<Op>) {
        foreground.retain(|op| {
            if op.writes_to(below) {
                self.dirty.remove(&op.io.offset);
                self.clean.remove(&op.io.offset);
                self.wait(&[*op], None);
                return false;
            }
            !(op.reads_from(below) && self.has(op.io.offset))
        });
    }

    /// True if a page that is read at a place below is in memory.
    fn has(&self, place: u64) -> bool {
        self.waiting.contains_key(&place) || self.unsynced.contains(&place)
    }

    /// Records the completion of a taken run.
    pub fn landed(&mut self) {
        self.flying -= 1;
        if self.flying == 0 && self.unsynced.len() >= self.behind.unsynced {
            self.unsynced.clear();
        }
    }

    /// Takes the next runs, if none is under way: chains that read each page and end with one write.
    pub fn take(&mut self) -> Vec<Vec<Op>> {
        let depth = self.behind.depth(self.waiting.len());
        if self.flying > 0 || depth == 0 {
            return Vec::new();
        }
        if self.waiting.range(self.sweep..).next().is_none() {
            self.sweep = 0;
        }
        let mut taken = Vec::new();
        while taken.len() < depth
            && let Some((&place, _)) = self.waiting.range(self.sweep..).next()
        {
            taken.push(self.take_run(place));
        }
        self.flying = taken.len();
        taken
    }

    /// Takes the run that begins with a waiting page, and goes on behind it.
    fn take_run(&mut self, place: u64) -> Vec<Op> {
        let mut run = self.waiting.remove(&place).expect("it waits");
        let Op { device, mut io } = run.chain.pop().expect("a write");
        let (page, mut since) = (io.bytes, run.since);
        self.unsynced.insert(place);
        while let Some(next) = self.waiting.remove(&io.end()) {
            let (last, reads) = next.chain.split_last().expect("a write");
            run.chain.extend_from_slice(reads);
            self.unsynced.insert(last.io.offset);
            (io.bytes, since) = (io.bytes + last.io.bytes, next.since);
        }
        while io.bytes < RUN_BYTES
            && let Some(before) = io.offset.checked_sub(page.into())
            && let Some(read) = self.take_along(before, run.since)
        {
            run.chain.push(read);
            io = Io { offset: before, bytes: io.bytes + page, ..io };
        }
        while io.bytes < RUN_BYTES
            && let Some(read) = self.take_along(io.end(), since)
        {
            run.chain.push(read);
            io.bytes += page;
        }
        self.sweep = io.end();
        run.chain.push(Op { device, io });
        run.chain
    }

    /// Takes the page of a place along with its neighbour in the queue, which was last written as number `since`, if the
    /// cache has it and it is not much younger. Returns the I/O that reads it.
    fn take_along(&mut self, place: u64, since: Option<u64>) -> Option<Op> {
        let (dirty, age) = (self.dirty.get(&place)?, self.writes - since?);
        if self.unsynced.contains(&place) || AGE_SHARE * (self.writes - dirty.since) < age {
            return None;
        }
        self.unsynced.insert(place);
        self.clean.insert(place);
        self.dirty.remove(&place).map(|dirty| dirty.read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuller_the_queue_the_more_is_written_at_a_time() {
        // 62 MiB: 64 segments of half a MiB fit, of 64 pages each.
        let behind = Behind::live(5958, 8192);
        assert_eq!(behind, Behind { queue: 256, soft: 32, least: 4, most: 64, unsynced: 512 });
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

    const PAGE: u32 = 4096;

    /// The write-back of a page, whose place in the cache is that below and a million pages.
    fn chain(page: u64) -> [Op; 2] {
        let place = page * u64::from(PAGE);
        [Op::read(0, (1_000_000 << 12) + place, PAGE), Op::write(1, place, PAGE)]
    }

    /// Writes pages to the cache.
    fn dirty(queue: &mut Queue, pages: &[u64]) {
        for &page in pages {
            let [read, write] = chain(page);
            queue.note_dirty(write.io.offset, read);
        }
    }

    /// Writes pages to the cache, and then back.
    fn push(queue: &mut Queue, pages: &[u64]) {
        dirty(queue, pages);
        pages.iter().for_each(|&page| queue.push(&chain(page)));
    }

    /// Takes runs: the pages that each reads, its first page below and its number of pages.
    fn taken(queue: &mut Queue) -> Vec<(Vec<u64>, u64, u32)> {
        let page = |op: &Op| op.io.offset / u64::from(PAGE);
        let pages = |run: &Vec<Op>| {
            let (write, reads) = run.split_last().expect("a write");
            (reads.iter().map(|read| page(read) - 1_000_000).collect(), page(write), write.io.bytes / PAGE)
        };
        queue.take().iter().map(pages).collect()
    }

    fn in_memory(queue: &Queue) -> Vec<u64> {
        (0..20).filter(|page| queue.has(page * u64::from(PAGE))).collect()
    }

    #[test]
    fn what_is_taken_is_done_before_more_is() {
        let mut queue = Queue::new(Behind { queue: 8, soft: 2, least: 1, most: 3, unsynced: 100 });
        push(&mut queue, &[0]);
        assert!(queue.take().is_empty(), "one is too few");
        push(&mut queue, &[2, 4, 6, 8, 10, 12, 14]);
        assert!(queue.is_full());
        assert_eq!(queue.take().len(), 3);
        assert!(!queue.is_full() && queue.take().is_empty(), "three are under way");
        (0..3).for_each(|_| queue.landed());
        assert_eq!(queue.take().len(), 1, "half full");
        assert_eq!(queue.waiting.len(), 4);
    }

    #[test]
    fn neighbours_are_one_write_and_the_sweep_goes_on_where_it_ended() {
        let mut queue = Queue::new(Behind { queue: 8, soft: 1, least: 2, most: 2, unsynced: 6 });
        push(&mut queue, &[7, 3, 5, 4, 1, 4]);
        assert_eq!(queue.waiting.len(), 5, "one of two for the same place");
        assert_eq!(taken(&mut queue), [(vec![1], 1, 1), (vec![3, 4, 5], 3, 3)]);
        assert_eq!(in_memory(&queue), [1, 3, 4, 5, 7], "written, and waiting");
        (0..2).for_each(|_| queue.landed());
        push(&mut queue, &[2, 8]);
        assert_eq!(taken(&mut queue), [(vec![7, 8], 7, 2)], "and not page 2");
        queue.landed();
        assert_eq!(in_memory(&queue), [2], "a sync has followed");
        assert_eq!(taken(&mut queue), [(vec![2], 2, 1)], "from the start again");
    }

    #[test]
    fn old_dirty_neighbours_go_along_once() {
        let mut queue = Queue::new(Behind { queue: 8, soft: 1, least: 2, most: 2, unsynced: 100 });
        dirty(&mut queue, &[4, 6, 7, 9]);
        push(&mut queue, &[5, 10]);
        // Page 7 has become the youngest.
        dirty(&mut queue, &[15, 16, 17, 18, 19, 7]);
        assert_eq!(taken(&mut queue), [(vec![5, 4, 6], 4, 3), (vec![10, 9], 9, 2)]);
        (0..2).for_each(|_| queue.landed());
        queue.push(&chain(4));
        assert!(queue.waiting.is_empty(), "it was taken along");
        push(&mut queue, &[6]);
        assert_eq!(taken(&mut queue), [(vec![6, 7], 6, 2)], "it was written since, and page 7 before it");
    }

    #[test]
    fn a_request_waits_for_no_write_below_and_for_no_read_of_a_page_in_memory() {
        let mut queue = Queue::new(Behind { queue: 8, soft: 1, least: 2, most: 2, unsynced: 100 });
        let [_, past] = chain(3);
        let read = |page| Op::read(1, page * u64::from(PAGE), PAGE);
        let mut foreground = vec![read(2), past, read(3), chain(3)[0]];
        queue.keep(1, &mut foreground);
        let left: Vec<Io> = foreground.iter().map(|op| op.io).collect();
        assert_eq!(left, [read(2).io, chain(3)[0].io]);
        dirty(&mut queue, &[4]);
        assert_eq!(taken(&mut queue), [(vec![], 3, 1)], "what goes past takes nothing along");
    }
}
