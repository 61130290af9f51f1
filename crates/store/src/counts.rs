//! Counts of a store: of the contents that an open found, and of the work on the device since.

use std::time::Duration;

/// Findings of an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// True if the cache had been closed in good order.
    pub clean_shutdown: bool,
    /// Batches after the last known sync that counted.
    pub unsynced_batches: u64,
    /// Pages that the store holds, lost ones among them.
    pub pages: u64,
    /// Pages that the backing store is not known to have.
    pub dirty_pages: u64,
    /// Bytes read of the cache device.
    pub read_bytes: u64,
    /// Time that the open took.
    pub took: Duration,
}

/// Counts of a store's work on its device since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Batches written: write I/Os of the device.
    pub batches: u64,
    /// Blocks in them, tables included.
    pub blocks: u64,
    /// Pages in those blocks.
    pub pages: u64,
    /// Syncs of the device.
    pub syncs: u64,
    /// Pages read.
    pub reads: u64,
    /// Versions that replaced one in the open batch.
    pub rewritten: u64,
    /// Entries of the journal repeated so that an older block of it could be given up. (Slots layout only.)
    pub renewed: u64,
}
