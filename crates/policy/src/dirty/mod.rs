//! Caches that treat clean and dirty pages differently, because a write to the level below costs more than a read.

mod ad_lru;
mod cflru;
mod lru_dram;
mod lru_wsr;

pub use ad_lru::AdLru;
pub use cflru::Cflru;
pub use lru_dram::LruDram;
pub use lru_wsr::LruWsr;
//! Main-memory caches of one tier that treat clean and dirty pages differently.

mod h_arc;

pub use h_arc::HArc;
