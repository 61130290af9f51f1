//! A closed-loop load generator: keeps a number of I/Os outstanding on a device and measures their completions.
//!
//! The models' tests and benchmarks all state their targets as throughput and latency at a queue depth, which this
//! generator measures.

use crate::device::Device;
use crate::io::{Completion, Io, Latency, Nanos};

/// Sub-buckets per power of two, as a power of two: a quantile is off by less than 1 / 256 of its value.
const SUB_BITS: u32 = 8;

/// A histogram of durations with a bounded relative error: exact below 512 ns, within 0.4 % above.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: Nanos,
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, value: Nanos) {
        let bucket = bucket_of(value);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// Counts the durations of another one too.
    pub fn merge(&mut self, other: &Histogram) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Number of durations counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Exact mean in nanoseconds; 0 when empty.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Exact maximum in nanoseconds; 0 when empty.
    pub fn max(&self) -> Nanos {
        self.max
    }

    /// The duration that a share `q` (0 to 1) of the samples does not exceed; 0 when empty.
    pub fn quantile(&self, q: f64) -> Nanos {
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_end(bucket).min(self.max);
            }
        }
        0
    }
}

/// The bucket of a value: the value itself while it has at most `SUB_BITS + 1` bits, else its leading bits.
fn bucket_of(value: Nanos) -> usize {
    let shift = (Nanos::BITS - value.leading_zeros()).saturating_sub(SUB_BITS + 1);
    ((u64::from(shift) << SUB_BITS) + (value >> shift)) as usize
}

/// The largest value of a bucket.
fn upper_end(bucket: usize) -> Nanos {
    let bucket = bucket as u64;
    let shift = (bucket >> SUB_BITS).saturating_sub(1);
    let leading = bucket - (shift << SUB_BITS);
    (leading << shift) + ((1 << shift) - 1)
}

/// Results of a closed loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Time of the first submission.
    pub started: Nanos,
    /// From the first submission to the last completion, in nanoseconds.
    pub elapsed: Nanos,
    /// I/Os completed.
    pub completions: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their times from submission to completion.
    pub latency: Histogram,
    /// The sum of their itemised latencies.
    pub parts: Latency,
}

impl Load {
    /// Completed I/Os per second.
    pub fn iops(&self) -> f64 {
        self.completions as f64 * 1e9 / self.elapsed as f64
    }

    /// Completed bytes per second, in 10^6.
    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 * 1e3 / self.elapsed as f64
    }

    /// Time of the last completion.
    pub fn finished(&self) -> Nanos {
        self.started + self.elapsed
    }
}

/// Runs [`closed_loop_from`] at time 0, for a device that is new.
///
/// # Panics
/// As [`closed_loop_from`].
pub fn closed_loop(device: &mut impl Device, depth: usize, count: u64, next: impl FnMut(u64) -> Io) -> Load {
    closed_loop_from(device, 0, depth, count, next)
}

