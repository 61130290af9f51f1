//! `entresol burst simulate`: its output and its refusals.

mod common;

use common::{Scratch, says};
use serde_json::Value;

const LEAN: [&str; 7] = ["-q", "burst", "simulate", "--seeds", "2", "--workload", "light"];

fn simulated(arguments: &[&str]) -> Value {
    let printed = Scratch::new().ok(&[&LEAN[..], arguments].concat());
    serde_json::from_str(&printed).expect("json")
}

#[test]
fn json_has_every_policy_and_the_same_numbers_with_any_threads() {
    let policies = ["--policy", "ldbb", "--policy", "cdbb:object=whole", "--json"];
    let one = simulated(&[&policies[..], &["--threads", "1"]].concat());
    assert_eq!(one, simulated(&[&policies[..], &["--threads", "2"]].concat()));
    assert_eq!((one["simulated"].as_bool(), one["seeds"].as_u64()), (Some(true), Some(2)));
    let rows = one["policies"].as_array().expect("policies");
    let names: Vec<&str> = rows.iter().map(|row| row["policy"].as_str().expect("a name")).collect();
    assert_eq!(names, ["ldbb", "cdbb:object=whole"]);
    for row in rows {
        let shares = ["share_local", "share_remote", "share_pfs"].map(|share| row[share].as_f64().expect(share));
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{row}");
        let programs = row["programs"].as_array().expect("programs");
        assert_eq!(programs.len(), 5);
        for program in programs {
            let seeds = program["checkpoints_s_by_seed"].as_array().expect("seeds");
            assert_eq!(seeds.len(), 2);
            assert!(seeds.iter().all(|times| times.as_array().is_some_and(|times| times.len() == 6)), "{program}");
        }
    }
    assert_eq!(rows[0]["share_remote"].as_f64(), Some(0.0), "ldbb has no remote buffer");
    assert_eq!(rows[0]["first_over_this"]["median"].as_f64(), Some(1.0));
}

/// A slower parallel file system makes writing to it take longer, in proportion where it is the only limit.
#[test]
fn the_rate_of_the_pfs_is_the_one_given() {
    let total = |rate: &str| {
        let printed = simulated(&["--policy", "pfs", "--json", "--pfs", rate]);
        printed["policies"][0]["total_s"]["median"].as_f64().expect("seconds")
    };
    let (fast, slow) = (total("2"), total("1"));
    assert!(slow > 1.9 * fast, "{slow} s at 1 GB/s, {fast} s at 2 GB/s");
}

#[test]
fn a_person_is_told_that_it_is_simulated() {
    let said = Scratch::new().ok(&[&LEAN[..], &["--policy", "ldbb", "--policy", "cdbb", "--figures"]].concat());
    let titles: Vec<&str> = said.split("\n\n").map(|part| part.lines().next().unwrap_or_default()).collect();
    assert_eq!(titles.len(), 6, "{said}");
    assert!(titles.iter().all(|title| title.starts_with("simulated")), "{titles:?}");
    for part in ["figure 5.6", "figure 5.7", "figure 5.8", "NAMD", "mpiblast", "p90"] {
        assert!(said.contains(part), "'{part}' is not in {said}");
    }
}

/// Every kind of redundancy, for the policies that buffer.
#[test]
fn lost_work_is_by_redundancy_and_time_between_failures() {
    let arguments = ["--policy", "pfs", "--policy", "cdbb", "--lost-work", "--failures", "20", "--json"];
    let rows = simulated(&arguments)["lost_work"].as_array().expect("rows").clone();
    assert_eq!(rows.len(), (1 + 3) * 6);
    for row in &rows {
        assert!(row["core_hours_per_failure"].as_f64().is_some_and(|hours| hours > 0.0), "{row}");
        assert!(row["failures"].as_u64().is_some_and(|failures| failures >= 40), "{row}");
        assert!(row["policy"] != "pfs" || row["newest_gone"] == 0, "what is on the PFS stays: {row}");
    }
}

/// Every redundancy and drain priority of each policy that buffers, none below what is possible.
#[test]
fn candidates_are_beside_the_least_that_is_possible() {
    let arguments =
        ["--policy", "pfs", "--policy", "cdbb", "--policy", "chunked", "--choose", "--failures", "20", "--json"];
    let rows = simulated(&arguments)["candidates"].as_array().expect("rows").clone();
    assert_eq!(rows.len(), 2 * 3 * 2);
    for row in &rows {
        let number = |name: &str| row[name].as_f64().expect(name);
        assert!(number("checkpoint_p90_s") > number("bound_p90_s") - 1e-3, "{row}");
        assert!(number("total_p90_s") > number("checkpoint_p90_s"), "{row}");
    }
}

/// Opens and commits of 320 writers, six times, are timed; the simulated times do not change.
#[test]
fn the_coordinator_is_timed_apart_from_the_simulation() {
    let cost = simulated(&["--policy", "cdbb", "--coordinator-cost", "--json"]);
    assert_eq!(cost["coordinator"][0]["answers"].as_f64(), Some(2.0 * 320.0 * 6.0));
    assert!(cost["coordinator"][0]["all_checkpoints_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{cost}");
    assert_eq!(cost["policies"], simulated(&["--policy", "cdbb", "--json"])["policies"]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let scratch = Scratch::new();
    let refused = |arguments: &[&str]| scratch.refused(&[&LEAN[..], arguments].concat());
    says(&refused(&["--policy", "lru"]), &["no burst-buffer policy 'lru'", "pfs, ldbb, cdbb, chunked"]);
    says(&refused(&["--policy", "cdbb:size=3"]), &["no option 'size'", "redundancy=none|partner|xor"]);
    says(&refused(&["--policy", "cdbb", "--policy", "cdbb:object=split"]), &["'cdbb' is given twice"]);
    says(&refused(&["--pfs", "0"]), &["a rate in GB/s above 0"]);
    says(&refused(&["--fit"]), &["'light'", "medium and heavy", "--pfs"]);
    says(&refused(&["--readings"]), &["'light'", "medium and heavy"]);
    says(&refused(&["--seeds", "0"]), &["--seeds"]);
}
