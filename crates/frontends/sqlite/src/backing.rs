//! The database file as a cache's backing store: its size is fixed and large to the cache, and the database's on disk.

use entresol_disk::Disk;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{RwLock, RwLockReadGuard};

/// A database file. Bytes beyond its end read as zeros, and writes there are dropped: only the VFS moves the end.
#[derive(Debug)]
pub struct GrowingFile {
    file: File,
    capacity_bytes: u64,
    /// Held for reading while bytes are written, so that a write under way cannot move the end up again.
    size_bytes: RwLock<u64>,
}

impl GrowingFile {
    /// Opens an existing file, locked against other caches and front-ends.
    ///
    /// # Errors
    /// `WouldBlock` when another process has the file locked; otherwise the error of opening it.
    pub fn open(path: &Path, writable: bool, capacity_bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(writable).open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => {
                let what = format!("{} is in use by another process; a cache belongs to one", path.display());
                io::Error::new(io::ErrorKind::WouldBlock, what)
            }
            other => other.into(),
        })?;
        let size = file.metadata()?.len();
        if size > capacity_bytes {
            let what = format!("{} has {size} bytes, more than the {capacity_bytes} below the cache", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(GrowingFile { file, capacity_bytes, size_bytes: RwLock::new(size) })
    }

    fn locked_size(&self) -> RwLockReadGuard<'_, u64> {
        self.size_bytes.read().expect("nobody panics with the size in its hands")
    }

    /// Bytes of the database.
    pub fn len(&self) -> u64 {
        *self.locked_size()
    }

    /// True if the database has no bytes yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moves the end of the file.
    pub(crate) fn resize(&self, bytes: u64) -> io::Result<()> {
        let mut size = self.size_bytes.write().expect("nobody panics with the size in its hands");
        self.file.set_len(bytes)?;
        *size = bytes;
        Ok(())
    }

    fn check_range(&self, at: u64, bytes: u64, kind: io::ErrorKind) -> io::Result<()> {
        match at.checked_add(bytes) {
            Some(end) if end <= self.capacity_bytes => Ok(()),
            _ => Err(io::Error::new(kind, format!("{bytes} bytes at {at} of at most {}", self.capacity_bytes))),
        }
    }
}

impl AsFd for GrowingFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Disk for GrowingFile {
    fn size_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.check_range(at, bytes.len() as u64, io::ErrorKind::UnexpectedEof)?;
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], at + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes[done..].fill(0);
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_range(at, bytes.len() as u64, io::ErrorKind::StorageFull)?;
        let size = self.locked_size();
        let inside = size.saturating_sub(at).min(bytes.len() as u64) as usize;
        self.file.write_all_at(&bytes[..inside], at)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        let size = self.locked_size();
        let inside = size.saturating_sub(at).min(bytes);
        if inside == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, at, inside) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            other => Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_end_are_zeros_and_are_not_written() {
        let scratch = tempfile::NamedTempFile::new().expect("a file");
        let file = GrowingFile::open(scratch.path(), true, 1 << 40).expect("it is there");
        file.resize(6000).expect("a size");
        file.write_at(4096, &[7; 4096]).expect("a page across the end");
        file.write_at(1 << 30, &[7; 4096]).expect("a page beyond the end");
        assert_eq!((file.len(), scratch.as_file().metadata().expect("metadata").len()), (6000, 6000));
        let mut bytes = [1; 8192];
        file.read_at(4096, &mut bytes).expect("a read");
        assert!(bytes[..6000 - 4096].iter().all(|&b| b == 7) && bytes[6000 - 4096..].iter().all(|&b| b == 0));
        file.resize(4096).and_then(|()| file.resize(8192)).expect("a size");
        file.read_at(0, &mut bytes).expect("a read");
        assert_eq!(bytes, [0; 8192], "what was cut off does not come back");
        assert_eq!(file.read_at((1 << 40) - 1, &mut [0; 2]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(file.write_at(1 << 40, &[0]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_second_holder_is_refused_with_the_reason() {
        let scratch = tempfile::NamedTempFile::new().expect("a file");
        let held = GrowingFile::open(scratch.path(), true, 1 << 40).expect("it is there");
        let refused = GrowingFile::open(scratch.path(), true, 1 << 40).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(refused.to_string().contains("in use by another process"), "{refused}");
        assert!(held.is_empty());
    }
}
