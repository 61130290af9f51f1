//! The tests of the cache as one program: each of several would be linked with every policy again.

#![allow(clippy::duplicate_mod, reason = "some tests run in more than one layout")]

use entresol_store::Layout;

/// The layout of these tests. `over_slots.rs` and `over_segments.rs` run some of them in the others.
const LAYOUT: Layout = Layout::Log;

#[path = "common/gate.rs"]
mod gate;
#[path = "common/small.rs"]
mod small;

mod block_cache;
mod block_cache_threads;
mod both_bad;
mod change;
mod choice_cost;
#[cfg(target_os = "linux")]
mod emulated_block;
mod faults;
mod flush_cost;
mod generation;
mod grow;
mod grown_end;
mod idle_failure;
mod known_faults;
mod learned;
mod lost_device;
mod needs;
mod over_segments;
mod over_slots;
mod placing;
mod queries;
mod read_gaps;
mod read_many;
mod read_now;
mod record;
mod refused;
mod room_ahead;
mod sequential;
mod through;
mod written_again;
