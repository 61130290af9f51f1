//! Private servers: in a directory of one's own, on a Unix socket alone, as a user without rights.
//!
//! A server is killed with the process that started it, and when it is dropped. Its data directory may be anywhere, also on
//! a mount; its socket and its log are in a short path of their own, as sockets need one.

mod mariadb;
mod postgresql;
mod process;
mod sqlite;
mod user;

pub use mariadb::MariaDbServer;
pub use postgresql::PostgreSqlServer;
pub use process::{Guarded, last_lines};
pub use sqlite::SqliteFile;
pub use user::Owner;

use crate::BenchError;
use crate::driver::Database;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where its data are, or shall be.
    pub data: PathBuf,
    /// A directory for its socket and log, of a short name, which its user may write.
    pub run: PathBuf,
    /// Who runs it.
    pub owner: Owner,
    /// Memory for its buffer pool, in bytes.
    pub memory_bytes: u64,
    /// Connections that it must take.
    pub connections: usize,
    /// Time between two checkpoints of its own accord.
    pub checkpoint: Duration,
}

/// A server that can be made, started, stopped and killed.
pub trait Server: Send {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// Makes an empty data directory.
    ///
    /// # Errors
    /// What its tool said.
    fn create(&mut self) -> Result<(), BenchError>;

    /// Takes another data directory for the next start.
    fn move_to(&mut self, data: &Path);

    /// Starts it and waits until it answers: after a crash, until it has recovered.
    ///
    /// # Errors
    /// When it ends instead, or does not answer in time: with its own last lines.
    fn start(&mut self, ended: &AtomicBool) -> Result<(), BenchError>;

    /// Stops it in order.
    ///
    /// # Errors
    /// When it does not stop in time; it is killed then.
    fn stop(&mut self) -> Result<(), BenchError>;

    /// Kills it and all its processes at once, as a crash does.
    fn kill(&mut self);

    /// Whether its process is still there.
    fn is_running(&mut self) -> bool;

    /// What clients connect to.
    fn database(&self) -> Arc<dyn Database>;

    /// Has its own checker read everything: what that found wrong.
    ///
    /// # Errors
    /// When it cannot be run.
    fn check(&mut self) -> Result<Vec<String>, BenchError>;

    /// The lines that it last wrote to its log.
    fn said(&self) -> Vec<String>;
}

/// How long a server may take to answer: a recovery from a slow disk takes its time.
const READY_WITHIN: Duration = Duration::from_secs(900);
/// How long a server may take to stop.
const STOPPED_WITHIN: Duration = Duration::from_secs(600);

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
