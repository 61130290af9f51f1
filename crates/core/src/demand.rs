//! Shadows and their reports. A shadow is a small copy of a policy that runs over a sample of the pages. Its driver
//! reports its [`Demand`] to the tuner, which chooses the policy's settings.

use std::ops::{AddAssign, Sub};

/// Stations of a page, each with a device that may be busy: two tiers and the level below.
pub const STATIONS: usize = 3;

/// Number of parts of a sample of the pages. Requests for the same page depend on each other; requests in different
/// parts do not. So the differences between the parts' figures show how certain their sum is.
pub const PARTS: usize = 16;

/// Cost of requests: the time that they keep requesters waiting and devices busy, and the pages written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Number of requests.
    pub requests: f64,
    /// Seconds that requesters waited, as if each access had its device to itself.
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

/// A shadow policy: its name, its settings, and the shadow whose contents it begins with.
#[derive(Clone, Debug, PartialEq)]
pub struct Shadow {
    /// Name. The same name means the same shadow, which continues.
    pub id: u64,
    /// A value for each of its settings.
    pub values: Vec<f64>,
    /// Shadow that a new one is cloned from; the new one starts empty where that does not exist.
    pub from: Option<u64>,
}
