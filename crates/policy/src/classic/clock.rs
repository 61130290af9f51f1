//! CLOCK: FIFO in which a page that was used since the hand last passed gets another round.
//!
//! Corbató, "A paging experiment with the Multics system", MIT Project MAC 1968. One reference bit a page, set by a hit.
//! The hand sweeps a circle of frames: where the bit is set it is cleared and the hand moves on, where it is clear the
//! page is evicted.
//!
//! Readings. A new page takes its victim's frame and the hand moves past it, so that it is the last to be looked at
//! again: the same as a queue in which referenced pages are re-inserted at the rear. Loading a page does not count as
//! a use of it (`load=clear`); where the hardware sets the bit on the access that follows the fault, as in Multics,
//! `load=referenced` has it set. A page that may not be evicted is passed like a referenced one.

use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use entresol_core::{Outcome, Page, Request, Tier};

const HELD: u8 = 1;
const DIRTY: u8 = 2;
const REFERENCED: u8 = 4;

/// Second chance with one reference bit.
#[derive(Clone, Debug)]
pub struct Clock {
    capacity: usize,
    frames: Vec<Page>,
    hand: usize,
    flags: Vec<u8>,
    /// Flags of a page that was just loaded.
    loaded: u8,
}

impl Clock {
    /// The frame to be emptied. One turn of the hand clears every bit, a second one asks for every page.
    #[inline]
    fn find_victim<D: Driver>(&mut self, driver: &mut D) -> Option<usize> {
        for _ in 0..2 * self.frames.len() {
            let (at, page) = (self.hand, self.frames[self.hand]);
            let flags = &mut self.flags[page.index()];
            self.hand += 1;
            if self.hand == self.frames.len() {
                self.hand = 0;
            }
            if *flags & REFERENCED != 0 {
                *flags &= !REFERENCED;
            } else if driver.may_evict(page, Tier::TOP) {
                return Some(at);
            }
        }
        None
    }
}

impl Policy for Clock {
    const INFO: Info = Info {
        name: "clock",
        family: "classic",
        summary: "FIFO with a second chance for pages used since the hand last passed",
        paper: "Corbató: A paging experiment with the Multics system, MIT Project MAC 1968",
        options: &[OptionInfo {
            name: "load",
            default: "clear",
            help: "reference bit of a page just loaded: clear, or referenced as in Multics",
        }],
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0].min(config.pages.max(1));
        let referenced = options.choice("load", &[("clear", 0), ("referenced", REFERENCED)])?;
        let frames = Vec::with_capacity(capacity);
        Ok(Clock { capacity, frames, hand: 0, flags: vec![0; config.pages], loaded: HELD | referenced })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let written = if request.op.is_write() { DIRTY } else { 0 };
        let flags = &mut self.flags[page.index()];
        if *flags != 0 {
            *flags |= REFERENCED | written;
            driver.overwrite(request, Tier::TOP);
            return Outcome::Hit(Tier::TOP);
        }
        if self.frames.len() < self.capacity {
            self.frames.push(page);
        } else {
            let Some(frame) = self.find_victim(driver) else {
                return driver.bypass(request);
            };
            let victim = std::mem::replace(&mut self.frames[frame], page);
            let flags = std::mem::take(&mut self.flags[victim.index()]);
            driver.evict(victim, Tier::TOP, flags & DIRTY != 0);
        }
        driver.admit(request, Tier::TOP);
        self.flags[page.index()] = self.loaded | written;
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
        self.frames.capacity() * size_of::<Page>() + self.flags.capacity()
    }
}
