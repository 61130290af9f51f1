//! Burst buffers for checkpoints (Fan 2017, chapter 5): the destination of each part of a checkpoint, and the leases to
//! write.
//!
//! Checkpoints of parallel programs go into memory beside the compute nodes and drain to the parallel file system (PFS)
//! in the background. The rule of `cdbb` sends bytes that a full node cannot take to the emptiest neighbour.
//!
//! Decide once, drive twice: [`Coordinator`] and [`NodeStore`] are pure state machines, without I/O, clocks or threads.
//! [`simulate`] drives them in virtual time over a model of links and a PFS.

mod coordinator;
mod location;
mod mutant;
mod node;
mod policy;
mod protocol;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod share_tests;
mod shares;
pub mod simulate;
mod space;

pub use coordinator::{Coordinator, LEASE_NS};
pub use location::{Exposure, LocationStore, Piece, Progress, Where};
#[cfg(feature = "mutants")]
pub use mutant::{Mutant, activate, leave_out};
pub use node::{NodeStore, NotAdmitted};
pub use policy::{
    CHUNK_BYTES, DrainOrder, DrainPriority, Kind, Policy, PolicyError, Redundancy, Remote, STREAMS, STRIPE_MEMBERS_MAX,
    Splitting,
};
pub use protocol::{
    Answer, CheckpointId, Epoch, Event, Extent, Grant, HeldState, JobId, Lease, NodeId, Object, Order, Owner, Place,
    Refused, Report, Reservation, Role,
};
pub use shares::Share;
pub use space::StatusStore;
