//! Offsets of the frames of pages in a tier's device.

use entresol_core::Page;

const NOWHERE: u32 = u32::MAX;

/// The frames of one tier. A log assigns them in order round the ring; any other layout takes the last one freed.
pub(super) struct Frames {
    page_bytes: u64,
    capacity: u32,
    log: bool,
    next: u32,
    free: Vec<u32>,
    frame_of: Vec<u32>,
}

impl Frames {
    pub fn new(pages: usize, capacity: usize, page_bytes: u32, log: bool) -> Self {
        let capacity = capacity as u32;
        Frames {
            page_bytes: u64::from(page_bytes),
            capacity,
            log,
            next: 0,
            free: if log { Vec::new() } else { (0..capacity).rev().collect() },
            frame_of: vec![NOWHERE; pages],
        }
    }

    /// True if the tier is written in order.
    pub fn is_log(&self) -> bool {
        self.log
    }

    /// Offset of a page's frame in bytes. A page without a frame gets one; a log always assigns a new one.
    pub fn place(&mut self, page: Page) -> u64 {
        let frame = &mut self.frame_of[page.index()];
        if self.log {
            *frame = self.next;
            self.next = (self.next + 1) % self.capacity;
        } else if *frame == NOWHERE {
            *frame = self.free.pop().expect("a policy keeps its tiers within their capacity");
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
        if !self.log {
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
