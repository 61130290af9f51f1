//! Runs experiments in order, each in the state that it expects, and accounts for their I/Os, bytes and time.

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

/// The error for an experiment that does not exist.
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
    // An experiment's prerequisites stand before it, so one pass from the end finds all.
    for at in (0..chosen.len()).rev().filter(|&at| chosen[at]).collect::<Vec<_>>() {
        before(&experiments()[at], &mut chosen);
    }
    Ok(experiments().iter().zip(chosen).filter_map(|(experiment, chosen)| chosen.then_some(experiment)).collect())
}

/// Marks an experiment's prerequisites, and theirs.
fn before(experiment: &Experiment, chosen: &mut [bool]) {
    for (at, other) in experiments().iter().enumerate() {
        if experiment.after.contains(&other.name) {
            chosen[at] = true;
            before(other, chosen);
        }
    }
}

/// Findings of an experiment, and the I/Os, bytes and time that it took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Name of the experiment.
    pub experiment: String,
    /// I/Os that were counted.
    pub ios: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Seconds of the target's clock, rests included.
    pub seconds: f64,
    /// Disturbance during the experiment.
    pub noise: Noise,
    /// Findings of the experiment.
    pub findings: Findings,
}

/// Opens the target; called more than once where each experiment has a new one.
pub type Opener<'a> = Box<dyn FnMut() -> Result<Box<dyn Target>, TargetError> + 'a>;

/// Experiments on one target.
pub struct Session<'a> {
    open: Opener<'a>,
    setup: Setup,
    seed: u64,
    interrupted: Arc<AtomicBool>,
    /// True for a model. A model is new for each experiment, so that no result depends on earlier experiments.
    model: bool,
    target: Option<Box<dyn Target>>,
    /// Names of the experiments that have run on the target.
    done: Vec<&'static str>,
}

impl<'a> Session<'a> {
    /// Experiments with this setup. Their random choices are seeded by `seed`. For a `model`, which runs in virtual
    /// time, each experiment opens a new target and noise is not measured. `interrupted` stops the session before the
    /// next measured point; a real target checks it more often.
    pub fn new(open: Opener<'a>, setup: Setup, seed: u64, model: bool, interrupted: Arc<AtomicBool>) -> Self {
        Session { open, setup, seed, interrupted, model, target: None, done: Vec::new() }
    }

    /// Runs an experiment. Its prerequisites that have not run on this target run first, and their findings are
    /// dropped. `progress` receives the seconds of the target's clock that each measured point took.
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

/// Upper bounds of the cost of several experiments together.
pub fn cost(experiments: &[&Experiment], setup: &Setup) -> Cost {
    experiments.iter().map(|experiment| (experiment.plan)(setup)).fold(Cost::default(), |sum, cost| sum + cost)
}

/// A seed for each experiment, so that none depends on the selection.
fn seed_of(name: &str, seed: u64) -> u64 {
    name.bytes().fold(Random::mix(seed), |hash, byte| Random::mix(hash ^ u64::from(byte)))
}

/// A target that counts its I/Os, bytes and time.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelTarget;
    use entresol_device::profile;
    use std::cell::Cell;
    use std::rc::Rc;

    /// A model whose wear can be read while a session owns it.
    struct Metered {
        model: ModelTarget,
        moved: Rc<Cell<(u64, u64)>>,
    }

    impl Target for Metered {
        fn describe(&self) -> String {
            self.model.describe()
        }

        fn capacity_bytes(&self) -> u64 {
            self.model.capacity_bytes()
        }

        fn granule_bytes(&self) -> u32 {
            self.model.granule_bytes()
        }

        fn run(&mut self, streams: &[Stream], seed: u64) -> Result<Vec<Samples>, TargetError> {
            let samples = self.model.run(streams, seed)?;
            let wear = self.model.wear();
            self.moved.set((wear.host_read_bytes, wear.host_written_bytes));
            Ok(samples)
        }

        fn idle(&mut self, duration: Nanos) -> Result<(), TargetError> {
            self.model.idle(duration)
        }

        fn discard(&mut self, range: Range<u64>) -> Result<(), TargetError> {
            self.model.discard(range)
        }
    }

    const BYTES: u64 = 64 << 20;

    fn setup() -> Setup {
        Setup::new(BYTES).scaled(0.05)
    }

    fn model() -> ModelTarget {
        let profile = profile::load("p4800x").expect("a profile of the house");
        ModelTarget::of_profile(&profile, BYTES, 1).expect("a device")
    }

    fn session(interrupted: bool) -> Session<'static> {
        let open = || Ok(Box::new(model()) as Box<dyn Target>);
        Session::new(Box::new(open), setup(), 7, true, Arc::new(AtomicBool::new(interrupted)))
    }

    fn only(name: &str) -> &'static Experiment {
        experiments().iter().find(|experiment| experiment.name == name).expect(name)
    }

    #[test]
    fn a_selection_holds_what_its_experiments_need_before_them() {
        let of = |list: &[&str]| -> Vec<&str> {
            selection(list.iter().copied()).expect("known names").iter().map(|experiment| experiment.name).collect()
        };
        assert_eq!(of(&["latency"]), ["fill", "latency"]);
        assert_eq!(of(&["sweep", "fill", "latency"]), ["fill", "latency", "sweep"]);
        assert_eq!(of(&["all"]), names());
        let error = selection(["latency", "speed"]).expect_err("no such experiment").to_string();
        assert!(error.contains("'speed'") && names().iter().all(|name| error.contains(name)), "{error}");
        for (at, experiment) in experiments().iter().enumerate() {
            for before in experiment.after {
                assert!(names()[..at].contains(before), "{} must come after {before}", experiment.name);
            }
        }
    }

    #[test]
    fn bytes_and_ios_are_those_that_reached_the_device() {
        let moved = Rc::new(Cell::new((0, 0)));
        let open = || Ok(Box::new(Metered { model: model(), moved: moved.clone() }) as Box<dyn Target>);
        let mut session = Session::new(Box::new(open), setup(), 7, false, Arc::default());
        let mut heard = 0.0;
        let fill = session.measure(only("fill"), &mut |_| {}).expect("a model");
        let latency = session.measure(only("latency"), &mut |seconds| heard += seconds).expect("a model");
        assert_eq!((fill.read_bytes, fill.written_bytes), (0, BYTES));
        assert_eq!((latency.read_bytes, fill.written_bytes + latency.written_bytes), moved.get());
        assert!(latency.ios > 0 && (heard - latency.seconds).abs() < 1e-9, "{heard} s of {} s", latency.seconds);
    }

    #[test]
    fn on_a_model_no_result_depends_on_which_others_there_were() {
        let mut first = session(false);
        let sweep = first.measure(only("sweep"), &mut |_| {}).expect("a model");
        let latency = first.measure(only("latency"), &mut |_| {}).expect("a model");
        let mut second = session(false);
        assert_eq!(second.measure(only("latency"), &mut |_| {}).expect("a model"), latency);
        assert_eq!(second.measure(only("sweep"), &mut |_| {}).expect("a model"), sweep);
        assert_eq!(latency.noise, Noise::none());
    }

    #[test]
    fn a_session_that_is_interrupted_stops() {
        let stopped = session(true).measure(only("latency"), &mut |_| {});
        assert!(matches!(stopped, Err(TargetError::Interrupted)));
    }
}
