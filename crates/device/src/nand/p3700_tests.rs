//! The drive of paper 002 beside the paper: N5 to N8 and U1.

use super::*;
use crate::load::{Histogram, Load, closed_loop, closed_loop_from};
use crate::nand::NandParameters;

const GIB: u64 = 1 << 30;

fn drive(gib: u64, overwrites: f64) -> Ssd {
    let mut ssd = Ssd::new(NandParameters::p3700_2tb().scaled_to(gib * GIB)).expect("a possible drive");
    ssd.precondition(overwrites, 41);
    ssd
}

fn uniform(seed: u64, capacity: u64, bytes: u32, io: fn(u64, u32) -> Io) -> impl FnMut(u64) -> Io {
    let mut random = Random::new(seed);
    move |_| io(random.below(capacity / u64::from(bytes)) * u64::from(bytes), bytes)
}

fn sequential(capacity: u64, bytes: u32, io: fn(u64, u32) -> Io) -> impl FnMut(u64) -> Io {
    move |n| io(n * u64::from(bytes) % (capacity - capacity % u64::from(bytes)), bytes)
}

/// When the background submits.
#[derive(Clone, Copy)]
enum Background {
    /// Every so many nanoseconds.
    Every(Nanos),
    /// As soon as its last I/O is done.
    OneAtATime,
}

/// Latencies of `count` I/Os one at a time beside a background.
fn beside(
    ssd: &mut Ssd,
    mut front: impl FnMut(u64) -> Io,
    count: u64,
    mut back: impl FnMut(u64) -> Io,
    background: Background,
) -> Histogram {
    const BACK: u64 = u64::MAX;
    let mut histogram = Histogram::default();
    let mut done = Vec::new();
    let (mut next_back, mut backs, mut fronts) = (0, 0, 0);
    let mut next_front = Some(0);
    while histogram.count() < count {
        let submission = next_front.unwrap_or(BACK).min(next_back);
        let at = submission.min(ssd.next_event().unwrap_or(BACK));
        ssd.advance(at, &mut done);
        for completion in done.drain(..) {
            if completion.tag != BACK {
                histogram.record(completion.finished - completion.submitted);
                next_front = Some(at);
            } else if matches!(background, Background::OneAtATime) {
                next_back = at;
            }
        }
        if next_back <= at {
            ssd.submit(at, Io { tag: BACK, ..back(backs) }).expect("inside");
            backs += 1;
            next_back = match background {
                Background::Every(gap) => next_back + gap,
                Background::OneAtATime => BACK,
            };
        }
        if next_front.is_some_and(|front| front <= at) {
            ssd.submit(at, Io { tag: fronts, ..front(fronts) }).expect("inside");
            fronts += 1;
            next_front = None;
        }
    }
    histogram
}

fn gap(bytes: u32, mb_s: u64) -> Background {
    Background::Every(u64::from(bytes) * 1000 / mb_s)
}

#[test]
fn n5() {
    let mut ssd = drive(4, 0.0);
    for depth in [1, 2, 4, 8, 16, 32, 64, 128] {
        let load = closed_loop(&mut ssd.clone(), depth, 20_000, sequential(4 * GIB, 4096, Io::read));
        let random = closed_loop(&mut ssd.clone(), depth, 20_000, uniform(42, 4 * GIB, 4096, Io::read));
        println!(
            "depth {depth}: seq {:.1} us {:.0} MB/s; random {:.1} us {:.0} MB/s",
            load.latency.mean() / 1e3,
            load.megabytes_per_second(),
            random.latency.mean() / 1e3,
            random.megabytes_per_second()
        );
    }
    let load = closed_loop(&mut ssd, 1, 20_000, uniform(42, 4 * GIB, 4096, Io::write));
    println!("write {:.1}", load.latency.mean() / 1e3);
}

