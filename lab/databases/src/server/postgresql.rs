//! PostgreSQL as Debian packages it.

use super::{Guarded, PoolCounts, STOPPED_WITHIN, Server, Setup, Waits, last_lines, number, wait_until_ready};
use crate::BenchError;
use crate::driver::{Database, PostgreSql};
use rustix::process::Signal;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Longest time of an immediate shutdown, which leaves the data as they are.
const LEFT_WITHIN: Duration = Duration::from_secs(5);

/// A private PostgreSQL.
pub struct PostgreSqlServer {
    programs: PathBuf,
    setup: Setup,
    process: Option<Guarded>,
}

/// The directory of the newest installed version.
pub fn programs() -> Result<PathBuf, BenchError> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let has = |path: &PathBuf| path.join("postgres").exists() && path.join("initdb").exists();
    let mut found: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).filter(has).collect();
    found.sort_by(|one, other| version(one).partial_cmp(&version(other)).unwrap_or(std::cmp::Ordering::Equal));
    found.pop().ok_or(BenchError::Missing { program: "PostgreSQL", package: "postgresql" })
}

/// The version whose programs are in this directory.
fn version(programs: &Path) -> Option<f64> {
    programs.parent()?.file_name()?.to_str()?.parse().ok()
}

impl PostgreSqlServer {
    /// The newest installed PostgreSQL, not started yet.
    ///
    /// # Errors
    /// When no PostgreSQL is installed.
    pub fn new(setup: Setup) -> Result<Self, BenchError> {
        Ok(Self { programs: programs()?, setup, process: None })
    }

    fn log(&self) -> PathBuf {
        self.setup.run.join("log")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        // The servers refuse an environment without a home of their own, and a directory that they may not enter.
        command.current_dir(&self.setup.run).env("LC_ALL", "C").env("HOME", &self.setup.run);
        self.setup.owner.applied(&mut command);
        command
    }

    fn log_file(&self) -> Result<File, BenchError> {
        let log = self.log();
        let file = OpenOptions::new().create(true).append(true).open(&log).map_err(BenchError::at(&log))?;
        self.setup.owner.give(&log)?;
        Ok(file)
    }

    /// Settings that make the server private and its memory small; all others keep their defaults.
    fn settings(&self) -> Vec<String> {
        let Setup { run, memory_bytes, connections, checkpoint, .. } = &self.setup;
        let mut settings = vec![
            "listen_addresses=".into(),
            format!("unix_socket_directories={}", run.display()),
            format!("shared_buffers={}kB", (memory_bytes / 1024).max(128)),
            format!("max_connections={}", connections + 10),
            format!("checkpoint_timeout={}s", checkpoint.as_secs().clamp(30, 86_400)),
            "max_wal_size=4GB".into(),
            "jit=off".into(),
            // Two looks at the clock for each page of a file, for the waits of sessions.
            "track_io_timing=on".into(),
        ];
        // From version 15 on, recovery advises the system of pages that it will read. The kernel caches no bytes of
        // files on a mount, so each page would be read twice: from the backing store, or from a cache that had it only
        // from the first read.
        if version(&self.programs).is_some_and(|version| version >= 15.0) {
            settings.push("recovery_prefetch=off".into());
        }
        settings
    }
}

/// Shuts the server down, so that it removes its shared memory. A killed server leaves that to its next start, and
/// this server has none.
impl Drop for PostgreSqlServer {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // An "immediate" shutdown is a crash to the data, but removes the shared memory.
            process.signal(Signal::QUIT);
            process.wait_within(LEFT_WITHIN);
        }
    }
}

