//! The figures in Prometheus's text format, version 0.0.4.

use crate::age::AgeFigures;
use crate::choice::CandidateFigures;
use crate::figures::{
    COUNTERS, Counter, DeviceCalls, DeviceFigures, Figures, HintFigures, RestartFigures, WearFigures,
};
use crate::objects::ObjectFigures;
use crate::observed::CallFigures;
use entresol_disk::TIME_BUCKETS;
use std::fmt::Write as _;

/// A sample: labels besides the cache's, and the value.
type Sample = (Vec<(&'static str, String)>, f64);

/// The way from the figures to the samples of a family.
type Samples = Box<dyn Fn(&Figures) -> Vec<Sample>>;

/// A metric family: all samples of one name.
struct Family {
    name: &'static str,
    help: &'static str,
    samples: Samples,
}

impl Family {
    fn kind(&self) -> &'static str {
        if self.name.ends_with("_total") { "counter" } else { "gauge" }
    }

    /// The family of counters of one metric.
    fn of(counters: Vec<&'static Counter>) -> Self {
        let Counter { metric: name, help, .. } = *counters[0];
        let samples = move |figures: &Figures| counters.iter().flat_map(|counter| counted(figures, counter)).collect();
        Family { name, help, samples: Box::new(samples) }
    }
}

/// The samples of a counter.
fn counted(figures: &Figures, counter: &Counter) -> Vec<Sample> {
    let values = (counter.of)(figures);
    match counter.label {
        None => values.iter().flat_map(|&value| count(value)).collect(),
        Some((_, "")) => by_tier(figures, values),
        Some((name, of)) => values.iter().map(|&value| label(name, of, value)).collect(),
    }
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

/// A sample of the wear of a cache of the layout segments.
fn of_wear(figures: &Figures, value: fn(&WearFigures) -> Option<u64>) -> Vec<Sample> {
    figures.wear.as_ref().and_then(value).map_or_else(Vec::new, count)
}

/// Makes a list of families, each of its name, its help and its samples.
macro_rules! families {
    ($($name:literal, $help:literal, $samples:expr;)*) => {
        vec![$({
            let of: fn(&Figures) -> Vec<Sample> = $samples;
            Family { name: $name, help: $help, samples: Box::new(of) }
        }),*]
    };
}

/// Families of the state, which stand before the counters.
fn state() -> Vec<Family> {
    families! {
        "entresol_info", "Policy and mode, as labels.",
            |f| vec![(vec![("policy", f.policy.clone()), ("mode", f.mode.clone())], 1.0)];
        "entresol_open_seconds", "Time for which the process has served the cache.", |f| one(f.open_s);
        "entresol_failed", "1 when the cache device has failed and requests go to the backing store.",
            |f| one(u8::from(f.failed));
        "entresol_page_bytes", "Bytes of a page.", |f| one(f.page_bytes);
        "entresol_tier_capacity_pages", "Pages that the policy may keep in a tier.", |f| by_tier(f, &f.tiers_pages);
        "entresol_room_pages", "Pages that the cache device has room for.", |f| count(f.room_pages);
        "entresol_dirty_pages", "Pages that are newer in the cache than below.", |f| count(f.dirty_pages);
        "entresol_dirty_age_bound_seconds", "Time for which a page may differ from the backing store.",
            |f| of_age(f, |age| age.bound_s);
        "entresol_dirty_age_oldest_seconds", "Age of the oldest dirty page, at most.",
            |f| of_age(f, |age| age.oldest_s);
        "entresol_dirty_age_late_max_seconds",
            "Longest time by which a page exceeded the bound when it was written below.",
            |f| of_age(f, |age| age.late_by_s);
        "entresol_dirty_age_late_pages_total", "Pages written below later than the bound.",
            |f| of_age(f, |age| age.late_pages as f64);
        "entresol_dirty_age_waits_total", "Writes that waited because the bound could not be kept.",
            |f| of_age(f, |age| age.waits as f64);
        "entresol_dirty_age_written_pages_total", "Pages that were written below because of their age.",
            |f| of_age(f, |age| age.written_pages as f64);
        "entresol_wear_written_pages_total", "Pages that policy and reclaim wrote to a cache of the layout segments.",
            |f| of_wear(f, |wear| Some(wear.written_pages));
        "entresol_wear_allowed_pages_total", "Pages that the bound on wear allowed in the same time.",
            |f| of_wear(f, |wear| wear.allowed_pages);
        "entresol_wear_past_writes_total",
            "Writes that went to the backing store alone because the bound on wear was used up.",
            |f| of_wear(f, |wear| Some(wear.past_writes));
        "entresol_cache_file_lost", "1 if the cache file was unlinked, replaced or truncated while in use.",
            |f| count(f.cache_file.is_some().into());
        "entresol_restarts_total", "New starts of the server since its command began, with --restart on.",
            |f| {
                let samples = |r: &RestartFigures| {
                    let by_reason = [("crash", r.crashes), ("hang", r.hangs), ("upgrade", r.upgrades)];
                    by_reason.map(|(reason, starts)| label("reason", reason, starts))
                };
                f.restarts.iter().flat_map(samples).collect()
            };
        "entresol_restart_pause_seconds", "The last pause at a new start of the server.",
            |f| f.restarts.iter().filter_map(|r| r.last_pause_ms).flat_map(|ms| one(ms / 1e3)).collect();
        "entresol_conflict_files", "Files that were changed without the cache while it had dirty pages of them.",
            |f| count(f.conflicts.len() as u64);
        "entresol_doubt", "1 if writes that a killed server had answered may be lost.",
            |f| count(f.doubt.is_some().into());
        "entresol_doubt_syncs_failed_total", "Syncs that failed so that their callers learn of that.",
            |f| count(f.doubt.as_ref().map_or(0, |doubt| doubt.syncs_failed));
        "entresol_lost_pages", "Pages whose only copy could not be read.", |f| count(f.lost_pages);
    }
}

/// Families of devices, the front-end, the policy, objects and queries, which stand after the counters.
fn parts() -> Vec<Family> {
    families! {
        "entresol_device_errors_total", "Calls of a device that returned an error.",
            |f| by_call(f, |calls| calls.errors);
        "entresol_device_bytes_total", "Bytes that a device was asked to move.", |f| by_call(f, |calls| calls.bytes);
        "entresol_device_calls_under_way", "Calls of a device that have not returned yet.",
            |f| by_call(f, |calls| calls.under_way);
        "entresol_door_calls_total", "Calls of the front-end.", |f| by_front_end(f, |calls| calls.calls as f64);
        "entresol_door_errors_total", "Calls of the front-end that returned an error.",
            |f| by_front_end(f, |calls| calls.errors as f64);
        "entresol_door_bytes_total", "Bytes that the front-end asked for.",
            |f| by_front_end(f, |calls| calls.bytes as f64);
        "entresol_door_p50_seconds", "Time that half of the front-end's calls did not exceed, since the start.",
            |f| by_front_end(f, |calls| calls.p50_us / 1e6);
        "entresol_door_p99_seconds", "Time that 99 of 100 of the front-end's calls did not exceed, since the start.",
            |f| by_front_end(f, |calls| calls.p99_us / 1e6);
        "entresol_policy_state", "Figures of the policy about itself.",
            |f| {
                let gauges = f.policy_gauges.iter();
                gauges.map(|(name, &value)| (vec![("name", name.clone())], value)).collect()
            };
        "entresol_object_requests_total", "Page requests of a table or file.",
            |f| by_object(f, "op", |o| [("read", o.reads), ("write", o.writes)]);
        "entresol_object_hits_total", "Page requests of a table or file whose page was in some tier.",
            |f| by_object(f, "op", |o| [("read", o.read_hits()), ("write", o.write_hits())]);
        "entresol_object_resident_pages", "Pages of it that the policy holds.",
            |f| by_object(f, "tier", |o| [("memory", o.resident_memory), ("cache", o.resident_device)]);
        "entresol_object_dirty_pages", "Pages of it that are newer in the cache than below.",
            |f| by_object(f, "", |o| [("", o.dirty)]);
        "entresol_object_size_bytes", "Its size.", |f| by_object(f, "", |o| [("", o.size_bytes)]);
        "entresol_object_verdict", "Verdict of the policy on its use, as a label.",
            |f| {
                let found = |o: &ObjectFigures| {
                    let verdict = o.verdict.clone()?;
                    Some((vec![("object", o.label().to_owned()), ("verdict", verdict)], 1.0))
                };
                f.objects.iter().filter_map(found).collect()
            };
        "entresol_hint_messages_total", "Messages about queries, by outcome.",
            |f| {
                by_hint(f, "what", |h| {
                    [
                        ("begin", h.begins),
                        ("end", h.ends),
                        ("end of none", h.ends_unknown),
                        ("malformed", h.malformed),
                        ("elsewhere", h.elsewhere),
                    ]
                })
            };
        "entresol_hint_files_total", "Files that queries were said to use, by whether the cache knows them.",
            |f| by_hint(f, "known", |h| [("yes", h.files_known), ("no", h.files_unknown)]);
        "entresol_hint_queries_running", "Queries that were said to begin and not to end.",
            |f| f.hints.as_ref().map_or(Vec::new(), |h| count(h.running));
        "entresol_policy_switches_total", "Switches of a policy that lets one of several candidates decide.",
            |f| f.choice.iter().flat_map(|choice| count(choice.switches)).collect();
        "entresol_candidate_active", "1 for the candidate that decides.",
            |f| by_candidate(f, |candidate, active| Some(f64::from(u8::from(candidate.name == active))));
        "entresol_candidate_hit_ratio", "Share of the requests that a candidate is predicted to find.",
            |f| by_candidate(f, |candidate, _| candidate.hit_ratio);
        "entresol_candidate_cost",
            "Predicted cost of a request under a candidate, in reads from below unless the weights are others.",
            |f| by_candidate(f, |candidate, _| candidate.cost);
    }
}

/// Every family except the device times, which are a histogram.
fn families() -> Vec<Family> {
    let mut counters: Vec<&Counter> = COUNTERS.iter().collect();
    counters.sort_by_key(|counter| counter.part);
    let counters = counters.chunk_by(|one, next| one.metric == next.metric).map(|same| Family::of(same.to_vec()));
    state().into_iter().chain(counters).chain(parts()).collect()
}

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
    families().iter().for_each(|family| row(family.name, family.kind(), family.help));
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
    for family in families() {
        head(&mut out, family.name, family.kind(), family.help);
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
