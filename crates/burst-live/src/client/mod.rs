//! The library of writers: put, restore, list and drain the checkpoints of a job.

mod checkpoints;
mod drain;
mod figures;
mod file_reader;
mod file_writer;
mod files;
mod inventory;
mod put;
mod restore;

pub use checkpoints::Checkpoints;
pub use drain::{CheckpointState, State};
pub use figures::{Figures, figures};
pub use file_reader::FileReader;
pub use file_writer::{FileWriter, WriteBuffer};
pub use files::{Committed, FileError, Files};
pub use put::{Acknowledgement, Level, PutPart, Safety};
pub use restore::{Restored, RestoredChunk};

use crate::clock;
use crate::credentials::Credential;
use crate::message::{FromCoordinator, FromNode, ToCoordinator, ToNode};
use crate::pfs::Pfs;
use crate::share::{Access, Shares};
use crate::wire::{Peer, WireError};
use entresol_burst::{CheckpointId, Extent, JobId, Lease, NodeId};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Longest time without progress after which a writer goes to the PFS. With one more message it is below ten seconds.
pub const PATIENCE: Duration = Duration::from_secs(8);
/// Deadline of one message and its answer.
const MESSAGE: Duration = Duration::from_secs(3);

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Address of the coordinator; none is to do without.
    pub coordinator: Option<String>,
    /// Addresses of nodes to ask when there is no coordinator.
    pub nodes: Vec<String>,
    /// The node on which this process runs.
    pub node: NodeId,
    /// Longest time without progress.
    pub patience: Duration,
    /// The ticket of this process, or the key, if the cluster has one.
    pub credential: Option<Credential>,
}

/// A writer or reader of checkpoints. Clones share the memory of nodes that is mapped.
#[derive(Clone)]
pub struct Client {
    settings: ClientSettings,
    pfs: Arc<dyn Pfs>,
    shares: Arc<Shares>,
    /// Memory of nodes that is read.
    views: Arc<Shares>,
}

/// Reason why a call fails.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A rank that is not below the number of ranks.
    #[error("rank {0} of {1} ranks")]
    NoSuchRank(u32, u32),
    /// The bytes could be stored nowhere; the writer still has them.
    #[error("not stored: {failures:?}; the PFS: {pfs}")]
    NotStored {
        /// Failed attempts to use the buffers.
        failures: Vec<String>,
        /// Failure of the PFS.
        pfs: io::Error,
    },
    /// A message failed.
    #[error("{0}: {1}")]
    Wire(String, WireError),
    /// A daemon refused.
    #[error("{0}: {1}")]
    Refused(String, String),
    /// The writer's node is not connected to the coordinator.
    #[error("{0}: {1}")]
    Absent(String, String),
    /// The object is in buffers already.
    #[error("{0}: {1}")]
    Kept(String, String),
    /// A daemon gave an answer to another question.
    #[error("{0}: an answer that does not fit")]
    Unexpected(String),
    /// The coordinator cannot be asked for the nodes, and none are given.
    #[error("{0}; without the addresses of the nodes a newer checkpoint may be missed")]
    NoNodes(Box<ClientError>),
    /// The coordinator still waits for reports of nodes.
    #[error("the coordinator still waits for nodes")]
    NotSettled,
    /// The shared memory of a node cannot be filled.
    #[error("{0}: the shared memory: {1}")]
    Share(String, io::Error),
    /// The PFS cannot be read.
    #[error("the PFS: {0}")]
    Pfs(io::Error),
    /// No complete checkpoint was found.
    #[error("job {} has no complete checkpoint; {:?}", .0.0, .1)]
    NoCheckpoint(JobId, Vec<String>),
    /// The nodes drain to another directory than the one that this client has.
    #[error("{0}: the nodes have another directory on the PFS than this command")]
    OtherDirectory(String),
    /// The checkpoint is not complete.
    #[error("checkpoint {} of job {} is not complete; {:?}", .1.0, .0.0, .2)]
    Incomplete(JobId, CheckpointId, Vec<String>),
    /// The checkpoint was written as files.
    #[error("checkpoint {} of job {} consists of files: mount it with `burst mount` and copy them", .1.0, .0.0)]
    Files(JobId, CheckpointId),
    /// A chunk of a complete checkpoint is nowhere with its checksum.
    #[error("checkpoint {} of job {}: bytes from {offset} on are damaged or missing: {failures:?}", .checkpoint.0, .job.0)]
    Damaged {
        /// The job.
        job: JobId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Offset in the object.
        offset: u64,
        /// Sources that were tried.
        failures: Vec<String>,
    },
}

impl Client {
    /// A client that reaches the PFS itself.
    pub fn new(settings: ClientSettings, pfs: Arc<dyn Pfs>) -> Client {
        let shares = |access| Arc::new(Shares::new(access));
        Client { settings, pfs, shares: shares(Access::Write), views: shares(Access::Read) }
    }

