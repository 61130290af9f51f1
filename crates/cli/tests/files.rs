//! A cache of a directory: its refusals, its checks at a start, and that no kill costs a durable write.

mod common;

use common::mounted::{Mounted, contents};
use common::{Scratch, Signal, is_impossible, says};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::time::{Duration, SystemTime};

const BOTH: [&str; 4] = ["--cache", "cache", "--backing", "backing"];

fn write_back() -> Option<Mounted> {
    Mounted::with(Some(["write-back", "lru"]))
}

/// Terminates the server in order, without a drain.
fn close(mounted: &mut Mounted) {
    mounted.signal(Signal::TERM);
    assert_eq!(mounted.end(), (Some(0), String::new()));
}

fn open(path: impl AsRef<std::path::Path>) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn an_empty_or_foreign_directory_in_place_of_the_backing_is_refused_in_words_and_never_marked() {
    let Some(mut mounted) = write_back() else { return };
    fs::write(mounted.above().join("f"), [7; 3 * 4096]).unwrap();
    close(&mut mounted);
    let scratch = &mounted.scratch;
    // As at a boot when the file system is not mounted yet.
    fs::rename(mounted.below(), scratch.path("away")).unwrap();
    let refused = |part: &str| {
        let commands: [&[&str]; 4] = [
            &["mount", "backing", "mount", "--cache", "cache"],
            &["run", "--backing", "backing", "--cache", "cache", "--", "true"],
            &["drain", "--cache", "cache", "--backing", "backing"],
            &["check", "--cache", "cache", "--backing", "backing"],
        ];
        commands.iter().for_each(|command| says(&scratch.refused(command), &["cache: ", "3 dirty pages", part]));
    };
    let before = scratch.bytes("cache");
    fs::create_dir(mounted.below()).unwrap();
    refused("is its file system mounted?");
    assert_eq!(contents(&mounted.below()), Vec::<String>::new(), "nothing is made there");
    scratch.format(&["--cache", "second", "--backing", "backing", "--size", "2MiB"]);
    let map = scratch.bytes("backing/.entresol/map");
    refused("is the right file system mounted?");
    assert_eq!(scratch.bytes("backing/.entresol/map"), map, "the foreign directory is not marked");
    assert!(scratch.bytes("cache") == before, "nor is the cache");
    fs::remove_dir_all(mounted.below()).unwrap();
    fs::rename(scratch.path("away"), mounted.below()).unwrap();
    scratch.ok(&["-q", "drain", "--cache", "cache", "--backing", "backing"]);
    assert_eq!(fs::read(mounted.below().join("f")).unwrap(), [7; 3 * 4096]);
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let scratch = Scratch::new();
    for name in ["backing", "other", "mount"] {
        fs::create_dir(scratch.path(name)).unwrap();
    }
    let format = |cache: &str, backing: &str| {
        scratch.format(&["--cache", cache, "--backing", backing, "--size", "2MiB"]);
    };
    let mount = |backing: &str, cache: &str| scratch.refused(&["mount", backing, "mount", "--cache", cache]);
    says(&scratch.refused(&["format", "--cache", "backing/c", "--backing", "backing", "--size", "2MiB"]), &["lies in"]);
    format("cache", "backing");
    says(&mount("other", "cache"), &["other: no cache was made for this directory"]);
    format("another", "other");
    says(&mount("other", "cache"), &["cache: this is the cache of another backing store than other"]);
    fs::create_dir(scratch.path("copy")).unwrap();
    fs::create_dir(scratch.path("copy/.entresol")).unwrap();
    fs::copy(scratch.path("backing/.entresol/map"), scratch.path("copy/.entresol/map")).unwrap();
    says(&mount("copy", "cache"), &["copy: this directory is a copy"]);
    for command in ["check", "drain"] {
        says(
            &scratch.refused(&[command, "--cache", "cache", "--backing", "copy"]),
            &["copy: this directory is a copy"],
        );
    }
    let refused = |more: &[&str]| scratch.refused(&[&["mount", "backing", "mount", "--cache", "cache"], more].concat());
    says(&refused(&["--bypass", "/"]), &["--bypass '/'", "at least one name"]);
    says(&refused(&["--policy", "min"]), &["future"]);
    says(&refused(&["--emulate", "hdd"]), &["--emulate"]);
    says(&scratch.refused(&["mount", "backing", "mount", "--bypass", "x"]), &["--cache"]);
    let map = scratch.bytes("backing/.entresol/map");
    let mut damaged = map.clone();
    damaged[40] ^= 1;
    scratch.file("backing/.entresol/map", &damaged);
    says(&mount("backing", "cache"), &["backing: the file map is damaged at byte 0"]);
}

