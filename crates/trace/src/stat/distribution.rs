//! Histograms and curves: distances, frequencies, skew, miss ratios.

use super::tally::ratio;
use serde::Serialize;

/// A histogram whose buckets double: 0; 1; 2 to 3; 4 to 7; and so on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Log2Histogram {
    /// Number of values.
    pub count: u64,
    /// The buckets from 0 up to the last that is not empty.
    pub buckets: Vec<Bucket>,
}

/// The values from `from` to `to`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Least value.
    pub from: u64,
    /// Greatest value.
    pub to: u64,
    /// Number of values.
    pub count: u64,
}

/// Number of buckets that values of 32 bits need.
const BUCKETS: usize = 33;

/// Counts for a [`Log2Histogram`].
#[derive(Clone)]
pub(super) struct Log2Counts([u64; BUCKETS]);

impl Log2Counts {
    pub const EMPTY: Log2Counts = Log2Counts([0; BUCKETS]);

    #[inline]
    pub fn add(&mut self, value: u32) {
        self.0[32 - value.leading_zeros() as usize] += 1;
    }

    pub fn merge(&mut self, other: &Log2Counts) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    pub fn histogram(&self) -> Log2Histogram {
        let used = self.0.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        let bucket = |(k, count): (usize, &u64)| {
            let end = 1u64 << k;
            Bucket { from: end / 2, to: end - 1, count: *count }
        };
        Log2Histogram { count: self.0.iter().sum(), buckets: self.0[..used].iter().enumerate().map(bucket).collect() }
    }

    /// The bound `2^k` of the fullest class `2^(k-1) < value <= 2^k`, when each value was added less one; the lower
    /// of two equal ones, 0 when there is no value.
    pub fn peak_power(&self) -> u32 {
        let fullest = self.0.iter().copied().max().unwrap_or(0);
        match self.0.iter().position(|count| *count == fullest) {
            Some(k) if fullest > 0 => 1u32.checked_shl(k as u32).unwrap_or(u32::MAX),
            _ => 0,
        }
    }
}

/// A point of a frequency curve (Fan 2017 fig. 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FrequencyPoint {
    /// The frequency f.
    pub at_least: u64,
    /// Pages accessed f times or more.
    pub pages: u64,
    /// The same, as a share of all pages accessed at all in this direction.
    pub pages_share: f64,
    /// Accesses to these pages.
    pub accesses: u64,
    /// The same, as a share of all accesses.
    pub accesses_share: f64,
}

/// A point of the skew curve, the cumulative distribution of accesses over pages from the hottest on (Arulraj 2019
/// fig. 3).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SkewPoint {
    /// The hottest x per cent of the accessed pages.
    pub percent: f64,
    /// Number of these pages: rounded down, but one at least.
    pub pages: u64,
    /// Accesses to them.
    pub accesses: u64,
    /// The same, as a share of all accesses.
    pub share: f64,
}

/// Points at which the skew curve is sampled, in hundredths of a per cent of the pages.
const SKEW_AT: [u64; 19] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 6000, 7500, 10_000];

/// Distribution of accesses over pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// At frequencies 1, 2, 4, and so on, up to the highest; empty without accesses.
    pub frequency: Vec<FrequencyPoint>,
    /// From the hottest 0.01 % to 100 % of the pages; empty without accesses.
    pub skew: Vec<SkewPoint>,
}

impl Spread {
    /// The spread of pages accessed this often; zeros are pages that do not count.
    pub(super) fn new(counts: impl Iterator<Item = u32>) -> Self {
        let mut counts: Vec<u32> = counts.filter(|count| *count > 0).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let pages = counts.len() as u64;
        let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        let mut spread = Spread::default();
        let Some(highest) = counts.first().copied() else { return spread };

        let mut skew_at = SKEW_AT.iter().map(|at| (*at, (pages * at / 10_000).max(1))).peekable();
        // Going down the counts, the points of falling frequency are passed: f is passed at the first count below it.
        let mut at_least = 1u64 << highest.ilog2();
        let mut sum = 0;
        for (i, count) in counts.iter().copied().chain([0]).enumerate() {
            let before = i as u64;
            while u64::from(count) < at_least {
                spread.frequency.push(FrequencyPoint {
                    at_least,
                    pages: before,
                    pages_share: ratio(before, pages),
                    accesses: sum,
                    accesses_share: ratio(sum, total),
                });
                at_least /= 2;
            }
            while let Some((at, _)) = skew_at.next_if(|(_, wanted)| *wanted == before) {
                let percent = at as f64 / 100.0;
                spread.skew.push(SkewPoint { percent, pages: before, accesses: sum, share: ratio(sum, total) });
            }
            sum += u64::from(count);
        }
        spread.frequency.reverse();
        spread
    }
}

