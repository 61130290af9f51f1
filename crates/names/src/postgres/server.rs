//! Names from the server itself: only the server knows objects made since the last checkpoint.
//!
//! The part of its protocol (version 3.0, chapter 55 of its documentation) that one query needs. The server must admit
//! the user without a password, as it does for the same user on its socket (`peer`) or where it trusts.

use super::catalogue::kind;
use super::{Described, Known, Relation};
use crate::{Error, Result};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// Silence after which a server is taken to have stopped.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest message that is accepted; answers to the queries here are shorter.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
const PROTOCOL: u32 = 3 << 16;

/// Parameters of a connection to a server, in the form of its own clients:
/// `host=/run/postgresql port=5432 user=me dbname=postgres`. `host` is the directory of the socket, or a name or
/// address. Missing parameters have the clients' defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    host: String,
    port: u16,
    user: String,
    database: String,
}

impl FromStr for Connection {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |what: String| Error::Connection { given: text.to_owned(), what };
        let user = std::env::var("USER").unwrap_or_else(|_| "postgres".into());
        let mut connection = Connection { host: "/run/postgresql".into(), port: 5432, user, database: String::new() };
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').ok_or_else(|| wrong(format!("'{word}' is not KEY=VALUE")))?;
            match key {
                "host" => connection.host = value.to_owned(),
                "port" => connection.port = value.parse().map_err(|_| wrong(format!("port '{value}'")))?,
                "user" => connection.user = value.to_owned(),
                "dbname" => connection.database = value.to_owned(),
                _ => return Err(wrong(format!("unknown key '{key}': host, port, user, dbname"))),
            }
        }
        if connection.database.is_empty() {
            connection.database = "postgres".into();
        }
        Ok(connection)
    }
}

impl std::fmt::Display for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let Connection { host, port, user, database } = self;
        write!(f, "host={host} port={port} user={user} dbname={database}")
    }
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// An open connection.
struct Session {
    stream: Box<dyn Stream>,
}

/// One message: its letter and its body.
type Message = (u8, Vec<u8>);

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The text of an error message, which is field `M`.
fn error_text(fields: &[u8]) -> String {
    let mut parts = fields.split(|&byte| byte == 0);
    let said = parts.find_map(|field| field.strip_prefix(b"M")).unwrap_or(b"an error without a text");
    String::from_utf8_lossy(said).into_owned()
}

impl Session {
    fn open(to: &Connection) -> io::Result<Self> {
        let mut session = Session { stream: connect(to)? };
        let mut parameters = Vec::new();
        for word in ["user", &to.user, "database", &to.database, "application_name", "entresol", ""] {
            parameters.extend(word.as_bytes());
            parameters.push(0);
        }
        let mut start = (parameters.len() as u32 + 8).to_be_bytes().to_vec();
        start.extend(PROTOCOL.to_be_bytes());
        start.extend(parameters);
        session.stream.write_all(&start)?;
        loop {
            match session.message()? {
                (b'R', body) if body.starts_with(&[0; 4]) => {}
                (b'R', _) => {
                    return Err(io::Error::other(
                        "it wants a password; let this user in by its socket (pg_hba.conf: peer)",
                    ));
                }
                (b'E', fields) => return Err(io::Error::other(error_text(&fields))),
                (b'Z', _) => return Ok(session),
                _ => {}
            }
        }
    }

    fn message(&mut self) -> io::Result<Message> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head)?;
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if !(4..=MESSAGE_BYTES_MAX).contains(&len) {
            return Err(broken("this is not PostgreSQL's protocol"));
        }
        let mut body = vec![0; len - 4];
        self.stream.read_exact(&mut body)?;
        Ok((head[0], body))
    }

    /// Runs one query and passes every row of the answer to `show`.
    fn query(&mut self, question: &str, mut show: impl FnMut(&[Option<String>])) -> io::Result<()> {
        let mut message = vec![b'Q'];
        message.extend((question.len() as u32 + 5).to_be_bytes());
        message.extend(question.as_bytes());
        message.push(0);
        self.stream.write_all(&message)?;
        let mut failed = None;
        loop {
            match self.message()? {
                (b'D', body) => show(&columns(&body).ok_or_else(|| broken("a row that ends too soon"))?),
                (b'E', fields) => failed = Some(io::Error::other(error_text(&fields))),
                (b'Z', _) => return failed.map_or(Ok(()), Err),
                _ => {}
            }
        }
    }
}

