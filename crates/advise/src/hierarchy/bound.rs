//! Lower bound on the time of a trace in a hierarchy, whatever its policies do.
//!
//! 003, section 5.1, sums the misses over the levels: T = sum of (1 - H(C_{i-1})) t_i. With the hit ratio of a real
//! policy that is an estimate. With the largest possible hit ratio and the shortest times of the devices it is a bound.
//! The bound assumes that only requested pages are brought up, as all policies of a candidate do.
//!
//! The largest number of hits is that of Belady 1966, counted for reads alone: a page is worth keeping from one request
//! to the next if the next is a read. Kept pages are intervals of time, at most as many at once as there are frames.
//! Dropping the longest interval whenever there are too many keeps the most of them (Faigle, Nawijn 1995).

use entresol_core::{NEVER, Op, Random};
use entresol_device::load::{Load, closed_loop};
use entresol_device::profile::Profile;
use entresol_device::{DeviceError, Io};
use entresol_sim::Addresses;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// I/Os of each kind for measuring a device's shortest times.
const COUNT: u64 = 4000;
const SEED: u64 = 42;
/// Factor that undoes the rounding of a histogram, whose values are at most 0.4 % too high.
const ROUNDED: f64 = 0.995;
/// I/Os kept outstanding to measure a device's throughput, as many as any profile works on at a time.
const DEPTH: usize = 256;
/// Factor on the measured time of [`COUNT`] I/Os. It removes the time of filling and draining the queue, and a tenth
/// for other orders of I/Os.
const FILLED: f64 = 0.85;

/// Shortest times of a device for a page, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shortest {
    /// A read alone.
    pub read_ns: f64,
    /// A write alone.
    pub write_ns: f64,
    /// Time from one completion to the next, with as many reads outstanding as the device can work on.
    pub apart_ns: f64,
}

impl Shortest {
    /// Times of a device of this capacity, over reads and writes at random and in order.
    ///
    /// # Errors
    /// When the profile cannot be built at this capacity.
    pub fn of(profile: &Profile, capacity_bytes: u64, page_bytes: u32) -> Result<Self, DeviceError> {
        let pages = (capacity_bytes / u64::from(page_bytes)).max(1);
        let run = |write: bool, random: bool, depth: usize| -> Result<Load, DeviceError> {
            let mut device = profile.build(capacity_bytes.max(page_bytes.into()), SEED)?;
            let mut draw = Random::new(SEED);
            Ok(closed_loop(&mut device, depth, COUNT, |i| {
                let page = if random { draw.below(pages) } else { i % pages };
                let offset = page * u64::from(page_bytes);
                if write { Io::write(offset, page_bytes) } else { Io::read(offset, page_bytes) }
            }))
        };
        let least = |write, random| Ok(run(write, random, 1)?.latency.quantile(0.0) as f64 * ROUNDED);
        let apart = |random| Ok(run(false, random, DEPTH)?.elapsed as f64 / COUNT as f64 * FILLED);
        let (read, write) =
            (least(false, true)?.min(least(false, false)?), least(true, true)?.min(least(true, false)?));
        Ok(Shortest { read_ns: read, write_ns: write, apart_ns: f64::min(apart(true)?, apart(false)?) })
    }
}

/// Requests of the counted part of a trace, and the most hits of any cache.
pub struct MostHits<'w> {
    reads: u64,
    writes: u64,
    /// Per request the next read of its page, if that read is counted; else [`NEVER`].
    next_read: Vec<u32>,
    /// The same for requests that fetch when they miss: reads and partial writes. `None` for a trace without partial
    /// writes.
    next_fetch: Option<Vec<u32>>,
    known: Mutex<BTreeMap<(bool, usize), u64>>,
    addresses: &'w Addresses<'w>,
}

impl<'w> MostHits<'w> {
    /// Counts the requests from `warm` on.
    pub fn new(addresses: &'w Addresses<'w>, warm: usize) -> Self {
        let trace = addresses.trace;
        let op = |at: usize| trace.request(at).op;
        let counted = |of: fn(Op) -> bool| (warm..trace.len()).filter(|&at| of(op(at))).count() as u64;
        let worth = |of: fn(Op) -> bool| -> Vec<u32> {
            let when = |&next: &u32| {
                if next != NEVER && next as usize >= warm && of(op(next as usize)) { next } else { NEVER }
            };
            addresses.next_use().iter().map(when).collect()
        };
        let updates = counted(|op| op == Op::Update);
        MostHits {
            reads: counted(|op| op == Op::Read),
            writes: counted(|op| op.is_write()),
            next_read: worth(|op| op == Op::Read),
            next_fetch: (updates > 0).then(|| worth(|op| op != Op::Write)),
            known: Mutex::default(),
            addresses,
        }
    }

