//! The live half of the burst buffer: the daemon of a node, the daemon of the coordinator, and the library of writers.
//!
//! All decisions are those of `entresol-burst`: [`entresol_burst::Coordinator`] and [`entresol_burst::NodeStore`] are
//! driven here over TCP and the clock, as the simulation drives them in virtual time.

mod arena;
mod checksum;
pub mod client;
mod clock;
mod coordinate;
pub mod credentials;
#[cfg(test)]
mod drain_tests;
#[cfg(test)]
mod faults;
pub mod handshake;
pub mod index;
pub mod layout;
pub mod message;
mod mutant;
pub mod names;
mod node;
pub mod pfs;
mod report;
mod server;
mod share;
#[cfg(test)]
mod simulated;
pub mod wire;

#[cfg(feature = "measure")]
pub use arena::without_zeroing;
pub use checksum::CHUNK_BYTES;
#[cfg(feature = "measure")]
pub use checksum::without_checksums;
pub use coordinate::{CoordinatorDaemon, CoordinatorSettings, ReplayError, Replayed, replay};
pub use credentials::{Claims, Credential, Key, Ticket};
#[cfg(feature = "mutants")]
pub use mutant::leave_out;
pub use node::{NodeDaemon, NodeSettings};
pub use server::raise_descriptors;
