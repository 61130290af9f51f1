//! When the generation of a cache in use is raised.

use std::time::Duration;

/// Least time between two raises of the generation while the cache is in use.
const MINUTE: Duration = Duration::from_secs(60);

/// When a minute has passed, and something was written below and synced there since it was raised last. What was not synced below is
/// not there for an older copy of the cache to be older than.
pub(super) struct Minutes {
    every: Duration,
    raised: Duration,
    written: u64,
    syncs: u64,
}

impl Minutes {
    /// From now on.
    pub fn new() -> Self {
        Minutes { every: minute(), raised: Duration::ZERO, written: 0, syncs: 0 }
    }

    /// True if a minute has passed since the generation was last due to be raised, or since the open.
    pub fn has_passed(&self, now: Duration) -> bool {
        now.saturating_sub(self.raised) >= self.every
    }

    /// True if the generation is due to be raised. `now` is the time since the cache was opened; so many pages were
    /// written below by then, and so many syncs made there. After true it is not due until a minute later.
    pub fn is_time(&mut self, now: Duration, written: u64, syncs: u64) -> bool {
        if !self.has_passed(now) || written <= self.written || syncs <= self.syncs {
            return false;
        }
        (self.raised, self.written, self.syncs) = (now, written, syncs);
        true
    }
}

/// A minute, or what a test takes for one.
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
