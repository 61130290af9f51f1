//! The plain kinds: each request is one page, drawn from a law of popularity or in a fixed order.

use super::spec::{Ids, Kind, Part, Plain};
use super::weights::RankTable;
use super::{Item, Reference, Stream};
use entresol_core::{Op, Random};

/// The salt of the reference generator's object ids.
const ID_SALT: u64 = 0x5bd1_e995;

/// A part of a plain kind.
pub(super) struct Simple {
    draws: Draws,
    plain: Plain,
    scatter: Option<Permutation>,
    flags: Random,
}

impl Simple {
    /// # Panics
    /// For the kinds that are streams of their own, `tpcc` and `olap`.
    pub fn new(part: &Part) -> Self {
        let draws = Draws::new(part);
        let scatter = (part.plain.ids == Ids::Scattered).then(|| Permutation::new(span(part), part.seed));
        let flags = Random::new(part.plain.write_seed);
        Simple { draws, plain: part.plain.clone(), scatter, flags }
    }

    fn op(&mut self) -> Op {
        if self.plain.write_percent == 0 {
            return Op::Read;
        }
        let draw = self.flags.next_u64();
        match (draw % 100 < self.plain.write_percent, draw / 100 % 100 < self.plain.update_percent) {
            (false, _) => Op::Read,
            (true, false) => Op::Write,
            (true, true) => Op::Update,
        }
    }
}

impl Stream for Simple {
    fn names(&self) -> Vec<String> {
        vec![self.plain.object.clone()]
    }

    fn next(&mut self) -> Item {
        let rank = self.draws.next();
        let key = self.plain.base + self.scatter.as_ref().map_or(rank, |permutation| permutation.map(rank));
        let block = if self.plain.ids == Ids::Hashed { Random::mix((key + 1) ^ ID_SALT) } else { key };
        Item::Reference(Reference { object: 0, key, block, op: self.op(), first: true })
    }
}

/// Number of ranks that a part may draw: all are below it.
fn span(part: &Part) -> u64 {
    match part.kind {
        Kind::Zipf { pages, .. }
        | Kind::Pareto { pages, .. }
        | Kind::HotCold { pages, .. }
        | Kind::Uniform { pages }
        | Kind::Loop { pages } => pages,
        Kind::Scan => part.n,
        Kind::Mixed { pages } => 10 * pages + part.n,
        Kind::Tpcc { .. } | Kind::Olap { .. } => unreachable!("these have tables, not ranks"),
    }
}

/// Draws ranks.
enum Draws {
    Table(RankTable, Random),
    HotCold { hot_pages: u64, pages: u64, to: u64, random: Random },
    Uniform { pages: u64, random: Random },
    Loop { pages: u64, i: u64 },
    Mixed(Mixed),
}

impl Draws {
    fn new(part: &Part) -> Self {
        let random = Random::new(part.seed);
        match part.kind {
            Kind::Zipf { pages, exponent_millionths } => {
                Draws::Table(RankTable::zipf(pages, exponent_millionths), random)
            }
            Kind::Pareto { pages, hot, to } => Draws::Table(RankTable::pareto(pages, hot, to), random),
            Kind::HotCold { pages, hot, to } => {
                Draws::HotCold { hot_pages: (pages * hot / 100).max(1), pages, to, random }
            }
            Kind::Uniform { pages } => Draws::Uniform { pages, random },
            Kind::Loop { pages } => Draws::Loop { pages, i: 0 },
            Kind::Scan => Draws::Loop { pages: u64::MAX, i: 0 },
            Kind::Mixed { pages } => Draws::Mixed(Mixed::new(part.n / 10, pages, part.seed)),
            Kind::Tpcc { .. } | Kind::Olap { .. } => unreachable!("these have tables, not ranks"),
        }
    }

    #[inline]
    fn next(&mut self) -> u64 {
        match self {
            Draws::Table(table, random) => table.draw(random.next_u64()),
            Draws::HotCold { hot_pages, pages, to, random } => {
                let draw = random.next_u64();
                let within = draw / 100;
                if draw % 100 < *to { within % *hot_pages } else { *hot_pages + within % (*pages - *hot_pages) }
            }
            Draws::Uniform { pages, random } => random.next_u64() % *pages,
            Draws::Loop { pages, i } => {
                let rank = *i % *pages;
                *i += 1;
                rank
            }
            Draws::Mixed(mixed) => mixed.next(),
        }
    }
}

/// The ten phases of the oracle trace `mixed`. Phase p, seeded `1000 seed + p`, is by `p mod 4` one of four laws: a
/// Zipf law, the same with three of four requests replaced by a scan of pages never touched before, a loop over a
/// fifth of the pages, and uniform over half of them. Each of the four has a range of pages of its own, except the two
/// with a Zipf law.
struct Mixed {
    table: RankTable,
    random: Random,
    per_phase: u64,
    pages: u64,
    seed: u64,
    phase: u64,
    i: u64,
    fresh: u64,
}

impl Mixed {
    fn new(per_phase: u64, pages: u64, seed: u64) -> Self {
        let table = RankTable::zipf(pages, super::weights::MILLION);
        let random = Random::new(seed.wrapping_mul(1000));
        Mixed { table, random, per_phase, pages, seed, phase: 0, i: 0, fresh: 10 * pages }
    }

    fn next(&mut self) -> u64 {
        if self.i == self.per_phase {
            self.phase += 1;
            self.i = 0;
            self.random = Random::new(self.seed.wrapping_mul(1000).wrapping_add(self.phase));
        }
        let i = self.i;
        self.i += 1;
        let draw = self.random.next_u64();
        match self.phase % 4 {
            1 if !i.is_multiple_of(4) => {
                self.fresh += 1;
                self.fresh - 1
            }
            0 | 1 => self.table.draw(draw),
            2 => 5 * self.pages + i % (self.pages / 5),
            _ => 2 * self.pages + draw % (self.pages / 2),
        }
    }
}

/// A pseudo-random bijection of `0..len`: a Feistel network over the next even power of two, walked until the image
/// is in range.
pub(super) struct Permutation {
    len: u64,
    seed: u64,
    half_bits: u32,
}

impl Permutation {
    const ROUNDS: u64 = 4;

    pub fn new(len: u64, seed: u64) -> Self {
        let bits = 64 - len.saturating_sub(1).leading_zeros();
        Permutation { len, seed: Random::mix(seed), half_bits: bits.div_ceil(2).max(1) }
    }

    pub fn map(&self, x: u64) -> u64 {
        debug_assert!(x < self.len, "{x} is outside 0..{}", self.len);
        let mask = (1 << self.half_bits) - 1;
        let mut image = x;
        loop {
            let (mut left, mut right) = (image >> self.half_bits, image & mask);
            for round in 0..Self::ROUNDS {
                let scrambled = Random::mix(self.seed.wrapping_add(round << 56) ^ right) & mask;
                (left, right) = (right, left ^ scrambled);
            }
            image = left << self.half_bits | right;
            if image < self.len {
                return image;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_is_one_to_one_and_moves_most() {
        for len in [1, 2, 3, 5, 64, 1000, 4097] {
            let permutation = Permutation::new(len, 3);
            let mut images: Vec<u64> = (0..len).map(|x| permutation.map(x)).collect();
            let fixed = images.iter().enumerate().filter(|(x, image)| *x as u64 == **image).count();
            assert!(len < 64 || fixed < 10, "{fixed} of {len} stay in place");
            images.sort_unstable();
            assert!(images.iter().copied().eq(0..len), "length {len}");
        }
    }
}
