//! The second at which each dirty page first differed from the backing store, and the pages of each second.
//!
//! Pages of one second form a list through an array, and seconds are sorted. So entering, finding, moving and
//! removing a page needs no search through others, and the oldest pages come first. A dirty page takes 24 bytes:
//! 19 here, 5 for finding it.

use super::numbers::Numbers;
use std::collections::BTreeMap;
use zerocopy::FromZeros;

/// Stands for no number.
const NONE: u32 = u32::MAX;
/// Most seconds before the origin for which an age can be kept: 68 years.
const BEFORE: u64 = 1 << 31;
/// Least number of pages that the table has capacity for.
const ROOM_MIN: usize = 1 << 10;

/// A dirty page.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, packed)]
struct Aged {
    page_low: u32,
    page_high: u16,
    /// Not 0 if memory alone has the page's newest version.
    in_memory: u8,
    /// Second since which the page differs, from the origin.
    since: u32,
    /// Neighbours among the pages of that second. `after` of a free entry is the next free entry.
    before: u32,
    after: u32,
}

/// Bytes of a dirty page, with those for finding it.
pub const PAGE_BYTES: u64 = size_of::<Aged>() as u64 + 5;

impl Aged {
    fn page(self) -> u64 {
        u64::from(self.page_high) << 32 | u64::from(self.page_low)
    }
}

/// The pages of one second, in the order in which they were entered.
#[derive(Clone, Copy)]
struct Moment {
    first: u32,
    last: u32,
    pages: u32,
}

/// Times since which pages differ from the backing store.
pub struct Ages {
    pages: Vec<Aged>,
    free: u32,
    numbers: Numbers,
    moments: BTreeMap<u32, Moment>,
    /// Cache time of second 0.
    origin: u64,
}

impl Ages {
    /// No ages yet, of a cache whose clock shows this. `space` pages can be entered before the hash table grows.
    pub fn new(space: usize, clock: u64) -> Self {
        let space = space.max(ROOM_MIN);
        Ages {
            pages: Vec::new(),
            free: NONE,
            numbers: numbers(space),
            moments: BTreeMap::new(),
            origin: clock.saturating_sub(BEFORE),
        }
    }

    /// True if no page differs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pages that differ.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Bytes that the ages take.
    pub fn memory_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<Aged>() + self.numbers.memory_bytes()
    }

    fn find(&self, page: u64) -> Option<usize> {
        self.numbers.get(page, |number| self.pages[number as usize].page()).map(|number| number as usize)
    }

    fn second(&self, clock: u64) -> u32 {
        clock.saturating_sub(self.origin).min(u64::from(NONE)) as u32
    }

    fn clock_at(&self, second: u32) -> u64 {
        self.origin.saturating_add(u64::from(second))
    }

    /// Time since which a page differs, in seconds of cache time.
    pub fn since(&self, page: u64) -> Option<u64> {
        self.find(page).map(|number| self.clock_at(self.pages[number].since))
    }

    /// Enters a page as differing since then, unless it does already.
    pub fn insert(&mut self, page: u64, since: u64) {
        if self.find(page).is_some() {
            return;
        }
        if self.numbers.is_full() {
            self.grow();
        }
        let fresh = Aged {
            page_low: page as u32,
            page_high: (page >> 32) as u16,
            in_memory: 0,
            since: self.second(since),
            before: NONE,
            after: NONE,
        };
        let number = self.free;
        let number = if number == NONE {
            self.pages.push(fresh);
            self.pages.len() as u32 - 1
        } else {
            self.free = std::mem::replace(&mut self.pages[number as usize], fresh).after;
            number
        };
        let pages = &self.pages;
        self.numbers.insert(page, number, |number| pages[number as usize].page());
        self.link(number);
    }

    fn grow(&mut self) {
        let space = 2 * self.len() + ROOM_MIN;
        let mut numbers = numbers(space);
        let pages = &self.pages;
        for moment in self.moments.values() {
            let mut at = moment.first;
            while at != NONE {
                numbers.insert(pages[at as usize].page(), at, |number| pages[number as usize].page());
                at = pages[at as usize].after;
            }
        }
        self.numbers = numbers;
    }

    /// Puts a page behind the others of its second.
    fn link(&mut self, number: u32) {
        let since = self.pages[number as usize].since;
        let moment = self.moments.entry(since).or_insert(Moment { first: number, last: NONE, pages: 0 });
        let last = std::mem::replace(&mut moment.last, number);
        moment.pages += 1;
        self.pages[number as usize].before = last;
        self.pages[number as usize].after = NONE;
        if last != NONE {
            self.pages[last as usize].after = number;
        }
    }

    fn unlink(&mut self, number: u32) {
        let Aged { since, before, after, .. } = self.pages[number as usize];
        let moment = self.moments.get_mut(&since).expect("its second has it");
        moment.pages -= 1;
        match before {
            NONE => moment.first = after,
            before => self.pages[before as usize].after = after,
        }
        match after {
            NONE => moment.last = before,
            after => self.pages[after as usize].before = before,
        }
        if moment.pages == 0 {
            self.moments.remove(&since);
        }
    }

    /// Removes a page that does not differ any more.
    pub fn remove(&mut self, page: u64) {
        let pages = &self.pages;
        let Some(number) = self.numbers.remove(page, |number| pages[number as usize].page()) else { return };
        self.unlink(number);
        self.pages[number as usize].after = std::mem::replace(&mut self.free, number);
    }

    /// Moves a page that differs to this time, unless it differs since a later one.
    pub fn rejuvenate(&mut self, page: u64, since: u64) {
        let (Some(number), since) = (self.find(page), self.second(since)) else { return };
        if self.pages[number].since < since {
            self.unlink(number as u32);
            self.pages[number].since = since;
            self.link(number as u32);
        }
    }

    /// Notes whether memory alone has the newest version of a page that differs.
    pub fn set_in_memory(&mut self, page: u64, in_memory: bool) {
        if let Some(number) = self.find(page) {
            self.pages[number].in_memory = u8::from(in_memory);
        }
    }

    /// True if memory alone has the newest version of a page.
    pub fn is_in_memory(&self, page: u64) -> bool {
        self.find(page).is_some_and(|number| self.pages[number].in_memory != 0)
    }

    /// Pages with the second since which each differs, the oldest first.
    pub fn oldest_first(&self) -> impl Iterator<Item = (u64, u64)> {
        self.moments.iter().flat_map(move |(&since, moment)| {
            let next = move |&at: &u32| Some(self.pages[at as usize].after).filter(|&after| after != NONE);
            let since = self.clock_at(since);
            std::iter::successors(Some(moment.first), next).map(move |at| (self.pages[at as usize].page(), since))
        })
    }

    /// The seconds since which any page differs, ascending, each with its number of pages.
    pub fn moments(&self) -> impl Iterator<Item = (u64, u64)> {
        self.moments.iter().map(|(&since, moment)| (self.clock_at(since), moment.pages.into()))
    }
}

