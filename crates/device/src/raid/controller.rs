//! A controller's limits.

use crate::io::{Io, IoKind, Nanos};
use serde::{Deserialize, Serialize};

/// Limits of a controller. The limits space out the starts of I/Os; an I/O that comes alone is not delayed.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// I/Os per second, of those that do not continue the one before.
    pub random_iops: f64,
    /// Read bandwidth in 10^6 bytes per second.
    pub read_megabytes_per_second: f64,
    /// Write bandwidth in 10^6 bytes per second.
    pub write_megabytes_per_second: f64,
}

impl Controller {
    /// True if all limits are positive numbers.
    pub(super) fn is_possible(&self) -> bool {
        [self.random_iops, self.read_megabytes_per_second, self.write_megabytes_per_second]
            .iter()
            .all(|&limit| limit > 0.0)
    }

    /// Time from the start of this I/O to that of the next, in nanoseconds.
    pub(super) fn spacing(&self, io: &Io, continues: bool) -> Nanos {
        let for_bytes = match io.kind {
            IoKind::Read => f64::from(io.bytes) * 1e3 / self.read_megabytes_per_second,
            IoKind::Write => f64::from(io.bytes) * 1e3 / self.write_megabytes_per_second,
            IoKind::Flush | IoKind::Discard => 0.0,
        };
        let for_command = if continues { 0.0 } else { 1e9 / self.random_iops };
        for_bytes.max(for_command) as Nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tighter_limit_holds() {
        let controller =
            Controller { random_iops: 1000.0, read_megabytes_per_second: 100.0, write_megabytes_per_second: 50.0 };
        assert!(controller.is_possible());
        assert!(!Controller { random_iops: f64::NAN, ..controller }.is_possible());
        assert_eq!(controller.spacing(&Io::read(0, 4096), false), 1_000_000);
        assert_eq!(controller.spacing(&Io::read(0, 4096), true), 40_960);
        assert_eq!(controller.spacing(&Io::read(0, 1_000_000), false), 10_000_000);
        assert_eq!(controller.spacing(&Io::write(0, 1_000_000), false), 20_000_000);
    }
}
