//! A controller's limits.

use crate::io::{Io, IoKind, Nanos};
use serde::Deserialize;

/// The most that a controller lets through. An I/O that comes alone is not delayed: the limits space out the starts.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// I/Os per second.
    pub iops: f64,
    /// Read bandwidth in 10^6 bytes per second.
    pub read_megabytes_per_second: f64,
    /// Write bandwidth in 10^6 bytes per second.
    pub write_megabytes_per_second: f64,
}

impl Controller {
    /// Whether all limits are positive numbers.
    pub(super) fn is_possible(&self) -> bool {
        [self.iops, self.read_megabytes_per_second, self.write_megabytes_per_second].iter().all(|&limit| limit > 0.0)
    }

    /// The time from the start of this I/O to that of the next.
    pub(super) fn spacing(&self, io: &Io) -> Nanos {
        let megabytes_per_second = match io.kind {
            IoKind::Read => self.read_megabytes_per_second,
            IoKind::Write => self.write_megabytes_per_second,
            IoKind::Flush | IoKind::Discard => return (1e9 / self.iops) as Nanos,
        };
        (1e9 / self.iops).max(f64::from(io.bytes) * 1e3 / megabytes_per_second) as Nanos
    }
}
