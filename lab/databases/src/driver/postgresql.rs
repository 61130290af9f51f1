//! PostgreSQL through a Unix socket.

use super::{Database, Row, Session, Table, TextRow, Value};
use crate::{DriverError, Failure};
use bytes::BytesMut;
use postgres::types::{FromSql, IsNull, ToSql, Type};
use postgres::{Client, Config, NoTls, SimpleQueryMessage, Statement, error::SqlState};
use std::collections::HashMap;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A server that listens in a directory, and trusts every user who may enter that.
pub struct PostgreSql {
    socket_directory: PathBuf,
}

impl PostgreSql {
    /// The server whose socket is in this directory; sessions are of the user and on the database `postgres`.
    pub fn new(socket_directory: PathBuf) -> Self {
        Self { socket_directory }
    }
}

fn failed(error: postgres::Error) -> DriverError {
    let failure = match error.code() {
        Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED) => Failure::Transient,
        Some(
            &SqlState::ADMIN_SHUTDOWN
            | &SqlState::CRASH_SHUTDOWN
            | &SqlState::CANNOT_CONNECT_NOW
            | &SqlState::IO_ERROR
            | &SqlState::UNDEFINED_FILE,
        ) => Failure::Lost,
        Some(_) => Failure::Refused,
        // The error is the connection's, not the server's.
        None => Failure::Lost,
    };
    let text = match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}")),
    };
    DriverError { database: "PostgreSQL", failure, text }
}

impl Database for PostgreSql {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn socket(&self) -> Option<&Path> {
        Some(&self.socket_directory)
    }

    fn connect(&self) -> Result<Box<dyn Session>, DriverError> {
        let mut config = Config::new();
        config.host_path(&self.socket_directory).user("postgres").dbname("postgres");
        let client = config.connect(NoTls).map_err(failed)?;
        Ok(Box::new(Connected { client, prepared: HashMap::new() }))
    }
}

struct Connected {
    client: Client,
    prepared: HashMap<&'static str, Statement>,
}

type Boxed = Box<dyn Error + Sync + Send>;

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(number) => match *kind {
                Type::INT2 => i16::try_from(*number)?.to_sql(kind, out),
                Type::INT4 => i32::try_from(*number)?.to_sql(kind, out),
                Type::INT8 => number.to_sql(kind, out),
                ref other => Err(format!("a number for a column of type {other}").into()),
            },
            Value::Text(text) => text.to_sql(kind, out),
        }
    }

    fn accepts(_kind: &Type) -> bool {
        // `to_sql` refuses a type that does not fit the value.
        true
    }

    postgres::types::to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Boxed> {
        Ok(match *kind {
            Type::INT2 => Value::Int(i16::from_sql(kind, raw)?.into()),
            Type::INT4 => Value::Int(i32::from_sql(kind, raw)?.into()),
            Type::INT8 => Value::Int(i64::from_sql(kind, raw)?),
            Type::NUMERIC => Value::Int(whole(raw)?),
            // The value is padded with blanks to the width of the column.
            Type::BPCHAR => Value::Text(<&str>::from_sql(kind, raw)?.trim_end().to_owned()),
            _ => Value::Text(<&str>::from_sql(kind, raw)?.to_owned()),
        })
    }

    fn from_sql_null(_kind: &Type) -> Result<Self, Boxed> {
        Ok(Value::Null)
    }

    fn accepts(_kind: &Type) -> bool {
        true
    }
}

/// A NUMERIC without a fraction, as sums of `BIGINT` are: number of digits, weight of the first, sign, scale, then
/// digits of base 10000.
fn whole(raw: &[u8]) -> Result<i64, Boxed> {
    let field = |at: usize| -> Result<i64, Boxed> {
        let bytes = raw.get(2 * at..2 * at + 2).ok_or("a NUMERIC that is cut off")?;
        Ok(i16::from_be_bytes([bytes[0], bytes[1]]).into())
    };
    let (digits, weight, sign, scale) = (field(0)?, field(1)?, field(2)?, field(3)?);
    if scale != 0 || (sign != 0 && sign != 0x4000) {
        return Err("a NUMERIC that is no whole number".into());
    }
    let mut number: i64 = 0;
    for at in 0..=weight {
        let digit = if at < digits { field(4 + at as usize)? } else { 0 };
        number =
            number.checked_mul(10_000).and_then(|number| number.checked_add(digit)).ok_or("a NUMERIC too large")?;
    }
    Ok(if sign == 0 { number } else { -number })
}

impl Connected {
    fn prepare(&mut self, sql: &'static str) -> Result<Statement, DriverError> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).map_err(failed)?;
        self.prepared.insert(sql, statement.clone());
        Ok(statement)
    }
}

fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as _).collect()
}

