//! Files that another process changes in the backing store of a cache: changes are found, never covered up, and never
//! confused with the cache's own.

mod common;

use common::mounted::{Mounted, two_at_a_time};
use common::{Signal, says};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Timespec, Timestamps, XattrFlags};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

const PAGE: usize = 4096;
const PAGES: usize = 12;
const BOTH: [&str; 4] = ["--cache", "cache", "--backing", "backing"];
const CHANGED: &str = "was changed without the cache";

fn open(path: impl AsRef<Path>) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("a file")
}

/// A file of which each page is its number and a version.
fn bytes(version: u8) -> Vec<u8> {
    (0..PAGES).flat_map(|page| [page as u8 * 16 + version; PAGE]).collect()
}

/// The first byte of each page of a file, each read by itself; none where the read is an I/O error.
fn pages(path: &Path) -> Vec<Option<u8>> {
    let file = File::open(path).expect("it is opened");
    let mut page = [0; PAGE];
    let read = |at: usize, page: &mut [u8; PAGE]| match file.read_at(page, (at * PAGE) as u64) {
        Ok(0) => Err(None),
        Ok(_) => Ok(page[0]),
        Err(error) => Err(Some(error)),
    };
    let mut read_all = Vec::new();
    for at in 0.. {
        match read(at, &mut page) {
            Ok(first) => read_all.push(Some(first)),
            Err(None) => break,
            Err(Some(error)) => {
                assert!(is_io(&error), "{error}");
                read_all.push(None);
            }
        }
    }
    read_all
}

fn is_io(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// Ways in which another process changes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Write,
    Truncate,
    Append,
}

impl By {
    const ALL: [By; 3] = [By::Write, By::Truncate, By::Append];

    fn change(self, path: &Path) {
        let file = open(path);
        match self {
            By::Write => file.write_all_at(&[0xee; PAGE], PAGE as u64),
            By::Truncate => file.set_len(5 * PAGE as u64),
            By::Append => file.write_all_at(&[0xee; PAGE], (PAGES * PAGE) as u64),
        }
        .expect("a change");
    }

    /// The same change to bytes in memory.
    fn applied(self, mut bytes: Vec<u8>) -> Vec<u8> {
        match self {
            By::Write => bytes[PAGE..2 * PAGE].fill(0xee),
            By::Truncate => bytes.truncate(5 * PAGE),
            By::Append => bytes.extend([0xee; PAGE]),
        }
        bytes
    }
}

/// The figures, with those of files: on a busy machine file counts may come too late.
fn stats(mounted: &Mounted) -> Value {
    for _ in 0..20 {
        let text = mounted.scratch.ok(&["stats", "--json", "cache"]);
        let figures: Value = serde_json::from_str(&text).expect("figures");
        if figures["accounts_late"] != true {
            return figures;
        }
    }
    panic!("the accounts of files never come in time");
}

fn conflicts(mounted: &Mounted) -> Vec<(String, u64)> {
    let figures = stats(mounted);
    let listed = figures["conflicts"].as_array().cloned().unwrap_or_default();
    let one = |conflict: &Value| {
        (conflict["path"].as_str().expect("a path").to_owned(), conflict["pages"].as_u64().expect("a number"))
    };
    listed.iter().map(one).collect()
}

/// Ends the server in order and returns its output. `code` is 2 where files are in conflict.
fn ended(mounted: &mut Mounted, code: i32) -> String {
    mounted.signal(Signal::TERM);
    let (ended, said) = mounted.end();
    assert_eq!(ended, Some(code), "{said}");
    said
}

fn killed(mounted: &mut Mounted) {
    mounted.signal(Signal::KILL);
    mounted.end();
}

fn said(output: &Output, code: i32) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8(text).expect("text");
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

fn command(mounted: &Mounted, name: &str) -> Output {
    mounted.scratch.run(&[&[name], &BOTH[..]].concat())
}

/// A file of clean pages: every page is in the backing store, and the cache knows that.
fn put_clean(mounted: &Mounted, name: &str) {
    fs::write(mounted.above().join(name), bytes(1)).expect("a file");
    mounted.scratch.ok(&["set", "--cache", "cache", "mode=write-through"]);
    let file = open(mounted.above().join(name));
    file.sync_all().expect("a sync");
    settle(&file);
    let _cached = fs::read(mounted.above().join(name)).expect("bytes");
}

