//! Ages at which the pages of each class are read or written next, or forgotten, and the ranks that follow from them.
//!
//! The rank of a page is the Gittins index of its class and age: the greatest ratio, over all moments at which its frame
//! could be given up, of the benefits expected until then to the time for which the frame is expected to be taken until
//! then. A benefit is a disk I/O saved. A clean page saves one when it is read next. A dirty page saves one when it is
//! accessed next, as a write saves a write-back, and somewhat more when that access is a read: it is still dirty then.

use super::history::{AGE_MAX, BUCKETS, CLASSES, GAPS, Gaps, RANGES, bucket, bucket_start};
use crate::mutant::{self, Mutant};

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

/// Ranks and values of a class and a bucket of age, of a clean page and a dirty one.
#[derive(Clone, Copy, Debug, Default)]
struct Worth {
    ranks: [i16; 2],
    values: [i16; 2],
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

#[inline(always)]
fn cell(class: usize, age: u32) -> usize {
    class * BUCKETS + bucket(age)
}

/// The tables of all classes.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// Weights of events, by [`End`].
    events: Vec<[u32; 3]>,
    /// Pages of a sample that wait now, each with the weight of an event.
    waiting: Vec<u32>,
    /// Distribution of the age at the next access a priori, by half of a class.
    prior: Vec<f32>,
    worth: Vec<Worth>,
    /// Classes that had an event or a waiting page.
    seen: Vec<bool>,
    /// Accesses in a tick.
    tick_accesses: f64,
    /// False where all pages are clean: the only event is a read.
    writes: bool,
}

impl Tables {
    /// Tables of the prior alone. `capacity` is in pages, `writes` is false where all pages are clean.
    pub fn new(gaps: &Gaps, capacity: usize, tick_accesses: u32, writes: bool) -> Self {
        let tick_accesses = f64::from(tick_accesses);
        let mut tables = Tables {
            events: vec![[0; 3]; CLASSES * BUCKETS],
            waiting: vec![0; CLASSES * BUCKETS],
            prior: prior(gaps, FIRST_GAP * capacity as f64 / tick_accesses),
            worth: vec![Worth::default(); CLASSES * BUCKETS],
            seen: vec![true; CLASSES],
            tick_accesses,
            writes,
        };
        tables.build(0.0, 0);
        tables.seen.fill(false);
        tables
    }

    /// Counts an event of a page of this class and age.
    #[inline(always)]
    pub fn count(&mut self, class: usize, age: u32, end: End) {
        self.seen[class] = true;
        self.events[cell(class, age)][end as usize] += EVENT;
    }

    /// Counts a page of the sample that waits.
    pub fn wait(&mut self, class: usize, age: u32) {
        self.seen[class] = true;
        self.waiting[cell(class, age)] += EVENT;
    }

    /// Rank, encoded: disk I/Os saved per access during which the page has a frame.
    #[inline(always)]
    pub fn rank(&self, class: usize, age: u32, dirty: bool) -> i16 {
        self.worth[cell(class, age)].ranks[usize::from(dirty)]
    }

    /// Value, encoded: disk I/Os that a frame for the page saves beyond those that it would save with other pages.
    #[inline(always)]
    pub fn value(&self, class: usize, age: u32, dirty: bool) -> i16 {
        self.worth[cell(class, age)].values[usize::from(dirty)]
    }

    /// Builds ranks and values of all classes with news. `theta` is the rank that frames are given up for, `sampled` the
    /// number of pages that one waiting page of the sample stands for.
    pub fn build(&mut self, theta: f64, sampled: usize) {
        for class in 0..CLASSES {
            if self.seen[class] {
                build_class(self, class, theta, sampled as f64);
            }
        }
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.events.capacity() * 12
            + self.waiting.capacity() * 4
            + self.prior.capacity() * 4
            + self.worth.capacity() * size_of::<Worth>()
            + self.seen.capacity()
    }
}

