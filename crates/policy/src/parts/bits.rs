//! A set of pages, one bit each.

use entresol_core::Page;

/// A fixed-size set of pages.
#[derive(Clone, Debug)]
pub struct Bits {
    words: Vec<u64>,
    count: usize,
}

impl Bits {
    /// The empty set over handles below `pages`.
    pub fn new(pages: usize) -> Self {
        Bits { words: vec![0; pages.div_ceil(64)], count: 0 }
    }

    /// True if the page is in the set.
    #[inline(always)]
    pub fn contains(&self, page: Page) -> bool {
        self.words[page.index() / 64] >> (page.0 % 64) & 1 == 1
    }

    /// Adds a page; true if it was absent.
    #[inline(always)]
    pub fn insert(&mut self, page: Page) -> bool {
        let word = &mut self.words[page.index() / 64];
        let bit = 1 << (page.0 % 64);
        let absent = *word & bit == 0;
        *word |= bit;
        self.count += usize::from(absent);
        absent
    }

    /// Removes a page; true if it was present.
    #[inline(always)]
    pub fn remove(&mut self, page: Page) -> bool {
        let word = &mut self.words[page.index() / 64];
        let bit = 1 << (page.0 % 64);
        let present = *word & bit != 0;
        *word &= !bit;
        self.count -= usize::from(present);
        present
    }

    /// Number of pages in the set.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True when the set has no page.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.words.capacity() * 8
    }
}
