//! Batches that are complete, on their way to the device: written by whoever comes first, while nobody holds the log.

use crate::disk::{AlignedBytes, Disk, Transfer};
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// A batch that nothing is added to any more.
pub(crate) struct Batch {
    /// Place of its table.
    pub(super) address: u64,
    /// Its blocks, the table first.
    pub(super) blocks: usize,
    /// Writes of the batch: each has an offset on the device and the range of the batch's bytes that goes there.
    writes: Vec<(u64, Range<usize>)>,
    /// Its blocks and room for more.
    bytes: AlignedBytes,
    /// Is it on the device? Locked while it is being written.
    written: Mutex<bool>,
}

impl Batch {
    pub(super) fn new(address: u64, blocks: usize, writes: Vec<(u64, Range<usize>)>, bytes: AlignedBytes) -> Self {
        Batch { address, blocks, writes, bytes, written: Mutex::new(false) }
    }

    /// Writes the batch, or waits until the thread that is writing it has done so.
    ///
    /// # Errors
    /// The error that the device returned. The write can be tried again.
    pub fn write<D: Disk + ?Sized>(&self, disk: &D) -> io::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if !*written {
            let writes = self.writes.iter();
            let mut writes: Vec<Transfer> =
                writes.map(|(at, range)| Transfer::Write { at: *at, bytes: &self.bytes[range.clone()] }).collect();
            disk.submit(&mut writes)?;
            *written = true;
        }
        Ok(())
    }

    /// Is it on the device? False while it is being written.
    pub(super) fn is_written(&self) -> bool {
        self.written.try_lock().is_ok_and(|written| *written)
    }

    /// Is a place in it?
    pub(super) fn holds(&self, address: u64) -> bool {
        (self.address..self.address + self.blocks as u64).contains(&address)
    }

    /// The block at a place in it.
    pub(super) fn block(&self, address: u64, page_bytes: usize) -> &[u8] {
        let at = (address - self.address) as usize * page_bytes;
        &self.bytes[at..at + page_bytes]
    }

    /// Its memory, for another batch.
    pub(super) fn into_bytes(self) -> AlignedBytes {
        self.bytes
    }
}
