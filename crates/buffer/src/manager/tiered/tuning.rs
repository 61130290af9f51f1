//! Numbers of the policy that change while the buffer runs: by hand, or by a tuner at work.

use super::{State, TieredBuffer};
use crate::manager::PageIo;
use entresol_core::{Address, Op, Page, Request};
use entresol_device::emulated::Clock as DeviceClock;
use entresol_policy::Tunable;
use entresol_policy::miniature::Miniatures;
use entresol_tune::{EpochRow, Epochs, Knob, Saved, Tuner};

/// Epochs kept until they are taken.
const EPOCHS_KEPT: usize = 1024;

/// Request count at which the tuner is asked where there is no tuner.
pub(super) const NEVER_DUE: u64 = u64::MAX;

/// A tuner, and the numbers that it sets.
pub struct Tuning {
    /// The tuner. Its knobs are `tunables`, in their order and with their levels.
    pub tuner: Box<dyn Tuner + Send>,
    /// Indices, among the policy's tunables ([`TieredBuffer::knobs`]), of those that the tuner sets.
    pub tunables: Vec<usize>,
    /// Requests of an epoch, above 0.
    pub epoch_requests: u64,
    /// Miniatures that run the settings which the tuner wants shadowed; `None` for a tuner that wants no shadows.
    pub shadows: Option<Miniatures>,
}

/// Why a number of the policy cannot be changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TuningError {
    /// The policy declares no such number.
    #[error("policy '{policy}' has {tunables} tunable numbers, and no number {at}; the first is 0")]
    NoTunable {
        /// The policy.
        policy: &'static str,
        /// Tunables that it declares.
        tunables: usize,
        /// Index that was asked for.
        at: usize,
    },
    /// The value is outside the number's range.
    #[error("'{name}' of policy '{policy}' is {value}: it must be from {} to {}", range[0], range[1])]
    Value {
        /// The policy.
        policy: &'static str,
        /// The tunable.
        name: &'static str,
        /// Value that was asked for.
        value: f64,
        /// Its least and its greatest value.
        range: [f64; 2],
    },
    /// The tuner's knobs are not as many as the numbers for it to set.
    #[error("a tuner of {knobs} numbers for {tunables}")]
    Knobs {
        /// Knobs of the tuner.
        knobs: usize,
        /// Numbers to set.
        tunables: usize,
    },
    /// A tuner is at work.
    #[error("a tuner is at work and would change it again")]
    AtWork,
}

/// A tuner at work.
pub(super) struct Tuned {
    epochs: Epochs<Box<dyn Tuner + Send>>,
    tunables: Vec<usize>,
}

impl<I: PageIo, C: DeviceClock> State<I, C> {
    /// Ends the epoch of the tuner at work if it is over, and begins the next.
    #[inline(always)]
    pub fn tune_if_due(&mut self) {
        if self.executor.requests() >= self.due {
            self.look();
        }
    }

    /// Passes a request to the shadows, if there are any.
    #[inline(always)]
    pub fn shadow(&mut self, op: Op, at: Address) {
        if let Some(shadows) = &mut self.shadows {
            // Each shadow gives the page a handle of its own.
            shadows.told(Request { page: Page(0), op, sequential: false }, at, || self.executor.now_us());
        }
    }

    /// Reports the shadows' results to the tuner.
    fn foretell(&mut self) {
        if let (Some(tuned), Some(shadows)) = (&mut self.tuned, &mut self.shadows) {
            shadows.each(|id, parts| tuned.epochs.foretold(id, parts));
            shadows.clear();
        }
    }

    #[cold]
    fn look(&mut self) {
        self.foretell();
        let Some(tuned) = &mut self.tuned else { return };
        let ended = tuned.epochs.look(self.executor.reading());
        self.due = tuned.epochs.due();
        if let Some(row) = ended {
            if let Some(shadows) = &mut self.shadows {
                shadows.arrange(&tuned.epochs.tuner().shadowed());
            }
            self.keep(row);
            self.set();
        }
    }

    /// Sets the policy's numbers to the tuner's values.
    fn set(&mut self) {
        let Some(tuned) = &self.tuned else { return };
        for (&at, &value) in tuned.tunables.iter().zip(tuned.epochs.values()) {
            self.policy.tune(at, value);
        }
    }

    fn keep(&mut self, row: EpochRow) {
        if self.epochs.len() == EPOCHS_KEPT {
            self.epochs.pop_front();
        }
        self.epochs.push_back(row);
    }

    fn tunable(&self, at: usize) -> Result<&'static Tunable, TuningError> {
        let all = self.info.tunables;
        all.get(at).ok_or(TuningError::NoTunable { policy: self.info.name, tunables: all.len(), at })
    }

    fn check(&self, at: usize, value: f64) -> Result<(), TuningError> {
        let Tunable { option: name, levels } = *self.tunable(at)?;
        let range = [levels[0], levels[levels.len() - 1]];
        if (range[0]..=range[1]).contains(&value) {
            return Ok(());
        }
        Err(TuningError::Value { policy: self.info.name, name, value, range })
    }
}

