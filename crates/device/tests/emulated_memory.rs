//! Memory as slow as NVM: the bytes are those of an array, the times the requested ones.
#![cfg(target_os = "linux")]

use entresol_core::Random;
use entresol_device::emulated::{Calibration, Clock, Curve, Mapped, Slowdown, VirtualClock};
use proptest::prelude::*;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread;

const SIZE: u64 = 1 << 16;
const SLOWDOWN: Slowdown = Slowdown { read: 2.0, write: 8.0 };

fn file(bytes: u64) -> File {
    let file = tempfile::tempfile().expect("a file");
    file.set_len(bytes).expect("room");
    file
}

/// A host whose memory takes 100 ns and 1 ns for every 10 B beyond a line.
fn calibration() -> Calibration {
    let curve = Curve::new([(64, 100.0), (74, 101.0)]);
    Calibration { clock_ns: 0.0, load: curve.clone(), store: curve }
}

fn region(file: &File) -> Mapped<Arc<VirtualClock>> {
    Mapped::with_clock(file, SLOWDOWN, calibration(), Arc::default()).expect("a region")
}

/// Time that the host's memory takes for an access, in nanoseconds.
fn dram(bytes: u64) -> f64 {
    100.0 + bytes.saturating_sub(64) as f64 / 10.0
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn the_bytes_are_those_of_an_array_and_the_times_those_asked_for(seed in any::<u64>()) {
        let (file, mut random) = (file(SIZE), Random::new(seed));
        let region = region(&file);
        let mut plain = vec![0; SIZE as usize];
        for _ in 0..200 {
            let scale = random.below(14);
            let bytes = 1 + random.below(1 << scale);
            let offset = random.below(SIZE - bytes);
            let range = offset as usize..(offset + bytes) as usize;
            let before = region_clock(&region);
            let asked = match random.below(4) {
                0 => {
                    plain[range.clone()].fill_with(|| random.next_u64() as u8);
                    region.write(offset, &plain[range]).expect("within");
                    8.0 * dram(bytes)
                }
                1 => {
                    let mut found = vec![0xEE; bytes as usize];
                    region.read(offset, &mut found).expect("within");
                    prop_assert!(found == plain[range], "{} B at {}", bytes, offset);
                    2.0 * dram(bytes)
                }
                2 => {
                    region.touch(offset, bytes as usize).expect("within");
                    2.0 * dram(bytes)
                }
                _ => {
                    region.persist(offset, bytes as usize).expect("within");
                    800.0
                }
            };
            let took = region_clock(&region) - before;
            prop_assert!((took as f64 - asked).abs() < 1.0, "{} ns for {} ns, {} B", took, asked, bytes);
        }
        let words: Vec<u8> = region.words().iter().flat_map(|word| word.load(std::sync::atomic::Ordering::Relaxed).to_ne_bytes()).collect();
        prop_assert!(words == plain);
        let mut on_file = vec![0; SIZE as usize];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut on_file, 0).expect("a file");
        prop_assert!(on_file == plain);
    }
}

fn region_clock(region: &Mapped<Arc<VirtualClock>>) -> u64 {
    region.clock().now()
}

#[test]
fn two_mappings_of_a_file_are_one_memory() {
    let file = file(SIZE);
    let (one, other) = (region(&file), region(&file));
    one.write(12_345, b"seen by both").expect("within");
    let mut found = [0; 12];
    other.read(12_345, &mut found).expect("within");
    assert_eq!(&found, b"seen by both");
}

#[test]
fn writers_of_neighbouring_bytes_do_not_disturb_each_other() {
    let file = file(SIZE);
    let region = region(&file);
    thread::scope(|scope| {
        for own in 0..3_u8 {
            let region = &region;
            scope.spawn(move || {
                for round in 0..20_000_u64 {
                    // 3 bytes each: most words are shared by two or three threads.
                    let offset = round % 1000 * 9 + 3 * u64::from(own);
                    region.write(offset, &[own + 1; 3]).expect("within");
                }
            });
        }
    });
    let mut found = [0; 9000];
    region.read(0, &mut found).expect("within");
    assert!(found.chunks(9).all(|chunk| chunk == [1, 1, 1, 2, 2, 2, 3, 3, 3]));
}

#[test]
fn what_is_impossible_is_refused() {
    let refused = |result: io::Result<()>, what: &str| {
        let error = result.expect_err("it is impossible");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(what), "{error}");
    };
    let file = file(SIZE);
    let region = region(&file);
    refused(region.read(SIZE, &mut [0]), "beyond the region's 65536 B");
    refused(region.write(u64::MAX, &[0]), "beyond");
    refused(region.touch(SIZE - 1, 2), "beyond");
    refused(region.persist(1, SIZE as usize), "beyond");
    region.read(SIZE, &mut []).expect("nothing is read");
    assert_eq!(region_clock(&region), 0);
    refused(Mapped::anonymous(0, SLOWDOWN).map(drop), "a region of 0 B");
    refused(Mapped::anonymous(12, SLOWDOWN).map(drop), "a region of 12 B");
    for k in [0.5, f64::NAN, 1001.0] {
        refused(Mapped::anonymous(8, Slowdown { read: k, write: 2.0 }).map(drop), "1 to 1000");
    }
}

#[test]
fn by_the_wall_clock_no_access_is_faster_than_asked() {
    for k in [2.0, 4.0, 8.0] {
        let mut region = Mapped::anonymous(64 << 20, Slowdown { read: k, write: k }).expect("a region");
        println!("{k} times as slow as: {}", region.calibration());
        let mut bytes = [7; 100];
        region.write(3, &bytes).expect("within");
        for row in region.accuracy(&[64, 256, 1024, 4096, 65_536], 2000, 5) {
            println!("  {row}");
            let least = row.given.quantile(0.0);
            assert!(least as f64 >= row.asked_ns * (1.0 - 1.0 / 256.0), "{row}: {least} ns");
        }
        region.read(3, &mut bytes).expect("within");
        assert_eq!(bytes, [7; 100], "measuring changes nothing");
    }
}
