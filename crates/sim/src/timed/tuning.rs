//! A tuner at work: settings that change from epoch to epoch of a simulation with time.

use super::work::Station;
use crate::cell::{CellError, CellOptions, Run};
use crate::sweep::Cell;
use crate::world::World;
use entresol_device::Nanos;
use entresol_tune::{Epoch, Knob, Proposal, Role, Saved, Tuner};
use serde::Serialize;

/// The tuner is asked this many times in an epoch whether it has seen enough.
const BEATS: usize = 32;

/// A tuner, and what it is to set.
pub struct Tuning<'t> {
    /// The tuner, whose knobs are `tunables`. Before the end of the warm-up the policy has the settings that it holds.
    pub tuner: &'t mut dyn Tuner,
    /// The layer that is tuned, and which of its policy's tunables, by their places.
    pub layer: usize,
    /// The places.
    pub tunables: Vec<usize>,
    /// Requests of an epoch, above 0.
    pub epoch_requests: u64,
    /// The tier that wears, counted over the tiers of all layers: the pages written to it are the tuner's to know.
    pub tier: usize,
}

/// What an epoch brought.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EpochRow {
    /// Requests of the trace before it.
    pub at: u64,
    /// Requests in it.
    pub requests: u64,
    /// Virtual time that it took, in seconds.
    pub seconds: f64,
    /// Pages written in it to the tier that wears.
    pub pages_written: u64,
    /// What it was run for.
    pub role: Role,
    /// The settings that it was run with.
    pub values: Vec<f64>,
    /// The settings that were held at its end.
    pub held: Vec<f64>,
    /// The search was over at its end.
    pub settled: bool,
}

/// Settings that never change: what a tuner is compared with.
#[derive(Clone, Debug)]
pub struct Fixed(pub Vec<f64>);

impl Tuner for Fixed {
    fn propose(&mut self) -> Proposal {
        Proposal { values: self.0.clone(), role: Role::Hold }
    }

    fn enough(&self, _so_far: &Epoch) -> bool {
        false
    }

    fn told(&mut self, _epoch: &Epoch) {}

    fn held(&self) -> Vec<f64> {
        self.0.clone()
    }

    fn settled(&self) -> bool {
        true
    }

    fn save(&self) -> Saved {
        Saved::from_text(format!("{:?}", self.0))
    }
}

impl Cell {
    /// The tunables of a layer's policy with the values that they have in this cell.
    ///
    /// # Errors
    /// When the policy cannot be built.
    pub fn knobs(&self, layer: usize, world: &World, options: &CellOptions) -> Result<Vec<Knob>, CellError> {
        let run = Run::build(world, &self.stack, options, false)?;
        let info = run.layers[layer].info();
        let knobs = info.tunables.iter().enumerate().map(|(at, tunable)| Knob {
            name: tunable.option.to_owned(),
            levels: tunable.levels.to_vec(),
            value: run.layers[layer].tunable(at),
        });
        Ok(knobs.collect())
    }
}

/// A tuner in motion.
pub(super) struct Tuned<'t> {
    tuning: Tuning<'t>,
    /// The epoch under way: none before the end of the warm-up.
    begun: Option<Begun>,
    beat: usize,
    page_bytes: u32,
    pub epochs: Vec<EpochRow>,
}

struct Begun {
    at: usize,
    now: Nanos,
    written: u64,
    proposal: Proposal,
}

impl<'t> Tuned<'t> {
    pub fn new(tuning: Tuning<'t>, page_bytes: u32, run: &mut Run) -> Self {
        let beat = (tuning.epoch_requests as usize / BEATS).max(1);
        let tuned = Tuned { tuning, page_bytes, begun: None, beat, epochs: Vec::new() };
        tuned.set(&tuned.tuning.tuner.held(), run);
        tuned
    }

    fn set(&self, values: &[f64], run: &mut Run) {
        let layer = &mut run.layers[self.tuning.layer];
        self.tuning.tunables.iter().zip(values).for_each(|(&at, &value)| layer.tune(at, value));
    }

    /// Begins an epoch before request `at`.
    pub fn begin(&mut self, at: usize, now: Nanos, stations: &[Station], run: &mut Run) {
        let proposal = self.tuning.tuner.propose();
        self.set(&proposal.values, run);
        self.begun = Some(Begun { at, now, written: self.written(stations), proposal });
    }

    /// Pages written to the tier that wears, since the statistics were reset.
    fn written(&self, stations: &[Station]) -> u64 {
        stations[self.tuning.tier].totals.bytes[1] / u64::from(self.page_bytes)
    }

    fn so_far(&self, begun: &Begun, at: usize, now: Nanos, stations: &[Station]) -> Epoch {
        Epoch {
            requests: (at - begun.at) as u64,
            seconds: (now - begun.now) as f64 / 1e9,
            pages_written: self.written(stations) - begun.written,
        }
    }

    /// Before request `at` starts: ends the epoch under way if it is full, or has shown enough, and begins the next.
    #[inline]
    pub fn before_request(&mut self, at: usize, now: Nanos, stations: &[Station], run: &mut Run) {
        let Some(begun) = &self.begun else { return };
        let requests = at - begun.at;
        if requests == 0 || !requests.is_multiple_of(self.beat) && (requests as u64) < self.tuning.epoch_requests {
            return;
        }
        let full = requests as u64 >= self.tuning.epoch_requests;
        if full || self.tuning.tuner.enough(&self.so_far(begun, at, now, stations)) {
            self.end(at, now, stations);
            self.begin(at, now, stations, run);
        }
    }

    /// Ends the epoch under way before request `at`.
    pub fn end(&mut self, at: usize, now: Nanos, stations: &[Station]) {
        let Some(begun) = self.begun.take() else { return };
        let epoch = self.so_far(&begun, at, now, stations);
        self.tuning.tuner.told(&epoch);
        let Proposal { values, role } = begun.proposal;
        self.epochs.push(EpochRow {
            at: begun.at as u64,
            requests: epoch.requests,
            seconds: epoch.seconds,
            pages_written: epoch.pages_written,
            role,
            values,
            held: self.tuning.tuner.held(),
            settled: self.tuning.tuner.settled(),
        });
    }
}
