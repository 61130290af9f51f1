//! Daemons and writers that are processes of the test's own program, and the promises that are checked when some of them
//! were struck.

use super::stage::Staged;
use entresol_burst::{CheckpointId, JobId, NodeId, Object};
use entresol_burst_live::client::{Client, ClientSettings, Level, PATIENCE, State};
use entresol_burst_live::message::{FromCoordinator, ToCoordinator};
use entresol_burst_live::pfs::{Directory, Pfs};
use entresol_burst_live::wire::Peer;
use entresol_burst_live::{CHUNK_BYTES, CoordinatorDaemon, CoordinatorSettings, NodeDaemon, NodeSettings, layout};
use entresol_core::Random;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io::{BufRead, BufReader};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The job of all checkpoints.
pub const JOB: JobId = JobId(3);
/// Number of ranks of every checkpoint, and of nodes: rank 0 is on node 0, and so on.
pub const RANKS: u32 = 3;
const CAPACITY: u64 = 24 << 20;
/// Longest time that a writer may be blocked.
const BLOCKED_MAX: Duration = Duration::from_secs(10);
const LEVELS: [Level; 3] = [Level::Absorbed, Level::Replicated, Level::Durable];
const ARGUMENTS: &str = "ENTRESOL_BURST_PROCESS";
const MUTANT: &str = "ENTRESOL_BURST_LEFT_OUT";

/// A promise that holds, or the way in which it was broken.
pub type Checked<T = ()> = Result<T, String>;

/// A process of this program, killed when it is dropped.
pub struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a process, from which a step may be left out. The test `process` of this program is its body.
    pub fn start(arguments: &[String], mutant: Option<&str>) -> Process {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["process", "--exact", "--ignored", "--nocapture"]);
        command.env(ARGUMENTS, arguments.join("\n"));
        command.env(MUTANT, mutant.unwrap_or_default());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a process");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Process { child, output }
    }

    /// The first line that begins with `=`, without it; none if the process ends before.
    pub fn answer(&mut self) -> Option<String> {
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

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("it is a child");
        self.child.wait().expect("it ends");
    }

    pub fn stop(&self) {
        kill_process(self.pid(), Signal::STOP).expect("it is a child");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// True if a process is a child that has not ended.
pub fn is_running(child: Pid) -> bool {
    let ended = waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG);
    matches!(ended, Ok(None))
}

/// Kills a child, and waits until it runs no more. Its number stays its own until [`Process::kill`].
pub fn kill_and_keep(child: Pid) {
    kill_process(child, Signal::KILL).expect("it is a child");
    let ended = waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    ended.expect("it is a child");
}

/// A coordinator process.
pub struct CoordinatorProcess<'a> {
    pub listen: &'a str,
    pub state: &'a Path,
    pub policy: &'a str,
    /// Length of a lease; none is the usual one.
    pub lease: Option<Duration>,
}

impl CoordinatorProcess<'_> {
    /// Starts it, and returns its address too.
    pub fn start(&self, mutant: Option<&str>) -> (Process, String) {
        let lease_ns = self.lease.map_or(entresol_burst::LEASE_NS, |lease| lease.as_nanos() as u64);
        let [listen, state, policy] = [self.listen, &text(self.state), self.policy].map(str::to_owned);
        let arguments = ["coordinator".to_owned(), listen, state, policy, lease_ns.to_string()];
        let mut process = Process::start(&arguments, mutant);
        let address = process.answer().expect("the coordinator starts");
        (process, address)
    }
}

/// A node process.
pub struct NodeProcess<'a> {
    pub node: usize,
    /// Address that writers are given; none is that of the process.
    pub advertise: Option<&'a str>,
    pub coordinator: &'a str,
    pub pfs: &'a Path,
    /// Address of the stage of its calls to the PFS, if there is one.
    pub stage: Option<&'a str>,
    /// True if writers beside it may fill its memory by themselves.
    pub shares: bool,
}

impl NodeProcess<'_> {
    /// Starts it. Its answer is its address.
    pub fn start(&self, mutant: Option<&str>) -> Process {
        let [advertise, stage] = [self.advertise, self.stage].map(|it| it.unwrap_or_default().to_owned());
        let (coordinator, shares) = (self.coordinator.to_owned(), self.shares.to_string());
        let arguments =
            ["node".to_owned(), self.node.to_string(), coordinator, text(self.pfs), advertise, stage, shares];
        Process::start(&arguments, mutant)
    }
}

