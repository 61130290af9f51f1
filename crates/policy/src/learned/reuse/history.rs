//! The history of a page in one word: when it was last accessed, how often, and how far apart.
//!
//! Time is counted in ticks, a fixed number of requests each. A word has 12 bits for the tick of the last access, 10
//! for the logarithm of the mean gap between accesses, 7 for their number, and one each for the kind of the last
//! access, dirtiness and a frame. Ages are differences modulo 4,096 ticks: the owner calls [`History::clamp`] often
//! enough that none wraps. A page that was accessed once has no gap; those bits have a feature of its first access
//! instead.

use crate::mutant::{self, Mutant};
use entresol_core::Random;
use std::sync::LazyLock;

/// Ticks after which the number of a tick comes again.
const TICKS: u32 = 1 << 12;
/// Age that [`History::clamp`] gives to all older pages, in ticks.
pub(super) const AGE_MAX: u32 = TICKS / 2;

/// Buckets of age: half octaves.
pub(super) const BUCKETS: usize = 23;
/// Half octaves of the mean gap, and features of a first access.
pub(super) const GAPS: usize = 64;
/// Ranges of the number of accesses: 1, 2 to 3, 4 to 15, 16 to 63, 64 and more.
pub(super) const RANGES: usize = 5;
/// Classes of pages: range, gap or feature, kind of the last access.
pub(super) const CLASSES: usize = RANGES * GAPS * 2;

/// Cells of a class: one a bucket, and one that rounds them up.
pub(super) const STRIDE: usize = BUCKETS + 1;
/// Cells of all classes.
pub(super) const CELLS: usize = CLASSES * STRIDE;

const GAP_AT: u32 = 12;
const COUNT_AT: u32 = 22;
const WRITTEN_AT: u32 = 29;
const DIRTY: u32 = 1 << 30;
const RESIDENT: u32 = 1 << 31;
const GAP_MAX: u32 = (1 << 10) - 1;
const COUNT_MAX: u32 = (1 << 7) - 1;

/// Steps of an octave of the mean gap.
const STEPS: usize = 32;
/// Ranges of a mantissa with a logarithm each.
const MANTISSAS: usize = 256;
/// Ratios of the newest gap to the mean, from 2^-8 to 2^16, and the steps from one to the next.
const RATIOS: usize = 192;
const RATIO_STEPS: i32 = STEPS as i32 / 8;
/// Index of the ratio of one.
const RATIO_ONE: i32 = 64;
/// Parts of a step in which changes of the mean gap are known: as many as four random bits have values.
const PARTS: i32 = 16;
/// Steps of a third of a tick, which has 16/3 units: 32 log2(16/3).
const THIRD: u32 = 77;
/// Units of the mean gap in a tick.
const UNITS: f64 = 16.0;
/// Steps of a half octave.
const HALF_OCTAVE: u32 = STEPS as u32 / 2;

/// Lowest of the bits that name a class: the half octave of the gap or the feature, the number of accesses, the kind of the last.
const CLASS_AT: u32 = GAP_AT + HALF_OCTAVE.ilog2();

/// First cell of a history's class, by the bits that name the class. One load stands for all arithmetic on classes: a search
/// for the coldest page ranks eight pages in a block.
static FIRST_CELL_OF: [u16; 1 << (WRITTEN_AT + 1 - CLASS_AT)] = {
    let mut cells = [0; 1 << (WRITTEN_AT + 1 - CLASS_AT)];
    let mut at = 0;
    while at < cells.len() {
        let history = (at as u32) << CLASS_AT;
        let (count, written) = (history >> COUNT_AT & COUNT_MAX, history >> WRITTEN_AT);
        let range = if count < 2 { 0 } else { count.ilog2() / 2 + 1 };
        let half = range * GAPS as u32 + at as u32 % GAPS as u32;
        cells[at] = ((2 * half + written) * STRIDE as u32) as u16;
        at += 1;
    }
    cells
};

/// Bucket of each age. A load is faster than a logarithm by instruction.
static BUCKET_OF: [u8; TICKS as usize] = {
    let mut buckets = [0; TICKS as usize];
    let mut age = 0;
    while age < TICKS {
        buckets[age as usize] = bucket(age) as u8;
        age += 1;
    }
    buckets
};

