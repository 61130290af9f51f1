//! `entresol mount` and `run`: I/O that the kernel does by itself, bypassing cache and server.

mod common;

use common::mounted::{Mounted, contents};
use common::{Scratch, Signal, crash, is_impossible, says, serving, signal};
use rustix::fs::Advice;
use rustix::mm::{MapFlags, ProtFlags};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const BOTH: [&str; 4] = ["--cache", "cache", "--backing", "backing"];

/// A mounted cache whose server may be stopped.
struct Server {
    scratch: Scratch,
    child: Child,
    said: BufReader<std::process::ChildStderr>,
    /// Reader and writer of files that bypass the cache, as the server reports it: `kernel` or `mount`; empty with
    /// passthrough off.
    by: String,
}

impl Server {
    /// None, with a message, where nothing can be mounted.
    fn start(more: &[&str]) -> Option<Self> {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("backing")).unwrap();
        fs::create_dir(scratch.path("mount")).unwrap();
        scratch.format(&[&["--size", "2MiB"], &BOTH[..]].concat());
        let mount = ["mount", "backing", "mount", "--cache", "cache", "--log", "json"];
        let mut command = scratch.command(&[&mount[..], more].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        if line.is_empty() {
            let mut all = String::new();
            said.read_to_string(&mut all).unwrap();
            child.wait().unwrap();
            assert!(is_impossible(&all), "{all}");
            return None;
        }
        let mut server = Server { scratch, child, said, by: String::new() };
        if !more.contains(&"off") {
            server.by = server.told();
        }
        Some(server)
    }

    /// As [`start`](Self::start), and none where the kernel grants no passthrough.
    fn granted(more: &[&str]) -> Option<Self> {
        Self::start(more).filter(|server| server.by == "kernel")
    }

    /// Reads the server's output up to the passthrough event; returns its reader and writer.
    fn told(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "nothing is said of it");
            let event: Value = serde_json::from_str(&line).unwrap();
            if event["event"] == "passthrough" {
                println!("{}", event["message"]);
                return event["by"].as_str().unwrap().to_owned();
            }
        }
    }

    fn above(&self, name: &str) -> std::path::PathBuf {
        self.scratch.path("mount").join(name)
    }

    /// Sends a signal to the command, or stops its server. A kill is a crash of the machine.
    fn signal(&self, sent: Signal) {
        match sent {
            Signal::KILL => crash(self.child.id()),
            Signal::STOP | Signal::CONT => signal(serving(self.child.id()), sent),
            _ => signal(self.child.id(), sent),
        }
    }

    /// Reads, writes and flushes that its front-end received.
    fn asked(&self) -> [u64; 3] {
        let figures: Value = serde_json::from_str(&self.scratch.ok(&["stats", "cache", "--json"])).unwrap();
        ["read", "write", "flush"].map(|what| figures["door"][what]["calls"].as_u64().unwrap())
    }

    fn end(mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        self.scratch.ok(&[&["check"], &BOTH[..]].concat());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An ended server leaves nothing. If a test failed, no process may hang on a mount without a server.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = rustix::mount::unmount(self.scratch.path("mount"), rustix::mount::UnmountFlags::DETACH);
    }
}

fn made(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap()
}

#[test]
fn files_past_the_cache_are_read_and_written_while_the_server_stands_still() {
    let Some(server) = Server::granted(&[]) else { return };
    let file = made(&server.above("a-wal"));
    let mut end = OpenOptions::new().append(true).open(server.above("a-wal")).unwrap();
    // At the first write the kernel asks for an attribute that a write would remove.
    file.write_all_at(&[0], 0).unwrap();
    server.signal(Signal::STOP);
    file.write_all_at(&[1; 20_000], 0).unwrap();
    end.write_all(&[2; 100]).unwrap();
    let mut bytes = [0; 20_100];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[..20_000] == [1; 20_000] && bytes[20_000..] == [2; 100]);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place that the kernel chooses, used within its length and unmapped once.
    let mapped =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, &file, 0) }.unwrap();
    // SAFETY: it has this length, and nothing else refers to it.
    let first = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), 8) };
    first.fill(3);
    // SAFETY: mapped above with this length, not used any more.
    unsafe { rustix::mm::munmap(mapped, 4096) }.unwrap();
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes[..9], [3, 3, 3, 3, 3, 3, 3, 3, 1]);
    assert!(fs::read(server.scratch.path("backing/a-wal")).unwrap() == bytes);
    server.signal(Signal::CONT);
    assert_eq!(file.metadata().unwrap().len(), 20_100);
    file.sync_data().unwrap();
    assert_eq!(server.asked(), [0, 0, 1], "the syncs alone come to the server");
    drop((file, end));
    server.end();
}

#[test]
fn without_passthrough_the_server_reads_and_writes_what_goes_past_the_cache() {
    let Some(server) = Server::start(&["--passthrough", "off"]) else { return };
    let file = made(&server.above("a-wal"));
    file.write_all_at(&[1; 4096], 0).unwrap();
    let [_, written, _] = server.asked();
    assert!(written > 0);
    drop(file);
    server.end();
}

