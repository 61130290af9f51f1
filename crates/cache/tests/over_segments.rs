//! Threads on the block cache in the log layout, run in the segments layout.

use entresol_store::Layout;

const LAYOUT: Layout = Layout::Segments;

#[path = "block_cache_threads.rs"]
mod block_cache_threads;
