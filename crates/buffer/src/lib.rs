//! Pages in memory under a policy: [`BufferManager`] over DRAM, whose hits take no lock, and [`TieredBuffer`] over DRAM and NVM.
//!
//! - A **hit** takes no lock and allocates nothing. [`read`](BufferManager::read) looks at the page optimistically;
//!   [`pin`](BufferManager::pin) gives a slice; [`update`](BufferManager::update) and
//!   [`overwrite`](BufferManager::overwrite) own the page until the guard is dropped. The hit goes into the thread's
//!   ring, for the policy.
//! - A **miss** asks the shard's policy, which names victims through the same interface as in the simulator. The page
//!   enters the table in state *loading*, so a second thread that wants it waits for the first. Pages leave the table
//!   only when their bytes are in storage, so no thread reads an old version. I/O happens outside every lock.
//! - The **dirty** state belongs to the frame, not to the policy: a changed page is written before it leaves even when
//!   its hit was lost on the way to the policy.
//! - A page that the policy does not take (a bypass, or every victim pinned) gets one of the spare frames and leaves
//!   after use.
//!
//! Lock order: a shard's lock, then the table's, then a bucket of `Parking`. No I/O, WAL flush or guard is used under
//! any of them.
//!
//! Under loom only the frame word is built: it is what loom explores.

pub mod frame;
#[cfg(all(test, shuttle))]
mod interleavings;
#[cfg(not(loom))]
mod manager;
#[cfg(not(loom))]
pub mod pool;
#[cfg(not(loom))]
mod ring;
mod sync;
#[cfg(not(loom))]
pub mod table;

#[cfg(not(loom))]
pub use manager::*;
