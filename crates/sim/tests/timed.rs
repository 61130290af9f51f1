//! Simulation with time against the one without it, and against hand-computed sums.

use entresol_core::Size;
use entresol_device::{Calendar, Completion, Device, Io, IoKind, Latency, Nanos, Queued, Wear};
use entresol_policy::{Options, catalogue};
use entresol_sim::{
    Addresses, Behind, CellOptions, Hierarchy, LayerSpec, PolicySpec, Row, TimedError, TimedOptions, TimedRow, Work,
    parse_stack, run_cell, run_timed,
};
use entresol_trace::{Trace, generate};

/// A device that serves one I/O at a time, reads and writes each in a fixed time.
struct Fixed {
    read_ns: Nanos,
    write_ns: Nanos,
    capacity: u64,
    free_at: Nanos,
    wear: Wear,
}

impl Calendar for Fixed {
    fn serve(&mut self, now: Nanos, io: Io) -> Completion {
        let media = if io.kind == IoKind::Write { self.write_ns } else { self.read_ns };
        let start = now.max(self.free_at);
        self.free_at = start + media;
        let latency = Latency { queue: start - now, media, ..Latency::default() };
        Completion { tag: io.tag, submitted: now, finished: self.free_at, latency }
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity
    }

    fn wear(&self) -> Wear {
        self.wear
    }
}

fn device(read_ns: Nanos, write_ns: Nanos) -> Box<dyn Device> {
    let capacity = 1 << 40;
    Box::new(Queued::new(Fixed { read_ns, write_ns, capacity, free_at: 0, wear: Wear::default() }))
}

fn traced(spec: &str) -> Trace {
    generate(&spec.parse().expect("a trace specification"))
}

fn hierarchy(tiers: usize) -> Hierarchy {
    let tier = |t: usize| (format!("d{t}"), device(100 + 1000 * t as u64, 200 + 3000 * t as u64));
    Hierarchy { tiers: (0..tiers).map(tier).collect(), backing: ("disk".to_owned(), device(5_000_000, 6_000_000)) }
}

fn timed(trace: &Trace, layers: &[LayerSpec], clients: u32) -> (Row, TimedRow) {
    let addresses = Addresses::new(trace);
    let tiers = layers.iter().map(|layer| layer.policy.info.tiers.len()).sum();
    let options = TimedOptions { clients, ..TimedOptions::default() };
    run_timed(&addresses, layers, String::new(), hierarchy(tiers), &CellOptions::default(), &options).expect("a run")
}

fn without_time(row: Row) -> Row {
    Row { cpu_seconds: 0.0, ..row }
}

/// Time changes the moments of events, never a policy's decisions, which follow the order of the trace.
#[test]
fn counts_are_those_of_the_simulation_without_time() {
    let trace = traced("zipf:n=1500:pages=300:seed=2:write=40:update=40 + loop:n=500:pages=80:write=60");
    let addresses = Addresses::new(&trace);
    for info in catalogue::ALL {
        let sizes = info.min_pages.iter().map(|&min| Size::Pages(min.max(20) as u64)).collect();
        let layers = [LayerSpec { policy: PolicySpec { info, options: Options::defaults(info) }, sizes }];
        let alone = run_cell(&addresses, &layers, String::new(), &CellOptions::default()).expect("a cell");
        for clients in [1, 7] {
            println!("{} {clients}", info.name);
            let (row, timed) = timed(&trace, &layers, clients);
            assert_eq!(without_time(row), without_time(alone.clone()), "{}", info.name);
            assert_eq!(timed.requests, alone.requests, "{}", info.name);
        }
    }
    let layers = parse_stack("lru:20,face-gsc:0:100:scan=8,wrb:16:block=8").expect("a stack");
    let alone = run_cell(&addresses, &layers, String::new(), &CellOptions::default()).expect("a cell");
    assert_eq!(without_time(timed(&trace, &layers, 5).0), without_time(alone));
}