/// The same, with pages 2 and 7 dirty.
fn put_dirty(mounted: &Mounted, name: &str) {
    put_clean(mounted, name);
    mounted.scratch.ok(&["set", "--cache", "cache", "mode=write-back"]);
    let file = open(mounted.above().join(name));
    for page in [2, 7] {
        file.write_all_at(&[page as u8 * 16 + 2; PAGE], (page * PAGE) as u64).expect("a write");
    }
    file.sync_all().expect("a sync");
    settle(&file);
}

/// Sets the backing file's time of the last write now, by asking for it. Otherwise the last handle would set it when
/// it closes. That is a change of the cache's own, and may be under way when another process changes the file.
fn settle(file: &File) {
    file.metadata().expect("attributes");
}

/// Runs a test over caches of 284 to 374 pages; it is told the layout too.
fn each_layout(test: impl Fn(Mounted, &str, &str) + Sync) {
    let worlds = [("off", "log", "lru"), ("on", "log", "face-gsc"), ("on", "slots", "lru"), ("off", "segments", "lru")];
    two_at_a_time(&worlds, |&(page_cache, layout, policy)| {
        println!("page cache {page_cache}, {layout}, {policy}");
        let mounted = Mounted::with_layout(["write-back", policy], page_cache, layout);
        mounted.map(|mounted| test(mounted, page_cache, layout)).is_some()
    });
}

fn each(test: impl Fn(Mounted, &str) + Sync) {
    each_layout(|mounted, page_cache, _| test(mounted, page_cache));
}

/// A changed file without dirty pages is read anew, and is cached again.
#[test]
fn a_changed_file_without_dirty_pages_is_read_anew() {
    each(|mut mounted, _| {
        for by in By::ALL {
            let name = format!("{by:?}");
            put_clean(&mounted, &name);
            by.change(&mounted.below().join(&name));
            let mut expected = by.applied(bytes(1));
            // The kernel keeps sizes for a second.
            let _looked = File::open(mounted.above().join(&name)).expect("it is opened");
            std::thread::sleep(Duration::from_millis(1100));
            assert!(fs::read(mounted.above().join(&name)).expect("bytes") == expected, "{by:?}");
            let file = open(mounted.above().join(&name));
            file.write_all_at(&[0x55; 10], expected.len() as u64).expect("it is written on");
            file.write_all_at(&[0x66; 10], 0).expect("it is written");
            file.sync_all().expect("a sync");
            expected.extend([0x55; 10]);
            expected[..10].fill(0x66);
            assert!(fs::read(mounted.above().join(&name)).expect("bytes") == expected, "{by:?}");
            assert!(conflicts(&mounted).is_empty());
            mounted.scratch.ok(&["set", "--cache", "cache", "mode=write-through"]);
            assert!(fs::read(mounted.below().join(&name)).expect("bytes") == expected, "{by:?}");
        }
        let said = ended(&mut mounted, 0);
        By::ALL.iter().for_each(|by| says(&said, &[&format!("{by:?}: {CHANGED}, which had no dirty pages of it")]));
        said_clean(&mounted);
    });
}

/// In write-through the directory is complete, so a server may run on it after a crash, until the cache is mounted again.
#[test]
fn what_was_written_after_a_crash_to_a_complete_directory_is_read() {
    each(|mut mounted, _| {
        let names: Vec<String> = By::ALL.iter().map(|by| format!("{by:?}")).collect();
        names.iter().for_each(|name| put_clean(&mounted, name));
        put_clean(&mounted, "left alone");
        killed(&mut mounted);
        // Changes within four seconds of the last mark count as the cache's own.
        std::thread::sleep(Duration::from_secs(6));
        By::ALL.iter().zip(&names).for_each(|(by, name)| by.change(&mounted.below().join(name)));
        mounted.change_mode("write-through");
        assert!(mounted.start(), "it is mounted again");
        for (by, name) in By::ALL.iter().zip(&names) {
            let read = fs::read(mounted.above().join(name)).expect("bytes");
            assert!(read == by.applied(bytes(1)), "{by:?}");
        }
        assert!(fs::read(mounted.above().join("left alone")).expect("bytes") == bytes(1));
        killed(&mut mounted);
        // The files are complete, so another cache may take the place of this one.
        mounted.scratch.ok(&["format", "--cache", "another", "--backing", "backing", "--size", "4MiB"]);
    });
}

fn said_clean(mounted: &Mounted) {
    said(&command(mounted, "check"), 0);
    said(&command(mounted, "drain"), 0);
    said(&command(mounted, "check"), 0);
}

