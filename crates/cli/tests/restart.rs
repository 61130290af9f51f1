//! A server under a holder (`--restart on`) is killed, hangs, is upgraded or loses its holder: its clients see a pause,
//! and find every answered write. The model is what each client wrote.

mod common;

use common::mounted::{How, Mounted};
use common::{Scratch, Signal, children, says, signal};
use entresol_core::Random;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const PAGES: usize = 120;
const THREADS: u64 = 4;
const BOTH: [&str; 4] = ["--cache", "cache", "--backing", "backing"];

/// Waits until a look finds something.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: in vain");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The server of a holder.
fn server(holder: u32) -> u32 {
    until("a server", || children(holder).first().copied())
}

/// The server of a holder that has this place among its starts, once it serves.
fn serving(scratch: &Scratch, cache: &str, starts: u64) -> serde_json::Value {
    until("a server that answers", || {
        let output = scratch.run(&["stats", "--json", cache]);
        let figures: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let restarts = &figures["restarts"];
        let sum = ["crashes", "hangs", "upgrades"].iter().map(|name| restarts[name].as_u64()).sum::<Option<u64>>();
        // It answers questions a little before it serves.
        (sum? == starts && (starts == 0 || !restarts["last_pause_ms"].is_null())).then_some(figures)
    })
}

/// A mount under a holder; none where nothing can be mounted.
fn held(how: &How, more: &[&str]) -> Option<Mounted> {
    let mut mounted = Mounted::made(Scratch::new(), how);
    mounted.start_with(&[&["--restart", "on"], more].concat()).then_some(mounted)
}

