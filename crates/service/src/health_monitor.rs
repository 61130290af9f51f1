//! The health monitor of a cache in use, which looks once a second. Device errors and lost pages become events, and
//! unsynced changes are made durable.

use super::backing_record::Paired;
use super::backing_store::Below;
use super::cache_file::{CacheFile, Change};
use super::choice::why;
use super::conflicts;
use super::log::{Level, Log};
use super::words::quoted_path;
use entresol_cache::{BlockCache, FlushProgress};
use entresol_disk::DeviceCounts;
use entresol_files::places::{closed_descriptors, descriptors_bound};
use entresol_policy::Worn;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);
/// Shortest interval at which what the policy has learned is kept for a start after a kill.
const KEPT_EVERY: Duration = Duration::from_secs(300);
/// Bytes a second, in the mean, that this writes at most: the file lies beside the backing store, on a device with other work.
const KEPT_BYTES_PER_S: u64 = 64 << 10;

/// Thread that looks once a second, until it is stopped.
pub struct HealthMonitor(Option<(Sender<()>, JoinHandle<()>)>);

/// State of the cache at the last look.
#[derive(Default)]
struct Seen {
    devices: [DeviceCounts; 2],
    failed: bool,
    lost: u64,
    past_writes: u64,
    switches: u64,
    change: Option<Change>,
    descriptors_closed: u64,
    unraised: bool,
    directories_unsynced: bool,
}

impl HealthMonitor {
    /// Starts the thread; `backing` is the path of the backing store. Without a thread no look takes place, but failures are
    /// counted all the same.
    pub fn start(
        cache: Arc<BlockCache>,
        (below, backing): (Below, PathBuf),
        file: Arc<CacheFile>,
        pair: Arc<dyn Paired>,
        sync_after: Option<Duration>,
        log: Log,
    ) -> Self {
        let (stop, stopped) = channel();
        let look = move || {
            let mut seen = Seen::default();
            let mut unsynced = Unsynced::new(sync_after);
            let mut unkept = Unkept { since: Instant::now(), requests: 0, bytes: 0 };
            // Notes the file's size: a file that is shorter later was truncated.
            file.look();
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                panic_if_asked();
                if unsynced.is_due(Instant::now(), cache.flush_progress()) {
                    // A failed flush becomes an event, and is reported to the next sync.
                    let _told = cache.flush_ahead();
                }
                seen.look_at_file(&file, &log);
                seen.look(&cache, &file, &log);
                seen.look_at_descriptors(&log);
                seen.raise(&*pair, &log);
                seen.look_at_directories(&below, &log);
                conflicts::tell(&below, &backing, &log);
                if unkept.is_due(Instant::now(), || {
                    cache.stats().map_or(0, |stats| stats.counts.reads + stats.counts.writes)
                }) {
                    // A failure is said at the end, where it still counts.
                    unkept.bytes = pair.keep_learned().unwrap_or(0);
                }
            }
            // A last look covers the end.
            seen.look_at_file(&file, &log);
            seen.look(&cache, &file, &log);
            seen.look_at_descriptors(&log);
            seen.look_at_directories(&below, &log);
            conflicts::tell(&below, &backing, &log);
        };
        let thread = std::thread::Builder::new().name("health monitor".into()).spawn(look);
        HealthMonitor(thread.ok().map(|thread| (stop, thread)))
    }

    /// Looks once more and ends.
    pub fn stop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            // A panic of the thread has been printed.
            let _ = thread.join();
        }
    }
}

impl Drop for HealthMonitor {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Age of the oldest change that no flush has covered, and its limit.
struct Unsynced {
    limit: Option<Duration>,
    /// The oldest known unflushed change, by number, and a bound on its age: the time when it was first seen.
    oldest: Option<(u64, Instant)>,
}

impl Unsynced {
    fn new(limit: Option<Duration>) -> Self {
        Unsynced { limit, oldest: None }
    }

