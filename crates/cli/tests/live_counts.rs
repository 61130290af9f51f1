//! Decide once, drive twice, with the real engine: on one stream of requests, one at a time, the block cache's counts
//! equal the simulator's, and every byte is right.

use entresol_cache::{Block, BlockCache, CacheConfig, Mode, Tag};
use entresol_core::{Op, Page, Size};
use entresol_crashtest::{Power, SimDisk};
use entresol_policy::{Info, LogLayout, Options, Wear, catalogue};
use entresol_sim::{Addresses, CellOptions, LayerSpec, Mode as SimulatedMode, PolicySpec, parse_policies, run_cell};
use entresol_store::{Geometry, Layout};
use entresol_trace::native::{self, Spool};
use entresol_trace::{ObjectKind, OpByte, Trace, generate};
use std::collections::HashMap;
use std::time::Duration;

const PAGE: u64 = 4096;
/// Pages of the backing store, which is the trace's only object.
const PAGES: u64 = 1024;
const SEED: u64 = 9;

/// Counts that engine and simulator both keep.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    read_hits: u64,
    write_hits: u64,
    fetches: u64,
    admissions: u64,
    write_backs: u64,
    write_back_ios: u64,
    bypasses: u64,
    arounds: u64,
    /// Pages written to the backing store, in a mode in which it gets each write at once: live as it counts them itself.
    /// In write-back 0, since a cache writes below in its own time.
    below: u64,
}

/// The modes in which the backing store gets each write at once.
const CLEAN: [(Mode, SimulatedMode); 2] =
    [(Mode::WriteThrough, SimulatedMode::WriteThrough), (Mode::WriteAround, SimulatedMode::WriteAround)];

/// A store of the given layout, without a bound on wear, in write-back.
fn plain_store(layout: Layout) -> (Geometry, Wear, Mode) {
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 16, segments: 20, layout };
    (geometry, Wear::Unbounded, Mode::WriteBack)
}

/// Policies that run live over a range of bytes: all that need neither the future nor queries. MQ is left out because
/// the simulator gives it the trace's peak distance, which a live cache does not know.
fn live() -> impl Iterator<Item = &'static Info> {
    let excluded = ["mq", "heuristicdb", "table-placement"];
    catalogue::ALL.iter().copied().filter(move |info| !info.future && !excluded.contains(&info.name))
}

fn trace(seed: u64) -> Trace {
    let spec = format!(
        "zipf:n=1500:pages=200:seed={seed}:write=40:update=30 | scan:n=300:base=300:write=50:update=20 \
         + loop:n=600:pages=60:base=40:write=70 \
         + uniform:n=800:pages=250:seed={seed}:write=20:update=50 | zipf:n=400:pages=80:base=900:write=30"
    );
    generate(&spec.parse().expect("a trace specification"))
}

fn simulated(addresses: &Addresses, policy: &PolicySpec, tiers: &[usize]) -> Counted {
    simulated_past(addresses, policy, tiers, 0)
}

fn simulated_past(addresses: &Addresses, policy: &PolicySpec, tiers: &[usize], sequential_cutoff: u64) -> Counted {
    simulated_with(addresses, policy, tiers, CellOptions { sequential_cutoff, ..CellOptions::default() })
}

fn simulated_with(addresses: &Addresses, policy: &PolicySpec, tiers: &[usize], options: CellOptions) -> Counted {
    let policy = policy.clone();
    let sizes = tiers.iter().map(|&pages| Size::Pages(pages as u64)).collect();
    let options = CellOptions { seed: SEED, ..options };
    let row = run_cell(addresses, &[LayerSpec { policy, sizes }], String::new(), &options).expect("a cell that runs");
    Counted {
        read_hits: row.read_hits,
        write_hits: row.write_hits,
        fetches: row.fetches,
        admissions: row.admissions,
        write_backs: row.write_backs,
        write_back_ios: row.write_back_ios,
        bypasses: row.bypasses,
        arounds: row.write_arounds,
        below: if options.mode.is_clean() { row.written_below() } else { 0 },
    }
}

