//! The most valuable set of things that fits: greedy by value per size, then exact by branch and bound.

/// Partial sets examined before the best one so far is taken. A few dozen things need far fewer.
const STEPS_MAX: u64 = 2_000_000;

/// Something with a size and a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thing {
    /// Size of the thing.
    pub size: u64,
    /// Value of the thing. Things whose value is not above 0 are left out.
    pub value: f64,
}

/// A set that fits.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// Indices of the things, ascending.
    pub things: Vec<usize>,
    /// Sum of their sizes.
    pub size: u64,
    /// Sum of their values.
    pub value: f64,
    /// Upper bound on the value of any set.
    pub bound: f64,
    /// True if no other set is worth more. False if there were too many to examine.
    pub exact: bool,
}

/// Chooses a set whose sizes sum to at most `space`.
pub fn choose(things: &[Thing], space: u64) -> Chosen {
    let worth = |&(_, thing): &(usize, Thing)| thing.value > 0.0 && thing.size <= space;
    let mut order: Vec<(usize, Thing)> = things.iter().copied().enumerate().filter(worth).collect();
    // Things of size 0 come first.
    let density = |thing: &Thing| thing.value / thing.size as f64;
    order.sort_by(|(i, a), (j, b)| density(b).total_cmp(&density(a)).then(i.cmp(j)));
    let mut search =
        Search { order: &order, best: greedy(&order, space), best_value: 0.0, taken: Vec::new(), steps: 0 };
    search.best_value = search.best.iter().map(|&at| order[at].1.value).sum();
    let bound = fractional(&order, space);
    search.from(0, space, 0.0);
    let exact = search.steps <= STEPS_MAX;
    let best = search.best;
    let size = best.iter().map(|&at| order[at].1.size).sum();
    let mut chosen: Vec<usize> = best.iter().map(|&at| order[at].0).collect();
    chosen.sort_unstable();
    let value = chosen.iter().map(|&thing| things[thing].value).sum();
    Chosen { things: chosen, size, value, bound: if exact { value } else { bound }, exact }
}

/// Takes what still fits, in order of density.
fn greedy(order: &[(usize, Thing)], mut space: u64) -> Vec<usize> {
    let mut taken = Vec::new();
    for (at, (_, thing)) in order.iter().enumerate() {
        if thing.size <= space {
            space -= thing.size;
            taken.push(at);
        }
    }
    taken
}

/// Value if the last thing may be cut: an upper bound for whole things.
fn fractional(order: &[(usize, Thing)], mut space: u64) -> f64 {
    let mut value = 0.0;
    for (_, thing) in order {
        if thing.size > space {
            return value + thing.value * space as f64 / thing.size as f64;
        }
        space -= thing.size;
        value += thing.value;
    }
    value
}

struct Search<'a> {
    order: &'a [(usize, Thing)],
    best: Vec<usize>,
    best_value: f64,
    taken: Vec<usize>,
    steps: u64,
}

impl Search<'_> {
    /// Decides on the things from `at` on. The recursion is as deep as the number of things.
    fn from(&mut self, at: usize, space: u64, value: f64) {
        self.steps += 1;
        if value > self.best_value {
            self.best_value = value;
            self.best.clone_from(&self.taken);
        }
        if self.steps > STEPS_MAX || value + fractional(&self.order[at..], space) <= self.best_value {
            return;
        }
        let Some((_, thing)) = self.order.get(at) else { return };
        if thing.size <= space {
            self.taken.push(at);
            self.from(at + 1, space - thing.size, value + thing.value);
            self.taken.pop();
        }
        self.from(at + 1, space, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    /// Examines every set.
    fn by_force(things: &[Thing], space: u64) -> f64 {
        let sets = 0_u32..1 << things.len();
        let of = |set: u32| things.iter().enumerate().filter(move |(i, _)| set >> i & 1 == 1).map(|(_, thing)| thing);
        let fits = sets.filter(|&set| of(set).map(|thing| thing.size).sum::<u64>() <= space);
        fits.map(|set| of(set).map(|thing| thing.value).sum()).fold(0.0, f64::max)
    }

    #[test]
    fn no_set_is_worth_more() {
        const SEED: u64 = 17;
        println!("seed {SEED}");
        let mut random = Random::new(SEED);
        let mut greedy_fell_short = 0;
        for round in 0..400 {
            let count = random.below(13) as usize;
            let thing = |random: &mut Random| Thing {
                size: random.below(60),
                // Whole numbers, so that sums are exact; some are worth nothing, or less.
                value: random.below(100) as f64 - 15.0,
            };
            let things: Vec<Thing> = (0..count).map(|_| thing(&mut random)).collect();
            let space = random.below(200);
            let chosen = choose(&things, space);
            let wanted = by_force(&things, space);
            assert!(chosen.exact && chosen.value == wanted, "round {round}: {chosen:?}, by force {wanted}: {things:?}");
            assert!(chosen.size <= space && chosen.bound == wanted, "round {round}: {chosen:?}");
            assert_eq!(chosen.value, chosen.things.iter().map(|&at| things[at].value).sum::<f64>());
            assert_eq!(chosen.size, chosen.things.iter().map(|&at| things[at].size).sum::<u64>());
            let mut dense: Vec<(usize, Thing)> =
                things.iter().copied().enumerate().filter(|(_, thing)| thing.value > 0.0).collect();
            dense.sort_by(|(_, a), (_, b)| (b.value / b.size as f64).total_cmp(&(a.value / a.size as f64)));
            let greedy: f64 = greedy(&dense, space).iter().map(|&at| dense[at].1.value).sum();
            greedy_fell_short += u32::from(greedy < wanted);
        }
        assert!(greedy_fell_short > 20, "{greedy_fell_short} of 400: the search has something to find");
    }

    #[test]
    fn too_many_to_look_at_still_fit_and_have_a_bound() {
        let mut random = Random::new(5);
        // Values proportional to the sizes leave nothing to prune.
        let sizes: Vec<u64> = (0..200).map(|_| 1_000_000 + random.below(1_000_000)).collect();
        let things: Vec<Thing> = sizes.iter().map(|&size| Thing { size, value: size as f64 }).collect();
        let space = sizes.iter().sum::<u64>() / 2 + 1;
        let chosen = choose(&things, space);
        assert!(chosen.size <= space && chosen.value <= chosen.bound && chosen.bound <= space as f64, "{chosen:?}");
        assert!(chosen.value > 0.98 * chosen.bound, "{} of {}", chosen.value, chosen.bound);
        assert_eq!(choose(&[], 10), Chosen { things: vec![], size: 0, value: 0.0, bound: 0.0, exact: true });
    }
}
