//! Policies that learn online: which of two experts, recency or frequency, to follow, or how soon pages return.

mod cacheus;
mod expcache;
mod ghosts;
mod lecar;
mod reuse;
mod weights;

pub use cacheus::Cacheus;
pub use expcache::ExpCache;
pub use lecar::Lecar;
pub use reuse::Reuse;
