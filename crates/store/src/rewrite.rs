//! Repair of a table, or block of the journal, that was unreadable and was taken from its copy. The block is written
//! again, so that the next fault does not hit the only copy.
//!
//! The copy lacks the fields that were of use only until the table was durable. The table after it repeats the CRC of
//! the original. So the last four bytes of the block, otherwise unused, are chosen to give the block this CRC again.

use super::checksum::{CRC_AT, crc_of};
use entresol_disk::{AlignedBytes, Disk};
use std::collections::HashSet;
use std::io;

/// A block as a repair writes it.
pub(super) struct Copied {
    /// Offset of the block on the device, in bytes.
    pub byte: u64,
    pub block: AlignedBytes,
}

impl Copied {
    /// The block that `encode` writes, with this CRC. None if `encode` gives another CRC and the block has no space
    /// (`has_room`) for the bytes that would change it.
    pub fn new(
        byte: u64,
        page_bytes: usize,
        crc: u32,
        has_room: bool,
        encode: impl FnOnce(&mut [u8]) -> u32,
    ) -> Option<Self> {
        let mut block = AlignedBytes::zeroed(page_bytes);
        if encode(&mut block) != crc {
            if !has_room {
                return None;
            }
            give_crc(&mut block, crc, crc_of);
            block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        }
        Some(Copied { byte, block })
    }
}

/// A table that was durable and is damaged with every copy of it. Its contents are unknown.
pub(super) struct Hole {
    /// Offset of the missing table on the device, in bytes.
    pub byte: u64,
    /// Most pages that the table may have named.
    pub pages: u64,
    /// An empty table in place of the missing one, so that the tables after it are read as before.
    pub filler: Option<Copied>,
    /// Pages that the table must have given up: later tables give their slots to other pages.
    pub given_up: Vec<u64>,
}

/// Findings of an open that continues in spite of missing tables.
#[derive(Default)]
pub(super) struct Past {
    pub holes: Vec<Hole>,
    /// Pages named by tables after the last hole.
    pub named: HashSet<u64>,
    /// Pages of which nothing is known except that they were in the store.
    pub displaced: HashSet<u64>,
}

impl Past {
    /// Notes that a table names these pages.
    pub fn names(&mut self, pages: impl Iterator<Item = u64>) {
        if !self.holes.is_empty() {
            self.named.extend(pages);
        }
    }

    pub fn falls_into(&mut self, hole: Hole) {
        self.holes.push(hole);
        self.named.clear();
    }
}

/// Writes such blocks durably. Returns their offsets on the device in bytes.
pub(super) fn write<D: Disk>(disk: &D, copied: &[Copied]) -> io::Result<Vec<u64>> {
    copied.iter().try_for_each(|copied| disk.write_at(copied.byte, &copied.block))?;
    if !copied.is_empty() {
        disk.sync()?;
    }
    Ok(copied.iter().map(|copied| copied.byte).collect())
}

/// Sets the last four bytes such that the block has this CRC. The effects of their bits on the CRC are independent.
fn give_crc(block: &mut [u8], wanted: u32, crc_of: impl Fn(&[u8]) -> u32) {
    let at = block.len() - 4;
    let mut crc_with = |bits: u32| {
        block[at..].copy_from_slice(&bits.to_le_bytes());
        crc_of(block)
    };
    let without = crc_with(0);
    // Sets of bits, by the highest bit of the CRC that they change.
    let mut sets = [(0, 0); 32];
    for bit in 0..32 {
        let (mut change, mut bits) = (crc_with(1 << bit) ^ without, 1 << bit);
        while change != 0 {
            let highest = 31 - change.leading_zeros() as usize;
            if sets[highest].0 == 0 {
                sets[highest] = (change, bits);
                break;
            }
            change ^= sets[highest].0;
            bits ^= sets[highest].1;
        }
    }
    let (mut left, mut chosen) = (wanted ^ without, 0);
    for (change, bits) in sets.into_iter().rev() {
        if left ^ change < left {
            left ^= change;
            chosen ^= bits;
        }
    }
    crc_with(chosen);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::crc32c;
    use entresol_core::Random;

    #[test]
    fn four_bytes_give_a_block_any_crc() {
        let mut random = Random::new(1);
        for _ in 0..200 {
            let mut block: Vec<u8> = (0..512).map(|_| random.next_u64() as u8).collect();
            let (before, wanted) = (block.clone(), random.next_u64() as u32);
            give_crc(&mut block, wanted, crc32c);
            assert_eq!(crc32c(&block), wanted);
            assert_eq!(block[..508], before[..508]);
        }
    }
}
