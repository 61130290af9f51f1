//! SIEVE: a FIFO queue whose hand leaves the pages that were used where they are.
//!
//! Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU", NSDI 2024, algorithm 1. New pages enter at the
//! head. The hand moves from the tail towards the head: where the visited bit is set it is cleared, the first page
//! found without it is evicted, and the hand stays in its place. Unlike in CLOCK a surviving page is not moved to
//! the head, so new pages and old ones stay apart.
//!
//! As the hand and the queue go in one direction, one link a frame suffices: a page is unlinked from the survivor
//! that the hand has just left behind. A page that may not be evicted is passed like a visited one.

use crate::info::{Config, Info};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use entresol_core::{Outcome, Page, Request, Tier};

const HELD: u8 = 1;
const DIRTY: u8 = 2;
const VISITED: u8 = 4;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Frame {
    page: Page,
    /// The frame that holds the next younger page.
    younger: u32,
}

/// A lazily promoting, quickly demoting queue.
#[derive(Clone, Debug)]
pub struct Sieve {
    capacity: usize,
    frames: Vec<Frame>,
    /// Frame of the oldest page.
    tail: u32,
    /// Frame of the youngest page.
    head: u32,
    /// The frame just behind the hand, on the side of the tail; `NONE` when the hand is at the tail.
    behind: u32,
    flags: Vec<u8>,
}

impl Sieve {
    /// The frame under the hand.
    #[inline(always)]
    fn hand(&self) -> u32 {
        if self.behind == NONE { self.tail } else { self.frames[self.behind as usize].younger }
    }

    /// Moves the hand to a page that can be evicted and unlinks its frame. One round clears every bit, a second one
    /// asks for every page.
    #[inline]
    fn take_victim<D: Driver>(&mut self, driver: &mut D) -> Option<u32> {
        for _ in 0..2 * self.frames.len() {
            let frame = self.hand();
            let Frame { page, younger } = self.frames[frame as usize];
            let flags = &mut self.flags[page.index()];
            if *flags & VISITED != 0 {
                *flags &= !VISITED;
            } else if driver.may_evict(page, Tier::TOP) {
                self.unlink(frame, younger);
                return Some(frame);
            }
            self.behind = if frame == self.head { NONE } else { frame };
        }
        None
    }

    /// Takes the frame under the hand out of the queue; at the head the hand starts over from the tail.
    #[inline]
    fn unlink(&mut self, frame: u32, younger: u32) {
        match self.behind {
            NONE => self.tail = younger,
            behind => self.frames[behind as usize].younger = younger,
        }
        if frame == self.head {
            self.head = self.behind;
            self.behind = NONE;
        }
    }

    #[inline]
    fn push_head(&mut self, frame: u32) {
        match self.head {
            NONE => self.tail = frame,
            head => self.frames[head as usize].younger = frame,
        }
        self.head = frame;
    }
}

impl Policy for Sieve {
    const INFO: Info = Info {
        name: "sieve",
        family: "modern",
        summary: "FIFO with a hand that leaves used pages in place",
        paper: "Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is simpler than LRU, NSDI 2024",
        ..Info::PLAIN
    };

    fn new(config: &Config, _options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0].min(config.pages.max(1));
        let frames = Vec::with_capacity(capacity);
        Ok(Sieve { capacity, frames, tail: NONE, head: NONE, behind: NONE, flags: vec![0; config.pages] })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let written = if request.op.is_write() { DIRTY } else { 0 };
        let flags = &mut self.flags[page.index()];
        if *flags != 0 {
            *flags |= VISITED | written;
            driver.overwrite(request, Tier::TOP);
            return Outcome::Hit(Tier::TOP);
        }
        let new = Frame { page, younger: NONE };
        let frame = if self.frames.len() < self.capacity {
            self.frames.push(new);
            self.frames.len() as u32 - 1
        } else {
            let Some(frame) = self.take_victim(driver) else {
                return driver.bypass(request);
            };
            let victim = std::mem::replace(&mut self.frames[frame as usize], new).page;
            let flags = std::mem::take(&mut self.flags[victim.index()]);
            driver.evict(victim, Tier::TOP, flags & DIRTY != 0);
            frame
        };
        driver.admit(request, Tier::TOP);
        self.push_head(frame);
        self.flags[page.index()] = HELD | written;
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let flags = self.flags[page.index()];
        let held = flags & HELD != 0;
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: flags & DIRTY != 0, known: held }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.frames.len()
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.flags, page.index());
    }

    fn memory_bytes(&self) -> usize {
        self.frames.capacity() * size_of::<Frame>() + self.flags.capacity()
    }
}
