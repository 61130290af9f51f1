//! PostgreSQL under small transactions of two clients, with checkpoints, tables that are made and dropped, and indexes
//! that are rebuilt: acknowledged commits are found after a power cut, and the database is whole.

use crate::servers::{self, command, ok};
use crate::testbed::{Attached, make_disk, output, text};
use entresol_core::Random;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub const CLIENTS: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(60);

/// Small pools and segments, so that pages are written, and segments renamed, all the time. Under `wal_level=minimal`
/// a new table is not logged but synced at its commit.
const SETTINGS: &str = "listen_addresses = ''\nfsync = on\nfull_page_writes = on\nautovacuum = off\nshared_buffers = 1MB\n\
    max_connections = 8\nmin_wal_size = 2MB\nmax_wal_size = 4MB\nwal_level = minimal\nmax_wal_senders = 0\n\
    wal_skip_threshold = 0\nrestart_after_crash = off\n";

const SCHEMA: &str = "create extension amcheck; create table rows(client int, n int, filler text, primary key (client, n)); \
    create table counters(client int primary key, n int, copied int) with (fillfactor = 50); \
    insert into counters select c, 0, 0 from generate_series(0, 1) c; \
    create table copy0 as select * from rows; create table copy1 as select * from rows; checkpoint";

/// A disk with a cluster in `data`, which is copied for each cut.
pub struct Cluster {
    programs: PathBuf,
    scratch: servers::Scratch,
}

