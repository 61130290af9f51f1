//! Ages at which the pages of each class are read or written next, or forgotten, and the ranks that follow from them.
//!
//! The rank of a page is the Gittins index of its class and age: the greatest ratio, over all moments at which its
//! frame could be given up, of the benefits expected until then to the time for which the frame is expected to be
//! taken until then. A benefit is a disk I/O saved. A clean page saves one when it is read next. A dirty page saves
//! one when it is accessed next, as a write saves a write-back, and somewhat more when that access is a read: it is
//! still dirty then.

use super::history::{BUCKETS, CELLS, CLASSES, GAPS, Gaps, RANGES, STRIDE, bucket_start, cell, count_work};
use crate::mutant::{self, Mutant};
use std::cell::RefCell;
use std::sync::LazyLock;

/// Weight of an event; 0.9 of it, rounded down, is kept at each build.
const EVENT: u32 = 16;
/// Tenths of all weights that are kept at each build.
const KEPT_TENTHS: u64 = 9;
/// Number of events that the prior counts for.
const PRIOR: f64 = 30.0;
/// Share of pages that return, a priori, by range of the number of accesses.
const RETURNS: [f64; RANGES] = [0.5, 0.8, 0.9, 0.97, 0.97];
/// Number of accesses that stands for a range.
const ACCESSES: [u32; RANGES] = [1, 2, 6, 24, 96];
/// Mean gap of pages that were accessed once, a priori, in capacities.
const FIRST_GAP: f64 = 8.0;
/// Benefit of a dirty page's read. The write-back that the read leaves undone may be saved by a write after it.
const DIRTY_READ: f64 = 1.25;
/// Share of reads among the next accesses, a priori: after a read, after a write.
const READS: [f64; 2] = [0.75, 0.5];

/// Event that ends a wait for an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Read = 0,
    Write = 1,
    /// The page was forgotten: it was not accessed up to its age.
    Never = 2,
}

/// A rank or a value as the upper bits of a float: 8 bits of the mantissa, in the order of the numbers from 0 to 2.
#[inline(always)]
pub(super) fn encode(number: f64) -> i16 {
    (((number as f32).to_bits() >> 15).min(i16::MAX as u32)) as i16
}

/// The number of an encoded one.
#[inline(always)]
pub(super) fn decode(code: i16) -> f32 {
    f32::from_bits((code as u32) << 15)
}

/// Bytes of a cell in saved tables: three weights, two ranks, two values.
const CELL_BYTES: usize = 20;
/// Bytes of a class in saved tables: its number, its cells.
const CLASS_BYTES: usize = 2 + BUCKETS * CELL_BYTES;
/// Greatest weight of events in saved tables: ten times all that is counted between two builds, and far below an overflow.
const WEIGHT_MAX: u32 = 10 * EVENT * super::PERIOD_MAX as u32;

/// Classes that one call of [`Tables::build_next`] builds and looks at, at most.
pub(super) const BUILT: usize = 4;
const LOOKED_AT: usize = 64;

/// Everything that new tables follow from.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BuiltFor {
    capacity: usize,
    tick_accesses: u32,
    writes: bool,
    /// Mutants of a build that are on.
    mutants: [bool; 2],
}

thread_local! {
    /// The last tables of the prior that this thread has built. A cache that is started again is of the same size, and a build goes
    /// through 15,360 cells: a fifth of the time of a short crash test.
    static LAST_NEW: RefCell<Option<(BuiltFor, Tables)>> = const { RefCell::new(None) };
}

/// The tables of all classes.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// Weights of events by [`End`], by cell.
    events: Vec<[u32; 3]>,
    /// Number of pages of a sample that wait, by cell: a sample has at most 4,096.
    waiting: Vec<u16>,
    /// Distribution of the age at the next access a priori, of pages that were accessed once.
    first_prior: Prior,
    /// Ranks of a clean page and a dirty one, by cell.
    ranks: Vec<[i16; 2]>,
    /// Values likewise.
    values: Vec<[i16; 2]>,
    /// Classes that had an event or a waiting page.
    seen: Vec<bool>,
    /// The class to be built next; their number between two builds.
    next: usize,
    /// Accesses in a tick.
    tick_accesses: f64,
    /// False where all pages are clean: the only event is a read.
    writes: bool,
    /// Scratch of a build: the stays of a clean page and of a dirty one.
    stays: [Stays; 2],
}

