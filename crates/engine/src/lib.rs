//! The live engine: a policy of the catalogue drives frames, bytes and devices instead of counters.

mod block;
pub mod cache;
#[cfg(test)]
mod crash;
pub mod disk;
mod mutant;
pub mod store;

pub use block::Block;
