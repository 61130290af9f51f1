//! Signals at any moment of a mount's start and stop: no mount is left, the cache opens again, and synced bytes are
//! found.

mod common;

use common::{Scratch, Signal, is_impossible, says, signal};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const SEED: u64 = 2504;
const ROUNDS: u64 = 24;
const SIGNALS: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];

struct Random(u64);

impl Random {
    /// By splitmix64, so that a seed gives the same signals everywhere.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn pause(&mut self, most: Duration) {
        std::thread::sleep(Duration::from_micros(self.below(most.as_micros().max(1) as u64)));
    }
}

fn is_mounted(at: &Path) -> bool {
    let mounts = std::fs::read("/proc/self/mounts").expect("mounts");
    String::from_utf8_lossy(&mounts).contains(&format!(" {} fuse", at.display()))
}

struct Rounds {
    scratch: Scratch,
    random: Random,
    /// Files that were synced: name and bytes.
    synced: Vec<(String, Vec<u8>)>,
    /// Time that a start took without a signal.
    start: Duration,
}

impl Rounds {
    fn spawn(&self) -> Child {
        let mut command = self.scratch.command(&["mount", "backing", "mount", "--cache", "cache"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs")
    }

    /// Waits until it is mounted; true if it came to that.
    fn is_up(server: &mut Child) -> bool {
        let mut line = String::new();
        BufReader::new(server.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
        !line.is_empty()
    }

    /// Sends some signals in quick succession.
    fn interrupt(&mut self, server: &Child) {
        for _ in 0..=self.random.below(3) {
            let by = SIGNALS[self.random.below(3) as usize];
            signal(server.id(), by);
            self.random.pause(Duration::from_millis(30));
        }
    }

    fn check_files(&self) {
        for (name, bytes) in &self.synced {
            assert!(std::fs::read(self.scratch.path("mount").join(name)).expect("its bytes") == *bytes, "{name}");
        }
    }

    fn write(&mut self, round: u64) {
        let name = format!("file{}", round % 5);
        let bytes = vec![self.random.below(256) as u8; 1 + self.random.below(50_000) as usize];
        let mut file = File::create(self.scratch.path("mount").join(&name)).expect("a file");
        file.write_all(&bytes).and_then(|()| file.sync_all()).expect("a write and a sync");
        self.synced.retain(|(other, _)| *other != name);
        self.synced.push((name, bytes));
    }

    fn ended(&self, mut server: Child, ready: bool, what: &str) {
        let mut said = String::new();
        server.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        let status = server.wait().expect("an end");
        assert!(!said.contains("panicked"), "{what}: {said}");
        // Before its handlers are installed a signal ends any process, with nothing mounted.
        assert!(status.code() == Some(0) || !ready, "{what}: {status}: {said}");
        assert!(!is_mounted(&self.scratch.path("mount")), "{what}: a mount is left; {said}");
        let both = ["--cache", "cache", "--backing", "backing"];
        self.scratch.ok(&[&["check"], &both[..]].concat());
        if ready {
            says(&self.scratch.ok(&["stats", "cache"]), &["closed in good order"]);
        }
    }
}

#[test]
fn signals_at_any_moment_of_start_and_stop_leave_no_mount_and_lose_nothing() {
    println!("seed {SEED}");
    let scratch = Scratch::new();
    for name in ["backing", "mount"] {
        std::fs::create_dir(scratch.path(name)).expect("a directory");
    }
    scratch.format(&["--cache", "cache", "--backing", "backing", "--size", "2MiB"]);
    let mut rounds = Rounds { scratch, random: Random(SEED), synced: Vec::new(), start: Duration::ZERO };
    let (mut during_start, mut cut_short) = (0, 0);
    for round in 0..ROUNDS {
        let began = Instant::now();
        let mut server = rounds.spawn();
        let at_start = round > 0 && rounds.random.below(2) == 0;
        if at_start {
            during_start += 1;
            let most = 3 * rounds.start / 2;
            rounds.random.pause(most);
            rounds.interrupt(&server);
            let ready = Rounds::is_up(&mut server);
            cut_short += u32::from(!ready);
            rounds.ended(server, ready, &format!("round {round}, at the start"));
            continue;
        }
        if !Rounds::is_up(&mut server) {
            let mut said = String::new();
            server.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
            return assert!(is_impossible(&said), "{said}");
        }
        if round == 0 {
            rounds.start = began.elapsed();
        }
        rounds.check_files();
        rounds.write(round);
        rounds.interrupt(&server);
        rounds.ended(server, true, &format!("round {round}, at the stop"));
    }
    println!("{during_start} starts were interrupted, {cut_short} of them before they were mounted");
    let both = ["--cache", "cache", "--backing", "backing"];
    rounds.scratch.ok(&[&["-q", "drain"], &both[..]].concat());
    for (name, bytes) in &rounds.synced {
        assert!(rounds.scratch.bytes(&format!("backing/{name}")) == *bytes, "{name} after the drain");
    }
}
