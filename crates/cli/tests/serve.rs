//! `entresol serve nbd`: its output, its rules for connections, its end.

mod common;

use common::{Scratch, Signal, says, signal};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

/// Starts a server and waits until it accepts connections; returns its output.
fn start(scratch: &Scratch, arguments: &[&str]) -> (Child, String) {
    let mut command = scratch.command(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    (child, line.trim_end().to_owned())
}

/// Waits for the end; returns exit code and standard error.
fn end(mut child: Child) -> (Option<i32>, String) {
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    (child.wait().expect("an end").code(), said)
}

fn greeting(stream: &mut impl Read) -> [u8; 8] {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("a greeting");
    greeting[..8].try_into().expect("eight bytes")
}

#[test]
fn it_serves_until_it_is_terminated_and_leaves_no_socket() {
    let scratch = Scratch::new();
    scratch.file("disk", vec![5; 65536]);
    for ending in [Signal::TERM, Signal::INT] {
        let (child, uri) = start(&scratch, &["serve", "nbd", "--file", "disk", "--socket", "s"]);
        assert_eq!(uri, "nbd+unix:///?socket=s");
        let mut client = UnixStream::connect(scratch.path("s")).expect("a connection");
        assert_eq!(&greeting(&mut client), b"NBDMAGIC");
        says(&scratch.refused(&["serve", "nbd", "--file", "disk", "--socket", "t"]), &["disk", "in use"]);
        scratch.file("other", [0; 512]);
        says(&scratch.refused(&["serve", "nbd", "--file", "other", "--socket", "s"]), &["s: in use"]);
        drop(client);
        signal(child.id(), ending);
        let (code, said) = end(child);
        assert_eq!(code, Some(0), "{said}");
        says(&said, &["connections", "everything is flushed"]);
        assert_eq!(scratch.names(), ["disk", "other"]);
    }
    assert_eq!(scratch.bytes("disk"), vec![5; 65536]);
}

#[test]
fn after_a_kill_the_same_command_serves_again() {
    let scratch = Scratch::new();
    scratch.file("disk", vec![5; 65536]);
    for _ in 0..3 {
        let (child, _) = start(&scratch, &["-q", "serve", "nbd", "--file", "disk", "--socket", "s", "--read-only"]);
        assert_eq!(&greeting(&mut UnixStream::connect(scratch.path("s")).expect("a connection")), b"NBDMAGIC");
        signal(child.id(), Signal::KILL);
        assert_eq!(end(child), (None, String::new()));
        assert!(scratch.path("s").exists());
    }
}

#[test]
fn loopback_is_served_when_asked_and_nothing_beyond() {
    let scratch = Scratch::new();
    scratch.file("disk", vec![5; 65536]);
    let (child, uri) = start(&scratch, &["-q", "serve", "nbd", "--file", "disk", "--tcp", "127.0.0.1:0"]);
    let address = uri.strip_prefix("nbd://").expect("an address");
    assert_eq!(&greeting(&mut std::net::TcpStream::connect(address).expect("a connection")), b"NBDMAGIC");
    signal(child.id(), Signal::TERM);
    assert_eq!(end(child), (Some(0), String::new()));
    let refused = scratch.refused(&["serve", "nbd", "--file", "disk", "--tcp", "0.0.0.0:10809"]);
    says(&refused, &["0.0.0.0:10809", "not a loopback address"]);
}

#[test]
fn what_cannot_be_served_is_refused() {
    let scratch = Scratch::new();
    scratch.file("disk", vec![5; 512]);
    scratch.file("empty", "");
    says(&scratch.refused(&["serve", "nbd", "--file", "absent", "--socket", "s"]), &["absent: No such file"]);
    says(&scratch.refused(&["serve", "nbd", "--file", "empty", "--socket", "s"]), &["empty: is empty"]);
    says(&scratch.refused(&["serve", "nbd", "--file", ".", "--socket", "s"]), &[".: Is a directory"]);
    says(&scratch.refused(&["serve", "nbd", "--file", "disk", "--socket", "empty"]), &["empty: exists and is not"]);
    says(&scratch.refused(&["serve", "nbd", "--file", "disk"]), &["--socket"]);
    says(&scratch.refused(&["serve", "nbd", "--file", "disk", "--socket", "s", "--tcp", "127.0.0.1:1"]), &["--tcp"]);
}

#[test]
fn a_file_can_be_served_as_slow_as_another_device() {
    let scratch = Scratch::new();
    scratch.file("disk", vec![5; 65536]);
    let emulate = |model| ["serve", "nbd", "--file", "disk", "--socket", "s", "--emulate", model];
    says(&scratch.refused(&emulate("no-such")), &["no-such", "face-disk"]);
    let (child, uri) = start(&scratch, &emulate("face-disk"));
    assert_eq!(uri, "nbd+unix:///?socket=s");
    assert_eq!(&greeting(&mut UnixStream::connect(scratch.path("s")).expect("a connection")), b"NBDMAGIC");
    signal(child.id(), Signal::TERM);
    let (code, said) = end(child);
    assert_eq!(code, Some(0), "{said}");
    // The last flush is an I/O of the disk.
    says(&said, &["everything is flushed", "1 I/Os; given - asked: median"]);
    assert_eq!((scratch.bytes("disk"), scratch.names()), (vec![5; 65536], vec!["disk".to_owned()]));
}

#[test]
fn a_block_device_for_several_servers_is_refused_in_words_where_there_is_no_driver() {
    if std::path::Path::new("/dev/ublk-control").exists() {
        return entresol_skip::skipped!("kernel", "this kernel has ublk");
    }
    let scratch = Scratch::new();
    scratch.file("disk", vec![0; 1 << 20]);
    scratch.format(&["--cache", "cache", "--backing", "disk", "--size", "2MiB"]);
    let serve = ["serve", "ublk", "--cache", "cache", "--backing", "disk", "--restart"];
    for restart in ["on", "off"] {
        let refused = scratch.run(&[&serve[..], &[restart]].concat());
        let said = String::from_utf8(refused.stderr).expect("text");
        assert_eq!(refused.status.code(), Some(2), "{said}");
        // A kernel that is too old for the first is so with a driver, too.
        let is_right = said.contains("/dev/ublk-control is not there") || (restart == "on" && said.contains("6.15"));
        assert!(is_right, "{said}");
    }
    // No server is left.
    scratch.ok(&["check", "--cache", "cache", "--backing", "disk"]);
}
