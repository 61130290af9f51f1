//! A table or block of the journal that could not be read and was taken from its copy: a repair writes it anew, so that the next
//! fault does not find the copy alone.
//!
//! The copy has all that the table said but what was of use only until it was durable. The table after it repeats the CRC of
//! what was there, so the last four bytes of the block, which nothing else uses, are those that give it this CRC again.

use super::table::{CRC_AT, crc_of};
use crate::disk::{AlignedBytes, Disk};
use std::collections::HashSet;
use std::io;

/// A block as a repair writes it.
pub(super) struct Copied {
    /// Offset of the block on the device, in bytes.
    pub byte: u64,
    pub block: AlignedBytes,
}

impl Copied {
    /// The block that `encode` writes, with this CRC. None where it has another and the block has
    /// no room (`has_room`) for the bytes that would change that.
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

/// A table that was durable and is damaged, with every copy of it: what it said is not known.
pub(super) struct Hole {
    /// Offset on the device at which the table was, in bytes.
    pub byte: u64,
    /// Pages of which it may have told, at most.
    pub pages: u64,
    /// A table that says nothing and takes its place, so that what came after it can be read as before.
    pub filler: Option<Copied>,
    /// Pages that it must have given up: what came after it says that other pages have their slots.
    pub given_up: Vec<u64>,
}

/// Findings of an open that goes on in spite of such damage.
#[derive(Default)]
pub(super) struct Past {
    pub holes: Vec<Hole>,
    /// Pages of which something was said after the last of them.
    pub named: HashSet<u64>,
    /// Pages of which nothing is known any more but that they had been there.
    pub displaced: HashSet<u64>,
}

impl Past {
    /// Something of these pages is read.
    pub fn names(&mut self, pages: impl Iterator<Item = u64>) {
        if !self.holes.is_empty() {
            self.named.extend(pages);
        }
    }

    /// A table is missing here.
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

/// Chooses the last four bytes such that the block has this CRC. What each of their bits changes of it does not depend on the others.
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
    use crate::store::crc32c;
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
