//! The live engine: a policy of the catalogue drives frames, bytes and devices instead of counters.
//!
//! Under loom only the frame word is built, since loom explores nothing else.

#[cfg(not(loom))]
mod block;
#[cfg(not(loom))]
pub mod buffer;
#[cfg(not(loom))]
pub mod cache;
#[cfg(all(test, not(loom)))]
mod crash;
#[cfg(all(target_os = "linux", not(loom)))]
mod emulated;
pub mod frame;
#[cfg(not(loom))]
mod holds;
#[cfg(not(loom))]
mod mutant;
#[cfg(not(loom))]
pub mod pool;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
pub mod store;
mod sync;
#[cfg(not(loom))]
pub mod table;

#[cfg(not(loom))]
pub use block::Block;
#[cfg(not(loom))]
pub use entresol_disk as disk;
#[cfg(all(feature = "mutants", not(loom)))]
pub use mutant::leave_out;
