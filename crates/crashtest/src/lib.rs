//! Crash tests: the stages on which the real code runs, the oracles that know what a crash may leave, and runs over many seeds.
//!
//! - [`SimDisk`]: a disk in memory that loses power, tears writes, rots and fails. The engine sees a
//!   [`Disk`](entresol_disk::Disk) like any other.
//! - [`file_system`]: a file system in memory of which a crash keeps what one with a journal may keep.
//! - [`pages`] and [`posix`]: the oracles of a block cache and of files.
//! - [`runs`]: random lives of many seeds, with panics counted as violations.
//!
//! # Where the histories are
//!
//! A history draws the steps of one life and drives what it tests. It stays beside that: `crates/engine/src/crash` for the block
//! cache, `crates/files/src/cached/crash` for files. Both leave out steps of their crate's protocol, one at a time and on one
//! thread (`entresol_core::fault_points`), and look at what only the crate itself can see, such as stores of older formats. In a
//! crate of their own they would need all that to be public.
//!
//! For the same reason this crate depends on `entresol-disk` and not on the engine: unit tests of the engine use it, and would
//! else meet a second engine, whose types are not theirs.

mod disk;
pub mod file_system;
pub mod pages;
pub mod posix;
pub mod runs;

pub use disk::{Fault, Power, SimDisk};
