//! `entresol serve nbd --restart on`: servers are killed under clients that connect again, and every answer stays true.

mod common;
#[path = "disks/failing.rs"]
mod failing;

use common::served::client::{Client, FLUSH, FUA, READ, TRIM, WRITE, WRITE_ZEROES};
use common::served::{BACKING, PAGE};
use common::{Scratch, Signal, says, signal};
use entresol_core::Random;
use failing::{Call, FailingDisk};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Longest pause that a client may see on a busy machine: start, recovery and the wait for a processor.
const PAUSE_MAX: Duration = Duration::from_secs(20);

/// A holder and its server, over a cache of 2 MiB.
struct Restarting {
    scratch: Scratch,
    holder: Child,
    announced: String,
}

/// A command line of words, in a scratch directory with a formatted cache.
fn formatted(layout: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.file("disk", vec![0; BACKING]);
    scratch.format(&["--cache", "cache", "--backing", "disk", "--size", "2MiB", "--layout", layout]);
    scratch
}

impl Restarting {
    fn start(scratch: Scratch, arguments: &str) -> Self {
        let arguments: Vec<&str> =
            ["serve", "nbd", "--restart", "on"].into_iter().chain(arguments.split(' ')).collect();
        let mut command = scratch.command(&arguments);
        let mut holder = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
        let mut announced = String::new();
        let mut output = BufReader::new(holder.stdout.take().expect("a pipe"));
        output.read_line(&mut announced).expect("a line");
        if announced.is_empty() {
            let mut said = String::new();
            holder.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
            panic!("the server ended: {said}");
        }
        holder.stdout = Some(output.into_inner());
        Restarting { scratch, holder, announced }
    }

    fn socket(&self) -> PathBuf {
        self.scratch.path("s")
    }

    /// The process that serves; none while one ends and the next begins.
    fn server(&self) -> Option<u32> {
        let holder = self.holder.id();
        let children = std::fs::read_to_string(format!("/proc/{holder}/task/{holder}/children")).expect("a list");
        children.split_whitespace().next_back().and_then(|number| number.parse().ok())
    }

    /// The process that serves, once it is another one than `before`.
    fn server_after(&self, before: u32) -> u32 {
        self.server_after_within(before, PAUSE_MAX)
    }