impl Tables {
    /// Tables of the prior alone. `capacity` is in pages, `writes` is false where all pages are clean.
    pub fn new(capacity: usize, tick_accesses: u32, writes: bool) -> Self {
        let built_for = BuiltFor {
            capacity,
            tick_accesses,
            writes,
            mutants: [Mutant::DirtyReadsAsWrites, Mutant::WritesAsReads].map(mutant::is),
        };
        let tables = LAST_NEW.with_borrow_mut(|last| match last {
            Some((before, tables)) if *before == built_for => tables.clone(),
            _ => last.insert((built_for, Tables::built(capacity, tick_accesses, writes))).1.clone(),
        });
        // A clone of a vector has no spare capacity.
        Tables { stays: Stays::of_both(), ..tables }
    }

    fn built(capacity: usize, tick_accesses: u32, writes: bool) -> Self {
        let tick_accesses = f64::from(tick_accesses);
        let mut tables = Tables {
            events: vec![[0; 3]; CELLS],
            waiting: vec![0; CELLS],
            first_prior: prior(FIRST_GAP * capacity as f64 / tick_accesses, ACCESSES[0]),
            ranks: vec![[0; 2]; CELLS],
            values: vec![[0; 2]; CELLS],
            seen: vec![false; CLASSES],
            next: CLASSES,
            tick_accesses,
            writes,
            stays: Stays::of_both(),
        };
        (0..CLASSES).for_each(|class| build_class(&mut tables, class, 0.0, 0.0));
        tables
    }

    /// Counts an event of a page in this [cell](super::history::History::cell).
    #[inline(always)]
    pub fn count(&mut self, cell: usize, end: End) {
        let weight = &mut self.events[cell][end as usize];
        // A class with a weight was seen before.
        if *weight == 0 {
            self.seen[cell / STRIDE] = true;
        }
        *weight += EVENT;
    }

    /// Counts a page of the sample that waits.
    pub fn wait(&mut self, class: usize, age: u32) {
        count_work(1);
        self.seen[class] = true;
        self.waiting[cell(class, age)] += 1;
    }

    /// Rank of a page in this [cell](super::history::History::cell), encoded: disk I/Os saved per access during which
    /// the page has a frame.
    #[inline(always)]
    pub fn rank(&self, cell: usize, dirty: bool) -> i16 {
        self.ranks[cell][usize::from(dirty)]
    }

    /// Value, encoded: disk I/Os that a frame for the page saves beyond those that it would save with other pages.
    #[inline(always)]
    pub fn value(&self, cell: usize, dirty: bool) -> i16 {
        self.values[cell][usize::from(dirty)]
    }

    /// Begins a build, which goes on with [`Tables::build_next`].
    pub fn begin_build(&mut self) {
        self.next = 0;
    }

    /// Builds ranks and values of a few classes with news; true if some remain. `theta` is the rank that frames are
    /// given up for, `sampled` the number of pages that one waiting page of the sample stands for.
    pub fn build_next(&mut self, theta: f64, sampled: usize) -> bool {
        let (end, mut built) = (CLASSES.min(self.next + LOOKED_AT), 0);
        while self.next < end && built < BUILT {
            if self.seen[self.next] {
                build_class(self, self.next, theta, sampled as f64);
                built += 1;
            }
            self.next += 1;
        }
        self.next < CLASSES
    }

    /// Builds all classes with news.
    #[cfg(test)]
    pub fn build(&mut self, theta: f64, sampled: usize) {
        self.begin_build();
        while self.build_next(theta, sampled) {}
    }

    /// Appends the classes with news as bytes: weights, ranks, values. At most 296 KB.
    pub fn save(&self, bytes: &mut Vec<u8>) {
        for class in (0..CLASSES).filter(|&class| self.seen[class]) {
            bytes.extend((class as u16).to_le_bytes());
            for at in class * STRIDE..class * STRIDE + BUCKETS {
                bytes.extend(self.events[at].iter().flat_map(|weight| weight.to_le_bytes()));
                bytes.extend(self.ranks[at].iter().chain(&self.values[at]).flat_map(|code| code.to_le_bytes()));
            }
        }
    }

