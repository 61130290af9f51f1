//! Pages in memory under a policy: [`BufferManager`] over DRAM, whose hits take no lock, and [`TieredBuffer`] over DRAM and NVM.
//!
//! Under loom only the frame word is built: it is what loom explores.

pub mod frame;
#[cfg(all(test, shuttle))]
mod interleavings;
#[cfg(not(loom))]
mod manager;
#[cfg(not(loom))]
pub mod pool;
#[cfg(not(loom))]
mod ring;
mod sync;
#[cfg(not(loom))]
pub mod table;

#[cfg(not(loom))]
pub use manager::*;