fn with_cache(cache: [&'static str; 2], format: &'static [&'static str], page_cache: &'static str) -> How {
    How { cache: Some((cache, format)), page_cache, passthrough: "on", nobody: false }
}

const PLAIN: How =
    How { cache: Some((["write-back", "face-gsc"], &[])), page_cache: "off", passthrough: "on", nobody: false };

/// Ends a mount in order. The holder's own lines are about kills.
fn end(mut mounted: Mounted, files: &[(PathBuf, Vec<u8>)]) {
    mounted.signal(Signal::TERM);
    let (code, said) = mounted.end();
    assert_eq!(code, Some(0), "{said}");
    for line in said.lines() {
        // A kill may come before the next server is ready.
        let known = ["the server ended", "took over after", "upgrade"];
        assert!(known.iter().any(|part| line.contains(part)), "{said}");
    }
    if !mounted.is_direct() {
        for command in [&["check"][..], &["-q", "drain"], &["check"]] {
            mounted.scratch.ok(&[command, &BOTH].concat());
        }
    }
    for (name, bytes) in files {
        let found = fs::read(mounted.below().join(name)).expect("a file");
        assert!(found == *bytes, "{}: differs from what was written", name.display());
    }
}

/// A client of one file, which takes any error for a failure and any older byte for a loss.
struct Client {
    directory: PathBuf,
    name: String,
    file: File,
    bytes: Vec<u8>,
    random: Random,
    mapped: bool,
}

impl Client {
    fn new(directory: &Path, number: u64, seed: u64, mapped: bool) -> Self {
        let name = format!("file{number}.0");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(directory.join(&name));
        let random = Random::new(seed + number);
        let file = file.expect("a file");
        file.set_len((PAGES * PAGE) as u64).expect("a length");
        Client { directory: directory.to_owned(), name, file, bytes: vec![0; PAGES * PAGE], random, mapped }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    fn check(&self, from: usize, until: usize) {
        let mut found = vec![0; until - from];
        self.file.read_exact_at(&mut found, from as u64).expect("bytes");
        let differs = found.iter().zip(&self.bytes[from..until]).position(|(found, wrote)| found != wrote);
        assert_eq!(differs.map(|at| from + at), None, "{}: an older byte", self.name);
    }

    /// One change or look.
    fn step(&mut self) {
        let page = self.random.below(PAGES as u64) as usize;
        let (from, until) = match self.random.below(3) {
            0 => (page * PAGE, (page + 1) * PAGE),
            _ => {
                let from = page * PAGE + self.random.below(PAGE as u64 - 1) as usize;
                (from, (from + 1 + self.random.below(3 * PAGE as u64) as usize).min(PAGES * PAGE))
            }
        };
        match self.random.below(100) {
            0..45 => {
                let byte = self.random.next_u64() as u8;
                self.bytes[from..until].fill(byte);
                self.file.write_all_at(&self.bytes[from..until], from as u64).expect("a write");
            }
            45..85 => self.check(from, until),
            85..88 => self.file.sync_data().expect("a sync"),
            88..91 => self.rename(),
            91..93 if self.mapped => self.write_mapped(page),
            93..95 => {
                // Another handle sees the same.
                self.file = OpenOptions::new().read(true).write(true).open(self.path()).expect("the file");
                self.check(from, until);
            }
            _ => assert_eq!(fs::metadata(self.path()).expect("attributes").len(), (PAGES * PAGE) as u64),
        }
    }

    fn rename(&mut self) {
        let (stem, number) = self.name.split_once('.').expect("a number");
        let next = format!("{stem}.{}", number.parse::<u64>().expect("a number") + 1);
        fs::rename(self.path(), self.directory.join(&next)).expect("a rename");
        assert!(!self.path().exists(), "{}: still there", self.name);
        self.name = next;
    }

    /// Writes a page through a shared mapping.
    fn write_mapped(&mut self, page: usize) {
        use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
        let byte = self.random.next_u64() as u8;
        let range = page * PAGE..(page + 1) * PAGE;
        self.bytes[range.clone()].fill(byte);
        let (access, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping of a page of a file that has it; nobody else knows its address.
        unsafe {
            let at =
                mmap(std::ptr::null_mut(), PAGE, access, shared, &self.file, range.start as u64).expect("a mapping");
            std::ptr::copy_nonoverlapping(self.bytes[range].as_ptr(), at.cast(), PAGE);
            msync(at, PAGE, MsyncFlags::SYNC).expect("a sync");
            munmap(at, PAGE).expect("its end");
        }
    }
}

/// Kills a server under clients; returns the longest time of a step.
fn kills(mounted: Mounted, number: u64, seed: u64, mapped: bool) -> Duration {
    println!("seed {seed} (what is done; when a kill comes is the clock's)");
    let (holder, ended, steps) = (mounted.command_id(), AtomicBool::new(false), AtomicU64::new(0));
    let longest = Mutex::new(Duration::ZERO);
    let directory = mounted.above();
    let clients: Vec<Client> = std::thread::scope(|scope| {
        let client = |number| {
            let mut client = Client::new(&directory, number, seed, mapped);
            let (ended, steps, longest) = (&ended, &steps, &longest);
            scope.spawn(move || {
                while !ended.load(Relaxed) {
                    let begun = Instant::now();
                    client.step();
                    let mut longest = longest.lock().expect("no panic");
                    *longest = begun.elapsed().max(*longest);
                    steps.fetch_add(1, Relaxed);
                }
                client.check(0, PAGES * PAGE);
                client
            })
        };
        let running: Vec<_> = (0..THREADS).map(client).collect();
        let mut random = Random::new(seed);
        let mut last = 0;
        for kill in 0..number {
            if kill % 3 == 2 {
                // The holder gives up after some servers in a row that did not get to serve.
                let before = steps.load(Relaxed);
                until("steps", || (steps.load(Relaxed) > before + 2 * THREADS).then_some(()));
            }
            std::thread::sleep(Duration::from_millis(random.below(300)));
            last = until("another server", || Some(server(holder)).filter(|&process| process != last));
            signal(last, Signal::KILL);
        }
        until("another server", || Some(server(holder)).filter(|&process| process != last));
        let before = steps.load(Relaxed);
        until("steps", || (steps.load(Relaxed) > before + 8 * THREADS).then_some(()));
        ended.store(true, Relaxed);
        running.into_iter().map(|client| client.join().expect("no error")).collect()
    });
    let (longest, steps) = (longest.into_inner().expect("no panic"), steps.into_inner());
    println!("{number} kills, {steps} steps; the longest took {} ms", longest.as_millis());
    assert!(steps > 5 * number, "the server was hardly alive");
    if !mounted.is_direct() {
        let figures = serving(&mounted.scratch, "cache", number);
        assert_eq!(figures["restarts"]["crashes"], number);
        assert!(figures["restarts"]["last_pause_ms"].as_f64().expect("a time") < 60e3);
        let table = mounted.scratch.ok(&["stats", "mount"]);
        says(&table, &[&format!("restarts       {number} crashes, 0 hangs, 0 upgrades; the last pause took")]);
    }
    let files: Vec<(PathBuf, Vec<u8>)> =
        clients.into_iter().map(|client| (PathBuf::from(client.name), client.bytes)).collect();
    end(mounted, &files);
    longest
}

/// Caches and more arguments of `mount` for kills.
fn setups() -> Vec<(How, &'static [&'static str])> {
    let [log, slots, segments]: [&[&str]; 3] =
        [&["--layout", "log"], &["--layout", "slots"], &["--layout", "segments", "--wear", "unbounded"]];
    vec![
        (with_cache(["write-back", "face-gsc"], log, "on"), &[]),
        (with_cache(["write-back", "lru"], slots, "off"), &[]),
        (with_cache(["write-back", "lc"], segments, "off"), &["--dram", "400KiB"]),
        (with_cache(["write-through", "face-gsc"], log, "off"), &["--dram", "400KiB"]),
        (with_cache(["write-back", "reuse"], slots, "off"), &["--dram", "400KiB"]),
        (with_cache(["write-around", "arc"], slots, "on"), &[]),
        (How { cache: None, page_cache: "on", passthrough: "on", nobody: false }, &[]),
    ]
}

#[test]
fn a_killed_server_is_a_pause() {
    for (number, (how, more)) in setups().into_iter().enumerate() {
        println!("{how:?}, {more:?}");
        let Some(mounted) = held(&how, more) else { return };
        kills(mounted, 4, 1 + number as u64, true);
    }
}

#[test]
#[ignore = "600 kills take minutes: `make test-long` runs it"]
fn hundreds_of_kills_are_pauses() {
    for (number, (how, more)) in setups().into_iter().enumerate() {
        println!("{how:?}, {more:?}");
        let Some(mounted) = held(&how, more) else { return };
        kills(mounted, 100, 100 + number as u64, true);
    }
}

/// Files whose names were removed are used on, and their bytes are those that were written.
#[test]
fn a_file_without_a_name_outlives_its_server() {
    let Some(mounted) = held(&PLAIN, &[]) else { return };
    let mut last = 0;
    for round in 0..4_u64 {
        let mut client = Client::new(&mounted.above(), round, 7, false);
        (0..30).for_each(|_| client.step());
        fs::remove_file(client.path()).expect("a removal");
        for _ in 0..2 {
            last = until("another server", || Some(server(mounted.command_id())).filter(|&process| process != last));
            signal(last, Signal::KILL);
            client.check(0, PAGES * PAGE);
            let byte = client.random.next_u64() as u8;
            client.bytes[..5 * PAGE].fill(byte);
            client.file.write_all_at(&client.bytes[..5 * PAGE], 0).expect("a write");
            client.check(0, PAGES * PAGE);
        }
        assert!(!client.path().exists());
    }
    end(mounted, &[]);
}

#[test]
fn a_server_that_stands_still_is_replaced_and_an_idle_one_is_not() {
    let Some(mounted) = held(&PLAIN, &["--restart-after", "2s"]) else { return };
    let first = server(mounted.command_id());
    fs::write(mounted.above().join("f"), "written").expect("a file");
    // Nobody asks it anything for longer than that.
    std::thread::sleep(Duration::from_millis(3500));
    assert_eq!(server(mounted.command_id()), first);
    signal(first, Signal::STOP);
    assert_eq!(fs::read_to_string(mounted.above().join("f")).expect("a file"), "written");
    let restarts = &serving(&mounted.scratch, "cache", 1)["restarts"];
    assert_eq!((restarts["hangs"].as_u64(), restarts["crashes"].as_u64()), (Some(1), Some(0)));
    // The pause began with the last sign of life.
    let pause = restarts["last_pause_ms"].as_f64().expect("a time");
    assert!((2000.0..30e3).contains(&pause), "{pause} ms");
    let mut mounted = mounted;
    mounted.signal(Signal::TERM);
    let (code, said) = mounted.end();
    assert_eq!(code, Some(0), "{said}");
    says(&said, &["gives no sign of life", "the server gave no sign of life; another one took over after"]);
}

/// The process by which a server looks at its mount.
fn onlooker(server: u32) -> u32 {
    until("a process that looks", || {
        let looks = |child: &u32| {
            let line = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0).any(|word| word == b"look-at")
        };
        children(server).into_iter().find(looks)
    })
}

/// A server that waits for an answer of its own when it is killed never ends, and no other one follows.
#[test]
fn a_server_looks_at_its_mount_by_another_process() {
    let Some(mut mounted) = held(&PLAIN, &["--restart-after", "2s"]) else { return };
    let (file, first) = (mounted.above().join("f"), server(mounted.command_id()));
    fs::write(&file, "written").expect("a file");
    let stopped = onlooker(first);
    signal(stopped, Signal::STOP);
    let second = until("another server", || Some(server(mounted.command_id())).filter(|&process| process != first));
    assert_eq!(fs::read_to_string(&file).expect("a file"), "written");
    assert_eq!(serving(&mounted.scratch, "cache", 1)["restarts"]["hangs"].as_u64(), Some(1));
    signal(stopped, Signal::KILL);
    let looking = onlooker(second);
    signal(second, Signal::KILL);
    assert_eq!(fs::read_to_string(&file).expect("a file"), "written");
    until("its end", || (!Path::new(&format!("/proc/{looking}")).exists()).then_some(()));
    mounted.signal(Signal::TERM);
    let (code, said) = mounted.end();
    assert_eq!(code, Some(0), "{said}");
}

/// The file system below holds up the attributes of the mount's root, so the server is killed while a look at its mount
/// waits for its answer. A thread of its own would wait for ever then, and no other server would start.
#[test]
fn a_server_that_is_killed_during_a_look_at_its_mount_is_replaced() {
    let direct = How { cache: None, ..PLAIN };
    let mut below = Mounted::made(Scratch::new(), &direct);
    if !below.start_with(&["--restart", "off"]) {
        return;
    }
    let scratch = Scratch::new();
    std::os::unix::fs::symlink(below.above(), scratch.path("backing")).expect("a link");
    let mut mounted = Mounted::made(scratch, &direct);
    assert!(mounted.start_with(&["--restart", "on", "--restart-after", "20s"]));
    let path = mounted.above().join("f");
    fs::write(&path, "written").expect("a file");
    let first = server(mounted.command_id());
    signal(below.command_id(), Signal::STOP);
    until("a look that waits", || waits_in_statx(first).then_some(()));
    signal(first, Signal::KILL);
    signal(below.command_id(), Signal::CONT);
    let second = until("another server", || children(mounted.command_id()).into_iter().find(|&child| child != first));
    assert_eq!(fs::read_to_string(&path).expect("a file"), "written");
    assert_eq!(server(mounted.command_id()), second);
    mounted.signal(Signal::TERM);
    let (code, said) = mounted.end();
    assert_eq!(code, Some(0), "{said}");
    says(&said, &["the server ended (signal: 9 (SIGKILL))", "took over after"]);
    below.unmount();
}

/// True if a thread of a server, or of a process that it started, has been in a call of `statx` for a while.
fn waits_in_statx(server: u32) -> bool {
    let word = format!("{} ", libc::SYS_statx);
    let in_call = || {
        let threads = [server].into_iter().chain(children(server)).filter_map(|process| {
            let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
            Some(threads.map(|thread| thread.expect("a thread").path()))
        });
        threads.flatten().find(|path| fs::read_to_string(path.join("syscall")).unwrap_or_default().starts_with(&word))
    };
    let Some(before) = in_call() else { return false };
    std::thread::sleep(Duration::from_millis(200));
    in_call() == Some(before)
}

#[test]
fn without_its_holder_a_server_ends_in_order() {
    for open in [false, true] {
        let Some(mut mounted) = held(&PLAIN, &[]) else { return };
        let process = server(mounted.command_id());
        let path = mounted.above().join("f");
        fs::write(&path, "not synced").expect("a file");
        let file = open.then(|| File::open(&path).expect("the file"));
        signal(mounted.command_id(), Signal::KILL);
        mounted.end();
        until("the end", || (!fs::exists(format!("/proc/{process}")).expect("a path")).then_some(()));
        if let Some(mut file) = file {
            assert!(file.read(&mut [0; 4]).is_err(), "its mount is gone");
        }
        let stats = mounted.scratch.ok(&["stats", "cache"]);
        says(&stats, &["closed in good order"]);
        mounted.scratch.ok(&[&["-q", "drain"], &BOTH[..]].concat());
        assert_eq!(fs::read_to_string(mounted.below().join("f")).expect("a file"), "not synced");
    }
}

/// A cache that somebody drained while no server was there: what was answered may be older than what is read now, so the
/// first sync of a file fails, once.
#[test]
fn a_cache_that_was_drained_between_two_servers_is_in_doubt() {
    let Some(mounted) = held(&PLAIN, &[]) else { return };
    let path = mounted.above().join("f");
    fs::write(&path, "not synced").expect("a file");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("the file");
    signal(mounted.command_id(), Signal::STOP);
    let killed = server(mounted.command_id());
    signal(killed, Signal::KILL);
    // Its locks go with it, a moment after its end.
    until("a drain", || mounted.scratch.run(&[&["-q", "drain"], &BOTH[..]].concat()).status.success().then_some(()));
    signal(mounted.command_id(), Signal::CONT);
    let figures = serving(&mounted.scratch, "cache", 1);
    says(
        figures["doubt"]["why"].as_str().expect("a reason"),
        &["the memory that the former server left cannot be used"],
    );
    assert_eq!(file.sync_all().expect_err("what was answered may be missing").raw_os_error(), Some(5));
    file.write_all_at(b"written again", 0).expect("a write");
    file.sync_all().expect("the second sync");
    assert_eq!(fs::read_to_string(&path).expect("a file"), "written again");
    // The mount ends as soon as nothing in it is open.
    drop(file);
    let (mut mounted, below) = (mounted, path.file_name().map(PathBuf::from).expect("a name"));
    mounted.signal(Signal::TERM);
    let (code, said) = mounted.end();
    assert_eq!(code, Some(0), "{said}");
    says(&said, &["answered writes of the former server may be lost"]);
    mounted.scratch.ok(&[&["-q", "drain"], &BOTH[..]].concat());
    assert_eq!(fs::read_to_string(mounted.below().join(below)).expect("a file"), "written again");
}

/// A cache that is not there any more is an error of a later server, and not a lost cache to be made anew.
#[test]
fn a_later_server_decides_nothing_anew() {
    let Some(mut mounted) = held(&PLAIN, &["--if-lost", "recreate"]) else { return };
    fs::write(mounted.above().join("f"), "in the cache alone").expect("a file");
    fs::rename(mounted.scratch.path("cache"), mounted.scratch.path("aside")).expect("a rename");
    signal(server(mounted.command_id()), Signal::KILL);
    let (code, said) = mounted.end();
    assert_eq!(code, Some(2), "{said}");
    says(&said, &["5 servers in a row ended without getting ready; the holder gives up", "there is no cache here"]);
    assert!(!mounted.scratch.path("cache").exists() && !said.contains("/proc/"), "{said}");
}

/// A guard would refuse the files of a database that runs through the mount, if it took them for files below.
#[test]
fn a_database_that_runs_through_the_mount_is_no_other_writer() {
    let Some(mut mounted) = held(&PLAIN, &[]) else { return };
    let above = mounted.above();
    fs::create_dir(above.join("main")).expect("a directory");
    fs::write(above.join("main/PG_VERSION"), "15\n").expect("a file");
    let open = OpenOptions::new().create(true).append(true).open(above.join("main/1")).expect("a file");
    let mut sleeper =
        Command::new("sleep").arg("600").current_dir(above.join("main")).stdout(open).spawn().expect("sleep");
    fs::write(above.join("main/postmaster.pid"), format!("{}\n/x\n", sleeper.id())).expect("a file");
    signal(server(mounted.command_id()), Signal::KILL);
    assert_eq!(fs::read_to_string(above.join("main/PG_VERSION")).expect("a file"), "15\n");
    serving(&mounted.scratch, "cache", 1);
    sleeper.kill().and_then(|()| sleeper.wait()).expect("its end");
    mounted.signal(Signal::TERM);
    let (code, said) = mounted.end();
    assert!(code == Some(0) && !said.contains("postmaster") && !said.contains("/proc/"), "{said}");
}

/// Copies the program, or another one, over a path as a package does: the file there before stays with its users.
fn install(program: &Path, place: &Path) {
    let new = place.with_extension("new");
    fs::copy(program, &new).expect("a copy");
    fs::rename(&new, place).expect("a rename");
}

/// A holder of a program in the scratch directory; none where nothing can be mounted.
fn installed() -> Option<(Scratch, Child)> {
    let scratch = Scratch::new();
    ["backing", "mount"].iter().for_each(|name| fs::create_dir(scratch.path(name)).expect("a directory"));
    scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "2MiB"]);
    install(Path::new(common::PROGRAM), &scratch.path("program"));
    let arguments = ["-q", "mount", "backing", "mount", "--cache", "cache", "--restart", "on"];
    let mut command = scratch.command(&arguments);
    let mut program = Command::new(scratch.path("program"));
    program.args(arguments).current_dir(scratch.path("."));
    program.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command = program;
    let mut holder = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    BufReader::new(holder.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    if line.is_empty() {
        let mut said = String::new();
        holder.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        holder.wait().expect("its end");
        assert!(common::is_impossible(&said), "{said}");
        return None;
    }
    Some((scratch, holder))
}

fn end_of(mut holder: Child) -> (Option<i32>, String) {
    signal(holder.id(), Signal::TERM);
    let mut said = String::new();
    holder.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    (holder.wait().expect("its end").code(), said)
}

#[test]
fn an_upgrade_is_a_pause_and_one_that_fails_is_none() {
    let Some((scratch, holder)) = installed() else { return };
    let (ended, directory) = (AtomicBool::new(false), scratch.path("mount"));
    let client = std::thread::scope(|scope| {
        let mut client = Client::new(&directory, 0, 11, false);
        let ended = &ended;
        let running = scope.spawn(move || {
            while !ended.load(Relaxed) {
                client.step();
            }
            client.check(0, PAGES * PAGE);
            client
        });
        for (number, place) in ["cache", "mount"].into_iter().enumerate() {
            let before = server(holder.id());
            install(Path::new(common::PROGRAM), &scratch.path("program"));
            assert_eq!(scratch.ok(&["upgrade", place]), format!("{place}: the upgrade is done\n"));
            assert_ne!(server(holder.id()), before);
            let restarts = &serving(&scratch, "cache", 1 + number as u64)["restarts"];
            assert_eq!(restarts["upgrades"], 1 + number as u64);
        }
        let before = server(holder.id());
        let program = |text: &str| {
            fs::write(scratch.path("other"), text).expect("a file");
            fs::set_permissions(scratch.path("other"), fs::Permissions::from_mode(0o755)).expect("a mode");
            install(&scratch.path("other"), &scratch.path("program"));
        };
        install(Path::new("/bin/false"), &scratch.path("program"));
        says(&scratch.refused(&["upgrade", "cache"]), &["cache: no upgrade: the new program ended (exit status: 1)"]);
        program("no program");
        says(&scratch.refused(&["upgrade", "cache"]), &["cache: no upgrade: "]);
        fs::remove_file(scratch.path("program")).expect("a removal");
        says(&scratch.refused(&["upgrade", "cache"]), &["no upgrade: ", "No such file"]);
        assert_eq!(server(holder.id()), before);
        ended.store(true, Relaxed);
        running.join().expect("no error")
    });
    // The mount ends when nothing is open.
    let Client { name, bytes, file, .. } = client;
    drop(file);
    let (code, said) = end_of(holder);
    assert_eq!(code, Some(0), "{said}");
    scratch.ok(&[&["-q", "drain"], &BOTH[..]].concat());
    assert!(scratch.bytes(&format!("backing/{name}")) == bytes);
}

/// A command that mounts; none where nothing can be mounted.
fn mounting(mut command: Command) -> Option<Child> {
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
    let mut said = BufReader::new(running.stdout.take().expect("a pipe"));
    line(&mut running, &mut said).map(|_| running)
}

#[test]
fn the_default_holds_a_cache_and_nothing_else() {
    let scratch = formatted();
    scratch.file("disk", vec![0; 65536]);
    ["mount", "plain", "elsewhere"].iter().for_each(|name| fs::create_dir(scratch.path(name)).expect("a directory"));
    let cached = ["mount", "backing", "mount", "--cache", "cache"];
    let uncached = ["mount", "plain", "elsewhere"];
    let file = ["serve", "nbd", "--file", "disk", "--socket", "s"];
    let all: [(&[&str], &[&str], bool); 5] = [
        (&cached, &[], true),
        (&cached, &["--restart", "off"], false),
        (&uncached, &[], false),
        (&uncached, &["--restart", "on"], true),
        (&file, &[], false),
    ];
    for (words, more, is_held) in all {
        let Some(running) = mounting(scratch.command(&[words, more].concat())) else { return };
        let servers = children(running.id());
        assert_eq!(servers.len(), usize::from(is_held), "{words:?} {more:?}");
        if is_held && words == cached {
            fs::write(scratch.path("mount/f"), "answered").expect("a file");
            signal(servers[0], Signal::KILL);
            assert_eq!(fs::read(scratch.path("mount/f")).expect("a pause"), b"answered");
            assert_eq!(serving(&scratch, "cache", 1)["process"], server(running.id()));
        }
        signal(running.id(), Signal::TERM);
        let output = running.wait_with_output().expect("an end");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(!said.contains("--restart"), "{said}");
    }
    // A program whose file was removed can be started once.
    let place = scratch.path("program");
    install(Path::new(common::PROGRAM), &place);
    let by_number = |more: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec 3<program && rm program && exec /proc/self/fd/3 \"$@\"", "sh"]);
        shell.args(cached).args(more).current_dir(scratch.path("."));
        shell
    };
    let running = mounting(by_number(&[])).expect("it could be mounted before");
    assert!(children(running.id()).is_empty());
    signal(running.id(), Signal::TERM);
    let output = running.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), said.matches("entresol: --restart off: this program").count()),
        (Some(0), 1),
        "{said}"
    );
    install(Path::new(common::PROGRAM), &place);
    let refused = by_number(&["--restart", "on"]).output().expect("the command runs");
    assert_ne!(refused.status.code(), Some(0), "what is asked for is not left out");
}

