//! The figures in Prometheus's text format, version 0.0.4.

use crate::age::AgeFigures;
use crate::choice::CandidateFigures;
use crate::figures::{DeviceCalls, DeviceFigures, Figures, HintFigures};
use crate::objects::ObjectFigures;
use crate::observed::CallFigures;
use entresol_disk::TIME_BUCKETS;
use std::fmt::Write as _;

/// A sample: labels besides the cache's, and the value.
type Sample = (Vec<(&'static str, String)>, f64);

/// A metric family: all samples of one name.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: fn(&Figures) -> Vec<Sample>,
}

fn one(value: impl Into<f64>) -> Vec<Sample> {
    vec![(Vec::new(), value.into())]
}

fn count(value: u64) -> Vec<Sample> {
    one(value as f64)
}

fn label(name: &'static str, value: impl Into<String>, of: u64) -> Sample {
    (vec![(name, value.into())], of as f64)
}

/// Names of the tiers, the fastest first.
fn tier(figures: &Figures, at: usize) -> &'static str {
    if at + 1 == figures.tiers_pages.len() { "cache" } else { "memory" }
}

fn by_tier(figures: &Figures, of: &[u64]) -> Vec<Sample> {
    of.iter().enumerate().map(|(at, &value)| label("tier", tier(figures, at), value)).collect()
}

fn by_op(read: u64, write: u64) -> Vec<Sample> {
    vec![label("op", "read", read), label("op", "write", write)]
}

/// A value for each kind of calls of each device.
fn by_call(figures: &Figures, of: fn(&DeviceCalls) -> u64) -> Vec<Sample> {
    let of = |(device, op, calls): (&str, &str, &DeviceCalls)| {
        (vec![("device", device.to_owned()), ("op", op.to_owned())], of(calls) as f64)
    };
    calls(figures).into_iter().map(of).collect()
}

fn calls(figures: &Figures) -> Vec<(&'static str, &'static str, &DeviceCalls)> {
    fn of<'a>(device: &'static str, calls: &'a DeviceFigures) -> [(&'static str, &'static str, &'a DeviceCalls); 3] {
        let DeviceFigures { read, write, sync } = calls;
        [(device, "read", read), (device, "write", write), (device, "sync", sync)]
    }
    let devices = [("cache", &figures.cache_device.calls), ("backing", &figures.backing.calls)];
    devices.into_iter().flat_map(|(device, calls)| of(device, calls)).collect()
}

fn by_front_end(figures: &Figures, of: impl Fn(&CallFigures) -> f64) -> Vec<Sample> {
    let front_end = &figures.front_end;
    [
        ("read", &front_end.read),
        ("write", &front_end.write),
        ("flush", &front_end.flush),
        ("discard", &front_end.discard),
    ]
    .map(|(op, calls)| (vec![("op", op.to_owned())], of(calls)))
    .into()
}

