//! Commit records, and the copies of tables and of blocks of the journal.

use crate::bytes::{Bytes, READS, crc32c, id_at, u32_at, u64_at};
use crate::error::SurveyError;
use crate::superblock::{End, PLACES_MAX, SUPERBLOCK, Superblock};

const MAGIC: [u8; 8] = *b"\x89ETCOMMI";
/// Offset in bytes of the first of two commit records; the second is [`RECORD_BLOCK`] bytes after it.
const RECORDS_AT: u64 = 8192;
/// Bytes of the block of a commit record.
pub(crate) const RECORD_BLOCK: usize = 4096;
/// Bytes of a copy of a table before its entries.
pub(crate) const COPY_HEADER: usize = 48;

/// A copy of a table or of a block of the journal.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    /// Log address of the table, or number of the block.
    pub place: u64,
    pub tail: u64,
    pub chain: u32,
    pub crc: u32,
    pub slot: u32,
    pub next: u32,
    /// Entries, byte for byte.
    pub entries: Vec<u8>,
}

/// The copy at the beginning of these bytes; none if they do not hold a valid one.
pub(crate) fn copy_in(bytes: &[u8], entry: usize) -> Option<Copy> {
    let header = bytes.get(..COPY_HEADER)?;
    let entries = bytes[COPY_HEADER..].get(..u32_at(header, 32) as usize * entry)?;
    let sum = crc32c(&[&header[..44], &[0; 4], entries].concat());
    let (place, tail) = (u64_at(header, 0), u64_at(header, 8));
    (sum == u32_at(header, 44) && tail <= place && place <= PLACES_MAX).then(|| Copy {
        place,
        tail,
        chain: u32_at(header, 24),
        crc: u32_at(header, 28),
        slot: u32_at(header, 36),
        next: u32_at(header, 40),
        entries: entries.to_vec(),
    })
}

/// A commit record: the end up to which the store was durable, and a copy of the last table.
pub(crate) struct CommitRecord {
    pub epoch: u64,
    pub end: End,
    pub copy: Option<Copy>,
}

/// The valid commit records.
pub(crate) fn commit_records(
    file: &impl Bytes,
    superblock: &Superblock,
    entry: usize,
) -> Result<Vec<CommitRecord>, SurveyError> {
    if superblock.tables == 2 {
        return Ok(Vec::new());
    }
    let mut records = Vec::new();
    for at in [RECORDS_AT, RECORDS_AT + RECORD_BLOCK as u64] {
        let mut block = [0; RECORD_BLOCK];
        for _ in 0..READS {
            file.read_at(at, &mut block)?;
            let whole = block[..8] == MAGIC && crc32c(&block[..508]) == u32_at(&block, 508);
            let (place, tail) = (u64_at(&block, 32), u64_at(&block, 40));
            if whole && id_at(&block, 8) == superblock.uuid && tail <= place && place <= PLACES_MAX {
                let end = End { place, slot: u32_at(&block, 52), tail, chain: u32_at(&block, 48) };
                let copy = copy_in(&block[SUPERBLOCK..], entry);
                records.push(CommitRecord { epoch: u64_at(&block, 24), end, copy });
                break;
            }
        }
    }
    Ok(records)
}
