//! A tuner at work: settings that change from epoch to epoch of a simulation with time.

use super::work::Station;
use crate::cell::{CellError, CellOptions, Run};
use crate::sweep::Cell;
use crate::world::World;
use entresol_device::Nanos;
use entresol_policy::Tunable;
use entresol_tune::{EpochRow, Epochs, Knob, Reading, Tuner};

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

impl Cell {
    /// The tunables of a layer's policy with the values that they have in this cell.
    ///
    /// # Errors
    /// When the policy cannot be built.
    pub fn knobs(&self, layer: usize, world: &World, options: &CellOptions) -> Result<Vec<Knob>, CellError> {
        let run = Run::build(world, &self.stack, options, false)?;
        let info = run.layers[layer].info();
        let knob =
            |(at, tunable): (usize, &Tunable)| Knob::new(tunable.option, tunable.levels, run.layers[layer].tunable(at));
        Ok(info.tunables.iter().enumerate().map(knob).collect())
    }
}

/// A tuner in motion.
pub(super) struct Tuned<'t> {
    /// None before the end of the warm-up, when the tuner is here.
    at_work: Option<Epochs<&'t mut dyn Tuner>>,
    waiting: Option<&'t mut dyn Tuner>,
    layer: usize,
    tunables: Vec<usize>,
    epoch_requests: u64,
    tier: usize,
    page_bytes: u32,
    pub epochs: Vec<EpochRow>,
}

impl<'t> Tuned<'t> {
    pub fn new(tuning: Tuning<'t>, page_bytes: u32, run: &mut Run) -> Self {
        let Tuning { tuner, layer, tunables, epoch_requests, tier } = tuning;
        let held = tuner.held();
        let waiting = Some(tuner);
        let tuned =
            Tuned { at_work: None, waiting, layer, tunables, epoch_requests, tier, page_bytes, epochs: Vec::new() };
        tuned.set(&held, run);
        tuned
    }

    fn set(&self, values: &[f64], run: &mut Run) {
        let layer = &mut run.layers[self.layer];
        self.tunables.iter().zip(values).for_each(|(&at, &value)| layer.tune(at, value));
    }

    /// Begins the first epoch before request `at`: at the beginning, or when the statistics were reset.
    pub fn begin(&mut self, at: usize, now: Nanos, stations: &[Station], run: &mut Run) {
        let Some(tuner) = self.waiting.take() else { return };
        let epochs = Epochs::new(tuner, self.epoch_requests, self.reading(at, now, stations));
        self.set(epochs.values(), run);
        self.at_work = Some(epochs);
    }

    fn reading(&self, at: usize, now: Nanos, stations: &[Station]) -> Reading {
        let pages_written = stations[self.tier].totals.bytes[1] / u64::from(self.page_bytes);
        Reading { requests: at as u64, now_ns: now, pages_written }
    }

    /// Before request `at` starts: ends the epoch under way if it is full, or has shown enough, and begins the next.
    #[inline]
    pub fn before_request(&mut self, at: usize, now: Nanos, stations: &[Station], run: &mut Run) {
        if self.at_work.as_ref().is_some_and(|epochs| at as u64 >= epochs.due()) {
            self.look(at, now, stations, run);
        }
    }

    fn look(&mut self, at: usize, now: Nanos, stations: &[Station], run: &mut Run) {
        let reading = self.reading(at, now, stations);
        let Some(mut epochs) = self.at_work.take() else { return };
        if let Some(row) = epochs.look(reading) {
            self.epochs.push(row);
            self.set(epochs.values(), run);
        }
        self.at_work = Some(epochs);
    }

    /// Ends the last epoch before request `at`.
    pub fn end(&mut self, at: usize, now: Nanos, stations: &[Station]) {
        let reading = self.reading(at, now, stations);
        if let Some(epochs) = self.at_work.take() {
            self.epochs.push(epochs.stop(reading).1);
        }
    }
}
