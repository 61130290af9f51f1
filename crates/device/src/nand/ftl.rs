//! The flash translation layer: a page map, one log per die, and cleaning at a pace.
//!
//! A die writes the host's pages to one open block and the pages it moves while cleaning to another. When fewer than
//! `gc_start_blocks` of its blocks are free it cleans: each host write pays for a number of moves, so that no write
//! waits for a whole block. Left to itself the pace is v / (n - v) for a victim with v of n pages valid: the block is
//! clean when the host has written as much as cleaning it gains. With a fixed pace that is too slow, a write that finds
//! no free block cleans until there is one.

use super::gc::{Cleaning, NONE, Victims};
use super::geometry::Geometry;
use entresol_core::prefetch;

/// Thresholds and pace of a die's cleaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Cleaning starts when fewer blocks than this are free; at least 2, one of which is kept for the pages moved.
    pub start_blocks: u32,
    /// Cleaning stops when this many are free; at least `start_blocks`.
    pub stop_blocks: u32,
    /// Pages moved for each page that the host writes; `None` for as many as the victim needs.
    pub moves_per_write: Option<f64>,
}

/// Work that a write made a die do besides programming the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Pages read and programmed elsewhere in the die.
    pub moves: u32,
    /// Blocks erased.
    pub erases: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Open,
    Closed,
    Cleaning,
}

/// A block's record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// Valid pages.
    pub(super) valid: u16,
    state: State,
    die: u32,
}

/// A block being written, and the number of its pages written so far.
#[derive(Clone, Copy, Debug)]
struct Open {
    block: u32,
    written: u32,
}

/// A block being cleaned.
#[derive(Clone, Copy, Debug)]
struct Victim {
    block: u32,
    /// The next page to look at.
    page: u32,
    /// Pages to move per host write, in 1 / `Ftl::ONE`.
    pace: u64,
}

/// The log of one die.
#[derive(Clone, Debug)]
struct Log {
    host: Open,
    moved: Open,
    free: Vec<u32>,
    victim: Option<Victim>,
    cleaning: bool,
    /// Moves paid for and not yet made, in 1 / `Ftl::ONE`.
    paid: u64,
    /// Valid pages.
    live: u32,
}

/// A page map over the dies of a [`Geometry`].
#[derive(Clone, Debug)]
pub struct Ftl {
    geometry: Geometry,
    pace: Pace,
    /// Physical page of each logical page, or `NONE`.
    physical: Vec<u32>,
    /// Logical page of each physical page, or `NONE` where it is not valid.
    logical: Vec<u32>,
    blocks: Vec<Block>,
    /// Host writes of the device when each block was last filled.
    closed_at: Vec<u64>,
    logs: Vec<Log>,
    victims: Victims,
    host_pages: u64,
    moved_pages: u64,
    erases: u64,
}

impl Ftl {
    const ONE: u64 = 1 << 16;
    /// Distance in pages at which cleaning prefetches ahead of the page it moves.
    const AHEAD: usize = 16;

    /// An empty device.
    pub fn new(geometry: Geometry, cleaning: Cleaning, pace: Pace, seed: u64) -> Self {
        let full = Open { block: NONE, written: geometry.pages_per_block };
        let block = |number| Block { valid: 0, state: State::Free, die: number / geometry.blocks_per_die };
        let log = |die| Log {
            host: full,
            moved: full,
            free: (die * geometry.blocks_per_die..(die + 1) * geometry.blocks_per_die).rev().collect(),
            victim: None,
            cleaning: false,
            paid: 0,
            live: 0,
        };
        Ftl {
            geometry,
            pace,
            physical: vec![NONE; geometry.logical_pages as usize],
            logical: vec![NONE; geometry.pages() as usize],
            blocks: (0..geometry.blocks()).map(block).collect(),
            closed_at: vec![0; geometry.blocks() as usize],
            logs: (0..geometry.dies).map(log).collect(),
            victims: Victims::new(cleaning, geometry.dies, geometry.blocks(), geometry.pages_per_block, seed),
            host_pages: 0,
            moved_pages: 0,
            erases: 0,
        }
    }

