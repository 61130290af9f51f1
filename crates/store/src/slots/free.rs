//! Slots that may be written.

use entresol_core::FreeSlots;
use std::collections::VecDeque;

/// Segments of slots: those that may be written, and the one that is being filled.
struct Segments {
    pages: u32,
    /// Slots of each segment that are free.
    free: Vec<u32>,
    /// Slots of each segment that hold a newest version.
    live: Vec<u32>,
    /// Segments of free slots alone.
    empty: VecDeque<u32>,
    /// Next slot of the open segment; none if a segment is to be opened.
    next: Option<u32>,
    /// Segments that are closed and hold no newest version: they are empty, or will be.
    dead: u64,
    /// Segments that were filled, or died after that, since the last call.
    changed: Vec<u32>,
    is_changed: Vec<bool>,
}

impl Segments {
    /// Segments of so many slots, none of which is free.
    fn new(slots: u64, pages: u32) -> Self {
        let segments = slots as usize / pages as usize;
        Segments {
            pages,
            free: vec![0; segments],
            live: vec![pages; segments],
            empty: VecDeque::new(),
            next: None,
            dead: 0,
            changed: Vec::new(),
            is_changed: vec![false; segments],
        }
    }

    fn is_open(&self, segment: u32) -> bool {
        self.next.is_some_and(|next| next / self.pages == segment)
    }

    /// Notes a slot whose version is not the newest any more.
    fn died(&mut self, slot: u32) {
        let segment = slot / self.pages;
        self.live[segment as usize] -= 1;
        if self.live[segment as usize] == 0 && !self.is_open(segment) {
            self.dead += 1;
            self.note_changed(segment);
        }
    }

    /// Notes a free slot.
    fn freed(&mut self, slot: u32) {
        let segment = slot / self.pages;
        self.free[segment as usize] += 1;
        self.note_empty(segment);
    }

    fn note_changed(&mut self, segment: u32) {
        if !std::mem::replace(&mut self.is_changed[segment as usize], true) {
            self.changed.push(segment);
        }
    }

    fn note_empty(&mut self, segment: u32) {
        if self.free[segment as usize] == self.pages && !self.is_open(segment) {
            self.empty.push_back(segment);
        }
    }

    /// The next slot of the open segment, or the first of an empty one.
    fn take(&mut self) -> Option<u32> {
        let slot = match self.next {
            Some(next) => next,
            None => {
                let segment = self.empty.pop_front()?;
                self.dead -= 1;
                // Slots that are not written yet are neither live nor free.
                self.free[segment as usize] = 0;
                segment * self.pages
            }
        };
        let segment = slot / self.pages;
        self.live[segment as usize] += 1;
        let next = slot + 1;
        if next.is_multiple_of(self.pages) {
            self.next = None;
            self.note_changed(segment);
            self.dead += u64::from(self.live[segment as usize] == 0);
            self.note_empty(segment);
        } else {
            self.next = Some(next);
        }
        Some(slot)
    }

    /// Slots left in the open segment.
    fn rest(&self) -> u64 {
        self.next.map_or(0, |next| u64::from(self.pages - next % self.pages))
    }
}

/// Free slots, and slots that become free once enough of the journal is durable.
pub(super) struct Free {
    slots: FreeSlots,
    /// Waiting slots with the block of the journal that frees each, in ascending order.
    waiting: VecDeque<(u64, u32)>,
    /// Segments, where slots are given by segments.
    segments: Option<Segments>,
}

impl Free {
    /// None of so many slots is free. Slots are given one by one, or by segments of so many.
    pub fn new(slots: u64, segment_pages: Option<u32>) -> Self {
        let segments = segment_pages.map(|pages| Segments::new(slots, pages));
        Free { slots: FreeSlots::new(slots), waiting: VecDeque::new(), segments }
    }

