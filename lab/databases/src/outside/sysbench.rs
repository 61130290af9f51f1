//! sysbench: its transactions on MariaDB and PostgreSQL.

use super::{Generator, Pace, Said, number_after};
use std::path::Path;

/// Test of sysbench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Ten reads by key, four of ranges, two updates, a deletion and an insertion per transaction.
    ReadWrite,
    /// The reads of that transaction alone.
    ReadOnly,
    /// The writes of that transaction alone.
    WriteOnly,
    /// A read by key.
    PointSelect,
}

impl Test {
    /// Name of the test in sysbench.
    pub fn name(self) -> &'static str {
        match self {
            Test::ReadWrite => "oltp_read_write",
            Test::ReadOnly => "oltp_read_only",
            Test::WriteOnly => "oltp_write_only",
            Test::PointSelect => "oltp_point_select",
        }
    }
}

/// sysbench on either server.
#[derive(Clone, Copy, Debug)]
pub struct Sysbench {
    /// Tables.
    pub tables: u64,
    /// Rows of each, of about 200 bytes.
    pub rows: u64,
    /// Test to run.
    pub test: Test,
    /// True if the server is PostgreSQL, false if it is MariaDB.
    pub postgresql: bool,
}

impl Sysbench {
    fn words(&self, socket: &Path, more: &[String]) -> Vec<String> {
        let at = socket.display();
        let mut words = vec![self.test.name().to_owned()];
        match self.postgresql {
            true => words.extend([
                "--db-driver=pgsql".to_owned(),
                format!("--pgsql-host={at}"),
                "--pgsql-user=postgres".to_owned(),
                "--pgsql-db=postgres".to_owned(),
            ]),
            false => words.extend([
                "--db-driver=mysql".to_owned(),
                format!("--mysql-socket={at}"),
                "--mysql-user=root".to_owned(),
                format!("--mysql-db={}", crate::driver::MARIADB_DATABASE),
            ]),
        }
        words.extend([format!("--tables={}", self.tables), format!("--table-size={}", self.rows)]);
        words.extend_from_slice(more);
        words
    }
}

impl Generator for Sysbench {
    fn program(&self) -> (&'static str, &'static str) {
        ("sysbench", "sysbench")
    }

    fn load(&self, socket: &Path) -> Vec<String> {
        self.words(socket, &["prepare".to_owned()])
    }

    fn run(&self, socket: &Path, pace: &Pace) -> Vec<String> {
        // sysbench takes 0 as no seed, and seeds have 31 bits.
        let seed = pace.seed % 0x7fff_ffff + 1;
        self.words(
            socket,
            &[
                format!("--threads={}", pace.clients),
                format!("--time={}", pace.whole_seconds()),
                format!("--rand-seed={seed}"),
                "--report-interval=1".to_owned(),
                "--percentile=95".to_owned(),
                "run".to_owned(),
            ],
        )
    }

    fn second(&self, line: &str) -> Option<f64> {
        let rest = line.strip_prefix("[ ")?.split_once("tps: ")?.1;
        rest.split(' ').next()?.parse().ok()
    }

    fn said(&self, lines: &[String]) -> Option<Said> {
        let transactions = lines.iter().find_map(|line| line.trim_start().strip_prefix("transactions:"))?;
        let (count, rate) = transactions.split_once('(')?;
        Some(Said {
            transactions: count.trim().parse().ok()?,
            per_second: rate.split(' ').next()?.parse().ok()?,
            mean_ms: number_after(lines, "avg:")?,
            p95_ms: Some(number_after(lines, "95th percentile:")?),
            seconds: Vec::new(),
        })
    }

    fn conditions(&self, _transactions: u64) -> Vec<(String, String)> {
        let rows = self.rows;
        let of = |table| {
            let sql = format!("SELECT abs(count(*) - {rows}) FROM sbtest{table}");
            (sql, format!("rows that sbtest{table} has too few or too many"))
        };
        (1..=self.tables).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)
Threads started!

[ 1s ] thds: 4 tps: 151.73 qps: 3090.40 (r/w/o: 2169.14/613.86/307.40) lat (ms,95%): 39.65 err/s: 0.00 reconn/s: 0.00
[ 2s ] thds: 4 tps: 160.00 qps: 3200.00 (r/w/o: 2240.00/640.00/320.00) lat (ms,95%): 36.24 err/s: 0.00 reconn/s: 0.00
SQL statistics:
    queries performed:
        read:                            4368
        total:                           6240
    transactions:                        312    (155.46 per sec.)
    queries:                             6240   (3109.25 per sec.)
    ignored errors:                      0      (0.00 per sec.)

General statistics:
    total time:                          2.0058s
    total number of events:              312

Latency (ms):
         min:                                   12.03
         avg:                                   25.68
         max:                                   71.11
         95th percentile:                       38.25
         sum:                                 8012.14";

    #[test]
    fn its_words_are_understood() {
        let sysbench = Sysbench { tables: 1, rows: 10, test: Test::ReadWrite, postgresql: false };
        let lines: Vec<String> = WORDS.lines().map(str::to_owned).collect();
        let seconds: Vec<f64> = lines.iter().filter_map(|line| sysbench.second(line)).collect();
        assert_eq!(seconds, [151.73, 160.0]);
        let said = sysbench.said(&lines).expect("it says everything");
        let expected =
            Said { transactions: 312, per_second: 155.46, mean_ms: 25.68, p95_ms: Some(38.25), seconds: Vec::new() };
        assert_eq!(said, expected);
        assert_eq!(sysbench.said(&lines[..12]), None);
    }
}