/// Asserts what a program sees of a file that a change has put into conflict.
fn is_in_conflict(mounted: &Mounted, name: &str, by: By, dirty: &[usize]) {
    let above = mounted.above().join(name);
    let below = by.applied(bytes(1));
    let expected = below.chunks(PAGE).enumerate().map(|(page, bytes)| (!dirty.contains(&page)).then_some(bytes[0]));
    let _looked = File::open(&above).expect("it is opened");
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(pages(&above), expected.collect::<Vec<_>>(), "{name}");
    let file = open(&above);
    for refused in [file.write_at(b"x", 0).map(drop), file.set_len(1), file.sync_all(), file.sync_data()] {
        assert!(refused.is_err_and(|error| is_io(&error)), "{name}");
    }
    assert!(fs::read(mounted.below().join(name)).expect("bytes") == below, "nothing is written to {name}");
}

/// Dirty pages of a changed file are neither served nor written nor lost, over restarts and kills, until the user says
/// which bytes count.
#[test]
fn a_changed_file_with_dirty_pages_is_in_conflict_until_that_is_resolved() {
    each(|mut mounted, page_cache| {
        for (turn, by) in By::ALL.into_iter().enumerate() {
            for (keep, live) in [("cache", true), ("below", true), ("cache", false), ("below", false)] {
                // With a page cache above each case takes a second or two, so not all of them run.
                if page_cache == "on" && (turn + usize::from(keep == "cache") + usize::from(live)) % 3 != 0 {
                    continue;
                }
                let name = format!("{by:?}-{keep}-{live}");
                one_conflict(&mut mounted, &name, by, keep, live);
            }
        }
        ended(&mut mounted, 0);
        said_clean(&mounted);
    });
}

fn one_conflict(mounted: &mut Mounted, name: &str, by: By, keep: &str, live: bool) {
    println!("{name}");
    put_dirty(mounted, "other");
    // This call has the first one written to the backing store.
    put_dirty(mounted, name);
    let mut kept = bytes(1);
    [2, 7].iter().for_each(|&page| kept[page * PAGE..(page + 1) * PAGE].fill(page as u8 * 16 + 2));
    by.change(&mounted.below().join(name));
    let dirty = [2, 7];
    is_in_conflict(mounted, name, by, &dirty);
    assert_eq!(conflicts(mounted), [(name.to_owned(), 2)]);
    says(
        &mounted.scratch.ok(&["stats", "cache"]),
        &["conflicts      changed without the cache", &format!("{name} (2 pages)")],
    );
    assert!(fs::read(mounted.above().join("other")).expect("another file is served") == kept);
    open(mounted.above().join("other")).sync_all().expect("and synced");
    killed(mounted);
    let found = said(&command(mounted, "check"), 1);
    says(&found, &[&format!("backing/{name} (2 pages): {CHANGED}"), "entresol resolve"]);
    assert!(mounted.start());
    is_in_conflict(mounted, name, by, &dirty);
    says(&ended(mounted, 2), &[&format!("backing/{name} (2 pages): {CHANGED}"), "entresol resolve"]);
    let drained = said(&command(mounted, "drain"), 2);
    says(&drained, &[&format!("backing/{name} (2 pages): {CHANGED}"), "entresol resolve"]);
    said(&command(mounted, "check"), 1);
    let below = mounted.below().join(name);
    assert!(fs::read(&below).expect("bytes") == by.applied(bytes(1)), "a drain does not write there");
    assert!(fs::read(mounted.below().join("other")).expect("bytes") == kept, "but elsewhere");
    let file = if live { mounted.above().join(name) } else { below.clone() };
    if live {
        assert!(mounted.start());
        assert_eq!(conflicts(mounted), [(name.to_owned(), 2)]);
    }
    let resolved = mounted.scratch.run(&["resolve", file.to_str().expect("text"), "--keep", keep]);
    says(&said(&resolved, 0), &["2 pages of the cache"]);
    let again = mounted.scratch.run(&["resolve", file.to_str().expect("text"), "--keep", keep]);
    says(&said(&again, 2), &["it is in no conflict"]);
    if !live {
        said(&command(mounted, "check"), 0);
        assert!(mounted.start());
    }
    assert!(conflicts(mounted).is_empty());
    let mut expected = by.applied(bytes(1));
    if keep == "cache" {
        // The file has its size again. Bytes written where the cache had no dirty page stay, and the cut-off range
        // stays zeros.
        expected.resize(PAGES * PAGE, 0);
        dirty.iter().for_each(|&page| expected[page * PAGE..(page + 1) * PAGE].fill(page as u8 * 16 + 2));
    }
    std::thread::sleep(Duration::from_millis(1100));
    let above = mounted.above().join(name);
    assert!(fs::read(&above).expect("bytes") == expected, "{name}: {:?}", pages(&above));
    let file = open(&above);
    file.write_all_at(&[0x77; 100], 3 * PAGE as u64).expect("it is written again");
    file.sync_all().expect("a sync");
    expected[3 * PAGE..3 * PAGE + 100].fill(0x77);
    mounted.scratch.ok(&["set", "--cache", "cache", "mode=write-through"]);
    assert!(fs::read(&below).expect("bytes") == expected, "{name}");
    mounted.scratch.ok(&["set", "--cache", "cache", "mode=write-back"]);
}

