//! The model of the P4800X against the measurements of 002 (section, table or figure at each test). Values noted as
//! "measured" are the model's at the time of writing; `--nocapture` prints all of them.

use entresol_core::Random;
use entresol_device::load::{Histogram, Load, closed_loop};
use entresol_device::profile::{self, Profile};
use entresol_device::{Device, Io, IoKind, Nanos};

const CAPACITY: u64 = 8 << 30;
const KIB: u32 = 1024;
const SEED: u64 = 20;

fn p4800x() -> Profile {
    profile::load("p4800x").expect("a profile of the house")
}

/// The device without its host: 002's "raw" latency.
fn raw() -> Box<dyn Device + Send> {
    Profile { host: None, ..p4800x() }.build(CAPACITY, SEED).expect("a device")
}

fn io(kind: IoKind, offset: u64, bytes: u32) -> Io {
    Io { kind, ..Io::read(offset, bytes) }
}

/// An aligned random offset, below `span` bytes.
fn anywhere(random: &mut Random, span: u64, bytes: u32) -> u64 {
    random.below(span / u64::from(bytes)) * u64::from(bytes)
}

/// `count` I/Os at a queue depth on a new device, sequential or random.
fn load(mut device: Box<dyn Device + Send>, kind: IoKind, random: bool, bytes: u32, depth: usize, count: u64) -> Load {
    let mut offsets = Random::new(SEED);
    closed_loop(&mut device, depth, count, |i| {
        let sequential = i * u64::from(bytes) % (CAPACITY - u64::from(bytes));
        io(kind, if random { anywhere(&mut offsets, CAPACITY, bytes) } else { sequential }, bytes)
    })
}

fn assert_near(what: &str, found: f64, expected: f64, tolerance: f64) {
    let off = found / expected - 1.0;
    println!("{what}: {found:.2}, expected {expected:.2} ({:+.1} %)", 100.0 * off);
    assert!(off.abs() <= tolerance, "{what}: {found:.2}, expected {expected:.2} within {tolerance}, seed {SEED}");
}

const PATTERNS: [(IoKind, bool); 4] =
    [(IoKind::Read, false), (IoKind::Read, true), (IoKind::Write, false), (IoKind::Write, true)];

/// O1, section 4.1.
#[test]
fn latency_at_depth_1_is_the_same_for_any_pattern() {
    for (kind, random) in PATTERNS {
        let load = load(p4800x().build(CAPACITY, SEED).expect("a device"), kind, random, 4 * KIB, 1, 200_000);
        let expected = if kind == IoKind::Read { 10_720.0 } else { 11_950.0 };
        assert_near(&format!("{kind:?}, random {random}"), load.latency.mean(), expected, 0.05);
    }
}

/// O2, section 4.2, figure 4: "saturated" is at least 95 % of the bandwidth at depth 256.
#[test]
fn saturates_at_depth_4_up_to_16_kib_and_at_depth_2_from_32_kib() {
    for (kind, random) in PATTERNS {
        for kib in [4, 8, 16, 32, 64, 128, 256] {
            let at = |depth| {
                let device = p4800x().build(CAPACITY, SEED).expect("a device");
                load(device, kind, random, kib * KIB, depth, 20_000).megabytes_per_second()
            };
            let (one, two, four, full) = (at(1), at(2), at(4), at(256));
            println!("{kind:?} random {random} {kib} KiB: {one:.0} {two:.0} {four:.0} {full:.0} MB/s");
            let saturated = |megabytes: f64| megabytes >= 0.95 * full;
            assert!(!saturated(one), "{kib} KiB at depth 1");
            assert_eq!(saturated(two), kib >= 32, "{kib} KiB at depth 2");
            assert!(saturated(four), "{kib} KiB at depth 4");
            let peak = match (kib, kind) {
                (4, _) => 1_200.0,
                (8, IoKind::Read) => 2_400.0,
                (_, IoKind::Read) => 2_500.0,
                _ => 2_100.0,
            };
            assert_near(&format!("{kib} KiB peak"), full, peak, 0.02);
        }
    }
}

