//! Substitution parameters and their values: clauses 2.4.3.3, 2.4.7.3, 2.4.9.3, 2.4.10.3, 2.4.13.3, 2.4.16.3 and
//! 2.4.20.3.

use super::queries::Query;
use entresol_core::Random;
use tpchgen::distribution::{Distribution, Distributions};

/// Names of parameters and their values, as they stand in the query's text.
pub type Parameters = Vec<(&'static str, String)>;

/// First words and second words of types of parts: clause 4.2.2.13.
pub(super) const TYPES: [&[&str]; 2] = [
    &["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"],
    &["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"],
];
/// Words of query 13.
pub(super) const WORDS: [&[&str]; 2] =
    [&["special", "pending", "unusual", "express"], &["packages", "requests", "accounts", "deposits"]];

fn one_of<'a>(random: &mut Random, values: &[&'a str]) -> &'a str {
    values[random.below(values.len() as u64) as usize]
}

fn any(random: &mut Random, of: fn(&Distributions) -> &Distribution) -> String {
    one_of(random, of(Distributions::static_default()).get_values()).to_owned()
}

/// Eight different numbers of 1 to 50.
fn sizes(random: &mut Random) -> [u64; 8] {
    let mut all: Vec<u64> = (1..=50).collect();
    std::array::from_fn(|_| all.swap_remove(random.below(all.len() as u64) as usize))
}

/// The first day of a month, counted from January 1993.
fn month(number: u64) -> String {
    format!("{}-{:02}-01", 1993 + number / 12, number % 12 + 1)
}

fn sized(mut parameters: Parameters, sizes: [u64; 8]) -> Parameters {
    parameters.push(("sizes", sizes.map(|size| size.to_string()).join(", ")));
    parameters
}

/// A quarter as in query 10: the first day of a month from January 1993 on, and the day three months later.
fn quarter(number: u64) -> Parameters {
    vec![("date", month(number)), ("end", month(number + 3))]
}

/// A year as in query 20.
fn year(color: String, year: u64, nation: String) -> Parameters {
    vec![
        ("color", color),
        ("date", format!("{year}-01-01")),
        ("end", format!("{}-01-01", year + 1)),
        ("nation", nation),
    ]
}

/// Uniformly drawn parameters of a query.
///
/// # Panics
/// When there is no query of this number.
pub(super) fn draw(number: u32, random: &mut Random) -> Parameters {
    match number {
        3 => vec![
            ("segment", any(random, Distributions::market_segments)),
            ("date", format!("1995-03-{:02}", 1 + random.below(31))),
        ],
        7 => {
            let one = any(random, Distributions::nations);
            let other = std::iter::repeat_with(|| any(random, Distributions::nations)).find(|other| *other != one);
            vec![("nation1", one), ("nation2", other.expect("there are others"))]
        }
        9 => vec![("color", any(random, Distributions::part_colors))],
        10 => quarter(1 + random.below(24)),
        13 => vec![("word1", one_of(random, WORDS[0]).into()), ("word2", one_of(random, WORDS[1]).into())],
        16 => {
            let brand = format!("Brand#{}{}", 1 + random.below(5), 1 + random.below(5));
            let kind = format!("{} {}", one_of(random, TYPES[0]), one_of(random, TYPES[1]));
            sized(vec![("brand", brand), ("type", kind)], sizes(random))
        }
        20 => {
            let color = any(random, Distributions::part_colors);
            year(color, 1993 + random.below(5), any(random, Distributions::nations))
        }
        other => panic!("there is no query {other} here"),
    }
}

/// The parameters for which the specification gives the answer.
///
/// # Panics
/// When there is no query of this number.
pub(super) fn validation(number: u32) -> Parameters {
    match number {
        3 => vec![("segment", "BUILDING".into()), ("date", "1995-03-15".into())],
        7 => vec![("nation1", "FRANCE".into()), ("nation2", "GERMANY".into())],
        9 => vec![("color", "green".into())],
        10 => quarter(9),
        13 => vec![("word1", "special".into()), ("word2", "requests".into())],
        16 => sized(
            vec![("brand", "Brand#45".into()), ("type", "MEDIUM POLISHED".into())],
            [49, 14, 23, 45, 19, 3, 36, 9],
        ),
        20 => year("forest".into(), 1994, "CANADA".into()),
        other => panic!("there is no query {other} here"),
    }
}