#[test]
fn what_cannot_be_held_or_upgraded_is_refused_in_words() {
    let scratch = Scratch::new();
    ["b", "m"].iter().for_each(|name| fs::create_dir(scratch.path(name)).expect("a directory"));
    let emulated = ["mount", "b", "m", "--emulate", "ideal", "--restart", "on"];
    says(&scratch.refused(&emulated), &["--restart on: an emulated device"]);
    scratch.format(&["--cache", "cache", "--backing", "b", "--size", "2MiB"]);
    says(&scratch.refused(&["upgrade", "cache"]), &["is not in use"]);
    let Some(mut mounted) = Mounted::with(Some(["write-back", "lru"])) else { return };
    mounted.unmount();
    assert!(mounted.start_with(&["--restart", "off"]));
    says(&mounted.scratch.refused(&["upgrade", "mount"]), &["no upgrade: it was started without --restart on"]);
    mounted.unmount();
}

/// `entresol run --restart on` of a shell script, with its process numbers: its own and the holder's.
fn run(scratch: &Scratch, script: &str) -> Child {
    let arguments =
        ["-q", "run", "--backing", "backing", "--cache", "cache", "--restart", "on", "--", "sh", "-c", script];
    let mut command = scratch.command(&arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs")
}

/// The next line that the command of `run` prints; none if there is none because nothing can be mounted.
fn line(running: &mut Child, from: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    from.read_line(&mut line).expect("text");
    if line.is_empty() {
        let mut said = String::new();
        running.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert!(common::is_impossible(&said), "{said}");
        return None;
    }
    Some(line.trim().to_owned())
}

fn formatted() -> Scratch {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("backing")).expect("a directory");
    scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "2MiB"]);
    scratch
}