/// Share of pages whose next access falls in each bucket, of those that return: that of a Poisson process of which a
/// number of gaps with this mean was seen (a Lomax distribution).
fn prior(gaps: &Gaps, first_gap: f64) -> Vec<f32> {
    let mut prior = Vec::with_capacity(RANGES * GAPS * BUCKETS);
    for half in 0..RANGES * GAPS {
        let mean = if half < GAPS { first_gap } else { gaps.middle(half % GAPS) };
        let accesses = ACCESSES[half / GAPS];
        let survival = |bucket: usize| {
            let base = 1.0 + f64::from(bucket_start(bucket)) / (mean * f64::from(accesses));
            (0..accesses).fold(1.0, |survival, _| survival / base)
        };
        prior.extend((0..BUCKETS).map(|bucket| {
            let later = if bucket + 1 < BUCKETS { survival(bucket + 1) } else { 0.0 };
            (survival(bucket) - later) as f32
        }));
    }
    prior
}

/// Benefits and time of a stay, both weighted by the number of pages.
#[derive(Clone, Copy, Default)]
struct Stay {
    benefit: f64,
    time: f64,
}

/// The best stays from each bucket on, the nearest last.
#[derive(Clone, Copy)]
struct Stays {
    stack: [Stay; BUCKETS],
    len: usize,
}

impl Stays {
    /// Puts a bucket before all others and returns the best stay from it on. A stay goes on as long as what follows has
    /// a ratio that is not lower.
    #[inline]
    fn extend(&mut self, mut stay: Stay) -> Stay {
        while self.len > 0 {
            let next = self.stack[self.len - 1];
            if next.benefit * stay.time < stay.benefit * next.time {
                break;
            }
            stay = Stay { benefit: stay.benefit + next.benefit, time: stay.time + next.time };
            self.len -= 1;
        }
        self.stack[self.len] = stay;
        self.len += 1;
        stay
    }
}

fn build_class(tables: &mut Tables, class: usize, theta: f64, sampled: f64) {
    let (half, written) = (class / 2, class % 2);
    let returns = RETURNS[half / GAPS];
    let reads_share = if tables.writes { READS[written] } else { 1.0 };
    let mut stays = [Stays { stack: [Stay::default(); BUCKETS], len: 0 }; 2];
    let mut values = [0.0f64; 2];
    let mut later = 0.0;
    let kept = if mutant::is(Mutant::NoDecay) { 10 } else { KEPT_TENTHS };
    let dirty_read = if mutant::is(Mutant::DirtyReadsAsWrites) { 1.0 } else { DIRTY_READ };
    for bucket in (0..BUCKETS).rev() {
        let at = class * BUCKETS + bucket;
        let events = &mut tables.events[at];
        let weight = |weight: u32| f64::from(weight) / f64::from(EVENT);
        let waiting = weight(std::mem::take(&mut tables.waiting[at]));
        let prior = PRIOR * returns * f64::from(tables.prior[half * BUCKETS + bucket]);
        let reads = weight(events[0]) + prior * reads_share;
        let writes = weight(events[1]) + prior * (1.0 - reads_share);
        let never = if bucket + 1 == BUCKETS { PRIOR * (1.0 - returns) } else { 0.0 };
        let ends = reads + writes + weight(events[2]) + waiting * sampled + never;
        events.iter_mut().for_each(|weight| *weight = (u64::from(*weight) * kept / 10) as u32);
        // Pages whose wait ends in the bucket spend half of it there. The last one has no end.
        let end = if bucket + 1 < BUCKETS { bucket_start(bucket + 1) } else { 2 * AGE_MAX };
        let width = f64::from(end - bucket_start(bucket)) * tables.tick_accesses;
        let time = width * (later + 0.5 * ends);
        let clean = if mutant::is(Mutant::WritesAsReads) { reads + writes } else { reads };
        later += ends;
        for (dirty, benefit) in [clean, dirty_read * reads + writes].into_iter().enumerate() {
            let best = stays[dirty].extend(Stay { benefit, time });
            values[dirty] = (values[dirty] + benefit - theta * time).max(0.0);
            let worth = &mut tables.worth[at];
            worth.ranks[dirty] = encode(best.benefit / best.time);
            worth.values[dirty] = encode(values[dirty] / later);
        }
    }
}
