//! The holder and the server of the tests.
//!
//! `held hold DIRECTORY WATCHDOG_MS ATTEMPTS STANDBY_MS PAUSE_MAX_MS` is the holder of `DIRECTORY/program`, which is this program
//! again: `held serve DIRECTORY`. A server is told one thing by each connection to a listening socket, which it keeps. It
//! has no state but what it keeps. Words after the end of its executable say how it behaves as a standby.

use entresol_hold::{Program, Server, Settings};
use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
use rustix::io::{pread, pwrite, read, write};
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, abort, exit};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Time between two signs of life.
const BEAT: Duration = Duration::from_millis(20);

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["hold", directory, watchdog, attempts, standby, pause_max] => {
            let milliseconds = |word: &str| Duration::from_millis(word.parse().expect("a number"));
            let program = Program {
                path: Path::new(directory).join("program"),
                name: "/x/tried".into(),
                arguments: vec!["serve".into(), directory.into()],
            };
            let watchdog = Some(milliseconds(watchdog));
            let attempts = attempts.parse().expect("a number");
            let (standby, pause_max) = (milliseconds(standby), milliseconds(pause_max));
            entresol_hold::run(program, Settings { watchdog, attempts, standby, pause_max })
        }
        ["serve", directory] => serve(&PathBuf::from(directory)),
        _ => panic!("{arguments:?}"),
    }
}

fn serve(directory: &Path) -> ExitCode {
    let server = Arc::new(Server::inherited().expect("no error").expect("a holder"));
    assert!(Server::inherited().expect("no variable").is_none());
    let mut starts = OpenOptions::new().append(true).create(true).open(directory.join("starts")).expect("a file");
    writeln!(starts, "{}", getpid()).expect("a line");
    let watched = server.clone();
    let note = directory.join("lost");
    thread::spawn(move || {
        watched.lost().expect("it waits");
        // The directory goes with the test.
        let _ = fs::write(note, getpid().to_string());
        exit(7);
    });
    if let Ok(code) = fs::read_to_string(directory.join("fail")) {
        exit(code.parse().expect("a code"));
    }
    while directory.join("slow").exists() {
        thread::sleep(Duration::from_millis(5));
    }
    let mode = mode();
    if server.is_standby() {
        assert!(server.kept().is_err() && server.keep("mine", &starts).is_err() && server.forget("socket").is_err());
        match mode.as_str() {
            "early" => exit(3),
            "mute" => loop {
                thread::park();
            },
            _ => server.standby_ready().expect("a holder"),
        }
        match mode.as_str() {
            "late" => exit(4),
            "late0" => exit(0),
            "abort" => abort(),
            _ => assert!(!server.is_standby()),
        }
    }
    let serving = File::create(directory.join("serving")).expect("a file");
    if flock(&serving, FlockOperation::NonBlockingLockExclusive).is_err() {
        fs::write(directory.join("beside"), getpid().to_string()).expect("a file");
    }
    raise_limit();
    heed_signals(server.clone());
    let mut kept = server.kept().expect("descriptors");
    let listener = match kept.remove("socket") {
        Some(socket) => UnixListener::from(socket),
        None => {
            let listener = UnixListener::bind(directory.join("socket")).expect("a socket");
            server.keep("socket", &listener).expect("kept");
            server.keep("counter", memfd(&0u64.to_le_bytes())).expect("kept");
            kept = server.kept().expect("descriptors");
            listener
        }
    };
    server.ready().expect("a holder");
    let beating = server.clone();
    thread::spawn(move || {
        while beating.beat().is_ok() {
            thread::sleep(BEAT);
        }
    });
    for connection in listener.incoming() {
        let mut connection = connection.expect("a connection");
        let mut line = String::new();
        if BufReader::new(&connection).read_line(&mut line).is_ok() {
            let said = answer(&server, &kept, &mode, line.trim());
            // A client may be gone.
            let _ = writeln!(connection, "{said}");
        }
    }
    unreachable!("connections have no end")
}

