//! The demo as a new user runs it, on a fast device.

#[path = "../../crates/cli/tests/common/mod.rs"]
mod common;

use common::Scratch;

#[test]
fn the_demo_measures_kills_simulates_and_reports() {
    let scratch = Scratch::new();
    let out = scratch.ok(&["-q", "demo", "--out", "d", "--transactions", "250", "--model", "yang-nand"]);
    for policy in ["no cache", "lru", "arc", "h-arc", "face-gsc"] {
        assert!(out.lines().any(|line| line.starts_with(policy)), "{policy}: {out}");
    }
    // The exit code says that the figures agree; this checks that they are figures.
    let lru: Vec<&str> = out.lines().find(|line| line.starts_with("lru")).expect("a row").split_whitespace().collect();
    assert!(lru[4].ends_with('%') && lru[4] == lru[5] && lru[6] == lru[7], "{lru:?}");
    assert_ne!(lru[6], "0", "pages must leave the cache, or its size goes unseen: {lru:?}");
    let killed_after =
        out.lines().find_map(|line| line.strip_prefix("killed after: ")?.split(' ').next()?.parse().ok());
    assert!(killed_after.is_some_and(|number: u64| number >= 125), "half of the transactions at least: {out}");
    assert!(out.contains("TPC-C's conditions: none"), "{out}");
    assert!(out.contains("The simulator counts to the page"), "{out}");
    let page = scratch.read("d/demo.html");
    assert!(page.contains("A kill in the middle") && page.contains("face-gsc"));
    // A second run replaces what the first left.
    scratch.ok(&["-q", "demo", "--out", "d", "--transactions", "50", "--model", "yang-nand"]);
}

#[test]
fn a_device_that_does_not_exist_is_named() {
    let scratch = Scratch::new();
    let said = scratch.run(&["demo", "--model", "floppy"]);
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("floppy"));
    assert!(scratch.names().is_empty(), "nothing is begun");
}