/// A process that writes one rank of a checkpoint. It prints the level and the time.
pub struct WriterProcess<'a> {
    pub checkpoint: u64,
    pub rank: usize,
    /// Number of the bytes: a program that starts again has computed others.
    pub salt: u64,
    pub coordinator: &'a str,
    pub pfs: &'a Path,
    /// Address of the stage of its calls to the PFS, if there is one.
    pub stage: Option<&'a str>,
}

impl WriterProcess<'_> {
    pub fn start(&self, mutant: Option<&str>) -> Process {
        let numbers = [self.checkpoint, self.rank as u64, self.salt].map(|number| number.to_string());
        let [checkpoint, rank, salt] = numbers;
        let (coordinator, stage) = (self.coordinator.to_owned(), self.stage.unwrap_or_default().to_owned());
        let arguments = ["writer".to_owned(), checkpoint, rank, salt, coordinator, text(self.pfs), stage];
        Process::start(&arguments, mutant)
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Body of the processes; it returns at once in a process that none of these has started.
pub fn play() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let mutant = std::env::var(MUTANT).unwrap_or_default();
    if !mutant.is_empty() {
        assert!(entresol_burst_live::leave_out(&mutant) || entresol_burst::leave_out(&mutant), "{mutant}");
    }
    let arguments: Vec<&str> = arguments.split('\n').collect();
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    match arguments[..] {
        ["coordinator", listen, state, policy, lease_ns] => {
            let mut settings = CoordinatorSettings::new(listen, state.into());
            settings.policy = policy.parse().expect(policy);
            settings.nodes = Some(RANKS as usize);
            settings.wait = Duration::from_secs(1);
            settings.lease_ns = number(lease_ns);
            let daemon = CoordinatorDaemon::start(&settings).expect("a coordinator");
            stay(&daemon.address().to_string())
        }
        ["node", node, coordinator, root, advertise, stage, shares] => {
            let settings = NodeSettings {
                node: NodeId(node.parse().expect("a number")),
                listen: "127.0.0.1:0".to_owned(),
                advertise: given(advertise),
                coordinator: coordinator.to_owned(),
                capacity: CAPACITY,
                key: None,
                drain_rate: None,
            };
            // A node whose socket for shares is taken has writers send their bytes.
            let taken = (shares == "false").then(|| take_share_socket(advertise));
            let daemon = NodeDaemon::start(&settings, pfs(root, stage, &format!("node {node}"))).expect("a node");
            drop(taken);
            stay(&daemon.address().to_string())
        }
        ["writer", checkpoint, rank, salt, coordinator, root, stage] => {
            let object = object(number(checkpoint), number(rank) as u32);
            let client = client(coordinator, object.rank, pfs(root, stage, &format!("writer {rank}")));
            let begin = Instant::now();
            let acknowledged = client.put(object, RANKS, &contents(object, number(salt))).expect("the PFS works");
            println!("\n={} {}", acknowledged.level.name(), begin.elapsed().as_millis());
        }
        _ => panic!("{arguments:?}"),
    }
}

fn stay(address: &str) {
    println!("\n={address}");
    loop {
        std::thread::park();
    }
}

fn pfs(root: &str, stage: &str, role: &str) -> Arc<dyn Pfs> {
    let root = Path::new(root);
    match stage {
        "" => Arc::new(Directory::open(root).expect("the PFS")),
        stage => Arc::new(Staged::directory(stage, role, root)),
    }
}

/// Takes the name at which a node of this address shares its memory. The name is the one of `src/share.rs`; a test counts
/// the writers that fill memory, and sees another one.
fn take_share_socket(address: &str) -> UnixListener {
    let name = SocketAddr::from_abstract_name(format!("entresol-burst {address}")).expect("a name");
    UnixListener::bind_addr(&name).expect("the name is free")
}

pub fn object(checkpoint: u64, rank: u32) -> Object {
    Object { job: JOB, checkpoint: CheckpointId(checkpoint), rank }
}

/// Bytes of an object as one writer has them; another writer of the object has another salt.
pub fn contents(object: Object, salt: u64) -> Vec<u8> {
    let mut random = Random::new(object.checkpoint.0 << 40 | u64::from(object.rank) << 32 | salt);
    let words = (1 << 17) + random.below(1 << 17);
    (0..words).flat_map(|_| random.next_u64().to_le_bytes()).collect()
}

pub fn client(coordinator: &str, node: u32, pfs: Arc<dyn Pfs>) -> Client {
    let coordinator = Some(coordinator.to_owned());
    let (nodes, node, patience, credential) = (Vec::new(), NodeId(node), PATIENCE, None);
    let settings = ClientSettings { coordinator, nodes, node, patience, credential };
    Client::new(settings, pfs)
}

