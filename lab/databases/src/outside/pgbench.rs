//! pgbench: PostgreSQL's own load generator.

use super::{Generator, Pace, Said, number_after};
use std::path::Path;

/// Built-in script of pgbench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// A transaction of five statements, like TPC-B's.
    TpcbLike,
    /// The same without the two small tables on which all clients wait for each other.
    SimpleUpdate,
    /// A read by the primary key.
    SelectOnly,
}

impl Script {
    /// Name of the script in pgbench.
    pub fn name(self) -> &'static str {
        match self {
            Script::TpcbLike => "tpcb-like",
            Script::SimpleUpdate => "simple-update",
            Script::SelectOnly => "select-only",
        }
    }
}

/// pgbench on PostgreSQL.
#[derive(Clone, Debug)]
pub struct Pgbench {
    /// Hundred thousands of accounts in pgbench's own tables, of about 15 MB each.
    pub scale: u64,
    /// Scripts to run.
    pub work: Work,
}

/// Origin of the scripts: pgbench or the user.
#[derive(Clone, Debug)]
pub enum Work {
    /// A built-in script.
    Builtin(Script),
    /// Scripts of the user.
    Own(Own),
}

/// Scripts of the user.
#[derive(Clone, Debug)]
pub struct Own {
    /// Statements that psql executes to make and fill the tables; if none, pgbench makes its own tables.
    pub init: Option<String>,
    /// Scripts of a transaction each.
    pub scripts: Vec<File>,
    /// Conditions that must hold afterwards. Each is a statement that counts faults, with a description of them.
    pub checks: Vec<(String, String)>,
}

/// A script and its weight among others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Name of the script, for display.
    pub name: String,
    /// Statements of the script.
    pub text: String,
    /// Weight of the script.
    pub weight: u32,
}

/// Placeholder in a check for the number of transactions whose commit was acknowledged to pgbench.
const TRANSACTIONS: &str = ":transactions";

/// Argument that limits the tries of a transaction after deadlocks.
const TRIES: &str = "--max-tries=10";

impl Own {
    /// The checks of a file: statements that end with a line, each after comment lines that describe the fault if its
    /// answer is not 0.
    ///
    /// # Errors
    /// A sentence that describes the fault of the file.
    pub fn checks(text: &str) -> Result<Vec<(String, String)>, String> {
        let (mut checks, mut says, mut sql) = (Vec::new(), Vec::new(), String::new());
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.strip_prefix("--") {
                Some(comment) if sql.is_empty() => says.push(comment.trim()),
                Some(_) => {}
                None => sql = if sql.is_empty() { line.to_owned() } else { format!("{sql}\n{line}") },
            }
            if let Some(statement) = sql.strip_suffix(';') {
                if says.is_empty() {
                    return Err(format!("no comment says what is wrong where this gives more than 0: {sql}"));
                }
                checks.push((statement.to_owned(), says.join(" ")));
                (says, sql) = (Vec::new(), String::new());
            }
        }
        if !sql.is_empty() {
            return Err(format!("a statement does not end with a semicolon: {sql}"));
        }
        if checks.is_empty() { Err("it has no statement".to_owned()) } else { Ok(checks) }
    }

    fn script(at: usize) -> String {
        format!("script-{at}.sql")
    }
}

/// Name of the file whose statements make the user's tables.
const INIT: &str = "init.sql";

impl Pgbench {
    fn words(socket: &Path, words: &[&str]) -> Vec<String> {
        let place = socket.display().to_string();
        let all = ["-h", place.as_str(), "-U", "postgres"].into_iter().chain(words.iter().copied()).chain(["postgres"]);
        all.map(str::to_owned).collect()
    }

    fn init(&self) -> Option<&str> {
        match &self.work {
            Work::Builtin(_) => None,
            Work::Own(own) => own.init.as_deref(),
        }
    }
}

impl Generator for Pgbench {
    fn program(&self) -> (&'static str, &'static str) {
        ("pgbench", "postgresql")
    }

