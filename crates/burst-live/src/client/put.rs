//! Writing of an object: open, write the grants, commit. An attempt that fails is followed by a new one, and at the end
//! the object goes to the PFS.

use super::{Client, ClientError, MESSAGE, Peers, ask};
use crate::checksum::{CHUNK_BYTES, crc32c, of_chunks};
use crate::clock;
use crate::credentials::Seal;
use crate::index::FILES;
use crate::layout;
use crate::message::{About, FromCoordinator, FromNode, Part, ToCoordinator, ToNode};
use crate::mutant::{self, Mutant};
use crate::report::report;
use crate::share::Share;
use entresol_burst::{Event, Grant, Lease, Object, Owner, Place, Reservation, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most attempts to use the buffers.
const ATTEMPTS_MAX: usize = 4;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Time in which the writer's node may connect to a coordinator that has started again.
const ABSENCE_MAX: Duration = Duration::from_secs(2);
/// Deadline of the message that gives up an object.
const ABANDON: Duration = Duration::from_secs(1);

/// Safety of acknowledged bytes, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// In the memory of one node: its loss loses them.
    Absorbed,
    /// In the memory of two nodes.
    Replicated,
    /// Durable on the PFS.
    Durable,
}

impl Level {
    /// The name of the level.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Absorbed => "absorbed",
            Level::Replicated => "replicated",
            Level::Durable => "durable",
        }
    }
}

/// A part of an acknowledged object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutPart {
    /// Offset in the object of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Safety of the part.
    pub level: Level,
    /// The media that have the part.
    pub media: Vec<String>,
}

/// The answer to a put: the bytes are stored, and the writer may forget them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Safety of the object: that of its weakest part.
    pub level: Level,
    /// The parts, by offset.
    pub parts: Vec<PutPart>,
    /// Attempts that failed before.
    pub failures: Vec<String>,
}

impl Acknowledgement {
    fn of(parts: Vec<PutPart>) -> Acknowledgement {
        let level = parts.iter().map(|part| part.level).min().unwrap_or(Level::Durable);
        Acknowledgement { level, parts, failures: Vec::new() }
    }
}

/// Safety of what was stored with several acknowledgements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Safety {
    /// Safety of the weakest part; durable if nothing was stored.
    pub level: Level,
    /// The media that have parts.
    pub media: BTreeSet<String>,
}

impl Default for Safety {
    fn default() -> Safety {
        Safety { level: Level::Durable, media: BTreeSet::new() }
    }
}

impl Safety {
    /// Adds the parts of an acknowledgement.
    pub fn add(&mut self, acknowledged: &Acknowledgement) {
        self.level = self.level.min(acknowledged.level);
        self.media.extend(acknowledged.parts.iter().flat_map(|part| part.media.iter().cloned()));
    }
}
/// Grants, and the seals of their reservations if there is a key.
type Granted = (Vec<Grant>, Vec<(Lease, Seal)>);

/// Progress of a piece, as its node has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The bytes are at the node.
    Here,
    /// The piece is a copy of bytes that have come to the PFS meanwhile.
    Durable,
}

/// Time that is left until a writer gives up the buffers.
struct Patience {
    limit: Duration,
    progress: Instant,
}

impl Patience {
    /// Deadline for the next message; zero when nothing is left.
    fn message(&self) -> Duration {
        if mutant::is(Mutant::PatienceEndless) {
            return MESSAGE;
        }
        self.limit.saturating_sub(clock::elapsed(self.progress)).min(MESSAGE)
    }

    fn is_over(&self) -> bool {
        clock::elapsed(self.progress) >= self.limit && !mutant::is(Mutant::PatienceEndless)
    }
}

/// One attempt to write an object.
struct Attempt<'a> {
    client: &'a Client,
    address: &'a str,
    object: Object,
    about: About,
    bytes: &'a [u8],
    patience: &'a mut Patience,
    peers: Peers,
    addresses: BTreeMap<u32, String>,
    /// Time at which the leases are renewed.
    renew_ns: u64,
    /// Newest ends of the leases, and the seals of the grants with these ends.
    leases: BTreeMap<Lease, (u64, Option<Seal>)>,
    /// True if a byte has arrived at a node.
    progress: bool,
}

