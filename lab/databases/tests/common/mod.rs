//! Steps that the tests of all databases share.
#![allow(dead_code, reason = "each test takes what it needs")]

use entresol_bench::BenchError;
use entresol_bench::drive::{Plan, Ran, Watch, run};
use entresol_bench::driver::{Database, Session, TextRow};
use entresol_bench::server::{Owner, Server, Setup};
use entresol_bench::tpcc::{Entry, LOADED, Ledger, Scale, broken, conditions, load};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

pub const SEED: u64 = 20;

pub fn scale() -> Scale {
    Scale::new(2).shrunk(100)
}

pub fn plan(first_client: u64, millis: u64) -> Plan {
    let duration = Duration::from_millis(millis);
    Plan { scale: scale(), seed: SEED, first_client, clients: 4, warmup: Duration::from_millis(100), duration }
}

/// Setup of a private server, in a directory that is removed with the test.
pub fn setup(directory: &Path) -> Setup {
    let owner = Owner::dropping("nobody").expect("an unprivileged user");
    for place in [directory.to_owned(), directory.join("data"), directory.join("run")] {
        if !place.exists() {
            std::fs::create_dir(&place).expect("a directory");
        }
        owner.give(&place).expect("a directory of its own");
    }
    Setup {
        data: directory.join("data"),
        run: directory.join("run"),
        owner,
        memory_bytes: 8 << 20,
        connections: 8,
        checkpoint: Duration::from_secs(300),
    }
}

/// The server, or none with a message if it is not installed.
pub fn installed<S>(server: Result<S, BenchError>) -> Option<S> {
    match server {
        Ok(server) => Some(server),
        Err(error @ BenchError::Missing { program, .. }) => {
            entresol_skip::skipped!(program, "{error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Makes and starts a server; returns its database for clients.
pub fn started(server: &mut dyn Server) -> Arc<dyn Database> {
    server.create().expect("a data directory");
    server.start(&AtomicBool::new(false)).expect("a start");
    server.database()
}

/// True if numbers are within a tolerance and all other fields are equal.
pub fn are_close(found: &TextRow, expected: &TextRow, within: f64) -> bool {
    let close = |(found, expected): (&Option<String>, &Option<String>)| {
        let number = |field: &Option<String>| field.as_deref().and_then(|text| text.parse::<f64>().ok());
        match (number(found), number(expected)) {
            // Letters may spell a number, such as "INF".
            (Some(one), Some(other)) => found == expected || (one - other).abs() < within,
            _ => found == expected,
        }
    };
    found.len() == expected.len() && found.iter().zip(expected).all(close)
}

pub fn loaded(database: &dyn Database) {
    let mut session = database.connect().expect("a session");
    load(&mut *session, scale(), SEED, &AtomicBool::new(false), &|_| {}).expect("a load");
    assert_eq!(broken(&mut *session, &LOADED).expect("an answer"), 0);
    holds(&mut *session);
}

pub fn holds(session: &mut dyn Session) {
    for condition in conditions() {
        let rows = broken(session, condition).expect("an answer");
        assert_eq!(rows, 0, "seed {SEED}, condition {}: {}", condition.number, condition.says);
    }
}

pub fn faults(session: &mut dyn Session, ledger: &Ledger) -> Vec<String> {
    ledger.faults(session, scale().customers as i64 + 1).expect("an answer")
}

pub fn ran(database: &dyn Database, first_client: u64) -> Ran {
    let ran = run(database, &plan(first_client, 1200), &Watch::default()).expect("a run");
    assert!(ran.tallies.iter().all(|tally| tally.committed > 0), "seed {SEED}: {:?}", ran.tallies);
    assert_eq!(ran.tallies[0].latency.count(), ran.tallies[0].committed);
    ran
}

/// Statements that each break one condition, the one of its number.
pub const BREAKS: [(u32, &str); 8] = [
    (1, "UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 2"),
    (2, "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 3"),
    (4, "DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 4 AND ol_o_id = 2 AND ol_number = 1"),
    (5, "UPDATE orders SET o_carrier_id = NULL WHERE o_w_id = 1 AND o_d_id = 5 AND o_id = 1"),
    (
        7,
        "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_w_id = 2 AND ol_d_id = 1 AND ol_o_id = 1 AND ol_number = 2",
    ),
    (9, "UPDATE history SET h_amount = h_amount + 5 WHERE h_id = 3"),
    (10, "UPDATE customer SET c_balance = c_balance + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1"),
    (12, "UPDATE customer SET c_ytd_payment = 0 WHERE c_w_id = 2 AND c_d_id = 2 AND c_id = 2"),
];

pub fn damage_is_found(session: &mut dyn Session, ledger: &Ledger) {
    for (number, sql) in BREAKS {
        session.batch(sql).expect("a change");
        let condition = conditions().iter().find(|condition| condition.number == number).expect("a condition");
        assert!(broken(session, condition).expect("an answer") > 0, "condition {number} after {sql}");
    }
    // The newest entry is left out: its commit may not have been acknowledged before the kill.
    let mut newest = ledger.committed.iter().rev();
    let payment = newest.find_map(|entry| if let Entry::Payment { id, .. } = entry { Some(id) } else { None });
    session.batch(&format!("DELETE FROM history WHERE h_id = {}", payment.expect("a payment"))).expect("it");
    let found = faults(session, ledger);
    assert!(found.len() == 1 && found[0].starts_with("lost: Payment"), "{found:?}");
    session.batch("UPDATE orders SET o_c_id = o_c_id + 1 WHERE o_w_id = 1 AND o_id > 30").expect("a change");
    assert!(faults(session, ledger).iter().any(|fault| fault.contains("Order")));
}

/// Makes, loads and runs a server, kills it during a run, and starts and checks it again.
pub fn a_whole_life(server: &mut dyn Server) {
    let never = AtomicBool::new(false);
    server.create().expect("a data directory");
    server.start(&never).expect("a start");
    let database = server.database();
    loaded(&*database);
    let mut ledger = ran(&*database, 0).ledger;
    let redo = server.redo_bytes().expect("a number");
    server.checkpoint().expect("a checkpoint");
    let rest = server.redo_bytes().expect("a number");
    assert!(rest < redo / 2, "{rest} of {redo} bytes of the log are left to go through");
    holds(&mut *database.connect().expect("a session"));
    let watch = Watch::default();
    let plan = plan(100, 60_000);
    let after = std::thread::scope(|scope| {
        let clients = scope.spawn(|| run(&*database, &plan, &watch).expect("a run that is cut short"));
        while watch.new_orders.load(Relaxed) < 40 {
            std::thread::sleep(Duration::from_millis(1));
            assert!(!clients.is_finished(), "the clients ended before the kill");
        }
        server.checkpoint().expect("a checkpoint while clients are at work");
        watch.crash.store(true, Relaxed);
        server.kill();
        clients.join().expect("the clients")
    });
    assert!(after.lost.is_some(), "nobody noticed the kill");
    ledger.append(after.ledger);
    server.start(&never).expect("a start after a crash");
    let mut session = database.connect().expect("a session");
    assert_eq!(faults(&mut *session, &ledger), [""; 0], "seed {SEED}");
    holds(&mut *session);
    assert_eq!(server.check().expect("a check"), [""; 0]);
    damage_is_found(&mut *session, &ledger);
    drop(session);
    server.stop().expect("a stop");
    assert!(!server.is_running());
}
