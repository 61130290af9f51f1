//! Targets: the interface of anything that runs streams of I/O and reports how long each took.

use entresol_device::Nanos;
use entresol_device::load::Histogram;
use std::ops::Range;

/// Offsets that a stream visits. All are multiples of the stream's `align` from the start of its range.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// In order from the start of the range, and round again.
    Sequential,
    /// Uniformly at random.
    Random,
    /// The first offset of the range, again and again.
    Same,
    /// The listed offsets, in order, and round again; relative to the start of the range.
    List(Vec<u64>),
}

/// Times at which a stream sends its I/Os.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As soon as fewer than `depth` are outstanding.
    Closed {
        /// I/Os outstanding.
        depth: u32,
    },
    /// At fixed intended times, whatever is outstanding. Latency counts from the intended time, so that every I/O that
    /// a stall delays shows it (no coordinated omission).
    Open {
        /// I/Os a second.
        per_second: f64,
    },
}

/// Condition for the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After this number of I/Os.
    Count(u64),
    /// After this time.
    Elapsed(Nanos),
    /// With the last stream that is not in the background. A stream with this condition is in the background.
    First,
}

/// A stream of I/Os of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// Share of the I/Os that are writes, 0 to 1, drawn at random.
    pub write_share: f64,
    /// Bytes of an I/O.
    pub bytes: u32,
    /// Granularity of the offsets in bytes.
    pub align: u32,
    /// The part of the target that is visited, in bytes.
    pub range: Range<u64>,
    /// Pattern of the offsets.
    pub pattern: Pattern,
    /// Times of sending.
    pub pace: Pace,
    /// Condition for the end of the stream.
    pub until: Until,
    /// Number of writes after which a flush makes them durable; the flush counts into the latency of the last write.
    pub flush_every: Option<u32>,
    /// True if every latency is kept, in order of completion.
    pub keep_raw: bool,
}

/// Measurements of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// I/Os completed.
    pub completions: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From the first submission to the last completion.
    pub elapsed: Nanos,
    /// Latencies of the reads.
    pub reads: Histogram,
    /// Latencies of the writes.
    pub writes: Histogram,
    /// Latencies of all I/Os from the moment the device had them, without the host's software (002, section 4.1: raw
    /// latency). Empty where the target cannot separate them.
    pub raw_device: Histogram,
    /// Completion time of each I/O from the start of the run, and its latency; in order of completion. Empty unless
    /// asked for.
    pub raw: Vec<(Nanos, Nanos)>,
}

/// Reason for which a target cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// An I/O failed or was refused.
    #[error("{target}: {what}")]
    Refused {
        /// The file, the device or the model.
        target: String,
        /// The fault and the expected state.
        what: String,
    },
    /// The operating system refused.
    #[error("{target}: {action}: {error}")]
    System {
        /// The file or the device.
        target: String,
        /// Action that was tried.
        action: &'static str,
        /// Error that the system answered.
        error: std::io::Error,
    },
    /// The user stopped the run.
    #[error("interrupted")]
    Interrupted,
}

/// Something to measure.
pub trait Target {
    /// Description of the target, in a line.
    fn describe(&self) -> String;

    /// Size of the target in bytes.
    fn capacity_bytes(&self) -> u64;

    /// Smallest I/O and alignment that the target takes, in bytes.
    fn granule_bytes(&self) -> u32;

    /// Runs streams at the same time and returns the measurements of each. The run ends when no stream but those in
    /// the background is left.
    ///
    /// # Errors
    /// When an I/O fails, a stream leaves the target, or the user stops the run.
    fn run(&mut self, streams: &[Stream], seed: u64) -> Result<Vec<Samples>, TargetError>;

    /// Leaves the target idle for `duration`.
    ///
    /// # Errors
    /// When the user stops the run.
    fn idle(&mut self, duration: Nanos) -> Result<(), TargetError>;

    /// Declares the contents of a range no longer needed, where the target can.
    ///
    /// # Errors
    /// When the target can and fails.
    fn discard(&mut self, range: Range<u64>) -> Result<(), TargetError>;
}
