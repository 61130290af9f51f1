//! Choice of the block to clean: greedy (fewest valid pages), FIFO (written longest ago), cost-benefit (Rosenblum and
//! Ousterhout 1992: free share times age over the cost of moving the rest) and d-choices (the emptiest of d drawn at
//! random, Van Houdt 2013).
//!
//! Greedy keeps the closed blocks of a die in one doubly linked list per count of valid pages, so that an invalidation
//! and a choice cost O(1). FIFO needs the order alone; cost-benefit and d-choices look at single blocks and keep them
//! in an array.

use super::ftl::Block;
use entresol_core::Random;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// No block.
pub(super) const NONE: u32 = u32::MAX;

/// Policy by which a die chooses its victim, the block to clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cleaning {
    /// The block with the fewest valid pages.
    Greedy,
    /// The block that was filled longest ago.
    Fifo,
    /// The greatest (1 - u) / 2u times age, u the share of valid pages and age in host writes since it was filled.
    CostBenefit,
    /// The block with the fewest valid pages among this many drawn at random.
    Choices(u32),
}

/// The closed blocks of every die, in the order that the choice needs.
#[derive(Clone, Debug)]
pub(super) enum Victims {
    Buckets(Buckets),
    Queues(Vec<VecDeque<u32>>),
    Sets { sets: Vec<Vec<u32>>, choices: Option<u32>, random: Random },
}

impl Victims {
    pub(super) fn new(cleaning: Cleaning, dies: u32, blocks: u32, pages_per_block: u32, seed: u64) -> Self {
        let sets =
            |choices| Victims::Sets { sets: vec![Vec::new(); dies as usize], choices, random: Random::new(seed) };
        match cleaning {
            Cleaning::Greedy => Victims::Buckets(Buckets::new(dies, blocks, pages_per_block)),
            Cleaning::Fifo => Victims::Queues(vec![VecDeque::new(); dies as usize]),
            Cleaning::CostBenefit => sets(None),
            Cleaning::Choices(choices) => sets(Some(choices)),
        }
    }

    /// Adds a block that has been filled.
    pub(super) fn close(&mut self, die: u32, block: u32, valid: u16) {
        match self {
            Victims::Buckets(buckets) => buckets.insert(die, block, valid),
            Victims::Queues(queues) => queues[die as usize].push_back(block),
            Victims::Sets { sets, .. } => sets[die as usize].push(block),
        }
    }

    /// Notes that a closed block has lost a valid page and has `valid` left.
    #[inline]
    pub(super) fn invalidated(&mut self, die: u32, block: u32, valid: u16) {
        if let Victims::Buckets(buckets) = self {
            buckets.remove(die, block, valid + 1);
            buckets.insert(die, block, valid);
        }
    }

    /// Takes the block to clean next out of the closed blocks of a die; `None` when no block is closed. `clock` counts
    /// host writes, and `closed_at` is its value when each block was filled.
    pub(super) fn take(
        &mut self,
        die: u32,
        blocks: &[Block],
        closed_at: &[u64],
        pages_per_block: u32,
        clock: u64,
    ) -> Option<u32> {
        match self {
            Victims::Buckets(buckets) => buckets.take(die),
            Victims::Queues(queues) => queues[die as usize].pop_front(),
            Victims::Sets { sets, choices, random } => {
                let set = &mut sets[die as usize];
                if set.is_empty() {
                    return None;
                }
                let best = match choices {
                    Some(choices) => (0..*choices)
                        .map(|_| random.below(set.len() as u64) as usize)
                        .min_by_key(|&at| (blocks[set[at] as usize].valid, at)),
                    None => (0..set.len()).max_by(|&a, &b| {
                        let benefit = |at: usize| {
                            let block = &blocks[set[at] as usize];
                            let used = f64::from(block.valid) / f64::from(pages_per_block);
                            (1.0 - used) / (2.0 * used) * (clock - closed_at[set[at] as usize] + 1) as f64
                        };
                        benefit(a).total_cmp(&benefit(b)).then(b.cmp(&a))
                    }),
                };
                best.map(|at| set.swap_remove(at))
            }
        }
    }
}

/// One list of closed blocks for each die and count of valid pages.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    heads: Vec<u32>,
    next: Vec<u32>,
    previous: Vec<u32>,
    /// Of each die, a count below which its lists are empty.
    least: Vec<u16>,
    counts: u32,
}

impl Buckets {
    fn new(dies: u32, blocks: u32, pages_per_block: u32) -> Self {
        let counts = pages_per_block + 1;
        Buckets {
            heads: vec![NONE; (dies * counts) as usize],
            next: vec![NONE; blocks as usize],
            previous: vec![NONE; blocks as usize],
            least: vec![pages_per_block as u16; dies as usize],
            counts,
        }
    }

    #[inline]
    fn insert(&mut self, die: u32, block: u32, valid: u16) {
        let head = &mut self.heads[(die * self.counts + u32::from(valid)) as usize];
        self.next[block as usize] = *head;
        self.previous[block as usize] = NONE;
        if *head != NONE {
            self.previous[*head as usize] = block;
        }
        *head = block;
        let least = &mut self.least[die as usize];
        *least = (*least).min(valid);
    }

    #[inline]
    fn remove(&mut self, die: u32, block: u32, valid: u16) {
        let (next, previous) = (self.next[block as usize], self.previous[block as usize]);
        if previous == NONE {
            self.heads[(die * self.counts + u32::from(valid)) as usize] = next;
        } else {
            self.next[previous as usize] = next;
        }
        if next != NONE {
            self.previous[next as usize] = previous;
        }
    }

    fn take(&mut self, die: u32) -> Option<u32> {
        let first = self.least[die as usize];
        for valid in first..self.counts as u16 {
            let block = self.heads[(die * self.counts + u32::from(valid)) as usize];
            if block != NONE {
                self.least[die as usize] = valid;
                self.remove(die, block, valid);
                return Some(block);
            }
        }
        self.least[die as usize] = self.counts as u16 - 1;
        None
    }
}
