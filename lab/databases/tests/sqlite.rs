//! TPC-C on SQLite: conditions hold after a run, damage is found, and a load can be reproduced.

mod common;

use common::{damage_is_found, faults, holds, loaded, ran, scale};
use entresol_bench::driver::{Database, Sqlite};
use entresol_bench::tpcc::{TABLES, rows};

#[test]
fn a_run_keeps_what_must_hold_and_the_ledger_agrees() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let database = Sqlite::new(scratch.path().join("tpcc.db"), 1 << 20);
    loaded(&database);
    let mut ledger = ran(&database, 0).ledger;
    ledger.append(ran(&database, 100).ledger);
    let mut session = database.connect().expect("a session");
    holds(&mut *session);
    assert_eq!(faults(&mut *session, &ledger), [""; 0]);
    damage_is_found(&mut *session, &ledger);
}

#[test]
fn a_load_is_the_same_again_and_as_large_as_it_says() {
    for table in TABLES {
        let all: Vec<_> = rows(table.name, scale(), 1).collect();
        assert!(all.iter().all(|row| row.len() == table.columns.len()), "{}", table.name);
        assert!(all == rows(table.name, scale(), 1).collect::<Vec<_>>(), "{}", table.name);
        let constant = ["new_order"].contains(&table.name);
        assert!(constant || all != rows(table.name, scale(), 2).collect::<Vec<_>>(), "{}", table.name);
    }
    let all: u64 = TABLES.iter().map(|table| rows(table.name, scale(), 1).count() as u64).sum();
    let about = scale().rows_about();
    assert!(all.abs_diff(about) * 20 < about, "{all} rows, about {about} expected");
}