/// One requester, reads only, all misses: each request waits for the disk, and the fills run in the background.
#[test]
fn misses_take_as_long_as_the_disk() {
    let trace = traced("scan:n=100");
    let layers = parse_stack("lru:10").expect("a stack");
    let (_, row) = timed(&trace, &layers, 1);
    assert_eq!(row.elapsed_seconds, 0.5, "100 reads of 5 ms");
    // The histograms are good for 1 %.
    for mean_us in [row.latencies[0].mean_us, row.latencies[2].mean_us, row.devices[1].mean_read_us] {
        assert!((mean_us - 5000.0).abs() <= 50.0, "{mean_us} for a read of 5 ms");
    }
    let disk = &row.devices[1];
    assert_eq!((disk.reads, disk.writes, disk.sequential_reads), (100, 0, 0.99));
    assert!((disk.utilisation - 1.0).abs() < 1e-9);
    assert_eq!(row.devices[0].writes, 100, "every page fills the cache");
}

/// All hits: each request waits for the cache alone.
#[test]
fn hits_take_as_long_as_the_cache() {
    let trace = traced("loop:n=1000:pages=10");
    let (_, row) = timed(&trace, &parse_stack("lru:10").expect("a stack"), 1);
    let hits = row.latencies.iter().find(|latency| latency.name == "cache").expect("a tier");
    assert_eq!(hits.count, 990);
    // A fill may still be under way when the first hits come.
    assert!((hits.mean_us - 0.1).abs() < 0.01, "{}", hits.mean_us);
}

/// A requester's work comes between its requests and waits for a processor; it is not part of a request's latency.
#[test]
fn work_waits_for_a_processor() {
    let with_work = |spec: &str, clients: u32, ns: Nanos, processors: u32| {
        let trace = traced(spec);
        let options = TimedOptions { clients, work: Work { ns, processors }, ..TimedOptions::default() };
        let layers = parse_stack("lru:10").expect("a stack");
        let addresses = Addresses::new(&trace);
        run_timed(&addresses, &layers, String::new(), hierarchy(1), &CellOptions::default(), &options).expect("a run").1
    };
    // Every read is a miss of 5 ms; no work follows the last one.
    let alone = with_work("scan:n=100", 1, 3_000_000, 1);
    assert!((alone.elapsed_seconds - (0.5 + 99.0 * 3e-3)).abs() < 1e-9, "{}", alone.elapsed_seconds);
    assert!((alone.latencies[0].mean_us - 5000.0).abs() <= 50.0, "{}", alone.latencies[0].mean_us);
    // Hits take almost no time, so busy processors limit the eight requesters.
    for processors in [1, 2, 4] {
        let row = with_work("loop:n=4000:pages=10", 8, 1_000_000, processors);
        let expected = 4.0 / f64::from(processors);
        // The first ten requests are misses of 5 ms, one after the other.
        assert!((row.elapsed_seconds - expected).abs() < 0.06, "{processors}: {}", row.elapsed_seconds);
    }
    // With as many processors as requesters work never waits, and acts like think time.
    let trace = traced("zipf:n=2000:pages=300:seed=2:write=40");
    let layers = parse_stack("lru:100").expect("a stack");
    let run = |work: Work, think_ns: Nanos| {
        let options = TimedOptions { clients: 6, think_ns, work, ..TimedOptions::default() };
        let addresses = Addresses::new(&trace);
        let run = run_timed(&addresses, &layers, String::new(), hierarchy(1), &CellOptions::default(), &options);
        run.expect("a run").1.elapsed_seconds
    };
    assert_eq!(run(Work { ns: 700_000, processors: 6 }, 0), run(Work::NONE, 700_000));
}

/// A device that moves 1 B/ns and counts what it moves.
struct Bytewise(Fixed);

