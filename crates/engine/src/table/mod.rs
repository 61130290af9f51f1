//! Page tables: which frame holds a page.
//!
//! Lookups take no lock; changes are made under the lock of one shard. Nothing is allocated after construction, and
//! a table never holds more entries than frames. An entry holds no page: whether a frame is the right one is read in
//! its descriptor, which the reader needs anyway, so an entry is one atomic word and cannot be torn.

mod array;
mod hash;

#[cfg(all(test, not(shuttle)))]
mod tests;

pub use array::ArrayTable;
pub use hash::HashTable;

use crate::frame::Key;

/// A page's place among the shards, and what a table keeps of a page. Made by the buffer manager from an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableKey(pub(crate) Key);

/// A map from pages to frames with lock-free lookups.
pub trait PageTable: Send + Sync {
    /// Can the table hold this page at all?
    fn covers(&self, key: TableKey) -> bool;

    /// The shard that decides about a page: runs of 64 pages stay together, so that a policy sees neighbours.
    fn shard(&self, key: TableKey) -> usize;

    /// The frame of a page. `holds` tells whether a frame's page is the one; a table that cannot confuse pages need
    /// not ask it. The answer may be outdated when it is given, so the caller checks the frame after taking it.
    /// `None` is exact: at some moment of the call the page had no frame.
    fn get(&self, key: TableKey, holds: impl Fn(u32) -> bool) -> Option<u32>;

    /// Adds a page that is not in the table. The caller owns the frame and has written the page into it.
    fn insert(&self, key: TableKey, frame: u32);

    /// Takes a page out that is in the table with this frame.
    fn remove(&self, key: TableKey, frame: u32);

    /// Bytes of memory.
    fn memory_bytes(&self) -> usize;
}

/// Pages of one run go to one shard.
const RUN_BITS: u32 = 6;

/// Scatters keys over `u64`.
#[inline(always)]
fn scatter(key: u64) -> u64 {
    // Two multiplications by odd constants with a fold between: every bit of the key reaches the upper half.
    let folded = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (folded ^ (folded >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// The shard of a page among `shards`, a power of two.
#[inline(always)]
fn shard_of(key: TableKey, shards: usize) -> usize {
    (scatter(key.0.0 >> RUN_BITS) >> 32) as usize & (shards - 1)
}
