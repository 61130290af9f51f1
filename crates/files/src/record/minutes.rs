//! Decides when the generation of a cache in use is raised.

use std::time::Duration;

/// Shortest time between two raises of the generation while the cache is in use.
const MINUTE: Duration = Duration::from_secs(60);

/// A raise is due a minute after the last one if pages were written to the backing store and synced there since. A copy
/// of the cache cannot be older than writes that were never synced there.
pub(super) struct Minutes {
    every: Duration,
    raised: Duration,
    written: u64,
    syncs: u64,
}

impl Minutes {
    /// Starts at the open.
    pub fn new() -> Self {
        Minutes { every: minute(), raised: Duration::ZERO, written: 0, syncs: 0 }
    }

    /// True if a minute has passed since the generation was last due to be raised, or since the open.
    pub fn has_passed(&self, now: Duration) -> bool {
        now.saturating_sub(self.raised) >= self.every
    }

    /// True if the generation is due to be raised; after true it is not due until a minute later. `now` is the time
    /// since the cache was opened. `written` pages and `syncs` syncs have reached the backing store by then.
    pub fn is_time(&mut self, now: Duration, written: u64, syncs: u64) -> bool {
        if !self.has_passed(now) || written <= self.written || syncs <= self.syncs {
            return false;
        }
        (self.raised, self.written, self.syncs) = (now, written, syncs);
        true
    }
}

/// A minute; a test may set another length.
fn minute() -> Duration {
    let given = std::env::var("ENTRESOL_MINUTE_MS").ok().filter(|_| cfg!(debug_assertions));
    given.and_then(|ms| ms.parse().ok()).map_or(MINUTE, Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_time_after_a_minute_with_writes_that_were_synced_below() {
        let second = Duration::from_secs;
        let mut minutes = Minutes { every: MINUTE, ..Minutes::new() };
        assert!(!minutes.is_time(second(59), 5, 5), "a minute has not passed");
        assert!(!minutes.is_time(second(600), 0, 0), "nothing was written");
        assert!(!minutes.is_time(second(600), 5, 0), "nothing was synced");
        assert!(!minutes.is_time(second(600), 0, 5), "nothing was written, and synced");
        assert!(minutes.is_time(second(600), 5, 1));
        assert!(!minutes.is_time(second(601), 6, 2), "once a minute");
        assert!(!minutes.is_time(second(661), 5, 1), "nothing since");
        assert!(minutes.is_time(second(661), 6, 2));
    }
}
