//! The builder against a plain model: splitting, numbering, sequential marks, next use.

use entresol_core::{NEVER, Op, Random};
use entresol_trace::{BuildOptions, ObjectKind, OpByte, Record, Split, Trace, TraceBuilder, Unit};
use std::collections::HashMap;

#[derive(Clone, Copy)]
struct Io {
    op: Op,
    stream: u32,
    object: u32,
    offset: u64,
    size: u64,
}

fn options(split: Split, unit: Unit, page_bytes: u32) -> BuildOptions {
    BuildOptions { page_bytes, split, unit, keep_logs: false, limit: None, times: true, marks: false }
}

fn builder(options: BuildOptions, objects: u32) -> TraceBuilder {
    let mut builder = TraceBuilder::new(options).expect("a builder");
    for object in 0..objects {
        let name = format!("o{object}");
        builder.push(Record::Object { object, name, kind: ObjectKind::Data }).expect("declared");
    }
    builder
}

fn build(ios: &[Io], options: BuildOptions) -> Trace {
    let mut builder = builder(options, 4);
    for (i, &Io { op, stream, object, offset, size }) in ios.iter().enumerate() {
        let record = Record::Io { time_us: i as u64, op, stream, object, offset, size, next_use: None };
        builder.push(record).expect("a valid I/O");
    }
    builder.finish().expect("requests").0
}

/// Page requests of one I/O, straight from the rules: identity of the page within the object, block, operation.
fn split_by_the_rules(io: Io, split: Split, unit: Unit, page: u64) -> Vec<(u64, u64, Op)> {
    let Io { op, offset, size, .. } = io;
    match (unit, split) {
        (Unit::Pages, _) => (offset..offset + size).map(|block| (block, block, op)).collect(),
        (_, Split::Touch) => (offset / page..=(offset + size - 1) / page)
            .map(|block| {
                let covered = (offset + size).min((block + 1) * page) - offset.max(block * page);
                let op = if op == Op::Write && covered < page { Op::Update } else { op };
                (block, block, op)
            })
            .collect(),
        (_, Split::Exp) => (0..size.div_ceil(page)).map(|i| offset + page * i).map(|at| (at, at / page, op)).collect(),
        (_, Split::Fan) => (offset / page..offset / page + size.div_ceil(page))
            .take_while(|block| block * page / (256 << 10) == offset / page * page / (256 << 10))
            .map(|block| (block, block, op))
            .collect(),
    }
}

#[test]
fn splitting_numbering_and_runs_equal_the_model() {
    let seed = 20;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    for round in 0..60 {
        let page = [512u64, 4096, 8192][round % 3];
        let unit = if round % 5 == 4 { Unit::Pages } else { Unit::Bytes };
        let split = Split::ALL[random.below(3) as usize];
        let mut at = 0;
        let ios: Vec<Io> = (0..400)
            .map(|_| {
                let size = 1 + random.below(if unit == Unit::Pages { 6 } else { 6 * page });
                // Half of the I/Os continue where the last one ended; offsets are sector-aligned or odd.
                let offset = match random.below(4) {
                    0 | 1 => at,
                    2 => random.below(60) * 512,
                    _ => random.below(60 * page),
                };
                at = offset + size;
                let op = [Op::Read, Op::Write, Op::Update][random.below(3) as usize];
                Io { op, stream: random.below(3) as u32, object: random.below(4) as u32, offset, size }
            })
            .collect();
        let trace = build(&ios, options(split, unit, page as u32));

        let step = if unit == Unit::Bytes && split == Split::Exp { page } else { 1 };
        let mut numbers: HashMap<(u32, u64), u32> = HashMap::new();
        let mut objects: Vec<u32> = Vec::new();
        let mut last: HashMap<(u32, u32, bool), u64> = HashMap::new();
        let mut i = 0;
        for (time, &io) in ios.iter().enumerate() {
            for (k, (place, block, op)) in split_by_the_rules(io, split, unit, page).into_iter().enumerate() {
                let next = numbers.len() as u32;
                let number = *numbers.entry((io.object, place)).or_insert(next);
                assert_eq!(trace.pages[i], number, "request {i}");
                if !objects.contains(&io.object) {
                    objects.push(io.object);
                }
                let address = trace.address(trace.request(i).page);
                assert_eq!(objects[address.object.index()], io.object);
                assert_eq!(address.block, block);
                let before = last.insert((io.stream, io.object, op.is_write()), place);
                let sequential = before == Some(place.wrapping_sub(step));
                assert_eq!(OpByte(trace.ops[i]), OpByte::new(op, sequential, k == 0), "request {i}");
                assert_eq!(trace.times_us.as_ref().expect("times")[i], time as u64);
                i += 1;
            }
        }
        assert_eq!((trace.len(), trace.footprint()), (i, numbers.len()));
        for (object, number) in trace.objects.iter().zip(&objects) {
            let blocks = numbers
                .keys()
                .filter(|(o, _)| o == number)
                .map(|(_, place)| if step == 1 { *place } else { place / page });
            assert_eq!(object.pages, blocks.max().expect("a page") + 1);
        }
    }
}

