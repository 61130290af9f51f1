//! The processes of a simulated cluster and the connections between them. All of their code is that of the daemons and
//! of the client; a request is answered on the thread of its caller.

use super::files::{ROOT, SimPfs};
use super::oracle::Oracle;
use super::schedule::{Caught, Process, Schedule};
use crate::client::{Client, ClientSettings, PATIENCE};
use crate::coordinate::{self, CoordinatorSettings};
use crate::credentials::Bearer;
use crate::message::{FromCoordinator, FromNode, ToCoordinator, ToNode};
use crate::node::{self, NodeSettings};
use crate::pfs::Directory;
use crate::server::lock;
use crate::simulated::{Actor, become_actor};
use crate::wire::{decode, encode};
use crate::{clock, mutant};
use entresol_burst::{Epoch, Event, NodeId, Policy, Role};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Number of nodes. A writer of each rank runs beside each of them.
pub const NODES: usize = 3;
/// The coordinator's host.
pub const COORDINATOR: usize = NODES;
/// The host of the driver, whose links are never down.
const DRIVER: usize = NODES + 1;
/// Longest time of a message on its way.
const LATENCY: Duration = Duration::from_millis(1);
/// Time after which a message that was lost is sent again.
const RETRANSMISSION: Duration = Duration::from_millis(200);
/// Time after which a server closes a silent node's connection, as `NODE_SILENCE` of the daemon.
const SILENCE: Duration = Duration::from_secs(5);
/// Virtual clocks begin here, in nanoseconds since 1970.
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;

/// Mutants that are switched on in every thread of a schedule.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mutants {
    pub live: Option<mutant::Mutant>,
    pub protocol: Option<entresol_burst::Mutant>,
}

impl Mutants {
    fn activate(self) {
        mutant::activate(self.live);
        entresol_burst::activate(self.protocol);
    }
}

struct CoordinatorProcess {
    shared: Arc<coordinate::Shared>,
    alive: bool,
}

struct NodeProcess {
    shared: Arc<node::Shared>,
    start: usize,
    alive: bool,
}

struct Connection {
    client: Process,
    server: Process,
    /// The node that the connection belongs to, as the coordinator knows it.
    node: Option<(NodeId, u64)>,
    closed: bool,
    heard: Duration,
}

struct State {
    coordinators: Vec<CoordinatorProcess>,
    nodes: Vec<NodeProcess>,
    /// The coordinator that each host reaches at the coordinator's address.
    reached: [usize; DRIVER + 1],
    /// Links that are down, the lower host first.
    down: BTreeMap<(usize, usize), Duration>,
    connections: BTreeMap<u64, Connection>,
    next: u64,
}

/// Answer to the question whether a message arrives.
enum Route {
    Arrives,
    /// The peer's host says that nobody has the connection.
    Reset,
    /// No answer comes.
    Silent,
}

/// Everything that the threads of one schedule share.
pub struct Cluster {
    pub schedule: Arc<Schedule>,
    pub pfs: SimPfs,
    pub oracle: Mutex<Oracle>,
    pub policy: Policy,
    pub lease_ns: u64,
    capacity: u64,
    skew_ns: [u64; DRIVER + 1],
    mutants: Mutants,
    is_traced: bool,
    state: Mutex<State>,
}

/// A request on its way: the bytes decoded, and the names of the steps in which it arrives and its answer arrives.
enum Request {
    Node(ToNode, Vec<u8>),
    Coordinator(ToCoordinator),
}

impl Request {
    fn steps(&self) -> (&'static str, &'static str) {
        match self {
            Request::Node(ToNode::Write { grant, .. }, _) if grant.role == Role::Copy => ("copy", "copied"),
            Request::Node(ToNode::Write { .. }, _) => ("write", "written"),
            Request::Node(ToNode::Store { .. }, _) => ("store", "stored"),
            Request::Node(..) => ("read", "was read"),
            Request::Coordinator(ToCoordinator::Writer(Event::Open { .. })) => ("open", "granted"),
            Request::Coordinator(ToCoordinator::Writer(Event::Commit { .. })) => ("commit", "committed"),
            Request::Coordinator(ToCoordinator::Writer(_)) => ("renew", "renewed"),
            Request::Coordinator(ToCoordinator::Report(_)) => ("report", "reported"),
            Request::Coordinator(ToCoordinator::Events(events)) if !events.is_empty() => ("events", "orders"),
            Request::Coordinator(_) => ("poll", "polled"),
        }
    }
}