impl Calendar for Bytewise {
    fn serve(&mut self, now: Nanos, io: Io) -> Completion {
        let time = u64::from(io.bytes);
        (self.0.read_ns, self.0.write_ns) = (time, time);
        self.0.serve(now, io)
    }

    fn capacity_bytes(&self) -> u64 {
        self.0.capacity
    }

    fn wear(&self) -> Wear {
        self.0.wear
    }
}

/// A request for a page in memory moves the bytes that it touches. A page that is read from below, written whole or
/// evicted moves whole, as does every page of a tier that is not memory.
#[test]
fn what_is_found_in_memory_is_touched_and_what_moves_moves_whole() {
    let memory = || {
        let fixed = Fixed { read_ns: 0, write_ns: 0, capacity: 1 << 40, free_at: 0, wear: Wear::default() };
        Box::new(Queued::new(Bytewise(fixed))) as Box<dyn Device>
    };
    let bytes = |spec: &str, touched_bytes: Vec<u32>| {
        let trace = traced(spec);
        let addresses = Addresses::new(&trace);
        let tiers = Hierarchy { tiers: vec![("m".to_owned(), memory())], ..hierarchy(1) };
        let options = TimedOptions { touched_bytes, ..TimedOptions::default() };
        let layers = parse_stack("lru:10").expect("a stack");
        let (_, row) =
            run_timed(&addresses, &layers, String::new(), tiers, &CellOptions::default(), &options).expect("a run");
        (row.devices[0].read_bytes, row.devices[0].write_bytes)
    };
    // Ten pages come from below; 990 requests hit them.
    assert_eq!(bytes("loop:n=1000:pages=10", vec![64]), (990 * 64, 10 * 4096));
    assert_eq!(bytes("loop:n=1000:pages=10", vec![]), (990 * 4096, 10 * 4096));
    assert_eq!(bytes("loop:n=1000:pages=10", vec![u32::MAX]), (990 * 4096, 10 * 4096));
    let updates = "loop:n=1000:pages=10:write=100:update=100";
    assert_eq!(bytes(updates, vec![64]), (0, 990 * 64 + 10 * 4096));
    assert_eq!(bytes("loop:n=1000:pages=10:write=100", vec![64]), (0, 1000 * 4096), "whole pages are written");
    // All requests miss: pages are written whole, and 90 of them are read to be written back.
    assert_eq!(bytes("scan:n=100:write=100:update=100", vec![64]), (90 * 4096, 100 * 4096));
}

/// 004, figure 4.8: with all reads hit in a tier the latency is the tier's, with some of them in proportion.
#[test]
fn the_read_cache_latency_is_that_of_the_tiers_by_their_hits() {
    let (row, timed) =
        timed(&traced("zipf:n=4000:pages=200:seed=3"), &parse_stack("lru:20,lru:60").expect("a stack"), 1);
    let rate = |tier: usize| row.tiers[tier].read_hits as f64 / 4000.0;
    let expected = rate(0) * timed.devices[0].mean_read_us + rate(1) * timed.devices[1].mean_read_us;
    assert!(rate(0) > 0.1 && rate(1) > 0.1, "both tiers have hits");
    assert!((timed.read_cache_latency_us - expected).abs() < 1e-12 && expected > 0.0);
}

/// An evicted dirty page is written in the background, but occupies the disk.
#[test]
fn write_backs_contend_with_reads() {
    let reads = traced("scan:n=400");
    let mixed = traced("scan:n=200 | scan:n=200:base=1000:write=100");
    let layers = parse_stack("lru:10").expect("a stack");
    let (_, only_reads) = timed(&reads, &layers, 4);
    let (row, contended) = timed(&mixed, &layers, 4);
    assert!(row.write_backs >= 190);
    let disk = &contended.devices[1];
    assert_eq!(disk.writes, row.write_backs);
    let busy = row.fetches as f64 * 5e-3 + row.write_backs as f64 * 6e-3;
    assert!(contended.elapsed_seconds >= busy, "the disk serves one I/O at a time");
    assert!(only_reads.latencies[0].mean_us < contended.latencies.last().expect("below").mean_us * 2.0);
}

