//! PostgreSQL's own.

use super::{Generator, Pace, Said, number_after};
use std::path::Path;

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// A transaction of five statements, like TPC-B's.
    TpcbLike,
    /// The same without the two small tables on which all wait for each other.
    SimpleUpdate,
    /// A read by the primary key.
    SelectOnly,
}

impl Script {
    /// As pgbench calls it.
    pub fn name(self) -> &'static str {
        match self {
            Script::TpcbLike => "tpcb-like",
            Script::SimpleUpdate => "simple-update",
            Script::SelectOnly => "select-only",
        }
    }
}

/// pgbench on PostgreSQL.
#[derive(Clone, Copy, Debug)]
pub struct Pgbench {
    /// Hundred thousands of accounts, of about 15 MB each.
    pub scale: u64,
    /// What it does.
    pub script: Script,
}

impl Pgbench {
    fn words(socket: &Path, words: &[&str]) -> Vec<String> {
        let place = socket.display().to_string();
        let all = ["-h", place.as_str(), "-U", "postgres"].into_iter().chain(words.iter().copied()).chain(["postgres"]);
        all.map(str::to_owned).collect()
    }
}

impl Generator for Pgbench {
    fn program(&self) -> (&'static str, &'static str) {
        ("pgbench", "postgresql")
    }

    fn load(&self, socket: &Path) -> Vec<String> {
        Self::words(socket, &["-i", "-q", "-s", &self.scale.to_string()])
    }

    fn run(&self, socket: &Path, pace: &Pace) -> Vec<String> {
        let (clients, seconds) = (pace.clients.to_string(), pace.whole_seconds().to_string());
        let threads = pace.clients.min(std::thread::available_parallelism().map_or(1, |count| count.get() as u64));
        let (threads, seed) = (threads.to_string(), pace.seed.to_string());
        // Not vacuumed first, which would also empty the history by which commits are checked.
        let words = ["-n", "-b", self.script.name(), "-c", &clients, "-j", &threads, "-T", &seconds, "-P", "1"];
        Self::words(socket, &[&words[..], &["--random-seed", &seed]].concat())
    }

    fn second(&self, line: &str) -> Option<f64> {
        let rest = line.strip_prefix("progress: ")?;
        rest.split(", ").find_map(|field| field.strip_suffix(" tps"))?.parse().ok()
    }

    fn said(&self, lines: &[String]) -> Option<Said> {
        Some(Said {
            transactions: number_after(lines, "transactions actually processed:")? as u64,
            per_second: number_after(lines, "tps =")?,
            mean_ms: number_after(lines, "latency average =")?,
            p95_ms: None,
            seconds: Vec::new(),
        })
    }

    fn conditions(&self, transactions: u64) -> Vec<(String, String)> {
        let sum = |column: &str, table: &str| format!("(SELECT coalesce(sum({column}), 0) FROM pgbench_{table})");
        let history = sum("delta", "history");
        let differs = |column: &str, table: &str| {
            let sql = format!("SELECT count(*) FROM (SELECT 1) one WHERE {} <> {history}", sum(column, table));
            (sql, format!("the balance of pgbench_{table} is not the history's"))
        };
        let mut conditions = vec![differs("abalance", "accounts")];
        if self.script == Script::TpcbLike {
            conditions.extend([differs("tbalance", "tellers"), differs("bbalance", "branches")]);
        }
        if self.script != Script::SelectOnly {
            let lost = format!("SELECT greatest({transactions} - count(*), 0) FROM pgbench_history");
            conditions.push((lost, "commits that pgbench was told of and that are lost".to_owned()));
        }
        conditions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "pgbench (15.14 (Debian 15.14-0+deb12u1))
progress: 1.0 s, 812.3 tps, lat 4.891 ms stddev 1.205, 0 failed
transaction type: <builtin: TPC-B (sort of)>
scaling factor: 10
query mode: simple
number of clients: 4
number of threads: 2
maximum number of tries: 1
duration: 1 s
number of transactions actually processed: 815
number of failed transactions: 0 (0.000%)
latency average = 4.893 ms
latency stddev = 1.207 ms
initial connection time = 5.310 ms
tps = 816.418291 (without initial connection time)";

    #[test]
    fn its_words_are_understood() {
        let pgbench = Pgbench { scale: 10, script: Script::TpcbLike };
        let lines: Vec<String> = WORDS.lines().map(str::to_owned).collect();
        let seconds: Vec<f64> = lines.iter().filter_map(|line| pgbench.second(line)).collect();
        assert_eq!(seconds, [812.3]);
        let said = pgbench.said(&lines).expect("it says everything");
        let expected =
            Said { transactions: 815, per_second: 816.418291, mean_ms: 4.893, p95_ms: None, seconds: Vec::new() };
        assert_eq!(said, expected);
        assert_eq!(pgbench.said(&lines[..10]), None);
    }
}
