//! The random draws of the reference program: MT19937 as `numpy.random.seed` and `rand` use it.
//!
//! Matsumoto, Nishimura, "Mersenne twister", ACM TOMACS 8(1), 1998.

/// NumPy's legacy generator.
pub struct Twister {
    state: [u32; 624],
    at: usize,
}

impl Twister {
    /// `numpy.random.seed(seed)`.
    pub fn new(seed: u32) -> Self {
        let mut state = [seed; 624];
        for i in 1..624 {
            let before = state[i - 1];
            state[i] = 1_812_433_253u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(i as u32);
        }
        Twister { state, at: 624 }
    }

    /// 32 random bits.
    pub fn bits(&mut self) -> u32 {
        if self.at == 624 {
            for i in 0..624 {
                let y = self.state[i] & 0x8000_0000 | self.state[(i + 1) % 624] & 0x7FFF_FFFF;
                let twist = if y & 1 == 1 { 0x9908_B0DF } else { 0 };
                self.state[i] = self.state[(i + 397) % 624] ^ (y >> 1) ^ twist;
            }
            self.at = 0;
        }
        let mut y = self.state[self.at];
        self.at += 1;
        y ^= y >> 11;
        y ^= y << 7 & 0x9D2C_5680;
        y ^= y << 15 & 0xEFC6_0000;
        y ^ y >> 18
    }

    /// `numpy.random.rand()`: 53 bits in `[0, 1)`.
    pub fn rand(&mut self) -> f64 {
        let (high, low) = (self.bits() >> 5, self.bits() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }
}

#[test]
fn first_draws_are_numpys() {
    let mut twister = Twister::new(123);
    let expected = [0.696_469_19, 0.286_139_33, 0.226_851_45, 0.551_314_77, 0.719_468_97];
    for value in expected {
        assert!((twister.rand() - value).abs() < 1e-8);
    }
}
