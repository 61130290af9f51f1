//! MariaDB through a Unix socket.

use super::{Database, Row, Session, Table, TextRow, Value};
use crate::{DriverError, Failure};
use mysql::prelude::Queryable;
use mysql::{Conn, OptsBuilder, Statement};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A server that listens on a socket; sessions are of its user `root`, without a password, on the database `bench`.
#[derive(Clone)]
pub struct MariaDb {
    socket: PathBuf,
}

impl MariaDb {
    /// The server with this socket.
    pub fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Makes the database unless it is there, as soon as the server answers.
    ///
    /// # Errors
    /// The error of the connection or of the statement.
    pub fn prepare(&self) -> Result<(), DriverError> {
        self.open(None)?.query_drop(format!("CREATE DATABASE IF NOT EXISTS {DATABASE}")).map_err(failed)
    }

    fn open(&self, database: Option<&str>) -> Result<Conn, DriverError> {
        let options = OptsBuilder::new()
            .socket(self.socket.to_str())
            .user(Some("root"))
            .db_name(database)
            .stmt_cache_size(0)
            // No other way than the socket may be used to find a server.
            .prefer_socket(false);
        Conn::new(options).map_err(failed)
    }
}

/// Name of the database that all tables are in.
pub const DATABASE: &str = "bench";
/// Rows of a statement that inserts many.
const ROWS_A_STATEMENT: usize = 500;

fn failed(error: mysql::Error) -> DriverError {
    let failure = match &error {
        // Deadlock, and lock wait timeout, which rolls back the statement alone.
        mysql::Error::MySqlError(said) if matches!(said.code, 1213 | 1205) => Failure::Transient,
        // The server is going down, or a page of its tables cannot be read.
        mysql::Error::MySqlError(said) if matches!(said.code, 1053 | 1030 | 1026 | 1927) => Failure::Lost,
        mysql::Error::MySqlError(_) => Failure::Refused,
        _ => Failure::Lost,
    };
    DriverError { database: "MariaDB", failure, text: error.to_string() }
}

impl Database for MariaDb {
    fn name(&self) -> &'static str {
        "MariaDB"
    }

    fn socket(&self) -> Option<&Path> {
        Some(&self.socket)
    }

    fn connect(&self) -> Result<Box<dyn Session>, DriverError> {
        let mut connection = self.open(Some(DATABASE))?;
        // PostgreSQL's default, so that both behave alike.
        connection.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").map_err(failed)?;
        Ok(Box::new(Connected { server: self.clone(), connection, prepared: HashMap::new() }))
    }
}

/// A statement, and the parameter for which each of its marks stands.
type Prepared = (Statement, Vec<usize>);

struct Connected {
    server: MariaDb,
    connection: Conn,
    prepared: HashMap<&'static str, Prepared>,
}

/// Translates to MariaDB's notation: a parameter is a question mark, and one that occurs twice is given twice.
fn translated(sql: &str) -> (String, Vec<usize>) {
    let mut pieces = sql.split('$');
    let (mut text, mut order) = (pieces.next().unwrap_or_default().to_owned(), Vec::new());
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
        order.push(piece[..end].parse::<usize>().expect("a number after each $") - 1);
        text.push('?');
        text.push_str(&piece[end..]);
    }
    (text, order)
}

fn given(value: &Value) -> mysql::Value {
    match value {
        Value::Null => mysql::Value::NULL,
        Value::Int(number) => mysql::Value::Int(*number),
        Value::Text(text) => mysql::Value::Bytes(text.as_bytes().to_vec()),
    }
}

fn taken(value: mysql::Value, decimal: bool) -> Value {
    match value {
        mysql::Value::NULL => Value::Null,
        mysql::Value::Int(number) => Value::Int(number),
        mysql::Value::UInt(number) if i64::try_from(number).is_ok() => Value::Int(number as i64),
        mysql::Value::Bytes(bytes) => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            // Sums come as decimals.
            match text.parse() {
                Ok(number) if decimal => Value::Int(number),
                _ => Value::Text(text),
            }
        }
        other => Value::Text(format!("{other:?}")),
    }
}

impl Connected {
    fn prepare(&mut self, sql: &'static str, values: &[Value]) -> Result<(Statement, Vec<mysql::Value>), DriverError> {
        if !self.prepared.contains_key(sql) {
            let (text, order) = translated(sql);
            let statement = self.connection.prep(text).map_err(failed)?;
            self.prepared.insert(sql, (statement, order));
        }
        let (statement, order) = &self.prepared[sql];
        Ok((statement.clone(), order.iter().map(|&at| given(&values[at])).collect()))
    }
}

