//! One round: the processes, a fault at a step, and the promises.

use crate::common::processes::{
    Checked, CoordinatorProcess, JOB, NodeProcess, Process, RANKS, WriterProcess, acknowledged, check_complete,
    check_drain, check_listed, check_manifests, client, wait_for_nodes,
};
use crate::director::{Director, Ends, Fault, Role, Route, Step, Trap};
use crate::relay::{DIRECT, DRAIN, Server};
use crate::{JOINS, READS};
use entresol_burst::CheckpointId;
use entresol_burst_live::client::{Client, Level};
use entresol_burst_live::layout;
use entresol_burst_live::message::{FromNode, ToNode};
use entresol_burst_live::pfs::Directory;
use entresol_burst_live::wire::Peer;
use entresol_core::Random;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Policies under which a copy is written.
const WITH_COPIES: [&str; 4] =
    ["cdbb:redundancy=partner", "chunked:chunk=1MiB", "ldbb:redundancy=partner", "chunked:chunk=1MiB:drain=fair"];
/// Times of a cut, or of a failure of the PFS. A lease of [`LEASE`] ends in the second one, and the patience of a node in the third.
const TIMES: [Duration; 3] = [Duration::from_millis(300), Duration::from_millis(2500), Duration::from_secs(6)];
const LEASE: Duration = Duration::from_secs(1);
/// Wait for a step that comes when all writers have ended.
const AFTERWARDS: Duration = Duration::from_secs(5);
/// Longest wait for the report of a failure.
const REPORT: Duration = Duration::from_secs(5);
/// The checkpoint that is struck; the one before is written without faults.
const STRUCK: u64 = 2;

/// Result of a round that holds.
pub struct Outcome {
    /// False if the step was not reached.
    pub is_struck: bool,
    /// Writes that had to be refused, and were.
    pub refused: BTreeMap<&'static str, u64>,
    /// Pieces that writers have filled by themselves.
    pub filled: u64,
    /// Chunks of primaries that writers have sent.
    pub sent: u64,
    /// The longest time of a put.
    pub longest: Duration,
    /// True if a writer was killed before its acknowledgement.
    pub is_put_again: bool,
}

/// Level and time of each rank's put, if it was acknowledged.
type Levels = Vec<Option<(Level, Duration)>>;

pub struct Testbed {
    fault: Fault,
    step: Step,
    policy: &'static str,
    shares: bool,
    lasts: Duration,
    lease: Option<Duration>,
    mutant: Option<String>,
    scratch: tempfile::TempDir,
    director: Arc<Director>,
    stage: Server,
    /// Relays by route.
    relays: BTreeMap<Route, Server>,
    coordinator: Process,
    address: String,
    state: PathBuf,
    second: Option<(Process, String, PathBuf)>,
    nodes: Vec<Process>,
    pfs: Arc<Directory>,
    random: Random,
    longest: Duration,
    is_put_again: bool,
}

impl Testbed {
    /// Starts the processes, and writes a checkpoint without faults.
    pub fn new(seed: u64, fault: Fault, step: Step, mutant: Option<&str>) -> Checked<Testbed> {
        let mut random = Random::new(seed);
        let policy = match step {
            step if DIRECT.contains(&step) => "pfs",
            // One of them without copies, where a step does not need them.
            step => match random.below(5) as usize {
                4 if !["copy", "copied"].contains(&step) => "cdbb",
                one => WITH_COPIES[one % WITH_COPIES.len()],
            },
        };
        let shares = match step {
            "fill" | "filled" => true,
            "write" | "written" => false,
            _ => random.chance(0.5),
        };
        let lasts = TIMES[random.below(3) as usize];
        let is_cut = matches!(fault, Fault::WriterCut | Fault::NodeCut | Fault::CoordinatorCut);
        let lease = (is_cut && lasts == TIMES[1]).then_some(LEASE);
        let scratch = tempfile::tempdir().expect("a directory");
        let root = scratch.path().join("pfs");
        fs::create_dir(&root).expect("a directory");
        let pfs = Arc::new(Directory::open(&root).expect("a directory"));
        let director = Arc::new(Director::default());
        let state = scratch.path().join("state");
        let first = CoordinatorProcess { listen: "127.0.0.1:0", state: &state, policy, lease };
        let (coordinator, address) = first.start(mutant);
        let stage = Server::stage(&director);
        let mut testbed = Testbed {
            fault,
            step,
            policy,
            shares,
            lasts,
            lease,
            mutant: mutant.map(str::to_owned),
            scratch,
            director,
            stage,
            relays: BTreeMap::new(),
            coordinator,
            address,
            state,
            second: None,
            nodes: Vec::new(),
            pfs,
            random,
            longest: Duration::ZERO,
            is_put_again: false,
        };
        testbed.start()?;
        Ok(testbed)
    }

