//! Processes that are killed, or stopped, at random times while checkpoints are written: the daemons and the writers are
//! processes of this test's own program.
//!
//! - A checkpoint that is called complete restores.
//! - One that every rank was told is replicated or durable is restored after the loss of one node.
//! - A manifest on the PFS names parts that have the bytes of the writers.
//! - No writer waits longer than ten seconds.

mod common;

use common::processes::{
    Checked, CoordinatorProcess, NodeProcess, Process, RANKS, WriterProcess, acknowledged, check_complete, check_drain,
    check_listed, check_manifests, client, play, wait_for_nodes,
};
use entresol_burst_live::client::{Client, Level};
use entresol_burst_live::pfs::Directory;
use entresol_core::Random;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const ROUNDS: u64 = 3;
const POLICIES: [&str; 5] = [
    "cdbb:redundancy=partner",
    "chunked:chunk=1MiB",
    "ldbb:redundancy=partner",
    "cdbb",
    "chunked:chunk=1MiB:drain=fair",
];

/// Body of the processes that the tests start.
#[test]
#[ignore = "a process that other tests of this file start; it ends at once without their arguments"]
fn process() {
    play();
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
        let nodes = (0..RANKS as usize).map(|node| start_node(scratch.path(), &address, node)).collect();
        Testbed { scratch, policy, address, coordinator, nodes, pfs, random }
    }

    fn restart_coordinator(&mut self) {
        self.coordinator.kill();
        self.coordinator = coordinator(self.scratch.path(), &self.address, self.policy).0;
    }

    fn restart_node(&mut self, node: usize) {
        self.nodes[node].kill();
        self.nodes[node] = start_node(self.scratch.path(), &self.address, node);
    }

    fn writer(&self, checkpoint: u64, rank: usize, salt: u64) -> Process {
        let pfs = &self.scratch.path().join("pfs");
        WriterProcess { checkpoint, rank, salt, coordinator: &self.address, pfs, stage: None }.start(None)
    }

    fn client(&self, node: u32) -> Client {
        client(&self.address, node, self.pfs.clone())
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
    fn round(&mut self, checkpoint: u64) -> Checked {
        wait_for_nodes(&self.address)?;
        let victim = self.victim();
        self.strike(checkpoint, victim).map_err(|why| format!("{victim:?}: {why}"))
    }

    fn strike(&mut self, checkpoint: u64, victim: Victim) -> Checked {
        let mut writers: Vec<Process> = (0..RANKS as usize).map(|rank| self.writer(checkpoint, rank, 0)).collect();
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
        let mut levels = writers.iter_mut().map(level).collect::<Checked<Vec<Option<Level>>>>()?;
        let mut salts = vec![vec![0]; RANKS as usize];
        if let Victim::Writer(rank) = victim
            && levels[rank].is_none()
        {
            check_complete(&self.client(1), &salts)?;
            // The program starts again, and has computed other bytes.
            levels[rank] = level(&mut self.writer(checkpoint, rank, 1))?;
            salts[rank] = vec![1];
        }
        if levels.iter().any(Option::is_none) {
            return Err(format!("a writer was not acknowledged: {levels:?}"));
        }
        if let Victim::StoppedNode(node) = victim {
            self.nodes[node].kill();
        }
        let safe = levels.iter().all(|level| *level > Some(Level::Absorbed));
        let is_promised = safe || victim.node().is_none();
        if is_promised {
            check_listed(&self.client(0), checkpoint)?;
        }
        check_complete(&self.client(1), &salts)?;
        if let Some(node) = victim.node() {
            self.restart_node(node);
            wait_for_nodes(&self.address)?;
        }
        if is_promised {
            check_drain(&self.client(0), checkpoint)?;
        }
        check_complete(&self.client(1), &salts)?;
        check_manifests(&*self.pfs)
    }
}

fn level(writer: &mut Process) -> Checked<Option<Level>> {
    Ok(acknowledged(writer)?.map(|(level, _)| level))
}

fn coordinator(scratch: &Path, listen: &str, policy: &str) -> (Process, String) {
    CoordinatorProcess { listen, state: &scratch.join("state"), policy, lease: None }.start(None)
}

fn start_node(scratch: &Path, coordinator: &str, node: usize) -> Process {
    let pfs = &scratch.join("pfs");
    let node = NodeProcess { node, advertise: None, coordinator, pfs, stage: None, shares: true };
    let mut process = node.start(None);
    process.answer().expect("the node starts");
    process
}

fn run(seed: u64) {
    let mut testbed = Testbed::new(seed);
    for checkpoint in 1..=ROUNDS {
        if let Err(why) = testbed.round(checkpoint) {
            panic!("{}: {why}", testbed.policy);
        }
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
