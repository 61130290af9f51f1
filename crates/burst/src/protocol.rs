//! The messages of the protocol between writers, nodes and the coordinator: names, reservations, grants, events,
//! orders.
//!
//! A *writer* is one rank of a job. Its part of a checkpoint is an *object*. A *node* offers a buffer of bytes. The
//! coordinator answers an `Open` with grants, each a reservation of extents on one node, or the permission to write to
//! the parallel file system (PFS) directly. All times are nanoseconds of the caller's clock; nothing here reads a
//! clock.

use std::fmt;

/// A node that offers a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NodeId(pub u32);

/// A job: one parallel program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct JobId(pub u64);

/// A checkpoint of a job; a newer one has a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CheckpointId(pub u64);

/// A start of the coordinator. Each start has a higher epoch, made durable before the first grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Epoch(pub u32);

/// The name of one reservation, unique over all epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Lease {
    /// The epoch of the coordinator that granted it.
    pub epoch: Epoch,
    /// Number within that epoch.
    pub number: u64,
}

/// The user to whom an object belongs: root where users are not told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Owner {
    /// The user's number. Its bytes are counted by it.
    pub uid: u32,
    /// The group of the user's files.
    pub gid: u32,
}

impl Owner {
    /// True for root.
    pub fn is_root(&self) -> bool {
        *self == Owner::default()
    }
}

/// Bytes that one rank writes for one checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Object {
    /// The job.
    pub job: JobId,
    /// The checkpoint of the job.
    pub checkpoint: CheckpointId,
    /// The rank within the job.
    pub rank: u32,
}

/// A range of bytes of a node's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Length, above 0.
    pub bytes: u64,
}

impl Extent {
    /// One past the last byte.
    pub const fn end(self) -> u64 {
        self.offset + self.bytes
    }
}

/// Contents of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Role {
    /// The bytes themselves; the node drains them to the PFS.
    Primary,
    /// A second copy on another node, drained only if the first is lost.
    Copy,
    /// The XOR of several primaries of different nodes.
    Parity,
}

/// Bytes of one node, kept free for one writer until the lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Reservation {
    /// Name of the reservation.
    pub lease: Lease,
    /// The node.
    pub node: NodeId,
    /// The start of the node at the time of the grant: a later start refuses it, because the bytes written before are
    /// lost.
    pub incarnation: u64,
    /// The bytes of the node's buffer: one extent, or several where free space is fragmented.
    pub extents: Vec<Extent>,
    /// Purpose of the bytes.
    pub role: Role,
    /// The object; of a parity, the first object that it protects.
    pub object: Object,
    /// The object's owner.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Owner::is_root"))]
    pub owner: Owner,
    /// Offset in the object of the first of these bytes.
    pub offset: u64,
    /// The reservation that protects this one: a copy, or a parity shared with others.
    pub guard: Option<Lease>,
    /// Time at which the checkpoint was opened, by which the oldest is drained first.
    pub opened_ns: u64,
    /// Time from which a node refuses to begin or to continue a write under this lease.
    pub expires_ns: u64,
}

impl Reservation {
    /// Bytes in all extents.
    pub fn bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.bytes).sum()
    }

    /// Removes `bytes` from the front, which have been drained, and returns the extents that they were in.
    pub(crate) fn cut_front(&mut self, mut bytes: u64) -> Vec<Extent> {
        let mut cut = Vec::new();
        while bytes > 0 && !self.extents.is_empty() {
            let first = &mut self.extents[0];
            let part = first.bytes.min(bytes);
            cut.push(Extent { offset: first.offset, bytes: part });
            first.offset += part;
            first.bytes -= part;
            bytes -= part;
            self.offset += part;
            if first.bytes == 0 {
                self.extents.remove(0);
            }
        }
        cut
    }
}

/// Destination of a part of an object. The large variant is the usual one (a grant into a buffer), so its size costs
/// nothing.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Place {
    /// Into a node's buffer.
    Buffer {
        /// The bytes there.
        primary: Reservation,
        /// A copy or a parity, which must be stored too before the object may be committed.
        guard: Option<Reservation>,
    },
    /// To the PFS directly: no buffer has space.
    Pfs,
}