impl Caught {
    /// The hosts between which the message goes.
    pub fn hosts(self) -> Option<(usize, usize)> {
        let (one, other) = (self.process.host(), self.peer?.host());
        (one != other).then_some((one, other))
    }
}

impl Process {
    /// The host on which the process runs.
    fn host(self) -> usize {
        match self {
            Process::Driver => DRIVER,
            Process::Coordinator(_) => COORDINATOR,
            Process::Node(host, _) | Process::Writer(host, _) => host,
        }
    }
}

impl Cluster {
    /// A cluster without processes; the calling thread becomes the driver.
    pub fn new(seed: u64, policy: Policy, capacity: u64, lease_ns: u64, mutants: Mutants) -> Arc<Cluster> {
        let schedule = Schedule::new(seed);
        let mut skew_ns = [0; DRIVER + 1];
        skew_ns.iter_mut().for_each(|skew| *skew = schedule.below(20_000_000));
        let state = State {
            coordinators: Vec::new(),
            nodes: Vec::new(),
            reached: [0; DRIVER + 1],
            down: BTreeMap::new(),
            connections: BTreeMap::new(),
            next: 0,
        };
        let cluster = Cluster {
            schedule,
            pfs: SimPfs::new(!seed),
            oracle: Mutex::default(),
            policy,
            lease_ns,
            capacity,
            skew_ns,
            mutants,
            is_traced: std::env::var_os("ENTRESOL_BURST_TRACE").is_some(),
            state: Mutex::new(state),
        };
        let cluster = Arc::new(cluster);
        cluster.sit(Process::Driver, 0);
        cluster
    }

    /// Makes the calling thread an actor.
    fn sit(self: &Arc<Self>, process: Process, number: usize) {
        self.mutants.activate();
        let seat = Rc::new(Seat { cluster: Arc::clone(self), process, number, host: Cell::new(process.host()) });
        SEAT.set(Some(seat.clone()));
        become_actor(Some(seat));
    }

    fn stand_up() {
        Mutants::default().activate();
        SEAT.set(None);
        become_actor(None);
    }

    /// Ends all threads; the calling thread is an ordinary one again.
    pub fn end(&self) {
        self.schedule.end();
        let mut state = lock(&self.state);
        let connections = std::mem::take(&mut state.connections);
        drop((state, connections));
        Cluster::stand_up();
    }

    /// Starts a thread of a process.
    pub fn spawn(self: &Arc<Self>, process: Process, work: impl FnOnce() + Send + 'static) {
        let cluster = Arc::clone(self);
        self.schedule.spawn(process, move |number| {
            cluster.sit(process, number);
            let stand_up = StandUp;
            work();
            drop(stand_up);
        });
    }

    /// Starts a coordinator with the next epoch, which these hosts reach.
    pub fn start_coordinator(self: &Arc<Self>, reached_by: impl Fn(usize) -> bool) {
        let mut settings = CoordinatorSettings::new("", "".into());
        settings.policy = self.policy;
        settings.nodes = Some(NODES);
        settings.wait = Duration::from_secs(1);
        settings.lease_ns = self.lease_ns;
        let number = {
            let state = &mut *lock(&self.state);
            let number = state.coordinators.len();
            let shared = Arc::new(coordinate::Shared::new(&settings, Epoch(number as u32 + 1), None));
            state.coordinators.push(CoordinatorProcess { shared, alive: true });
            (0..=DRIVER).filter(|&host| reached_by(host)).for_each(|host| state.reached[host] = number);
            number
        };
        self.spawn(Process::Coordinator(number), {
            let shared = self.coordinator(number);
            move || coordinate::tick(&shared)
        });
        self.spawn(Process::Coordinator(number), {
            let cluster = Arc::clone(self);
            move || cluster.close_silent(number)
        });
    }

    /// All hosts reach the newest coordinator alone; the older ones run on, and do not know.
    pub fn reach_newest(&self) {
        let state = &mut *lock(&self.state);
        let newest = state.coordinators.len() - 1;
        state.reached = [newest; DRIVER + 1];
        let is_older = |it: &&mut Connection| matches!(it.server, Process::Coordinator(number) if number < newest);
        state.connections.values_mut().filter(is_older).for_each(|it| it.closed = true);
    }

