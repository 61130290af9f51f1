//! A tail of latencies given by a few quantiles, as tables of measurements give it.

use crate::check;
use crate::io::Nanos;
use entresol_core::Random;
use serde::{Deserialize, Serialize};

/// One quantile of the wait beyond the ordinary cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TailPoint {
    /// Share of the I/Os, above 0 and below 1.
    pub quantile: f64,
    /// Wait that this share of the I/Os does not exceed, in nanoseconds.
    pub extra_ns: Nanos,
}

/// Cells of the table that answers most draws.
const CELLS: usize = 1024;

/// Cells at the rare end of the table that are not used: the rarest draws differ so much that those cells would blur
/// them. Such draws are computed from the points.
const RARE_CELLS: usize = 12;

/// A distribution through the points: from 0 at quantile 0 linearly to the first, then linear in the logarithm of the
/// share that is left, constant beyond the last.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    points: Vec<TailPoint>,
    table: Vec<u32>,
    random: Random,
}

impl Tail {
    /// Checks that points ascend and lie within bounds.
    pub(crate) fn check(key: &str, points: &[TailPoint]) -> Result<(), String> {
        for (i, point) in points.iter().enumerate() {
            // An extra of a second fits the table's 32 bits.
            check::within(&format!("{key}[{i}].extra_ns"), point.extra_ns, 0, 1_000_000_000)?;
            check::number(&format!("{key}[{i}].quantile"), point.quantile, 1e-9, 1.0 - 1e-9)?;
        }
        let ascends = |pair: &[TailPoint]| pair[0].quantile < pair[1].quantile && pair[0].extra_ns <= pair[1].extra_ns;
        match points.windows(2).position(|pair| !ascends(pair)) {
            None => Ok(()),
            Some(i) => Err(format!("key `{key}[{}]` lies below the point before it, expected ascending points", i + 1)),
        }
    }

    /// A tail through checked points.
    pub(crate) fn new(points: &[TailPoint], seed: u64) -> Self {
        let cells = if points.is_empty() { 0 } else { CELLS };
        let middle = |cell| (cell as f64 + 0.5) / CELLS as f64;
        let table = (0..cells).map(|cell| quantile(points, middle(cell)) as u32).collect();
        Tail { points: points.to_vec(), table, random: Random::new(seed) }
    }

    /// The next draw, in nanoseconds.
    #[inline]
    pub(crate) fn draw(&mut self) -> Nanos {
        if self.table.is_empty() {
            return 0;
        }
        let bits = self.random.next_u64();
        let cell = (bits >> (64 - CELLS.trailing_zeros())) as usize;
        if cell < CELLS - RARE_CELLS { Nanos::from(self.table[cell]) } else { self.rare(bits) }
    }

    #[cold]
    fn rare(&self, bits: u64) -> Nanos {
        quantile(&self.points, (bits >> 11) as f64 / (1u64 << 53) as f64)
    }
}

/// The extra at a share of the draws, 0 to 1.
fn quantile(points: &[TailPoint], share: f64) -> Nanos {
    let after = points.partition_point(|point| point.quantile <= share);
    let Some(high) = points.get(after) else {
        return points.last().map_or(0, |last| last.extra_ns);
    };
    let Some(low) = after.checked_sub(1).map(|i| points[i]) else {
        return (high.extra_ns as f64 * share / high.quantile).round() as Nanos;
    };
    let rarity = |share: f64| -(1.0 - share).ln();
    let along = (rarity(share) - rarity(low.quantile)) / (rarity(high.quantile) - rarity(low.quantile));
    low.extra_ns + ((high.extra_ns - low.extra_ns) as f64 * along).round() as Nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [TailPoint; 4] = [
        TailPoint { quantile: 0.5, extra_ns: 100 },
        TailPoint { quantile: 0.99, extra_ns: 2_000 },
        TailPoint { quantile: 0.999, extra_ns: 16_000 },
        TailPoint { quantile: 0.9999, extra_ns: 36_000 },
    ];

    #[test]
    fn draws_have_the_quantiles_that_they_were_given() {
        let seed = 11;
        let mut tail = Tail::new(&POINTS, seed);
        let mut draws: Vec<Nanos> = (0..1_000_000).map(|_| tail.draw()).collect();
        draws.sort_unstable();
        for point in POINTS {
            let drawn = draws[(point.quantile * draws.len() as f64) as usize] as f64;
            let given = point.extra_ns as f64;
            assert!((drawn / given - 1.0).abs() < 0.08, "seed {seed}: {drawn} at {}, not {given}", point.quantile);
        }
        assert_eq!(*draws.last().expect("a million draws"), 36_000);
    }

    #[test]
    fn no_points_are_no_tail() {
        assert_eq!(Tail::new(&[], 1).draw(), 0);
    }

    #[test]
    fn points_that_descend_are_refused() {
        assert_eq!(Tail::check("tail", &POINTS), Ok(()));
        let mut points = POINTS;
        points.swap(1, 2);
        let error = Tail::check("tail", &points).expect_err("descending points");
        assert!(error.contains("tail[2]"), "{error}");
        let sure = [TailPoint { quantile: 1.0, extra_ns: 1 }];
        assert!(Tail::check("tail", &sure).is_err());
    }
}
