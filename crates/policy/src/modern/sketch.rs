//! Estimate in a few bits of how often something was asked for of late: the TinyLFU histogram.
//!
//! Einziger, Friedman, Manes, "TinyLFU: a highly efficient cache admission policy", ACM Transactions on Storage 13(4),
//! 2017, section 3: a count-min sketch of four-bit counters behind a Bloom filter, the *doorkeeper*, which takes the
//! first use of everything, so that what is used once costs no counters. After a sample of `W` uses all counters are
//! halved and the doorkeeper is emptied (the *reset*). Of a key's four counters only the lowest ones are incremented
//! (*minimal increment*), as the others count other keys too.
//!
//! Layout, ours: two rows of 64 counters in a line of 64 bytes, two lines a key, and its three bits of the doorkeeper
//! in one word, so that a use costs three cache misses at most. With all four counters in one line two keys are too
//! often the same to the sketch: a dead page that shares the counters of a hot one stays at the gate of W-TinyLFU and
//! turns every newcomer away, which with an unlucky hash cost 4 % more misses on the Zipf oracle trace.

use entresol_core::Random;

const ROWS: usize = 4;
const COUNTER_MAX: u64 = 15;
/// Clears the bit that a shift of 16 four-bit counters moves in from the counter above.
const HALVED: u64 = 0x7777_7777_7777_7777;

/// 128 counters of four bits.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u64; 8]);

/// Approximate counts of recent uses. 16 bytes per page of the cache and 4 more for the doorkeeper.
#[derive(Clone, Debug)]
pub(super) struct Sketch {
    lines: Vec<Line>,
    /// Empty when there is no doorkeeper.
    doorkeeper: Vec<u64>,
    sample: u64,
    uses: u64,
}

/// Scales 32 random bits to `0..len`.
#[inline(always)]
fn scale(bits: u64, len: usize) -> usize {
    (((bits & 0xFFFF_FFFF) * len as u64) >> 32) as usize
}

impl Sketch {
    /// A sketch for a cache of so many pages, which ages after every `sample` uses.
    pub(super) fn new(capacity: usize, sample: u64, doorkeeper: bool) -> Self {
        let lines = vec![Line([0; 8]); capacity.div_ceil(4)];
        let doorkeeper = vec![0; if doorkeeper { capacity.div_ceil(2) } else { 0 }];
        Sketch { lines, doorkeeper, sample, uses: 0 }
    }

    /// Line, word and shift of a key's counter in each row: two rows a line, four words a row, 16 counters a word.
    #[inline(always)]
    fn counters(&self, hash: u64) -> [(usize, usize, u64); ROWS] {
        let again = Random::mix(hash);
        let [first, second] = [scale(hash >> 32, self.lines.len()), scale(again >> 32, self.lines.len())];
        let word = |row: usize, bits: u64| row % 2 * 4 + (bits >> 4 & 3) as usize;
        let shift = |bits: u64| (bits & 15) * 4;
        // Written out: mapped over an array the closure was called, not inlined, and its result went through memory.
        [
            (first, word(0, hash), shift(hash)),
            (first, word(1, hash >> 6), shift(hash >> 6)),
            (second, word(2, again), shift(again)),
            (second, word(3, again >> 6), shift(again >> 6)),
        ]
    }

    /// The lowest of a key's counters.
    #[inline(always)]
    fn least(&self, counters: [(usize, usize, u64); ROWS]) -> u64 {
        let value = |(line, word, shift): (usize, usize, u64)| self.lines[line].0[word] >> shift & COUNTER_MAX;
        let [a, b, c, d] = counters;
        value(a).min(value(b)).min(value(c).min(value(d)))
    }

    /// Word and bits of the doorkeeper.
    #[inline(always)]
    fn doorkeeper(&self, hash: u64) -> (usize, u64) {
        let hash = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let bits = 1 << (hash & 63) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63);
        (scale(hash >> 32, self.doorkeeper.len()), bits)
    }

    /// Counts one use of a key, given as 64 well-mixed bits.
    #[inline]
    pub(super) fn record(&mut self, hash: u64) {
        self.uses += 1;
        if self.uses >= self.sample {
            self.reset();
        }
        if !self.doorkeeper.is_empty() {
            let (word, bits) = self.doorkeeper(hash);
            if self.doorkeeper[word] & bits != bits {
                self.doorkeeper[word] |= bits;
                return;
            }
        }
        let counters = self.counters(hash);
        let least = self.least(counters);
        if least == COUNTER_MAX {
            return;
        }
        for (line, word, shift) in counters {
            let word = &mut self.lines[line].0[word];
            *word += u64::from(*word >> shift & COUNTER_MAX == least) << shift;
        }
    }

    /// Estimated recent uses of a key: never too low, except for uses that were aged away or exceed the counters.
    #[inline]
    pub(super) fn estimate(&self, hash: u64) -> u64 {
        let least = self.least(self.counters(hash));
        if self.doorkeeper.is_empty() {
            return least;
        }
        let (word, bits) = self.doorkeeper(hash);
        least + u64::from(self.doorkeeper[word] & bits == bits)
    }

    fn reset(&mut self) {
        for word in self.lines.iter_mut().flat_map(|line| &mut line.0) {
            *word = *word >> 1 & HALVED;
        }
        self.doorkeeper.fill(0);
        self.uses /= 2;
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>() + self.doorkeeper.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_close_from_above() {
        for doorkeeper in [false, true] {
            // 400 keys used 0 to 9 times each, for a cache of 1000 pages; no reset.
            let mut sketch = Sketch::new(1000, u64::MAX, doorkeeper);
            let keys: Vec<u64> = (0..400).map(Random::mix).collect();
            for round in 0..9 {
                keys.iter().enumerate().filter(|(k, _)| k % 10 > round).for_each(|(_, &key)| sketch.record(key));
            }
            let mut exact = 0;
            for (k, &key) in keys.iter().enumerate() {
                let estimate = sketch.estimate(key);
                assert!(estimate >= k as u64 % 10, "key {k}, doorkeeper {doorkeeper}: {estimate}");
                exact += usize::from(estimate == k as u64 % 10);
            }
            assert!(exact > 380, "doorkeeper {doorkeeper}: only {exact} of 400 estimates are exact");
        }
    }

    #[test]
    fn counters_saturate_and_age() {
        let (key, other) = (Random::mix(1), Random::mix(2));
        let mut sketch = Sketch::new(1000, 100, true);
        (0..60).for_each(|_| sketch.record(key));
        assert_eq!(sketch.estimate(key), 16, "15 in the counters and one in the doorkeeper");
        (60..100).for_each(|_| sketch.record(other));
        // The hundredth use falls behind the reset: 39 uses of the other key made 15, halved to 7.
        assert_eq!(sketch.estimate(key), 7);
        assert_eq!(sketch.estimate(other), 8);
        assert_eq!(sketch.uses, 50);
    }

    #[test]
    fn the_doorkeeper_takes_the_first_use() {
        let mut sketch = Sketch::new(1000, 1000, true);
        (0..100).map(Random::mix).for_each(|key| sketch.record(key));
        let counted: u32 = sketch.lines.iter().flat_map(|line| line.0).map(u64::count_ones).sum();
        assert!(counted <= 4, "{counted} counter bits set by first uses");
    }
}