/// The background window bounds the throughput: a tiny cache under writes runs at the speed of the disk.
#[test]
fn writes_cannot_run_ahead_of_the_disk_for_ever() {
    let trace = traced("scan:n=3000:write=100");
    let layers = parse_stack("lru:10").expect("a stack");
    let addresses = Addresses::new(&trace);
    let options = TimedOptions { clients: 8, background: 16, ..TimedOptions::default() };
    let (row, timed) =
        run_timed(&addresses, &layers, String::new(), hierarchy(1), &CellOptions::default(), &options).expect("a run");
    let disk_seconds = row.write_backs as f64 * 6e-3;
    assert!(timed.elapsed_seconds >= disk_seconds && timed.elapsed_seconds < disk_seconds * 1.05);
    let slowest = timed.latencies[0].max_us;
    assert!(slowest < 17.0 * 8.0 * 6_000.0, "waiting is bounded by the window, not by the trace: {slowest}");
}

/// A write-back thread has a few writes under way at a time; write-backs without it are unlimited. So reads wait less
/// with the thread, and requests wait when its queue is full. Neighbours are one write, write-backs of a page
/// that meet in the queue too, and pages that are not yet synced below are not read there.
#[test]
fn a_thread_writes_back_a_few_at_a_time() {
    let trace = traced("uniform:n=6000:pages=400:seed=5:write=90");
    let layers = parse_stack("lru:100").expect("a stack");
    let addresses = Addresses::new(&trace);
    let run = |behind: Option<Behind>| {
        let options = TimedOptions { clients: 1, behind, ..TimedOptions::default() };
        run_timed(&addresses, &layers, String::new(), hierarchy(1), &CellOptions::default(), &options).expect("a run")
    };
    let few = Behind { queue: 200, soft: 8, least: 1, most: 1, unsynced: 20 };
    let ((row, by_itself), (same, with_thread)) = (run(None), run(Some(few)));
    assert_eq!(without_time(row.clone()), without_time(same), "it changes when things happen, not what");
    let (all, few_at_a_time) = (by_itself.devices[1].mean_read_us, with_thread.devices[1].mean_read_us);
    // One write of 6 ms at most before a read of 5 ms; the histograms are exact to 1 %.
    assert!(
        few_at_a_time <= 11_110.0 && all > 2.0 * few_at_a_time,
        "behind one write {few_at_a_time} us, behind all {all}"
    );
    let below = &with_thread.devices[1];
    let pages = below.write_bytes / 4096;
    assert!(below.writes < pages && pages < row.write_backs, "{} writes of {pages} pages", below.writes);
    assert!(below.reads < row.fetches, "{} of {}", below.reads, row.fetches);
    // The disk serves one I/O at a time and is never idle, with or without the thread.
    let busy = below.reads as f64 * 5e-3 + below.writes as f64 * 6e-3;
    assert!((with_thread.elapsed_seconds / busy - 1.0).abs() < 0.02, "{} of {busy}", with_thread.elapsed_seconds);
}

/// Without the thread a request waits for a write that goes past the cache; the thread has it wait for none.
#[test]
fn no_request_waits_for_a_write_that_goes_past() {
    let trace = traced("uniform:n=3000:pages=1000:seed=6:write=20");
    let layers = parse_stack("reuse:100").expect("a stack");
    let addresses = Addresses::new(&trace);
    let wait = |behind: Option<Behind>| {
        let options = TimedOptions { clients: 4, behind, ..TimedOptions::default() };
        let cell = CellOptions::default();
        let (row, timed) = run_timed(&addresses, &layers, String::new(), hierarchy(1), &cell, &options).expect("a run");
        assert!(row.write_bypasses > 100, "{}", row.write_bypasses);
        (timed.elapsed_seconds, timed.devices[1].clone())
    };
    let (alone, disk) = wait(None);
    let few = Behind { queue: 200, soft: 8, least: 4, most: 4, unsynced: 20 };
    let (with_thread, disk_of_thread) = wait(Some(few));
    assert!(disk_of_thread.writes <= disk.writes && disk_of_thread.reads <= disk.reads);
    assert!(with_thread < alone, "{with_thread} s, {alone} s without the thread");
}

