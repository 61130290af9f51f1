//! `entresol record`: the requests of a cache in use become a trace for the simulator.

mod common;

use common::mounted::Mounted;
use common::served::client::Client;
use common::served::{PAGE, formatted, reached, start, terminate};
use common::{Scratch, Signal, crash, says, signal};
use entresol_core::Random;
use entresol_trace::native;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Duration;

/// A cache, named by itself.
const RECORD: [&str; 3] = ["record", "cache", "t.etr"];

/// A started recorder, and its output.
fn recorder(scratch: &Scratch, more: &[&str]) -> (Child, BufReader<impl Read + use<>>) {
    let mut command = scratch.command(&[&RECORD[..], more].concat());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("text");
    assert_eq!(line, "recording cache\n");
    (child, said)
}

fn ended(mut child: Child, mut said: impl BufRead) -> String {
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert_eq!(child.wait().expect("an end").code(), Some(0), "{rest}");
    rest
}

/// Sends requests of all kinds to the first 300 pages; returns how many pages they touch.
fn requests(client: &mut Client, seed: u64, number: usize) -> u64 {
    let mut random = Random::new(seed);
    let mut pages = 0;
    for _ in 0..number {
        let first = random.below(300).min(random.below(300)) as usize;
        let run = 1 + random.below(4) as usize;
        match random.below(4) {
            0 => client.write((first * PAGE) as u64, &vec![5; run * PAGE], 0),
            1 => client.write((first * PAGE + 512) as u64, &[6; 1024], 0),
            _ => drop(client.read((first * PAGE) as u64, (run * PAGE) as u32)),
        }
        pages += run as u64;
    }
    pages
}

#[test]
fn a_recording_simulates_to_what_the_server_counted() {
    let scratch = formatted();
    let seed = 3;
    println!("seed {seed}");
    for policy in ["arc", "lirs", "face"] {
        scratch.format(&["--force", "--cache", "cache", "--backing", "disk", "--size", "2MiB"]);
        let mut child = start(&scratch, policy, "write-back");
        let mut client = reached(&scratch, &mut child);
        let (recording, said) = recorder(&scratch, &[]);
        requests(&mut client, seed, 2000);
        signal(recording.id(), Signal::INT);
        let said = ended(recording, said);
        let now: Value = serde_json::from_str(&scratch.ok(&["stats", "--cache", "cache", "--json"])).expect("figures");
        drop(client);
        terminate(child);
        let count = |name: &str| now["requests"][name].as_u64().expect("a count");
        let digits: String =
            said.split(" requests").next().expect("text").chars().filter(char::is_ascii_digit).collect();
        assert_eq!(digits, (count("reads") + count("writes")).to_string(), "{said}");
        says(&said, &["t.etr: ", " pages in ", ", 0 left out"]);
        let size = |tier: usize| format!("{}p", now["tiers_pages"][tier]);
        let mut simulate = vec!["-q", "simulate", "t.etr", "--policy", policy, "--json", "r.json"];
        let (top, last) = (size(0), size(now["tiers_pages"].as_array().expect("tiers").len() - 1));
        simulate.extend(["--size", &last]);
        if policy == "face" {
            simulate.extend(["--dram", &top]);
        }
        scratch.ok(&simulate);
        let simulated: Value = serde_json::from_str(&scratch.read("r.json")).expect("results");
        let row = &simulated["results"][0];
        for name in ["reads", "writes", "read_hits", "write_hits", "fetches", "admissions", "write_backs", "bypasses"] {
            assert_eq!(row[name], now["requests"][name], "{policy}: {name}");
        }
        for (name, value) in now["policy_gauges"].as_object().expect("gauges") {
            let gauges = row["gauges"].as_array().expect("gauges of the simulation");
            let other = gauges.iter().find(|gauge| gauge[0] == **name).unwrap_or_else(|| panic!("{name} in {row}"));
            assert_eq!(other[1].as_f64(), value.as_f64(), "{policy}: {name}");
        }
    }
    let trace = native::open(&scratch.path("t.etr")).expect("a trace");
    assert_eq!((trace.objects.len(), trace.objects[0].name.as_str()), (1, "disk"));
    says(&trace.provenance, &["recorded from cache (face, write-back), "]);
}

