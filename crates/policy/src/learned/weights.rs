//! The trust in two experts, as LeCaR and CACHEUS keep it.

/// Probabilities of following the recency and the frequency expert; they sum to 1 and stay within 0.01 and 0.99.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    /// Weight of the recency expert.
    pub lru: f64,
    /// Weight of the frequency expert.
    pub lfu: f64,
}

/// An expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expert {
    /// Evict what was not used for longest.
    Lru,
    /// Evict what was used least.
    Lfu,
}

const CEILING: f64 = 0.99;

impl Weights {
    /// Equal trust.
    pub const EVEN: Weights = Weights { lru: 0.5, lfu: 0.5 };

    /// Takes trust from an expert whose victim was requested again: its weight shrinks by `exp(-regret)`, then both
    /// weights are normalised and held within their bounds.
    pub fn blame(&mut self, expert: Expert, regret: f64) {
        let factor = (-regret).exp();
        match expert {
            Expert::Lru => self.lru *= factor,
            Expert::Lfu => self.lfu *= factor,
        }
        let lru = self.lru / (self.lru + self.lfu);
        *self = match lru {
            _ if lru >= CEILING => Weights { lru: CEILING, lfu: 1.0 - CEILING },
            _ if 1.0 - lru >= CEILING => Weights { lru: 1.0 - CEILING, lfu: CEILING },
            _ => Weights { lru, lfu: 1.0 - lru },
        };
    }

    /// The expert to follow, from a draw that is uniform in `[0, 1)`.
    #[inline(always)]
    pub fn choose(&self, draw: f64) -> Expert {
        if draw < self.lru { Expert::Lru } else { Expert::Lfu }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blame_moves_trust_within_its_bounds() {
        let mut weights = Weights::EVEN;
        weights.blame(Expert::Lru, 0.45);
        assert!((weights.lru - 0.389_360_766).abs() < 1e-9, "{weights:?}");
        (0..100).for_each(|_| weights.blame(Expert::Lru, 0.45));
        assert_eq!(weights, Weights { lru: 1.0 - CEILING, lfu: CEILING });
        assert_eq!(weights.choose(0.0), Expert::Lru);
        assert_eq!(weights.choose(0.011), Expert::Lfu);
        (0..100).for_each(|_| weights.blame(Expert::Lfu, 0.45));
        assert_eq!(weights, Weights { lru: CEILING, lfu: 1.0 - CEILING });
    }
}