/// A change of attributes alone, mounted or not, gives a warning, and the cache goes on.
#[test]
fn a_file_of_which_only_attributes_were_changed_goes_on_with_a_warning() {
    each(|mut mounted, _| {
        put_dirty(&mounted, "f");
        let mut expected = bytes(1);
        [2, 7].iter().for_each(|&page| expected[page * PAGE..(page + 1) * PAGE].fill(page as u8 * 16 + 2));
        let below = mounted.below().join("f");
        let link = mounted.below().join("link");
        let owner = || rustix::fs::chown(&below, Some(rustix::process::getuid()), None).expect("an owner");
        let changes: [(&str, &dyn Fn()); 3] = [
            ("chmod", &|| fs::set_permissions(&below, fs::Permissions::from_mode(0o600)).expect("a mode")),
            ("chown", &owner),
            ("ln", &|| fs::hard_link(&below, &link).expect("a link")),
        ];
        for (what, change) in changes {
            println!("{what}");
            change();
            assert!(fs::read(mounted.above().join("f")).expect("bytes") == expected, "{what}");
            assert!(conflicts(&mounted).is_empty(), "{what}");
        }
        let said = ended(&mut mounted, 0);
        assert_eq!(said.matches("f: its attributes were changed without the cache").count(), 3, "{said}");
        fs::remove_file(&link).expect("a name goes while nobody serves it");
        said_of_start(&mut mounted, "attributes alone of 1 files were changed without the cache");
        assert!(fs::read(mounted.above().join("f")).expect("bytes") == expected);
        open(mounted.above().join("f")).sync_all().expect("a sync");
        ended(&mut mounted, 0);
        said_clean(&mounted);
        assert!(fs::read(&below).expect("bytes") == expected, "all of it was written below");
    });
}

/// Starts and ends the server to check its output, and starts it again.
fn said_of_start(mounted: &mut Mounted, part: &str) {
    assert!(mounted.start());
    says(&ended(mounted, 0), &[part]);
    assert!(mounted.start());
}

/// Other bytes under the old times, as `rsync --inplace --times` may leave them, are distinguished from changed
/// attributes by the bytes of clean pages.
#[test]
fn other_bytes_under_the_same_times_are_no_mere_attributes() {
    each(|mut mounted, _| {
        for (name, is_live) in [("live", true), ("closed", false)] {
            put_dirty(&mounted, name);
            let below = mounted.below().join(name);
            if !is_live {
                ended(&mut mounted, 2);
            }
            let time = fs::metadata(&below).expect("attributes").modified().expect("a time");
            let file = open(&below);
            file.write_all_at(&[0xee; PAGE], PAGE as u64).expect("a write");
            file.set_modified(time).expect("a time");
            drop(file);
            if !is_live {
                assert!(mounted.start());
            }
            is_in_conflict(&mounted, name, By::Write, &[2, 7]);
        }
        assert_eq!(conflicts(&mounted).len(), 2);
        ended(&mut mounted, 2);
    });
}

/// Another file under the name of a cached one: its bytes are read, and dirty pages of the first are not written to
/// it.
#[test]
fn a_file_that_takes_the_name_of_a_cached_one_gets_none_of_its_pages() {
    each(|mut mounted, _| {
        put_dirty(&mounted, "f");
        fs::write(mounted.below().join("new"), bytes(9)).expect("a file");
        fs::rename(mounted.below().join("new"), mounted.below().join("f")).expect("a name");
        std::thread::sleep(Duration::from_millis(1100));
        assert!(fs::read(mounted.above().join("f")).expect("bytes") == bytes(9));
        mounted.scratch.ok(&["set", "--cache", "cache", "mode=write-through"]);
        assert!(fs::read(mounted.below().join("f")).expect("bytes") == bytes(9));
        mounted.signal(Signal::TERM);
        mounted.end();
        assert!(fs::read(mounted.below().join("f")).expect("bytes") == bytes(9));
    });
}