    fn coordinator(&self, number: usize) -> Arc<coordinate::Shared> {
        Arc::clone(&lock(&self.state).coordinators[number].shared)
    }

    /// Newest coordinator's number.
    pub fn newest(&self) -> usize {
        lock(&self.state).coordinators.len() - 1
    }

    /// The granted bytes of each node that the newest coordinator knows, if its books are right.
    pub fn granted(&self) -> Result<u64, String> {
        let shared = self.coordinator(self.newest());
        let state = lock(&shared.state);
        state.coordinator().check()?;
        let status = state.coordinator().status();
        Ok(status.nodes().filter_map(|node| status.space(node)).map(|(free, capacity)| capacity - free).sum())
    }

    /// True if the newest coordinator has heard of all nodes' current starts.
    pub fn all_present(&self) -> bool {
        let shared = self.coordinator(self.newest());
        let FromCoordinator::Nodes { nodes, settled, .. } = lock(&shared.state).nodes() else { return false };
        settled && nodes.iter().filter(|node| node.present).count() == NODES
    }

    /// Closes connections of nodes that are silent or have ended, as the connection threads of the daemon do.
    fn close_silent(&self, number: usize) {
        loop {
            clock::sleep(Duration::from_millis(50));
            let now = self.schedule.now();
            let ended: Vec<(NodeId, u64)> = {
                let mut state = lock(&self.state);
                let own = state.connections.values_mut().filter(|it| it.server == Process::Coordinator(number));
                let ended = own.filter(|it| it.closed || now.saturating_sub(it.heard) > SILENCE);
                ended.filter_map(|it| it.node.take().inspect(|_| it.closed = true)).collect()
            };
            let shared = self.coordinator(number);
            for (node, generation) in ended {
                lock(&shared.state).disconnected(node, generation);
            }
        }
    }

    /// Starts a node's daemon with an empty buffer.
    pub fn start_node(self: &Arc<Self>, node: usize) {
        let address = format!("node {node}");
        let settings = NodeSettings {
            node: NodeId(node as u32),
            listen: address.clone(),
            advertise: None,
            coordinator: "coordinator".to_owned(),
            capacity: self.capacity,
            key: None,
            drain_rate: None,
        };
        let state = &mut *lock(&self.state);
        let start = state.nodes.get(node).map_or(0, |node| node.start + 1);
        let pfs = Arc::new(self.directory(node));
        // Starts are in order of time, as their numbers are.
        let incarnation = BEGIN_NS + self.schedule.now().as_nanos() as u64 + start as u64;
        let shared = node::Shared::new(&settings, incarnation, address, pfs).expect("memory");
        let process = NodeProcess { shared: Arc::new(shared), start, alive: true };
        for work in [node::drain::run, node::link::run] {
            let shared = Arc::clone(&process.shared);
            self.spawn(Process::Node(node, start), move || work(&shared));
        }
        match state.nodes.get_mut(node) {
            Some(old) => *old = process,
            None => state.nodes.push(process),
        }
    }

    /// Number of the current start of a node, and true if it runs.
    pub fn node(&self, node: usize) -> (usize, bool) {
        let state = lock(&self.state);
        (state.nodes[node].start, state.nodes[node].alive)
    }

    pub fn is_coordinator_alive(&self) -> bool {
        lock(&self.state).coordinators.last().is_some_and(|coordinator| coordinator.alive)
    }

    /// Kills a process. Its peers find their connections closed.
    pub fn kill(&self, process: Process) {
        {
            let state = &mut *lock(&self.state);
            match process {
                Process::Coordinator(number) => {
                    state.coordinators[number].alive = false;
                    let shared = &state.coordinators[number].shared;
                    shared.stopping.store(true, Ordering::SeqCst);
                    self.schedule.notify_all(&shared.applied);
                }
                Process::Node(node, start) if state.nodes[node].start == start => state.nodes[node].alive = false,
                _ => {}
            }
            let own = |connection: &&mut Connection| connection.client == process || connection.server == process;
            state.connections.values_mut().filter(own).for_each(|connection| connection.closed = true);
        }
        if let Process::Node(node, start) = process {
            lock(&self.oracle).node_lost(node, start);
        }
        self.schedule.kill(process);
    }

    /// Takes a link down until a time.
    pub fn cut(&self, one: usize, other: usize, until: Duration) {
        lock(&self.state).down.insert((one.min(other), one.max(other)), until);
    }

