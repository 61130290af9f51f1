//! A file or block device, by pread, pwrite and fdatasync.

use super::aligned::ALIGN;
use super::{AlignedBytes, Disk};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Whether the kernel's page cache stands between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Reads and writes go through the page cache.
    Buffered,
    /// O_DIRECT: they do not. Positions and lengths of writes must be multiples of 4096, those of reads are rounded to
    /// them; memory that is not aligned is copied.
    Direct,
}

/// A file or block device that this process alone has open: a second open of it, here or elsewhere, is refused, and so
/// is a block device that is mounted.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    size_bytes: u64,
    caching: Caching,
}

impl FileDisk {
    /// Opens an existing file or block device. Its size is what it is now.
    ///
    /// # Errors
    /// `WouldBlock` when another holder has it open, `ResourceBusy` when the kernel itself uses the block device; else what
    /// opening answered.
    pub fn open(path: &Path, caching: Caching) -> io::Result<Self> {
        Self::with(OpenOptions::new().read(true).write(true), path, caching)
    }

    /// Makes a file of this size, or gives an existing one this size.
    ///
    /// # Errors
    /// As [`open`](FileDisk::open).
    pub fn create(path: &Path, size_bytes: u64, caching: Caching) -> io::Result<Self> {
        let mut disk = Self::with(OpenOptions::new().read(true).write(true).create(true), path, caching)?;
        disk.file.set_len(size_bytes)?;
        disk.size_bytes = size_bytes;
        Ok(disk)
    }

    fn with(options: &mut OpenOptions, path: &Path, caching: Caching) -> io::Result<Self> {
        let mut flags = OFlags::empty();
        if caching == Caching::Direct {
            flags |= OFlags::DIRECT;
        }
        // For a block device, and for nothing else, this asks the kernel whether it is mounted.
        if std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()) {
            flags |= OFlags::EXCL;
        }
        options.custom_flags(flags.bits() as i32);
        let mut file = options.open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(error.kind(), format!("{} is in use by another process: {error}", path.display()))
        })?;
        // A block device has no length of its own in its metadata.
        let size_bytes = file.seek(SeekFrom::End(0))?;
        Ok(FileDisk { file, size_bytes, caching })
    }

    fn must_copy(&self, bytes: &[u8]) -> bool {
        self.caching == Caching::Direct && !(bytes.as_ptr() as usize).is_multiple_of(ALIGN)
    }

    /// Reads the whole blocks that have these bytes in them, as far as the device goes.
    fn read_around(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let within = at as usize % ALIGN;
        let mut copy = AlignedBytes::zeroed((within + bytes.len()).next_multiple_of(ALIGN));
        let mut done = 0;
        while done < within + bytes.len() {
            match self.file.read_at(&mut copy[done..], at - within as u64 + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.copy_from_slice(&copy[within..within + bytes.len()]);
        Ok(())
    }

    fn check_range(&self, at: u64, len: usize, kind: io::ErrorKind) -> io::Result<()> {
        match at.checked_add(len as u64) {
            Some(end) if end <= self.size_bytes => Ok(()),
            _ => Err(io::Error::new(kind, format!("{len} bytes at {at} of a device of {} bytes", self.size_bytes))),
        }
    }
}

fn is_whole(at: u64, len: usize) -> bool {
    (at as usize | len).is_multiple_of(ALIGN)
}

impl Disk for FileDisk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.check_range(at, bytes.len(), io::ErrorKind::UnexpectedEof)?;
        if self.must_copy(bytes) || (self.caching == Caching::Direct && !is_whole(at, bytes.len())) {
            return self.read_around(at, bytes);
        }
        self.file.read_exact_at(bytes, at)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.check_range(at, bytes.len(), io::ErrorKind::StorageFull)?;
        if self.must_copy(bytes) {
            let mut copy = AlignedBytes::zeroed(bytes.len());
            copy.copy_from_slice(bytes);
            return self.file.write_all_at(&copy, at);
        }
        self.file.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, at, bytes) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            other => Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("entresol-disk-{}-{name}", std::process::id()))
    }

    #[test]
    fn what_is_written_is_read_and_holes_are_zeros() {
        for caching in [Caching::Buffered, Caching::Direct] {
            let path = path(&format!("{caching:?}"));
            let Ok(disk) = FileDisk::create(&path, 64 << 10, caching) else {
                println!("{caching:?}: this file system refuses it, skipped");
                continue;
            };
            let bytes: Vec<u8> = (0..8192u32).map(|i| (i % 251) as u8).collect();
            // A slice that begins one byte into a vector is aligned to nothing.
            let shifted = [&[0], bytes.as_slice()].concat();
            disk.write_at(4096, &shifted[1..]).expect("a write");
            disk.sync().expect("a sync");
            let mut back = vec![1; 16384 + 1];
            disk.read_at(0, &mut back[1..]).expect("a read");
            assert!(back[1..4097].iter().all(|&b| b == 0));
            let mut some = [0; 700];
            disk.read_at(4096 + 4000, &mut some).expect("a read across blocks");
            assert_eq!(some[..], bytes[4000..4700]);
            assert_eq!(&back[4097..4097 + 8192], bytes);
            disk.discard(4096, 4096).expect("a discard");
            assert_eq!(disk.read_at(64 << 10, &mut [0; 4096]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(disk.write_at(60 << 10, &bytes).unwrap_err().kind(), io::ErrorKind::StorageFull);
            std::fs::remove_file(&path).expect("the file just made");
        }
    }

    #[test]
    fn a_second_holder_is_refused() {
        let path = path("lock");
        let first = FileDisk::create(&path, 4096, Caching::Buffered).expect("a file");
        let second = FileDisk::open(&path, Caching::Buffered).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        assert!(second.to_string().contains("in use"), "{second}");
        drop(first);
        FileDisk::open(&path, Caching::Buffered).expect("the first is gone");
        std::fs::remove_file(&path).expect("the file just made");
    }
}
