//! Simulation with time: the policies' movements drive device models.
//!
//! A policy decides when a request starts; its movements become I/Os. The requester waits for the foreground: reading
//! the page from its tier, reading it from below on a miss, writing it to the tier it is installed in, and below where the mode sends it there at once. All other I/O
//! (filling a cache, demotion, write-back, cleaning, second chances) runs in the background on the same devices, in a
//! window of bounded length. While the window is full no new request starts, so a hierarchy cannot promise more writes
//! than it can carry out. A live cache has one thread for write-backs; [`Behind`] models it.

mod behind;
mod frames;
mod plan;
mod prices;
mod processors;
mod report;
mod run;
mod tuning;
mod work;

pub use behind::Behind;
pub use prices::prices;
pub use processors::Work;
pub use report::{DeviceRow, LatencyRow, TimedRow};
pub use run::{Hierarchy, NamedDevice, TimedError, TimedOptions, run_timed};
pub use tuning::Tuning;