/// Capacities of a policy's tiers that are not below its least. Of two for a policy of one tier the first is that of a pool.
fn at_least(info: &Info, tiers: &[usize]) -> Vec<usize> {
    let least = [0].iter().take(tiers.len() - info.tiers.len()).chain(info.min_pages);
    tiers.iter().zip(least).map(|(&pages, &least)| pages.max(least)).collect()
}

/// Capacities of a policy of one tier alone and, if `pooled`, below a pool; or of a policy of two.
fn over_space(info: &Info, space: usize, pooled: bool) -> Vec<Vec<usize>> {
    let alone = (info.tiers.len() == 1).then(|| vec![space]);
    let with_memory = (pooled || alone.is_none()).then(|| at_least(info, &[10, space]));
    alone.into_iter().chain(with_memory).collect()
}

fn plain(info: &'static Info) -> PolicySpec {
    PolicySpec { info, options: Options::defaults(info) }
}

fn block(trace: &Trace, page: u32) -> u64 {
    let address = trace.address(Page(page));
    assert!(address.object.0 == 0 && address.block < PAGES);
    address.block
}

/// Runs the trace through a block cache, checking the bytes of every read. The requests that the cache received go to
/// the spool.
fn live_counts(
    trace: &Trace,
    policy: &PolicySpec,
    tiers: &[usize],
    layout: Layout,
    spool: Option<&mut Spool>,
) -> Counted {
    live_counts_past(trace, policy, tiers, layout, spool, 0)
}

fn live_counts_past(
    trace: &Trace,
    policy: &PolicySpec,
    tiers: &[usize],
    layout: Layout,
    spool: Option<&mut Spool>,
    sequential_cutoff: u64,
) -> Counted {
    live_counts_over(trace, policy, tiers, plain_store(layout), spool, sequential_cutoff)
}

fn live_counts_over(
    trace: &Trace,
    policy: &PolicySpec,
    tiers: &[usize],
    (geometry, wear, mode): (Geometry, Wear, Mode),
    mut spool: Option<&mut Spool>,
    sequential_cutoff: u64,
) -> Counted {
    let power = Power::steady();
    let cache = SimDisk::new(geometry.size_bytes(), &power);
    let backing = SimDisk::new(PAGES * PAGE, &power);
    BlockCache::format(&cache, geometry, &backing, [1; 16], [2; 16]).expect("room");
    let info = policy.info;
    let options = policy.options.clone();
    let config =
        CacheConfig { handles: trace.footprint(), seed: SEED, options, wear, mode, ..CacheConfig::new(info, tiers) };
    let cache = BlockCache::open(cache, backing, [2; 16], &config).expect("a cache");
    cache.set_sequential_cutoff(sequential_cutoff).expect("a cache that runs");
    let mut recording = spool.is_some().then(|| cache.record().expect("nobody listens"));
    // Last fill byte of each half of a page.
    let mut truth: HashMap<u64, [u8; 2]> = HashMap::new();
    for at in 0..trace.len() {
        let request = trace.request(at);
        let block = block(trace, trace.pages[at]);
        let now_us = trace.times_us.as_ref().map_or(at as u64, |times| times[at]);
        let tag = Tag { sequential: request.sequential, now_us };
        let halves = truth.entry(block).or_insert([0; 2]);
        let (offset, payload) = (block * PAGE, (at % 251) as u8 + 1);
        match request.op {
            Op::Read => {
                let mut bytes = [0; PAGE as usize];
                // The counts are the same if a request is first tried without waiting.
                if at % 2 == 0 || !cache.read_now_tagged(offset, &mut bytes, tag) {
                    cache.read_tagged(offset, &mut bytes, tag).expect("a read");
                }
                let (first, second) = bytes.split_at(PAGE as usize / 2);
                let same = first.iter().all(|&b| b == halves[0]) && second.iter().all(|&b| b == halves[1]);
                assert!(same, "{} {tiers:?}, request {at}: block {block} read wrong", info.name);
            }
            Op::Write => {
                *halves = [payload; 2];
                cache.write_tagged(offset, &[payload; PAGE as usize], tag).expect("a write");
            }
            Op::Update => {
                halves[1] = payload;
                cache.write_tagged(offset + PAGE / 2, &[payload; PAGE as usize / 2], tag).expect("an update");
            }
        }
        if mode != Mode::WriteBack && request.op.is_write() {
            // Otherwise a page that is written twice soon could be written below once.
            cache.flush().expect("a flush");
        }
    }
    while let (Some(recording), Some(spool)) = (&mut recording, &mut spool) {
        let batch = recording.next(Duration::ZERO);
        assert_eq!(batch.left_out, 0);
        if batch.requests.is_empty() {
            break;
        }
        for noted in batch.requests {
            let op = OpByte::new(noted.op, noted.sequential, noted.first);
            spool.push(noted.time_us, 0, noted.page, op).expect("a place");
        }
    }
    let stats = cache.stats().expect("counts");
    assert_eq!(stats.counts.directory_full + stats.counts.admissions_failed + stats.write_back.pages_lost, 0);
    if let Some(choice) = cache.policy_choice().expect("a policy").filter(|_| !policy.options.summary().is_empty()) {
        println!("{} {tiers:?}: {} changes", policy.options.summary(), choice.switches);
        assert!(choice.switches > 5, "{} {tiers:?}: {} changes", policy.options.summary(), choice.switches);
    }
    let counts = stats.counts;
    Counted {
        read_hits: counts.read_hits,
        write_hits: counts.write_hits,
        fetches: counts.fetches,
        admissions: counts.admissions,
        write_backs: counts.write_backs,
        write_back_ios: counts.write_back_ios,
        bypasses: counts.bypasses,
        arounds: counts.around,
        below: if mode == Mode::WriteBack { 0 } else { stats.write_back.below_pages },
    }
}

