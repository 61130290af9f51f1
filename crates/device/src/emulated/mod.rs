//! Emulated devices: real bytes in a file, the time of a model.
//!
//! An [`EmulatedDevice`] performs an I/O on its [`Storage`] and completes it when a [`Device`](crate::Device) says,
//! never earlier. The device counts how much later, and how often the storage was not ready in time. [`Mapped`] does
//! the same for memory: a region shared between processes whose accesses take as long as those of NVM.
//!
//! Time is a parameter, the [`Clock`]: the [`WallClock`] for real runs, the [`VirtualClock`] for tests, in which an
//! emulated device completes at exactly the model's time.

mod accuracy;
mod clock;
mod device;
pub mod load;
mod memory;
mod storage;

pub use accuracy::Accuracy;
pub use clock::{Clock, VirtualClock, WallClock};
pub use device::{Done, EmulatedDevice, Part};
pub use memory::{Calibration, Curve, Mapped, MemoryAccuracy, Slowdown};
pub use storage::Storage;