/// A value for each object, and one for each of its `kinds` if it has several.
fn by_object<const KINDS: usize>(
    figures: &Figures,
    label: &'static str,
    of: impl Fn(&ObjectFigures) -> [(&'static str, u64); KINDS],
) -> Vec<Sample> {
    let samples = figures.objects.iter().flat_map(|object| {
        let named = [("object", object.label().to_owned()), ("kind", object.kind.clone().unwrap_or("file".to_owned()))];
        of(object).map(|(kind, value)| {
            let kind = (!label.is_empty()).then(|| (label, kind.to_owned()));
            (named.iter().cloned().chain(kind).collect(), value as f64)
        })
    });
    samples.collect()
}

/// Samples of the counts of query messages, one for each kind; none if the cache receives no messages.
fn by_hint<const KINDS: usize>(
    figures: &Figures,
    name: &'static str,
    of: impl Fn(&HintFigures) -> [(&'static str, u64); KINDS],
) -> Vec<Sample> {
    let hints = figures.hints.as_ref().map(of);
    hints.into_iter().flatten().map(|(kind, value)| label(name, kind, value)).collect()
}

/// A value for each candidate of a policy that lets one of several decide, if it is known. `of` also gets the name of
/// the active one.
fn by_candidate(figures: &Figures, of: impl Fn(&CandidateFigures, &str) -> Option<f64>) -> Vec<Sample> {
    let Some(choice) = &figures.choice else { return Vec::new() };
    let sample = |candidate: &CandidateFigures| {
        Some((vec![("candidate", candidate.name.clone())], of(candidate, &choice.active)?))
    };
    choice.candidates.iter().filter_map(sample).collect()
}

/// A sample of the bound on the age of dirty pages, if there is a bound.
fn of_age(figures: &Figures, value: fn(&AgeFigures) -> f64) -> Vec<Sample> {
    figures.dirty_age.as_ref().map_or_else(Vec::new, |age| one(value(age)))
}

/// Every family except the device times, which are a histogram.
const FAMILIES: &[Family] = &[
    Family {
        name: "entresol_info",
        kind: "gauge",
        help: "Policy and mode, as labels.",
        samples: |f| vec![(vec![("policy", f.policy.clone()), ("mode", f.mode.clone())], 1.0)],
    },
    Family {
        name: "entresol_open_seconds",
        kind: "gauge",
        help: "Time for which the process has served the cache.",
        samples: |f| one(f.open_s),
    },
    Family {
        name: "entresol_failed",
        kind: "gauge",
        help: "1 when the cache device has failed and requests go to the backing store.",
        samples: |f| one(u8::from(f.failed)),
    },
    Family { name: "entresol_page_bytes", kind: "gauge", help: "Bytes of a page.", samples: |f| one(f.page_bytes) },
    Family {
        name: "entresol_tier_capacity_pages",
        kind: "gauge",
        help: "Pages that the policy may keep in a tier.",
        samples: |f| by_tier(f, &f.tiers_pages),
    },
    Family {
        name: "entresol_room_pages",
        kind: "gauge",
        help: "Pages that the cache device has room for.",
        samples: |f| count(f.room_pages),
    },
    Family {
        name: "entresol_dirty_pages",
        kind: "gauge",
        help: "Pages that are newer in the cache than below.",
        samples: |f| count(f.dirty_pages),
    },
    Family {
        name: "entresol_dirty_age_bound_seconds",
        kind: "gauge",
        help: "Time for which a page may differ from the backing store.",
        samples: |f| of_age(f, |age| age.bound_s),
    },
    Family {
        name: "entresol_dirty_age_oldest_seconds",
        kind: "gauge",
        help: "Age of the oldest dirty page, at most.",
        samples: |f| of_age(f, |age| age.oldest_s),
    },
    Family {
        name: "entresol_dirty_age_late_max_seconds",
        kind: "gauge",
        help: "Longest time by which a page exceeded the bound when it was written below.",
        samples: |f| of_age(f, |age| age.late_by_s),
    },
    Family {
        name: "entresol_dirty_age_late_pages_total",
        kind: "counter",
        help: "Pages written below later than the bound.",
        samples: |f| of_age(f, |age| age.late_pages as f64),
    },
    Family {
        name: "entresol_dirty_age_waits_total",
        kind: "counter",
        help: "Writes that waited because the bound could not be kept.",
        samples: |f| of_age(f, |age| age.waits as f64),
    },
    Family {
        name: "entresol_dirty_age_written_pages_total",
        kind: "counter",
        help: "Pages that were written below because of their age.",
        samples: |f| of_age(f, |age| age.written_pages as f64),
    },
    Family {
        name: "entresol_cache_file_lost",
        kind: "gauge",
        help: "1 if the cache file was unlinked, replaced or truncated while in use.",
        samples: |f| count(f.cache_file.is_some().into()),
    },
    Family {
        name: "entresol_conflict_files",
        kind: "gauge",
        help: "Files that were changed without the cache while it had dirty pages of them.",
        samples: |f| count(f.conflicts.len() as u64),
    },
    Family {
        name: "entresol_lost_pages",
        kind: "gauge",
        help: "Pages whose only copy could not be read.",
        samples: |f| count(f.lost_pages),
    },
    Family {
        name: "entresol_requests_total",
        kind: "counter",
        help: "Page requests.",
        samples: |f| by_op(f.requests.reads, f.requests.writes),
    },
    Family {
        name: "entresol_hits_total",
        kind: "counter",
        help: "Page requests whose page was in some tier.",
        samples: |f| by_op(f.requests.read_hits, f.requests.write_hits),
    },
    Family {
        name: "entresol_tier_hits_total",
        kind: "counter",
        help: "Page requests whose page was in this tier.",
        samples: |f| by_tier(f, &f.requests.tier_hits),
    },
    Family {
        name: "entresol_fetches_total",
        kind: "counter",
        help: "Pages that misses asked of the backing store.",
        samples: |f| count(f.requests.fetches),
    },
    Family {
        name: "entresol_admissions_total",
        kind: "counter",
        help: "Misses whose page was admitted.",
        samples: |f| count(f.requests.admissions),
    },
    Family {
        name: "entresol_admissions_failed_total",
        kind: "counter",
        help: "Pages that should have been kept but could not be.",
        samples: |f| count(f.requests.admissions_failed),
    },
    Family {
        name: "entresol_placed_pages_total",
        kind: "counter",
        help: "Pages that were fetched without a request, as the policy holds their objects whole.",
        samples: |f| count(f.requests.placed),
    },
    Family {
        name: "entresol_bypasses_total",
        kind: "counter",
        help: "Requests that bypassed the cache, by the policy's decision or as part of a long sequential stream.",
        samples: |f| count(f.requests.bypasses),
    },
    Family {
        name: "entresol_passed_total",
        kind: "counter",
        help: "Requests of long sequential streams, which the policy did not see.",
        samples: |f| count(f.requests.passed),
    },
    Family {
        name: "entresol_around_total",
        kind: "counter",
        help: "Writes that the mode sent past the policy.",
        samples: |f| count(f.requests.around),
    },
    Family {
        name: "entresol_directory_full_total",
        kind: "counter",
        help: "Requests that the policy could not be told of.",
        samples: |f| count(f.requests.directory_full),
    },
    Family {
        name: "entresol_write_backs_total",
        kind: "counter",
        help: "Pages that the policy wrote back.",
        samples: |f| count(f.requests.write_backs),
    },
    Family {
        name: "entresol_write_back_ios_total",
        kind: "counter",
        help: "I/Os that the policy planned for its write-backs.",
        samples: |f| count(f.requests.write_back_ios),
    },
    Family {
        name: "entresol_cache_written_bytes_total",
        kind: "counter",
        help: "Bytes written to the cache device.",
        samples: |f| count(f.cache_device.written_bytes),
    },
    Family {
        name: "entresol_cache_written_pages_total",
        kind: "counter",
        help: "Pages written to the cache device.",
        samples: |f| count(f.cache_device.written_pages),
    },
    Family {
        name: "entresol_cache_copied_pages_total",
        kind: "counter",
        help: "Pages that reclaim wrote to the cache device again.",
        samples: |f| count(f.cache_device.copied_pages),
    },
    Family {
        name: "entresol_cache_segments_reclaimed_total",
        kind: "counter",
        help: "Segments of the cache device that were reclaimed.",
        samples: |f| count(f.cache_device.segments_reclaimed),
    },
    Family {
        name: "entresol_cache_clean_copies_bad_total",
        kind: "counter",
        help: "Clean pages of the cache device that were damaged and read from below instead.",
        samples: |f| count(f.cache_device.clean_copies_bad),
    },
    Family {
        name: "entresol_backing_written_pages_total",
        kind: "counter",
        help: "Pages written to the backing store.",
        samples: |f| count(f.backing.written_pages),
    },
    Family {
        name: "entresol_backing_read_pages_total",
        kind: "counter",
        help: "Pages read from the backing store.",
        samples: |f| count(f.backing.read_pages),
    },
    Family {
        name: "entresol_backing_directory_sync_errors_total",
        kind: "counter",
        help: "Syncs of directories that failed after a name was removed in them.",
        samples: |f| count(f.backing.directory_sync_errors),
    },
    Family {
        name: "entresol_backing_rescued_pages_total",
        kind: "counter",
        help: "Pages that reclaim had to write to the backing store.",
        samples: |f| count(f.backing.evicted_dirty_pages),
    },
    Family {
        name: "entresol_device_errors_total",
        kind: "counter",
        help: "Calls of a device that returned an error.",
        samples: |f| by_call(f, |calls| calls.errors),
    },
    Family {
        name: "entresol_device_bytes_total",
        kind: "counter",
        help: "Bytes that a device was asked to move.",
        samples: |f| by_call(f, |calls| calls.bytes),
    },
    Family {
        name: "entresol_device_calls_under_way",
        kind: "gauge",
        help: "Calls of a device that have not returned yet.",
        samples: |f| by_call(f, |calls| calls.under_way),
    },
    Family {
        name: "entresol_door_calls_total",
        kind: "counter",
        help: "Calls of the front-end.",
        samples: |f| by_front_end(f, |calls| calls.calls as f64),
    },
    Family {
        name: "entresol_door_errors_total",
        kind: "counter",
        help: "Calls of the front-end that returned an error.",
        samples: |f| by_front_end(f, |calls| calls.errors as f64),
    },
    Family {
        name: "entresol_door_bytes_total",
        kind: "counter",
        help: "Bytes that the front-end asked for.",
        samples: |f| by_front_end(f, |calls| calls.bytes as f64),
    },
    Family {
        name: "entresol_door_p50_seconds",
        kind: "gauge",
        help: "Time that half of the front-end's calls did not exceed, since the start.",
        samples: |f| by_front_end(f, |calls| calls.p50_us / 1e6),
    },
    Family {
        name: "entresol_door_p99_seconds",
        kind: "gauge",
        help: "Time that 99 of 100 of the front-end's calls did not exceed, since the start.",
        samples: |f| by_front_end(f, |calls| calls.p99_us / 1e6),
    },
    Family {
        name: "entresol_policy_state",
        kind: "gauge",
        help: "Figures of the policy about itself.",
        samples: |f| {
            let gauges = f.policy_gauges.iter();
            gauges.map(|(name, &value)| (vec![("name", name.clone())], value)).collect()
        },
    },
    Family {
        name: "entresol_object_requests_total",
        kind: "counter",
        help: "Page requests of a table or file.",
        samples: |f| by_object(f, "op", |o| [("read", o.reads), ("write", o.writes)]),
    },
    Family {
        name: "entresol_object_hits_total",
        kind: "counter",
        help: "Page requests of a table or file whose page was in some tier.",
        samples: |f| by_object(f, "op", |o| [("read", o.read_hits()), ("write", o.write_hits())]),
    },
    Family {
        name: "entresol_object_resident_pages",
        kind: "gauge",
        help: "Pages of it that the policy holds.",
        samples: |f| by_object(f, "tier", |o| [("memory", o.resident_memory), ("cache", o.resident_device)]),
    },
    Family {
        name: "entresol_object_dirty_pages",
        kind: "gauge",
        help: "Pages of it that are newer in the cache than below.",
        samples: |f| by_object(f, "", |o| [("", o.dirty)]),
    },
    Family {
        name: "entresol_object_size_bytes",
        kind: "gauge",
        help: "Its size.",
        samples: |f| by_object(f, "", |o| [("", o.size_bytes)]),
    },
    Family {
        name: "entresol_object_verdict",
        kind: "gauge",
        help: "Verdict of the policy on its use, as a label.",
        samples: |f| {
            let found = |o: &ObjectFigures| {
                let verdict = o.verdict.clone()?;
                Some((vec![("object", o.label().to_owned()), ("verdict", verdict)], 1.0))
            };
            f.objects.iter().filter_map(found).collect()
        },
    },
    Family {
        name: "entresol_hint_messages_total",
        kind: "counter",
        help: "Messages about queries, by outcome.",
        samples: |f| {
            by_hint(f, "what", |h| {
                [
                    ("begin", h.begins),
                    ("end", h.ends),
                    ("end of none", h.ends_unknown),
                    ("malformed", h.malformed),
                    ("elsewhere", h.elsewhere),
                ]
            })
        },
    },
    Family {
        name: "entresol_hint_files_total",
        kind: "counter",
        help: "Files that queries were said to use, by whether the cache knows them.",
        samples: |f| by_hint(f, "known", |h| [("yes", h.files_known), ("no", h.files_unknown)]),
    },
    Family {
        name: "entresol_hint_queries_running",
        kind: "gauge",
        help: "Queries that were said to begin and not to end.",
        samples: |f| f.hints.as_ref().map_or(Vec::new(), |h| count(h.running)),
    },
    Family {
        name: "entresol_policy_switches_total",
        kind: "counter",
        help: "Switches of a policy that lets one of several candidates decide.",
        samples: |f| f.choice.iter().flat_map(|choice| count(choice.switches)).collect(),
    },
    Family {
        name: "entresol_candidate_active",
        kind: "gauge",
        help: "1 for the candidate that decides.",
        samples: |f| by_candidate(f, |candidate, active| Some(f64::from(u8::from(candidate.name == active)))),
    },
    Family {
        name: "entresol_candidate_hit_ratio",
        kind: "gauge",
        help: "Share of the requests that a candidate is predicted to find.",
        samples: |f| by_candidate(f, |candidate, _| candidate.hit_ratio),
    },
    Family {
        name: "entresol_candidate_cost",
        kind: "gauge",
        help: "Predicted cost of a request under a candidate, in reads from below unless the weights are others.",
        samples: |f| by_candidate(f, |candidate, _| candidate.cost),
    },
];

const TIMES: &str = "entresol_device_seconds";
const TIMES_HELP: &str = "Times of a device's calls; I/Os handed over together are one call.";
const UP: &str = "1 when a process serves the cache.";

/// All families, as a page of the documentation.
pub fn markdown() -> String {
    let mut out = "# Metrics\n\n\
         The metrics that `entresol metrics` serves to Prometheus, written by `entresol metrics --markdown`. Each has the label `cache`, and \
         those by device, operation, object and the like have labels for these. Counters end in `_total`.\n\n\
         | name | kind | what it is |\n|:--|:--|:--|\n"
        .to_owned();
    let mut row = |name: &str, kind: &str, help: &str| {
        let _ = writeln!(out, "| `{name}` | {kind} | {} |", help.replace('|', "\\|"));
    };
    row("entresol_up", "gauge", UP);
    FAMILIES.iter().for_each(|family| row(family.name, family.kind, family.help));
    row(TIMES, "histogram", TIMES_HELP);
    out
}

/// All figures of these caches; a cache without a serving process has only `entresol_up`.
pub fn exposition(caches: &[(String, Option<Figures>)]) -> String {
    let mut out = String::new();
    head(&mut out, "entresol_up", "gauge", UP);
    for (cache, figures) in caches {
        sample(&mut out, "entresol_up", cache, &[], u8::from(figures.is_some()).into());
    }
    let served = || caches.iter().filter_map(|(cache, figures)| Some((cache, figures.as_ref()?)));
    for family in FAMILIES {
        head(&mut out, family.name, family.kind, family.help);
        for (cache, figures) in served() {
            for (labels, value) in (family.samples)(figures) {
                sample(&mut out, family.name, cache, &labels, value);
            }
        }
    }
    head(&mut out, TIMES, "histogram", TIMES_HELP);
    for (cache, figures) in served() {
        for (device, op, calls) in calls(figures) {
            times(&mut out, cache, device, op, calls);
        }
    }
    out
}

/// A histogram. All its buckets are present from the start, as rates need them.
fn times(out: &mut String, cache: &str, device: &str, op: &str, calls: &DeviceCalls) {
    let labels = |more: Option<String>| {
        let mut labels = vec![("device", device.to_owned()), ("op", op.to_owned())];
        labels.extend(more.map(|end| ("le", end)));
        labels
    };
    let mut below = 0;
    for at in 0..TIME_BUCKETS - 1 {
        below += calls.took.get(at).unwrap_or(&0);
        let end = format!("{}", (1u64 << at) as f64 / 1e6);
        sample(out, "entresol_device_seconds_bucket", cache, &labels(Some(end)), below as f64);
    }
    // The sum of the buckets, because the count of calls was read at a slightly different moment.
    below = calls.took.iter().sum();
    sample(out, "entresol_device_seconds_bucket", cache, &labels(Some("+Inf".to_owned())), below as f64);
    sample(out, "entresol_device_seconds_sum", cache, &labels(None), calls.busy_us as f64 / 1e6);
    sample(out, "entresol_device_seconds_count", cache, &labels(None), below as f64);
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn sample(out: &mut String, name: &str, cache: &str, labels: &[(&'static str, String)], value: f64) {
    let _ = write!(out, "{name}{{cache=\"{}\"", escaped(cache));
    for (label, text) in labels {
        let _ = write!(out, ",{label}=\"{}\"", escaped(text));
    }
    // Rust prints counts in full, which are exact up to 2^53.
    let _ = writeln!(out, "}} {value}");
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    pub fn figures() -> Figures {
        let calls = |calls: u64, took: &[u64]| serde_json::json!({ "calls": calls, "errors": 1, "bytes": 8192, "busy_us": 1500, "under_way": 2, "took": took });
        let device = serde_json::json!({ "read": calls(7, &[0, 3, 4]), "write": calls(0, &[]), "sync": calls(1, &[0, 0, 0, 0, 1]) });
        let front_end =
            serde_json::json!({ "calls": 5, "errors": 0, "bytes": 77, "p50_us": 1.5, "p99_us": 20.0, "max_us": 30.0 });
        let value = serde_json::json!({
            "process": 1, "open_s": 2.5, "policy": "face:group=\"4\"", "mode": "write-back", "failed": true, "page_bytes": 4096,
            "tiers_pages": [10, 20], "room_pages": 30, "dirty_pages": 4, "lost_pages": 5,
            "dirty_age": {
                "bound_s": 60.0, "oldest_s": 61.5, "written_pages": 1, "late_pages": 2, "late_by_s": 3.5, "waits": 4, "pages_per_s": 5
            },
            "requests": {
                "reads": u64::pow(2, 53), "read_hits": 1, "writes": 2, "write_hits": 3, "tier_hits": [4, 5], "fetches": 6,
                "admissions": 7, "admissions_failed": 8, "bypasses": 9, "around": 10, "write_backs": 11,
                "write_back_ios": 12, "directory_full": 13
            },
            "cache_device": {
                "writes": 1, "written_bytes": 2, "written_pages": 3, "syncs": 4, "read_pages": 5, "copied_pages": 6,
                "segments_reclaimed": 7, "clean_copies_bad": 8, "calls": device
            },
            "backing": { "writes": 1, "written_pages": 2, "syncs": 3, "read_pages": 4, "rescued_pages": 5, "directory_sync_errors": 6, "calls": device },
            "policy_gauges": { "weight lru": 0.25 },
            "choice": {
                "candidates": [{ "name": "lru", "hit_ratio": 0.5, "cost": 0.75 }, { "name": "arc", "hit_ratio": null, "cost": null }],
                "active": "arc", "sampled_requests": 12, "switches": 3, "last_switch": null
            },
            "door": { "read": front_end, "write": front_end, "flush": front_end, "discard": front_end }
        });
        serde_json::from_value(value).expect("figures")
    }

    fn two() -> String {
        exposition(&[("a\\b\n\"c\"".to_owned(), Some(figures())), ("gone".to_owned(), None)])
    }

    /// Kinds of the families by name, from the page itself.
    fn families(page: &str) -> BTreeMap<&str, &str> {
        let kinds = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        kinds.collect()
    }

    /// The family of a sample's name.
    fn family<'a>(name: &'a str, families: &BTreeMap<&str, &str>) -> &'a str {
        let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|end| name.strip_suffix(end));
        parts.into_iter().find(|name| families.get(name) == Some(&"histogram")).unwrap_or(name)
    }

    #[test]
    fn the_page_is_in_the_text_format_and_follows_its_conventions() {
        let page = two();
        let families = families(&page);
        assert_eq!(families.len(), page.matches("# TYPE ").count(), "no family twice");
        assert_eq!(families.len(), page.matches("# HELP ").count());
        let mut current = "";
        let mut seen = BTreeSet::new();
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# ") {
                current = rest.split(' ').nth(1).expect("a name");
                assert!(current.starts_with("entresol_"));
                assert_eq!(families[current] == "counter", current.ends_with("_total"), "{current}");
                continue;
            }
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let (name, labels) = sample.split_once('{').expect("labels");
            assert_eq!(family(name, &families), current, "samples of a family stand together");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'));
            assert!(labels.starts_with("cache=\"") && labels.ends_with("\"}"), "{line}");
            assert!(seen.insert(sample), "{sample} twice");
        }
        for sample in [
            "entresol_up{cache=\"a\\\\b\\n\\\"c\\\"\"} 1",
            "entresol_backing_directory_sync_errors_total{cache=\"a\\\\b\\n\\\"c\\\"\"} 6",
            "entresol_policy_switches_total{cache=\"a\\\\b\\n\\\"c\\\"\"} 3",
            "entresol_candidate_active{cache=\"a\\\\b\\n\\\"c\\\"\",candidate=\"arc\"} 1",
            "entresol_candidate_cost{cache=\"a\\\\b\\n\\\"c\\\"\",candidate=\"lru\"} 0.75",
            "entresol_up{cache=\"gone\"} 0",
            "entresol_requests_total{cache=\"a\\\\b\\n\\\"c\\\"\",op=\"read\"} 9007199254740992",
            "entresol_info{cache=\"a\\\\b\\n\\\"c\\\"\",policy=\"face:group=\\\"4\\\"\",mode=\"write-back\"} 1",
            "entresol_tier_hits_total{cache=\"a\\\\b\\n\\\"c\\\"\",tier=\"memory\"} 4",
            "entresol_policy_state{cache=\"a\\\\b\\n\\\"c\\\"\",name=\"weight lru\"} 0.25",
        ] {
            assert!(page.lines().any(|line| line == sample), "{sample} is not in:\n{page}");
        }
        assert_eq!(page.matches("cache=\"gone\"").count(), 1);
    }

    #[test]
    fn a_histogram_is_cumulative_and_all_its_buckets_are_there() {
        let page = exposition(&[("c".to_owned(), Some(figures()))]);
        let of = |op: &str| -> Vec<(String, f64)> {
            let start = format!("entresol_device_seconds_bucket{{cache=\"c\",device=\"cache\",op=\"{op}\",le=\"");
            let samples = page.lines().filter_map(|line| line.strip_prefix(&start)?.split_once("\"} "));
            samples.map(|(end, count)| (end.to_owned(), count.parse().expect("a count"))).collect()
        };
        let read = of("read");
        assert_eq!(read.len(), TIME_BUCKETS);
        assert_eq!(
            read[..4],
            [0.0, 3.0, 7.0, 7.0]
                .map(|n| n)
                .iter()
                .zip(["0.000001", "0.000002", "0.000004", "0.000008"])
                .map(|(&n, end)| (end.to_owned(), n))
                .collect::<Vec<_>>()
        );
        assert!(read.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        assert_eq!(read.last().map(|last| (last.0.as_str(), last.1)), Some(("+Inf", 7.0)));
        assert_eq!(of("write").len(), TIME_BUCKETS, "from the start on");
        for line in [
            "_sum{cache=\"c\",device=\"cache\",op=\"read\"} 0.0015",
            "_count{cache=\"c\",device=\"cache\",op=\"read\"} 7",
        ] {
            assert!(page.contains(&format!("entresol_device_seconds{line}\n")), "{line}");
        }
    }

    #[test]
    fn every_metric_of_the_dashboard_is_there() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/grafana/entresol.json");
        let text = std::fs::read_to_string(&path).expect("the dashboard");
        let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let page = two();
        let families = families(&page);
        let mut asked = BTreeSet::new();
        let panels = dashboard["panels"].as_array().expect("panels");
        for target in panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets")) {
            let expression = target["expr"].as_str().expect("an expression");
            let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            asked.extend(words.filter(|word| word.starts_with("entresol_")));
        }
        assert!(asked.len() > 20, "{asked:?}");
        for name in &asked {
            let family = family(name, &families);
            assert!(families.contains_key(family), "{name} is not exported");
            let ends = name.strip_prefix(family).expect("its own");
            assert!(ends.is_empty() != (families[family] == "histogram"), "{name}");
        }
    }
}
