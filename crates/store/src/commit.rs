//! Commit records: how far the store was durable when a sync of it returned. Layout: `docs/cache-format.md`.
//!
//! A record is written after each sync, before the flush that waited for it is answered. The record itself is not
//! synced. So after the end of a process the end of the last flush is known. After a loss of power the end of the last
//! flush whose record was durable is known.

use super::carried::Carried;
use super::checksum::crc32c;
use super::log_end::{LogEnd, PLACES_MAX};
use crate::mutant::{self, Mutant};
use entresol_disk::{AlignedBytes, Disk};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"\x89ETCOMMI";
/// Offset of the first of the two commit records on the device, and the size of each, both in bytes.
const AT: u64 = 8192;
const BLOCK_BYTES: usize = 4096;
const RAW: usize = size_of::<Raw>();

/// Bytes for a copy of the last table, its header included.
pub(super) const CARRIED_ROOM: usize = BLOCK_BYTES - RAW;

/// Contents of a commit record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Commit {
    pub uuid: [u8; 16],
    pub epoch: u64,
    /// Log address up to which the store was durable, with the tail and the chain there.
    pub end: LogEnd,
    pub clock: u64,
    /// A copy of the table before that end, unless its own batch has one.
    pub carried: Option<Arc<Carried>>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    uuid: [u8; 16],
    epoch: U64,
    address: U64,
    tail: U64,
    chain: U32,
    slot: U32,
    clock: U64,
    zeros: [u8; 444],
    crc: U32,
}

impl Commit {
    fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        let mut raw = Raw {
            magic: MAGIC,
            uuid: self.uuid,
            epoch: self.epoch.into(),
            address: self.end.address.into(),
            tail: self.end.tail.into(),
            chain: self.end.chain.into(),
            slot: self.end.slot.into(),
            clock: self.clock.into(),
            zeros: [0; 444],
            crc: 0.into(),
        };
        raw.crc = crc32c(&raw.as_bytes()[..RAW - 4]).into();
        block[..RAW].copy_from_slice(raw.as_bytes());
        if let Some(carried) = &self.carried {
            carried.encode(&mut block[RAW..]);
        }
    }

    /// Reads a record and the copy after it; none if it is not of this cache. An entry of a table takes `each` bytes.
    fn decode(block: &[u8], uuid: &[u8; 16], each: usize) -> Option<Self> {
        let (raw, rest) = Raw::read_from_prefix(block).ok()?;
        let sound = mutant::is(Mutant::CommitUnchecked) || crc32c(&block[..RAW - 4]) == raw.crc.get();
        let in_order = raw.tail <= raw.address && raw.address.get() <= PLACES_MAX;
        let ours = raw.magic == MAGIC && raw.uuid == *uuid && in_order;
        (sound && ours).then(|| Commit {
            uuid: raw.uuid,
            epoch: raw.epoch.get(),
            end: LogEnd {
                address: raw.address.get(),
                slot: raw.slot.get(),
                tail: raw.tail.get(),
                chain: raw.chain.get(),
            },
            clock: raw.clock.get(),
            carried: Carried::decode(rest, each).map(Arc::new),
        })
    }

    fn age(&self) -> (u64, u64) {
        (self.epoch, self.end.address)
    }
}

/// Reads both records; none for a record that is not of this cache.
pub(super) fn read<D: Disk + ?Sized>(disk: &D, uuid: &[u8; 16], each: usize) -> io::Result<[Option<Commit>; 2]> {
    let read = || -> io::Result<[Option<Commit>; 2]> {
        let mut blocks = AlignedBytes::zeroed(2 * BLOCK_BYTES);
        disk.read_at(AT, &mut blocks)?;
        let (first, second) = blocks.split_at(BLOCK_BYTES);
        Ok([first, second].map(|block| Commit::decode(block, uuid, each)))
    };
    let [first, second] = read()?;
    if first.is_some() && second.is_some() {
        return Ok([first, second]);
    }
    // A transfer may have damaged bytes that are sound on the device.
    let again = read()?;
    let [third, fourth] = again;
    Ok([first.or(third), second.or(fourth)])
}

/// Writer of a store's commit records, one after the other, each over the older of the two.
#[derive(Debug)]
pub(super) struct Commits(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    /// The copy that is written next, 0 or 1.
    next: usize,
    /// Age of the newest record.
    newest: (u64, u64),
}

impl Commits {
    /// A writer that goes on after the records found at an open.
    pub fn after(found: &[Option<Commit>; 2]) -> Arc<Self> {
        let age = |commit: &Option<Commit>| commit.as_ref().map_or((0, 0), Commit::age);
        let (first, second) = (age(&found[0]), age(&found[1]));
        let written = Written { next: usize::from(first > second), newest: first.max(second) };
        Arc::new(Commits(Mutex::new(written)))
    }

    /// Writes a record, unless the device has a newer one.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn write<D: Disk + ?Sized>(&self, disk: &D, commit: &Commit) -> io::Result<()> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if commit.age() < written.newest || mutant::is(Mutant::CommitUnwritten) {
            return Ok(());
        }
        let mut block = AlignedBytes::zeroed(BLOCK_BYTES);
        commit.encode(&mut block);
        disk.write_at(AT + written.next as u64 * BLOCK_BYTES as u64, &block)?;
        *written = Written { next: 1 - written.next, newest: commit.age() };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_crashtest::{Power, SimDisk};

    fn commit(epoch: u64, address: u64) -> Commit {
        let carried = Carried {
            address: address - 1,
            tail: 1,
            clock: 2,
            chain: 3,
            crc: 4,
            slot: 5,
            next: 6,
            entries: vec![7; 24],
            count: 2,
        };
        let end = LogEnd { address, slot: 3, tail: 1, chain: 4 };
        Commit { uuid: [9; 16], epoch, end, clock: 11, carried: Some(Arc::new(carried)) }
    }

    #[test]
    fn the_newer_of_two_is_kept_and_any_flipped_bit_is_found() {
        let disk = SimDisk::new(16384, &Power::steady());
        let commits = Commits::after(&[None, None]);
        for address in [5, 9, 7, 12] {
            commits.write(&disk, &commit(1, address)).expect("a write");
        }
        let found = read(&disk, &[9; 16], 12).expect("a read");
        assert_eq!(found, [Some(commit(1, 12)), Some(commit(1, 9))]);
        Commits::after(&found).write(&disk, &commit(2, 3)).expect("a write");
        assert_eq!(read(&disk, &[9; 16], 12).expect("a read"), [Some(commit(1, 12)), Some(commit(2, 3))]);
        assert_eq!(read(&disk, &[8; 16], 12).expect("a read"), [None, None]);
        for bit in 0..(RAW as u64 + 72) * 8 {
            disk.flip(AT + bit / 8, (bit % 8) as u8);
            let [damaged, sound] = read(&disk, &[9; 16], 12).expect("a read");
            assert_ne!(damaged, Some(commit(1, 12)), "bit {bit}");
            assert_eq!(damaged.is_some(), bit >= RAW as u64 * 8, "bit {bit}");
            assert_eq!(sound, Some(commit(2, 3)));
            disk.flip(AT + bit / 8, (bit % 8) as u8);
        }
        assert_eq!((RAW, CARRIED_ROOM), (512, 3584));
    }
}
