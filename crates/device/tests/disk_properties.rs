//! Properties of every disk and every array, under any load.

use entresol_core::Random;
use entresol_device::disk::{Discipline, Disk, DiskParameters, SeekPoint, Zone};
use entresol_device::load::{closed_loop, closed_loop_from};
use entresol_device::profile::ArrayParameters;
use entresol_device::raid::{Controller, Level, Raid, RaidParameters};
use entresol_device::{Completion, Device, DeviceError, Io, IoKind, Nanos};
use proptest::prelude::*;

const DISCIPLINES: [Discipline; 4] = [Discipline::Fcfs, Discipline::CLook, Discipline::Sstf, Discipline::Sptf];

/// A disk so small that I/Os cross tracks, surfaces, bands and zones all the time.
fn small() -> DiskParameters {
    let zone = |first_cylinder, sectors_per_track| Zone { first_cylinder, sectors_per_track };
    DiskParameters {
        name: "small".into(),
        cylinders: 60,
        surfaces: 3,
        band_cylinders: 7,
        zones: vec![zone(0, 40), zone(20, 31), zone(45, 17)],
        sectors: 5000,
        seek: [(1, 0.5), (10, 1.0), (50, 2.5)].map(|(cylinders, ms)| SeekPoint { cylinders, ms }).into(),
        window: 5,
        read_ahead_sectors: 50,
        write_settle_ms: 0.3,
        ..DiskParameters::cheetah_15k5()
    }
}

fn disk(discipline: Discipline, seed: u64) -> Disk {
    Disk::new(DiskParameters { discipline, ..small() }, seed).expect("a possible disk")
}

fn raid(level: Level, members: usize, capped: bool, seed: u64) -> Raid<Disk> {
    let controller = capped.then_some(Controller {
        random_iops: 200.0,
        read_megabytes_per_second: 5.0,
        write_megabytes_per_second: 4.0,
    });
    let parameters = RaidParameters { name: "array".into(), level, stripe_unit_bytes: 16 << 10, controller };
    Raid::new(parameters, Disk::batch(small(), members, seed).expect("possible disks")).expect("a possible array")
}

/// I/Os with the time between them: bursts, pauses, sequential runs, all kinds.
fn workload() -> impl Strategy<Value = Vec<(Nanos, Io)>> {
    let kind = prop_oneof![
        6 => Just(IoKind::Read),
        4 => Just(IoKind::Write),
        1 => Just(IoKind::Flush),
        1 => Just(IoKind::Discard),
    ];
    let pause = prop_oneof![3 => Just(0), 2 => 0..2_000_000u64, 1 => 0..80_000_000u64];
    let place = prop_oneof![1 => Just(None), 2 => (0..2_300_000u64).prop_map(Some)];
    proptest::collection::vec((pause, kind, place, 0..200_000u32), 1..60).prop_map(|rows| {
        let mut end = 0;
        let io = |(pause, kind, place, bytes): (_, _, Option<u64>, _)| {
            let offset = place.unwrap_or(end).min(2_300_000);
            let io = if kind == IoKind::Flush { Io::read(0, 0) } else { Io::read(offset, bytes) };
            end = offset + u64::from(bytes);
            (pause, Io { kind, ..io })
        };
        rows.into_iter().map(io).collect()
    })
}

/// Submits all and advances as `step` says after each submission: not at all, at every event, or in fixed steps.
fn run(device: &mut impl Device, workload: &[(Nanos, Io)], step: Option<Nanos>) -> Vec<Completion> {
    let (mut now, mut done) = (0, Vec::new());
    for (tag, &(pause, io)) in (0..).zip(workload) {
        let target = now + pause;
        if let Some(step) = step {
            while now < target {
                let next = device.next_event().unwrap_or(Nanos::MAX);
                now = if step == 0 { next.clamp(now, target) } else { (now + step).min(target) };
                let before = done.len();
                device.advance(now, &mut done);
                assert!(next <= now || done.len() == before, "a completion before the next event at {next}");
                if step == 0 && next > target {
                    break;
                }
            }
        }
        now = target;
        device.submit(now, Io { tag, ..io }).expect("within the device");
    }
    while let Some(at) = device.next_event() {
        let before = done.len();
        device.advance(at, &mut done);
        assert!(done[before..].iter().all(|completion| completion.finished <= at));
    }
    done
}

