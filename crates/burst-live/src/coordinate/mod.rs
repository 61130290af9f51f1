//! The coordinator daemon: it raises its epoch, waits for the nodes' reports, and answers writers.

mod authority;
mod epoch;
mod log;
mod state;
#[cfg(test)]
mod user_tests;

pub use log::{ReplayError, Replayed, replay};

use crate::clock;
use crate::credentials::{Bearer, Key};
use crate::message::{FromCoordinator, ToCoordinator};
use crate::server::{Server, Users, listen, lock};
use crate::wire::{self, WireError};
use entresol_burst::{Coordinator, Epoch, Event, LEASE_NS, NodeId, Owner, Place, Policy, Redundancy, Share};
use log::GrantLog;
use state::State;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time after which a silent node is lost. Nodes report several times a second.
const NODE_SILENCE: Duration = Duration::from_secs(5);
/// Time after which the connection of a silent writer is closed.
const WRITER_SILENCE: Duration = Duration::from_secs(60);
/// Deadline of one message.
const MESSAGE: Duration = Duration::from_secs(5);
/// Time that a commit waits for the nodes' messages about the last pieces.
const COMMIT_WAIT: Duration = Duration::from_secs(2);
/// Longest time, up to a lease, for which drains make way to a writer that writes to the PFS directly.
const DIRECT_MAX: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(100);

/// Settings of a coordinator.
#[derive(Clone, Debug)]
pub struct CoordinatorSettings {
    /// Address to listen at.
    pub listen: String,
    /// Directory of the epoch. It belongs to one coordinator, and outlives it.
    pub state: PathBuf,
    /// The policy.
    pub policy: Policy,
    /// Number of nodes that are waited for after a start.
    pub nodes: Option<usize>,
    /// Longest time that nodes are waited for.
    pub wait: Duration,
    /// Length of a lease in nanoseconds.
    pub lease_ns: u64,
    /// File for every event and its grants.
    pub grant_log: Option<PathBuf>,
    /// Key of the cluster. None is to serve every process as the same user.
    pub key: Option<Key>,
    /// Largest part of all buffer space that one user may have.
    pub share: Share,
}

impl CoordinatorSettings {
    /// Settings with defaults: the policy `chunked`, and a wait of ten seconds.
    pub fn new(listen: &str, state: PathBuf) -> CoordinatorSettings {
        CoordinatorSettings {
            listen: listen.to_owned(),
            state,
            policy: Policy::new(entresol_burst::Kind::Chunked),
            nodes: None,
            wait: Duration::from_secs(10),
            lease_ns: LEASE_NS,
            grant_log: None,
            key: None,
            share: Share::ALL,
        }
    }
}

pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    /// Notified when a node's events were applied.
    pub(crate) applied: Condvar,
    pub(crate) stopping: AtomicBool,
    key: Option<Key>,
    users: Users,
}

impl Shared {
    pub(crate) fn new(settings: &CoordinatorSettings, epoch: Epoch, log: Option<GrantLog>) -> Shared {
        let mut coordinator = Coordinator::new(settings.policy, epoch, settings.lease_ns);
        coordinator.set_share(settings.share);
        let direct_max = DIRECT_MAX.min(Duration::from_nanos(settings.lease_ns));
        let state = State::new(coordinator, settings.policy, log, settings.nodes, settings.wait, direct_max);
        let (applied, stopping) = (Condvar::new(), AtomicBool::new(false));
        Shared { state: Mutex::new(state), applied, stopping, key: settings.key.clone(), users: Users::default() }
    }
}

/// Ends leases and the wait for nodes until the daemon stops.
pub(crate) fn tick(shared: &Shared) {
    while !shared.stopping.load(Ordering::SeqCst) {
        lock(&shared.state).tick();
        clock::sleep(TICK);
    }
}

/// A running coordinator.
pub struct CoordinatorDaemon {
    shared: Arc<Shared>,
    server: Server,
    ticker: Option<JoinHandle<()>>,
    epoch: Epoch,
    _state: epoch::StateDirectory,
}

impl CoordinatorDaemon {
    /// Starts a coordinator. Its epoch is durable before it listens.
    ///
    /// # Errors
    /// When the epoch cannot be raised, the address is in use, or the policy has a redundancy that is not live.
    pub fn start(settings: &CoordinatorSettings) -> io::Result<CoordinatorDaemon> {
        if settings.policy.redundancy == Redundancy::Xor {
            let why = "redundancy=xor is simulated only: a lost piece cannot be rebuilt from a live parity";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let (held, epoch) = epoch::raise(&settings.state)?;
        let log = match &settings.grant_log {
            Some(path) => Some(GrantLog::create(path, &settings.policy, epoch, settings.lease_ns, settings.share)?),
            None => None,
        };
        let listener = listen(&settings.listen)?;
        let shared = Arc::new(Shared::new(settings, epoch, log));
        let own = Arc::clone(&shared);
        let server = Server::start(listener, Arc::new(move |stream| serve(&own, &stream)))?;
        let own = Arc::clone(&shared);
        let ticker = Some(std::thread::Builder::new().name("tick".to_owned()).spawn(move || tick(&own))?);
        Ok(CoordinatorDaemon { shared, server, ticker, epoch, _state: held })
    }

    /// Address at which the coordinator listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// The epoch of this start.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Checks that on every node the granted and the free bytes make up the buffer.
    ///
    /// # Errors
    /// The first node on which they do not.
    pub fn check(&self) -> Result<(), String> {
        lock(&self.shared.state).coordinator().check()
    }
}

impl Drop for CoordinatorDaemon {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.server.stop();
        if let Some(ticker) = self.ticker.take() {
            let _ = ticker.join();
        }
    }
}

