//! CRC-32C of chunks: the checksum that a writer sends with its commit.

use crate::wire::PAYLOAD_BYTES_MAX;
use crc_fast::{CrcAlgorithm, Digest};

/// Length of the chunks of a piece that have a checksum each, in bytes. A chunk is one message. The tests of this crate
/// have short ones, so that simulated schedules of many chunks are fast.
pub const CHUNK_BYTES: u64 = if cfg!(test) { 64 } else { PAYLOAD_BYTES_MAX as u64 };

#[cfg(feature = "measure")]
static LEFT_OUT: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Measurement without checksums: from now on all checksums of this process are 0, or they are computed again. All
/// processes of a burst buffer must have the same setting.
#[cfg(feature = "measure")]
pub fn without_checksums(left_out: bool) {
    LEFT_OUT.store(left_out, std::sync::atomic::Ordering::Relaxed);
}

/// CRC-32C of a chunk.
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(feature = "measure")]
    if LEFT_OUT.load(std::sync::atomic::Ordering::Relaxed) {
        return 0;
    }
    // The algorithm has 32 bits.
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of bytes that come one part after the other.
pub struct Checksum(Digest);

impl Checksum {
    pub fn new() -> Checksum {
        Checksum(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds the next part.
    pub fn add(&mut self, bytes: &[u8]) {
        #[cfg(feature = "measure")]
        if LEFT_OUT.load(std::sync::atomic::Ordering::Relaxed) {
            return;
        }
        self.0.update(bytes);
    }

    /// CRC-32C of all parts.
    pub fn finish(self) -> u32 {
        #[cfg(feature = "measure")]
        if LEFT_OUT.load(std::sync::atomic::Ordering::Relaxed) {
            return 0;
        }
        self.0.finalize() as u32
    }
}

/// Number of chunks of a piece.
pub fn chunks(bytes: u64) -> u64 {
    bytes.div_ceil(CHUNK_BYTES)
}

/// Length of a chunk of a piece of `bytes`, in bytes; 0 beyond the end.
pub fn chunk_length(bytes: u64, chunk: u64) -> u64 {
    bytes.saturating_sub(chunk.saturating_mul(CHUNK_BYTES)).min(CHUNK_BYTES)
}

/// The checksums of all chunks.
pub fn of_chunks(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(CHUNK_BYTES as usize).map(crc32c).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        let mut parts = Checksum::new();
        [&b"1234"[..], b"", b"56789"].iter().for_each(|part| parts.add(part));
        assert_eq!(parts.finish(), 0xE306_9283);
        assert!(of_chunks(&[]).is_empty());
        assert_eq!((chunks(0), chunks(1), chunks(CHUNK_BYTES), chunks(CHUNK_BYTES + 1)), (0, 1, 1, 2));
        assert_eq!((chunk_length(CHUNK_BYTES + 7, 1), chunk_length(CHUNK_BYTES + 7, 2)), (7, 0));
        assert_eq!(chunk_length(7, u64::MAX), 0);
    }
}
