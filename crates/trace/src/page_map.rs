//! Numbers pages densely in order of first appearance: an open-addressed hash table from (object, place) to page id.
//!
//! An entry has 16 bytes, so that a look-up touches one cache line; neighbouring places share one, because requests
//! come in runs. At most half of the table is used, which costs 32 to 64 bytes a distinct page while a trace is loaded.

use entresol_core::{Random, prefetch};

#[derive(Clone, Copy)]
struct Entry {
    place: u64,
    object: u32,
    /// Page id, [`FREE`] when the entry is not in use.
    id: u32,
}

const FREE: u32 = u32::MAX;
/// Page ids at and above this one are refused: they are kept for marks such as "no page".
pub const PAGES_MAX: u32 = u32::MAX - 16;
/// Places in one cache line.
const RUN: u64 = 4;

/// See the module.
pub struct PageMap {
    entries: Vec<Entry>,
    used: u32,
}

impl PageMap {
    /// An empty map.
    pub fn new() -> Self {
        PageMap { entries: vec![Entry { place: 0, object: 0, id: FREE }; 1 << 12], used: 0 }
    }

    #[inline]
    fn slot(&self, object: u32, place: u64) -> usize {
        let hash = Random::mix((place / RUN) ^ (u64::from(object) << 40) ^ u64::from(object));
        (hash.wrapping_mul(RUN).wrapping_add(place % RUN) as usize) & (self.entries.len() - 1)
    }

    /// Prefetches the table entry of a page into the processor's cache.
    #[inline]
    pub fn prefetch(&self, object: u32, place: u64) {
        prefetch(&self.entries, self.slot(object, place));
    }

    /// The id of a page, and true when it is new; `None` when there are [`PAGES_MAX`] already.
    #[inline]
    pub fn number(&mut self, object: u32, place: u64) -> Option<(u32, bool)> {
        let mask = self.entries.len() - 1;
        let mut slot = self.slot(object, place);
        loop {
            let entry = &mut self.entries[slot];
            if entry.id == FREE {
                if self.used >= PAGES_MAX {
                    return None;
                }
                let id = self.used;
                *entry = Entry { place, object, id };
                self.used += 1;
                if self.used as usize * 2 > self.entries.len() {
                    self.grow();
                }
                return Some((id, true));
            }
            if entry.place == place && entry.object == object {
                return Some((entry.id, false));
            }
            slot = (slot + 1) & mask;
        }
    }

    /// The id of a page that has one.
    pub fn get(&self, object: u32, place: u64) -> Option<u32> {
        let mask = self.entries.len() - 1;
        let mut slot = self.slot(object, place);
        loop {
            let entry = self.entries[slot];
            if entry.id == FREE {
                return None;
            }
            if entry.place == place && entry.object == object {
                return Some(entry.id);
            }
            slot = (slot + 1) & mask;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let size = self.entries.len() * 2;
        let old = std::mem::replace(&mut self.entries, vec![Entry { place: 0, object: 0, id: FREE }; size]);
        for entry in old.into_iter().filter(|entry| entry.id != FREE) {
            let mut slot = self.slot(entry.object, entry.place);
            while self.entries[slot].id != FREE {
                slot = (slot + 1) & (size - 1);
            }
            self.entries[slot] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn numbers_like_a_map() {
        let seed = 11;
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut map = PageMap::new();
        let mut model: HashMap<(u32, u64), u32> = HashMap::new();
        for _ in 0..200_000 {
            let object = random.below(5) as u32;
            // Runs, strided runs that share low bits, and full-width ids.
            let place = match random.below(3) {
                0 => random.below(20_000),
                1 => random.below(20_000) << 20,
                _ => Random::mix(random.below(20_000)),
            };
            let next = model.len() as u32;
            let expected = *model.entry((object, place)).or_insert(next);
            assert_eq!(map.number(object, place), Some((expected, expected == next)));
            assert_eq!(map.get(object, place), Some(expected));
        }
        assert_eq!(map.get(9, 9), None);
    }
}
