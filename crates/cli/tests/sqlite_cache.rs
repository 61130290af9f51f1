//! The cache of a SQLite database, after a kill, without SQLite: `check` and `drain` know it.

mod common;

use common::{Scratch, says};
use entresol_sqlite::{Api, Options, register};
use rusqlite::Connection;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const DIRECTORY: &str = "ENTRESOL_SQLITE_CACHE_DIRECTORY";
const BOTH: [&str; 4] = ["--cache", "c", "--backing", "db"];

/// Commits one row after the other, of a page and more each, with a line for each commit.
fn write_on(directory: &Path, journal: &str) -> rusqlite::Result<()> {
    register(Api::linked(), "entresol", Options::default(), false).expect("the name is free");
    let path = directory.display();
    let parameters = "cache_mode=write-back&cache_size=1MiB&cache_policy=lru";
    let uri = format!("file:{path}/db?vfs=entresol&cache_file={path}/c&{parameters}");
    let connection = Connection::open(uri)?;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode={journal}; PRAGMA synchronous=full; PRAGMA cache_size=10; PRAGMA wal_autocheckpoint=20;
         CREATE TABLE IF NOT EXISTS t(k INTEGER PRIMARY KEY, v BLOB)"
    ))?;
    loop {
        connection.execute("INSERT INTO t(v) VALUES(randomblob(6000))", [])?;
        println!("committed {}", connection.last_insert_rowid());
        std::io::stdout().flush().expect("the parent reads");
    }
}

/// Writes that the child process runs until it is killed. Without a parent that asks for them the test does nothing.
#[test]
fn the_process_that_is_killed() {
    let Ok(how) = std::env::var(DIRECTORY) else { return };
    let (journal, directory) = how.split_once(' ').expect("a journal and a directory");
    write_on(Path::new(directory), journal).expect("SQLite goes on until the kill");
}

/// The last row whose commit a child acknowledged before it was killed.
fn run_and_kill(directory: &Path, journal: &str) -> i64 {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "the_process_that_is_killed", "--nocapture"])
        .env(DIRECTORY, format!("{journal} {}", directory.display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut said = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut commits = said.by_ref().filter_map(|line| line.split_once("committed ")?.1.parse::<i64>().ok());
    // More than the cache keeps dirty before it has to write anything back, and then some.
    let before = commits.by_ref().take(60).last().expect("commits");
    std::thread::sleep(Duration::from_millis(20));
    child.kill().expect("it has not ended by itself");
    let last = commits.last().unwrap_or(before);
    assert!(!child.wait().expect("an end").success(), "it was killed, it did not end");
    last
}

#[test]
fn a_killed_database_is_complete_after_a_drain_without_sqlite() {
    for journal in ["wal", "delete"] {
        let scratch = Scratch::new();
        let committed = run_and_kill(&scratch.path("."), journal);
        says(&scratch.refused(&["serve", "nbd", "--cache", "c", "--backing", "db", "--socket", "s"]), &["SQLite's"]);
        let checked = scratch.ok(&[&["check"], &BOTH[..]].concat());
        assert!(!checked.contains(" 0 dirty"), "{journal}: nothing is left to be drained: {checked}");
        let other = scratch.path("other");
        std::fs::copy(scratch.path("db"), &other).expect("a copy");
        let foreign = ["drain", "--cache", "c", "--backing", "other"];
        says(&scratch.refused(&foreign), &["c: this is the cache of another backing store than other"]);
        let drained = scratch.run(&[&["drain"], &BOTH[..]].concat());
        let said = String::from_utf8_lossy(&drained.stderr);
        assert_eq!(drained.status.code(), Some(0), "{said}");
        says(&said, &["db is complete without the cache"]);
        says(&scratch.ok(&[&["check"], &BOTH[..]].concat()), &[" 0 dirty", " 0 lost"]);
        std::fs::remove_file(scratch.path("c")).expect("it is not needed any more");
        // As any program would open it.
        let connection = Connection::open(scratch.path("db")).expect("a database");
        let integrity: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
        assert_eq!(integrity, "ok", "{journal}");
        let rows: i64 = connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("a count");
        assert!((committed..=committed + 1).contains(&rows), "{journal}: {rows} rows, {committed} were acknowledged");
    }
}
