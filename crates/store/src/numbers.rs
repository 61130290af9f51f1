//! A hash table from pages to small numbers that stores no pages: its owner knows the page of each number. A cell takes
//! four bytes, without a pointer or a length.

use entresol_core::Random;

/// A cell without a number. The kernel hands out zeroed memory, which is touched only when it is used.
const EMPTY: u32 = 0;
/// Cells for every four numbers: linear probing at a load of 0.8 at most.
const CELLS_OF_FOUR: usize = 5;

/// Numbers by page, by open addressing with linear probing. The lower bits of a cell are its number plus one. The other
/// bits come from the page's hash, so that nearly every comparison of pages finds them equal.
pub struct Numbers {
    cells: Vec<u32>,
    /// Bits of a cell that hold its number.
    bits: u32,
    len: usize,
}

impl Numbers {
    /// An empty table with capacity for `space` pages, for numbers below `end`.
    pub fn new(space: usize, end: u32) -> Self {
        assert!(end < u32::MAX, "{end} is no number");
        Numbers { cells: vec![EMPTY; Self::cells_of(space)], bits: 32 - end.leading_zeros(), len: 0 }
    }

    const fn cells_of(space: usize) -> usize {
        (space * CELLS_OF_FOUR).div_ceil(4) + 1
    }

    /// Bytes of a table with capacity for `space` pages.
    pub fn bytes_of(space: u64) -> u64 {
        (Self::cells_of(space as usize) * size_of::<u32>()) as u64
    }

    /// True if the table has as many pages as it has capacity for.
    pub fn is_full(&self) -> bool {
        self.len + 1 >= self.cells.len() / CELLS_OF_FOUR * 4
    }

    /// Raises the capacity to `space` pages.
    pub fn grow(&mut self, space: usize, page_of: impl Fn(u32) -> u64) {
        let end = ((1u64 << self.bits) - 1) as u32;
        let mut grown = Numbers::new(space, end);
        for number in self.cells.iter().filter(|&&cell| cell != EMPTY).map(|&cell| self.number(cell)) {
            grown.insert(page_of(number), number, &page_of);
        }
        *self = grown;
    }

    /// True if the table has no number.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Numbers in the table.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes that the table takes.
    pub fn memory_bytes(&self) -> usize {
        self.cells.capacity() * size_of::<u32>()
    }

    /// Position at which the search for a page with this hash begins.
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.cells.len() as u128) >> 64) as usize
    }

    /// The bits of a hash that a cell keeps, shifted to where the cell keeps them.
    fn tag(&self, hash: u64) -> u32 {
        ((hash & u64::from(u32::MAX >> self.bits.min(31))) << self.bits) as u32
    }

    fn number(&self, cell: u32) -> u32 {
        (u64::from(cell) & ((1 << self.bits) - 1)) as u32 - 1
    }

    fn cell(&self, tag: u32, number: u32) -> u32 {
        tag | (number + 1)
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.cells.len() { 0 } else { at + 1 }
    }

    /// Position of a page; as the error, the position at which the page would be put.
    fn locate(&self, page: u64, page_of: impl Fn(u32) -> u64) -> Result<usize, usize> {
        let hash = Random::mix(page);
        let tag = self.tag(hash);
        let mut at = self.home(hash);
        loop {
            let cell = self.cells[at];
            if cell == EMPTY {
                return Err(at);
            }
            let number = self.number(cell);
            if cell == self.cell(tag, number) && page_of(number) == page {
                return Ok(at);
            }
            at = self.after(at);
        }
    }

    /// Fetches the first cell of a page's search into the processor's caches.
    #[inline]
    pub fn prefetch(&self, page: u64) {
        entresol_core::prefetch(&self.cells, self.home(Random::mix(page)));
    }

    /// The number of a page, if the table has one.
    pub fn get(&self, page: u64, page_of: impl Fn(u32) -> u64) -> Option<u32> {
        self.locate(page, page_of).ok().map(|at| self.number(self.cells[at]))
    }

    /// Gives a page a number, and returns the previous one.
    pub fn insert(&mut self, page: u64, number: u32, page_of: impl Fn(u32) -> u64) -> Option<u32> {
        let cell = self.cell(self.tag(Random::mix(page)), number);
        match self.locate(page, page_of) {
            Ok(at) => {
                let previous = std::mem::replace(&mut self.cells[at], cell);
                Some(self.number(previous))
            }
            Err(at) => {
                self.cells[at] = cell;
                self.len += 1;
                assert!(self.len < self.cells.len(), "a table without an empty place never ends a search");
                None
            }
        }
    }

    /// Forgets a page, and returns the number that it had.
    pub fn remove(&mut self, page: u64, page_of: impl Fn(u32) -> u64) -> Option<u32> {
        let mut hole = self.locate(page, &page_of).ok()?;
        let number = self.number(self.cells[hole]);
        self.len -= 1;
        let len = self.cells.len();
        let distance = |from: usize, to: usize| if to >= from { to - from } else { to + len - from };
        let mut at = hole;
        loop {
            at = self.after(at);
            let cell = self.cells[at];
            if cell == EMPTY {
                break;
            }
            // A number whose search passes over the hole moves into it.
            let home = self.home(Random::mix(page_of(self.number(cell))));
            if distance(home, at) >= distance(hole, at) {
                self.cells[hole] = cell;
                hole = at;
            }
        }
        self.cells[hole] = EMPTY;
        Some(number)
    }

    /// Forgets every page.
    pub fn clear(&mut self) {
        self.cells.fill(EMPTY);
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn it_agrees_with_a_map_at_any_load() {
        for (seed, space, end) in [(1, 1, 1), (2, 7, 7), (3, 100, 128), (4, 1000, 5000), (5, 300, u32::MAX - 1)] {
            let mut random = Random::new(seed);
            let mut numbers = Numbers::new(space, end);
            let mut pages: HashMap<u32, u64> = HashMap::new();
            let mut model: HashMap<u64, u32> = HashMap::new();
            for step in 0..20_000 {
                let page = random.below(2 * space as u64);
                let what = format!("seed {seed}, step {step}, page {page}");
                let page_of = |number: u32| pages[&number];
                match random.below(3) {
                    0 => assert_eq!(numbers.get(page, page_of), model.get(&page).copied(), "{what}"),
                    1 if model.len() < space || model.contains_key(&page) => {
                        let number = random.below(u64::from(end)) as u32;
                        if pages.get(&number).is_none_or(|&other| other == page) {
                            assert_eq!(numbers.insert(page, number, page_of), model.insert(page, number), "{what}");
                            pages.retain(|_, &mut other| other != page);
                            pages.insert(number, page);
                        }
                    }
                    _ => {
                        assert_eq!(numbers.remove(page, page_of), model.remove(&page), "{what}");
                        pages.retain(|_, &mut other| other != page);
                    }
                }
                assert_eq!(numbers.len(), model.len(), "{what}");
            }
            numbers.clear();
            assert!((0..2 * space as u64).all(|page| numbers.get(page, |_| page).is_none()));
        }
    }
}
