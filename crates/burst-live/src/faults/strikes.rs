//! One schedule: writers write checkpoints, the driver strikes, repairs, and checks.

use super::cluster::{COORDINATOR, Cluster, Mutants, NODES};
use super::files::CALLS;
use super::oracle::{JOB, Oracle, RANKS, contents, object};
use super::schedule::{Caught, Process, Trap};
use crate::client::{CheckpointState, Client, State};
use crate::layout;
use crate::server::lock;
use crate::{CHUNK_BYTES, clock};
use entresol_burst::{CheckpointId, Kind, Object, Policy};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const POLICIES: [&str; 7] = [
    "cdbb:redundancy=partner",
    "chunked",
    "ldbb:redundancy=partner",
    "cdbb",
    "chunked:drain=fair",
    "chunked:order=fifo",
    "pfs",
];

/// Steps at which the driver waits to strike.
pub const STEPS: [&str; 22] = [
    "open",
    "granted",
    "write",
    "written",
    "copy",
    "copied",
    "store",
    "stored",
    "commit",
    "committed",
    "report",
    "reported",
    "events",
    "orders",
    "folder",
    "create",
    "bytes",
    "sync",
    "rename",
    "sync names",
    "read",
    "list",
];

/// Longest time in which faults last, in milliseconds.
const ENDURED_MS: u64 = 20_000;
/// Longest wait for a step.
const TRAP: Duration = Duration::from_millis(400);
/// Longest time in which all writers end after the repairs.
const END: Duration = Duration::from_secs(60);
/// Time in which everything is durable after the repairs.
const DRAIN: Duration = Duration::from_secs(60);
/// Tries of a program that was told that its bytes are stored nowhere.
const TRIES_MAX: usize = 300;

/// A fault that the driver makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strike {
    KillWriter,
    KillNode,
    KillCoordinator,
    KillNodeAndCoordinator,
    PowerLoss,
    LinkDown,
    HostUnreachable,
    TwoCoordinators,
    PfsFull,
    PfsError,
    PfsStalled,
}

const STRIKES: [Strike; 11] = [
    Strike::KillWriter,
    Strike::KillNode,
    Strike::KillCoordinator,
    Strike::KillNodeAndCoordinator,
    Strike::PowerLoss,
    Strike::LinkDown,
    Strike::HostUnreachable,
    Strike::TwoCoordinators,
    Strike::PfsFull,
    Strike::PfsError,
    Strike::PfsStalled,
];

#[derive(Clone, Copy, Debug)]
enum Repair {
    Node(usize),
    Writer(usize),
    Coordinator,
    OneCoordinator,
    Pfs,
}

/// Counts of one schedule.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Faults by kind.
    pub strikes: BTreeMap<Strike, u64>,
    /// Faults made as a process was about to make a step, by the step.
    pub struck: BTreeMap<&'static str, u64>,
    /// Acknowledged puts by level, the weakest first.
    pub acknowledged: [u64; 3],
    /// Checkpoints that had to be complete after the repairs.
    pub promised: u64,
    /// Restored objects whose bytes were compared.
    pub restored: u64,
    /// Objects under manifests whose bytes were compared.
    pub manifests: u64,
    /// Calls of the PFS that failed.
    pub pfs_failures: u64,
    /// Steps of all threads.
    pub steps: u64,
    /// Virtual time.
    pub time: Duration,
    /// The longest time of a writer without progress that no stalled PFS excuses.
    pub blocked: Duration,
}

impl Counts {
    /// Adds the counts of another schedule.
    pub fn add(&mut self, other: &Counts) {
        other.strikes.iter().for_each(|(strike, count)| *self.strikes.entry(*strike).or_default() += count);
        other.struck.iter().for_each(|(step, count)| *self.struck.entry(step).or_default() += count);
        (0..3).for_each(|level| self.acknowledged[level] += other.acknowledged[level]);
        self.promised += other.promised;
        self.restored += other.restored;
        self.manifests += other.manifests;
        self.pfs_failures += other.pfs_failures;
        self.steps += other.steps;
        self.time += other.time;
        self.blocked = self.blocked.max(other.blocked);
    }
}

type Checked = Result<(), String>;
type Check = fn(&Oracle, Object, &[u8], u64) -> Checked;

struct Testbed {
    cluster: Arc<Cluster>,
    checkpoints: u64,
    bytes_max: u64,
    /// Number of the current start of each writer.
    writers: [usize; NODES],
    repairs: Vec<(Duration, Repair)>,
    counts: Counts,
}