#[test]
fn n6() {
    let ssd = drive(4, 0.0);
    let alone = |front: &mut dyn FnMut(u64) -> Io| closed_loop(&mut ssd.clone(), 1, 20_000, front).latency.mean();
    let seq = alone(&mut sequential(4 * GIB, 4096, Io::read));
    let wr = alone(&mut sequential(4 * GIB, 4096, Io::write));
    for kib in [4u32, 16, 64, 128, 256] {
        let back = || uniform(44, 4 * GIB, kib << 10, Io::read);
        let a =
            beside(&mut ssd.clone(), sequential(4 * GIB, 4096, Io::read), 5000, back(), gap(kib << 10, 1500)).mean();
        let b =
            beside(&mut ssd.clone(), sequential(4 * GIB, 4096, Io::write), 5000, back(), gap(kib << 10, 1500)).mean();
        let c =
            beside(&mut ssd.clone(), uniform(45, 4 * GIB, 4096, Io::write), 5000, back(), gap(kib << 10, 1500)).mean();
        println!(
            "{kib} KiB: seq read {:.1} x{:.2}, seq write {:.1} x{:.2}, random write {:.1} x{:.2}",
            a / 1e3,
            a / seq,
            b / 1e3,
            b / wr,
            c / 1e3,
            c / wr
        );
    }
    for kib in [4u32, 16, 64, 128, 256] {
        let mut ssd = drive(4, 0.0);
        let back = || uniform(46, 4 * GIB, kib << 10, Io::write);
        let a =
            beside(&mut ssd.clone(), sequential(4 * GIB, 4096, Io::read), 5000, back(), gap(kib << 10, 1500)).mean();
        let b = beside(&mut ssd, uniform(45, 4 * GIB, 4096, Io::read), 5000, back(), gap(kib << 10, 1500)).mean();
        println!("under writes {kib} KiB: seq read {:.1}, random read {:.1}", a / 1e3, b / 1e3);
    }
}

fn row(name: &str, h: &Histogram, expected: [f64; 6]) {
    let got = [0.5, 0.99, 0.995, 0.999, 0.9995, 0.9999].map(|q| h.quantile(q) as f64 / 1e3);
    println!(
        "{name} ({}): {:?}",
        h.count(),
        got.iter()
            .zip(expected)
            .map(|(g, e)| format!("{g:.0}/{e} ({:+.0} %)", (g / e - 1.0) * 100.0))
            .collect::<Vec<_>>()
    );
}

#[test]
fn n8() {
    let ssd = drive(4, 0.0);
    let reads = || uniform(47, 4 * GIB, 4096, Io::read);
    let load = closed_loop(&mut ssd.clone(), 1, 200_000, reads());
    row("baseline", &load.latency, [90., 141., 159., 182., 186., 297.]);
    for kib in [4u32, 64, 128] {
        for (mb, expected) in [
            (200, [92., 148., 162., 179., 189., 318.]),
            (400, [97., 151., 167., 190., 208., 344.]),
            (800, [101., 212., 253., 343., 449., 832.]),
        ] {
            let h = beside(
                &mut ssd.clone(),
                reads(),
                100_000,
                uniform(48, 4 * GIB, kib << 10, Io::read),
                gap(kib << 10, mb),
            );
            row(&format!("{mb} by {kib} KiB"), &h, expected);
        }
    }
    let mut worn = drive(4, 1.0);
    let h = beside(&mut worn, reads(), 100_000, uniform(49, 4 * GIB, 4096, Io::write), Background::OneAtATime);
    row("gc", &h, [100., 2474., 2737., 2989., 3064., 3228.]);
    // Permutations of the 5,120 pages of 20 MiB.
    let mut order: Vec<u64> = (0..5120).collect();
    let mut random = Random::new(50);
    let next = |n: u64| {
        let at = (n % 5120) as usize;
        order.swap(at, at + random.below(5120 - at as u64) as usize);
        Io::read(order[at] * 4096, 4096)
    };
    let load = closed_loop(&mut drive(4, 1.0), 1, 5120 * 60, next);
    row("disturb", &load.latency, [100., 285., 293., 314., 408., 2089.]);
}

#[test]
fn u1() {
    let ssd = drive(4, 0.0);
    for kib in 1..=17u32 {
        let load = closed_loop(&mut ssd.clone(), 1, 4000, sequential(4 * GIB, kib << 10, Io::write));
        println!("{kib} KiB: {:.1}", load.latency.mean() / 1e3);
    }
}

#[test]
fn n7() {
    let capacity = 8 * GIB;
    let mut ssd = Ssd::new(NandParameters::p3700_2tb().scaled_to(capacity)).expect("a possible drive");
    let ios = capacity / 16384;
    let mut order: Vec<u64> = (0..ios).collect();
    let mut random = Random::new(51);
    for at in 0..order.len() {
        let to = at + random.below((order.len() - at) as u64) as usize; order.swap(at, to);
    }
    let mut load = closed_loop(&mut ssd, 256, ios, |n| Io::write(order[n as usize] * 16384, 16384));
    println!("fill {:.0} MB/s", load.megabytes_per_second());
    let file = &order[(ios - ios * 15 / 200) as usize..];
    let mut v = Vec::new();
    for chunk in file.chunks(1000) {
        load = closed_loop_from(&mut ssd, load.finished(), 256, chunk.len() as u64, |n| {
            Io::write(chunk[n as usize] * 16384, 16384)
        });
        v.push(load.megabytes_per_second().round());
    }
    println!("overwrite {v:?} {:?}", ssd.wear());
}