    /// True if it is time to flush. After a failed flush that is so again when the same time has passed.
    fn is_due(&mut self, now: Instant, progress: FlushProgress) -> bool {
        let FlushProgress { changes, flushed } = progress;
        self.oldest = self.oldest.filter(|&(number, _)| number > flushed);
        if changes == flushed {
            return false;
        }
        let (_, since) = *self.oldest.get_or_insert((flushed + 1, now));
        let due = self.limit.is_some_and(|limit| now.saturating_duration_since(since) >= limit);
        if due {
            self.oldest = Some((flushed + 1, now));
        }
        due
    }
}

/// Time since what the policy has learned was kept last, and the requests until then.
struct Unkept {
    since: Instant,
    requests: u64,
    /// Bytes that were written then.
    bytes: u64,
}

impl Unkept {
    /// True if it is time to keep it again. The policy of a cache without requests learns nothing.
    fn is_due(&mut self, now: Instant, requests: impl FnOnce() -> u64) -> bool {
        let interval = KEPT_EVERY.max(Duration::from_secs(self.bytes / KEPT_BYTES_PER_S));
        if now.saturating_duration_since(self.since) < interval {
            return false;
        }
        self.since = now;
        let requests = requests();
        std::mem::replace(&mut self.requests, requests) != requests
    }
}

/// Panics on request, so that a test can see the end of a server one of whose threads panics.
fn panic_if_asked() {
    if cfg!(debug_assertions) && std::env::var_os("ENTRESOL_FAULT").is_some_and(|fault| fault == "panic") {
        panic!("ENTRESOL_FAULT asks for it");
    }
}

impl Seen {
    fn raise(&mut self, pair: &dyn Paired, log: &Log) {
        let failed = pair.raise_if_due().err();
        if let Some(error) = failed.as_ref().filter(|_| !self.unraised) {
            let message = format!(
                "the generation could not be raised: {error}; until it is, an older copy of the cache or of the \
                 backing store goes unnoticed"
            );
            log.event(Level::Warning, "generation", &message, json!({ "error": error.to_string() }));
        }
        self.unraised = failed.is_some();
    }

    fn look_at_file(&mut self, file: &CacheFile, log: &Log) {
        let change = file.look();
        if let Some(change) = change.filter(|_| change != self.change) {
            let more = match change.is_loss() {
                true => "; it is drained at the end of this process, and its dirty pages are lost if that is killed",
                false => "; give the next start its new name",
            };
            let message = format!("{}{more}", change.said());
            log.event(Level::Warning, "cache-file", &message, json!({ "loss": change.is_loss() }));
        }
        self.change = change;
    }

    fn look(&mut self, cache: &BlockCache, file: &CacheFile, log: &Log) {
        let devices = cache.devices();
        for ((name, now), before) in ["cache", "backing"].into_iter().zip(devices).zip(self.devices) {
            errors(name, now, before, log);
        }
        self.devices = devices;
        // A cache that has stopped after a fault of its own reports that to its callers.
        let Ok(stats) = cache.stats() else { return };
        if let Some(why) = stats.failed.as_ref().filter(|_| !self.failed) {
            let message = format!("the cache device has failed: {why}; requests go to the backing store");
            log.event(Level::Warning, "failed", &message, json!({ "error": why }));
        }
        self.failed = stats.failed.is_some();
        let lost = stats.write_back.pages_lost;
        if lost > self.lost {
            let message = format!("{} pages are lost: their only copies could not be read", lost - self.lost);
            log.event(Level::Warning, "lost-pages", &message, json!({ "pages": lost - self.lost }));
        }
        self.lost = lost;
        self.look_at_wear(stats.log.map(|(_, worn)| worn), file, log);
        self.look_at_choice(cache, log);
    }

    /// Reports the first writes that went past the cache to keep a bound on wear.
    fn look_at_wear(&mut self, worn: Option<Worn>, file: &CacheFile, log: &Log) {
        let past = worn.map_or(0, |worn| worn.past_writes);
        if self.past_writes == 0 && past > 0 {
            let cache = quoted_path(file.path());
            let message = format!(
                "what the cache may take by its bound on wear is used up: until it may take more, writes go to the backing \
                 store alone, and no page enters. `entresol set --cache {cache} wear=unbounded` ends the bound, and \
                 another value gives another one; `entresol stats {cache}` counts these writes, and they are not mentioned \
                 again"
            );
            log.event(Level::Warning, "wear", &message, json!({ "past_writes": past }));
        }
        self.past_writes = past;
    }

    /// Reports the first files whose descriptors were closed to make room for others.
    fn look_at_descriptors(&mut self, log: &Log) {
        let closed = closed_descriptors();
        if self.descriptors_closed == 0 && closed > 0 {
            let bound = descriptors_bound();
            let message = format!(
                "remembered files need more than half of the descriptors ({bound}); the coldest are closed, and \
                 opened again when they are used"
            );
            log.event(Level::Info, "descriptors", &message, json!({ "bound": bound, "closed": closed }));
        }
        self.descriptors_closed = closed;
    }

