//! Caches of one tier that treat clean and dirty pages differently, because a write to the level below costs more
//! than a read.

mod ad_lru;
mod cflru;
mod h_arc;
mod lru_dram;
mod lru_wsr;

pub use ad_lru::AdLru;
pub use cflru::Cflru;
pub use h_arc::HArc;
pub use lru_dram::LruDram;
pub use lru_wsr::LruWsr;
