//! Simulation with time: the policies' movements drive device models.
//!
//! A policy decides when a request starts; its movements become I/Os. What the requester waits for is in the
//! foreground: reading the page where it is found, reading it from below on a miss, writing it where it lands.
//! Everything else (filling a cache, demoting, writing back, cleaning, second chances) runs in the background on the
//! same devices, in a window of bounded length: while it is full no new request starts, so that a hierarchy cannot
//! promise more writes than it can carry out. A live cache has one thread that writes back: with [`Behind`] there is one here, too.

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
