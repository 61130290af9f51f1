//! Runs experiments in order, each in the state that it expects, and keeps account of what they did.

use crate::experiment::{Cost, Experiment, Setup};
use crate::experiments::experiments;
use crate::findings::Findings;
use crate::noise::{Noise, NoiseMeter};
use crate::target::{Samples, Stream, Target, TargetError};
use entresol_core::Random;
use entresol_device::Nanos;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An experiment that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no experiment '{name}'; there are all, {}", names().join(", "))]
pub struct UnknownExperiment {
    name: String,
}

/// The names of all experiments, in the order in which they run.
pub fn names() -> Vec<&'static str> {
    experiments().iter().map(|experiment| experiment.name).collect()
}

/// The experiments of a list of names, `all` for all of them, with those that must run before them, in the order in
/// which they run.
///
/// # Errors
/// When a name is unknown.
pub fn selection<'a>(list: impl IntoIterator<Item = &'a str>) -> Result<Vec<&'static Experiment>, UnknownExperiment> {
    let mut chosen = vec![false; experiments().len()];
    for name in list {
        match experiments().iter().position(|experiment| experiment.name == name) {
            _ if name == "all" => chosen.fill(true),
            Some(at) => chosen[at] = true,
            None => return Err(UnknownExperiment { name: name.to_owned() }),
        }
    }
    // Whatever an experiment runs after stands before it, so that one way from the end finds all.
    for at in (0..chosen.len()).rev().filter(|&at| chosen[at]).collect::<Vec<_>>() {
        before(&experiments()[at], &mut chosen);
    }
    Ok(experiments().iter().zip(chosen).filter_map(|(experiment, chosen)| chosen.then_some(experiment)).collect())
}

/// Marks what an experiment runs after, and what that runs after.
fn before(experiment: &Experiment, chosen: &mut [bool]) {
    for (at, other) in experiments().iter().enumerate() {
        if experiment.after.contains(&other.name) {
            chosen[at] = true;
            before(other, chosen);
        }
    }
}

/// What an experiment found, and what it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Its name.
    pub experiment: String,
    /// I/Os that were counted.
    pub ios: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Seconds of the target's clock, rests included.
    pub seconds: f64,
    /// How disturbed it was.
    pub noise: Noise,
    /// What it found.
    pub findings: Findings,
}

/// Opens the target; more than once where each experiment has a new one.
pub type Opener<'a> = Box<dyn FnMut() -> Result<Box<dyn Target>, TargetError> + 'a>;

/// Experiments on one target.
pub struct Session<'a> {
    open: Opener<'a>,
    setup: Setup,
    seed: u64,
    interrupted: Arc<AtomicBool>,
    /// A model is new for each experiment, so that no result depends on which others there were.
    model: bool,
    target: Option<Box<dyn Target>>,
    /// What has run on the target.
    done: Vec<&'static str>,
}

impl<'a> Session<'a> {
    /// Experiments with this setup. What they draw at random begins at `seed`. For a `model`, which runs in virtual
    /// time, each experiment opens a new target and noise is not measured.
    /// `interrupted` stops it before the next measured point; a real target looks at it more often.
    pub fn new(open: Opener<'a>, setup: Setup, seed: u64, model: bool, interrupted: Arc<AtomicBool>) -> Self {
        Session { open, setup, seed, interrupted, model, target: None, done: Vec::new() }
    }

    /// Runs an experiment, after those that must run before it and have not on this target, whose findings are dropped.
    /// `progress` hears of every measured point how many seconds of the target's clock it took.
    ///
    /// # Errors
    /// When the target cannot be opened, an I/O fails, or the user stops the run.
    pub fn measure(
        &mut self,
        experiment: &'static Experiment,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Outcome, TargetError> {
        if self.model {
            (self.target, self.done) = (None, Vec::new());
        }
        let mut chosen = vec![false; experiments().len()];
        before(experiment, &mut chosen);
        let needed = experiments().iter().zip(chosen).filter_map(|(needed, chosen)| chosen.then_some(needed));
        for needed in needed.collect::<Vec<_>>() {
            if !self.done.contains(&needed.name) {
                self.run(needed, &mut |_| {})?;
            }
        }
        self.run(experiment, progress)
    }

    fn run(&mut self, experiment: &'static Experiment, progress: &mut dyn FnMut(f64)) -> Result<Outcome, TargetError> {
        let target = match &mut self.target {
            Some(target) => target,
            none => none.insert((self.open)()?),
        };
        let mut watched = Watched {
            target: target.as_mut(),
            progress,
            interrupted: &self.interrupted,
            ios: 0,
            read: 0,
            written: 0,
            nanos: 0,
        };
        let meter = (!self.model).then(NoiseMeter::start);
        let findings = (experiment.run)(&mut watched, &self.setup, seed_of(experiment.name, self.seed))?;
        let Watched { ios, read, written, nanos, .. } = watched;
        self.done.push(experiment.name);
        Ok(Outcome {
            experiment: experiment.name.to_owned(),
            ios,
            read_bytes: read,
            written_bytes: written,
            seconds: nanos as f64 / 1e9,
            noise: meter.map_or_else(Noise::none, NoiseMeter::finish),
            findings,
        })
    }
}

/// What experiments cost together, at most.
pub fn cost(experiments: &[&Experiment], setup: &Setup) -> Cost {
    experiments.iter().map(|experiment| (experiment.plan)(setup)).fold(Cost::default(), |sum, cost| sum + cost)
}

/// A seed for each experiment, so that none depends on which others run.
fn seed_of(name: &str, seed: u64) -> u64 {
    name.bytes().fold(Random::mix(seed), |hash, byte| Random::mix(hash ^ u64::from(byte)))
}

/// A target that counts what is done to it.
struct Watched<'a> {
    target: &'a mut dyn Target,
    progress: &'a mut dyn FnMut(f64),
    interrupted: &'a AtomicBool,
    ios: u64,
    read: u64,
    written: u64,
    nanos: Nanos,
}

impl Watched<'_> {
    fn pass(&mut self, nanos: Nanos) {
        self.nanos += nanos;
        (self.progress)(nanos as f64 / 1e9);
    }
}

impl Target for Watched<'_> {
    fn describe(&self) -> String {
        self.target.describe()
    }

    fn capacity_bytes(&self) -> u64 {
        self.target.capacity_bytes()
    }

    fn granule_bytes(&self) -> u32 {
        self.target.granule_bytes()
    }

    fn run(&mut self, streams: &[Stream], seed: u64) -> Result<Vec<Samples>, TargetError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(TargetError::Interrupted);
        }
        let samples = self.target.run(streams, seed)?;
        for (stream, samples) in streams.iter().zip(&samples) {
            self.ios += samples.completions;
            self.read += samples.reads.count() * u64::from(stream.bytes);
            self.written += samples.writes.count() * u64::from(stream.bytes);
        }
        self.pass(samples.iter().map(|samples| samples.elapsed).max().unwrap_or(0));
        Ok(samples)
    }

    fn idle(&mut self, duration: Nanos) -> Result<(), TargetError> {
        self.target.idle(duration)?;
        self.pass(duration);
        Ok(())
    }

    fn discard(&mut self, range: Range<u64>) -> Result<(), TargetError> {
        self.target.discard(range)
    }
}