    /// Slots that can be taken.
    pub fn len(&self) -> u64 {
        let of = |segments: &Segments| segments.empty.len() as u64 * u64::from(segments.pages) + segments.rest();
        self.segments.as_ref().map_or(self.slots.len(), of)
    }

    /// Slots that can be taken once no slot waits.
    pub fn len_once_durable(&self) -> u64 {
        let of = |segments: &Segments| segments.dead * u64::from(segments.pages) + segments.rest();
        self.segments.as_ref().map_or(self.slots.len() + self.waiting(), of)
    }

    /// True if the next slot is the first of a segment, where slots are given by segments.
    pub fn is_between_segments(&self) -> bool {
        self.segments.as_ref().is_some_and(|segments| segments.next.is_none())
    }

    /// Takes the segments that were filled, or have lost their last newest version, since the last call.
    pub fn take_changed(&mut self) -> Vec<u32> {
        let Some(segments) = &mut self.segments else { return Vec::new() };
        segments.changed.iter().for_each(|&segment| segments.is_changed[segment as usize] = false);
        std::mem::take(&mut segments.changed)
    }

    /// True if a segment is full and holds a newest version.
    pub fn is_sealed(&self, segment: u32) -> bool {
        let sealed = |segments: &Segments| segments.live[segment as usize] > 0 && !segments.is_open(segment);
        self.segments.as_ref().is_some_and(sealed)
    }

    /// Marks a slot as free.
    pub fn put(&mut self, slot: u32) {
        self.slots.put(slot);
        if let Some(segments) = &mut self.segments {
            segments.freed(slot);
        }
    }

    /// Marks a slot as free that nothing held when the store was opened.
    pub fn put_unused(&mut self, slot: u32) {
        if let Some(segments) = &mut self.segments {
            segments.died(slot);
        }
        self.put(slot);
    }

    /// Counts all segments as changed, when the store is opened.
    pub fn change_all(&mut self) {
        if let Some(segments) = &mut self.segments {
            (0..segments.live.len() as u32).for_each(|segment| segments.note_changed(segment));
        }
    }

    /// Takes the next free slot after the last one taken.
    pub fn take(&mut self) -> Option<u32> {
        let Some(segments) = &mut self.segments else { return self.slots.take() };
        let slot = segments.take()?;
        // In the open segment a slot is free until it is taken.
        self.slots.remove(slot);
        Some(slot)
    }

