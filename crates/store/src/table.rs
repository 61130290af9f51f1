//! The table of a batch: the page versions that follow it, and statements about other pages. Layout:
//! `docs/cache-format.md`.

use super::age;
use super::carried::{CARRIED_HEADER, Carried};
use super::checksum::{CRC_AT, crc_of, crc32c};
use super::commit::CARRIED_ROOM;
use super::geometry::Tables;
use super::log_end::{LogEnd, PLACES_MAX};
use crate::mutant::{self, Mutant};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"\x89ETBATCH";

/// Kind of an entry: its statement about the page.
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
    /// Age code: time from when the page first differed from the backing store to the clock of the table. See
    /// [`age`](super::age).
    pub age: u8,
    pub crc: u32,
}

/// The first page number that does not fit into an entry.
pub(super) const PAGES_MAX: u64 = 1 << 48;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    uuid: [u8; 16],
    epoch: U64,
    address: U64,
    tail: U64,
    durable_address: U64,
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
    age: u8,
    crc: U32,
}

const HEADER: usize = size_of::<RawHeader>();
/// Header of a table of version 3, which ends with a clock, in bytes.
const HEADER_3: usize = HEADER + 8;
pub(super) const ENTRY: usize = size_of::<RawEntry>();

const fn header(tables: Tables) -> usize {
    match tables {
        Tables::V2 => HEADER,
        Tables::V3 => HEADER_3,
    }
}

/// Most entries of a table, which is one block.
pub(super) const fn entries_max(tables: Tables, page_bytes: usize) -> usize {
    (page_bytes - header(tables)) / ENTRY
}

/// Most entries of a table beside the copy that it carries of the table before it.
pub(super) fn entries_beside(tables: Tables, page_bytes: usize, carried: Option<&Carried>) -> usize {
    (page_bytes - header(tables) - carried.map_or(0, Carried::len)) / ENTRY
}

/// Most entries of a table that the next table, and the commit record, carries as a copy. A larger table is repeated at
/// the end of its own batch.
pub(super) fn carried_max(page_bytes: usize) -> usize {
    let half = (page_bytes - HEADER_3 - CARRIED_HEADER) / 2 / ENTRY;
    half.min((CARRIED_ROOM - CARRIED_HEADER) / ENTRY)
}

/// Copies of a table of so many entries at the end of its batch: one or none.
pub(super) fn copies(tables: Tables, page_bytes: usize, entries: usize) -> usize {
    usize::from(tables == Tables::V3 && entries > carried_max(page_bytes))
}

/// All of a table except its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub uuid: [u8; 16],
    pub epoch: u64,
    pub address: u64,
    /// Slot of the table's segment.
    pub slot: u32,
    /// Slot of the segment after it.
    pub next: u32,
    pub tail: u64,
    pub durable: LogEnd,
    pub chain: u32,
    /// Seconds of cache time when the table was written; 0 before version 3.
    pub clock: u64,
}

#[derive(Debug)]
pub(super) struct Table {
    pub head: Head,
    pub records: Vec<Record>,
    /// Pages of the batch.
    pub pages: u32,
    /// CRC of the table: the chain of the table after it.
    pub crc: u32,
    /// Blocks of the batch: the table, its pages, and the table's copy if it has one.
    pub blocks: u64,
    /// The copy of the table before, if this one carries it.
    pub carried: Option<Carried>,
}

