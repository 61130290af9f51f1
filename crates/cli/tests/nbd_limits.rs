//! `entresol serve nbd` under many clients: its memory, and its rules for connections.

mod common;

use common::served::client::{Client, READ};
use common::{Scratch, Signal, says, signal};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn start(scratch: &Scratch, arguments: &[&str]) -> (Child, String) {
    let mut command = scratch.command(&[&["serve", "nbd"], arguments].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    (child, line)
}

fn ended(mut child: Child) -> String {
    signal(child.id(), Signal::TERM);
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert_eq!(child.wait().expect("an end").code(), Some(0), "{said}");
    said
}

/// A figure of /proc/PID/status, in bytes.
fn status(process: u32, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {text}"));
    let number = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    1024 * number.parse::<u64>().expect("a number of KiB")
}

/// Waits until the memory of a process stays as it is.
fn settled(process: u32) {
    let (mut last, mut since) = (0, Instant::now());
    let began = Instant::now();
    while since.elapsed() < Duration::from_secs(1) {
        assert!(began.elapsed() < Duration::from_secs(60), "its memory does not come to rest");
        std::thread::sleep(Duration::from_millis(20));
        let now = status(process, "VmRSS");
        if now.abs_diff(last) > MIB {
            (last, since) = (now, Instant::now());
        }
    }
}

#[test]
fn fifteen_clients_that_read_nothing_leave_the_server_below_300_megabytes() {
    let plain = Scratch::new();
    let cached = Scratch::new();
    for scratch in [&plain, &cached] {
        scratch.file("disk", "");
        let disk = std::fs::File::options().write(true).open(scratch.path("disk")).expect("a file");
        disk.set_len(64 * MIB).expect("a size");
    }
    cached.format(&["--cache", "cache", "--backing", "disk", "--size", "8MiB"]);
    let arguments =
        [&["--file", "disk", "--socket", "s"][..], &["--backing", "disk", "--cache", "cache", "--socket", "s"]];
    for (scratch, arguments) in [plain, cached].iter().zip(arguments) {
        let (server, _) = start(scratch, arguments);
        let bytes = 8 * MIB;
        let mut silent: Vec<Client> =
            (0..15).map(|_| Client::connect(&scratch.path("s"), true).expect("a connection")).collect();
        for client in &mut silent {
            // Eight times the requests that a well-behaved client may have in flight.
            for at in 0..64 {
                client.send(READ, 0, at % 8 * bytes, bytes as u32, b"").expect("a request");
            }
        }
        settled(server.id());
        let mut other = Client::connect(&scratch.path("s"), true).expect("a sixteenth");
        assert_eq!(other.read(0, bytes as u32).len() as u64, bytes, "it is served beside them");
        let most = status(server.id(), "VmHWM");
        println!("{arguments:?}: {} MB resident at most", most / 1_000_000);
        assert!(most < 300_000_000, "{most} bytes were resident");
        drop(silent);
        let said = ended(server);
        let held = said.split_once("requests held ").and_then(|(_, held)| held.split(' ').next()?.parse::<u64>().ok());
        assert!(held.is_some_and(|held| held <= 256), "{said}");
    }
}

#[test]
fn limits_of_connections_and_memory_are_said() {
    let scratch = Scratch::new();
    scratch.file("disk", [0; 65536]);
    let rest = ["--file", "disk", "--socket", "s"];
    let few = [&rest[..], &["--memory", "8MiB"]].concat();
    let refused = scratch.refused(&[&["serve", "nbd"], &few[..]].concat());
    says(&refused, &["--memory: 8388608 bytes are too few for 16 connections (--max-connections): "]);
    let needed = refused.rsplit_once(": ").and_then(|(_, last)| last.split_once("MiB")).expect("a size").0;
    let enough = format!("{needed}MiB");
    let (server, _) = start(&scratch, &[&rest[..], &["--memory", &enough]].concat());
    ended(server);
    let (server, _) = start(&scratch, &[&rest[..], &["--max-connections", "1"]].concat());
    let _first = Client::connect(&scratch.path("s"), true).expect("a connection");
    let second = Client::connect(&scratch.path("s"), true).err().expect("a refusal").to_string();
    says(&second, &["1 connections are open, as many as the server takes"]);
    says(&ended(server), &["refused a client: 1 connections", "1 connections, 1 refused"]);
}

#[test]
fn a_client_of_another_user_is_refused_over_tcp_unless_any_user_may() {
    let test = "a_client_of_another_user_is_refused_over_tcp_unless_any_user_may";
    if !rustix::process::geteuid().is_root() {
        return entresol_skip::skipped!("root", "{test}: only root can act as another user");
    }
    let nobody = rustix::process::Uid::from_raw(65534);
    let scratch = Scratch::new();
    scratch.file("disk", [0; 65536]);
    for any_user in [false, true] {
        let arguments = ["--file", "disk", "--tcp", "127.0.0.1:0", "--any-user"];
        let (server, uri) = start(&scratch, &arguments[..if any_user { 5 } else { 4 }]);
        let address = uri.trim().strip_prefix("nbd://").expect("an address").to_owned();
        let mut answers = Vec::new();
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| {
                // The user id is changed for this thread alone, by the bare system call.
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("another user");
                negotiated(&address)
            });
            answers.push(answer.join().expect("no panic"));
        });
        answers.push(negotiated(&address));
        let said = ended(server);
        // 1 is an acknowledgement, 0x80000002 a refusal by policy.
        assert_eq!(answers, [if any_user { 1 } else { 0x8000_0002 }, 1], "{said}");
        assert_eq!(said.contains("refused a client: it is of user 65534"), !any_user, "{said}");
    }
}

/// Returns the type of a server's reply to the option STRUCTURED_REPLY.
fn negotiated(address: &str) -> u32 {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(address).expect("a connection");
    stream.read_exact(&mut [0; 18]).expect("a greeting");
    let asked = [&[0, 0, 0, 3][..], b"IHAVEOPT", &8_u32.to_be_bytes(), &[0; 4]].concat();
    stream.write_all(&asked).expect("it is sent");
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).expect("an answer");
    u32::from_be_bytes(reply[12..16].try_into().expect("four bytes"))
}