impl Client {
    /// Stores the bytes of one rank for a checkpoint.
    ///
    /// A checkpoint is numbered once. A rank that is put again while its earlier bytes are in buffers goes to the PFS.
    ///
    /// # Errors
    /// When neither a buffer nor the PFS takes the bytes. Nothing is acknowledged then.
    pub fn put(&self, object: Object, ranks: u32, bytes: &[u8]) -> Result<Acknowledgement, ClientError> {
        if object.rank >= ranks || ranks >= FILES {
            return Err(ClientError::NoSuchRank(object.rank, ranks));
        }
        self.store(object, ranks, bytes, self.settings.patience)
    }

    /// Stores the bytes of an object, which may be an index or a piece of a file. Buffers without progress are given up
    /// after `patience`.
    pub(super) fn store(
        &self,
        object: Object,
        ranks: u32,
        bytes: &[u8],
        patience: Duration,
    ) -> Result<Acknowledgement, ClientError> {
        let mut failures = Vec::new();
        let address = self.settings.coordinator.as_deref().filter(|_| !bytes.is_empty());
        if let Some(address) = address {
            let mut patience = Patience { limit: patience, progress: clock::now() };
            let mut attempts = 0;
            let mut absent: Option<Instant> = None;
            while attempts < ATTEMPTS_MAX && !patience.is_over() {
                let (result, progress) = self.attempt(address, object, ranks, bytes, &mut patience);
                match result {
                    Ok(acknowledgement) => return Ok(Acknowledgement { failures, ..acknowledgement }),
                    Err(error) => {
                        let is_absent = matches!(error, ClientError::Absent(..));
                        let is_final = error.is_final();
                        absent = if is_absent { absent.or(Some(clock::now())) } else { None };
                        failures.push(error.to_string());
                        if is_final {
                            break;
                        }
                    }
                }
                if absent.is_some_and(|since| clock::elapsed(since) >= ABSENCE_MAX) {
                    break;
                }
                attempts += usize::from(progress);
                if failures.len() > 1 && failures[failures.len() - 2] == failures[failures.len() - 1] {
                    // The same reason again, such as a node that has not reported yet.
                    failures.pop();
                }
                clock::sleep(PAUSE.min(patience.message()));
            }
            if !failures.is_empty() {
                self.abandon(address, object);
            }
        }
        match self.put_on_pfs(object, ranks, bytes) {
            Ok(part) => Ok(Acknowledgement { failures, ..Acknowledgement::of(vec![part]) }),
            Err(pfs) => Err(ClientError::NotStored { failures, pfs }),
        }
    }

    /// Gives up an object at the coordinator. If the message is lost, the leases end by themselves.
    fn abandon(&self, address: &str, object: Object) {
        if let Ok(peer) = self.connect(address, ABANDON) {
            let _ = ask(&peer, address, &ToCoordinator::Writer(Event::Abandon { object }), ABANDON);
        }
    }

    /// Writes a whole object to the PFS.
    fn put_on_pfs(&self, object: Object, ranks: u32, bytes: &[u8]) -> std::io::Result<PutPart> {
        let about = About { ranks, total: bytes.len() as u64, attempt: clock::now_ns() };
        let part = Part { object, about, offset: 0, bytes: about.total };
        layout::write_part(&*self.pfs, &part, &of_chunks(bytes), &mut &*bytes)?;
        self.finish(object);
        Ok(on_pfs(&part))
    }

    /// Writes the manifest if this was the last part. The part is durable already, so a failure is not the writer's:
    /// `drain` and every later part try again.
    fn finish(&self, object: Object) {
        if let Err(error) = layout::finish(&*self.pfs, object.job, object.checkpoint) {
            report!("{object}: stored, but the manifest was not written: {error}");
        }
    }

