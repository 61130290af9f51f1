//! A second cache of a backing store whose first cache has dirty pages, and caches of nested folders: refused, with
//! the way out.

mod common;

use common::mounted::Mounted;
use common::served::client::{Client, FUA};
use common::served::{PAGE, formatted, reached, start, terminate};
use common::{Scratch, Signal, crash, says, signal};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};

const SECOND: [&str; 6] = ["--cache", "second", "--backing", "disk", "--size", "2MiB"];

fn written(scratch: &Scratch, byte: u8) -> Child {
    let mut child = start(scratch, "lru", "write-back");
    let mut client: Client = reached(scratch, &mut child);
    client.write(0, &[byte; PAGE], FUA);
    child
}

/// `stale.sh` 4, with a closed first cache and one whose server was killed.
#[test]
fn a_second_cache_before_a_file_whose_first_is_dirty_is_refused() {
    for kill in [false, true] {
        let scratch = formatted();
        let mut child = written(&scratch, 1);
        if kill {
            crash(child.id());
            child.wait().expect("an end");
        } else {
            terminate(child);
        }
        let format = [&["-q", "format", "--mode=write-back"], &SECOND[..]].concat();
        let first = scratch.path("cache").canonicalize().expect("a path");
        let first = first.to_str().expect("text");
        says(&scratch.refused(&format), &["disk: another cache (", first, "may have dirty pages of it", "--force"]);
        says(
            &scratch.refused(&["serve", "nbd", "--file", "disk", "--socket", "s"]),
            &["not complete without its cache"],
        );
        scratch.ok(&["-q", "drain", "--cache", "cache", "--backing", "disk"]);
        // Now the backing store has every byte: the first may be replaced, and is no longer its cache.
        scratch.ok(&format);
        let serve = ["serve", "nbd", "--cache", "cache", "--backing", "disk", "--socket", "s", "--policy", "lru"];
        says(&scratch.refused(&serve), &["cache: another cache was made for this backing store since", "second"]);
        says(&scratch.refused(&["drain", "--cache", "cache", "--backing", "disk"]), &["another cache was made"]);
        scratch.ok(&["check", "--cache", "second", "--backing", "disk"]);
    }
}

#[test]
fn who_knows_that_the_first_cache_is_lost_may_make_a_second_one() {
    let scratch = formatted();
    terminate(written(&scratch, 1));
    scratch.format(&[&["--force"], &SECOND[..]].concat());
    scratch.ok(&["check", "--cache", "second", "--backing", "disk"]);
    says(&scratch.refused(&["drain", "--cache", "cache", "--backing", "disk"]), &["another cache was made"]);
}

/// A mount beside the one of [`Mounted`], killed when it is dropped.
struct Beside(Child, std::path::PathBuf);

impl Beside {
    /// Starts a command that must be refused; returns its output.
    fn refused(scratch: &Scratch, arguments: &[&str]) -> String {
        let mut child =
            scratch.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
        let at = scratch.path(arguments[2]);
        if !line.is_empty() {
            drop(Beside(child, at));
            panic!("entresol {arguments:?}: {line}");
        }
        let mut said = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert_eq!(child.wait().expect("an end").code(), Some(2), "{said}");
        said
    }

    fn start(scratch: &Scratch, arguments: &[&str]) -> Self {
        let mut child =
            scratch.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
        let beside = Beside(child, scratch.path(arguments[2]));
        assert!(line.contains(" at "), "{line}");
        beside
    }

    fn end(mut self) {
        signal(self.0.id(), Signal::TERM);
        assert_eq!(self.0.wait().expect("an end").code(), Some(0));
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
        let _left = rustix::mount::unmount(&self.1, rustix::mount::UnmountFlags::DETACH);
    }
}

fn put(path: &Path, byte: u8) {
    let file = fs::File::options().write(true).create(true).truncate(false).open(path).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&file, &[byte; PAGE], 0).expect("a write");
    file.sync_all().expect("a sync");
}

/// `nested.sh`.
#[test]
fn a_folder_in_a_cached_one_or_around_it_is_refused_while_that_is_in_use_or_dirty() {
    let Some(mut outer) = Mounted::with(Some(["write-back", "lru"])) else { return };
    fs::create_dir_all(outer.above().join("sub/deep")).expect("folders");
    put(&outer.above().join("sub/f"), 1);
    fs::create_dir(outer.scratch.path("mount2")).expect("a folder");
    let format =
        |cache, backing| ["format", "--mode=write-back", "--cache", cache, "--backing", backing, "--size", "2MiB"];
    for in_use in [true, false] {
        if !in_use {
            outer.signal(Signal::TERM);
            assert_eq!(outer.end().0, Some(0));
        }
        let why = if in_use { "whose cache is in use" } else { "whose cache may have dirty pages" };
        let scratch = &outer.scratch;
        for inner in ["backing/sub", "backing/sub/deep"] {
            says(&scratch.refused(&format("c2", inner)), &[inner, "lies in", why]);
            says(&Beside::refused(scratch, &["mount", inner, "mount2"]), &["lies in", why]);
        }
        // A file in it is no backing store either.
        says(&scratch.refused(&format("c2", "backing/sub/f")), &["lies in", why]);
        says(&scratch.refused(&["serve", "nbd", "--file", "backing/sub/f", "--socket", "s"]), &["lies in", why]);
        // Nor is a directory around it: the scratch directory itself.
        let around = scratch.path("").to_str().expect("text").to_owned();
        let elsewhere = tempfile::tempdir().expect("a directory");
        let cache = elsewhere.path().join("c3").to_str().expect("text").to_owned();
        let output = scratch.run(&["format", "--cache", &cache, "--backing", &around, "--size", "2MiB"]);
        assert_eq!(output.status.code(), Some(2));
        says(&String::from_utf8(output.stderr).expect("text"), &["backing lies in it", why]);
        says(&Beside::refused(scratch, &["mount", &around, "mount2"]), &["backing lies in it", why]);
    }
    // Once complete, the folders are free for any cache.
    outer.scratch.ok(&["-q", "drain", "--cache", "cache", "--backing", "backing"]);
    let scratch = &outer.scratch;
    scratch.ok(&format("c2", "backing/sub"));
    let inner = Beside::start(scratch, &["mount", "backing/sub", "mount2", "--cache", "c2", "--policy", "lru"]);
    put(&scratch.path("mount2/f"), 2);
    says(
        &Beside::refused(scratch, &["mount", "backing", "mount", "--cache", "cache", "--writers-ok"]),
        &["sub lies in it", "whose cache is in use"],
    );
    inner.end();
    says(
        &Beside::refused(scratch, &["mount", "backing", "mount"]),
        &["sub lies in it", "whose cache may have dirty pages"],
    );
    scratch.ok(&["-q", "drain", "--cache", "c2", "--backing", "backing/sub"]);
    assert_eq!(scratch.bytes("backing/sub/f")[0], 2);
}
