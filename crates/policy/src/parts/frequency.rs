//! A single list of pages by frequency, see [`FrequencyLists`].

use super::frequency_lists::FrequencyLists;
use entresol_core::Page;

/// Pages ordered by frequency of use, and by age within a frequency. 12 bytes a handle, 32 a distinct frequency, 4 KiB fixed.
#[derive(Clone, Debug)]
pub struct FrequencyList(FrequencyLists<1>);

impl FrequencyList {
    /// An empty list over handles below `pages`, with room for `capacity` pages.
    pub fn new(pages: usize, capacity: usize) -> Self {
        FrequencyList(FrequencyLists::new(pages, capacity))
    }

    /// Number of pages held.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.0.len(0)
    }

    /// True when no page is held.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty(0)
    }

    /// Sum of the frequencies of all pages held.
    #[inline(always)]
    pub fn total(&self) -> u64 {
        self.0.total(0)
    }

    /// True if the page is held.
    #[inline(always)]
    pub fn contains(&self, page: Page) -> bool {
        self.0.contains(page)
    }

    /// Frequency of a page that is held.
    #[inline(always)]
    pub fn frequency(&self, page: Page) -> u32 {
        self.0.frequency(page)
    }

    /// The lowest frequency of any page held.
    #[inline(always)]
    pub fn min_frequency(&self) -> Option<u32> {
        self.0.min_frequency(0)
    }

    /// The least frequent page; of equals the one that has had its frequency longest.
    #[inline(always)]
    pub fn oldest(&self) -> Option<Page> {
        self.0.oldest(0)
    }

    /// The least frequent page; of equals the one that came to its frequency last.
    #[inline(always)]
    pub fn newest(&self) -> Option<Page> {
        self.0.newest(0)
    }

    /// The first page that satisfies a condition, in the order of eviction: by frequency, then oldest first.
    #[inline(always)]
    pub fn oldest_where(&self, wanted: impl FnMut(Page) -> bool) -> Option<Page> {
        self.0.oldest_where(0, wanted)
    }

    /// The first page that satisfies a condition, by frequency, then newest first.
    #[inline(always)]
    pub fn newest_where(&self, wanted: impl FnMut(Page) -> bool) -> Option<Page> {
        self.0.newest_where(0, wanted)
    }

    /// Adds a page, which is not held, as the newest of its frequency.
    #[inline(always)]
    pub fn insert(&mut self, page: Page, frequency: u32) {
        self.0.insert(0, page, frequency)
    }

    /// Adds a page, which is not held, as the oldest of its frequency.
    #[inline(always)]
    pub fn insert_oldest(&mut self, page: Page, frequency: u32) {
        self.0.insert_oldest(0, page, frequency)
    }

    /// Removes a page that is held; returns its frequency.
    #[inline(always)]
    pub fn remove(&mut self, page: Page) -> u32 {
        self.0.remove(0, page)
    }

    /// Counts one use of a page that is held: it becomes the newest of the next higher frequency, which is
    /// returned. At `u32::MAX` the frequency stays and only the page's age changes.
    #[inline(always)]
    pub fn bump(&mut self, page: Page) -> u32 {
        self.0.bump(0, page)
    }

    /// Makes a page that is held the newest of its own frequency.
    #[inline(always)]
    pub fn refresh(&mut self, page: Page) {
        self.0.refresh(0, page)
    }

    /// Halves all frequencies, rounding down. Where two frequencies become one, the pages of the higher one count
    /// as the newer. Costs a visit of each distinct frequency.
    #[inline(always)]
    pub fn halve(&mut self) {
        self.0.halve(0)
    }

    /// Gives every page the same frequency. Pages of higher frequency go to the old end, so that what was used
    /// most is evicted first (000, section 3.5.2). Costs a visit of each distinct frequency.
    #[inline(always)]
    pub fn collapse(&mut self, frequency: u32) {
        self.0.collapse(0, frequency)
    }

    /// Loads a page's node into the processor's cache.
    #[inline(always)]
    pub fn prefetch(&self, page: Page) {
        self.0.prefetch(page)
    }

    /// Bytes held.
    #[inline(always)]
    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Use(u32),
        Insert(u32, u32),
        InsertOldest(u32, u32),
        Remove(u32),
        Refresh(u32),
        Halve,
        Collapse(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..16u32).prop_map(Step::Use),
            2 => (0..16u32, prop_oneof![0..8u32, 1020..1030u32]).prop_map(|(p, f)| Step::Insert(p, f)),
            1 => (0..16u32, prop_oneof![0..8u32, 1020..1030u32]).prop_map(|(p, f)| Step::InsertOldest(p, f)),
            2 => (0..16u32).prop_map(Step::Remove),
            1 => (0..16u32).prop_map(Step::Refresh),
            1 => Just(Step::Halve),
            1 => (0..2u32).prop_map(Step::Collapse),
        ]
    }

    /// Reference model: (frequency, page) pairs in the order of eviction.
    fn insert(model: &mut Vec<(u32, u32)>, frequency: u32, page: u32) {
        let at = model.iter().position(|&(f, _)| f > frequency).unwrap_or(model.len());
        model.insert(at, (frequency, page));
    }

    fn take(model: &mut Vec<(u32, u32)>, page: u32) -> Option<u32> {
        let at = model.iter().position(|&(_, p)| p == page)?;
        Some(model.remove(at).0)
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_vector(steps in proptest::collection::vec(step(), 0..300)) {
            let mut list = FrequencyList::new(16, 16);
            let mut model: Vec<(u32, u32)> = Vec::new();
            for step in steps {
                match step {
                    Step::Use(p) => match take(&mut model, p) {
                        Some(f) => {
                            insert(&mut model, f + 1, p);
                            prop_assert_eq!(list.bump(Page(p)), f + 1);
                        }
                        None => {
                            insert(&mut model, 1, p);
                            list.insert(Page(p), 1);
                        }
                    },
                    Step::Insert(p, f) => if !list.contains(Page(p)) {
                        insert(&mut model, f, p);
                        list.insert(Page(p), f);
                    },
                    Step::InsertOldest(p, f) => if !list.contains(Page(p)) {
                        let at = model.iter().position(|&(other, _)| other >= f).unwrap_or(model.len());
                        model.insert(at, (f, p));
                        list.insert_oldest(Page(p), f);
                    },
                    Step::Remove(p) => if let Some(f) = take(&mut model, p) {
                        prop_assert_eq!(list.remove(Page(p)), f);
                    },
                    Step::Refresh(p) => if let Some(f) = take(&mut model, p) {
                        insert(&mut model, f, p);
                        list.refresh(Page(p));
                    },
                    Step::Halve => {
                        list.halve();
                        model.iter_mut().for_each(|(f, _)| *f /= 2);
                    }
                    Step::Collapse(f) => {
                        list.collapse(f);
                        // Each list, the lowest frequency first, goes to the old end of the result.
                        let mut joined: Vec<(u32, u32)> = Vec::new();
                        let mut frequencies: Vec<u32> = model.iter().map(|&(f, _)| f).collect();
                        frequencies.dedup();
                        for old in frequencies {
                            let mut group: Vec<_> = model.iter().filter(|e| e.0 == old).map(|e| (f, e.1)).collect();
                            group.append(&mut joined);
                            joined = group;
                        }
                        model = joined;
                    }
                }
                let mut seen = Vec::new();
                list.oldest_where(|p| { seen.push((list.frequency(p), p.0)); false });
                prop_assert_eq!(&seen, &model);
                prop_assert_eq!(list.len(), model.len());
                prop_assert_eq!(list.total(), model.iter().map(|&(f, _)| u64::from(f)).sum::<u64>());
                prop_assert!(list.0.buckets_used() <= 18);
            }
        }
    }
}
