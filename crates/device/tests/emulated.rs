//! Emulated devices: the bytes are those of a plain array, the times those of the model.
#![cfg(target_os = "linux")]

use entresol_core::Random;
use entresol_device::emulated::{Clock, EmulatedDevice, Part, Storage, VirtualClock, WallClock, load};
use entresol_device::load::{Load, closed_loop};
use entresol_device::profile;
use entresol_device::{Device, Io, IoKind, Nanos};
use proptest::prelude::*;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread;

const CAPACITY: u64 = 1 << 20;
const SEED: u64 = 11;

type Model = Box<dyn Device + Send>;

fn model(name: &str) -> Model {
    profile::load(name).expect(name).build(CAPACITY, SEED).expect("a device")
}

/// A file of zeroes that no other process sees.
fn file() -> File {
    let file = tempfile::tempfile().expect("a file");
    file.set_len(CAPACITY).expect("room");
    file
}

fn emulated(name: &str) -> EmulatedDevice<File, Model, Arc<VirtualClock>> {
    EmulatedDevice::new(file(), model(name), Arc::default()).expect("a device")
}

/// Time at which a model alone completes an I/O that finds it idle at `now`.
fn alone(model: &mut Model, now: Nanos, io: Io) -> Nanos {
    model.submit(now, io).expect("within the device");
    let mut done = Vec::new();
    while done.is_empty() {
        model.advance(model.next_event().expect("an I/O is under way"), &mut done);
    }
    done[0].finished
}

fn random_io(random: &mut Random, tag: u64) -> Io {
    let scale = random.below(15);
    let bytes = 1 + random.below(1 << scale) as u32;
    let kind =
        [IoKind::Read, IoKind::Write, IoKind::Discard, IoKind::Flush][random.below(10).saturating_sub(6) as usize];
    let kind = if kind == IoKind::Read && random.chance(0.5) { IoKind::Write } else { kind };
    let bytes = if kind == IoKind::Flush { 0 } else { bytes };
    Io { kind, offset: random.below(CAPACITY - u64::from(bytes)), bytes, tag }
}