    /// Fails if the nodes of a coordinator drain to another directory: what they take would not be found.
    fn check_directory(&self, coordinator: &str, theirs: Option<&str>) -> Result<(), ClientError> {
        match (self.pfs.identity(), theirs) {
            (Some(own), Some(theirs)) if own != theirs => Err(ClientError::OtherDirectory(coordinator.to_owned())),
            _ => Ok(()),
        }
    }

    /// Connects to a daemon.
    fn connect(&self, address: &str, within: Duration) -> Result<Peer, ClientError> {
        let peer = Peer::connect_as(address, within, self.settings.credential.as_ref());
        peer.map_err(|error| ClientError::Wire(address.to_owned(), error))
    }

    /// True if this process may write the manifest of a checkpoint. An administrator writes nothing into folders of users: they
    /// may have planted links there.
    fn may_finish(&self) -> bool {
        !matches!(self.settings.credential, Some(Credential::Key(_)))
    }

    /// No connections yet.
    fn peers(&self) -> Peers {
        Peers { credential: self.settings.credential.clone(), ..Peers::default() }
    }
}

impl ClientError {
    /// True if another attempt is of no use: the object is in buffers already, a daemon does not take the credential or is none of
    /// its cluster, or the nodes drain to another directory.
    fn is_final(&self) -> bool {
        let is_denied = matches!(self, ClientError::Wire(_, WireError::Handshake(_)));
        is_denied || matches!(self, ClientError::Kept(..) | ClientError::OtherDirectory(_))
    }
}

/// Connections that are kept for further messages.
#[derive(Default)]
struct Peers {
    open: BTreeMap<String, Peer>,
    credential: Option<Credential>,
    /// The piece that was read last from mapped memory, and where it is there.
    located: Option<(Lease, Vec<Extent>)>,
}

impl Peers {
    /// Sends a request to a node. A connection that was idle may have been closed by the node: the request is sent again
    /// over a new one then. Every request has the same effect when it is repeated.
    fn node(
        &mut self,
        address: &str,
        request: &ToNode,
        payload: &[u8],
        within: Duration,
    ) -> Result<(FromNode, Vec<u8>), ClientError> {
        let failed = |error| ClientError::Wire(address.to_owned(), error);
        let until = clock::now() + within;
        let kept = self.open.remove(address);
        let answered = kept.and_then(|peer| peer.call(request, payload, within).ok().map(|answer| (peer, answer)));
        let (peer, answer) = match answered {
            Some(answered) => answered,
            None => {
                let left = || until.saturating_duration_since(clock::now());
                let peer = Peer::connect_as(address, left(), self.credential.as_ref()).map_err(failed)?;
                let answer = peer.call(request, payload, left()).map_err(failed)?;
                (peer, answer)
            }
        };
        self.open.insert(address.to_owned(), peer);
        accepted(address, answer)
    }

    /// Sends a request over the connection that the last one has used. Its answer is received by [`Peers::end`].
    fn begin(&mut self, address: &str, request: &ToNode, payload: &[u8], within: Duration) -> Result<(), ClientError> {
        self.kept(address, |peer| peer.begin(request, payload, within))
    }

    /// Receives the answer to the first request that has none.
    fn end(&mut self, address: &str, within: Duration) -> Result<(FromNode, Vec<u8>), ClientError> {
        let answer = self.kept(address, |peer| peer.end(within))?;
        accepted(address, answer)
    }

    /// Closes a connection, on which answers may be due.
    fn close(&mut self, address: &str) {
        self.open.remove(address);
    }

    /// Uses a connection that is open. After an error it is not kept.
    fn kept<T>(&mut self, address: &str, act: impl FnOnce(&Peer) -> Result<T, WireError>) -> Result<T, ClientError> {
        let peer = self.open.remove(address).ok_or_else(|| ClientError::Wire(address.to_owned(), WireError::Closed))?;
        let done = act(&peer).map_err(|error| ClientError::Wire(address.to_owned(), error))?;
        self.open.insert(address.to_owned(), peer);
        Ok(done)
    }
}

fn accepted(address: &str, answer: (FromNode, Vec<u8>)) -> Result<(FromNode, Vec<u8>), ClientError> {
    match answer {
        (FromNode::Refused { why }, _) => Err(ClientError::Refused(address.to_owned(), why)),
        answer => Ok(answer),
    }
}

/// Sends a request to the coordinator.
fn ask(peer: &Peer, address: &str, request: &ToCoordinator, within: Duration) -> Result<FromCoordinator, ClientError> {
    match peer.call(request, &[], within) {
        Ok((FromCoordinator::Refused { why }, _)) => Err(ClientError::Refused(address.to_owned(), why)),
        Ok((FromCoordinator::Kept { why }, _)) => Err(ClientError::Kept(address.to_owned(), why)),
        Ok((FromCoordinator::Absent { why }, _)) => Err(ClientError::Absent(address.to_owned(), why)),
        Ok((answer, _)) => Ok(answer),
        Err(error) => Err(ClientError::Wire(address.to_owned(), error)),
    }
}
