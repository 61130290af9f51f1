//! MIN: evicts the page whose next use is farthest away, so no policy that admits every page has fewer misses.
//!
//! Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 1966; proof of
//! optimality in Mattson, Gecsei, Slutz, Traiger 1970 (OPT).
//!
//! Readings. Pages that are never used again are interchangeable for misses; the one that became so last goes first.
//! This order does not depend on the size of the cache, so the stack property holds. Writes are not considered: see
//! `min-clean`.
//!
//! A hit makes a page's old next use, which has just come, worthless, and any key in the past is below every key in
//! the future. So a hit leaves its old key in the heap, where it sinks out of the way, and pushes a new one, which as
//! a rule rises a step or two; keys are told from worthless ones by a glance at the page's current next use. When the
//! heap is full it is rid of them in one pass, which costs a few operations per request and needs no place of each
//! page in the heap.

use crate::info::{Config, Info};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::Bits;
use entresol_core::{NEVER, Outcome, Page, Request, Tier};

/// Next use of a page that is not held. No request follows the first one at its own index 0.
const ABSENT: u32 = 0;
const ARITY: usize = 4;
/// Spare entries for worthless keys, so that a clearing pays even for a cache of a few pages.
const SLACK: usize = 64;

/// Belady's optimal replacement.
#[derive(Clone, Debug)]
pub struct Min {
    capacity: usize,
    held: usize,
    /// Next use of each page that is held.
    next: Vec<u32>,
    future: FarHeap,
    /// Pages that are never used again.
    dead: Vec<Page>,
    dirty: Bits,
    /// Victims that were refused, until the next request.
    refused: Vec<(Page, u32)>,
}

/// A max-heap of next uses in which keys may be out of date.
#[derive(Clone, Debug)]
struct FarHeap {
    /// Next use in the upper half, page in the lower.
    keys: Vec<u64>,
    limit: usize,
}

#[inline(always)]
const fn key(page: Page, next_use: u32) -> u64 {
    (next_use as u64) << 32 | page.0 as u64
}

#[inline(always)]
const fn parts(key: u64) -> (Page, u32) {
    (Page(key as u32), (key >> 32) as u32)
}

impl FarHeap {
    fn new(capacity: usize) -> Self {
        let limit = 2 * capacity + SLACK;
        FarHeap { keys: Vec::with_capacity(limit), limit }
    }

    #[inline]
    fn push(&mut self, page: Page, next_use: u32, next: &[u32]) {
        if self.keys.len() == self.limit {
            self.clear_worthless(next);
        }
        let key = key(page, next_use);
        let mut place = self.keys.len();
        self.keys.push(key);
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.keys[parent] >= key {
                break;
            }
            self.keys[place] = self.keys[parent];
            place = parent;
        }
        self.keys[place] = key;
    }

    #[inline]
    fn pop(&mut self) -> Option<(Page, u32)> {
        let last = self.keys.pop()?;
        if self.keys.is_empty() {
            return Some(parts(last));
        }
        let top = self.keys[0];
        self.sink(0, last);
        Some(parts(top))
    }

    /// Puts a key at a place or below it.
    #[inline]
    fn sink(&mut self, mut place: usize, key: u64) {
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.keys.len());
            let Some(child) = children.max_by_key(|&child| self.keys[child]) else { break };
            if self.keys[child] <= key {
                break;
            }
            self.keys[place] = self.keys[child];
            place = child;
        }
        self.keys[place] = key;
    }

    #[cold]
    fn clear_worthless(&mut self, next: &[u32]) {
        self.keys.retain(|&key| {
            let (page, next_use) = parts(key);
            next[page.index()] == next_use
        });
        for place in (0..self.keys.len().div_ceil(ARITY)).rev() {
            self.sink(place, self.keys[place]);
        }
    }
}

impl Min {
    /// Records the next use of a held page.
    #[inline]
    fn expect(&mut self, page: Page, next_use: u32) {
        self.next[page.index()] = next_use;
        if next_use == NEVER {
            self.dead.push(page);
        } else {
            self.future.push(page, next_use, &self.next);
        }
    }

    /// The page whose next use is farthest away, taken out of the order.
    #[inline]
    fn farthest(&mut self) -> Option<(Page, u32)> {
        while let Some(page) = self.dead.pop() {
            if self.next[page.index()] == NEVER {
                return Some((page, NEVER));
            }
        }
        while let Some((page, next_use)) = self.future.pop() {
            if self.next[page.index()] == next_use {
                return Some((page, next_use));
            }
        }
        None
    }

    #[inline]
    fn make_room<D: Driver>(&mut self, driver: &mut D) -> bool {
        let victim = loop {
            match self.farthest() {
                Some((page, _)) if driver.may_evict(page, Tier::TOP) => break Some(page),
                Some(refused) => self.refused.push(refused),
                None => break None,
            }
        };
        while let Some((page, next_use)) = self.refused.pop() {
            self.expect(page, next_use);
        }
        let Some(victim) = victim else { return false };
        self.next[victim.index()] = ABSENT;
        self.held -= 1;
        driver.evict(victim, Tier::TOP, self.dirty.remove(victim));
        true
    }
}

impl Policy for Min {
    const INFO: Info = Info {
        name: "min",
        family: "offline",
        summary: "Belady's optimum: the page used farthest in the future goes; a bound for policies that admit every page",
        paper: "Belady: A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 1966",
        future: true,
        stack: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, _options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0].min(config.pages.max(1));
        Ok(Min {
            capacity,
            held: 0,
            next: vec![ABSENT; config.pages],
            future: FarHeap::new(capacity),
            dead: Vec::with_capacity(capacity),
            dirty: Bits::new(config.pages),
            refused: Vec::with_capacity(capacity),
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let hit = self.next[page.index()] != ABSENT;
        if !hit {
            if self.held == self.capacity && !self.make_room(driver) {
                return driver.bypass(request);
            }
            self.held += 1;
            driver.admit(request, Tier::TOP);
        } else {
            driver.overwrite(request, Tier::TOP);
        }
        self.expect(page, driver.next_use());
        if request.op.is_write() {
            self.dirty.insert(page);
        }
        if hit { Outcome::Hit(Tier::TOP) } else { Outcome::ADMITTED }
    }

    fn state(&self, page: Page) -> PageState {
        let held = self.next[page.index()] != ABSENT;
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: self.dirty.contains(page), known: held }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.held
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("never_used_again", self.dead.len() as f64);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.next, page.index());
    }

    fn memory_bytes(&self) -> usize {
        let lists = self.dead.capacity() * size_of::<Page>() + self.refused.capacity() * size_of::<(Page, u32)>();
        self.next.capacity() * 4 + self.future.keys.capacity() * 8 + lists + self.dirty.memory_bytes()
    }
}
