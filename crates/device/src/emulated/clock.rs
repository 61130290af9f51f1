//! Clocks: the time of an emulated device as a parameter.

use crate::io::Nanos;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A wait spins on the clock for its last part, because a sleeping thread wakes late: for as long as the most punctual
/// quarter of this process's sleeps has lately been late, and at most 100 us. Measured on a virtual machine with two
/// processors, for sleeps of 50 us to 1 ms with [`SLACK_NS`]: median 52 to 73 us late on idle processors that halt, 31 to 38
/// on those that do not, 24 to 41 beside compilers. A longer spin takes a processor from what is measured beside: a device
/// with an event every few hundred microseconds would have one to itself. A spin for three of four sleeps took 0.26 of a
/// processor beside a database over two devices, where this one takes 0.08, and handed I/Os over at the same times within 7 us.
const SPIN_MAX_NS: Nanos = 100_000;

/// Shortest spin.
const SPIN_MIN_NS: Nanos = 5_000;

/// Change of the spin by a sleep that was later than it.
const SPIN_STEP_NS: Nanos = 500;

/// Length of a spin, by the sleeps so far.
static SPIN_NS: AtomicU64 = AtomicU64::new(SPIN_MAX_NS);

/// The spin after a sleep that was late by this much. It rests where three steps up meet one down: where one of four
/// sleeps is less late.
fn learned(spin: Nanos, late: Nanos) -> Nanos {
    let next = if late > spin { spin + SPIN_STEP_NS } else { spin.saturating_sub(3 * SPIN_STEP_NS) };
    next.clamp(SPIN_MIN_NS, SPIN_MAX_NS)
}

/// By how much the kernel may put off the end of a sleep.
#[cfg(target_os = "linux")]
const SLACK_NS: NonZeroU64 = NonZeroU64::new(1_000).expect("1,000 is not 0");

/// A clock that threads can wait for. The clock never runs backwards.
pub trait Clock: Send + Sync {
    /// Nanoseconds since the clock began.
    fn now(&self) -> Nanos;

    /// Returns when `now() >= deadline`. Another thread may store an earlier deadline meanwhile and then unpark this
    /// thread. The value is the time for which the thread was kept on its processor: nanoseconds of the clock.
    fn wait_until(&self, deadline: &AtomicU64) -> Nanos;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Nanos {
        (**self).now()
    }

    fn wait_until(&self, deadline: &AtomicU64) -> Nanos {
        (**self).wait_until(deadline)
    }
}

/// Monotonic wall-clock time. A wait sleeps, then spins for the last 5 to 100 us.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    began: Instant,
}

impl WallClock {
    /// A clock that begins now.
    pub fn new() -> Self {
        WallClock { began: Instant::now() }
    }
}

impl Default for WallClock {
    fn default() -> Self {
        WallClock::new()
    }
}

impl Clock for WallClock {
    #[inline]
    fn now(&self) -> Nanos {
        // 64 bits of nanoseconds last 584 years.
        self.began.elapsed().as_nanos() as Nanos
    }

    #[inline]
    fn wait_until(&self, deadline: &AtomicU64) -> Nanos {
        let (mut spun, mut spins_since) = (0, None);
        loop {
            let (until, now) = (deadline.load(Ordering::Acquire), self.now());
            let (left, spin) = (until.saturating_sub(now), SPIN_NS.load(Ordering::Relaxed));
            if left == 0 {
                return spun + spins_since.map_or(0, |since| now - since);
            } else if left <= spin {
                spins_since.get_or_insert(now);
                std::hint::spin_loop();
            } else {
                spun += spins_since.take().map_or(0, |since| now - since);
                sleep_exactly();
                thread::park_timeout(Duration::from_nanos(left - spin));
                // A thread that was woken for another deadline has not slept until its time.
                if let Some(late) = self.now().checked_sub(until - spin) {
                    SPIN_NS.store(learned(spin, late), Ordering::Relaxed);
                }
            }
        }
    }
}

/// From now on the kernel does not put off the ends of this thread's sleeps to join them with others, by 50 us unless
/// it is told otherwise.
#[cfg(target_os = "linux")]
fn sleep_exactly() {
    thread_local!(static EXACT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    if !EXACT.replace(true) {
        // A kernel that refuses lets the thread wake later: what is late is counted.
        let _ = rustix::thread::set_current_timer_slack(Some(SLACK_NS));
    }
}

#[cfg(not(target_os = "linux"))]
fn sleep_exactly() {}

/// A clock that stands still until a thread waits; the wait sets the clock to its deadline.
#[derive(Debug, Default)]
pub struct VirtualClock {
    now: AtomicU64,
}

impl VirtualClock {
    /// A clock at 0.
    pub fn new() -> Self {
        VirtualClock::default()
    }

    /// Lets time pass.
    pub fn advance(&self, duration: Nanos) {
        self.now.fetch_add(duration, Ordering::AcqRel);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Nanos {
        self.now.load(Ordering::Acquire)
    }

    fn wait_until(&self, deadline: &AtomicU64) -> Nanos {
        self.now.fetch_max(deadline.load(Ordering::Acquire), Ordering::AcqRel);
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_wait_ends_at_its_deadline_and_never_goes_back() {
        let clock = VirtualClock::new();
        clock.wait_until(&AtomicU64::new(700));
        assert_eq!(clock.now(), 700);
        clock.wait_until(&AtomicU64::new(300));
        clock.advance(5);
        assert_eq!(clock.now(), 705);
    }

    #[test]
    fn a_wait_for_the_wall_clock_is_never_too_short() {
        let clock = WallClock::new();
        for duration in [0, 1, 1_000, 50_000, 150_000, 400_000, 2_000_000] {
            let deadline = clock.now() + duration;
            let spun = clock.wait_until(&AtomicU64::new(deadline));
            assert!(clock.now() >= deadline, "{duration} ns");
            assert!(spun <= clock.now() - (deadline - duration), "{duration} ns, of which it spun {spun}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_that_has_slept_for_the_wall_clock_sleeps_exactly_from_then_on() {
        let slack = || rustix::thread::current_timer_slack().expect("a thread's own slack");
        thread::scope(|scope| {
            scope.spawn(|| {
                let clock = WallClock::new();
                clock.wait_until(&AtomicU64::new(clock.now() + 2 * SPIN_MAX_NS));
                assert_eq!(slack(), SLACK_NS.get());
            });
        });
    }

    #[test]
    fn a_spin_is_as_long_as_one_of_four_sleeps_is_late() {
        let mut random = entresol_core::Random::new(3);
        let spin = (0..20_000).fold(SPIN_MAX_NS, |spin, _| learned(spin, random.below(80_000)));
        assert!((10_000..=30_000).contains(&spin), "{spin} ns of 0 to 80 us");
        assert_eq!((0..20_000).fold(spin, |spin, _| learned(spin, 0)), SPIN_MIN_NS);
        assert_eq!((0..20_000).fold(spin, |spin, _| learned(spin, 1_000_000)), SPIN_MAX_NS);
    }

    #[test]
    fn a_wait_ends_early_when_the_deadline_is_moved() {
        let clock = WallClock::new();
        let deadline = AtomicU64::new(Nanos::MAX);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| clock.wait_until(&deadline));
            deadline.store(clock.now() + 1_000_000, Ordering::Release);
            waiter.thread().unpark();
        });
        assert!(clock.now() >= deadline.load(Ordering::Acquire));
    }
}
