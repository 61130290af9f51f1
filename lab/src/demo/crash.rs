//! The kill: a process that runs the load is ended by SIGKILL, and its database opened again.

use super::{Demo, Hits, KILLED, Ran, WINDOW, hits, tpcc};
use anyhow::{Context, Result, bail};
use entresol_policy::catalogue;
use entresol_sqlite::Options;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Result of the kill.
pub struct Crash {
    /// Number of the last transaction whose commit the killed process reported.
    pub acknowledged: u64,
    /// Number of the last transaction in the database.
    pub found: u64,
    /// Time from the open to the first row.
    pub reopened: Duration,
    /// Dirty pages that only the cache had.
    pub dirty_pages: u64,
    /// Hits in the first window of transactions after the kill, and in the same window of the run that began with an
    /// empty cache.
    pub warm: Hits,
    pub cold: Hits,
    /// Faults that the checks found.
    pub faults: Vec<String>,
}

impl Demo<'_> {
    /// Runs the load in the process that is killed: executes transactions, and prints a line for each committed one.
    pub(super) fn victim(&self) -> Result<()> {
        let options = self.options("killed", Some(catalogue::info(KILLED)?));
        let connection = self.open(&self.path("killed.db"), "demo-victim", options)?;
        for number in 1.. {
            tpcc::transaction(&connection, self.arguments.seed, number)?;
            println!("{number}");
            std::io::stdout().flush()?;
        }
        Ok(())
    }

    /// Lets a process run half the load, kills it during the next transaction, and examines the remaining database.
    pub(super) fn crash(&self, runs: &[Ran]) -> Result<Crash> {
        let path = self.copy("killed")?;
        let acknowledged = self.kill()?;
        let started = Instant::now();
        let options = self.options("killed", Some(catalogue::info(KILLED)?));
        let connection = self.open(&path, "demo-killed", options.clone())?;
        let found = tpcc::committed(&connection)?;
        let reopened = started.elapsed();
        let stats: String = connection.query_row("PRAGMA entresol_stats", [], |row| row.get(0))?;
        let dirty =
            stats.lines().find_map(|line| line.strip_prefix("dirty_pages ")).context("a figure of the cache")?;
        let dirty_pages = dirty.parse()?;
        let before = hits(&connection)?;
        for number in found + 1..=found + WINDOW {
            tpcc::transaction(&connection, self.arguments.seed, number)?;
        }
        let warm = hits(&connection)?.since(before);
        connection.close().map_err(|(_, error)| error)?;
        // The checks read every page, so they run without the disk's time.
        let connection = self.open(&path, "demo-checked", Options { below: None, ..options })?;
        let mut faults = tpcc::faults(&connection)?;
        if !(acknowledged..=acknowledged + 1).contains(&found) {
            faults.push(format!("{acknowledged} transactions were acknowledged, {found} are there"));
        }
        let same = runs.iter().find(|run| run.name == KILLED).context("a run of that policy")?;
        let cold = *same.series.first().context("a run with a cache")?;
        Ok(Crash { acknowledged, found, reopened, dirty_pages, warm, cold, faults })
    }

    fn kill(&self) -> Result<u64> {
        let arguments = self.arguments;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--quiet", "demo", "--victim", "--seed", &arguments.seed.to_string(), "--model", &arguments.model])
            .arg("--out")
            .arg(&arguments.out)
            .stdout(Stdio::piped())
            .spawn()?;
        let half = arguments.transactions / 2;
        let bar = self.bar("to be killed", half, "transactions");
        let mut acknowledged = 0;
        let said = BufReader::new(child.stdout.take().context("a pipe")?);
        for line in said.lines().map_while(Result::ok) {
            acknowledged = line.parse()?;
            bar.advance(1);
            if acknowledged == half {
                // By then the process is in the middle of another transaction; a report of that commit still counts.
                std::thread::sleep(Duration::from_millis(7));
                child.kill()?;
            }
        }
        let status = child.wait()?;
        if status.code().is_some() || acknowledged < half {
            bail!("the process that was to be killed ended by itself: {status}");
        }
        Ok(acknowledged)
    }
}
