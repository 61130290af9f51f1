//! The header, compiled by a C compiler under its strictest warnings: the example runs, the types have the library's
//! layout, and the declared functions are exactly the exported ones.

use entresol_capi::{FormatOptions, OpenOptions, Stats};
use std::collections::BTreeSet;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The directory of this test, which also has the library.
fn libraries() -> PathBuf {
    std::env::current_exe().expect("this test").parent().expect("a folder").to_owned()
}

/// Compiles a program; `None` where there is no compiler.
fn compiled(scratch: &Path, source: &Path, more: &[&str]) -> Option<PathBuf> {
    if Command::new("cc").arg("--version").output().is_err() {
        entresol_skip::skipped!("cc", "there is no C compiler");
        return None;
    }
    let program = scratch.join("program");
    let mut command = Command::new("cc");
    command.args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]).arg(here().join("include"));
    command.arg(source).arg("-o").arg(&program).args(more);
    let output = command.output().expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

fn linked() -> [String; 3] {
    let folder = libraries();
    let folder = folder.display();
    [format!("-L{folder}"), "-lentresol_capi".to_owned(), format!("-Wl,-rpath,{folder}")]
}

fn run(program: &Path, words: &[&Path]) -> (bool, String, String) {
    let output = Command::new(program).args(words).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_example_copies_a_file_through_a_cache() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let linked = linked();
    let more: Vec<&str> = linked.iter().map(String::as_str).collect();
    let Some(program) = compiled(scratch.path(), &here().join("examples/copy.c"), &more) else { return };
    let [source, cache, backing] = ["source", "cache", "backing"].map(|name| scratch.path().join(name));
    // Not a multiple of a page, and larger than the cache.
    let bytes: Vec<u8> = (0..3_000_017u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(&source, &bytes).expect("a file");
    let (good, said, complaint) = run(&program, &[&source, &cache, &backing]);
    assert!(good, "{complaint}");
    assert!(said.starts_with("3000017 bytes, "), "{said}");
    assert!(std::fs::read(&backing).expect("the backing file") == bytes, "after a drain it is complete");
    std::fs::write(&source, &bytes[..100]).expect("a shorter file");
    let (good, _, complaint) = run(&program, &[&source, &cache, &backing]);
    assert!(good, "a second run opens the cache that is there: {complaint}");
    let (good, _, complaint) = run(&program, &[&source, &source, &backing]);
    assert!(!good && complaint.contains("copy: open: not an Entresol cache"), "{complaint}");
    let (good, _, complaint) = run(&program, &[&source, &cache, &source]);
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
    let prints: String = sizes.iter().map(|(what, _)| format!("    printf(\"%zu\\n\", (size_t){what});\n")).collect();
    let program =
        format!("#include \"entresol.h\"\n#include <stdio.h>\nint main(void)\n{{\n{prints}    return 0;\n}}\n");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let source = scratch.path().join("layout.c");
    std::fs::write(&source, program).expect("a file");
    let Some(program) = compiled(scratch.path(), &source, &[]) else { return };
    let (good, said, complaint) = run(&program, &[]);
    assert!(good, "{complaint}");
    for ((what, ours), theirs) in sizes.iter().zip(said.lines()) {
        assert_eq!(ours.to_string(), theirs, "{what}");
    }
    assert_eq!(said.lines().count(), sizes.len());
}

/// Names of functions: `entresol_...(` in a text without comments.
fn functions(text: &str) -> BTreeSet<String> {
    let mut code = String::new();
    for (i, part) in text.split("/*").enumerate() {
        code += if i == 0 { part } else { part.split_once("*/").expect("a comment ends").1 };
    }
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("entresol_") {
        let name: String = code[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if code[at + name.len()..].starts_with('(') {
            found.insert(name);
        }
    }
    found
}

#[test]
fn what_is_declared_is_exported_and_the_other_way_round() {
    let header = std::fs::read_to_string(here().join("include/entresol.h")).expect("the header");
    let declared = functions(&header);
    assert!(declared.len() >= 14, "{declared:?}");
    let library = libraries().join("libentresol_capi.so");
    let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output();
    let Ok(symbols) = symbols else {
        entresol_skip::skipped!("nm", "there is no nm");
        return;
    };
    assert!(symbols.status.success(), "{}", String::from_utf8_lossy(&symbols.stderr));
    let symbols = String::from_utf8(symbols.stdout).expect("text");
    let exported = symbols.lines().filter_map(|line| line.split_whitespace().last());
    let exported: BTreeSet<String> = exported.filter(|name| name.starts_with("entresol_")).map(str::to_owned).collect();
    assert_eq!(declared, exported);
}
