//! Generations tell whether a cache or its backing store is an older copy than the other.

use crate::mutant::{self, Mutant};

/// A generation: a number that rises, and a nonce that distinguishes generations of the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// Number of times that the generation was raised; 0 if it never was.
    pub number: u64,
    /// Chosen at random for each.
    pub nonce: u64,
}

/// The generations of a cache. Its backing store has one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generations {
    /// The generation that the backing store has durably.
    pub settled: Generation,
    /// The generation that the backing store is about to get, or has got.
    pub pending: Option<Generation>,
}

impl Generations {
    /// Generations of a cache whose backing store has this one.
    pub fn settled(generation: Generation) -> Self {
        Generations { settled: generation, pending: None }
    }

    /// The next generation, with this nonce.
    pub fn next(&self, nonce: u64) -> Generation {
        Generation { number: self.settled.number + 1, nonce }
    }

    /// True if a backing store of this generation is the one that was left.
    pub fn is_right(&self, backing: Generation) -> bool {
        backing == self.settled || Some(backing) == self.pending || mutant::is(Mutant::GenerationUncompared)
    }

    /// Notes that the backing store has the pending generation, durably.
    pub fn settle(&mut self) {
        self.settled = self.pending.take().unwrap_or(self.settled);
    }
}
