//! A hard disk with event fidelity: it knows where every sector passes under the heads and when, and sorts its queue.
//!
//! The mechanical model is that of Ruemmler and Wilkes, "An introduction to disk drive modeling" (IEEE Computer 1994):
//! zones, skews, a measured seek table, a platter that always turns. The parameters of the Seagate Cheetah 15K.5 were
//! extracted from a drive with DIXtrac and are published with DiskSim 4.0. Their licence, `COPYING.CMU` beside this
//! file, must accompany every copy.

mod drive;
mod geometry;
mod parameters;
mod scheduler;
mod seek;

pub use drive::Disk;
pub use parameters::{DiskParameters, SeekPoint, Zone};
pub use scheduler::Discipline;
