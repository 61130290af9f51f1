//! The page table for dense page numbers: an array from block to frame.

use super::{PageTable, Sharding, TableKey};
use crate::pool::Array;
use crate::sync::atomic::{AtomicU32, Ordering};
use std::io;

/// One `u32` (4 bytes) per page of the database, cached or not. For databases of one object, and at most 2^32 - 1
/// frames. A lookup is one load.
pub struct ArrayTable {
    /// Frame number plus one; 0 for none.
    frames: Array<AtomicU32>,
    sharding: Sharding,
}

impl ArrayTable {
    /// A table of the blocks `0..pages` of object 0, divided by `sharding`.
    ///
    /// # Errors
    /// No memory.
    pub fn new(pages: usize, sharding: Sharding) -> io::Result<Self> {
        Ok(ArrayTable { frames: Array::new(pages)?, sharding })
    }

    #[inline(always)]
    fn entry(&self, key: TableKey) -> &AtomicU32 {
        &self.frames[key.0.0 as usize]
    }
}

impl PageTable for ArrayTable {
    #[inline(always)]
    fn covers(&self, key: TableKey) -> bool {
        // The key has the object above the block, so other objects lie beyond the end.
        key.0.0 < self.frames.len() as u64
    }

    #[inline(always)]
    fn shard(&self, key: TableKey) -> usize {
        self.sharding.of(key)
    }

    #[inline(always)]
    fn get(&self, key: TableKey, _holds: impl Fn(u32) -> bool) -> Option<u32> {
        self.entry(key).load(Ordering::Acquire).checked_sub(1)
    }

    fn insert(&self, key: TableKey, frame: u32) {
        let before = self.entry(key).swap(frame + 1, Ordering::Release);
        debug_assert_eq!(before, 0, "{key:?} had a frame");
    }

    fn remove(&self, key: TableKey, frame: u32) {
        let before = self.entry(key).swap(0, Ordering::Release);
        debug_assert_eq!(before, frame + 1, "{key:?} had another frame");
    }

    fn memory_bytes(&self) -> usize {
        self.frames.len() * size_of::<u32>()
    }
}
