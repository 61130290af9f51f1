//! One interface to several databases: blocking, with a session for each thread.
//!
//! Statements are written once, in the SQL that the databases have in common: parameters are `$1`, `$2` and so on, and
//! a row that is read to be changed is read `FOR UPDATE`. Each driver translates a statement and prepares it once for
//! each session.

mod mariadb;
mod postgresql;
mod sqlite;

pub(crate) use mariadb::DATABASE as MARIADB_DATABASE;
pub use mariadb::MariaDb;
pub use postgresql::PostgreSql;
pub use sqlite::Sqlite;

use crate::{DriverError, Failure};
use std::path::Path;

/// A value of a parameter or a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// SQL's NULL.
    Null,
    /// A whole number of any width.
    Int(i64),
    /// Characters.
    Text(String),
}

impl Value {
    /// The number.
    ///
    /// # Errors
    /// When the value is no number.
    pub fn int(&self) -> Result<i64, DriverError> {
        match self {
            Value::Int(number) => Ok(*number),
            other => Err(unexpected(&format!("{other:?} where a number should be"))),
        }
    }

    /// The characters.
    ///
    /// # Errors
    /// When the value is no text.
    pub fn text(&self) -> Result<&str, DriverError> {
        match self {
            Value::Text(text) => Ok(text),
            other => Err(unexpected(&format!("{other:?} where a text should be"))),
        }
    }
}

pub(crate) fn unexpected(text: &str) -> DriverError {
    DriverError { database: "the answer", failure: Failure::Refused, text: text.to_owned() }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

/// A row of an answer.
pub type Row = Vec<Value>;

/// A row of an answer as text, without the blanks that a database pads with; `None` is SQL's NULL.
pub type TextRow = Vec<Option<String>>;

/// A table to make and to fill. Types are those of all databases: `SMALLINT`, `INTEGER`, `BIGINT`, `CHAR(n)`,
/// `VARCHAR(n)`, and `DECIMAL(p,s)` and `DATE`, whose values are loaded as text.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Names and types of its columns, as SQL has them.
    pub columns: &'static [(&'static str, &'static str)],
    /// Columns of its primary key.
    pub key: &'static str,
}

impl Table {
    fn columns_sql(&self) -> String {
        let columns: Vec<String> = self.columns.iter().map(|(name, kind)| format!("{name} {kind}")).collect();
        columns.join(", ")
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    }
}

/// A database on which any thread can open sessions.
pub trait Database: Send + Sync {
    /// Name of the database system.
    fn name(&self) -> &'static str;

    /// Socket of its server: the directory of PostgreSQL's socket, MariaDB's socket; none where there is no server.
    fn socket(&self) -> Option<&Path>;

    /// Opens a session.
    ///
    /// # Errors
    /// The database's error.
    fn connect(&self) -> Result<Box<dyn Session>, DriverError>;
}

/// A session. After an error with [`Failure::Transient`] or [`Failure::Refused`] a [`rollback`](Session::rollback) makes it usable again.
pub trait Session: Send {
    /// Executes statements without parameters or answers, as they are written.
    ///
    /// # Errors
    /// The database's error.
    fn batch(&mut self, sql: &str) -> Result<(), DriverError>;

    /// The rows of a statement's answer.
    ///
    /// # Errors
    /// The database's error.
    fn query(&mut self, sql: &'static str, parameters: &[Value]) -> Result<Vec<Row>, DriverError>;

    /// The rows of the answer to a statement without parameters, as text in the database's own notation. `extract(year
    /// from DATE)` and `ascii(TEXT)` are understood.
    ///
    /// # Errors
    /// The database's error.
    fn texts(&mut self, sql: &str) -> Result<Vec<TextRow>, DriverError>;

    /// Files of these tables and their indexes: paths of first segments, below the data directory.
    ///
    /// # Errors
    /// The database's error.
    fn files(&mut self, tables: &[&str]) -> Result<Vec<String>, DriverError>;

    /// Executes a statement and returns the number of rows that it changed.
    ///
    /// # Errors
    /// The database's error.
    fn execute(&mut self, sql: &'static str, parameters: &[Value]) -> Result<u64, DriverError>;

    /// Begins a transaction; `writes` says whether it will change rows.
    ///
    /// # Errors
    /// The database's error.
    fn begin(&mut self, writes: bool) -> Result<(), DriverError>;

    /// Commits. After an error of the kind [`Failure::Lost`] the commit may have been carried out or not.
    ///
    /// # Errors
    /// The database's error.
    fn commit(&mut self) -> Result<(), DriverError>;

    /// Rolls back.
    ///
    /// # Errors
    /// The database's error.
    fn rollback(&mut self) -> Result<(), DriverError>;

    /// Makes a table and fills it in one transaction, in the database's fastest way; returns the number of rows.
    ///
    /// # Errors
    /// The database's error.
    fn load(&mut self, table: &Table, rows: &mut dyn Iterator<Item = Row>) -> Result<u64, DriverError>;

    /// Function that cancels, from any thread, the statement that this session is executing. The statement then fails,
    /// soon if not at once. If none is being executed, the next one may be cancelled. If the database cannot be
    /// reached any more, the function does nothing.
    fn canceller(&self) -> Box<dyn Fn() + Send>;

    /// After a load: brings statistics up to date and writes dirty pages to the files.
    ///
    /// # Errors
    /// The database's error.
    fn settle(&mut self) -> Result<(), DriverError>;
}

/// The one row of an answer.
///
/// # Errors
/// When there is none.
pub fn one<R>(rows: Vec<R>, of: &str) -> Result<R, DriverError> {
    rows.into_iter().next().ok_or_else(|| unexpected(&format!("no row for: {of}")))
}