/// Applies `io` to plain bytes; returns the bytes that it reads or writes.
fn on_plain(plain: &mut [u8], io: &Io, random: &mut Random) -> Vec<u8> {
    let range = io.offset as usize..io.end() as usize;
    match io.kind {
        IoKind::Write => plain[range.clone()].fill_with(|| random.next_u64() as u8),
        IoKind::Discard => plain[range].fill(0),
        IoKind::Read | IoKind::Flush => {}
    }
    if io.kind == IoKind::Discard { Vec::new() } else { plain[io.offset as usize..io.end() as usize].to_vec() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    #[test]
    fn one_at_a_time_the_bytes_are_those_of_an_array_and_the_times_those_of_the_model(
        seed in any::<u64>(), name in prop::sample::select(vec!["p4800x", "face-disk", "sas-raid5x6", "arulraj-ssd"])
    ) {
        let (device, mut bare, mut random) = (emulated(name), model(name), Random::new(seed));
        let mut plain = vec![0; CAPACITY as usize];
        for tag in 0..300 {
            let io = random_io(&mut random, tag);
            let before = device.clock().now();
            let expected = on_plain(&mut plain, &io, &mut random);
            match io.kind {
                IoKind::Read => {
                    let mut found = vec![0xEE; io.bytes as usize];
                    device.read(io.offset, &mut found).expect("a read");
                    prop_assert!(found == expected, "{:?}", io);
                }
                IoKind::Write => device.write(io.offset, &expected, false).expect("a write"),
                IoKind::Flush => device.flush().expect("a flush"),
                IoKind::Discard => device.discard(io.offset, u64::from(io.bytes)).expect("a discard"),
            }
            prop_assert_eq!(device.clock().now(), alone(&mut bare, before, io), "{:?}", io);
            device.clock().advance(random.below(1 << 20));
        }
        prop_assert_eq!(device.wear(), bare.wear());
        prop_assert_eq!((device.accuracy().late.count(), device.accuracy().late.max()), (300, 0));
    }

    #[test]
    fn through_the_queue_the_bytes_are_in_order_of_submission_and_each_is_given_at_its_time(
        seed in any::<u64>(), name in prop::sample::select(vec!["p4800x", "face-disk", "sas-raid5x6", "arulraj-ssd"])
    ) {
        let (device, mut random) = (emulated(name), Random::new(seed));
        let mut plain = vec![0; CAPACITY as usize];
        let mut expected = Vec::new();
        let (mut seen, mut last) = (0, 0);
        while seen < 400 {
            if expected.len() < 400 && random.chance(0.55) {
                let io = random_io(&mut random, expected.len() as u64);
                let bytes = on_plain(&mut plain, &io, &mut random);
                let buffer = if io.kind == IoKind::Read { vec![0xEE; io.bytes as usize] } else { bytes.clone() };
                expected.push((io, bytes));
                device.submit(io, buffer).expect("within the device");
            } else if let Some(done) = device.reap() {
                let (io, bytes) = &expected[done.io.tag as usize];
                prop_assert_eq!((done.io, done.completion.tag), (*io, io.tag));
                prop_assert!(done.result.is_ok() && done.buffer == *bytes);
                // A completion that time overtook while others were reaped is given later, never earlier.
                prop_assert!(done.given >= done.completion.finished && done.completion.finished >= last);
                last = done.completion.finished;
                seen += 1;
            } else {
                prop_assert_eq!(seen, expected.len());
            }
        }
        prop_assert!(device.reap().is_none());
    }
}

#[test]
fn in_virtual_time_a_loop_over_an_emulated_device_is_the_loop_over_its_model() {
    for name in profile::names() {
        for depth in [1, 2, 7, 32] {
            let next = |random: &mut Random| {
                let io = Io::read(random.below(CAPACITY / 4096) * 4096, 4096);
                if random.chance(0.3) { Io { kind: IoKind::Write, ..io } } else { io }
            };
            let (mut first, mut second) = (Random::new(SEED), Random::new(SEED));
            let bare: Load = closed_loop(&mut model(name), depth, 500, |_| next(&mut first));
            let device = emulated(name);
            let given = load::closed_loop(&device, depth, 500, |_| next(&mut second)).expect("a load");
            assert_eq!(bare, given, "{name} at depth {depth}, seed {SEED}");
            let accuracy = device.accuracy();
            assert_eq!((accuracy.late.count(), accuracy.late.max(), accuracy.host_late.count()), (500, 0, 0));
        }
    }
}

/// A storage that takes virtual time, and fails on request.
struct Slow {
    clock: Arc<VirtualClock>,
    takes: Nanos,
    fails: bool,
}

impl Slow {
    fn answer(&self) -> io::Result<()> {
        self.clock.advance(self.takes);
        if self.fails { Err(io::Error::other("a bad sector")) } else { Ok(()) }
    }
}

impl Storage for Slow {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(CAPACITY)
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        self.answer()
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        self.answer()
    }

    fn sync(&self) -> io::Result<()> {
        self.answer()
    }

    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        self.answer()
    }
}

fn slow(takes: Nanos, fails: bool) -> EmulatedDevice<Slow, Model, Arc<VirtualClock>> {
    let clock = Arc::new(VirtualClock::new());
    let storage = Slow { clock: Arc::clone(&clock), takes, fails };
    EmulatedDevice::new(storage, model("arulraj-ssd"), clock).expect("a device")
}

