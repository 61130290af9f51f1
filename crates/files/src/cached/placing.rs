//! A thread that prefetches the objects placed by the policy, at a limited rate, beside requests.

use entresol_cache::{BlockCache, Filled, Filling};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Pause after a failure of the cache device.
const REST: Duration = Duration::from_millis(100);
/// Steps in a row that may fail before the thread waits for the next wake.
const FAILURES_MAX: u32 = 20;

/// The thread, started at first use.
pub(super) struct Placer {
    state: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    told: Mutex<Announced>,
    changed: Condvar,
    /// Bytes per second; 0 is no limit.
    rate: AtomicU64,
}

#[derive(Default)]
struct Announced {
    /// Number of wakes.
    times: u64,
    /// Number of these that are dealt with: the pages that the policy wanted after them were prefetched, or given up
    /// after more than [`FAILURES_MAX`] failures in a row.
    done: u64,
    ended: bool,
}

impl State {
    fn told(&self) -> MutexGuard<'_, Announced> {
        // The state is consistent after every step, so poisoning is ignored.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the given time or until the end; true at the end.
    fn rest(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.told(), time, |told| !told.ended);
        waited.map_or_else(|error| error.into_inner().0.ended, |(told, _)| told.ended)
    }
}

impl Placer {
    pub(super) fn new() -> Self {
        Placer { state: Arc::default(), thread: Mutex::default() }
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread, as the policy may want other objects than before.
    pub(super) fn wake(&self, cache: &Arc<BlockCache>, page_bytes: u64) {
        let mut thread = self.thread();
        if self.state.told().ended {
            return;
        }
        if thread.is_none() {
            let (state, cache) = (self.state.clone(), cache.clone());
            let started = Builder::new().name("placed files".into()).spawn(move || serve(&state, &cache, page_bytes));
            // Without the thread, pages are cached on demand.
            *thread = started.ok();
        }
        if thread.is_some() {
            self.state.told().times += 1;
            self.state.changed.notify_all();
        }
    }

    /// Waits until all pages that the policy wanted at the call are cached, or until the end.
    pub(super) fn wait(&self) {
        let told = self.state.told();
        let times = told.times;
        drop(self.state.changed.wait_while(told, |told| told.done < times && !told.ended));
    }

    /// True if pages are still to be prefetched or to leave.
    pub(super) fn is_busy(&self) -> bool {
        let told = self.state.told();
        told.done < told.times
    }

    /// Limits the rate in bytes per second from now on; 0 is no limit.
    pub(super) fn set_rate(&self, bytes_per_s: u64) {
        self.state.rate.store(bytes_per_s, Relaxed);
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.state.told().ended = true;
        self.state.changed.notify_all();
        if let Some(thread) = self.thread().take() {
            // A panic of the thread was reported where it happened.
            let _told = thread.join();
        }
    }
}

impl Drop for Placer {
    fn drop(&mut self) {
        self.end();
    }
}

fn serve(state: &State, cache: &BlockCache, page_bytes: u64) {
    loop {
        let waited = state.changed.wait_while(state.told(), |told| told.done == told.times && !told.ended);
        let told = waited.unwrap_or_else(PoisonError::into_inner);
        let times = told.times;
        drop(told);
        if bring_all(state, cache, page_bytes) {
            return;
        }
        state.told().done = times;
        state.changed.notify_all();
    }
}

/// Visits all objects once; true at the end.
fn bring_all(state: &State, cache: &BlockCache, page_bytes: u64) -> bool {
    let (mut filling, mut failures) = (Filling::default(), 0);
    loop {
        let started = Instant::now();
        let rest = match cache.fill_some(&mut filling) {
            Ok(Filled::All) => return state.told().ended,
            Ok(Filled::Some(pages)) => {
                failures = 0;
                let rate = state.rate.load(Relaxed);
                let due = if rate == 0 { 0.0 } else { (pages * page_bytes) as f64 / rate as f64 };
                Duration::from_secs_f64(due).saturating_sub(started.elapsed())
            }
            Err(_) if failures >= FAILURES_MAX => return state.told().ended,
            Err(_) => {
                failures += 1;
                REST
            }
        };
        if state.rest(rest) {
            return true;
        }
    }
}
