//! Common parts of experiments: streams, points of the right size, and the collection of findings.

use crate::experiment::{Cost, Setup};
use crate::findings::{Cell, Findings, Line, Parameter, Series, Table};
use crate::fit::{Estimate, bootstrap};
use crate::target::{Pace, Pattern, Samples, Stream, Target, TargetError, Until};
use entresol_core::Random;
use entresol_device::load::Histogram;

/// The page of 002's experiments.
pub(super) const PAGE: u32 = 4096;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;

/// The four access patterns of 002, with the share of writes.
pub(super) const PATTERNS: [(&str, Pattern, f64); 4] = [
    ("sequential read", Pattern::Sequential, 0.0),
    ("random read", Pattern::Random, 0.0),
    ("sequential write", Pattern::Sequential, 1.0),
    ("random write", Pattern::Random, 1.0),
];

/// An experiment under way.
pub(super) struct Lab<'a> {
    name: &'static str,
    target: &'a mut dyn Target,
    pub setup: &'a Setup,
    random: Random,
    pub found: Findings,
}

impl<'a> Lab<'a> {
    pub fn new(name: &'static str, target: &'a mut dyn Target, setup: &'a Setup, seed: u64) -> Self {
        Lab { name, target, setup, random: Random::new(seed), found: Findings::default() }
    }

    /// A seed that was not used before in this experiment.
    pub fn seed(&mut self) -> u64 {
        self.random.next_u64()
    }

    /// Bytes that may be used: whole MiB of the working set, or all of it where it is smaller.
    pub fn bytes(&self) -> u64 {
        let bytes = self.setup.working_set_bytes.min(self.target.capacity_bytes());
        if bytes < MIB { bytes / KIB * KIB } else { bytes / MIB * MIB }
    }

    /// Bytes of the target.
    pub fn capacity(&self) -> u64 {
        self.target.capacity_bytes()
    }

    /// Declares the contents of the working set no longer needed.
    pub fn discard(&mut self) -> Result<(), TargetError> {
        self.target.discard(0..self.bytes())
    }

    /// Median latency in microseconds of a few I/Os of a stream.
    pub fn typical_us(&mut self, stream: Stream, count: u64) -> Result<f64, TargetError> {
        let samples = self.run_one(Stream { until: Until::Count(count), ..stream })?;
        Ok(of_kind(&samples).quantile(0.5) as f64 / 1e3)
    }

    /// The smallest I/O of the target.
    pub fn granule(&self) -> u32 {
        self.target.granule_bytes()
    }

    /// A closed loop of one I/O at a time over the working set: random reads of `bytes` each.
    pub fn stream(&self, bytes: u32) -> Stream {
        Stream {
            write_share: 0.0,
            bytes,
            align: bytes,
            range: 0..self.bytes(),
            pattern: Pattern::Random,
            pace: Pace::Closed { depth: 1 },
            until: Until::Count(self.setup.ios),
            flush_every: None,
            keep_raw: false,
        }
    }

    /// Runs streams as they are.
    pub fn run(&mut self, streams: &[Stream]) -> Result<Vec<Samples>, TargetError> {
        let seed = self.seed();
        self.target.run(streams, seed)
    }

    /// Runs one stream as it is.
    pub fn run_one(&mut self, stream: Stream) -> Result<Samples, TargetError> {
        Ok(self.run(&[stream])?.remove(0))
    }

    /// Runs one stream with as many I/Os as the setup has time for; a short run before determines the number.
    pub fn measure(&mut self, stream: Stream) -> Result<Samples, TargetError> {
        let stream = self.sized(stream)?;
        self.run_one(stream)
    }

