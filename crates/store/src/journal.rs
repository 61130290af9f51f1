//! A block of the journal of the slots layout: changes of slots and of the pages in them. `docs/cache-format.md` draws
//! it.

use super::age;
use super::carried::{CARRIED_HEADER, Carried};
use super::checksum::{CRC_AT, crc_of, crc32c};
use super::commit::CARRIED_ROOM;
use super::geometry::Tables;
use super::log_end::{LogEnd, PLACES_MAX};
use crate::mutant::{self, Mutant};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"\x89ETJOURN";

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub page: u64,
    pub kind: Kind,
    /// True if the entry repeats one from an older block that is given up.
    pub again: bool,
    /// Age code: time from when the page first differed from the backing store to the clock of the block. See [`age`].
    pub age: u8,
    pub slot: u32,
    pub version: u32,
    pub crc: u32,
}

impl Record {
    /// True if the entry tells the contents of a slot.
    pub fn has_page(&self) -> bool {
        matches!(self.kind, Kind::Clean | Kind::Dirty)
    }
}

/// All of a block except its entries.
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
    /// Seconds of cache time when the block was written; 0 before version 3.
    pub clock: u64,
}

#[derive(Debug)]
pub(super) struct Block {
    pub head: Head,
    pub records: Vec<Record>,
    /// CRC of the block: the chain of the block after it.
    pub crc: u32,
    /// The copy of the block before, if this one carries it.
    pub carried: Option<Carried>,
}

/// The first page number that does not fit into an entry.
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
    clock: U64,
    zeros: [u8; 4],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    page_low: U32,
    page_high: U16,
    kind: u8,
    again_and_age: u8,
    slot: U32,
    version: U32,
    crc: U32,
}

const HEADER: usize = size_of::<RawHeader>();
pub(super) const ENTRY: usize = size_of::<RawEntry>();
/// Bit that marks a repeated entry, in the byte with the age.
const AGAIN: u8 = 128;

/// Most entries of a block. From version 3 on, each block carries a copy of the one before, and the commit record
/// one of the last.
pub(super) fn entries_max(tables: Tables, page_bytes: usize) -> usize {
    match tables {
        Tables::V2 => (page_bytes - HEADER) / ENTRY,
        Tables::V3 => {
            let half = (page_bytes - HEADER - CARRIED_HEADER) / 2 / ENTRY;
            half.min((CARRIED_ROOM - CARRIED_HEADER) / ENTRY)
        }
    }
}

/// Writes a block and returns its CRC.
pub(super) fn encode(
    tables: Tables,
    head: &Head,
    records: &[Record],
    carried: Option<&Carried>,
    block: &mut [u8],
) -> u32 {
    assert!(records.len() <= entries_max(tables, block.len()), "{} entries in one block", records.len());
    block.fill(0);
    let raw = RawHeader {
        magic: MAGIC,
        uuid: head.uuid,
        epoch: head.epoch.into(),
        number: head.number.into(),
        tail: head.tail.into(),
        durable_number: head.durable.address.into(),
        durable_tail: head.durable.tail.into(),
        durable_chain: head.durable.chain.into(),
        chain: head.chain.into(),
        entries: (records.len() as u32).into(),
        versions: head.versions.into(),
        crc: 0.into(),
        clock: if tables == Tables::V3 { head.clock } else { 0 }.into(),
        zeros: [0; 4],
    };
    block[..HEADER].copy_from_slice(raw.as_bytes());
    let (entries, rest) = block[HEADER..].split_at_mut(records.len() * ENTRY);
    encode_entries(tables, records, entries);
    if let Some(carried) = carried {
        carried.encode(rest);
    }
    let crc = crc32c(block);
    block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    crc
}

fn encode_entries(tables: Tables, records: &[Record], entries: &mut [u8]) {
    let (again, ages) = if tables == Tables::V3 { (AGAIN, age::MASK) } else { (1, 0) };
    for (record, bytes) in records.iter().zip(entries.chunks_exact_mut(ENTRY)) {
        assert!(record.page < PAGES_MAX, "page {} does not fit into an entry", record.page);
        let entry = RawEntry {
            page_low: (record.page as u32).into(),
            page_high: ((record.page >> 32) as u16).into(),
            kind: record.kind as u8,
            again_and_age: record.age & ages | if record.again { again } else { 0 },
            slot: record.slot.into(),
            version: record.version.into(),
            crc: record.crc.into(),
        };
        bytes.copy_from_slice(entry.as_bytes());
    }
}

/// A copy of a block, for the next block to carry.
pub(super) fn carry(head: &Head, records: &[Record], crc: u32) -> Carried {
    let mut entries = vec![0; records.len() * ENTRY];
    encode_entries(Tables::V3, records, &mut entries);
    let Head { number: address, tail, clock, chain, versions: slot, .. } = *head;
    Carried { address, tail, clock, chain, crc, slot, next: 0, entries, count: records.len() as u32 }
}