/// Checks that each I/O completes once, in order of time, with parts that add up, whatever the steps of time.
fn check_conservation<D: Device>(make: impl Fn() -> D, workload: &[(Nanos, Io)]) -> Result<(), TestCaseError> {
    let done = run(&mut make(), workload, Some(0));
    let mut tags: Vec<u64> = done.iter().map(|completion| completion.tag).collect();
    tags.sort_unstable();
    prop_assert_eq!(tags, (0..workload.len() as u64).collect::<Vec<_>>());
    prop_assert!(done.windows(2).all(|pair| pair[0].finished <= pair[1].finished));
    let mut submitted = 0;
    let submissions: Vec<Nanos> = workload
        .iter()
        .map(|&(pause, _)| {
            submitted += pause;
            submitted
        })
        .collect();
    for completion in &done {
        prop_assert_eq!(completion.submitted, submissions[completion.tag as usize]);
        prop_assert_eq!(completion.finished, completion.submitted + completion.latency.total());
    }
    let by_tag = |mut done: Vec<Completion>| {
        done.sort_by_key(|completion| completion.tag);
        done
    };
    let done = by_tag(done);
    prop_assert_eq!(&by_tag(run(&mut make(), workload, None)), &done);
    prop_assert_eq!(&by_tag(run(&mut make(), workload, Some(333_333))), &done);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_disk_conserves_its_ios(seed in 0..1000u64, discipline in 0..4usize, workload in workload()) {
        check_conservation(|| disk(DISCIPLINES[discipline], seed), &workload)?;
    }

    #[test]
    fn an_array_conserves_its_ios(
        seed in 0..1000u64,
        (level, members) in prop_oneof![(Just(Level::Raid0), 1..6usize), (Just(Level::Raid5), 3..7usize)],
        capped: bool,
        workload in workload(),
    ) {
        check_conservation(|| raid(level, members, capped, seed), &workload)?;
    }
}

/// A disk in floating point that walks from sector to sector: the independent model. One I/O at a time, no read-ahead.
struct Walker {
    parameters: DiskParameters,
    /// Cylinder and angle in turns of every sector.
    sectors: Vec<(u32, f64)>,
    cylinder: u32,
}

impl Walker {
    fn new(parameters: DiskParameters) -> Self {
        let p = &parameters;
        let (mut sectors, mut start): (Vec<(u32, f64)>, f64) = (Vec::new(), 0.0);
        for (i, zone) in p.zones.iter().enumerate() {
            let end = p.zones.get(i + 1).map_or(p.cylinders, |next| next.first_cylinder);
            let cylinders: Vec<u32> = (zone.first_cylinder..end).collect();
            for band in cylinders.chunks(p.band_cylinders as usize) {
                for surface in 0..p.surfaces as usize {
                    for along in 0..band.len() {
                        if !sectors.is_empty() {
                            start += if along > 0 {
                                p.track_skew
                            } else if surface > 0 {
                                p.surface_skew
                            } else {
                                p.band_skew
                            };
                        }
                        let row = if surface % 2 == 0 { along } else { band.len() - 1 - along };
                        let angle = |sector| start + f64::from(sector) / f64::from(zone.sectors_per_track);
                        sectors.extend((0..zone.sectors_per_track).map(|sector| (band[row], angle(sector))));
                    }
                }
            }
        }
        Walker { sectors, cylinder: 0, parameters }
    }

    fn seek(&self, distance: u32) -> f64 {
        let points = &self.parameters.seek;
        let far = points.iter().position(|p| p.cylinders >= distance).unwrap_or(points.len() - 1).max(1);
        let (a, b) = (points[far - 1], points[far]);
        let share = (f64::from(distance) - f64::from(a.cylinders)) / f64::from(b.cylinders - a.cylinders);
        if distance == 0 { 0.0 } else { 1e6 * (a.ms + share * (b.ms - a.ms)) }
    }

