//! A tuner in a simulation with time: settings that change from epoch to epoch.

use super::work::Station;
use crate::addresses::Addresses;
use crate::cell::{CellError, CellOptions, Recording, Run};
use crate::sweep::Cell;
use entresol_device::Nanos;
use entresol_policy::Tunable;
use entresol_policy::miniature::{Miniatures, Scale, Subject, Terms};
use entresol_tune::{EpochRow, Epochs, Knob, Reading, Tuner};

/// A tuner and the settings that it controls.
pub struct Tuning<'t> {
    /// The tuner, whose knobs are `tunables`. Until the end of the warm-up the policy runs with the tuner's held
    /// settings.
    pub tuner: &'t mut dyn Tuner,
    /// Indices of the tuned tunables, in the policy's order.
    pub tunables: Vec<usize>,
    /// Requests of an epoch, above 0.
    pub epoch_requests: u64,
    /// Miniatures that run the settings which the tuner wants shadowed, from the first request on, warm-up included.
    /// They see the requests of the trace, which are those of the tuned layer.
    pub shadows: Option<Miniatures>,
    /// The tier that wears, counted over the tiers of all layers: the tuner is given the pages written to it.
    pub tier: usize,
}

impl Cell {
    /// The tunables of the first layer's policy, which is the one that is tuned, with the values that they have in this cell.
    ///
    /// # Errors
    /// When the policy cannot be built.
    pub fn knobs(&self, addresses: &Addresses, options: &CellOptions) -> Result<Vec<Knob>, CellError> {
        let run = Run::build(addresses, &self.stack, options, Recording::default())?;
        let info = run.layers[0].info();
        let knob =
            |(at, tunable): (usize, &Tunable)| Knob::new(tunable.option, tunable.levels, run.layers[0].tunable(at));
        Ok(info.tunables.iter().enumerate().map(knob).collect())
    }

    /// Miniatures of the first layer's policy, for a tuner that shadows these of its tunables.
    ///
    /// # Errors
    /// When the policy cannot be built at the sampled size.
    pub fn miniatures(
        &self,
        tunables: &[usize],
        addresses: &Addresses,
        options: &CellOptions,
        scale: Scale,
        terms: Terms,
    ) -> Result<Miniatures, CellError> {
        let spec = &self.stack.layers[0].spec;
        let config = self.stack.config(0, addresses, options);
        let (info, given, tunables) = (spec.info, &spec.options, tunables.to_vec());
        let subject = Subject { info, options: given, config: &config, tunables, mode: options.mode };
        Ok(Miniatures::new(&subject, scale, terms)?)
    }
}

/// A tuner during a run.
pub(super) struct Tuned<'t> {
    /// `None` until the end of the warm-up, when the tuner is in `waiting`.
    at_work: Option<Epochs<&'t mut dyn Tuner>>,
    waiting: Option<&'t mut dyn Tuner>,
    tunables: Vec<usize>,
    epoch_requests: u64,
    shadows: Option<Miniatures>,
    tier: usize,
    page_bytes: u32,
    pub epochs: Vec<EpochRow>,
}

impl<'t> Tuned<'t> {
    pub fn new(tuning: Tuning<'t>, page_bytes: u32, run: &mut Run) -> Self {
        let Tuning { tuner, tunables, epoch_requests, mut shadows, tier } = tuning;
        let held = tuner.held();
        if let Some(shadows) = &mut shadows {
            shadows.arrange(&tuner.shadowed());
        }
        let (at_work, waiting, epochs) = (None, Some(tuner), Vec::new());
        let tuned = Tuned { at_work, waiting, tunables, epoch_requests, shadows, tier, page_bytes, epochs };
        tuned.set(&held, run);
        tuned
    }

    fn set(&self, values: &[f64], run: &mut Run) {
        let layer = &mut run.layers[0];
        self.tunables.iter().zip(values).for_each(|(&at, &value)| layer.tune(at, value));
    }

    /// Begins the first epoch before request `at`: at the beginning, or when the statistics were reset.
    pub fn begin(&mut self, at: usize, now: Nanos, stations: &[Station], run: &mut Run) {
        let Some(tuner) = self.waiting.take() else { return };
        if let Some(shadows) = &mut self.shadows {
            shadows.clear();
        }
        let epochs = Epochs::new(tuner, self.epoch_requests, self.reading(at, now, stations));
        self.set(epochs.values(), run);
        self.at_work = Some(epochs);
    }

    fn reading(&self, at: usize, now: Nanos, stations: &[Station]) -> Reading {
        let pages_written = stations[self.tier].totals.bytes[1] / u64::from(self.page_bytes);
        Reading { requests: at as u64, now_ns: now, pages_written }
    }

    /// Before request `at` starts: ends the epoch if it is full or may end early, and begins the next.
    #[inline]
    pub fn before_request(&mut self, at: usize, now: Nanos, stations: &[Station], run: &mut Run) {
        if self.at_work.as_ref().is_some_and(|epochs| at as u64 >= epochs.due()) {
            self.look(at, now, stations, run);
        }
    }

    /// Passes request `at` to the shadows, if there are any.
    #[inline]
    pub fn shadow(&mut self, at: usize, addresses: &Addresses) {
        if let Some(shadows) = &mut self.shadows {
            let request = addresses.trace.request(at);
            shadows.told(request, addresses.address(request.page), || addresses.now_us(at));
        }
    }

    fn look(&mut self, at: usize, now: Nanos, stations: &[Station], run: &mut Run) {
        let reading = self.reading(at, now, stations);
        let Some(mut epochs) = self.at_work.take() else { return };
        self.foretell(&mut epochs);
        if let Some(row) = epochs.look(reading) {
            self.epochs.push(row);
            self.set(epochs.values(), run);
            if let Some(shadows) = &mut self.shadows {
                shadows.arrange(&epochs.tuner().shadowed());
            }
        }
        self.at_work = Some(epochs);
    }

    /// Reports the shadows' demands to the tuner.
    fn foretell(&mut self, epochs: &mut Epochs<&'t mut dyn Tuner>) {
        if let Some(shadows) = &mut self.shadows {
            shadows.each(|id, parts| epochs.foretold(id, parts));
            shadows.clear();
        }
    }

    /// Ends the last epoch before request `at`.
    pub fn end(&mut self, at: usize, now: Nanos, stations: &[Station]) {
        let reading = self.reading(at, now, stations);
        if let Some(mut epochs) = self.at_work.take() {
            self.foretell(&mut epochs);
            self.epochs.push(epochs.stop(reading).1);
        }
    }
}
