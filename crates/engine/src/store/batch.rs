//! Batches that are complete, on their way to the device: written by whoever comes first, while nobody holds the log.

use crate::disk::{AlignedBytes, Disk};
use std::io;
use std::sync::{Mutex, PoisonError};

/// A batch that nothing is added to any more.
pub(crate) struct Batch {
    /// Place of its table.
    pub(super) place: u64,
    /// Its blocks, the table first.
    pub(super) blocks: usize,
    /// Where it goes on the device, in bytes.
    at: u64,
    /// Its blocks and room for more.
    bytes: AlignedBytes,
    len: usize,
    /// Is it on the device? Locked while it is being written.
    written: Mutex<bool>,
}

impl Batch {
    pub(super) fn new(place: u64, at: u64, blocks: usize, page_bytes: usize, bytes: AlignedBytes) -> Self {
        Batch { place, blocks, at, bytes, len: blocks * page_bytes, written: Mutex::new(false) }
    }

    /// Writes it, or waits for whoever does.
    ///
    /// # Errors
    /// What the device answered. It can be tried again.
    pub fn write<D: Disk + ?Sized>(&self, disk: &D) -> io::Result<()> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if !*written {
            disk.write_at(self.at, &self.bytes[..self.len])?;
            *written = true;
        }
        Ok(())
    }

    /// Is it on the device? False while it is being written.
    pub(super) fn is_written(&self) -> bool {
        self.written.try_lock().is_ok_and(|written| *written)
    }

    /// Is a place in it?
    pub(super) fn holds(&self, place: u64) -> bool {
        (self.place..self.place + self.blocks as u64).contains(&place)
    }

    /// The block at a place in it.
    pub(super) fn block(&self, place: u64, page_bytes: usize) -> &[u8] {
        let at = (place - self.place) as usize * page_bytes;
        &self.bytes[at..at + page_bytes]
    }

    /// Its memory, for another batch.
    pub(super) fn into_bytes(self) -> AlignedBytes {
        self.bytes
    }
}
