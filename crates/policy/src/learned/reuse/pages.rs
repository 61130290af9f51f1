//! Known pages with their histories: residents and ghosts, and the resident with the lowest rank.
//!
//! Residents lie in blocks of eight. A tree has the lowest rank of each block as it was when the block was last looked
//! at. Ranks of pages fall as they age, so each eviction looks at one more block in turn; ranks rise with an access,
//! so a block is looked at again before a page of it is evicted.

use super::coldest::Minima;
use super::history::{History, count_work};
use crate::mutant::{self, Mutant};
use entresol_core::{Page, Random, prefetch};
use std::ops::Range;

/// Residents of a block.
pub(super) const BLOCK: usize = 8;
/// Most blocks that one eviction looks at in search of the coldest page.
pub(super) const BLOCKS_MAX: usize = 16;
/// Key of no resident: the highest rank, the first position.
const EMPTY: u32 = i16::MAX as u32 * BLOCK as u32;
/// Ghosts among which the one that is forgotten is chosen.
pub(super) const GHOSTS_LOOKED_AT: usize = 4;

/// A page's history, and its position if it is known: side by side, as they are needed together.
#[derive(Clone, Copy, Debug)]
struct Entry {
    history: History,
    position: u32,
}

/// Known pages by handle and by position. Residents have positions below the capacity, ghosts the others.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    /// Each handle's page.
    entries: Vec<Entry>,
    /// The page at each position.
    known: Vec<Page>,
    capacity: usize,
    residents: usize,
    ghosts: usize,
    /// Lowest rank of each block.
    minima: Minima,
    /// The block to be looked at next in turn.
    block: usize,
    /// The ghost last looked at.
    ghost: usize,
    /// The position last clamped.
    clamped: usize,
}

/// Resident of a block with the lowest rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lowest {
    /// Position.
    pub at: usize,
    rank: i16,
    /// Lowest rank of the others.
    second: i16,
}

impl Pages {
    /// No known pages. 8 bytes a handle, 4.3 a resident, 4 a ghost.
    pub fn new(handles: usize, capacity: usize, ghosts: usize) -> Self {
        Pages {
            entries: vec![Entry { history: History::UNKNOWN, position: 0 }; handles],
            known: vec![Page(0); capacity + ghosts],
            capacity,
            residents: 0,
            ghosts: 0,
            minima: Minima::new(capacity.div_ceil(BLOCK)),
            block: 0,
            ghost: 0,
            clamped: 0,
        }
    }

    /// History of a page.
    #[inline(always)]
    pub fn history(&self, page: Page) -> History {
        self.entries[page.index()].history
    }

    #[inline(always)]
    fn position(&self, page: Page) -> usize {
        self.entries[page.index()].position as usize
    }

    /// Changes the history of a known page.
    #[inline(always)]
    pub fn set_history(&mut self, page: Page, history: History) {
        self.entries[page.index()].history = history;
    }

    /// Changes the history of a resident, which may make it colder.
    pub fn recall(&mut self, page: Page, history: History, rank: impl Fn(History) -> i16) {
        self.set_history(page, history);
        self.look(self.position(page) / BLOCK, &rank);
    }

    /// Page at a position.
    #[inline(always)]
    pub fn page(&self, at: usize) -> Page {
        self.known[at]
    }

    /// Number of residents.
    #[inline(always)]
    pub fn residents(&self) -> usize {
        self.residents
    }

    /// Number of ghosts.
    pub fn ghosts(&self) -> usize {
        self.ghosts
    }

