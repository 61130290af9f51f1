//! Queries of MariaDB, from the log that its audit plugin writes (`server_audit_events=TABLE,QUERY`).
//!
//! A line is `time,server,user,host,connection,query,OPERATION,database,object,code`. The log has one line for each
//! table that a statement opens, before the statement runs, and one for the statement after it. So a query has begun
//! when the next line is about something else, or when there is no next line yet.

use crate::Hints;
use crate::message::QueryId;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two looks at the log.
const PATIENCE: Duration = Duration::from_millis(50);
/// Bytes read at once.
const CHUNK: usize = 1 << 16;
/// Longest line read whole, in bytes. A longer line holds a statement, whose end is not needed.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Tables kept of one query.
const TABLES_MAX: usize = 4096;

/// An event in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditEvent {
    /// A query starts.
    Begin {
        /// Its connection and number.
        query: QueryId,
        /// Database and name of the tables that it opened.
        tables: Vec<(String, String)>,
    },
    /// A query ended.
    End {
        /// Its connection and number.
        query: QueryId,
    },
    /// A line that is not in the log's format.
    Malformed {
        /// The beginning of the line.
        line: String,
    },
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditLine {
    /// A query opens a table.
    Table {
        /// The query.
        query: QueryId,
        /// The table's database.
        database: String,
        /// Its name.
        table: String,
    },
    /// A query has ended.
    Done {
        /// The query.
        query: QueryId,
    },
    /// Something else: a connection, a change of a table's definition.
    Other,
}

/// Parses a line; `None` when it is not in the format of such a log.
pub fn parse_line(line: &str) -> Option<AuditLine> {
    let mut fields = line.splitn(8, ',').skip(4);
    let (connection, number) = (fields.next()?.parse().ok()?, fields.next()?.parse::<u64>().ok()?);
    // The server counts with 64 bits; queries that run at once differ in the lower half.
    let query = QueryId { pid: connection, number: number as u32 };
    let (operation, rest) = (fields.next()?, fields.next()?);
    Some(match operation {
        "READ" | "WRITE" => {
            let (database, table) = rest.split_once(',')?;
            let table = table.strip_suffix(',').unwrap_or(table);
            AuditLine::Table { query, database: database.to_owned(), table: table.to_owned() }
        }
        "QUERY" => AuditLine::Done { query },
        _ => AuditLine::Other,
    })
}

/// A log that is read as it grows.
pub struct AuditLog {
    path: PathBuf,
    file: Option<File>,
    /// Bytes after the last complete line.
    rest: Vec<u8>,
    /// True while the rest of a line that was too long is skipped.
    skips: bool,
    /// The query whose tables are being listed.
    opening: Option<(QueryId, Vec<(String, String)>)>,
}

impl AuditLog {
    /// Follows the log at `path`, which need not exist yet. Only lines written from now on are read.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn follow(path: &Path) -> io::Result<Self> {
        let mut log = AuditLog { path: path.into(), file: None, rest: Vec::new(), skips: false, opening: None };
        if let Some(file) = log.open()? {
            let mut file = file;
            io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
            log.file = Some(file);
        }
        Ok(log)
    }

    fn open(&self) -> io::Result<Option<File>> {
        match File::open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// True if another file is at the path, after the log was rotated.
    fn is_another(&self, file: &File) -> bool {
        let number = |found: std::fs::Metadata| (found.dev(), found.ino());
        let there = std::fs::metadata(&self.path).ok().map(number);
        there.is_some() && there != file.metadata().ok().map(number)
    }

    /// Passes new events to `show`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn poll(&mut self, mut show: impl FnMut(AuditEvent)) -> io::Result<()> {
        if self.file.is_none() {
            self.file = self.open()?;
        }
        let Some(file) = self.file.take() else { return Ok(()) };
        // Checked before the file is read to its end: later lines are in the file that is then at the path.
        let another = self.is_another(&file);
        self.read(&file, &mut show)?;
        self.file = if another { None } else { Some(file) };
        self.begun(&mut show);
        if another { self.poll(show) } else { Ok(()) }
    }

    fn read(&mut self, mut file: &File, show: &mut impl FnMut(AuditEvent)) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            let len = file.read(&mut chunk)?;
            if len == 0 {
                return Ok(());
            }
            self.take(&chunk[..len], show);
        }
    }

    /// Takes bytes of the log.
    fn take(&mut self, bytes: &[u8], show: &mut impl FnMut(AuditEvent)) {
        let mut bytes = bytes;
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            if !std::mem::take(&mut self.skips) {
                let mut line = std::mem::take(&mut self.rest);
                line.extend(&bytes[..end]);
                self.line(&String::from_utf8_lossy(&line), show);
            }
            bytes = &bytes[end + 1..];
        }
        if !self.skips {
            self.rest.extend(bytes);
        }
        if self.rest.len() > LINE_BYTES_MAX {
            let line = std::mem::take(&mut self.rest);
            self.line(&String::from_utf8_lossy(&line), show);
            self.skips = true;
        }
    }

    fn line(&mut self, line: &str, show: &mut impl FnMut(AuditEvent)) {
        match parse_line(line) {
            Some(AuditLine::Table { query, database, table }) => {
                if self.opening.as_ref().is_some_and(|(opens, _)| *opens != query) {
                    self.begun(show);
                }
                let (_, tables) = self.opening.get_or_insert_with(|| (query, Vec::new()));
                if tables.len() < TABLES_MAX {
                    tables.push((database, table));
                }
            }
            Some(AuditLine::Done { query }) => {
                self.begun(show);
                show(AuditEvent::End { query });
            }
            Some(AuditLine::Other) => {}
            None => show(AuditEvent::Malformed { line: line.chars().take(80).collect() }),
        }
    }

    /// Ends the list of a query's tables.
    fn begun(&mut self, show: &mut impl FnMut(AuditEvent)) {
        if let Some((query, tables)) = self.opening.take() {
            show(AuditEvent::Begin { query, tables });
        }
    }
}