/// No process opens the file and no command asks: a change is found when pages are about to be written over it.
#[test]
fn a_change_is_found_before_pages_are_written_over_it() {
    each(|mut mounted, _| {
        put_dirty(&mounted, "f");
        let held = open(mounted.above().join("f"));
        By::Write.change(&mounted.below().join("f"));
        mounted.scratch.ok(&["set", "--cache", "cache", "mode=write-through"]);
        assert!(fs::read(mounted.below().join("f")).expect("bytes") == By::Write.applied(bytes(1)));
        let mut page = [0; PAGE];
        std::thread::sleep(Duration::from_millis(200));
        assert!(held.read_at(&mut page, 2 * PAGE as u64).is_err_and(|error| is_io(&error)));
        drop(held);
        is_in_conflict(&mounted, "f", By::Write, &[2, 7]);
        let refused = mounted.scratch.run(&["resolve", "mount/f", "--keep", "cache"]);
        says(&said(&refused, 0), &["2 pages of the cache count again"]);
        let mut expected = By::Write.applied(bytes(1));
        [2, 7].iter().for_each(|&page| expected[page * PAGE..(page + 1) * PAGE].fill(page as u8 * 16 + 2));
        assert!(fs::read(mounted.below().join("f")).expect("bytes") == expected, "they are there at once");
        assert!(fs::read(mounted.above().join("f")).expect("bytes") == expected);
        ended(&mut mounted, 0);
        said_clean(&mounted);
    });
}

/// As many pages in conflict as the cache can hold, or nearly: other files are served, written and drained.
#[test]
fn a_cache_full_of_pages_in_conflict_serves_other_files() {
    const MANY: usize = 300;
    each_layout(|mut mounted, _, layout| {
        let (above, below) = (mounted.above(), mounted.below());
        let full: Vec<u8> = (0..MANY).flat_map(|page| [page as u8; PAGE]).collect();
        fs::write(above.join("full"), vec![7; MANY * PAGE]).expect("a file");
        mounted.scratch.ok(&["set", "--cache", "cache", "mode=write-through"]);
        mounted.scratch.ok(&["set", "--cache", "cache", "mode=write-back"]);
        let file = open(above.join("full"));
        file.write_all_at(&full, 0).expect("a write");
        file.sync_all().expect("a sync");
        open(below.join("full")).write_all_at(&[0xee; PAGE], 0).expect("a change");
        let listed = conflicts(&mounted);
        // Segments are reclaimed earlier than a log's, and pages are cleaned for that.
        let many = if layout == "segments" { 150 } else { 200 };
        assert!(listed.len() == 1 && listed[0].1 > many, "{layout}: {listed:?}");
        for round in 0..6_u8 {
            let other = open(above.join("other"));
            other.write_all_at(&vec![round; 2 * MANY * PAGE], 0).expect("a write");
            other.sync_all().expect("a sync");
            assert!(fs::read(above.join("other")).expect("bytes") == vec![round; 2 * MANY * PAGE]);
            if round == 3 {
                killed(&mut mounted);
                assert!(mounted.start());
            }
        }
        assert_eq!(conflicts(&mounted), listed, "all of them are kept");
        assert!(listed[0].1 as usize <= MANY);
        says(&ended(&mut mounted, 2), &["entresol resolve"]);
        says(&said(&command(&mounted, "drain"), 2), &["entresol resolve"]);
        assert!(fs::read(below.join("other")).expect("bytes") == vec![5; 2 * MANY * PAGE]);
        let path = below.join("full");
        said(&mounted.scratch.run(&["resolve", path.to_str().expect("text"), "--keep", "cache"]), 0);
        said_clean(&mounted);
        let found = fs::read(&path).expect("bytes");
        let wrong: Vec<usize> = (1..MANY)
            .filter(|page| found[page * PAGE..(page + 1) * PAGE] != full[page * PAGE..(page + 1) * PAGE])
            .collect();
        assert!(
            wrong.is_empty(),
            "{wrong:?}: what was dirty then was not evicted before the change, or is in the file"
        );
    });
}