    fn server_after_within(&self, before: u32, limit: Duration) -> u32 {
        let since = Instant::now();
        loop {
            if let Some(server) = self.server().filter(|&server| server != before) {
                return server;
            }
            if since.elapsed() >= limit {
                panic!("no other server is started: {}", self.said_so_far());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Standard error of a holder that is to say no more.
    fn said_so_far(&self) -> String {
        signal(self.holder.id(), Signal::KILL);
        let (mut said, mut bytes) = (Vec::new(), [0; 4096]);
        let error = self.holder.stderr.as_ref().expect("a pipe");
        while let Ok(read @ 1..) = rustix::io::read(error, &mut bytes) {
            said.extend(&bytes[..read]);
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Kills the server that there is, and returns the next one.
    fn kill(&self) -> u32 {
        let before = self.server_after(0);
        signal(before, Signal::KILL);
        self.server_after(before)
    }

    /// Ends it by SIGTERM; returns the exit code and both outputs.
    fn end(self) -> (Scratch, Option<i32>, String, String) {
        signal(self.holder.id(), Signal::TERM);
        self.ended()
    }

    /// Waits for an end that was asked for.
    fn ended(mut self) -> (Scratch, Option<i32>, String, String) {
        let (mut more, mut said) = (String::new(), String::new());
        self.holder.stdout.take().expect("a pipe").read_to_string(&mut more).expect("text");
        self.holder.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        (self.scratch, self.holder.wait().expect("an end").code(), more, said)
    }
}

/// A client that connects again when its connection breaks.
struct Patient {
    socket: PathBuf,
    client: Option<Client>,
    pause: Duration,
}

impl Patient {
    fn new(socket: &Path) -> Self {
        Patient { socket: socket.to_owned(), client: None, pause: Duration::ZERO }
    }

    fn attempt(&mut self, command: u16, flags: u16, offset: u64, length: u32, payload: &[u8]) -> io::Result<Vec<u8>> {
        let client = match &mut self.client {
            Some(client) => client,
            // The listening socket is always there.
            none => none.insert(Client::connect(&self.socket, offset.is_multiple_of(2))?),
        };
        let answer = client.call(command, flags, offset, length, payload)?;
        assert_eq!(answer.errno, 0, "command {command} of {length} bytes at {offset}");
        Ok(answer.data)
    }

    /// Requests once; an error if the connection broke before the answer.
    fn once(&mut self, command: u16, flags: u16, offset: u64, length: u32, payload: &[u8]) -> io::Result<Vec<u8>> {
        let done = self.attempt(command, flags, offset, length, payload);
        if let Err(error) = &done {
            let kind = error.kind();
            assert_ne!((kind, true), (io::ErrorKind::ConnectionRefused, true), "the socket is the holder's");
            assert_ne!(kind, io::ErrorKind::NotFound, "the socket is the holder's");
            self.client = None;
        }
        done
    }

    /// Requests until there is an answer.
    fn call(&mut self, command: u16, flags: u16, offset: u64, length: u32, payload: &[u8]) -> Vec<u8> {
        let since = Instant::now();
        loop {
            if let Ok(data) = self.once(command, flags, offset, length, payload) {
                self.pause = self.pause.max(since.elapsed());
                return data;
            }
            assert!(since.elapsed() < PAUSE_MAX, "no answer");
        }
    }
}

/// A part of the disk as a client left it, whose alone it is.
struct Part {
    begin: usize,
    bytes: Vec<u8>,
    random: Random,
    patient: Patient,
    requests: u64,
    /// Writes that broke off, of which each page was found old or new.
    halves: u64,
}

impl Part {
    fn step(&mut self) {
        let random = &mut self.random;
        let length = match random.below(4) {
            0 => 1 + random.below(3 * PAGE as u64) as usize,
            1 => 16 * PAGE,
            _ => PAGE,
        };
        let at = match random.below(2) {
            0 => random.below((self.bytes.len() - length) as u64 + 1) as usize,
            _ => random.below(((self.bytes.len() - length) / PAGE) as u64 + 1) as usize * PAGE,
        };
        let (offset, length) = ((self.begin + at) as u64, length);
        self.requests += 1;
        match random.below(20) {
            0 => drop(self.patient.call(FLUSH, 0, 0, 0, b"")),
            1..8 => {
                let found = self.patient.call(READ, 0, offset, length as u32, b"");
                assert!(found == self.bytes[at..at + length], "{length} bytes at {offset} are not what was answered");
            }
            what => {
                let seed = random.next_u64().to_le_bytes();
                let zeroes = what == 8;
                let bytes: Vec<u8> =
                    (0..length).map(|at| if zeroes { 0 } else { seed[at % 8] ^ (at / 8) as u8 }).collect();
                let (command, payload) = if zeroes { (WRITE_ZEROES, &[][..]) } else { (WRITE, &bytes[..]) };
                let flags = if what == 9 { FUA } else { 0 };
                let repeats = random.chance(0.7);
                if repeats {
                    self.patient.call(command, flags, offset, length as u32, payload);
                    self.bytes[at..at + length].copy_from_slice(&bytes);
                } else if self.patient.once(command, flags, offset, length as u32, payload).is_ok() {
                    self.bytes[at..at + length].copy_from_slice(&bytes);
                } else {
                    self.broke_off(at, &bytes);
                }
            }
        }
    }

    /// Each page has what was there before a write that broke off, or what that was to write; then it stays so.
    fn broke_off(&mut self, at: usize, bytes: &[u8]) {
        self.halves += 1;
        let found = self.patient.call(READ, 0, (self.begin + at) as u64, bytes.len() as u32, b"");
        let mut from = 0;
        while from < bytes.len() {
            let to = bytes.len().min(((self.begin + at + from) / PAGE + 1) * PAGE - self.begin - at);
            let (old, new) = (&self.bytes[at + from..at + to], &bytes[from..to]);
            assert!([old, new].contains(&&found[from..to]), "neither old nor new, {from} to {to} at {at}");
            from = to;
        }
        self.bytes[at..at + bytes.len()].copy_from_slice(&found);
    }
}

/// Kills the server so often under three clients, which check every answer. Returns the longest pause.
fn kills(number: u32, mode: &str, layout: &str, seed: u64) -> Duration {
    println!("{mode} over {layout}, seed {seed}");
    let held = Restarting::start(formatted(layout), &format!("--cache cache --backing disk --socket s --mode {mode}"));
    let (mut random, over) = (Random::new(seed), Arc::new(AtomicBool::new(false)));
    let answers = Arc::new(AtomicU64::new(0));
    let third = BACKING / 3 / PAGE * PAGE;
    let clients: Vec<_> = [0..third, third..2 * third, 2 * third..BACKING]
        .into_iter()
        .map(|range| {
            let (random, patient) = (Random::new(random.next_u64()), Patient::new(&held.socket()));
            let mut part =
                Part { begin: range.start, bytes: vec![0; range.len()], random, patient, requests: 0, halves: 0 };
            let (over, answers) = (Arc::clone(&over), Arc::clone(&answers));
            std::thread::spawn(move || {
                while !over.load(Relaxed) {
                    part.step();
                    answers.fetch_add(1, Relaxed);
                }
                part
            })
        })
        .collect();
    let mut server = held.server_after(0);
    let mut early = 0;
    for _ in 0..number {
        let is_failed = || clients.iter().any(|client| client.is_finished());
        // Some are killed at their start. Five in a row that were never ready would be the end.
        if early < 2 && random.chance(0.3) {
            early += 1;
            std::thread::sleep(Duration::from_millis(random.below(60)));
        } else {
            early = 0;
            let before = answers.load(Relaxed);
            while answers.load(Relaxed) <= before + 1 && !is_failed() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(random.below(400)));
        }
        if is_failed() {
            break;
        }
        let killed = server;
        signal(killed, Signal::KILL);
        server = held.server_after(killed);
    }
    over.store(true, Relaxed);
    let parts: Vec<Part> =
        clients.into_iter().map(|client| client.join().unwrap_or_else(|_| panic!("{}", held.said_so_far()))).collect();
    let mut patient = Patient::new(&held.socket());
    for part in &parts {
        for (at, page) in part.bytes.chunks(PAGE).enumerate() {
            let offset = (part.begin + at * PAGE) as u64;
            let found = patient.call(READ, 0, offset, page.len() as u32, b"");
            assert!(found == page, "the page at {offset} is not what was answered");
        }
    }
    drop(patient);
    let announced = held.announced.clone();
    let (scratch, code, more, said) = held.end();
    assert_eq!((code, more.as_str(), announced.as_str()), (Some(0), "", "nbd+unix:///?socket=s\n"), "{said}");
    assert!(!scratch.path("s").exists());
    scratch.ok(&["check", "--cache", "cache", "--backing", "disk"]);
    scratch.ok(&["-q", "drain", "--cache", "cache", "--backing", "disk"]);
    let whole: Vec<u8> = parts.iter().flat_map(|part| part.bytes.iter().copied()).collect();
    assert!(scratch.bytes("disk") == whole, "the drained disk is not what was answered");
    let pause = parts.iter().map(|part| part.patient.pause).max().expect("there are clients");
    let (requests, halves): (u64, u64) = (parts.iter().map(|p| p.requests).sum(), parts.iter().map(|p| p.halves).sum());
    println!("{number} kills, {requests} requests, {halves} broken off; the longest pause was {pause:?}");
    pause
}

const MODES: [&str; 3] = ["write-back", "write-through", "write-around"];

fn kills_in_all_modes(number: u32, layout: &str, seed: u64) {
    let pauses = (seed..).zip(MODES).map(|(seed, mode)| kills(number, mode, layout, seed));
    println!("{layout}: the longest pause of all was {:?}", pauses.max().expect("there are modes"));
}

#[test]
fn what_was_answered_outlives_twenty_servers_over_a_log() {
    kills_in_all_modes(20, "log", 20_261_201);
}

#[test]
fn what_was_answered_outlives_twenty_servers_over_slots() {
    kills_in_all_modes(20, "slots", 20_261_211);
}

#[test]
fn what_was_answered_outlives_twenty_servers_over_segments() {
    kills_in_all_modes(20, "segments", 20_261_241);
}

#[test]
#[ignore = "takes ten minutes: `make test-long` runs it"]
fn what_was_answered_outlives_three_hundred_servers() {
    kills_in_all_modes(300, "log", 20_261_221);
    kills_in_all_modes(300, "slots", 20_261_231);
    kills_in_all_modes(300, "segments", 20_261_251);
}

#[test]
fn clients_wait_while_no_server_is_there_and_a_socket_of_tcp_stays_the_same() {
    let scratch = Scratch::new();
    scratch.file("disk", vec![5; 65536]);
    let held = Restarting::start(scratch, "--file disk --tcp 127.0.0.1:0");
    let address = held.announced.trim_end().strip_prefix("nbd://").expect("an address").to_owned();
    for _ in 0..3 {
        signal(held.server_after(0), Signal::KILL);
        // At some moment of these no server is there.
        for _ in 0..10 {
            let mut stream = TcpStream::connect(&address).expect("the holder has the socket");
            let mut greeting = [0; 18];
            // A server may be killed after it has accepted a connection.
            match stream.read_exact(&mut greeting) {
                Ok(()) => assert_eq!(&greeting[..8], b"NBDMAGIC"),
                Err(error) => assert_ne!(error.kind(), io::ErrorKind::ConnectionRefused),
            }
            let _ = stream.write_all(&[0, 0, 0, 3]);
        }
    }
    let announced = held.announced.clone();
    let (scratch, code, more, said) = held.end();
    assert_eq!(code, Some(0), "{said}");
    // The first server may have been killed before it has noted that it printed this.
    assert!(more.is_empty() || more == announced, "{more}");
    assert_eq!(scratch.names(), ["disk"]);
}

#[test]
fn a_file_without_a_cache_is_served_on_too() {
    let scratch = Scratch::new();
    scratch.file("disk", vec![0; 65536]);
    let held = Restarting::start(scratch, "--file disk --socket s");
    let mut patient = Patient::new(&held.socket());
    patient.call(WRITE, 0, 4096, 4, b"abcd");
    held.kill();
    assert_eq!(patient.call(READ, 0, 4096, 4, b""), b"abcd");
    patient.call(FLUSH, 0, 0, 0, b"");
    let (scratch, code, _, said) = held.end();
    assert_eq!((code, &scratch.bytes("disk")[4096..4100]), (Some(0), &b"abcd"[..]), "{said}");
    assert_eq!(scratch.names(), ["disk"]);
}

#[test]
fn what_was_answered_outlives_an_upgrade() {
    let held = Restarting::start(formatted("slots"), "--cache cache --backing disk --socket s");
    let mut patient = Patient::new(&held.socket());
    for round in 0..3_u8 {
        patient.call(WRITE, 0, 4096, 4096, &[round; 4096]);
        let server = held.server_after(0);
        signal(held.holder.id(), Signal::USR2);
        while Path::new(&format!("/proc/{server}/exe")).exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(patient.call(READ, 0, 4096, 4096, b""), [round; 4096]);
        patient.call(FLUSH, 0, 0, 0, b"");
    }
    let (_, code, more, said) = held.end();
    assert_eq!((code, more.as_str()), (Some(0), ""), "{said}");
}

#[test]
fn what_was_answered_outlives_a_server_that_hangs() {
    let held = Restarting::start(formatted("log"), "--cache cache --backing disk --socket s --restart-after 2s");
    let mut client = Client::connect(&held.socket(), false).expect("a connection");
    client.write(4096, b"abcd", 0);
    let server = held.server_after(0);
    signal(server, Signal::STOP);
    let since = Instant::now();
    held.server_after_within(server, Duration::from_secs(60));
    println!("killed after {:?}", since.elapsed());
    let mut patient = Patient::new(&held.socket());
    assert_eq!(patient.call(READ, 0, 4096, 4, b""), b"abcd");
    let (_, code, _, said) = held.end();
    assert_eq!(code, Some(0), "{said}");
    says(&said, &["gives no sign of life"]);
}

#[test]
fn a_first_server_that_is_refused_ends_its_holder_with_its_words() {
    let scratch = Scratch::new();
    says(&scratch.refused(&["serve", "nbd", "--restart", "on", "--file", "none", "--socket", "s"]), &["none"]);
    scratch.file("disk", vec![0; 65536]);
    scratch.file("s", "");
    says(&scratch.refused(&["serve", "nbd", "--restart", "on", "--file", "disk", "--socket", "s"]), &["not a socket"]);
}

#[test]
fn settings_that_were_set_outlive_a_kill() {
    let held = Restarting::start(formatted("log"), "--cache cache --backing disk --socket s --mode write-back");
    let set = "mode=write-through policy=arc cache-size=200p dirty-high=50% dirty-age=none sequential-cutoff=1MiB";
    let set: Vec<&str> = ["set", "--cache", "cache"].into_iter().chain(set.split(' ')).collect();
    held.scratch.ok(&set);
    let stats = |name: &str| {
        let stats: serde_json::Value =
            serde_json::from_str(&held.scratch.ok(&["stats", "--cache", "cache", "--json"])).expect("JSON");
        stats[name].clone()
    };
    let before = ["mode", "policy", "tiers_pages", "dirty_age"].map(stats);
    assert_eq!((&before[0], &before[1], &before[3]), (&"write-through".into(), &"arc".into(), &().into()));
    let mut patient = Patient::new(&held.socket());
    for _ in 0..2 {
        let process = stats("process");
        held.kill();
        patient.call(WRITE, 0, 4096, 4, b"abcd");
        assert_ne!(stats("process"), process);
        assert_eq!(["mode", "policy", "tiers_pages", "dirty_age"].map(stats), before);
        // In this mode a flush makes a write durable below.
        patient.call(FLUSH, 0, 0, 0, b"");
        assert_eq!(held.scratch.bytes("disk")[4096..4100], *b"abcd");
    }
    held.scratch.ok(&["set", "--cache", "cache", "mode=write-back"]);
    held.kill();
    patient.call(WRITE, 0, 4096, 4, b"efgh");
    patient.call(FLUSH, 0, 0, 0, b"");
    assert_eq!((stats("mode"), &held.scratch.bytes("disk")[4096..4100]), ("write-back".into(), &b"abcd"[..]));
    let (scratch, code, _, said) = held.end();
    assert_eq!(code, Some(0), "{said}");
    // A new start is one of the command line.
    let held = Restarting::start(scratch, "--cache cache --backing disk --socket s --mode write-around");
    let stats = held.scratch.ok(&["stats", "--cache", "cache"]);
    says(&stats, &["write-around", "face-gsc"]);
    assert_eq!(held.end().1, Some(0));
}

/// Stops the holder, kills its server, does something, and lets the holder go on.
fn between_servers(held: &Restarting, act: impl FnOnce()) {
    let server = held.server_after(0);
    signal(held.holder.id(), Signal::STOP);
    signal(server, Signal::KILL);
    act();
    signal(held.holder.id(), Signal::CONT);
    held.server_after(server);
}

#[test]
fn the_first_flush_of_each_connection_fails_if_somebody_drained_the_cache_between_two_servers() {
    const EIO: u32 = 5;
    for act in ["drain", "format"] {
        let held = Restarting::start(formatted("log"), "--cache cache --backing disk --socket s");
        let mut patient = Patient::new(&held.socket());
        patient.call(WRITE, 0, 0, 4, b"abcd");
        patient.call(FLUSH, 0, 0, 0, b"");
        patient.call(WRITE, 0, 8192, 4, b"efgh");
        between_servers(&held, || {
            let both = ["--cache", "cache", "--backing", "disk"];
            held.scratch.ok(&[&["-q", "drain"], &both[..]].concat());
            if act == "format" {
                held.scratch.format(&[&["--force", "--size", "2MiB", "--layout", "log"], &both[..]].concat());
            }
        });
        // What was flushed is there.
        assert_eq!(patient.call(READ, 0, 0, 4, b""), b"abcd");
        for round in 0..2 {
            let mut clients = [(); 2].map(|()| Client::connect(&held.socket(), false).expect("a connection"));
            for client in &mut clients {
                let mut errors = || client.call(FLUSH, 0, 0, 0, b"").expect("an answer").errno;
                assert_eq!([errors(), errors()], [EIO, 0], "{act}, round {round}");
            }
            let stats: serde_json::Value =
                serde_json::from_str(&held.scratch.ok(&["stats", "--cache", "cache", "--json"])).expect("JSON");
            assert_eq!(stats["doubt"]["syncs_failed"], 2, "{stats}");
            says(stats["doubt"]["why"].as_str().expect("words"), &["the cache was in use without it"]);
            // The doubt is the same for clients that connect again to the next server.
            held.kill();
        }
        let (_, code, _, said) = held.end();
        assert_eq!(code, Some(0), "{said}");
        says(&said, &["answered writes of the former server may be lost", "the cache was in use without it"]);
    }
}

/// Servers are killed in syncs of trims, which nobody can repeat. Nobody knows how such a sync ended; the next server
/// finds out, so that no flush fails for it.
#[test]
fn a_sync_that_a_kill_broke_off_is_settled_by_the_next_server() {
    const SEED: u64 = 3;
    println!("seed {SEED} (when a kill comes is the clock's)");
    let held = Restarting::start(formatted("log"), "--cache cache --backing disk --socket s");
    let (mut random, is_over, flushes) = (Random::new(SEED), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut patient = Patient::new(&held.socket());
            for round in 0_u64.. {
                if is_over.load(Relaxed) {
                    break;
                }
                let at = round % 100 * 8 * PAGE as u64;
                patient.call(WRITE, FUA, at, PAGE as u32, &[round as u8; PAGE]);
                patient.call(TRIM, 0, at + PAGE as u64, 4 * PAGE as u32, b"");
                // An answer that is an error ends the test.
                patient.call(FLUSH, 0, 0, 0, b"");
                flushes.fetch_add(1, Relaxed);
            }
        });
        for _ in 0..20 {
            let before = flushes.load(Relaxed);
            while flushes.load(Relaxed) < before + 3 && !client.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(random.below(20_000)));
            if client.is_finished() {
                // It has failed.
                return;
            }
            held.kill();
        }
        is_over.store(true, Relaxed);
    });
    let (_, code, _, said) = held.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("doubt"), "{said}");
}