/// Keeps `depth` I/Os outstanding until `count` are done; `next(i)` makes the i-th, whose tag becomes `i`. The first
/// `depth` are submitted at `start`, each later one at a completion.
///
/// # Panics
/// When `depth` or `count` is 0, when the device refuses an I/O, loses one or completes one twice.
pub fn closed_loop_from(
    device: &mut impl Device,
    start: Nanos,
    depth: usize,
    count: u64,
    mut next: impl FnMut(u64) -> Io,
) -> Load {
    assert!(depth > 0 && count > 0, "a load of depth {depth} and {count} I/Os");
    let mut submitted = 0;
    let mut bytes = 0;
    let mut submit = |device: &mut _, at: Nanos| {
        let io = Io { tag: submitted, ..next(submitted) };
        bytes += u64::from(io.bytes);
        Device::submit(device, at, io).expect("the load stays within the device");
        submitted += 1;
    };
    let first = count.min(depth as u64);
    (0..first).for_each(|_| submit(device, start));

    let mut outstanding = first;
    let (mut latency, mut parts, mut last) = (Histogram::default(), Latency::default(), start);
    let mut done: Vec<Completion> = Vec::with_capacity(depth);
    while outstanding > 0 {
        let at = device.next_event().expect("a device with I/Os outstanding has an event to come");
        device.advance(at, &mut done);
        for completion in done.drain(..) {
            latency.record(completion.finished - completion.submitted);
            parts += completion.latency;
            last = last.max(completion.finished);
            outstanding -= 1;
            if latency.count() + outstanding < count {
                submit(device, at);
                outstanding += 1;
            }
        }
    }
    assert_eq!((latency.count(), device.next_event()), (count, None), "an I/O completed twice");
    Load { started: start, elapsed: last - start, completions: count, bytes, latency, parts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Calendar;
    use crate::io::Wear;
    use crate::queued::Queued;

    /// `N` servers that each take 1,000 ns, one after the other in turn.
    struct Servers<const N: usize> {
        free_at: [Nanos; N],
    }

    impl<const N: usize> Calendar for Servers<N> {
        fn serve(&mut self, now: Nanos, io: Io) -> Completion {
            let free_at = self.free_at.iter_mut().min().expect("at least one server");
            let start = now.max(*free_at);
            *free_at = start + 1000;
            let latency = Latency { queue: start - now, media: 1000, ..Latency::default() };
            Completion { tag: io.tag, submitted: now, finished: *free_at, latency }
        }

        fn capacity_bytes(&self) -> u64 {
            4096
        }

        fn wear(&self) -> Wear {
            Wear::default()
        }
    }

    #[test]
    fn throughput_grows_with_depth_until_the_servers_are_busy_and_latency_after_that() {
        for (depth, iops, latency) in [(1, 1e6, 1000), (2, 2e6, 1000), (4, 4e6, 1000), (8, 4e6, 2000), (16, 4e6, 4000)]
        {
            let mut device = Queued::new(Servers { free_at: [0; 4] });
            let load = closed_loop(&mut device, depth, 4000, |_| Io::read(0, 512));
            assert_eq!(load.iops(), iops, "depth {depth}");
            assert_eq!(load.latency.max(), latency, "depth {depth}");
            assert_eq!(load.parts.total(), (load.latency.mean() * 4000.0).round() as u64);
            assert_eq!(load.bytes, 4000 * 512);
        }
    }

    #[test]
    fn a_load_can_follow_another() {
        let mut device = Queued::new(Servers { free_at: [0; 1] });
        let first = closed_loop(&mut device, 2, 10, |_| Io::read(0, 512));
        let second = closed_loop_from(&mut device, first.finished(), 1, 5, |_| Io::read(0, 512));
        assert_eq!((first.elapsed, second.started, second.elapsed), (10_000, 10_000, 5_000));
    }

    #[test]
    fn buckets_are_contiguous_and_narrow() {
        let mut expected = 0;
        for bucket in 0..14_000 {
            assert_eq!(bucket_of(expected), bucket);
            let end = upper_end(bucket);
            assert_eq!(bucket_of(end), bucket);
            assert!((end - expected) as f64 <= end as f64 / 256.0, "{expected}..{end}");
            expected = end + 1;
        }
    }

    #[test]
    fn merging_is_counting_all_in_one() {
        let (mut low, mut high, mut all) = (Histogram::default(), Histogram::default(), Histogram::default());
        for value in (1..500).map(|i| i * i) {
            (if value < 40_000 { &mut low } else { &mut high }).record(value);
            all.record(value);
        }
        low.merge(&high);
        assert_eq!(low, all);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_samples() {
        let mut histogram = Histogram::default();
        let samples: Vec<Nanos> = (1..=1000).map(|i| i * i).collect();
        samples.iter().for_each(|&s| histogram.record(s));
        for q in [0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = samples[(q * 1000.0_f64).ceil() as usize - 1];
            let found = histogram.quantile(q);
            assert!(found >= exact && found - exact <= exact / 256 + 1, "{q}: {found} for {exact}");
        }
        assert_eq!(histogram.max(), 1_000_000);
        assert_eq!(histogram.quantile(1.0), 1_000_000);
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
