//! Processes that are killed, or stopped, at random times while checkpoints are written: the daemons and the writers are
//! processes of this test's own program.
//!
//! - A checkpoint that is called complete restores.
//! - One that every rank was told is replicated or durable is restored after the loss of one node.
//! - A manifest on the PFS names parts that have the bytes of the writers.
//! - No writer waits longer than ten seconds.

use entresol_burst::{CheckpointId, JobId, NodeId, Object};
use entresol_burst_live::client::{Client, ClientSettings, Level, PATIENCE, State};
use entresol_burst_live::message::{FromCoordinator, ToCoordinator};
use entresol_burst_live::pfs::{Directory, Pfs};
use entresol_burst_live::wire::Peer;
use entresol_burst_live::{CHUNK_BYTES, CoordinatorDaemon, CoordinatorSettings, NodeDaemon, NodeSettings, layout};
use entresol_core::Random;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const JOB: JobId = JobId(3);
const RANKS: u32 = 3;
const ROUNDS: u64 = 3;
const CAPACITY: u64 = 24 << 20;
const POLICIES: [&str; 5] = [
    "cdbb:redundancy=partner",
    "chunked:chunk=1MiB",
    "ldbb:redundancy=partner",
    "cdbb",
    "chunked:chunk=1MiB:drain=fair",
];
const LEVELS: [Level; 3] = [Level::Absorbed, Level::Replicated, Level::Durable];

/// A process of this program, killed when it is dropped.
struct Process {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(arguments: &[String]) -> Process {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["process", "--exact", "--ignored", "--nocapture"]);
        command.env("ENTRESOL_BURST_PROCESS", arguments.join("\n"));
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a process");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Process { child, output }
    }

    /// The first line that begins with `=`, without it; none if the process ends before.
    fn answer(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).expect("text") == 0 {
                return None;
            }
            if let Some((_, answer)) = line.trim_end().split_once('=') {
                return Some(answer.to_owned());
            }
        }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it is a child");
        self.child.wait().expect("it ends");
    }

    fn stop(&self) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(pid, Signal::STOP).expect("it is a child");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Body of the processes that the tests start.
#[test]
#[ignore = "a process that other tests of this file start; it ends at once without their arguments"]
fn process() {
    let Ok(arguments) = std::env::var("ENTRESOL_BURST_PROCESS") else { return };
    let arguments: Vec<&str> = arguments.split('\n').collect();
    let pfs = |path: &str| Arc::new(Directory::open(Path::new(path)).expect("the PFS"));
    match arguments[..] {
        ["coordinator", listen, state, policy] => {
            let mut settings = CoordinatorSettings::new(listen, state.into());
            settings.policy = policy.parse().expect(policy);
            settings.nodes = Some(RANKS as usize);
            settings.wait = Duration::from_secs(1);
            let daemon = CoordinatorDaemon::start(&settings).expect("a coordinator");
            println!("\n={}", daemon.address());
            loop {
                std::thread::park();
            }
        }
        ["node", node, coordinator, root] => {
            let settings = NodeSettings {
                node: NodeId(node.parse().expect("a number")),
                listen: "127.0.0.1:0".to_owned(),
                advertise: None,
                coordinator: coordinator.to_owned(),
                capacity: CAPACITY,
            };
            let daemon = NodeDaemon::start(&settings, pfs(root)).expect("a node");
            println!("\n={}", daemon.address());
            loop {
                std::thread::park();
            }
        }
        ["writer", checkpoint, rank, salt, coordinator, root] => {
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let (object, salt) = (object(number(checkpoint), number(rank) as u32), number(salt));
            let client = client(coordinator, object.rank, pfs(root));
            let begin = Instant::now();
            let acknowledged = client.put(object, RANKS, &contents(object, salt)).expect("the PFS works");
            println!("\n={} {}", acknowledged.level.name(), begin.elapsed().as_millis());
        }
        _ => panic!("{arguments:?}"),
    }
}

fn object(checkpoint: u64, rank: u32) -> Object {
    Object { job: JOB, checkpoint: CheckpointId(checkpoint), rank }
}

/// Bytes of an object as one writer has them; another writer of the object has another salt.
fn contents(object: Object, salt: u64) -> Vec<u8> {
    let mut random = Random::new(object.checkpoint.0 << 40 | u64::from(object.rank) << 32 | salt);
    let words = (1 << 17) + random.below(1 << 17);
    (0..words).flat_map(|_| random.next_u64().to_le_bytes()).collect()
}

fn client(coordinator: &str, node: u32, pfs: Arc<dyn Pfs>) -> Client {
    let coordinator = Some(coordinator.to_owned());
    let settings = ClientSettings { coordinator, nodes: Vec::new(), node: NodeId(node), patience: PATIENCE };
    Client::new(settings, pfs)
}

/// A process that a round strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Nobody,
    Writer(usize),
    Node(usize),
    /// The node does not answer any more, and its connections stay.
    StoppedNode(usize),
    Coordinator,
    /// A node is killed, and the coordinator starts again without it.
    NodeAndCoordinator(usize),
}