/// A random generator for the load below, one for each thread.
struct Load {
    random: entresol_core::Random,
    directory: PathBuf,
    number: usize,
}

impl Load {
    fn path(&mut self) -> PathBuf {
        // Some files bypass the cache by their names, and return to it.
        let kind = ["a", "b", "c", "past.log"][self.random.below(4) as usize];
        self.directory.join(format!("{}-{kind}", self.number))
    }

    fn step(&mut self) -> io::Result<()> {
        let (path, other) = (self.path(), self.path());
        let at = self.random.below(40 * PAGE as u64);
        let version = self.random.next_u64() as u8;
        match self.random.below(20) {
            0..7 => open(&path).write_all_at(&vec![version; 1 + self.random.below(3 * PAGE as u64) as usize], at)?,
            7 => open(&path).set_len(at)?,
            8 => {
                let how = [
                    FallocateFlags::empty(),
                    FallocateFlags::KEEP_SIZE,
                    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    FallocateFlags::ZERO_RANGE,
                ];
                rustix::fs::fallocate(
                    open(&path),
                    how[self.random.below(4) as usize],
                    at,
                    1 + self.random.below(9000),
                )?;
            }
            9 => open(&path).sync_all()?,
            10 => open(&path).sync_data()?,
            11 => fs::set_permissions(&path, fs::Permissions::from_mode(0o600 | u32::from(version & 0o77)))?,
            12 => {
                let time = Timespec { tv_sec: at as i64, tv_nsec: 5 };
                let times = Timestamps { last_access: time, last_modification: time };
                rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty())?;
            }
            13 => fs::rename(&path, &other)?,
            14 => fs::hard_link(&path, &other)?,
            15 if version.is_multiple_of(4) => fs::remove_file(&path)?,
            16 => rustix::fs::setxattr(&path, "user.note", &[version], XattrFlags::empty())?,
            17 => rustix::fs::chown(&path, Some(rustix::process::getuid()), None)?,
            18 => drop(File::create(&path)?),
            _ => {
                let mut bytes = Vec::new();
                File::open(&path)?.read_to_end(&mut bytes)?;
            }
        }
        Ok(())
    }
}

/// All that a program can do through a mount, in every mode, with files that leave and re-enter the cache, while each
/// `open` and each `stats` compares: no operation is taken for a change by another process.
#[test]
fn nothing_that_is_done_through_a_mount_is_taken_for_somebody_elses_doing() {
    const STEPS: usize = 4000;
    let seed = std::env::var("ENTRESOL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("seed {seed}");
    for (mode, policy, page_cache, layout) in [
        ("write-back", "face-gsc", "on", "log"),
        ("write-through", "lru", "off", "slots"),
        ("write-around", "lru", "on", "log"),
        ("write-back", "reuse", "on", "segments"),
        ("write-back", "lru", "off", "slots"),
    ] {
        println!("{mode}, {policy}, page cache {page_cache}, {layout}");
        let Some(mut mounted) = Mounted::with_layout([mode, policy], page_cache, layout) else { return };
        let directory = mounted.above();
        let loads = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|number| {
                    let random = entresol_core::Random::new(entresol_core::Random::mix(seed + number as u64));
                    let mut load = Load { random, directory: directory.clone(), number: number % 2 };
                    scope.spawn(move || (0..STEPS).filter(|_| load.step().inspect_err(not_io).is_ok()).count())
                })
                .collect();
            let mut turns = 0;
            while threads.iter().any(|thread| !thread.is_finished()) {
                let _compared = mounted.scratch.ok(&["stats", "--json", "cache"]);
                turns += 1;
                if turns % 5 == 0 && mode == "write-back" {
                    // Write-back at full speed beside the load.
                    mounted.scratch.ok(&["set", "--cache", "cache", "mode=write-around"]);
                    mounted.scratch.ok(&["set", "--cache", "cache", "mode=write-back"]);
                }
            }
            println!("{turns} stats");
            threads.into_iter().map(|thread| thread.join().expect("a load")).sum::<usize>()
        });
        println!("{loads} of {} operations succeeded", 3 * STEPS);
        assert!(loads > STEPS, "most of them are possible");
        assert!(conflicts(&mounted).is_empty());
        mounted.unmount();
    }
}

fn not_io(error: &io::Error) {
    assert!(!is_io(error), "a file is taken for changed: {error}");
}
