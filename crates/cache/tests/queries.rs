//! Queries reported to a live cache have the same effect as in the simulator. HeuristicDB has the same counts in
//! both, over a trace's own objects and query marks.

use entresol_cache::{BlockCache, CacheConfig, Objects};
use entresol_core::{ObjectId, Op, Page, Size};
use entresol_crashtest::{Power, SimDisk};
use entresol_policy::{Options, catalogue};
use entresol_sim::{Addresses, CellOptions, LayerSpec, PolicySpec, run_cell};
use entresol_store::{Geometry, Layout};
use entresol_trace::{EventKind, LoadOptions, Trace, generate, load};
use std::path::Path;

const PAGE: u64 = 4096;

/// Counts kept by both.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    read_hits: u64,
    write_hits: u64,
    fetches: u64,
    admissions: u64,
    write_backs: u64,
    bypasses: u64,
}

fn simulated(trace: &Trace, policy: &str, pages: usize) -> Counted {
    let info = catalogue::info(policy).expect("a policy");
    let policy = PolicySpec { info, options: Options::defaults(info) };
    let layer = LayerSpec { policy, sizes: vec![Size::Pages(pages as u64)] };
    let row = run_cell(&Addresses::new(trace), &[layer], String::new(), &CellOptions::default()).expect("a row");
    Counted {
        read_hits: row.read_hits,
        write_hits: row.write_hits,
        fetches: row.fetches,
        admissions: row.admissions,
        write_backs: row.write_backs,
        bypasses: row.bypasses,
    }
}

/// Runs a trace through a block cache. Its backing store has the objects one after the other, each followed by a
/// page of no object. `told` says whether the cache is notified of queries.
fn live(trace: &Trace, policy: &str, pages: usize, told: bool) -> Counted {
    let mut objects = Objects::new(trace.objects.len() + 1);
    let mut starts = Vec::new();
    let mut end = 0;
    for object in &trace.objects {
        // The first number is that of pages without an object.
        let number = objects.add();
        objects.join(number, end, object.pages, 0);
        objects.resize(number, object.pages);
        starts.push((number, end));
        end += object.pages + 1;
    }
    let power = Power::steady();
    let segments = (pages as u32 * 3 / 16).max(16);
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 16, segments, layout: Layout::Log };
    let cache = SimDisk::new(geometry.size_bytes(), &power);
    let backing = SimDisk::new(end * PAGE, &power);
    BlockCache::format(&cache, geometry, &backing, [1; 16], [2; 16]).expect("room");
    let info = catalogue::info(policy).expect("a policy");
    // Enough handles to count all pages, as in the simulator.
    let config = CacheConfig { handles: trace.footprint() + pages + 2, ..CacheConfig::new(info, &[pages]) };
    let cache = BlockCache::open_objects(cache, backing, [2; 16], &config, objects).expect("a cache");
    let mut bytes = vec![0; PAGE as usize];
    let mut events = trace.events.iter().peekable();
    for at in 0..trace.len() {
        while let Some(event) = events.next_if(|event| event.at as usize <= at && told) {
            match &event.kind {
                EventKind::QueryBegin { query, objects, .. } => {
                    let objects: Vec<ObjectId> = objects.iter().map(|&object| starts[object as usize].0).collect();
                    cache.query_begins(*query, &objects).expect("the cache runs");
                }
                EventKind::QueryEnd { query } => cache.query_ends(*query).expect("the cache runs"),
            }
        }
        let request = trace.request(at);
        let address = trace.address(Page(request.page.0));
        let offset = (starts[address.object.index()].1 + address.block) * PAGE;
        let tag = cache.tag(request.sequential);
        match request.op {
            Op::Read => cache.read_tagged(offset, &mut bytes, tag).expect("a read"),
            Op::Write => cache.write_tagged(offset, &bytes, tag).expect("a write"),
            Op::Update => cache.write_tagged(offset, &bytes[..100], tag).expect("a write"),
        }
    }
    let counts = cache.stats().expect("its figures").counts;
    Counted {
        read_hits: counts.read_hits,
        write_hits: counts.write_hits,
        fetches: counts.fetches,
        admissions: counts.admissions,
        write_backs: counts.write_backs,
        bypasses: counts.bypasses,
    }
}

fn assert_same(trace: &Trace, name: &str, share: usize) {
    let pages = trace.footprint() * share / 100;
    let wanted = simulated(trace, "heuristicdb", pages);
    assert!(wanted.read_hits > 0, "{name}: {wanted:?}");
    assert_eq!(live(trace, "heuristicdb", pages, true), wanted, "{name}, {share} %");
    // The queries make the difference. A policy that heeds none has the same counts with and without.
    assert_ne!(live(trace, "heuristicdb", pages, false), wanted, "{name}, {share} %");
    assert_eq!(live(trace, "lru", pages, true), simulated(trace, "lru", pages), "{name}, {share} %");
}

#[test]
fn a_generated_workload_of_queries_counts_the_same_live() {
    const SEED: u64 = 5;
    println!("seed {SEED}");
    let spec = format!("olap:n=40k:pages=4k:seed={SEED}");
    let trace = generate(&spec.parse().expect("a trace specification"));
    assert!(trace.events.len() > 10 && trace.objects.len() > 3, "{} marks", trace.events.len());
    for share in [5, 20] {
        assert_same(&trace, &spec, share);
    }
}

#[test]
fn a_recorded_workload_of_queries_counts_the_same_live() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/traces/recorded");
    let path = folder.join("pg_tpch_sf0.1_prebuf.csv.zst");
    if !path.is_file() {
        entresol_skip::skipped!("data", "{} is not here", path.display());
        return;
    }
    let options = LoadOptions { limit: Some(250_000), ..LoadOptions::default() };
    let trace = load(&path, &options).expect("a recorded trace").trace;
    assert!(trace.events.len() > 4, "{} marks", trace.events.len());
    assert_same(&trace, "PostgreSQL, TPC-H", 10);
}
