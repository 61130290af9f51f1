//! The extension for PostgreSQL in a real server: its hints about queries, and their cost.

#[path = "../../names/tests/support/mod.rs"]
mod support;

use entresol_files::{Advised, FileId};
use entresol_hints::{HintCounts, HintSocket, Hints, Served};
use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use support::Postgres;

/// A hint received: the beginning of a query with its number and the inodes of its files, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Begin(u32, BTreeSet<u64>),
    End(u32),
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Heard>>>);

impl Notes {
    fn add(&self, told: Heard) {
        self.0.lock().expect("no panic while noting").push(told);
    }

    fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut self.0.lock().expect("no panic while noting"))
    }
}

impl Advised for Notes {
    fn query_begins(&self, query: u32, files: &[FileId]) -> usize {
        self.add(Heard::Begin(query, files.iter().map(|file| file.inode).collect()));
        files.len()
    }

    fn query_ends(&self, query: u32) {
        self.add(Heard::End(query));
    }
}

/// A server with the extension, and the receiver of its hints.
struct Listening {
    server: Postgres,
    notes: Notes,
    log: Arc<Mutex<Vec<String>>>,
    socket: Option<HintSocket>,
}

/// Builds the extension for the installed server in a directory; `None` where that cannot be done.
fn made(programs: &Path, to: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../extensions/postgresql");
    for file in ["Makefile", "entresol_hints.c"] {
        std::fs::copy(source.join(file), to.join(file)).expect("the extension's source");
    }
    let config = format!("PG_CONFIG={}", programs.join("pg_config").display());
    let made = Command::new("make").arg("-C").arg(to).args([&config, "COPT=-Werror"]).output();
    let Some(made) = made.ok().filter(|_| Path::new("/usr/include/postgresql").is_dir()) else {
        entresol_skip::skipped!("pg_config", "make or the package postgresql-server-dev is not installed");
        return None;
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(to.join("entresol_hints.so"))
}

impl Listening {
    fn start() -> Option<Self> {
        let mut server = Postgres::start("")?;
        let library = made(&server.programs, &server.scratch.path(""))?;
        server.stop();
        let settings = format!(
            "shared_preload_libraries = '{}'\nentresol.hint_socket = '{}'\n",
            library.display(),
            server.scratch.path("hints").display()
        );
        server.restart(&settings);
        let mut told = Listening { server, notes: Notes::default(), log: Arc::default(), socket: None };
        told.listen();
        Some(told)
    }

    fn listen(&mut self) {
        let root = self.server.scratch.path("");
        let root = root.canonicalize().expect("it is there");
        let path = root.join("hints");
        let log = self.log.clone();
        let note = move |line: &str| log.lock().expect("no panic while noting").push(line.to_owned());
        let hints = Hints::new(Served::new(root.clone(), root), Box::new(self.notes.clone()), Box::new(note));
        self.socket = Some(HintSocket::open(&path, Arc::new(hints)).expect("a socket"));
        // The socket is open to its owner alone. Where root runs the test, the server runs as another user.
        let owner = std::fs::metadata(self.server.data()).expect("the data directory").uid();
        chown(&path, Some(owner), None).expect("its owner");
        assert_eq!(std::fs::metadata(&path).expect("the socket").mode() & 0o777, 0o600);
    }

    fn counts(&self) -> HintCounts {
        self.socket.as_ref().expect("it is heard").hints().counts()
    }

    /// Inodes of the first files of relations.
    fn files(&self, relations: &[&str]) -> BTreeSet<u64> {
        let inode = |relation: &&str| {
            let path = self.server.sql("postgres", &format!("SELECT pg_relation_filepath('{relation}')"));
            std::fs::metadata(self.server.data().join(path)).expect("a relation's file").ino()
        };
        relations.iter().map(inode).collect()
    }

    /// Runs a statement of `queries` queries and checks that each begins and ends. Returns the set of files of each
    /// query.
    fn told(&self, statement: &str, queries: usize) -> Vec<BTreeSet<u64>> {
        self.settled();
        self.notes.take();
        self.server.sql("postgres", statement);
        self.settled();
        let told = self.notes.take();
        let begun = told.iter().filter_map(|told| match told {
            Heard::Begin(query, files) => Some((*query, files.clone())),
            Heard::End(_) => None,
        });
        let begun: Vec<_> = begun.collect();
        for (query, _) in &begun {
            let at = |wanted: &dyn Fn(&Heard) -> bool| told.iter().position(wanted);
            let begin = at(&|told| matches!(told, Heard::Begin(number, _) if number == query));
            let end = at(&|told| *told == Heard::End(*query));
            assert!(begin < end, "{statement}: query {query} ends after it begins: {told:?}");
        }
        assert_eq!((begun.len(), told.len()), (queries, 2 * queries), "{statement}: {told:?}");
        begun.into_iter().map(|(_, files)| files).collect()
    }

    /// Waits until all datagrams sent so far have been received: a message of the test's own comes after them.
    fn settled(&self) {
        let before = self.counts().ends_unknown;
        let socket = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
        let path = self.server.scratch.path("hints");
        socket.send_to(b"entresol-hint 1\nend 0 0\n", path).expect("somebody hears");
        support::eventually("it is heard", || self.counts().ends_unknown > before);
    }
}

#[test]
fn a_server_tells_what_its_queries_use_and_that_they_ended() {
    let Some(mut told) = Listening::start() else { return };
    told.server.sql(
        "postgres",
        "CREATE TABLE a (id int PRIMARY KEY, x int); INSERT INTO a SELECT i, i % 10 FROM generate_series(1, 20000) i; \
         CREATE TABLE b (id int, a_id int); INSERT INTO b SELECT i, i FROM generate_series(1, 5000) i; \
         CREATE INDEX b_a ON b (a_id); CREATE VIEW v AS SELECT * FROM b; ANALYZE a, b; \
         CREATE FUNCTION inner_count() RETURNS bigint LANGUAGE plpgsql AS \
         'BEGIN RETURN (SELECT count(*) FROM b); END'; \
         CREATE FUNCTION careful() RETURNS int LANGUAGE plpgsql AS \
         'BEGIN PERFORM 1 / (x - x) FROM a; RETURN 1; EXCEPTION WHEN division_by_zero THEN RETURN 0; END'; \
         CREATE TABLE p (i int) PARTITION BY RANGE (i); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
    );
    let cases: [(&str, &[&[&str]]); 12] = [
        ("SELECT count(*) FROM a", &[&["a"]]),
        ("SELECT x FROM a WHERE id = 7", &[&["a", "a_pkey"]]),
        ("SET enable_seqscan = off; SET enable_indexscan = off; SELECT * FROM b WHERE a_id = 3", &[&["b", "b_a"]]),
        (
            "SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM a JOIN v ON a.id = v.a_id WHERE a.x = 3",
            &[&["a", "b"]],
        ),
        ("UPDATE a SET x = x WHERE id = 5", &[&["a", "a_pkey"]]),
        ("INSERT INTO b VALUES (1, 1)", &[&["b"]]),
        ("INSERT INTO p VALUES (1); SELECT count(*) FROM p", &[&["p1"]]),
        // The outer query has no relation of its own.
        ("SELECT inner_count()", &[&["b"]]),
        ("SELECT inner_count() FROM a WHERE id = 1", &[&["a", "a_pkey"], &["b"]]),
        ("SELECT careful()", &[&["a"]]),
        ("SELECT 1; EXPLAIN SELECT * FROM a; ANALYZE b", &[]),
        ("SET entresol.hint_min_cost = 1000; SELECT count(*) FROM b; SET entresol.hint_min_cost = 0", &[]),
    ];
    for (statement, wanted) in cases {
        let wanted: Vec<_> = wanted.iter().map(|relations| told.files(relations)).collect();
        assert_eq!(told.told(statement, wanted.len()), wanted, "{statement}");
    }
    let failing = "DO $$ BEGIN PERFORM 1 / (x - x) FROM a; EXCEPTION WHEN OTHERS THEN NULL; END $$";
    assert_eq!(told.told(failing, 1), [told.files(&["a"])], "an error ends it too");
    let counts = told.counts();
    assert_eq!((counts.malformed, counts.elsewhere, counts.truncated, counts.forgotten), (0, 0, 0, 0), "{counts:?}");
    assert_eq!((counts.begins, counts.files_unknown), (counts.ends, 0), "{counts:?}");
    assert_eq!(*told.log.lock().expect("the log"), [""; 0]);

    // The server does not wait for a receiver that is gone; the receiver may come back.
    told.socket = None;
    assert!(!told.server.scratch.path("hints").exists());
    assert_eq!(told.server.sql("postgres", "SELECT count(*) FROM a"), "20000");
    told.listen();
    assert_eq!(told.told("SELECT count(*) FROM a", 1), [told.files(&["a"])]);
}

/// `cargo test --release -p entresol-hints --test hints_postgres -- --ignored --nocapture` prints the table of docs/hints.md.
#[test]
#[ignore = "a measurement of a minute, which asserts nothing about speed: `make test-long` runs it"]
fn what_telling_costs_a_query() {
    const QUERIES: usize = 200_000;
    let Some(mut told) = Listening::start() else { return };
    told.server.sql(
        "postgres",
        "CREATE TABLE a (id int PRIMARY KEY, x int); INSERT INTO a SELECT i, i FROM generate_series(1, 1000) i",
    );
    let hints = told.server.scratch.path("hints").display().to_string();
    let measured = |socket: &str| -> f64 {
        let text = format!(
            "SET entresol.hint_socket = '{socket}'; SELECT pg_backend_pid(); \
             DO $$ BEGIN FOR i IN 1..{QUERIES} LOOP PERFORM x FROM a WHERE id = i % 1000; END LOOP; END $$; \
             SELECT pg_read_file('/proc/self/stat')"
        );
        let said = told.server.sql("postgres", &text);
        let stat = said.lines().last().expect("a line");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().expect("a number") + fields[12].parse::<f64>().expect("a number");
        ticks / 100.0 / QUERIES as f64 * 1e6
    };
    let mut rounds: [Vec<f64>; 3] = Default::default();
    for _ in 0..5 {
        rounds[0].push(measured(""));
        rounds[1].push(measured("/nowhere/at/all"));
        rounds[2].push(measured(&hints));
    }
    for (what, mut figures) in ["no socket set", "nobody hears", "heard"].into_iter().zip(rounds) {
        figures.sort_by(f64::total_cmp);
        println!("{what}: {:.2} us of processor time a query (median of five: {figures:.2?})", figures[2]);
    }
    told.socket = None;
}
