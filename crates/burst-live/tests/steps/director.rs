//! The director of a round: every step of all processes passes it, and it strikes at one of them.
//!
//! It also knows two rules that no process can be asked for: a write under a lease that has ended, or of another
//! coordinator than the one that the node has joined, is refused.

use crate::common::processes::{Process, RANKS, is_running, kill_and_keep};
use entresol_burst::{Epoch, Lease, Reservation};
use entresol_burst_live::message::{FromCoordinator, FromNode, ToCoordinator, ToNode};
use rustix::process::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Shutdown, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Name of a step: of a message, its answer, or a call to the PFS.
pub type Step = &'static str;

/// Longest time in which nodes join the second of two coordinators.
const JOIN: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    WriterKilled,
    NodeKilled,
    CoordinatorKilled,
    WriterCut,
    NodeCut,
    CoordinatorCut,
    TwoCoordinators,
    PfsFull,
    PfsError,
    PfsStalled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Coordinator,
    Node(usize),
    Writer(usize),
    /// The test itself, which lists and restores.
    Reader,
}

/// Processes that a message is between, or the one that makes a call, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    pub coordinator: bool,
    pub node: Option<usize>,
    pub writer: Option<usize>,
}

impl Ends {
    pub fn of(role: Role) -> Ends {
        match role {
            Role::Coordinator => Ends { coordinator: true, ..Ends::default() },
            Role::Node(node) => Ends { node: Some(node), ..Ends::default() },
            Role::Writer(writer) => Ends { writer: Some(writer), ..Ends::default() },
            Role::Reader => Ends::default(),
        }
    }

    fn has(self, role: Role) -> bool {
        match role {
            Role::Coordinator => self.coordinator,
            Role::Node(node) => self.node == Some(node),
            Role::Writer(writer) => self.writer == Some(writer),
            Role::Reader => false,
        }
    }
}

/// A way through the director: from a process to the coordinator, or to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Route {
    ToCoordinator(Role),
    ToNode(usize),
}

impl Route {
    pub fn ends(self) -> Ends {
        match self {
            Route::ToCoordinator(role) => Ends { coordinator: true, ..Ends::of(role) },
            Route::ToNode(node) => Ends::of(Role::Node(node)),
        }
    }
}

/// A fault that waits for a step.
#[derive(Clone, Copy, Debug)]
pub struct Trap {
    pub fault: Fault,
    pub step: Step,
    /// Number of times that the step passes first.
    pub after: u64,
    /// Length of a cut, or of a failure of the PFS.
    pub lasts: Duration,
    /// True if messages over a link that is cut wait for its end, as packets that are sent again do; its connections break if not.
    pub is_silent: bool,
    /// Writers that reach the second of two coordinators.
    pub sides: [bool; RANKS as usize],
}

/// Answer to a process that is about to make a call to the PFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Go,
    Full,
    Error,
}

struct Connection {
    ends: Ends,
    streams: [TcpStream; 2],
}

