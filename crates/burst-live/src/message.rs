//! Messages between writers, nodes and the coordinator, as the wire carries them.

use crate::credentials::Seal;
use entresol_burst::{Event, Extent, Grant, JobId, Lease, NodeId, Object, Order, Report, Reservation, Role};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Properties of an object that all of its parts carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Number of ranks of the checkpoint.
    pub ranks: u32,
    /// Length of the object in bytes.
    pub total: u64,
    /// Name of one attempt to write the object: the writer's clock at its begin. Parts of different attempts are not
    /// combined.
    pub attempt: u64,
}

/// A part of an object as it was written by one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The object.
    pub object: Object,
    /// Properties of the object.
    pub about: About,
    /// Offset in the object of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Request to the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToCoordinator {
    /// An event of a writer: `Open`, `Renew`, `Commit` or `Abandon`.
    Writer(Event),
    /// The addresses of the nodes.
    Nodes,
    /// The first message of a node on a connection.
    Hello {
        /// The node.
        node: NodeId,
        /// Number of the node's start.
        incarnation: u64,
        /// Address at which writers reach the node.
        address: String,
        /// Identity of the node's directory on the PFS, if it has one.
        #[serde(default)]
        pfs: Option<String>,
    },
    /// The second message of a node on a connection.
    Report(Report),
    /// New events of a node in order, each with its number. Orders are fetched by it too.
    Events(Vec<(u64, Event)>),
}

/// Answer of the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromCoordinator {
    /// Grants, and the addresses of the nodes that they name.
    Grants {
        /// The grants.
        grants: Vec<Grant>,
        /// Addresses by node.
        addresses: BTreeMap<u32, String>,
        /// Identity of the directory on the PFS to which these nodes drain.
        #[serde(default)]
        pfs: Option<String>,
        /// Seals of the reservations, if the coordinator has a key.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        seals: Vec<(Lease, Seal)>,
    },
    /// The event was refused.
    Refused {
        /// Reason.
        why: String,
    },
    /// The object is in buffers already. Its bytes stay until newer ones are on the PFS, and a writer goes there.
    Kept {
        /// Reason.
        why: String,
    },
    /// The writer's node is not connected: it has not reported yet, or is lost.
    Absent {
        /// Reason.
        why: String,
    },
    /// The nodes.
    Nodes {
        /// Nodes that have reported in this epoch.
        nodes: Vec<NodeEntry>,
        /// True if all nodes of the configuration have reported, or the wait for them is over.
        settled: bool,
        /// The coordinator's epoch.
        epoch: u32,
        /// Checkpoints with committed bytes that are not on the PFS; 0 for the holder of a ticket.
        #[serde(default)]
        undrained: u64,
        /// Those of them with bytes that one node alone has.
        #[serde(default)]
        at_risk: u64,
        /// Identity of the directory on the PFS to which the nodes drain.
        #[serde(default)]
        pfs: Option<String>,
        /// Jobs with bytes that are not on the PFS; for the holder of a ticket, its own at most.
        undrained_jobs: BTreeSet<JobId>,
    },
    /// Answer to `Hello`.
    Welcome {
        /// The coordinator's epoch.
        epoch: u32,
        /// Number of the last event applied from this start of the node; none if its report is unknown.
        applied: Option<u64>,
        /// The policy.
        policy: String,
    },
    /// Answer to `Report` and `Events`.
    Orders {
        /// Orders to obey.
        orders: Vec<Order>,
        /// Number of the last event applied.
        applied: u64,
        /// True while writers write to the PFS directly.
        #[serde(default)]
        direct: bool,
    },
}

/// A node as the coordinator knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// The node.
    pub node: NodeId,
    /// Its address.
    pub address: String,
    /// True if the node is connected.
    pub present: bool,
}

/// Number of a connection over which a writer on a node's host has got the node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ShareId {
    /// Number of the node's start.
    pub incarnation: u64,
    /// Number of the connection in it.
    pub number: u64,
}

/// Request to a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToNode {
    /// One chunk of a piece; its bytes follow.
    Write {
        /// The grant.
        grant: Reservation,
        /// Properties of the object.
        about: About,
        /// Number of the chunk, from the front of the piece.
        chunk: u64,
        /// Seal of the grant, if the cluster has a key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seal: Option<Seal>,
    },
    /// A writer on this host is about to fill a piece by itself. `Store` ends that.
    Fill {
        /// The grant.
        grant: Reservation,
        /// Properties of the object.
        about: About,
        /// The writer's share.
        share: ShareId,
        /// Seal of the grant, if the cluster has a key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seal: Option<Seal>,
    },
    /// All chunks of a piece were written; the checksums are compared. Those of a piece that the writer has filled were compared by the
    /// writer.
    Store {
        /// The reservation.
        lease: Lease,
        /// CRC-32C of each chunk.
        crcs: Vec<u32>,
    },
    /// Read one chunk of a stored piece.
    Read {
        /// The reservation.
        lease: Lease,
        /// Number of the chunk.
        chunk: u64,
    },
    /// A reader on this host is about to copy a stored piece out of the memory of the node by itself.
    Locate {
        /// The reservation.
        lease: Lease,
        /// The reader's share.
        share: ShareId,
    },
    /// The stored pieces of a job.
    Pieces {
        /// The job.
        job: JobId,
    },
    /// Counters.
    Status,
}

/// Refusal of a piece that a node does not have, or that is another job's.
pub const NO_SUCH_PIECE: &str = "no such piece is stored here";

/// Answer of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromNode {
    /// The request was obeyed.
    Done,
    /// The request was refused.
    Refused {
        /// Reason.
        why: String,
    },
    /// The piece is a copy of bytes that are on the PFS, and needs not be written.
    Durable,
    /// The share is not one of this node: the bytes go over the connection instead.
    Elsewhere,
    /// The parts of the memory that have a piece, in its order. They may have other bytes when they are read.
    Located {
        /// The parts.
        extents: Vec<Extent>,
    },
    /// The bytes of a chunk follow.
    Chunk,
    /// The stored pieces of a job.
    Pieces {
        /// The node.
        node: NodeId,
        /// The pieces.
        pieces: Vec<StoredPiece>,
    },
    /// Counters.
    Status(NodeStatus),
}

/// A stored piece in the buffer of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPiece {
    /// The reservation.
    pub lease: Lease,
    /// Purpose: the bytes themselves, or a copy.
    pub role: Role,
    /// The part.
    pub part: Part,
    /// CRC-32C of each chunk, as the writer has sent them.
    pub crcs: Vec<u32>,
}

/// Counters of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node.
    pub node: u32,
    /// The epoch that it has joined.
    pub epoch: Option<u32>,
    /// Size of the buffer in bytes.
    pub capacity: u64,
    /// Bytes that are taken, copies included.
    #[serde(default)]
    pub used: u64,
    /// Bytes of stored primaries that are not on the PFS yet.
    pub undrained: u64,
    /// Time for which the oldest of these has been here, milliseconds.
    #[serde(default)]
    pub undrained_for_ms: u64,
    /// Bytes written to the PFS since the start.
    pub drained: u64,
    /// Most bytes a second that the drain writes to the PFS; none without a cap.
    #[serde(default)]
    pub drain_rate: Option<u64>,
    /// Failed attempts to write to the PFS since the start.
    pub pfs_failures: u64,
    /// The newest of these failures, until a write succeeds.
    pub failing: Option<String>,
    /// Job of the piece that could not be written, for the node's own process.
    #[serde(skip)]
    pub failing_job: Option<JobId>,
}
