//! A block of the journal: what became of slots and of the pages in them. Layout: `docs/cache-format.md`.

use crate::mutant::{self, Mutant};
use crate::store::crc32c;
use crate::store::superblock::LogEnd;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"\x89ETJOURN";

/// What an entry says of its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Clean = 1,
    Dirty = 2,
    Gone = 3,
    Cleaned = 4,
    Lost = 5,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub page: u64,
    pub kind: Kind,
    /// It repeats an older entry whose block is to be written again.
    pub again: bool,
    pub slot: u32,
    pub version: u32,
    pub crc: u32,
}

impl Record {
    /// Does it say of a slot what is in it?
    pub fn has_page(&self) -> bool {
        matches!(self.kind, Kind::Clean | Kind::Dirty)
    }
}

/// Everything of a block but its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub uuid: [u8; 16],
    pub epoch: u64,
    pub number: u64,
    pub tail: u64,
    pub durable: LogEnd,
    pub chain: u32,
    /// Number of the version after those of this block.
    pub versions: u32,
}

/// A decoded block.
#[derive(Debug)]
pub(super) struct Block {
    pub head: Head,
    pub records: Vec<Record>,
    /// Its CRC: the chain of the block after it.
    pub crc: u32,
}

/// The first page number that an entry has no room for.
const PAGES_MAX: u64 = 1 << 48;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    uuid: [u8; 16],
    epoch: U64,
    number: U64,
    tail: U64,
    durable_number: U64,
    durable_tail: U64,
    durable_chain: U32,
    chain: U32,
    entries: U32,
    versions: U32,
    crc: U32,
    zeros: [u8; 12],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    page_low: U32,
    page_high: U16,
    kind: u8,
    again: u8,
    slot: U32,
    version: U32,
    crc: U32,
}

const HEADER: usize = size_of::<RawHeader>();
const ENTRY: usize = size_of::<RawEntry>();
const CRC_AT: usize = 80;

/// Entries that a block has room for.
pub(super) const fn entries_max(page_bytes: usize) -> usize {
    (page_bytes - HEADER) / ENTRY
}

/// Writes a block and returns its CRC.
pub(super) fn encode(head: &Head, records: &[Record], block: &mut [u8]) -> u32 {
    assert!(records.len() <= entries_max(block.len()), "{} entries in one block", records.len());
    block.fill(0);
    let raw = RawHeader {
        magic: MAGIC,
        uuid: head.uuid,
        epoch: head.epoch.into(),
        number: head.number.into(),
        tail: head.tail.into(),
        durable_number: head.durable.place.into(),
        durable_tail: head.durable.tail.into(),
        durable_chain: head.durable.chain.into(),
        chain: head.chain.into(),
        entries: (records.len() as u32).into(),
        versions: head.versions.into(),
        crc: 0.into(),
        zeros: [0; 12],
    };
    block[..HEADER].copy_from_slice(raw.as_bytes());
    for (record, bytes) in records.iter().zip(block[HEADER..].chunks_exact_mut(ENTRY)) {
        assert!(record.page < PAGES_MAX, "page {} does not fit into an entry", record.page);
        let entry = RawEntry {
            page_low: (record.page as u32).into(),
            page_high: ((record.page >> 32) as u16).into(),
            kind: record.kind as u8,
            again: record.again.into(),
            slot: record.slot.into(),
            version: record.version.into(),
            crc: record.crc.into(),
        };
        bytes.copy_from_slice(entry.as_bytes());
    }
    let crc = crc32c(block);
    block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// CRC of a block, the four bytes where it is kept taken as zeros.
fn crc_of(block: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(&block[..CRC_AT]);
    digest.update(&[0; 4]);
    digest.update(&block[CRC_AT + 4..]);
    digest.finalize() as u32
}

/// Reads a block; none when it is not a whole one.
pub(super) fn decode(block: &[u8]) -> Option<Block> {
    let (raw, _) = RawHeader::read_from_prefix(block).ok()?;
    let count = raw.entries.get() as usize;
    if raw.magic != MAGIC || count > entries_max(block.len()) {
        return None;
    }
    if crc_of(block) != raw.crc.get() && !mutant::is(Mutant::NoTableCheck) {
        return None;
    }
    let records = block[HEADER..].chunks_exact(ENTRY).take(count).map(decode_entry).collect::<Option<Vec<_>>>()?;
    let durable = LogEnd {
        place: raw.durable_number.get(),
        slot: 0,
        tail: raw.durable_tail.get(),
        chain: raw.durable_chain.get(),
    };
    let head = Head {
        uuid: raw.uuid,
        epoch: raw.epoch.get(),
        number: raw.number.get(),
        tail: raw.tail.get(),
        durable,
        chain: raw.chain.get(),
        versions: raw.versions.get(),
    };
    Some(Block { head, records, crc: raw.crc.get() })
}

fn decode_entry(bytes: &[u8]) -> Option<Record> {
    let (raw, _) = RawEntry::read_from_prefix(bytes).ok()?;
    let kind = match raw.kind {
        1 => Kind::Clean,
        2 => Kind::Dirty,
        3 => Kind::Gone,
        4 => Kind::Cleaned,
        5 => Kind::Lost,
        _ => return None,
    };
    let page = u64::from(raw.page_high.get()) << 32 | u64::from(raw.page_low.get());
    let (slot, version, crc) = (raw.slot.get(), raw.version.get(), raw.crc.get());
    Some(Record { page, kind, again: raw.again != 0, slot, version, crc })
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    fn head() -> Head {
        let durable = LogEnd { place: 500, slot: 0, tail: 256, chain: 9 };
        Head { uuid: [7; 16], epoch: 3, number: 512, tail: 256, durable, chain: 11, versions: 1234 }
    }

    fn records(n: usize, seed: u64) -> Vec<Record> {
        let kinds = [Kind::Clean, Kind::Dirty, Kind::Gone, Kind::Cleaned, Kind::Lost];
        let mut random = Random::new(seed);
        let mut record = || Record {
            page: random.below(PAGES_MAX),
            kind: kinds[random.below(5) as usize],
            again: random.chance(0.5),
            slot: random.next_u64() as u32,
            version: random.next_u64() as u32,
            crc: random.next_u64() as u32,
        };
        (0..n).map(|_| record()).collect()
    }

    #[test]
    fn a_block_comes_back_as_it_was() {
        assert_eq!((HEADER, ENTRY, entries_max(4096), entries_max(512)), (96, 20, 200, 20));
        for (seed, n) in [0, 1, 100, 200].into_iter().enumerate() {
            let mut block = vec![0xFF; 4096];
            let records = records(n, seed as u64);
            let crc = encode(&head(), &records, &mut block);
            let decoded = decode(&block).expect("a block");
            assert_eq!((decoded.head, &decoded.records, decoded.crc), (head(), &records, crc));
        }
    }

    #[test]
    fn any_flipped_bit_and_any_noise_is_refused() {
        let mut block = vec![0; 512];
        encode(&head(), &records(20, 1), &mut block);
        for bit in 0..512 * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&block).is_none(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        let mut random = Random::new(2);
        for _ in 0..1000 {
            let mut noise: Vec<u8> = (0..512).map(|_| random.next_u64() as u8).collect();
            noise[..8].copy_from_slice(&MAGIC);
            assert!(decode(&noise).is_none());
        }
    }
}