impl Connection {
    fn close(&self) {
        // Either end may be closed already.
        self.streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

struct Cut {
    role: Role,
    is_silent: bool,
    until: Instant,
}

/// A lease as it was presented to a node.
struct Presented {
    writer: usize,
    expires_ns: u64,
    /// True if the node may have stored the piece: a repetition is answered as the first message was.
    is_stored: bool,
}

#[derive(Default)]
struct State {
    trap: Option<Trap>,
    struck: Option<Ends>,
    pids: BTreeMap<Role, Pid>,
    targets: BTreeMap<Route, String>,
    second: Option<String>,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    cut: Option<Cut>,
    full_until: Option<Instant>,
    stalled_until: Option<Instant>,
    welcomed: [u32; RANKS as usize],
    epochs: [u32; RANKS as usize],
    leases: BTreeMap<Lease, Presented>,
    passed: BTreeMap<Step, u64>,
    refused: BTreeMap<&'static str, u64>,
    violations: Vec<String>,
}

#[derive(Default)]
pub struct Director {
    state: Mutex<State>,
    changed: Condvar,
}

impl Director {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, until: Instant) -> MutexGuard<'a, State> {
        let time = until.saturating_duration_since(Instant::now());
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Starts a process in a role. No step passes before the process can be struck.
    pub fn start(&self, role: Role, start: impl FnOnce() -> Process) -> Process {
        let mut state = self.lock();
        let process = start();
        state.pids.insert(role, process.pid());
        process
    }

    /// Gives a role to a process that runs already.
    pub fn set_process(&self, role: Role, process: &Process) {
        self.lock().pids.insert(role, process.pid());
    }

    pub fn set_target(&self, route: Route, address: &str) {
        self.lock().targets.insert(route, address.to_owned());
    }

    /// A coordinator to which nodes can be moved.
    pub fn set_second(&self, address: &str) {
        self.lock().second = Some(address.to_owned());
    }

    /// Has the PFS full until [`Director::mend`].
    pub fn fill_pfs(&self) {
        self.lock().full_until = Some(Instant::now() + Duration::from_secs(3600));
    }

    pub fn arm(&self, trap: Trap) {
        let mut state = self.lock();
        (state.trap, state.struck) = (Some(trap), None);
    }

    /// The processes of the step at which the fault was made, if it was.
    pub fn struck(&self, within: Duration) -> Option<Ends> {
        let until = Instant::now() + within;
        let mut state = self.lock();
        while state.struck.is_none() && Instant::now() < until {
            state = self.wait(state, until);
        }
        state.struck
    }

    /// Ends all faults but the ends of processes, and takes the trap away.
    pub fn mend(&self) {
        let mut state = self.lock();
        (state.trap, state.cut, state.full_until, state.stalled_until) = (None, None, None, None);
        drop(state);
        self.changed.notify_all();
    }

    /// Address at the end of a route, unless the link is cut and its connections break.
    pub fn target(&self, route: Route) -> Option<String> {
        let state = self.lock();
        let is_cut = state.cut_of(route.ends()).is_some_and(|cut| !cut.is_silent);
        state.targets.get(&route).filter(|_| !is_cut).cloned()
    }

    /// Notes a connection, which a cut may break.
    pub fn open(&self, ends: Ends, streams: [TcpStream; 2]) -> u64 {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.connections.insert(number, Connection { ends, streams });
        number
    }

    pub fn set_writer(&self, connection: u64, writer: usize) {
        if let Some(connection) = self.lock().connections.get_mut(&connection) {
            connection.ends.writer = Some(writer);
        }
    }

    pub fn close(&self, connection: u64) {
        if let Some(connection) = self.lock().connections.remove(&connection) {
            connection.close();
        }
    }

    pub fn close_all(&self) {
        let connections = std::mem::take(&mut self.lock().connections);
        connections.values().for_each(Connection::close);
    }

    /// A message is about to pass. Returns false if its connection is broken instead.
    pub fn message(&self, step: Step, ends: Ends) -> bool {
        let mut state = self.step(step, ends);
        while let Some(cut) = state.cut_of(ends) {
            if !cut.is_silent {
                return false;
            }
            let until = cut.until;
            state = self.wait(state, until);
        }
        true
    }

    /// A process is about to make a call to the PFS.
    pub fn call(&self, step: Step, ends: Ends) -> Verdict {
        let mut state = self.step(step, ends);
        if state.struck_now(step) {
            return Verdict::Error;
        }
        while let Some(until) = state.stalled_until.filter(|&until| Instant::now() < until) {
            state = self.wait(state, until);
        }
        match state.full_until.is_some_and(|until| Instant::now() < until) {
            true => Verdict::Full,
            false => Verdict::Go,
        }
    }

    /// Counts a step, and makes the fault that waits for it.
    fn step(&self, step: Step, ends: Ends) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        *state.passed.entry(step).or_default() += 1;
        let Some(trap) = state.spring(step, ends) else { return state };
        state.strike(trap, ends);
        self.changed.notify_all();
        let is_split = trap.fault == Fault::TwoCoordinators;
        let until = Instant::now() + JOIN;
        // The message passes when the nodes have joined the second coordinator: grants of the first are old then.
        while is_split && state.epochs.iter().any(|&epoch| epoch < 2) && Instant::now() < until {
            state = self.wait(state, until);
        }
        state
    }

    pub fn violated(&self, why: String) {
        self.lock().violations.push(why);
    }

    pub fn violation(&self) -> Option<String> {
        self.lock().violations.first().cloned()
    }

