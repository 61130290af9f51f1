//! SQLite in place of a server: a file, whose only process is the clients'.

use super::{PoolCounts, Server, Setup, Waits};
use crate::BenchError;
use crate::driver::{Database, Sqlite};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The file.
const NAME: &str = "bench.db";

/// A database file in a data directory. There is nothing to start, stop or kill.
pub struct SqliteFile {
    setup: Setup,
}

impl SqliteFile {
    /// The database of this data directory.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }
}

impl Server for SqliteFile {
    fn name(&self) -> &'static str {
        "SQLite"
    }

    fn create(&mut self) -> Result<(), BenchError> {
        Ok(())
    }

    fn move_to(&mut self, data: &Path) {
        self.setup.data = data.to_owned();
    }

    fn start(&mut self, _ended: &AtomicBool) -> Result<(), BenchError> {
        // Recovery happens now rather than under the first transaction.
        Ok(self.database().connect().map(drop)?)
    }

    fn stop(&mut self) -> Result<(), BenchError> {
        Ok(())
    }

    fn kill(&mut self) {}

    fn is_running(&mut self) -> bool {
        false
    }

    fn processes(&mut self) -> Vec<u32> {
        Vec::new()
    }

    fn processor_time(&mut self) -> Duration {
        Duration::ZERO
    }

    fn database(&self) -> Arc<dyn Database> {
        let each = self.setup.memory_bytes / self.setup.connections.max(1) as u64;
        Arc::new(Sqlite::new(self.setup.data.join(NAME), each))
    }

    fn checkpoint(&self) -> Result<(), BenchError> {
        // Pages that readers and writers are using stay in the log.
        Ok(self.database().connect()?.texts("PRAGMA wal_checkpoint(passive)").map(drop)?)
    }

    fn redo_bytes(&self) -> Result<u64, BenchError> {
        // The first session after a crash reads the log, up to the last frame written since the log was last
        // restarted.
        let log = self.setup.data.join(format!("{NAME}-wal"));
        match std::fs::metadata(&log) {
            Ok(found) => Ok(found.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(BenchError::at(&log)(error)),
        }
    }

    fn pool(&self) -> Result<Option<PoolCounts>, BenchError> {
        // Each session has a pool of its own.
        Ok(None)
    }

    fn waits(&self) -> Result<Option<Waits>, BenchError> {
        Ok(None)
    }

    fn check(&mut self) -> Result<Vec<String>, BenchError> {
        let rows = self.database().connect()?.query("PRAGMA integrity_check", &[])?;
        let said = rows.into_iter().flatten().map(|value| value.text().map(str::to_owned));
        let mut said = said.collect::<Result<Vec<String>, _>>()?;
        said.retain(|line| line != "ok");
        Ok(said)
    }

    fn said(&self) -> Vec<String> {
        Vec::new()
    }
}