    /// Lets a slot wait until this block of the journal is known to be durable.
    pub fn wait(&mut self, block: u64, slot: u32) {
        debug_assert!(self.waiting.back().is_none_or(|&(last, _)| last <= block), "blocks are written in order");
        if let Some(segments) = &mut self.segments {
            segments.died(slot);
        }
        self.waiting.push_back((block, slot));
    }

    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Frees the slots that wait for blocks before this one, which are known to be durable.
    pub fn release(&mut self, before: u64) {
        let released = self.waiting.iter().take_while(|&&(block, _)| block < before).count();
        let released: Vec<(u64, u32)> = self.waiting.drain(..released).collect();
        released.into_iter().for_each(|(_, slot)| self.put(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use std::collections::BTreeSet;

    #[test]
    fn it_agrees_with_a_set() {
        const SLOTS: u64 = 150;
        let mut random = Random::new(1);
        let (mut free, mut model) = (Free::new(SLOTS, None), BTreeSet::new());
        let mut waiting: VecDeque<(u64, u32)> = VecDeque::new();
        (0..SLOTS as u32).for_each(|slot| free.put(slot));
        model.extend(0..SLOTS as u32);
        let mut taken = Vec::new();
        for block in 0..5000 {
            for _ in 0..random.below(6) {
                let slot = free.take();
                assert_eq!(slot.is_none(), model.is_empty(), "block {block}");
                if let Some(slot) = slot {
                    assert!(model.remove(&slot), "block {block}: slot {slot} was not free");
                    taken.push(slot);
                }
            }
            for _ in 0..random.below(6).min(taken.len() as u64) {
                let slot = taken.swap_remove(random.below(taken.len() as u64) as usize);
                free.wait(block, slot);
                waiting.push_back((block, slot));
            }
            if random.chance(0.3) {
                let before = block.saturating_sub(random.below(3));
                free.release(before);
                while waiting.front().is_some_and(|&(at, _)| at < before) {
                    model.insert(waiting.pop_front().expect("just seen").1);
                }
            }
            assert_eq!((free.len(), free.waiting()), (model.len() as u64, waiting.len() as u64), "block {block}");
        }
    }

    #[test]
    fn neighbours_are_given_together() {
        let mut free = Free::new(200, None);
        (0..200).for_each(|slot| free.put(slot));
        let taken: Vec<u32> = (0..200).map_while(|_| free.take()).collect();
        assert!(taken.is_sorted() && taken.len() == 200 && free.take().is_none());
    }

    #[test]
    fn segments_are_given_whole() {
        const SLOTS: u64 = 160;
        const PAGES: u32 = 16;
        let mut random = Random::new(2);
        let mut free = Free::new(SLOTS, Some(PAGES));
        (0..SLOTS as u32).for_each(|slot| free.put_unused(slot));
        free.change_all();
        assert!(free.take_changed().len() == 10 && free.len() == SLOTS && free.len_once_durable() == SLOTS);
        // Slots taken and not freed, slots that wait, and the segment that is being filled.
        let (mut taken, mut waiting): (Vec<u32>, VecDeque<(u64, u32)>) = (Vec::new(), VecDeque::new());
        let (mut open, mut sealed) = (None, BTreeSet::new());
        for block in 0..20_000 {
            for _ in 0..random.below(8) {
                let Some(slot) = free.take() else { break };
                let busy = |segment: u32| {
                    taken.iter().chain(waiting.iter().map(|(_, slot)| slot)).any(|slot| slot / PAGES == segment)
                };
                match open {
                    Some(next) => assert_eq!(slot, next, "block {block}: in order"),
                    None => assert!(slot % PAGES == 0 && !busy(slot / PAGES), "block {block}: {slot} is of a full one"),
                }
                taken.push(slot);
                open = ((slot + 1) % PAGES != 0).then_some(slot + 1);
            }
            for _ in 0..random.below(8).min(taken.len() as u64) {
                let slot = taken.swap_remove(random.below(taken.len() as u64) as usize);
                free.wait(block, slot);
                waiting.push_back((block, slot));
            }
            if random.chance(0.3) {
                let before = block.saturating_sub(random.below(3));
                free.release(before);
                while waiting.front().is_some_and(|&(at, _)| at < before) {
                    waiting.pop_front();
                }
            }
            let rest = open.map_or(0, |next| u64::from(PAGES - next % PAGES));
            let closed = |segment: &u32| open.is_none_or(|next| next / PAGES != *segment);
            let is_dead = |segment: &u32| taken.iter().all(|slot| slot / PAGES != *segment);
            let is_empty = |segment: &u32| waiting.iter().all(|(_, slot)| slot / PAGES != *segment);
            let dead = (0..SLOTS as u32 / PAGES).filter(closed).filter(is_dead);
            let empty = dead.clone().filter(is_empty);
            for segment in free.take_changed() {
                if free.is_sealed(segment) {
                    sealed.insert(segment)
                } else {
                    sealed.remove(&segment)
                };
            }
            let full = (0..SLOTS as u32 / PAGES).filter(closed).filter(|segment| !is_dead(segment));
            assert!(full.eq(sealed.iter().copied()), "block {block}: {sealed:?}");
            assert_eq!(free.len(), empty.count() as u64 * u64::from(PAGES) + rest, "block {block}");
            assert_eq!(free.len_once_durable(), dead.count() as u64 * u64::from(PAGES) + rest, "block {block}");
        }
    }
}