/// Servers are killed while a sync of the backing device waits, which then fails or not: nobody is told the result. If
/// a page could not be written, the kernel keeps it as if it were, and a descriptor that is opened afterwards hears
/// nothing of it. The next server finds that out, and has one flush fail; else none fails.
#[test]
fn a_sync_that_fails_while_its_server_is_killed_is_reported_if_something_was_lost() {
    const EIO: u32 = 5;
    const UUID: &str = "0b5e1f5e-7a53-4f0e-9a0a-0d4f2c3b5a10";
    let rounds =
        [(Call::Write, true), (Call::Write, false), (Call::Sync, true), (Call::Sync, false), (Call::Write, true)];
    let scratch = Scratch::new();
    let Some(disk) = FailingDisk::new(&scratch, BACKING) else { return };
    let device = disk.path();
    scratch.format(&["--cache", "cache", "--backing", device, "--identity", UUID, "--size", "2MiB"]);
    let serve = format!("--cache cache --backing {device} --identity {UUID} --socket s --mode write-through");
    let held = Restarting::start(scratch, &serve);
    let connect = || Client::connect(&held.socket(), false).expect("the socket is the holder's");
    for (round, (call, fails)) in (0_u8..).zip(rounds) {
        let (at, page) = (u64::from(round) * 64 * PAGE as u64, [round + 1; PAGE]);
        let server = held.server_after(0);
        let mut client = connect();
        let mut done = |command, at, length, payload: &[u8]| {
            assert_eq!(client.call(command, 0, at, length, payload).expect("an answer").errno, 0, "command {command}");
        };
        // Nobody can repeat the trim.
        done(TRIM, at + 8 * PAGE as u64, 4 * PAGE as u32, b"");
        done(WRITE, at, PAGE as u32, &page);
        disk.hold_up(call);
        client.send(FLUSH, 0, 0, 0, b"").expect("it is sent");
        disk.wait();
        signal(server, Signal::KILL);
        disk.release(fails);
        held.server_after(server);
        File::open(device).and_then(|late| late.sync_all()).expect("a new descriptor is told nothing");
        let mut client = connect();
        let flushes = [(); 2].map(|()| client.call(FLUSH, 0, 0, 0, b"").expect("an answer").errno);
        let expected = if (call, fails) == (Call::Write, true) { [EIO, 0] } else { [0, 0] };
        assert_eq!(flushes, expected, "round {round}: {call:?}, fails: {fails}");
        assert_eq!(client.read(at, PAGE as u32), page, "round {round}");
    }
    let (scratch, code, _, said) = held.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("may be lost"), "{said}");
    // The cache wrote again what the device had lost.
    for round in 0..rounds.len() {
        assert_eq!(scratch.bytes("images/disk")[round * 64 * PAGE..][..PAGE], [round as u8 + 1; PAGE], "round {round}");
    }
}