/// Runs the schedule of a seed.
///
/// # Errors
/// The first promise that was broken.
pub fn run(seed: u64, mutants: Mutants) -> Result<Counts, String> {
    let mut testbed = Testbed::new(seed, mutants);
    let result = testbed.run();
    let cluster = Arc::clone(&testbed.cluster);
    (testbed.counts.steps, testbed.counts.time) = cluster.schedule.length();
    cluster.end();
    testbed.counts.acknowledged = lock(&cluster.oracle).acknowledged;
    testbed.counts.blocked = lock(&cluster.oracle).blocked;
    testbed.counts.pfs_failures = cluster.pfs.failed();
    let strikes = testbed.counts.strikes.keys().collect::<Vec<_>>();
    let why = |why: String| format!("{}: {strikes:?}: {why}", cluster.policy);
    match (cluster.schedule.violation(), result) {
        (Some(violation), _) => Err(why(violation)),
        (None, Err(violation)) => Err(why(violation)),
        (None, Ok(())) => Ok(testbed.counts),
    }
}

/// The program of one rank: it puts each checkpoint that it has not put, until it succeeds. One that starts again may
/// put its newest checkpoint again.
fn program(cluster: &Arc<Cluster>, rank: usize, start: usize, checkpoints: u64, bytes_max: u64) {
    let client = cluster.client(Some(rank), true);
    let salt = start as u64;
    let is_put = |&checkpoint: &u64| lock(&cluster.oracle).is_acknowledged(object(checkpoint, rank));
    let newest = (1..=checkpoints).rev().find(is_put);
    if let Some(newest) = newest.filter(|_| start > 0 && cluster.schedule.chance(0.5)) {
        put(cluster, &client, object(newest, rank), salt, bytes_max);
    }
    for checkpoint in 1..=checkpoints {
        let object = object(checkpoint, rank);
        let mut tries = 0;
        while !lock(&cluster.oracle).is_acknowledged(object) && tries < TRIES_MAX {
            tries += 1;
            put(cluster, &client, object, salt, bytes_max);
        }
    }
}

fn put(cluster: &Cluster, client: &Client, object: Object, salt: u64, bytes_max: u64) {
    let starts = std::array::from_fn(|node| cluster.node(node).0);
    lock(&cluster.oracle).begins(object, salt, starts, cluster.schedule.now());
    let result = client.put(object, RANKS, &contents(object, salt, bytes_max));
    if let Err(why) = lock(&cluster.oracle).progress(object, cluster.schedule.now()) {
        cluster.schedule.violated(why);
    }
    match result {
        Ok(acknowledged) => {
            if let Err(why) = lock(&cluster.oracle).acknowledged(object, acknowledged) {
                cluster.schedule.violated(why);
            }
        }
        Err(_) => clock::sleep(Duration::from_millis(200)),
    }
}

impl Testbed {
    fn new(seed: u64, mutants: Mutants) -> Testbed {
        let mut random = entresol_core::Random::new(entresol_core::Random::mix(seed));
        let text = POLICIES[random.below(POLICIES.len() as u64) as usize];
        let mut policy: Policy = text.parse().expect(text);
        if policy.kind == Kind::Chunked {
            policy.chunk_bytes = Some(50 + random.below(150));
        }
        let capacity = [300, 700, 2000][random.below(3) as usize];
        let lease_ns = [400_000_000, 5_000_000_000, 600_000_000_000][random.below(3) as usize];
        let (bytes_max, checkpoints) = (1 + random.below(400), 1 + random.below(3));
        let cluster = Cluster::new(seed, policy, capacity, lease_ns, mutants);
        Testbed { cluster, checkpoints, bytes_max, writers: [0; NODES], repairs: Vec::new(), counts: Counts::default() }
    }

    fn run(&mut self) -> Checked {
        self.cluster.start_coordinator(|_| true);
        (0..NODES).for_each(|node| self.cluster.start_node(node));
        clock::sleep(self.time(300));
        (0..NODES).for_each(|rank| self.start_writer(rank));
        for _ in 0..self.below(4) {
            let caught = self.wait_to_strike();
            if let Some(caught) = caught {
                *self.counts.struck.entry(caught.step).or_default() += 1;
            }
            self.strike(caught);
            if self.chance(0.2) {
                self.check_complete()?;
            }
        }
        if self.chance(0.25) {
            self.endure();
        }
        self.repair_all()?;
        self.check_promised()?;
        if self.chance(0.5) {
            let node = self.below(NODES as u64) as usize;
            self.lose_power(node);
            self.wait_for_loss();
            self.check_promised()?;
            self.repair_all()?;
        }
        self.drain()?;
        self.check_manifests()?;
        self.restart_all()
    }

