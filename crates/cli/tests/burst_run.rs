//! `entresol burst run`: programs over a directory of checkpoints that is there while they run.

mod common;

use common::burst::Daemon;
use common::{Scratch, Signal, says, signal, wait_for};
use entresol_skip::skipped;
use std::process::Output;

fn no_fuse() -> bool {
    let none = std::fs::File::open("/dev/fuse").is_err();
    if none {
        skipped!("/dev/fuse", "no FUSE device can be opened");
    }
    none
}

/// Runs a script over a burst buffer of the command's own.
fn over_own(scratch: &Scratch, script: &str) -> Output {
    let own = ["burst", "run", "--memory", "16MiB", "--pfs", "pfs", "--job", "9", "--files", "2", "--for", "20s"];
    scratch.run(&[&own[..], &["--", "sh", "-c", script]].concat())
}

/// The directory that the command has named.
fn mounted_at(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let (_, rest) = said.split_once("job 9 at ").unwrap_or_else(|| panic!("{said}"));
    rest.split(" in ").next().expect("a path").to_owned()
}

#[test]
fn checkpoints_of_a_program_are_on_the_pfs_when_the_command_ends() {
    if no_fuse() {
        return;
    }
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("pfs")).expect("a directory");
    let output = over_own(
        &scratch,
        "cd $ENTRESOL_BURST_DIR && mkdir 1 && seq 400000 > 1/a && seq 7 > 1/b && cmp newest/b 1/b && exit 0",
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!std::path::Path::new(&mounted_at(&output)).exists(), "the directory is gone");
    let listed = scratch.ok(&["burst", "ls", "--json", "--pfs", "pfs", "--job", "9"]);
    says(&listed, &["\"state\": \"durable\"", "\"undrained_bytes\": 0"]);
    // A later run goes on from them. What a failing program has not closed is not committed.
    let output = over_own(
        &scratch,
        "cd $ENTRESOL_BURST_DIR && seq 400000 | cmp - newest/a && mkdir 2 && exec 3> 2/a && echo half >&3 && exit 7",
    );
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let output = over_own(&scratch, "cd $ENTRESOL_BURST_DIR && readlink newest && ls 2 | wc -l; kill -9 $$");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n0\n");
    assert_eq!(output.status.code(), Some(128 + 9));
}

#[test]
fn a_process_that_the_program_leaves_behind_is_waited_for() {
    if no_fuse() {
        return;
    }
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("pfs")).expect("a directory");
    let output = over_own(
        &scratch,
        "cd $ENTRESOL_BURST_DIR && mkdir 1 && (sleep 0.5; seq 9 > 1/a; seq 9 > 1/b) & exec sleep 0.2",
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let listed = scratch.ok(&["burst", "ls", "--pfs", "pfs", "--job", "9"]);
    says(&listed, &["durable", "2 of 2"]);
}

#[test]
fn signals_reach_the_program_and_what_is_not_on_the_pfs_is_said() {
    if no_fuse() {
        return;
    }
    let scratch = Scratch::new();
    ["pfs", "ckpt"].iter().for_each(|name| std::fs::create_dir(scratch.path(name)).expect("a directory"));
    let state = ["coordinate", "--listen", "127.0.0.1:0", "--state", "state", "--policy", "cdbb", "--nodes", "1"];
    let coordinator = Daemon::start(&scratch, &state);
    let cluster = ["--coordinator", &coordinator.address, "--pfs", "pfs"];
    let own = ["serve", "--node", "0", "--listen", "127.0.0.1:0", "--memory", "16MiB"];
    let node = Daemon::start(&scratch, &[&own[..], &cluster].concat());
    let run = [&["burst", "run", "--job", "3", "--at", "ckpt", "--for", "1s"], &cluster[..]].concat();
    let script = "trap 'exit 5' TERM; mkdir $ENTRESOL_BURST_DIR/1; seq 9 > $ENTRESOL_BURST_DIR/1/a; touch ready; \
                  while :; do sleep 0.05; done";
    let mut child = scratch.command(&[&run[..], &["sh", "-c", script]].concat()).spawn().expect("it runs");
    assert!(wait_for(&scratch.path("ready"), &mut child));
    assert!(scratch.path("ckpt/newest/a").exists());
    signal(child.id(), Signal::TERM);
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
    assert!(!scratch.path("ckpt/newest").exists(), "nothing is mounted any more");
    drop(node);
    // A node that cannot write to the PFS: it is the same one to it, and then it is gone.
    std::fs::create_dir(scratch.path("lost")).expect("a directory");
    let identity = std::fs::read_link(scratch.path("pfs/.entresol-burst")).expect("an identity");
    std::os::unix::fs::symlink(identity, scratch.path("lost/.entresol-burst")).expect("a link");
    let lost = ["--coordinator", &coordinator.address, "--pfs", "lost"];
    let _node = Daemon::start(&scratch, &[&own[..], &lost].concat());
    std::fs::remove_dir_all(scratch.path("lost")).expect("a directory");
    let script = "mkdir $ENTRESOL_BURST_DIR/2 && seq 9 > $ENTRESOL_BURST_DIR/2/a";
    let output = scratch.run(&[&run[..], &["sh", "-c", script]].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    says(&said, &["the program has ended (exit status: 0); not durable: ", "checkpoint 2"]);
}

#[test]
fn what_cannot_run_is_refused() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("pfs")).expect("a directory");
    let job = ["burst", "run", "--pfs", "pfs", "--job", "9"];
    says(&scratch.refused(&[&job[..], &["true"]].concat()), &["--coordinator", "--memory"]);
    if no_fuse() {
        return;
    }
    let own = [&["-q"], &job[..], &["--memory", "1MiB"]].concat();
    says(&scratch.refused(&[&own[..], &["--", "./nothing"]].concat()), &["./nothing"]);
    says(&scratch.refused(&[&own[..], &["--at", "nowhere", "true"]].concat()), &["nowhere"]);
}
