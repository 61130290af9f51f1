//! Statistics against slow models on random traces, and against an independent simulator's counts.

mod common;

use common::Folder;
use entresol_core::Op;
use entresol_trace::stat::{Log2Histogram, QueryClass, Tally};
use entresol_trace::{
    Event, EventKind, LoadOptions, PageReference, StatOptions, Trace, generate, load, lru_miss_ratio_curve, native,
    peak_temporal_distance, stat,
};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

fn trace(text: &str) -> Trace {
    generate(&text.parse().unwrap_or_else(|error| panic!("{text}: {error}")))
}

fn reference(object: u32, block: u64, op: Op) -> PageReference {
    PageReference { object, block, op, sequential: false, first: true }
}

/// Random references to two small objects.
fn references() -> impl Strategy<Value = Vec<PageReference>> {
    let op = prop_oneof![3 => Just(Op::Read), 2 => Just(Op::Write), 1 => Just(Op::Update)];
    let one = (0u32..2, 0u64..20, op, any::<bool>(), any::<bool>())
        .prop_map(|(object, block, op, sequential, first)| PageReference { object, block, op, sequential, first });
    prop::collection::vec(one, 0..400)
}

fn check_tally(tally: &Tally, requests: &[&PageReference]) {
    let unique =
        |requests: &[&PageReference]| requests.iter().map(|r| (r.object, r.block)).collect::<HashSet<_>>().len() as u64;
    let rate = |n: usize, unique: u64| if unique == 0 { 0.0 } else { n as f64 / unique as f64 };
    assert_eq!(tally.page_requests, requests.len() as u64);
    assert_eq!(tally.unique_pages, unique(requests));
    assert_eq!(tally.unique_bytes, unique(requests) * 512);
    assert_eq!(tally.accessed_bytes, requests.len() as u64 * 512);
    assert_eq!(tally.repeat_access_rate, rate(requests.len(), unique(requests)));
    let ios = requests.iter().filter(|r| r.first).count();
    assert_eq!(tally.mean_io_bytes, rate(requests.len() * 512, ios as u64));
    for (direction, write) in [(&tally.reads, false), (&tally.writes, true)] {
        let of: Vec<&PageReference> = requests.iter().filter(|r| r.op.is_write() == write).copied().collect();
        assert_eq!(direction.page_requests, of.len() as u64);
        assert_eq!(direction.ios, of.iter().filter(|r| r.first).count() as u64);
        assert_eq!(direction.unique_pages, unique(&of));
        assert_eq!(direction.sequential, of.iter().filter(|r| r.sequential).count() as u64);
        assert_eq!(direction.repeat_access_rate, rate(of.len(), unique(&of)));
    }
}

/// The count of a histogram's bucket that holds a value.
fn count_at(histogram: &Log2Histogram, value: u64) -> u64 {
    histogram.buckets.iter().find(|b| (b.from..=b.to).contains(&value)).map_or(0, |b| b.count)
}

/// Distances straight from the definition: count the distinct pages between a request and the one before it to the
/// same page, by looking at all of them.
fn plain_distances(references: &[PageReference]) -> Vec<(bool, bool, u64, u64)> {
    let page = |r: &PageReference| (r.object, r.block);
    let mut found = Vec::new();
    for (i, now) in references.iter().enumerate() {
        let Some(last) = references[..i].iter().rposition(|r| page(r) == page(now)) else { continue };
        let between: HashSet<_> = references[last + 1..i].iter().map(page).collect();
        found.push((references[last].op.is_write(), now.op.is_write(), between.len() as u64, (i - last) as u64));
    }
    found
}

/// Three reads of 512 bytes of one page, and a write of two pages and a half of another object.
#[test]
fn the_mean_size_of_an_io_is_what_it_asks_for() {
    let folder = Folder::new();
    let lines = ["dev,op,offset,size", "a,R,0,512", "a,R,512,512", "a,R,1024,512", "b,W,2048,10240"];
    let path = folder.file("small.csv", lines.join("\n"));
    let trace = load(&path, &LoadOptions::default()).expect("a trace").trace;
    let measured = stat(&trace, &StatOptions::default());
    assert_eq!((measured.ios, measured.total.page_requests), (4, 6));
    assert_eq!(measured.total.mean_io_bytes, (3.0 * 512.0 + 10_240.0) / 4.0);
    let of_objects: Vec<f64> = measured.objects.iter().map(|object| object.tally.mean_io_bytes).collect();
    assert_eq!(of_objects, [512.0, 10_240.0]);
    // A native trace keeps it; of a part of it only whole pages are known.
    let native = folder.path("small.etr");
    native::write(&trace, &native).expect("written");
    let mut again = load(&native, &LoadOptions::default()).expect("a trace").trace;
    assert_eq!(stat(&again, &StatOptions::default()), measured);
    again.truncate(3);
    assert_eq!(stat(&again, &StatOptions::default()).total.mean_io_bytes, 4096.0);
}

