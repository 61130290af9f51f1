//! The tests of the buffers as one program: each of several would be linked with every policy again.
#![cfg(not(any(loom, shuttle)))]

mod common;
#[path = "../../cache/tests/common/gate.rs"]
mod gate;

mod buffer_counts;
mod buffer_faults;
mod buffer_threads;
mod buffer_tiered;
mod tiered_behind;
mod tiered_pages;
mod tiered_reads;
mod tiered_tuning;
