//! Files without a layer.

use super::{AtOnce, FileData, FileId, FileLayer, OpenDirectory, Sought};
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The layer that caches nothing: bytes go straight to the backing files.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirectFiles;

impl FileLayer for DirectFiles {
    fn open(&self, _id: FileId, file: File, _writable: bool) -> io::Result<Arc<dyn FileData>> {
        Ok(Arc::new(DirectFile(file)))
    }

    fn leaving(&self, _id: FileId, _directory: OpenDirectory<'_>) -> io::Result<()> {
        Ok(())
    }

    fn stays(&self, _id: FileId) {}

    fn replacing(&self, _id: FileId) -> io::Result<()> {
        Ok(())
    }

    fn removed(&self, _id: FileId) {}
}

/// A backing file as it is.
#[derive(Debug)]
pub struct DirectFile(pub File);

/// True if the error says that the system would have to wait, or cannot tell.
fn would_wait(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS)
}

/// Fills the first of `bytes` with the part of the file from `offset` on that is in the page cache; returns its length.
pub(crate) fn read_now(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    match rustix::io::preadv2(file, &mut [IoSliceMut::new(bytes)], offset, ReadWriteFlags::NOWAIT) {
        Ok(count) => Ok(count),
        Err(error) if would_wait(error) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

impl FileData for DirectFile {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn below(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> io::Result<AtOnce> {
        let count = read_now(&self.0, offset, bytes)?;
        // Fewer bytes mean the end of the file, or of the part in memory.
        let whole = count == bytes.len() || (count > 0 && offset + count as u64 >= self.size_bytes()?);
        Ok(if whole { AtOnce::All(count) } else { AtOnce::First(count) })
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.0.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_now(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        match rustix::io::pwritev2(&self.0, &[IoSlice::new(bytes)], offset, ReadWriteFlags::NOWAIT) {
            Ok(count) => Ok(count),
            Err(error) if would_wait(error) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        if data_only { self.0.sync_data() } else { self.0.sync_all() }
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.0, how, offset, bytes)?)
    }

    fn seek(&self, sought: Sought, offset: u64) -> io::Result<u64> {
        // The position that `seek` leaves is never used: all other calls state their offset.
        Ok(rustix::fs::seek(
            &self.0,
            match sought {
                Sought::Data => rustix::fs::SeekFrom::Data(offset),
                Sought::Hole => rustix::fs::SeekFrom::Hole(offset),
            },
        )?)
    }
}