/// A log that is followed until the value is dropped.
pub struct AuditFollower {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AuditFollower {
    /// Follows the log of the server whose data directory is at `within`, a path below the mount point.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn start(path: &Path, within: String, hints: Arc<Hints>) -> io::Result<Self> {
        let mut log = AuditLog::follow(path)?;
        let ends = Arc::new(AtomicBool::new(false));
        let until = ends.clone();
        let follow = move || {
            while !until.load(Ordering::Relaxed) {
                // A log that cannot be read now may be readable later: it is between two rotations.
                let _passing = log.poll(|event| hints.audit(&within, event));
                std::thread::sleep(PATIENCE);
            }
        };
        let thread = std::thread::Builder::new().name("audit log".into()).spawn(follow)?;
        Ok(AuditFollower { ends, thread: Some(thread) })
    }
}

impl Drop for AuditFollower {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread only counts and passes on; its panic was printed.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    const LINES: &str = "20261122 07:41:33,box,me,localhost,12,90,READ,tpch,orders,\n\
        20261122 07:41:33,box,me,localhost,12,90,READ,tpch,lineitem,\n\
        20261122 07:41:33,box,me,localhost,13,91,WRITE,tpch,part,\n\
        20261122 07:41:34,box,me,localhost,12,90,QUERY,tpch,'select a, b from orders, lineitem',0\n\
        20261122 07:41:34,box,me,localhost,13,91,QUERY,tpch,'update part set x = 1',1205\n\
        20261122 07:41:35,box,me,localhost,13,0,DISCONNECT,,,0\n";

    fn id(pid: u32, number: u32) -> QueryId {
        QueryId { pid, number }
    }

    fn wanted() -> Vec<AuditEvent> {
        let table = |name: &str| ("tpch".to_owned(), name.to_owned());
        vec![
            AuditEvent::Begin { query: id(12, 90), tables: vec![table("orders"), table("lineitem")] },
            AuditEvent::Begin { query: id(13, 91), tables: vec![table("part")] },
            AuditEvent::End { query: id(12, 90) },
            AuditEvent::End { query: id(13, 91) },
        ]
    }

    #[test]
    fn a_log_is_followed_through_its_rotation() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let path = scratch.path().join("server_audit.log");
        std::fs::write(&path, "what was there before\n").expect("a log");
        let mut log = AuditLog::follow(&path).expect("a log");
        let mut events = Vec::new();
        let append = |text: &str| {
            let file = File::options().append(true).create(true).open(&path);
            file.expect("the log").write_all(text.as_bytes()).expect("room");
        };
        let (first, second) = LINES.split_at(200);
        append(first);
        log.poll(|event| events.push(event)).expect("it is read");
        assert_eq!(events[..1], wanted()[..1]);
        std::fs::rename(&path, scratch.path().join("server_audit.log.1")).expect("a rotation");
        // The server wrote to the old log first, then began the new one.
        let mut old =
            File::options().append(true).open(scratch.path().join("server_audit.log.1")).expect("the old one");
        let (rest, new) = second.split_at(second.find('\n').expect("a line") + 1);
        old.write_all(rest.as_bytes()).expect("room");
        append(new);
        log.poll(|event| events.push(event)).expect("it is read");
        assert_eq!(events, wanted());
        append("nonsense\n");
        log.poll(|event| events.push(event)).expect("it is read");
        assert_eq!(events.last(), Some(&AuditEvent::Malformed { line: "nonsense".into() }));
    }

    #[test]
    fn a_log_that_is_not_there_yet_is_waited_for() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let path = scratch.path().join("server_audit.log");
        let mut log = AuditLog::follow(&path).expect("no log yet");
        let mut events = Vec::new();
        log.poll(|event| events.push(event)).expect("nothing");
        std::fs::write(&path, LINES).expect("a log");
        log.poll(|event| events.push(event)).expect("it is read");
        assert_eq!(events, wanted());
    }

    proptest! {
        #[test]
        fn however_the_bytes_come_they_say_the_same(cuts in proptest::collection::vec(1..200_usize, 0..20)) {
            let mut log = AuditLog::follow(Path::new("/nowhere/at/all")).expect("nothing is opened");
            let mut events = Vec::new();
            let mut bytes = LINES.as_bytes();
            for cut in cuts.into_iter().chain([LINES.len()]) {
                let (now, later) = bytes.split_at(cut.min(bytes.len()));
                log.take(now, &mut |event| events.push(event));
                bytes = later;
            }
            prop_assert_eq!(events, wanted());
        }

        #[test]
        fn any_bytes_are_lines_or_named(noise: Vec<u8>) {
            let mut log = AuditLog::follow(Path::new("/nowhere/at/all")).expect("nothing is opened");
            log.take(&noise, &mut |_| ());
            log.take(b"\n", &mut |_| ());
        }
    }
}
