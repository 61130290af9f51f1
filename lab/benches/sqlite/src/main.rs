//! `make bench-sqlite`: the processor time of SQLite through the VFS beside that of the file system, when every page
//! is found.

use clap::Parser;
use entresol_bench_common::{deliver, end, heading, median, thread_time};
use entresol_core::{Random, Size};
use entresol_sqlite::{Api, Mode, Options, register};
use rusqlite::{Connection, OpenFlags};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measures statements in processor time; prints Markdown.
#[derive(Parser)]
struct Arguments {
    /// Write the report to this file too.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Directory in which the databases and their caches are made, and removed.
    #[arg(long, value_name = "DIR", default_value = "target/bench/sqlite")]
    scratch: PathBuf,
    /// Rounds; every VFS runs once in each, and the median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Rows of the table, some 200 bytes each.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(i64).range(1000..))]
    rows: i64,
}

/// A VFS by name. One with a cache has a policy and the memory above that; one without is the file system's.
type Contender = (&'static str, Option<(&'static str, Option<Size>)>);

const CONTENDERS: [Contender; 3] = [
    ("unix", None),
    ("face-gsc, found in memory", Some(("face-gsc", Some(Size::Bytes(128 << 20))))),
    ("lru, found on the cache device", Some(("lru", None))),
];

/// A kind of statement, and its number of executions.
const WORKS: [(&str, u64); 3] =
    [("lookup of a random row", 100_000), ("scan of all rows", 5), ("update of a random row", 5_000)];

fn main() -> ExitCode {
    end("entresol-bench-sqlite", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let failed = |error: rusqlite::Error| error.to_string();
    std::fs::create_dir_all(&arguments.scratch).map_err(|error| error.to_string())?;
    let made: Result<Vec<Connection>, String> = CONTENDERS.iter().map(|contender| made(arguments, contender)).collect();
    let connections = made?;
    let mut times = vec![vec![Vec::new(); CONTENDERS.len()]; WORKS.len()];
    for round in 0..u64::from(arguments.rounds) {
        for (kind, &(_, count)) in WORKS.iter().enumerate() {
            for (connection, times) in connections.iter().zip(&mut times[kind]) {
                let begun = thread_time();
                work(connection, kind, count, arguments.rows, round).map_err(failed)?;
                times.push((thread_time() - begun).as_secs_f64() * 1e6 / count as f64);
            }
        }
    }
    drop(connections);
    std::fs::remove_dir_all(&arguments.scratch).map_err(|error| error.to_string())?;
    deliver(&report(&times), arguments.out.as_deref())
}

/// Makes a new database with the table in it. Every page has been requested once.
fn made(arguments: &Arguments, contender: &Contender) -> Result<Connection, String> {
    let (name, how) = contender;
    let base = arguments.scratch.join(name.replace([' ', ','], "-"));
    let file = |ending: &str| base.with_extension(ending);
    for ending in ["db", "db-wal", "db-shm", "cache"] {
        // Files left by an interrupted run; any other obstacle shows at once.
        let _ = std::fs::remove_file(file(ending));
    }
    let connection = match how {
        None => Connection::open(file("db")),
        Some((policy, dram)) => {
            let (cache, size_bytes) = (Some(file("cache")), 256 << 20);
            let options = Options {
                cache,
                policy: Some((*policy).to_owned()),
                mode: Mode::WriteBack,
                dram: *dram,
                size_bytes,
                ..Options::default()
            };
            register(Api::linked(), policy, options, false).map_err(|error| error.to_string())?;
            Connection::open_with_flags_and_vfs(file("db"), OpenFlags::default(), *policy)
        }
    };
    let connection = connection.map_err(|error| error.to_string())?;
    // SQLite's own cache holds next to nothing, so that nearly every page is requested of the VFS.
    let fill = format!(
        "PRAGMA journal_mode=wal; PRAGMA synchronous=normal; PRAGMA cache_size=16;
         CREATE TABLE t(k INTEGER PRIMARY KEY, n INTEGER, v BLOB);
         WITH RECURSIVE i(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM i WHERE k < {})
         INSERT INTO t SELECT k, k, zeroblob(180) FROM i; PRAGMA wal_checkpoint(truncate);
         SELECT sum(n) FROM t",
        arguments.rows
    );
    connection.execute_batch(&fill).map_err(|error| error.to_string())?;
    Ok(connection)
}

fn work(connection: &Connection, kind: usize, count: u64, rows: i64, seed: u64) -> rusqlite::Result<()> {
    let mut random = Random::new(seed);
    let mut key = || 1 + random.below(rows as u64) as i64;
    match kind {
        0 => {
            let mut statement = connection.prepare("SELECT n FROM t WHERE k = ?1")?;
            for _ in 0..count {
                let key = key();
                let found: i64 = statement.query_row([key], |row| row.get(0))?;
                assert_eq!(found, key, "what was read is what was written");
            }
        }
        1 => {
            for _ in 0..count {
                let sum: i64 = connection.query_row("SELECT sum(n) FROM t", [], |row| row.get(0))?;
                assert_eq!(sum, rows * (rows + 1) / 2, "what was read is what was written");
            }
        }
        _ => {
            connection.execute_batch("BEGIN")?;
            let mut statement = connection.prepare("UPDATE t SET v = zeroblob(180) WHERE k = ?1")?;
            for _ in 0..count {
                statement.execute([key()])?;
            }
            connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(truncate)")?;
        }
    }
    Ok(())
}

fn report(times: &[Vec<Vec<f64>>]) -> String {
    let reading = "Processor time of the thread per statement, in microseconds: the median of the rounds, which are interleaved, \
                   and its share over that of the file system's VFS in the same round. SQLite's own cache holds 16 pages, \
                   every page that it asks for is found: by the file system in the kernel's cache. Updates are one \
                   transaction with the checkpoint that follows. Asked for is at most 3 % more.";
    let mut out = heading("What the SQLite VFS costs", "bench-sqlite", reading);
    out += "| statement | VFS | us | over the file system's |\n|---|---|---|---|\n";
    for ((work, _), by_contender) in WORKS.iter().zip(times) {
        for ((name, _), rounds) in CONTENDERS.iter().zip(by_contender) {
            let ratios: Vec<f64> = rounds.iter().zip(&by_contender[0]).map(|(own, unix)| own / unix - 1.0).collect();
            let (own, over) = (median(rounds), median(&ratios) * 100.0);
            writeln!(out, "| {work} | {name} | {own:.2} | {over:+.1} % |").expect("writing to a string");
        }
    }
    out
}
