//! Modes of writing against a plain LRU that is counted here, and with time against sums of its requests.

use entresol_core::{Op, Size};
use entresol_device::{Calendar, Completion, Device, Io, IoKind, Latency, Nanos, Queued, Wear};
use entresol_sim::{
    Addresses, CellOptions, Hierarchy, LayerSpec, Mode, Row, TimedOptions, TimedRow, parse_policies, parse_stack,
    run_cell, run_timed,
};
use entresol_trace::{Trace, generate};

const READ_NS: [Nanos; 2] = [100, 50_000];
const WRITE_NS: [Nanos; 2] = [300, 70_000];

fn trace() -> Trace {
    let spec = "zipf:n=9k:pages=400:seed=5:write=30:update=20 | loop:n=2k:pages=90:write=60";
    generate(&spec.parse().expect("a trace specification"))
}

fn layers(policy: &str, pages: u64) -> Vec<LayerSpec> {
    let policy = parse_policies(policy).expect("a policy").remove(0);
    vec![LayerSpec { policy, sizes: vec![Size::Pages(pages)] }]
}

fn row(trace: &Trace, layers: &[LayerSpec], mode: Mode) -> Row {
    let options = CellOptions { mode, drain: true, ..CellOptions::default() };
    run_cell(&Addresses::new(trace), layers, String::new(), &options).expect("a cell")
}

/// Counts of an LRU whose pages are never dirty.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counted {
    read_hits: u64,
    write_hits: u64,
    fetches: u64,
    admissions: u64,
    throughs: u64,
    arounds: u64,
}

/// A list of pages, the newest first; in write-around a write of a page that is not in it leaves it as it is.
fn counted(trace: &Trace, capacity: usize, around: bool) -> Counted {
    let (mut counted, mut newest_first) = (Counted::default(), Vec::new());
    for at in 0..trace.len() {
        let request = trace.request(at);
        let found = newest_first.iter().position(|&page| page == request.page);
        match (request.op, found) {
            (Op::Read, Some(_)) => counted.read_hits += 1,
            (_, Some(_)) => counted.write_hits += 1,
            (Op::Read | Op::Update, None) => counted.fetches += 1,
            (Op::Write, None) => {}
        }
        if around && found.is_none() && request.op.is_write() {
            counted.arounds += 1;
            continue;
        }
        counted.throughs += u64::from(request.op.is_write());
        match found {
            Some(position) => {
                newest_first.remove(position);
            }
            None => counted.admissions += 1,
        }
        newest_first.insert(0, request.page);
        newest_first.truncate(capacity);
    }
    counted
}

#[test]
fn an_lru_counts_what_a_list_of_pages_counts() {
    let trace = trace();
    let writes = (0..trace.len()).filter(|&at| trace.request(at).op.is_write()).count() as u64;
    for capacity in [1, 7, 60, 300, 1000] {
        for mode in [Mode::WriteThrough, Mode::WriteAround] {
            let row = row(&trace, &layers("lru", capacity), mode);
            let simulated = Counted {
                read_hits: row.read_hits,
                write_hits: row.write_hits,
                fetches: row.fetches,
                admissions: row.admissions,
                throughs: row.write_throughs,
                arounds: row.write_arounds,
            };
            assert_eq!(simulated, counted(&trace, capacity as usize, mode == Mode::WriteAround), "{capacity} {mode:?}");
            assert_eq!(row.written_below(), writes, "{capacity} {mode:?}");
            let none = (row.write_backs, row.write_back_ios, row.dirty_at_end, row.drain_ios);
            assert_eq!(none, (0, 0, 0, Some(0)), "{capacity} {mode:?}");
        }
    }
}

