//! Offsets of the frames of pages in a tier's device.

use entresol_core::Page;
use std::collections::VecDeque;

const NOWHERE: u32 = u32::MAX;

/// Order in which a tier's frames are given to pages.
pub(super) enum Order {
    /// The last one freed first. A page that is written again keeps its frame.
    InPlace,
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
    /// Segments that were opened and have no page yet, in order.
    opened: VecDeque<u32>,
    frame_of: Vec<u32>,
}

impl Frames {
    pub fn new(pages: usize, capacity: usize, page_bytes: u32, order: Order) -> Self {
        let capacity = capacity as u32;
        let free = if let Order::InPlace = order { (0..capacity).rev().collect() } else { Vec::new() };
        let (next, opened) = (0, VecDeque::new());
        let page_bytes = u64::from(page_bytes);
        Frames { page_bytes, capacity, order, next, free, opened, frame_of: vec![NOWHERE; pages] }
    }

    /// True if pages are appended.
    pub fn is_log(&self) -> bool {
        !matches!(self.order, Order::InPlace)
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
        if let Order::InPlace = self.order {
            self.free.push(frame);
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
