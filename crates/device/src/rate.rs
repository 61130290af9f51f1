//! Bandwidths and energies of bytes.

use crate::check;
use crate::io::Nanos;
use serde::{Deserialize, Serialize};

/// Binary places of a nanosecond per byte: the error of a transfer of 4 GiB stays below a nanosecond.
const PLACES: u32 = 32;

/// A bandwidth, kept as time per byte in fixed point, so that a transfer costs a multiplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    time_per_byte: u64,
}

impl Rate {
    /// From GB/s, within the bounds that [`check::bandwidth`] sets.
    pub(crate) fn from_gb_per_s(gb_per_s: f64) -> Self {
        Rate { time_per_byte: ((1u64 << PLACES) as f64 / gb_per_s).round() as u64 }
    }

    /// Transfer time of this many bytes, to the nearest nanosecond.
    #[inline]
    pub(crate) fn time(self, bytes: u64) -> Nanos {
        ((u128::from(bytes) * u128::from(self.time_per_byte) + (1 << (PLACES - 1))) >> PLACES) as Nanos
    }
}

/// Energy of moving bytes into and out of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Energy {
    /// Picojoules per byte read.
    pub read_pj_per_byte: f64,
    /// Picojoules per byte written.
    pub write_pj_per_byte: f64,
}

impl Energy {
    /// Joules of this many bytes.
    pub(crate) fn joules(self, read_bytes: u64, written_bytes: u64) -> f64 {
        (self.read_pj_per_byte * read_bytes as f64 + self.write_pj_per_byte * written_bytes as f64) * 1e-12
    }

    /// Checks that both figures are possible.
    pub(crate) fn check(self) -> Result<(), String> {
        check::number("energy.read_pj_per_byte", self.read_pj_per_byte, 0.0, 1e12)?;
        check::number("energy.write_pj_per_byte", self.write_pj_per_byte, 0.0, 1e12)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_takes_bytes_over_bandwidth() {
        for (gb_per_s, bytes, ns) in [(2.5, 4096, 1638), (2.1, 4096, 1950), (60.0, 64, 1), (1e-6, 1, 1_000_000)] {
            assert_eq!(Rate::from_gb_per_s(gb_per_s).time(bytes), ns, "{bytes} B at {gb_per_s} GB/s");
        }
        let exact = u64::from(u32::MAX) as f64 / 2.5;
        assert!((Rate::from_gb_per_s(2.5).time(u64::from(u32::MAX)) as f64 - exact).abs() <= 1.0);
    }

    #[test]
    fn energy_is_counted_per_byte_and_direction() {
        let energy = Energy { read_pj_per_byte: 10.0, write_pj_per_byte: 100.0 };
        assert!((energy.joules(1_000_000, 2_000_000) - 210e-6).abs() < 1e-12);
    }
}