proptest! {
    #[test]
    fn totals_objects_and_windows_agree_with_counting(references in references(), windows in 0u32..9) {
        let trace = Trace::from_references(512, &["a", "b"], references.iter().copied());
        let stat = stat(&trace, &StatOptions { windows });
        check_tally(&stat.total, &references.iter().collect::<Vec<_>>());
        prop_assert_eq!(stat.updates, references.iter().filter(|r| r.op == Op::Update).count() as u64);
        for (number, object) in stat.objects.iter().enumerate() {
            let of: Vec<_> = references.iter().filter(|r| r.object == number as u32).collect();
            check_tally(&object.tally, &of);
        }
        prop_assert_eq!(stat.working_set.len(), references.len().min(windows as usize));
        let mut end = 0;
        for window in &stat.working_set {
            prop_assert_eq!(window.begin, end);
            end = window.end;
            let (before, rest) = references.split_at(window.begin as usize);
            let inside = &rest[..(end - window.begin) as usize];
            let pages = |of: &[PageReference]| of.iter().map(|r| (r.object, r.block)).collect::<HashSet<_>>();
            prop_assert_eq!(window.unique_pages, pages(inside).len() as u64);
            prop_assert_eq!(window.new_pages, pages(inside).difference(&pages(before)).count() as u64);
            prop_assert_eq!(window.writes, inside.iter().filter(|r| r.op.is_write()).count() as u64);
            prop_assert_eq!(window.reads + window.writes, end - window.begin);
        }
        prop_assert!(windows == 0 || end == references.len() as u64);
    }

    #[test]
    fn distances_agree_with_their_definition(references in references()) {
        let trace = Trace::from_references(512, &["a", "b"], references.iter().copied());
        let stat = stat(&trace, &StatOptions::default());
        let plain = plain_distances(&references);
        let d = &stat.distances;
        for (histogram, earlier, later) in [
            (&d.read_after_read, false, false),
            (&d.write_after_write, true, true),
            (&d.read_after_write, true, false),
            (&d.write_after_read, false, true),
        ] {
            let of: Vec<u64> = plain.iter().filter(|p| (p.0, p.1) == (earlier, later)).map(|p| p.2).collect();
            prop_assert_eq!(histogram.count, of.len() as u64);
            for bucket in &histogram.buckets {
                let inside = of.iter().filter(|distance| (bucket.from..=bucket.to).contains(distance)).count();
                prop_assert_eq!(bucket.count, inside as u64);
            }
        }
        prop_assert_eq!(d.all.count, plain.len() as u64);
        let mut powers: HashMap<u32, usize> = HashMap::new();
        for p in &plain {
            *powers.entry((p.3 as u32).next_power_of_two()).or_default() += 1;
        }
        let peak = powers.into_iter().max_by_key(|(power, count)| (*count, u32::MAX - power)).map_or(0, |p| p.0);
        prop_assert_eq!(stat.peak_temporal_distance, peak);
        prop_assert_eq!(peak_temporal_distance(&trace), peak);
    }

    #[test]
    fn the_curve_agrees_with_an_lru_cache_of_each_size(references in references()) {
        let trace = Trace::from_references(512, &["a", "b"], references.iter().copied());
        let curve = lru_miss_ratio_curve(&trace);
        prop_assert_eq!(curve.footprint_pages(), trace.footprint() as u64);
        for capacity in 0..=trace.footprint() + 1 {
            let mut cache: Vec<u32> = Vec::new();
            let mut misses = 0;
            for page in trace.pages.iter() {
                match cache.iter().position(|other| other == page) {
                    Some(at) => _ = cache.remove(at),
                    None => misses += 1,
                }
                cache.insert(0, *page);
                cache.truncate(capacity);
            }
            prop_assert_eq!(curve.misses(capacity as u64), misses, "{} pages", capacity);
        }
        for point in stat(&trace, &StatOptions::default()).lru_curve {
            prop_assert_eq!(point.misses, curve.misses(point.capacity_pages));
        }
    }

    #[test]
    fn overlapping_queries_agree_with_counting(
        references in references(),
        spans in prop::collection::vec((0u64..400, 0u64..200), 0..6),
    ) {
        let mut trace = Trace::from_references(512, &["a", "b"], references.iter().copied());
        let len = references.len() as u64;
        let mut spans: Vec<(u64, u64)> =
            spans.into_iter().map(|(begin, length)| (begin.min(len), (begin + length).min(len))).collect();
        spans.sort();
        let mut events = Vec::new();
        for (query, (begin, end)) in spans.iter().enumerate() {
            let query = query as u32;
            let label = format!("q{query}");
            events.push((*begin, 0, Event { at: *begin, kind: EventKind::QueryBegin { query, label, objects: vec![] } }));
            events.push((*end, 1, Event { at: *end, kind: EventKind::QueryEnd { query } }));
        }
        events.sort_by_key(|(at, order, _)| (*at, *order));
        trace.events = events.into_iter().map(|(_, _, event)| event).collect();
        let stat = stat(&trace, &StatOptions::default());
        prop_assert_eq!(stat.queries.len(), spans.len());
        for (query, (begin, end)) in stat.queries.iter().zip(&spans) {
            prop_assert_eq!((query.begin, query.end), (*begin, *end));
            let inside: Vec<&PageReference> = references[*begin as usize..*end as usize].iter().collect();
            check_tally(&query.tally, &inside);
            prop_assert_eq!(query.class.is_none(), inside.is_empty());
            for object in &query.objects {
                let number = u32::from(object.name == "b");
                check_tally(&object.tally, &inside.iter().copied().filter(|r| r.object == number).collect::<Vec<_>>());
            }
            let objects: u64 = query.objects.iter().map(|object| object.tally.page_requests).sum();
            prop_assert_eq!(objects, query.tally.page_requests);
        }
    }
}

