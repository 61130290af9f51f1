//! `entresol burst coordinate`, `serve`, `put`, `ls`, `restore` and `drain` as processes.

mod common;

use common::burst::Daemon;
use common::{Scratch, says};
use serde_json::Value;

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
        Daemon::start(&scratch, &[&place[..], &["--coordinator", &address]].concat())
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
}
