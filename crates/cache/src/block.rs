//! Storage that a front-end serves: a range of bytes that can be read, written and made durable.

#[cfg(target_os = "linux")]
mod emulated_file;
mod file;

pub use file::FileBlock;

use std::io;
use std::sync::Arc;

/// Byte-addressed storage behind a front-end (NBD, FUSE, the SQLite VFS), or below a cache.
///
/// Every later read sees a write that has returned. The write is durable after a [`flush`](Block::flush) that began
/// after the write returned, or when the write carried `fua`. Several threads may call at once.
pub trait Block: Send + Sync {
    /// Size in bytes.
    fn size_bytes(&self) -> u64;

    /// Fills `bytes` with the storage's contents from `offset` on.
    ///
    /// # Errors
    /// `InvalidInput` beyond the end; else the storage's error.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// As [`read`](Block::read), if that needs no I/O and no wait for a thread that may be doing some. True if `bytes`
    /// was filled. Otherwise `bytes` may hold anything, and `read` fills it or reports the error.
    fn read_now(&self, _offset: u64, _bytes: &mut [u8]) -> bool {
        false
    }

    /// Writes `bytes` from `offset` on; durable when it returns if `fua` (force unit access) is set.
    ///
    /// # Errors
    /// As [`read`](Block::read).
    fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> io::Result<()>;

    /// Makes durable every write that returned before.
    ///
    /// # Errors
    /// The error that the storage returned; the writes may then be lost.
    fn flush(&self) -> io::Result<()>;

    /// Declares a range no longer needed. Later reads of the range give zeroes, or bytes that were there at some time.
    ///
    /// # Errors
    /// As [`read`](Block::read).
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// The storage as one more client has it, where that is not as every client has it.
    fn for_client(&self) -> Option<Arc<dyn Block>> {
        None
    }

    /// Writes `bytes` zeroes from `offset` on.
    ///
    /// # Errors
    /// As [`read`](Block::read); a part of the range may have been written.
    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        const AT_A_TIME: u64 = 1 << 20;
        let zeroes = vec![0; bytes.min(AT_A_TIME) as usize];
        let mut done = 0;
        while done < bytes {
            let len = (bytes - done).min(AT_A_TIME);
            self.write(offset + done, &zeroes[..len as usize], false)?;
            done += len;
        }
        Ok(())
    }
}