#[test]
fn the_name_of_the_cache_is_not_shown() {
    let Some(mut mounted) = write_back() else { return };
    assert_eq!(fs::read_dir(mounted.above()).unwrap().count(), 0);
    assert!(fs::metadata(mounted.above().join(".entresol")).is_err());
    fs::create_dir(mounted.above().join("d")).unwrap();
    let made = fs::create_dir(mounted.above().join(".entresol")).unwrap_err();
    assert_eq!(made.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(fs::write(mounted.above().join(".entresol"), b"x").is_err());
    assert!(fs::rename(mounted.above().join("d"), mounted.above().join(".entresol")).is_err());
    fs::create_dir(mounted.above().join("d/.entresol")).unwrap();
    mounted.unmount();
}

#[test]
fn a_directory_whose_cache_is_dirty_is_not_used_without_it() {
    let Some(mut mounted) = write_back() else { return };
    fs::write(mounted.above().join("f"), [7; 10_000]).unwrap();
    let scratch = &mounted.scratch;
    for command in [&["check"][..], &["drain"]] {
        says(&scratch.refused(&[command, &BOTH[..]].concat()), &["in use by another process"]);
    }
    close(&mut mounted);
    let scratch = &mounted.scratch;
    assert_eq!(fs::read(mounted.below().join("f")).unwrap(), [0; 10_000]);
    says(
        &scratch.refused(&["mount", "backing", "mount"]),
        &["backing: its files are not complete without their cache"],
    );
    let format = ["format", "--cache", "new", "--backing", "backing", "--size", "2MiB"];
    says(&scratch.refused(&format), &["backing: another cache may have dirty pages of its files"]);
    scratch.ok(&[&["-q", "drain"], &BOTH[..]].concat());
    assert_eq!(fs::read(mounted.below().join("f")).unwrap(), [7; 10_000]);
    scratch.ok(&[&["-q"], &format[..]].concat());
    says(&scratch.refused(&[&["drain"], &BOTH[..]].concat()), &["cache: this is the cache of another backing store"]);
}

#[test]
fn a_file_changed_without_the_cache_is_read_anew_or_in_conflict_if_it_is_dirty() {
    let Some(mut mounted) = write_back() else { return };
    for name in ["a", "b"] {
        fs::write(mounted.above().join(name), [1; 50_000]).unwrap();
    }
    mounted.unmount();
    // All pages are clean now; then one is changed.
    open(mounted.below().join("a")).write_all_at(&[2; 100], 20_000).unwrap();
    assert!(mounted.start());
    let mut expected = vec![1; 50_000];
    expected[20_000..20_100].fill(2);
    assert!(fs::read(mounted.above().join("a")).unwrap() == expected);
    assert_eq!(fs::read(mounted.above().join("b")).unwrap(), [1; 50_000]);
    open(mounted.above().join("b")).write_all_at(&[3; 5000], 8192).unwrap();
    close(&mut mounted);
    open(mounted.below().join("b")).write_all_at(&[4; 100], 0).unwrap();
    for mode in ["write-back", "write-through"] {
        mounted.change(mode, "lru");
        // Two starts, because a start must not change the result.
        for _ in 0..2 {
            assert!(mounted.start());
            assert!(fs::read(mounted.above().join("a")).unwrap() == expected, "another file is served");
            mounted.signal(Signal::TERM);
            let (code, said) = mounted.end();
            assert_eq!(code, Some(2), "{said}");
            says(&said, &["backing/b (2 pages): was changed without the cache"]);
        }
    }
    assert_eq!(fs::read(mounted.below().join("b")).unwrap()[8192], 1, "nothing was written");
    fs::rename(mounted.below().join("b"), mounted.scratch.path("b")).unwrap();
    fs::copy(mounted.scratch.path("b"), mounted.below().join("b")).unwrap();
    // The conflict's pages are kept beside the map by now; the missing file is reported all the same.
    for command in
        [&["mount", "backing", "mount", "--cache", "cache"][..], &["check", "--cache", "cache", "--backing", "backing"]]
    {
        let refused = mounted.scratch.run(command);
        says(&String::from_utf8_lossy(&refused.stderr), &["2 pages of 1 file ", "--drop-gone"]);
    }
    mounted.change("write-back", "lru");
    assert!(mounted.start_with(&["--drop-gone"]));
    let names: Vec<_> =
        fs::read_dir(mounted.below().join(".entresol")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with("aside")), "{names:?}");
    let b = fs::read(mounted.above().join("b")).unwrap();
    assert_eq!((b[0], b[8192]), (4, 1));
    mounted.unmount();
}