/// Runs a shell script in a cached directory in a user namespace, whose right to mount does not cover the whole
/// machine. Returns the output of the script and that of `run`; none, with a message, where that is impossible.
fn in_user_namespace(scratch: &Scratch, script: &str) -> Option<(String, String)> {
    fs::create_dir(scratch.path("backing")).unwrap();
    scratch.format(&[&["--size", "2MiB"], &BOTH[..]].concat());
    let run = ["run", "--log", "json", "--", "sh", "-c", script];
    let command = scratch.command(&[&run[..1], &BOTH[..], &run[1..]].concat());
    let mut namespace = Command::new("unshare");
    namespace.args(["--user", "--map-root-user"]).arg(command.get_program()).args(command.get_args());
    let output = namespace.current_dir(command.get_current_dir().unwrap()).output().unwrap();
    let [printed, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if said.contains("\"passthrough\"") {
        return Some((printed, said));
    }
    assert!(is_impossible(&said), "{said}");
    None
}

#[test]
fn who_may_not_pass_files_through_serves_them_and_says_why() {
    let scratch = Scratch::new();
    let script = "echo logged > backing/a-wal && cat backing/a-wal";
    let Some((printed, said)) = in_user_namespace(&scratch, script) else { return };
    assert_eq!(printed, "logged\n");
    says(&said, &["go through this process", "this costs only time", "\"by\":\"mount\""]);
    assert!(!said.contains("\"by\":\"kernel\""), "{said}");
    assert_eq!(fs::read(scratch.path("backing/a-wal")).unwrap(), b"logged\n");
}

/// A write clears set-user-id rights, unless the writer may grant them at will, which no process in a user namespace
/// can.
#[test]
fn a_file_that_is_written_is_no_longer_run_with_the_rights_of_its_owner() {
    let scratch = Scratch::new();
    // If only the mode is requested, the kernel may answer with the mode of a second ago.
    let script = "cd backing; look() { stat -c '%a %s' $1; }; for f in a-wal cached; do \
                  echo > $f; chmod 6755 $f; look $f; echo more >> $f; look $f; done";
    let Some((printed, _)) = in_user_namespace(&scratch, script) else { return };
    assert_eq!(printed, "6755 1\n755 6\n6755 1\n755 6\n");
}

#[test]
fn a_file_that_is_passed_through_and_gets_a_cached_name_has_its_newest_bytes() {
    let Some(server) = Server::granted(&["--page-cache", "on"]) else { return };
    for round in 0..5 {
        let (logged, kept) = (server.above(&format!("{round}-wal")), server.above(&format!("{round}")));
        let file = made(&logged);
        file.write_all_at(&[1; 65536], 0).unwrap();
        // This puts pages into the kernel's page cache above, which no later write replaces.
        rustix::fs::fadvise(&file, 0, None, Advice::WillNeed).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        file.write_all_at(&[2; 65536], 0).unwrap();
        drop(file);
        fs::rename(&logged, &kept).unwrap();
        // The release of the handle reaches the server asynchronously.
        std::thread::sleep(Duration::from_millis(100));
        let before = server.asked();
        assert!(fs::read(&kept).unwrap() == [2; 65536], "round {round}");
        assert!(server.asked()[0] > before[0], "it is read through the cache");
        // A file open under both names keeps the way of its first open.
        let cached = OpenOptions::new().read(true).write(true).open(&kept).unwrap();
        fs::rename(&kept, &logged).unwrap();
        let again = OpenOptions::new().read(true).write(true).open(&logged).unwrap();
        again.write_all_at(&[3; 10], 0).unwrap();
        let mut bytes = [0; 11];
        cached.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2]);
    }
    server.end();
}

#[test]
fn a_passed_file_that_is_open_outlives_the_server_but_for_its_syncs() {
    let Some(mut server) = Server::granted(&[]) else { return };
    let file = made(&server.above("a-wal"));
    file.write_all_at(&[1; 4096], 0).unwrap();
    server.signal(Signal::KILL);
    server.child.wait().unwrap();
    file.write_all_at(&[2; 10], 0).unwrap();
    assert!(file.sync_data().is_err(), "nothing is promised any more");
    assert!(File::open(server.above("a-wal")).is_err());
    drop(file);
    assert_eq!(fs::read(server.scratch.path("backing/a-wal")).unwrap()[..11], [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
}

#[test]
fn below_another_mount_files_are_served_as_they_are() {
    // Passthrough files here are stacked already, and the kernel does not stack them again.
    let Some(lower) = Server::granted(&[]) else { return };
    let above = Scratch::new();
    fs::create_dir(above.path("upper")).unwrap();
    let mut upper = above.command(&["-q", "mount", lower.scratch.path("mount").to_str().unwrap(), "upper"]);
    let mut upper = upper.stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(upper.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    fs::write(above.path("upper/a-wal"), b"through both").unwrap();
    assert_eq!(fs::read(lower.scratch.path("backing/a-wal")).unwrap(), b"through both");
    assert_eq!(contents(&above.path("upper")), contents(&lower.scratch.path("mount")));
    signal(upper.id(), Signal::TERM);
    assert_eq!(upper.wait().unwrap().code(), Some(0));
    lower.end();
}

#[test]
fn o_direct_asks_for_no_alignment_of_a_passed_file_either() {
    const O_DIRECT: i32 = 0o40000;
    let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    let path = mounted.above().join("a-wal");
    let file = made(&path);
    let direct = OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(&path).unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    direct.write_all_at(b"odd", 4099).unwrap();
    let mut bytes = [0; 5];
    file.read_exact_at(&mut bytes, 4098).unwrap();
    assert_eq!(&bytes, b"\x01odd\x01");
    direct.read_exact_at(&mut bytes, 4098).unwrap();
    assert_eq!(&bytes, b"\x01odd\x01");
    drop((file, direct));
    mounted.unmount();
}
