//! The one random generator: splitmix64 in counter mode (Steele, Lea, Flood 2014), chosen because it is four lines
//! in any language, so that generated traces and random policies are bit-exact everywhere.

/// A seeded stream of random numbers. The i-th output, from 0, is `mix(seed + (i + 1) * 0x9E3779B97F4A7C15)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

    /// The stream of this seed.
    pub const fn new(seed: u64) -> Self {
        Random { state: seed }
    }

    /// The finaliser of splitmix64, a bijection on `u64`.
    #[inline]
    pub const fn mix(mut z: u64) -> u64 {
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(Self::STEP);
        Self::mix(self.state)
    }

    /// Uniform in `[0, 1)`, 53 bits.
    #[inline]
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `0..bound` by multiplication (Lemire 2019, without the rejection: biased by at most
    /// `bound / 2^64`).
    ///
    /// # Panics
    /// When `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a draw from an empty range");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True with this probability.
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        self.next_f64() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_outputs_are_those_of_the_reference() {
        // splitmix64 of seed 1234567, as published with the reference C code.
        let mut random = Random::new(1234567);
        assert_eq!(random.next_u64(), 6457827717110365317);
        assert_eq!(random.next_u64(), 3203168211198807973);
        assert_eq!(random.next_u64(), 9817491932198370423);
    }

    #[test]
    fn draws_stay_in_range() {
        let mut random = Random::new(7);
        for _ in 0..10_000 {
            assert!(random.below(3) < 3);
            let x = random.next_f64();
            assert!((0.0..1.0).contains(&x));
        }
    }
}
