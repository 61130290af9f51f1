//! Free space on a cache's file system, memory, and a backing store that grows: shortages are refused with a reason,
//! and space taken in vain is given back.

mod common;

use common::image::Image;
use common::mounted::Mounted;
use common::served::client::FUA;
use common::served::{BACKING, PAGE, formatted, reached, start, terminate};
use common::{Scratch, crash, says};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};

const BOTH: [&str; 4] = ["--cache", "cache", "--backing", "disk"];

/// One figure that `stats` reports of a cache in use.
fn figure(scratch: &Scratch, cache: &str, name: &str) -> serde_json::Value {
    let figures = scratch.ok(&["stats", "--json", "--cache", cache]);
    serde_json::from_str::<serde_json::Value>(&figures).expect("one JSON object")[name].clone()
}

#[test]
fn a_device_size_takes_its_room_first_or_is_refused() {
    let scratch = Scratch::new();
    let Some(image) = Image::new(scratch.path("fs"), 64, &["mkfs.ext4", "-q"]) else { return };
    scratch.file("disk", vec![0; BACKING]);
    scratch.format(&["--cache", "fs/cache", "--backing", "disk", "--size", "8MiB", "--layout", "log"]);
    let arguments = ["serve", "nbd", "--backing", "disk", "--cache", "fs/cache", "--socket", "s", "--policy", "lru"];
    let mut command = scratch.command(&arguments);
    let piped = std::process::Stdio::piped;
    let mut child = command.stdout(piped()).stderr(piped()).spawn().expect("the command runs");
    let mut client = reached(&scratch, &mut child);
    client.write(0, &[5; 100 * PAGE], FUA);
    let (before, free) = (fs::metadata(scratch.path("fs/cache")).expect("a file"), image.free_bytes());
    let refused = scratch.refused(&["set", "--cache", "fs/cache", "device-size=1GiB"]);
    says(&refused, &["device-size: ", "bytes more, and its file system has "]);
    let after = fs::metadata(scratch.path("fs/cache")).expect("a file");
    assert_eq!((after.len(), after.blocks(), image.free_bytes()), (before.len(), before.blocks(), free));
    // The cache goes on as before, and grows into the available space; a bare number is bytes.
    client.write(0, &[6; 100 * PAGE], FUA);
    scratch.ok(&["set", "--cache", "fs/cache", "device-size=18874368", "cache-size=100%"]);
    let after = fs::metadata(scratch.path("fs/cache")).expect("a file");
    assert!(after.blocks() * 512 >= 18_000_000, "{} blocks", after.blocks());
    assert_eq!(figure(&scratch, "fs/cache", "failed"), false);
    // Another process takes the rest; the cache keeps its blocks.
    let _full = fs::write(scratch.path("fs/rest"), vec![1; 64 << 20]);
    for page in 0..1000u64 {
        client.write(page * PAGE as u64, &[page as u8; PAGE], 0);
    }
    client.write(0, &[0; PAGE], FUA);
    assert_eq!(figure(&scratch, "fs/cache", "failed"), false);
    drop(client);
    terminate(child);
    scratch.ok(&["check", "--cache", "fs/cache", "--backing", "disk"]);
    scratch.ok(&["-q", "drain", "--cache", "fs/cache", "--backing", "disk"]);
    let below = scratch.bytes("disk");
    assert!((0..1000).all(|page| below[page * PAGE] == page as u8));
}

#[test]
fn sizes_that_no_cache_can_have_are_refused_in_words() {
    let scratch = formatted();
    let format = ["format", "--cache", "new", "--backing", "disk", "--size", "1MiB", "--page-size"];
    let refused = scratch.refused(&[&format[..], &["64KiB"]].concat());
    assert!(!refused.contains('{'), "{refused}");
    let mut child = start(&scratch, "lru", "write-back");
    let client = reached(&scratch, &mut child);
    let set = |setting: &str| scratch.refused(&["set", "--cache", "cache", setting]);
    for refused in [set("device-size=4096"), set("device-size=1TiB"), set("cache-size=1TiB")] {
        assert!(!refused.contains(['{', '[']), "{refused}");
    }
    drop(client);
    terminate(child);
}

#[test]
fn memory_above_the_cache_that_no_machine_has_is_refused() {
    let scratch = formatted();
    let serve = ["serve", "nbd", "--socket", "s", "--policy", "face-gsc", "--dram", "4096TiB"];
    says(&scratch.refused(&[&serve[..], &BOTH].concat()), &["bytes of memory", "of them --dram"]);
    let mut child = start(&scratch, "face-gsc", "write-back");
    let mut client = reached(&scratch, &mut child);
    client.write(0, &[5; PAGE], FUA);
    says(&scratch.refused(&["set", "--cache", "cache", "dram=4096TiB"]), &["dram: ", "bytes of memory"]);
    assert_eq!(client.read(0, PAGE as u32), [5; PAGE], "it is served as before");
    drop(client);
    terminate(child);
}