#[test]
fn a_host_that_is_too_slow_is_counted_and_told() {
    // The model takes 25 us and the transfer.
    let asked = alone(&mut model("arulraj-ssd"), 0, Io::read(0, 4096));
    for (takes, late) in [(asked, 0), (asked + 1, 1), (asked + 500_000, 1)] {
        for queue in [false, true] {
            let device = slow(takes, false);
            if queue {
                device.submit(Io::read(0, 4096), vec![0; 4096]).expect("within the device");
                let done = device.reap().expect("one is under way");
                assert_eq!((done.completion.finished, done.given), (asked, takes));
            } else {
                device.read(0, &mut [0; 4096]).expect("a read");
            }
            let accuracy = device.accuracy();
            assert_eq!((accuracy.host_late.count(), accuracy.late.max()), (late, takes - asked), "queue: {queue}");
            assert_eq!(accuracy.to_string().contains("cannot keep up"), late == 1, "{accuracy}");
        }
    }
}

#[test]
fn an_error_of_the_storage_is_the_ios_at_the_models_time() {
    let device = slow(0, true);
    let asked = alone(&mut model("arulraj-ssd"), 0, Io::read(0, 100));
    let error = device.read(0, &mut [0; 100]).expect_err("a bad sector");
    assert_eq!((error.to_string().as_str(), device.clock().now()), ("a bad sector", asked));
    assert!(device.write(0, &[0; 100], true).is_err() && device.flush().is_err() && device.discard(0, 9).is_err());
    device.submit(Io::read(0, 1), vec![0]).expect("within the device");
    assert!(device.reap().expect("one is under way").result.is_err());
    assert!(device.reap().is_none());
}

#[test]
fn what_does_not_fit_is_refused_and_takes_no_time() {
    let device = emulated("face-disk");
    let refused = |result: io::Result<()>, what: &str| {
        let error = result.expect_err("it does not fit");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(what), "{error}");
    };
    refused(device.read(CAPACITY - 1, &mut [0; 2]), "beyond");
    refused(device.write(u64::MAX, &[0; 2], false), "beyond");
    refused(device.discard(1, u64::MAX), "beyond");
    refused(device.submit(Io::read(CAPACITY, 1), vec![0]), "beyond");
    refused(device.submit(Io::write(0, 2), vec![0; 3]), "buffer of 3 B");
    device.read(CAPACITY, &mut []).expect("nothing is read");
    assert_eq!((device.clock().now(), device.accuracy().late.count()), (0, 0));
    let empty = tempfile::tempfile().expect("a file");
    refused(EmulatedDevice::new(empty, model("dram"), VirtualClock::new()).map(drop), "over a file of 0 B");
    let large = file();
    large.set_len(CAPACITY + 1).expect("room");
    refused(EmulatedDevice::new(large, model("dram"), VirtualClock::new()).map(drop), "1 to 1048576 B");
}

/// Threads that each own every `threads`-th page, write it, read it back and flush, all at once.
fn hammer<C: Clock>(device: &EmulatedDevice<File, Model, C>, threads: u64, rounds: u64) {
    thread::scope(|scope| {
        for own in 0..threads {
            scope.spawn(move || {
                let mut random = Random::new(SEED + own);
                for round in 0..rounds {
                    let offset = (random.below(CAPACITY / 4096 / threads) * threads + own) * 4096;
                    let bytes = [(1 + own * 7 + round) as u8; 4096];
                    let mut found = [0; 4096];
                    device.write(offset, &bytes, round % 16 == 0).expect("a write");
                    device.read(offset, &mut found).expect("a read");
                    assert!(found == bytes, "thread {own}, round {round}");
                }
            });
        }
    });
}

#[test]
fn threads_that_wait_together_all_get_theirs() {
    for name in ["p4800x", "face-disk", "arulraj-ssd"] {
        let device = emulated(name);
        hammer(&device, 8, 200);
        assert_eq!(device.accuracy().late.count(), 8 * (2 * 200 + 13), "{name}");
    }
}