#[test]
fn the_block_cache_counts_what_the_simulator_counts() {
    let trace = trace(1);
    let addresses = Addresses::new(&trace);
    let mut compared = 0;
    for policy in live().map(plain) {
        let info = policy.info;
        let sizes: &[&[usize]] = if info.tiers.len() == 1 {
            &[&[3], &[20], &[80], &[1, 5], &[20, 30]]
        } else {
            &[&[1, 5], &[10, 30], &[40, 80], &[0, 30]]
        };
        for tiers in sizes {
            let tiers = at_least(info, tiers);
            println!("{} {tiers:?}", info.name);
            let simulated = simulated(&addresses, &policy, &tiers);
            for layout in [Layout::Log, Layout::Slots] {
                let live = live_counts(&trace, &policy, &tiers, layout, None);
                assert_eq!(live, simulated, "{} {tiers:?} {layout:?}: (live, simulated)", info.name);
                compared += 1;
            }
        }
    }
    println!("{compared} cells");
    assert!(compared > 200);
}

/// With slots given by segments a log below the policy chooses what is copied and dropped, in cache and simulator alike.
#[test]
fn over_segments_the_block_cache_counts_what_the_simulator_counts() {
    let trace = trace(1);
    let addresses = Addresses::new(&trace);
    let (mut compared, mut ranked) = (0, 0);
    for policy in live().map(plain) {
        let info = policy.info;
        for (segment_pages, segments) in [(4, 40), (8, 40), (16, 30)] {
            let geometry = Geometry { page_bytes: PAGE as u32, segment_pages, segments, layout: Layout::Segments };
            let tiers = over_space(info, geometry.capacity_pages() as usize, segment_pages == 8);
            let bounds = ["unbounded", "amplification=1.3+0.1", "amplification=0.2"];
            for (tiers, wear) in tiers.iter().flat_map(|tiers| bounds.map(|wear| (tiers, wear))) {
                println!("{} {tiers:?} {segment_pages} {wear}", info.name);
                let wear: Wear = wear.parse().expect("a bound");
                let log = Some(LogLayout { segment_bytes: Some(geometry.segment_bytes()), wear });
                let simulated =
                    simulated_with(&addresses, &policy, tiers, CellOptions { log, ..CellOptions::default() });
                let live = live_counts_over(&trace, &policy, tiers, (geometry, wear, Mode::WriteBack), None, 0);
                assert_eq!(live, simulated, "{} {tiers:?} {geometry}: (live, simulated)", info.name);
                compared += 1;
                ranked += usize::from(info.ranked);
            }
        }
    }
    println!("{compared} cells, {ranked} of ranked policies");
    assert!(compared > 200 && ranked > 0);
}

