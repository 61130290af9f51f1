//! The host's own memory, measured.

use super::region::{Region, anonymous};
use entresol_core::Random;
use std::fmt;
use std::io;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

/// Sizes at which the memory is measured, in bytes.
const SIZES: [u64; 4] = [64, 256, 1024, 4096];

/// Larger than the last-level cache of most machines, so that most accesses reach the DRAM.
const WORKING_SET_BYTES: u64 = 128 << 20;

/// Accesses of a round, and rounds. The fastest round counts: other load on the machine can only add time, and a round
/// is short enough to fall between two of its time slices.
const ACCESSES: u64 = 1_000;
const ROUNDS: usize = 20;

/// Nanoseconds of an access by its size: a line through measured points. The curve is level below the first point;
/// beyond the last it continues the line between the last two.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    points: Vec<(u64, f64)>,
}

impl Curve {
    /// A curve through points of bytes and nanoseconds. A point below its predecessor is noise and is lifted to it.
    ///
    /// # Panics
    /// When there are fewer than two points, their sizes do not ascend or a time is negative or not finite.
    pub fn new(points: impl IntoIterator<Item = (u64, f64)>) -> Self {
        let mut points: Vec<(u64, f64)> = points.into_iter().collect();
        assert!(points.len() >= 2 && points.windows(2).all(|pair| pair[0].0 < pair[1].0), "sizes ascend: {points:?}");
        assert!(points.iter().all(|(_, ns)| *ns >= 0.0 && ns.is_finite()), "times are possible: {points:?}");
        for at in 1..points.len() {
            points[at].1 = points[at].1.max(points[at - 1].1);
        }
        Curve { points }
    }

    /// Nanoseconds of an access of so many bytes.
    pub fn at(&self, bytes: u64) -> f64 {
        let (first_bytes, first_ns) = self.points[0];
        if bytes <= first_bytes {
            return first_ns;
        }
        let upper = self.points.iter().position(|(size, _)| *size >= bytes).unwrap_or(self.points.len() - 1);
        let ((x0, y0), (x1, y1)) = (self.points[upper - 1], self.points[upper]);
        y0 + (y1 - y0) * (bytes - x0) as f64 / (x1 - x0) as f64
    }
}

/// Access times of the host's memory. The times asked of an emulated memory are multiples of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// Time to read the clock, in nanoseconds; 0 for a virtual clock.
    pub clock_ns: f64,
    /// Copying bytes from an address that depends on the result of the access before.
    pub load: Curve,
    /// Copying bytes to a random address, until every processor sees them.
    pub store: Curve,
}

impl Calibration {
    /// Measures this machine, on memory that is mapped as an emulated region is: about 0.1 seconds and 128 MiB.
    ///
    /// # Errors
    /// The error of the system.
    pub fn measure() -> io::Result<Self> {
        let memory = Region::of(&anonymous(WORKING_SET_BYTES)?)?;
        Ok(Calibration {
            clock_ns: clock_ns(),
            load: Curve::new(SIZES.map(|bytes| (bytes, load_ns(&memory, bytes)))),
            store: Curve::new(SIZES.map(|bytes| (bytes, store_ns(&memory, bytes)))),
        })
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DRAM of this machine, ns (clock {:.0}):", self.clock_ns)?;
        for bytes in SIZES {
            write!(f, " {bytes} B load {:.0} store {:.0};", self.load.at(bytes), self.store.at(bytes))?;
        }
        write!(f, " per line beyond: load {:.1} store {:.1}", per_line(&self.load), per_line(&self.store))
    }
}

/// Nanoseconds of one more cache line of 64 bytes in a large access.
fn per_line(curve: &Curve) -> f64 {
    curve.at(8192 + 64) - curve.at(8192)
}

/// The least time between two readings of the clock.
fn clock_ns() -> f64 {
    let looks: Vec<Instant> = (0..10_000).map(|_| Instant::now()).collect();
    let least = looks.windows(2).map(|pair| (pair[1] - pair[0]).as_nanos()).filter(|ns| *ns > 0).min();
    least.unwrap_or(0) as f64
}

/// Mean time of an access in the fastest round.
fn least_ns(mut round: impl FnMut()) -> f64 {
    let timed = || {
        let start = Instant::now();
        round();
        start.elapsed().as_nanos() as f64 / ACCESSES as f64
    };
    std::iter::repeat_with(timed).take(ROUNDS).fold(f64::INFINITY, f64::min)
}

/// A pointer chase: the address of a block depends on the bytes read before it, so that accesses cannot overlap.
fn load_ns(memory: &Region, bytes: u64) -> f64 {
    let (blocks, mut random) = (WORKING_SET_BYTES / bytes, Random::new(bytes));
    let mut block = vec![0; bytes as usize];
    least_ns(|| {
        for _ in 0..ACCESSES {
            // The memory holds zeroes, which the processor cannot know before it has read them.
            let number = (random.next_u64() ^ u64::from(block[bytes as usize - 1])) % blocks;
            memory.load((number * bytes) as usize, &mut block);
        }
    })
}

/// Stores, each of which leaves the store buffer before the next one begins.
fn store_ns(memory: &Region, bytes: u64) -> f64 {
    let (blocks, mut random) = (WORKING_SET_BYTES / bytes, Random::new(bytes + 1));
    let block = vec![0; bytes as usize];
    least_ns(|| {
        for _ in 0..ACCESSES {
            memory.store((random.below(blocks) * bytes) as usize, &block);
            fence(Ordering::SeqCst);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_through_its_points_and_on() {
        let curve = Curve::new([(64, 100.0), (128, 150.0), (256, 140.0), (512, 240.0)]);
        for (bytes, ns) in [(0, 100.0), (1, 100.0), (64, 100.0), (96, 125.0), (128, 150.0), (200, 150.0), (512, 240.0)]
        {
            assert_eq!(curve.at(bytes), ns, "{bytes} B");
        }
        assert_eq!(curve.at(512 + 256), 330.0);
    }

    #[test]
    #[should_panic(expected = "sizes ascend")]
    fn a_curve_needs_points_in_order() {
        let _ = Curve::new([(64, 1.0), (64, 2.0)]);
    }

    #[test]
    fn this_machine_can_be_measured() {
        let calibration = Calibration::measure().expect("room");
        println!("{calibration}");
        for curve in [&calibration.load, &calibration.store] {
            // A time shorter than a cache's or longer than a disk's would be an error of the measurement.
            assert!((1.0..1e6).contains(&curve.at(64)) && curve.at(4096) >= curve.at(64), "{calibration}");
        }
    }
}