#[test]
fn next_use_equals_a_search_ahead() {
    let seed = 21;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let ios: Vec<Io> = (0..2000)
        .map(|_| Io { op: Op::Read, stream: 0, object: 0, offset: random.below(300), size: 1 + random.below(3) })
        .collect();
    let mut trace = build(&ios, options(Split::Touch, Unit::Pages, 4096));
    trace.compute_next_use();
    let check = |trace: &Trace| {
        let next_use = trace.next_use.as_ref().expect("next use");
        for (i, page) in trace.pages.iter().enumerate() {
            let found =
                trace.pages[i + 1..].iter().position(|other| other == page).map_or(NEVER, |d| (i + 1 + d) as u32);
            assert_eq!(next_use[i], found, "request {i}");
        }
    };
    check(&trace);
    trace.truncate(1234);
    assert_eq!((trace.len(), trace.ops.len()), (1234, 1234));
    assert_eq!(trace.footprint() as u32, trace.pages.iter().max().expect("a page") + 1);
    check(&trace);
}

#[test]
fn a_limit_cuts_within_an_io() {
    let mut builder = builder(BuildOptions { limit: Some(5), ..options(Split::Touch, Unit::Bytes, 4096) }, 1);
    let io =
        |offset| Record::Io { time_us: 0, op: Op::Read, stream: 0, object: 0, offset, size: 3 * 4096, next_use: None };
    assert!(builder.push(io(0)).expect("valid"));
    assert!(!builder.push(io(1 << 20)).expect("valid"));
    assert_eq!(builder.finish().expect("requests").0.pages.to_vec(), [0, 1, 2, 3, 4]);
}

#[test]
fn addresses_at_the_end_of_the_range() {
    for split in Split::ALL {
        let mut builder = builder(options(split, Unit::Bytes, 4096), 1);
        let io =
            |offset, size| Record::Io { time_us: 0, op: Op::Write, stream: 0, object: 0, offset, size, next_use: None };
        builder.push(io(u64::MAX - 4999, 5000)).expect("the last byte is 2^64 - 1");
        assert!(builder.push(io(u64::MAX - 4999, 5001)).is_err());
        assert!(builder.push(io(0, (1 << 30) + 1)).is_err());
        assert!(builder.push(io(0, 0)).is_err());
        let (trace, _) = builder.finish().expect("requests");
        assert_eq!(trace.len(), 2, "{split}");
    }
    let mut builder = builder(options(Split::Touch, Unit::Pages, 4096), 1);
    let record =
        Record::Io { time_us: 0, op: Op::Read, stream: 0, object: 0, offset: u64::MAX, size: 1, next_use: None };
    builder.push(record).expect("the last page");
    let (trace, _) = builder.finish().expect("requests");
    assert_eq!((trace.page_block[0], trace.objects[0].pages), (u64::MAX, u64::MAX));
}

#[test]
fn times_never_run_backwards() {
    let mut builder = builder(options(Split::Touch, Unit::Pages, 4096), 1);
    for time_us in [5, 9, 7, 9, 12] {
        let record = Record::Io { time_us, op: Op::Read, stream: 0, object: 0, offset: 1, size: 1, next_use: None };
        builder.push(record).expect("valid");
    }
    let (trace, _) = builder.finish().expect("requests");
    assert_eq!(trace.times_us.expect("times").to_vec(), [5, 9, 9, 9, 12]);
}
