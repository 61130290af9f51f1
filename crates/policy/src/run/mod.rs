//! Write buffers for hard disks that write dirty pages in runs of consecutive addresses.

mod io_cache;

pub use io_cache::{IoCache, Longest};
