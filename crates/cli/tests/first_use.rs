//! First steps of a new user: a mount before its cache was made, a mount point that is not empty, what
//! `format` chooses, old times.

mod common;

use common::mounted::Mounted;
use common::{Scratch, Signal, is_impossible, says, signal};
use rustix::fs::{Timespec, Timestamps};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

fn folders() -> Scratch {
    let scratch = Scratch::new();
    for name in ["backing", "mount"] {
        std::fs::create_dir(scratch.path(name)).expect("a directory");
    }
    scratch.file("disk", vec![0; 1 << 20]);
    scratch
}

#[test]
fn a_cache_that_was_never_made_is_named_with_the_command_that_makes_one() {
    let scratch = folders();
    let command = "`entresol format --cache cache --backing backing --size SIZE`";
    let said = format!("backing: no cache was made for this directory; {command} makes one");
    let directory = [said.as_str()];
    says(&scratch.refused(&["mount", "backing", "mount", "--cache", "cache"]), &directory);
    says(&scratch.refused(&["drain", "--cache", "cache", "--backing", "backing"]), &directory);
    let serve = ["serve", "nbd", "--backing", "disk", "--cache", "cache", "--socket", "s"];
    let file = ["cache: is not there", "to make it anew: entresol format --cache cache --backing disk --size SIZE"];
    says(&scratch.refused(&serve), &file);
}

/// All output of a mount until it is ended; none where nothing can be mounted.
fn said_by_mount(scratch: &Scratch, arguments: &[&str]) -> Option<String> {
    let mut command = scratch.command(&[&["mount"], arguments].concat());
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    if !line.is_empty() {
        signal(server.id(), Signal::TERM);
    }
    let mut said = String::new();
    server.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    let code = server.wait().expect("an end").code();
    if line.is_empty() && is_impossible(&said) {
        return None;
    }
    assert_eq!(code, Some(0), "{said}");
    Some(said)
}

#[test]
fn a_mount_point_that_holds_something_is_said_and_no_other() {
    let scratch = folders();
    scratch.file("backing/seen", "");
    let hidden = "mount: is not empty; its contents are hidden while backing is mounted there";
    let Some(said) = said_by_mount(&scratch, &["backing", "mount"]) else { return };
    assert!(!said.contains("is not empty"), "{said}");
    scratch.file("mount/covered", "");
    says(&said_by_mount(&scratch, &["backing", "mount"]).expect("it could before"), &[hidden]);
    let itself = said_by_mount(&scratch, &["backing", "backing"]).expect("it could before");
    assert!(!itself.contains("is not empty"), "the same files are seen: {itself}");
}

/// Makes a cache in front of a directory, and returns what is said.
fn format(scratch: &Scratch, backing: &str, options: &[&str]) -> String {
    let arguments = [&["format", "--cache", "cache", "--backing", backing, "--force"], options].concat();
    let output = scratch.run(&arguments);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(0), "{said}");
    said
}

#[test]
fn format_takes_the_page_size_of_a_database_and_says_so() {
    let scratch = folders();
    let small = |page_size: &'static str| ["--size", "4MiB", "--page-size", page_size];
    assert!(!format(&scratch, "backing", &small("4096")).contains("--page-size"));
    says(&format(&scratch, "backing", &["--size", "4MiB"]), &["pages of 4096 B"]);

    // As in the control file of version 1300: the block size follows the float format at 208.
    let mut control = vec![0; 8192];
    control[208..216].copy_from_slice(&1_234_567.0_f64.to_le_bytes());
    control[216..220].copy_from_slice(&8192_u32.to_le_bytes());
    std::fs::create_dir(scratch.path("backing/global")).expect("a directory");
    scratch.file("backing/global/pg_control", control);
    says(&format(&scratch, "backing", &["--size", "4MiB"]), &["pages of 8192 B", "page size 8192, PostgreSQL's"]);
    says(&format(&scratch, "backing", &small("4096")), &["PostgreSQL writes pages of 8192 B", "`--page-size 8192`"]);
    assert!(!format(&scratch, "backing", &small("8192")).contains("--page-size"));

    std::fs::remove_dir_all(scratch.path("backing/global")).expect("it is there");
    std::fs::create_dir(scratch.path("backing/my")).expect("a directory");
    scratch.file("backing/my/ibdata1", vec![0; 16384]);
    says(&format(&scratch, "backing", &["--size", "4MiB"]), &["pages of 16384 B", "page size 16384, InnoDB's"]);
    let small = format(&scratch, "backing", &["--size", "2MiB"]);
    says(&small, &["pages of 4096 B", "InnoDB writes pages of 16384 B"]);
}

#[test]
fn times_of_any_year_are_what_was_set() {
    let Some(mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    // 1901, before and after 1970 with a fraction, 2038, 2262, 2400.
    let times = [
        (-2_147_483_648, 0),
        (-315_619_200, 500_000_000),
        (-1, 1),
        (-1, 999_999_999),
        (0, 0),
        (1, 5),
        (2_147_483_648, 7),
        (9_223_372_037, 123),
        (13_569_465_600, 999_999_999),
    ];
    for (tv_sec, tv_nsec) in times {
        let set = |file: &File| {
            let time = Timespec { tv_sec, tv_nsec };
            rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: time }).expect("times");
            let found = file.metadata().expect("attributes");
            [(found.atime(), found.atime_nsec()), (found.mtime(), found.mtime_nsec())]
        };
        // The file system below keeps times in its own precision.
        let expected = set(&File::create(mounted.plain().join("file")).expect("a file"));
        let above = File::create(mounted.above().join("file")).expect("a file");
        assert_eq!(set(&above), expected, "{tv_sec} s {tv_nsec} ns, above");
        let below = std::fs::metadata(mounted.below().join("file")).expect("attributes");
        assert_eq!((below.mtime(), below.mtime_nsec()), expected[1], "{tv_sec} s {tv_nsec} ns, below");
    }
}

#[test]
fn a_cache_is_found_by_its_mount_while_another_mount_has_a_name_that_is_no_text() {
    let test = "a_cache_is_found_by_its_mount_while_another_mount_has_a_name_that_is_no_text";
    let Some(mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    let odd = mounted.scratch.path("").join(OsStr::from_bytes(b"odd \xff\\ name"));
    std::fs::create_dir(&odd).expect("a directory");
    let flags = rustix::mount::MountFlags::empty();
    if let Err(error) = rustix::mount::mount("none", &odd, "tmpfs", flags, None::<&std::ffi::CStr>) {
        return entresol_skip::skipped!("root", "{test}: {error}");
    }
    let told = mounted.scratch.run(&["stats", "mount"]);
    let _ = rustix::mount::unmount(&odd, rustix::mount::UnmountFlags::DETACH);
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert_eq!(told.status.code(), Some(0), "{said}");
    says(&String::from_utf8_lossy(&told.stdout), &["hit ratio"]);
}