#[test]
fn threads_that_submit_and_threads_that_reap_share_a_queue() {
    const EACH: u64 = 500;
    let device = emulated("arulraj-ssd");
    let seen = Mutex::new(vec![0_u8; 4 * EACH as usize]);
    thread::scope(|scope| {
        for own in 0..4 {
            let (device, seen) = (&device, &seen);
            scope.spawn(move || {
                for i in 0..EACH {
                    device
                        .submit(Io { tag: own * EACH + i, ..Io::write(own * 4096, 4096) }, vec![1; 4096])
                        .expect("fits");
                    if i % 3 == 0 {
                        continue;
                    }
                    // Each thread takes any completion, its own or another's.
                    if let Some(done) = device.reap() {
                        seen.lock().expect("no thread panics")[done.io.tag as usize] += 1;
                    }
                }
                while let Some(done) = device.reap() {
                    seen.lock().expect("no thread panics")[done.io.tag as usize] += 1;
                }
            });
        }
    });
    assert!(seen.into_inner().expect("no thread panics").iter().all(|&times| times == 1));
}

#[test]
fn by_the_wall_clock_nothing_is_early() {
    for (name, rounds) in [("p4800x", 300), ("arulraj-ssd", 100), ("face-disk", 3)] {
        let device = EmulatedDevice::new(file(), model(name), WallClock::new()).expect("a device");
        // The device panics when it would give an I/O before its time; this checks the queue from outside as well.
        hammer(&device, 3, rounds);
        let mut random = Random::new(SEED);
        for tag in 0..8 {
            let io = Io { tag, ..Io::read(random.below(CAPACITY / 4096) * 4096, 4096) };
            device.submit(io, vec![0; 4096]).expect("within the device");
        }
        while let Some(done) = device.reap() {
            assert!(done.given >= done.completion.finished, "{name}: {done:?}");
        }
        println!("{name}: {}", device.accuracy());
    }
}

#[test]
fn transfers_that_are_handed_over_together_are_with_the_model_together() {
    // A disk that takes one thing at a time would need the sum; sixteen of them do not.
    let capacity = 16 << 20;
    let build = || profile::load("face-raid0x16").expect("a profile").build(capacity, SEED).expect("a device");
    let storage = tempfile::tempfile().expect("a file");
    storage.set_len(capacity).expect("room");
    let clock = Arc::new(VirtualClock::new());
    let device = EmulatedDevice::new(storage, build(), clock.clone()).expect("a device");
    let places: Vec<u64> = (0..16).map(|disk| disk << 19).collect();
    let written: Vec<Vec<u8>> = (0..16).map(|disk| vec![disk + 1; 4096]).collect();
    let mut parts: Vec<Part> = places.iter().zip(&written).map(|(at, bytes)| Part::Write(*at, bytes)).collect();
    device.perform_all(&mut parts).expect("writes");
    let before = clock.now();
    let mut read = vec![vec![0; 4096]; 16];
    let mut parts: Vec<Part> = places.iter().zip(&mut read).map(|(at, bytes)| Part::Read(*at, bytes)).collect();
    device.perform_all(&mut parts).expect("reads");
    let together = clock.now() - before;
    assert_eq!(read, written);
    let accuracy = device.accuracy();
    assert_eq!((accuracy.late.count(), accuracy.late.max()), (32, 0), "whoever waits for the last waits for no other");
    let before = clock.now();
    places.iter().for_each(|at| device.read(*at, &mut [0; 4096]).expect("a read"));
    let one_by_one = clock.now() - before;
    assert!(together * 4 < one_by_one, "{together} ns together, {one_by_one} ns one by one");
    let mut beyond = [0; 4096];
    let mut parts = [Part::Write(0, &[9; 8]), Part::Read(capacity, &mut beyond)];
    assert!(device.perform_all(&mut parts).is_err());
    let mut first = [0; 8];
    device.read(0, &mut first).expect("a read");
    assert_eq!(first, [1; 8], "nothing is done when something is refused");
}