    /// When an I/O that starts at `now` is done; `now` and the result in nanoseconds, `phase` in turns at time 0.
    fn serve(&mut self, now: f64, phase: f64, turn: f64, io: &Io, overhead_ms: f64) -> f64 {
        let mut at = now + overhead_ms * 1e6;
        let first = (io.offset / 512) as usize;
        let last = io.end().div_ceil(512) as usize;
        for sector in first..last {
            let (cylinder, angle) = self.sectors[sector];
            let distance = cylinder.abs_diff(self.cylinder);
            let settle = if sector == first && distance > 0 && io.kind == IoKind::Write {
                self.parameters.write_settle_ms
            } else {
                0.0
            };
            at += self.seek(distance) + settle * 1e6;
            self.cylinder = cylinder;
            let wait = (angle - phase - at / turn).rem_euclid(1.0);
            // A sector that has just begun when its predecessor ends is not missed.
            at += if wait > 1.0 - 1e-4 { 0.0 } else { wait * turn };
            let zone = self.parameters.zones.iter().rev().find(|zone| zone.first_cylinder <= cylinder).expect("a zone");
            at += turn / f64::from(zone.sectors_per_track);
        }
        at
    }
}

#[test]
fn service_times_are_those_of_a_walk_from_sector_to_sector() {
    let parameters = DiskParameters {
        rpm: 15_000.0,
        rpm_error: 0.0,
        read_ahead_sectors: 0,
        after_write_ms: 0.0,
        head_switch_ms: 0.0,
        ..small()
    };
    for seed in 1..=4 {
        let mut random = Random::new(seed);
        let turn = 4_000_000;
        // A drive draws its speed and then its position.
        let mut draws = Random::new(seed);
        draws.next_u64();
        let phase = draws.below(turn) as f64 / turn as f64;
        let mut walker = Walker::new(parameters.clone());
        let mut disk = Disk::new(parameters.clone(), seed).expect("a possible disk");
        let (mut now, mut done) = (0, Vec::new());
        for i in 0..3000 {
            let sectors = 1 + random.below(120);
            let offset = random.below(5000 - sectors) * 512;
            let kind = if random.chance(0.5) { IoKind::Read } else { IoKind::Write };
            let io = Io { kind, ..Io::read(offset, sectors as u32 * 512) };
            let overhead =
                if kind == IoKind::Read { parameters.read_overhead_ms } else { parameters.write_overhead_ms };
            disk.submit(now, io).expect("within the disk");
            let at = disk.next_event().expect("under way");
            disk.advance(at, &mut done);
            let expected = walker.serve(now as f64, phase, turn as f64, &io, overhead);
            assert!((at as f64 - expected).abs() < 500.0, "seed {seed}, I/O {i} {io:?} at {now}: {at} for {expected}");
            now = at + random.below(10_000_000);
        }
    }
}

#[test]
fn sorting_pays() {
    let elapsed = |discipline, seed| {
        let mut disk =
            Disk::new(DiskParameters { discipline, ..DiskParameters::cheetah_15k5() }, seed).expect("possible");
        let mut random = Random::new(seed);
        closed_loop(&mut disk, 16, 3000, |_| Io::read(random.below(30_000_000) * 4096, 4096)).elapsed
    };
    for seed in 1..=5 {
        let [fcfs, clook, sstf, sptf] = DISCIPLINES.map(|discipline| elapsed(discipline, seed));
        println!("seed {seed}: FCFS {fcfs}, C-LOOK {clook}, SSTF {sstf}, SPTF {sptf} ns");
        assert!(sptf < sstf && sptf < clook && sstf < fcfs && clook < fcfs);
    }
}

