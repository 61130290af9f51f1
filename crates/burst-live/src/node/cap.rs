//! Cap on the rate at which a node writes to the parallel file system: a token bucket.

use crate::clock;
use std::time::{Duration, Instant};

/// Time whose tokens are kept while nothing is written, so that pauses that end late are made up for.
pub(super) const KEPT: Duration = Duration::from_millis(100);

/// A token bucket. Chunks that begin within any time have at most the bytes of that time and of [`KEPT`] at the rate, and
/// those of one chunk more.
pub(super) struct Cap {
    /// Bytes a second, above 0.
    rate: u64,
    /// Time at which the next chunk may begin.
    next: Instant,
}

impl Cap {
    pub fn new(rate: u64) -> Cap {
        Cap { rate, next: clock::now() }
    }

    /// Time until the next chunk may begin.
    pub fn wait(&self) -> Duration {
        self.next.saturating_duration_since(clock::now())
    }

    /// Takes the tokens of a chunk that begins now.
    pub fn take(&mut self, bytes: u64) {
        let now = clock::now();
        let kept = now.checked_sub(KEPT).unwrap_or(now);
        self.next = self.next.max(kept) + Duration::from_secs_f64(bytes as f64 / self.rate as f64);
    }
}
