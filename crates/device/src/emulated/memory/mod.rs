//! Slowed-down memory: a tier of NVM in shared memory.
//!
//! An access takes `k` times as long as one of its size in the host's DRAM (devices.md of the design: `k` from 2 to
//! 8): it is performed at once, then its thread spins until the time is over. Every access pays, whether or not the
//! processor's caches hold it, because a tier of pages sees few accesses twice. Each thread waits for itself: the
//! region has a latency, and a thread's bandwidth follows from it, but it has no limit of its own. The model
//! [`NvmDimm`](crate::nvm_dimm) has such a limit.

mod curve;
mod region;

pub use curve::{Calibration, Curve};

use super::clock::{Clock, WallClock};
use crate::io::Nanos;
use crate::load::Histogram;
use entresol_core::Random;
use region::{Region, WORD};
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

const LINE: usize = 64;

/// Factors by which an emulated memory is slower than DRAM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowdown {
    /// Of reads, 1 to 1000.
    pub read: f64,
    /// Of writes, 1 to 1000.
    pub write: f64,
}

/// A region of memory, shared with every process that has its file, whose accesses take as long as those of NVM.
///
/// Every access is made of atomic words, so that threads may race without harm: of a read and a write of the same bytes
/// at once, the read gets some of each, in words of 8 bytes.
#[derive(Debug)]
pub struct Mapped<C> {
    region: Region,
    durable: bool,
    slowdown: Slowdown,
    calibration: Calibration,
    clock: C,
}

impl Mapped<WallClock> {
    /// A region in anonymous shared memory, calibrated now. The region ends with the process. `bytes` is a multiple of
    /// 8 above 0.
    ///
    /// # Errors
    /// `InvalidInput` for an impossible size or slowdown; else the error of the system.
    pub fn anonymous(bytes: u64, slowdown: Slowdown) -> io::Result<Self> {
        Self::over(&region::anonymous(bytes)?, false, slowdown, Calibration::measure, WallClock::new)
    }

    /// A region that maps the whole of a file, calibrated now. [`persist`](Self::persist) makes it durable on the
    /// file's device; a file on `/dev/shm` lasts as long as the machine runs. The file must not be shortened
    /// meanwhile: an access beyond its end then ends the process.
    ///
    /// # Errors
    /// As [`anonymous`](Self::anonymous).
    pub fn file(file: &File, slowdown: Slowdown) -> io::Result<Self> {
        Self::over(file, true, slowdown, Calibration::measure, WallClock::new)
    }
}

impl<C: Clock> Mapped<C> {
    /// A region that maps a file, with a given calibration and clock.
    ///
    /// # Errors
    /// As [`anonymous`](Mapped::anonymous).
    pub fn with_clock(file: &File, slowdown: Slowdown, calibration: Calibration, clock: C) -> io::Result<Self> {
        Self::over(file, true, slowdown, || Ok(calibration), || clock)
    }

    fn over(
        file: &File,
        durable: bool,
        slowdown: Slowdown,
        calibration: impl FnOnce() -> io::Result<Calibration>,
        clock: impl FnOnce() -> C,
    ) -> io::Result<Self> {
        let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let bytes = file.metadata()?.len();
        if bytes == 0 || !bytes.is_multiple_of(WORD as u64) {
            return invalid(format!("a region of {bytes} B; it is a multiple of {WORD} B above 0"));
        }
        if ![slowdown.read, slowdown.write].iter().all(|k| (1.0..=1000.0).contains(k)) {
            return invalid(format!("{slowdown:?}; memory is 1 to 1000 times as slow as DRAM"));
        }
        Ok(Mapped { region: Region::of(file)?, durable, slowdown, calibration: calibration()?, clock: clock() })
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.region.len() as u64
    }

    /// The clock that accesses are timed by.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Access times of the host's memory.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Nanoseconds that a read or touch of so many bytes takes.
    pub fn read_ns(&self, bytes: u64) -> f64 {
        self.slowdown.read * self.calibration.load.at(bytes)
    }

    /// Nanoseconds that a write of so many bytes takes.
    pub fn write_ns(&self, bytes: u64) -> f64 {
        self.slowdown.write * self.calibration.store.at(bytes)
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// `InvalidInput` beyond the end.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let range = self.check(offset, bytes.len())?;
        if !bytes.is_empty() {
            self.timed(self.read_ns(bytes.len() as u64), || self.region.load(range.start, bytes));
        }
        Ok(())
    }