/// Serves one connection of a writer or a node.
fn serve(shared: &Shared, stream: &TcpStream) {
    let mut node: Option<(NodeId, u64)> = None;
    // A connection that fails is closed; its peer connects again.
    let _ = exchange(shared, stream, &mut node);
    if let Some((node, generation)) = node {
        lock(&shared.state).disconnected(node, generation);
    }
}

fn exchange(shared: &Shared, stream: &TcpStream, node: &mut Option<(NodeId, u64)>) -> Result<(), WireError> {
    let bearer = wire::admit(stream, shared.key.as_ref(), MESSAGE)?;
    let Some(_counted) = shared.users.enter(bearer.user()) else { return Ok(()) };
    loop {
        let idle = if node.is_some() { NODE_SILENCE } else { WRITER_SILENCE };
        let request = wire::receive_next::<ToCoordinator>(stream, &mut Vec::new(), idle, MESSAGE)?;
        wire::send(stream, &answer(shared, bearer, request, node), &[], MESSAGE)?;
    }
}

/// Answers one request of a peer's connection. `node` is the node that it belongs to, and the number of the connection.
pub(crate) fn answer(
    shared: &Shared,
    bearer: Bearer,
    mut request: ToCoordinator,
    node: &mut Option<(NodeId, u64)>,
) -> FromCoordinator {
    if let Err(why) = authority::authorise(bearer, &request, clock::now_ns()) {
        return FromCoordinator::Refused { why: why.to_owned() };
    }
    if let ToCoordinator::Writer(Event::Open { owner, .. }) = &mut request {
        // Only a ticket says whose the bytes are.
        *owner = match bearer {
            Bearer::Anyone | Bearer::Cluster => Owner::default(),
            Bearer::User(claims) => claims.owner,
        };
    }
    let answer = authority::visible(bearer, obey(shared, request, node));
    match &shared.key {
        Some(key) => sealed(key, answer),
        None => answer,
    }
}

/// Adds the seals of granted reservations.
fn sealed(key: &Key, mut answer: FromCoordinator) -> FromCoordinator {
    if let FromCoordinator::Grants { grants, seals, .. } = &mut answer {
        for grant in grants {
            let Place::Buffer { primary, guard } = &grant.place else { continue };
            let both = [Some(primary), guard.as_ref()].into_iter().flatten();
            seals.extend(both.map(|reservation| (reservation.lease, key.seal(reservation))));
        }
    }
    answer
}

fn obey(shared: &Shared, request: ToCoordinator, node: &mut Option<(NodeId, u64)>) -> FromCoordinator {
    let refused = |why: &str| FromCoordinator::Refused { why: why.to_owned() };
    match (request, *node) {
        (ToCoordinator::Writer(event @ Event::Commit { .. }), _) => commit(shared, &event),
        (ToCoordinator::Writer(event @ (Event::Open { .. } | Event::Renew { .. } | Event::Abandon { .. })), _) => {
            lock(&shared.state).writer(&event)
        }
        (ToCoordinator::Writer(_), _) => refused("not an event of a writer"),
        (ToCoordinator::Nodes, _) => lock(&shared.state).nodes(),
        (ToCoordinator::Hello { node: of, incarnation, address, pfs }, None) => {
            match lock(&shared.state).hello(of, incarnation, address, pfs) {
                Ok((generation, welcome)) => {
                    *node = Some((of, generation));
                    welcome
                }
                Err(why) => refused(&why),
            }
        }
        (ToCoordinator::Report(report), Some((of, generation))) => lock(&shared.state).report(of, generation, report),
        (ToCoordinator::Events(events), Some((of, generation))) => {
            let answer = lock(&shared.state).events(of, generation, &events);
            if !events.is_empty() {
                clock::notify_all(&shared.applied);
            }
            answer
        }
        (ToCoordinator::Hello { .. }, Some(_)) => refused("this connection is a node's already"),
        (ToCoordinator::Report(_) | ToCoordinator::Events(_), None) => refused("this connection is no node's"),
    }
}

/// Commits an object. The nodes' messages about its last pieces may still be on their way.
fn commit(shared: &Shared, event: &Event) -> FromCoordinator {
    let until = clock::now() + COMMIT_WAIT;
    let mut state = lock(&shared.state);
    loop {
        if let Some(answer) = state.commit(event) {
            return answer;
        }
        let left = until.saturating_duration_since(clock::now());
        if left.is_zero() || shared.stopping.load(Ordering::SeqCst) {
            return FromCoordinator::Refused { why: "parts of the object are not stored: open it again".to_owned() };
        }
        state = clock::wait(&shared.applied, &shared.state, state, left);
    }
}
