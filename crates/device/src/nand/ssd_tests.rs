use super::*;
use crate::load::{Load, closed_loop, closed_loop_from};
use crate::nand::{Amplification, Cleaning};

/// A drive of `gib` GiB, overwritten so often.
fn drive(p: NandParameters, gib: u64, overwrites: f64) -> Ssd {
    let mut ssd = Ssd::new(p.scaled_to(gib << 30)).expect("a possible drive");
    ssd.precondition(overwrites, 31);
    ssd
}

/// Uniform random I/Os of so many bytes, aligned to their size.
fn uniform(seed: u64, capacity: u64, bytes: u32, io: fn(u64, u32) -> Io) -> impl FnMut(u64) -> Io {
    let mut random = Random::new(seed);
    move |_| io(random.below(capacity / u64::from(bytes)) * u64::from(bytes), bytes)
}

fn sequential(capacity: u64, bytes: u32, io: fn(u64, u32) -> Io) -> impl FnMut(u64) -> Io {
    move |n| io(n * u64::from(bytes) % (capacity - capacity % u64::from(bytes)), bytes)
}

/// N1's four figures: random 4-KiB read and write IOPS, sequential 128-KiB read and write MB/s, in steady state.
fn table_1(p: NandParameters, depth: usize) -> [f64; 4] {
    let capacity = 2 << 30;
    let mut fresh = drive(p.clone(), 2, 0.0);
    let write = closed_loop(&mut fresh, 32, 24_000, sequential(capacity, 128 << 10, Io::write));
    let read = closed_loop_from(&mut fresh, write.finished(), 32, 8000, sequential(capacity, 128 << 10, Io::read));
    let mut worn = drive(p, 2, 3.0);
    let reads = closed_loop(&mut worn, depth, 100_000, uniform(32, capacity, 4096, Io::read));
    let warm = closed_loop_from(&mut worn, reads.finished(), depth, 50_000, uniform(33, capacity, 4096, Io::write));
    let before = worn.wear();
    let writes = closed_loop_from(&mut worn, warm.finished(), depth, 400_000, uniform(34, capacity, 4096, Io::write));
    let after = worn.wear();
    println!("WAF {:.3}", (after.media_written_bytes - before.media_written_bytes) as f64 / (400_000.0 * 4096.0));
    [reads.iops(), writes.iops(), read.megabytes_per_second(), write.megabytes_per_second()]
}

fn within(name: &str, got: &[f64], expected: &[f64], tolerance: f64) {
    for (got, expected) in got.iter().zip(expected) {
        println!("{name}: {got:.1}, expected {expected} ({:+.1} %)", (got / expected - 1.0) * 100.0);
    }
    for (got, expected) in got.iter().zip(expected) {
        assert!((got / expected - 1.0).abs() <= tolerance, "{name}: {got} for {expected}");
    }
}

#[test]
fn n1_s840() {
    within("840 Pro", &table_1(NandParameters::s840_pro(), 32), &[65_803.0, 13_979.0, 534.0, 398.0], 0.05);
}
#[test]
fn n1_s3500() {
    within("s3500", &table_1(NandParameters::s3500(), 32), &[60_311.0, 21_572.0, 470.0, 425.0], 0.05);
}
#[test]
fn n1_p3700() {
    within("p3700", &table_1(NandParameters::p3700(), 256), &[457_355.0, 86_949.0, 2671.0, 676.0], 0.05);
}
#[test]
fn n1_evo() {
    within("evo", &table_1(NandParameters::evo_850(), 32), &[98_591.0, 6094.0, 518.0, 300.0], 0.05);
}

/// The drive that MQSim simulated: 4 channels of 2 chips, 75 us, 333 MB/s channels, 4 GB/s to the host, no buffer.
fn mqsim() -> NandParameters {
    NandParameters {
        channels: 4,
        chips_per_channel: 2,
        planes_per_die: 1,
        page_bytes: 4096,
        sense_us: vec![(1.0, 75.0)],
        channel_mb_s: 333.0,
        link_mb_s: 4000.0,
        command_us: 0.0,
        fixed_read_us: 0.0,
        buffer_bytes: 0,
        read_ahead_bytes: 0,
        ..NandParameters::s840_pro()
    }
}

/// N4.
#[test]
fn random_reads_queue_as_in_mqsim() {
    for (depth, expected) in [(1, 88.0), (4, 111.0), (16, 234.0), (64, 811.0)] {
        let mut ssd = drive(mqsim(), 1, 0.0);
        let load = closed_loop(&mut ssd, depth, 20_000, uniform(35, 1 << 30, 4096, Io::read));
        within(&format!("depth {depth}"), &[load.latency.mean() / 1000.0], &[expected], 0.10);
    }
    for (kib, expected) in [(8u32, 90.0), (32, 109.0), (128, 439.0)] {
        let mut ssd = drive(mqsim(), 1, 0.0);
        let load = closed_loop(&mut ssd, 1, 4000, uniform(36, 1 << 30, kib << 10, Io::read));
        within(&format!("{kib} KiB"), &[load.latency.mean() / 1000.0], &[expected], 0.50);
    }
}
