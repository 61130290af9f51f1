//! `entresol probe`: its refusals, its files, and that an interrupted one can be resumed.

mod common;

use common::{Scratch, Signal, says, signal};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A probe of a small file, through the page cache if necessary.
const SMALL: [&str; 7] = ["probe", ".", "--size", "16MiB", "--buffered", "--quick", "-q"];

#[test]
fn what_cannot_be_probed_is_refused_with_its_reason() {
    let scratch = Scratch::new();
    scratch.file("file", "x");
    for (arguments, parts) in [
        (&["probe"][..], &["required", "--model"][..]),
        (&["probe", "none"], &["none: looking at it: No such file"]),
        (&["probe", "file"], &["file: is no directory"]),
        (&["probe", ".", "--model", "p4800x"], &["cannot be used with"]),
        (&["probe", ".", "-e", "latency,speed"], &["no experiment 'speed'", "latency", "steady"]),
        (&["probe", ".", "--size", "5%"], &["--size", "a number of bytes"]),
        (&["probe", ".", "--size", "1MiB"], &["a file of 1MiB is too small", "16MiB"]),
        (&["probe", ".", "--size", "1000000TiB"], &["does not fit", "are free"]),
        (&["probe", ".", "--io", "mmap"], &["--io", "uring"]),
        (&["probe", ".", "--resume"], &["--json"]),
        (&["probe", "--model", "p4800x", "--resume", "--json", "p.json"], &["p.json.partial", "no interrupted probe"]),
        (&["probe", "--model", "p4800x", "--json", "none/p.json"], &["none/p.json"]),
        (&["probe", "--model", "p4800x", "--plan", "--json", "p.json"], &["cannot be used with"]),
        (&["probe", "--model", "p4800x", "--write-rate", "1MB"], &["--endurance"]),
        (&["probe", "--model", "p4800z"], &["p4800z", "p4800x"]),
        (&["probe", "--model", "cheetah-15k5", "--size", "1TiB"], &["cheetah-15k5", "are asked of it"]),
        (&["probe", "--device", "/dev/null"], &["--destroy"]),
        (&["probe", "--destroy", "S1"], &["--device"]),
        (&["probe", "--device", "/dev/null", "--destroy", "S1"], &["/dev/null: is no block device"]),
        (&["probe", "--device", "/dev/none", "--destroy", "S1"], &["/dev/none: looking at it: No such file"]),
    ] {
        says(&scratch.refused(arguments), parts);
    }
}

#[test]
fn the_disk_under_this_system_is_not_touched_whatever_is_typed() {
    let scratch = Scratch::new();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/"));
    let source = root.and_then(|line| line.split(" - ").nth(1)?.split(' ').nth(1));
    let Some(device) = source.filter(|source| source.starts_with("/dev/") && Path::new(source).exists()) else {
        return entresol_skip::skipped!("place", "the root file system is on no block device that is visible here");
    };
    for serial in ["", "S1", "*"] {
        let line = scratch.refused(&["probe", "--device", device, "--destroy", serial]);
        assert!(line.contains(device), "{line}");
    }
}

#[test]
fn a_plan_runs_nothing() {
    let scratch = Scratch::new();
    let plan = scratch.ok(&[&SMALL[..], &["--plan"]].concat());
    says(&plan, &["fill", "steady", "16MiB", "program cycles", "Nothing was run"]);
    assert_eq!(scratch.names(), [""; 0]);
}

