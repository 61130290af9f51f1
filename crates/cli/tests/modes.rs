//! The mode of a start that is given none: the one used last or given to `format`, else write-through.

mod common;

use common::mounted::Mounted;
use common::served::terminate;
use common::{Scratch, says};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const BOTH: [&str; 4] = ["--cache", "cache", "--backing", "disk"];

/// A cache of a file, made with these options.
fn formatted(more: &[&str]) -> Scratch {
    let scratch = Scratch::new();
    scratch.file("disk", vec![7; 1 << 20]);
    scratch.ok(&[&["-q", "format", "--size", "2MiB"], &BOTH[..], more].concat());
    scratch
}

/// Serves the cache until it is ready; returns the mode that it has and what the server said.
fn served(scratch: &Scratch, more: &[&str], meanwhile: impl Fn(&Scratch)) -> (String, String) {
    let words = [&["serve", "nbd", "--socket", "s"], &BOTH[..], more].concat();
    let mut child = scratch.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command");
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut String::new()).expect("a line");
    let mode = mode(scratch);
    meanwhile(scratch);
    (mode, terminate(child))
}

fn mode(scratch: &Scratch) -> String {
    let stats: serde_json::Value = serde_json::from_str(&scratch.ok(&["stats", "--json", "cache"])).expect("JSON");
    stats["mode"].as_str().expect("a mode").to_owned()
}

#[test]
fn the_first_mode_is_write_through_and_a_start_says_so() {
    let scratch = formatted(&[]);
    let (mode, said) = served(&scratch, &[], |_| ());
    assert_eq!(mode, "write-through");
    says(&said, &["mode write-through, the default", "`--mode write-back` makes writes fast too"]);
    // It is the one used last from then on.
    let (mode, said) = served(&scratch, &[], |_| ());
    assert_eq!(mode, "write-through");
    says(&said, &["mode write-through, as before"]);
}

#[test]
fn a_cache_stays_in_the_mode_that_it_was_used_in_last() {
    let scratch = formatted(&[]);
    assert_eq!(served(&scratch, &["--mode", "write-back"], |_| ()).0, "write-back");
    // Drained, with nothing in the cache alone.
    scratch.ok(&[&["-q", "drain"], &BOTH[..]].concat());
    let to_around = |scratch: &Scratch| drop(scratch.ok(&["set", "--cache", "cache", "mode=write-around"]));
    let (mode, said) = served(&scratch, &[], to_around);
    assert_eq!(mode, "write-back");
    says(&said, &["mode write-back, as before"]);
    assert_eq!(served(&scratch, &["--mode", "read-only"], |_| ()).0, "read-only");
    let (mode, said) = served(&scratch, &[], |_| ());
    assert_eq!(mode, "write-around", "read-only was for one start");
    says(&said, &["mode write-around, as before"]);
    let (mode, said) = served(&scratch, &["--mode", "write-through"], |_| ());
    assert_eq!(mode, "write-through");
    assert!(!said.contains("as before"), "{said}");
}

#[test]
fn what_format_was_given_comes_before_the_default_and_after_the_command_line() {
    let scratch = formatted(&["--mode", "write-around", "--policy", "arc"]);
    let (mode, said) = served(&scratch, &[], |_| ());
    assert_eq!(mode, "write-around");
    says(&said, &["policy arc, as given to `format`; mode write-around, as before"]);
    assert_eq!(served(&scratch, &["--mode", "write-back"], |_| ()).0, "write-back");
}

#[test]
fn a_mounted_cache_keeps_its_mode_as_well() {
    let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    std::fs::write(mounted.above().join("f"), "dirty").expect("a file");
    mounted.unmount();
    let words = ["-q", "mount", "backing", "mount", "--cache", "cache"];
    let mut child =
        mounted.scratch.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command");
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut String::new()).expect("a line");
    assert_eq!(mode(&mounted.scratch), "write-back");
    terminate(child);
}