/// The stream of a query's parameters. Each query has its own, so that the parameters do not depend on other queries.
pub(super) fn stream(seed: u64, number: u32, instance: u32) -> Random {
    Random::new(Random::mix(Random::mix(seed ^ 0x6871) ^ (u64::from(number) << 32 | u64::from(instance))))
}

impl Query {
    /// The value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(its, _)| *its == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::super::NUMBERS;
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    const DRAWS: u32 = 4000;

    /// Numbers of values that the specification has for each parameter; each value comes up in this many draws.
    const VALUES: [(u32, &str, usize); 14] = [
        (3, "segment", 5),
        (3, "date", 31),
        (7, "nation1", 25),
        (7, "nation2", 25),
        (9, "color", 92),
        (10, "date", 24),
        (10, "end", 24),
        (13, "word1", 4),
        (13, "word2", 4),
        (16, "brand", 25),
        (16, "type", 30),
        (20, "color", 92),
        (20, "date", 5),
        (20, "nation", 25),
    ];

    #[test]
    fn every_value_of_the_specification_comes_up_and_no_other() {
        let seed = 11;
        let mut seen: BTreeMap<(u32, &str), BTreeSet<String>> = BTreeMap::new();
        for number in NUMBERS {
            for instance in 1..=DRAWS {
                let drawn = Query::draw(seed, number, instance);
                for (name, value) in &drawn.parameters {
                    seen.entry((number, name)).or_default().insert(value.clone());
                }
            }
        }
        for (number, name, count) in VALUES {
            assert_eq!(seen[&(number, name)].len(), count, "seed {seed}, query {number}, {name}");
        }
        let ends = |number, name| {
            let values = &seen[&(number, name)];
            [values.first(), values.last()].map(|value| value.expect("values").clone())
        };
        assert_eq!(ends(3, "date"), ["1995-03-01", "1995-03-31"]);
        assert_eq!(ends(10, "date"), ["1993-02-01", "1995-01-01"]);
        assert_eq!(ends(10, "end"), ["1993-05-01", "1995-04-01"]);
        assert_eq!(ends(20, "date"), ["1993-01-01", "1997-01-01"]);
        assert_eq!(ends(20, "end"), ["1994-01-01", "1998-01-01"]);
        assert_eq!(ends(16, "brand"), ["Brand#11", "Brand#55"]);
    }

    #[test]
    fn what_must_differ_differs() {
        let seed = 12;
        for instance in 1..=DRAWS {
            let nations = Query::draw(seed, 7, instance);
            assert_ne!(nations.parameter("nation1"), nations.parameter("nation2"), "seed {seed}, {instance}");
            let sizes = Query::draw(seed, 16, instance);
            let sizes = sizes.parameter("sizes").expect("it has sizes");
            let sizes: BTreeSet<u64> = sizes.split(", ").map(|size| size.parse().expect("a number")).collect();
            assert_eq!(sizes.len(), 8, "seed {seed}, {instance}: {sizes:?}");
            assert!(sizes.iter().all(|size| (1..=50).contains(size)), "seed {seed}, {instance}: {sizes:?}");
        }
    }

    #[test]
    fn the_specifications_own_parameters_are_among_those_drawn() {
        let seed = 13;
        for number in NUMBERS {
            for (name, value) in Query::validation(number).parameters.iter().filter(|(name, _)| *name != "sizes") {
                let comes =
                    (1..=DRAWS).any(|instance| Query::draw(seed, number, instance).parameter(name) == Some(value));
                assert!(comes, "seed {seed}, query {number}, {name}: {value}");
            }
        }
    }

    #[test]
    fn parameters_depend_on_seed_query_and_instance_alone() {
        assert_eq!(Query::draw(5, 20, 3), Query::draw(5, 20, 3));
        let all: BTreeSet<String> = (1..=4).map(|instance| Query::draw(5, 20, instance).sql()).collect();
        assert_eq!(all.len(), 4, "{all:?}");
        assert_ne!(Query::draw(5, 16, 1), Query::draw(6, 16, 1));
    }
}
