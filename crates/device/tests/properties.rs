//! Properties of every built-in profile, under random loads.

use entresol_core::Random;
use entresol_device::profile;
use entresol_device::{Completion, Io, IoKind, Nanos};
use proptest::prelude::*;

const CAPACITY: u64 = 1 << 24;

/// A load: the requests to a device and their times.
fn requests(seed: u64, count: u64, mean_gap: u64) -> Vec<(Nanos, Io)> {
    let mut random = Random::new(seed);
    let mut now = 0;
    (0..count)
        .map(|tag| {
            now += random.below(2 * mean_gap + 1);
            let kind = match random.below(20) {
                0 => IoKind::Flush,
                1 => IoKind::Discard,
                2..=10 => IoKind::Write,
                _ => IoKind::Read,
            };
            let bytes = match kind {
                IoKind::Flush => 0,
                _ => {
                    let scale = random.below(18);
                    1 + random.below(1 << scale) as u32
                }
            };
            (now, Io { kind, offset: random.below(CAPACITY - u64::from(bytes)), bytes, tag })
        })
        .collect()
}

/// Plays a load on a new device; with `patient`, only advances at the end.
fn play(name: &str, seed: u64, load: &[(Nanos, Io)], patient: bool) -> (Vec<Completion>, entresol_device::Wear) {
    let mut device = profile::load(name).expect(name).build(CAPACITY, seed).expect("a device");
    let mut done = Vec::new();
    for &(now, io) in load {
        if !patient {
            device.advance(now, &mut done);
        }
        device.submit(now, io).expect("within the device");
    }
    while let Some(at) = device.next_event() {
        device.advance(if patient { Nanos::MAX } else { at }, &mut done);
    }
    (done, device.wear())
}

/// Devices whose flush does not wait for all earlier writes. A link keeps nothing that could be made durable. A disk
/// without a write cache has nothing to flush: a write is durable when it completes, and a flush does not wait for
/// those still in the queue. A flash drive's flush covers the completed writes, as NVMe and ATA have it.
const UNORDERED_FLUSH: [&str; 13] = [
    "infiniband-qdr",
    "cheetah-15k5",
    "face-disk",
    "face-raid0x2",
    "face-raid0x4",
    "face-raid0x8",
    "face-raid0x16",
    "sas-raid5x6",
    "840-pro",
    "850-evo",
    "s3500",
    "p3700",
    "p3700-2tb",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_io_completes_once_in_order_of_time_at_the_sum_of_its_parts(
        seed in any::<u64>(), gap in prop::sample::select(vec![0u64, 100, 10_000]), patient in any::<bool>()
    ) {
        let load = requests(seed, 300, gap);
        for name in profile::names() {
            let (done, wear) = play(name, seed, &load, patient);
            prop_assert!(done.windows(2).all(|pair| pair[0].finished <= pair[1].finished), "{name}");
            let mut tags: Vec<u64> = done.iter().map(|completion| completion.tag).collect();
            tags.sort_unstable();
            prop_assert_eq!(tags, (0..300).collect::<Vec<_>>(), "{}", name);
            for completion in &done {
                prop_assert_eq!(completion.submitted, load[completion.tag as usize].0, "{}", name);
                prop_assert_eq!(completion.finished, completion.submitted + completion.latency.total(), "{}", name);
            }
            let bytes = |kind| load.iter().filter(|(_, io)| io.kind == kind).map(|(_, io)| u64::from(io.bytes)).sum::<u64>();
            prop_assert_eq!(wear.host_read_bytes, bytes(IoKind::Read), "{}", name);
            prop_assert_eq!(wear.host_written_bytes, bytes(IoKind::Write), "{}", name);
            prop_assert!(wear.media_written_bytes >= wear.host_written_bytes, "{}", name);
        }
    }

    #[test]
    fn a_run_repeats_to_the_last_nanosecond(seed in any::<u64>()) {
        let load = requests(seed, 300, 1000);
        for name in profile::names() {
            prop_assert_eq!(play(name, seed, &load, true), play(name, seed, &load, true), "{}", name);
        }
    }

    #[test]
    fn a_larger_io_never_takes_less_time(seed in any::<u64>(), small in 1u64..64, more in 1u64..64) {
        for name in profile::names() {
            for kind in [IoKind::Read, IoKind::Write] {
                // Whole pages from a page's beginning: alignment has a price of its own on block devices. A write that
                // fills the stripes of a RAID-5 reads nothing first.
                if kind == IoKind::Write && name == "sas-raid5x6" {
                    continue;
                }
                let finished = |pages: u64| {
                    let io = Io { kind, ..Io::read(seed % 64 * 4096, pages as u32 * 4096) };
                    play(name, seed, &[(0, io)], true).0[0].finished
                };
                prop_assert!(finished(small) <= finished(small + more), "{name} {kind:?}");
            }
        }
    }

    #[test]
    fn a_flush_outlasts_the_writes_before_it(seed in any::<u64>()) {
        let load = requests(seed, 100, 1000);
        for name in profile::names() {
            let (done, _) = play(name, seed, &load, true);
            let mut finished = vec![0; 100];
            done.iter().for_each(|completion| finished[completion.tag as usize] = completion.finished);
            let mut last_write = 0;
            for &(_, io) in &load {
                match io.kind {
                    IoKind::Write => last_write = last_write.max(finished[io.tag as usize]),
                    IoKind::Flush if !UNORDERED_FLUSH.contains(&name) => {
                        prop_assert!(finished[io.tag as usize] >= last_write, "{name}");
                    }
                    _ => (),
                }
            }
        }
    }

    #[test]
    fn an_io_beyond_the_end_is_refused_and_changes_nothing(bytes in 1u32..1 << 20, beyond in 1u64..1 << 40) {
        for name in profile::names() {
            let mut device = profile::load(name).expect(name).build(CAPACITY, 1).expect("a device");
            for offset in [device.capacity_bytes() - u64::from(bytes) + beyond, u64::MAX - u64::from(bytes) / 2] {
                prop_assert!(device.submit(0, Io::write(offset, bytes)).is_err(), "{name}");
            }
            prop_assert_eq!(device.next_event(), None);
            prop_assert_eq!(device.wear(), entresol_device::Wear::default());
        }
    }
}