/// O4, section 4.5, figure 7: overwriting a full device in 16 KiB at depth 256 runs at 2.13 to 2.14 GB/s throughout.
/// The model's 2.10 GB/s is section 4.2's "2 GB/s" and this figure in one number.
#[test]
fn overwriting_is_as_steady_as_it_was_at_first() {
    let mut device = p4800x().build(CAPACITY, SEED).expect("a device");
    let mut random = Random::new(SEED);
    let mut now = 0;
    let mut rates = Vec::new();
    for _ in 0..40 {
        let next = |_| Io::write(anywhere(&mut random, CAPACITY, 16 * KIB), 16 * KIB);
        let load = entresol_device::load::closed_loop_from(&mut device, now, 256, 20_000, next);
        now = load.finished();
        rates.push(load.megabytes_per_second());
    }
    let (low, high) = rates.iter().fold((f64::MAX, 0.0_f64), |(low, high), &rate| (low.min(rate), high.max(rate)));
    assert_near("slowest part", low, 2_130.0, 0.02);
    assert_near("fastest part", high, 2_140.0, 0.025);
    assert!((high - low) / high <= 0.005, "{low} to {high} MB/s");
    assert_eq!(device.wear().write_amplification(), 1.0, "updates are in place");
}

/// O5, section 4.6, figure 8: random reads of a file, three rounds, show no jump where a buffer would end.
#[test]
fn no_file_is_small_enough_to_be_buffered() {
    let quantiles = |megabytes: u64| {
        let mut device = raw();
        let mut random = Random::new(SEED);
        let span = megabytes << 20;
        let load = closed_loop(&mut device, 1, 3 * span / 4096, |_| Io::read(anywhere(&mut random, span, 4096), 4096));
        [load.latency.quantile(0.3) as f64, load.latency.quantile(0.4) as f64, load.latency.mean()]
    };
    let largest = quantiles(64);
    for megabytes in [1, 2, 4, 6, 8, 10, 12, 16, 20, 32] {
        for (found, expected) in quantiles(megabytes).into_iter().zip(largest) {
            assert_near(&format!("{megabytes} MB"), found, expected, 0.03);
        }
    }
}

/// O6, section 4.6, figure 10: period and cost of the refresh, from latencies alone.
#[test]
fn the_refresh_is_found_from_the_latencies_of_one_page() {
    let mut device = p4800x().build(CAPACITY, SEED).expect("a device");
    let mut latencies: Vec<Nanos> = Vec::new();
    let (mut now, mut done) = (0, Vec::new());
    for _ in 0..3_000 {
        device.submit(now, Io::read(1 << 20, 4096)).expect("within the device");
        device.advance(Nanos::MAX, &mut done);
        let completion = done.pop().expect("the read completed");
        now = completion.finished;
        latencies.push(completion.finished - completion.submitted);
    }
    let median = |values: &mut Vec<Nanos>| {
        values.sort_unstable();
        values[values.len() / 2]
    };
    let usual = median(&mut latencies.clone());
    let peaks: Vec<usize> = (0..latencies.len()).filter(|&i| latencies[i] > usual + 10_000).collect();
    let mut gaps: Vec<Nanos> = peaks.windows(2).map(|pair| (pair[1] - pair[0]) as Nanos).collect();
    let mut costs: Vec<Nanos> = peaks.iter().map(|&i| latencies[i] - usual).collect();
    assert_near("reads between two refreshes", median(&mut gaps) as f64, 30.0, 0.05);
    assert_near("ns of a refresh", median(&mut costs) as f64, 20_000.0, 0.05);
}

/// Other work of the device during an experiment. 002 gives only the rate of its background. 8-KiB I/Os at random
/// times are the choice under which section 4.3 and table 1 both come out.
#[derive(Clone, Copy)]
enum Background {
    None,
    /// Megabytes per second.
    Rate(IoKind, f64),
    /// 4-KiB writes, one after the other.
    Overwrite,
}