impl Victim {
    /// The node that is lost.
    fn node(self) -> Option<usize> {
        match self {
            Victim::Node(node) | Victim::StoppedNode(node) | Victim::NodeAndCoordinator(node) => Some(node),
            Victim::Nobody | Victim::Writer(_) | Victim::Coordinator => None,
        }
    }
}

struct Testbed {
    scratch: tempfile::TempDir,
    policy: &'static str,
    address: String,
    coordinator: Process,
    nodes: Vec<Process>,
    pfs: Arc<Directory>,
    random: Random,
}

impl Testbed {
    fn new(seed: u64) -> Testbed {
        let mut random = Random::new(seed);
        let policy = POLICIES[random.below(POLICIES.len() as u64) as usize];
        let scratch = tempfile::tempdir().expect("a directory");
        let root = scratch.path().join("pfs");
        std::fs::create_dir(&root).expect("a directory");
        let pfs = Arc::new(Directory::open(&root).expect("a directory"));
        let (coordinator, address) = coordinator(scratch.path(), "127.0.0.1:0", policy);
        let nodes = (0..RANKS).map(|node| start_node(scratch.path(), &address, node)).collect();
        Testbed { scratch, policy, address, coordinator, nodes, pfs, random }
    }

    fn restart_coordinator(&mut self) {
        self.coordinator.kill();
        self.coordinator = coordinator(self.scratch.path(), &self.address, self.policy).0;
    }

    fn restart_node(&mut self, node: usize) {
        self.nodes[node].kill();
        self.nodes[node] = start_node(self.scratch.path(), &self.address, node as u32);
    }