    fn mutant(&self) -> Option<&str> {
        self.mutant.as_deref()
    }

    fn start(&mut self) -> Checked {
        self.director.set_process(Role::Coordinator, &self.coordinator);
        let ranks = RANKS as usize;
        let roles = (0..ranks).flat_map(|rank| [Role::Node(rank), Role::Writer(rank)]);
        let routes = roles.chain([Role::Reader]).map(Route::ToCoordinator).chain((0..ranks).map(Route::ToNode));
        self.relays = routes.map(|route| (route, Server::relay(&self.director, route))).collect();
        self.reach(&self.address);
        for node in 0..ranks {
            let process = self.spawn_node(node);
            self.nodes.push(process);
            self.reach_node(node);
        }
        wait_for_nodes(&self.address)
    }

    /// Has all processes reach one coordinator.
    fn reach(&self, address: &str) {
        let of_coordinator = self.relays.keys().filter(|route| matches!(route, Route::ToCoordinator(_)));
        of_coordinator.for_each(|&route| self.director.set_target(route, address));
    }

    fn relay(&self, route: Route) -> &str {
        &self.relays[&route].address
    }

    fn spawn_node(&self, node: usize) -> Process {
        let process = NodeProcess {
            node,
            advertise: Some(self.relay(Route::ToNode(node))),
            coordinator: self.relay(Route::ToCoordinator(Role::Node(node))),
            pfs: &self.scratch.path().join("pfs"),
            stage: Some(&self.stage.address),
            shares: self.shares,
        };
        self.director.start(Role::Node(node), || process.start(self.mutant()))
    }

    fn reach_node(&mut self, node: usize) {
        reach_node(&self.director, node, &mut self.nodes[node]);
    }

    fn restart_node(&mut self, node: usize) {
        self.nodes[node].kill();
        self.nodes[node] = self.spawn_node(node);
    }

    fn restart_coordinator(&mut self) {
        self.coordinator.kill();
        let again =
            CoordinatorProcess { listen: &self.address, state: &self.state, policy: self.policy, lease: self.lease };
        self.coordinator = again.start(self.mutant()).0;
        self.director.set_process(Role::Coordinator, &self.coordinator);
    }

    /// Starts a second coordinator with a higher epoch, as the supervisor of a host does that cannot reach the first. Nobody
    /// reaches it yet.
    fn start_second(&mut self) {
        let state = self.scratch.path().join("second");
        fs::create_dir(&state).expect("a directory");
        fs::copy(self.state.join("epoch.json"), state.join("epoch.json")).expect("the epoch");
        let second =
            CoordinatorProcess { listen: "127.0.0.1:0", state: &state, policy: self.policy, lease: self.lease };
        let (process, address) = second.start(self.mutant());
        self.director.set_second(&address);
        self.second = Some((process, address, state));
    }

    /// Ends the first coordinator, and has all processes reach the second.
    fn keep_second(&mut self) {
        let Some((process, address, state)) = self.second.take() else { return };
        self.coordinator.kill();
        (self.coordinator, self.address, self.state) = (process, address, state);
        self.director.set_process(Role::Coordinator, &self.coordinator);
        self.reach(&self.address);
    }

    fn writer(&self, checkpoint: u64, rank: usize, salt: u64) -> Process {
        let writer = WriterProcess {
            checkpoint,
            rank,
            salt,
            coordinator: self.relay(Route::ToCoordinator(Role::Writer(rank))),
            pfs: &self.scratch.path().join("pfs"),
            stage: Some(&self.stage.address),
        };
        self.director.start(Role::Writer(rank), || writer.start(self.mutant()))
    }

    fn client(&self) -> Client {
        client(self.relay(Route::ToCoordinator(Role::Reader)), 1, self.pfs.clone())
    }

    /// Runs the round. The strike is made when the step has passed so many times.
    pub fn run(&mut self, passes: u64) -> Checked<Outcome> {
        let checked = self.round(passes);
        let state = format!("{}, shares {}, {:?}, lease {:?}", self.policy, self.shares, self.lasts, self.lease);
        if let Some(why) = self.director.violation() {
            return Err(format!("{state}: {why}"));
        }
        let struck = checked.map_err(|why| format!("{state}: {why}"))?;
        Ok(Outcome {
            is_struck: struck.is_some(),
            refused: self.director.refused(),
            filled: self.director.passed("filled"),
            sent: self.director.passed("written"),
            longest: self.longest,
            is_put_again: self.is_put_again,
        })
    }

