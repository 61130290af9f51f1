//! The contents of the tables beside those of TPC-C.

use super::{SUPPLIERS, TABLES};
use crate::BenchError;
use crate::driver::{Row, Session, Value};
use crate::load::fill;
use crate::tpcc::random::{digits, text, within};
use entresol_core::Random;
use std::sync::atomic::AtomicBool;

const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];

/// Names of nations and the numbers of their regions, in the order of the characters that they stand for: digits,
/// capitals, small letters. States of customers begin with capitals, so only nations from Argentina to Japan have any.
const NATIONS: [(&str, i64); 62] = [
    ("Algeria", 0),
    ("Angola", 0),
    ("Egypt", 4),
    ("Ethiopia", 0),
    ("Ghana", 0),
    ("Kenya", 0),
    ("Morocco", 0),
    ("Nigeria", 0),
    ("Senegal", 0),
    ("Tunisia", 0),
    ("Argentina", 1),
    ("Australia", 2),
    ("Austria", 3),
    ("Belgium", 3),
    ("Brazil", 1),
    ("Cambodia", 2),
    ("Canada", 1),
    ("Chile", 1),
    ("China", 2),
    ("Colombia", 1),
    ("Cuba", 1),
    ("Denmark", 3),
    ("Ecuador", 1),
    ("Finland", 3),
    ("France", 3),
    ("Germany", 3),
    ("Greece", 3),
    ("Hungary", 3),
    ("India", 2),
    ("Indonesia", 2),
    ("Iran", 4),
    ("Iraq", 4),
    ("Ireland", 3),
    ("Israel", 4),
    ("Italy", 3),
    ("Japan", 2),
    ("Jordan", 4),
    ("Kuwait", 4),
    ("Laos", 2),
    ("Lebanon", 4),
    ("Malaysia", 2),
    ("Mexico", 1),
    ("Nepal", 2),
    ("Netherlands", 3),
    ("Norway", 3),
    ("Oman", 4),
    ("Panama", 1),
    ("Peru", 1),
    ("Philippines", 2),
    ("Poland", 3),
    ("Portugal", 3),
    ("Qatar", 4),
    ("Romania", 3),
    ("Singapore", 2),
    ("Spain", 3),
    ("Sweden", 3),
    ("Thailand", 2),
    ("Turkey", 4),
    ("Ukraine", 3),
    ("Uruguay", 1),
    ("Vietnam", 2),
    ("Zambia", 0),
];

/// Words of the suppliers' comments. Random letters would not do: some would spell "bad".
const WORDS: [&str; 8] = ["prompt", "thrifty", "far off", "obliging", "hurried", "silent", "new", "well known"];

/// Rows that a load makes in addition to those of TPC-C.
pub fn rows_more() -> u64 {
    (REGIONS.len() + NATIONS.len()) as u64 + SUPPLIERS
}

/// Codes of the characters that nations stand for.
fn codes() -> impl Iterator<Item = u8> + Clone {
    (b'0'..=b'9').chain(b'A'..=b'Z').chain(b'a'..=b'z')
}

/// A stream of random numbers for a row.
fn stream(seed: u64, of: u64, key: u64) -> Random {
    Random::new(Random::mix(Random::mix(seed ^ (0x4348 << 32) ^ (of << 56)) ^ key))
}

/// The rows of a table, as they are loaded.
///
/// # Panics
/// When the name is none of [`TABLES`].
pub fn rows(table: &str, seed: u64) -> Box<dyn Iterator<Item = Row>> {
    match table {
        "region" => Box::new(REGIONS.iter().zip(0..).map(move |(name, key)| {
            vec![Value::Int(key), (*name).into(), text(&mut stream(seed, 1, key as u64), 30, 100).into()]
        })),
        "nation" => Box::new(NATIONS.iter().zip(codes()).map(move |((name, region), code)| {
            let comment = text(&mut stream(seed, 2, code.into()), 30, 100);
            vec![Value::Int(code.into()), (*name).into(), Value::Int(*region), comment.into()]
        })),
        "supplier" => Box::new((0..SUPPLIERS).map(move |key| supplier(&mut stream(seed, 3, key), key))),
        other => panic!("no table {other}"),
    }
}

fn supplier(random: &mut Random, key: u64) -> Row {
    let address = text(random, 10, 40);
    let nation = codes().nth(random.below(NATIONS.len() as u64) as usize).expect("a code for each nation");
    let (phone, balance) = (digits(random, 15), within(random, 0, 1_099_998) as i64 - 99_999);
    let mut words: Vec<&str> = (0..6).map(|_| WORDS[random.below(WORDS.len() as u64) as usize]).collect();
    // Five of ten thousand, as TPC-H has suppliers with complaints.
    if random.below(2000) == 0 {
        words[2] = "bad";
    }
    let name = format!("Supplier#{key:09}");
    let nation = Value::Int(nation.into());
    vec![
        Value::Int(key as i64),
        name.into(),
        address.into(),
        nation,
        phone.into(),
        Value::Int(balance),
        words.join(" ").into(),
    ]
}

/// Makes the tables and fills them, beside those of TPC-C. `progress` receives the number of further rows; `ended`
/// ends the load early.
///
/// # Errors
/// The database's error, or [`BenchError::Interrupted`].
pub fn load(
    session: &mut dyn Session,
    seed: u64,
    ended: &AtomicBool,
    progress: &dyn Fn(u64),
) -> Result<(), BenchError> {
    fill(session, &TABLES, |table| rows(table.name, seed), &[], ended, progress)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_row_fits_its_columns_and_no_key_comes_twice() {
        for table in &TABLES {
            let mut keys = HashSet::new();
            for row in rows(table.name, 5) {
                assert_eq!(row.len(), table.columns.len(), "{row:?}");
                for (value, (column, kind)) in row.iter().zip(table.columns) {
                    let width = kind.split_once("CHAR(").and_then(|(_, rest)| rest.split(')').next()?.parse().ok());
                    let length = value.text().map_or(0, str::len);
                    assert!(width.is_none_or(|width: usize| length <= width), "{column}: {value:?}");
                }
                assert!(keys.insert(row[0].int().expect("a key")), "{}: {:?} twice", table.name, row[0]);
            }
        }
        let all: usize = TABLES.iter().map(|table| rows(table.name, 5).count()).sum();
        assert_eq!(all as u64, rows_more());
    }

    #[test]
    fn nations_have_regions_and_names_of_their_own_and_suppliers_nations() {
        let names: HashSet<&str> = NATIONS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), NATIONS.len());
        assert!(NATIONS.iter().all(|(_, region)| (0..REGIONS.len() as i64).contains(region)));
        let known: HashSet<i64> = codes().map(i64::from).collect();
        let used: HashSet<i64> = rows("supplier", 5).map(|row| row[3].int().expect("a nation")).collect();
        assert_eq!(used, known);
        // Both nations of query 7 have customers.
        for name in ["Germany", "Cambodia"] {
            let at = NATIONS.iter().position(|(its, _)| *its == name).expect("a nation");
            assert!(codes().nth(at).is_some_and(|code| code.is_ascii_uppercase()), "{name}");
        }
    }

    #[test]
    fn some_suppliers_are_bad() {
        let bad = |row: &Row| row[6].text().expect("a comment").contains("bad");
        let count = rows("supplier", 5).filter(bad).count();
        assert!((1..=15).contains(&count), "{count}");
    }
}
