//! Frames: the descriptor and the state of each page-sized piece of the pool.

mod word;

#[cfg(test)]
mod word_tests;

pub use word::{FrameState, FrameWord, Hold, MAX_PINS, Need, Snapshot, Stamp, Wake};

#[cfg(not(loom))]
mod descriptor;
#[cfg(not(loom))]
mod parking;

#[cfg(not(loom))]
pub(crate) use descriptor::{Frame, Key, NO_HANDLE};
#[cfg(not(loom))]
pub(crate) use parking::Parking;