#[test]
fn a_command_outlives_the_server_of_its_files() {
    let scratch = formatted();
    let script = "cd backing; exec 5>>f; \
                  echo $PPID $(ls -l /proc/self/fd | grep -c socket:) $(env | grep -cE 'ENTRESOL_(RUN_)?HOLDER'); \
                  while read word; do echo $word >&5 && cat f | tr -d '\\n' && echo; done; \
                  (sleep 0.3; echo late >>g) & exit 7";
    let mut running = run(&scratch, script);
    let mut said = BufReader::new(running.stdout.take().expect("a pipe"));
    let Some(first) = line(&mut running, &mut said) else { return };
    assert_eq!(first, format!("{} 0 0", running.id()), "neither a socket nor a variable of the holder");
    let mut words = running.stdin.take().expect("a pipe");
    let (mut expected, mut last) = (String::new(), 0);
    for word in ["one", "two", "three", "four"] {
        let holder = children(running.id())[0];
        last = until("another server", || Some(server(holder)).filter(|&process| process != last));
        signal(last, Signal::KILL);
        writeln!(words, "{word}").expect("a reader");
        expected += word;
        assert_eq!(line(&mut running, &mut said).as_deref(), Some(&*expected));
    }
    drop(words);
    let output = running.wait_with_output().expect("an end");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{told}");
    let known = |line: &str| line.contains("another one took over after") || line.contains("another one is started");
    assert!(told.lines().count() == 8 && told.lines().all(known), "{told}");
    says(&scratch.ok(&["stats", "cache"]), &["closed in good order"]);
    scratch.ok(&[&["-q", "drain"], &BOTH[..]].concat());
    assert_eq!(scratch.read("backing/f"), "one\ntwo\nthree\nfour\n");
    assert_eq!(scratch.read("backing/g"), "late\n", "what the command left behind had its files too");
}

