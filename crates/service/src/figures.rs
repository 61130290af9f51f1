//! The figures of a running cache, as `stats` prints them and as its JSON has them.

use super::age::AgeFigures;
use super::choice::ChoiceFigures;
use super::conflicts::{ConflictFigures, ending};
use super::doubt::DoubtFigures;
use super::objects::{self, ObjectFigures};
use super::observed::{CallFigures, FrontEndFigures};
use entresol_cache::{CacheStats, counters};
use entresol_disk::{CallCounts, DeviceCounts};
use entresol_hints::HintCounts;
use entresol_policy::{Choice, Worn};
use entresol_render::{NumberFormat, grouped, percent};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Counts since the cache was opened, and its state now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// The process that serves the cache.
    pub process: u32,
    /// Seconds for which the process has had the cache open.
    pub open_s: f64,
    /// The policy, with its options.
    pub policy: String,
    /// Treatment of writes, as the command line names it.
    pub mode: String,
    /// The cache device has failed: requests go to the backing store.
    pub failed: bool,
    /// Error with which the cache device failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Size of a page.
    pub page_bytes: u32,
    /// Capacity of each tier in pages; the last is the cache device.
    pub tiers_pages: Vec<u64>,
    /// Pages that the cache device can hold.
    pub room_pages: u64,
    /// Pages that are newer in the cache than in the backing store.
    pub dirty_pages: u64,
    /// The bound on the age of dirty pages, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty_age: Option<AgeFigures>,
    /// Pages written to a cache of the layout segments, beside the bound on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wear: Option<WearFigures>,
    /// Pages whose only copy could not be read.
    pub lost_pages: u64,
    /// Change of the cache file while in use that may lose data, in words: unlinked, replaced or truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_file: Option<String>,
    /// New starts of the server since the command began; none without `--restart on`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<RestartFigures>,
    /// Page requests.
    pub requests: Requests,
    /// I/O on the cache device.
    pub cache_device: CacheDevice,
    /// I/O on the backing store.
    pub backing: Backing,
    /// Gauges that the policy reports about itself, by name.
    pub policy_gauges: BTreeMap<String, f64>,
    /// Figures of a policy that lets one of several candidate policies decide; none for other policies.
    #[serde(default)]
    pub choice: Option<ChoiceFigures>,
    /// Calls of the front-end.
    #[serde(rename = "door")]
    pub front_end: FrontEndFigures,
    /// The account of each file, or of the backing store if that is a file or device.
    #[serde(default)]
    pub objects: Vec<ObjectFigures>,
    /// True if the accounts of objects did not come in time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accounts_late: bool,
    /// Processes seen to write to the backing store without the cache during the first ten minutes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writers: Vec<String>,
    /// Files that were changed without the cache while the cache had dirty pages of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<ConflictFigures>,
    /// Directory where the cache is mounted, in the namespace of the process; for files only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mountpoint: Option<String>,
    /// Counts of messages about queries; none if the cache receives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints: Option<HintFigures>,
    /// Doubt whether all is there that a killed server had answered, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<DoubtFigures>,
}

/// Pages written to a cache of the layout segments since its policy began, as the policy and reclaim decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WearFigures {
    /// Pages written, copies of reclaim included.
    pub written_pages: u64,
    /// Pages that the bound allowed in that time; none without a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_pages: Option<u64>,
    /// Writes that went to the backing store alone because the bound was used up.
    #[serde(default)]
    pub past_writes: u64,
}

impl From<Worn> for WearFigures {
    fn from(Worn { written_pages, allowed_pages, past_writes }: Worn) -> Self {
        WearFigures { written_pages, allowed_pages, past_writes }
    }
}

impl WearFigures {
    fn line(&self) -> String {
        let bound =
            self.allowed_pages.map_or_else(|| "no bound".to_owned(), |pages| format!("{} allowed", count(pages)));
        let past = match self.past_writes {
            0 => String::new(),
            writes => format!(", {} writes went past the cache for it", count(writes)),
        };
        format!("{} pages written, {bound}{past}", count(self.written_pages))
    }
}

/// New starts of a server since its command began, by their reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestartFigures {
    /// Servers that crashed or were killed.
    pub crashes: u64,
    /// Servers that were replaced because they gave no sign of life.
    pub hangs: u64,
    /// Servers that were replaced by an upgrade.
    pub upgrades: u64,
    /// Milliseconds of the last pause: from the end of the server, or the last sign of life of one that hung, until
    /// the next one served. None before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_pause_ms: Option<f64>,
}

