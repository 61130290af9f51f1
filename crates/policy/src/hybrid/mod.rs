//! DRAM beside NVRAM in one buffer cache: clean pages in both, dirty pages in NVRAM only.

mod frames;
mod hibachi;
mod hybrid_arc;
mod hybrid_lru;

pub use hibachi::Hibachi;
pub use hybrid_arc::HybridArc;
pub use hybrid_lru::HybridLru;
