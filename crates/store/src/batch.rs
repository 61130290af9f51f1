//! Sealed batches on their way to the device. Any thread may write one, without the core's lock.

use super::memory::{BatchMemory, Memory};
use crate::mutant::{self, Mutant};
use entresol_disk::{Disk, Transfer};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A batch to which nothing is added any more.
pub struct Batch {
    /// Log address of its table.
    pub(super) address: u64,
    /// Its blocks, the table first.
    pub(super) blocks: usize,
    /// Writes of the batch: offset on the device, and the range of the batch's bytes that goes there.
    writes: Vec<(u64, Range<usize>)>,
    /// Memory of the batch: its blocks first, unused space after them.
    bytes: Arc<BatchMemory>,
    /// True once the device has the batch. Locked while the batch is being written.
    written: Mutex<bool>,
}

impl Batch {
    pub(super) fn new(address: u64, blocks: usize, writes: Vec<(u64, Range<usize>)>, bytes: Arc<BatchMemory>) -> Self {
        Batch { address, blocks, writes, bytes, written: Mutex::new(false) }
    }

    /// Writes the batch, or waits until the thread that is writing it has done so.
    ///
    /// # Errors
    /// The error that the device returned. The write can be tried again.
    pub fn write<D: Disk + ?Sized>(&self, disk: &D) -> io::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if !*written {
            if !mutant::is(Mutant::BatchBeforeBytes) {
                self.bytes.wait();
            }
            let writes = self.writes.iter();
            let mut writes: Vec<Transfer> =
                writes.map(|(at, range)| Transfer::Write { at: *at, bytes: self.bytes.at(range.clone()) }).collect();
            disk.submit(&mut writes)?;
            *written = true;
        }
        Ok(())
    }

    /// True if the device has the batch. False while it is being written.
    pub(super) fn is_written(&self) -> bool {
        self.written.try_lock().is_ok_and(|written| *written)
    }

    /// True if a log address lies in the batch.
    pub(super) fn holds(&self, address: u64) -> bool {
        (self.address..self.address + self.blocks as u64).contains(&address)
    }

    /// The block at a log address in the batch.
    pub(super) fn block(&self, address: u64) -> &[u8] {
        self.bytes.filled((address - self.address) as usize)
    }

    /// As [`block`](Batch::block), without a wait: none while the block is reserved.
    pub(super) fn block_now(&self, address: u64) -> Option<&[u8]> {
        self.bytes.filled_now((address - self.address) as usize)
    }

    /// Its memory, for another batch, unless a request has just filled a block of it.
    pub(super) fn into_memory(self) -> Option<Memory> {
        Arc::into_inner(self.bytes).map(BatchMemory::into_memory)
    }

    /// Notes in the arena that the device has the batch. In the order of the batches: none may count while an older one
    /// does not.
    pub(super) fn release(&self) {
        self.bytes.release();
    }
}