/// A policy over a log has its pages written below by the thread too: all but those that meet another write-back of the
/// same page, or wait at the end.
#[test]
fn a_thread_writes_back_from_a_log() {
    let trace = traced("uniform:n=20000:pages=20000:seed=7:write=60");
    let layers = parse_stack("face:50:400").expect("a stack");
    let addresses = Addresses::new(&trace);
    let behind = Behind { queue: 200, soft: 8, least: 4, most: 64, unsynced: 20 };
    let options = TimedOptions { clients: 4, behind: Some(behind), ..TimedOptions::default() };
    let cell = CellOptions::default();
    let (row, timed) = run_timed(&addresses, &layers, String::new(), hierarchy(2), &cell, &options).expect("a run");
    let pages = timed.devices[2].write_bytes / 4096;
    assert!(pages * 10 > row.write_backs * 9, "{pages} of {}", row.write_backs);
}

/// FaCE writes its flash in batches, one after the other; LRU wherever a frame is free (001, table 6).
#[test]
fn a_log_is_written_in_batches_and_in_order() {
    let trace = traced("zipf:n=20000:pages=2000:seed=4:write=40");
    let (_, face) = timed(&trace, &parse_stack("face-gsc:50:640").expect("a stack"), 4);
    let (_, lc) = timed(&trace, &parse_stack("lc:50:640").expect("a stack"), 4);
    let (face, lc) = (&face.devices[1], &lc.devices[1]);
    assert!(face.mean_write_bytes > 8.0 * 4096.0, "{}", face.mean_write_bytes);
    // One write in ten begins the ring of ten segments anew.
    assert!(face.sequential_writes > 0.85, "{}", face.sequential_writes);
    assert!(lc.mean_write_bytes < 1.5 * 4096.0 && lc.sequential_writes < 0.5, "{lc:?}");
}

/// The trace's own times: requests a millisecond apart never wait for each other on a fast hierarchy.
#[test]
fn an_open_loop_follows_the_trace() {
    let trace = traced("loop:n=1000:pages=10:gap=1000");
    let addresses = Addresses::new(&trace);
    let fast =
        Hierarchy { tiers: vec![("c".to_owned(), device(100, 100))], backing: ("d".to_owned(), device(500, 500)) };
    let layers = parse_stack("lru:10").expect("a stack");
    let options = TimedOptions { clients: 0, ..TimedOptions::default() };
    let (_, row) =
        run_timed(&addresses, &layers, String::new(), fast, &CellOptions::default(), &options).expect("a run");
    assert_eq!(row.requests, 1000);
    assert!((row.elapsed_seconds - 0.999).abs() < 1e-3, "{}", row.elapsed_seconds);
    assert!(row.latencies[0].max_us <= 0.51);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let trace = traced("zipf:n=100:pages=50");
    let addresses = Addresses::new(&trace);
    let layers = parse_stack("lru:10").expect("a stack");
    let run = |hierarchy| {
        run_timed(&addresses, &layers, String::new(), hierarchy, &CellOptions::default(), &TimedOptions::default())
    };
    assert!(matches!(run(hierarchy(2)), Err(TimedError::Devices { .. })));
    let fixed = Fixed { read_ns: 1, write_ns: 1, capacity: 4096, free_at: 0, wear: Wear::default() };
    let small = Hierarchy { backing: ("tiny".to_owned(), Box::new(Queued::new(fixed))), ..hierarchy(1) };
    let error = run(small).expect_err("too small").to_string();
    assert!(error.contains("below (tiny)"), "{error}");
}
