//! The tests of policies as one program: of several each would contain every policy again, which takes the compiler a
//! minute.

mod common;
#[path = "common/count.rs"]
mod count;
mod plain;
#[path = "common/single.rs"]
mod single;
mod slow_runs;
#[path = "common/sources.rs"]
mod sources;

mod choice;
mod complete;
mod conformance;
mod ghosts_adaptive;
mod model_adaptive;
mod model_adaptive_distance;
mod model_adaptive_history;
mod model_classic;
mod model_dirty;
mod model_dirty_h_arc;
mod model_extension_heuristicdb;
mod model_extension_lc;
mod model_extension_table_placement;
mod model_extension_tac;
mod model_face;
mod model_hybrid;
mod model_migration;
mod model_modern;
mod model_offline;
mod model_run;
mod model_writebuffer;
mod oracle_adaptive;
mod oracle_classic;
mod oracle_modern;
mod oracle_offline;
mod refusals;
mod stack;
mod tunables;

/// A file that no program has would never run.
#[test]
fn every_file_of_tests_is_in_a_program() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let programs = [include_str!("all.rs"), include_str!("../Cargo.toml")].concat();
    for entry in std::fs::read_dir(folder).expect("the tests") {
        let path = entry.expect("an entry").path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        let has = |line: String| programs.lines().any(|has| has == line);
        let is_test = path.extension().is_some_and(|ending| ending == "rs");
        assert!(!is_test || has(format!("mod {name};")) || has(format!("name = \"{name}\"")), "{name}.rs");
    }
}
