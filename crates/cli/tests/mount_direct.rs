//! `entresol mount --direct`: the cache's bytes are right, and take no memory of the kernel's page cache.

mod common;

use common::mounted::{How, Mounted};
use common::{Scratch, Signal};
use entresol_core::Random;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

const FILE_BYTES: usize = 1 << 20;
const CACHE_BYTES: u64 = 8 << 20;
/// A cache of [`CACHE_BYTES`] in each layout.
const FORMATS: [&[&str]; 3] = [
    &["--size", "8MiB", "--layout", "log"],
    &["--size", "8MiB", "--layout", "slots"],
    &["--size", "8MiB", "--layout", "segments"],
];
/// Type of a file system in memory.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// Bytes of a file in the kernel's page cache; none without the program that tells them.
fn resident_bytes(path: &Path) -> Option<u64> {
    let output = Command::new("fincore").args(["--bytes", "--noheadings", "--output", "RES"]).arg(path).output();
    let text = String::from_utf8(output.ok()?.stdout).expect("text");
    Some(text.trim().parse().expect("a number"))
}

/// Has the kernel drop what it holds of a file.
fn forget(path: &Path) {
    let file = File::open(path).expect("a file");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("a hint");
}

/// Writes, kills, reads; returns what the page cache then holds of the cache. None where this cannot be tried.
fn used(format: &'static [&'static str], words: &[&str], seed: u64) -> Option<u64> {
    let cache = Some((["write-back", "reuse"], format));
    let how = How { cache, page_cache: "off", passthrough: "off", nobody: false };
    let mut mounted = Mounted::made(Scratch::new(), &how);
    let cache = mounted.scratch.path("cache");
    forget(&cache);
    if !mounted.start_with(words) {
        return None;
    }
    let path = mounted.above().join("f");
    let mut random = Random::new(seed);
    let mut model = vec![0; FILE_BYTES];
    for life in 0..3 {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).expect("a file");
        file.set_len(FILE_BYTES as u64).expect("a size");
        for _ in 0..150 {
            let at = random.below(FILE_BYTES as u64 - 20_000) as usize;
            let len = 1 + random.below(20_000) as usize;
            model[at..at + len].fill_with(|| random.next_u64() as u8);
            file.write_all_at(&model[at..at + len], at as u64).expect("a write");
        }
        file.sync_all().expect("a sync");
        drop(file);
        mounted.signal(Signal::KILL);
        assert_eq!(mounted.end().0, None);
        assert!(mounted.start_with(words), "the next server takes the dead mount's place");
        assert!(std::fs::read(&path).expect("a file") == model, "seed {seed}, {format:?}, life {life}");
    }
    let resident = resident_bytes(&cache);
    mounted.unmount();
    assert!(std::fs::read(mounted.below().join("f")).is_ok());
    if resident.is_none() {
        entresol_skip::skipped!("fincore", "no fincore, which tells what is in the page cache");
    }
    resident
}

#[test]
fn a_direct_cache_takes_no_memory_of_the_page_cache_and_survives_kills() {
    let probe = tempfile::tempdir().expect("a directory");
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).write(true).custom_flags(libc::O_DIRECT);
    let file = match options.open(probe.path().join("f")) {
        Ok(file) => file,
        Err(error) => {
            entresol_skip::skipped!("place", "no direct I/O among the temporary files: {error}");
            return;
        }
    };
    if rustix::fs::fstatfs(&file).is_ok_and(|fs| fs.f_type == TMPFS) {
        entresol_skip::skipped!("place", "temporary files are in memory");
        return;
    }
    for (seed, format) in FORMATS.into_iter().enumerate() {
        let Some(buffered) = used(format, &[], seed as u64) else { return };
        let Some(direct) = used(format, &["--direct"], seed as u64) else { return };
        println!("{format:?}: {buffered} bytes of the cache in the page cache, with --direct {direct}");
        // A start looks at the superblocks through the page cache, which reads ahead.
        assert!(buffered >= FILE_BYTES as u64 && direct <= CACHE_BYTES / 8, "{format:?}: {buffered}, {direct}");
    }
}

#[test]
fn pages_that_are_no_whole_blocks_are_refused() {
    let scratch = Scratch::new();
    for name in ["backing", "mount"] {
        std::fs::create_dir(scratch.path(name)).expect("a directory");
    }
    scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "2MiB", "--page-size", "512"]);
    let output = scratch.command(&["mount", "backing", "mount", "--cache", "cache", "--direct"]).output();
    let output = output.expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("pages of 512 bytes are no multiple of 4096"), "{said}");
}
