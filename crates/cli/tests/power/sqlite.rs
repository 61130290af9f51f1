//! SQLite under a load of small transactions: acknowledged commits are found after a power cut, and the database is
//! whole.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// `synchronous=extra` syncs the directory after a journal was removed. Without it a power loss may bring the journal
/// back, and with it the earlier state, on any file system.
const SETTINGS: &str = "pragma synchronous=extra; pragma cache_size=20;";

/// Runs statements and returns their output.
pub fn ask(database: &Path, statements: &str) -> Result<String, String> {
    let output = Command::new("sqlite3").arg("-batch").arg(database).arg(statements).output();
    let output = output.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(said.into_owned())
    }
}

/// Makes the database.
pub fn make(database: &Path, journal: &str) {
    let statements = format!("pragma journal_mode={journal}; {SETTINGS} create table t(k integer primary key, text);");
    ask(database, &statements).expect("a database");
}

/// Commits one row after the other until a commit fails or `is_over`; returns how many are known to be committed.
pub fn run(database: &Path, journal: &str, is_over: impl Fn() -> bool + Sync) -> u64 {
    let mut shell = Command::new("sqlite3");
    shell.arg("-batch").arg("-bail").arg(database);
    let mut child: Child =
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("sqlite3");
    let mut input: ChildStdin = child.stdin.take().expect("a pipe");
    let answers = BufReader::new(child.stdout.take().expect("a pipe"));
    let committed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for line in answers.lines().map_while(Result::ok) {
                let Some(number) = line.strip_prefix("committed ").and_then(|number| number.parse().ok()) else {
                    continue;
                };
                if is_over() {
                    break;
                }
                committed.store(number, Ordering::SeqCst);
            }
        });
        let mut next = 0_u64;
        let begun = writeln!(input, "pragma journal_mode={journal}; {SETTINGS}");
        while begun.is_ok() && !is_over() {
            // A few statements ahead of the answers, so that the shell never waits for this test.
            if next < committed.load(Ordering::SeqCst) + 4 {
                next += 1;
                let row = format!("insert into t values({next}, hex(zeroblob(700)));\nselect 'committed {next}';\n");
                if input.write_all(row.as_bytes()).is_err() {
                    break;
                }
            } else {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        let _ended = child.kill();
        let _ended = child.wait();
    });
    committed.into_inner()
}

/// Checks the database after a crash; returns its number of rows.
///
/// # Errors
/// A committed row that is missing, or a database that is not whole.
pub fn verify(database: &Path, committed: u64) -> Result<u64, String> {
    let found = ask(database, "pragma integrity_check; select count(*), coalesce(max(k), 0) from t;")?;
    let lines: Vec<&str> = found.lines().collect();
    let [whole, counts] = lines[..] else { return Err(found) };
    let numbers: Vec<u64> = counts.split('|').filter_map(|number| number.parse().ok()).collect();
    match numbers[..] {
        [rows, last] if whole == "ok" && rows == last && last >= committed => Ok(rows),
        _ => Err(format!("{committed} rows were committed; found {found}")),
    }
}