    /// Bytes of memory that the map of a device of this shape takes: 4 for each logical and each physical page, 28 for
    /// each block.
    pub const fn memory_bytes(geometry: &Geometry) -> u64 {
        let block = size_of::<Block>() + size_of::<u64>() + 3 * size_of::<u32>();
        4 * (geometry.logical_pages as u64 + geometry.pages()) + block as u64 * geometry.blocks() as u64
    }

    /// The device's shape.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The physical page of a logical page, if it was written.
    pub fn locate(&self, page: u32) -> Option<u32> {
        Some(self.physical[page as usize]).filter(|&physical| physical != NONE)
    }

    /// The die of a physical page.
    pub fn die_of(&self, physical: u32) -> u32 {
        self.blocks[self.geometry.block_of(physical) as usize].die
    }

    /// Pages that the host wrote.
    pub fn host_pages(&self) -> u64 {
        self.host_pages
    }

    /// Pages that cleaning moved.
    pub fn moved_pages(&self) -> u64 {
        self.moved_pages
    }

    /// Blocks erased.
    pub fn erases(&self) -> u64 {
        self.erases
    }

    /// True if a die may take another page. Its live pages may exceed an even share by a twentieth of the
    /// over-provisioned pages. Without this limit, rewrites that leave one die for the others would fill those. Chance
    /// alone would make dies unequal enough for the fullest to slow the rest. A die below the limit always exists.
    pub fn has_room(&self, die: u32) -> bool {
        let g = &self.geometry;
        let even = g.logical_pages / g.dies;
        let most = (g.blocks_per_die - Geometry::spare_blocks(self.pace.start_blocks)) * g.pages_per_block;
        self.logs[die as usize].live <= even + most.saturating_sub(even) / 20
    }

    /// Prefetches the map entry of a page that will be written soon; the map is too large for a cache.
    #[inline]
    pub fn expect_write(&self, page: u32) {
        prefetch(&self.physical, page as usize);
    }

    /// Writes a logical page to a die that may take it ([`Ftl::has_room`]).
    ///
    /// # Panics
    /// When every page of the die is live.
    pub fn write(&mut self, page: u32, die: u32) -> Work {
        let mut work = Work::default();
        if self.logs[die as usize].host.written == self.geometry.pages_per_block {
            while self.logs[die as usize].free.len() <= 1 {
                self.clean(die, u64::MAX, &mut work);
            }
        }
        self.discard(page);
        let physical = self.append(die, false, page);
        self.physical[page as usize] = physical;
        self.host_pages += 1;
        self.keep_pace(die, &mut work);
        work
    }

    /// Forgets a logical page.
    #[inline]
    pub fn discard(&mut self, page: u32) {
        let old = std::mem::replace(&mut self.physical[page as usize], NONE);
        if old == NONE {
            return;
        }
        self.logical[old as usize] = NONE;
        let number = self.geometry.block_of(old);
        let block = &mut self.blocks[number as usize];
        block.valid -= 1;
        self.logs[block.die as usize].live -= 1;
        if block.state == State::Closed {
            self.victims.invalidated(block.die, number, block.valid);
        }
    }

    /// Puts a page at the end of a die's log.
    #[inline]
    fn append(&mut self, die: u32, moved: bool, page: u32) -> u32 {
        let pages = self.geometry.pages_per_block;
        let log = &mut self.logs[die as usize];
        log.live += u32::from(!moved);
        let open = if moved { &mut log.moved } else { &mut log.host };
        if open.written == pages {
            let block = log.free.pop().expect("cleaning keeps a block free");
            self.blocks[block as usize].state = State::Open;
            *open = Open { block, written: 0 };
        }
        let physical = open.block * pages + open.written;
        open.written += 1;
        let block = &mut self.blocks[open.block as usize];
        block.valid += 1;
        self.logical[physical as usize] = page;
        if open.written == pages {
            block.state = State::Closed;
            self.closed_at[open.block as usize] = self.host_pages;
            self.victims.close(die, open.block, block.valid);
        }
        physical
    }