    /// Takes over classes from [saved](Tables::save) bytes. False, with nothing changed, if the bytes are not of such classes,
    /// ascending.
    pub fn restore(&mut self, bytes: &[u8]) -> bool {
        let classes = bytes.chunks_exact(CLASS_BYTES);
        let number = |class: &[u8]| usize::from(u16::from_le_bytes([class[0], class[1]]));
        let weight =
            |cell: &[u8], at: usize| u32::from_le_bytes(cell[4 * at..4 * at + 4].try_into().expect("four bytes"));
        let code = |cell: &[u8], at: usize| i16::from_le_bytes([cell[12 + 2 * at], cell[13 + 2 * at]]);
        let is_sound =
            |cell: &[u8]| (0..3).all(|at| weight(cell, at) <= WEIGHT_MAX) && (0..4).all(|at| code(cell, at) >= 0);
        let are_sound = classes.remainder().is_empty()
            && classes.clone().map(number).is_sorted_by(|class, next| class < next)
            && classes.clone().all(|class| number(class) < CLASSES)
            && classes.clone().all(|class| class[2..].chunks_exact(CELL_BYTES).all(is_sound));
        if !are_sound {
            return false;
        }
        for class in classes {
            self.seen[number(class)] = true;
            for (bucket, cell) in class[2..].chunks_exact(CELL_BYTES).enumerate() {
                let at = number(class) * STRIDE + bucket;
                self.events[at] = [0, 1, 2].map(|end| weight(cell, end));
                self.ranks[at] = [0, 1].map(|dirty| code(cell, dirty));
                self.values[at] = [2, 3].map(|dirty| code(cell, dirty));
            }
        }
        true
    }

    /// Number of events of each kind that are remembered, with their weights.
    #[cfg(test)]
    pub fn weights(&self) -> [f64; 3] {
        let sum = |end| self.events.iter().map(|events| f64::from(events[end])).sum::<f64>();
        [0, 1, 2].map(|end| sum(end) / f64::from(EVENT))
    }

    /// Distribution of the age at the next access a priori, for half a class.
    fn prior(&self, half: usize) -> Prior {
        if half < GAPS { self.first_prior } else { LATER_PRIORS[half - GAPS] }
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.events.capacity() * 12
            + self.waiting.capacity() * 2
            + (self.ranks.capacity() + self.values.capacity()) * 4
            + self.stays.iter().map(|stays| stays.0.capacity() * size_of::<Stay>()).sum::<usize>()
            + self.seen.capacity()
    }
}

/// Share of pages whose next access falls in each bucket, of those that return.
type Prior = [f32; BUCKETS];

/// Priors of pages that were accessed more than once, by half of a class from the second range on. They depend on nothing.
static LATER_PRIORS: LazyLock<Vec<Prior>> = LazyLock::new(|| {
    let gaps = Gaps::new();
    (GAPS..RANGES * GAPS).map(|half| prior(gaps.middle(half % GAPS), ACCESSES[half / GAPS])).collect()
});

/// Prior of a Poisson process of which so many gaps with this mean, in ticks, were seen (a Lomax distribution).
fn prior(mean: f64, accesses: u32) -> Prior {
    let survival = |bucket: usize| {
        let base = 1.0 + f64::from(bucket_start(bucket)) / (mean * f64::from(accesses));
        power(1.0 / base, accesses)
    };
    let mut now = survival(0);
    std::array::from_fn(|bucket| {
        let next = bucket + 1;
        let later = if next < BUCKETS { survival(next) } else { 0.0 };
        (std::mem::replace(&mut now, later) - later) as f32
    })
}

/// A number to a power, by multiplications alone: the same on every processor, as `powi` need not be.
fn power(mut base: f64, mut exponent: u32) -> f64 {
    let mut product = 1.0;
    while exponent > 0 {
        if exponent % 2 == 1 {
            product *= base;
        }
        base *= base;
        exponent /= 2;
    }
    product
}

/// Benefits and time of a stay, both weighted by the number of pages.
#[derive(Clone, Copy, Debug)]
struct Stay {
    benefit: f64,
    time: f64,
}