    /// Number of counted requests.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes
    }

    /// Most read hits of a cache of `capacity` pages.
    pub fn read_hits(&self, capacity: usize) -> u64 {
        self.of(false, capacity)
    }

    /// Fewest pages read from below a cache of `capacity` pages.
    fn fetches(&self, capacity: usize) -> u64 {
        let trace = self.addresses.trace;
        match &self.next_fetch {
            None => self.reads - self.of(false, capacity),
            Some(next) => {
                let updates = (trace.len() - self.requests() as usize..trace.len())
                    .filter(|&at| trace.request(at).op == Op::Update)
                    .count() as u64;
                debug_assert_eq!(next.len(), trace.len());
                self.reads + updates - self.of(true, capacity)
            }
        }
    }

    fn of(&self, fetches: bool, capacity: usize) -> u64 {
        let key = (fetches, capacity.min(self.addresses.trace.footprint()));
        if let Some(&hits) = self.known.lock().expect("no thread panics with it").get(&key) {
            return hits;
        }
        let next = if fetches { self.next_fetch.as_ref().unwrap_or(&self.next_read) } else { &self.next_read };
        let hits = most_hits(next, key.1);
        self.known.lock().expect("no thread panics with it").insert(key, hits);
        hits
    }

    /// Least time of all counted requests in nanoseconds, for any number of requesters. All devices read without a
    /// pause, and the level below reads at least the pages that the caches cannot hold.
    pub fn least_busy_ns(&self, caches: &[(usize, Shortest)], below: Shortest) -> f64 {
        let all: usize = caches.iter().map(|(capacity, _)| capacity).sum();
        let times = caches.iter().map(|(_, times)| times.apart_ns).chain([below.apart_ns]);
        let together: f64 = times.map(|apart_ns| 1.0 / apart_ns).sum();
        (self.reads as f64 / together).max(self.fetches(all) as f64 * below.apart_ns)
    }

    /// Sum of the least times of all counted requests, in nanoseconds, with caches of these capacities in pages and
    /// times. Requesters overlap: with `n` of them the trace takes at least an `n`-th of the sum.
    pub fn least_ns(&self, caches: &[(usize, Shortest)], below: Shortest) -> f64 {
        let write_ns = caches.iter().map(|(_, times)| times.write_ns).fold(below.write_ns, f64::min);
        let mut faster: Vec<(usize, f64)> = caches.iter().map(|(capacity, times)| (*capacity, times.read_ns)).collect();
        faster.retain(|(_, read_ns)| *read_ns < below.read_ns);
        faster.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (mut capacity, mut found, mut read_ns) = (0, 0, 0.0);
        for &(pages, time) in &faster {
            capacity += pages;
            let hits = self.read_hits(capacity);
            read_ns += (hits - found) as f64 * time;
            found = hits;
        }
        read_ns += (self.reads - found) as f64 * below.read_ns;
        // Partial writes that miss read below as well, so their misses make a second bound.
        let all: usize = caches.iter().map(|(capacity, _)| capacity).sum();
        let least_read = faster.first().map_or(below.read_ns, |(_, time)| *time);
        let more = (below.read_ns - least_read.max(write_ns)).max(0.0);
        let with_updates = self.reads as f64 * least_read + self.fetches(all) as f64 * more;
        read_ns.max(with_updates) + self.writes as f64 * write_ns
    }
}

/// Most hits with `frames` frames. `next[i]` is the request that hits if the page of request `i` is kept, or [`NEVER`].
fn most_hits(next: &[u32], frames: usize) -> u64 {
    let mut kept = Ends::new(next.len());
    let (mut count, mut hits) = (0, 0);
    for (at, &end) in next.iter().enumerate() {
        if kept.remove(at) {
            count -= 1;
            hits += 1;
        }
        if end == NEVER {
            continue;
        }
        kept.insert(end as usize);
        count += 1;
        if count > frames {
            let longest = kept.last();
            kept.remove(longest);
            count -= 1;
        }
    }
    hits
}