/// `2^exponent`, for exponents from -1022 to 1023.
fn two_to(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Bucket of an age in ticks.
pub(super) const fn bucket(age: u32) -> usize {
    // 0, 1, 2-3, 4-5, 6-9, 10-13 and so on: two steps of each octave of the age plus two.
    let shifted = age + 2;
    let octave = shifted.ilog2() - 1;
    (2 * octave + (shifted >> octave) - 2) as usize
}

#[cfg(test)]
thread_local! {
    /// Pages looked at and cells built, for the test that bounds them.
    pub(super) static WORK: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts pages looked at or cells built, in tests.
#[inline(always)]
pub(super) fn count_work(_work: usize) {
    #[cfg(test)]
    WORK.set(WORK.get() + _work);
}

/// Index of a class and the bucket of an age below 4,096 ticks.
#[inline(always)]
pub(super) fn cell(class: usize, age: u32) -> usize {
    class * STRIDE + usize::from(BUCKET_OF[(age % TICKS) as usize])
}

/// Least age of a bucket in ticks; of the one after the last, the end of the last.
pub(super) const fn bucket_start(bucket: usize) -> u32 {
    ((2 + bucket as u32 % 2) << (bucket / 2)) - 2
}

/// Logarithm of an age in steps, by those of mantissas.
fn logarithm(age: u32, mantissas: &[u8]) -> u16 {
    // Two moments of the same tick are a third of a tick apart in the mean.
    let thirds = (3 * age).max(1);
    let octave = thirds.ilog2();
    let mantissa = ((thirds << (31 - octave)) << 1) >> (32 - MANTISSAS.ilog2());
    (octave * STEPS as u32 + u32::from(mantissas[mantissa as usize]) + THIRD) as u16
}

/// A page's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct History(u32);

impl History {
    /// History of a page after its first access, which has a feature below [`GAPS`].
    #[inline(always)]
    pub fn first(tick: u32, written: bool, feature: u32) -> Self {
        let gap = feature * HALF_OCTAVE;
        History((tick % TICKS) | (gap << GAP_AT) | (1 << COUNT_AT) | (u32::from(written) << WRITTEN_AT))
    }

    /// Ticks since the last access.
    #[inline(always)]
    pub fn age(self, tick: u32) -> u32 {
        tick.wrapping_sub(self.0) % TICKS
    }

    /// Number of accesses. It is halved when it reaches 128, so that recent gaps keep their weight.
    #[inline(always)]
    pub fn count(self) -> u32 {
        self.0 >> COUNT_AT & COUNT_MAX
    }

    /// Mean gap in steps of a 64th octave.
    #[inline(always)]
    fn gap(self) -> u32 {
        self.0 >> GAP_AT & GAP_MAX
    }

    /// History of an unknown page.
    pub const UNKNOWN: History = History(0);

    /// True if the page was accessed and is not forgotten.
    #[inline(always)]
    pub fn is_known(self) -> bool {
        self.0 != 0
    }

    /// True if the page has a frame.
    #[inline(always)]
    pub fn is_resident(self) -> bool {
        self.0 & RESIDENT != 0
    }

    /// True if the page is dirty.
    #[inline(always)]
    pub fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// The history of a page with a frame.
    #[inline(always)]
    #[must_use]
    pub fn resident(self, dirty: bool) -> Self {
        History(self.0 | RESIDENT | if dirty { DIRTY } else { 0 })
    }

    /// The history of a page without a frame.
    #[inline(always)]
    #[must_use]
    pub fn ghost(self) -> Self {
        History(self.0 & !(RESIDENT | DIRTY))
    }

    #[inline(always)]
    fn first_cell(self) -> usize {
        usize::from(FIRST_CELL_OF[(self.0 >> CLASS_AT) as usize % FIRST_CELL_OF.len()])
    }

    /// Class of the history, below [`CLASSES`].
    pub fn class(self) -> usize {
        self.first_cell() / STRIDE
    }

    /// Class and bucket of age as an index below [`CELLS`].
    #[inline(always)]
    pub fn cell(self, tick: u32) -> usize {
        count_work(1);
        self.first_cell() + usize::from(BUCKET_OF[self.age(tick) as usize])
    }

    /// The history without a frame, with its age in place of the tick: for another policy with ticks as long.
    pub fn aged(self, tick: u32) -> u32 {
        (self.ghost().0 & !(TICKS - 1)) | self.age(tick).min(AGE_MAX)
    }

    /// The history of this page as it was in another policy, which [aged](History::aged) it; none if that is no history.
    pub fn recalled(self, aged: u32, tick: u32) -> Option<Self> {
        let is_history = aged >> COUNT_AT & COUNT_MAX > 0 && aged & (RESIDENT | DIRTY) == 0;
        let accessed = tick.wrapping_sub((aged % TICKS).min(AGE_MAX)) % TICKS;
        is_history.then_some(History((aged & !(TICKS - 1)) | accessed | (self.0 & (RESIDENT | DIRTY))))
    }

    /// Makes an age above [`AGE_MAX`] equal to it.
    #[inline(always)]
    pub fn clamp(&mut self, tick: u32) {
        if self.age(tick) > AGE_MAX && !mutant::is(Mutant::AgesWrap) {
            self.0 = (self.0 & !(TICKS - 1)) | (tick.wrapping_sub(AGE_MAX) % TICKS);
        }
    }
}

/// Constants of the arithmetic on mean gaps, which histories store as logarithms. They come from additions,
/// multiplications, divisions and square roots, so they are the same on all machines.
#[derive(Debug)]
struct GapTables {
    /// `2^(i/64)`.
    powers: [f64; STEPS + 1],
    /// Binary logarithm of each age, in steps.
    logarithms: [u16; TICKS as usize],
    /// Change of the mean gap, in parts of a step, by count and by logarithm of the newest gap over the mean.
    changes: Box<[[i16; RATIOS]; COUNT_MAX as usize + 1]>,
}

/// One copy for all caches: making it takes longer than the rest of an empty cache.
static GAP_TABLES: LazyLock<GapTables> = LazyLock::new(GapTables::new);

impl GapTables {
    fn new() -> Self {
        let root = (0..STEPS.ilog2()).fold(2.0f64, |power, _| power.sqrt());
        let mut powers = [1.0; STEPS + 1];
        (1..STEPS).for_each(|i| powers[i] = powers[i - 1] * root);
        powers[STEPS] = 2.0;
        let changes = vec![[0; RATIOS]; COUNT_MAX as usize + 1].try_into().expect("a row for each count");
        let mut tables = GapTables { powers, logarithms: [0; TICKS as usize], changes };
        let mantissas: Vec<u8> =
            (0..MANTISSAS).map(|i| tables.steps(1.0 + (i as f64 + 0.5) / MANTISSAS as f64) as u8).collect();
        tables.logarithms = std::array::from_fn(|age| logarithm(age as u32, &mantissas));
        // The middle of the ratios that share an index.
        let ratio = |i: usize| {
            let steps = (i as i32 - RATIO_ONE) * RATIO_STEPS + RATIO_STEPS / 2;
            powers[steps.rem_euclid(STEPS as i32) as usize] * two_to(steps.div_euclid(STEPS as i32))
        };
        let change = |count: u32, i| {
            let mean = (f64::from(count - 1) + ratio(i)) / f64::from(count);
            (tables.steps(mean) * f64::from(PARTS)) as i16
        };
        let row = |count: u32| std::array::from_fn(|i| change(count.max(1), i));
        let changes: Vec<_> = (0..=COUNT_MAX).map(row).collect();
        tables.changes = changes.try_into().expect("a row for each count");
        tables
    }

    /// Binary logarithm of a positive number in steps, linear between two.
    fn steps(&self, number: f64) -> f64 {
        let bits = number.to_bits();
        let octave = (bits >> 52) as i32 - 1023;
        let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
        let step = self.powers[..STEPS].partition_point(|&power| power <= mantissa) - 1;
        let part = (mantissa - self.powers[step]) / (self.powers[step + 1] - self.powers[step]);
        f64::from(octave) * STEPS as f64 + step as f64 + part
    }

    /// Mean gap of a number of steps, in ticks.
    fn ticks(&self, gap: u32) -> f64 {
        self.powers[gap as usize % STEPS] * two_to((gap as usize / STEPS) as i32) / UNITS
    }
}

/// Arithmetic on mean gaps. Random bits round them.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    tables: &'static GapTables,
    /// Random bits not yet used, four for each access.
    bits: u64,
    bits_left: u32,
}

impl Gaps {
    pub fn new() -> Self {
        Gaps { tables: &GAP_TABLES, bits: 0, bits_left: 0 }
    }

    /// History after one more access.
    #[inline(always)]
    pub fn access(&mut self, history: History, tick: u32, written: bool, random: &mut Random) -> History {
        if self.bits_left == 0 {
            self.bits = random.next_u64();
            self.bits_left = 16;
        }
        let noise = if mutant::is(Mutant::GapsRoundedDown) { 0 } else { (self.bits & 15) as i32 };
        self.bits >>= 4;
        self.bits_left -= 1;
        let count = history.count();
        let gap = history.gap();
        let newest = u32::from(self.tables.logarithms[history.age(tick) as usize]);
        let ratio = (newest as i32 - gap as i32).div_euclid(RATIO_STEPS) + RATIO_ONE;
        let change = self.tables.changes[count as usize][ratio.clamp(0, RATIOS as i32 - 1) as usize];
        let parts = gap as i32 * PARTS + i32::from(change) + noise;
        let mean = (parts.max(0) as u32 / PARTS as u32).min(GAP_MAX);
        // A single access has no gap yet.
        let gap = if count == 1 { newest } else { mean };
        let count = if count == COUNT_MAX { COUNT_MAX.div_ceil(2) } else { count + 1 };
        let kept = history.0 & (RESIDENT | DIRTY);
        let written = u32::from(written) << WRITTEN_AT;
        History(kept | (tick % TICKS) | (gap << GAP_AT) | (count << COUNT_AT) | written)
    }

    /// Mean gap in the middle of a half octave, in ticks.
    pub fn middle(&self, half_octave: usize) -> f64 {
        self.tables.ticks(half_octave as u32 * HALF_OCTAVE + HALF_OCTAVE / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_divide_all_ages() {
        assert_eq!(bucket_start(0), 0);
        for age in 0..TICKS {
            let bucket = bucket(age);
            assert!(bucket < BUCKETS, "{age}");
            assert!((bucket_start(bucket)..bucket_start(bucket + 1)).contains(&age), "{age} in bucket {bucket}");
        }
    }

    #[test]
    fn every_history_has_a_class_and_keeps_its_flags() {
        let seed = 3;
        println!("seed {seed}");
        let (mut random, mut gaps) = (Random::new(seed), Gaps::new());
        let mut classes = std::collections::HashSet::new();
        for _ in 0..2_000 {
            let (mut tick, written) = (random.next_u64() as u32, random.chance(0.5));
            let feature = random.below(GAPS as u64) as u32;
            let mut history = History::first(tick, written, feature);
            assert_eq!(history.class(), feature as usize * 2 + usize::from(written));
            assert!(history.is_known() && !history.is_resident() && !history.is_dirty());
            for accesses in 2..200 {
                let dirty = random.chance(0.5);
                history = history.ghost().resident(dirty);
                let octave = random.below(13);
                let age = random.below(1 << octave) as u32;
                tick = tick.wrapping_add(age);
                assert_eq!(history.age(tick), age);
                history = gaps.access(history, tick, !dirty, &mut random);
                assert!(history.is_resident() && history.is_dirty() == dirty);
                assert_eq!((history.age(tick), history.class() % 2), (0, usize::from(!dirty)));
                let range = [(4, 1), (16, 2), (64, 3), (u32::MAX, 4)].into_iter().find(|&(end, _)| accesses < end);
                assert_eq!(history.class() / 2 / GAPS, range.expect("a range").1, "{accesses} accesses");
                classes.insert(history.class());
            }
        }
        assert!(classes.iter().all(|&class| class < CLASSES) && classes.len() > 100, "{} classes", classes.len());
    }

    /// The table of logarithms beside `f64::log2`, and the table of changes beside the mean that it stands for.
    #[test]
    fn logarithms_are_those_of_the_library() {
        let gaps = Gaps::new();
        for age in 1..TICKS {
            let exact = (f64::from(age) * UNITS).log2() * STEPS as f64;
            let found = f64::from(gaps.tables.logarithms[age as usize]);
            assert!((found - exact).abs() < 1.5, "age {age}: {found} for {exact}");
        }
        for number in [0.001, 0.37, 1.0, 1.5, 77.7, 1e6] {
            let exact = f64::log2(number) * STEPS as f64;
            assert!(
                (gaps.tables.steps(number) - exact).abs() < 0.01,
                "{number}: {} for {exact}",
                gaps.tables.steps(number)
            );
        }
        for half_octave in 0..GAPS {
            let exact = f64::exp2((half_octave as f64 + 0.5) / 2.0) / UNITS;
            assert!((gaps.middle(half_octave) / exact - 1.0).abs() < 1e-9, "{half_octave}");
        }
    }

    #[test]
    fn arithmetic_is_the_same_on_all_machines() {
        let (mut random, mut gaps) = (Random::new(1), Gaps::new());
        let mut history = History::first(0, false, 0);
        let mut tick = 0;
        let sum = (0..1_000u32).fold(0u32, |sum, i| {
            tick += i * i % 97;
            history = gaps.access(history, tick, i % 3 == 0, &mut random);
            sum.rotate_left(5) ^ history.0
        });
        assert_eq!(sum, 1_524_996_087);
    }
}
