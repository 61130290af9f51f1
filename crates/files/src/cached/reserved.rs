//! Blocks of a backing file, such as an image, for writes into its holes.

use super::blocks::{Blocks, Extents};
use crate::below::{File, OpenFile};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A backing file whose holes get blocks when the cache takes a write there, so that they are not missing at
/// write-back.
pub struct Reserved {
    file: Preceded,
    blocks: Blocks,
    /// Taken blocks may not be durable.
    unsynced: AtomicBool,
}

/// The file, with what is to be done before it is changed.
struct Preceded {
    file: File,
    precede: Box<dyn Fn() + Send + Sync>,
}

impl Extents for Preceded {
    fn hole_from(&self, offset: u64) -> rustix::io::Result<u64> {
        self.file.hole_from(offset)
    }

    fn data_from(&self, offset: u64) -> rustix::io::Result<u64> {
        self.file.data_from(offset)
    }

    fn take(&self, range: Range<u64>) -> rustix::io::Result<()> {
        // Blocks that are taken change the file's time of modification.
        (self.precede)();
        Extents::take(&self.file, range)
    }
}

impl Reserved {
    /// Takes a file that is open for writing. `precede` is called before each change of it: see
    /// [`LastWrite::precede`](crate::record::LastWrite::precede).
    pub fn new(file: std::fs::File, precede: impl Fn() + Send + Sync + 'static) -> Self {
        let file = Preceded { file: file.into(), precede: Box::new(precede) };
        Reserved { file, blocks: Blocks::default(), unsynced: AtomicBool::new(false) }
    }

    /// The same file, of which a killed process may have taken blocks that are not durable yet.
    pub fn inherited(self) -> Self {
        self.unsynced.store(true, SeqCst);
        self
    }

    /// Takes blocks for a range of the file, whose size is `size` bytes.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT` and the like.
    pub fn take(&self, range: Range<u64>, size: u64) -> io::Result<()> {
        if self.blocks.take(&self.file, range, size)? {
            self.unsynced.store(true, SeqCst);
        }
        Ok(())
    }

    /// Notes that the blocks of a range may be gone.
    pub fn forget(&self, range: Range<u64>) {
        self.blocks.forget(range);
    }

    /// Makes the taken blocks durable, before a flush of the cache is answered.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn sync(&self) -> io::Result<()> {
        if !self.unsynced.swap(false, SeqCst) {
            return Ok(());
        }
        self.file.file.sync_data().inspect_err(|_| self.unsynced.store(true, SeqCst))
    }
}
