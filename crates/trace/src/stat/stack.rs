//! Exact LRU stack distances in one pass: the number of distinct pages referenced since a page's last reference.
//!
//! Every reference takes the next of `2 x footprint` slots; the slot of a page's newest reference is marked live. The
//! distance of a page is the number of live slots after its own. A bitmap with a Fenwick tree over blocks of 512
//! slots, which stays in the processor's first cache, counts them. When the slots run out the live ones move together,
//! once per `footprint` references at the most. About 13 bytes per page.

const NO_SLOT: u32 = u32::MAX;
const WORDS_PER_BLOCK: usize = 8;
const SLOTS_PER_BLOCK: usize = WORDS_PER_BLOCK * 64;

/// The stack of all pages by recency.
pub(super) struct LruStack {
    slot_of: Vec<u32>,
    page_at: Vec<u32>,
    live: Vec<u64>,
    /// Fenwick tree: entry b counts live slots of the blocks it covers, from 1.
    tree: Vec<u32>,
    next: usize,
    pages: u32,
}

impl LruStack {
    /// An empty stack for page ids below `footprint`.
    pub fn new(footprint: usize) -> Self {
        let slots = (2 * footprint).max(1024).next_multiple_of(SLOTS_PER_BLOCK).min(NO_SLOT as usize);
        let blocks = slots.div_ceil(SLOTS_PER_BLOCK);
        LruStack {
            slot_of: vec![NO_SLOT; footprint],
            page_at: vec![0; slots],
            live: vec![0; blocks * WORDS_PER_BLOCK],
            tree: vec![0; blocks + 1],
            next: 0,
            pages: 0,
        }
    }

    /// References a page: the number of distinct other pages referenced since its last reference, `None` when this
    /// is its first. An LRU cache of c pages hits exactly when the distance is below c.
    #[inline]
    pub fn access(&mut self, page: u32) -> Option<u32> {
        if self.next == self.page_at.len() {
            self.compact();
        }
        let old = self.slot_of[page as usize];
        let distance = if old == NO_SLOT {
            self.pages += 1;
            None
        } else {
            let distance = self.pages - self.live_up_to(old as usize);
            self.live[old as usize / 64] &= !(1 << (old % 64));
            self.add(old as usize, u32::MAX); // minus one, modulo 2^32
            Some(distance)
        };
        let slot = self.next;
        self.next += 1;
        self.slot_of[page as usize] = slot as u32;
        self.page_at[slot] = page;
        self.live[slot / 64] |= 1 << (slot % 64);
        self.add(slot, 1);
        distance
    }

    /// Live slots up to this one, itself included.
    #[inline]
    fn live_up_to(&self, slot: usize) -> u32 {
        let word = slot / 64;
        let mut sum = (self.live[word] << (63 - slot % 64)).count_ones();
        for full in &self.live[word - word % WORDS_PER_BLOCK..word] {
            sum += full.count_ones();
        }
        let mut block = slot / SLOTS_PER_BLOCK;
        while block > 0 {
            sum = sum.wrapping_add(self.tree[block]);
            block &= block - 1;
        }
        sum
    }

    #[inline]
    fn add(&mut self, slot: usize, delta: u32) {
        let mut block = slot / SLOTS_PER_BLOCK + 1;
        while block < self.tree.len() {
            self.tree[block] = self.tree[block].wrapping_add(delta);
            block += block & block.wrapping_neg();
        }
    }

    /// Moves the live slots to the front, in order.
    fn compact(&mut self) {
        let mut next = 0;
        for word in 0..self.live.len() {
            let mut bits = std::mem::take(&mut self.live[word]);
            while bits != 0 {
                let page = self.page_at[word * 64 + bits.trailing_zeros() as usize];
                bits &= bits - 1;
                self.page_at[next] = page;
                self.slot_of[page as usize] = next as u32;
                next += 1;
            }
        }
        assert!(next < self.page_at.len(), "{next} live slots: a page id beyond the footprint");
        self.next = next;
        self.tree.fill(0);
        for slot in 0..next {
            self.live[slot / 64] |= 1 << (slot % 64);
        }
        for block in 1..self.tree.len() {
            let words = (block - 1) * WORDS_PER_BLOCK..block * WORDS_PER_BLOCK;
            self.tree[block] += self.live[words].iter().map(|word| word.count_ones()).sum::<u32>();
            let parent = block + (block & block.wrapping_neg());
            if parent < self.tree.len() {
                self.tree[parent] += self.tree[block];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use proptest::prelude::*;

    /// The stack as a list, most recent first.
    fn plain(pages: &[u32]) -> Vec<Option<u32>> {
        let mut stack: Vec<u32> = Vec::new();
        let mut access = |page| {
            let at = stack.iter().position(|other| *other == page);
            if let Some(at) = at {
                stack.remove(at);
            }
            stack.insert(0, page);
            at.map(|at| at as u32)
        };
        pages.iter().map(|page| access(*page)).collect()
    }

    proptest! {
        #[test]
        fn distances_are_positions_in_a_list(pages in prop::collection::vec(0u32..40, 0..3000)) {
            let mut stack = LruStack::new(40);
            let distances: Vec<_> = pages.iter().map(|page| stack.access(*page)).collect();
            prop_assert_eq!(distances, plain(&pages));
        }
    }

    #[test]
    fn distances_survive_many_compactions_of_many_blocks() {
        let mut random = Random::new(5);
        let pages: Vec<u32> =
            (0..40_000).map(|i| (random.below(1500).min(random.below(1500)) + i % 2) as u32).collect();
        let mut stack = LruStack::new(1501);
        let distances: Vec<_> = pages.iter().map(|page| stack.access(*page)).collect();
        assert_eq!(distances, plain(&pages));
    }
}
