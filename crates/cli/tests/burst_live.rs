//! `entresol burst coordinate`, `serve`, `put`, `ls`, `restore`, `drain` and `mount` as processes.

mod common;

use common::burst::Daemon;
use common::{Scratch, Signal, says, signal};
use entresol_skip::skipped;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn a_checkpoint_is_put_listed_drained_and_restored() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("pfs")).expect("a directory");
    let coordinate = [
        "coordinate",
        "--listen",
        "127.0.0.1:0",
        "--state",
        "state",
        "--policy",
        "cdbb:redundancy=partner",
        "--nodes",
        "2",
    ];
    let mut coordinator = Daemon::start(&scratch, &coordinate);
    let address = coordinator.address.clone();
    let serve = |node: &str| {
        let place = ["serve", "--node", node, "--listen", "127.0.0.1:0", "--memory", "8MiB", "--pfs", "pfs"];
        let cap: &[&str] = if node == "1" { &["--drain-rate", "100MB/s"] } else { &[] };
        Daemon::start(&scratch, &[&place[..], &["--coordinator", &address], cap].concat())
    };
    let mut nodes = [serve("0"), serve("1")];
    let common = ["--coordinator", &address, "--pfs", "pfs", "--job", "9"];
    // A listing waits until both nodes have reported.
    let listed = |expected: &str| {
        let printed = scratch.ok(&[&["burst", "ls", "--json"], &common[..]].concat());
        let json: Value = serde_json::from_str(&printed).expect("json");
        assert!(json["checkpoints"].to_string().contains(expected), "{json}");
    };
    listed("[]");
    for rank in ["0", "1"] {
        let file = format!("state.{rank}");
        std::fs::write(scratch.path(&file), rank.repeat(3_000_000)).expect("a file");
        let own = ["--node", rank, "--checkpoint", "4", "--rank", rank, "--ranks", "2", &file];
        let printed = scratch.ok(&[&["burst", "put"], &common[..], &own[..]].concat());
        says(&printed, &["replicated: ", "memory of node 0", "memory of node 1"]);
    }
    let watcher = ["metrics", "--coordinator", &address, "--listen", "127.0.0.1:0"];
    let watched = watched(&scratch, &watcher);
    assert_eq!(figure(&watched, "entresol_burst_up"), 1.0);
    assert_eq!(figure(&watched, "entresol_burst_buffer_bytes{node=\"1\"}"), f64::from(8 << 20));
    assert_eq!(figure(&watched, "entresol_burst_drain_rate_limit_bytes{node=\"0\"}"), 0.0);
    assert_eq!(figure(&watched, "entresol_burst_drain_rate_limit_bytes{node=\"1\"}"), 1e8);
    assert_eq!(figure(&watched, "entresol_burst_checkpoints_at_risk"), 0.0, "each byte is on two nodes or durable");
    documented(&watched);
    let drained = scratch.ok(&[&["burst", "drain"], &common[..], &["--for", "60s"]].concat());
    assert_eq!(drained, "");
    listed("\"state\":\"durable\"");
    assert!(scratch.ok(&[&["burst", "ls"], &common[..]].concat()).contains("2 of 2"));
    for node in &mut nodes {
        assert_eq!(node.terminate(), Some(0));
    }
    coordinator.terminate();
    let printed = scratch.ok(&["burst", "restore", "--pfs", "pfs", "--job", "9", "--rank", "1", "restored"]);
    assert_eq!(printed, "checkpoint 4 from the PFS\n");
    assert!(std::fs::read(scratch.path("restored")).expect("a file") == "1".repeat(3_000_000).as_bytes());
    // A second start has a higher epoch.
    let second = Daemon::start(&scratch, &coordinate);
    assert!(second.address != address);
    assert!(std::fs::read_to_string(scratch.path("state/epoch.json")).expect("an epoch").contains('2'));
}