impl Server for PostgreSqlServer {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn create(&mut self) -> Result<(), BenchError> {
        let log = self.log_file()?;
        let mut command = self.command("initdb");
        command.arg("-D").arg(&self.setup.data).args(["-U", "postgres", "-A", "trust", "-E", "SQL_ASCII"]);
        command.args(["--no-locale", "--no-sync"]).stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(BenchError::at(&self.log()))?).stderr(log);
        let started = Guarded::spawn(&mut command).map_err(BenchError::at(&self.programs.join("initdb")))?;
        let ended = { started }.wait_within(STOPPED_WITHIN);
        if ended.is_some_and(|status| status.success()) {
            return Ok(());
        }
        Err(BenchError::Server { what: "initdb failed".into(), said: last_lines(&self.log(), 6) })
    }

    fn move_to(&mut self, data: &Path) {
        self.setup.data = data.to_owned();
    }

    fn start(&mut self, ended: &AtomicBool) -> Result<(), BenchError> {
        let log = self.log_file()?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(&self.setup.data);
        for setting in self.settings() {
            command.arg("-c").arg(setting);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = Guarded::spawn(&mut command).map_err(BenchError::at(&self.programs.join("postgres")))?;
        let path = self.log();
        let database = self.database();
        let process = self.process.insert(process);
        wait_until_ready("PostgreSQL", process, &path, ended, || database.connect().is_ok())
    }

    fn stop(&mut self) -> Result<(), BenchError> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        // A "fast" shutdown ends the sessions, checkpoints and exits.
        process.signal(Signal::INT);
        match process.wait_within(STOPPED_WITHIN) {
            Some(status) if status.success() => Ok(()),
            other => {
                let how = other.map_or("it was killed".to_owned(), |status| status.to_string());
                let what = format!("PostgreSQL did not stop in good order ({how})");
                Err(BenchError::Server { what, said: self.said() })
            }
        }
    }

    fn kill(&mut self) {
        self.process = None;
    }

    fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.try_wait().is_none())
    }

    fn processes(&mut self) -> Vec<u32> {
        self.process.as_mut().map_or_else(Vec::new, Guarded::processes)
    }

    fn processor_time(&mut self) -> Duration {
        self.process.as_mut().map_or(Duration::ZERO, Guarded::processor_time)
    }

    fn database(&self) -> Arc<dyn Database> {
        Arc::new(PostgreSql::new(self.setup.run.clone()))
    }

    fn checkpoint(&self) -> Result<(), BenchError> {
        Ok(self.database().connect()?.batch("CHECKPOINT")?)
    }

    fn redo_bytes(&self) -> Result<u64, BenchError> {
        let since =
            "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn)::bigint FROM pg_control_checkpoint()";
        Ok(number(&mut *self.database().connect()?, since)?)
    }

    fn pool(&self) -> Result<Option<PoolCounts>, BenchError> {
        let mut session = self.database().connect()?;
        // The counts include a page by which a table grows as one that was read.
        let mut sum = |of| number(&mut *session, &format!("SELECT sum({of})::bigint FROM pg_stat_database"));
        Ok(Some(PoolCounts { asked: sum("blks_hit + blks_read")?, read: sum("blks_read")? }))
    }

    fn waits(&self) -> Result<Option<Waits>, BenchError> {
        let mut session = self.database().connect()?;
        let mut waited = |what| {
            let sum = format!("SELECT (1000 * sum(blk_{what}_time))::bigint FROM pg_stat_database");
            number(&mut *session, &sum).map(Duration::from_micros)
        };
        Ok(Some(Waits { reads: waited("read")?, writes: waited("write")? }))
    }

    fn check(&mut self) -> Result<Vec<String>, BenchError> {
        let mut command = self.command("pg_amcheck");
        command.arg("-h").arg(&self.setup.run).args(["-U", "postgres", "--install-missing", "--heapallindexed"]);
        let output = command.arg("postgres").stdin(Stdio::null()).output();
        let output = output.map_err(BenchError::at(&self.programs.join("pg_amcheck")))?;
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let mut found: Vec<String> =
            said.lines().map(str::trim).filter(|line| !line.is_empty()).map(Into::into).collect();
        found.truncate(20);
        if output.status.success() {
            found.clear();
        } else if found.is_empty() {
            found.push(format!("pg_amcheck: {}", output.status));
        }
        Ok(found)
    }

    fn said(&self) -> Vec<String> {
        last_lines(&self.log(), 6)
    }
}