/// Misses of an LRU cache of every size, exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct MissRatioCurve {
    requests: u64,
    /// Misses with a capacity of 0, 1, ... pages, up to the footprint.
    misses: Vec<u64>,
}

impl MissRatioCurve {
    /// From the number of requests at each stack distance and of first references.
    pub(super) fn new(distances: &[u32], cold: u64) -> Self {
        let mut misses = vec![0; distances.len() + 1];
        let mut sum = cold;
        misses[distances.len()] = cold;
        for (distance, count) in distances.iter().enumerate().rev() {
            sum += u64::from(*count);
            misses[distance] = sum;
        }
        MissRatioCurve { requests: sum, misses }
    }

    /// Misses of a cache of this many pages.
    pub fn misses(&self, capacity_pages: u64) -> u64 {
        self.misses[capacity_pages.min(self.misses.len() as u64 - 1) as usize]
    }

    /// Misses over requests; 0 for an empty trace.
    pub fn miss_ratio(&self, capacity_pages: u64) -> f64 {
        ratio(self.misses(capacity_pages), self.requests)
    }

    /// The number of distinct pages: no larger cache does better.
    pub fn footprint_pages(&self) -> u64 {
        self.misses.len() as u64 - 1
    }

    /// The curve at sizes that grow by an eighth, from 1 page to the footprint.
    pub fn points(&self) -> Vec<CurvePoint> {
        let mut points = Vec::new();
        let mut capacity_pages = 1;
        while capacity_pages <= self.footprint_pages() {
            let (misses, miss_ratio) = (self.misses(capacity_pages), self.miss_ratio(capacity_pages));
            points.push(CurvePoint { capacity_pages, misses, miss_ratio });
            let larger = capacity_pages + (capacity_pages / 8).max(1);
            let last = self.footprint_pages();
            capacity_pages = if capacity_pages < last { larger.min(last) } else { larger };
        }
        points
    }
}

/// A point of a miss-ratio curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Size of the cache in pages.
    pub capacity_pages: u64,
    /// Requests that miss.
    pub misses: u64,
    /// The same, as a share of all requests.
    pub miss_ratio: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_their_bounds_say() {
        let mut counts = Log2Counts::EMPTY;
        for value in [0, 1, 2, 3, 4, 7, 8, u32::MAX] {
            counts.add(value);
        }
        let histogram = counts.histogram();
        assert_eq!(histogram.count, 8);
        assert_eq!(histogram.buckets.len(), 33);
        assert_eq!(histogram.buckets[0], Bucket { from: 0, to: 0, count: 1 });
        assert_eq!(histogram.buckets[2], Bucket { from: 2, to: 3, count: 2 });
        assert_eq!(histogram.buckets[3], Bucket { from: 4, to: 7, count: 2 });
        assert_eq!(histogram.buckets[32], Bucket { from: 1 << 31, to: (1 << 32) - 1, count: 1 });
        assert!(Log2Counts::EMPTY.histogram().buckets.is_empty());
    }

    #[test]
    fn spread_of_a_small_example() {
        let spread = Spread::new([0, 1, 1, 1, 1, 2, 3, 4, 7, 0].into_iter());
        let frequency: Vec<_> = spread.frequency.iter().map(|p| (p.at_least, p.pages, p.accesses)).collect();
        assert_eq!(frequency, [(1, 8, 20), (2, 4, 16), (4, 2, 11)]);
        let at = |percent| spread.skew.iter().find(|p| p.percent == percent).expect("a sampled per cent");
        assert_eq!((at(1.0).pages, at(1.0).accesses), (1, 7));
        assert_eq!((at(25.0).pages, at(25.0).accesses), (2, 11));
        assert_eq!((at(50.0).pages, at(50.0).accesses), (4, 16));
        assert_eq!((at(100.0).pages, at(100.0).share), (8, 1.0));
        assert_eq!(spread.skew.len(), SKEW_AT.len());
        assert_eq!(Spread::new([0, 0].into_iter()), Spread::default());
    }

    #[test]
    fn a_curve_counts_from_the_far_end() {
        let curve = MissRatioCurve::new(&[5, 0, 2], 3);
        assert_eq!([0, 1, 2, 3, 99].map(|capacity| curve.misses(capacity)), [10, 5, 5, 3, 3]);
        assert_eq!(curve.points().iter().map(|point| point.capacity_pages).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(MissRatioCurve::new(&[], 0).points().is_empty());
    }
}