    pub fn mend_links(&self) {
        lock(&self.state).down.clear();
    }

    /// The PFS as a process on a host sees it.
    pub fn directory(&self, host: usize) -> Directory {
        let number = {
            let now = self.schedule.now().as_nanos();
            format!("{host}-{now}-{}", self.schedule.below(1 << 40))
        };
        Directory::over(self.pfs.on(host), Path::new(ROOT), number)
    }

    /// A client on a host; the driver's has a host of its own.
    pub fn client(&self, node: Option<usize>, coordinator: bool) -> Client {
        let settings = ClientSettings {
            coordinator: coordinator.then(|| "coordinator".to_owned()),
            nodes: Vec::new(),
            node: NodeId(node.unwrap_or(0) as u32),
            patience: PATIENCE,
            credential: None,
        };
        Client::new(settings, Arc::new(self.directory(node.unwrap_or(DRIVER))))
    }

    fn server(&self, client: usize, address: &str) -> Process {
        let state = lock(&self.state);
        match address.strip_prefix("node ").and_then(|node| node.parse::<usize>().ok()) {
            Some(node) => Process::Node(node, state.nodes[node].start),
            None => Process::Coordinator(state.reached[client]),
        }
    }

    fn is_up(&self, one: usize, other: usize) -> bool {
        let until = lock(&self.state).down.get(&(one.min(other), one.max(other))).copied();
        until.is_none_or(|until| until <= self.schedule.now())
    }

    fn is_alive(&self, process: Process) -> bool {
        let state = lock(&self.state);
        match process {
            Process::Coordinator(number) => state.coordinators[number].alive,
            Process::Node(node, start) => state.nodes[node].start == start && state.nodes[node].alive,
            Process::Driver | Process::Writer(..) => true,
        }
    }

    fn route(&self, number: u64) -> Route {
        let Some((client, server, closed)) =
            lock(&self.state).connections.get(&number).map(|it| (it.client, it.server, it.closed))
        else {
            return Route::Reset;
        };
        if !self.is_up(client.host(), server.host()) {
            Route::Silent
        } else if closed || !self.is_alive(server) {
            Route::Reset
        } else {
            Route::Arrives
        }
    }

    /// Has a server answer a request.
    fn serve(&self, number: u64, request: Request) -> Vec<u8> {
        let mut message = Vec::new();
        let (server, mut node) = {
            let mut state = lock(&self.state);
            let connection = state.connections.get_mut(&number).expect("it was found");
            connection.heard = self.schedule.now();
            (connection.server, connection.node)
        };
        match (request, server) {
            (Request::Node(request, payload), Process::Node(of, _)) => {
                let shared = Arc::clone(&lock(&self.state).nodes[of].shared);
                let (status, _) = node::answer(&shared, Bearer::Anyone, ToNode::Status, &[]);
                let asked = request.clone();
                let (answer, bytes) = node::answer(&shared, Bearer::Anyone, request, &payload);
                let admitted = matches!((&asked, &answer), (ToNode::Write { .. }, FromNode::Done));
                if let (ToNode::Write { grant, .. }, FromNode::Status(status)) = (&asked, status)
                    && admitted
                {
                    let now = self.schedule.now();
                    let checked = Oracle::admitted(grant, &status, clock::now_ns())
                        .and_then(|()| lock(&self.oracle).progress(grant.object, now));
                    if let Err(why) = checked {
                        self.schedule.violated(why);
                    }
                }
                encode(&mut message, &answer, &bytes).expect("it is short");
            }
            (Request::Coordinator(request), Process::Coordinator(of)) => {
                let shared = self.coordinator(of);
                let answer = coordinate::answer(&shared, Bearer::Anyone, request, &mut node);
                encode(&mut message, &answer, &[]).expect("it is short");
            }
            (_, server) => panic!("a request that {server:?} does not serve"),
        }
        if let Some(connection) = lock(&self.state).connections.get_mut(&number) {
            connection.node = node;
        }
        message
    }
}

/// Makes the thread an ordinary one again, also when it unwinds.
struct StandUp;

impl Drop for StandUp {
    fn drop(&mut self) {
        Cluster::stand_up();
    }
}

thread_local! {
    static SEAT: RefCell<Option<Rc<Seat>>> = const { RefCell::new(None) };
}

