//! An indexed binary min-heap: pages with a key that can change.

use entresol_core::Page;

const ABSENT: u32 = u32::MAX;

/// Pages ordered by a 64-bit key, the smallest first. Ties are broken by page handle, so that results do not
/// depend on the history of the heap. 4 bytes a handle and 16 a page held.
#[derive(Clone, Debug)]
pub struct IndexHeap {
    /// Key and page, in heap order with four children a node: shallower than two, and the children share a line.
    nodes: Vec<(u64, u32)>,
    /// Place of each page in `nodes`.
    place: Vec<u32>,
}

const ARITY: usize = 4;

impl IndexHeap {
    /// An empty heap over handles below `pages`, with room for `capacity` of them.
    pub fn new(pages: usize, capacity: usize) -> Self {
        IndexHeap { nodes: Vec::with_capacity(capacity.min(pages)), place: vec![ABSENT; pages] }
    }

    /// Number of pages held.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True when no page is held.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// True if the page is held.
    #[inline(always)]
    pub fn contains(&self, page: Page) -> bool {
        self.place[page.index()] != ABSENT
    }

    /// The key of a page that is held.
    #[inline(always)]
    pub fn key(&self, page: Page) -> u64 {
        self.nodes[self.place[page.index()] as usize].0
    }

    /// The page with the smallest key.
    #[inline(always)]
    pub fn min(&self) -> Option<(Page, u64)> {
        self.nodes.first().map(|&(key, page)| (Page(page), key))
    }

    /// The page with the smallest key among those that satisfy a condition. Costs a visit of every rejected page
    /// and sorting among the candidates; rejections are rare.
    pub fn min_where(&self, mut wanted: impl FnMut(Page) -> bool) -> Option<(Page, u64)> {
        let (page, key) = self.min()?;
        if wanted(page) {
            return Some((page, key));
        }
        let rest = self.nodes[1..].iter().filter(|&&(_, page)| wanted(Page(page)));
        rest.min().map(|&(key, page)| (Page(page), key))
    }

    /// Adds a page or changes its key.
    #[inline]
    pub fn set(&mut self, page: Page, key: u64) {
        let place = self.place[page.index()];
        if place == ABSENT {
            self.nodes.push((key, page.0));
            self.rise(self.nodes.len() - 1);
            return;
        }
        let old = self.nodes[place as usize].0;
        self.nodes[place as usize].0 = key;
        if key < old {
            self.rise(place as usize);
        } else {
            self.sink(place as usize);
        }
    }

    /// Removes a page; true if it was held.
    #[inline]
    pub fn remove(&mut self, page: Page) -> bool {
        let place = self.place[page.index()];
        if place == ABSENT {
            return false;
        }
        let place = place as usize;
        self.place[page.index()] = ABSENT;
        let last = self.nodes.pop().expect("a page that is held");
        if place < self.nodes.len() {
            let removed = std::mem::replace(&mut self.nodes[place], last);
            self.place[last.1 as usize] = place as u32;
            if last < removed {
                self.rise(place);
            } else {
                self.sink(place);
            }
        }
        true
    }

    fn rise(&mut self, mut place: usize) {
        let node = self.nodes[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.nodes[parent] <= node {
                break;
            }
            self.put(place, self.nodes[parent]);
            place = parent;
        }
        self.put(place, node);
    }

    fn sink(&mut self, mut place: usize) {
        let node = self.nodes[place];
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.nodes.len());
            let Some(child) = children.min_by_key(|&child| self.nodes[child]) else { break };
            if node <= self.nodes[child] {
                break;
            }
            self.put(place, self.nodes[child]);
            place = child;
        }
        self.put(place, node);
    }

    #[inline(always)]
    fn put(&mut self, place: usize, node: (u64, u32)) {
        self.nodes[place] = node;
        self.place[node.1 as usize] = place as u32;
    }

    /// Loads a page's place into the processor's cache.
    #[inline(always)]
    pub fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.place, page.index());
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<(u64, u32)>() + self.place.capacity() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn behaves_like_a_sorted_map(steps in proptest::collection::vec((0..30u32, proptest::option::of(0..50u64)), 0..300)) {
            let mut heap = IndexHeap::new(30, 30);
            let mut model = BTreeMap::new();
            for (page, key) in steps {
                match key {
                    Some(key) => {
                        heap.set(Page(page), key);
                        model.insert(page, key);
                    }
                    None => prop_assert_eq!(heap.remove(Page(page)), model.remove(&page).is_some()),
                }
                let least = model.iter().map(|(p, k)| (*k, *p)).min().map(|(k, p)| (Page(p), k));
                prop_assert_eq!(heap.min(), least);
                let odd = model.iter().map(|(p, k)| (*k, *p)).filter(|(_, p)| p % 2 == 1).min();
                prop_assert_eq!(heap.min_where(|p| p.0 % 2 == 1), odd.map(|(k, p)| (Page(p), k)));
                prop_assert_eq!(heap.len(), model.len());
            }
        }
    }
}