    /// Reports the first directory that could not be synced after a name was removed in it.
    fn look_at_directories(&mut self, below: &Below, log: &Log) {
        let Below::Files(files) = below else { return };
        let (failed, why) = files.failed_directory_syncs();
        if let Some(why) = why.filter(|_| !self.directories_unsynced) {
            let message = format!(
                "a directory below could not be synced after a name was removed in it: {why}; the cache keeps the \
                 file's pages, and tries again each second"
            );
            log.event(Level::Warning, "directory-sync", &message, json!({ "error": why, "failed": failed }));
        }
        self.directories_unsynced = failed > 0;
    }

    /// Reports a switch of a policy that lets one of several candidates decide.
    fn look_at_choice(&mut self, cache: &BlockCache, log: &Log) {
        let Ok(choice) = cache.policy_choice() else { return };
        let switches = choice.as_ref().map_or(0, |choice| choice.switches);
        // The count begins anew when the policy is set anew.
        if let Some(last) = choice.and_then(|choice| choice.last).filter(|_| switches > 0 && switches != self.switches)
        {
            log.event(Level::Info, "policy-switch", &why(&last), json!({
                "from": last.from, "to": last.to, "cost_from": last.cost_from, "cost_to": last.cost_to,
                "error": last.error, "sampled_requests": last.sampled, "requests": last.requests, "switches": switches
            }));
        }
        self.switches = switches;
    }
}

/// Reports the calls that failed on a device since the last look.
fn errors(device: &str, now: DeviceCounts, before: DeviceCounts, log: &Log) {
    let read = now.read.errors - before.read.errors;
    let write = now.write.errors - before.write.errors;
    let sync = now.sync.errors - before.sync.errors;
    if read + write + sync > 0 {
        let message = format!("the {device} device failed {read} reads, {write} writes, {sync} syncs");
        let figures = json!({ "device": device, "reads": read, "writes": write, "syncs": sync });
        log.event(Level::Warning, "device-errors", &message, figures);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learned_is_kept_every_five_minutes_with_requests() {
        let began = Instant::now();
        let mut unkept = Unkept { since: began, requests: 0, bytes: 0 };
        let mut due = |second, requests| unkept.is_due(began + Duration::from_secs(second), || requests);
        assert!(!due(299, 10));
        assert!(due(300, 10) && !due(301, 20), "five minutes from then");
        assert!(due(600, 20));
        assert!(!due(900, 20), "nothing was requested");
        assert!(due(1200, 21));
        unkept.bytes = 600 * KEPT_BYTES_PER_S;
        let mut due = |second| unkept.is_due(began + Duration::from_secs(second), || 22);
        assert!(!due(1799) && due(1800), "a long state is kept less often");
    }

    #[test]
    fn a_change_is_flushed_when_it_is_as_old_as_it_may_be() {
        let (limit, began) = (Duration::from_secs(30), Instant::now());
        let at = |second: u64| began + Duration::from_secs(second);
        let progress = |changes, flushed| FlushProgress { changes, flushed };
        let mut unsynced = Unsynced::new(Some(limit));
        assert!(!unsynced.is_due(at(0), progress(0, 0)), "nothing was changed");
        assert!(!unsynced.is_due(at(1), progress(5, 0)));
        assert!(!unsynced.is_due(at(30), progress(9, 0)));
        assert!(unsynced.is_due(at(31), progress(9, 0)), "the first one is 30 seconds old");
        assert!(!unsynced.is_due(at(32), progress(9, 0)), "that flush has failed: not each second");
        assert!(unsynced.is_due(at(61), progress(9, 0)));
        assert!(!unsynced.is_due(at(62), progress(9, 9)), "a client has flushed");
        assert!(!unsynced.is_due(at(99), progress(10, 9)));
        // After a flush of the oldest change, the next change counts from when it was first seen.
        assert!(!unsynced.is_due(at(128), progress(12, 10)));
        assert!(!unsynced.is_due(at(157), progress(12, 10)));
        assert!(unsynced.is_due(at(158), progress(12, 10)));
        let mut never = Unsynced::new(None);
        assert!((0..1000).all(|second| !never.is_due(at(second), progress(1, 0))));
    }
}