/// The calling thread's part of its schedule.
pub fn seat() -> Rc<Seat> {
    SEAT.with_borrow(Clone::clone).expect("a thread of a schedule")
}

/// One thread of a schedule.
pub struct Seat {
    pub cluster: Arc<Cluster>,
    process: Process,
    number: usize,
    /// The host whose clock it reads: that of the server while it serves.
    host: Cell<usize>,
}

impl Seat {
    /// Lets the time of a message pass.
    fn travel(&self, step: &'static str, peer: Process) {
        let time = Duration::from_nanos(self.cluster.schedule.below(LATENCY.as_nanos() as u64));
        self.cluster.schedule.pause(self.number, step, Some(peer), None, time);
    }

    /// Prints a request and its answer, if `ENTRESOL_BURST_TRACE` is set.
    fn trace(&self, server: Process, request: &[u8], answer: &[u8]) {
        if self.cluster.is_traced {
            let [request, answer] = [request, answer].map(String::from_utf8_lossy);
            println!("{:?} {:?} to {server:?}: {request} => {answer}", self.cluster.schedule.now(), self.process);
        }
    }

    /// Waits until a message arrives, late if the link is down for a time.
    fn arrives(&self, connection: u64, until: Duration) -> io::Result<()> {
        loop {
            let left = until.saturating_sub(self.cluster.schedule.now());
            match self.cluster.route(connection) {
                Route::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
                _ if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
                Route::Arrives => return Ok(()),
                Route::Silent => self.pause("late", None, left.min(RETRANSMISSION)),
            }
        }
    }
}

fn begin() -> Instant {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    *BEGIN.get_or_init(Instant::now)
}

impl Actor for Seat {
    fn now_ns(&self) -> u64 {
        BEGIN_NS + self.cluster.skew_ns[self.host.get()] + self.cluster.schedule.now().as_nanos() as u64
    }

    fn now(&self) -> Instant {
        begin() + self.cluster.schedule.now()
    }

    fn pause(&self, step: &'static str, condition: Option<&Condvar>, time: Duration) {
        self.cluster.schedule.pause(self.number, step, None, condition, time);
    }

    fn notify_all(&self, condition: &Condvar) {
        self.cluster.schedule.notify_all(condition);
    }

    fn connect(&self, address: &str, within: Duration) -> io::Result<u64> {
        let cluster = &self.cluster;
        let until = cluster.schedule.now() + within;
        let host = self.process.host();
        self.travel("connect", cluster.server(host, address));
        while !cluster.is_up(host, cluster.server(host, address).host()) {
            let left = until.saturating_sub(cluster.schedule.now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.pause("late", None, left.min(RETRANSMISSION));
        }
        // The address may have become another process's meanwhile.
        let server = cluster.server(host, address);
        if !cluster.is_alive(server) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let heard = cluster.schedule.now();
        let mut state = lock(&cluster.state);
        let number = state.next;
        state.next += 1;
        let connection = Connection { client: self.process, server, node: None, closed: false, heard };
        state.connections.insert(number, connection);
        Ok(number)
    }

    fn call(&self, connection: u64, message: &[u8], within: Duration) -> io::Result<Vec<u8>> {
        let cluster = &self.cluster;
        let until = cluster.schedule.now() + within;
        let server = lock(&cluster.state).connections.get(&connection).map(|it| it.server);
        let server = server.ok_or(io::ErrorKind::ConnectionReset)?;
        let mut bytes = message;
        let request = match server {
            Process::Node(..) => {
                let (request, payload) = decode(&mut bytes).expect("a request to a node");
                Request::Node(request, payload)
            }
            _ => Request::Coordinator(decode(&mut bytes).expect("a request to the coordinator").0),
        };
        let (arriving, answered) = request.steps();
        self.travel(arriving, server);
        self.arrives(connection, until)?;
        cluster.schedule.set_serving(self.number, true);
        self.host.set(server.host());
        let answer = cluster.serve(connection, request);
        self.host.set(self.process.host());
        cluster.schedule.set_serving(self.number, false);
        self.trace(server, message, &answer);
        self.travel(answered, server);
        self.arrives(connection, until)?;
        Ok(answer)
    }

    fn close(&self, connection: u64) {
        if let Some(connection) = lock(&self.cluster.state).connections.get_mut(&connection) {
            connection.closed = true;
        }
    }
}