    /// Refusals by reason: `epoch` and `lease`.
    pub fn refused(&self) -> BTreeMap<&'static str, u64> {
        self.lock().refused.clone()
    }

    pub fn passed(&self, step: Step) -> u64 {
        self.lock().passed.get(step).copied().unwrap_or(0)
    }

    /// The writer that a request to a node comes from, if it can be known.
    pub fn writer_of(&self, request: &ToNode) -> Option<usize> {
        match request {
            ToNode::Write { grant, .. } | ToNode::Fill { grant, .. } => Some(grant.object.rank as usize),
            ToNode::Store { lease, .. } => self.lock().leases.get(lease).map(|presented| presented.writer),
            ToNode::Read { .. } | ToNode::Locate { .. } | ToNode::Pieces { .. } | ToNode::Status => None,
        }
    }

    /// The reason why a node must refuse a request that is sent now.
    pub fn forbids(&self, node: usize, request: &ToNode) -> Option<&'static str> {
        self.lock().forbids(node, request)
    }

    /// Compares the answer to a request with what it must be.
    pub fn answered(&self, node: usize, forbidden: Option<&'static str>, answer: &FromNode) {
        let Some(reason) = forbidden else { return };
        match answer {
            FromNode::Done => self.violated(format!("node {node} admits a write that it must refuse: {reason}")),
            _ => *self.lock().refused.entry(reason).or_default() += 1,
        }
    }

    /// Notes the epoch that a node joins: it has done so when its report passes.
    pub fn reports(&self, node: usize, request: &ToCoordinator) {
        if let ToCoordinator::Report(_) = request {
            let mut state = self.lock();
            state.epochs[node] = state.epochs[node].max(state.welcomed[node]);
            drop(state);
            self.changed.notify_all();
        }
    }

    pub fn welcomed(&self, node: usize, answer: &FromCoordinator) {
        if let FromCoordinator::Welcome { epoch, .. } = answer {
            self.lock().welcomed[node] = *epoch;
        }
    }
}

impl State {
    fn cut_of(&self, ends: Ends) -> Option<&Cut> {
        self.cut.as_ref().filter(|cut| ends.has(cut.role) && Instant::now() < cut.until)
    }

    /// True if the call of this step is the one that fails.
    fn struck_now(&mut self, step: Step) -> bool {
        let is_error = self.trap.is_some_and(|trap| trap.fault == Fault::PfsError && trap.step == step);
        if is_error && self.struck.is_some() {
            self.trap = None;
            return true;
        }
        false
    }

    /// The trap of a step, if it is time for it.
    fn spring(&mut self, step: Step, ends: Ends) -> Option<Trap> {
        let trap = self.trap.as_ref().filter(|trap| trap.step == step && self.struck.is_none())?;
        // Processes that have ended cannot be struck.
        let (fault, victims) = (trap.fault, self.victims(ends));
        let is_over = match fault {
            Fault::WriterKilled | Fault::WriterCut => victims.writer.is_none(),
            Fault::NodeKilled => !victims.node.is_some_and(|node| self.is_running(Role::Node(node))),
            Fault::CoordinatorKilled => !self.is_running(Role::Coordinator),
            _ => false,
        };
        let trap = self.trap.as_mut().filter(|_| !is_over)?;
        match trap.after.checked_sub(1) {
            Some(after) => {
                trap.after = after;
                None
            }
            None => Some(*trap),
        }
    }

    fn strike(&mut self, trap: Trap, ends: Ends) {
        let ends = self.victims(ends);
        self.struck = Some(ends);
        let (node, writer) = (ends.node.map(Role::Node), ends.writer.map(Role::Writer));
        let until = Instant::now() + trap.lasts;
        match trap.fault {
            Fault::WriterKilled => self.kill(writer),
            Fault::NodeKilled => self.kill(node),
            Fault::CoordinatorKilled => self.kill(Some(Role::Coordinator)),
            Fault::WriterCut => self.cut(writer, trap, until),
            Fault::NodeCut => self.cut(node, trap, until),
            Fault::CoordinatorCut => self.cut(Some(Role::Coordinator), trap, until),
            Fault::TwoCoordinators => self.split(trap.sides),
            Fault::PfsFull => self.full_until = Some(until),
            Fault::PfsStalled => self.stalled_until = Some(until),
            // The call of this step fails, and no other.
            Fault::PfsError => {}
        }
    }

