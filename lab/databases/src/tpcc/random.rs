//! Random values: clauses 2.1.6 and 4.3.2.

use entresol_core::Random;

/// A uniform draw from `low` to `high`, both included.
pub fn within(random: &mut Random, low: u64, high: u64) -> u64 {
    low + random.below(high - low + 1)
}

/// The three constants of NURand, which are drawn once for a load and once for its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// For last names.
    pub name: u64,
    /// For customers.
    pub customer: u64,
    /// For items.
    pub item: u64,
}

impl Constants {
    /// Constants of a load.
    pub fn of_load(seed: u64) -> Self {
        let mut random = Random::new(Random::mix(seed ^ 0x4c));
        Self { name: random.below(256), customer: random.below(1024), item: random.below(8192) }
    }

    /// Constants of the runs on a load. The constant of last names must be apart from the load's by 65 to 119, but not
    /// by 96 or 112 (clause 2.1.6.1).
    pub fn of_run(seed: u64) -> Self {
        let loaded = Self::of_load(seed);
        let mut random = Random::new(Random::mix(seed ^ 0x52));
        loop {
            let drawn = Self { name: random.below(256), customer: random.below(1024), item: random.below(8192) };
            let apart = drawn.name.abs_diff(loaded.name);
            if (65..=119).contains(&apart) && apart != 96 && apart != 112 {
                return drawn;
            }
        }
    }
}

/// A skewed draw from `low` to `high`, both included; `a` sets the skew.
pub fn nurand(random: &mut Random, a: u64, c: u64, low: u64, high: u64) -> u64 {
    let mixed = within(random, 0, a) | within(random, low, high);
    (mixed + c) % (high - low + 1) + low
}

/// The number of a customer.
pub fn customer(random: &mut Random, constants: Constants, customers: u64) -> u64 {
    nurand(random, 1023, constants.customer, 1, customers)
}

/// The number of an item.
pub fn item(random: &mut Random, constants: Constants, items: u64) -> u64 {
    nurand(random, 8191, constants.item, 1, items)
}

/// Number of different last names in a district: a thousand, or as many as there are customers.
pub fn names(customers: u64) -> u64 {
    customers.min(1000)
}

/// The number of a last name that some customer has.
pub fn name_number(random: &mut Random, c: u64, customers: u64) -> u64 {
    nurand(random, 255, c, 0, names(customers) - 1)
}

/// A last name, by its number below 1000.
pub fn last_name(number: u64) -> String {
    const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    [number / 100, number / 10, number].map(|digit| SYLLABLES[(digit % 10) as usize]).concat()
}

/// Letters and digits, `low` to `high` of them.
pub fn text(random: &mut Random, low: u64, high: u64) -> String {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .";
    let length = within(random, low, high) as usize;
    let mut text = String::with_capacity(length + 10);
    while text.len() < length {
        let bits = random.next_u64();
        (0..10).for_each(|at| text.push(char::from(CHARACTERS[(bits >> (6 * at)) as usize % 64])));
    }
    text.truncate(length);
    text
}

/// Digits.
pub fn digits(random: &mut Random, count: u64) -> String {
    (0..count).map(|_| char::from(b'0' + random.below(10) as u8)).collect()
}

/// Data of an item or its stock: one in ten contains the word that marks an original.
pub fn data(random: &mut Random) -> String {
    let mut data = text(random, 26, 50);
    if random.below(10) == 0 {
        let at = random.below(data.len() as u64 - 7) as usize;
        data.replace_range(at..at + 8, "ORIGINAL");
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nurand_stays_within_and_is_not_uniform() {
        let seed = 5;
        let (mut random, constants) = (Random::new(seed), Constants::of_run(seed));
        let mut counts = vec![0u32; 3001];
        for _ in 0..300_000 {
            counts[customer(&mut random, constants, 3000) as usize] += 1;
        }
        assert_eq!(counts[0], 0, "seed {seed}");
        counts.sort_unstable_by(|one, other| other.cmp(one));
        // Uniform draws would give a hundred each; by the specification's formula some numbers are drawn twenty times
        // as often.
        assert!(counts[0] > 500, "seed {seed}: {}", counts[0]);
    }

    #[test]
    fn constants_of_a_run_are_apart_from_the_loads() {
        for seed in 0..500 {
            let apart = Constants::of_run(seed).name.abs_diff(Constants::of_load(seed).name);
            assert!((65..=119).contains(&apart) && apart != 96 && apart != 112, "seed {seed}: {apart}");
        }
    }

    #[test]
    fn names_are_the_specifications() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
    }

    #[test]
    fn one_in_ten_data_are_originals() {
        let seed = 9;
        let mut random = Random::new(seed);
        let data: Vec<String> = (0..10_000).map(|_| data(&mut random)).collect();
        assert!(data.iter().all(|data| (26..=50).contains(&data.len())), "seed {seed}");
        let originals = data.iter().filter(|data| data.contains("ORIGINAL")).count();
        assert!((850..1150).contains(&originals), "seed {seed}: {originals}");
    }
}