#[test]
fn a_server_waits_for_the_lock_that_i_o_of_the_killed_one_or_somebody_else_keeps() {
    let held = Restarting::start(formatted("log"), "--cache cache --backing disk --socket s");
    let mut patient = Patient::new(&held.socket());
    patient.call(WRITE, 0, 0, 4, b"abcd");
    let cache = std::fs::File::open(held.scratch.path("cache")).expect("a cache");
    between_servers(&held, || cache.lock().expect("a lock"));
    let since = Instant::now();
    let unlock = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1700));
        drop(cache);
    });
    assert_eq!(patient.call(READ, 0, 0, 4, b""), b"abcd");
    assert!(since.elapsed() >= Duration::from_millis(1500), "{:?}", since.elapsed());
    unlock.join().expect("an end");
    patient.call(FLUSH, 0, 0, 0, b"");
    let (_, code, _, said) = held.end();
    assert_eq!(code, Some(0), "{said}");
    says(&said, &["cache: still in use", "waits for at most 600 s"]);
}

#[test]
fn a_server_whose_holder_is_killed_ends_in_order() {
    let mut held = Restarting::start(formatted("log"), "--cache cache --backing disk --socket s");
    let mut patient = Patient::new(&held.socket());
    patient.call(WRITE, 0, 0, 4, b"abcd");
    signal(held.holder.id(), Signal::KILL);
    let mut said = String::new();
    // The end of the output is the server's.
    held.holder.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    held.holder.wait().expect("an end");
    says(&said, &["the holder is gone", "the cache is closed"]);
    assert!(!held.scratch.path("s").exists());
    held.scratch.ok(&["-q", "drain", "--cache", "cache", "--backing", "disk"]);
    assert_eq!(held.scratch.bytes("disk")[..4], *b"abcd");
}

#[test]
fn a_server_that_is_killed_while_it_ends_is_followed_by_one_that_ends() {
    let held = Restarting::start(formatted("log"), "--cache cache --backing disk --socket s");
    let mut patient = Patient::new(&held.socket());
    for page in 0..256_u64 {
        patient.call(WRITE, 0, page * 4096, 4096, &[page as u8; 4096]);
    }
    let server = held.server_after(0);
    signal(held.holder.id(), Signal::TERM);
    std::thread::sleep(Duration::from_millis(3));
    if held.server() == Some(server) {
        signal(server, Signal::KILL);
    }
    let (scratch, code, _, said) = held.ended();
    assert_eq!(code, Some(0), "{said}");
    assert!(!scratch.path("s").exists());
    scratch.ok(&["-q", "drain", "--cache", "cache", "--backing", "disk"]);
    let disk = scratch.bytes("disk");
    assert!((0..256).all(|page| disk[page * 4096..][..4096] == [page as u8; 4096]), "{said}");
}
