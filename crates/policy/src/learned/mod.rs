//! Policies that learn online which of two experts, recency or frequency, to follow.

mod lecar;
mod weights;

pub use lecar::Lecar;
