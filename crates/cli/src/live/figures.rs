//! The figures of a running cache: what `stats` prints of one, and what it prints as JSON.

use super::objects::{self, ObjectFigures};
use super::observed::{CallFigures, DoorFigures};
use entresol_engine::cache::CacheStats;
use entresol_report::{NumberFormat, grouped, percent};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Counts since the cache was opened, and its state now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// The process that serves the cache.
    pub process: u32,
    /// How long it does, in seconds.
    pub open_s: f64,
    pub policy: String,
    pub mode: String,
    /// The cache device has failed: requests go to the backing store.
    pub failed: bool,
    pub page_bytes: u32,
    /// Capacity of each tier in pages; the last is the cache device.
    pub tiers_pages: Vec<u64>,
    /// Pages that the cache device has room for.
    pub room_pages: u64,
    pub dirty_pages: u64,
    /// Pages whose only copy could not be read.
    pub lost_pages: u64,
    pub requests: Requests,
    pub cache_device: CacheDevice,
    pub backing: Backing,
    /// Calls of the door.
    pub door: DoorFigures,
    /// The account of each file, or of the store where it is one.
    #[serde(default)]
    pub objects: Vec<ObjectFigures>,
}

/// Page requests and what the policy did with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    pub reads: u64,
    pub read_hits: u64,
    pub writes: u64,
    pub write_hits: u64,
    pub fetches: u64,
    pub admissions: u64,
    pub admissions_failed: u64,
    pub bypasses: u64,
    pub around: u64,
    pub write_backs: u64,
    pub write_back_ios: u64,
    pub directory_full: u64,
}

/// What was done on the cache device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheDevice {
    pub writes: u64,
    pub written_bytes: u64,
    pub written_pages: u64,
    pub syncs: u64,
    pub read_pages: u64,
    pub copied_pages: u64,
    pub segments_reclaimed: u64,
    pub clean_copies_bad: u64,
}

/// What was done on the backing store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backing {
    pub writes: u64,
    pub written_pages: u64,
    pub syncs: u64,
    pub read_pages: u64,
    pub rescued_pages: u64,
}

/// What a cache is, beside its counts.
pub struct State {
    pub open_s: f64,
    pub policy: String,
    pub mode: String,
    pub page_bytes: u32,
    pub tiers_pages: Vec<u64>,
    pub room_pages: u64,
    pub lost_pages: u64,
    pub objects: Vec<ObjectFigures>,
}

impl Figures {
    /// The figures of this process's cache.
    pub fn new(state: State, stats: &CacheStats, door: DoorFigures) -> Self {
        let State { open_s, policy, mode, page_bytes, tiers_pages, room_pages, lost_pages, objects } = state;
        let (counts, keeper, log) = (stats.counts, stats.keeper, stats.log);
        Figures {
            process: std::process::id(),
            open_s,
            policy,
            mode,
            failed: stats.failed,
            page_bytes,
            tiers_pages,
            room_pages,
            dirty_pages: stats.dirty_pages,
            lost_pages,
            requests: Requests {
                reads: counts.reads,
                read_hits: counts.read_hits,
                writes: counts.writes,
                write_hits: counts.write_hits,
                fetches: counts.fetches,
                admissions: counts.admissions,
                admissions_failed: counts.admissions_failed,
                bypasses: counts.bypasses,
                around: counts.around,
                write_backs: counts.write_backs,
                write_back_ios: counts.write_back_ios,
                directory_full: counts.directory_full,
            },
            cache_device: CacheDevice {
                writes: log.batches,
                written_bytes: log.blocks * u64::from(page_bytes),
                written_pages: log.pages,
                syncs: log.syncs,
                read_pages: log.reads,
                copied_pages: keeper.copied,
                segments_reclaimed: keeper.segments_reclaimed,
                clean_copies_bad: keeper.clean_copies_bad,
            },
            backing: Backing {
                writes: keeper.below_ios,
                written_pages: keeper.below_pages,
                syncs: keeper.below_syncs,
                read_pages: keeper.below_reads,
                rescued_pages: keeper.rescued,
            },
            door,
            objects,
        }
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
            lines.push(("failed", "the cache device; requests go to the backing store".to_owned()));
        }
        lines.push(("dirty", format!("{} pages, {}", count(self.dirty_pages), self.bytes(self.dirty_pages))));
        if self.lost_pages > 0 {
            lines.push(("lost", format!("{} pages", count(self.lost_pages))));
        }
        lines.extend(self.request_lines(before));
        lines.push(("cache device", self.cache_device_line()));
        lines.push(("backing store", self.backing_line()));
        let door = &self.door;
        let calls =
            [("reads", &door.read), ("writes", &door.write), ("flushes", &door.flush), ("discards", &door.discard)];
        lines.extend(calls.iter().filter(|(_, calls)| calls.calls > 0).map(|(name, calls)| (*name, calls.line())));
        lines.iter().map(|(name, value)| format!("{name:<14} {value}\n")).collect()
    }

    /// The accounts of its objects, where there is more than one. What `names` knows a path by stands in its place.
    pub fn objects_table(&self, before: Option<&Figures>, names: &HashMap<String, String>) -> String {
        match self.objects.len() {
            0 | 1 => String::new(),
            _ => objects::table(&self.objects, before.map_or(&[], |before| &before.objects), names),
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
        vec![
            ("page reads", line(reads, read_hits)),
            ("page writes", line(writes, write_hits)),
            ("hit ratio", ratio(read_hits + write_hits, reads + writes)),
            (
                "movements",
                format!(
                    "{} fetched, {} admitted, {} bypassed, {} written back in {} I/Os",
                    count(since(|r| r.fetches)),
                    count(since(|r| r.admissions)),
                    count(since(|r| r.bypasses + r.around)),
                    count(since(|r| r.write_backs)),
                    count(since(|r| r.write_back_ios)),
                ),
            ),
        ]
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
        format!(
            "{} writes of {} on average, {} syncs, {} pages read",
            count(backing.writes),
            self.bytes(backing.written_pages / backing.writes.max(1)),
            count(backing.syncs),
            count(backing.read_pages),
        )
    }
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

fn count(value: u64) -> String {
    grouped(value.into())
}

fn size(bytes: f64) -> String {
    NumberFormat::Bytes.short(bytes)
}

fn seconds(value: f64) -> String {
    NumberFormat::Seconds.short(value)
}