/// A policy for reads and writes alike admits and finds the same pages in write-back and in write-through.
#[test]
fn write_through_changes_what_is_written_and_not_what_is_found() {
    let trace = trace();
    for policy in ["lru", "arc", "cflru", "s3-fifo", "face-gsc", "wrb"] {
        let [back, through] = [Mode::WriteBack, Mode::WriteThrough].map(|mode| row(&trace, &layers(policy, 120), mode));
        let found = |row: &Row| (row.read_hits, row.write_hits, row.fetches, row.admissions, row.bypasses);
        assert_eq!(found(&back), found(&through), "{policy}");
        assert_eq!((back.write_throughs, back.write_arounds), (0, 0), "{policy}");
        assert_eq!((through.write_backs, through.written_below()), (0, through.writes), "{policy}");
        assert!(back.write_backs > 0 && through.tiers.iter().all(|tier| tier.written_back == 0), "{policy}");
    }
}

#[test]
fn layers_above_the_lowest_write_back() {
    let trace = trace();
    let stack = parse_stack("lru:50,lru:200").expect("a stack");
    let [back, through] = [Mode::WriteBack, Mode::WriteThrough].map(|mode| row(&trace, &stack, mode));
    let sent = through.layers[0].write_backs;
    assert!(sent > 0 && sent < through.writes);
    assert_eq!((through.layers[0].clone(), through.written_below()), (back.layers[0].clone(), sent));
    assert!(through.dirty_at_end > 0 && through.dirty_at_end <= 50, "{} of the upper layer", through.dirty_at_end);
}

/// A device that serves all I/Os at once, each in a fixed time.
struct Fixed {
    read_ns: Nanos,
    write_ns: Nanos,
}

impl Calendar for Fixed {
    fn serve(&mut self, now: Nanos, io: Io) -> Completion {
        let media = if io.kind == IoKind::Write { self.write_ns } else { self.read_ns };
        let latency = Latency { media, ..Latency::default() };
        Completion { tag: io.tag, submitted: now, finished: now + media, latency }
    }

    fn capacity_bytes(&self) -> u64 {
        1 << 40
    }

    fn wear(&self) -> Wear {
        Wear::default()
    }
}

fn timed(trace: &Trace, layers: &[LayerSpec], mode: Mode) -> (Row, TimedRow) {
    let device = |at: usize| -> (String, Box<dyn Device>) {
        (at.to_string(), Box::new(Queued::new(Fixed { read_ns: READ_NS[at], write_ns: WRITE_NS[at] })))
    };
    let hierarchy = Hierarchy { tiers: vec![device(0)], backing: device(1) };
    let options = CellOptions { mode, drain: true, ..CellOptions::default() };
    let timed = TimedOptions { background: 1 << 20, ..TimedOptions::default() };
    run_timed(&Addresses::new(trace), layers, String::new(), hierarchy, &options, &timed).expect("a run")
}

/// With one requester the time is the sum of its foreground: each write takes a write of the cache, if it keeps the
/// page, and one of the backing store.
#[test]
fn the_requester_waits_for_the_backing_store() {
    let trace = trace();
    for mode in [Mode::WriteThrough, Mode::WriteAround] {
        let layers = layers("lru", 60);
        let (row_timed, timed) = timed(&trace, &layers, mode);
        let untimed = row(&trace, &layers, mode);
        assert_eq!(Row { cpu_seconds: 0.0, ..row_timed }, Row { cpu_seconds: 0.0, ..untimed.clone() }, "{mode:?}");
        let below = &timed.devices[1];
        assert_eq!((below.reads, below.writes), (untimed.fetches, untimed.writes), "{mode:?}");
        let sum = untimed.read_hits * READ_NS[0]
            + untimed.write_throughs * WRITE_NS[0]
            + untimed.fetches * READ_NS[1]
            + untimed.writes * WRITE_NS[1];
        let mean_us = timed.latencies[0].mean_us * trace.len() as f64;
        assert!((mean_us * 1e3 / sum as f64 - 1.0).abs() < 0.01, "{mode:?}: {mean_us} us, not {sum} ns");
    }
}
