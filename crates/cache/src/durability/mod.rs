//! Durability: the state of every page between the cache device and the backing store, and the only code that changes
//! it. Whatever a policy decides, no durable write is lost and no page becomes older.
//!
//! A page that the cache holds is *dirty* in the store's index, or clean. Besides it may be *queued* to be written
//! below (`WriteBack::dirty_queue`), *in a batch* that is being written there ([`WriteBatch`]), or *unsynced*: written there and
//! not known to be durable (`Unsynced`). The ten rules of `docs/cache-format.md`, and the code that keeps each:
//!
//! 1. *Writes below never overtake the store.* `WriteBack::queue` notes how far the store has come; `is_ripe` in
//!    `write_batch.rs` waits until that is durable, and `with_neighbours` takes no version along that is not.
//! 2. *A clean entry is a promise*: `WriteBack::put` marks a version dirty while an older one is on its way below.
//! 3. *Invalidate first*: `WriteBack::queue_past` declares the store's copy gone, and the write waits for that.
//! 4. *Unless the copy is dirty*: `WriteBack::supersede` keeps the copy's address, `settle_some` declares it gone after
//!    the sync below, and `is_superseded` keeps it from becoming clean meanwhile.
//! 5. *A dirty copy is needed* until it is replaced: `reclaim.rs` over a log and segments, `maintenance/slot_reclaim.rs` over
//!    slots.
//! 6. *Reclaim* drops only what is not needed: the same files; `maintenance::make_room` waits for the sync.
//! 7. *Discards and forgotten pages*: `void.rs`.
//! 8. *A page is clean when it is durable below*: `settle_some` in `write_batch.rs`; `Unsynced` knows which writes a
//!    sync covers.
//! 9. *A sync of the store covers all batches before it*: `maintenance::sync_store`, and the store itself.
//! 10. *A change of the policy shows the pages that count as cached*: `WriteBack::is_overtaken` tells which do not.
//!
//! To these the bound on ages adds that a page is below in time (`ages.rs`), and a cache device that fails that nothing
//! is relied on any more (`without_store.rs`). The I/O is done by [`maintenance`](super::maintenance), but for
//! reads of single pages, and for marking a failed store as retired.

mod ages;
mod clean;
mod kept;
mod neighbours;
mod reclaim;
mod unsynced;
mod void;
mod watermarks;
mod without_store;
mod write_back;
mod write_batch;

pub use ages::DirtyAge;
pub(crate) use clean::DirtyLimits;
pub(crate) use watermarks::{DEPTH_MAX, FREE_MIN};
#[cfg(test)]
pub(crate) use watermarks::{SYNC_IDLE, SYNC_MUST};
pub use write_back::WriteBackCounts;
pub(crate) use write_back::{SharedDisk, Source, WriteBack};
pub(crate) use write_batch::{LogRelation, WriteBatch};
