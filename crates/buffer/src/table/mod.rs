//! Page tables: maps from pages to frames.
//!
//! Lookups take no lock; changes are made under the lock of one shard. Nothing is allocated after construction, and
//! a table never holds more entries than frames. An entry holds no page: a lookup reads the page in the frame's
//! descriptor, which the reader needs anyway. So an entry is one atomic word and cannot be torn.

mod array;
mod hash;

#[cfg(all(test, not(shuttle)))]
mod tests;

pub use array::ArrayTable;
pub use hash::HashTable;

use crate::frame::Key;

/// A page as tables know it: the key of an entry, and of the page's shard. The buffer manager makes it from an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableKey(pub(crate) Key);

/// A map from pages to frames with lock-free lookups.
pub trait PageTable: Send + Sync {
    /// True if the table can hold this page.
    fn covers(&self, key: TableKey) -> bool;

    /// The shard that decides about a page.
    fn shard(&self, key: TableKey) -> usize;

    /// The frame of a page. `holds` returns true if a frame's page is the one sought; a table that cannot confuse pages
    /// need not call it. The answer may be outdated when it is returned, so the caller checks the frame after taking
    /// it. `None` is exact: at some moment of the call the page had no frame.
    fn get(&self, key: TableKey, holds: impl Fn(u32) -> bool) -> Option<u32>;

    /// Adds a page that is not in the table. The caller owns the frame and has written the page into it.
    fn insert(&self, key: TableKey, frame: u32);

    /// Removes a page that is in the table with this frame.
    fn remove(&self, key: TableKey, frame: u32);

    /// Bytes of memory.
    fn memory_bytes(&self) -> usize;
}

/// Scatters keys over `u64`.
#[inline(always)]
fn scatter(key: u64) -> u64 {
    // One multiplication to 128 bits whose halves are folded: a lookup waits for it, so a second one would show.
    let wide = u128::from(key ^ 0x9E37_79B9_7F4A_7C15) * u128::from(0xD6E8_FEB8_6659_FD93u64);
    wide as u64 ^ (wide >> 64) as u64
}

/// Division of pages among shards.
#[derive(Clone, Copy, Debug)]
pub struct Sharding {
    mask: usize,
    run_bits: u32,
}

impl Sharding {
    /// Each page by itself, so that hot neighbouring pages do not all meet in one shard.
    ///
    /// # Panics
    /// When `shards` is not a power of two.
    pub fn pages(shards: usize) -> Self {
        assert!(shards.is_power_of_two(), "{shards} shards");
        Sharding { mask: shards - 1, run_bits: 0 }
    }

    /// Runs of 64 pages together, for policies that look at neighbours.
    ///
    /// # Panics
    /// When `shards` is not a power of two.
    pub fn runs(shards: usize) -> Self {
        Sharding { run_bits: 6, ..Sharding::pages(shards) }
    }

    fn shards(self) -> usize {
        self.mask + 1
    }

    #[inline(always)]
    fn of(self, key: TableKey) -> usize {
        (scatter(key.0.0 >> self.run_bits) >> 16) as usize & self.mask
    }
}
