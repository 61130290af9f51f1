//! Private servers: in a directory of their own, on a Unix socket alone, as a user without rights.
//!
//! A server is killed with the process that started it, and when it is dropped. Its data directory may be anywhere,
//! also on a mount. Its socket and its log are in a directory of their own with a short path, as sockets need one.

mod mariadb;
mod memory;
mod postgresql;
mod process;
mod sqlite;
mod user;

pub use mariadb::MariaDbServer;
pub use memory::MemoryBound;
pub use postgresql::PostgreSqlServer;
pub use process::{Guarded, last_lines, processor_time, processor_time_but};
pub use sqlite::SqliteFile;
pub use user::Owner;

use crate::driver::{Database, Session, one, unexpected};
use crate::{BenchError, DriverError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Directory of the programs of the newest installed PostgreSQL.
pub(crate) fn postgresql_programs() -> Option<PathBuf> {
    postgresql::programs().ok()
}

/// Setup of a server.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Data directory, which may still have to be made.
    pub data: PathBuf,
    /// Directory for socket and log, with a short name, which the server's user may write.
    pub run: PathBuf,
    /// User that runs the server.
    pub owner: Owner,
    /// Memory for its buffer pool, in bytes.
    pub memory_bytes: u64,
    /// Connections that the server must accept.
    pub connections: usize,
    /// Time between two automatic checkpoints.
    pub checkpoint: Duration,
}

/// Pages requested of a server's buffer pool, by the server's own count from some start of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Pages requested, whether or not the pool had them.
    pub asked: u64,
    /// Pages among these that the pool read because it did not have them.
    pub read: u64,
}

impl PoolCounts {
    /// Counts since an earlier look.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        PoolCounts { asked: self.asked.saturating_sub(before.asked), read: self.read.saturating_sub(before.read) }
    }
}

/// Time that a server's sessions waited together for pages of files, since some start of its own. Writes of the server's
/// own processes are not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Time for reads.
    pub reads: Duration,
    /// Time for writes.
    pub writes: Duration,
}

impl Waits {
    /// Time since an earlier look.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Waits { reads: self.reads.saturating_sub(before.reads), writes: self.writes.saturating_sub(before.writes) }
    }
}

/// A server that can be made, started, stopped and killed.
pub trait Server: Send {
    /// Name of the server.
    fn name(&self) -> &'static str;

    /// Makes an empty data directory.
    ///
    /// # Errors
    /// The failure of the server's tool, with its last lines.
    fn create(&mut self) -> Result<(), BenchError>;

    /// Sets another data directory for the next start.
    fn move_to(&mut self, data: &Path);

    /// Starts the server and waits until it answers: after a crash, until it has recovered.
    ///
    /// # Errors
    /// When the server ends instead, or does not answer in time: with its own last lines.
    fn start(&mut self, ended: &AtomicBool) -> Result<(), BenchError>;

    /// Stops the server in order.
    ///
    /// # Errors
    /// When the server does not stop in time; it is killed then.
    fn stop(&mut self) -> Result<(), BenchError>;

    /// Kills the server and all its processes at once, as a crash does.
    fn kill(&mut self);

    /// True if the server's process is still there; SQLite has none.
    fn is_running(&mut self) -> bool;

    /// Ids of the server's processes; SQLite has none.
    fn processes(&mut self) -> Vec<u32>;

    /// Processor time that the server's processes have spent since the start.
    fn processor_time(&mut self) -> Duration;

    /// Database that clients connect to.
    fn database(&self) -> Arc<dyn Database>;

    /// Makes a checkpoint: writes all dirty pages, so that a crash afterwards costs only later changes. Clients may be
    /// at work.
    ///
    /// # Errors
    /// The server's error, or one that says that the checkpoint does not come to an end.
    fn checkpoint(&self) -> Result<(), BenchError>;

    /// Bytes of the log that the server would replay at a start after a crash now.
    ///
    /// # Errors
    /// The server's error.
    fn redo_bytes(&self) -> Result<u64, BenchError>;

    /// Counts of the buffer pool; none where the server keeps no such counts. Sessions report at the end of a
    /// statement, and not more than about once a second, so the counts are that much behind.
    ///
    /// # Errors
    /// The server's error.
    fn pool(&self) -> Result<Option<PoolCounts>, BenchError>;

    /// Time that sessions have waited for pages of files, by the server's own clock; none where the server keeps no such
    /// time. Behind by as much as the counts of [`pool`](Self::pool).
    ///
    /// # Errors
    /// The server's error.
    fn waits(&self) -> Result<Option<Waits>, BenchError>;

    /// Has the server's own checker read everything; returns the faults that it found.
    ///
    /// # Errors
    /// When the checker cannot be run.
    fn check(&mut self) -> Result<Vec<String>, BenchError>;

    /// The last lines of the server's log.
    fn said(&self) -> Vec<String>;
}

/// Longest time until a server answers; recovery from a slow disk takes long.
const READY_WITHIN: Duration = Duration::from_secs(900);
/// Longest time that a server may take to stop.
const STOPPED_WITHIN: Duration = Duration::from_secs(600);
/// Longest time that a checkpoint may take.
const CHECKPOINT_WITHIN: Duration = Duration::from_secs(300);

/// The single number of a statement's answer, in the last column of its row.
fn number(session: &mut dyn Session, sql: &str) -> Result<u64, DriverError> {
    let row = one(session.texts(sql)?, sql)?;
    let text = row.into_iter().next_back().flatten().unwrap_or_default();
    text.parse().map_err(|_| unexpected(&format!("'{text}' where a number should be: {sql}")))
}

/// Asks until `answers` gives no error, the server has ended or the time is over.
fn wait_until_ready(
    name: &'static str,
    process: &mut Guarded,
    log: &Path,
    ended: &AtomicBool,
    mut answers: impl FnMut() -> bool,
) -> Result<(), BenchError> {
    let started = std::time::Instant::now();
    loop {
        if answers() {
            return Ok(());
        }
        let failed = |what: String| BenchError::Server { what, said: last_lines(log, 6) };
        if let Some(status) = process.try_wait() {
            return Err(failed(format!("{name} does not start ({status})")));
        }
        if started.elapsed() > READY_WITHIN {
            return Err(failed(format!("{name} does not answer after {} s", READY_WITHIN.as_secs())));
        }
        if ended.load(Relaxed) {
            return Err(BenchError::Interrupted);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