#[test]
fn a_lower_dirty_limit_follows_the_upper_one_unless_it_was_said() {
    let scratch = formatted();
    let mut child = start(&scratch, "lru", "write-back");
    let client = reached(&scratch, &mut child);
    let set = |setting: &str| scratch.ok(&["set", "--cache", "cache", setting]);
    says(&set("dirty-high=5"), &["above 5.0 %", "no more than 4.5 % are"]);
    says(&set("dirty-high=50"), &["above 50.0 %", "no more than 45.0 % are"]);
    says(&set("dirty-high=100"), &["any number"]);
    says(&set("dirty-high=60"), &["no more than 54.0 % are"]);
    says(&set("dirty-low=7"), &["above 60.0 %", "no more than 7.0 % are"]);
    says(&set("dirty-high=50"), &["above 50.0 %", "no more than 7.0 % are"]);
    drop(client);
    terminate(child);
}

#[test]
fn a_format_that_fails_gives_the_room_back() {
    let scratch = Scratch::new();
    let Some(image) = Image::new(scratch.path("fs"), 64, &["mkfs.ext4", "-q"]) else { return };
    scratch.file("disk", vec![0; BACKING]);
    let format = |more: &[&str]| {
        let arguments = [&["format", "--cache", "fs/cache", "--backing", "disk"], more].concat();
        scratch.refused(&arguments)
    };
    let cache = scratch.path("fs/cache");
    // A sparse file, to be filled.
    File::create(&cache).and_then(|file| file.set_len(2 << 30)).expect("a sparse file");
    let free = image.free_bytes();
    let said = format(&[]);
    let found = fs::metadata(&cache).expect("it is there still");
    assert_eq!((found.len(), found.blocks(), image.free_bytes()), (2 << 30, 0, free));
    says(&said, &["fs/cache: ", "its file system has "]);
    // A cache file that is created.
    fs::remove_file(&cache).expect("it goes");
    says(&format(&["--size", "2GiB"]), &["fs/cache: "]);
    assert!(!cache.exists());
    // A cache that is replaced by a larger one, and by one whose directory cannot be formatted, stays.
    scratch.format(&["--cache", "fs/cache", "--backing", "disk", "--size", "16MiB"]);
    let (found, free) = (fs::metadata(&cache).expect("a file"), image.free_bytes());
    says(&format(&["--size", "2GiB", "--force"]), &["fs/cache: "]);
    let after = fs::metadata(&cache).expect("a file");
    assert_eq!((after.len(), after.blocks(), image.free_bytes()), (found.len(), found.blocks(), free));
    scratch.ok(&["check", "--cache", "fs/cache", "--backing", "disk"]);
    // A successful format has the requested size.
    scratch.format(&["--cache", "fs/cache", "--backing", "disk", "--size", "8MiB", "--force"]);
    assert_eq!(fs::metadata(&cache).expect("a file").len(), 8 << 20);
}

#[test]
fn a_format_that_cannot_write_the_directory_gives_the_room_back() {
    let scratch = Scratch::new();
    let Some(image) = Image::new(scratch.path("fs"), 32, &["mkfs.ext4", "-q"]) else { return };
    scratch.file("cache", [0; 4096]);
    image.remount("ro");
    let refused = scratch.refused(&["format", "--cache", "cache", "--backing", "fs", "--size", "16MiB"]);
    says(&refused, &["fs/.entresol: "]);
    assert_eq!(fs::metadata(scratch.path("cache")).expect("a file").len(), 4096);
}

#[test]
fn format_says_what_memory_and_what_reading_a_cache_takes() {
    let scratch = Scratch::new();
    scratch.file("disk", vec![0; BACKING]);
    for layout in ["log", "slots", "segments"] {
        let format = ["format", "--cache", layout, "--backing", "disk", "--size", "64MiB", "--layout", layout];
        let output = scratch.run(&format);
        let said = String::from_utf8(output.stderr).expect("text");
        says(
            &said,
            &[
                "memory in use: 1 MiB at once",
                "more when it is full",
                "more if all of it is dirty",
                "a start reads up to ",
                " s at 500 MB/s",
            ],
        );
    }
}

