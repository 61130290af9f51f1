//! The header, compiled by a C compiler under its strictest warnings: the example runs, the types have the library's
//! layout, and the declared functions are exactly the exported ones.

mod common;

use common::{check_exports, check_numbers, compiled, here, run};
use entresol_capi::{FormatOptions, OpenOptions, Stats};
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

const LIBRARY: &str = "entresol_capi";

#[test]
fn the_example_copies_a_file_through_a_cache() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let Some(program) = compiled(scratch.path(), &here().join("examples/copy.c"), LIBRARY) else { return };
    let run = |words: &[&Path]| run(Command::new(&program).args(words));
    let [source, cache, backing] = ["source", "cache", "backing"].map(|name| scratch.path().join(name));
    // Not a multiple of a page, and larger than the cache.
    let bytes: Vec<u8> = (0..3_000_017u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(&source, &bytes).expect("a file");
    let (good, said, complaint) = run(&[&source, &cache, &backing]);
    assert!(good, "{complaint}");
    assert!(said.starts_with("3000017 bytes, "), "{said}");
    assert!(std::fs::read(&backing).expect("the backing file") == bytes, "after a drain it is complete");
    std::fs::write(&source, &bytes[..100]).expect("a shorter file");
    let (good, _, complaint) = run(&[&source, &cache, &backing]);
    assert!(good, "a second run opens the cache that is there: {complaint}");
    let (good, _, complaint) = run(&[&source, &source, &backing]);
    assert!(!good && complaint.contains("copy: open: not an Entresol cache"), "{complaint}");
    let (good, _, complaint) = run(&[&source, &cache, &source]);
    assert!(!good && complaint.contains("another backing store"), "{complaint}");
}

#[test]
fn types_have_the_same_layout_on_both_sides() {
    let sizes = [
        ("sizeof(entresol_format_options)", size_of::<FormatOptions>()),
        ("offsetof(entresol_format_options, page_bytes)", offset_of!(FormatOptions, page_bytes)),
        ("offsetof(entresol_format_options, force)", offset_of!(FormatOptions, force)),
        ("sizeof(entresol_open_options)", size_of::<OpenOptions>()),
        ("offsetof(entresol_open_options, memory_bytes)", offset_of!(OpenOptions, memory_bytes)),
        ("offsetof(entresol_open_options, cache_pages)", offset_of!(OpenOptions, cache_pages)),
        ("offsetof(entresol_open_options, mode)", offset_of!(OpenOptions, mode)),
        ("sizeof(entresol_stats)", size_of::<Stats>()),
        ("offsetof(entresol_stats, write_hits)", offset_of!(Stats, write_hits)),
        ("offsetof(entresol_stats, bypasses)", offset_of!(Stats, bypasses)),
        ("offsetof(entresol_stats, dirty_pages)", offset_of!(Stats, dirty_pages)),
        ("offsetof(entresol_stats, cache_syncs)", offset_of!(Stats, cache_syncs)),
        ("offsetof(entresol_stats, backing_syncs)", offset_of!(Stats, backing_syncs)),
        ("offsetof(entresol_stats, mode)", offset_of!(Stats, mode)),
        ("offsetof(entresol_stats, failed)", offset_of!(Stats, failed)),
    ];
    check_numbers("entresol.h", LIBRARY, &sizes);
}

#[test]
fn what_is_declared_is_exported_and_the_other_way_round() {
    check_exports("entresol.h", LIBRARY, 14);
}
