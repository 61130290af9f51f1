//! Storage for the bytes of an emulated device.

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// Bytes at offsets. Several threads may call at once.
pub trait Storage: Send + Sync {
    /// Size in bytes, which does not change.
    ///
    /// # Errors
    /// The error of the system.
    fn size_bytes(&self) -> io::Result<u64>;

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// The error of the system; `UnexpectedEof` beyond the end.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes `bytes` from `offset` on.
    ///
    /// # Errors
    /// The error of the system.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes earlier writes durable.
    ///
    /// # Errors
    /// The error of the system.
    fn sync(&self) -> io::Result<()>;

    /// Gives the space of a range back where the storage can. Later reads of the range give zeroes, or the old bytes
    /// where it cannot.
    ///
    /// # Errors
    /// The error of the system, except "not supported".
    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()>;
}

/// A file or a block device, opened for reading and writing.
impl Storage for File {
    fn size_bytes(&self) -> io::Result<u64> {
        let mut file = self;
        // `metadata().len()` is 0 for a block device. No caller depends on the file's position.
        file.seek(SeekFrom::End(0))
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        match fallocate(self, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