/// Waits until all nodes have reported to the coordinator at an address.
pub fn wait_for_nodes(coordinator: &str) -> Checked {
    let until = Instant::now() + Duration::from_secs(20);
    let second = Duration::from_secs(1);
    while Instant::now() < until {
        let answer = Peer::connect(coordinator, second)
            .and_then(|peer| peer.call::<FromCoordinator>(&ToCoordinator::Nodes, &[], second));
        if let Ok((FromCoordinator::Nodes { nodes, settled: true, .. }, _)) = answer
            && nodes.iter().filter(|node| node.present).count() == RANKS as usize
        {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("the nodes do not report".to_owned())
}

/// The level that a writer was told, and the time; none if it was killed before.
///
/// # Errors
/// When the writer was blocked too long.
pub fn acknowledged(writer: &mut Process) -> Checked<Option<(Level, Duration)>> {
    let Some(answer) = writer.answer() else { return Ok(None) };
    let (name, took_ms) = answer.split_once(' ').expect("a level and a time");
    let level = LEVELS.into_iter().find(|level| level.name() == name).expect("a level");
    match Duration::from_millis(took_ms.parse().expect("a time")) {
        took if took < BLOCKED_MAX => Ok(Some((level, took))),
        took => Err(format!("a writer was blocked for {took:?}")),
    }
}

/// Checks that a checkpoint is called complete.
pub fn check_listed(client: &Client, checkpoint: u64) -> Checked {
    let (states, missing) = client.list(JOB).map_err(|error| format!("no list: {error}"))?;
    let state = states.iter().find(|state| state.checkpoint.0 == checkpoint).map(|state| state.state);
    match state {
        Some(State::Complete(_)) => Ok(()),
        state => Err(format!("checkpoint {checkpoint} is {state:?}: {states:?} {missing:?}")),
    }
}

/// Checks that every rank of the newest complete checkpoint restores, with bytes of one writer. `salts` are those of the
/// newest checkpoint, by rank.
pub fn check_complete(client: &Client, salts: &[Vec<u64>]) -> Checked {
    let (states, _) = client.list(JOB).map_err(|error| format!("no list: {error}"))?;
    let complete = states.iter().filter(|state| matches!(state.state, State::Complete(_)));
    let Some(newest) = complete.map(|state| state.checkpoint).max() else { return Ok(()) };
    let is_last = states.iter().all(|state| state.checkpoint <= newest);
    for rank in 0..RANKS {
        let restored = client.restore(JOB, Some(newest), rank);
        let restored = restored.map_err(|error| format!("called complete, and does not restore: {error}"))?;
        let object = Object { job: JOB, checkpoint: newest, rank };
        let all = vec![0, 1];
        let mut salts = if is_last { &salts[rank as usize] } else { &all }.iter();
        if !salts.any(|&salt| restored.bytes == contents(object, salt)) {
            return Err(format!("{object} differs, from {:?}", restored.chunks));
        }
    }
    Ok(())
}

/// Waits until a checkpoint is durable.
pub fn check_drain(client: &Client, checkpoint: u64) -> Checked {
    let left = client.drain(JOB, Some(CheckpointId(checkpoint)), Duration::from_secs(30));
    match left.map_err(|error| format!("no drain: {error}"))? {
        left if left.is_empty() => Ok(()),
        left => Err(format!("not drained: {left:?}")),
    }
}

/// Checks that every manifest names durable parts with the bytes of a writer.
pub fn check_manifests(pfs: &dyn Pfs) -> Checked {
    for checkpoint in layout::checkpoints(pfs, JOB).expect("a listing") {
        let manifest = layout::manifest(pfs, JOB, checkpoint);
        let Some(manifest) = manifest.map_err(|error| format!("a manifest does not read: {error}"))? else { continue };
        if (manifest.ranks, manifest.objects.len()) != (RANKS, RANKS as usize) {
            return Err(format!("the manifest of {checkpoint:?} lacks ranks"));
        }
        for own in manifest.objects {
            let mut bytes = Vec::new();
            for part in own.parts {
                if (part.offset, part.chunk_bytes) != (bytes.len() as u64, CHUNK_BYTES) {
                    return Err(format!("the manifest of {checkpoint:?} has a gap in rank {}", own.rank));
                }
                let read = pfs.read(&layout::folder(JOB, checkpoint), &part.file, 0, part.bytes);
                bytes.extend(read.map_err(|error| format!("{} under a manifest: {error}", part.file))?);
            }
            let object = Object { job: JOB, checkpoint, rank: own.rank };
            if !(0..2).any(|salt| bytes == contents(object, salt)) {
                return Err(format!("{object}: wrong bytes under a manifest"));
            }
        }
    }
    Ok(())
}
