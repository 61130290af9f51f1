//! Skewed draws without floating point, so that a seed means the same trace on every machine: integer weights, their
//! running sum, and the first rank whose sum exceeds `random mod total`.
//!
//! The logarithm and the power are computed digit by digit in fixed point. Libraries of elementary functions differ in
//! their last places, and one place is enough to move a draw to another page.

/// Binary places of logarithms.
const LOG_BITS: u32 = 56;

/// Weight of the first rank of a Zipf law; that of the reference generator.
const ONE: u64 = 1 << 40;

/// Sum of the weights of a Pareto law.
const PARETO_TOTAL: u64 = 1 << 60;

/// Most ranks a table holds: more would let the sum of weights overflow.
pub(super) const RANKS_MAX: u64 = 1 << 24;

/// Scale of the exponent of a Zipf law: it is given in millionths.
pub(super) const MILLION: u64 = 1_000_000;

/// Base-2 logarithm of `x` > 0 with [`LOG_BITS`] binary places, rounded down.
fn log2(x: u64) -> u64 {
    let whole = 63 - x.leading_zeros();
    let mut mantissa = u128::from(x) << (63 - whole); // 1.63 fixed point, in [1, 2)
    let mut log = u64::from(whole);
    for _ in 0..LOG_BITS {
        mantissa = (mantissa * mantissa) >> 63;
        let bit = mantissa >> 64;
        mantissa >>= bit;
        log = (log << 1) | bit as u64;
    }
    log
}

/// Powers of two with negative exponents in fixed point.
struct NegativePowers {
    /// `2^-(2^-k)` for k = 1, 2, ..., 63 binary places.
    roots: [u64; LOG_BITS as usize],
}

impl NegativePowers {
    fn new() -> Self {
        let mut roots = [0; LOG_BITS as usize];
        let mut root: u128 = 1 << 62; // one half
        for slot in &mut roots {
            root = (root << 63).isqrt();
            *slot = root as u64;
        }
        NegativePowers { roots }
    }

    /// `floor(scale * 2^-exponent)` up to the rounding of 56 multiplications; `exponent` has [`LOG_BITS`] places.
    fn scaled(&self, scale: u64, exponent: u128) -> u64 {
        let whole = exponent >> LOG_BITS;
        if whole >= 64 {
            return 0;
        }
        let mut power: u128 = 1 << 63;
        for (k, root) in self.roots.iter().enumerate() {
            if exponent >> (LOG_BITS as usize - 1 - k) & 1 == 1 {
                power = (power * u128::from(*root)) >> 63;
            }
        }
        ((u128::from(scale) * power) >> (63 + whole)) as u64
    }
}

/// Running sums of the weights of ranks 0, 1, ..., and an index into them.
pub(super) struct RankTable {
    sums: Vec<u64>,
    /// Entry b: the first rank whose sum exceeds `b << shift`; one entry beyond the last.
    guide: Vec<u32>,
    shift: u32,
}

impl RankTable {
    /// Zipf's law: the weight of rank r, counted from 1, is `floor(2^40 / r^s)` with s in millionths. With s = 1 this
    /// is the reference construction to the last bit.
    pub fn zipf(ranks: u64, exponent_millionths: u64) -> Self {
        assert!((1..=RANKS_MAX).contains(&ranks), "a table of {ranks} ranks");
        let mut sum = 0u64;
        if exponent_millionths == MILLION {
            return Self::new((1..=ranks).map(|rank| add(&mut sum, ONE / rank)).collect());
        }
        let powers = NegativePowers::new();
        let weight = |rank: u64| {
            let exponent = u128::from(log2(rank)) * u128::from(exponent_millionths) / u128::from(MILLION);
            powers.scaled(ONE, exponent)
        };
        Self::new((1..=ranks).map(|rank| add(&mut sum, weight(rank))).collect())
    }

