//! Policies that move pages between buffers of different speed: DRAM above byte-addressable NVM above SSD.

mod multi_tier;

pub use multi_tier::{MultiTier, Probabilities};