/// Latencies without the host's software of a foreground of 4-KiB I/Os at depth 1, within the first `span` bytes.
/// Foreground and background have threads of their own.
fn foreground(kind: IoKind, random: bool, span: u64, count: u64, background: Background) -> Histogram {
    const FOREGROUND: u64 = 1;
    const BACKGROUND: u64 = 2;
    let mut profile = p4800x();
    profile.host.as_mut().expect("the profile has a host").threads = 4;
    let mut device = profile.build(CAPACITY, SEED).expect("a device");
    let (mut random_here, mut random_there, mut arrivals) = (Random::new(1), Random::new(2), Random::new(3));
    let (rate_kind, mean_gap) = match background {
        Background::Rate(kind, megabytes) => (kind, f64::from(8 * KIB) / megabytes * 1e3),
        _ => (IoKind::Read, f64::INFINITY),
    };
    let mut gap = || -mean_gap * (1.0 - arrivals.next_f64()).ln();
    let mut arrival = gap();

    let mut histogram = Histogram::default();
    let mut submitted = 0;
    let mut next_here = || {
        submitted += 1;
        let offset = if random { anywhere(&mut random_here, span, 4096) } else { submitted * 4096 % span };
        Io { tag: FOREGROUND, ..io(kind, offset, 4096) }
    };
    let mut next_there =
        |kind, bytes| Io { tag: BACKGROUND, ..io(kind, anywhere(&mut random_there, CAPACITY, bytes), bytes) };
    device.submit(0, next_here()).expect("within the device");
    if matches!(background, Background::Overwrite) {
        device.submit(0, next_there(IoKind::Write, 4096)).expect("within the device");
    }
    let mut done = Vec::new();
    while histogram.count() < count {
        let event = device.next_event().expect("the foreground is in flight");
        if arrival < event as f64 {
            let now = arrival as Nanos;
            device.advance(now, &mut done);
            device.submit(now, next_there(rate_kind, 8 * KIB)).expect("within the device");
            arrival += gap();
        } else {
            device.advance(event, &mut done);
        }
        for completion in done.drain(..) {
            let again = match (completion.tag, background) {
                (FOREGROUND, _) => {
                    histogram.record(completion.latency.total() - completion.latency.host);
                    next_here()
                }
                (_, Background::Overwrite) => next_there(IoKind::Write, 4096),
                _ => continue,
            };
            device.submit(completion.finished, again).expect("within the device");
        }
    }
    histogram
}

/// O3, section 4.3, figure 5: the latency that 1,500 MB/s of random reads or writes add to each pattern. The model
/// adds 2.5 us to reads and to writes under reads; under writes 6.5 us to reads and 5.0 us to writes. The model has no
/// difference between sequential and random, so it cannot follow 8.23 and 6.26 us both: off by 21 % and 4 %.
#[test]
fn background_adds_little_and_writes_add_more_than_reads() {
    // In the order of `PATTERNS`.
    for (background, added) in
        [(IoKind::Read, [2_200.0, 2_390.0, 2_620.0, 2_650.0]), (IoKind::Write, [8_230.0, 6_260.0, 4_770.0, 4_600.0])]
    {
        for ((kind, random), expected) in PATTERNS.into_iter().zip(added) {
            let mean = |background| foreground(kind, random, CAPACITY, 200_000, background).mean();
            let found = mean(Background::Rate(background, 1_500.0)) - mean(Background::None);
            assert_near(&format!("{kind:?}, random {random}, under {background:?}"), found, expected, 0.35);
        }
    }
}

