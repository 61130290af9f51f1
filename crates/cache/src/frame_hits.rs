//! Pages in the memory tier that are read without the core's lock.
//!
//! The frames belong to the holder of the core's lock. This table shares the bytes of some with any thread: the holder
//! enters a page that was read, and removes it before its frame gets other bytes, or none. Reader and holder meet at the
//! lock of a set of pages, for the time of a copy. Bytes in an arena are left out, since their end is an event there.

use super::page_copy::PageCopy;
use entresol_core::Random;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pages of a set.
const WAYS: usize = 3;
/// Fewest sets: a policy with a memory tier may follow one without.
const SETS_MIN: usize = 64;

/// Pages of a set, the newest first.
type Set = [Option<(u64, Arc<[u8]>)>; WAYS];

/// Table of pages in memory.
pub(super) struct FrameHits {
    sets: Box<[Mutex<Set>]>,
    /// A page was entered, ever. Without a tier of memory no set is looked at.
    used: AtomicBool,
    /// Nothing is found, and nothing entered.
    closed: AtomicBool,
}

impl FrameHits {
    /// An empty table for a tier of so many pages.
    pub fn new(pages: usize) -> Self {
        let sets = pages.div_ceil(2).max(SETS_MIN);
        let sets = std::iter::repeat_with(Mutex::default).take(sets).collect();
        FrameHits { sets, used: AtomicBool::new(false), closed: AtomicBool::new(false) }
    }

    /// Bytes of memory, without those of pages.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }

    fn set(&self, page: u64) -> MutexGuard<'_, Set> {
        let at = (u128::from(Random::mix(page)) * self.sets.len() as u128) >> 64;
        // No code that can panic runs while the lock is held.
        self.sets[at as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies a page. False if the table does not have it.
    pub fn read(&self, page: u64, bytes: &mut [u8]) -> bool {
        if !self.used.load(Relaxed) || self.closed.load(Relaxed) {
            return false;
        }
        let set = self.set(page);
        let found = set.iter().flatten().find(|(there, _)| *there == page);
        found.inspect(|(_, held)| bytes.copy_from_slice(held)).is_some()
    }

    /// Enters the newest bytes of a page, in place of the oldest of its set. For the holder of the core's lock.
    pub fn enter(&self, page: u64, bytes: &PageCopy) {
        let PageCopy::Private(bytes) = bytes else { return };
        if self.closed.load(Relaxed) {
            return;
        }
        self.used.store(true, Relaxed);
        let mut set = self.set(page);
        let from = set.iter().position(|entry| entry.as_ref().is_some_and(|(there, _)| *there == page));
        set[..=from.unwrap_or(WAYS - 1)].rotate_right(1);
        set[0] = Some((page, Arc::clone(bytes)));
    }

    /// Removes a page. For the holder of the core's lock.
    pub fn remove(&self, page: u64) {
        for entry in &mut *self.set(page) {
            if entry.as_ref().is_some_and(|(there, _)| *there == page) {
                *entry = None;
            }
        }
    }

    /// Has nothing be found from now on, until the table is cleared to its end. For the holder of the core's lock.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Clears so many sets of a closed table from one on, and opens it after the last. Returns the next set. For the
    /// holder of the core's lock.
    pub fn clear(&self, from: usize, sets: usize) -> Option<usize> {
        let to = (from + sets).min(self.sets.len());
        for set in &self.sets[from.min(to)..to] {
            *set.lock().unwrap_or_else(PoisonError::into_inner) = Set::default();
        }
        if to == self.sets.len() {
            self.closed.store(false, Relaxed);
            return None;
        }
        Some(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_page_has_its_newest_bytes_or_none() {
        const PAGES: u64 = 300;
        let table = FrameHits::new(PAGES as usize);
        let (mut random, mut model, mut found) = (Random::new(4), BTreeMap::new(), 0);
        for step in 0..30_000_u64 {
            let page = random.below(PAGES);
            if random.chance(0.3) {
                table.remove(page);
                model.remove(&page);
            } else {
                let bytes = [page.to_le_bytes(), step.to_le_bytes()].concat();
                table.enter(page, &PageCopy::from(&bytes[..]));
                model.insert(page, bytes);
            }
            let (probe, mut bytes) = (random.below(PAGES), vec![0; 16]);
            if table.read(probe, &mut bytes) {
                assert_eq!(model.get(&probe), Some(&bytes), "step {step}: page {probe}");
                found += 1;
            }
            if step % 9000 == 8999 {
                table.close();
                assert!(!(0..PAGES).any(|page| table.read(page, &mut bytes)), "closed");
                let mut next = Some(0);
                while let Some(from) = next {
                    next = table.clear(from, 7);
                }
                model.clear();
            }
        }
        assert!(found > 10_000, "{found}");
    }
}