/// The best stays from each bucket on, the nearest last.
#[derive(Clone, Debug)]
struct Stays(Vec<Stay>);

impl Stays {
    /// Memory for a build: for a clean page and a dirty one.
    fn of_both() -> [Self; 2] {
        [(); 2].map(|()| Stays(Vec::with_capacity(BUCKETS)))
    }

    /// Puts a bucket before all others and returns the best stay from it on. A stay goes on as long as what follows
    /// has a ratio that is not lower.
    #[inline]
    fn extend(&mut self, mut stay: Stay) -> Stay {
        while let Some(next) = self.0.pop_if(|next| next.benefit * stay.time >= stay.benefit * next.time) {
            stay = Stay { benefit: stay.benefit + next.benefit, time: stay.time + next.time };
        }
        self.0.push(stay);
        stay
    }
}

fn build_class(tables: &mut Tables, class: usize, theta: f64, sampled: f64) {
    count_work(BUCKETS);
    let (half, written) = (class / 2, class % 2);
    let returns = RETURNS[half / GAPS];
    let priors = tables.prior(half);
    let reads_share = if tables.writes { READS[written] } else { 1.0 };
    tables.stays.iter_mut().for_each(|stays| stays.0.clear());
    let mut values = [0.0f64; 2];
    let mut later = 0.0;
    let kept = if mutant::is(Mutant::NoDecay) { 10 } else { KEPT_TENTHS };
    let dirty_read = if mutant::is(Mutant::DirtyReadsAsWrites) { 1.0 } else { DIRTY_READ };
    for bucket in (0..BUCKETS).rev() {
        let at = class * STRIDE + bucket;
        let events = &mut tables.events[at];
        let weight = |weight: u32| f64::from(weight) / f64::from(EVENT);
        let waiting = f64::from(std::mem::take(&mut tables.waiting[at]));
        let prior = PRIOR * returns * f64::from(priors[bucket]);
        let reads = weight(events[0]) + prior * reads_share;
        let writes = weight(events[1]) + prior * (1.0 - reads_share);
        let never = if bucket + 1 == BUCKETS { PRIOR * (1.0 - returns) } else { 0.0 };
        let ends = reads + writes + weight(events[2]) + waiting * sampled + never;
        events.iter_mut().for_each(|weight| *weight = (u64::from(*weight) * kept / 10) as u32);
        // Pages whose wait ends in the bucket spend half of it there.
        let width = f64::from(bucket_start(bucket + 1) - bucket_start(bucket)) * tables.tick_accesses;
        let time = width * (later + 0.5 * ends);
        let clean = if mutant::is(Mutant::WritesAsReads) { reads + writes } else { reads };
        later += ends;
        for (dirty, benefit) in [clean, dirty_read * reads + writes].into_iter().enumerate() {
            let best = tables.stays[dirty].extend(Stay { benefit, time });
            values[dirty] = (values[dirty] + benefit - theta * time).max(0.0);
            tables.ranks[at][dirty] = encode(best.benefit / best.time);
            tables.values[at][dirty] = encode(values[dirty] / later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::bucket;
    use super::*;
    use entresol_core::Random;

    const TICK: u32 = 7;

    /// Relative difference of two ranks that encoding may make.
    const CODE: f64 = 1.0 / 128.0;

    fn close(found: i16, exact: f64) -> bool {
        let found = f64::from(decode(found));
        (found - exact).abs() <= CODE * exact + 1e-30
    }

    /// Ranks and values of a class by trial of every moment to stop.
    fn brute(tables: &Tables, class: usize, waiting: &[f64; BUCKETS], theta: f64) -> Vec<[[f64; 2]; 2]> {
        let (half, written) = (class / 2, class % 2);
        let reads_share = if tables.writes { READS[written] } else { 1.0 };
        let mut ends = [[0.0; 3]; BUCKETS];
        for (bucket, ends) in ends.iter_mut().enumerate() {
            let weight = |end: usize| f64::from(tables.events[class * STRIDE + bucket][end]) / f64::from(EVENT);
            let prior = PRIOR * RETURNS[half / GAPS] * f64::from(tables.prior(half)[bucket]);
            let never = if bucket == BUCKETS - 1 { PRIOR * (1.0 - RETURNS[half / GAPS]) } else { 0.0 };
            *ends = [
                weight(0) + prior * reads_share,
                weight(1) + prior * (1.0 - reads_share),
                weight(2) + waiting[bucket] + never,
            ];
        }
        let survivors = |from: usize| ends[from..].iter().flatten().sum::<f64>();
        let benefit = |bucket: usize, dirty: bool| {
            let [reads, writes, _] = ends[bucket];
            if dirty { DIRTY_READ * reads + writes } else { reads }
        };
        let time = |bucket: usize| {
            let width = f64::from(bucket_start(bucket + 1) - bucket_start(bucket)) * f64::from(TICK);
            width * (survivors(bucket) - 0.5 * ends[bucket].iter().sum::<f64>())
        };
        let worth = |from: usize, dirty: bool| {
            let (mut rank, mut value) = (0.0f64, 0.0f64);
            for stop in from + 1..=BUCKETS {
                let n: f64 = (from..stop).map(|bucket| benefit(bucket, dirty)).sum();
                let t: f64 = (from..stop).map(time).sum();
                rank = rank.max(n / t);
                value = value.max((n - theta * t) / survivors(from));
            }
            [rank, value]
        };
        (0..BUCKETS).map(|from| [false, true].map(|dirty| worth(from, dirty))).collect()
    }

    #[test]
    fn ranks_are_those_of_the_best_moment_to_stop() {
        for seed in 0..60 {
            println!("seed {seed}");
            let mut random = Random::new(seed);
            let mut tables = Tables::new(1_000, TICK, seed % 3 > 0);
            let class = random.below(CLASSES as u64) as usize;
            let mut waiting = [0.0; BUCKETS];
            for (bucket, waiting) in waiting.iter_mut().enumerate() {
                let age = bucket_start(bucket);
                let many = 1 << random.below(12);
                for end in [End::Read, End::Write, End::Never] {
                    (0..random.below(many)).for_each(|_| tables.count(cell(class, age), end));
                }
                for _ in 0..random.below(many) {
                    tables.wait(class, age);
                    *waiting += 5.0;
                }
            }
            let theta = random.next_f64() / 1_000.0;
            let expected = brute(&tables, class, &waiting, theta);
            tables.build(theta, 5);
            for (bucket, expected) in expected.iter().enumerate() {
                for (dirty, [rank, value]) in [false, true].into_iter().zip(expected) {
                    let age = bucket_start(bucket);
                    assert!(
                        close(tables.rank(cell(class, age), dirty), *rank),
                        "bucket {bucket}, {dirty}: rank {rank}"
                    );
                    let found = tables.value(cell(class, age), dirty);
                    assert!(close(found, *value) || *value < 1e-9, "bucket {bucket}, {dirty}: value {value}");
                }
            }
        }
    }

    #[test]
    fn the_prior_is_a_distribution_with_the_mean_of_its_class() {
        let gaps = Gaps::new();
        let tables = Tables::new(1_000, TICK, true);
        for half in 0..RANGES * GAPS {
            let buckets = tables.prior(half);
            let sum: f32 = buckets.iter().sum();
            assert!((sum - 1.0).abs() < 1e-5 && buckets.iter().all(|&mass| mass >= 0.0), "{half}: {sum}");
        }
        // Many gaps of 16 ticks: nearly exponential.
        let half = 4 * GAPS + 16;
        let mean = gaps.middle(16);
        let within: f32 = tables.prior(half)[..bucket(30)].iter().sum();
        let exact = 1.0 - (-f64::from(bucket_start(bucket(30))) / mean).exp();
        assert!((f64::from(within) - exact).abs() < 0.01, "{within} for {exact}");
    }

    #[test]
    fn codes_keep_the_order_of_numbers() {
        let mut last = -1;
        for i in 0..4_000 {
            let number = f64::from(i) * f64::from(i) * 1e-7;
            let code = encode(number);
            assert!(code >= last && (number >= 1.99 || close(code, number)), "{number}");
            last = code;
        }
        assert_eq!(encode(1e9), i16::MAX);
    }
}
