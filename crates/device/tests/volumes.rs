//! The network volumes of a cloud against what they are sold by: a quota of I/Os, one of bytes, and a latency.

use entresol_core::Random;
use entresol_device::Io;
use entresol_device::load::{Load, closed_loop};
use entresol_device::profile;

const CAPACITY: u64 = 64 << 30;
const KIB: u32 = 1024;
const SEED: u64 = 29;

/// Random reads of so many bytes at a queue depth.
fn reads(volume: &str, bytes: u32, depth: usize) -> Load {
    let mut device = profile::load(volume).expect("a profile").build(CAPACITY, SEED).expect("a device");
    let mut offsets = Random::new(SEED);
    closed_loop(&mut device, depth, 50_000, |_| {
        Io::read(offsets.below(CAPACITY / u64::from(bytes)) * u64::from(bytes), bytes)
    })
}

fn assert_near(what: &str, found: f64, expected: f64) {
    println!("{what}: {found:.1}, expected {expected:.1}");
    assert!((found / expected - 1.0).abs() <= 0.01, "{what}: {found:.1}, expected {expected:.1}, seed {SEED}");
}

#[test]
fn a_busy_volume_has_its_quotas_and_no_more() {
    for (volume, iops, mib_per_s) in [("gp3-3000", 3000.0, 125.0), ("gp3-16000", 16_000.0, 1000.0)] {
        assert_near(&format!("{volume}, I/Os of 8 KiB a second"), reads(volume, 8 * KIB, 256).iops(), iops);
        let large = reads(volume, 256 * KIB, 256).megabytes_per_second() * 1e6 / f64::from(1 << 20);
        assert_near(&format!("{volume}, MiB a second in I/Os of 256 KiB"), large, mib_per_s);
    }
    assert_near("io2, I/Os of 8 KiB a second", reads("io2", 8 * KIB, 256).iops(), 64_000.0);
}

#[test]
fn an_idle_volume_answers_within_the_latency_that_it_is_sold_by() {
    for (volume, bytes, us) in [("gp3-3000", 8 * KIB, 0.5e3..1e3), ("io2", 16 * KIB, 0.0..500.0)] {
        let mean = reads(volume, bytes, 1).latency.mean() / 1e3;
        println!("{volume}: {mean:.0} us");
        assert!(us.contains(&mean), "{volume}: {mean:.0} us, not in {us:?}, seed {SEED}");
    }
}

/// 004: one stream from a node to the parallel file system writes 0.52 GB/s (section 5.1), and all have 30 GB/s together
/// (5.4.2), which 58 nodes reach.
#[test]
fn a_stream_to_the_file_system_of_004_is_as_fast_as_measured() {
    for (streams, expected) in [(1, 520.0), (46, 46.0 * 520.0), (58, 30_000.0), (200, 30_000.0)] {
        let mut device = profile::load("panasas-pfs").expect("a profile").build(1 << 40, SEED).expect("a device");
        let load = closed_loop(&mut device, streams, 20 * streams as u64, |_| Io::write(0, 100_000_000));
        assert_near(&format!("panasas-pfs, MB/s of {streams} streams"), load.megabytes_per_second(), expected);
    }
}