/// The block of which this is a copy; none if an entry is invalid.
pub(super) fn carried_block(carried: &Carried, uuid: [u8; 16]) -> Option<Block> {
    let Carried { address: number, tail, clock, chain, crc, slot: versions, .. } = *carried;
    if number > PLACES_MAX || tail > number {
        return None;
    }
    let entries = carried.entries.chunks_exact(ENTRY);
    let records = entries.map(|entry| decode_entry(Tables::V3, entry)).collect::<Option<Vec<_>>>()?;
    // The other fields were of use only while the block was not durable.
    let durable = LogEnd { address: 0, slot: 0, tail: 0, chain: 0 };
    Some(Block {
        head: Head { uuid, epoch: 0, number, tail, durable, chain, versions, clock },
        records,
        crc,
        carried: None,
    })
}

/// Reads a block; none if the bytes are not a valid block.
pub(super) fn decode(tables: Tables, block: &[u8]) -> Option<Block> {
    let (raw, _) = RawHeader::read_from_prefix(block).ok()?;
    let count = raw.entries.get() as usize;
    if raw.magic != MAGIC || count > entries_max(tables, block.len()) {
        return None;
    }
    let addresses = [raw.number, raw.durable_number].iter().all(|address| address.get() <= PLACES_MAX);
    if raw.tail > raw.number || raw.durable_tail > raw.durable_number || !addresses {
        return None;
    }
    if crc_of(block) != raw.crc.get() && !mutant::is(Mutant::NoTableCheck) {
        return None;
    }
    let (entries, rest) = block[HEADER..].split_at(count * ENTRY);
    let entries = entries.chunks_exact(ENTRY);
    let records = entries.map(|entry| decode_entry(tables, entry)).collect::<Option<Vec<_>>>()?;
    let carried = if tables == Tables::V3 { Carried::decode(rest, ENTRY) } else { None };
    let durable = LogEnd {
        address: raw.durable_number.get(),
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
        clock: raw.clock.get(),
    };
    Some(Block { head, records, crc: raw.crc.get(), carried })
}

fn decode_entry(tables: Tables, bytes: &[u8]) -> Option<Record> {
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
    let again = raw.again_and_age & if tables == Tables::V3 { AGAIN } else { u8::MAX } != 0;
    let age = if tables == Tables::V3 { raw.again_and_age & age::MASK } else { age::UNKNOWN };
    Some(Record { page, kind, again, age, slot, version, crc })
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    fn head() -> Head {
        let durable = LogEnd { address: 500, slot: 0, tail: 256, chain: 9 };
        Head { uuid: [7; 16], epoch: 3, number: 512, tail: 256, durable, chain: 11, versions: 1234, clock: 77 }
    }

    fn records(n: usize, seed: u64) -> Vec<Record> {
        let kinds = [Kind::Clean, Kind::Dirty, Kind::Gone, Kind::Cleaned, Kind::Lost];
        let mut random = Random::new(seed);
        let mut record = || Record {
            page: random.below(PAGES_MAX),
            kind: kinds[random.below(5) as usize],
            again: random.chance(0.5),
            age: random.below(128) as u8,
            slot: random.next_u64() as u32,
            version: random.next_u64() as u32,
            crc: random.next_u64() as u32,
        };
        (0..n).map(|_| record()).collect()
    }

    #[test]
    fn a_block_comes_back_as_it_was() {
        let most = [Tables::V2, Tables::V3].map(|tables| [4096, 512].map(|bytes| entries_max(tables, bytes)));
        assert_eq!((HEADER, ENTRY, most), (96, 20, [[200, 20], [98, 9]]));
        for (seed, n) in [0, 1, 98].into_iter().enumerate() {
            let records = records(n, seed as u64);
            let before = carry(&Head { number: 511, ..head() }, &records, 11);
            let mut block = vec![0xFF; 4096];
            let crc = encode(Tables::V3, &head(), &records, Some(&before), &mut block);
            let decoded = decode(Tables::V3, &block).expect("a block");
            assert_eq!((decoded.head, &decoded.records, decoded.crc), (head(), &records, crc));
            assert_eq!(decoded.carried, Some(before));
        }
        let ageless: Vec<Record> = records(200, 9).into_iter().map(|record| Record { age: 0, ..record }).collect();
        let mut block = vec![0xFF; 4096];
        encode(Tables::V2, &head(), &ageless, None, &mut block);
        let decoded = decode(Tables::V2, &block).expect("a block");
        assert_eq!((decoded.head, &decoded.records), (Head { clock: 0, ..head() }, &ageless));
    }

    #[test]
    fn a_carried_block_says_what_the_block_said() {
        let records = records(20, 5);
        let block = carried_block(&carry(&head(), &records, 99), [7; 16]).expect("a block");
        let Head { number, tail, chain, versions, clock, .. } = block.head;
        assert_eq!((number, tail, chain, versions, clock), (512, 256, 11, 1234, 77));
        assert_eq!((block.records, block.crc), (records, 99));
    }

    #[test]
    fn any_flipped_bit_and_any_noise_is_refused() {
        let mut block = vec![0; 512];
        let carried = carry(&head(), &records(9, 3), 11);
        encode(Tables::V3, &head(), &records(9, 1), Some(&carried), &mut block);
        for bit in 0..512 * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(Tables::V3, &block).is_none(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        let mut random = Random::new(2);
        for _ in 0..1000 {
            let mut noise: Vec<u8> = (0..512).map(|_| random.next_u64() as u8).collect();
            noise[..8].copy_from_slice(&MAGIC);
            assert!(decode(Tables::V3, &noise).is_none());
        }
    }
}
