//! The drive's DRAM: a cache of pages in order of use, and the written pages that are not programmed yet.

use std::collections::HashMap;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    page: u32,
    newer: u32,
    older: u32,
}

/// Least recently used pages leave first. Pages still to be programmed are counted apart and found whether or not the
/// cache still lists them.
#[derive(Clone, Debug)]
pub struct Buffer {
    capacity: usize,
    slots: Vec<Slot>,
    at: HashMap<u32, u32>,
    newest: u32,
    oldest: u32,
    /// Copies of a page that wait for their program or are in one.
    dirty: HashMap<u32, u32>,
    dirty_copies: u64,
    dirty_most: u64,
}

impl Buffer {
    /// A cache of `capacity` pages that accepts up to `dirty_most` unprogrammed ones.
    pub fn new(capacity: usize, dirty_most: u64) -> Self {
        Buffer {
            capacity,
            slots: Vec::new(),
            at: HashMap::new(),
            newest: NONE,
            oldest: NONE,
            dirty: HashMap::new(),
            dirty_copies: 0,
            dirty_most,
        }
    }

    /// True if the buffer holds the page. A page that the cache lists becomes the most recently used.
    pub fn hit(&mut self, page: u32) -> bool {
        match self.at.get(&page) {
            Some(&slot) => {
                self.unlink(slot);
                self.link(slot);
                true
            }
            None => self.dirty.contains_key(&page),
        }
    }

    /// True if the buffer holds the page, in the cache or still to be programmed. The order of use stays.
    pub fn holds(&self, page: u32) -> bool {
        self.at.contains_key(&page) || self.dirty.contains_key(&page)
    }

    /// Puts a page in as the most recently used.
    pub fn insert(&mut self, page: u32) {
        if self.capacity == 0 || self.at.contains_key(&page) {
            self.hit(page);
            return;
        }
        let slot = if self.slots.len() < self.capacity {
            self.slots.push(Slot { page, newer: NONE, older: NONE });
            self.slots.len() as u32 - 1
        } else {
            let slot = self.oldest;
            self.unlink(slot);
            self.at.remove(&self.slots[slot as usize].page);
            self.slots[slot as usize].page = page;
            slot
        };
        self.link(slot);
        self.at.insert(page, slot);
    }

    /// True if another page may wait for its program.
    pub fn has_room(&self) -> bool {
        self.dirty_copies < self.dirty_most
    }

    /// Counts a page as waiting for its program, even above the limit.
    pub fn soil(&mut self, page: u32) {
        *self.dirty.entry(page).or_default() += 1;
        self.dirty_copies += 1;
        self.insert(page);
    }

    /// Counts a copy of a page as programmed, or as no longer needed.
    pub fn clean(&mut self, page: u32) {
        let copies = self.dirty.get_mut(&page).expect("a page that is being programmed");
        *copies -= 1;
        if *copies == 0 {
            self.dirty.remove(&page);
        }
        self.dirty_copies -= 1;
    }

    /// Copies of pages that wait for their program or are in one.
    #[cfg(test)]
    pub fn dirty_copies(&self) -> u64 {
        self.dirty_copies
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { newer, older, .. } = self.slots[slot as usize];
        *self.link_of(newer, true) = older;
        *self.link_of(older, false) = newer;
    }

    fn link(&mut self, slot: u32) {
        let second = self.newest;
        self.slots[slot as usize].newer = NONE;
        self.slots[slot as usize].older = second;
        *self.link_of(second, false) = slot;
        self.newest = slot;
    }

    /// Link of a slot to its newer or older neighbour, or an end of the list where there is no slot.
    fn link_of(&mut self, slot: u32, to_older: bool) -> &mut u32 {
        match (slot, to_older) {
            (NONE, true) => &mut self.newest,
            (NONE, false) => &mut self.oldest,
            (slot, true) => &mut self.slots[slot as usize].older,
            (slot, false) => &mut self.slots[slot as usize].newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    #[test]
    fn the_least_recently_used_page_leaves() {
        let mut random = Random::new(21);
        let mut buffer = Buffer::new(10, 5);
        let mut model: Vec<u32> = Vec::new();
        for n in 0..20_000 {
            let page = random.below(25) as u32;
            let place = model.iter().position(|&p| p == page);
            assert_eq!(buffer.hit(page), place.is_some(), "request {n} (seed 21)");
            if let Some(place) = place {
                model.remove(place);
            } else if model.len() == 10 {
                model.remove(0);
            }
            model.push(page);
            buffer.insert(page);
        }
    }

    #[test]
    fn an_unprogrammed_page_is_found_after_it_left_the_cache() {
        let mut buffer = Buffer::new(2, 3);
        buffer.soil(7);
        buffer.soil(7);
        buffer.soil(8);
        assert!(!buffer.has_room());
        buffer.insert(1);
        buffer.insert(2);
        assert!(buffer.hit(7) && buffer.hit(8));
        buffer.clean(8);
        buffer.clean(7);
        assert!(buffer.has_room() && buffer.holds(7) && !buffer.holds(8));
        buffer.clean(7);
        assert!(!buffer.holds(7));
        assert_eq!(buffer.dirty_copies(), 0);
    }
}
