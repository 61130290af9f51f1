//! The time by which ages are told.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A source of time that never runs backwards and knows no date: the system's monotonic clock, or one that a test moves.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// The system's monotonic clock, from now on. Setting the date does not move it.
    pub fn monotonic() -> Self {
        let start = Instant::now();
        Clock::of(move || start.elapsed())
    }

    /// A clock that shows what this returns.
    pub fn of(elapsed: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Clock(Arc::new(elapsed))
    }

    /// Time since some moment, always the same one.
    pub fn elapsed(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.elapsed()).finish()
    }
}

/// Cache time that runs on: seconds in which the cache was served with ages kept, in all of its uses.
#[derive(Clone, Debug)]
pub(super) struct CacheTime {
    clock: Clock,
    /// What the clock showed when it began.
    began: Duration,
    /// Cache time then.
    from: u64,
}

impl CacheTime {
    /// Goes on from so many seconds.
    pub fn from(seconds: u64, clock: Clock) -> Self {
        let began = clock.elapsed();
        CacheTime { clock, began, from: seconds }
    }

    /// Cache time now.
    pub fn now(&self) -> Duration {
        // A clock that runs backwards all the same stands still here.
        let since = self.clock.elapsed().saturating_sub(self.began);
        Duration::from_secs(self.from).saturating_add(since)
    }
}
