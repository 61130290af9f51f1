//! The file of an emulated device, locked by this process like every served file.

use super::{Block, FileBlock};
use entresol_device::emulated::Storage;
use std::io;

impl Storage for FileBlock {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(Block::size_bytes(self))
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read(offset, bytes)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(offset, bytes, false)
    }

    fn sync(&self) -> io::Result<()> {
        self.flush()
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.discard(offset, bytes)
    }
}