/// O7, table 1 (in 000: table 2.1): quantiles of random reads, without the host's software. Its column "90" is the
/// 99th percentile. The farthest off within 30 %: garbage collection, 39.8 us for 33.5 at 99 % and 46.1 for 56.0 at
/// 99.99 %.
#[test]
fn the_tail_is_that_of_the_table() {
    const QUANTILES: [f64; 6] = [0.5, 0.99, 0.995, 0.999, 0.9995, 0.9999];
    const FILE: u64 = 20 << 20;
    let reads = |megabytes| Background::Rate(IoKind::Read, megabytes);
    for (what, background, span, count, row) in [
        ("baseline", Background::None, CAPACITY, 1_000_000, [8.6, 10.6, 13.1, 24.7, 29.1, 44.8]),
        ("200 MB/s", reads(200.0), CAPACITY, 1_000_000, [8.9, 14.5, 16.5, 26.0, 29.3, 45.2]),
        ("400 MB/s", reads(400.0), CAPACITY, 1_000_000, [9.0, 22.4, 23.7, 30.0, 31.4, 49.3]),
        ("800 MB/s", reads(800.0), CAPACITY, 1_000_000, [9.3, 17.5, 19.8, 29.6, 33.0, 54.0]),
        ("garbage collection", Background::Overwrite, CAPACITY, 1_000_000, [9.5, 33.5, 41.2, 45.9, 47.9, 56.0]),
        ("read disturb", Background::None, FILE, 50_000, [8.6, 12.6, 13.4, 24.9, 28.3, 45.7]),
    ] {
        let histogram = foreground(IoKind::Read, true, span, count, background);
        for (q, expected) in QUANTILES.into_iter().zip(row) {
            let tolerance = match (what, q) {
                (_, 0.5) => 0.10,
                // The row lies above that of 800 MB/s, which no model can follow whose queues grow with the load.
                // Measured: 13.8 us for 22.4 and 15.4 us for 23.7.
                ("400 MB/s", 0.99 | 0.995) => 0.40,
                _ => 0.30,
            };
            assert_near(&format!("{what}, {q}"), histogram.quantile(q) as f64 / 1e3, expected, tolerance);
        }
    }
}

/// U1, section 4.4, figure 6(a): three layers of sequential writes that meet at 50 KiB. The paper gives their order,
/// not their height.
#[test]
fn unaligned_writes_lie_in_three_layers_that_meet_at_50_kib() {
    let mean = |kib: u32| load(raw(), IoKind::Write, false, kib * KIB, 1, 2_000).latency.mean();
    let (at_4, at_64) = (mean(4), mean(64));
    let aligned = |kib: u32| at_4 + (at_64 - at_4) * (f64::from(kib.max(4)) - 4.0) / 60.0;
    let gap = |kib: u32| mean(kib) / aligned(kib) - 1.0;
    for kib in 1..=64 {
        println!("{kib} KiB: {:.0} ns, {:.2} % above the aligned line", mean(kib), 100.0 * gap(kib));
        if kib % 4 == 0 {
            assert!(gap(kib).abs() < 0.001, "{kib} KiB");
        } else if kib > 50 {
            assert!(gap(kib).abs() < 0.02, "{kib} KiB");
        } else if kib < 48 {
            assert!(gap(kib) > 0.0, "{kib} KiB");
            let (odd, even) = if kib % 2 == 1 { (kib, kib + 1) } else { (kib + 1, kib) };
            assert!(even % 4 == 0 || gap(odd) > gap(even), "{odd} and {even} KiB");
        }
    }
    for (low, high) in [(5, 13), (13, 45), (6, 14), (14, 46)] {
        assert!(gap(low) > gap(high), "the layers close from {low} to {high} KiB");
    }
}

/// Section 4.2: one job gets at most 1.2 GB/s out of 4 KiB, at any depth, and three jobs reach the device's limit.
#[test]
fn a_thread_of_the_host_caps_4_kib() {
    for (threads, megabytes) in [(1, 1_200.0), (2, 2_400.0), (4, 2_500.0)] {
        let mut profile = p4800x();
        profile.host.as_mut().expect("the profile has a host").threads = threads;
        let load = load(profile.build(CAPACITY, SEED).expect("a device"), IoKind::Read, true, 4 * KIB, 64, 50_000);
        assert_near(&format!("{threads} threads"), load.megabytes_per_second(), megabytes, 0.02);
    }
}
