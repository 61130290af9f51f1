//! Experiments: their interface, their setup and their cost.

use crate::findings::Findings;
use crate::target::{Target, TargetError};
use serde::{Deserialize, Serialize};

/// An I/O of a trace to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// First byte, within the working set.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// True if the I/O writes.
    pub is_write: bool,
}

/// Setup of experiments: the working set, the effort and the trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Bytes that are used, from the start of the target.
    pub working_set_bytes: u64,
    /// The most I/Os of one measured point.
    pub ios: u64,
    /// Time limit of one measured point, in seconds of the target's clock. A few trial I/Os determine how many I/Os of
    /// a point fit.
    pub seconds: f64,
    /// Times the working set that steady state may overwrite.
    pub overwrites: f64,
    /// I/Os that the replay experiment replays; a synthetic mix where there is none.
    pub trace: Option<Vec<Replayed>>,
}

impl Setup {
    /// The default effort: 20,000 I/Os or 2 seconds a point.
    pub fn new(working_set_bytes: u64) -> Self {
        Setup { working_set_bytes, ios: 20_000, seconds: 2.0, overwrites: 4.0, trace: None }
    }

    /// The same setup with `factor` times the I/Os and the time of each point; at least 1,000 I/Os.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.ios = ((self.ios as f64 * factor) as u64).max(1_000);
        self.seconds *= factor;
        self
    }
}

/// Upper bounds of an experiment's cost. The time limit of its points, and the target's own speed, decide how much of
/// them is spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written: wear.
    pub written_bytes: u64,
    /// Seconds.
    pub seconds: f64,
}

impl std::ops::Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost {
            read_bytes: self.read_bytes + other.read_bytes,
            written_bytes: self.written_bytes + other.written_bytes,
            seconds: self.seconds + other.seconds,
        }
    }
}

/// An experiment: its name, its method, its bounds and its function.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Name of the experiment on the command line.
    pub name: &'static str,
    /// Quantity that the experiment measures, in a line.
    pub about: &'static str,
    /// Source of the method.
    pub source: &'static str,
    /// Experiments that have to run on the target before: they leave it in the state that this one expects.
    pub after: &'static [&'static str],
    /// Upper bounds of its cost.
    pub plan: fn(&Setup) -> Cost,
    /// Runs the experiment. The same target, setup and seed give the same findings on a model.
    pub run: fn(&mut dyn Target, &Setup, u64) -> Result<Findings, TargetError>,
}
