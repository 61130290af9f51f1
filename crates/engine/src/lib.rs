//! The live engine: a policy of the catalogue drives frames, bytes and devices instead of counters.

mod block;
pub mod disk;

pub use block::Block;
