//! Hits and write-backs of LRU at all sizes in one pass.
//!
//! Stack distances as in Mattson, Gecsei, Slutz, Traiger 1970, counted with a Fenwick tree (Bennett, Kruskal 1975).
//! Write-backs follow from the same distances (Thompson, Smith 1989): a page is dirty in a cache of `c` pages as long
//! as no distance since its last write exceeded `c`, and is written back the first time one does.

use crate::addresses::Addresses;
use entresol_core::{NEVER, Op, Page};

/// Counts of LRU at one capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CurvePoint {
    /// Capacity in pages.
    pub capacity: usize,
    /// Read hits.
    pub read_hits: u64,
    /// Write hits.
    pub write_hits: u64,
    /// Write misses of partial writes, which fetch.
    pub update_misses: u64,
    /// Dirty pages evicted.
    pub write_backs: u64,
    /// Pages dirty at the end.
    pub dirty_at_end: u64,
    /// Frames in use at the end.
    pub held: usize,
}

/// Number of marks at or before a time, over times below a fixed bound.
struct Fenwick {
    tree: Vec<u32>,
}

impl Fenwick {
    fn add(&mut self, time: usize, delta: i32) {
        let mut i = time + 1;
        while i < self.tree.len() {
            self.tree[i] = self.tree[i].wrapping_add_signed(delta);
            i += i & i.wrapping_neg();
        }
    }

    fn marks_through(&self, time: usize) -> u32 {
        let mut i = time + 1;
        let mut sum = 0;
        while i > 0 {
            sum += self.tree[i];
            i &= i - 1;
        }
        sum
    }
}

/// Histograms over distances `1..=footprint`: entry `d - 1` counts the hits of a cache of `d` pages or more.
struct Histograms {
    reads: Vec<u64>,
    writes: Vec<u64>,
    updates: Vec<u64>,
    /// Differences: a write-back at capacities `a..b` adds 1 at `a` and subtracts 1 at `b`.
    write_backs: Vec<i64>,
    dirty: Vec<i64>,
}

impl Histograms {
    fn new(footprint: usize) -> Self {
        let zeros = vec![0; footprint + 2];
        let differences = vec![0; footprint + 2];
        Histograms {
            reads: zeros.clone(),
            writes: zeros.clone(),
            updates: zeros,
            write_backs: differences.clone(),
            dirty: differences,
        }
    }

    fn hit(&mut self, op: Op, distance: usize) {
        match op {
            Op::Read => self.reads[distance] += 1,
            Op::Write => self.writes[distance] += 1,
            Op::Update => {
                self.writes[distance] += 1;
                self.updates[distance] += 1;
            }
        }
    }

    /// Records an eviction of a page from caches of less than `distance` pages; it was dirty in those of `dirty_from`
    /// or more.
    fn evicted(&mut self, dirty_from: usize, distance: usize) {
        if dirty_from < distance {
            self.write_backs[dirty_from] += 1;
            self.write_backs[distance] -= 1;
        }
    }
}

/// Hits and write-backs of LRU at each of these capacities, in one pass over the whole trace. A warm-up cannot be left
/// out, because an eviction is seen only when the page returns.
///
/// Memory: 28 bytes a page of the footprint and 8 a request of the largest gap; time O(n log footprint).
pub fn lru_curve(addresses: &Addresses, capacities: &[usize]) -> Vec<CurvePoint> {
    let trace = addresses.trace;
    let footprint = trace.footprint();
    // Times are renumbered when they run out, so the tree stays within the processor's cache for small footprints.
    let times = (footprint * 2).max(1 << 16);
    let mut tree = Fenwick { tree: vec![0; times + 1] };
    let mut last = vec![NEVER; footprint];
    // Smallest capacity at which the page is dirty now; beyond the footprint when it is clean everywhere.
    let clean = footprint + 1;
    let mut dirty_from = vec![clean as u32; footprint];
    let mut histograms = Histograms::new(footprint);
    let mut now = 0;
    let mut updates = 0;
    let mut distinct = 0;
    for at in 0..trace.len() {
        if now == times {
            now = renumber(&mut tree, &mut last);
        }
        let request = trace.request(at);
        let page = request.page.index();
        updates += u64::from(request.op == Op::Update);
        if last[page] == NEVER {
            distinct += 1;
        } else {
            let newer = distinct - tree.marks_through(last[page] as usize) as usize;
            let distance = newer + 1;
            histograms.hit(request.op, distance);
            histograms.evicted(dirty_from[page] as usize, distance);
            dirty_from[page] = dirty_from[page].max(distance as u32);
            tree.add(last[page] as usize, -1);
        }
        if request.op.is_write() {
            dirty_from[page] = 1;
        }
        tree.add(now, 1);
        last[page] = now as u32;
        now += 1;
    }
    finish(&tree, &last, &dirty_from, distinct, &mut histograms);
    points(&histograms, capacities, updates, distinct)
}

/// Gives the pages times `0..pages` in their order of last use.
fn renumber(tree: &mut Fenwick, last: &mut [u32]) -> usize {
    let mut order: Vec<u32> = (0..last.len() as u32).filter(|&page| last[page as usize] != NEVER).collect();
    order.sort_unstable_by_key(|&page| last[page as usize]);
    tree.tree.fill(0);
    for (time, &page) in order.iter().enumerate() {
        last[page as usize] = time as u32;
        tree.add(time, 1);
    }
    order.len()
}

/// Adds the pages that are not used again: evicted by caches smaller than their depth in the stack, dirty in the
/// others.
fn finish(tree: &Fenwick, last: &[u32], dirty_from: &[u32], distinct: usize, histograms: &mut Histograms) {
    let footprint = last.len();
    for page in (0..footprint as u32).map(Page) {
        if last[page.index()] == NEVER {
            continue;
        }
        let depth = distinct - tree.marks_through(last[page.index()] as usize) as usize + 1;
        let from = dirty_from[page.index()] as usize;
        histograms.evicted(from, depth);
        if from <= footprint {
            histograms.dirty[from.max(depth)] += 1;
            histograms.dirty[footprint + 1] -= 1;
        }
    }
}

fn points(histograms: &Histograms, capacities: &[usize], updates: u64, distinct: usize) -> Vec<CurvePoint> {
    let through = |counts: &[u64], capacity: usize| counts.iter().take(capacity + 1).sum::<u64>();
    let point = |&capacity: &usize| {
        let bounded = capacity.min(histograms.reads.len() - 2);
        let differences = |counts: &[i64]| counts.iter().take(bounded + 1).sum::<i64>() as u64;
        CurvePoint {
            capacity,
            read_hits: through(&histograms.reads, capacity),
            write_hits: through(&histograms.writes, capacity),
            update_misses: updates - through(&histograms.updates, capacity),
            write_backs: differences(&histograms.write_backs),
            dirty_at_end: differences(&histograms.dirty),
            held: capacity.min(distinct),
        }
    };
    capacities.iter().map(point).collect()
}
