//! State that the threads of a run share (its clock, its end, its first failure), and the counts of each thread's I/Os.

use super::source::Next;
use crate::noise;
use crate::target::{Samples, TargetError};
use entresol_device::Nanos;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Time before an I/O is due at which a thread stops sleeping and spins: waking takes tens of microseconds.
const SPIN: Duration = Duration::from_micros(100);
/// Longest time between two checks for an interruption by the user.
const NAP_MAX: Duration = Duration::from_millis(50);

/// A run of some streams.
pub(super) struct Run<'a> {
    target: &'a str,
    gate: Barrier,
    started: OnceLock<Instant>,
    /// Threads of streams that are not in the background and have not ended.
    foreground: AtomicUsize,
    interrupted: &'a AtomicBool,
    failed: AtomicBool,
    failure: Mutex<Option<TargetError>>,
}

impl<'a> Run<'a> {
    /// A run of `threads` threads on a target that errors call `target`. The run ends when `foreground` of them have.
    pub(super) fn new(target: &'a str, threads: usize, foreground: usize, interrupted: &'a AtomicBool) -> Self {
        Run {
            target,
            gate: Barrier::new(threads),
            started: OnceLock::new(),
            foreground: AtomicUsize::new(foreground),
            interrupted,
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Waits until all threads have started: on a busy host some start late, and a stream must not miss its time for
    /// that.
    pub(super) fn begin(&self) {
        self.gate.wait();
        self.started.get_or_init(Instant::now);
    }

    /// Time since the start. A thread calls this only after `begin`.
    pub(super) fn now(&self) -> Nanos {
        self.started.get_or_init(Instant::now).elapsed().as_nanos() as Nanos
    }

    /// True if a stream must stop although it has I/Os left.
    pub(super) fn must_stop(&self, background: bool) -> bool {
        self.failed.load(Ordering::Relaxed)
            || self.interrupted.load(Ordering::Relaxed)
            || (background && self.foreground.load(Ordering::Relaxed) == 0)
    }

    /// Counts the end of a foreground thread.
    pub(super) fn foreground_ended(&self) {
        self.foreground.fetch_sub(1, Ordering::Relaxed);
    }

    /// Stops the run because of an error; the first error counts.
    pub(super) fn fail(&self, action: &'static str, error: std::io::Error) {
        let error = TargetError::System { target: self.target.to_owned(), action, error };
        self.failure.lock().expect("no thread panics with it").get_or_insert(error);
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Outcome of the run: the first failure, else an interruption by the user, else success.
    pub(super) fn outcome(self) -> Result<(), TargetError> {
        match self.failure.into_inner().expect("no thread panicked with it") {
            Some(error) => Err(error),
            None if self.interrupted.load(Ordering::Relaxed) => Err(TargetError::Interrupted),
            None => Ok(()),
        }
    }

    /// Time to sleep until an I/O is due at `due`; none when the thread should spin or send.
    pub(super) fn nap(&self, due: Nanos) -> Option<Duration> {
        let left = Duration::from_nanos(due.saturating_sub(self.now()));
        (left > SPIN).then(|| (left - SPIN).min(NAP_MAX))
    }
}

/// Counts of one thread.
#[derive(Default)]
pub(super) struct Tally {
    samples: Samples,
    first: Option<Nanos>,
    last: Nanos,
}

impl Tally {
    /// Counts an I/O that was sent, or due, at `from` and done at `to`.
    pub(super) fn count(&mut self, next: &Next, bytes: u32, from: Nanos, to: Nanos, keep_raw: bool) {
        let latency = to.saturating_sub(from);
        let samples = &mut self.samples;
        samples.completions += 1;
        samples.bytes += u64::from(bytes);
        if next.write {
            samples.writes.record(latency)
        } else {
            samples.reads.record(latency)
        }
        if keep_raw {
            samples.raw.push((to, latency));
        }
        self.first = Some(self.first.map_or(from, |first| first.min(from)));
        self.last = self.last.max(to);
    }

    /// Combines the counts of a stream's threads.
    pub(super) fn merge(tallies: impl IntoIterator<Item = Tally>) -> Samples {
        let mut all = Tally::default();
        for tally in tallies {
            all.samples.completions += tally.samples.completions;
            all.samples.bytes += tally.samples.bytes;
            all.samples.reads.merge(&tally.samples.reads);
            all.samples.writes.merge(&tally.samples.writes);
            all.samples.raw.extend(tally.samples.raw);
            all.first = [all.first, tally.first].into_iter().flatten().min();
            all.last = all.last.max(tally.last);
        }
        all.samples.raw.sort_unstable();
        all.samples.elapsed = all.last - all.first.unwrap_or(all.last);
        all.samples
    }
}

/// Runs the work of a thread and reports to the noise meter how long it waited for a processor.
pub(super) fn metered<R>(work: impl FnOnce() -> R) -> R {
    // The default of 50 microseconds would be added to every nap. The setting applies to this thread only.
    // SAFETY: the call takes a number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000_u64) };
    let meter = noise::ThreadMeter::start();
    let result = work();
    meter.finish();
    result
}