/// In each mode the policy decides alike in both, both count alike, and the backing store gets exactly the pages that the
/// simulator counts: each write once, and no page by an eviction.
#[test]
fn in_each_mode_the_block_cache_counts_what_the_simulator_counts() {
    let trace = trace(7);
    let addresses = Addresses::new(&trace);
    let writes = (0..trace.len()).filter(|&at| trace.request(at).op.is_write()).count() as u64;
    let (mut compared, mut arounds) = (0, 0);
    for policy in live().map(plain) {
        let info = policy.info;
        let sizes: &[&[usize]] = if info.tiers.len() == 1 { &[&[3], &[60], &[20, 50]] } else { &[&[1, 5], &[20, 50]] };
        for (at, tiers) in sizes.iter().enumerate() {
            let tiers = at_least(info, tiers);
            for (mode, simulated_mode) in CLEAN {
                println!("{} {tiers:?} {mode:?}", info.name);
                let sequential_cutoff = if at == 0 { 0 } else { 10 * PAGE };
                let options = CellOptions { mode: simulated_mode, sequential_cutoff, ..CellOptions::default() };
                let simulated = simulated_with(&addresses, &policy, &tiers, options);
                assert_eq!((simulated.below, simulated.write_backs), (writes, 0), "{} {mode:?}", info.name);
                for layout in [Layout::Log, Layout::Slots] {
                    let (geometry, wear, _) = plain_store(layout);
                    let store = (geometry, wear, mode);
                    let live = live_counts_over(&trace, &policy, &tiers, store, None, sequential_cutoff);
                    assert_eq!(live, simulated, "{} {tiers:?} {layout:?} {mode:?}: (live, simulated)", info.name);
                    compared += 1;
                }
                arounds += simulated.arounds;
            }
        }
    }
    println!("{compared} cells");
    assert!(compared > 200 && arounds > 0);
}

/// A log below the policy decides alike in each mode.
#[test]
fn over_segments_the_counts_are_equal_in_each_mode() {
    let trace = trace(8);
    let addresses = Addresses::new(&trace);
    for policy in live().map(plain) {
        let info = policy.info;
        let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 8, segments: 40, layout: Layout::Segments };
        let tiers = over_space(info, geometry.capacity_pages() as usize, info.ranked);
        // Half a page for each request, of which there is one in a microsecond.
        let bounds: [Wear; 2] = ["amplification=1.3+0.1", "177000GB"].map(|bound| bound.parse().expect("a bound"));
        let cells = CLEAN.into_iter().flat_map(|mode| bounds.map(|wear| (mode, wear)));
        let cells = cells.flat_map(|cell| tiers.iter().map(move |tiers| (cell, tiers)));
        for (((mode, simulated_mode), wear), tiers) in cells {
            let log = Some(LogLayout { segment_bytes: Some(geometry.segment_bytes()), wear });
            let options = CellOptions { log, mode: simulated_mode, ..CellOptions::default() };
            let simulated = simulated_with(&addresses, &policy, tiers, options);
            let live = live_counts_over(&trace, &policy, tiers, (geometry, wear, mode), None, 0);
            assert_eq!(live, simulated, "{} {tiers:?} {mode:?} {wear}: (live, simulated)", info.name);
        }
    }
}

