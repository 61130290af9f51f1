//! Policies that learn online which of two experts, recency or frequency, to follow.

mod cacheus;
mod expcache;
mod ghosts;
mod lecar;
mod weights;

pub use cacheus::Cacheus;
pub use expcache::ExpCache;
pub use lecar::Lecar;
