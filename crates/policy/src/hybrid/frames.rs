//! The frames of DRAM and NVRAM and what they hold, shared by Hibachi and Hybrid-ARC.
//!
//! A clean page is kept in DRAM while DRAM has a free frame, else it borrows an NVRAM frame. A dirty page is kept in
//! NVRAM. A borrower moves to DRAM when its NVRAM frame is needed and a DRAM frame is free. The most recently used
//! borrower goes first: it gains most from DRAM's latency. (The thesis does not say which.)

use crate::interface::{Driver, PageState, TierSet};
use crate::parts::{ListId, Lists};
use entresol_core::{Page, Tier, Verb};

pub(super) const DRAM: Tier = Tier::TOP;
pub(super) const NVRAM: Tier = Tier::SECOND;

/// Clean pages in NVRAM frames, most recently used first.
pub(super) const BORROWED: ListId = 0;
/// Dirty pages, most recently used first.
pub(super) const DIRTY: ListId = 1;
pub(super) const CLEAN_GHOST: ListId = 2;
pub(super) const DIRTY_GHOST: ListId = 3;
/// Clean pages in DRAM: in no list of [`Frames`].
const IN_DRAM: u8 = 4;
const ABSENT: u8 = u8::MAX;

/// Home of a page: clean in a memory, dirty in NVRAM, a clean or dirty ghost, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    Clean(Tier),
    Dirty,
    CleanGhost,
    DirtyGhost,
    Absent,
}

/// Frames of both memories, the order of dirty pages, and the ghosts.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    pub(super) dram: usize,
    pub(super) nvram: usize,
    in_dram: usize,
    home: Vec<u8>,
    pub(super) lists: Lists<4>,
}

impl Frames {
    pub(super) fn new(pages: usize, tiers: &[usize]) -> Self {
        let &[dram, nvram] = tiers else { unreachable!("two tiers are checked") };
        Frames { dram, nvram, in_dram: 0, home: vec![ABSENT; pages], lists: Lists::new(pages) }
    }

    #[inline(always)]
    pub(super) fn home(&self, page: Page) -> Home {
        match self.home[page.index()] {
            IN_DRAM => Home::Clean(DRAM),
            home if home == BORROWED as u8 => Home::Clean(NVRAM),
            home if home == DIRTY as u8 => Home::Dirty,
            home if home == CLEAN_GHOST as u8 => Home::CleanGhost,
            home if home == DIRTY_GHOST as u8 => Home::DirtyGhost,
            _ => Home::Absent,
        }
    }

    /// The tier of a clean page.
    #[inline(always)]
    pub(super) fn clean_tier(&self, page: Page) -> Tier {
        if self.home[page.index()] == IN_DRAM { DRAM } else { NVRAM }
    }

    pub(super) fn total(&self) -> usize {
        self.dram + self.nvram
    }

    pub(super) fn clean(&self) -> usize {
        self.in_dram + self.lists.len(BORROWED)
    }

    pub(super) fn in_nvram(&self) -> usize {
        self.lists.len(BORROWED) + self.lists.len(DIRTY)
    }

    pub(super) fn dram_free(&self) -> bool {
        self.in_dram < self.dram
    }

    pub(super) fn nvram_free(&self) -> bool {
        self.in_nvram() < self.nvram
    }

    /// Tier that a clean page would enter without an eviction; `None` when both memories are full.
    pub(super) fn free_tier(&self) -> Option<Tier> {
        if self.dram_free() { Some(DRAM) } else { self.nvram_free().then_some(NVRAM) }
    }

    /// Puts a page that has no home in front of a list.
    #[inline(always)]
    pub(super) fn enter(&mut self, list: ListId, page: Page) {
        self.lists.push_front(list, page);
        self.home[page.index()] = list as u8;
    }

    /// Puts a page that has no home at the back of the borrowers.
    pub(super) fn enter_last_borrower(&mut self, page: Page) {
        self.lists.push_back(BORROWED, page);
        self.home[page.index()] = BORROWED as u8;
    }

    /// Puts a clean page that has no home into a tier.
    #[inline(always)]
    pub(super) fn enter_clean(&mut self, page: Page, tier: Tier) {
        if tier == DRAM {
            self.in_dram += 1;
            self.home[page.index()] = IN_DRAM;
        } else {
            self.enter(BORROWED, page);
        }
    }

    /// Removes a page from its list or tier.
    #[inline(always)]
    pub(super) fn leave(&mut self, page: Page) {
        match self.home[page.index()] {
            IN_DRAM => self.in_dram -= 1,
            ABSENT => return,
            list => self.lists.remove(ListId::from(list), page),
        }
        self.home[page.index()] = ABSENT;
    }

    /// Drops a clean page, which becomes a ghost.
    pub(super) fn evict_clean<D: Driver>(&mut self, victim: Page, driver: &mut D) {
        driver.evict(victim, self.clean_tier(victim), false);
        self.leave(victim);
        self.enter(CLEAN_GHOST, victim);
    }

    /// Moves the most recently used borrower that may move to DRAM, which has a free frame. False if there is none.
    pub(super) fn promote_borrower<D: Driver>(&mut self, driver: &mut D) -> bool {
        let mut borrower = self.lists.front(BORROWED);
        while let Some(page) = borrower {
            if driver.may_evict(page, NVRAM) {
                driver.start(page, Verb::Copy { from: NVRAM, to: DRAM });
                driver.start(page, Verb::Drop { from: NVRAM });
                self.leave(page);
                self.enter_clean(page, DRAM);
                return true;
            }
            borrower = self.lists.towards_back(page);
        }
        false
    }

    /// The ghost that gives way to a page that is new to all lists: one of the clean side when that side has more
    /// entries than there are frames, else one of the dirty side when twice as many entries as frames are used up
    /// (004, section 3.3.4, as I/O-Cache's default reading has it).
    pub(super) fn surplus_ghost(&self) -> Option<Page> {
        let clean = self.clean() + self.lists.len(CLEAN_GHOST);
        if clean > self.total() {
            return self.lists.back(CLEAN_GHOST);
        }
        let dirty = self.lists.len(DIRTY) + self.lists.len(DIRTY_GHOST);
        if clean + dirty < 2 * self.total() {
            return None;
        }
        self.lists.back(DIRTY_GHOST).or_else(|| self.lists.back(CLEAN_GHOST))
    }

    pub(super) fn state(&self, page: Page) -> PageState {
        let (tiers, dirty) = match self.home(page) {
            Home::Clean(tier) => (TierSet::only(tier, true), false),
            Home::Dirty => (TierSet::only(NVRAM, true), true),
            _ => (TierSet::EMPTY, false),
        };
        PageState { tiers, dirty, known: self.home[page.index()] != ABSENT }
    }

    pub(super) fn occupancy(&self, tier: Tier) -> usize {
        if tier == DRAM { self.in_dram } else { self.in_nvram() }
    }

    pub(super) fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("clean in dram", self.in_dram as f64);
        for (list, name) in ["clean in nvram", "dirty", "clean ghosts", "dirty ghosts"].into_iter().enumerate() {
            visit(name, self.lists.len(list) as f64);
        }
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.home, page.index());
        self.lists.prefetch(page);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.home.capacity() + self.lists.memory_bytes()
    }
}