fn answer(server: &Server, kept: &BTreeMap<String, OwnedFd>, mode: &str, line: &str) -> String {
    let mut words = line.split(' ');
    let what = words.next().expect("a word");
    let word = words.next().unwrap_or_default();
    let number = || word.parse::<usize>().expect("a number");
    let error = |done: std::io::Result<()>| done.map_or_else(|error| format!("{:?}", error.kind()), |()| "ok".into());
    match what {
        "pid" => getpid().to_string(),
        "name" => fs::read_to_string("/proc/self/comm").expect("a name").trim().to_owned(),
        "environment" => {
            env::vars().any(|(name, _)| name.contains("NOTIFY") || name.contains("WATCHDOG_U")).to_string()
        }
        "start" => {
            let start = server.start();
            format!("{:?} {} {} {} {mode}", start.reason, start.crashes, start.hangs, start.upgrades)
        }
        "names" => kept.keys().filter(|name| !name.starts_with("file")).cloned().collect::<Vec<_>>().join(" "),
        "keep" => error(server.keep(word, memfd(word.as_bytes()))),
        "keep-long" => error(server.keep(&"x".repeat(number()), memfd(b""))),
        "forget" => error(server.forget(word)),
        "make" => {
            let make = |i: usize| server.keep(&format!("file{i}"), memfd(i.to_string().as_bytes()));
            error((0..number()).try_for_each(make))
        }
        "check" => {
            let is_good = |i: &usize| {
                kept.get(&format!("file{i}")).is_some_and(|file| contents(file) == i.to_string().into_bytes())
            };
            (0..number()).filter(is_good).count().to_string()
        }
        "pipe" => {
            let (out, into) = std::io::pipe().expect("a pipe");
            write(&into, b"in the pipe").expect("room");
            error(server.keep("out", out).and_then(|()| server.keep("into", into)))
        }
        "read" => {
            let mut bytes = [0; 64];
            let len = read(&kept["out"], &mut bytes).expect("it was written");
            write(&kept["into"], &bytes[..len]).expect("room");
            String::from_utf8_lossy(&bytes[..len]).into_owned()
        }
        "add" => {
            let mut bytes = [0; 8];
            pread(&kept["counter"], &mut bytes, 0).expect("a number");
            let next = u64::from_le_bytes(bytes) + 1;
            pwrite(&kept["counter"], &next.to_le_bytes(), 0).expect("memory");
            next.to_string()
        }
        "die" => {
            server.keep(word, memfd(word.as_bytes())).expect("kept");
            kill_process(getpid(), Signal::KILL).expect("a process");
            unreachable!("it is dead")
        }
        "upgrade" => error(server.upgrade(None)),
        "upgrade-reported" => {
            let (ours, theirs) = UnixStream::pair().expect("sockets");
            server.upgrade(Some(theirs.as_fd())).expect("a holder");
            drop(theirs);
            let mut line = String::new();
            BufReader::new(ours).read_line(&mut line).expect("text");
            line
        }
        "pause" => {
            let now = clock_gettime(ClockId::Monotonic);
            let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
            ((now - server.start().since_ns) / 1_000_000).to_string()
        }
        "end" => exit(number() as i32),
        "stop" | "done" => {
            server.stopping(what == "done").expect("a holder");
            if word == "killed" {
                kill_process(getpid(), Signal::KILL).expect("a process");
            }
            exit(number() as i32)
        }
        "abort" => abort(),
        _ => panic!("{line}"),
    }
}

fn heed_signals(server: Arc<Server>) {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).expect("signals");
    thread::spawn(move || {
        let signal = signals.forever().next().expect("a signal");
        server.stopping(false).expect("a holder");
        exit(100 + signal);
    });
}

fn raise_limit() {
    let limit = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).expect("its own limit");
}

fn memfd(bytes: &[u8]) -> OwnedFd {
    let file = memfd_create("tried", MemfdFlags::CLOEXEC).expect("memory");
    pwrite(&file, bytes, 0).expect("memory");
    file
}

fn contents(file: &OwnedFd) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    let len = pread(file, &mut bytes, 0).expect("a file");
    bytes.truncate(len);
    bytes
}

/// The word after the end of this process's executable.
fn mode() -> String {
    let mut file = File::open("/proc/self/exe").expect("this program");
    file.seek(SeekFrom::End(-32)).expect("a file");
    let mut end = Vec::new();
    file.read_to_end(&mut end).expect("its end");
    String::from_utf8_lossy(&end).rsplit("MODE:").next().expect("a word").to_owned()
}