    /// Writes `bytes` from `offset` on; the bytes have reached the memory when the call returns.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let range = self.check(offset, bytes.len())?;
        if !bytes.is_empty() {
            self.timed(self.write_ns(bytes.len() as u64), || {
                self.region.store(range.start, bytes);
                fence(Ordering::SeqCst);
            });
        }
        Ok(())
    }

    /// Charges for reading a range in place, and brings the range into the processor's caches: accesses through
    /// [`words`](Self::words) afterwards are free.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn touch(&self, offset: u64, bytes: usize) -> io::Result<()> {
        let range = self.check(offset, bytes)?;
        if !range.is_empty() {
            self.timed(self.read_ns(bytes as u64), || {
                let lines = (range.start / LINE * LINE..range.end).step_by(LINE);
                let seen = lines.fold(0, |seen, at| seen | self.words()[at / WORD].load(Ordering::Relaxed));
                std::hint::black_box(seen);
            });
        }
        Ok(())
    }

    /// The region in place, as words in the machine's order of bytes. A reader pays by [`touch`](Self::touch).
    pub fn words(&self) -> &[AtomicU64] {
        self.region.words()
    }

    /// Makes earlier writes to a range durable: waits until the last line written has arrived, which takes as long as
    /// writing a line, and has the system write the range to its file. Anonymous memory is never durable.
    ///
    /// # Errors
    /// `InvalidInput` beyond the end; else the error of the system.
    pub fn persist(&self, offset: u64, bytes: usize) -> io::Result<()> {
        let range = self.check(offset, bytes)?;
        if range.is_empty() {
            return Ok(());
        }
        let mut result = Ok(());
        self.timed(self.write_ns(LINE as u64), || {
            fence(Ordering::SeqCst);
            if self.durable {
                result = self.region.sync(&range);
            }
        });
        result
    }

    /// Measures the duration of accesses of these sizes, at random addresses, from outside. The contents stay.
    ///
    /// # Panics
    /// When a size is 0 or larger than the region.
    pub fn accuracy(&mut self, sizes: &[usize], accesses: u64, seed: u64) -> Vec<MemoryAccuracy> {
        let mut random = Random::new(seed);
        let mut measure = |writes: bool, bytes: usize| {
            let (mut given, mut buffer) = (Histogram::default(), vec![0; bytes]);
            for _ in 0..accesses {
                let offset = random.below(self.size_bytes() / bytes as u64) * bytes as u64;
                // `self` is borrowed as a whole, so no other caller changes the bytes between the read and the write.
                self.region.load(offset as usize, &mut buffer);
                let start = self.clock.now();
                if writes { self.write(offset, &buffer) } else { self.read(offset, &mut buffer) }
                    .expect("it is within");
                given.record(self.clock.now() - start);
            }
            let asked_ns = if writes { self.write_ns(bytes as u64) } else { self.read_ns(bytes as u64) };
            MemoryAccuracy { writes, bytes, asked_ns, given }
        };
        sizes.iter().flat_map(|&bytes| [measure(false, bytes), measure(true, bytes)]).collect()
    }

    fn check(&self, offset: u64, bytes: usize) -> io::Result<Range<usize>> {
        let size = self.size_bytes();
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= size => Ok(offset as usize..end as usize),
            _ => {
                let what = format!("{bytes} B at {offset} reach beyond the region's {size} B");
                Err(io::Error::new(io::ErrorKind::InvalidInput, what))
            }
        }
    }

    /// Runs `action` and returns `ns` nanoseconds after it began, or when it is done. The time includes reading the
    /// clock: twice, half a reading before and after the measured action.
    #[inline]
    fn timed(&self, ns: f64, action: impl FnOnce()) {
        let start = self.clock.now();
        action();
        let deadline = start + (ns - self.calibration.clock_ns).max(0.0).ceil() as Nanos;
        self.clock.wait_until(&AtomicU64::new(deadline));
    }
}

/// Measured times of accesses of one size and kind, with the time asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryAccuracy {
    /// True for writes, false for reads.
    pub writes: bool,
    /// Size of the accesses in bytes.
    pub bytes: usize,
    /// Target time of each access, in nanoseconds.
    pub asked_ns: f64,
    /// Measured times of the accesses, in nanoseconds, one reading of the clock included.
    pub given: Histogram,
}

impl fmt::Display for MemoryAccuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.writes { "write" } else { "read" };
        let median = self.given.quantile(0.5);
        let over = 100.0 * (median as f64 / self.asked_ns - 1.0);
        write!(f, "{what} {} B: asked {:.0} ns, given median {median} ns ({over:+.1} %)", self.bytes, self.asked_ns)?;
        if self.given.count() >= 1000 { write!(f, ", p99 {} ns", self.given.quantile(0.99)) } else { Ok(()) }
    }
}
