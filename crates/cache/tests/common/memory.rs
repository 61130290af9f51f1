//! A block of memory: benchmarks measure a front-end's own cost on it, and tests compare with it.

use entresol_cache::Block;
use std::io;
use std::sync::{PoisonError, RwLock};

/// Zero-filled memory. `flush` does nothing, and discarded ranges read as zeroes.
#[derive(Debug)]
pub struct MemoryBlock {
    bytes: RwLock<Vec<u8>>,
    size: usize,
}

impl MemoryBlock {
    /// A block of `size` zero bytes.
    pub fn new(size: usize) -> Self {
        Self { bytes: RwLock::new(vec![0; size]), size }
    }

    /// The part of the memory that a request names.
    fn range(&self, offset: u64, bytes: u64) -> io::Result<std::ops::Range<usize>> {
        let end = offset.checked_add(bytes).filter(|&end| end <= self.size as u64);
        // Both fit: they are at most `size`, which is a usize.
        Ok(offset as usize..end.ok_or(io::ErrorKind::InvalidInput)? as usize)
    }
}

impl Block for MemoryBlock {
    fn size_bytes(&self) -> u64 {
        self.size as u64
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let range = self.range(offset, bytes.len() as u64)?;
        // A panic elsewhere cannot leave plain bytes in a broken state.
        bytes.copy_from_slice(&self.bytes.read().unwrap_or_else(PoisonError::into_inner)[range]);
        Ok(())
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> bool {
        let (Ok(range), Ok(held)) = (self.range(offset, bytes.len() as u64), self.bytes.try_read()) else {
            return false;
        };
        bytes.copy_from_slice(&held[range]);
        true
    }

    fn write(&self, offset: u64, bytes: &[u8], _fua: bool) -> io::Result<()> {
        let range = self.range(offset, bytes.len() as u64)?;
        self.bytes.write().unwrap_or_else(PoisonError::into_inner)[range].copy_from_slice(bytes);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let range = self.range(offset, bytes)?;
        self.bytes.write().unwrap_or_else(PoisonError::into_inner)[range].fill(0);
        Ok(())
    }
}