#[test]
fn a_command_is_killed_with_its_holder_and_refused_as_without_one() {
    let scratch = formatted();
    let mut running = run(&scratch, "echo here; read word; echo $word");
    let mut said = BufReader::new(running.stdout.take().expect("a pipe"));
    let Some(_) = line(&mut running, &mut said) else { return };
    let words = running.stdin.take();
    let holder = children(running.id())[0];
    let process = server(holder);
    signal(holder, Signal::KILL);
    let output = running.wait_with_output().expect("an end");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    says(&told, &["the holder ended (signal: 9 (SIGKILL)); the command was killed"]);
    drop(words);
    until("the end", || (!fs::exists(format!("/proc/{process}")).expect("a path")).then_some(()));
    says(&scratch.ok(&["stats", "cache"]), &["closed in good order"]);
    // The error of the first server's start is that of the command.
    fs::remove_file(scratch.path("cache")).expect("a removal");
    let words =
        ["-q", "run", "--backing", "backing", "--cache", "cache", "--restart", "on", "--if-lost", "refuse", "true"];
    says(&scratch.refused(&words), &["--if-lost recreate"]);
}

/// Pauses that a client sees: `cargo test -p entresol --test restart pauses_with_a_gibibyte -- --ignored --nocapture`.
#[test]
#[ignore = "a gibibyte is written first: `make test-long` runs it"]
fn pauses_with_a_gibibyte_cached() {
    for layout in ["log", "slots"] {
        let format: &[&str] = match layout {
            "log" => &["--size", "1400MiB", "--layout", "log"],
            _ => &["--size", "1400MiB", "--layout", "slots"],
        };
        let Some(mounted) = held(&with_cache(["write-back", "lru"], format, "off"), &[]) else { return };
        let path = mounted.above().join("big");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        let block = vec![7; 1 << 20];
        (0..1024).for_each(|at| file.write_all_at(&block, at << 20).expect("a write"));
        file.sync_data().expect("a sync");
        let mut last = 0;
        let mut pauses: Vec<(Duration, f64)> = Vec::new();
        let mut random = Random::new(5);
        for kill in 1..=20 {
            std::thread::sleep(Duration::from_millis(400));
            // Some that is not synced yet is to be repeated.
            (0..200).for_each(|_| file.write_all_at(&block[..PAGE], random.below(1 << 18) << 12).expect("a write"));
            last = until("another server", || Some(server(mounted.command_id())).filter(|&process| process != last));
            let begun = Instant::now();
            signal(last, Signal::KILL);
            file.read_exact_at(&mut [0; PAGE], random.below(1 << 18) << 12).expect("bytes");
            let seen = begun.elapsed();
            let figures = serving(&mounted.scratch, "cache", kill);
            pauses.push((seen, figures["restarts"]["last_pause_ms"].as_f64().expect("a time")));
        }
        let mut seen: Vec<u128> = pauses.iter().map(|(seen, _)| seen.as_millis()).collect();
        seen.sort_unstable();
        let own = pauses.iter().map(|(_, own)| *own).fold(0.0, f64::max);
        println!(
            "{layout}: 20 kills; pauses of a client: median {} ms, longest {} ms; of the server: longest {own:.0} ms",
            seen[10], seen[19]
        );
        drop(file);
        let mut mounted = mounted;
        mounted.signal(Signal::TERM);
        let (code, said) = mounted.end();
        assert_eq!(code, Some(0), "{said}");
    }
}