    /// True if no frame is free.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.residents == self.capacity
    }

    #[inline(always)]
    fn put(&mut self, at: usize, page: Page) {
        self.known[at] = page;
        self.entries[page.index()].position = at as u32;
    }

    /// Gives a page a frame while there are free ones. The page may be a ghost only if pages are [released](Pages::release).
    pub fn fill(&mut self, page: Page, history: History, rank: impl Fn(History) -> i16) {
        if self.history(page).is_known() {
            self.ghosts -= 1;
            self.put(self.position(page), self.known[self.capacity + self.ghosts]);
        }
        let at = self.residents;
        self.residents += 1;
        self.put(at, page);
        self.set_history(page, history);
        if self.residents.is_multiple_of(BLOCK) || self.is_full() {
            self.look(at / BLOCK, &rank);
        }
    }

    /// Takes the frame of a resident, which becomes a ghost. Returns the history that is forgotten for that.
    pub fn release(&mut self, page: Page, rank: impl Fn(History) -> i16) -> Option<History> {
        let (at, last) = (self.position(page), self.residents - 1);
        self.put(at, self.known[last]);
        self.residents = last;
        self.look(at / BLOCK, &rank);
        self.look(last / BLOCK, &rank);
        self.add_ghost(page, self.history(page).ghost(), rank)
    }

    /// Adds an unknown page as a ghost. Returns the history that is forgotten for it: the one with the lowest rank of
    /// a few, looked at in turn.
    pub fn add_ghost(&mut self, page: Page, history: History, rank: impl Fn(History) -> i16) -> Option<History> {
        let most = self.known.len() - self.capacity;
        if self.ghosts < most {
            self.put(self.capacity + self.ghosts, page);
            self.ghosts += 1;
            self.set_history(page, history);
            return None;
        }
        if most == 0 {
            self.set_history(page, History::UNKNOWN);
            return Some(history);
        }
        let looked_at = GHOSTS_LOOKED_AT.min(most);
        let mut lowest = usize::MAX;
        for back in (0..looked_at).rev() {
            self.ghost = if self.ghost + 1 < most { self.ghost + 1 } else { 0 };
            let found = rank(self.history(self.known[self.capacity + self.ghost]));
            if !(mutant::is(Mutant::AnyGhostForgotten) && back + 1 < looked_at) {
                // The last of equals.
                lowest = lowest.min(found as usize * GHOSTS_LOOKED_AT + back);
            }
        }
        let back = lowest % GHOSTS_LOOKED_AT;
        let forgotten = self.capacity + if back <= self.ghost { self.ghost } else { self.ghost + most } - back;
        let next = self.capacity + self.ghost + 1;
        self.prefetch_at(next..self.known.len().min(next + GHOSTS_LOOKED_AT));
        let old = std::mem::replace(&mut self.entries[self.known[forgotten].index()].history, History::UNKNOWN);
        self.put(forgotten, page);
        self.set_history(page, history);
        Some(old)
    }

    /// Gives the frame of a resident to another page. Returns the history that is forgotten for the resident's ghost.
    pub fn replace(
        &mut self,
        victim: Lowest,
        page: Page,
        history: History,
        rank: impl Fn(History) -> i16,
    ) -> Option<History> {
        let old = self.known[victim.at];
        let old_history = self.history(old).ghost();
        let known = self.history(page).is_known();
        let ghost = self.position(page);
        self.put(victim.at, page);
        self.set_history(page, history);
        self.minima.set(victim.at / BLOCK, victim.second.min(rank(history)));
        self.look_in_turn(&rank);
        if known {
            self.put(ghost, old);
            self.set_history(old, old_history);
            return None;
        }
        self.add_ghost(old, old_history, rank)
    }

    /// Looks at the next block in turn, and loads the one that the next eviction will look at in turn.
    #[inline]
    fn look_in_turn(&mut self, rank: &impl Fn(History) -> i16) {
        if mutant::is(Mutant::NoLookInTurn) {
            return;
        }
        self.look(self.block, rank);
        self.block = if (self.block + 1) * BLOCK < self.capacity { self.block + 1 } else { 0 };
        self.prefetch_block(self.block);
    }

    #[inline(always)]
    fn prefetch_block(&self, block: usize) {
        let start = block * BLOCK;
        self.prefetch_at(start..(start + BLOCK).min(self.residents));
    }

    /// Loads the histories of the pages at these positions into the processor's cache.
    #[inline(always)]
    fn prefetch_at(&self, positions: Range<usize>) {
        self.known[positions].iter().for_each(|page| prefetch(&self.entries, page.index()));
    }

    #[inline]
    fn look(&mut self, block: usize, rank: &impl Fn(History) -> i16) -> Lowest {
        let start = block * BLOCK;
        let end = (start + BLOCK).min(self.residents);
        // Ranks with positions are compared without branches, which could not be predicted.
        let (mut lowest, mut second) = (EMPTY, EMPTY);
        for (at, page) in self.known[start..end].iter().enumerate() {
            let key = u32::from(rank(self.history(*page)) as u16) * BLOCK as u32 + at as u32;
            second = second.min(lowest.max(key));
            lowest = lowest.min(key);
        }
        let rank = |key: u32| (key / BLOCK as u32) as i16;
        let lowest = Lowest { at: start + lowest as usize % BLOCK, rank: rank(lowest), second: rank(second) };
        self.minima.set(block, lowest.rank);
        lowest
    }

    /// A bound from below on the ranks of residents as they were last looked at.
    #[inline(always)]
    pub fn least(&self) -> i16 {
        self.minima.least()
    }

    /// The resident with the lowest rank, if that is below a limit. After [`BLOCKS_MAX`] blocks whose pages were all
    /// accessed since they were last looked at, the lowest of those.
    #[inline]
    pub fn coldest(&mut self, limit: i16, rank: impl Fn(History) -> i16) -> Option<Lowest> {
        let mut coldest = Lowest { at: 0, rank: limit, second: limit };
        let blocks = if mutant::is(Mutant::EndlessSearch) { usize::MAX } else { BLOCKS_MAX };
        for _ in 0..blocks {
            let least = self.minima.least();
            if least >= limit {
                return None;
            }
            let lowest = self.look(self.minima.first(), &rank);
            let believed = mutant::is(Mutant::StaleMinimum) && lowest.rank >= least;
            if lowest.rank < coldest.rank || believed {
                coldest = lowest;
            }
            if believed || coldest.rank <= self.minima.least() {
                break;
            }
        }
        (coldest.rank < limit).then_some(coldest)
    }

    /// A resident with a rank below a limit that satisfies a condition.
    #[cold]
    pub fn resident_where(
        &self,
        limit: i16,
        rank: impl Fn(History) -> i16,
        mut wanted: impl FnMut(Page) -> bool,
    ) -> Option<Lowest> {
        let mut residents = self.known[..self.residents].iter();
        let at = residents.position(|&page| rank(self.history(page)) < limit && wanted(page))?;
        // The block is looked at again as soon as it is the coldest.
        Some(Lowest { at, rank: 0, second: 0 })
    }

    /// Clamps ages of some known pages, in turn.
    pub fn clamp_next(&mut self, pages: usize, tick: u32) {
        count_work(pages);
        for _ in 0..pages {
            self.clamped = if self.clamped + 1 < self.known.len() { self.clamped + 1 } else { 0 };
            if self.clamped < self.residents || (self.capacity..self.capacity + self.ghosts).contains(&self.clamped) {
                self.entries[self.known[self.clamped].index()].history.clamp(tick);
            }
        }
    }

    /// Histories of a random sample of the known pages.
    pub fn sample(&self, size: usize, random: &mut Random) -> impl Iterator<Item = History> {
        (0..size).map(|_| {
            let at = random.below((self.residents + self.ghosts) as u64) as usize;
            let at = if at < self.residents { at } else { self.capacity + at - self.residents };
            self.history(self.known[at])
        })
    }

    /// Loads a page's history into the processor's cache.
    #[inline(always)]
    pub fn prefetch(&self, page: Page) {
        prefetch(&self.entries, page.index());
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.known.capacity() * 4 + self.entries.capacity() * size_of::<Entry>() + self.minima.memory_bytes()
    }
}