#[test]
fn a_recording_ends_after_a_time_a_number_or_with_the_server() {
    let scratch = formatted();
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    let (recording, said) = recorder(&scratch, &["--limit", "100"]);
    let second = scratch.run(&["record", "cache", "other.etr"]);
    says(&String::from_utf8_lossy(&second.stderr), &["another recording of it is running"]);
    assert!(requests(&mut client, 1, 200) > 100);
    says(&ended(recording, said), &["t.etr: 100 requests to "]);
    let (recording, said) = recorder(&scratch, &["--for", "0.3s"]);
    client.read(0, PAGE as u32);
    says(&ended(recording, said), &["t.etr: 1 requests to 1 pages in "]);
    // There was no request: the old file stays.
    let (mut recording, mut said) = recorder(&scratch, &["--for", "0.1s"]);
    let mut line = String::new();
    said.read_line(&mut line).expect("text");
    says(&line, &["t.etr: there was no request to write"]);
    assert_eq!(recording.wait().expect("an end").code(), Some(2));
    let (recording, said) = recorder(&scratch, &[]);
    client.read(0, 2 * PAGE as u32);
    drop(client);
    terminate(child);
    says(&ended(recording, said), &["until the server ended\n", "t.etr: 2 requests to 2 pages"]);
    says(&native::open(&scratch.path("t.etr")).expect("a trace").provenance, &["until the server ended"]);
    says(&scratch.refused(&RECORD), &["cache: is not in use; there is nothing to record"]);
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    let (recording, said) = recorder(&scratch, &[]);
    client.read(0, 3 * PAGE as u32);
    // Time for the recorder to receive the requests.
    std::thread::sleep(Duration::from_millis(500));
    crash(child.id());
    child.wait().expect("an end");
    says(&ended(recording, said), &["broken off: the server was killed", "t.etr: 3 requests to 3 pages"]);
    says(&native::open(&scratch.path("t.etr")).expect("a trace").provenance, &["; broken off"]);
    says(&scratch.refused(&[&RECORD[..], &["--for", "soon"]].concat()), &["such as 90s, 15m or 2h"]);
}

#[test]
fn a_killed_recorder_leaves_no_trace_and_the_next_one_records() {
    let scratch = formatted();
    let mut child = start(&scratch, "lru", "write-back");
    let mut client = reached(&scratch, &mut child);
    let before = scratch.names();
    let (mut recording, _) = recorder(&scratch, &[]);
    requests(&mut client, 2, 100);
    recording.kill().and_then(|()| recording.wait()).expect("a kill");
    assert_eq!(scratch.names(), before, "nothing has a name before it is whole");
    // The server notices at its next event, a tenth of a second later at most.
    for _ in 0..100 {
        if scratch.run(&[&RECORD[..], &["--for", "0.05s"]].concat()).status.code() == Some(0) {
            break;
        }
        client.read(0, PAGE as u32);
        std::thread::sleep(Duration::from_millis(20));
    }
    let (recording, said) = recorder(&scratch, &["--limit", "10"]);
    requests(&mut client, 2, 100);
    says(&ended(recording, said), &["t.etr: 10 requests"]);
    drop(client);
    terminate(child);
}

#[test]
fn of_files_each_is_an_object_by_its_name() {
    let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    let above = mounted.above();
    std::fs::create_dir(above.join("base")).expect("a directory");
    std::fs::write(above.join("base/1"), vec![1; 3 * PAGE]).expect("a file");
    let mut command = mounted.scratch.command(&["record", "mount", "t.etr"]);
    let mut recording = command.stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut said = BufReader::new(recording.stderr.take().expect("a pipe"));
    said.read_line(&mut String::new()).expect("text");
    std::fs::write(above.join("base/2"), vec![2; 2 * PAGE]).expect("a file");
    assert_eq!(std::fs::read(above.join("base/1")).expect("a file"), vec![1; 3 * PAGE]);
    signal(recording.id(), Signal::INT);
    ended(recording, said);
    let trace = native::open(&mounted.scratch.path("t.etr")).expect("a trace");
    let mut touched: Vec<(&str, bool, u64)> = (0..trace.len())
        .map(|at| {
            let address = trace.address(trace.request(at).page);
            let object = &trace.objects[address.object.index()];
            (object.name.as_str(), trace.request(at).op.is_write(), address.block)
        })
        .collect();
    touched.sort_unstable();
    touched.dedup();
    let pages = |name, write, pages| (0..pages).map(move |page| (name, write, page));
    let expected: Vec<_> = pages("base/1", false, 3).chain(pages("base/2", true, 2)).collect();
    assert_eq!(touched, expected);
    mounted.signal(Signal::TERM);
    assert_eq!(mounted.end().0, Some(0));
}
