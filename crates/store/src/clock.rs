//! The clock by which the ages of dirty pages are measured.

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

    /// A clock that shows the result of a function.
    pub fn of(elapsed: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Clock(Arc::new(elapsed))
    }

    /// Time since a fixed moment.
    pub fn elapsed(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.elapsed()).finish()
    }
}

/// Running cache time: seconds for which the cache has been served with ages kept, over all opens.
#[derive(Clone, Debug)]
pub(super) struct CacheTime {
    clock: Clock,
    /// Reading of the clock when this cache time began.
    began: Duration,
    /// Cache time at that reading, in seconds.
    from: u64,
}

impl CacheTime {
    /// Continues from this many seconds of cache time.
    pub fn from(seconds: u64, clock: Clock) -> Self {
        let began = clock.elapsed();
        CacheTime { clock, began, from: seconds }
    }

    /// Cache time now.
    pub fn now(&self) -> Duration {
        // Cache time stands still while a clock runs backwards.
        let since = self.clock.elapsed().saturating_sub(self.began);
        Duration::from_secs(self.from).saturating_add(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    const DAY: u64 = 86_400;

    #[test]
    fn cache_time_goes_on_from_where_it_was_and_never_runs_backwards() {
        let shown = Arc::new(AtomicU64::new(5 * DAY));
        let shows = Arc::clone(&shown);
        let time = CacheTime::from(100, Clock::of(move || Duration::from_secs(shows.load(Ordering::Relaxed))));
        let at = |seconds: u64| {
            shown.store(seconds, Ordering::Relaxed);
            time.now().as_secs()
        };
        assert_eq!([at(5 * DAY), at(5 * DAY + 7), at(4 * DAY), at(5 * DAY + 8)], [100, 107, 100, 108]);
        let stored = CacheTime::from(u64::MAX, Clock::monotonic());
        assert!(stored.now() >= Duration::from_secs(u64::MAX), "what a hostile device says");
    }

    /// Setting the date of the machine, by a day or a year, has no effect: neither a store nor a cache asks for the
    /// date.
    #[test]
    fn neither_a_store_nor_a_cache_asks_for_the_date() {
        fn look(folder: &Path, files: &mut usize) {
            for entry in fs::read_dir(folder).expect("a folder of sources") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    look(&path, files);
                    continue;
                }
                *files += 1;
                let source = fs::read_to_string(&path).expect("a source");
                for asks in [concat!("System", "Time"), concat!("UNIX", "_EPOCH"), concat!("CLOCK", "_REALTIME")] {
                    assert!(!source.contains(asks), "{} asks for the date: {asks}", path.display());
                }
            }
        }
        let mut files = 0;
        ["src", "../cache/src"].iter().for_each(|folder| {
            look(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut files);
        });
        assert!(files > 40, "{files} sources");
    }
}