    /// The self-similar law of Gray et al. 1994: the hottest `hot` % of any leading part of the ranks get `to` % of
    /// the draws of that part, hence the first r of n ranks get the share `(r / n)^(ln(to %) / ln(hot %))`.
    pub fn pareto(ranks: u64, hot: u64, to: u64) -> Self {
        assert!((1..=RANKS_MAX).contains(&ranks), "a table of {ranks} ranks");
        assert!((1..100).contains(&hot) && (1..100).contains(&to), "shares of {hot} % and {to} %");
        let powers = NegativePowers::new();
        let (numerator, denominator) = (log2(100) - log2(to), log2(100) - log2(hot));
        let all = log2(ranks);
        let mut highest = 0;
        let share = |rank: u64| {
            let exponent = u128::from(all - log2(rank)) * u128::from(numerator) / u128::from(denominator);
            highest = powers.scaled(PARETO_TOTAL, exponent).max(highest);
            highest
        };
        Self::new((1..=ranks).map(share).collect())
    }

    fn new(sums: Vec<u64>) -> Self {
        let total = sums[sums.len() - 1];
        let buckets_wanted = sums.len().next_power_of_two() as u64;
        let shift = (total / buckets_wanted).max(1).ilog2();
        let buckets = (total >> shift) + 2;
        let mut guide = Vec::with_capacity(buckets as usize);
        let mut rank = 0;
        for bucket in 0..buckets {
            while rank + 1 < sums.len() && sums[rank] <= bucket << shift {
                rank += 1;
            }
            guide.push(rank as u32);
        }
        RankTable { sums, guide, shift }
    }

    /// The rank, from 0, that 64 random bits choose.
    #[inline]
    pub fn draw(&self, random: u64) -> u64 {
        let value = random % self.sums[self.sums.len() - 1];
        let bucket = (value >> self.shift) as usize;
        let (low, high) = (self.guide[bucket] as usize, self.guide[bucket + 1] as usize);
        (low + self.sums[low..=high].partition_point(|sum| *sum <= value)) as u64
    }
}

fn add(sum: &mut u64, weight: u64) -> u64 {
    *sum += weight;
    *sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    #[test]
    fn logarithms_and_powers_agree_with_floating_point() {
        let powers = NegativePowers::new();
        for x in (1..2000).chain([1 << 24, (1 << 24) - 1, 1 << 40]) {
            let log = log2(x) as f64 / (1u64 << LOG_BITS) as f64;
            assert!((log - (x as f64).log2()).abs() < 1e-13, "log2({x}) = {log}");
            let inverse = powers.scaled(1 << 60, u128::from(log2(x))) as f64 / (1u64 << 60) as f64;
            assert!((inverse * x as f64 - 1.0).abs() < 1e-9, "2^-log2({x}) = {inverse}");
        }
    }

    #[test]
    fn weights_of_other_exponents_follow_the_law() {
        for millionths in [500_000, 800_000, 1_200_000, 2_000_000] {
            let table = RankTable::zipf(1000, millionths);
            let mut below = 0;
            for (i, sum) in table.sums.iter().enumerate() {
                let expected = ONE as f64 * ((i + 1) as f64).powf(-(millionths as f64) / 1e6);
                assert!(((sum - below) as f64 - expected).abs() <= 1.5, "rank {i}, exponent {millionths}");
                below = *sum;
            }
        }
    }

    #[test]
    fn pareto_gives_each_part_its_share() {
        let table = RankTable::pareto(10_000, 20, 80);
        let total = PARETO_TOTAL as f64;
        assert_eq!(table.sums[9_999], PARETO_TOTAL);
        assert!((table.sums[1_999] as f64 / total - 0.8).abs() < 1e-9);
        assert!((table.sums[399] as f64 / total - 0.64).abs() < 1e-9);
    }

    #[test]
    fn the_guide_finds_what_a_plain_search_finds() {
        let tables = [
            RankTable::zipf(1, MILLION),
            RankTable::zipf(3, MILLION),
            RankTable::zipf(5000, MILLION),
            RankTable::zipf(5000, 4_000_000), // weights of the tail are 0: those ranks are never drawn
            RankTable::pareto(777, 10, 90),
        ];
        for table in &tables {
            let total = table.sums[table.sums.len() - 1];
            let mut random = Random::new(11);
            let edges = table.sums.iter().flat_map(|sum| [sum - 1, *sum, sum + 1]);
            for u in edges.chain((0..10_000).map(|_| random.next_u64())) {
                let plain = table.sums.iter().position(|sum| *sum > u % total).expect("the last sum is the total");
                assert_eq!(table.draw(u), plain as u64, "draw of {u}");
            }
        }
    }
}