    fn below(&self, bound: u64) -> u64 {
        self.cluster.schedule.below(bound)
    }

    fn chance(&self, probability: f64) -> bool {
        self.cluster.schedule.chance(probability)
    }

    /// A time below a number of milliseconds.
    fn time(&self, milliseconds: u64) -> Duration {
        Duration::from_micros(self.below(milliseconds * 1000))
    }

    fn start_writer(&mut self, rank: usize) {
        let cluster = Arc::clone(&self.cluster);
        let (start, checkpoints, bytes_max) = (self.writers[rank], self.checkpoints, self.bytes_max);
        let work = move || program(&cluster, rank, start, checkpoints, bytes_max);
        self.cluster.spawn(Process::Writer(rank, start), work);
    }

    /// Starts a program again, which may die once more at its first steps.
    fn restart_writer(&mut self, rank: usize) {
        self.start_writer(rank);
        let step = ["granted", "written", "stored"][self.below(3) as usize];
        let trap = Trap { of: Some(Process::Writer(rank, self.writers[rank])), step, after: 0 };
        if self.chance(0.3) && self.cluster.schedule.wait_for(trap, Duration::from_millis(20)).is_some() {
            self.stop_writer(rank);
        }
    }

    /// Waits for a random time, or until a process is about to make a random step. Repairs meanwhile that are due.
    fn wait_to_strike(&mut self) -> Option<Caught> {
        let caught = if self.chance(0.7) {
            let trap = Trap {
                of: None,
                step: STEPS[self.below(STEPS.len() as u64) as usize],
                after: self.below(1 << self.below(5)),
            };
            self.cluster.schedule.wait_for(trap, TRAP)
        } else {
            clock::sleep(self.time(80));
            None
        };
        self.repair_due();
        caught
    }

    fn repair_due(&mut self) {
        let now = self.cluster.schedule.now();
        let due = self.repairs.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>();
        due.into_iter().for_each(|(_, repair)| self.repair(repair));
    }

    /// Lets the faults last. Repairs what is due meanwhile.
    fn endure(&mut self) {
        let until = self.cluster.schedule.now() + self.time(ENDURED_MS);
        while self.cluster.schedule.now() < until {
            clock::sleep(Duration::from_millis(100));
            self.repair_due();
        }
    }

    /// A random fault and its node: rather one of the processes that were caught.
    fn choose(&self, caught: Option<Caught>) -> (Strike, usize) {
        let strike = match caught {
            Some(caught) if self.chance(0.6) => {
                let peer = caught.peer.filter(|_| self.chance(0.5));
                match peer.unwrap_or(caught.process) {
                    Process::Writer(rank, _) => return (Strike::KillWriter, rank),
                    Process::Node(node, _) if self.chance(0.5) => return (Strike::KillNode, node),
                    Process::Node(node, _) => return (Strike::PowerLoss, node),
                    Process::Coordinator(_) => Strike::KillCoordinator,
                    Process::Driver => Strike::LinkDown,
                }
            }
            _ => STRIKES[self.below(STRIKES.len() as u64) as usize],
        };
        (strike, self.below(NODES as u64) as usize)
    }

    fn strike(&mut self, caught: Option<Caught>) {
        let (strike, one) = self.choose(caught);
        *self.counts.strikes.entry(strike).or_default() += 1;
        let now = self.cluster.schedule.now();
        match strike {
            Strike::KillWriter => self.stop_writer(one),
            Strike::KillNode => self.stop_node(one),
            Strike::PowerLoss => self.lose_power(one),
            Strike::KillCoordinator => self.kill_coordinator(),
            Strike::KillNodeAndCoordinator => {
                self.kill_coordinator();
                self.stop_node(one);
            }
            Strike::LinkDown => {
                let other = (one + 1 + self.below(NODES as u64) as usize) % (NODES + 1);
                let (one, other) = caught.and_then(Caught::hosts).unwrap_or((one, other));
                let longest = [1_000, 12_000][self.below(2) as usize];
                self.cluster.cut(one, other, now + self.time(longest));
            }
            Strike::HostUnreachable => {
                let host = self.below(NODES as u64 + 1) as usize;
                let until = now + self.time(12_000);
                (0..=COORDINATOR).filter(|&it| it != host).for_each(|it| self.cluster.cut(host, it, until));
            }
            Strike::TwoCoordinators => {
                let sides = self.below(1 << NODES);
                self.cluster.start_coordinator(|host| host >= NODES || sides >> host & 1 == 1);
                self.plan(4_000, Repair::OneCoordinator);
            }
            Strike::PfsFull => {
                self.cluster.pfs.set_full(true);
                self.plan(12_000, Repair::Pfs);
            }
            Strike::PfsError => self.cluster.pfs.fail(CALLS[self.below(CALLS.len() as u64) as usize]),
            Strike::PfsStalled => {
                let until = now + self.time(15_000);
                self.cluster.pfs.stall(until);
                lock(&self.cluster.oracle).stalls(now, until);
            }
        }
    }

