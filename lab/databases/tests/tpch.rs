//! TPC-H on private servers: all databases give the same answers, and those of the specification. A server that is not
//! installed is reported and skipped.

mod common;

use common::{are_close, installed, setup, started};
use entresol_bench::driver::{Database, Sqlite, TextRow};
use entresol_bench::server::{MariaDbServer, PostgreSqlServer, Server};
use entresol_bench::tpch::{Answer, NUMBERS, Query, load};
use std::sync::atomic::AtomicBool;

const SEED: u64 = 7;

fn loaded(database: &dyn Database, scale: f64) {
    let mut session = database.connect().expect("a session");
    load(&mut *session, scale, &AtomicBool::new(false), &|_| {}).expect("a load");
}

/// One query of each number with drawn parameters, and one as the specification has it.
fn queries() -> Vec<Query> {
    NUMBERS.into_iter().flat_map(|number| [Query::draw(SEED, number, 1), Query::validation(number)]).collect()
}

fn answers(database: &dyn Database) -> Vec<Vec<TextRow>> {
    let mut session = database.connect().expect("a session");
    queries().iter().map(|query| session.texts(&query.sql()).expect("an answer")).collect()
}

/// Rows with rounded numbers: sums of products are floating-point to SQLite, and decimals to the servers.
fn rounded(rows: &[TextRow]) -> Vec<TextRow> {
    let round = |field: &Option<String>| match field.as_deref().map(str::parse::<f64>) {
        Some(Ok(number)) => Some(format!("{number:.4}")),
        _ => field.clone(),
    };
    rows.iter().map(|row| row.iter().map(round).collect()).collect()
}

#[test]
fn all_databases_answer_alike() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let sqlite = Sqlite::new(scratch.path().join("bench.db"), 16 << 20);
    loaded(&sqlite, 0.01);
    let expected = answers(&sqlite);
    assert!(expected.iter().filter(|rows| !rows.is_empty()).count() > 10, "{expected:?}");
    let directories = [(); 2].map(|()| tempfile::tempdir().expect("a scratch directory"));
    let mariadb =
        installed(MariaDbServer::new(setup(directories[0].path()))).map(|its| Box::new(its) as Box<dyn Server>);
    let postgresql = installed(PostgreSqlServer::new(setup(directories[1].path())));
    let mut exact: Option<Vec<Answer>> = None;
    for mut server in mariadb.into_iter().chain(postgresql.map(|its| Box::new(its) as Box<dyn Server>)) {
        let database = started(&mut *server);
        loaded(&*database, 0.01);
        let found = answers(&*database);
        for ((query, found), expected) in queries().iter().zip(&found).zip(&expected) {
            let (found, expected) = (Answer::of(&rounded(found)), Answer::of(&rounded(expected)));
            assert_eq!(found, expected, "seed {SEED}, {}, {}: {}", server.name(), query.name(), query.sql());
        }
        // Servers agree to the last digit.
        let found: Vec<Answer> = found.iter().map(|rows| Answer::of(rows)).collect();
        assert_eq!(*exact.get_or_insert_with(|| found.clone()), found, "seed {SEED}, {}", server.name());
        server.stop().expect("a stop");
    }
}

#[test]
fn servers_tell_where_their_tables_lie() {
    let directories = [(); 2].map(|()| tempfile::tempdir().expect("a scratch directory"));
    let mariadb =
        installed(MariaDbServer::new(setup(directories[0].path()))).map(|its| Box::new(its) as Box<dyn Server>);
    let postgresql = installed(PostgreSqlServer::new(setup(directories[1].path())));
    let servers = mariadb.into_iter().chain(postgresql.map(|its| Box::new(its) as Box<dyn Server>));
    for (mut server, (directory, each)) in servers.zip(directories.iter().zip([1, 3])) {
        let database = started(&mut *server);
        let mut session = database.connect().expect("a session");
        session
            .batch("CREATE TABLE one(a INTEGER PRIMARY KEY, b INTEGER); CREATE INDEX one_b ON one(b)")
            .expect("a table");
        session.batch("CREATE TABLE other(a INTEGER PRIMARY KEY)").expect("a table");
        let files = session.files(&["one"]).expect("an answer");
        assert_eq!(files.len(), each, "{}: {files:?}", server.name());
        for file in &files {
            assert!(directory.path().join("data").join(file).is_file(), "{}: {file}", server.name());
        }
        drop(session);
        server.stop().expect("a stop");
    }
}

/// Rows of the answers that come with the specification: a line each after one with names, fields between bars,
/// numbers rounded.
fn official(number: u32) -> Vec<TextRow> {
    let text = tpchgen::q_and_a::answers_sf1::answer(number as i32).expect("an answer");
    let lines = text.lines().filter(|line| !line.trim().is_empty()).skip(1);
    let field = |field: &str| Some(field.trim().to_owned());
    lines.map(|line| line.split('|').map(field).collect()).collect()
}

#[test]
#[ignore = "loads a gigabyte, three minutes or so: `make test-long` runs it"]
fn answers_are_those_that_come_with_the_specification() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut with = setup(scratch.path());
    with.memory_bytes = 512 << 20;
    let Some(mut server) = installed(PostgreSqlServer::new(with)) else { return };
    let database = started(&mut server);
    loaded(&*database, 1.0);
    let mut session = database.connect().expect("a session");
    for number in NUMBERS {
        let query = Query::validation(number);
        let trimmed = |field: Option<String>| field.map(|text| text.trim().to_owned());
        let found = session.texts(&query.sql()).expect("an answer");
        let found: Vec<TextRow> = found.into_iter().map(|row| row.into_iter().map(trimmed).collect()).collect();
        let expected = official(number);
        let differ = found.iter().zip(&expected).find(|(found, expected)| !are_close(found, expected, 0.0051));
        assert_eq!((found.len(), differ), (expected.len(), None), "query {number}");
        println!("query {number}: {} rows as the specification has them", found.len());
    }
    drop(session);
    server.stop().expect("a stop");
}
