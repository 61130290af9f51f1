//! A copy of a table or of a block of the journal. The next one carries it, and the commit record does until there is
//! a next one. So one unreadable table is no loss. Layout: `docs/cache-format.md`.

use super::checksum::crc32c;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Contents of a table, without the fields that are of no use once the table is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    /// Log address of the table, or number of the block.
    pub address: u64,
    pub tail: u64,
    pub clock: u64,
    /// CRC of the table before it.
    pub chain: u32,
    /// CRC of the table itself.
    pub crc: u32,
    /// Slot of the table's segment; in the slots layout the number of the next version.
    pub slot: u32,
    /// Slot of the segment after it.
    pub next: u32,
    /// Encoded entries of the table.
    pub entries: Vec<u8>,
    /// Number of the entries.
    pub count: u32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    address: U64,
    tail: U64,
    clock: U64,
    chain: U32,
    table_crc: U32,
    entries: U32,
    slot: U32,
    next: U32,
    crc: U32,
}

/// Bytes before the entries.
pub(super) const CARRIED_HEADER: usize = size_of::<Raw>();

impl Carried {
    /// Bytes that the copy takes.
    pub fn len(&self) -> usize {
        CARRIED_HEADER + self.entries.len()
    }

    /// Writes the copy at the beginning of `into`.
    pub fn encode(&self, into: &mut [u8]) {
        let raw = Raw {
            address: self.address.into(),
            tail: self.tail.into(),
            clock: self.clock.into(),
            chain: self.chain.into(),
            table_crc: self.crc.into(),
            entries: self.count.into(),
            slot: self.slot.into(),
            next: self.next.into(),
            crc: 0.into(),
        };
        let into = &mut into[..self.len()];
        into[..CARRIED_HEADER].copy_from_slice(raw.as_bytes());
        into[CARRIED_HEADER..].copy_from_slice(&self.entries);
        let crc = crc32c(into);
        into[CARRIED_HEADER - 4..CARRIED_HEADER].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a copy from the beginning of `bytes`, with entries of `each` bytes; none if there is no valid copy.
    pub fn decode(bytes: &[u8], each: usize) -> Option<Self> {
        let (raw, rest) = Raw::read_from_prefix(bytes).ok()?;
        let entries = rest.get(..(raw.entries.get() as usize).checked_mul(each)?)?;
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        digest.update(&bytes[..CARRIED_HEADER - 4]);
        digest.update(&[0; 4]);
        digest.update(entries);
        (digest.finalize() as u32 == raw.crc.get()).then(|| Carried {
            address: raw.address.get(),
            tail: raw.tail.get(),
            clock: raw.clock.get(),
            chain: raw.chain.get(),
            crc: raw.table_crc.get(),
            slot: raw.slot.get(),
            next: raw.next.get(),
            entries: entries.to_vec(),
            count: raw.entries.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_and_a_flipped_bit_is_found() {
        let carried = Carried {
            address: 5,
            tail: 4,
            clock: 3,
            chain: 2,
            crc: 1,
            slot: 7,
            next: 8,
            entries: (0..36).collect(),
            count: 3,
        };
        let mut bytes = vec![0; 100];
        carried.encode(&mut bytes);
        assert_eq!((CARRIED_HEADER, carried.len()), (48, 84));
        assert_eq!(Carried::decode(&bytes, 12), Some(carried.clone()));
        for bit in 0..carried.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Carried::decode(&bytes, 12), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(Carried::decode(&[0; 100], 12), None);
    }
}