    fn plan(&mut self, milliseconds: u64, repair: Repair) {
        let at = self.cluster.schedule.now() + self.time(milliseconds);
        self.repairs.push((at, repair));
    }

    fn stop_writer(&mut self, rank: usize) {
        let process = Process::Writer(rank, self.writers[rank]);
        if self.cluster.schedule.is_running(process) {
            self.cluster.kill(process);
            self.writers[rank] += 1;
            self.plan(500, Repair::Writer(rank));
        }
    }

    fn stop_node(&mut self, node: usize) {
        if let (start, true) = self.cluster.node(node) {
            self.cluster.kill(Process::Node(node, start));
            self.plan(3_000, Repair::Node(node));
        }
    }

    /// A host loses its power: its node, its writer, and what it has written to the PFS and not synced.
    fn lose_power(&mut self, host: usize) {
        self.stop_node(host);
        self.stop_writer(host);
        self.cluster.pfs.lose_power(|it| it == host);
    }

    fn kill_coordinator(&mut self) {
        if self.cluster.is_coordinator_alive() {
            self.cluster.kill(Process::Coordinator(self.cluster.newest()));
            self.plan(3_000, Repair::Coordinator);
        }
    }

    fn repair(&mut self, repair: Repair) {
        match repair {
            Repair::Node(node) => self.cluster.start_node(node),
            Repair::Writer(rank) => self.restart_writer(rank),
            Repair::Coordinator if !self.cluster.is_coordinator_alive() => self.cluster.start_coordinator(|_| true),
            Repair::Coordinator => {}
            Repair::OneCoordinator => self.cluster.reach_newest(),
            Repair::Pfs => self.cluster.pfs.set_full(false),
        }
    }

    /// Repairs everything, and waits until all writers have ended and all nodes have reported.
    fn repair_all(&mut self) -> Checked {
        self.cluster.mend_links();
        self.cluster.pfs.heal();
        let mut repairs = std::mem::take(&mut self.repairs);
        repairs.sort_by_key(|(at, _)| *at);
        for (_, repair) in repairs {
            self.repair(repair);
        }
        self.cluster.reach_newest();
        let until = self.cluster.schedule.now() + END;
        let writing = |testbed: &Testbed| {
            let mut ranks = (0..NODES).map(|rank| Process::Writer(rank, testbed.writers[rank]));
            ranks.any(|writer| testbed.cluster.schedule.is_running(writer))
        };
        while writing(self) {
            if self.cluster.schedule.now() >= until {
                return Err("a writer does not end".to_owned());
            }
            clock::sleep(Duration::from_millis(200));
        }
        self.wait_for_nodes()
    }

