//! Offsets of the frames of pages in a tier's device.

use entresol_core::{FreeSlots, Page};
use std::collections::VecDeque;

const NOWHERE: u32 = u32::MAX;

/// Order in which a tier's frames are given to pages.
pub(super) enum Order {
    /// The last one freed first. A page that is written again keeps its frame.
    InPlace,
    /// The next free one of so many, as in the slots layout of the live cache. A page that is written again moves.
    /// Frames that were given up wait until half of those that the pages leave are used up.
    Slots(u32),
    /// In order round the ring.
    Ring,
    /// In order within segments of so many pages.
    Segments(u32),
}

/// The frames of one tier.
pub(super) struct Frames {
    page_bytes: u64,
    capacity: u32,
    order: Order,
    next: u32,
    free: Vec<u32>,
    free_slots: FreeSlots,
    /// Slots that were given up and wait.
    given_up: Vec<u32>,
    /// Segments that were opened and have no page yet, in order.
    opened: VecDeque<u32>,
    frame_of: Vec<u32>,
}

impl Frames {
    pub fn new(pages: usize, capacity: usize, page_bytes: u32, order: Order) -> Self {
        let capacity = capacity as u32;
        let free = if let Order::InPlace = order { (0..capacity).rev().collect() } else { Vec::new() };
        let slots = if let Order::Slots(slots) = order { slots } else { 0 };
        let mut free_slots = FreeSlots::new(slots.into());
        (0..slots).for_each(|slot| free_slots.put(slot));
        let (next, given_up, opened) = (0, Vec::new(), VecDeque::new());
        let page_bytes = u64::from(page_bytes);
        let frame_of = vec![NOWHERE; pages];
        Frames { page_bytes, capacity, order, next, free, free_slots, given_up, opened, frame_of }
    }

    /// True if pages are appended.
    pub fn is_log(&self) -> bool {
        matches!(self.order, Order::Ring | Order::Segments(_))
    }

    /// True if a write that continues the one before belongs to its segment.
    pub fn has_segments(&self) -> bool {
        matches!(self.order, Order::Segments(_))
    }

    /// Notes segments that a log has opened.
    pub fn open(&mut self, segments: impl IntoIterator<Item = u32>) {
        self.opened.extend(segments);
    }

    /// Offset of a page's frame in bytes. A page without a frame gets one; a log always assigns a new one.
    pub fn place(&mut self, page: Page) -> u64 {
        let frame = &mut self.frame_of[page.index()];
        match self.order {
            Order::InPlace if *frame == NOWHERE => {
                *frame = self.free.pop().expect("a policy keeps its tiers within their capacity");
            }
            Order::InPlace => {}
            Order::Slots(slots) => {
                if self.free_slots.len() <= u64::from(slots - self.capacity) / 2 {
                    self.given_up.drain(..).for_each(|slot| self.free_slots.put(slot));
                }
                // Without spare slots a page that is written again stays.
                if let Some(slot) = self.free_slots.take() {
                    let former = std::mem::replace(frame, slot);
                    self.given_up.extend((former != NOWHERE).then_some(former));
                }
                debug_assert_ne!(*frame, NOWHERE, "a policy keeps its tiers within their capacity");
            }
            Order::Ring => {
                *frame = self.next;
                self.next = (self.next + 1) % self.capacity;
            }
            Order::Segments(pages) => {
                if self.next.is_multiple_of(pages) {
                    self.next = self.opened.pop_front().expect("a log opens a segment before it is written") * pages;
                }
                *frame = self.next;
                self.next += 1;
            }
        }
        u64::from(*frame) * self.page_bytes
    }

    /// Offset of the frame that holds a page.
    pub fn offset(&self, page: Page) -> u64 {
        debug_assert_ne!(self.frame_of[page.index()], NOWHERE, "{page:?} has no frame");
        u64::from(self.frame_of[page.index()]) * self.page_bytes
    }

    /// Frees the page's frame.
    pub fn release(&mut self, page: Page) {
        let frame = std::mem::replace(&mut self.frame_of[page.index()], NOWHERE);
        match self.order {
            Order::InPlace => self.free.push(frame),
            Order::Slots(_) => self.given_up.push(frame),
            Order::Ring | Order::Segments(_) => {}
        }
    }

    /// Offset of a page that came with its whole object and has no frame of its own: its offset below, wrapped round
    /// the tier.
    pub fn wrapped(&self, offset_below: u64) -> u64 {
        offset_below % (u64::from(self.capacity) * self.page_bytes)
    }

    /// Loads a page's frame number into the processor's cache.
    #[inline(always)]
    pub fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.frame_of, page.index());
    }

    /// True if the page has a frame.
    pub fn holds(&self, page: Page) -> bool {
        self.frame_of[page.index()] != NOWHERE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use std::collections::HashSet;

    /// Two pages never have one slot, and a slot that was just written is hardly ever written next, even if most writes
    /// are of a few pages.
    #[test]
    fn a_slot_that_was_given_up_is_given_later() {
        const PAGES: usize = 512;
        let mut frames = Frames::new(1000, PAGES, 4096, Order::Slots(640));
        let mut random = Random::new(8);
        let mut held: Vec<u32> = Vec::new();
        let (mut recent, mut soon) = (VecDeque::new(), 0);
        for at in 0..10_000 {
            let pages = if random.chance(0.9) { 4 } else { 1000 };
            let page = random.below(pages) as u32;
            if !held.contains(&page) {
                if held.len() == PAGES {
                    frames.release(Page(held.swap_remove(random.below(PAGES as u64) as usize)));
                }
                held.push(page);
            }
            let slot = frames.place(Page(page)) / 4096;
            assert!(slot < 640, "write {at}, seed 8");
            soon += u32::from(recent.contains(&slot));
            recent.push_back(slot);
            if recent.len() > 8 {
                recent.pop_front();
            }
            let slots: HashSet<u64> = held.iter().map(|&page| frames.offset(Page(page))).collect();
            assert_eq!(slots.len(), held.len(), "write {at}, seed 8");
        }
        assert!(soon < 100, "{soon} of 10000 writes, seed 8, went to one of the last eight slots");
    }

    #[test]
    fn without_spare_slots_pages_stay() {
        let mut frames = Frames::new(3, 2, 4096, Order::Slots(2));
        assert_eq!([0, 1, 0, 1].map(|page| frames.place(Page(page))), [0, 4096, 0, 4096]);
        frames.release(Page(0));
        assert_eq!([2, 1].map(|page| frames.place(Page(page))), [0, 4096]);
    }
}
