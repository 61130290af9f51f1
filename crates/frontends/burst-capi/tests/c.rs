//! The header, compiled by a C compiler under its strictest warnings: programs write and read checkpoints of a live burst buffer, codes and
//! levels have the library's numbers, and the declared functions are exactly the exported ones.

#[path = "../../capi/tests/common/mod.rs"]
mod c;
#[path = "../../../burst-live/tests/common/mod.rs"]
mod common;

use c::{check_exports, check_numbers, compiled, here, run};
use common::{JOB, MIB, Testbed};
use entresol_burst::{CheckpointId, NodeId};
use entresol_burst_capi::Code;
use entresol_burst_live::client::{Checkpoints, FileReader};
use std::path::Path;
use std::process::Command;

const HEADER: &str = "entresol_burst.h";
const LIBRARY: &str = "entresol_burst_capi";

/// Contents of the file that `checkpoints.c` writes.
fn state() -> Vec<u8> {
    (0..20 * MIB + 17).map(|at| ((at * 31) >> 7) as u8).collect()
}

#[test]
fn a_program_in_c_writes_and_reads_checkpoints_of_two_nodes() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let Some(program) = compiled(scratch.path(), &here().join("tests/checkpoints.c"), LIBRARY) else { return };
    let testbed = Testbed::new("chunked", 2, 256 * MIB);
    // All bytes stay in memory.
    testbed.pfs.set_full(true);
    let coordinator = testbed.settings(0).coordinator.expect("an address");
    let (good, said, complaint) = run(Command::new(&program).arg(&coordinator).arg(testbed.path("pfs")));
    assert!(good, "{said}{complaint}");
    let pfs = testbed.path("pfs");
    let reader = Checkpoints::open(Some(coordinator), Vec::new(), NodeId(1), &pfs, None).expect("a client");
    let files = reader.files(JOB, 1).expect("files");
    assert_eq!(files.newest_complete().expect("an answer"), Some(CheckpointId(4)));
    let mut file = FileReader::open(files, CheckpointId(1), "state".as_ref()).expect("a file");
    assert!(file.read(0, u64::MAX).expect("bytes") == state(), "other bytes than the program's");
}

/// The example of the documentation, as a program.
#[test]
fn the_example_of_the_documentation_works() {
    let page = std::fs::read_to_string(here().join("../../../docs/burst.md")).expect("docs/burst.md");
    let (_, section) = page.split_once("\n## From C\n").expect("the section");
    let (_, example) = section.split_once("```c\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let source = scratch.path().join("example.c");
    std::fs::write(&source, example).expect("a file");
    let Some(program) = compiled(scratch.path(), &source, LIBRARY) else { return };
    let testbed = Testbed::new("chunked", 2, 256 * MIB);
    let mut command = Command::new(&program);
    let coordinator = testbed.settings(0).coordinator.expect("an address");
    command.env("ENTRESOL_BURST_COORDINATOR", coordinator).env("ENTRESOL_BURST_PFS", testbed.path("pfs"));
    command.env("ENTRESOL_BURST_JOB", JOB.0.to_string()).env("NODE", "1");
    assert_eq!(run(&mut command), (true, "level 2\ncheckpoint 1: 100000 bytes\n".to_owned(), String::new()));
    let (good, _, complaint) = run(command.env("ENTRESOL_BURST_PFS", "/absent"));
    assert!(!good && complaint == "the PFS: No such file or directory (os error 2)\n", "{complaint}");
}

#[test]
fn codes_and_levels_have_the_same_numbers_on_both_sides() {
    let codes = [
        ("ENTRESOL_BURST_OK", Code::Ok),
        ("ENTRESOL_BURST_ARGUMENT", Code::Argument),
        ("ENTRESOL_BURST_NOT_FOUND", Code::NotFound),
        ("ENTRESOL_BURST_EXISTS", Code::Exists),
        ("ENTRESOL_BURST_STALE", Code::Stale),
        ("ENTRESOL_BURST_LIMIT", Code::Limit),
        ("ENTRESOL_BURST_SHORT", Code::Short),
        ("ENTRESOL_BURST_NOT_STORED", Code::NotStored),
        ("ENTRESOL_BURST_DAMAGED", Code::Damaged),
        ("ENTRESOL_BURST_UNAVAILABLE", Code::Unavailable),
        ("ENTRESOL_BURST_IO", Code::Io),
        ("ENTRESOL_BURST_FAULT", Code::Fault),
    ];
    check_numbers(HEADER, LIBRARY, &codes.map(|(name, code)| (name, code as usize)));
    let header = std::fs::read_to_string(here().join("include").join(HEADER)).expect("the header");
    let (_, listed) = header.split_once("typedef enum entresol_burst_code {").expect("the codes");
    let (listed, _) = listed.split_once('}').expect("their end");
    assert_eq!(listed.matches(" = ").count(), codes.len());
}

#[test]
fn what_is_declared_is_exported_and_the_other_way_round() {
    check_exports(HEADER, LIBRARY, 15);
}

#[test]
fn the_header_is_one_of_c_plus_plus_too() {
    if Command::new("c++").arg("--version").output().is_err() {
        entresol_skip::skipped!("c++", "there is no C++ compiler");
        return;
    }
    let mut command = Command::new("c++");
    command.args(["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-x", "c++"]);
    let (good, _, complaint) = run(command.arg(Path::new("include").join(HEADER)).current_dir(here()));
    assert!(good, "{complaint}");
}