    fn is_running(&self, role: Role) -> bool {
        self.pids.get(&role).is_some_and(|&pid| is_running(pid))
    }

    /// Processes that a fault at a step may strike: those of the step, or another writer that runs.
    fn victims(&self, ends: Ends) -> Ends {
        let is_running = |writer: &usize| self.is_running(Role::Writer(*writer));
        let mut writers = ends.writer.or(ends.node).into_iter().chain(0..RANKS as usize);
        Ends { node: ends.node.or(ends.writer).or(Some(0)), writer: writers.find(is_running), ..ends }
    }

    fn kill(&self, role: Option<Role>) {
        let pid = role.and_then(|role| self.pids.get(&role));
        kill_and_keep(*pid.expect("a process of the round"));
    }

    fn cut(&mut self, role: Option<Role>, trap: Trap, until: Instant) {
        let role = role.expect("a process of the round");
        if !trap.is_silent {
            self.connections.values().filter(|connection| connection.ends.has(role)).for_each(Connection::close);
        }
        self.cut = Some(Cut { role, is_silent: trap.is_silent, until });
    }

    /// Has all nodes and some writers reach the second coordinator, and the other writers the first one.
    fn split(&mut self, sides: [bool; RANKS as usize]) {
        let second = self.second.clone().expect("a second coordinator");
        for (rank, of_second) in sides.into_iter().enumerate() {
            let moved = [Some(Role::Node(rank)), of_second.then_some(Role::Writer(rank))];
            for role in moved.into_iter().flatten() {
                self.targets.insert(Route::ToCoordinator(role), second.clone());
                let of_role = |connection: &&Connection| connection.ends.coordinator && connection.ends.has(role);
                self.connections.values().filter(of_role).for_each(Connection::close);
            }
        }
    }

    fn forbids(&mut self, node: usize, request: &ToNode) -> Option<&'static str> {
        let now_ns = now_ns();
        match request {
            ToNode::Write { grant, .. } | ToNode::Fill { grant, .. } => {
                let is_old = grant.lease.epoch < Epoch(self.epochs[node]);
                let has_ended = grant.expires_ns <= now_ns;
                if !is_old && !has_ended {
                    self.present(grant);
                }
                is_old.then_some("epoch").or(has_ended.then_some("lease"))
            }
            ToNode::Store { lease, .. } => {
                let presented = self.leases.get_mut(lease)?;
                let has_ended = presented.expires_ns <= now_ns && !presented.is_stored;
                presented.is_stored = true;
                has_ended.then_some("lease")
            }
            ToNode::Read { .. } | ToNode::Locate { .. } | ToNode::Pieces { .. } | ToNode::Status => None,
        }
    }

    fn present(&mut self, grant: &Reservation) {
        let first = Presented { writer: grant.object.rank as usize, expires_ns: 0, is_stored: false };
        let presented = self.leases.entry(grant.lease).or_insert(first);
        presented.expires_ns = presented.expires_ns.max(grant.expires_ns);
    }
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_nanos() as u64
}

/// Order of the calls that a process makes to the PFS: bytes are synced before they get their name, and a name before the next file.
#[derive(Default)]
pub struct CallOrder {
    unsynced: BTreeSet<String>,
    folders: BTreeSet<String>,
}

impl CallOrder {
    /// Notes a call that the process makes, or that fails.
    ///
    /// # Errors
    /// When an earlier call is missing.
    pub fn call(&mut self, call: &str, path: &str, verdict: Verdict) -> Result<(), String> {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        let is_made = verdict == Verdict::Go;
        match call {
            "create" if self.folders.contains(&folder) => {
                return Err(format!("{path} is created before the names of the files before it are synced"));
            }
            "bytes" if is_made => drop(self.unsynced.insert(path.to_owned())),
            "sync" if is_made => drop(self.unsynced.remove(path)),
            "rename" if self.unsynced.contains(path) => return Err(format!("{path} is renamed before it is synced")),
            "rename" if is_made => drop(self.folders.insert(folder)),
            "sync names" => drop(self.folders.remove(path)),
            _ => {}
        }
        Ok(())
    }
}