    /// Returns the result of one attempt, and true if it has moved bytes.
    fn attempt(
        &self,
        address: &str,
        object: Object,
        ranks: u32,
        bytes: &[u8],
        patience: &mut Patience,
    ) -> (Result<Acknowledgement, ClientError>, bool) {
        let about = About { ranks, total: bytes.len() as u64, attempt: clock::now_ns() };
        let mut attempt = Attempt {
            client: self,
            address,
            object,
            about,
            bytes,
            patience,
            peers: self.peers(),
            addresses: BTreeMap::new(),
            renew_ns: u64::MAX,
            leases: BTreeMap::new(),
            progress: false,
        };
        let result = attempt.run();
        (result, attempt.progress)
    }
}

fn on_pfs(part: &Part) -> PutPart {
    PutPart { offset: part.offset, bytes: part.bytes, level: Level::Durable, media: vec!["the PFS".to_owned()] }
}

impl Attempt<'_> {
    fn run(&mut self) -> Result<Acknowledgement, ClientError> {
        let (object, ranks) = (self.object, self.about.ranks);
        // The coordinator takes the owner from the ticket.
        let (node, bytes, owner) = (self.client.settings.node, self.about.total, Owner::default());
        let open = Event::Open { object, ranks, node, bytes, owner };
        let opened_ns = clock::now_ns();
        let (grants, seals) = self.ask(open)?;
        self.note_leases(&grants, &seals, opened_ns);
        let mut parts = Vec::new();
        for grant in &grants {
            parts.push(self.write(grant)?);
        }
        if parts.iter().any(|part| part.level == Level::Durable) {
            self.client.finish(object);
        }
        if !mutant::is(Mutant::AcknowledgedUncopied) {
            self.ask(Event::Commit { object })?;
        }
        Ok(Acknowledgement::of(parts))
    }

    /// Sends an event to the coordinator and returns its grants with their seals. Each event has a connection of its own: between two of
    /// them is the time of a write.
    fn ask(&mut self, event: Event) -> Result<Granted, ClientError> {
        let within = self.patience.message();
        let peer = self.client.connect(self.address, within)?;
        match ask(&peer, self.address, &ToCoordinator::Writer(event), within)? {
            FromCoordinator::Grants { grants, addresses, pfs, seals } => {
                self.client.check_directory(self.address, pfs.as_deref())?;
                self.addresses.extend(addresses);
                Ok((grants, seals))
            }
            _ => Err(ClientError::Unexpected(self.address.to_owned())),
        }
    }

    /// Notes the ends of leases and their seals; they are renewed when half of their time has passed.
    fn note_leases(&mut self, grants: &[Grant], seals: &[(Lease, Seal)], now_ns: u64) {
        let buffers = grants.iter().filter_map(|grant| match &grant.place {
            Place::Buffer { primary, guard } => Some([Some(primary), guard.as_ref()]),
            Place::Pfs => None,
        });
        let seals: BTreeMap<Lease, Seal> = seals.iter().copied().collect();
        let granted: Vec<&Reservation> = buffers.flatten().flatten().collect();
        self.leases.extend(granted.iter().map(|it| (it.lease, (it.expires_ns, seals.get(&it.lease).copied()))));
        // Leases of finished pieces are not renewed.
        let first = granted.iter().map(|it| it.expires_ns).min();
        self.renew_ns = first.map_or(u64::MAX, |end| now_ns + end.saturating_sub(now_ns) / 2);
    }

    /// A grant with the newest end of its lease, and its seal.
    fn newest(&self, reservation: &Reservation) -> (Reservation, Option<Seal>) {
        let (expires_ns, seal) = self.leases.get(&reservation.lease).copied().unwrap_or((reservation.expires_ns, None));
        (Reservation { expires_ns, ..reservation.clone() }, seal)
    }

    fn renew_if_due(&mut self) -> Result<(), ClientError> {
        let now_ns = clock::now_ns();
        if now_ns >= self.renew_ns {
            let (grants, seals) = self.ask(Event::Renew { object: self.object })?;
            self.note_leases(&grants, &seals, now_ns);
        }
        Ok(())
    }

    fn write(&mut self, grant: &Grant) -> Result<PutPart, ClientError> {
        let part = Part { object: self.object, about: self.about, offset: grant.offset, bytes: grant.bytes };
        let whole = self.bytes;
        let bytes = usize::try_from(grant.offset)
            .ok()
            .zip(usize::try_from(grant.bytes).ok())
            .and_then(|(offset, length)| whole.get(offset..offset.checked_add(length)?))
            .ok_or_else(|| ClientError::Unexpected(self.address.to_owned()))?;
        let Place::Buffer { primary, guard } = &grant.place else {
            let written = layout::write_part(&*self.client.pfs, &part, &of_chunks(bytes), &mut &*bytes);
            written.map_err(ClientError::Pfs)?;
            self.note_progress();
            return Ok(on_pfs(&part));
        };
        let (mut media, mut crcs) = (Vec::new(), None);
        for reservation in [Some(primary), guard.as_ref()].into_iter().flatten() {
            if (reservation.role == Role::Primary || !mutant::is(Mutant::AcknowledgedUncopied))
                && self.write_piece(reservation, bytes, &mut crcs)? == Progress::Durable
            {
                return Ok(on_pfs(&part));
            }
            media.push(format!("memory of node {}", reservation.node.0));
        }
        let level = if guard.is_some() { Level::Replicated } else { Level::Absorbed };
        Ok(PutPart { offset: grant.offset, bytes: grant.bytes, level, media })
    }

    /// Writes a piece, unless it is a copy of bytes that are on the PFS. Its checksums are those of the bytes, which may be
    /// known from a piece before.
    fn write_piece(
        &mut self,
        reservation: &Reservation,
        bytes: &[u8],
        crcs: &mut Option<Vec<u32>>,
    ) -> Result<Progress, ClientError> {
        let unknown = || ClientError::Unexpected(self.address.to_owned());
        let address = self.addresses.get(&reservation.node.0).cloned().ok_or_else(unknown)?;
        if let Some(share) = self.share(reservation, &address) {
            let filled = self.fill(&share, reservation, &address, bytes);
            if !matches!(filled, Ok(None | Some((_, Progress::Here)))) {
                // The node may let this process fill the piece still; it does not when the share is closed.
                self.client.shares.close(&address, share.id);
            }
            if let Some((own, progress)) = filled? {
                *crcs = Some(own);
                return Ok(progress);
            }
        }
        let known = crcs.take();
        let mut own = Vec::new();
        for (chunk, part) in bytes.chunks(CHUNK_BYTES as usize).enumerate() {
            self.renew_if_due()?;
            let (grant, seal) = self.newest(reservation);
            let write = ToNode::Write { grant, about: self.about, chunk: chunk as u64, seal };
            // The first chunk may need a new connection. The node has one chunk while the next one is sent.
            let mut progress = Progress::Here;
            if chunk == 0 {
                progress = self.node(&address, &write, part)?;
                self.note_progress();
            } else {
                self.peers.begin(&address, &write, part, self.patience.message())?;
            }
            if known.is_none() {
                own.push(crc32c(part));
            }
            if chunk > 1 {
                progress = self.written(&address)?;
            }
            if progress == Progress::Durable {
                self.peers.close(&address);
                return Ok(progress);
            }
        }
        if bytes.len() as u64 > CHUNK_BYTES && self.written(&address)? == Progress::Durable {
            return Ok(Progress::Durable);
        }
        let known = crcs.insert(known.unwrap_or(own)).clone();
        self.node(&address, &ToNode::Store { lease: reservation.lease, crcs: known }, &[])
    }

    /// Receives the answer to a chunk that was sent before the last one, or to the last one.
    fn written(&mut self, address: &str) -> Result<Progress, ClientError> {
        let answer = self.peers.end(address, self.patience.message())?;
        let progress = progress(address, &answer.0)?;
        self.note_progress();
        Ok(progress)
    }

    fn note_progress(&mut self) {
        self.patience.progress = clock::now();
        self.progress = true;
    }

    /// The memory of a node, if it is the writer's own, and shared.
    fn share(&self, reservation: &Reservation, address: &str) -> Option<Arc<Share>> {
        if reservation.node != self.client.settings.node || clock::is_simulated() {
            return None;
        }
        self.client.shares.get(address, self.patience.message())
    }

    /// Fills a piece in the memory of a node, and returns the checksums and the progress; none if this memory is another node's.
    fn fill(
        &mut self,
        share: &Share,
        reservation: &Reservation,
        address: &str,
        bytes: &[u8],
    ) -> Result<Option<(Vec<u32>, Progress)>, ClientError> {
        self.renew_if_due()?;
        let (grant, seal) = self.newest(reservation);
        let fill = ToNode::Fill { grant, about: self.about, share: share.id, seal };
        match self.peers.node(address, &fill, &[], self.patience.message())? {
            (FromNode::Done, _) => {}
            (FromNode::Durable, _) => return Ok(Some((Vec::new(), Progress::Durable))),
            (FromNode::Elsewhere, _) => {
                self.client.shares.avoid(address);
                return Ok(None);
            }
            _ => return Err(ClientError::Unexpected(address.to_owned())),
        }
        let failed = |error| ClientError::Share(address.to_owned(), error);
        share.touch(&reservation.extents).map_err(failed)?;
        let mut crcs = Vec::new();
        for (chunk, part) in (0..).zip(bytes.chunks(CHUNK_BYTES as usize)) {
            crcs.push(share.copy(&reservation.extents, chunk * CHUNK_BYTES, part).map_err(failed)?);
            self.note_progress();
        }
        let progress = self.node(address, &ToNode::Store { lease: reservation.lease, crcs: crcs.clone() }, &[])?;
        Ok(Some((crcs, progress)))
    }

    fn node(&mut self, address: &str, request: &ToNode, payload: &[u8]) -> Result<Progress, ClientError> {
        let answer = self.peers.node(address, request, payload, self.patience.message())?;
        progress(address, &answer.0)
    }
}

