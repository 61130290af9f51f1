//! The trait through which all I/O of the engine goes, with implementations for devices and files. A crash test
//! runs the real code over another implementation, in memory (`crates/crashtest`).
//!
//! Calls block. A caller with several transfers hands them over together ([`Disk::submit`]): an implementation
//! with a queue can then keep it full, and one without performs them in order. Reads named one after the other go
//! through a queue that is refilled ([`Disk::read_queue`]).

mod aligned;
mod file;
mod identity;
mod metered;
mod patience;
mod queue;
mod rings;
mod space;

pub use aligned::AlignedBytes;
pub use file::{Caching, FileDisk, read_now};
pub use identity::file_identity;
pub use metered::{CallCounts, DeviceCounts, MeterReader, Metered, THREAD_GROUPS, TIME_BUCKETS, thread_group};
pub use patience::{PATIENCE, patiently};
pub use queue::{QueuedRead, ReadSource};
pub use space::{Taken, take_room};

use std::io;
use std::sync::Arc;

/// One transfer of a batch.
#[derive(Debug)]
pub enum Transfer<'a> {
    /// Fills `bytes` from byte `at` on.
    Read {
        /// Position in bytes.
        at: u64,
        /// Memory that is filled.
        bytes: &'a mut [u8],
    },
    /// Writes `bytes` from byte `at` on.
    Write {
        /// Position in bytes.
        at: u64,
        /// Bytes that are written.
        bytes: &'a [u8],
    },
}

impl Transfer<'_> {
    /// Position in bytes.
    pub fn at(&self) -> u64 {
        match self {
            Transfer::Read { at, .. } | Transfer::Write { at, .. } => *at,
        }
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "nobody transfers nothing")]
    pub fn len(&self) -> usize {
        match self {
            Transfer::Read { bytes, .. } => bytes.len(),
            Transfer::Write { bytes, .. } => bytes.len(),
        }
    }
}

/// A device or file: positions and lengths in bytes.
///
/// A write that returned is seen by every later read. The write survives a crash only after a [`sync`](Disk::sync) that
/// began after it returned. Until then any 512-byte sector of it may survive or not, in any order. After a failed sync
/// the fate of the writes before it is unknown, even if a later sync succeeds.
pub trait Disk: Send + Sync {
    /// Size in bytes.
    fn size_bytes(&self) -> u64;

    /// Fills `bytes` from byte `at` on.
    ///
    /// # Errors
    /// `UnexpectedEof` beyond the end; otherwise the device's error.
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// As [`read_at`](Disk::read_at), if no device must be waited for. Returns false otherwise, and `bytes` is then
    /// undefined.
    fn read_now(&self, _at: u64, _bytes: &mut [u8]) -> bool {
        false
    }

    /// Writes all of `bytes` from byte `at` on. After an error any part of it may have been written.
    ///
    /// # Errors
    /// `StorageFull` beyond the end or without space; otherwise the device's error.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns once every write that returned before is on stable storage.
    ///
    /// # Errors
    /// The error of the device.
    fn sync(&self) -> io::Result<()>;

    /// Declares a range no longer needed. Devices may ignore this hint.
    ///
    /// # Errors
    /// The error of the device.
    fn discard(&self, at: u64, bytes: u64) -> io::Result<()>;

    /// Makes the device at least so large. The added bytes survive a crash only after a sync.
    ///
    /// # Errors
    /// `Unsupported` if the size cannot be changed; otherwise the device's error.
    fn grow(&self, size_bytes: u64) -> io::Result<()> {
        if size_bytes <= self.size_bytes() {
            return Ok(());
        }
        let error = format!("a device of {} bytes cannot be made larger from here", self.size_bytes());
        Err(io::Error::new(io::ErrorKind::Unsupported, error))
    }

    /// Performs independent transfers in any order.
    ///
    /// # Errors
    /// One of the errors. Any of the other transfers may have been performed.
    fn submit(&self, transfers: &mut [Transfer]) -> io::Result<()> {
        for transfer in transfers {
            match transfer {
                Transfer::Read { at, bytes } => self.read_at(*at, bytes)?,
                Transfer::Write { at, bytes } => self.write_at(*at, bytes)?,
            }
        }
        Ok(())
    }

    /// Performs reads as the source names them, at most `depth` at once, until the source names none and all have
    /// ended. By default this is a series of [batches](Disk::submit); a device with a queue keeps it full.
    fn read_queue<'a>(&self, depth: usize, source: &mut dyn ReadSource<'a>) {
        queue::by_batches(self, depth, source);
    }
}

impl<D: Disk + ?Sized> Disk for Arc<D> {
    fn size_bytes(&self) -> u64 {
        (**self).size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        (**self).read_at(at, bytes)
    }

    fn read_now(&self, at: u64, bytes: &mut [u8]) -> bool {
        (**self).read_now(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).write_at(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        (**self).sync()
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        (**self).discard(at, bytes)
    }

    fn grow(&self, size_bytes: u64) -> io::Result<()> {
        (**self).grow(size_bytes)
    }

    fn submit(&self, transfers: &mut [Transfer]) -> io::Result<()> {
        (**self).submit(transfers)
    }

    fn read_queue<'a>(&self, depth: usize, source: &mut dyn ReadSource<'a>) {
        (**self).read_queue(depth, source);
    }
}
