//! A file or a block device without a cache: every request goes straight to it.

use super::Block;
use crate::PathError;
use rustix::fs::{FallocateFlags, FlockOperation};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A file or block device without a cache, held by this process alone.
#[derive(Debug)]
pub struct FileBlock {
    file: File,
    size: u64,
}

impl FileBlock {
    /// Opens `path`, read-only if asked. The block keeps the size that the file has now.
    ///
    /// # Errors
    /// [`PathError::InUse`] when another process has the file locked, [`PathError::System`] when it cannot be opened.
    pub fn open(path: &Path, read_only: bool) -> Result<Self, PathError> {
        let opened = OpenOptions::new().read(true).write(!read_only).open(path);
        let mut file = opened.map_err(|error| PathError::system(path, error))?;
        let lock =
            if read_only { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive };
        match rustix::fs::flock(&file, lock) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(PathError::InUse(path.into())),
            Err(error) => return Err(PathError::system(path, error)),
        }
        // A block device has no length in its metadata; its end can be sought.
        let size = file.seek(SeekFrom::End(0)).map_err(|error| PathError::system(path, error))?;
        Ok(Self { file, size })
    }
}

/// `InvalidInput` unless `offset .. offset + bytes` lies within `size`.
fn within(size: u64, offset: u64, bytes: u64) -> io::Result<()> {
    if offset.checked_add(bytes).is_some_and(|end| end <= size) {
        return Ok(());
    }
    let text = format!("{bytes} bytes at offset {offset} end beyond the size of {size} bytes");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

impl Block for FileBlock {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        within(self.size, offset, bytes.len() as u64)?;
        self.file.read_exact_at(bytes, offset)
    }

    fn read_now(&self, offset: u64, bytes: &mut [u8]) -> bool {
        entresol_disk::read_now(&self.file, offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        within(self.size, offset, bytes.len() as u64)?;
        self.file.write_all_at(bytes, offset)?;
        if fua { self.file.sync_data() } else { Ok(()) }
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        within(self.size, offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes) {
            // A hint that the file system does not take: the range keeps its bytes, which `discard` allows.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_held_by_one_writer() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8192).unwrap();
        let first = FileBlock::open(file.path(), false).unwrap();
        assert!(matches!(FileBlock::open(file.path(), false), Err(PathError::InUse(_))));
        assert!(matches!(FileBlock::open(file.path(), true), Err(PathError::InUse(_))));
        drop(first);
        let readers = [FileBlock::open(file.path(), true).unwrap(), FileBlock::open(file.path(), true).unwrap()];
        assert_eq!(readers.map(|reader| reader.size_bytes()), [8192; 2]);
    }

    #[test]
    fn requests_beyond_the_end_are_refused_and_leave_the_size() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8192).unwrap();
        let block = FileBlock::open(file.path(), false).unwrap();
        for offset in [8191, 8192, u64::MAX] {
            let kinds = [
                block.read(offset, &mut [0; 2]).unwrap_err().kind(),
                block.write(offset, &[0; 2], true).unwrap_err().kind(),
                block.discard(offset, 2).unwrap_err().kind(),
            ];
            assert_eq!(kinds, [io::ErrorKind::InvalidInput; 3]);
        }
        assert_eq!(file.as_file().metadata().unwrap().len(), 8192);
    }

    #[test]
    fn what_is_written_is_read_and_what_is_discarded_is_zero_or_was_there() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(16384).unwrap();
        let block = FileBlock::open(file.path(), false).unwrap();
        block.write(100, &[7; 9000], true).unwrap();
        block.discard(4096, 4096).unwrap();
        block.flush().unwrap();
        let mut bytes = [1; 16384];
        block.read(0, &mut bytes).unwrap();
        assert!(bytes[..100].iter().all(|&b| b == 0) && bytes[100..4096].iter().all(|&b| b == 7));
        let discarded = bytes[4096];
        assert!(discarded == 0 || discarded == 7);
        assert!(bytes[4096..8192].iter().all(|&b| b == discarded));
        assert!(bytes[8192..9100].iter().all(|&b| b == 7) && bytes[9100..].iter().all(|&b| b == 0));
    }
}