/// The progress of a piece by the answer of a node.
fn progress(address: &str, answer: &FromNode) -> Result<Progress, ClientError> {
    match answer {
        FromNode::Done => Ok(Progress::Here),
        FromNode::Durable => Ok(Progress::Durable),
        _ => Err(ClientError::Unexpected(address.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientSettings;
    use crate::pfs::Directory;
    use crate::share::Access;
    use crate::{CoordinatorDaemon, CoordinatorSettings, NodeDaemon, NodeSettings};
    use entresol_burst::{CheckpointId, JobId, NodeId};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::path::{Path, PathBuf};
    use std::sync::OnceLock;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Settings of a node with a MiB.
    fn node_settings(node: u32, coordinator: &CoordinatorDaemon) -> NodeSettings {
        NodeSettings {
            node: NodeId(node),
            listen: "127.0.0.1:0".to_owned(),
            advertise: None,
            coordinator: coordinator.address().to_string(),
            capacity: 1 << 20,
            key: None,
            drain_rate: None,
        }
    }

    /// A client on the host of node 0.
    fn client(coordinator: &CoordinatorDaemon, pfs: Arc<Directory>) -> Client {
        let settings = ClientSettings {
            coordinator: Some(coordinator.address().to_string()),
            nodes: Vec::new(),
            node: NodeId(0),
            patience: MINUTE,
            credential: None,
        };
        Client::new(settings, pfs)
    }

    #[test]
    fn a_writer_fills_the_memory_of_its_node_and_gives_it_up_when_the_node_ends() {
        let scratch = tempfile::tempdir().expect("a directory");
        let mut settings = CoordinatorSettings::new("127.0.0.1:0", scratch.path().join("state"));
        (settings.policy, settings.nodes) = ("cdbb".parse().expect("a policy"), Some(1));
        let coordinator = CoordinatorDaemon::start(&settings).expect("a coordinator");
        let pfs = Arc::new(Directory::open(scratch.path()).expect("a directory"));
        let node = NodeDaemon::start(&node_settings(0, &coordinator), pfs.clone()).expect("a node");
        let address = node.address().to_string();
        let client = client(&coordinator, pfs);
        // Not a multiple of the length of a chunk, nor of a part that is copied.
        let bytes: Vec<u8> = (0..150_001_u64).map(|at| ((at * at) >> 7) as u8).collect();
        for checkpoint in 1..4 {
            let object = Object { job: JobId(1), checkpoint: CheckpointId(checkpoint), rank: 0 };
            assert_eq!(client.put(object, 1, &bytes).expect("stored").level, Level::Absorbed);
            let restored = client.restore(JobId(1), Some(object.checkpoint), 0).expect("a checkpoint");
            assert!(restored.bytes == bytes);
            assert!(client.shares.has(&address), "the memory is mapped");
        }
        if rustix::process::getuid().is_root() {
            let (address, nobody) = (address.clone(), rustix::process::Uid::from_raw(65534));
            let others = std::thread::spawn(move || {
                rustix::thread::set_thread_uid(nobody).expect("root may");
                Share::open(&address, MINUTE, Access::Write).map(drop)
            });
            assert!(others.join().expect("it ends").is_err(), "another user has the memory");
        } else {
            entresol_skip::skipped!("root", "only root can be another user");
        }
        drop(node);
        let until = Instant::now() + MINUTE;
        while client.shares.has(&address) {
            assert!(Instant::now() < until, "the mapping is kept");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Passes on what comes at an address to one of two nodes. What comes for the node of the copy, which is written last, waits
    /// until the coordinator has noted that a reservation was given back.
    fn delay_copies(front: TcpListener, node: usize, nodes: &Arc<[OnceLock<SocketAddr>; 3]>, log: PathBuf) {
        let nodes = Arc::clone(nodes);
        std::thread::spawn(move || {
            for from in front.incoming() {
                let (mut from, own) = (from.expect("a connection"), nodes[node].wait());
                let mut to = TcpStream::connect(own).expect("the node listens");
                let until = Instant::now() + MINUTE;
                while nodes[2].get_or_init(|| *own) != own && !log_has_released(&log) {
                    assert!(Instant::now() < until, "nothing is given back");
                    std::thread::sleep(Duration::from_millis(5));
                }
                let (mut back, mut forth) = (to.try_clone().expect("a handle"), from.try_clone().expect("a handle"));
                std::thread::spawn(move || std::io::copy(&mut back, &mut forth));
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        });
    }

    fn log_has_released(log: &Path) -> bool {
        std::fs::read_to_string(log).expect("the log of the grants").contains("Released")
    }

    #[test]
    fn a_copy_of_bytes_that_have_drained_meanwhile_is_not_written() {
        let scratch = tempfile::tempdir().expect("a directory");
        let log = scratch.path().join("grants");
        let mut settings = CoordinatorSettings::new("127.0.0.1:0", scratch.path().join("state"));
        (settings.policy, settings.nodes) = ("chunked".parse().expect("a policy"), Some(2));
        settings.grant_log = Some(log.clone());
        let coordinator = CoordinatorDaemon::start(&settings).expect("a coordinator");
        let pfs = Arc::new(Directory::open(scratch.path()).expect("a directory"));
        // The addresses of two nodes, and of the first that was written to.
        let nodes = Arc::new([const { OnceLock::new() }; 3]);
        let running = [0, 1].map(|node| {
            let front = TcpListener::bind("127.0.0.1:0").expect("a port");
            let advertise = Some(front.local_addr().expect("it is bound").to_string());
            let settings = NodeSettings { advertise, ..node_settings(node, &coordinator) };
            delay_copies(front, node as usize, &nodes, log.clone());
            let running = NodeDaemon::start(&settings, pfs.clone()).expect("a node");
            nodes[node as usize].set(running.address()).expect("once");
            running
        });
        let client = client(&coordinator, pfs);
        let bytes: Vec<u8> = (0..400_001_u64).map(|at| ((at * at) >> 7) as u8).collect();
        let object = Object { job: JobId(1), checkpoint: CheckpointId(1), rank: 0 };
        let acknowledged = client.put(object, 1, &bytes).expect("stored");
        // The nodes may not have reported at the first attempt.
        let is_early = |why: &String| why.ends_with("has not reported to this coordinator");
        assert!(acknowledged.failures.iter().all(is_early), "{:?}", acknowledged.failures);
        assert_eq!(acknowledged.level, Level::Durable);
        assert_eq!(
            acknowledged.parts,
            [PutPart { media: vec!["the PFS".to_owned()], ..acknowledged.parts[0].clone() }]
        );
        assert!(client.restore(JobId(1), Some(object.checkpoint), 0).expect("a checkpoint").bytes == bytes);
        drop(running);
    }
}