fn connect(to: &Connection) -> io::Result<Box<dyn Stream>> {
    if to.host.starts_with('/') {
        let stream = UnixStream::connect(Path::new(&to.host).join(format!(".s.PGSQL.{}", to.port)))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        return Ok(Box::new(stream));
    }
    let stream = TcpStream::connect((&*to.host, to.port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(Box::new(stream))
}

/// The columns of a row, in text.
fn columns(body: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = body.split_at_checked(2)?;
    let count = u16::from_be_bytes(count.try_into().ok()?);
    let mut columns = Vec::new();
    for _ in 0..count {
        let (len, after) = rest.split_at_checked(4)?;
        let len = i32::from_be_bytes(len.try_into().ok()?);
        let (column, after) = after.split_at_checked(len.max(0) as usize)?;
        columns.push((len >= 0).then(|| String::from_utf8_lossy(column).into_owned()));
        rest = after;
    }
    Some(columns)
}

/// Runs one query in a database.
fn ask(to: &Connection, question: &str, show: impl FnMut(&[Option<String>])) -> Result<()> {
    let asked = Session::open(to).and_then(|mut session| session.query(question, show));
    asked.map_err(|error| Error::Server { whom: to.to_string(), what: error.to_string() })
}

/// Path of the data directory, as the server reports it.
pub(crate) fn data_directory(to: &Connection) -> Result<String> {
    let mut said = None;
    ask(to, "SHOW data_directory", |row| said = row.first().cloned().flatten())?;
    said.ok_or_else(|| Error::Server { whom: to.to_string(), what: "it does not say where its data is".into() })
}

const DATABASES: &str = "SELECT oid, datname, datallowconn FROM pg_catalog.pg_database";
const RELATIONS: &str = "SELECT pg_catalog.pg_relation_filepath(c.oid), n.nspname, c.relname, c.relkind, \
    coalesce(m.nspname || '.' || o.relname, '') \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid \
    LEFT JOIN pg_catalog.pg_class t ON c.relkind = 't' AND t.reltoastrelid = c.oid \
    LEFT JOIN pg_catalog.pg_class o ON o.oid = coalesce(i.indrelid, t.oid) \
    LEFT JOIN pg_catalog.pg_namespace m ON m.oid = o.relnamespace \
    WHERE c.relkind IN ('r', 'i', 't', 'S', 'm')";

/// Reads all names, of every database that admits connections.
pub(super) fn read(to: &Connection) -> Result<Known> {
    let mut known = Known::default();
    let mut open = Vec::new();
    ask(to, DATABASES, |row| {
        let [Some(oid), Some(name), Some(may)] = row else { return };
        if let Ok(oid) = oid.parse() {
            known.databases.insert(oid, name.clone());
            open.extend((may == "t").then(|| name.clone()));
        }
    })?;
    for database in open {
        let there = Connection { database, ..to.clone() };
        ask(&there, RELATIONS, |row| {
            let [Some(path), Some(schema), Some(object), Some(letter), Some(of)] = row else { return };
            let kind = letter.bytes().next().and_then(kind);
            let Some((relation, kind)) = Relation::parse(path).zip(kind) else { return };
            let of = (!of.is_empty()).then(|| of.clone());
            let described = Described { schema: schema.clone(), object: object.clone(), kind, of };
            known.relations.insert(relation.location, described);
        })?;
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_connection_is_read_as_clients_write_it() {
        let connection: Connection = "host=/tmp/x port=6000 user=me dbname=shop".parse().expect("a connection");
        assert_eq!(connection.to_string(), "host=/tmp/x port=6000 user=me dbname=shop");
        let least: Connection = "user=me".parse().expect("a connection");
        assert_eq!(least.to_string(), "host=/run/postgresql port=5432 user=me dbname=postgres");
        for (text, part) in [("host", "KEY=VALUE"), ("port=x", "port 'x'"), ("password=x", "unknown key 'password'")] {
            let error = text.parse::<Connection>().expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_row_or_none(body: Vec<u8>) {
            let _ = columns(&body);
            let _ = error_text(&body);
        }
    }
}