/// Tags of one-sector reads in the order in which a disk serves them. All reads come at once; the first is served
/// before the discipline sees the others.
fn order(discipline: Discipline, window: usize, sectors: &[u64]) -> Vec<u64> {
    let mut disk = Disk::new(DiskParameters { discipline, window, ..small() }, 1).expect("a possible disk");
    for (tag, sector) in (0..).zip(sectors) {
        disk.submit(0, Io { tag, ..Io::read(sector * 512, 512) }).expect("within the disk");
    }
    let mut done = Vec::new();
    disk.advance(Nanos::MAX, &mut done);
    done.iter().map(|completion| completion.tag).collect()
}

#[test]
fn only_the_oldest_commands_are_sorted() {
    // The last sector continues the first, but with a window of two it is not seen before two others are served.
    assert_eq!(order(Discipline::Sptf, 5, &[0, 4000, 4500, 3000, 1]), [0, 4, 3, 1, 2]);
    let narrow = order(Discipline::Sptf, 2, &[0, 4000, 4500, 3000, 1]);
    assert!(narrow.iter().position(|&tag| tag == 4) >= Some(3), "{narrow:?}");
    assert_eq!(order(Discipline::Fcfs, 5, &[0, 4000, 4500, 3000, 1, 2000, 7]), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn the_oldest_of_equals_goes_first() {
    for discipline in [Discipline::CLook, Discipline::Sstf, Discipline::Sptf] {
        assert_eq!(order(discipline, 8, &[0, 3000, 3000, 3000, 3000, 3000]), [0, 1, 2, 3, 4, 5], "{discipline:?}");
    }
}

#[test]
fn c_look_sweeps_upwards_and_starts_again() {
    assert_eq!(order(Discipline::CLook, 5, &[100, 3000, 50, 4000, 101, 10]), [0, 4, 1, 3, 5, 2]);
}

#[test]
fn a_reader_that_falls_behind_finds_the_buffer_full_and_no_more() {
    let mut disk = Disk::new(DiskParameters::cheetah_15k5(), 1).expect("a possible disk");
    let first = closed_loop(&mut disk, 1, 1, |_| Io::read(0, 4096));
    // After a second the buffer holds 1,200 sectors: 150 blocks cost a command each, and then the heads must come back.
    let buffered =
        closed_loop_from(&mut disk, first.finished() + 1_000_000_000, 1, 150, |i| Io::read((i + 1) * 4096, 4096));
    assert_eq!((buffered.latency.quantile(0.0), buffered.latency.max()), (160_000, 160_000));
    let again = closed_loop_from(&mut disk, buffered.finished(), 1, 1, |_| Io::read(151 * 4096, 4096));
    assert!(again.parts.media > 0, "{again:?}");
}

#[test]
fn a_flush_does_not_wait_for_the_queue() {
    let mut disk = disk(Discipline::Sptf, 1);
    for tag in 0..4 {
        disk.submit(0, Io { tag, ..Io::write(tag * 100_000, 4096) }).expect("within the disk");
    }
    disk.submit(0, Io { kind: IoKind::Flush, tag: 9, ..Io::read(0, 0) }).expect("within the disk");
    let mut done = Vec::new();
    disk.advance(disk.next_event().expect("a flush is due"), &mut done);
    assert_eq!(done.iter().map(|completion| (completion.tag, completion.finished)).collect::<Vec<_>>(), [(9, 510_000)]);
}

#[test]
fn wear_counts_what_the_host_and_the_members_wrote() {
    let mut raid = raid(Level::Raid5, 5, false, 1);
    closed_loop(&mut raid, 1, 10, |i| Io::write(i * 65536, 4096));
    let wear = raid.wear();
    // A small write is one of data and one of parity.
    assert_eq!((wear.host_written_bytes, wear.media_written_bytes, wear.host_read_bytes), (40_960, 81_920, 0));
    assert_eq!(wear.write_amplification(), 2.0);
}

#[test]
fn an_io_beyond_the_end_is_refused_and_changes_nothing() {
    let mut disk = disk(Discipline::Sptf, 1);
    let mut raid = raid(Level::Raid5, 4, true, 1);
    for (offset, bytes) in [(u64::MAX, 1), (disk.capacity_bytes(), 1), (disk.capacity_bytes() - 1, 2)] {
        assert!(matches!(disk.submit(0, Io::read(offset, bytes)), Err(DeviceError::BeyondEnd { .. })));
    }
    assert!(raid.submit(0, Io::write(raid.capacity_bytes() - 4096, 4097)).is_err());
    assert!(raid.submit(0, Io::write(raid.capacity_bytes() - 4096, 4096)).is_ok());
    assert_eq!(disk.next_event(), None);
}

#[test]
fn impossible_parameters_are_named() {
    let message = |change: fn(&mut DiskParameters)| {
        let mut parameters = small();
        change(&mut parameters);
        Disk::new(parameters, 1).expect_err("an impossible disk").to_string()
    };
    assert!(message(|p| p.rpm = 0.0).contains("0 turns a minute"));
    assert!(message(|p| p.rpm = f64::NAN).contains("NaN turns a minute"));
    assert!(message(|p| p.window = 0).contains("window"));
    assert!(message(|p| p.track_skew = 1.5).contains("track_skew = 1.5"));
    assert!(message(|p| p.write_settle_ms = -1.0).contains("write_settle_ms = -1"));
    assert!(message(|p| p.zones.clear()).contains("cylinder 0"));
    assert!(message(|p| p.zones[2].first_cylinder = 60).contains("below cylinder 60"));
    assert!(message(|p| p.zones[0].sectors_per_track = 0).contains("sectors"));
    assert!(message(|p| p.sectors = 1_000_000).contains("zones that hold"));
    assert!(message(|p| p.seek.clear()).contains("one cylinder"));
    assert!(message(|p| p.seek[1].ms = 0.1).contains("ascend"));
    assert!(message(|p| p.seek[2].ms = f64::NAN).contains("ascend"));
    assert!(message(|p| p.seek[2].ms = 1e6).contains("seeks of"));
    let array = |parameters, members| {
        let disks = Disk::batch(small(), members, 1).expect("possible disks");
        Raid::new(parameters, disks).expect_err("an impossible array").to_string()
    };
    assert!(array(RaidParameters::sas_raid5x6(), 2).contains("2 members where 3 are needed"));
    let unit = |stripe_unit_bytes| RaidParameters { stripe_unit_bytes, ..RaidParameters::sas_raid5x6() };
    assert!(array(unit(0), 3).contains("stripe unit of 0 B"));
    assert!(array(unit(1 << 30), 3).contains("stripe unit of 1073741824 B"));
}

#[test]
fn a_profile_says_what_a_constructor_says() {
    let text = r#"{ "members": 6, "member": "cheetah-15k5", "controller":
        { "random_iops": 100, "read_megabytes_per_second": 2, "write_megabytes_per_second": 1 } }"#;
    let raid: ArrayParameters = serde_json::from_str(text).expect("a profile");
    assert_eq!((raid.members, raid.stripe_unit_bytes), (6, 512 << 10));
    assert!(serde_json::from_str::<ArrayParameters>(r#"{ "members": 6, "member": "x", "unit": 1 }"#).is_err());
    let text = r#"{ "name": "small", "sector_bytes": 512, "sectors": 5000, "cylinders": 60, "surfaces": 3,
        "band_cylinders": 7, "zones": [{ "first_cylinder": 0, "sectors_per_track": 40 },
            { "first_cylinder": 20, "sectors_per_track": 31 }, { "first_cylinder": 45, "sectors_per_track": 17 }],
        "rpm": 15020, "rpm_error": 0.00035147, "track_skew": 0.1417, "surface_skew": 0.1894, "band_skew": 0.3706,
        "seek": [{ "cylinders": 1, "ms": 0.5 }, { "cylinders": 10, "ms": 1 }, { "cylinders": 50, "ms": 2.5 }],
        "head_switch_ms": 0.001, "write_settle_ms": 0.3, "read_overhead_ms": 0.16, "write_overhead_ms": 0.51,
        "after_write_ms": 0.15, "read_ahead_sectors": 50, "discipline": "sptf", "window": 5 }"#;
    assert_eq!(serde_json::from_str::<DiskParameters>(text).expect("a profile"), small());
}