#[test]
fn a_probe_of_a_directory_leaves_its_results_only_and_counts_add_up() {
    let scratch = Scratch::new();
    let printed = scratch.ok(&[&SMALL[..], &["-e", "latency", "--json", "p.json", "--html", "p.html"]].concat());
    says(&printed, &["a file of 16MiB", "random_read_us", "Noise: ", "No profile for simulation"]);
    assert_eq!(scratch.names(), ["p.html", "p.json"]);
    let json: serde_json::Value = serde_json::from_str(&scratch.read("p.json")).expect("JSON");
    assert_eq!(json["schema"], "entresol-probe/1");
    let fill = &json["experiments"][0];
    assert_eq!((fill["experiment"].as_str(), fill["written_bytes"].as_u64()), (Some("fill"), Some(16 << 20)));
    let latency = &json["experiments"][1];
    let of = |key: &str| latency[key].as_u64().expect(key);
    assert!(of("ios") >= 4_000 && of("read_bytes") + of("written_bytes") >= of("ios") * 4096, "{}", latency["ios"]);
    let wall: u64 = json["experiments"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|e| e["noise"]["wall_ns"].as_u64().expect("time"))
        .sum();
    assert_eq!(json["noise"]["wall_ns"].as_u64(), Some(wall));
    let html = scratch.read("p.html");
    says(&html, &["Latency of 4-KiB I/Os", "<svg", "smallest I/O"]);
    assert!(!html.contains("http://") || html.contains("www.w3.org"), "the page needs no network");
    // The measurements are too few to simulate with, and simulation says so.
    scratch.ok(&["-q", "trace", "generate", "zipf:n=100:pages=40:seed=1", "t.etr"]);
    let line = scratch.refused(&["simulate", "t.etr", "--tiers", "cache=p.json,backing=p.json"]);
    says(&line, &["p.json", "holds no profile"]);
}

#[test]
fn an_interrupted_probe_leaves_its_journal_only_and_says_how_to_go_on() {
    let scratch = Scratch::new();
    let arguments = ["probe", ".", "--size", "16MiB", "--buffered", "-q", "--json", "p.json", "--html", "p.html"];
    let mut child =
        scratch.command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let journal = scratch.path("p.json.partial");
    let patience = Instant::now() + Duration::from_secs(120);
    // The second line keeps the first experiment.
    while std::fs::read_to_string(&journal).map_or(0, |text| text.lines().count()) < 2 {
        assert!(Instant::now() < patience, "no experiment was done in two minutes");
        assert_eq!(child.try_wait().expect("it can be asked"), None, "it ended before it was interrupted");
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(child.id(), Signal::INT);
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    says(&said, &["experiments were done", "p.json.partial", "--resume", "interrupted"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(scratch.names(), ["p.json.partial"]);
    // A probe with another seed is another probe.
    let other = ["probe", ".", "--size", "16MiB", "--buffered", "--json", "p.json", "--resume", "--seed", "1"];
    says(&scratch.refused(&other), &["no interrupted probe of the same"]);
}

#[test]
fn a_resumed_probe_of_a_model_ends_with_the_same_result_and_simulation_takes_it() {
    let scratch = Scratch::new();
    let model = ["probe", "--model", "p4800x", "--quick", "--size", "256MiB", "-q", "--json", "p.json"];
    scratch.ok(&model);
    let whole = scratch.read("p.json");
    assert_eq!(scratch.names(), ["p.json"]);

    // All is measured, but the page cannot be written: the journal stays. Cut to three experiments it is that of a
    // probe that was stopped in the fourth.
    let output = scratch.run(&[&model[..], &["--html", "/dev/full"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    let kept: Vec<String> = scratch.read("p.json.partial").lines().take(4).map(|line| format!("{line}\n")).collect();
    scratch.file("p.json.partial", kept.concat());
    std::fs::remove_file(scratch.path("p.json")).expect("the result");
    scratch.ok(&[&model[..], &["--resume", "--profile", "p.toml"]].concat());
    assert_eq!(scratch.names(), ["p.json", "p.toml"]);
    assert!(scratch.read("p.json") == whole, "a resumed probe differs from a whole one");

    scratch.ok(&["-q", "trace", "generate", "zipf:n=2000:pages=400:seed=1:write=30", "t.etr"]);
    let simulate = |device: &str| {
        let tiers = format!("cache={device},backing={device}");
        scratch.ok(&["-q", "simulate", "t.etr", "--size", "20%", "--tiers", &tiers])
    };
    assert_eq!(simulate("p.json"), simulate("p.toml"));
}
