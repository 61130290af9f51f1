//! A cache in front of a file with holes: blocks are allocated before a write into a hole is answered.

use entresol_cache::Block;
use entresol_files::Reserved;
use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A block over a cache whose backing store is a file.
pub struct Reserving {
    block: Arc<dyn Block>,
    reserved: Reserved,
    page_bytes: u64,
}

impl Reserving {
    /// Wraps the block if its backing store is a writable file, so that written ranges get their blocks; else
    /// returns it as it is. `is_inherited` if a killed server may have answered writes through it. `precede` is called
    /// before blocks are taken.
    pub fn over(
        block: Arc<dyn Block>,
        backing: &Path,
        page_bytes: u32,
        is_inherited: bool,
        precede: impl Fn() + Send + Sync + 'static,
    ) -> Arc<dyn Block> {
        let file = OpenOptions::new().read(true).write(true).open(backing).ok();
        match file.filter(|file| file.metadata().is_ok_and(|found| found.is_file())) {
            Some(file) => {
                let reserved = Reserved::new(file, precede);
                let reserved = if is_inherited { reserved.inherited() } else { reserved };
                Arc::new(Reserving { block, reserved, page_bytes: page_bytes.into() })
            }
            None => block,
        }
    }

    /// The bytes of the pages that a range touches: pages are written back whole.
    fn pages(&self, offset: u64, bytes: u64) -> Range<u64> {
        let end = offset.saturating_add(bytes).min(self.size_bytes());
        offset / self.page_bytes * self.page_bytes..end.next_multiple_of(self.page_bytes)
    }
}

impl Block for Reserving {
    fn size_bytes(&self) -> u64 {
        self.block.size_bytes()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.block.read(offset, bytes)
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> bool {
        self.block.read_now(offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        self.reserved.take(self.pages(offset, bytes.len() as u64), self.size_bytes())?;
        if fua {
            self.reserved.sync()?;
        }
        self.block.write(offset, bytes, fua)
    }

    fn flush(&self) -> io::Result<()> {
        self.reserved.sync()?;
        self.block.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let discarded = self.block.discard(offset, bytes);
        self.reserved.forget(self.pages(offset, bytes));
        discarded
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.reserved.take(self.pages(offset, bytes), self.size_bytes())?;
        self.block.write_zeroes(offset, bytes)
    }
}
