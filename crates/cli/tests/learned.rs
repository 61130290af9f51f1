//! Learned state of the default policy is kept beside the record of the backing store, and the next start goes on with it.

mod common;

use common::mounted::Mounted;
use common::served::client::FUA;
use common::served::{PAGE, formatted, reached, start, terminate};
use common::{Scratch, Signal, says, signal};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

const GOES_ON: &str = "the policy goes on with what it had learned";
const DAMAGED: &str = "what the policy had learned is damaged; it learns anew";

/// Starts a server, has it read and write a few pages, and leaves it running.
fn used(scratch: &Scratch, policy: &str) -> Child {
    let mut child = start(scratch, policy, "write-back");
    let mut client = reached(scratch, &mut child);
    for round in 0..20u64 {
        client.write(round % 5 * PAGE as u64, &[round as u8; PAGE], FUA);
        client.read((20 + round) * PAGE as u64, PAGE as u32);
    }
    drop(client);
    child
}

/// Files of the state directory that a policy's state is kept in.
fn kept(scratch: &Scratch) -> Vec<PathBuf> {
    let entries = fs::read_dir(scratch.path("state")).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "learned")).collect()
}

fn goes_on(said: &str) -> [bool; 2] {
    [said.contains(GOES_ON), said.contains(DAMAGED)]
}

#[test]
fn a_server_goes_on_with_what_the_one_before_had_learned() {
    let scratch = formatted();
    assert_eq!(goes_on(&terminate(used(&scratch, "reuse"))), [false, false]);
    let [file] = kept(&scratch).try_into().expect("one file");
    assert_eq!(goes_on(&terminate(used(&scratch, "reuse"))), [true, false]);

    // A kill leaves what was kept before.
    let mut child = used(&scratch, "reuse");
    signal(child.id(), Signal::KILL);
    child.wait().expect("an end");
    assert_eq!(goes_on(&terminate(used(&scratch, "reuse"))), [true, false]);

    // Another policy has no use for it, and leaves it.
    let before = fs::read(&file).expect("a state");
    assert_eq!(goes_on(&terminate(used(&scratch, "lru"))), [false, false]);
    assert_eq!(fs::read(&file).expect("a state"), before);

    let mut damaged = before.clone();
    damaged[before.len() / 2] ^= 4;
    fs::write(&file, &damaged).expect("room");
    assert_eq!(goes_on(&terminate(used(&scratch, "reuse"))), [false, true]);
    assert_eq!(goes_on(&terminate(used(&scratch, "reuse"))), [true, false], "the end has replaced it");

    fs::remove_file(&file).expect("it was there");
    assert_eq!(goes_on(&terminate(used(&scratch, "reuse"))), [false, false]);

    // A cache that is made anew is another cache.
    scratch.ok(&["-q", "drain", "--cache", "cache", "--backing", "disk"]);
    scratch.format(&["--force", "--cache", "cache", "--backing", "disk", "--size", "2MiB"]);
    assert_eq!(kept(&scratch), [file]);
    assert_eq!(goes_on(&terminate(used(&scratch, "reuse"))), [false, false]);
    assert_eq!(goes_on(&terminate(used(&scratch, "reuse"))), [true, false]);
}

/// The end of a server is in order where the state directory cannot be written.
#[test]
fn a_state_that_cannot_be_kept_is_said_and_costs_nothing_else() {
    let scratch = formatted();
    scratch.file("state", b"no directory");
    says(&terminate(used(&scratch, "reuse")), &["what the policy has learned is not kept", "ENTRESOL_STATE_DIR"]);
    assert_eq!(goes_on(&terminate(used(&scratch, "reuse"))), [false, false]);
}

#[test]
fn a_mount_goes_on_with_what_the_one_before_had_learned() {
    let Some(mut mounted) = Mounted::with(Some(["write-back", "reuse"])) else { return };
    mounted.unmount();
    let learned = mounted.below().join(".entresol/learned");
    for (round, expected) in [[true, false], [false, true], [true, false]].into_iter().enumerate() {
        let arguments = ["mount", "backing", "mount", "--cache", "cache", "--policy", "reuse"];
        let mut command = mounted.scratch.command(&arguments);
        let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
        let mut line = String::new();
        BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        fs::write(mounted.above().join("file"), vec![3; (40 + round) * PAGE]).expect("a file");
        let before = fs::read(&learned).expect("a state");
        let said = terminate(server);
        assert_eq!(goes_on(&said), expected, "{said}");
        let mut bytes = fs::read(&learned).expect("a state");
        assert!(bytes != before, "the end has kept another state");
        if expected == [true, false] {
            bytes[40] ^= 1;
            fs::write(&learned, &bytes).expect("room");
        }
    }
}