fn params(values: Vec<mysql::Value>) -> mysql::Params {
    if values.is_empty() { mysql::Params::Empty } else { mysql::Params::Positional(values) }
}

impl Session for Connected {
    fn batch(&mut self, sql: &str) -> Result<(), DriverError> {
        let statements = sql.split(';').map(str::trim).filter(|statement| !statement.is_empty());
        statements.into_iter().try_for_each(|statement| self.connection.query_drop(statement).map_err(failed))
    }

    fn query(&mut self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>, DriverError> {
        let (statement, values) = self.prepare(sql, values)?;
        let rows: Vec<mysql::Row> = self.connection.exec(&statement, params(values)).map_err(failed)?;
        let of = |row: mysql::Row| {
            let decimal: Vec<bool> =
                row.columns_ref().iter().map(|column| column.column_type().is_numeric_type()).collect();
            row.unwrap().into_iter().zip(decimal).map(|(value, decimal)| taken(value, decimal)).collect()
        };
        Ok(rows.into_iter().map(of).collect())
    }

    fn texts(&mut self, sql: &str) -> Result<Vec<TextRow>, DriverError> {
        let rows: Vec<mysql::Row> = self.connection.query(sql).map_err(failed)?;
        let text = |value| match taken(value, false) {
            Value::Null => None,
            Value::Int(number) => Some(number.to_string()),
            Value::Text(text) => Some(text),
        };
        Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
    }

    fn files(&mut self, tables: &[&str]) -> Result<Vec<String>, DriverError> {
        // Each table has one file, with its indexes.
        Ok(tables.iter().map(|table| format!("{DATABASE}/{table}.ibd")).collect())
    }

    fn execute(&mut self, sql: &'static str, values: &[Value]) -> Result<u64, DriverError> {
        let (statement, values) = self.prepare(sql, values)?;
        self.connection.exec_drop(&statement, params(values)).map_err(failed)?;
        Ok(self.connection.affected_rows())
    }

    fn begin(&mut self, _writes: bool) -> Result<(), DriverError> {
        self.batch("START TRANSACTION")
    }

    fn commit(&mut self) -> Result<(), DriverError> {
        self.batch("COMMIT")
    }

    fn rollback(&mut self) -> Result<(), DriverError> {
        self.batch("ROLLBACK")
    }

    fn load(&mut self, table: &Table, rows: &mut dyn Iterator<Item = Row>) -> Result<u64, DriverError> {
        let (name, columns, key) = (table.name, table.columns_sql(), table.key);
        self.batch(&format!(
            "CREATE TABLE {name}({columns}, PRIMARY KEY({key})) ENGINE=InnoDB DEFAULT CHARSET=latin1"
        ))?;
        self.batch("SET unique_checks=0; SET foreign_key_checks=0; START TRANSACTION")?;
        let mut rows = rows.peekable();
        let mut count = 0;
        while rows.peek().is_some() {
            let mut text = format!("INSERT INTO {name} VALUES");
            for (at, row) in rows.by_ref().take(ROWS_A_STATEMENT).enumerate() {
                text.push_str(if at == 0 { "(" } else { ",(" });
                for (at, value) in row.iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    text.push_str(&given(value).as_sql(false));
                }
                text.push(')');
                count += 1;
            }
            self.connection.query_drop(text).map_err(failed)?;
        }
        self.batch("COMMIT; SET unique_checks=1; SET foreign_key_checks=1")?;
        Ok(count)
    }

    fn canceller(&self) -> Box<dyn Fn() + Send> {
        let (server, id) = (self.server.clone(), self.connection.connection_id());
        // A server that is gone executes no statement.
        Box::new(move || drop(server.open(None).map(|mut other| other.query_drop(format!("KILL QUERY {id}")))))
    }

    fn settle(&mut self) -> Result<(), DriverError> {
        let tables: Vec<String> = self.connection.query("SHOW TABLES").map_err(failed)?;
        let analyze = format!("ANALYZE TABLE {}", tables.join(", "));
        self.connection.query_drop(analyze).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_given_in_the_order_of_their_marks() {
        let (text, order) = translated("SELECT a FROM t WHERE b = $2 AND c = $1 AND d = $2");
        assert_eq!((text.as_str(), order), ("SELECT a FROM t WHERE b = ? AND c = ? AND d = ?", vec![1, 0, 1]));
        assert_eq!(translated("SELECT 1"), ("SELECT 1".to_owned(), vec![]));
    }
}