/// A set of times with its largest member: a bit per time, and above each word a bit that is set if the word is not
/// empty.
struct Ends {
    levels: Vec<Vec<u64>>,
}

impl Ends {
    fn new(times: usize) -> Self {
        let mut levels = Vec::new();
        let mut size = times.max(1);
        loop {
            size = size.div_ceil(64);
            levels.push(vec![0; size]);
            if size == 1 {
                return Ends { levels };
            }
        }
    }

    fn insert(&mut self, mut at: usize) {
        for level in &mut self.levels {
            level[at / 64] |= 1 << (at % 64);
            at /= 64;
        }
    }

    /// Removes a time; true if it was there.
    fn remove(&mut self, mut at: usize) -> bool {
        if self.levels[0][at / 64] >> (at % 64) & 1 == 0 {
            return false;
        }
        for level in &mut self.levels {
            level[at / 64] &= !(1 << (at % 64));
            if level[at / 64] != 0 {
                break;
            }
            at /= 64;
        }
        true
    }

    /// The largest member of a set that is not empty.
    fn last(&self) -> usize {
        self.levels.iter().rev().fold(0, |at, level| at * 64 + 63 - level[at].leading_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_trace::{GenerateSpec, generate};

    /// Brute force over every set of kept intervals.
    fn by_force(next: &[u32], frames: usize) -> u64 {
        let intervals: Vec<(usize, usize)> =
            next.iter().enumerate().filter(|(_, end)| **end != NEVER).map(|(at, &end)| (at, end as usize)).collect();
        let fits = |set: u32| {
            (0..next.len()).all(|t| {
                let open = |(i, &(from, to)): (usize, &(usize, usize))| set >> i & 1 == 1 && from <= t && t < to;
                intervals.iter().enumerate().filter(|&interval| open(interval)).count() <= frames
            })
        };
        (0u32..1 << intervals.len()).filter(|&set| fits(set)).map(|set| u64::from(set.count_ones())).max().unwrap_or(0)
    }

    #[test]
    fn no_choice_of_kept_pages_finds_more() {
        const SEED: u64 = 23;
        println!("seed {SEED}");
        let mut random = Random::new(SEED);
        for round in 0..300 {
            let pages = 1 + random.below(5);
            let sequence: Vec<u64> = (0..13).map(|_| random.below(pages)).collect();
            let counts = |at: usize| at >= 4 && !(at + round).is_multiple_of(3);
            let next: Vec<u32> = (0..sequence.len())
                .map(|at| (at + 1..sequence.len()).find(|&later| sequence[later] == sequence[at]))
                .map(|found| found.filter(|&at| counts(at)).map_or(NEVER, |at| at as u32))
                .collect();
            for frames in 0..4 {
                assert_eq!(most_hits(&next, frames), by_force(&next, frames), "{sequence:?}, {frames} frames");
            }
        }
    }

    #[test]
    fn it_is_belady_where_all_are_reads() {
        let trace = generate(&GenerateSpec::parse("zipf:n=20k:pages=600:seed=9", 4096).expect("a trace"));
        let addresses = Addresses::new(&trace);
        let most = MostHits::new(&addresses, 0);
        for frames in [1_usize, 7, 64, 300, 600] {
            let min = entresol_sim::parse_policies("min").expect("a policy").remove(0);
            let layer = entresol_sim::LayerSpec { policy: min, sizes: vec![entresol_core::Size::Pages(frames as u64)] };
            let row = entresol_sim::run_cell(&addresses, &[layer], String::new(), &Default::default()).expect("a row");
            // Belady's algorithm must admit every page; this bound need not, so it is compared with one frame more.
            assert!(most.read_hits(frames) >= row.read_hits, "{frames}");
            assert!(most.read_hits(frames - 1) <= row.read_hits, "{frames}");
        }
    }

    #[test]
    fn the_largest_member_is_found() {
        let mut random = Random::new(3);
        let (mut ends, mut model) = (Ends::new(10_000), std::collections::BTreeSet::new());
        for _ in 0..20_000 {
            let at = random.below(10_000) as usize;
            if random.below(2) == 0 {
                ends.insert(at);
                model.insert(at);
            } else {
                assert_eq!(ends.remove(at), model.remove(&at));
            }
            if let Some(&last) = model.last() {
                assert_eq!(ends.last(), last);
            }
        }
    }
}