    /// A stream with as many I/Os as the setup has time for. A sequential one begins where the short run ended.
    pub fn sized(&mut self, mut stream: Stream) -> Result<Stream, TargetError> {
        let tries = tries(&stream).min(self.setup.ios.max(1));
        let pilot = self.run_one(Stream { until: Until::Count(tries), keep_raw: false, ..stream.clone() })?;
        let rate = pilot.completions as f64 / pilot.elapsed.max(1) as f64 * 1e9;
        let fits = (rate * self.setup.seconds) as u64;
        stream.until = Until::Count(fits.clamp(tries.min(self.setup.ios), self.setup.ios));
        let passed = tries * u64::from(stream.bytes);
        if stream.pattern == Pattern::Sequential && stream.range.end - stream.range.start > 2 * passed {
            stream.range.start += passed;
        }
        Ok(stream)
    }

    /// The I/Os of a stream of at most so many bytes that the setup has time for.
    pub fn count_of(&mut self, stream: &Stream, most_bytes: u64) -> Result<u64, TargetError> {
        let by_bytes = (most_bytes / u64::from(stream.bytes)).max(1);
        match self.sized(stream.clone())?.until {
            Until::Count(count) => Ok(count.min(by_bytes)),
            Until::Elapsed(_) | Until::First => unreachable!("a sized stream ends after a count"),
        }
    }

    /// Leaves the target idle for `duration` nanoseconds.
    pub fn wait(&mut self, duration: u64) -> Result<(), TargetError> {
        self.target.idle(duration)
    }

    /// Leaves the target idle, so that its work behind writes can end.
    pub fn rest(&mut self) -> Result<(), TargetError> {
        self.target.idle(RECOVERY)
    }

    /// Keeps a fitted parameter; `name` ends in its unit where it has one.
    pub fn fit(&mut self, name: &str, unit: &str, estimate: Estimate) {
        let Estimate { value, low, high } = estimate;
        if ![value, low, high].iter().all(|x| x.is_finite()) {
            self.note(format!("{name} could not be fitted"));
            return;
        }
        self.found.fitted.push(Parameter {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            low,
            high,
            from: self.name.to_owned(),
        });
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.found.notes.push(format!("{}: {}", self.name, note.into()));
    }

    pub fn curves(&mut self, title: &str, x_label: &str, y_label: &str, lines: Vec<Line>) {
        let (title, x_label, y_label) = (title.to_owned(), x_label.to_owned(), y_label.to_owned());
        self.found.curves.push(Series { title, x_label, y_label, lines });
    }

    /// Keeps a table whose columns are (head, unit).
    pub fn table(&mut self, title: &str, columns: &[(&str, &str)], rows: Vec<Vec<Cell>>) {
        debug_assert!(rows.iter().all(|row| row.len() == columns.len()));
        self.found.tables.push(Table {
            title: title.to_owned(),
            columns: columns.iter().map(|(head, _)| (*head).to_owned()).collect(),
            units: columns.iter().map(|(_, unit)| (*unit).to_owned()).collect(),
            rows,
        });
    }
}

/// Trial I/Os that determine the speed of a stream.
fn tries(stream: &Stream) -> u64 {
    match stream.pace {
        Pace::Closed { depth } => tries_at(depth),
        Pace::Open { .. } => tries_at(1),
    }
}

/// Trial I/Os that determine the speed of a closed loop.
pub(super) fn tries_at(depth: u32) -> u64 {
    (2 * u64::from(depth)).max(32)
}

/// Rest of a target between two points that must not see each other's writes, in nanoseconds: 500 ms.
const RECOVERY: u64 = 500_000_000;

/// A line of a chart.
pub(super) fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Line {
    Line { name: name.into(), points }
}

/// Latencies in microseconds, in order of completion.
pub(super) fn latencies_us(samples: &Samples) -> Vec<f64> {
    samples.raw.iter().map(|&(_, latency)| latency as f64 / 1e3).collect()
}

/// I/Os a second.
pub(super) fn iops(samples: &Samples) -> f64 {
    samples.completions as f64 * 1e9 / samples.elapsed.max(1) as f64
}

/// 10^6 bytes a second.
pub(super) fn mb_s(samples: &Samples) -> f64 {
    samples.bytes as f64 * 1e3 / samples.elapsed.max(1) as f64
}

