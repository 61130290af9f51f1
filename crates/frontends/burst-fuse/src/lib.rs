//! The FUSE front-end of the burst buffer: a directory of one job's checkpoints, to which unmodified programs write.
//!
//! The paths are `CHECKPOINT/FILE`. A file is committed when it is closed, and one with a temporary name when it is
//! renamed. It is not changed afterwards. All bytes go through [`entresol_burst_live::client::Files`]; this crate has the
//! names, handles and errors of the kernel's side.

mod errno;
mod exit;
mod mount;
mod nodes;
mod open;
mod server;

pub use mount::{Ending, Error, Mount};
