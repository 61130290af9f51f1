//! Substitution parameters and their values: clauses 2.4.1.3 to 2.4.22.3.

use super::queries::Query;
use entresol_core::Random;
use tpchgen::dates::{MIN_GENERATE_DATE, TPCHDate};
use tpchgen::distribution::{Distribution, Distributions};

/// Names of parameters and their values, as they stand in the query's text.
pub type Parameters = Vec<(&'static str, String)>;

/// First, second and third words of types of parts: clause 4.2.2.13.
pub(super) const TYPES: [&[&str]; 3] = [
    &["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"],
    &["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"],
    &["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"],
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

/// Two different values.
fn two(random: &mut Random, of: fn(&Distributions) -> &Distribution) -> [String; 2] {
    let one = any(random, of);
    let other = std::iter::repeat_with(|| any(random, of)).find(|other| *other != one);
    [one, other.expect("there are others")]
}

/// Different numbers of a range, both ends included.
fn different<const N: usize>(random: &mut Random, first: u64, last: u64) -> [u64; N] {
    let mut all: Vec<u64> = (first..=last).collect();
    std::array::from_fn(|_| all.swap_remove(random.below(all.len() as u64) as usize))
}

fn brand(random: &mut Random) -> String {
    format!("Brand#{}{}", 1 + random.below(5), 1 + random.below(5))
}

/// Days from the first that the generator knows, 1992-01-01, to 1998-12-01.
const DECEMBER_1998: i32 = 2526;

/// A date as in query 1: as many days before 1998-12-01.
fn before(days: u64) -> Parameters {
    vec![("date", TPCHDate::new(MIN_GENERATE_DATE + DECEMBER_1998 - days as i32).to_string())]
}

/// The first day of a month, counted from January 1993.
fn month(number: u64) -> String {
    format!("{}-{:02}-01", 1993 + number / 12, number % 12 + 1)
}

/// Adds a time: the first day of a month, counted from January 1993, and the day as many months later.
fn lasting(mut parameters: Parameters, first: u64, months: u64) -> Parameters {
    parameters.extend([("date", month(first)), ("end", month(first + months))]);
    parameters
}

/// A quarter as in query 10: the first day of a month from January 1993 on, and the day three months later.
fn quarter(number: u64) -> Parameters {
    lasting(vec![], number, 3)
}

/// Adds a year, counted from 1993: its first day and that of the next.
fn in_year(parameters: Parameters, number: u64) -> Parameters {
    lasting(parameters, 12 * number, 12)
}

fn sized(mut parameters: Parameters, sizes: [u64; 8]) -> Parameters {
    parameters.push(("sizes", sizes.map(|size| size.to_string()).join(", ")));
    parameters
}

/// Query 6: a year, counted from 1993, a discount in hundredths, and a quantity. The discount may be off by one
/// hundredth.
fn discounted(year: u64, discount: u64, quantity: u64) -> Parameters {
    let mut parameters = in_year(vec![], year);
    parameters.extend([
        ("least", format!("0.{:02}", discount - 1)),
        ("most", format!("0.{:02}", discount + 1)),
        ("quantity", quantity.to_string()),
    ]);
    parameters
}

/// Query 8: a nation with its region, and a type. The generator has the keys of regions as weights of nations.
fn share(nation: String, kind: String) -> Parameters {
    let (all, regions) = (Distributions::static_default().nations(), Distributions::static_default().regions());
    let its = all.get_values().iter().position(|&name| name == nation).expect("a nation");
    let region = regions.get_value(all.get_weight(its) as usize).to_owned();
    vec![("nation", nation), ("region", region), ("type", kind)]
}

/// Query 11: a nation, and 0.0001 divided by the scale factor, in ten digits.
fn important(nation: String, scale: f64) -> Parameters {
    let fraction = format!("{:.10}", 0.0001 / scale);
    vec![("nation", nation), ("fraction", fraction.trim_end_matches('0').to_owned())]
}

/// Query 12: two modes of shipping, and a year, counted from 1993.
fn shipped([one, other]: [String; 2], year: u64) -> Parameters {
    in_year(vec![("mode1", one), ("mode2", other)], year)
}

/// Query 19: quantities and brands.
fn bargains(quantities: [u64; 3], [one, two, three]: [String; 3]) -> Parameters {
    let [first, second, third] = quantities.map(|quantity| quantity.to_string());
    vec![
        ("quantity1", first),
        ("quantity2", second),
        ("quantity3", third),
        ("brand1", one),
        ("brand2", two),
        ("brand3", three),
    ]
}

/// Query 20: a year, counted from 1993.
fn surplus(color: String, year: u64, nation: String) -> Parameters {
    let mut parameters = in_year(vec![("color", color)], year);
    parameters.push(("nation", nation));
    parameters
}

/// Query 22: codes of countries.
fn coded(codes: [u64; 7]) -> Parameters {
    vec![("codes", codes.map(|code| format!("'{code}'")).join(", "))]
}

/// Uniformly drawn parameters of a query, for data of this scale factor.
///
/// # Panics
/// When there is no query of this number.
pub(super) fn draw(number: u32, random: &mut Random, scale: f64) -> Parameters {
    match number {
        1 => before(60 + random.below(61)),
        2 => vec![
            ("size", (1 + random.below(50)).to_string()),
            ("type", one_of(random, TYPES[2]).into()),
            ("region", any(random, Distributions::regions)),
        ],
        3 => vec![
            ("segment", any(random, Distributions::market_segments)),
            ("date", format!("1995-03-{:02}", 1 + random.below(31))),
        ],
        4 | 15 => quarter(random.below(58)),
        5 => in_year(vec![("region", any(random, Distributions::regions))], random.below(5)),
        6 => discounted(random.below(5), 2 + random.below(8), 24 + random.below(2)),
        7 => {
            let [one, other] = two(random, Distributions::nations);
            vec![("nation1", one), ("nation2", other)]
        }
        8 => share(any(random, Distributions::nations), any(random, Distributions::part_types)),
        9 => vec![("color", any(random, Distributions::part_colors))],
        10 => quarter(1 + random.below(24)),
        11 => important(any(random, Distributions::nations), scale),
        12 => shipped(two(random, Distributions::ship_modes), random.below(5)),
        13 => vec![("word1", one_of(random, WORDS[0]).into()), ("word2", one_of(random, WORDS[1]).into())],
        14 => lasting(vec![], random.below(60), 1),
        16 => {
            let brand = brand(random);
            let kind = format!("{} {}", one_of(random, TYPES[0]), one_of(random, TYPES[1]));
            sized(vec![("brand", brand), ("type", kind)], different(random, 1, 50))
        }
        17 => vec![("brand", brand(random)), ("container", any(random, Distributions::part_containers))],
        18 => vec![("quantity", (312 + random.below(4)).to_string())],
        19 => {
            let quantities = [1 + random.below(10), 10 + random.below(11), 20 + random.below(11)];
            bargains(quantities, std::array::from_fn(|_| brand(random)))
        }
        20 => {
            let color = any(random, Distributions::part_colors);
            surplus(color, random.below(5), any(random, Distributions::nations))
        }
        21 => vec![("nation", any(random, Distributions::nations))],
        22 => coded(different(random, 10, 34)),
        other => panic!("there is no query {other} here"),
    }
}

/// The parameters for which the specification gives the answer, at scale factor 1.
///
/// # Panics
/// When there is no query of this number.
pub(super) fn validation(number: u32) -> Parameters {
    match number {
        1 => before(90),
        2 => vec![("size", "15".into()), ("type", "BRASS".into()), ("region", "EUROPE".into())],
        3 => vec![("segment", "BUILDING".into()), ("date", "1995-03-15".into())],
        4 => quarter(6),
        5 => in_year(vec![("region", "ASIA".into())], 1),
        6 => discounted(1, 6, 24),
        7 => vec![("nation1", "FRANCE".into()), ("nation2", "GERMANY".into())],
        8 => share("BRAZIL".into(), "ECONOMY ANODIZED STEEL".into()),
        9 => vec![("color", "green".into())],
        10 => quarter(9),
        11 => important("GERMANY".into(), 1.0),
        12 => shipped(["MAIL".into(), "SHIP".into()], 1),
        13 => vec![("word1", "special".into()), ("word2", "requests".into())],
        14 => lasting(vec![], 32, 1),
        15 => quarter(36),
        16 => sized(
            vec![("brand", "Brand#45".into()), ("type", "MEDIUM POLISHED".into())],
            [49, 14, 23, 45, 19, 3, 36, 9],
        ),
        17 => vec![("brand", "Brand#23".into()), ("container", "MED BOX".into())],
        18 => vec![("quantity", "300".into())],
        19 => bargains([1, 10, 20], ["Brand#12".into(), "Brand#23".into(), "Brand#34".into()]),
        20 => surplus("forest".into(), 1, "CANADA".into()),
        21 => vec![("nation", "SAUDI ARABIA".into())],
        22 => coded([13, 31, 23, 29, 30, 18, 17]),
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
    use super::super::{NUMBERS, SCALE_MIN, TABLES, rows};
    use super::*;
    use crate::driver::{Row, Value};
    use std::collections::{BTreeMap, BTreeSet};

    const DRAWS: u32 = 4000;

    /// The scale factor of the data.
    const SCALE: f64 = 0.05;

    fn drawn(seed: u64, number: u32, instance: u32) -> Query {
        Query::draw(seed, number, instance, SCALE)
    }

    /// Numbers of values that the specification has for each parameter; each value comes up in this many draws.
    const VALUES: [(u32, &str, usize); 44] = [
        (1, "date", 61),
        (2, "size", 50),
        (2, "type", 5),
        (2, "region", 5),
        (3, "segment", 5),
        (3, "date", 31),
        (4, "date", 58),
        (4, "end", 58),
        (5, "region", 5),
        (5, "date", 5),
        (6, "date", 5),
        (6, "least", 8),
        (6, "most", 8),
        (6, "quantity", 2),
        (7, "nation1", 25),
        (7, "nation2", 25),
        (8, "nation", 25),
        (8, "region", 5),
        (8, "type", 150),
        (9, "color", 92),
        (10, "date", 24),
        (10, "end", 24),
        (11, "nation", 25),
        (11, "fraction", 1),
        (12, "mode1", 7),
        (12, "mode2", 7),
        (12, "date", 5),
        (13, "word1", 4),
        (13, "word2", 4),
        (14, "date", 60),
        (15, "date", 58),
        (16, "brand", 25),
        (16, "type", 30),
        (17, "brand", 25),
        (17, "container", 40),
        (18, "quantity", 4),
        (19, "quantity1", 10),
        (19, "quantity2", 11),
        (19, "quantity3", 11),
        (19, "brand3", 25),
        (20, "color", 92),
        (20, "date", 5),
        (20, "nation", 25),
        (21, "nation", 25),
    ];

    /// The least and the greatest text of a parameter.
    const ENDS: [(u32, &str, [&str; 2]); 24] = [
        (1, "date", ["1998-08-03", "1998-10-02"]),
        (3, "date", ["1995-03-01", "1995-03-31"]),
        (4, "date", ["1993-01-01", "1997-10-01"]),
        (4, "end", ["1993-04-01", "1998-01-01"]),
        (5, "date", ["1993-01-01", "1997-01-01"]),
        (5, "end", ["1994-01-01", "1998-01-01"]),
        (6, "date", ["1993-01-01", "1997-01-01"]),
        (6, "least", ["0.01", "0.08"]),
        (6, "most", ["0.03", "0.10"]),
        (6, "quantity", ["24", "25"]),
        (10, "date", ["1993-02-01", "1995-01-01"]),
        (10, "end", ["1993-05-01", "1995-04-01"]),
        (11, "fraction", ["0.002", "0.002"]),
        (12, "end", ["1994-01-01", "1998-01-01"]),
        (14, "date", ["1993-01-01", "1997-12-01"]),
        (14, "end", ["1993-02-01", "1998-01-01"]),
        (15, "date", ["1993-01-01", "1997-10-01"]),
        (16, "brand", ["Brand#11", "Brand#55"]),
        (17, "container", ["JUMBO BAG", "WRAP PKG"]),
        (18, "quantity", ["312", "315"]),
        (19, "quantity2", ["10", "20"]),
        (19, "quantity3", ["20", "30"]),
        (20, "date", ["1993-01-01", "1997-01-01"]),
        (20, "end", ["1994-01-01", "1998-01-01"]),
    ];

    #[test]
    fn every_value_of_the_specification_comes_up_and_no_other() {
        let seed = 11;
        let mut seen: BTreeMap<(u32, &str), BTreeSet<String>> = BTreeMap::new();
        for number in NUMBERS {
            for instance in 1..=DRAWS {
                for (name, value) in drawn(seed, number, instance).parameters {
                    seen.entry((number, name)).or_default().insert(value);
                }
            }
        }
        for (number, name, count) in VALUES {
            assert_eq!(seen[&(number, name)].len(), count, "seed {seed}, query {number}, {name}");
        }
        for (number, name, ends) in ENDS {
            let values = &seen[&(number, name)];
            let found = [values.first(), values.last()].map(|value| value.expect("values").as_str());
            assert_eq!(found, ends, "seed {seed}, query {number}, {name}");
        }
    }

    /// Checks that a list has so many different numbers of a range, both ends included.
    fn are_different(query: &Query, name: &str, count: usize, ends: [u64; 2]) {
        let list = query.parameter(name).expect("a list");
        let number = |text: &str| text.trim_matches('\'').parse().expect("a number");
        let numbers: BTreeSet<u64> = list.split(", ").map(number).collect();
        assert_eq!(numbers.len(), count, "{}: {list}", query.name());
        assert!(numbers.iter().all(|number| (ends[0]..=ends[1]).contains(number)), "{}: {list}", query.name());
    }

    #[test]
    fn what_must_differ_differs() {
        let seed = 12;
        for instance in 1..=DRAWS {
            let nations = drawn(seed, 7, instance);
            assert_ne!(nations.parameter("nation1"), nations.parameter("nation2"), "seed {seed}, {instance}");
            let modes = drawn(seed, 12, instance);
            assert_ne!(modes.parameter("mode1"), modes.parameter("mode2"), "seed {seed}, {instance}");
            are_different(&drawn(seed, 16, instance), "sizes", 8, [1, 50]);
            are_different(&drawn(seed, 22, instance), "codes", 7, [10, 34]);
        }
    }

    #[test]
    fn a_nation_comes_with_its_region() {
        let rows = |name: &str| rows(TABLES.iter().find(|table| table.name == name).expect("a table"), SCALE_MIN);
        let regions: Vec<Row> = rows("region").collect();
        let mut nations = 0;
        for row in rows("nation") {
            let [Value::Int(_), Value::Text(nation), Value::Int(region), _] = &row[..] else { panic!("{row:?}") };
            let share = share(nation.clone(), String::new());
            assert_eq!(Value::Text(share[1].1.clone()), regions[*region as usize][1], "{nation}");
            nations += 1;
        }
        assert_eq!(nations, 25);
    }

    #[test]
    fn the_fraction_of_query_11_is_smaller_the_more_data_there_are() {
        for (scale, fraction) in
            [(0.01, "0.01"), (0.03, "0.0033333333"), (1.0, "0.0001"), (30.0, "0.0000033333"), (1000.0, "0.0000001")]
        {
            assert_eq!(Query::draw(9, 11, 1, scale).parameter("fraction"), Some(fraction), "scale factor {scale}");
        }
    }

    /// Parameters whose validation values no draw need have: lists, the fraction of a scale factor, and the quantity of
    /// query 18, of which clause 2.4.18.4 has a smaller one than clause 2.4.18.3 draws.
    const APART: [(u32, &str); 4] = [(11, "fraction"), (16, "sizes"), (18, "quantity"), (22, "codes")];

    #[test]
    fn the_specifications_own_parameters_are_among_those_drawn() {
        let seed = 13;
        for number in NUMBERS {
            let query = Query::validation(number);
            for (name, value) in query.parameters.iter().filter(|(name, _)| !APART.contains(&(number, name))) {
                let comes = (1..=DRAWS).any(|instance| drawn(seed, number, instance).parameter(name) == Some(value));
                assert!(comes, "seed {seed}, query {number}, {name}: {value}");
            }
        }
        let validation = |number, name| Query::validation(number).parameter(name).map(str::to_owned);
        assert_eq!(validation(1, "date").as_deref(), Some("1998-09-02"));
        assert_eq!(validation(14, "date").as_deref(), Some("1995-09-01"));
        assert_eq!(validation(15, "end").as_deref(), Some("1996-04-01"));
    }

    #[test]
    fn parameters_depend_on_seed_query_and_instance_alone() {
        assert_eq!(drawn(5, 20, 3), drawn(5, 20, 3));
        let all: BTreeSet<String> = (1..=4).map(|instance| drawn(5, 20, instance).sql()).collect();
        assert_eq!(all.len(), 4, "{all:?}");
        assert_ne!(drawn(5, 16, 1), drawn(6, 16, 1));
    }
}
