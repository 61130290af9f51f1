//! Accuracy of an emulator: the times of its completions against those of its model.

use crate::io::Nanos;
use crate::load::Histogram;
use std::fmt;

/// I/Os that the 99th percentile needs: 1,000, so that ten lie beyond it.
const SAMPLES_FOR_P99: u64 = 1000;

/// Lateness of completions: the time given (when the caller has the I/O) against the time asked for (the model's).
/// An I/O is never given before the model's time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accuracy {
    /// Given minus asked, in nanoseconds, of every I/O.
    pub late: Histogram,
    /// Lateness of the storage, for I/Os whose bytes were ready only after the model's time. The host, not the
    /// emulator, is too slow for these.
    pub host_late: Histogram,
    /// Time for which waiting threads were kept on their processors: what emulation costs, and no device would.
    pub spun_ns: Nanos,
}

impl Accuracy {
    /// Counts an I/O that the model completes at `asked`, whose bytes were ready at `ready` and which was handed over at
    /// `given`.
    pub(super) fn record(&mut self, asked: Nanos, ready: Nanos, given: Nanos) {
        assert!(given >= asked, "an I/O given at {given} ns, before its time {asked} ns");
        self.late.record(given - asked);
        if ready > asked {
            self.host_late.record(ready - asked);
        }
    }

    /// Share of the I/Os whose bytes were not ready in time; 0 before the first.
    pub fn host_late_share(&self) -> f64 {
        self.host_late.count() as f64 / self.late.count().max(1) as f64
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: Nanos| ns as f64 / 1e3;
        let count = self.late.count();
        write!(f, "{count} I/Os")?;
        if count == 0 {
            return Ok(());
        }
        write!(f, "; given - asked: median {:.1} us, ", us(self.late.quantile(0.5)))?;
        if count >= SAMPLES_FOR_P99 {
            write!(f, "p99 {:.1} us, ", us(self.late.quantile(0.99)))?;
        }
        write!(f, "at most {:.1} us", us(self.late.max()))?;
        match self.host_late.count() {
            0 => write!(f, "; the host kept up"),
            late => write!(
                f,
                "; the host cannot keep up with {late} ({:.2} %), at worst by {:.1} us",
                100.0 * self.host_late_share(),
                us(self.host_late.max())
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_near_it_came() {
        let mut accuracy = Accuracy::default();
        assert_eq!(accuracy.to_string(), "0 I/Os");
        accuracy.record(1_000, 900, 1_100);
        assert_eq!(accuracy.to_string(), "1 I/Os; given - asked: median 0.1 us, at most 0.1 us; the host kept up");
        for _ in 0..998 {
            accuracy.record(1_000, 1_000, 1_200);
        }
        accuracy.record(1_000, 501_000, 501_300);
        assert_eq!(
            accuracy.to_string(),
            "1000 I/Os; given - asked: median 0.2 us, p99 0.2 us, at most 500.3 us; \
             the host cannot keep up with 1 (0.10 %), at worst by 500.0 us"
        );
    }

    #[test]
    #[should_panic(expected = "before its time")]
    fn an_io_before_its_time_is_an_error_of_ours() {
        Accuracy::default().record(1_000, 0, 999);
    }
}
