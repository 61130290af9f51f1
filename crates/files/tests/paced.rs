//! Paced disks: the bytes are those of a plain disk at any timing, and a device smaller than its disk can be full.
#![cfg(target_os = "linux")]

use entresol_crashtest::{Power, SimDisk};
use entresol_device::profile;
use entresol_disk::{Disk, Transfer};
use entresol_files::paced::{Listener, Paced, PacedDisk, PacedFiles};
use entresol_files::{FileId, FileLayer};
use proptest::prelude::*;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SIZE: u64 = 8 << 20;

fn paced(capacity: u64) -> PacedDisk<Arc<SimDisk>> {
    let disk = Arc::new(SimDisk::new(SIZE, &Power::steady()));
    let model = profile::load("p4800x").expect("a profile").build(capacity, 1).expect("a device");
    PacedDisk::new(disk, model).expect("a disk")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn the_bytes_are_those_of_a_plain_disk(
        steps in prop::collection::vec((0..SIZE, 1..(3u64 << 20), any::<u8>(), any::<bool>(), any::<bool>()), 1..12)
    ) {
        let (disk, mut plain) = (paced(SIZE), vec![0u8; SIZE as usize]);
        for (at, bytes, fill, write, hurried) in steps {
            disk.hurry(hurried);
            let bytes = bytes.min(SIZE - at) as usize;
            let range = at as usize..at as usize + bytes;
            if write {
                let data = vec![fill; bytes];
                let half = bytes / 2;
                let (first, second) = data.split_at(half);
                let second = Transfer::Write { at: at + half as u64, bytes: second };
                disk.submit(&mut [Transfer::Write { at, bytes: first }, second]).expect("writes");
                plain[range].fill(fill);
            } else {
                let mut read = vec![!fill; bytes];
                disk.read_at(at, &mut read).expect("a read");
                prop_assert!(read == plain[range]);
            }
        }
    }
}

#[test]
fn what_is_asked_of_it_is_counted_unless_it_is_hurried() {
    let disk = paced(SIZE);
    disk.write_at(0, &[1; 4096]).expect("a write");
    disk.write_at(4096, &[1; 4096]).expect("a write");
    disk.write_at(1 << 20, &[1; 4096]).expect("a write");
    disk.read_at(0, &mut [0; 512]).expect("a read");
    disk.sync().expect("a sync");
    let traffic = disk.traffic();
    assert_eq!((traffic.reads, traffic.read_bytes, traffic.writes, traffic.written_bytes), (1, 512, 3, 3 * 4096));
    // Two of three: the first write is at the device's start, and the second follows it.
    assert_eq!((traffic.sequential_writes, traffic.flushes), (2, 1));
    assert!(traffic.busy > Duration::from_micros(20), "{:?}", traffic.busy);
    assert_eq!(disk.wear().host_written_bytes, 3 * 4096);
    disk.hurry(true);
    disk.write_at(0, &[2; 4096]).expect("a write");
    assert_eq!(disk.traffic(), traffic);
}

#[test]
fn it_is_full_when_the_device_is() {
    // The smallest device of this kind is larger than that; extents that lie far apart fill it.
    let model = profile::load("p4800x").expect("a profile").build(4 << 20, 1).expect("a device");
    let places = entresol_device::Device::capacity_bytes(&model) >> 20;
    if places > 1 << 20 {
        entresol_skip::skipped!("place", "the model has {places} MiB of its own");
        return;
    }
    let disk = Arc::new(SimDisk::new((places + 1) << 20, &Power::steady()));
    let disk = PacedDisk::new(disk, model).expect("a disk");
    for place in (0..places).rev() {
        disk.write_at(place << 20, &[3; 512]).expect("a write");
    }
    let full = disk.write_at(places << 20, &[3; 512]).expect_err("no place is left");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    disk.write_at(0, &[4; 512]).expect("a place that it has");
}

/// Listener that records its calls.
#[derive(Default)]
struct Ear(Mutex<Vec<String>>);

impl Listener for Ear {
    fn opened(&self, number: u64, name: &str) {
        self.0.lock().expect("nobody panics").push(format!("{number} is {name}"));
    }

    fn asked(&self, number: u64, offset: u64, bytes: u64, write: bool) {
        let what = if write { "write" } else { "read" };
        self.0.lock().expect("nobody panics").push(format!("{number} {what} {offset} {bytes}"));
    }

    fn answered(&self, waited: Duration, _: bool) {
        assert!(waited > Duration::from_micros(1), "the device takes its time: {waited:?}");
        self.0.lock().expect("nobody panics").push("done".to_owned());
    }
}

/// Each read and write of a file is reported with the file's name, and past its end only as far as there are bytes.
/// Requests that bypass the device, or are hurried, are not reported.
#[test]
fn a_listener_hears_what_is_asked_of_files() {
    let place = std::env::temp_dir().join(format!("entresol-heard-{}", std::process::id()));
    std::fs::create_dir_all(place.join("base")).expect("a directory");
    let made = |name: &str| {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(place.join(name)).expect(name);
        file.set_len(10_000).expect("a length");
        let found = file.metadata().expect("metadata");
        (FileId { device: found.dev(), inode: found.ino() }, file)
    };
    let model = profile::load("p4800x").expect("a profile").build(SIZE, 1).expect("a device");
    let (ear, direct) = (Arc::new(Ear::default()), vec!["log".parse().expect("a pattern")]);
    let files = PacedFiles::new(File::open(&place).expect("it is there"), model, direct).expect("files");
    let device = files.device();
    let files = files.heard_by(ear.clone());
    let open = |name: &str| {
        let (id, file) = made(name);
        files.open(id, file, true).expect(name)
    };
    let (table, log) = (open("base/1"), open("log"));
    table.write(4096, &[7; 4096]).expect("a write");
    assert_eq!(table.read(8192, &mut [0; 8192]).expect("a read"), 1808);
    log.write(0, &[1; 10]).expect("a write");
    device.hurry(true);
    table.write(0, &[7; 4096]).expect("a write");
    device.hurry(false);
    let again = open("base/1");
    again.read(0, &mut [0; 512]).expect("a read");
    let heard = ear.0.lock().expect("nobody panics").clone();
    assert_eq!(heard, ["0 is base/1", "0 write 4096 4096", "done", "0 read 8192 1808", "done", "0 read 0 512", "done"]);
    std::fs::remove_dir_all(&place).expect("the directory");
}