/// The latencies of a stream that only reads or only writes.
pub(super) fn of_kind(samples: &Samples) -> &Histogram {
    if samples.reads.count() >= samples.writes.count() { &samples.reads } else { &samples.writes }
}

/// A quantile in microseconds; `None` where fewer than ten samples lie beyond it.
pub(super) fn quantile_us(histogram: &Histogram, q: f64) -> Option<f64> {
    let beyond = (1.0 - q) * histogram.count() as f64;
    // A count of 10,000 has ten samples beyond 0.999, whatever the rounding of 1 - q.
    (beyond >= 10.0 - 1e-6).then(|| histogram.quantile(q) as f64 / 1e3)
}

/// A cell with a quantile, or the words that there are too few samples for it.
pub(super) fn quantile_cell(histogram: &Histogram, q: f64) -> Cell {
    quantile_us(histogram, q).map_or_else(|| "too few samples".into(), Cell::from)
}

/// The cumulative distribution of latencies in microseconds, at the shares that enough samples support.
pub(super) fn cdf(histogram: &Histogram) -> Vec<(f64, f64)> {
    let shares = (1..100).map(|i| f64::from(i) / 100.0).chain([0.995, 0.999, 0.9995, 0.9999]);
    shares.filter_map(|q| quantile_us(histogram, q).map(|us| (us, q))).collect()
}

/// The cost of `points` points of I/Os of one size, each with a short run before and a rest behind it.
pub(super) fn points(setup: &Setup, points: u64, bytes: u32, write_share: f64) -> Cost {
    points_at(setup, points, bytes, write_share, 1)
}

/// The same at a queue depth.
pub(super) fn points_at(setup: &Setup, points: u64, bytes: u32, write_share: f64, depth: u32) -> Cost {
    let ios = points * (setup.ios + tries_at(depth));
    // Shares are drawn at random, so a point may write a few more.
    let some = |share: f64| if share == 0.0 { 0.0 } else { (share + 0.02).min(1.0) };
    let moved = |share: f64| (some(share) * (ios * u64::from(bytes)) as f64) as u64;
    Cost {
        read_bytes: moved(1.0 - write_share),
        written_bytes: moved(write_share),
        // A slow disk takes 15 ms for each of the I/Os that are tried.
        seconds: points as f64 * (setup.seconds * 1.2 + 0.7 + 0.015 * tries_at(depth) as f64),
    }
}

/// Bandwidth over time: (seconds, MB/s) of slices with about equally many completions.
pub(super) fn bandwidth_slices(samples: &Samples, bytes: u32, slices: usize) -> Vec<(f64, f64)> {
    let per_slice = (samples.raw.len() / slices).max(1) as u64;
    // A host reaps completions in batches of one timestamp: a slice of one batch would seem to take no time.
    let shortest = samples.elapsed / (8 * slices as u64);
    let (mut begin, mut count) = (0, 0);
    let mut rates = Vec::with_capacity(slices);
    for &(end, _) in &samples.raw {
        count += 1;
        if count >= per_slice && end > begin + shortest {
            let moved = (count * u64::from(bytes)) as f64;
            rates.push((end as f64 / 1e9, moved * 1e3 / (end - begin) as f64));
            (begin, count) = (end, 0);
        }
    }
    rates
}

/// Bandwidth in MB/s once a buffer is full: of the second half of a run, over slices of it.
pub(super) fn settled_mb_s(samples: &Samples, bytes: u32, seed: u64) -> Estimate {
    let slices = bandwidth_slices(samples, bytes, 40);
    let rates: Vec<f64> = slices[slices.len() / 2..].iter().map(|&(_, rate)| rate).collect();

    bootstrap(&rates, seed, harmonic_mean)
}

/// The mean of rates over equal shares of the work.
pub(super) fn harmonic_mean(rates: &[f64]) -> f64 {
    rates.len() as f64 / rates.iter().map(|rate| 1.0 / rate).sum::<f64>()
}
