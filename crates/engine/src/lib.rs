//! The live engine: a policy of the catalogue drives frames, bytes and devices instead of counters.

mod block;
#[cfg(target_os = "linux")]
mod emulated;

pub use block::Block;
