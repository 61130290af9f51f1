//! Load generators of the distribution, pgbench and sysbench: started against a private server, their output parsed.
//!
//! The programs run as they are installed, with their own tables and transactions.

mod pgbench;
mod sysbench;

pub use pgbench::{File, Own, Pgbench, Script, Work};
pub use sysbench::{Sysbench, Test};

use crate::driver::{Database, Session, one};
use crate::server::{Guarded, Owner};
use crate::{BenchError, DriverError};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Figures that a program reported for a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// Transactions whose commit was acknowledged to the program.
    pub transactions: u64,
    /// Committed transactions a second.
    pub per_second: f64,
    /// Mean latency of a transaction, in milliseconds.
    pub mean_ms: f64,
    /// 95th percentile of the latency in milliseconds, where the program reports it.
    pub p95_ms: Option<f64>,
    /// Transactions a second, for each second.
    pub seconds: Vec<f64>,
}

/// Pace of a run: clients, time and seed.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Connections that work at the same time.
    pub clients: u64,
    /// Length of the run; programs count whole seconds.
    pub time: Duration,
    /// Seed of the program's random numbers.
    pub seed: u64,
}

impl Pace {
    fn whole_seconds(&self) -> u64 {
        self.time.as_millis().div_ceil(1000).max(1) as u64
    }
}

/// Differences between the programs: their arguments and their output.
pub trait Generator: Sync {
    /// The program and the package that it is in.
    fn program(&self) -> (&'static str, &'static str);

    /// The program that makes and fills its tables: the generator itself, or one in the same package.
    fn loader(&self) -> &'static str {
        self.program().0
    }

    /// Names and contents of files that the program reads. The files are written to the directory of `socket`, which
    /// the program's user may read.
    fn files(&self) -> Vec<(String, &str)> {
        Vec::new()
    }

    /// Arguments with which its tables are made and filled in a server that listens at `socket`.
    fn load(&self, socket: &Path) -> Vec<String>;

    /// Arguments of a run.
    fn run(&self, socket: &Path, pace: &Pace) -> Vec<String>;

    /// Transactions a second from a line of output, if it is one of those that come each second.
    fn second(&self, line: &str) -> Option<f64>;

    /// Figures from the program's last lines; none where some are missing.
    fn said(&self, lines: &[String]) -> Option<Said>;

    /// Conditions that must hold after runs with `transactions` commits. Each is a statement that counts faults, with
    /// a description of them.
    fn conditions(&self, transactions: u64) -> Vec<(String, String)>;
}

/// An installed program.
pub struct Program {
    generator: Box<dyn Generator>,
    path: PathBuf,
    loader: PathBuf,
    owner: Owner,
}

/// Directories of programs that ordinary users run, searched after those of the newest PostgreSQL.
const PLACES: [&str; 2] = ["/usr/bin", "/usr/local/bin"];

fn find(program: &'static str, package: &'static str) -> Result<PathBuf, BenchError> {
    let newest = crate::server::postgresql_programs().into_iter();
    let mut places = newest.chain(PLACES.iter().map(PathBuf::from)).map(|place| place.join(program));
    places.find(|path| path.exists()).ok_or(BenchError::Missing { program, package })
}

impl Program {
    /// The program, which will run as this user.
    ///
    /// # Errors
    /// When the program is not installed.
    pub fn find(generator: Box<dyn Generator>, owner: Owner) -> Result<Self, BenchError> {
        let (program, package) = generator.program();
        let loader = find(generator.loader(), package)?;
        Ok(Self { generator, path: find(program, package)?, loader, owner })
    }

    /// Makes and fills the program's tables.
    ///
    /// # Errors
    /// The program's last lines, the error of a file or of the database, or [`BenchError::Interrupted`].
    pub fn load(&self, database: &dyn Database, ended: &AtomicBool) -> Result<(), BenchError> {
        let socket = socket(database)?;
        for (name, text) in self.generator.files() {
            let path = socket.join(name);
            std::fs::write(&path, text).map_err(BenchError::at(&path))?;
            let readable = std::fs::Permissions::from_mode(0o644);
            std::fs::set_permissions(&path, readable).map_err(BenchError::at(&path))?;
        }
        self.carry_out(&self.loader, &self.generator.load(socket), ended, &mut |_| {})?;
        Ok(database.connect()?.settle()?)
    }