impl RestartFigures {
    fn line(&self) -> String {
        let RestartFigures { crashes, hangs, upgrades, last_pause_ms } = self;
        let pause = last_pause_ms.map_or_else(String::new, |ms| format!("; the last pause took {}", seconds(ms / 1e3)));
        format!("{} crashes, {} hangs, {} upgrades{pause}", count(*crashes), count(*hangs), count(*upgrades))
    }
}

/// Counts of messages about queries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HintFigures {
    /// Messages: datagrams, and events of an audit log.
    pub received: u64,
    /// Queries that began.
    pub begins: u64,
    /// Queries that ended.
    pub ends: u64,
    /// Queries that are running now.
    pub running: u64,
    /// Files of queries that the cache knows.
    pub files_known: u64,
    /// Files of queries that the cache does not know or that are elsewhere.
    pub files_unknown: u64,
    /// Messages that could not be parsed.
    pub malformed: u64,
    /// Messages about another directory.
    pub elsewhere: u64,
    /// Messages without room for all their relations.
    pub truncated: u64,
    /// Ends of queries without a beginning.
    pub ends_unknown: u64,
    /// Queries assumed to have ended because too many were running.
    pub forgotten: u64,
}

impl HintFigures {
    /// Makes the figures from the counts and the number of queries that run now.
    pub(crate) fn new(counts: HintCounts, running: usize) -> Self {
        let HintCounts { begins, ends, files_known, files_unknown, malformed, elsewhere, .. } = counts;
        let HintCounts { truncated, ends_unknown, forgotten, .. } = counts;
        HintFigures {
            received: begins + ends + ends_unknown + malformed + elsewhere,
            begins,
            ends,
            running: running as u64,
            files_known,
            files_unknown,
            malformed,
            elsewhere,
            truncated,
            ends_unknown,
            forgotten,
        }
    }

    /// The counts in one line; with an earlier reading, those of the time between.
    pub(crate) fn line(&self, before: Option<&HintFigures>) -> String {
        let since = |of: fn(&HintFigures) -> u64| count(of(self).saturating_sub(before.map_or(0, of)));
        format!(
            "{} messages, {} queries began and {} ended, {} run; {} files known, {} unknown; {} malformed, {} elsewhere",
            since(|h| h.received),
            since(|h| h.begins),
            since(|h| h.ends),
            count(self.running),
            since(|h| h.files_known),
            since(|h| h.files_unknown),
            since(|h| h.malformed),
            since(|h| h.elsewhere),
        )
    }
}

/// Parts of the page of metrics that have the counters, in their order there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Asked,
    Found,
    Moved,
    Past,
    WrittenBack,
    CacheDevice,
    Backing,
    EvictedDirty,
}

/// A counter as a metric.
pub(crate) struct Counter {
    pub(crate) part: Part,
    pub(crate) metric: &'static str,
    pub(crate) help: &'static str,
    /// Label that tells it from the other counters of the metric; the empty value stands for the tier.
    pub(crate) label: Option<(&'static str, &'static str)>,
    /// The value, or one for each tier.
    pub(crate) of: fn(&Figures) -> &[u64],
}

