//! MariaDB as Debian packages it.

use super::{
    CHECKPOINT_WITHIN, Guarded, PoolCounts, STOPPED_WITHIN, Server, Setup, Waits, last_lines, number, wait_until_ready,
};
use crate::driver::{Database, MariaDb, Session};
use crate::{BenchError, DriverError, Failure};
use rustix::process::Signal;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A private MariaDB.
pub struct MariaDbServer {
    server: PathBuf,
    setup: Setup,
    process: Option<Guarded>,
}

/// Bytes of a page of InnoDB.
const PAGE_BYTES: u64 = 16 << 10;

/// A program of MariaDB, which may lie outside the path of ordinary users.
fn program(name: &'static str) -> Result<PathBuf, BenchError> {
    let places = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
    let mut found = places.iter().map(|place| Path::new(place).join(name)).filter(|path| path.exists());
    found.next().ok_or(BenchError::Missing { program: name, package: "mariadb-server" })
}

/// The first errors among a tool's last lines, or else its last lines. Its long advice comes behind the errors.
fn reasons(lines: Vec<String>) -> Vec<String> {
    let errors: Vec<String> = lines.iter().filter(|line| line.contains("[ERROR]")).take(3).cloned().collect();
    if errors.is_empty() { lines[lines.len().saturating_sub(6)..].to_vec() } else { errors }
}

impl MariaDbServer {
    /// The installed MariaDB, not started yet.
    ///
    /// # Errors
    /// When no MariaDB is installed.
    pub fn new(setup: Setup) -> Result<Self, BenchError> {
        Ok(Self { server: program("mariadbd")?, setup, process: None })
    }

    fn log(&self) -> PathBuf {
        self.setup.run.join("log")
    }

    fn socket(&self) -> PathBuf {
        self.setup.run.join("s")
    }

    fn log_file(&self) -> Result<File, BenchError> {
        let log = self.log();
        let file = OpenOptions::new().create(true).append(true).open(&log).map_err(BenchError::at(&log))?;
        self.setup.owner.give(&log)?;
        Ok(file)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // A server that starts removes temporary tables of all others that share its directory for them.
        command.env("TMPDIR", &self.setup.run);
        command.current_dir(&self.setup.run).env("LC_ALL", "C").env("HOME", &self.setup.run).arg("--no-defaults");
        self.setup.owner.applied(&mut command);
        command
    }

    /// Settings that make the server private and its memory small; all others keep their defaults.
    fn settings(&self) -> Vec<String> {
        let Setup { data, run, memory_bytes, connections, .. } = &self.setup;
        // Least size of the pool that MariaDB accepts.
        let pool = (*memory_bytes).max(6 << 20).next_multiple_of(1 << 20);
        vec![
            format!("--datadir={}", data.display()),
            format!("--socket={}", self.socket().display()),
            format!("--pid-file={}", run.join("pid").display()),
            format!("--tmpdir={}", run.display()),
            "--skip-networking".into(),
            format!("--innodb-buffer-pool-size={pool}"),
            format!("--innodb-buffer-pool-chunk-size={}", pool.min(128 << 20)),
            "--innodb-flush-method=O_DIRECT".into(),
            // InnoDB keeps 1536 pages free by default, which would be all of a small pool. This is the share of its
            // default pool.
            format!("--innodb-lru-scan-depth={}", (pool / PAGE_BYTES * 3 / 16).clamp(100, 1536)),
            // The pool is not loaded at the start, because pages that it had before the last stop must not be read
            // beside the load.
            "--innodb-buffer-pool-load-at-startup=0".into(),
            "--innodb-buffer-pool-dump-at-shutdown=0".into(),
            "--innodb-log-file-size=256M".into(),
            format!("--max-connections={}", connections + 10),
        ]
    }

    /// Runs a tool to its end; true if it succeeded.
    fn tool(&self, command: &mut Command) -> Result<bool, BenchError> {
        let log = self.log_file()?;
        let copy = log.try_clone().map_err(BenchError::at(&self.log()))?;
        let name = PathBuf::from(command.get_program());
        let started = Guarded::spawn(command.stdin(Stdio::null()).stdout(copy).stderr(log));
        let ended = started.map_err(BenchError::at(&name))?.wait_within(STOPPED_WITHIN);
        Ok(ended.is_some_and(|status| status.success()))
    }
}

