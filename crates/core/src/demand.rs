//! Shadows and what is reported of them. A shadow is a policy that runs in small, over a sample of the pages. Its
//! driver reports its [`Demand`] to the tuner, which chooses the policy's settings.

use std::ops::{AddAssign, Sub};

/// Places of a page, each with a device that may be busy: two tiers and the level below.
pub const STATIONS: usize = 3;

/// Number of parts of a sample of the pages. Requests for one page hang together; those for pages of different parts do
/// not. How far the parts' figures differ therefore shows how certain their sum is.
pub const PARTS: usize = 16;

/// Cost of requests: the time that they keep requesters waiting and devices busy, and the pages written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// The requests.
    pub requests: f64,
    /// Seconds that those who asked waited, each access alone on its device.
    pub waits: f64,
    /// Seconds that each device was busy.
    pub busy: [f64; STATIONS],
    /// Pages written to the tier that wears.
    pub written: f64,
}

impl AddAssign for Demand {
    fn add_assign(&mut self, other: Demand) {
        self.requests += other.requests;
        self.waits += other.waits;
        self.busy.iter_mut().zip(other.busy).for_each(|(sum, busy)| *sum += busy);
        self.written += other.written;
    }
}

impl Sub for Demand {
    type Output = Demand;

    fn sub(self, other: Demand) -> Demand {
        Demand {
            requests: self.requests - other.requests,
            waits: self.waits - other.waits,
            busy: std::array::from_fn(|station| self.busy[station] - other.busy[station]),
            written: self.written - other.written,
        }
    }
}

/// A policy to be run in small: its settings, by what name, and with whose contents it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Shadow {
    /// Its name. The same name is the same shadow, which goes on.
    pub id: u64,
    /// A value for each of its settings.
    pub values: Vec<f64>,
    /// The shadow of which it is a clone when it is new; an empty one where that is not there.
    pub from: Option<u64>,
}