/// Makes the groups of counters and the list of their metrics from the declarations. The figures in the second braces
/// of a group do not come from the cache.
macro_rules! groups {
    ($($(#[$doc:meta])* $group:ident: $Group:ident {
        $($(#[$meta:meta])* $key:ident: $value:ty = $of:expr, $text:literal $(, c($_field:ident))?
            $(, metric($part:ident $metric:literal $({$label:ident $of_label:literal})? $($help:literal)?))?;)*
    } {
        $($(#[$more_meta:meta])* $more:ident: $more_value:ty, $more_text:literal
            $(, metric($more_part:ident $more_metric:literal))?;)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
            #[serde(deny_unknown_fields)]
            pub struct $Group {
                $(#[doc = $text] $(#[$meta])* pub $key: $value,)*
                $(#[doc = $more_text] $(#[$more_meta])* pub $more: $more_value,)*
            }

            impl $Group {
                fn new(stats: &CacheStats $(, $more: $more_value)*) -> Self {
                    fn value<T>(stats: &CacheStats, of: fn(&CacheStats) -> T) -> T {
                        of(stats)
                    }
                    $Group { $($key: value(stats, $of),)* $($more,)* }
                }
            }
        )*

        /// All counters that have a metric.
        pub(crate) const COUNTERS: &[Counter] = &[$(
            $($(Counter {
                part: Part::$part,
                metric: $metric,
                help: [$($help,)? $text][0],
                label: [$(Some((stringify!($label), $of_label)),)? None][0],
                of: |figures| figures.$group.$key.as_counts(),
            },)?)*
            $($(Counter {
                part: Part::$more_part,
                metric: $more_metric,
                help: $more_text,
                label: None,
                of: |figures| figures.$group.$more.as_counts(),
            },)?)*
        )*];
    };
}

counters!(groups {} {
    calls: DeviceFigures, "Calls of the device.";
} {
    #[serde(default)]
    directory_sync_errors: u64, "Syncs of directories that failed after a name was removed in them.",
        metric(Backing "entresol_backing_directory_sync_errors_total");
    calls: DeviceFigures, "Calls of the device, or of the files.";
});

/// A counter, or one for each tier.
trait AsCounts {
    fn as_counts(&self) -> &[u64];
}

impl AsCounts for u64 {
    fn as_counts(&self) -> &[u64] {
        std::slice::from_ref(self)
    }
}

impl AsCounts for Vec<u64> {
    fn as_counts(&self) -> &[u64] {
        self
    }
}

/// Calls of a device and their times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceFigures {
    /// Reads.
    pub read: DeviceCalls,
    /// Writes.
    pub write: DeviceCalls,
    /// Syncs.
    pub sync: DeviceCalls,
}

/// Calls of one kind; transfers handed over together are one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceCalls {
    /// Calls that have returned.
    pub calls: u64,
    /// Calls that returned an error.
    pub errors: u64,
    /// Bytes of all calls that have returned.
    pub bytes: u64,
    /// Sum of the calls' times; its growth per microsecond is the mean number under way.
    pub busy_us: u64,
    /// Calls under way.
    pub under_way: u64,
    /// Histogram of latencies: calls that took less than 1, 2, 4, 8, ... microseconds, and not less than the bound
    /// before. Zeros at the end are left out.
    pub took: Vec<u64>,
}

impl From<CallCounts> for DeviceCalls {
    fn from(counts: CallCounts) -> Self {
        let CallCounts { calls, errors, bytes, busy_ns, under_way, took } = counts;
        let used = took.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        DeviceCalls { calls, errors, bytes, busy_us: busy_ns / 1000, under_way, took: took[..used].to_vec() }
    }
}

impl From<DeviceCounts> for DeviceFigures {
    fn from(DeviceCounts { read, write, sync }: DeviceCounts) -> Self {
        DeviceFigures { read: read.into(), write: write.into(), sync: sync.into() }
    }
}

impl DeviceCalls {
    /// Returns the counts between an earlier reading and this one; calls under way are those of now.
    ///
    /// Without an earlier reading nothing is subtracted. Callers pass none where the earlier one is of another process.
    pub fn since(&self, before: Option<&DeviceCalls>) -> DeviceCalls {
        let Some(before) = before else { return self.clone() };
        let was = |at: usize| before.took.get(at).copied().unwrap_or(0);
        DeviceCalls {
            calls: self.calls.saturating_sub(before.calls),
            errors: self.errors.saturating_sub(before.errors),
            bytes: self.bytes.saturating_sub(before.bytes),
            busy_us: self.busy_us.saturating_sub(before.busy_us),
            under_way: self.under_way,
            took: self.took.iter().enumerate().map(|(at, took)| took.saturating_sub(was(at))).collect(),
        }
    }

    /// Time in microseconds that this share of the calls did not exceed: the upper bound of the bucket.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let rank = (self.took.iter().sum::<u64>() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let within = |&count: &u64| {
            seen += count;
            seen >= rank
        };
        self.took.iter().position(within).map_or(0.0, |bucket| (1u64 << bucket) as f64)
    }

    /// Mean time of a call in microseconds; 0 without calls.
    pub fn mean_us(&self) -> f64 {
        self.busy_us as f64 / self.calls.max(1) as f64
    }
}

/// State of a cache, besides its counts.
pub(crate) struct State {
    pub(crate) open_s: f64,
    pub(crate) policy: String,
    pub(crate) mode: String,
    pub(crate) tiers_pages: Vec<u64>,
    pub(crate) room_pages: u64,
    pub(crate) lost_pages: u64,
    pub(crate) cache_file: Option<String>,
    pub(crate) restarts: Option<RestartFigures>,
    pub(crate) policy_gauges: Vec<(&'static str, f64)>,
    pub(crate) policy_choice: Option<Choice>,
    /// Calls of the cache device and of the backing store.
    pub(crate) devices: [DeviceCounts; 2],
    pub(crate) objects: Vec<ObjectFigures>,
    pub(crate) accounts_late: bool,
    pub(crate) writers: Vec<String>,
    pub(crate) conflicts: Vec<ConflictFigures>,
    pub(crate) directory_sync_errors: u64,
    pub(crate) mountpoint: Option<String>,
    pub(crate) hints: Option<HintFigures>,
    pub(crate) doubt: Option<DoubtFigures>,
}

impl Figures {
    /// The figures of this process's cache.
    pub(crate) fn new(state: State, stats: &CacheStats, front_end: FrontEndFigures) -> Self {
        let State { open_s, policy, mode, tiers_pages, room_pages, lost_pages, .. } = state;
        let State { policy_gauges, policy_choice, devices, objects, mountpoint, hints, cache_file, restarts, .. } =
            state;
        let (accounts_late, writers, conflicts) = (state.accounts_late, state.writers, state.conflicts);
        let [cache_calls, backing_calls] = devices.map(DeviceFigures::from);
        let mut requests = Requests::new(stats);
        requests.tier_hits.truncate(tiers_pages.len());
        // A gauge that is not finite has no value yet, and is left out.
        let gauges = policy_gauges.into_iter().filter(|(_, value)| value.is_finite());
        Figures {
            process: std::process::id(),
            open_s,
            policy,
            mode,
            failed: stats.failed.is_some(),
            failure: stats.failed.clone(),
            page_bytes: stats.page_bytes,
            tiers_pages,
            room_pages,
            dirty_pages: stats.dirty_pages,
            dirty_age: stats.dirty_age.map(AgeFigures::from),
            wear: stats.log.map(|(_, worn)| WearFigures::from(worn)),
            lost_pages,
            cache_file,
            restarts,
            requests,
            cache_device: CacheDevice::new(stats, cache_calls),
            backing: Backing::new(stats, state.directory_sync_errors, backing_calls),
            policy_gauges: gauges.map(|(name, value)| (name.to_owned(), value)).collect(),
            choice: policy_choice.map(ChoiceFigures::from),
            front_end,
            objects,
            accounts_late,
            writers,
            conflicts,
            mountpoint,
            hints,
            doubt: state.doubt,
        }
    }

    /// Error of the failed cache device, as the end of a message; empty if the error is not known.
    pub fn why_failed(&self) -> String {
        self.failure.as_ref().map_or_else(String::new, |why| format!(": {why}"))
    }

    /// A table for a terminal. With `before`, an earlier reading, hits and rates are those of the time between.
    pub fn table(&self, before: Option<&Figures>) -> String {
        let mut lines: Vec<(&str, String)> = vec![
            ("served by", format!("process {}, for {}", self.process, seconds(self.open_s))),
            ("policy", self.policy.clone()),
            ("mode", self.mode.clone()),
            ("tiers", self.tiers()),
        ];
        if self.failed {
            lines.push(("failed", format!("the cache device{}; requests go to the backing store", self.why_failed())));
        }
        lines.push(("dirty", format!("{} pages, {}", count(self.dirty_pages), self.bytes(self.dirty_pages))));
        lines.extend(self.dirty_age.as_ref().map(|age| ("dirty age", age.line())));
        lines.extend(self.wear.as_ref().map(|wear| ("wear", wear.line())));
        if let Some(change) = &self.cache_file {
            lines.push(("cache file", format!("{change}; it is drained at the end of the process")));
        }
        lines.extend(self.restarts.as_ref().map(|restarts| ("restarts", restarts.line())));
        if let Some(DoubtFigures { why, syncs_failed }) = &self.doubt {
            let said = format!("answered writes may be lost: {why}; {} syncs failed for it", count(*syncs_failed));
            lines.push(("doubt", said));
        }
        if !self.writers.is_empty() {
            lines.push(("writers", format!("without the cache, which loses data: {}", self.writers.join("; "))));
        }
        if !self.conflicts.is_empty() {
            let files: Vec<String> = self.conflicts.iter().map(ConflictFigures::line).collect();
            let what = "changed without the cache, which has dirty pages of them";
            let alone = self.mountpoint.as_ref().filter(|_| self.conflicts.len() == 1);
            let file = alone.map(|mountpoint| Path::new(mountpoint).join(&self.conflicts[0].path));
            let ending = ending(file.as_deref());
            lines.push(("conflicts", format!("{what}: {}; {ending} ends a conflict", files.join(", "))));
        }
        if self.accounts_late {
            lines.push((
                "files",
                "unknown: their counts did not arrive in time; the backing store may stall".to_owned(),
            ));
        }
        if self.lost_pages > 0 {
            lines.push(("lost", format!("{} pages", count(self.lost_pages))));
        }
        lines.extend(self.request_lines(before));
        lines.extend(self.gauge_line());
        let heard = before.and_then(|before| before.hints.as_ref());
        lines.extend(self.hints.as_ref().map(|hints| ("queries told", hints.line(heard))));
        let of_candidates = self.choice.as_ref().map(choice_lines).unwrap_or_default();
        lines.extend(of_candidates.iter().map(|(name, value)| (name.as_str(), value.clone())));
        let elapsed_us = (self.open_s - before.map_or(0.0, |before| before.open_s)) * 1e6;
        lines.push(("cache device", self.cache_device_line()));
        lines.extend(self.cache_device.calls.lines(before.map(|before| &before.cache_device.calls), elapsed_us));
        lines.push(("backing store", self.backing_line()));
        lines.extend(self.backing.calls.lines(before.map(|before| &before.backing.calls), elapsed_us));
        let front_end = &self.front_end;
        let calls = [
            ("reads", &front_end.read),
            ("writes", &front_end.write),
            ("flushes", &front_end.flush),
            ("discards", &front_end.discard),
        ];
        lines.extend(calls.iter().filter(|(_, calls)| calls.calls > 0).map(|(name, calls)| (*name, calls.line())));
        lines.iter().map(|(name, value)| format!("{name:<14} {value}\n")).collect()
    }

    /// A table of the accounts of objects; empty for a single object.
    pub fn objects_table(&self, before: Option<&Figures>) -> String {
        match self.objects.len() {
            0 | 1 => String::new(),
            _ => objects::table(&self.objects, before.map_or(&[], |before| &before.objects)),
        }
    }

    fn bytes(&self, pages: u64) -> String {
        size(pages as f64 * f64::from(self.page_bytes))
    }

    fn tiers(&self) -> String {
        let tiers: Vec<String> =
            self.tiers_pages.iter().map(|&pages| format!("{} pages ({})", count(pages), self.bytes(pages))).collect();
        format!("{} of {} B; room for {}", tiers.join(" over "), self.page_bytes, count(self.room_pages))
    }

    fn request_lines(&self, before: Option<&Figures>) -> Vec<(&'static str, String)> {
        let now = &self.requests;
        let since = |of: fn(&Requests) -> u64| of(now).saturating_sub(before.map_or(0, |before| of(&before.requests)));
        let (reads, read_hits) = (since(|r| r.reads), since(|r| r.read_hits));
        let (writes, write_hits) = (since(|r| r.writes), since(|r| r.write_hits));
        let ratio = |hits: u64, all: u64| percent(hits as f64 / all as f64, 2);
        let line = |all: u64, hits: u64| format!("{}, {} hits ({})", count(all), count(hits), ratio(hits, all));
        let in_tier = |tier: usize| {
            let of = |requests: &Requests| requests.tier_hits.get(tier).copied().unwrap_or(0);
            ratio(of(now).saturating_sub(before.map_or(0, |before| of(&before.requests))), reads + writes)
        };
        let mut found = ratio(read_hits + write_hits, reads + writes);
        if self.tiers_pages.len() > 1 {
            found += &format!(": {} in memory, {} on the cache device", in_tier(0), in_tier(1));
        }
        vec![
            ("page reads", line(reads, read_hits)),
            ("page writes", line(writes, write_hits)),
            ("hit ratio", found),
            (
                "movements",
                format!(
                    "{} fetched, {} admitted, {} bypassed, {} written back{}",
                    count(since(|r| r.fetches)),
                    count(since(|r| r.admissions)),
                    count(since(|r| r.bypasses + r.around)),
                    count(since(|r| r.write_backs)),
                    if now.placed > 0 { format!(", {} placed", count(since(|r| r.placed))) } else { String::new() },
                ),
            ),
        ]
    }

    fn gauge_line(&self) -> Option<(&'static str, String)> {
        let gauges: Vec<String> =
            self.policy_gauges.iter().map(|(name, &value)| format!("{name} {}", gauge(value))).collect();
        (!gauges.is_empty()).then(|| ("inside", gauges.join(", ")))
    }

    fn cache_device_line(&self) -> String {
        let device = &self.cache_device;
        format!(
            "{} writes of {} on average, {} pages of {} written by reclaim, {} syncs, {} pages read",
            count(device.writes),
            size(device.written_bytes as f64 / device.writes.max(1) as f64),
            count(device.copied_pages),
            count(device.written_pages),
            count(device.syncs),
            count(device.read_pages),
        )
    }

    fn backing_line(&self) -> String {
        let backing = &self.backing;
        let directories = match backing.directory_sync_errors {
            0 => String::new(),
            errors => format!(", {} syncs of directories failed", count(errors)),
        };
        format!(
            "{} pages in {} writes of {} on average, {} syncs, {} pages read{directories}",
            count(backing.written_pages),
            count(backing.writes),
            size(backing.written_pages as f64 * f64::from(self.page_bytes) / backing.writes.max(1) as f64),
            count(backing.syncs),
            count(backing.read_pages),
        )
    }
}

/// Lines for the choice: its state, each candidate, and the reason for the last switch.
fn choice_lines(choice: &ChoiceFigures) -> Vec<(String, String)> {
    let mut lines = vec![("choice".to_owned(), choice.state())];
    lines.extend(choice.candidates.iter().map(|candidate| (format!("  {}", candidate.name), candidate.figures())));
    lines.extend(choice.last_switch.iter().map(|why| ("  last".to_owned(), why.clone())));
    lines
}

impl CallFigures {
    fn line(&self) -> String {
        let time = |us: f64| NumberFormat::Seconds.short(us / 1e6);
        let errors = if self.errors > 0 { format!(", {} errors", count(self.errors)) } else { String::new() };
        let of = if self.bytes > 0 {
            format!(" of {} on average", size(self.bytes as f64 / self.calls as f64))
        } else {
            String::new()
        };
        let (p50, p99, max) = (time(self.p50_us), time(self.p99_us), time(self.max_us));
        format!("{}{of}{errors}; half within {p50}, 99% within {p99}, all within {max}", count(self.calls))
    }
}

impl DeviceFigures {
    /// A line for each kind of calls that occurred: their number, times and mean number under way.
    fn lines(&self, before: Option<&DeviceFigures>, elapsed_us: f64) -> Vec<(&'static str, String)> {
        let kinds = [
            ("  reads", &self.read, before.map(|before| &before.read)),
            ("  writes", &self.write, before.map(|before| &before.write)),
            ("  syncs", &self.sync, before.map(|before| &before.sync)),
        ];
        let calls = kinds.map(|(name, now, before)| (name, now.since(before)));
        let some = calls.iter().filter(|(_, calls)| calls.calls > 0);
        some.map(|(name, calls)| (*name, calls.line(elapsed_us))).collect()
    }
}

impl DeviceCalls {
    fn line(&self, elapsed_us: f64) -> String {
        let errors = if self.errors > 0 { format!(", {} errors", count(self.errors)) } else { String::new() };
        let time = |us: f64| seconds(us / 1e6);
        let (mean, p50, p99) = (time(self.mean_us()), time(self.quantile_us(0.5)), time(self.quantile_us(0.99)));
        let queue = self.busy_us as f64 / elapsed_us.max(1.0);
        format!(
            "{} calls{errors}; {mean} on average, half within {p50}, 99% within {p99}; {queue:.2} under way",
            count(self.calls)
        )
    }
}

/// A gauge of a policy, without decimals if whole.
pub fn gauge(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 { format!("{value}") } else { format!("{value:.3}") }
}

fn count(value: u64) -> String {
    grouped(value.into())
}

fn size(bytes: f64) -> String {
    NumberFormat::Bytes.short(bytes)
}

fn seconds(value: f64) -> String {
    NumberFormat::Seconds.short(value)
}
