//! The tests of the block cache in the log layout, run in the slots layout.

use entresol_store::Layout;

const LAYOUT: Layout = Layout::Slots;

#[path = "block_cache.rs"]
mod block_cache;
#[path = "block_cache_threads.rs"]
mod block_cache_threads;
#[path = "change.rs"]
mod change;
#[path = "faults.rs"]
mod faults;
#[path = "known_faults.rs"]
mod known_faults;
#[path = "read_now.rs"]
mod read_now;