    /// Cleans as much as one host write pays for.
    #[inline]
    fn keep_pace(&mut self, die: u32, work: &mut Work) {
        let log = &mut self.logs[die as usize];
        if !log.cleaning {
            if log.free.len() >= self.pace.start_blocks as usize {
                return;
            }
            log.cleaning = true;
        }
        if log.victim.is_none() && !self.choose(die) {
            return;
        }
        let log = &mut self.logs[die as usize];
        log.paid += log.victim.expect("one was chosen").pace;
        let moves = log.paid / Self::ONE;
        log.paid %= Self::ONE;
        self.clean(die, moves, work);
    }

    /// Chooses a victim. False when no block of the die is worth cleaning.
    fn choose(&mut self, die: u32) -> bool {
        let pages = self.geometry.pages_per_block;
        let Some(block) = self.victims.take(die, &self.blocks, &self.closed_at, pages, self.host_pages) else {
            return false;
        };
        let record = &mut self.blocks[block as usize];
        record.state = State::Cleaning;
        let valid = u64::from(record.valid);
        let pace = match self.pace.moves_per_write {
            Some(moves) => (moves * Self::ONE as f64) as u64,
            None => (valid * Self::ONE).div_ceil((u64::from(pages) - valid).max(1)),
        };
        self.logs[die as usize].victim = Some(Victim { block, page: 0, pace });
        true
    }

    /// Moves up to `moves` pages out of the die's victim and erases it when none is left.
    ///
    /// # Panics
    /// When no block can be cleaned although one is needed, which a device with more physical than logical pages
    /// and its spare blocks never meets.
    fn clean(&mut self, die: u32, moves: u64, work: &mut Work) {
        if self.logs[die as usize].victim.is_none() {
            assert!(self.choose(die), "a die without a block to clean");
        }
        let pages = self.geometry.pages_per_block;
        let mut victim = self.logs[die as usize].victim.expect("one was chosen");
        let mut left = moves;
        while self.blocks[victim.block as usize].valid > 0 {
            let from = victim.block * pages + victim.page;
            let page = self.logical[from as usize];
            // The map is too large for a cache, so the entry of a page that moves soon is prefetched.
            if let Some(&soon) = self.logical.get(from as usize + Self::AHEAD) {
                prefetch(&self.physical, soon as usize);
            }
            if page != NONE {
                if left == 0 {
                    self.logs[die as usize].victim = Some(victim);
                    return;
                }
                left -= 1;
                self.logical[from as usize] = NONE;
                self.blocks[victim.block as usize].valid -= 1;
                self.physical[page as usize] = self.append(die, true, page);
                self.moved_pages += 1;
                work.moves += 1;
            }
            victim.page += 1;
        }
        self.blocks[victim.block as usize].state = State::Free;
        self.erases += 1;
        work.erases += 1;
        let log = &mut self.logs[die as usize];
        log.victim = None;
        log.free.push(victim.block);
        log.cleaning = log.free.len() < self.pace.stop_blocks as usize;
    }

    /// Checks that the map is one to one between live logical pages and valid physical pages, that counts equal a
    /// recount, and that every block is in one place.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let pages = self.geometry.pages_per_block;
        let mut valid = vec![0u16; self.blocks.len()];
        let mut live = 0u32;
        for (page, &physical) in self.physical.iter().enumerate() {
            if physical != NONE {
                assert_eq!(self.logical[physical as usize], page as u32, "logical page {page}");
                valid[(physical / pages) as usize] += 1;
                live += 1;
            }
        }
        assert_eq!(self.logs.iter().map(|log| log.live).sum::<u32>(), live);
        assert_eq!(self.logical.iter().filter(|&&page| page != NONE).count(), live as usize, "valid physical pages");
        for (number, block) in self.blocks.iter().enumerate() {
            assert_eq!(block.valid, valid[number], "valid pages of block {number}");
        }
        let in_state = |state| self.blocks.iter().filter(|block| block.state == state).count();
        assert_eq!(self.logs.iter().map(|log| log.free.len()).sum::<usize>(), in_state(State::Free));
        assert_eq!(self.logs.iter().filter(|log| log.victim.is_some()).count(), in_state(State::Cleaning));
        let open = self.logs.iter().flat_map(|log| [log.host, log.moved]).filter(|open| open.written < pages).count();
        assert_eq!(open, in_state(State::Open));
    }
}

#[cfg(test)]
#[path = "ftl_tests.rs"]
mod tests;