/// Settings that change while the buffer runs.
impl<I: PageIo + 'static, C: DeviceClock + 'static> TieredBuffer<I, C> {
    /// The numbers that the policy declares tunable, with their current values.
    pub fn knobs(&self) -> Vec<Knob> {
        let state = self.lock();
        let knob =
            |(at, tunable): (usize, &Tunable)| Knob::new(tunable.option, tunable.levels, state.policy.tunable(at));
        state.info.tunables.iter().enumerate().map(knob).collect()
    }

    /// Sets one of the [`knobs`](TieredBuffer::knobs), by its index. The contents of the tiers stay. Decisions follow
    /// the new value from the next request on.
    ///
    /// # Errors
    /// See [`TuningError`]; nothing has changed then.
    pub fn tune(&self, at: usize, value: f64) -> Result<(), TuningError> {
        let mut state = self.lock();
        if state.tuned.is_some() {
            return Err(TuningError::AtWork);
        }
        state.check(at, value)?;
        state.policy.tune(at, value);
        Ok(())
    }

    /// Puts a tuner to work. In each epoch it gets the requests' time by the NVM region's clock, and the pages written
    /// to NVM. Then it sets the policy's numbers.
    ///
    /// All time that passes counts, so a buffer without requests looks slow. An operator who has quiet hours stops the
    /// tuner for them and keeps its [state](TieredBuffer::tuner_state).
    ///
    /// ```
    /// use entresol_device::emulated::{Mapped, Slowdown};
    /// use entresol_buffer::{MemoryIo, TieredBuffer, TieredOptions, Tuning};
    /// use entresol_policy::{Options, catalogue};
    /// use entresol_tune::search::{Climb, Search};
    /// use entresol_tune::{Guarded, Limits, Objective, Space};
    ///
    /// let policy = catalogue::info("multi-tier")?;
    /// let nvm = Mapped::anonymous(100 * 4096, Slowdown { read: 4.0, write: 4.0 })?;
    /// let (options, io) = (TieredOptions::new(10), MemoryIo::new());
    /// let buffer = TieredBuffer::new(options, policy, &Options::defaults(policy), nvm, io, None)?;
    /// let (space, start) = Space::new(buffer.knobs())?;
    /// let search = Search::Climb(Climb::new(&start));
    /// let tuner = Guarded::new(space.clone(), start, search, Objective::Throughput, Limits::default(), 20_000);
    /// let (tuner, tunables) = (Box::new(tuner), vec![0, 1, 2, 3]);
    /// buffer.start_tuning(Tuning { tuner, tunables, epoch_requests: 20_000, shadows: None })?;
    /// // Later, for the next run of the process:
    /// let saved = buffer.tuner_state().expect("a tuner at work");
    /// let again = Guarded::restore(&saved, &space)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`TuningError`]; nothing has changed then.
    pub fn start_tuning(&self, tuning: Tuning) -> Result<(), TuningError> {
        let Tuning { tuner, tunables, epoch_requests, mut shadows } = tuning;
        let mut state = self.lock();
        if state.tuned.is_some() {
            return Err(TuningError::AtWork);
        }
        let held = tuner.held();
        if held.len() != tunables.len() {
            return Err(TuningError::Knobs { knobs: held.len(), tunables: tunables.len() });
        }
        tunables.iter().zip(held).try_for_each(|(&at, value)| state.check(at, value))?;
        if let Some(shadows) = &mut shadows {
            shadows.arrange(&tuner.shadowed());
            shadows.clear();
        }
        state.shadows = shadows;
        let epochs = Epochs::new(tuner, epoch_requests, state.executor.reading());
        state.due = epochs.due();
        state.tuned = Some(Tuned { epochs, tunables });
        state.set();
        Ok(())
    }

    /// Ends the epoch under way and returns the tuner. The policy then keeps the tuner's settings, the best it knows.
    pub fn stop_tuning(&self) -> Option<Box<dyn Tuner + Send>> {
        let mut state = self.lock();
        state.foretell();
        state.shadows = None;
        let Tuned { epochs, tunables } = state.tuned.take()?;
        state.due = NEVER_DUE;
        let (tuner, row) = epochs.stop(state.executor.reading());
        state.keep(row);
        for (&at, value) in tunables.iter().zip(tuner.held()) {
            state.policy.tune(at, value);
        }
        Some(tuner)
    }

    /// The state of the tuner at work, for a file. A tuner resumes from it after a restart (`Guarded::restore`).
    pub fn tuner_state(&self) -> Option<Saved> {
        self.lock().tuned.as_ref().map(|tuned| tuned.epochs.tuner().save())
    }

    /// The epochs that have ended since the last call, oldest first; at most the last 1024.
    pub fn take_epochs(&self) -> Vec<EpochRow> {
        self.lock().epochs.drain(..).collect()
    }
}
