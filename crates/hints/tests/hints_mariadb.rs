//! Following the audit plugin's log of a real MariaDB server.

#[path = "../../names/tests/support/mod.rs"]
mod support;

use entresol_files::{Advised, FileId};
use entresol_hints::{AuditLog, Hints, Served};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::MariaDb;

/// A query, and its files at its beginning; `None` at its end.
type Heard = (u32, Option<BTreeSet<u64>>);

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Heard>>>);

impl Advised for Notes {
    fn query_begins(&self, query: u32, files: &[FileId]) -> usize {
        let files: BTreeSet<u64> = files.iter().map(|file| file.inode).collect();
        let count = files.len();
        self.0.lock().expect("no panic while noting").push((query, Some(files)));
        count
    }

    fn query_ends(&self, query: u32) {
        self.0.lock().expect("no panic while noting").push((query, None));
    }
}

const PLUGIN: &str = "/usr/lib/mysql/plugin/server_audit.so";

#[test]
fn the_tables_of_a_statement_are_told_and_its_end() {
    if !Path::new(PLUGIN).is_file() {
        entresol_skip::skipped!("mariadbd", "the package mariadb-server with its plugin server_audit is not installed");
        return;
    }
    let settings = "plugin_load_add=server_audit\nserver_audit_events=TABLE,QUERY_DML\nserver_audit_logging=ON\n\
        server_audit_file_path=audit.log\n";
    let Some(server) = MariaDb::start(settings) else { return };
    server.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE orders (id INT PRIMARY KEY) ENGINE=InnoDB; \
         CREATE TABLE `odd name` (id INT) ENGINE=InnoDB; INSERT INTO orders VALUES (1), (2); \
         CREATE TABLE yearly (id INT, year INT) ENGINE=InnoDB PARTITION BY RANGE (year) \
         (PARTITION a VALUES LESS THAN (2024), PARTITION b VALUES LESS THAN (2025))",
    );
    let root = server.scratch.path("").canonicalize().expect("it is there");
    let notes = Notes::default();
    let log = Arc::new(Mutex::new(Vec::new()));
    let noted = log.clone();
    let note = move |line: &str| noted.lock().expect("no panic while noting").push(line.to_owned());
    let hints = Hints::new(Served::new(root.clone(), root), Box::new(notes.clone()), Box::new(note));
    let mut audit = AuditLog::follow(&server.data().join("audit.log")).expect("a log");
    let inode = |file: &str| std::fs::metadata(server.data().join(file)).expect("a table's file").ino();
    let (orders, odd) = (inode("shop/orders.ibd"), inode("shop/odd@0020name.ibd"));
    let parts = [inode("shop/yearly#P#a.ibd"), inode("shop/yearly#P#b.ibd")];
    let cases: [(&str, &[u64]); 4] = [
        ("SELECT count(*) FROM shop.orders", &[orders]),
        ("SELECT * FROM shop.orders, shop.`odd name`", &[orders, odd]),
        ("INSERT INTO shop.orders VALUES (3)", &[orders]),
        ("SELECT * FROM shop.yearly WHERE year = 2023", &parts),
    ];
    for (statement, wanted) in cases {
        audit.poll(|event| hints.audit("data", event)).expect("the log is read");
        notes.0.lock().expect("notes").clear();
        server.sql(statement);
        support::eventually(statement, || {
            audit.poll(|event| hints.audit("data", event)).expect("the log is read");
            let told = notes.0.lock().expect("notes");
            told.last().is_some_and(|(_, files)| files.is_none())
        });
        let told = std::mem::take(&mut *notes.0.lock().expect("notes"));
        let mut begun: Vec<_> = told.iter().filter_map(|(query, files)| Some((query, files.as_ref()?))).collect();
        // The server keeps statistics of its own in tables, which its plans read first.
        begun.retain(|(_, files)| files.iter().any(|file| [orders, odd].contains(file) || parts.contains(file)));
        let &[(query, files)] = &begun[..] else { panic!("{statement}: {told:?}") };
        assert!(wanted.iter().all(|file| files.contains(file)), "{statement}: {told:?}");
        let others = [orders, odd, parts[0], parts[1]].into_iter().filter(|file| !wanted.contains(file));
        assert!(others.into_iter().all(|file| !files.contains(&file)), "{statement}: {told:?}");
        assert!(told.contains(&(*query, None)), "{statement}: it ends: {told:?}");
    }
    let counts = hints.counts();
    assert_eq!((counts.malformed, counts.elsewhere), (0, 0), "{counts:?}: {:?}", log.lock().expect("the log"));
}