/// A value in COPY's text format. Loaded values have no backslashes, tabs or ends of lines.
fn copied(value: &Value, line: &mut String) {
    use std::fmt::Write as _;
    match value {
        Value::Null => line.push_str("\\N"),
        Value::Int(number) => write!(line, "{number}").expect("a string grows"),
        Value::Text(text) => {
            debug_assert!(!text.contains(['\\', '\t', '\n', '\r']));
            line.push_str(text);
        }
    }
}

impl Session for Connected {
    fn batch(&mut self, sql: &str) -> Result<(), DriverError> {
        self.client.batch_execute(sql).map_err(failed)
    }

    fn query(&mut self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>, DriverError> {
        let statement = self.prepare(sql)?;
        let rows = self.client.query(&statement, &parameters(values)).map_err(failed)?;
        let columns = |row: &postgres::Row| (0..row.len()).map(|at| row.try_get(at).map_err(failed)).collect();
        rows.iter().map(columns).collect()
    }

    fn texts(&mut self, sql: &str) -> Result<Vec<TextRow>, DriverError> {
        let answer = self.client.simple_query(sql).map_err(failed)?;
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|at| row.get(at).map(|text| text.trim_end().to_owned())).collect())
            }
            _ => None,
        };
        Ok(answer.into_iter().filter_map(row).collect())
    }

    fn files(&mut self, tables: &[&str]) -> Result<Vec<String>, DriverError> {
        let names: Vec<String> = tables.iter().map(|table| format!("'{table}'")).collect();
        let tables = format!("SELECT oid FROM pg_class WHERE relkind = 'r' AND relname IN ({})", names.join(", "));
        let indexes = format!("SELECT indexrelid FROM pg_index WHERE indrelid IN ({tables})");
        let rows = self.texts(&format!("SELECT pg_relation_filepath(oid) FROM ({tables} UNION {indexes}) its"))?;
        Ok(rows.into_iter().flatten().flatten().collect())
    }

    fn execute(&mut self, sql: &'static str, values: &[Value]) -> Result<u64, DriverError> {
        let statement = self.prepare(sql)?;
        self.client.execute(&statement, &parameters(values)).map_err(failed)
    }

    fn begin(&mut self, _writes: bool) -> Result<(), DriverError> {
        self.batch("BEGIN")
    }

    fn commit(&mut self) -> Result<(), DriverError> {
        let answer = self.client.simple_query("COMMIT").map_err(failed)?;
        debug_assert!(matches!(answer[..], [SimpleQueryMessage::CommandComplete(_)]));
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), DriverError> {
        self.batch("ROLLBACK")
    }

    fn load(&mut self, table: &Table, rows: &mut dyn Iterator<Item = Row>) -> Result<u64, DriverError> {
        let (name, columns) = (table.name, table.columns_sql());
        let mut transaction = self.client.transaction().map_err(failed)?;
        transaction.batch_execute(&format!("CREATE TABLE {name}({columns})")).map_err(failed)?;
        let copy = format!("COPY {name}({}) FROM STDIN WITH (FREEZE)", table.names());
        let mut writer = transaction.copy_in(&copy).map_err(failed)?;
        let lost = |error: std::io::Error| DriverError {
            database: "PostgreSQL",
            failure: Failure::Lost,
            text: format!("COPY {name}: {error}"),
        };
        let mut line = String::new();
        for row in rows {
            line.clear();
            for (at, value) in row.iter().enumerate() {
                if at > 0 {
                    line.push('\t');
                }
                copied(value, &mut line);
            }
            line.push('\n');
            writer.write_all(line.as_bytes()).map_err(lost)?;
        }
        let count = writer.finish().map_err(failed)?;
        transaction.batch_execute(&format!("ALTER TABLE {name} ADD PRIMARY KEY ({})", table.key)).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(count)
    }

    fn canceller(&self) -> Box<dyn Fn() + Send> {
        let token = self.client.cancel_token();
        // A server that is gone executes no statement.
        Box::new(move || drop(token.cancel_query(NoTls)))
    }

    fn settle(&mut self) -> Result<(), DriverError> {
        self.batch("VACUUM ANALYZE")?;
        self.batch("CHECKPOINT")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numerics_are_read() {
        let numeric = |fields: &[i16]| fields.iter().flat_map(|field| field.to_be_bytes()).collect::<Vec<u8>>();
        for (fields, expected) in [
            (&[0, 0, 0, 0][..], 0),
            (&[1, 0, 0, 0, 42], 42),
            (&[1, 1, 0, 0, 3], 30_000),
            (&[2, 1, 0x4000, 0, 3, 7], -30_007),
            (&[3, 2, 0, 0, 1, 2, 3], 100_020_003),
        ] {
            assert_eq!(whole(&numeric(fields)).expect("a number"), expected, "{fields:?}");
        }
        assert!(whole(&numeric(&[1, 0, 0, 2, 42])).is_err());
        assert!(whole(&numeric(&[2, 1, 0, 0, 42])).is_err());
        assert!(whole(&[0]).is_err());
    }
}
