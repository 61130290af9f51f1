//! Output of a drain: pages found, written and dropped, counted apart, and the files that could not be written.

mod common;

use common::image::Image;
use common::mounted::Mounted;
use common::served::{PAGE, formatted, reached, start, terminate};
use common::{Scratch, Signal, says};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;

const BOTH: [&str; 4] = ["--cache", "cache", "--backing", "backing"];
/// KiB of a file beyond which a process may not write; the cache file is smaller.
const LIMIT_KIB: u64 = 3 << 10;

/// Output of a command on standard error, with its exit code.
fn said(scratch: &Scratch, command: &str, more: &[&str]) -> (Option<i32>, String) {
    ended(&mut scratch.command(&[&[command], &BOTH[..], more].concat()))
}

fn ended(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("the command runs");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

/// A drain that may not write a file beyond [`LIMIT_KIB`], as if the file system were full.
fn drained_within_limit(scratch: &Scratch, both: &[&str]) -> (Option<i32>, String) {
    let drain = scratch.command(&[&["drain"], both].concat());
    let mut limited = Command::new("sh");
    // Blocks of `ulimit -f` are of 512 bytes.
    limited.args(["-c", &format!("ulimit -f {} && exec \"$0\" \"$@\"", LIMIT_KIB * 2)]);
    limited.arg(drain.get_program()).args(drain.get_args()).current_dir(scratch.path("."));
    limited.envs(drain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    ended(&mut limited)
}

/// Kills the server and removes its mount.
fn killed(mounted: &mut Mounted) {
    mounted.signal(Signal::KILL);
    mounted.end();
    rustix::mount::unmount(mounted.above(), rustix::mount::UnmountFlags::DETACH).expect("a mount");
}

fn write_pages(file: &File, pages: std::ops::Range<u64>) {
    pages.for_each(|page| file.write_all_at(&[5; PAGE], page * PAGE as u64).expect("a write"));
}

#[test]
fn a_drain_counts_what_it_found_what_it_wrote_and_what_it_dropped_and_why() {
    let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    for (name, pages) in [("kept", 3), ("removed", 2), ("cut", 4)] {
        let file = File::create(mounted.above().join(name)).expect("a file");
        write_pages(&file, 0..pages);
        file.sync_all().expect("a sync");
    }
    // Neither is durable in the cache when the server is killed.
    fs::remove_file(mounted.above().join("removed")).expect("a removal");
    let cut = OpenOptions::new().write(true).open(mounted.above().join("cut"));
    cut.and_then(|file| file.set_len(PAGE as u64)).expect("a smaller file");
    killed(&mut mounted);
    let checked = mounted.scratch.ok(&[&["check"], &BOTH[..]].concat());
    let dropped = "2 pages dropped of files that were removed, 3 pages dropped beyond the ends of their files";
    says(&checked, &[&format!("9 dirty pages found, 4 of them to be written, {dropped}")]);
    let (code, drained) = said(&mounted.scratch, "drain", &[]);
    assert_eq!(code, Some(0), "{drained}");
    says(&drained, &[&format!("9 dirty pages found, 4 pages written, {dropped}; backing is complete")]);
    assert_eq!(fs::read(mounted.below().join("kept")).expect("bytes"), [5; 3 * PAGE]);
    let (code, again) = said(&mounted.scratch, "drain", &[]);
    assert_eq!(code, Some(0));
    says(&again, &["0 dirty pages found, 0 pages written; "]);
}

#[test]
fn pages_that_are_given_up_with_their_file_are_not_called_written() {
    let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    for name in ["gone", "kept"] {
        let file = File::create(mounted.above().join(name)).expect("a file");
        write_pages(&file, 0..5);
        file.sync_all().expect("a sync");
    }
    killed(&mut mounted);
    fs::remove_file(mounted.below().join("gone")).expect("a removal past the cache");
    mounted.scratch.refused(&[&["drain"], &BOTH[..]].concat());
    let (code, drained) = said(&mounted.scratch, "drain", &["--drop-gone"]);
    assert_eq!(code, Some(0), "{drained}");
    says(
        &drained,
        &["10 dirty pages found, 5 pages written, 5 pages dropped of files that are gone, as --drop-gone asked"],
    );
}

#[test]
fn a_drain_that_fails_names_the_files_and_writes_all_others() {
    let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    let beyond = LIMIT_KIB * 1024 / PAGE as u64;
    let names: Vec<String> = (1..=7).map(|n| format!("bad{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        let file = File::create(mounted.above().join(name)).expect("a file");
        write_pages(&file, beyond..beyond + 1 + n as u64);
        file.sync_all().expect("a sync");
        // This file is written between them, so that a drain comes to it after a failure.
        let file = File::create(mounted.above().join(format!("good{n}"))).expect("a file");
        write_pages(&file, 0..2);
        file.sync_all().expect("a sync");
    }
    killed(&mut mounted);
    let (code, failed) = drained_within_limit(&mounted.scratch, &BOTH);
    assert_eq!(code, Some(2), "{failed}");
    assert_eq!(failed.lines().count(), 1, "{failed}");
    says(
        &failed,
        &[
            "cache: 28 pages could not be written below (File too large (os error 27)): 7 pages of bad7, 6 pages of bad6, ",
        ],
    );
    says(
        &failed,
        &[
            "3 pages of bad3, 3 pages of 2 other files; they are dirty in the cache, and `entresol drain --cache cache --backing \
             backing` writes them",
        ],
    );
    for n in 0..names.len() {
        assert_eq!(fs::read(mounted.below().join(format!("good{n}"))).expect("bytes"), [5; 2 * PAGE], "good{n}");
    }
    says(&mounted.scratch.ok(&["stats", "cache"]), &["closed in good order", "dirty          28"]);
    let (code, drained) = said(&mounted.scratch, "drain", &[]);
    assert_eq!(code, Some(0), "{drained}");
    says(&drained, &["28 dirty pages found, 28 pages written; "]);
}

#[test]
fn a_drain_of_a_file_that_fails_tells_the_bytes() {
    let scratch = formatted();
    let mut server = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut server);
    let beyond = LIMIT_KIB * 1024 / PAGE as u64;
    for page in (0..20).chain(beyond..beyond + 12).chain([beyond + 20]) {
        client.write(page * PAGE as u64, &[9; PAGE], 0);
    }
    drop(client);
    terminate(server);
    let both = ["--cache", "cache", "--backing", "disk"];
    let (code, failed) = drained_within_limit(&scratch, &both);
    assert_eq!(code, Some(2), "{failed}");
    says(
        &failed,
        &["13 pages could not be written below (File too large (os error 27)): 13 pages of disk, first: page 768, "],
    );
    says(&failed, &["bytes 3145728-3194879, 3227648-3231743; they are dirty in the cache"]);
    let (code, drained) = ended(&mut scratch.command(&[&["drain"], &both[..]].concat()));
    assert_eq!(code, Some(0), "{drained}");
    says(&drained, &["13 dirty pages found, 13 pages written; "]);
}

#[test]
fn a_drain_to_a_read_only_file_system_names_the_files() {
    let scratch = Scratch::new();
    let Some(image) = Image::new(scratch.path("fs"), 32, &["mkfs.ext4", "-q"]) else { return };
    for name in ["fs/b", "mount"] {
        fs::create_dir(scratch.path(name)).expect("a directory");
    }
    std::os::unix::fs::symlink("fs/b", scratch.path("backing")).expect("a link");
    scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "2MiB"]);
    let mut mounted = Mounted::over(scratch, ["write-back", "lru"]);
    if !mounted.start() {
        return;
    }
    for (name, pages) in [("a", 3), ("b", 1)] {
        let file = File::create(mounted.above().join(name)).expect("a file");
        write_pages(&file, 0..pages);
        file.sync_all().expect("a sync");
    }
    mounted.signal(Signal::TERM);
    assert_eq!(mounted.end().0, Some(0));
    image.remount("ro");
    let (code, failed) = said(&mounted.scratch, "drain", &[]);
    assert_eq!(code, Some(2), "{failed}");
    says(
        &failed,
        &["4 pages could not be written below (backing: its file system is read-only): 3 pages of a, 1 page of b; "],
    );
    image.remount("rw");
    let (code, drained) = said(&mounted.scratch, "drain", &[]);
    assert_eq!(code, Some(0), "{drained}");
    says(&drained, &["4 dirty pages found, 4 pages written; "]);
}
