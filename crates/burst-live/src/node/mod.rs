//! The daemon of a node: a buffer in memory that takes pieces of checkpoints and drains them to the PFS.

mod authority;
mod buffer;
mod cap;
pub(crate) mod drain;
pub(crate) mod link;
mod owner;
mod share;
#[cfg(test)]
mod user_tests;

use crate::checksum::crc32c;
use crate::clock;
use crate::credentials::{Bearer, Credential, Key, Seal};
use crate::message::{FromNode, NodeStatus, ToNode};
use crate::pfs::Pfs;
use crate::report::report;
use crate::server::{Server, Users, listen, lock};
use crate::wire::{self, WireError};
use buffer::Buffer;
use entresol_burst::{DrainPriority, Event, NodeId, NotAdmitted, Owner, Policy, Reservation};
use owner::Acting;
use share::ShareServer;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time after which the connection of a silent writer is closed.
const SILENCE: Duration = Duration::from_secs(60);
/// Deadline of one message.
const MESSAGE: Duration = Duration::from_secs(5);
/// Pause of the drain when nothing is stored.
const DRAIN_IDLE: Duration = Duration::from_millis(20);

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// The node.
    pub node: NodeId,
    /// Address to listen at.
    pub listen: String,
    /// Address at which writers reach the node; none is the address of the socket.
    pub advertise: Option<String>,
    /// Address of the coordinator.
    pub coordinator: String,
    /// Size of the buffer in bytes.
    pub capacity: u64,
    /// Key of the cluster. None is to serve every process as the same user.
    pub key: Option<Key>,
    /// Most bytes a second that the drain writes to the PFS, above 0; none is no cap. A tenth of a second's bytes and one chunk of
    /// [`crate::CHUNK_BYTES`] may be written at once.
    pub drain_rate: Option<u64>,
}

/// State that the threads of the daemon share.
pub(crate) struct Shared {
    node: NodeId,
    incarnation: u64,
    advertised: String,
    coordinator: String,
    key: Option<Key>,
    users: Users,
    drain_rate: Option<u64>,
    pfs: Arc<dyn Pfs>,
    buffer: Mutex<Buffer>,
    /// Notified when there is an event for the coordinator.
    announced: Condvar,
    policy: Mutex<Option<Policy>>,
    /// True while drains make way to writers that write to the PFS directly.
    direct: AtomicBool,
    stopping: AtomicBool,
    /// Guards nothing; the drain and the pauses wait on it.
    idle: Mutex<()>,
    work: Condvar,
}

impl Shared {
    pub(crate) fn new(
        settings: &NodeSettings,
        incarnation: u64,
        address: String,
        pfs: Arc<dyn Pfs>,
    ) -> io::Result<Shared> {
        Ok(Shared {
            node: settings.node,
            incarnation,
            advertised: settings.advertise.clone().unwrap_or(address),
            coordinator: settings.coordinator.clone(),
            key: settings.key.clone(),
            users: Users::default(),
            drain_rate: settings.drain_rate,
            pfs,
            buffer: Mutex::new(Buffer::new(settings.node, incarnation, settings.capacity)?),
            announced: Condvar::new(),
            policy: Mutex::new(None),
            direct: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            idle: Mutex::new(()),
            work: Condvar::new(),
        })
    }

    /// Notes whether writers write to the PFS directly, as far as this node's coordinator knows.
    fn note_direct(&self, direct: bool) {
        let is_low = lock(&self.policy).is_some_and(|policy| policy.drain == DrainPriority::Low);
        self.direct.store(direct && is_low, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Wakes the threads that wait for events and for stored pieces.
    fn announce(&self) {
        clock::notify_all(&self.announced);
        clock::notify_all(&self.work);
    }

    fn pause(&self, time: Duration) {
        let guard = lock(&self.idle);
        if !self.is_stopping() {
            drop(clock::wait(&self.work, &self.idle, guard, time));
        }
    }

    fn wait_for_work(&self) {
        self.pause(DRAIN_IDLE);
    }

    /// Counters.
    fn status(&self) -> NodeStatus {
        NodeStatus { drain_rate: self.drain_rate, ..lock(&self.buffer).status() }
    }

    /// The credential of this node with its coordinator.
    fn credential(&self) -> Option<Credential> {
        self.key.clone().map(Credential::Key)
    }

    /// The buffer when all space without an owner is zero.
    fn zeroed(&self) -> MutexGuard<'_, Buffer> {
        loop {
            // Writers have the lock between two parts.
            let mut buffer = lock(&self.buffer);
            if !buffer.zero_next() {
                return buffer;
            }
        }
    }

    /// Makes this thread act for a piece's owner, if there is a key and this process is root's.
    fn act_for(&self, owner: Owner) -> io::Result<Option<Acting>> {
        let acts = self.key.is_some() && owner::may_act_for_others() && !owner.is_root();
        acts.then(|| Acting::of(owner)).transpose()
    }

    /// The first events for the coordinator; none after a time without any. Space that they free is zero.
    fn wait_for_events(&self, most: usize, time: Duration) -> Vec<(u64, Event)> {
        let buffer = self.zeroed();
        let events = buffer.outbox(most);
        if !events.is_empty() || self.is_stopping() {
            return events;
        }
        drop(clock::wait(&self.announced, &self.buffer, buffer, time));
        self.zeroed().outbox(most)
    }
}

/// A running node.
pub struct NodeDaemon {
    shared: Arc<Shared>,
    server: Server,
    shares: Option<ShareServer>,
    threads: Vec<JoinHandle<()>>,
}

impl NodeDaemon {
    /// Starts a node with an empty buffer.
    ///
    /// # Errors
    /// When there is not enough memory, or the address is in use.
    pub fn start(settings: &NodeSettings, pfs: Arc<dyn Pfs>) -> io::Result<NodeDaemon> {
        let listener = listen(&settings.listen)?;
        let address = listener.local_addr()?.to_string();
        // A later start has a later time: its number is higher than those of all starts before.
        let incarnation = clock::now_ns();
        let shared = Arc::new(Shared::new(settings, incarnation, address, pfs)?);
        if shared.key.is_some() && !owner::may_act_for_others() {
            report!("node {}: not root: what it writes to the PFS belongs to its own user", shared.node.0);
        }
        let own = Arc::clone(&shared);
        let server = Server::start(listener, Arc::new(move |stream| drop(exchange(&own, &stream))))?;
        let start = |name: &str, work: fn(&Shared)| {
            let own = Arc::clone(&shared);
            std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&own))
        };
        let threads = vec![start("drain", drain::run)?, start("coordinator", link::run)?];
        let shares = ShareServer::start(&shared);
        if let Err(error) = &shares {
            report!("node {}: writers on this host send their bytes: {error}", shared.node.0);
        }
        Ok(NodeDaemon { shared, server, shares: shares.ok(), threads })
    }

    /// Address at which the node listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Takes no further piece from now on; those that are stored are drained.
    pub fn retire(&self) {
        lock(&self.shared.buffer).retire();
    }

    /// Counters.
    pub fn status(&self) -> NodeStatus {
        self.shared.status()
    }

    /// True while drains make way to writers that write to the PFS directly.
    #[cfg(test)]
    pub(crate) fn makes_way(&self) -> bool {
        self.shared.direct.load(Ordering::Relaxed)
    }
}

