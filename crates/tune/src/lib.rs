//! A cache that finds its own settings.
//!
//! A [`Tuner`] proposes settings, is told what came of an epoch under them, and proposes the next. It is a pure state
//! machine: it does no I/O, reads no clock, and draws at random from its seed alone, so that the simulator drives it
//! with virtual time and an engine the same object with real time. It knows no policy: what it sets are [`Knob`]s, numbers
//! with a list of levels. [`Epochs`] stands between a tuner and the cache that it tunes, in both.
//!
//! Arulraj, Pavlo, Malladi, "Multi-tier buffer management and storage system design for non-volatile memory", 2019 (003),
//! section 4, tunes four migration probabilities by simulated annealing. Here that is one of three ways to
//! [search](search::Search), each of which can run as the paper runs it ([`Plain`]) or within a bound of what it may cost
//! ([`Guarded`]). [`Shadowing`] searches among miniature simulations instead, and tries nothing on the cache.
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
    /// The settings that are held, the best known.
    Hold,
    /// The settings that the tuner began with, to compare.
    Start,
    /// Settings that are tried.
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

/// Proposes settings and learns from what comes of them.
pub trait Tuner {
    /// Returns the settings for the next epoch. They stay the same until [`Tuner::told`].
    fn propose(&mut self) -> Proposal;

    /// Is the epoch that was proposed to end early, after this much of it? To be asked from time to time while it runs; the
    /// oftener, the less a bad trial costs beyond the bound.
    fn enough(&self, so_far: &Epoch) -> bool;

    /// Takes notice of the epoch that was proposed. An epoch without requests says nothing.
    fn told(&mut self, epoch: &Epoch);

    /// The settings that are held: the best known.
    fn held(&self) -> Vec<f64>;

    /// Has the search come to an end, for now?
    fn settled(&self) -> bool;

    /// All of its state, to go on with after a restart.
    fn save(&self) -> Saved;

    /// Settings that it wants to be run in small beside the cache, from the next request on: those that it has already, others
    /// new, the rest no longer. None for a tuner that looks at the cache alone.
    fn shadowed(&self) -> Vec<Shadow> {
        Vec::new()
    }

    /// Takes notice of what a shadow's requests demanded since it was last told of them, part by part. Of an epoch it is told
    /// before that ends.
    fn foretold(&mut self, _id: u64, _parts: &[Demand; PARTS]) {}
}

/// By reference, for a driver that leaves the tuner to its caller, and in a box, for one that keeps it.
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