/// The policy's option for write-through, given by the user or not, is the same in cache and simulator.
#[test]
fn the_option_for_write_through_is_taken_alike() {
    let trace = trace(9);
    let addresses = Addresses::new(&trace);
    let options = CellOptions { mode: SimulatedMode::WriteThrough, ..CellOptions::default() };
    let counted = |text: &str| {
        let policy = parse_policies(text).expect("a policy").remove(0);
        let simulated = simulated_with(&addresses, &policy, &[40], options.clone());
        let (geometry, wear, _) = plain_store(Layout::Slots);
        let store = (geometry, wear, Mode::WriteThrough);
        assert_eq!(live_counts_over(&trace, &policy, &[40], store, None, 0), simulated, "{text}: (live, simulated)");
        simulated
    };
    let (unsaid, through, back) = (counted("reuse"), counted("reuse:writes=through"), counted("reuse:writes=back"));
    assert_eq!(unsaid, through);
    assert_ne!(unsaid, back);
}

/// The same requests of a scan and a loop among others bypass the cache under every policy, and the policy does not
/// see them.
#[test]
fn the_same_requests_of_long_streams_pass_by() {
    let trace = trace(6);
    let addresses = Addresses::new(&trace);
    let cutoff = 10 * PAGE;
    for policy in live().map(plain) {
        let info = policy.info;
        let sizes: &[&[usize]] = if info.tiers.len() == 1 { &[&[40], &[10, 30]] } else { &[&[10, 30]] };
        for tiers in sizes.iter().map(|tiers| at_least(info, tiers)) {
            let simulated = simulated_past(&addresses, &policy, &tiers, cutoff);
            let bypasses = simulated.bypasses;
            // 290 pages of the scan are beyond the cutoff, and none is held.
            assert!(bypasses >= 290, "{} {tiers:?}: {bypasses} bypasses", info.name);
            for layout in [Layout::Log, Layout::Slots] {
                let live = live_counts_past(&trace, &policy, &tiers, layout, None, cutoff);
                assert_eq!(live, simulated, "{} {tiers:?} {layout:?}: (live, simulated)", info.name);
            }
        }
    }
}

/// The live cache and the simulation decide alike: which candidates, when, and what becomes of the pages held then.
#[test]
fn a_policy_that_changes_itself_does_so_alike() {
    let restless = "sample=100%:window=25:first=1:stay=1:gain=0:errors=0:payback=1000000000";
    for (seed, of) in [(3, "lru/arc/h-arc"), (4, "mru/lru/io-cache"), (5, "cflru/s3-fifo/lru-2/sieve")] {
        let trace = trace(seed);
        let policy = parse_policies(&format!("auto:of={of}:{restless}")).expect("a policy").remove(0);
        for tiers in [[20], [80]] {
            let simulated = simulated(&Addresses::new(&trace), &policy, &tiers);
            for layout in [Layout::Log, Layout::Slots] {
                let live = live_counts(&trace, &policy, &tiers, layout, None);
                assert_eq!(live, simulated, "{of} {tiers:?} {layout:?}: (live, simulated)");
            }
        }
    }
}

/// The requests that `entresol record` receives from a cache in use, written as a trace and simulated, give the
/// cache's counts.
#[test]
fn what_was_recorded_simulates_to_what_was_counted() {
    let folder = tempfile::tempdir().expect("a scratch directory");
    let path = folder.path().join("recorded.etr");
    let trace = trace(2);
    for policy in live().map(plain) {
        let info = policy.info;
        let tiers: &[usize] = if info.tiers.len() == 1 { &[20] } else { &[10, 30] };
        let tiers: Vec<usize> = tiers.iter().zip(info.min_pages).map(|(&t, &min)| t.max(min)).collect();
        let mut spool = Spool::create(&path, PAGE as u32).expect("a place");
        spool.object("disk", ObjectKind::Data);
        let live = live_counts(&trace, &policy, &tiers, Layout::Log, Some(&mut spool));
        spool.finish(String::new()).expect("a trace");
        let recorded = native::open(&path).expect("a trace");
        assert_eq!((recorded.len(), recorded.footprint()), (trace.len(), trace.footprint()));
        let simulated = simulated(&Addresses::new(&recorded), &policy, &tiers);
        assert_eq!(live, simulated, "{} {tiers:?}: (live, simulated from the recording)", info.name);
    }
}
