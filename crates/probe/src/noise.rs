//! Disturbance of a measurement by the machine itself: processors taken away, threads kept waiting.
//!
//! `docs/probe.md` describes each figure and its source in `/proc`.

use entresol_device::Nanos;
use serde::{Deserialize, Serialize};
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Above this share of steal, or of waiting for a processor, a result is marked as contended.
pub const CONTENDED_SHARE: f64 = 0.01;

/// Nanoseconds that I/O threads waited for a processor, and nanoseconds that they ran; of the whole process.
static WAITED_NS: AtomicU64 = AtomicU64::new(0);
static LIVED_NS: AtomicU64 = AtomicU64::new(0);

/// The disturbance during a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// Wall-clock time that was observed, in nanoseconds.
    pub wall_ns: Nanos,
    /// Share of the processors' time that the hypervisor gave to others, 0 to 1.
    pub steal: f64,
    /// Share of their time that I/O threads waited for a processor, 0 to 1.
    pub run_queue: f64,
    /// Load average of the last minute, at the end: processes that run or wait to.
    pub load: f64,
    /// Processors.
    pub processors: u32,
    /// Times that a thread of this process was preempted.
    pub preemptions: u64,
    /// True if steal or waiting exceeds 1 %. The result then describes the machine as much as the device.
    pub contended: bool,
}

impl Noise {
    /// The disturbance of a run in virtual time, which is none.
    pub fn none() -> Self {
        Noise::default()
    }

    /// The disturbance of this measurement and a later one together.
    pub fn and(&self, other: &Noise) -> Noise {
        let wall_ns = self.wall_ns + other.wall_ns;
        let mean = |mine: f64, theirs: f64| match wall_ns {
            0 => 0.0,
            _ => (mine * self.wall_ns as f64 + theirs * other.wall_ns as f64) / wall_ns as f64,
        };
        let (steal, run_queue) = (mean(self.steal, other.steal), mean(self.run_queue, other.run_queue));
        Noise {
            wall_ns,
            steal,
            run_queue,
            load: self.load.max(other.load),
            processors: self.processors.max(other.processors),
            preemptions: self.preemptions + other.preemptions,
            contended: steal.max(run_queue) > CONTENDED_SHARE,
        }
    }
}

/// Meter of the disturbance from its start to its finish.
#[derive(Debug)]
pub struct NoiseMeter {
    started: Instant,
    processors: Ticks,
    waited: u64,
    lived: u64,
    preemptions: u64,
}

impl NoiseMeter {
    /// Begins to observe.
    pub fn start() -> Self {
        NoiseMeter {
            started: Instant::now(),
            processors: Ticks::now(),
            waited: WAITED_NS.load(Ordering::Relaxed),
            lived: LIVED_NS.load(Ordering::Relaxed),
            preemptions: preemptions(),
        }
    }

    /// Returns the disturbance since the start.
    pub fn finish(self) -> Noise {
        let waited = WAITED_NS.load(Ordering::Relaxed) - self.waited;
        let lived = LIVED_NS.load(Ordering::Relaxed) - self.lived;
        let steal = Ticks::now().steal_since(&self.processors);
        let run_queue = if lived == 0 { 0.0 } else { waited as f64 / lived as f64 };
        Noise {
            wall_ns: self.started.elapsed().as_nanos() as Nanos,
            steal,
            run_queue,
            load: load(&fs::read_to_string("/proc/loadavg").unwrap_or_default()),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
            preemptions: preemptions().saturating_sub(self.preemptions),
            contended: steal.max(run_queue) > CONTENDED_SHARE,
        }
    }
}

/// Meter of one I/O thread; start and finish must be on that thread.
pub(crate) struct ThreadMeter {
    started: Instant,
    waited: u64,
}

impl ThreadMeter {
    pub(crate) fn start() -> Self {
        ThreadMeter { started: Instant::now(), waited: waited() }
    }

    pub(crate) fn finish(self) {
        WAITED_NS.fetch_add(waited().saturating_sub(self.waited), Ordering::Relaxed);
        LIVED_NS.fetch_add(self.started.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Nanoseconds that this thread has waited for a processor: the second number of its `schedstat`.
fn waited() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Times that threads of this process were preempted, ended threads included.
fn preemptions() -> u64 {
    // SAFETY: all zeros is a value of this structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call fills the structure that it is given.
    match unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } {
        0 => usage.ru_nivcsw as u64,
        _ => 0,
    }
}

fn load(text: &str) -> f64 {
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// Time of all processors since the machine started, in ticks of its clock.
#[derive(Debug)]
struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// From the line `cpu user nice system idle iowait irq softirq steal guest guest_nice`; guests are in user and nice.
    fn parse(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|tick| tick.parse().ok()).collect();
        Ticks { all: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    fn steal_since(&self, earlier: &Ticks) -> f64 {
        let all = self.all.saturating_sub(earlier.all);
        if all == 0 { 0.0 } else { self.stolen.saturating_sub(earlier.stolen) as f64 / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_share_of_all_ticks() {
        let earlier = Ticks::parse("cpu  100 0 50 800 10 0 5 35 7 0\ncpu0 1 2 3");
        let later = Ticks::parse("cpu  180 0 60 890 10 0 5 55 7 0\n");
        assert_eq!((earlier.all, earlier.stolen), (1000, 35));
        assert_eq!(later.steal_since(&earlier), 0.1);
        assert_eq!(later.steal_since(&later), 0.0);
        assert_eq!(Ticks::parse("").all, 0);
    }

    #[test]
    fn a_load_is_the_first_number() {
        assert_eq!(load("1.25 0.90 0.50 2/345 6789\n"), 1.25);
        assert_eq!(load(""), 0.0);
    }

    #[test]
    fn two_noises_are_weighed_by_their_time() {
        let quiet = Noise {
            wall_ns: 3,
            steal: 0.0,
            run_queue: 0.02,
            load: 1.0,
            processors: 2,
            preemptions: 1,
            contended: true,
        };
        let loud = Noise { wall_ns: 1, steal: 0.02, load: 2.0, ..quiet.clone() };
        let both = quiet.and(&Noise { run_queue: 0.0, ..loud });
        assert_eq!((both.wall_ns, both.steal, both.run_queue, both.load, both.preemptions), (4, 0.005, 0.015, 2.0, 2));
        assert!(both.contended);
        assert_eq!(Noise::none().and(&Noise::none()), Noise::none());
    }

    #[test]
    fn threads_that_fight_for_a_processor_are_seen() {
        if fs::metadata("/proc/thread-self/schedstat").is_err() {
            return entresol_skip::skipped!("kernel", "this kernel does not say how long a thread waits");
        }
        // Twice as many busy threads as processors: some must wait.
        let threads = 2 * std::thread::available_parallelism().map_or(1, |count| count.get());
        let meter = NoiseMeter::start();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let thread = ThreadMeter::start();
                    let until = Instant::now() + std::time::Duration::from_millis(150);
                    while Instant::now() < until {
                        std::hint::spin_loop();
                    }
                    thread.finish();
                });
            }
        });
        let noise = meter.finish();
        assert!(noise.run_queue > 0.1 && noise.contended, "{noise:?}");
        assert!(noise.wall_ns >= 150_000_000 && noise.preemptions > 0, "{noise:?}");
    }
}
