//! The live engine: a policy of the catalogue drives frames, bytes and devices instead of counters.

mod block;
pub mod frame;
mod sync;

pub use block::Block;
