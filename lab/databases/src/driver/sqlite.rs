//! SQLite, linked into this program: the clients are its only process.

use super::{Database, Row, Session, Table, TextRow, Value};
use crate::{DriverError, Failure};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, ToSql};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// A database file, in WAL mode with `synchronous=full`.
///
/// SQLite has one writer at a time and lets the others poll; these sessions queue for it instead.
pub struct Sqlite {
    path: PathBuf,
    cache_bytes: u64,
    order: Arc<Order>,
}

/// Lock of the session that writes.
#[derive(Default)]
struct Order {
    taken: Mutex<bool>,
    free: Condvar,
}

impl Order {
    fn take(&self) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = self.free.wait_while(taken, |taken| *taken).unwrap_or_else(PoisonError::into_inner);
        *taken = true;
    }

    fn give(&self) {
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.free.notify_one();
    }
}

impl Sqlite {
    /// The database in a file, which is made where absent. `cache_bytes` is the size of SQLite's own cache in each
    /// session.
    pub fn new(path: PathBuf, cache_bytes: u64) -> Self {
        Self { path, cache_bytes, order: Arc::default() }
    }
}

fn failed(error: rusqlite::Error) -> DriverError {
    let failure = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Failure::Transient,
        // The file's storage is gone, or cannot be relied on.
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => Failure::Lost,
        _ => Failure::Refused,
    };
    DriverError { database: "SQLite", failure, text: error.to_string() }
}

impl Database for Sqlite {
    fn name(&self) -> &'static str {
        "SQLite"
    }

    fn socket(&self) -> Option<&Path> {
        None
    }

    fn connect(&self) -> Result<Box<dyn Session>, DriverError> {
        let connection = Connection::open(&self.path).map_err(failed)?;
        connection.busy_timeout(std::time::Duration::from_secs(30)).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(128);
        let cache_kib = (self.cache_bytes / 1024).max(64);
        let set = format!("PRAGMA journal_mode=wal; PRAGMA synchronous=full; PRAGMA cache_size=-{cache_kib}");
        connection.execute_batch(&set).map_err(failed)?;
        Ok(Box::new(Connected { connection, order: self.order.clone(), holds: false, texts: HashMap::new() }))
    }
}

struct Connected {
    connection: Connection,
    order: Arc<Order>,
    /// True if it is this session's turn to write.
    holds: bool,
    texts: HashMap<&'static str, String>,
}

/// Translates to SQLite's notation: parameters begin with a question mark, no rows are locked, a date is a text, and a
/// character's code has another name.
fn translated(sql: &str) -> String {
    sql.replace('$', "?")
        .replace(" FOR UPDATE", "")
        .replace("extract(year from ", "strftime('%Y', ")
        .replace("ascii(", "unicode(")
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Int(number) => ToSqlOutput::Borrowed(ValueRef::Integer(*number)),
            Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        })
    }
}

fn value(value: ValueRef) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Real(number) => Value::Text(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
    }
}

impl Connected {
    fn end(&mut self) {
        if std::mem::take(&mut self.holds) {
            self.order.give();
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        if self.holds {
            // The rollback comes before another session may write; a broken connection has nothing to roll back.
            let _rolled_back = self.connection.execute_batch("ROLLBACK");
            self.end();
        }
    }
}

impl Session for Connected {
    fn batch(&mut self, sql: &str) -> Result<(), DriverError> {
        self.connection.execute_batch(sql).map_err(failed)
    }

    fn query(&mut self, sql: &'static str, parameters: &[Value]) -> Result<Vec<Row>, DriverError> {
        let text = self.texts.entry(sql).or_insert_with(|| translated(sql));
        let mut statement = self.connection.prepare_cached(text).map_err(failed)?;
        let columns = statement.column_count();
        let rows = statement.query_map(rusqlite::params_from_iter(parameters), |row| {
            (0..columns).map(|at| Ok(value(row.get_ref(at)?))).collect::<rusqlite::Result<Row>>()
        });
        rows.and_then(Iterator::collect).map_err(failed)
    }

    fn texts(&mut self, sql: &str) -> Result<Vec<TextRow>, DriverError> {
        let mut statement = self.connection.prepare(&translated(sql)).map_err(failed)?;
        let columns = statement.column_count();
        let text = |value: Value| match value {
            Value::Null => None,
            Value::Int(number) => Some(number.to_string()),
            Value::Text(text) => Some(text),
        };
        let rows = statement.query_map([], |row| {
            (0..columns).map(|at| Ok(text(value(row.get_ref(at)?)))).collect::<rusqlite::Result<TextRow>>()
        });
        rows.and_then(Iterator::collect).map_err(failed)
    }

    fn files(&mut self, _tables: &[&str]) -> Result<Vec<String>, DriverError> {
        let path = self.connection.path().map(Path::new).and_then(Path::file_name);
        Ok(path.map(|name| name.to_string_lossy().into_owned()).into_iter().collect())
    }

    fn execute(&mut self, sql: &'static str, parameters: &[Value]) -> Result<u64, DriverError> {
        let text = self.texts.entry(sql).or_insert_with(|| translated(sql));
        let mut statement = self.connection.prepare_cached(text).map_err(failed)?;
        statement.execute(rusqlite::params_from_iter(parameters)).map(|rows| rows as u64).map_err(failed)
    }

    fn begin(&mut self, writes: bool) -> Result<(), DriverError> {
        if writes {
            self.order.take();
            self.holds = true;
        }
        let begun = self.batch(if writes { "BEGIN IMMEDIATE" } else { "BEGIN" });
        begun.inspect_err(|_| self.end())
    }

    fn commit(&mut self) -> Result<(), DriverError> {
        let committed = self.batch("COMMIT");
        if committed.is_ok() {
            self.end();
        }
        committed
    }

    fn rollback(&mut self) -> Result<(), DriverError> {
        let rolled_back = if self.connection.is_autocommit() { Ok(()) } else { self.batch("ROLLBACK") };
        self.end();
        rolled_back
    }

    fn load(&mut self, table: &Table, rows: &mut dyn Iterator<Item = Row>) -> Result<u64, DriverError> {
        let (name, columns, key) = (table.name, table.columns_sql(), table.key);
        let create = format!("BEGIN; CREATE TABLE {name}({columns}, PRIMARY KEY({key})) WITHOUT ROWID");
        self.batch(&create)?;
        let marks = vec!["?"; table.columns.len()].join(", ");
        let mut insert = self.connection.prepare(&format!("INSERT INTO {name} VALUES({marks})")).map_err(failed)?;
        let mut count = 0;
        for row in rows {
            insert.execute(rusqlite::params_from_iter(&row)).map_err(failed)?;
            count += 1;
        }
        drop(insert);
        self.batch("COMMIT")?;
        Ok(count)
    }

    fn canceller(&self) -> Box<dyn Fn() + Send> {
        let handle = self.connection.get_interrupt_handle();
        Box::new(move || handle.interrupt())
    }

    fn settle(&mut self) -> Result<(), DriverError> {
        self.batch("ANALYZE; PRAGMA wal_checkpoint(truncate)")
    }
}
