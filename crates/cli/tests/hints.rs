//! A cache that is notified of queries.

mod common;

use common::{Scratch, ended_well, says, wait_for};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

fn formatted() -> Scratch {
    let scratch = Scratch::new();
    std::fs::create_dir_all(scratch.path("backing/base/5")).expect("a data directory");
    scratch.file("backing/base/5/7", vec![7; 300_000]);
    scratch.file("backing/base/5/8", vec![8; 300_000]);
    scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "2MiB"]);
    scratch
}

#[test]
fn a_cache_hears_of_the_queries_of_the_command_that_it_runs() {
    let scratch = formatted();
    // The files are read, so that the cache knows them; then the script waits until queries were announced.
    let script = "cat backing/base/5/7 > seen; touch ready; while [ ! -e told ]; do sleep 0.05; done; cat backing/base/5/7 > seen";
    let arguments = ["run", "--backing", "backing", "--cache", "cache", "--policy", "heuristicdb", "--hints", "hints"];
    let mut command = scratch.command(&[&arguments[..], &["--", "sh", "-c", script]].concat());
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command runs");
    if wait_for(&scratch.path("ready"), &mut running) {
        assert_eq!(std::fs::metadata(scratch.path("hints")).expect("the socket").mode() & 0o777, 0o600);
        let socket = UnixDatagram::unbound().expect("a socket");
        let here = scratch.path("backing").canonicalize().expect("it is there");
        let begin = format!("entresol-hint 1\nbegin 1 1\nd {}\ns base/5/7\ni base/5/8\ni base/5/9\n", here.display());
        for message in [&*begin, "entresol-hint 1\nend 1 1\n", "noise", "entresol-hint 1\nbegin 1 2\nd /elsewhere\n"] {
            socket.send_to(message.as_bytes(), scratch.path("hints")).expect("somebody hears");
        }
        scratch.file("told", "");
    }
    let Some(said) = ended_well(running) else { return };
    assert_eq!(scratch.bytes("seen"), vec![7; 300_000]);
    let words = [
        "1 queries began; of their files 1 were known and 2 not; 2 messages could not be used, or not in full",
        "base/5/9 in ",
        "a malformed message: line 1",
        "a query in /elsewhere, which is not in ",
    ];
    words.iter().for_each(|part| assert!(said.contains(part), "'{part}' in {said}"));
    assert!(!scratch.path("hints").exists(), "the socket is removed");
    scratch.ok(&["check", "--cache", "cache", "--backing", "backing"]);
}

#[test]
fn what_cannot_be_heard_is_refused_before_anything_is_mounted() {
    let scratch = formatted();
    std::fs::create_dir(scratch.path("mount")).expect("a directory");
    let refused = |more: &[&str]| scratch.refused(&[&["mount", "backing", "mount"], more].concat());
    says(&refused(&["--hints", "socket"]), &["--cache"]);
    scratch.file("plain", "a file");
    let plain = scratch.run(&["mount", "backing", "mount", "--cache", "cache", "--hints", "plain"]);
    let said = String::from_utf8_lossy(&plain.stderr).into_owned();
    assert!(plain.status.code() == Some(2) && said.contains("plain: exists and is not a socket"), "{said}");
    let heard = UnixDatagram::bind(scratch.path("hints")).expect("a socket");
    let used = scratch.run(&["mount", "backing", "mount", "--cache", "cache", "--hints", "hints"]);
    let said = String::from_utf8_lossy(&used.stderr).into_owned();
    assert!(used.status.code() == Some(2) && said.contains("hints: in use by another process"), "{said}");
    drop(heard);
    let audit = scratch.run(&["mount", "backing", "mount", "--cache", "cache", "--audit-log", "server_audit.log"]);
    let said = String::from_utf8_lossy(&audit.stderr).into_owned();
    assert!(audit.status.code() == Some(2) && said.contains("0 data directories of MariaDB"), "{said}");
    scratch.ok(&["check", "--cache", "cache", "--backing", "backing"]);
}
