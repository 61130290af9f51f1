//! A scratch directory, databases in it through the VFS, and random SQL.

#![allow(dead_code, reason = "each test binary uses a part")]

use entresol_core::Random;
use entresol_sqlite::{Api, Options, register};
use rusqlite::types::Value;
use rusqlite::{Connection, config};
use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note(_code: c_int, text: &str) {
    SAID.lock().expect("no panic within").push(text.to_owned());
}

/// Messages in SQLite's log so far, by any test of this process.
pub fn logged() -> Vec<String> {
    SAID.lock().expect("no panic within").clone()
}

fn registered() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: SQLite is configured before its first use: every test begins with a scratch directory, and so here.
        unsafe { rusqlite::trace::config_log(Some(note)) }.expect("SQLite has a log");
        register(Api::linked(), "entresol", Options::default(), false).expect("the name is free");
    });
}

/// A directory that is removed at the end if it was made here.
pub struct Scratch {
    path: PathBuf,
    _owned: Option<tempfile::TempDir>,
}

impl Scratch {
    pub fn new() -> Self {
        registered();
        let directory = tempfile::tempdir().expect("a scratch directory");
        Scratch { path: directory.path().into(), _owned: Some(directory) }
    }

    /// A directory that its owner removes.
    pub fn at(path: &Path) -> Self {
        registered();
        Scratch { path: path.into(), _owned: None }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn file(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("a file in the scratch directory");
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("a file in the scratch directory")
    }

    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.path).expect("the scratch directory");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    /// The URI of a database whose cache is beside it, in write-back unless a parameter gives another mode.
    pub fn uri(&self, database: &str, parameters: &str) -> String {
        let path = self.path(database);
        let mode = if parameters.contains("cache_mode=") { "" } else { "&cache_mode=write-back" };
        let separator = if parameters.is_empty() { "" } else { "&" };
        format!("file:{0}?vfs=entresol&cache_file={0}.cache{mode}{separator}{parameters}", path.display())
    }
}

/// A database through the VFS.
pub fn open(scratch: &Scratch, database: &str, parameters: &str) -> Connection {
    let opened = Connection::open(scratch.uri(database, parameters));
    opened.unwrap_or_else(|error| panic!("{error}; the log: {:?}", logged()))
}

/// A database through the VFS with a table of a hundred rows.
pub fn with_table(scratch: &Scratch, database: &str) -> Connection {
    let connection = open(scratch, database, "cache_size=1MiB");
    let fill = "CREATE TABLE t(x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
                INSERT INTO t SELECT i FROM n";
    connection.execute_batch(fill).expect("a table");
    connection
}

pub fn integrity(connection: &Connection) -> String {
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check")
}

/// All rows of a query, as text.
pub fn rows(connection: &Connection, sql: &str) -> String {
    let run = || -> rusqlite::Result<String> {
        let mut statement = connection.prepare(sql)?;
        let columns = statement.column_count();
        let mut found = statement.query([])?;
        let mut text = String::new();
        while let Some(row) = found.next()? {
            for column in 0..columns {
                let value: Value = row.get(column)?;
                text += &format!("{value:?}|");
            }
            text.push('\n');
        }
        Ok(text)
    };
    run().unwrap_or_else(|error| format!("error: {error}"))
}

/// Contents of the tables that random SQL uses, and their schema.
pub fn fingerprint(connection: &Connection) -> Vec<String> {
    let schema = rows(connection, "SELECT name, sql FROM sqlite_schema ORDER BY name");
    let tables = ["a", "b"].map(|name| rows(connection, &format!("SELECT * FROM {name} ORDER BY k")));
    [schema].into_iter().chain(tables).collect()
}

/// Runs seeded statements of many kinds, and returns the answer of each.
pub fn random_sql(connection: &Connection, journal: &str, seed: u64, statements: u64) -> Vec<String> {
    connection.set_db_config(config::DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false).expect("a setting");
    let set = format!(
        "PRAGMA journal_mode={journal}; PRAGMA cache_size=20; PRAGMA wal_autocheckpoint=50; PRAGMA auto_vacuum=incremental;
         VACUUM; CREATE TABLE a(k INTEGER PRIMARY KEY, v BLOB, w); CREATE TABLE b(k INTEGER PRIMARY KEY, v BLOB, w);
         CREATE INDEX b_w ON b(w)"
    );
    let mut random = Random::new(seed);
    let mut answers = vec![format!("{:?}", connection.execute_batch(&set).err())];
    for _ in 0..statements {
        let sql = statement(&mut random, connection.is_autocommit());
        let answer = rows(connection, &sql);
        assert!(!answer.starts_with("error: disk") && !answer.contains("malformed"), "{sql}: {answer}");
        answers.push(format!("{sql}: {answer}"));
    }
    if !connection.is_autocommit() {
        answers.push(rows(connection, "COMMIT"));
    }
    answers
}

/// Bytes that a seed determines, so that two databases get the same.
fn blob(random: &mut Random, max: u64) -> String {
    let len = 1 + random.below(max);
    let byte = random.below(256);
    format!("CAST(replace(hex(zeroblob({len})), '00', '{byte:02x}{:04x}') AS BLOB)", random.below(1 << 16))
}

fn statement(random: &mut Random, autocommit: bool) -> String {
    let table = if random.chance(0.5) { "a" } else { "b" };
    let key = random.below(400);
    match random.below(20) {
        0..=5 => {
            let max = if random.chance(0.1) { 9000 } else { 200 };
            format!("INSERT OR REPLACE INTO {table} VALUES({key}, {}, {})", blob(random, max), random.below(50))
        }
        6 | 7 => {
            format!("UPDATE {table} SET v = {}, w = w + 1 WHERE k BETWEEN {key} AND {key} + 20", blob(random, 400))
        }
        8 => format!("DELETE FROM {table} WHERE k BETWEEN {key} AND {key} + {}", random.below(60)),
        9 => format!("INSERT OR IGNORE INTO a SELECT k + 1000 + {key}, v, w FROM b WHERE w < {}", random.below(30)),
        10 => "DELETE FROM a WHERE k > 1000".to_owned(),
        11..=13 => format!("SELECT count(*), sum(length(v)), sum(w) FROM {table} WHERE w > {}", random.below(50)),
        14 => format!("SELECT k, w, length(v) FROM {table} WHERE k > {key} ORDER BY k LIMIT 5"),
        15 if autocommit => "BEGIN".to_owned(),
        15 => (if random.chance(0.5) { "ROLLBACK" } else { "COMMIT" }).to_owned(),
        16 if autocommit && random.chance(0.3) => "VACUUM".to_owned(),
        16 if autocommit => format!("PRAGMA incremental_vacuum({})", 1 + random.below(50)),
        17 if autocommit => "PRAGMA wal_checkpoint(truncate)".to_owned(),
        18 if autocommit && random.chance(0.3) => format!("DELETE FROM {table}"),
        19 if random.chance(0.1) => "PRAGMA integrity_check".to_owned(),
        _ => format!("SELECT count(*) FROM {table}"),
    }
}
