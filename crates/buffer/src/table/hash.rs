//! The page table for (object, page) keys: open addressing, linear probing, no tombstones.
//!
//! An entry is one word, `tag (32 bits) | frame + 1 (32 bits)`. The tag is a part of the key's hash and also gives the
//! home slot, so entries can be moved without reading their pages. Each shard has its own run of slots, twice as
//! many as its frames and one more, so probes are short and no insertion can fail.
//!
//! Deletion shifts the entries behind the hole back (Knuth, TAOCP 3, 6.4, algorithm R). A reader may meet a shift half
//! done. A frame that it finds is right in any case, since the reader checks the frame. An unsuccessful search counts
//! only if the shard's sequence number shows that no change came between.

use super::{PageTable, Sharding, TableKey, scatter};
use crate::pool::Array;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{Mutex, pause};
use std::io;

/// Hash table of 16 bytes per frame: two slots of 8.
pub struct HashTable {
    slots: Array<AtomicU64>,
    shards: Vec<Shard>,
    slots_per_shard: usize,
    sharding: Sharding,
}

/// State that a shard's readers check and its writers change, on a cache line of its own.
#[repr(align(64))]
struct Shard {
    /// Odd while a change is being made.
    sequence: AtomicU64,
    writer: Mutex<()>,
}

impl HashTable {
    /// A table for at most `frames` pages in each shard.
    ///
    /// # Errors
    /// No memory.
    pub fn new(frames: usize, sharding: Sharding) -> io::Result<Self> {
        let shards = sharding.shards();
        // One slot stays empty, so that every probe ends.
        let slots_per_shard = frames * 2 + 1;
        let slots = Array::new(slots_per_shard.checked_mul(shards).ok_or(io::ErrorKind::OutOfMemory)?)?;
        let shard = || Shard { sequence: AtomicU64::new(0), writer: Mutex::new(()) };
        Ok(HashTable { slots, shards: (0..shards).map(|_| shard()).collect(), slots_per_shard, sharding })
    }

    #[inline(always)]
    fn run(&self, shard: usize) -> &[AtomicU64] {
        &self.slots[shard * self.slots_per_shard..(shard + 1) * self.slots_per_shard]
    }

    /// The home slot that belongs to a tag.
    #[inline(always)]
    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.slots_per_shard as u64) >> 32) as usize
    }

    #[inline(always)]
    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.slots_per_shard { 0 } else { slot + 1 }
    }

    /// Makes a change that readers detect by the sequence number.
    fn change(&self, shard: usize, make: impl FnOnce(&[AtomicU64])) {
        let state = &self.shards[shard];
        let _writer = state.writer.lock().expect("a change does not panic");
        let sequence = state.sequence.load(Ordering::Relaxed);
        state.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        make(self.run(shard));
        state.sequence.store(sequence + 2, Ordering::Release);
    }

    /// Distance from `home` to a slot, in slots.
    fn distance(&self, home: usize, slot: usize) -> usize {
        if slot >= home { slot - home } else { slot + self.slots_per_shard - home }
    }
}

#[inline(always)]
fn tag(key: TableKey) -> u32 {
    (scatter(key.0.0) >> 32) as u32
}

#[inline(always)]
fn entry(tag: u32, frame: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(frame + 1)
}

impl PageTable for HashTable {
    #[inline(always)]
    fn covers(&self, _key: TableKey) -> bool {
        true
    }

    #[inline(always)]
    fn shard(&self, key: TableKey) -> usize {
        self.sharding.of(key)
    }

    #[inline(always)]
    fn get(&self, key: TableKey, holds: impl Fn(u32) -> bool) -> Option<u32> {
        let (tag, shard) = (tag(key), self.shard(key));
        let slots = self.run(shard);
        let state = &self.shards[shard];
        loop {
            let sequence = state.sequence.load(Ordering::Acquire);
            let mut slot = self.home(tag);
            // A shard under change can look full for a moment: no probe is longer than the run.
            for _ in 0..self.slots_per_shard {
                let found = slots[slot].load(Ordering::Acquire);
                if found == 0 {
                    break;
                }
                let frame = found as u32 - 1;
                if (found >> 32) as u32 == tag && holds(frame) {
                    return Some(frame);
                }
                slot = self.next(slot);
            }
            fence(Ordering::Acquire);
            if sequence & 1 == 0 && state.sequence.load(Ordering::Relaxed) == sequence {
                return None;
            }
            pause();
        }
    }

    fn insert(&self, key: TableKey, frame: u32) {
        let tag = tag(key);
        self.change(self.shard(key), |slots| {
            let mut slot = self.home(tag);
            let mut probes = 0;
            while slots[slot].load(Ordering::Relaxed) != 0 {
                slot = self.next(slot);
                probes += 1;
                assert!(probes < self.slots_per_shard, "more pages than frames in a shard");
            }
            slots[slot].store(entry(tag, frame), Ordering::Release);
        });
    }

    fn remove(&self, key: TableKey, frame: u32) {
        let tag = tag(key);
        self.change(self.shard(key), |slots| {
            let mut hole = self.home(tag);
            loop {
                let found = slots[hole].load(Ordering::Relaxed);
                assert_ne!(found, 0, "{key:?} is not in the table");
                if found == entry(tag, frame) {
                    break;
                }
                hole = self.next(hole);
            }
            // Each entry behind the hole that may stand in the hole moves there, and leaves a hole of its own.
            let mut slot = self.next(hole);
            loop {
                let found = slots[slot].load(Ordering::Relaxed);
                if found == 0 {
                    break;
                }
                let home = self.home((found >> 32) as u32);
                if self.distance(home, hole) < self.distance(home, slot) {
                    slots[hole].store(found, Ordering::Release);
                    hole = slot;
                }
                slot = self.next(slot);
            }
            slots[hole].store(0, Ordering::Release);
        });
    }

    fn memory_bytes(&self) -> usize {
        self.slots.len() * size_of::<u64>() + self.shards.len() * size_of::<Shard>()
    }
}