#[test]
fn a_byte_far_out_in_a_sparse_file_takes_no_memory() {
    // Nearly all file systems end at 16 TiB; the one in memory does not.
    let memory = tempfile::Builder::new().prefix("entresol-far").tempdir_in("/dev/shm");
    let Ok(memory) = memory else { return entresol_skip::skipped!("/dev/shm", "no /dev/shm") };
    if memory.path().metadata().expect("a directory").created().is_err() {
        return entresol_skip::skipped!("kernel", "/dev/shm does not keep when a file was made");
    }
    let scratch = Scratch::new();
    std::os::unix::fs::symlink(memory.path(), scratch.path("backing")).expect("a link");
    fs::create_dir(scratch.path("mount")).expect("a directory");
    scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "8MiB"]);
    let mut mounted = Mounted::over(scratch, ["write-back", "lru"]);
    if !mounted.start() {
        return;
    }
    let (above, below) = (mounted.above(), mounted.below());
    let open =
        |name: &str| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(above.join(name));
    for shift in [31, 44, 50, 54, 58, 60, 62] {
        let file = open(&format!("s{shift}")).expect("a file");
        file.write_all_at(b"far", 1 << shift).unwrap_or_else(|error| panic!("2^{shift}: {error}"));
        file.write_all_at(b"near", 5).expect("a write");
        file.sync_all().expect("a sync");
        let mut bytes = [1; 4];
        file.read_exact_at(&mut bytes, 1 << (shift - 1)).expect("a read in the hole");
        assert_eq!(bytes, [0; 4]);
        file.read_exact_at(&mut bytes[..3], 1 << shift).expect("a read");
        assert_eq!(&bytes[..3], b"far");
        // The file was cut off and lengthened, so that a hole replaces the bytes.
        file.set_len(100).and_then(|()| file.set_len((1 << shift) + 3)).expect("other sizes");
        file.read_exact_at(&mut bytes[..3], 1 << shift).expect("a read");
        assert_eq!(&bytes[..3], [0; 3]);
        file.write_all_at(b"far", 1 << shift).expect("a write");
    }
    let status = fs::read_to_string(format!("/proc/{}/status", mounted.process())).expect("its state");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak").trim();
    let peak: u64 = peak.trim_end_matches(" kB").parse().expect("a number");
    assert!(peak < 400 << 10, "{peak} KiB of memory");
    assert!(open("beyond").expect("a file").write_all_at(b"x", i64::MAX as u64).is_err(), "no file is so large");
    mounted.unmount();
    for shift in [31, 44, 50, 54, 58, 60, 62] {
        let file = File::open(below.join(format!("s{shift}"))).expect("a file");
        let mut bytes = [0; 3];
        file.read_exact_at(&mut bytes, 1 << shift).expect("a read");
        assert_eq!((&bytes, file.metadata().expect("a size").len()), (b"far", (1 << shift) + 3));
    }
    // The next start reads the same map.
    assert!(mounted.start());
    let mut bytes = [0; 3];
    File::open(above.join("s62")).and_then(|file| file.read_exact_at(&mut bytes, 1 << 62)).expect("a read");
    assert_eq!(&bytes, b"far");
    mounted.unmount();
}

#[test]
fn a_file_that_grew_is_drained_checked_and_served() {
    for (end, more) in [(1024 * PAGE, 3 * PAGE), (1024 * PAGE + 512, 8192), (1024 * PAGE + 512, 700)] {
        let scratch = Scratch::new();
        let mut model = vec![0; end];
        scratch.file("disk", &model);
        scratch.format(&["--cache", "cache", "--backing", "disk", "--size", "2MiB"]);
        let mut child = start(&scratch, "lru", "write-back");
        let mut client = reached(&scratch, &mut child);
        model[end - 600..].fill(9);
        client.write(end as u64 - 600, &[9; 600], FUA);
        drop(client);
        terminate(child);
        // Another process appends bytes that the cache has never seen.
        let disk = OpenOptions::new().append(true).open(scratch.path("disk")).expect("the backing store");
        std::io::Write::write_all(&mut &disk, &vec![7; more]).expect("it grows");
        drop(disk);
        model.extend(vec![7; more]);
        scratch.ok(&[&["check"], &BOTH[..]].concat());
        let mut child = start(&scratch, "lru", "write-back");
        let mut client = reached(&scratch, &mut child);
        assert_eq!(client.read(end as u64 - 600, 600 + more as u32), model[end - 600..], "{end}, {more}");
        // Bytes written behind the old end, and flushed, are found after a kill.
        let at = model.len() - 300;
        model[at..].fill(8);
        client.write(at as u64, &[8; 300], FUA);
        drop(client);
        crash(child.id());
        child.wait().expect("an end");
        scratch.ok(&[&["check"], &BOTH[..]].concat());
        let mut child = start(&scratch, "lru", "write-back");
        let mut client = reached(&scratch, &mut child);
        assert_eq!(client.read(end as u64 - 600, 600 + more as u32), model[end - 600..], "{end}, {more}");
        drop(client);
        terminate(child);
        // A store smaller than in use is refused, with both sizes. No process may have it open for writing.
        let resize = |bytes: usize| {
            let disk = OpenOptions::new().write(true).open(scratch.path("disk")).expect("the backing store");
            disk.set_len(bytes as u64).expect("another size");
            disk
        };
        drop(resize(end));
        for command in [&["check"][..], &["drain"], &["serve", "nbd", "--socket", "s"]] {
            let line = scratch.refused(&[command, &BOTH].concat());
            says(&line, &[&format!("disk: has {end} bytes, fewer than the {} that it had", end + more)]);
        }
        resize(end + more).write_all_at(&vec![7; more], end as u64).expect("what was cut off");
        // What somebody put back was not written through the cache.
        says(
            &scratch.refused(&[&["drain"], &BOTH[..]].concat()),
            &["written without its cache, which has", "--generation-ok"],
        );
        scratch.ok(&[&["-q", "drain", "--generation-ok"], &BOTH[..]].concat());
        scratch.ok(&[&["check"], &BOTH[..]].concat());
        let below = scratch.bytes("disk");
        assert_eq!(below[..end], model[..end], "{end}, {more}");
        assert_eq!(below[at..], model[at..], "{end}, {more}");
    }
}