#[test]
fn programs_write_to_mounts_while_nodes_are_killed() {
    if std::fs::File::open("/dev/fuse").is_err() {
        skipped!("/dev/fuse", "no FUSE device can be opened");
        return;
    }
    let scratch = Scratch::new();
    ["pfs", "a", "b"].iter().for_each(|name| std::fs::create_dir(scratch.path(name)).expect("a directory"));
    let policy = ["--policy", "chunked:chunk=2MiB", "--nodes", "3"];
    let state = ["coordinate", "--listen", "127.0.0.1:0", "--state", "state"];
    let coordinator = Daemon::start(&scratch, &[&state[..], &policy].concat());
    let common = ["--coordinator", &coordinator.address, "--pfs", "pfs"];
    let serve = |node: &str| {
        let own = ["serve", "--node", node, "--listen", "127.0.0.1:0", "--memory", "64MiB"];
        Daemon::start(&scratch, &[&own[..], &common].concat())
    };
    let nodes = ["0", "1", "2"].map(serve);
    let job = [&common[..], &["--job", "9"]].concat();
    assert!(scratch.ok(&[&["burst", "ls"], &job[..]].concat()).contains("checkpoint"));
    let mount = |node: &str, at: &str| {
        Daemon::start(&scratch, &[&["mount", "--node", node, "--files", "2", at], &job[..]].concat())
    };
    let (mut a, mut b) = (mount("0", "a"), mount("1", "b"));
    std::fs::create_dir(scratch.path("a/1")).expect("a checkpoint");
    let bytes = b"checkpoint".repeat(4 << 20);
    std::fs::write(scratch.path("source"), &bytes).expect("a file");
    let copy = |to: &str| {
        Command::new("dd")
            .arg("if=source")
            .arg(format!("of={to}"))
            .args(["bs=64k", "conv=fsync", "status=none"])
            .current_dir(scratch.path("."))
            .spawn()
            .expect("dd")
    };
    // A node is killed while two programs write.
    let mut writers = [copy("a/1/x"), copy("b/1/y")];
    std::thread::sleep(Duration::from_millis(30));
    nodes[2].signal(Signal::KILL);
    for writer in &mut writers {
        assert!(writer.wait().expect("it ends").success());
    }
    assert!(std::fs::read(scratch.path("b/newest/x")).expect("a file") == bytes);
    assert!(std::fs::read(scratch.path("a/newest/y")).expect("a file") == bytes);
    // A file that is open when the mount is terminated is finished.
    std::fs::create_dir(scratch.path("a/2")).expect("a checkpoint");
    let mut late = std::fs::File::create(scratch.path("a/2/late")).expect("a file");
    a.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(200));
    assert!(a.is_running());
    late.write_all(b"late").expect("written");
    drop(late);
    assert_eq!(a.wait(), Some(0));
    assert_eq!(std::fs::read(scratch.path("b/2/late")).expect("a file"), b"late");
    // A second signal ends it at once, and what is not committed is said.
    let mut file = std::fs::File::create(scratch.path("b/2/lost")).expect("a file");
    file.write_all(b"lost").expect("written");
    b.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(b.terminate(), Some(2));
    assert!(file.sync_all().is_err());
    let restore = [&["burst", "restore"], &job[..], &["--rank", "0", "out"]].concat();
    says(&scratch.refused(&restore), &["checkpoint 1 of job 9 consists of files", "burst mount"]);
}

/// The page of `burst metrics`, asked once.
fn watched(scratch: &Scratch, arguments: &[&str]) -> String {
    let mut child = scratch.command(&[&["burst"], arguments].concat()).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let mut stream = TcpStream::connect(address.expect("an address")).expect("a connection");
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("an answer");
    signal(child.id(), Signal::TERM);
    assert!(child.wait().expect("it ends").success());
    page
}

fn figure(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} in {page}")).parse().expect("a number")
}

/// The page for administrators has each metric with its help, and no other.
fn documented(page: &str) {
    let documents = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/HPC.md");
    let documents = std::fs::read_to_string(documents).expect("the page");
    let listed: Vec<&str> = documents.lines().filter(|line| line.starts_with("| `entresol_burst_")).collect();
    let helped = page.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    let served: Vec<String> = helped.map(|(name, help)| format!("| `{name}` | {help} |")).collect();
    assert_eq!(listed, served, "docs/HPC.md:\n{}", served.join("\n"));
}

#[test]
fn commands_without_a_burst_buffer_say_so() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("pfs")).expect("a directory");
    let job = ["--pfs", "pfs", "--job", "1"];
    let restore = [&["burst", "restore"], &job[..], &["--rank", "0", "out"]].concat();
    says(&scratch.refused(&restore), &["job 1 has no complete checkpoint"]);
    let drain = [&["burst", "drain"], &job[..], &["--checkpoint", "3", "--for", "1s"]].concat();
    says(&scratch.refused(&drain), &["not durable: checkpoint 3: nothing of it is stored"]);
    says(&scratch.refused(&["burst", "ls", "--pfs", "nowhere", "--job", "1"]), &["--pfs nowhere"]);
    let unreachable = [&["burst", "ls", "--coordinator", "127.0.0.1:1"], &job[..]].concat();
    says(&scratch.refused(&unreachable), &["a newer checkpoint may be missed"]);
    let xor = ["burst", "coordinate", "--listen", "127.0.0.1:0", "--state", "state", "--policy", "cdbb:redundancy=xor"];
    says(&scratch.refused(&xor), &["redundancy=xor is simulated only"]);
    let memory =
        ["burst", "serve", "--node", "0", "--listen", "127.0.0.1:0", "--coordinator", "127.0.0.1:1", "--pfs", "pfs"];
    says(&scratch.refused(&[&memory[..], &["--memory", "10%"]].concat()), &["such as 4GiB"]);
    for rate in ["0MB/s", "5%", "fast"] {
        let capped = ["--memory", "1MiB", "--drain-rate", rate];
        says(&scratch.refused(&[&memory[..], &capped].concat()), &["such as 200MB/s"]);
    }
}
