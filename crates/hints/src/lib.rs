//! Hints from databases about their queries: the files that a query is about to use, and its end.
//!
//! In the simulator a trace tells a policy such as HeuristicDB of queries. Live, the server does: PostgreSQL by
//! datagrams of the extension in `extensions/postgresql`, MariaDB by its audit plugin's log; see `docs/hints.md`. All
//! hints are advice: a hint that cannot be understood is counted, logged once per kind, and changes nothing.

mod audit;
mod message;
mod resolve;
mod running;
mod socket;

pub use audit::{AuditEvent, AuditFollower, AuditLog, parse_line as parse_audit_line};
pub use message::{MESSAGE_BYTES_MAX, Malformed, Message, QueryId, Use, parse};
pub use resolve::Served;
pub use socket::HintSocket;

use entresol_files::{Advised, FileId};
use running::Running;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counts of the hints received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HintCounts {
    /// Queries that began.
    pub begins: u64,
    /// Queries that ended.
    pub ends: u64,
    /// Known files of the relations named by queries that began.
    pub files_known: u64,
    /// Relations without a file in the backing directory, and files that were never requested.
    pub files_unknown: u64,
    /// Messages that could not be parsed.
    pub malformed: u64,
    /// Messages about another directory.
    pub elsewhere: u64,
    /// Messages too short for all relations of their query.
    pub truncated: u64,
    /// Ends of queries whose beginning was not received.
    pub ends_unknown: u64,
    /// Queries taken as ended because too many ran, or because another began under the same id.
    pub forgotten: u64,
}

/// One count per field of [`HintCounts`].
#[derive(Default)]
struct Counters {
    begins: AtomicU64,
    ends: AtomicU64,
    files_known: AtomicU64,
    files_unknown: AtomicU64,
    malformed: AtomicU64,
    elsewhere: AtomicU64,
    truncated: AtomicU64,
    ends_unknown: AtomicU64,
    forgotten: AtomicU64,
}

/// Adds to a counter; returns the old value.
fn add(counter: &AtomicU64, n: u64) -> u64 {
    counter.fetch_add(n, Ordering::Relaxed)
}

/// Takes messages from any source, and passes them on to the policy.
pub struct Hints {
    served: Served,
    advised: Box<dyn Advised>,
    /// Called with the first fault of each kind.
    log: Box<dyn Fn(&str) + Send + Sync>,
    running: Mutex<Running>,
    counters: Counters,
}

impl Hints {
    /// Takes hints for the files in `served`.
    pub fn new(served: Served, advised: Box<dyn Advised>, log: Box<dyn Fn(&str) + Send + Sync>) -> Self {
        Hints { served, advised, log, running: Mutex::default(), counters: Counters::default() }
    }

    /// Counts of the hints received so far.
    pub fn counts(&self) -> HintCounts {
        let Counters { begins, ends, files_known, files_unknown, .. } = &self.counters;
        let Counters { malformed, elsewhere, truncated, ends_unknown, forgotten, .. } = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HintCounts {
            begins: get(begins),
            ends: get(ends),
            files_known: get(files_known),
            files_unknown: get(files_unknown),
            malformed: get(malformed),
            elsewhere: get(elsewhere),
            truncated: get(truncated),
            ends_unknown: get(ends_unknown),
            forgotten: get(forgotten),
        }
    }

    /// Queries that run now.
    pub fn running(&self) -> usize {
        self.queries().count()
    }

    fn queries(&self) -> std::sync::MutexGuard<'_, Running> {
        // Every step leaves the map whole.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first(&self, counter: &AtomicU64, what: impl FnOnce() -> String) {
        if add(counter, 1) == 0 {
            (self.log)(&format!("hints: {}; further ones are counted only", what()));
        }
    }

    /// Takes the bytes of a datagram.
    pub fn datagram(&self, bytes: &[u8]) {
        match parse(bytes) {
            Ok(Message::Begin { query, directory, relations, truncated }) => {
                if truncated {
                    self.first(&self.counters.truncated, || {
                        "a query has more relations than a message has room for".into()
                    });
                }
                let Some(within) = self.served.within(&directory) else {
                    let here = self.served.mountpoint().display();
                    self.first(&self.counters.elsewhere, || format!("a query in {directory}, which is not in {here}"));
                    return;
                };
                let mut files = Vec::new();
                for (how, path) in &relations {
                    let before = files.len();
                    self.served.relation(&within, *how, path, &mut files);
                    if files.len() == before {
                        self.first(&self.counters.files_unknown, || format!("{path} in {directory} has no file here"));
                    }
                }
                self.begin(query, files);
            }
            Ok(Message::End { query }) => self.end(query),
            Err(malformed) => self.malformed(&malformed.to_string()),
        }
    }

    /// Counts a message that could not be parsed.
    fn malformed(&self, what: &str) {
        self.first(&self.counters.malformed, || format!("a malformed message: {what}"));
    }

    /// Takes an event of an audit log of the server whose data directory is at `within`, a path below the mount point.
    pub fn audit(&self, within: &str, event: AuditEvent) {
        match event {
            AuditEvent::Begin { query, tables } => {
                let mut files = Vec::new();
                for (database, table) in &tables {
                    let before = files.len();
                    self.served.table(within, database, table, &mut files);
                    if files.len() == before {
                        self.first(&self.counters.files_unknown, || format!("{database}.{table} has no file here"));
                    }
                }
                self.begin(query, files);
            }
            AuditEvent::End { query } => self.end(query),
            AuditEvent::Malformed { line } => self.malformed(&format!("'{line}' in the audit log")),
        }
    }

    fn begin(&self, query: QueryId, mut files: Vec<FileId>) {
        files.sort_unstable_by_key(|file| (file.device, file.inode));
        files.dedup();
        // Held during the calls of the policy, so that it gets ends after begins.
        let mut running = self.queries();
        let begun = running.begin(query);
        for number in begun.forgotten {
            add(&self.counters.forgotten, 1);
            self.advised.query_ends(number);
        }
        let known = self.advised.query_begins(begun.number, &files);
        add(&self.counters.files_known, known as u64);
        add(&self.counters.files_unknown, (files.len() - known) as u64);
        add(&self.counters.begins, 1);
    }

    fn end(&self, query: QueryId) {
        let mut running = self.queries();
        match running.end(query) {
            Some(number) => {
                self.advised.query_ends(number);
                add(&self.counters.ends, 1);
            }
            None => {
                add(&self.counters.ends_unknown, 1);
            }
        }
    }
}
