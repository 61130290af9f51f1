//! The live engine: a policy of the catalogue drives frames, bytes and devices instead of counters.

mod block;
#[cfg(not(loom))]
pub mod buffer;
#[cfg(target_os = "linux")]
mod emulated;
pub mod frame;
#[cfg(not(loom))]
pub mod pool;
#[cfg(not(loom))]
mod ring;
mod sync;
#[cfg(not(loom))]
pub mod table;

pub use block::Block;