    /// Waits until all nodes have reported to the coordinator.
    fn wait_for_nodes(&self) {
        let until = Instant::now() + Duration::from_secs(20);
        let second = Duration::from_secs(1);
        loop {
            let answer = Peer::connect(&self.address, second)
                .and_then(|peer| peer.call::<FromCoordinator>(&ToCoordinator::Nodes, &[], second));
            if let Ok((FromCoordinator::Nodes { nodes, settled: true, .. }, _)) = answer
                && nodes.iter().filter(|node| node.present).count() == RANKS as usize
            {
                return;
            }
            assert!(Instant::now() < until, "the nodes do not report");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn writer(&self, checkpoint: u64, rank: u32, salt: u64) -> Process {
        let root = self.scratch.path().join("pfs").display().to_string();
        let numbers = [checkpoint.to_string(), rank.to_string(), salt.to_string()];
        let [checkpoint, rank, salt] = numbers;
        Process::start(&["writer".to_owned(), checkpoint, rank, salt, self.address.clone(), root])
    }

    fn victim(&mut self) -> Victim {
        let one = self.random.below(RANKS.into()) as usize;
        match self.random.below(20) {
            0 => Victim::Nobody,
            1..5 => Victim::Writer(one),
            5..11 => Victim::Node(one),
            11 => Victim::StoppedNode(one),
            12..15 => Victim::NodeAndCoordinator(one),
            _ => Victim::Coordinator,
        }
    }

    /// Writes one checkpoint while a process is struck, and checks the promises.
    fn round(&mut self, checkpoint: u64) {
        self.wait_for_nodes();
        let victim = self.victim();
        let mut writers: Vec<Process> = (0..RANKS).map(|rank| self.writer(checkpoint, rank, 0)).collect();
        std::thread::sleep(Duration::from_micros(self.random.below(60_000)));
        match victim {
            Victim::Nobody => {}
            Victim::Writer(rank) => writers[rank].kill(),
            Victim::Node(node) => self.nodes[node].kill(),
            Victim::StoppedNode(node) => self.nodes[node].stop(),
            Victim::Coordinator => self.restart_coordinator(),
            Victim::NodeAndCoordinator(node) => {
                self.nodes[node].kill();
                self.restart_coordinator();
            }
        }
        let mut levels: Vec<Option<Level>> = writers.iter_mut().map(acknowledged).collect();
        let mut salts = vec![vec![0]; RANKS as usize];
        if let Victim::Writer(rank) = victim
            && levels[rank].is_none()
        {
            self.check_complete(&salts);
            // The program starts again, and has computed other bytes.
            levels[rank] = acknowledged(&mut self.writer(checkpoint, rank as u32, 1));
            salts[rank] = vec![1];
        }
        assert!(levels.iter().all(Option::is_some), "{victim:?}: {levels:?}");
        if let Victim::StoppedNode(node) = victim {
            self.nodes[node].kill();
        }
        let safe = levels.iter().all(|level| *level > Some(Level::Absorbed));
        let is_struck = victim.node().is_some();
        let client = client(&self.address, 0, self.pfs.clone());
        if safe || !is_struck {
            let (states, missing) = client.list(JOB).expect("a list");
            let state = states.iter().find(|state| state.checkpoint.0 == checkpoint);
            let state = state.map(|state| state.state);
            assert!(matches!(state, Some(State::Complete(_))), "{victim:?} {levels:?}: {states:?} {missing:?}");
        }
        self.check_complete(&salts);
        if let Some(node) = victim.node() {
            self.restart_node(node);
            self.wait_for_nodes();
        }
        if safe || !is_struck {
            let left = client.drain(JOB, Some(CheckpointId(checkpoint)), Duration::from_secs(30)).expect("an answer");
            assert!(left.is_empty(), "{victim:?}: {left:?}");
        }
        self.check_complete(&salts);
        self.check_manifests();
    }

    /// Checks that every rank of the newest complete checkpoint restores, with bytes of one writer.
    fn check_complete(&self, salts: &[Vec<u64>]) {
        let client = client(&self.address, 1, self.pfs.clone());
        let (states, _) = client.list(JOB).expect("a list");
        let complete = states.iter().filter(|state| matches!(state.state, State::Complete(_)));
        let Some(newest) = complete.map(|state| state.checkpoint).max() else { return };
        let is_last = states.iter().all(|state| state.checkpoint <= newest);
        for rank in 0..RANKS {
            let restored = client.restore(JOB, Some(newest), rank).unwrap_or_else(|error| panic!("{error}"));
            let object = Object { job: JOB, checkpoint: newest, rank };
            let all = vec![0, 1];
            let mut salts = if is_last { &salts[rank as usize] } else { &all }.iter();
            assert!(salts.any(|&salt| restored.bytes == contents(object, salt)), "{object} differs: {restored:?}");
        }
    }

    /// Checks that every manifest names durable parts with the bytes of a writer.
    fn check_manifests(&self) {
        for checkpoint in layout::checkpoints(&*self.pfs, JOB).expect("a listing") {
            let Some(manifest) = layout::manifest(&*self.pfs, JOB, checkpoint).expect("a manifest") else { continue };
            assert_eq!((manifest.ranks, manifest.objects.len()), (RANKS, RANKS as usize));
            for own in manifest.objects {
                let mut bytes = Vec::new();
                for part in own.parts {
                    assert_eq!((part.offset, part.chunk_bytes), (bytes.len() as u64, CHUNK_BYTES));
                    let folder = layout::folder(JOB, checkpoint);
                    bytes.extend(self.pfs.read(&folder, &part.file, 0, part.bytes).expect("a part"));
                }
                let object = Object { job: JOB, checkpoint, rank: own.rank };
                assert!((0..2).any(|salt| bytes == contents(object, salt)), "{object}: wrong bytes under a manifest");
            }
        }
    }
}

fn coordinator(scratch: &Path, listen: &str, policy: &str) -> (Process, String) {
    let state = scratch.join("state").display().to_string();
    let arguments = ["coordinator".to_owned(), listen.to_owned(), state, policy.to_owned()];
    let mut process = Process::start(&arguments);
    let address = process.answer().expect("the coordinator starts");
    (process, address)
}

fn start_node(scratch: &Path, coordinator: &str, node: u32) -> Process {
    let root = scratch.join("pfs").display().to_string();
    let mut process = Process::start(&["node".to_owned(), node.to_string(), coordinator.to_owned(), root]);
    process.answer().expect("the node starts");
    process
}

/// The level that a writer was told; none if it was killed before.
fn acknowledged(writer: &mut Process) -> Option<Level> {
    let answer = writer.answer()?;
    let (name, took_ms) = answer.split_once(' ').expect("a level and a time");
    assert!(took_ms.parse::<u64>().expect("a time") < 10_000, "a writer waited {took_ms} ms");
    LEVELS.into_iter().find(|level| level.name() == name)
}

fn run(seed: u64) {
    let mut testbed = Testbed::new(seed);
    for checkpoint in 1..=ROUNDS {
        testbed.round(checkpoint);
    }
}

/// Seeds that run at the same time: most of a run is waiting.
const TOGETHER: usize = 3;

fn run_all(seeds: std::ops::Range<u64>) {
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if let Err(why) = std::panic::catch_unwind(|| run(seed)) {
                        eprintln!("seed {seed}");
                        std::panic::resume_unwind(why);
                    }
                }
            });
        }
    });
}

/// 51 strikes.
#[test]
fn processes_killed_at_random_times_lose_nothing_that_was_promised() {
    run_all(0..17);
}

/// `cargo test -p entresol-burst-live --test kills -- --ignored more`. `ENTRESOL_BURST_SEEDS=FROM..TO` are the seeds.
#[test]
#[ignore = "300 strikes take minutes: `make test-long` runs it"]
fn more_processes_killed_at_random_times_lose_nothing_that_was_promised() {
    let seeds = std::env::var("ENTRESOL_BURST_SEEDS").unwrap_or_else(|_| "1000..1100".to_owned());
    let (from, to) = seeds.split_once("..").expect("FROM..TO");
    run_all(from.parse().expect("a seed")..to.parse().expect("a seed"));
}