impl Cluster {
    /// Makes a cluster. None, with a message, where PostgreSQL is not installed.
    pub fn new(test: &str) -> Option<Self> {
        let Some(programs) = servers::postgres_programs() else {
            entresol_skip::skipped!("postgres", "{test}: the package postgresql is not installed");
            return None;
        };
        let cluster = Cluster { programs, scratch: servers::Scratch::new() };
        make_disk(&cluster.disk(), 160);
        let at = cluster.scratch.path("at");
        let _attached = Attached::new(&cluster.disk(), &at).expect("a file system");
        let data = at.join("data");
        fs::create_dir(&data).expect("a directory");
        std::os::unix::fs::chown(&data, Some(servers::NOBODY), Some(servers::NOBODY)).expect("another owner");
        let mut initdb = command(&cluster.programs.join("initdb"));
        initdb.arg("-D").arg(&data).args(["-U", "me", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"]);
        ok(initdb.args(["--data-checksums", "--wal-segsize=1"]));
        let sockets = format!("unix_socket_directories = '{}'\n", cluster.scratch.path("").display());
        fs::write(data.join("postgresql.auto.conf"), sockets + SETTINGS).expect("a configuration");
        let server = cluster.start(&data).expect("a server");
        ok(&mut server.psql(SCHEMA));
        server.stop(Signal::INT);
        output("sync", &["-f", text(&data)]);
        Some(cluster)
    }

    pub fn disk(&self) -> PathBuf {
        self.scratch.path("disk")
    }

    /// Starts a server on a directory, which recovers.
    ///
    /// # Errors
    /// The server's own output where it ends instead.
    pub fn start(&self, data: &Path) -> Result<Server<'_>, String> {
        let log = self.scratch.path("log");
        let mut postgres = command(&self.programs.join("postgres"));
        postgres.arg("-D").arg(data).stdout(Stdio::null()).stderr(File::create(&log).expect("a log"));
        let child = postgres.spawn().expect("a server");
        let mut server = Server { cluster: self, child };
        let since = Instant::now();
        while !server.psql("select 1").output().is_ok_and(|done| done.status.success()) {
            if server.child.try_wait().expect("a child").is_some() || since.elapsed() > PATIENCE {
                return Err(format!("no server: {}", fs::read_to_string(&log).unwrap_or_default()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Compares the checksums of all pages of a cluster whose server has ended in order.
    ///
    /// # Errors
    /// Pages whose checksums are wrong.
    pub fn check_pages(&self, data: &Path) -> Result<(), String> {
        let mut check = command(&self.programs.join("pg_checksums"));
        let output = check.args(["--check", "-D"]).arg(data).output().map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }
}

/// A server, killed when it is dropped.
pub struct Server<'a> {
    cluster: &'a Cluster,
    child: Child,
}

impl Server<'_> {
    fn psql(&self, statements: &str) -> Command {
        let mut psql = self.client();
        psql.args(["-t", "-A", "-c", statements]);
        psql
    }

    fn client(&self) -> Command {
        let mut psql = command(&self.cluster.programs.join("psql"));
        let connection = format!("host={} user=me dbname=postgres", self.cluster.scratch.path("").display());
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1"]).arg(connection);
        psql
    }

    /// Returns the answer to statements.
    fn ask(&self, statements: &str) -> Result<String, String> {
        let output = self.psql(statements).output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr);
        let answer = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        if output.status.success() { Ok(answer) } else { Err(format!("{statements}: {said}")) }
    }

    /// Has clients commit one transaction after the other until they fail or `is_over`; returns for each the last
    /// number whose commit was acknowledged in time. `begun` is set when each has committed one.
    pub fn run(&self, seed: u64, begun: &AtomicBool, is_over: &(dyn Fn() -> bool + Sync)) -> [u64; CLIENTS as usize] {
        let committed = [const { AtomicU64::new(0) }; CLIENTS as usize];
        std::thread::scope(|scope| {
            for (client, committed) in (0..).zip(&committed) {
                scope.spawn(move || self.commit(client, Random::new(seed + client), committed, is_over));
            }
            while !is_over() && committed.iter().any(|committed| committed.load(Ordering::SeqCst) == 0) {
                std::thread::sleep(Duration::from_millis(1));
            }
            begun.store(true, Ordering::SeqCst);
        });
        committed.map(AtomicU64::into_inner)
    }

    fn commit(&self, client: u64, mut random: Random, committed: &AtomicU64, is_over: &(dyn Fn() -> bool + Sync)) {
        let mut psql = self.client();
        psql.args(["-t", "-A"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = psql.spawn().expect("psql");
        let mut input = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for line in answers.lines().map_while(Result::ok) {
                    let number = line.strip_prefix("committed ").and_then(|number| number.parse().ok());
                    let Some(number) = number.filter(|_| !is_over()) else { break };
                    committed.store(number, Ordering::SeqCst);
                }
            });
            let mut next = 0;
            while !is_over() && child.try_wait().is_ok_and(|ended| ended.is_none()) {
                // A few statements ahead of the answers, so that the client never waits for this test.
                if next >= committed.load(Ordering::SeqCst) + 4 {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                next += 1;
                let also = also(client, &mut random);
                let row = format!(
                    "with row as (insert into rows values ({client}, {next}, repeat(md5('{next}'), 20))) \
                     update counters set n = {next} where client = {client};\nselect 'committed {next}';\n{also}"
                );
                if input.write_all(row.as_bytes()).is_err() {
                    break;
                }
            }
            let _ended = child.kill();
            let _ended = child.wait();
        });
    }

    /// Checks the rows after a crash; returns their number.
    ///
    /// # Errors
    /// Committed rows that are missing or not whole.
    pub fn verify(&self, committed: [u64; CLIENTS as usize]) -> Result<u64, String> {
        let mut found = 0;
        for (client, committed) in (0..).zip(committed) {
            let counts = self.ask(&format!(
                "select n, (select count(*) from rows where client = c.client and length(filler) = 640), \
                 (select coalesce(max(n), 0) from rows where client = c.client), copied, (select count(*) from copy{client}) \
                 from counters c where client = {client}"
            ))?;
            let numbers: Vec<u64> = counts.split('|').filter_map(|number| number.parse().ok()).collect();
            match numbers[..] {
                [told, rows, last, copied, copies]
                    if told >= committed && rows == told && last == told && copied == copies =>
                {
                    found += rows;
                }
                _ => return Err(format!("client {client}: {committed} are committed; found {counts}")),
            }
        }
        let indexes = "select bt_index_check(indexrelid, true) from pg_index where indrelid::regclass::text in ('rows', 'counters')";
        self.ask(indexes)?;
        for table in ["rows", "counters", "copy0", "copy1", "pg_class", "pg_attribute"] {
            let damage = self.ask(&format!("select * from verify_heapam('{table}')"))?;
            if !damage.is_empty() {
                return Err(format!("{table}: {damage}"));
            }
        }
        Ok(found)
    }

    /// Ends the server: in order by SIGINT, at once by SIGQUIT.
    pub fn stop(mut self, how: Signal) {
        self.end(how);
    }

    fn end(&mut self, how: Signal) {
        let _told = kill_process(Pid::from_child(&self.child), how);
        let since = Instant::now();
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if since.elapsed() > PATIENCE {
                let _ended = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        // The server ends its own processes, whose ids this test does not know.
        self.end(Signal::QUIT);
    }
}

/// Occasional statements besides the rows: a checkpoint; a table that replaces another; an index rebuilt.
fn also(client: u64, random: &mut Random) -> String {
    match random.below(24) {
        0 | 1 => "checkpoint;\n".to_owned(),
        2 => "reindex table rows;\n".to_owned(),
        3..=5 => format!(
            "begin; drop table copy{client}; create table copy{client} as select * from rows where client = {client}; \
             update counters set copied = (select count(*) from copy{client}) where client = {client}; commit;\n"
        ),
        _ => String::new(),
    }
}
