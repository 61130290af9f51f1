//! A cache that finds its own settings.
//!
//! A [`Tuner`] proposes settings, receives the counts of an epoch under them, and proposes the next. A tuner is a pure
//! state machine: it does no I/O, reads no clock, and draws at random from its seed alone. So the simulator drives it
//! with virtual time, and an engine drives the same object with real time. A tuner knows no policy: it sets [`Knob`]s,
//! numbers with a list of levels. [`Epochs`] connects a tuner with the cache that it tunes, in both.
//!
//! Arulraj, Pavlo, Malladi, "Multi-tier buffer management and storage system design for non-volatile memory", 2019
//! (003), section 4, tunes four migration probabilities by simulated annealing. Here annealing is one of three ways to
//! [search](search::Search). Each search can run as in the paper ([`Plain`]) or with a bound on its cost ([`Guarded`]).
//! [`Shadowing`] searches among miniature simulations instead, and tries nothing on the cache.
#![forbid(unsafe_code)]

mod epochs;
mod evidence;
mod guard;
mod objective;
mod plain;
mod save;
pub mod search;
mod shadowing;
mod space;

pub use epochs::{EpochRow, Epochs, Fixed, Reading};
pub use guard::{Guarded, Limits};
pub use objective::{Epoch, Objective};
pub use plain::Plain;
pub use save::{RestoreError, Saved};
pub use shadowing::{Adoption, RaceLimits, Shadowing, ShadowingOptions};
pub use space::{Knob, Point, Space, SpaceError};

use entresol_core::{Demand, PARTS, Shadow};

/// Purpose of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs the held settings, the best known.
    Hold,
    /// Runs the settings of the beginning, to compare.
    Start,
    /// Tries other settings.
    Trial,
}

/// Settings for the next epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// A value for each knob, in the order of the knobs.
    pub values: Vec<f64>,
    /// Role of the epoch.
    pub role: Role,
}

/// Proposes settings and learns from their epochs.
pub trait Tuner {
    /// Returns the settings for the next epoch. They stay the same until [`Tuner::told`].
    fn propose(&mut self) -> Proposal;

    /// True if the proposed epoch should end early, after the part of it in `so_far`. To be asked from time to time
    /// during the epoch; asking more often lowers the cost of a bad trial beyond the bound.
    fn enough(&self, so_far: &Epoch) -> bool;

    /// Reports the proposed epoch. An epoch without requests is ignored.
    fn told(&mut self, epoch: &Epoch);

    /// Held settings: the best known.
    fn held(&self) -> Vec<f64>;

    /// True if the search has ended, for now.
    fn settled(&self) -> bool;

    /// Complete state, for going on after a restart.
    fn save(&self) -> Saved;

    /// Settings to be run in miniature beside the cache from the next request on. Listed shadows that run already stay,
    /// new ones begin, the others end. Empty for a tuner that looks at the cache alone.
    fn shadowed(&self) -> Vec<Shadow> {
        Vec::new()
    }

    /// Reports the demands of a shadow's requests since the last report, part by part. The report on an epoch comes
    /// before the epoch ends.
    fn foretold(&mut self, _id: u64, _parts: &[Demand; PARTS]) {}
}

/// Implements `Tuner` for a reference, for a driver that leaves the tuner to its caller, and for a box, for one that
/// owns it.
macro_rules! tuner_behind {
    ($($pointer:ty),*) => {$(
        impl<T: Tuner + ?Sized> Tuner for $pointer {
            fn propose(&mut self) -> Proposal {
                (**self).propose()
            }

            fn enough(&self, so_far: &Epoch) -> bool {
                (**self).enough(so_far)
            }

            fn told(&mut self, epoch: &Epoch) {
                (**self).told(epoch);
            }

            fn held(&self) -> Vec<f64> {
                (**self).held()
            }

            fn settled(&self) -> bool {
                (**self).settled()
            }

            fn save(&self) -> Saved {
                (**self).save()
            }

            fn shadowed(&self) -> Vec<Shadow> {
                (**self).shadowed()
            }

            fn foretold(&mut self, id: u64, parts: &[Demand; PARTS]) {
                (**self).foretold(id, parts);
            }
        }
    )*};
}

tuner_behind!(&mut T, Box<T>);
