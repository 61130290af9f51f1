//! The least of many numbers that change: a tree of minima with 16 children a node.

const CHILDREN: usize = 16;
/// Bits of a mask.
const BITS: [u16; CHILDREN] = {
    let mut bits = [1; CHILDREN];
    let mut at = 1;
    while at < CHILDREN {
        bits[at] = 1 << at;
        at += 1;
    }
    bits
};

/// A number of each leaf, and the least of all.
#[derive(Clone, Debug)]
pub(super) struct Minima {
    /// The leaves, then the minima of 16 of them each, and so on to a single number.
    numbers: Vec<i16>,
    /// Begin of each level, leaves first.
    levels: Vec<usize>,
}

impl Minima {
    /// Leaves that all have the greatest number. 2.2 bytes a leaf.
    pub fn new(leaves: usize) -> Self {
        let (mut levels, mut start, mut len) = (Vec::new(), 0, leaves.max(1));
        loop {
            levels.push(start);
            start += len.next_multiple_of(CHILDREN);
            if len == 1 {
                break;
            }
            len = len.div_ceil(CHILDREN);
        }
        Minima { numbers: vec![i16::MAX; start], levels }
    }

    /// The least number.
    #[inline(always)]
    pub fn least(&self) -> i16 {
        self.numbers[self.levels[self.levels.len() - 1]]
    }

    /// A leaf that has the least number: the first.
    #[inline]
    pub fn first(&self) -> usize {
        let least = self.least();
        let mut at = 0;
        for &level in self.levels.iter().rev().skip(1) {
            let start = level + at * CHILDREN;
            let children = &self.numbers[start..start + CHILDREN];
            // A mask has no branch to predict for each child, and its words are as wide as the numbers.
            let bits = children.iter().zip(BITS).map(|(&number, bit)| if number == least { bit } else { 0 });
            let mask = bits.fold(0u16, |mask, bit| mask | bit);
            at = at * CHILDREN + mask.trailing_zeros() as usize;
        }
        at
    }

    /// Changes the number of a leaf.
    #[inline]
    pub fn set(&mut self, leaf: usize, number: i16) {
        let (mut at, mut number) = (leaf, number);
        for (depth, &level) in self.levels.iter().enumerate() {
            let old = std::mem::replace(&mut self.numbers[level + at], number);
            let Some(above) = self.levels.get(depth + 1) else { return };
            let least = self.numbers[above + at / CHILDREN];
            if number >= least {
                if old > least || old == number {
                    return;
                }
                // The number was the least of its node.
                let start = level + at / CHILDREN * CHILDREN;
                number = self.numbers[start..start + CHILDREN].iter().copied().fold(i16::MAX, i16::min);
            }
            at /= CHILDREN;
        }
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.numbers.capacity() * 2 + self.levels.capacity() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    #[test]
    fn the_least_is_that_of_all_leaves() {
        for leaves in [1, 2, 15, 16, 17, 255, 256, 257, 5_000] {
            println!("{leaves} leaves, seed {leaves}");
            let mut random = Random::new(leaves as u64);
            let mut minima = Minima::new(leaves);
            let mut model = vec![i16::MAX; leaves];
            for _ in 0..2_000 {
                let leaf = random.below(leaves as u64) as usize;
                let number = random.below(300) as i16;
                minima.set(leaf, number);
                model[leaf] = number;
                let least = *model.iter().min().expect("a leaf");
                assert_eq!(minima.least(), least);
                assert_eq!(Some(minima.first()), model.iter().position(|&number| number == least));
            }
        }
    }
}