/// A hash table for so many pages.
fn numbers(space: usize) -> Numbers {
    // The table counts as full before the last page.
    let space = (space + 8).min(NONE as usize - 1);
    Numbers::new(space, space as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use std::collections::BTreeMap;

    #[test]
    fn they_agree_with_a_map_and_the_oldest_are_the_first() {
        for seed in 0..4 {
            let mut random = Random::new(seed);
            let start = [0, 5, 1 << 40, u64::MAX - 100_000][seed as usize];
            let (mut ages, mut model, mut clock) = (Ages::new(0, start), BTreeMap::new(), start);
            for step in 0..60_000u64 {
                let page = random.below(6000) << (random.below(2) * 30);
                match random.below(10) {
                    0..5 => {
                        ages.insert(page, clock);
                        model.entry(page).or_insert((clock, false));
                    }
                    5 | 6 => {
                        ages.remove(page);
                        model.remove(&page);
                    }
                    7 => {
                        let since = clock.saturating_sub(random.below(50)).max(start);
                        ages.rejuvenate(page, since);
                        model.entry(page).and_modify(|aged| aged.0 = aged.0.max(since));
                    }
                    8 => {
                        let in_memory = random.chance(0.5);
                        ages.set_in_memory(page, in_memory);
                        model.entry(page).and_modify(|aged| aged.1 = in_memory);
                    }
                    _ => clock += u64::from(random.chance(0.1)),
                }
                let what = format!("seed {seed}, step {step}, page {page}");
                assert_eq!(ages.since(page), model.get(&page).map(|aged| aged.0), "{what}");
                assert_eq!(ages.is_in_memory(page), model.get(&page).is_some_and(|aged| aged.1), "{what}");
                if step % 1000 == 0 {
                    let listed: Vec<(u64, u64)> = ages.oldest_first().collect();
                    assert!(listed.is_sorted_by_key(|&(_, since)| since), "{what}");
                    assert_eq!(listed.len(), ages.len(), "{what}");
                    assert_eq!(
                        listed.into_iter().collect::<BTreeMap<_, _>>(),
                        model.iter().map(|(&page, aged)| (page, aged.0)).collect(),
                        "{what}"
                    );
                    assert_eq!(ages.moments().map(|(_, pages)| pages).sum::<u64>(), model.len() as u64, "{what}");
                }
            }
            assert!(ages.len() > 2 * ROOM_MIN, "it has grown: {}", ages.len());
        }
    }

    #[test]
    fn a_dirty_page_costs_twenty_four_bytes_at_most() {
        let mut ages = Ages::new(1 << 16, 0);
        (0..1 << 16).for_each(|page| ages.insert(page, page / 100));
        let each = ages.memory_bytes() as f64 / f64::from(1 << 16);
        assert!(each <= PAGE_BYTES as f64 + 0.1, "{each}");
        assert_eq!(PAGE_BYTES, 24);
    }
}
