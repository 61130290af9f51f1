//! Crash tests: simulated disks and files for the real code, oracles of the states a crash may leave, runs over
//! many seeds.
//!
//! - [`SimDisk`]: a disk in memory that loses power, tears writes, rots and fails. To the engine it is a
//!   [`Disk`](entresol_disk::Disk) like any other.
//! - [`file_system`]: a file system in memory, of which a crash leaves the states that a journalling one may leave.
//! - [`pages`] and [`posix`]: the oracles of a block cache and of files.
//! - [`runs`]: random runs of many seeds, with panics counted as violations.
//!
//! # Where the histories are
//!
//! A history draws the steps of one run and drives the code under test. A history stays beside that code:
//! `crates/cache/src/crash` for the block cache, `crates/files/src/cached/crash` for files. Both leave out steps
//! of their crate's protocol, one at a time and on one thread (`entresol_core::fault_points`). Both look at
//! internals, such as stores of older formats. In a crate of their own they would need all of that to be public.
//!
//! For the same reason this crate depends on `entresol-disk` and not on the engine. The engine's unit tests use
//! this crate, and would otherwise meet a second engine with types of its own.

mod disk;
pub mod file_system;
pub mod pages;
pub mod posix;
pub mod runs;

pub use disk::{Fault, Misdirected, Power, SimDisk};
