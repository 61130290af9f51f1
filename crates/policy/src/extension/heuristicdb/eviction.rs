//! The eviction and demotion program (000, section 3.5.2), with its data: the pages in NVM by access frequency, and the
//! counting table, which keeps the frequency of pages outside NVM.

use super::profile::Adjustment;
use crate::parts::{FrequencyList, Lists};
use entresol_core::Page;

const ALL: usize = 0;

/// A count that holds for one query.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// The query, from 1; 0 for none. A new query thereby clears the table without a sweep.
    query: u32,
    count: u32,
}

/// Counts of pages outside NVM since the last query was submitted.
#[derive(Clone, Debug)]
struct CountingTable {
    counts: Vec<Count>,
    query: u32,
    /// Most pages counted, and the counted pages with the last accessed first; `None` without a bound.
    bound: Option<(usize, Lists<1>)>,
}

impl CountingTable {
    fn new(pages: usize, bound: usize) -> Self {
        let bound = (bound > 0).then(|| (bound, Lists::new(pages)));
        CountingTable { counts: vec![Count::default(); pages], query: 1, bound }
    }

    #[inline(always)]
    fn contains(&self, page: Page) -> bool {
        self.counts[page.index()].query == self.query
    }

    /// Counts an access and returns the accesses so far.
    #[inline]
    fn add(&mut self, page: Page) -> u32 {
        let count = if self.contains(page) { self.counts[page.index()].count.saturating_add(1) } else { 1 };
        self.set(page, count);
        count
    }

    #[inline]
    fn set(&mut self, page: Page, count: u32) {
        self.counts[page.index()] = Count { query: self.query, count };
        if let Some((most, order)) = &mut self.bound {
            // Counts of earlier queries lie behind those of this one, so they are the first to be forgotten.
            if order.contains(page) {
                order.remove(ALL, page);
            } else if order.len(ALL) == *most {
                let oldest = order.back(ALL).expect("the bound is not zero");
                order.remove(ALL, oldest);
                self.counts[oldest.index()] = Count::default();
            }
            order.push_front(ALL, page);
        }
    }

    #[inline]
    fn remove(&mut self, page: Page) {
        self.counts[page.index()] = Count::default();
        if let Some((_, order)) = &mut self.bound
            && order.contains(page)
        {
            order.remove(ALL, page);
        }
    }
}

/// The pages in NVM, and the frequency of every page.
#[derive(Clone, Debug)]
pub(super) struct EvictionProgram {
    cached: FrequencyList,
    counting: CountingTable,
}

impl EvictionProgram {
    /// Nothing cached, nothing counted. `counted` bounds the counting table; 0 means no bound.
    pub(super) fn new(pages: usize, capacity: usize, counted: usize) -> Self {
        EvictionProgram { cached: FrequencyList::new(pages, capacity), counting: CountingTable::new(pages, counted) }
    }

    #[inline(always)]
    pub(super) fn is_cached(&self, page: Page) -> bool {
        self.cached.contains(page)
    }

    pub(super) fn is_known(&self, page: Page) -> bool {
        self.is_cached(page) || self.counting.contains(page)
    }

    pub(super) fn len(&self) -> usize {
        self.cached.len()
    }

    /// Counts an access and returns the frequency of the page with it.
    #[inline]
    pub(super) fn count(&mut self, page: Page) -> u32 {
        if self.cached.contains(page) { self.cached.bump(page) } else { self.counting.add(page) }
    }

    /// The lowest frequency in NVM.
    #[inline]
    pub(super) fn min_frequency(&self) -> Option<u32> {
        self.cached.min_frequency()
    }

    /// The coldest page that satisfies a condition, of equals the least recently used, and its frequency.
    #[inline]
    pub(super) fn coldest_where(&self, wanted: impl FnMut(Page) -> bool) -> Option<(Page, u32)> {
        self.cached.oldest_where(wanted).map(|page| (page, self.cached.frequency(page)))
    }

    /// Adds a page to NVM with the frequency counted so far.
    #[inline]
    pub(super) fn admit(&mut self, page: Page, frequency: u32) {
        self.counting.remove(page);
        self.cached.insert(page, frequency);
    }

    /// Removes a page from NVM; its frequency is kept for its return.
    #[inline]
    pub(super) fn evict(&mut self, page: Page) {
        let frequency = self.cached.remove(page);
        // A count of zero is the same as none.
        if frequency > 0 {
            self.counting.set(page, frequency);
        }
    }

    /// Makes all pages in NVM equally cold, the most used first in the order of eviction, and forgets all other counts.
    pub(super) fn adjust(&mut self, adjustment: Adjustment) {
        self.cached.collapse(match adjustment {
            Adjustment::Evict => 0,
            Adjustment::Demote => 1,
        });
        self.counting.query += 1;
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, page: Page) {
        self.cached.prefetch(page);
        entresol_core::prefetch(&self.counting.counts, page.index());
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let order = self.counting.bound.as_ref().map_or(0, |(_, order)| order.memory_bytes());
        self.cached.memory_bytes() + self.counting.counts.capacity() * size_of::<Count>() + order
    }
}