/// The answer to an `Open` for one part of an object. The parts of an object are disjoint and cover it, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Grant {
    /// Offset of the part in the object.
    pub offset: u64,
    /// Length of the part.
    pub bytes: u64,
    /// Destination of the part.
    pub place: Place,
}

/// Progress of a piece that a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum HeldState {
    /// A writer is writing; the lease runs.
    Writing,
    /// All bytes are in the buffer.
    Stored,
}

/// Report of a node that joins an epoch. The coordinator rebuilds its state from these reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Report {
    /// The node.
    pub node: NodeId,
    /// Number of the node's start: a later start has lost what an earlier one held in memory.
    pub incarnation: u64,
    /// Size of the buffer in bytes.
    pub capacity: u64,
    /// All pieces in the buffer.
    pub held: Vec<(Reservation, HeldState)>,
}

/// Message to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Event {
    /// A writer is about to write its part of a checkpoint. Opening again gives up an earlier attempt.
    Open {
        /// The object.
        object: Object,
        /// Number of writers: the checkpoint is complete when all these ranks have committed.
        ranks: u32,
        /// The writer's node.
        node: NodeId,
        /// Length of the object in bytes.
        bytes: u64,
        /// The object's owner.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Owner::is_root"))]
        owner: Owner,
    },
    /// A slow writer asks for more time; the answer repeats its unfinished grants with later ends.
    Renew {
        /// The object.
        object: Object,
    },
    /// All parts of an object are where the grants placed them, and parts on the PFS are synced.
    Commit {
        /// The object.
        object: Object,
    },
    /// A writer gives up.
    Abandon {
        /// The object.
        object: Object,
    },
    /// A node: all bytes of a reservation are in the buffer.
    Stored {
        /// The reservation.
        lease: Lease,
    },
    /// A node: the next `bytes` of a reservation are durable on the PFS, and their space is free.
    Drained {
        /// The reservation.
        lease: Lease,
        /// Number of drained bytes, counted from the front.
        bytes: u64,
    },
    /// A node: a reservation was given back as ordered; no write under it is possible from now on.
    Released {
        /// The reservation.
        lease: Lease,
    },
    /// A node joins the epoch, or returns.
    Report(Report),
    /// The connection to a node is lost.
    NodeLost {
        /// The node.
        node: NodeId,
    },
    /// Time has passed: leases may have ended.
    Tick,
}

/// Order from the coordinator to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Order {
    /// Give this reservation back: forget its bytes, refuse writes under it, answer `Released`.
    Reclaim {
        /// The node.
        node: NodeId,
        /// The reservation.
        lease: Lease,
        /// Latest end of any grant of the reservation: until then the node remembers that it was given back.
        expires_ns: u64,
        /// True if the reservation is a copy of bytes that are on the PFS: its writer needs not write it.
        #[cfg_attr(feature = "serde", serde(default))]
        durable: bool,
    },
    /// Drain this copy: its primary is lost.
    Promote {
        /// The node.
        node: NodeId,
        /// The reservation of the copy.
        lease: Lease,
    },
}

/// The coordinator's answer to one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// For the writer.
    pub grants: Vec<Grant>,
    /// For nodes.
    pub orders: Vec<Order>,
}

/// Reason why the coordinator refuses an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Refused {
    /// An object of no bytes, or a checkpoint of no ranks.
    #[error("an object has at least one byte and a checkpoint at least one rank")]
    Empty,
    /// The writer's node has not reported in this epoch.
    #[error("node {} has not reported to this coordinator", .0.0)]
    UnknownNode(NodeId),
    /// The object was not opened in this epoch.
    #[error("{0} was not opened with this coordinator: open it again")]
    Unopened(Object),
    /// Parts of the object are not stored, or were lost; the writer waits or opens again.
    #[error("{0} is not stored whole")]
    Incomplete(Object),
    /// The event refers to another epoch's lease, or to one that was given back.
    #[error("no such lease")]
    UnknownLease(Lease),
    /// A report from a start of the node before the latest one.
    #[error("a report of an earlier start of node {}", .0.0)]
    StaleReport(NodeId),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of checkpoint {} of job {}", self.rank, self.checkpoint.0, self.job.0)
    }
}