    fn round(&mut self, passes: u64) -> Checked<Option<Ends>> {
        let salts = [vec![0], vec![0], vec![0]];
        let first = self.write(STRUCK - 1)?;
        let is_first_safe = is_safe(&first);
        let joins = JOINS.contains(&self.step);
        if joins {
            // A node is started again for these steps, and its buffer is lost.
            check_drain(&self.client(), STRUCK - 1)?;
        }
        if self.fault == Fault::TwoCoordinators {
            self.start_second();
        }
        let trap = Trap {
            fault: self.fault,
            step: self.step,
            after: passes,
            lasts: self.lasts,
            // A lease ends only if the message waits.
            is_silent: self.lease.is_some() || self.random.chance(0.5),
            sides: std::array::from_fn(|_| self.random.chance(0.5)),
        };
        let (levels, struck) = if READS.contains(&self.step) {
            self.director.fill_pfs();
            let levels = self.write(STRUCK)?;
            self.director.arm(trap);
            (levels, self.read(&salts)?)
        } else {
            self.director.arm(trap);
            let node = self.random.below(RANKS.into()) as usize;
            if joins {
                self.restart_node(node);
            }
            self.strike(joins.then_some(node))?
        };
        let lost = struck.filter(|_| self.fault == Fault::NodeKilled).and_then(|ends| ends.node);
        self.check(struck, lost, is_first_safe, levels)?;
        Ok(struck)
    }

    /// Writes a checkpoint without faults.
    fn write(&self, checkpoint: u64) -> Checked<Levels> {
        let mut writers: Vec<Process> = (0..RANKS as usize).map(|rank| self.writer(checkpoint, rank, 0)).collect();
        let levels = writers.iter_mut().map(acknowledged).collect::<Checked<Levels>>()?;
        match levels.iter().all(Option::is_some) {
            true => Ok(levels),
            false => Err(format!("a writer was not acknowledged: {levels:?}")),
        }
    }

    /// Writes a checkpoint while the fault is made, and while a node joins.
    fn strike(&mut self, joining: Option<usize>) -> Checked<(Levels, Option<Ends>)> {
        let mut writers: Vec<Process> = (0..RANKS as usize).map(|rank| self.writer(STRUCK, rank, 0)).collect();
        let (ended, director) = (AtomicUsize::new(0), Arc::clone(&self.director));
        let mut nodes = std::mem::take(&mut self.nodes);
        let wait = |writer: &mut Process| {
            let level = acknowledged(writer);
            ended.fetch_add(1, Ordering::SeqCst);
            level
        };
        let wait = &wait;
        let written = std::thread::scope(|scope| {
            if let Some(node) = joining {
                let (process, director) = (&mut nodes[node], &director);
                scope.spawn(move || reach_node(director, node, process));
            }
            let waits: Vec<_> = writers.iter_mut().map(|writer| scope.spawn(move || wait(writer))).collect();
            let mut end = None;
            let struck = loop {
                let struck = director.struck(Duration::from_millis(10));
                if ended.load(Ordering::SeqCst) == RANKS as usize {
                    end = end.or(Some(Instant::now()));
                }
                if struck.is_some() || end.is_some_and(|end| end.elapsed() > AFTERWARDS) {
                    break struck;
                }
            };
            self.follow_up(struck);
            let levels = waits.into_iter().map(|wait| wait.join().expect("it ends"));
            Ok((levels.collect::<Checked<Levels>>()?, struck))
        });
        self.nodes = nodes;
        written
    }

    /// The supervisor's part: a coordinator that was killed starts again.
    fn follow_up(&mut self, struck: Option<Ends>) {
        if struck.is_some() && self.fault == Fault::CoordinatorKilled {
            std::thread::sleep(Duration::from_millis(self.random.below(300)));
            self.restart_coordinator();
        }
    }

    /// Restores the newest checkpoint while the fault is made.
    fn read(&mut self, salts: &[Vec<u64>]) -> Checked<Option<Ends>> {
        let reader = self.client();
        let (read, struck) = std::thread::scope(|scope| {
            let read = scope.spawn(|| check_complete(&reader, salts));
            let struck = loop {
                let struck = self.director.struck(Duration::from_millis(10));
                if struck.is_some() || read.is_finished() {
                    break struck;
                }
            };
            self.follow_up(struck);
            (read.join().expect("it ends"), struck)
        });
        // The reader may have no answer from a coordinator that it cannot reach. Bytes are another matter.
        match read {
            Err(why) if why.contains("differs") || why.contains("checksum") => Err(why),
            Err(why) if self.policy != "cdbb" && self.fault == Fault::NodeKilled => Err(why),
            _ => Ok(struck),
        }
    }

