//! A scratch directory in which the real command runs.

#![allow(dead_code, reason = "each test binary uses a part")]

pub mod burst;
pub mod image;
pub mod mounted;
pub mod served;

pub use rustix::process::Signal;

use rustix::process::{Pid, kill_process};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// The program under test: the laboratory's where its tests use this module.
pub const PROGRAM: &str = match (option_env!("CARGO_BIN_EXE_entresol"), option_env!("CARGO_BIN_EXE_entresol-lab")) {
    (Some(program), _) | (None, Some(program)) => program,
    (None, None) => panic!("cargo names the program"),
};

/// True if a mount failed because this system allows none. The skip of the test is then printed.
pub fn is_impossible(said: &str) -> bool {
    let impossible = ["namespaces are not allowed", "ermitted", "/dev/fuse"].iter().any(|why| said.contains(why));
    if impossible {
        entresol_skip::skipped!("/dev/fuse", "{said}");
    }
    impossible
}

/// Waits for a file that a running command makes; false if the command has ended without it.
pub fn wait_for(file: &Path, running: &mut Child) -> bool {
    let start = Instant::now();
    while !file.exists() && running.try_wait().expect("its state").is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "{} is not there", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
    file.exists()
}

/// Makes commands start with default signal handling, as a login shell leaves it. Under `nohup`, or in the background
/// of a shell, they would inherit the signals that end a server as ignored. A signal that has a handler here has none
/// there.
fn heed_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").expect("what this process is");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("signals that are ignored");
        let mask = u64::from_str_radix(mask.trim(), 16).expect("a mask");
        for heeded in [Signal::HUP, Signal::INT, Signal::TERM].map(Signal::as_raw) {
            if mask & 1 << (heeded - 1) != 0 {
                signal_hook::flag::register(heeded, Arc::default()).expect("a handler");
            }
        }
    });
}

/// Sends a signal to a process by the system call, so that no external program is needed.
pub fn signal(process: u32, signal: Signal) {
    kill_process(number(process), signal).expect("it takes a signal");
}

fn number(process: u32) -> Pid {
    i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process")
}

/// Children of a process: of each thread in order of their start, of the first thread first.
pub fn children(process: u32) -> Vec<u32> {
    let number = |name: &str| name.parse::<u32>().expect("a number");
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut threads: Vec<u32> = threads.map(|thread| number(&thread.file_name().to_string_lossy())).collect();
    threads.sort_unstable_by_key(|&thread| (thread != process, thread));
    let of = |thread| std::fs::read_to_string(format!("/proc/{process}/task/{thread}/children")).unwrap_or_default();
    threads.into_iter().flat_map(|thread| of(thread).split_whitespace().map(number).collect::<Vec<_>>()).collect()
}

/// The process that serves for a command: the child of one that holds (`--restart`), else the command itself.
pub fn serving(command: u32) -> u32 {
    children(command).first().copied().unwrap_or(command)
}

/// Waits as long as a process is in one of these states.
fn while_in(process: u32, states: &[char]) {
    let stat = || std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    while stat().rsplit(") ").next().is_some_and(|rest| rest.starts_with(states)) {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Stops a process, which may have ended, and returns once it does nothing any more.
fn freeze(process: u32) {
    let _stopped = kill_process(number(process), Signal::STOP);
    while_in(process, &['R', 'S', 'D']);
}

/// Ends a command as a crash of the machine does: its holder and its server at once, so that neither sees the other's
/// end, and what the holder kept is gone. [`Signal::KILL`] alone has the server end in good order.
pub fn crash(command: u32) {
    freeze(command);
    let all = [children(command), vec![command]].concat();
    all.iter().copied().for_each(freeze);
    for &process in &all {
        let _killed = kill_process(number(process), Signal::KILL);
    }
    all.into_iter().for_each(|process| while_in(process, &['R', 'S', 'D', 'T']));
}

/// Waits for the end of a command, which must succeed; returns its output, or none where nothing can be mounted.
pub fn ended_well(mut running: Child) -> Option<String> {
    let mut said = String::new();
    running.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    let code = running.wait().expect("an end").code();
    if is_impossible(&said) {
        return None;
    }
    assert_eq!(code, Some(0), "{said}");
    Some(said)
}

/// A directory that is removed at the end, for running the command in.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        Scratch(tempfile::tempdir().expect("a scratch directory"))
    }

    /// A scratch directory in this directory instead of that of temporary files.
    pub fn within(directory: &Path) -> Self {
        Scratch(tempfile::tempdir_in(directory).expect("a scratch directory"))
    }

    /// A scratch directory with `t.etr`: 3000 requests, three in ten of them writes, to at most 400 pages, the next
    /// uses stored.
    pub fn with_trace() -> Self {
        let scratch = Scratch::new();
        scratch.ok(&["-q", "trace", "generate", "zipf:n=3000:pages=400:seed=11:write=30", "t.etr", "--next-use"]);
        scratch
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).expect("a file in the scratch directory");
    }

    pub fn read(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).unwrap_or_else(|_| panic!("{name} is text"))
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Names of everything in the directory, hidden files included.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("the scratch directory");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The command in this directory, not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        heed_signals();
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(self.0.path()).env("NO_COLOR", "1").env("RUST_BACKTRACE", "0");
        // Records that cannot be stored beside their backing store are kept out of the machine's state directory.
        command.env("ENTRESOL_STATE_DIR", self.path("state"));
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the command runs")
    }

    /// Runs a command that must succeed; returns its standard output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "entresol {arguments:?}: {complaint}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Makes a cache that is used in write-back by a start that names no mode.
    pub fn format(&self, arguments: &[&str]) {
        self.ok(&[&["-q", "format", "--mode", "write-back"], arguments].concat());
    }

    /// Runs a command that must be refused: exit code 2, exactly one line on standard error, nothing on standard
    /// output, and no file made, removed or changed. Where a server has its control socket, files change by its own
    /// threads, and only their names are compared. Returns the line without the command's name.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let before = self.names();
        let served = before.iter().any(|name| name.ends_with(".control"));
        let contents = |names: &[String]| -> Vec<Option<Vec<u8>>> {
            let compared = names.iter().filter(|_| !served);
            compared.map(|name| std::fs::read(self.path(name)).ok()).collect()
        };
        let bytes_before = contents(&before);
        let output = self.run(arguments);
        let said = String::from_utf8(output.stderr).expect("text");
        let what = format!("entresol {arguments:?} said: {said}");
        assert_eq!(output.status.code(), Some(2), "{what}");
        assert_eq!(said.lines().count(), 1, "{what}");
        assert!(!said.contains("panicked"), "{what}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{what}");
        let after = self.names();
        assert_eq!(before, after, "{what}");
        assert!(bytes_before == contents(&after), "a file was changed; {what}");
        let line = said.trim_end().strip_prefix("entresol: ").unwrap_or_else(|| panic!("{what}")).to_owned();
        // An error that contains its cause's text and prints the cause as well would repeat itself.
        let clauses: Vec<&str> = line.split(": ").collect();
        for (i, clause) in clauses.iter().enumerate() {
            assert!(!clauses[..i].contains(clause), "says '{clause}' twice: {line}");
        }
        line
    }
}

/// Asserts that a refusal contains all of these parts.
pub fn says(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "'{part}' is not in: {line}");
    }
}