impl Drop for NodeDaemon {
    /// Stops at once: pieces that are not on the PFS are lost, as when the process is killed.
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.server.stop();
        drop(self.shares.take());
        self.shared.announce();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Serves one connection of a writer.
fn exchange(shared: &Shared, stream: &TcpStream) -> Result<(), WireError> {
    let bearer = wire::admit(stream, shared.key.as_ref(), MESSAGE)?;
    let Some(_counted) = shared.users.enter(bearer.user()) else { return Ok(()) };
    let mut payload = Vec::new();
    loop {
        let request = wire::receive_next::<ToNode>(stream, &mut payload, SILENCE, MESSAGE)?;
        let (answer, bytes) = answer(shared, bearer, request, &payload);
        wire::send(stream, &answer, &bytes, MESSAGE)?;
    }
}

/// Answers one request of a peer.
pub(crate) fn answer(shared: &Shared, bearer: Bearer, request: ToNode, payload: &[u8]) -> (FromNode, Vec<u8>) {
    let refused = |why: &str| (FromNode::Refused { why: why.to_owned() }, Vec::new());
    let job_of = |lease| lock(&shared.buffer).job_of(lease);
    if let Err(why) = authority::authorise(bearer, &request, job_of, clock::now_ns()) {
        return refused(why);
    }
    let is_sealed = |grant: &Reservation, seal: &Option<Seal>| {
        shared.key.as_ref().is_none_or(|key| key.is_sealed(grant, seal.as_ref()))
    };
    if let ToNode::Write { grant, seal, .. } | ToNode::Fill { grant, seal, .. } = &request
        && !is_sealed(grant, seal)
    {
        return refused("the grant is not as the coordinator has sealed it");
    }
    let done = |result: Result<(), buffer::Refusal>| match result {
        Ok(()) => FromNode::Done,
        Err(buffer::Refusal::NotAdmitted(NotAdmitted::Durable)) => FromNode::Durable,
        Err(refusal) => FromNode::Refused { why: refusal.to_string() },
    };
    let answer = match request {
        ToNode::Write { grant, about, chunk, .. } => {
            // Other writers have the lock meanwhile.
            let crc = crc32c(payload);
            done(lock(&shared.buffer).write(&grant, about, chunk, payload, crc))
        }
        ToNode::Fill { grant, about, share, .. } => match lock(&shared.buffer).fill(&grant, about, share) {
            Ok(true) => FromNode::Done,
            Ok(false) => FromNode::Elsewhere,
            Err(refusal) => done(Err(refusal)),
        },
        ToNode::Store { lease, crcs } => {
            let stored = done(lock(&shared.buffer).stored(lease, &crcs));
            shared.announce();
            stored
        }
        ToNode::Read { lease, chunk } => match lock(&shared.buffer).read(lease, chunk) {
            Ok(bytes) => return (FromNode::Chunk, bytes),
            Err(refusal) => done(Err(refusal)),
        },
        ToNode::Locate { lease, share } => match lock(&shared.buffer).locate(lease, share) {
            Ok(Some(extents)) => FromNode::Located { extents },
            Ok(None) => FromNode::Elsewhere,
            Err(refusal) => done(Err(refusal)),
        },
        ToNode::Pieces { job } => FromNode::Pieces { node: shared.node, pieces: lock(&shared.buffer).pieces(job) },
        ToNode::Status => FromNode::Status(authority::visible(bearer, shared.status())),
    };
    (answer, Vec::new())
}
