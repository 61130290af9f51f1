//! The clock and the waits of all threads. In a simulated schedule (`faults`, tests only) both are virtual.

#[cfg(test)]
use crate::server::lock;
#[cfg(test)]
use crate::simulated;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970. Clocks of different hosts should agree to well within a lease; safety does not depend on it,
/// because a node's buffer changes its owner by the node's own answer alone.
pub fn now_ns() -> u64 {
    #[cfg(test)]
    if let Some(actor) = simulated::actor() {
        return actor.now_ns();
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// True on a thread of a simulated schedule.
pub fn is_simulated() -> bool {
    #[cfg(test)]
    let is = simulated::actor().is_some();
    #[cfg(not(test))]
    let is = false;
    is
}

/// A point of time for deadlines within this process.
pub fn now() -> Instant {
    #[cfg(test)]
    if let Some(actor) = simulated::actor() {
        return actor.now();
    }
    Instant::now()
}

/// Time since a point.
pub fn elapsed(since: Instant) -> Duration {
    now().saturating_duration_since(since)
}

/// Pauses the thread.
pub fn sleep(time: Duration) {
    #[cfg(test)]
    if let Some(actor) = simulated::actor() {
        return actor.pause("pause", None, time);
    }
    std::thread::sleep(time);
}

/// Waits until a condition variable of a locked mutex is notified by [`notify_all`], or a time has passed.
pub fn wait<'a, T>(
    condition: &Condvar,
    mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> MutexGuard<'a, T> {
    #[cfg(test)]
    if let Some(actor) = simulated::actor() {
        drop(guard);
        actor.pause("wait", Some(condition), time);
        return lock(mutex);
    }
    let _ = mutex;
    condition.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
}

/// Wakes all threads that wait for a condition variable.
pub fn notify_all(condition: &Condvar) {
    #[cfg(test)]
    if let Some(actor) = simulated::actor() {
        return actor.notify_all(condition);
    }
    condition.notify_all();
}
