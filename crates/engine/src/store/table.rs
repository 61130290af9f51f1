//! The table of a batch: which page versions follow it, and what became of others. Layout: `docs/cache-format.md`.

use super::crc32c;
use super::superblock::LogEnd;
use crate::mutant::{self, Mutant};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"\x89ETBATCH";

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

impl Kind {
    pub const fn has_page(self) -> bool {
        matches!(self, Kind::Clean | Kind::Dirty)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub page: u64,
    pub kind: Kind,
    pub crc: u32,
}

/// The first page number that an entry has no room for.
pub(super) const PAGES_MAX: u64 = 1 << 48;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    uuid: [u8; 16],
    epoch: U64,
    place: U64,
    tail: U64,
    durable_place: U64,
    durable_tail: U64,
    durable_chain: U32,
    chain: U32,
    entries: U32,
    pages: U32,
    crc: U32,
    slot: U32,
    next: U32,
    durable_slot: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    page_low: U32,
    page_high: U16,
    kind: u8,
    zero: u8,
    crc: U32,
}

const HEADER: usize = size_of::<RawHeader>();
const ENTRY: usize = size_of::<RawEntry>();
const CRC_AT: usize = 80;

/// Entries that a table of one block has room for.
pub(super) const fn entries_max(page_bytes: usize) -> usize {
    (page_bytes - HEADER) / ENTRY
}

/// Everything of a table but its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub uuid: [u8; 16],
    pub epoch: u64,
    pub place: u64,
    /// Slot of its segment.
    pub slot: u32,
    /// Slot of the segment after it.
    pub next: u32,
    pub tail: u64,
    pub durable: LogEnd,
    pub chain: u32,
}

/// A decoded table.
#[derive(Debug)]
pub(super) struct Table {
    pub head: Head,
    pub records: Vec<Record>,
    /// Pages that follow.
    pub pages: u32,
    /// Its CRC: the chain of the table after it.
    pub crc: u32,
}

/// Writes a table over a whole block and returns its CRC.
pub(super) fn encode(head: &Head, records: &[Record], block: &mut [u8]) -> u32 {
    assert!(records.len() <= entries_max(block.len()), "{} entries in one table", records.len());
    block.fill(0);
    let pages = records.iter().filter(|record| record.kind.has_page()).count();
    let raw = RawHeader {
        magic: MAGIC,
        uuid: head.uuid,
        epoch: head.epoch.into(),
        place: head.place.into(),
        tail: head.tail.into(),
        durable_place: head.durable.place.into(),
        durable_tail: head.durable.tail.into(),
        durable_chain: head.durable.chain.into(),
        chain: head.chain.into(),
        entries: (records.len() as u32).into(),
        pages: (pages as u32).into(),
        crc: 0.into(),
        slot: head.slot.into(),
        next: head.next.into(),
        durable_slot: head.durable.slot.into(),
    };
    block[..HEADER].copy_from_slice(raw.as_bytes());
    for (record, bytes) in records.iter().zip(block[HEADER..].chunks_exact_mut(ENTRY)) {
        assert!(record.page < PAGES_MAX, "page {} does not fit into an entry", record.page);
        let entry = RawEntry {
            page_low: (record.page as u32).into(),
            page_high: ((record.page >> 32) as u16).into(),
            kind: record.kind as u8,
            zero: 0,
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

/// The header of a block that is a whole table.
fn whole(block: &[u8]) -> Option<RawHeader> {
    let (raw, _) = RawHeader::read_from_prefix(block).ok()?;
    let sound = raw.magic == MAGIC && (mutant::is(Mutant::NoTableCheck) || crc_of(block) == raw.crc.get());
    (sound && raw.entries.get() as usize <= entries_max(block.len())).then_some(raw)
}

fn head(raw: &RawHeader) -> Head {
    let durable = LogEnd {
        place: raw.durable_place.get(),
        slot: raw.durable_slot.get(),
        tail: raw.durable_tail.get(),
        chain: raw.durable_chain.get(),
    };
    Head {
        uuid: raw.uuid,
        epoch: raw.epoch.get(),
        place: raw.place.get(),
        slot: raw.slot.get(),
        next: raw.next.get(),
        tail: raw.tail.get(),
        durable,
        chain: raw.chain.get(),
    }
}

/// Reads everything of a table but its entries; none when the block is not a whole one.
pub(super) fn decode_head(block: &[u8]) -> Option<Head> {
    whole(block).as_ref().map(head)
}

/// Reads a table from a block; none when it is not a whole one.
pub(super) fn decode(block: &[u8]) -> Option<Table> {
    let raw = whole(block)?;
    let entries = block[HEADER..].chunks_exact(ENTRY).take(raw.entries.get() as usize);
    let records = entries.map(decode_entry).collect::<Option<Vec<_>>>()?;
    let pages = records.iter().filter(|record| record.kind.has_page()).count();
    (pages == raw.pages.get() as usize).then(|| Table {
        head: head(&raw),
        records,
        pages: pages as u32,
        crc: raw.crc.get(),
    })
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
    Some(Record { page, kind, crc: raw.crc.get() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    fn head() -> Head {
        let durable = LogEnd { place: 500, slot: 4, tail: 256, chain: 9 };
        Head { uuid: [7; 16], epoch: 3, place: 512, slot: 6, next: 5, tail: 256, durable, chain: 11 }
    }

    fn records(n: usize, seed: u64) -> Vec<Record> {
        let kinds = [Kind::Clean, Kind::Dirty, Kind::Gone, Kind::Cleaned, Kind::Lost];
        let mut random = Random::new(seed);
        let mut record = || Record {
            page: random.below(PAGES_MAX),
            kind: kinds[random.below(5) as usize],
            crc: random.next_u64() as u32,
        };
        (0..n).map(|_| record()).collect()
    }

    #[test]
    fn a_table_comes_back_as_it_was() {
        assert_eq!((HEADER, ENTRY, entries_max(4096), entries_max(512)), (96, 12, 333, 34));
        for (seed, n) in [0, 1, 100, 333].into_iter().enumerate() {
            let mut block = vec![0xFF; 4096];
            let records = records(n, seed as u64);
            let crc = encode(&head(), &records, &mut block);
            let table = decode(&block).expect("a table");
            assert_eq!((table.head, &table.records, table.crc), (head(), &records, crc));
            assert_eq!(decode_head(&block), Some(head()));
        }
    }

    #[test]
    fn any_flipped_bit_and_any_noise_is_refused() {
        let mut block = vec![0; 512];
        encode(&head(), &records(34, 1), &mut block);
        for bit in 0..512 * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&block).is_none() && decode_head(&block).is_none(), "bit {bit}");
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
