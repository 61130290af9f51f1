//! Slots that may be written.

use std::collections::VecDeque;

/// Free slots, and slots that become free once enough of the journal is durable.
pub(super) struct Free {
    /// A bit for every slot.
    words: Vec<u64>,
    len: u64,
    /// The word at which the search for a free slot continues, so that neighbours are given together.
    hand: usize,
    /// Waiting slots with the block of the journal that frees each, in ascending order.
    waiting: VecDeque<(u64, u32)>,
}

impl Free {
    /// None of so many slots is free.
    pub fn new(slots: u64) -> Self {
        Free { words: vec![0; slots.div_ceil(64) as usize], len: 0, hand: 0, waiting: VecDeque::new() }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// Marks a slot as free.
    pub fn put(&mut self, slot: u32) {
        let (word, bit) = (&mut self.words[slot as usize / 64], 1 << (slot % 64));
        assert!(*word & bit == 0, "slot {slot} is freed twice");
        *word |= bit;
        self.len += 1;
    }

    /// Takes the next free slot after the last one taken.
    pub fn take(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        while self.words[self.hand] == 0 {
            self.hand = (self.hand + 1) % self.words.len();
        }
        let word = &mut self.words[self.hand];
        let slot = self.hand as u32 * 64 + word.trailing_zeros();
        *word &= *word - 1;
        self.len -= 1;
        Some(slot)
    }

    /// Lets a slot wait until this block of the journal is known to be durable.
    pub fn wait(&mut self, block: u64, slot: u32) {
        debug_assert!(self.waiting.back().is_none_or(|&(last, _)| last <= block), "blocks are written in order");
        self.waiting.push_back((block, slot));
    }

    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Frees the slots that wait for blocks before this one, which are known to be durable.
    pub fn release(&mut self, before: u64) {
        let released = self.waiting.iter().take_while(|&&(block, _)| block < before).count();
        let released: Vec<(u64, u32)> = self.waiting.drain(..released).collect();
        released.into_iter().for_each(|(_, slot)| self.put(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use std::collections::BTreeSet;

    #[test]
    fn it_agrees_with_a_set() {
        const SLOTS: u64 = 150;
        let mut random = Random::new(1);
        let (mut free, mut model) = (Free::new(SLOTS), BTreeSet::new());
        let mut waiting: VecDeque<(u64, u32)> = VecDeque::new();
        (0..SLOTS as u32).for_each(|slot| free.put(slot));
        model.extend(0..SLOTS as u32);
        let mut taken = Vec::new();
        for block in 0..5000 {
            for _ in 0..random.below(6) {
                let slot = free.take();
                assert_eq!(slot.is_none(), model.is_empty(), "block {block}");
                if let Some(slot) = slot {
                    assert!(model.remove(&slot), "block {block}: slot {slot} was not free");
                    taken.push(slot);
                }
            }
            for _ in 0..random.below(6).min(taken.len() as u64) {
                let slot = taken.swap_remove(random.below(taken.len() as u64) as usize);
                free.wait(block, slot);
                waiting.push_back((block, slot));
            }
            if random.chance(0.3) {
                let before = block.saturating_sub(random.below(3));
                free.release(before);
                while waiting.front().is_some_and(|&(at, _)| at < before) {
                    model.insert(waiting.pop_front().expect("just seen").1);
                }
            }
            assert_eq!((free.len(), free.waiting()), (model.len() as u64, waiting.len() as u64), "block {block}");
        }
    }

    #[test]
    fn neighbours_are_given_together() {
        let mut free = Free::new(200);
        (0..200).for_each(|slot| free.put(slot));
        let taken: Vec<u32> = (0..200).map_while(|_| free.take()).collect();
        assert!(taken.is_sorted() && taken.len() == 200 && free.take().is_none());
    }
}