    /// Runs the program; `each_second` receives its transactions a second.
    ///
    /// # Errors
    /// The program's last lines, or [`BenchError::Interrupted`].
    pub fn run(
        &self,
        database: &dyn Database,
        pace: &Pace,
        ended: &AtomicBool,
        each_second: &dyn Fn(f64),
    ) -> Result<Said, BenchError> {
        let mut seconds = Vec::new();
        let words = self.generator.run(socket(database)?, pace);
        let lines = self.carry_out(&self.path, &words, ended, &mut |line| {
            if let Some(rate) = self.generator.second(line) {
                each_second(rate);
                seconds.push(rate);
            }
        })?;
        match self.generator.said(&lines) {
            Some(said) => Ok(Said { seconds, ..said }),
            None => Err(failed(&self.path, "said something that is not understood", lines)),
        }
    }

    /// Faults of the program's tables, after runs with `transactions` acknowledged commits.
    ///
    /// # Errors
    /// The database's error.
    pub fn faults(&self, session: &mut dyn Session, transactions: u64) -> Result<Vec<String>, DriverError> {
        let mut faults = Vec::new();
        for (sql, says) in self.generator.conditions(transactions) {
            let found = one(session.texts(&sql)?, &sql)?.into_iter().next().flatten();
            if found.as_deref() != Some("0") {
                faults.push(format!("{says}: {}", found.unwrap_or_default()));
            }
        }
        Ok(faults)
    }

    /// Runs a program to its end; returns all its lines.
    fn carry_out(
        &self,
        program: &Path,
        words: &[String],
        ended: &AtomicBool,
        hear: &mut dyn FnMut(&str),
    ) -> Result<Vec<String>, BenchError> {
        let at = || BenchError::at(program);
        let (reader, writer) = std::io::pipe().map_err(at())?;
        let mut command = Command::new(program);
        command.args(words).current_dir("/").env("LC_ALL", "C").stdin(Stdio::null());
        command.stdout(writer.try_clone().map_err(at())?).stderr(writer);
        let mut process = Guarded::spawn(self.owner.applied(&mut command)).map_err(at())?;
        // The command holds the write end of the pipe; the reader sees the end of output only after that is closed.
        drop(command);
        let (sender, lines) = channel();
        // The reader has its own thread, because a line may take long.
        let reading = std::thread::spawn(move || {
            let lines = BufReader::new(reader).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        let mut all = Vec::new();
        loop {
            match lines.recv_timeout(Duration::from_millis(20)) {
                Ok(line) => {
                    hear(&line);
                    all.push(line);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if ended.load(Relaxed) {
                process.kill_all();
                return Err(BenchError::Interrupted);
            }
        }
        reading.join().expect("reading does not panic");
        all.retain(|line| !line.trim().is_empty());
        match process.wait_within(ENDED_WITHIN) {
            Some(status) if status.success() => Ok(all),
            Some(status) => Err(failed(program, &format!("failed ({status})"), all)),
            None => Err(failed(program, "does not end", all)),
        }
    }
}

fn failed(program: &Path, what: &str, lines: Vec<String>) -> BenchError {
    let name = program.file_name().unwrap_or(program.as_os_str()).display();
    BenchError::Server { what: format!("{name} {what}"), said: lines[lines.len().saturating_sub(6)..].to_vec() }
}

/// Longest time that a program may take to end after its last line.
const ENDED_WITHIN: Duration = Duration::from_secs(60);

fn socket(database: &dyn Database) -> Result<&Path, DriverError> {
    database.socket().ok_or_else(|| DriverError {
        database: database.name(),
        failure: crate::Failure::Refused,
        text: "it has no server that another program could talk to".to_owned(),
    })
}

/// The number after `name` in the first line that has it, whatever follows the number.
fn number_after(lines: &[String], name: &str) -> Option<f64> {
    lines.iter().find_map(|line| {
        let rest = line.split_once(name)?.1.trim_start();
        rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_absent_is_named_with_its_package() {
        let refused = find("no-such-program", "no-such-package").expect_err("it is absent").to_string();
        assert!(
            refused.contains("no-such-program is not installed") && refused.contains("no-such-package"),
            "{refused}"
        );
    }

    #[test]
    fn times_are_whole_seconds() {
        for (millis, seconds) in [(1, 1), (1000, 1), (1001, 2), (60_000, 60)] {
            let pace = Pace { clients: 1, time: Duration::from_millis(millis), seed: 1 };
            assert_eq!(pace.whole_seconds(), seconds);
        }
    }
}
