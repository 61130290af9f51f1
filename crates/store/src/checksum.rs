//! Checksums: CRCs of pages, of tables and of blocks of the journal.

use super::index::Entry;
use crate::mutant::{self, Mutant};
use std::io;

/// Byte at which a table has its CRC, and a block of the journal too.
pub(super) const CRC_AT: usize = 80;

/// CRC of a page's bytes, as an append wants it: CRC-32C (Castagnoli), as in iSCSI.
pub fn page_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes)
}

pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC of a block, with the four bytes of the CRC itself taken as zeros.
pub(super) fn crc_of(block: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&block[..CRC_AT]);
    digest.update(&[0; 4]);
    digest.update(&block[CRC_AT + 4..]);
    digest.finalize() as u32
}

/// Checks the bytes of a version against its CRC.
///
/// # Errors
/// `InvalidData` if they do not agree.
pub fn check_page(entry: Entry, bytes: &[u8]) -> io::Result<()> {
    if crc32c(bytes) != entry.crc && !mutant::is(Mutant::NoReadCheck) {
        let error = format!("wrong checksum of the page at block {}", entry.address);
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    Ok(())
}
