//! `entresol metrics` and `entresol top`: figures of a cache in use.

mod common;

use common::served::{PAGE, formatted, reached, start, terminate};
use common::{Scratch, Signal, says, signal};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// The exporter, and the address that it printed.
fn exporter(scratch: &Scratch) -> (Child, String) {
    let mut command = scratch.command(&["metrics", "cache", "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    let address = line.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics\n"));
    (child, address.unwrap_or_else(|| panic!("'{line}' is no address")).to_owned())
}

fn get(address: &str, target: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("a connection");
    write!(stream, "GET {target} HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a blank line");
    says(head, &[&format!("Content-Length: {}", body.len()), "Connection: close"]);
    (head.to_owned(), body.to_owned())
}

/// Has promtool check the page, where it is installed.
fn promtool(page: &str) {
    let mut command = Command::new("promtool");
    let spawned = command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else { return entresol_skip::skipped!("promtool", "promtool is not installed") };
    child.stdin.take().expect("a pipe").write_all(page.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "promtool: {said}");
}

#[test]
fn the_figures_are_those_of_the_server_and_say_when_there_is_none() {
    let scratch = formatted();
    let mut child = start(&scratch, "arc", "write-back");
    let mut client = reached(&scratch, &mut child);
    client.write(0, &[5; 3 * PAGE], 0);
    client.read(0, PAGE as u32);
    let (exporting, address) = exporter(&scratch);
    let (head, page) = get(&address, "/metrics");
    says(&head, &["HTTP/1.1 200 OK", "text/plain; version=0.0.4"]);
    for line in [
        "entresol_up{cache=\"cache\"} 1",
        "entresol_info{cache=\"cache\",policy=\"arc\",mode=\"write-back\"} 1",
        "entresol_requests_total{cache=\"cache\",op=\"write\"} 3",
        "entresol_hits_total{cache=\"cache\",op=\"read\"} 1",
        "entresol_door_bytes_total{cache=\"cache\",op=\"write\"} 12288",
        "entresol_device_errors_total{cache=\"cache\",device=\"backing\",op=\"read\"} 0",
    ] {
        assert!(page.lines().any(|other| other == line), "{line} is not in:\n{page}");
    }
    promtool(&page);
    says(&get(&address, "/").0, &["404"]);
    for noise in [&b"\r\n\r\n"[..], b"DELETE /metrics HTTP/1.1\r\n\r\n", &[0xFF; 100_000]] {
        let mut stream = TcpStream::connect(&address).expect("a connection");
        // The server may close the connection before all bytes were sent.
        let _ = stream.write_all(noise);
    }
    drop(client);
    terminate(child);
    assert!(get(&address, "/metrics").1.lines().any(|line| line == "entresol_up{cache=\"cache\"} 0"));
    let mut child = start(&scratch, "arc", "write-back");
    drop(reached(&scratch, &mut child));
    assert!(get(&address, "/metrics").1.lines().any(|line| line == "entresol_up{cache=\"cache\"} 1"), "it is back");
    terminate(child);
    let mut exporting = exporting;
    signal(exporting.id(), Signal::TERM);
    assert_eq!(exporting.wait().expect("an end").code(), Some(0));
}

#[test]
fn other_machines_read_them_only_when_told_and_a_wrong_word_is_refused() {
    let scratch = formatted();
    let listen = |address| ["metrics", "cache", "--listen", address];
    says(&scratch.refused(&listen("0.0.0.0:9631")), &["not a loopback address", "--beyond-loopback"]);
    says(&scratch.refused(&listen("[::]:9631")), &["not a loopback address"]);
    says(&scratch.refused(&listen("somewhere")), &["--listen"]);
    says(&scratch.refused(&["metrics", "none"]), &["none: No such file"]);
    says(&scratch.refused(&["top", "cache"]), &["needs a terminal"]);
    says(&scratch.refused(&["top", "cache", "--every", "0"]), &["0.1 to 86400"]);
}
