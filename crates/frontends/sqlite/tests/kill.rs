//! A process that writes a database through the VFS is killed with SIGKILL, again and again. Every transaction reported
//! as committed must be there, whole. Beyond those there may be only the one transaction that was under way.

mod support;

use entresol_core::Random;
use rusqlite::Connection;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Scratch, integrity, open};

const DIRECTORY: &str = "ENTRESOL_KILL_DIRECTORY";
const HOW: &str = "ENTRESOL_KILL_HOW";

/// Journal and parameters: policies of one tier and of two, caches smaller than the database.
const SETUPS: [(&str, &str); 4] = [
    ("wal", "cache_policy=face-gsc&cache_size=640KiB&cache_dram=64KiB"),
    ("delete", "cache_policy=lru&cache_size=640KiB"),
    ("delete", "cache_policy=face-gsc&cache_size=640KiB&cache_dram=64KiB&cache_page=1024"),
    ("wal", "cache_policy=arc&cache_size=640KiB"),
];

/// Rows of a transaction; their contents follow from its number.
fn rows_of(transaction: i64) -> i64 {
    1 + transaction * 7 % 23
}

/// Runs transactions one after the other until the process is killed, and prints a line per commit.
fn write_on(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS t(k INTEGER PRIMARY KEY, transaction_id INTEGER, v BLOB);
         CREATE INDEX IF NOT EXISTS t_id ON t(transaction_id);
         CREATE TABLE IF NOT EXISTS last(id INTEGER); CREATE TABLE IF NOT EXISTS scratch(v BLOB)",
    )?;
    let first: i64 = connection.query_row("SELECT coalesce(max(id), 0) + 1 FROM last", [], |row| row.get(0))?;
    for transaction in first.. {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for row in 0..rows_of(transaction) {
            let sql = "INSERT INTO t(transaction_id, v) VALUES(?1, zeroblob(?2))";
            connection.execute(sql, [transaction, 100 + (transaction * 31 + row) % 900])?;
        }
        connection.execute("UPDATE t SET v = zeroblob(50) WHERE transaction_id = ?1 - 40", [transaction])?;
        connection.execute("DELETE FROM last", [])?;
        connection.execute("INSERT INTO last VALUES(?1)", [transaction])?;
        // The database grows and shrinks.
        connection.execute("INSERT INTO scratch VALUES(zeroblob(20000))", [])?;
        if transaction % 5 == 0 {
            connection.execute("DELETE FROM scratch", [])?;
        }
        connection.execute_batch("COMMIT; PRAGMA incremental_vacuum")?;
        println!("committed {transaction}");
        std::io::stdout().flush().expect("the parent reads");
    }
    Ok(())
}

/// Body of the child process. It returns at once where no parent has set its variables.
#[test]
fn the_process_that_is_killed() {
    let (Ok(directory), Ok(how)) = (std::env::var(DIRECTORY), std::env::var(HOW)) else { return };
    let (journal, parameters) = SETUPS[how.parse::<usize>().expect("a number")];
    let connection = open_in(Path::new(&directory), journal, parameters);
    write_on(&connection).expect("SQLite goes on until the kill");
}

fn open_in(directory: &Path, journal: &str, parameters: &str) -> Connection {
    let connection = open(&Scratch::at(directory), "data.db", parameters);
    let set =
        "PRAGMA auto_vacuum=incremental; PRAGMA synchronous=full; PRAGMA cache_size=20; PRAGMA wal_autocheckpoint=30";
    connection.execute_batch(set).expect("settings");
    let now: String =
        connection.query_row(&format!("PRAGMA journal_mode={journal}"), [], |row| row.get(0)).expect("a journal");
    assert_eq!(now, journal);
    connection
}

/// Runs the child for a while and kills it; if it is to be `writing`, the while begins with its first commit. Returns
/// the last transaction reported as committed, 0 for none.
fn run_and_kill(directory: &Path, how: usize, lifetime: Duration, writing: bool) -> i64 {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "the_process_that_is_killed", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(HOW, how.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let said = BufReader::new(child.stdout.take().expect("a pipe"));
    let lines = said.lines().map_while(Result::ok);
    let mut committed = lines.filter_map(|line| line.split_once("committed ")?.1.parse().ok());
    let first = if writing { committed.next() } else { None };
    std::thread::sleep(lifetime);
    child.kill().expect("it has not ended by itself");
    let committed = committed.last().or(first).unwrap_or(0);
    assert!(!child.wait().expect("an end").success(), "it was killed, it did not end");
    committed
}

/// Checks the database after `kills` kills, and returns the number of the last transaction.
fn check(connection: &Connection, committed: i64, kills: i64) -> i64 {
    assert_eq!(integrity(connection), "ok");
    let number = |sql: &str| -> i64 { connection.query_row(sql, [], |row| row.get(0)).expect("a number") };
    if number("SELECT count(*) FROM sqlite_schema WHERE name = 'scratch'") == 0 {
        assert_eq!(committed, 0, "the tables are gone");
        return 0;
    }
    let last = number("SELECT coalesce(max(id), 0) FROM last");
    // Each kill may have come between a commit and its acknowledgement.
    let possible = committed..=committed + kills;
    assert!(possible.contains(&last), "{last} is the last there, {committed} was acknowledged before {kills} kills");
    let mut statement = connection
        .prepare("SELECT transaction_id, count(*), sum(length(v)) FROM t GROUP BY 1 ORDER BY 1")
        .expect("a query");
    let groups = statement.query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?])).expect("rows");
    let groups: Vec<[i64; 3]> = groups.map(|row| row.expect("a row")).collect();
    assert_eq!(groups.len() as i64, last, "every transaction is there");
    for (at, [transaction, rows, bytes]) in groups.into_iter().enumerate() {
        let length = |row| if transaction <= last - 40 { 50 } else { 100 + (transaction * 31 + row) % 900 };
        let expected = (0..rows_of(transaction)).map(length).sum::<i64>();
        assert_eq!([transaction, rows, bytes], [at as i64 + 1, rows_of(transaction), expected]);
    }
    last
}

fn rounds(rounds: u64, seed: u64) {
    println!("seed {seed}, {rounds} rounds for each of {} setups", SETUPS.len());
    let mut random = Random::new(seed);
    for (how, (journal, parameters)) in SETUPS.iter().enumerate() {
        let scratch = Scratch::new();
        let directory = scratch.path("");
        let (mut last, mut kills_within) = (0, 0);
        for _ in 0..rounds {
            // Some children are killed while they open and recover; some find the remains of an earlier kill.
            let mut committed = last;
            let kills = 1 + random.below(2) as i64;
            for _ in 0..kills {
                let lifetime = Duration::from_millis(5 + random.below(150));
                // On a busy machine few would be killed while they write, if all had that time from their start.
                committed = committed.max(run_and_kill(&directory, how, lifetime, random.chance(0.5)));
            }
            kills_within += u64::from(committed > last);
            last = check(&open_in(&directory, journal, parameters), committed, kills);
        }
        println!(
            "{journal}, {parameters}: {last} transactions, {kills_within} of {rounds} rounds of kills while it wrote"
        );
        assert!(last > 0 && kills_within * 3 >= rounds, "too few kills hit a writer");
    }
}

#[test]
fn ten_kills_lose_nothing_that_was_committed() {
    rounds(10, 1);
}

#[test]
#[ignore = "four times a hundred rounds of kills take two to four minutes: `make test-long` runs it"]
fn a_hundred_kills_lose_nothing_that_was_committed() {
    rounds(100, 2);
}
