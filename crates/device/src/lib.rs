//! Devices as timing models in virtual time: what an I/O costs, and why.
//!
//! A model answers when an I/O completes, and itemises its latency so that a figure can be explained. Time is integer
//! nanoseconds from the start of a simulation; random choices come from a counter-based generator per device, so a run
//! repeats to the last bit.
//!
//! Both fidelities have the same interface. A [`Calendar`] serves in order of arrival and knows an I/O's completion
//! when it is submitted: DRAM, NVM, Optane, a network, a FIFO disk. Where later arrivals change the order (NAND
//! channels and dies, a disk that sorts its queue) the model is a [`Device`] of its own. [`Queued`] makes a device of
//! any calendar.
//!
//! Any model is an emulator too: [`emulated`] performs I/Os on a real file and completes them when the model says.

mod check;
mod device;
pub mod disk;
pub mod dram;
mod due;
#[cfg(target_os = "linux")]
pub mod emulated;
pub mod fixed;
pub mod host;
mod house;
mod io;
pub mod link;
pub mod load;
pub mod nand;
pub mod nvm_block;
pub mod nvm_dimm;
pub mod profile;
mod queued;
pub mod raid;
mod rate;
mod section;
pub mod shared_fs;
mod tail;

pub use check::Parameters;
pub use device::{Calendar, Device};
pub use due::Due;
pub use io::{Completion, DeviceError, Io, IoKind, Latency, Nanos, Wear};
pub use queued::Queued;
pub use rate::Energy;
pub use tail::TailPoint;