#[test]
fn a_removed_file_never_shows_in_the_next_one() {
    let Some(mut mounted) = write_back() else { return };
    for round in 0..20_u8 {
        let path = mounted.above().join("f");
        let file = open(&path);
        file.write_all_at(&[round + 1; 20_000], 0).unwrap();
        file.sync_all().unwrap();
        let inode = file.metadata().unwrap().ino();
        drop(file);
        match round % 3 {
            0 => {
                fs::remove_file(&path).unwrap();
            }
            1 => {
                // Removed and made again while no server runs.
                mounted.signal(Signal::KILL);
                mounted.end();
                fs::remove_file(mounted.below().join("f")).unwrap();
                File::create(mounted.below().join("f")).unwrap().set_len(20_000).unwrap();
                assert!(mounted.start_with(&["--drop-gone"]));
                let again = fs::metadata(&path).unwrap();
                println!("round {round}: inode {inode}, then {}", again.ino());
                assert_eq!(fs::read(&path).unwrap(), [0; 20_000]);
                fs::remove_file(&path).unwrap();
            }
            _ => {
                fs::remove_file(&path).unwrap();
                mounted.signal(Signal::KILL);
                mounted.end();
                assert!(mounted.start());
            }
        }
        let file = open(&path);
        file.set_len(20_000).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [0; 20_000], "round {round}");
        drop(file);
        fs::remove_file(&path).unwrap();
    }
    mounted.unmount();
}

#[test]
fn what_is_cut_off_does_not_come_back() {
    let Some(mut mounted) = write_back() else { return };
    let path = mounted.above().join("f");
    for (cut, kill) in [(5000, false), (8192, true), (1, true), (0, true), (12_345, false)] {
        let file = open(&path);
        file.write_all_at(&[9; 40_000], 0).unwrap();
        file.sync_all().unwrap();
        file.set_len(cut).unwrap();
        file.sync_all().unwrap();
        drop(file);
        if kill {
            mounted.signal(Signal::KILL);
            mounted.end();
            assert!(mounted.start());
        }
        let file = open(&path);
        file.set_len(40_000).unwrap();
        let mut expected = vec![9; cut as usize];
        expected.resize(40_000, 0);
        assert!(fs::read(&path).unwrap() == expected, "cut at {cut}");
        drop(file);
        fs::remove_file(&path).unwrap();
    }
    mounted.unmount();
}

#[test]
fn logs_go_past_the_cache() {
    let Some(mut mounted) = write_back() else { return };
    fs::create_dir(mounted.above().join("pg_wal")).unwrap();
    for name in ["pg_wal/1", "x.db-wal", "x.db"] {
        fs::write(mounted.above().join(name), [6; 9000]).unwrap();
    }
    for (name, byte) in [("pg_wal/1", 6), ("x.db-wal", 6), ("x.db", 0)] {
        assert_eq!(fs::read(mounted.below().join(name)).unwrap(), [byte; 9000], "{name}");
    }
    // A file with pages in the cache stays cached under any name.
    fs::rename(mounted.above().join("x.db"), mounted.above().join("y.db-wal")).unwrap();
    assert_eq!(fs::read(mounted.above().join("y.db-wal")).unwrap(), [6; 9000]);
    fs::rename(mounted.above().join("x.db-wal"), mounted.above().join("z")).unwrap();
    fs::write(mounted.above().join("z"), [8; 100]).unwrap();
    mounted.unmount();
    assert_eq!(fs::read(mounted.below().join("y.db-wal")).unwrap(), [6; 9000]);
    assert_eq!(fs::read(mounted.below().join("z")).unwrap(), [8; 100]);
}

#[test]
fn times_are_those_of_the_writes_above() {
    let Some(mut mounted) = write_back() else { return };
    let path = mounted.above().join("f");
    let modified = || fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, [1; 4096]).unwrap();
    let file = open(&path);
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.set_modified(past).unwrap();
    assert_eq!(modified(), past, "what is set after a write stays");
    let before = SystemTime::now();
    file.write_all_at(&[2; 10], 0).unwrap();
    assert!(modified() >= before && modified() <= SystemTime::now());
    file.set_modified(past).unwrap();
    drop(file);
    mounted.unmount();
    assert_eq!(fs::metadata(mounted.below().join("f")).unwrap().modified().unwrap(), past, "a drain is no change");
    assert_eq!(fs::read(mounted.below().join("f")).unwrap()[..11], [&[2; 10][..], &[1]].concat());
    assert!(mounted.start());
    assert_eq!(contents(&mounted.above()), contents(&mounted.below()));
    mounted.unmount();
}

#[test]
fn a_shell_that_allows_few_open_files_is_enough_for_many() {
    let Some(mut mounted) = write_back() else { return };
    for file in 0..100 {
        fs::write(mounted.above().join(format!("{file}")), [file; 4096]).unwrap();
    }
    close(&mut mounted);
    // More than 64 files have pages in the cache, and by default 64 may be open.
    let few = |words: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -Sn 64; exec \"$0\" {words}"), env!("CARGO_BIN_EXE_entresol")]);
        command.current_dir(mounted.scratch.path("."));
        command
    };
    let both = "--cache cache --backing backing";
    let shown = "sh -c 'head -c 1 backing/99 | od -An -tu1; ulimit -Sn'";
    let output = few(&format!("run {both} -- {shown}")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !is_impossible(&said) {
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(printed.split_whitespace().collect::<Vec<_>>(), ["99", "64"], "{said}");
    }
    for command in ["check", "drain"] {
        let output = few(&format!("{command} {both}")).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(fs::read(mounted.below().join("99")).unwrap(), [99; 4096]);
}