/// Writes a table over a whole block and returns its CRC.
pub(super) fn encode(
    tables: Tables,
    head: &Head,
    records: &[Record],
    carried: Option<&Carried>,
    block: &mut [u8],
) -> u32 {
    let space = entries_beside(tables, block.len(), carried);
    assert!(records.len() <= space, "{} entries in one table that has room for {space}", records.len());
    block.fill(0);
    let pages = records.iter().filter(|record| record.kind.has_page()).count();
    let raw = RawHeader {
        magic: MAGIC,
        uuid: head.uuid,
        epoch: head.epoch.into(),
        address: head.address.into(),
        tail: head.tail.into(),
        durable_address: head.durable.address.into(),
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
    if tables == Tables::V3 {
        block[HEADER..HEADER_3].copy_from_slice(&head.clock.to_le_bytes());
    }
    let (entries, rest) = block[header(tables)..].split_at_mut(records.len() * ENTRY);
    encode_entries(records, entries);
    if let Some(carried) = carried {
        carried.encode(rest);
    }
    let crc = crc32c(block);
    block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    crc
}

fn encode_entries(records: &[Record], entries: &mut [u8]) {
    for (record, bytes) in records.iter().zip(entries.chunks_exact_mut(ENTRY)) {
        assert!(record.page < PAGES_MAX, "page {} does not fit into an entry", record.page);
        let entry = RawEntry {
            page_low: (record.page as u32).into(),
            page_high: ((record.page >> 32) as u16).into(),
            kind: record.kind as u8,
            age: record.age,
            crc: record.crc.into(),
        };
        bytes.copy_from_slice(entry.as_bytes());
    }
}

/// A copy of a table, for the next table to carry.
pub(super) fn carry(head: &Head, records: &[Record], crc: u32) -> Carried {
    let mut entries = vec![0; records.len() * ENTRY];
    encode_entries(records, &mut entries);
    let Head { address, tail, clock, chain, slot, next, .. } = *head;
    Carried { address, tail, clock, chain, crc, slot, next, entries, count: records.len() as u32 }
}

/// The table of which this is a copy; none if an entry is invalid.
pub(super) fn carried_table(carried: &Carried, uuid: [u8; 16]) -> Option<Table> {
    let Carried { address, tail, clock, chain, crc, slot, next, .. } = *carried;
    if address > PLACES_MAX || tail > address {
        return None;
    }
    let records = carried.entries.chunks_exact(ENTRY).map(decode_entry).collect::<Option<Vec<_>>>()?;
    let pages = records.iter().filter(|record| record.kind.has_page()).count() as u32;
    // The other fields were of use only while the table was not durable.
    let durable = LogEnd { address: 0, slot: 0, tail: 0, chain: 0 };
    let head = Head { uuid, epoch: 0, address, slot, next, tail, durable, chain, clock };
    Some(Table { head, records, pages, crc, blocks: 1 + u64::from(pages), carried: None })
}

/// The header of a block that is a valid table.
fn whole(tables: Tables, block: &[u8]) -> Option<RawHeader> {
    let (raw, _) = RawHeader::read_from_prefix(block).ok()?;
    let sound = raw.magic == MAGIC && (mutant::is(Mutant::NoTableCheck) || crc_of(block) == raw.crc.get());
    let addresses = [raw.address, raw.durable_address].iter().all(|address| address.get() <= PLACES_MAX);
    let in_order = raw.tail <= raw.address && raw.durable_tail <= raw.durable_address && addresses;
    (sound && in_order && raw.entries.get() as usize <= entries_max(tables, block.len())).then_some(raw)
}

fn head(tables: Tables, raw: &RawHeader, block: &[u8]) -> Head {
    let clock = match tables {
        Tables::V2 => 0,
        Tables::V3 => u64::from_le_bytes(block[HEADER..HEADER_3].try_into().expect("eight bytes")),
    };
    let durable = LogEnd {
        address: raw.durable_address.get(),
        slot: raw.durable_slot.get(),
        tail: raw.durable_tail.get(),
        chain: raw.durable_chain.get(),
    };
    Head {
        uuid: raw.uuid,
        epoch: raw.epoch.get(),
        address: raw.address.get(),
        slot: raw.slot.get(),
        next: raw.next.get(),
        tail: raw.tail.get(),
        durable,
        chain: raw.chain.get(),
        clock,
    }
}

/// Reads all of a table except its entries; none if the block is not a valid table.
pub(super) fn decode_head(tables: Tables, block: &[u8]) -> Option<Head> {
    whole(tables, block).map(|raw| head(tables, &raw, block))
}

/// Reads a table from a block; none if the block is not a valid table.
pub(super) fn decode(tables: Tables, block: &[u8]) -> Option<Table> {
    let raw = whole(tables, block)?;
    let (entries, rest) = block[header(tables)..].split_at(raw.entries.get() as usize * ENTRY);
    let records = entries.chunks_exact(ENTRY).map(decode_entry).collect::<Option<Vec<_>>>()?;
    let pages = records.iter().filter(|record| record.kind.has_page()).count();
    let blocks = 1 + pages + copies(tables, block.len(), records.len());
    (pages == raw.pages.get() as usize).then(|| Table {
        head: head(tables, &raw, block),
        records,
        pages: pages as u32,
        crc: raw.crc.get(),
        blocks: blocks as u64,
        carried: if tables == Tables::V3 { Carried::decode(rest, ENTRY) } else { None },
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
    Some(Record { page, kind, age: raw.age & age::MASK, crc: raw.crc.get() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    fn head() -> Head {
        let durable = LogEnd { address: 500, slot: 4, tail: 256, chain: 9 };
        Head { uuid: [7; 16], epoch: 3, address: 512, slot: 6, next: 5, tail: 256, durable, chain: 11, clock: 77 }
    }

    fn records(n: usize, seed: u64) -> Vec<Record> {
        let kinds = [Kind::Clean, Kind::Dirty, Kind::Gone, Kind::Cleaned, Kind::Lost];
        let mut random = Random::new(seed);
        let mut record = || Record {
            page: random.below(PAGES_MAX),
            kind: kinds[random.below(5) as usize],
            age: random.below(128) as u8,
            crc: random.next_u64() as u32,
        };
        (0..n).map(|_| record()).collect()
    }

    #[test]
    fn a_table_comes_back_as_it_was() {
        assert_eq!((HEADER, HEADER_3, ENTRY, carried_max(4096), carried_max(512)), (96, 104, 12, 164, 15));
        let most = [Tables::V2, Tables::V3].map(|tables| [4096, 512].map(|bytes| entries_max(tables, bytes)));
        assert_eq!(most, [[333, 34], [332, 34]]);
        for (seed, n) in [0, 1, 100, 164, 165, 332].into_iter().enumerate() {
            let records = records(n, seed as u64);
            let before = carry(&Head { address: 300, ..head() }, &records, 11);
            for tables in [Tables::V2, Tables::V3] {
                let carried = Some(&before).filter(|_| tables == Tables::V3 && n <= 164);
                let head = Head { clock: if tables == Tables::V2 { 0 } else { 77 }, ..head() };
                let mut block = vec![0xFF; 4096];
                let crc = encode(tables, &head, &records, carried, &mut block);
                let table = decode(tables, &block).expect("a table");
                assert_eq!((table.head, &table.records, table.crc), (head, &records, crc));
                assert_eq!(decode_head(tables, &block), Some(head));
                assert_eq!(table.carried.as_ref(), carried);
                let copies = u64::from(tables == Tables::V3 && n > 164);
                assert_eq!(table.blocks, 1 + u64::from(table.pages) + copies);
            }
        }
    }

    #[test]
    fn a_carried_table_says_what_the_table_said() {
        let records = records(20, 5);
        let table = carried_table(&carry(&head(), &records, 99), [7; 16]).expect("a table");
        let Head { address, slot, next, tail, chain, clock, .. } = table.head;
        assert_eq!((address, slot, next, tail, chain, clock), (512, 6, 5, 256, 11, 77));
        assert_eq!((table.records, table.crc), (records, 99));
    }

    #[test]
    fn any_flipped_bit_and_any_noise_is_refused() {
        let tables = Tables::V3;
        let mut block = vec![0; 512];
        let carried = carry(&head(), &records(14, 3), 11);
        encode(tables, &head(), &records(15, 1), Some(&carried), &mut block);
        for bit in 0..512 * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(tables, &block).is_none() && decode_head(tables, &block).is_none(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        let mut random = Random::new(2);
        for _ in 0..1000 {
            let mut noise: Vec<u8> = (0..512).map(|_| random.next_u64() as u8).collect();
            noise[..8].copy_from_slice(&MAGIC);
            assert!(decode(tables, &noise).is_none());
        }
    }
}
