//! The cache store: a log of page versions on a cache device, or slots for them. `docs/cache-format.md` draws
//! both to the byte and states the rules of their use. This module keeps the store; the code that also writes to
//! the backing store keeps the rules.

pub mod age;
mod ages;
mod areas;
pub mod arena;
mod batch;
mod capacity;
mod carried;
mod checksum;
mod clock;
mod commit;
mod counts;
mod either;
mod error;
mod format;
mod generation;
mod geometry;
mod hit_table;
#[doc(hidden)]
pub mod holds;
mod index;
mod journal;
mod log;
mod log_end;
mod memory;
#[doc(hidden)]
pub mod mutant;
mod needs;
mod numbers;
mod repair;
mod rewrite;
mod slots;
mod standing;
mod superblock;
mod table;

pub use checksum::{check_page, page_crc};
pub use clock::Clock;
pub use error::StoreError;
pub use generation::{Generation, Generations};
pub use geometry::{Geometry, Layout, Tables};
pub use hit_table::{Hit, HitTable};
pub use superblock::Identity;

pub use ages::Ages;
pub use batch::Batch;
pub use counts::{Recovered, StoreCounts};
pub use either::AnyStore;
pub use format::{format, geometry, page_bytes, room_pages};
#[cfg(any(test, feature = "mutants"))]
pub use format::{format_before, leave_open};
pub use index::{Entry, Index, PageMap, Step};
pub use log::LogStore;
pub use memory::Unfilled;
#[cfg(any(test, feature = "mutants"))]
#[doc(hidden)]
pub use memory::waiting;
pub use numbers::Numbers;
pub use repair::{Doubtful, Repaired, repair, repair_past};
pub use standing::{SyncPoint, sync_device};
