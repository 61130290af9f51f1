//! Storage that a front-end serves: a range of bytes that can be read, written and made durable.

use std::io;

/// Byte-addressed storage behind a door (NBD, FUSE, the SQLite VFS), or below a cache.
///
/// A write that has returned is seen by every later read. It is durable after a [`flush`](Block::flush) that began after
/// it returned, or when it carried `fua`. Calls may come from several threads at once.
pub trait Block: Send + Sync {
    /// Size in bytes.
    fn size_bytes(&self) -> u64;

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// `InvalidInput` beyond the end; else what the storage answered.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// As [`read`](Block::read), if that takes no I/O and no waiting for anybody who may be at some; whether it did. If not,
    /// `bytes` may hold anything, and `read` gives them or says what is wrong.
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

    /// Declares a range no longer needed: reads of it give zeroes or what was there, now or before.
    ///
    /// # Errors
    /// As [`read`](Block::read).
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Writes so many zeroes from `offset` on.
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
