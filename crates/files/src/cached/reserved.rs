//! Blocks of a backing file, an image say, for what is written into its holes.

use super::blocks::Blocks;
use crate::below::{File, OpenFile};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A file below a cache whose holes get blocks when the cache takes a write there, so that they are not missing when it is written
/// back.
pub struct Reserved {
    file: File,
    blocks: Blocks,
    /// Blocks were taken, which need not be durable.
    unsynced: AtomicBool,
}

impl Reserved {
    /// Of a file that is open for writing.
    pub fn new(file: std::fs::File) -> Self {
        Reserved { file: file.into(), blocks: Blocks::default(), unsynced: AtomicBool::new(false) }
    }

    /// Takes blocks for a range of the file, which has this size.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT` and the like.
    pub fn take(&self, range: Range<u64>, size: u64) -> io::Result<()> {
        if self.blocks.take(&self.file, range, size)? {
            self.unsynced.store(true, SeqCst);
        }
        Ok(())
    }

    /// The blocks of a range may be gone.
    pub fn forget(&self, range: Range<u64>) {
        self.blocks.forget(range);
    }

    /// Makes durable what was taken: before a flush of the cache is answered.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn sync(&self) -> io::Result<()> {
        if !self.unsynced.swap(false, SeqCst) {
            return Ok(());
        }
        self.file.sync_data().inspect_err(|_| self.unsynced.store(true, SeqCst))
    }
}