    fn loader(&self) -> &'static str {
        if self.init().is_some() { "psql" } else { "pgbench" }
    }

    fn files(&self) -> Vec<(String, &str)> {
        let Work::Own(own) = &self.work else { return Vec::new() };
        let scripts = own.scripts.iter().enumerate().map(|(at, script)| (Own::script(at), script.text.as_str()));
        scripts.chain(self.init().map(|text| (INIT.to_owned(), text))).collect()
    }

    fn load(&self, socket: &Path) -> Vec<String> {
        let path = socket.join(INIT).display().to_string();
        match self.init() {
            // Without the user's psql settings, and without further statements after one that failed.
            Some(_) => Self::words(socket, &["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", &path]),
            None => Self::words(socket, &["-i", "-q", "-s", &self.scale.to_string()]),
        }
    }

    fn run(&self, socket: &Path, pace: &Pace) -> Vec<String> {
        let (clients, seconds) = (pace.clients.to_string(), pace.whole_seconds().to_string());
        let threads = pace.clients.min(std::thread::available_parallelism().map_or(1, |count| count.get() as u64));
        let (threads, seed) = (threads.to_string(), pace.seed.to_string());
        let scripts: Vec<String> = match &self.work {
            Work::Builtin(script) => vec!["-b".to_owned(), script.name().to_owned()],
            Work::Own(own) => {
                let file = |(at, script): (usize, &File)| {
                    let path = socket.join(Own::script(at)).display().to_string();
                    ["-f".to_owned(), format!("{path}@{}", script.weight)]
                };
                own.scripts.iter().enumerate().flat_map(file).chain([TRIES.to_owned()]).collect()
            }
        };
        let scripts = scripts.iter().map(String::as_str);
        // Without a vacuum first, which would also empty the history by which commits are checked.
        let words = ["-n", "-c", &clients, "-j", &threads, "-T", &seconds, "-P", "1", "--random-seed", &seed];
        Self::words(socket, &words.into_iter().chain(scripts).collect::<Vec<_>>())
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
        let script = match &self.work {
            Work::Builtin(script) => *script,
            Work::Own(own) => {
                let counted = |(sql, says): &(String, String)| {
                    (sql.replace(TRANSACTIONS, &transactions.to_string()), says.clone())
                };
                return own.checks.iter().map(counted).collect();
            }
        };
        let sum = |column: &str, table: &str| format!("(SELECT coalesce(sum({column}), 0) FROM pgbench_{table})");
        let history = sum("delta", "history");
        let differs = |column: &str, table: &str| {
            let sql = format!("SELECT count(*) FROM (SELECT 1) one WHERE {} <> {history}", sum(column, table));
            (sql, format!("the balance of pgbench_{table} is not the history's"))
        };
        let mut conditions = vec![differs("abalance", "accounts")];
        if script == Script::TpcbLike {
            conditions.extend([differs("tbalance", "tellers"), differs("bbalance", "branches")]);
        }
        if script != Script::SelectOnly {
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
        let pgbench = Pgbench { scale: 10, work: Work::Builtin(Script::TpcbLike) };
        let lines: Vec<String> = WORDS.lines().map(str::to_owned).collect();
        let seconds: Vec<f64> = lines.iter().filter_map(|line| pgbench.second(line)).collect();
        assert_eq!(seconds, [812.3]);
        let said = pgbench.said(&lines).expect("it says everything");
        let expected =
            Said { transactions: 815, per_second: 816.418291, mean_ms: 4.893, p95_ms: None, seconds: Vec::new() };
        assert_eq!(said, expected);
        assert_eq!(pgbench.said(&lines[..10]), None);
    }

    #[test]
    fn checks_are_statements_after_what_they_say() {
        let text = "-- lost votes\nSELECT greatest(:transactions - count(*), 0) -- all of them\nFROM votes;\n\n-- one\n-- and two\nSELECT 0;\n";
        let checks = Own::checks(text).expect("two checks");
        assert_eq!(checks[1], ("SELECT 0".to_owned(), "one and two".to_owned()));
        let own = Own { init: None, scripts: Vec::new(), checks };
        let conditions = Pgbench { scale: 1, work: Work::Own(own) }.conditions(17);
        let (sql, says) = &conditions[0];
        assert!(sql.contains("greatest(17 - count(*), 0)") && sql.ends_with("FROM votes"), "{sql}");
        assert_eq!(says, "lost votes");
        for (wrong, why) in [("", "no statement"), ("SELECT 1;", "no comment"), ("-- a\nSELECT 1", "semicolon")] {
            let refused = Own::checks(wrong).expect_err("no checks");
            assert!(refused.contains(why), "{refused}");
        }
    }
}