    fn check(&mut self, struck: Option<Ends>, lost: Option<usize>, is_first_safe: bool, mut levels: Levels) -> Checked {
        let mut salts = vec![vec![0]; RANKS as usize];
        self.check_reported(struck)?;
        if self.fault == Fault::PfsStalled {
            // The bytes are in buffers, whatever the PFS does.
            self.check_listed_and_whole(&levels, &salts)?;
        }
        self.director.mend();
        self.keep_second();
        let writer = struck.filter(|_| self.fault == Fault::WriterKilled).and_then(|ends| ends.writer);
        if let Some(rank) = writer.filter(|&rank| levels[rank].is_none()) {
            check_complete(&self.client(), &salts)?;
            // The program starts again, and has computed other bytes.
            levels[rank] = acknowledged(&mut self.writer(STRUCK, rank, 1))?;
            salts[rank] = vec![1];
            self.is_put_again = true;
        }
        if levels.iter().any(Option::is_none) {
            return Err(format!("a writer was not acknowledged: {levels:?}"));
        }
        self.longest = levels.iter().flatten().map(|(_, took)| *took).max().unwrap_or_default();
        if lost.is_none() {
            wait_for_nodes(&self.address)?;
        }
        let is_promised = |is_safe: bool| is_safe || lost.is_none();
        let of_checkpoints = [(STRUCK - 1, is_promised(is_first_safe)), (STRUCK, is_promised(is_safe(&levels)))];
        let promised: Vec<u64> = of_checkpoints.into_iter().filter(|(_, is)| *is).map(|(of, _)| of).collect();
        let client = self.client();
        promised.iter().try_for_each(|&checkpoint| check_listed(&client, checkpoint))?;
        check_complete(&client, &salts)?;
        if let Some(node) = lost {
            self.restart_node(node);
            self.reach_node(node);
            wait_for_nodes(&self.address)?;
        }
        promised.iter().try_for_each(|&checkpoint| check_drain(&client, checkpoint))?;
        check_complete(&client, &salts)?;
        check_manifests(&*self.pfs)?;
        self.check_alone(&promised)
    }

    fn check_listed_and_whole(&self, levels: &Levels, salts: &[Vec<u64>]) -> Checked {
        if levels.iter().all(Option::is_some) {
            check_listed(&self.client(), STRUCK)?;
        }
        check_complete(&self.client(), salts)
    }

    /// Checks that the node that met a failure of the PFS says so.
    fn check_reported(&self, struck: Option<Ends>) -> Checked {
        let is_failure = matches!(self.fault, Fault::PfsFull | Fault::PfsError) && DRAIN.contains(&self.step);
        let Some(node) = struck.filter(|_| is_failure).and_then(|ends| ends.node) else { return Ok(()) };
        let until = Instant::now() + REPORT;
        loop {
            let peer = Peer::connect(self.relay(Route::ToNode(node)), REPORT);
            let answer = peer.and_then(|peer| peer.call::<FromNode>(&ToNode::Status, &[], REPORT));
            match answer {
                Ok((FromNode::Status(status), _)) if status.pfs_failures > 0 => return Ok(()),
                other if Instant::now() >= until => {
                    return Err(format!("node {node} does not report the failure: {other:?}"));
                }
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Checks that what was promised is durable on the PFS alone.
    fn check_alone(&self, promised: &[u64]) -> Checked {
        for &checkpoint in promised {
            let checkpoint = CheckpointId(checkpoint);
            let parts = layout::parts(&*self.pfs, JOB, checkpoint).map_err(|error| error.to_string())?;
            let durable = layout::is_durable(&*self.pfs, JOB, checkpoint, &parts);
            if !durable.map_err(|error| error.to_string())? {
                return Err(format!("{checkpoint:?} is drained, and not durable on the PFS"));
            }
        }
        Ok(())
    }
}

impl Drop for Testbed {
    /// Ends the processes first: the relays end with their connections.
    fn drop(&mut self) {
        self.nodes.clear();
        self.director.mend();
        self.director.close_all();
    }
}

/// Has the relay of a node reach it. One that was killed at its start has no address.
fn reach_node(director: &Director, node: usize, process: &mut Process) {
    if let Some(address) = process.answer() {
        director.set_target(Route::ToNode(node), &address);
    }
}

/// True if all ranks are in more than one node's memory.
fn is_safe(levels: &Levels) -> bool {
    levels.iter().flatten().all(|(level, _)| *level > Level::Absorbed)
}
