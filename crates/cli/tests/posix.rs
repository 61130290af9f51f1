//! Calls of POSIX and Linux on files, folders and names: the answers of a mount beside those of the file system below
//! it, scenario by scenario, in many setups. Intended differences are listed in `posix/known.rs`, each with its
//! reason. Any other difference fails, and so does one of the list that no longer occurs.

mod common;

mod posix {
    pub mod attributes;
    pub mod bytes;
    pub mod known;
    pub mod matrix;
    pub mod names;
    pub mod owners;
    pub mod record;
    pub mod scenario;
    pub mod services;
    pub mod setups;
    pub mod sys;
    pub mod testbed;
}

use posix::known::{self, Difference};
use posix::scenario::Scenario;
use posix::setups::{self, Setup};
use posix::testbed::{Kind, Testbed};
use std::collections::{BTreeMap, BTreeSet};

/// One of `one_in` pairs of a call and a path, and all other scenarios; of these those whose names contain
/// `ENTRESOL_POSIX_ONLY`.
fn scenarios(one_in: usize) -> Vec<Scenario> {
    use posix::{attributes, bytes, matrix, names, owners, services};
    let parts = [bytes::scenarios, names::scenarios, attributes::scenarios, services::scenarios, owners::scenarios];
    let only = std::env::var("ENTRESOL_POSIX_ONLY").unwrap_or_default();
    let all = matrix::scenarios(one_in).into_iter().chain(parts.into_iter().flat_map(|part| part()));
    all.filter(|scenario| scenario.name.contains(&only)).collect()
}

/// Answers of all setups that differ from those of the file system below.
#[derive(Default)]
struct Compared {
    setups: Vec<Setup>,
    runs: usize,
    differences: Vec<Difference>,
}

/// Runs scenarios below and in these setups. Setups that are impossible here are printed, with the reason, and
/// counted.
fn run(setups: &[Setup], testbed: &Testbed, scenarios: &[Scenario]) -> Compared {
    let mut compared = Compared::default();
    for nobody in [false, true] {
        let setups: Vec<&Setup> = setups.iter().filter(|setup| setup.how.nobody == nobody).collect();
        if setups.is_empty() {
            continue;
        }
        if !rustix::process::getuid().is_root() {
            entresol_skip::skipped!("root", "only root can make what belongs to others, and be two users");
            break;
        }
        let below = setups::below(scenarios, testbed, nobody);
        for setup in setups {
            let Some(above) = setups::above(scenarios, testbed, setup) else { continue };
            compared.runs += below.len();
            compared.differences.extend(known::differences(setup, &below, &above));
            compared.setups.push(*setup);
        }
    }
    compared
}

/// Runs scenarios below and in these setups, and judges the differences. Only where these are `all` must each known
/// difference occur.
fn compare(setups: &[Setup], testbed: &Testbed, scenarios: Vec<Scenario>, all: bool) {
    let names: BTreeSet<&str> = scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
    assert_eq!(names.len(), scenarios.len(), "each has its name");
    let Compared { setups, runs, differences } = run(setups, testbed, &scenarios);
    let (unknown, unseen) = known::judge(&differences, &setups, testbed.kind());
    println!(
        "{} scenarios, {runs} runs in {} worlds, {} answers differ, {} of them for no known reason",
        scenarios.len(),
        setups.len(),
        differences.len(),
        unknown.len()
    );
    let mut said: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for Difference { setup, scenario, label, below, above } in unknown {
        said.entry(format!("{scenario} | {label} | below: {below} | mount: {above}")).or_default().push(setup);
    }
    for (difference, setups) in &said {
        println!("DIFFERS: {difference} | {}", setups.join("; "));
    }
    // An unknown file system may do less itself, and agree with the mount in that.
    let filtered = !all || std::env::var_os("ENTRESOL_POSIX_ONLY").is_some() || testbed.kind() == Kind::Other;
    for known in unseen.iter().filter(|_| !filtered) {
        println!("NOT SEEN ANY MORE: {} | {} | {}", known.scenarios, known.labels, known.reason);
    }
    assert!(said.is_empty(), "{} answers differ from the file system below", said.len());
    assert!(unseen.is_empty() || filtered, "{} known differences are not seen any more", unseen.len());
    assert!(scenarios.len() >= 400 || filtered, "{}", scenarios.len());
}

#[test]
fn every_call_answers_as_the_file_system_below_does() {
    let short: Vec<Setup> = setups::SETUPS.iter().copied().filter(|setup| setup.short).collect();
    compare(&short, &Testbed::here(), scenarios(10), true);
}

/// Scenarios over file systems that treat blocks and times in their own ways, in one setup each.
#[test]
fn calls_about_bytes_blocks_times_and_attributes_answer_as_xfs_and_btrfs_do() {
    let setup = setups::SETUPS.iter().find(|setup| setup.is("write-back") && setup.short).expect("a world");
    let about = ["bytes:", "holes:", "fallocate:", "times that move:", "extended attributes:"];
    for name in ["xfs", "btrfs"] {
        let Some(testbed) = Testbed::of(name) else { continue };
        println!("{name}:");
        let mut some = scenarios(10);
        some.retain(|scenario| about.iter().any(|about| scenario.name.starts_with(about)));
        assert!(some.len() >= 40, "{}", some.len());
        compare(&[*setup], &testbed, some, false);
    }
}

#[test]
#[ignore = "takes five minutes: `make test-posix` and `make test-long` run it"]
fn every_call_answers_as_the_file_system_below_does_in_every_world() {
    let Some(testbed) = Testbed::chosen() else { return };
    compare(setups::SETUPS, &testbed, scenarios(1), true);
}

/// The table in docs/SEMANTICS.md is made of the list: its lines are those that a failure prints.
#[test]
fn every_known_difference_is_in_the_documents() {
    let documents = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/SEMANTICS.md");
    let documents = std::fs::read_to_string(documents).expect("the page");
    let table = known::table();
    assert!(documents.contains(&table), "docs/SEMANTICS.md has not this table:\n{table}");
}
