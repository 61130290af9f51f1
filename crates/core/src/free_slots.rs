//! Free slots of a cache device. The live store in its slots layout and the simulator of it give slots in one order.

/// A set of free slots, given in order of their numbers, round and round, so that neighbours are given together.
pub struct FreeSlots {
    /// A bit for every slot.
    words: Vec<u64>,
    len: u64,
    /// The word at which the search for a free slot continues.
    hand: usize,
}

impl FreeSlots {
    /// A set of slots below `slots`, none of which is free.
    pub fn new(slots: u64) -> Self {
        FreeSlots { words: vec![0; slots.div_ceil(64) as usize], len: 0, hand: 0 }
    }

    /// Number of free slots.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if no slot is free.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Marks a slot as free.
    ///
    /// # Panics
    /// If the slot is free already.
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

    /// Takes this slot if it is free.
    pub fn remove(&mut self, slot: u32) {
        let (word, bit) = (&mut self.words[slot as usize / 64], 1 << (slot % 64));
        self.len -= u64::from(*word & bit != 0);
        *word &= !bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use std::collections::BTreeSet;

    #[test]
    fn a_turn_of_the_hand_gives_the_free_slots_in_order() {
        let mut random = Random::new(3);
        let (mut free, mut model) = (FreeSlots::new(150), BTreeSet::new());
        for turn in 0..200 {
            let freed: BTreeSet<u32> = (0..random.below(40)).map(|_| random.below(150) as u32).collect();
            for slot in freed {
                if model.insert(slot) {
                    free.put(slot);
                }
            }
            let gone = random.below(150) as u32;
            model.remove(&gone);
            free.remove(gone);
            assert_eq!((free.len(), free.is_empty()), (model.len() as u64, model.is_empty()), "turn {turn}, seed 3");
            let taken: Vec<u32> = (0..model.len() / 2).map_while(|_| free.take()).collect();
            assert!(taken.iter().all(|slot| model.remove(slot)), "turn {turn}, seed 3: {taken:?} were free");
            // The hand begins within a word of 64 slots and comes round once at most.
            let descents = taken.windows(2).filter(|pair| pair[1] < pair[0]).count();
            assert!(descents <= 1, "turn {turn}, seed 3: {taken:?} are in order");
        }
    }
}
