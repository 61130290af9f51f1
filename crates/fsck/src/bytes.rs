//! Bytes of a store, and the numbers and checksums in them.

use std::io;

/// Number of reads before data that disagrees with its CRC counts as damaged.
pub(crate) const READS: usize = 2;

/// Source from which a store is read.
pub trait Bytes {
    /// Size of the source in bytes.
    fn size_bytes(&self) -> u64;
    /// Reads `bytes.len()` bytes from the byte `at` on.
    ///
    /// # Errors
    /// If they cannot all be read.
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;
}

pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub(crate) fn id_at(bytes: &[u8], at: usize) -> [u8; 16] {
    bytes[at..at + 16].try_into().expect("sixteen bytes")
}