    fn wait_for_nodes(&self) -> Checked {
        let until = self.cluster.schedule.now() + END;
        while !self.cluster.all_present() {
            if self.cluster.schedule.now() >= until {
                return Err("the nodes do not report".to_owned());
            }
            clock::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Waits until the coordinator knows that a node is lost.
    fn wait_for_loss(&self) {
        clock::sleep(Duration::from_millis(500));
    }

    fn client(&self) -> Client {
        self.cluster.client(None, true)
    }

    /// Restores every rank of all checkpoints that are called complete now. A node that is out of reach may have newer
    /// bytes.
    fn check_complete(&mut self) -> Checked {
        let client = self.client();
        // While faults last there may be no answer.
        let Ok((states, _)) = client.list(JOB) else { return Ok(()) };
        self.check_all(&client, &states, Oracle::check_some_bytes)
    }

    /// Restores every rank of the checkpoints that a list calls complete. A writer that was not acknowledged may have
    /// begun again since the list; that excuses bytes that are missing, and none that are wrong.
    fn check_all(&mut self, client: &Client, states: &[CheckpointState], check: Check) -> Checked {
        for state in states.iter().filter(|state| state.state != State::Incomplete) {
            let is_settled = |testbed: &Testbed| lock(&testbed.cluster.oracle).is_settled(state.checkpoint);
            let was_settled = is_settled(self);
            let checked = self.check_checkpoint(client, state.checkpoint, check);
            let is_fault = |why: &str| was_settled && is_settled(self) || why.contains("checksum");
            checked.or_else(|why| if is_fault(&why) { Err(why) } else { Ok(()) })?;
        }
        Ok(())
    }

    fn check_checkpoint(&mut self, client: &Client, checkpoint: CheckpointId, check: Check) -> Checked {
        for rank in 0..RANKS {
            let restored = client.restore(JOB, Some(checkpoint), rank);
            let restored = restored.map_err(|error| format!("called complete, and does not restore: {error}"))?;
            let object = Object { job: JOB, checkpoint, rank };
            check(&lock(&self.cluster.oracle), object, &restored.bytes, self.bytes_max)?;
            self.counts.restored += 1;
        }
        Ok(())
    }

    /// Restores every promised checkpoint, and all others that are called complete.
    fn check_promised(&mut self) -> Checked {
        let promised = lock(&self.cluster.oracle).promised();
        self.counts.promised += promised.len() as u64;
        let client = self.client();
        self.check_listed(&client, &promised)
    }

    fn check_listed(&mut self, client: &Client, promised: &[CheckpointId]) -> Checked {
        let (states, missing) = client.list(JOB).map_err(|error| format!("no list: {error}"))?;
        for &checkpoint in promised {
            let state = states.iter().find(|state| state.checkpoint == checkpoint).map(|state| state.state);
            if !matches!(state, Some(State::Complete(_))) {
                return Err(format!("{checkpoint:?} was promised and is {state:?}: {states:?} {missing:?}"));
            }
        }
        self.check_all(client, &states, Oracle::check_bytes)
    }

    /// Drains everything, and checks that all space returns.
    fn drain(&mut self) -> Checked {
        let promised = lock(&self.cluster.oracle).promised();
        for checkpoint in promised {
            let left = self.client().drain(JOB, Some(checkpoint), DRAIN).map_err(|error| error.to_string())?;
            if !left.is_empty() {
                return Err(format!("not drained: {left:?}"));
            }
        }
        let until = self.cluster.schedule.now() + Duration::from_secs(20);
        while self.cluster.granted()? > 0 && self.cluster.lease_ns < 10_000_000_000 {
            if self.cluster.schedule.now() >= until {
                return Err(format!("{} bytes stay granted", self.cluster.granted()?));
            }
            clock::sleep(Duration::from_millis(500));
        }
        Ok(())
    }

    /// Compares the bytes of all files that manifests name.
    fn check_manifests(&mut self) -> Checked {
        let pfs = self.cluster.directory(COORDINATOR);
        let failed = |error: std::io::Error| format!("a manifest does not read: {error}");
        for checkpoint in layout::checkpoints(&pfs, JOB).map_err(failed)? {
            let Some(manifest) = layout::manifest(&pfs, JOB, checkpoint).map_err(failed)? else { continue };
            if (manifest.ranks, manifest.objects.len()) != (RANKS, RANKS as usize) {
                return Err(format!("the manifest of {checkpoint:?} lacks ranks"));
            }
            for of in manifest.objects {
                let mut bytes = Vec::new();
                for part in of.parts {
                    if (part.offset, part.chunk_bytes) != (bytes.len() as u64, CHUNK_BYTES) {
                        return Err(format!("the manifest of {checkpoint:?} has a gap in rank {}", of.rank));
                    }
                    let folder = layout::folder(JOB, checkpoint);
                    bytes.extend(crate::pfs::Pfs::read(&pfs, &folder, &part.file, 0, part.bytes).map_err(failed)?);
                }
                let object = Object { job: JOB, checkpoint, rank: of.rank };
                lock(&self.cluster.oracle).check_some_bytes(object, &bytes, self.bytes_max)?;
                self.counts.manifests += 1;
            }
        }
        Ok(())
    }

    /// Takes the power of all, and checks that what was promised is durable on the PFS alone.
    fn restart_all(&mut self) -> Checked {
        let promised = lock(&self.cluster.oracle).promised();
        for node in 0..NODES {
            self.stop_node(node);
        }
        self.kill_coordinator();
        self.cluster.pfs.lose_power(|_| true);
        let client = self.cluster.client(None, false);
        self.check_listed(&client, &promised)?;
        self.check_manifests()
    }
}
