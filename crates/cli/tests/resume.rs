//! A killed sweep resumes where it was.

mod common;

use common::Scratch;
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

const TRACE: &str = "generate:zipf:n=400k:pages=60k:seed=3:write=30";
const SWEEP: [&str; 8] = ["simulate", TRACE, "--policy", "all", "--size", "1%,5%,20%", "--threads", "1"];

/// The results without their run time and command line.
fn results(text: &str) -> Value {
    let mut json: Value = serde_json::from_str(text).expect("json");
    json.as_object_mut().expect("an object").remove("command");
    for row in json["results"].as_array_mut().expect("rows") {
        row.as_object_mut().expect("a row").remove("cpu_seconds");
    }
    json
}

#[test]
fn a_killed_sweep_goes_on_where_it_was() {
    let scratch = Scratch::new();
    let arguments = [&SWEEP[..], &["--json", "out.json"]].concat();
    let mut child = scratch.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let partial = scratch.path("out.json.partial");
    let lines = || std::fs::read_to_string(&partial).map_or(0, |text| text.lines().count());
    let started = Instant::now();
    while lines() < 12 {
        assert!(child.try_wait().expect("its state").is_none(), "it ended before it could be killed");
        assert!(started.elapsed() < Duration::from_secs(120), "it keeps no results");
        std::thread::sleep(Duration::from_millis(2));
    }
    // SIGKILL: no destructor, no handler.
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    assert_eq!(scratch.names(), ["out.json.partial"], "an interrupted run leaves the journal and nothing else");
    let kept = lines() - 1;

    let output = scratch.run(&arguments);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stderr).expect("text");
    // The last line may have been cut off by the kill.
    let taken: usize = said.split_whitespace().nth(2).and_then(|word| word.parse().ok()).expect(&said);
    assert!(said.contains("taking over") && (kept - 1..=kept).contains(&taken), "{kept} kept; {said}");
    assert_eq!(scratch.names(), ["out.json"]);

    scratch.ok(&[&SWEEP[..], &["--json", "whole.json"]].concat());
    assert_eq!(results(&scratch.read("out.json")), results(&scratch.read("whole.json")));
}

#[test]
fn another_sweep_does_not_take_over() {
    let scratch = Scratch::with_trace();
    scratch.ok(&["-q", "simulate", "t.etr", "--policy", "lru,arc", "--size", "5%", "--json", "out.json"]);
    // A journal as an interrupted run with another seed leaves it.
    scratch.file("out.json.partial", "entresol 0.1.0 simulate [\"t.etr\"] of another seed\n[\"0|lru\",{}]\n");
    let output = scratch.run(&["simulate", "t.etr", "--policy", "lru,arc", "--size", "5%", "--json", "again.json"]);
    assert!(output.status.success());
    assert!(!String::from_utf8_lossy(&output.stderr).contains("taking over"));
    assert_eq!(results(&scratch.read("out.json")), results(&scratch.read("again.json")));
}