/// Has InnoDB write every page that is dirty now. InnoDB has no checkpoint of this kind that ends under a load: its
/// log's checkpoint follows the oldest dirty page. So the settings forbid dirty pages and raise the write rate, until
/// the checkpoint is past the log's end at the beginning.
fn flushed(session: &mut dyn Session) -> Result<(), DriverError> {
    let usual: Vec<u64> = FLUSHING
        .iter()
        .map(|(name, _)| number(session, &format!("SELECT ROUND(@@GLOBAL.{name})")))
        .collect::<Result<_, _>>()?;
    let target = number(session, "SHOW GLOBAL STATUS LIKE 'Innodb_lsn_current'")?;
    for (name, value) in FLUSHING {
        session.batch(&format!("SET GLOBAL {name} = {value}"))?;
    }
    let started = Instant::now();
    let reached = loop {
        match number(session, "SHOW GLOBAL STATUS LIKE 'Innodb_lsn_last_checkpoint'") {
            Ok(lsn) if lsn < target && started.elapsed() < CHECKPOINT_WITHIN => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(lsn) if lsn < target => {
                let text = format!("no checkpoint after {} s", CHECKPOINT_WITHIN.as_secs());
                break Err(DriverError { database: "MariaDB", failure: Failure::Refused, text });
            }
            other => break other.map(drop),
        }
    };
    // The capacity is reset before its maximum, which may not be below it.
    for ((name, _), value) in FLUSHING.iter().zip(usual).rev() {
        session.batch(&format!("SET GLOBAL {name} = {value}"))?;
    }
    reached
}

/// Settings that let InnoDB write all dirty pages, in the order in which they are applied.
const FLUSHING: [(&str, u64); 3] =
    [("innodb_io_capacity_max", 100_000), ("innodb_io_capacity", 100_000), ("innodb_max_dirty_pages_pct", 0)];

impl Server for MariaDbServer {
    fn name(&self) -> &'static str {
        "MariaDB"
    }

    fn create(&mut self) -> Result<(), BenchError> {
        let mut command = self.command(&program("mariadb-install-db")?);
        command.arg(format!("--datadir={}", self.setup.data.display()));
        command.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=256M"]);
        let made = self.tool(&mut command)?;
        if made {
            return Ok(());
        }
        let said = reasons(last_lines(&self.log(), 60));
        Err(BenchError::Server { what: "mariadb-install-db failed".into(), said })
    }

    fn move_to(&mut self, data: &Path) {
        self.setup.data = data.to_owned();
    }

    fn start(&mut self, ended: &AtomicBool) -> Result<(), BenchError> {
        let log = self.log_file()?;
        let mut command = self.command(&self.server);
        command.args(self.settings()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = Guarded::spawn(&mut command).map_err(BenchError::at(&self.server))?;
        let (path, database) = (self.log(), MariaDb::new(self.socket()));
        let process = self.process.insert(process);
        wait_until_ready("MariaDB", process, &path, ended, || database.prepare().is_ok())
    }

    fn stop(&mut self) -> Result<(), BenchError> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.signal(Signal::TERM);
        match process.wait_within(STOPPED_WITHIN) {
            Some(status) if status.success() => Ok(()),
            other => {
                let how = other.map_or("it was killed".to_owned(), |status| status.to_string());
                let what = format!("MariaDB did not stop in good order ({how})");
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
        Arc::new(MariaDb::new(self.socket()))
    }

    fn checkpoint(&self) -> Result<(), BenchError> {
        Ok(flushed(&mut *self.database().connect()?)?)
    }

    fn redo_bytes(&self) -> Result<u64, BenchError> {
        Ok(number(&mut *self.database().connect()?, "SHOW GLOBAL STATUS LIKE 'Innodb_checkpoint_age'")?)
    }

    fn pool(&self) -> Result<Option<PoolCounts>, BenchError> {
        let mut session = self.database().connect()?;
        let mut count = |of| number(&mut *session, &format!("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_{of}'"));
        Ok(Some(PoolCounts { asked: count("read_requests")?, read: count("reads")? }))
    }

    fn waits(&self) -> Result<Option<Waits>, BenchError> {
        Ok(None)
    }

    fn check(&mut self) -> Result<Vec<String>, BenchError> {
        let mut command = self.command(&program("mariadb-check")?);
        command.arg(format!("--socket={}", self.socket().display())).args([
            "-u",
            "root",
            "--extended",
            "--all-databases",
        ]);
        let output = command.stdin(Stdio::null()).output().map_err(BenchError::at(Path::new("mariadb-check")))?;
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let lines = said.lines().map(str::trim);
        let mut found: Vec<String> =
            lines.filter(|line| !line.is_empty() && !line.ends_with("OK")).map(Into::into).collect();
        found.truncate(20);
        if found.is_empty() && !output.status.success() {
            found.push(format!("mariadb-check: {}", output.status));
        }
        Ok(found)
    }

    fn said(&self) -> Vec<String> {
        last_lines(&self.log(), 6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_rather_than_the_advice_behind_them() {
        let lines = |number: &[&str]| number.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let advice = lines(&["1", "2", "3", "4", "5", "6", "7"]);
        assert_eq!(reasons(advice.clone()), advice[1..]);
        let mut failed = lines(&["Installing", "0 [ERROR] InnoDB: cannot set log file", "0 [ERROR] Aborting"]);
        let errors = failed[1..].to_vec();
        failed.extend(advice);
        assert_eq!(reasons(failed), errors);
        assert_eq!(reasons(Vec::new()), [""; 0]);
    }
}