#[test]
fn an_empty_trace_has_statistics_too() {
    let trace = Trace::from_references(4096, &["unused"], []);
    let stat = stat(&trace, &StatOptions::default());
    check_tally(&stat.total, &[]);
    assert_eq!((stat.read_write_ratio, stat.span_us, stat.peak_temporal_distance), (None, None, 0));
    assert!(stat.working_set.is_empty() && stat.lru_curve.is_empty() && stat.spread.all.skew.is_empty());
    assert_eq!(lru_miss_ratio_curve(&trace).miss_ratio(7), 0.0);
    assert_eq!(peak_temporal_distance(&trace), 0);
}

#[test]
fn one_page_written_again_and_again() {
    let trace = Trace::from_references(4096, &["a"], (0..1000).map(|_| reference(0, 7, Op::Write)));
    let stat = stat(&trace, &StatOptions::default());
    assert_eq!(stat.total.unique_pages, 1);
    assert_eq!(stat.objects[0].size_pages, 8);
    assert_eq!(stat.read_write_ratio, Some(0.0));
    assert_eq!(stat.distances.write_after_write.count, 999);
    assert_eq!(count_at(&stat.distances.write_after_write, 0), 999);
    assert!(stat.distances.read_after_read.buckets.is_empty() && stat.spread.reads.frequency.is_empty());
    assert_eq!(stat.spread.writes.frequency.last().map(|point| point.at_least), Some(512));
    assert_eq!(stat.peak_temporal_distance, 1);
    assert_eq!(stat.lru_curve.iter().map(|point| point.misses).collect::<Vec<_>>(), [1]);
}

/// The example of the thesis, section 2.6.2: eight accesses to four pages.
#[test]
fn the_repeat_access_rate_is_that_of_the_thesis() {
    let pages = [1, 3, 4, 3, 1, 4, 5, 3].map(|block| reference(0, block, Op::Read));
    let trace = Trace::from_references(16_384, &["t"], pages);
    assert_eq!(stat(&trace, &StatOptions::default()).total.repeat_access_rate, 2.0);
}

#[test]
fn queries_fall_into_the_classes_they_were_made_for() {
    let trace = trace("olap:n=1500k:pages=20k:seed=3");
    let stat = stat(&trace, &StatOptions::default());
    let mut classes = HashSet::new();
    for query in &stat.queries[..stat.queries.len() - 1] {
        let expected = match query.label.split('#').next() {
            Some("q1" | "q10") => QueryClass::Sequential,
            Some("q16" | "q19") => QueryClass::Random,
            _ => QueryClass::RandomRepeated,
        };
        let (random, rate) = (query.random_read_share, query.tally.repeat_access_rate);
        assert_eq!(query.class, Some(expected), "{}: {random:.2} random, repeat access rate {rate:.2}", query.label);
        classes.insert(format!("{expected:?}"));
    }
    assert_eq!(classes.len(), 3);
}

/// Counts of libCacheSim, an independent simulator, on the same traces.
#[test]
fn lru_misses_are_those_of_another_simulator() {
    for (text, misses) in [
        ("zipf:n=200k:pages=20k:seed=42", [(200, 113_760), (2000, 60_704)]),
        ("mixed:n=200k:pages=20k:seed=7", [(200, 169_564), (2000, 144_524)]),
        ("zipf:n=10M:pages=1M:seed=42", [(10_000, 4_152_060), (100_000, 2_230_306)]),
    ] {
        let curve = lru_miss_ratio_curve(&trace(text));
        for (capacity, expected) in misses {
            assert_eq!(curve.misses(capacity), expected, "{text} with {capacity} pages");
        }
    }
}

#[test]
fn statistics_serialise_with_their_totals_beside_the_rest() {
    let trace = trace("zipf:n=1k:pages=100:write=30");
    let json = serde_json::to_value(stat(&trace, &StatOptions::default())).expect("plain data");
    assert_eq!(json["page_requests"], 1000);
    assert_eq!(
        json["reads"]["page_requests"].as_u64().zip(json["writes"]["page_requests"].as_u64()).map(|(r, w)| r + w),
        Some(1000)
    );
    assert_eq!(json["objects"][0]["name"], "pages");
    assert!(json["distances"]["write_after_write"]["buckets"].is_array());
}
