//! Front-ends of the engine: each serves a [`Block`](entresol_cache::Block) or files by a protocol of other programs.
//!
//! `docs/SEMANTICS.md` describes each operation of each front-end.

#[cfg(target_os = "linux")]
mod emulated;
mod error;
mod file;
pub mod fuse;
pub mod hints;
mod memory;
pub mod mounts;
pub mod nbd;
#[cfg(target_os = "linux")]
pub mod paced;
pub mod percent;
#[cfg(target_os = "linux")]
pub mod ublk;

pub use error::{Error, Result};
pub use file::FileBlock;
pub use memory::MemoryBlock;
