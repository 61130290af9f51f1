//! The contents: clause 4.2, by the crate `tpchgen`, whose output is that of the specification's own generator.

use super::{INDEXES, TABLES};
use crate::BenchError;
use crate::driver::{Row, Session, Table, Value};
use crate::load::fill;
use std::fmt::Display;
use std::sync::atomic::AtomicBool;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};

/// The smallest scale: with fewer suppliers a part would have one of them twice.
pub const SCALE_MIN: f64 = 0.01;
/// The largest scale: keys are of 32 bits.
pub const SCALE_MAX: f64 = 1000.0;

/// Rows that a load of this scale makes; lines of orders are four an order on average.
pub fn rows_about(scale: f64) -> u64 {
    let scaled = [10_000.0, 200_000.0, 800_000.0, 150_000.0, 1_500_000.0, 6_000_000.0];
    30 + scaled.iter().map(|rows| (rows * scale) as u64).sum::<u64>()
}

/// The rows of a table, in the order of its primary key.
///
/// # Panics
/// When there is no table of this name.
pub fn rows(table: &'static Table, scale: f64) -> Box<dyn Iterator<Item = Row>> {
    match table.name {
        "region" => typed(table, RegionGenerator::new(scale, 1, 1).iter()),
        "nation" => typed(table, NationGenerator::new(scale, 1, 1).iter()),
        "part" => typed(table, PartGenerator::new(scale, 1, 1).iter()),
        "supplier" => typed(table, SupplierGenerator::new(scale, 1, 1).iter()),
        "partsupp" => typed(table, PartSuppGenerator::new(scale, 1, 1).iter()),
        "customer" => typed(table, CustomerGenerator::new(scale, 1, 1).iter()),
        "orders" => typed(table, OrderGenerator::new(scale, 1, 1).iter()),
        "lineitem" => typed(table, LineItemGenerator::new(scale, 1, 1).iter()),
        other => panic!("there is no table {other}"),
    }
}

/// Turns lines of the generator, with fields that each end with a bar, into rows.
fn typed(table: &'static Table, lines: impl Iterator<Item: Display> + 'static) -> Box<dyn Iterator<Item = Row>> {
    Box::new(lines.map(|line| {
        let line = line.to_string();
        let fields = line.trim_end_matches('|').split('|');
        let row: Row = fields.zip(table.columns).map(|(field, (_, kind))| value(field, kind)).collect();
        debug_assert_eq!(row.len(), table.columns.len(), "{line}");
        row
    }))
}

fn value(field: &str, kind: &str) -> Value {
    match kind.contains("INT") {
        true => Value::Int(field.parse().expect("the generator's keys are numbers")),
        false => Value::Text(field.to_owned()),
    }
}

/// Makes the tables and their indexes and fills them. `progress` receives the number of further rows; `ended` ends the
/// load early.
///
/// # Errors
/// The database's error, or [`BenchError::Interrupted`].
pub fn load(
    session: &mut dyn Session,
    scale: f64,
    ended: &AtomicBool,
    progress: &dyn Fn(u64),
) -> Result<(), BenchError> {
    fill(session, &TABLES, |table| rows(table, scale), &INDEXES, ended, progress)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn at<'a>(row: &'a Row, table: &Table, column: &str) -> &'a Value {
        &row[table.columns.iter().position(|(name, _)| *name == column).expect("a column")]
    }

    fn table(name: &str) -> &'static Table {
        TABLES.iter().find(|table| table.name == name).expect("a table")
    }

    #[test]
    fn there_are_as_many_rows_as_the_specification_says() {
        // Row counts of clause 4.2.5; lines of orders as its generator makes them at this scale.
        let expected = [5, 25, 2_000, 100, 8_000, 1_500, 15_000, 60_175];
        for (table, expected) in TABLES.iter().zip(expected) {
            assert_eq!(rows(table, 0.01).count(), expected, "{}", table.name);
        }
        let (all, about) = (expected.iter().sum::<usize>() as f64, rows_about(0.01) as f64);
        assert!((about / all - 1.0).abs() < 0.01, "{about}, not {all}");
    }

    #[test]
    fn every_row_fits_its_columns_and_no_key_comes_twice() {
        for table in &TABLES {
            let mut keys = HashSet::new();
            for row in rows(table, SCALE_MIN) {
                assert_eq!(row.len(), table.columns.len(), "{row:?}");
                for (value, (column, kind)) in row.iter().zip(table.columns) {
                    let width = kind.split_once("CHAR(").map(|(_, rest)| {
                        rest[..rest.find(')').expect("it is closed")].parse::<usize>().expect("a width")
                    });
                    let text = value.text().unwrap_or_default();
                    assert!(width.is_none_or(|width| text.len() <= width), "{column}: {value:?}");
                }
                let key: Vec<Value> = table.key.split(", ").map(|column| at(&row, table, column).clone()).collect();
                assert!(keys.insert(format!("{key:?}")), "{}: {key:?} twice", table.name);
            }
        }
    }

    #[test]
    fn foreign_keys_lead_somewhere() {
        let keys = |name: &str, columns: &[&str]| -> HashSet<String> {
            let its = table(name);
            let key =
                |row: Row| format!("{:?}", columns.iter().map(|column| at(&row, its, column)).collect::<Vec<_>>());
            rows(its, SCALE_MIN).map(key).collect()
        };
        for (from, column, to, key) in [
            ("nation", &["n_regionkey"][..], "region", &["r_regionkey"][..]),
            ("partsupp", &["ps_partkey"], "part", &["p_partkey"]),
            ("orders", &["o_custkey"], "customer", &["c_custkey"]),
            ("lineitem", &["l_orderkey"], "orders", &["o_orderkey"]),
            ("lineitem", &["l_partkey", "l_suppkey"], "partsupp", &["ps_partkey", "ps_suppkey"]),
        ] {
            assert!(keys(from, column).is_subset(&keys(to, key)), "{from}({column:?})");
        }
    }
}
