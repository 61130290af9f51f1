//! Names of a real PostgreSQL server's files: by asking it, and from the files alone. The server's own
//! `pg_relation_filepath` is the oracle.

mod support;

use entresol_names::{Found, Kind, Names};
use std::time::Duration;
use support::Postgres;

const TABLES: &str = "CREATE SCHEMA shop; CREATE TABLE shop.orders (id int PRIMARY KEY, what text); \
    CREATE INDEX by_what ON shop.orders (left(what, 40)); CREATE SEQUENCE shop.numbers; \
    CREATE MATERIALIZED VIEW shop.seen AS SELECT 1 AS one; CREATE UNLOGGED TABLE fleeting (i int); \
    INSERT INTO shop.orders SELECT i, repeat(md5(i::text), 9000) FROM generate_series(1, 50) i;";

/// The path of a relation's first file, as the server reports it.
fn path(server: &Postgres, database: &str, relation: &str) -> String {
    server.sql(database, &format!("SELECT pg_relation_filepath('{relation}')"))
}

/// Compares every name with the server's own list, database by database; returns how many there are.
fn agrees(server: &Postgres, names: &mut Names) -> usize {
    let mut compared = 0;
    for database in ["postgres", "template1", "trade"] {
        let rows = server.sql(
            database,
            "SELECT pg_relation_filepath(c.oid), CASE WHEN c.relisshared THEN '' ELSE current_database() || '.' END \
             || n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE pg_relation_filepath(c.oid) IS NOT NULL",
        );
        for row in rows.lines() {
            let (path, wanted) = row.split_once('|').expect("two columns");
            let name = names.name_of(path).unwrap_or_else(|| panic!("{path} is {wanted}"));
            assert_eq!(name.to_string(), wanted, "{path}");
            compared += 1;
        }
    }
    compared
}

#[test]
fn every_relation_has_the_name_that_the_server_gives_it() {
    let Some(mut server) = Postgres::start("") else { return };
    server.sql("postgres", "CREATE DATABASE trade");
    server.sql("trade", TABLES);
    server.sql("trade", "CHECKPOINT");

    let mut asked = Names::find(server.scratch.path("").as_path()).expect("a directory");
    let connection = server.connection("postgres").parse().expect("a connection");
    asked.ask(connection).expect("the server answers");
    let mut read = Names::find(&server.data()).expect("a directory");
    assert_eq!(
        read.troubles().map(|(place, kind, trouble)| (place, kind, trouble.is_none())).collect::<Vec<_>>(),
        [("", "PostgreSQL", true)]
    );
    let compared = agrees(&server, &mut read);
    assert!(compared > 800, "{compared} of three databases");

    let orders = path(&server, "trade", "shop.orders");
    let by_what = path(&server, "trade", "shop.by_what");
    let toast =
        server.sql("trade", "SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE relname = 'orders'");
    let fleeting = path(&server, "trade", "fleeting");
    for (names, prefix) in [(&mut asked, "data/"), (&mut read, "")] {
        let mut name = |path: &str| names.name_of(&format!("{prefix}{path}")).unwrap_or_else(|| panic!("{path}"));
        let table = name(&format!("{orders}.1"));
        assert_eq!((table.to_string().as_str(), table.kind), ("trade.shop.orders", Kind::Table));
        assert_eq!(name(&format!("{orders}_fsm")).to_string(), "trade.shop.orders (fsm)");
        assert_eq!(name(&format!("{fleeting}_init")).to_string(), "trade.public.fleeting (init)");
        let index = name(&by_what);
        assert_eq!((index.kind, index.of.as_deref()), (Kind::Index, Some("shop.orders")));
        let toast = name(&toast);
        assert_eq!((toast.kind, toast.of.as_deref()), (Kind::Toast, Some("shop.orders")));
        assert_eq!(names.known(&format!("{prefix}pg_xact/0000")), Found::Other);
        assert_eq!(names.known(&format!("{prefix}base/5/4000000000")), Found::Unknown);
    }

    // The files of a stopped server give the same names.
    server.stop();
    let mut left = Names::find(&server.data()).expect("a directory");
    assert_eq!(left.name_of(&by_what).map(|name| name.to_string()).as_deref(), Some("trade.shop.by_what"));
}

#[test]
fn names_follow_what_is_made_rewritten_and_dropped() {
    let Some(server) = Postgres::start("") else { return };
    server.sql("postgres", "CREATE DATABASE trade");
    server.sql("trade", TABLES);
    let mut asked = Names::find(&server.data()).expect("a directory");
    let connection = server.connection("postgres").parse().expect("a connection");
    asked.ask(connection).expect("the server answers");
    let mut read = Names::find(&server.data()).expect("a directory");

    let changes = [
        ("CREATE TABLE extra (i int)", "public.extra"),
        ("TRUNCATE shop.orders", "shop.orders"),
        ("VACUUM FULL shop.orders", "shop.orders"),
        ("ALTER TABLE shop.orders ALTER COLUMN id TYPE bigint", "shop.orders"),
        ("CLUSTER shop.orders USING by_what", "shop.orders"),
        ("REINDEX INDEX shop.by_what", "shop.by_what"),
        ("VACUUM FULL pg_class", "pg_catalog.pg_class"),
        ("VACUUM FULL pg_namespace", "pg_catalog.pg_namespace"),
        ("REFRESH MATERIALIZED VIEW shop.seen", "shop.seen"),
        ("ALTER TABLE extra RENAME TO other", "public.other"),
    ];
    for (change, relation) in changes {
        let seen = server.sql("trade", &format!("SELECT pg_relation_filepath(to_regclass('{relation}'))"));
        server.sql("trade", change);
        let path = path(&server, "trade", relation);
        if change.contains("RENAME") {
            // The same file under another name: only a refresh shows it.
            asked.refresh();
        } else {
            assert_ne!(path, seen, "{change}: another file");
            assert_eq!(asked.known(&path), Found::Unknown, "{change}");
        }
        let wanted = format!("trade.{relation}");
        support::eventually(change, || asked.name_of(&path).is_some_and(|name| name.to_string() == wanted));
        // The files have the name after a checkpoint.
        server.sql("trade", "CHECKPOINT");
        read.refresh();
        assert_eq!(read.name_of(&path).map(|name| name.to_string()), Some(wanted), "{change}");
    }

    let gone = path(&server, "trade", "public.other");
    server.sql("trade", "DROP TABLE other");
    server.sql("trade", "CHECKPOINT");
    for names in [&mut asked, &mut read] {
        names.refresh();
        assert_eq!(names.known(&gone), Found::Unknown, "its file is nobody's any more");
    }
    server.sql("postgres", "DROP DATABASE trade");
    server.sql("postgres", "CHECKPOINT");
    for names in [&mut asked, &mut read] {
        std::thread::sleep(Duration::from_millis(1100));
        assert_eq!(names.name_of(&gone), None);
    }
}

#[test]
fn temporary_tables_and_tablespaces_have_names() {
    let Some(server) = Postgres::start("") else { return };
    let place = server.scratch.path("apart");
    support::ok(support::command(std::path::Path::new("/bin/mkdir")).arg(&place));
    server.sql("postgres", &format!("CREATE TABLESPACE apart LOCATION '{}'", place.display()));
    server.sql("postgres", "CREATE DATABASE far TABLESPACE apart; ");
    server.sql("postgres", "CREATE TABLE moved (i int) TABLESPACE apart");
    server.sql("far", "CREATE TABLE home (i int); CREATE TABLE back (i int) TABLESPACE pg_default");
    server.sql("postgres", "CHECKPOINT");
    let mut read = Names::find(&server.data()).expect("a directory");
    let mut asked = Names::find(&server.data()).expect("a directory");
    asked.ask(server.connection("postgres").parse().expect("a connection")).expect("the server answers");
    for (database, relation) in [("postgres", "moved"), ("far", "home"), ("far", "back")] {
        let path = path(&server, database, relation);
        for names in [&mut asked, &mut read] {
            let name = names.name_of(&path).unwrap_or_else(|| panic!("{path} of {relation}"));
            assert_eq!(name.to_string(), format!("{database}.public.{relation}"), "{path}");
        }
    }
    let made = server.sql(
        "postgres",
        "BEGIN; CREATE TEMPORARY TABLE brief (i int); COMMIT; CHECKPOINT; SELECT pg_relation_filepath('brief')",
    );
    read.refresh();
    let name = read.name_of(&made).unwrap_or_else(|| panic!("{made}"));
    assert_eq!((name.object.as_str(), name.kind), ("brief", Kind::Temporary), "{made}");
}

/// The path of a relation's file below the scratch directory, where the data directory and a tablespace are.
fn path_below(server: &Postgres, database: &str, relation: &str) -> String {
    let path = format!("data/{}", path(server, database, relation));
    let whole = server.scratch.path(&path).canonicalize().expect("the file");
    let top = server.scratch.path("").canonicalize().expect("the directory");
    whole.strip_prefix(top).expect("it is below").to_str().expect("text").to_owned()
}

#[test]
fn relations_in_a_tablespace_beside_the_data_directory_have_names_by_where_their_files_are() {
    let Some(server) = Postgres::start("") else { return };
    let top = server.scratch.path("");
    // The second one sees the directory as commands do that ask a cache's process.
    let through = std::path::PathBuf::from(format!("/proc/self/root{}", top.display()));
    let mut read = [Names::find(&top).expect("a directory"), Names::find(&through).expect("a directory")];
    let mut asked = Names::find(&top).expect("a directory");
    asked.ask(server.connection("postgres").parse().expect("a connection")).expect("the server answers");

    // All were opened before there was a tablespace.
    for place in ["apart", "data/inside"] {
        let directory = server.scratch.path(place);
        support::ok(support::command(std::path::Path::new("/bin/mkdir")).arg(&directory));
        let name = place.rsplit('/').next().expect("a name");
        server.sql("postgres", &format!("CREATE TABLESPACE {name} LOCATION '{}'", directory.display()));
    }
    server.sql("postgres", "CREATE DATABASE far TABLESPACE apart");
    let changes = [
        ("postgres", "CREATE TABLE moved (i int PRIMARY KEY, t text) TABLESPACE apart", "moved", "apart/"),
        ("far", "CREATE TABLE home (i int)", "home", "apart/"),
        ("far", "VACUUM FULL pg_class", "pg_catalog.pg_class", "apart/"),
        ("postgres", "VACUUM FULL moved", "moved", "apart/"),
        ("postgres", "ALTER TABLE moved SET TABLESPACE inside", "moved", "data/inside/"),
        ("postgres", "ALTER TABLE moved SET TABLESPACE pg_default", "moved", "data/base/"),
        ("postgres", "ALTER INDEX moved_pkey SET TABLESPACE apart", "moved_pkey", "apart/"),
        ("postgres", "ALTER TABLE moved SET TABLESPACE apart", "moved", "apart/"),
    ];
    let mut seen = Vec::new();
    for (database, change, relation, place) in changes {
        server.sql(database, change);
        let path = path_below(&server, database, relation);
        assert!(path.starts_with(place), "{change}: {path}");
        assert_eq!(asked.known(&path), Found::Unknown, "{change}");
        let schema = if relation.contains('.') { "" } else { "public." };
        let wanted = format!("{database}.{schema}{relation}");
        support::eventually(change, || asked.name_of(&path).is_some_and(|name| name.to_string() == wanted));
        server.sql(database, "CHECKPOINT");
        for names in &mut read {
            names.refresh();
            let name = names.name_of(&format!("{path}_fsm")).unwrap_or_else(|| panic!("{change}: {path}"));
            assert_eq!(name.to_string(), format!("{wanted} (fsm)"), "{change}");
            assert_eq!(names.directory_of(&path), Some("data"));
        }
        seen.push(path);
    }
    assert!(!asked.is_link_to_below("data/pg_tblspc") && !asked.is_link_to_below("data/base"));
    assert_eq!(asked.known("apart/PG_1_1/5/7"), Found::Unknown, "it may be a tablespace's");
    assert_eq!(asked.known("apart/PG_15_1/5/PG_VERSION"), Found::Other);

    // The link and the directory lead to the same name.
    let link = format!("data/{}", path(&server, "postgres", "moved"));
    let moved = path_below(&server, "postgres", "moved");
    assert_ne!(link, moved);
    let folder: Vec<&str> = link.splitn(4, '/').take(3).collect();
    assert!(asked.is_link_to_below(&folder.join("/")), "{link}");
    assert_eq!(asked.name_of(&link), asked.name_of(&moved));

    server.sql("postgres", "DROP TABLE moved; CHECKPOINT");
    server.sql("postgres", "DROP TABLESPACE inside");
    server.sql("postgres", "CHECKPOINT");
    for names in read.iter_mut().chain([&mut asked]) {
        names.refresh();
        for path in &seen {
            let wanted = path == &path_below(&server, "far", "home") || path == &path_below(&server, "far", "pg_class");
            assert_eq!(names.name_of(path).is_some(), wanted, "{path}");
        }
    }
}

#[test]
fn what_cannot_be_asked_or_read_is_said_and_what_is_not_there_is_no_error() {
    let Some(server) = Postgres::start("") else { return };
    let mut names = Names::find(&server.data()).expect("a directory");
    let mut refused =
        |connection: &str| names.ask(connection.parse().expect("a connection")).expect_err(connection).to_string();
    assert!(refused("host=/nowhere").starts_with("asking host=/nowhere port=5432"));
    let nobody = server.connection("postgres").replace("user=me", "user=stranger");
    assert!(refused(&nobody).contains("role \"stranger\" does not exist"));
    let no_database = server.connection("elsewhere");
    assert!(refused(&no_database).contains("database \"elsewhere\" does not exist"));

    std::fs::write(server.data().join("PG_VERSION"), "9.6\n").expect("a file");
    let old = Names::find(&server.data()).expect("a directory");
    let (_, _, trouble) = old.troubles().next().expect("a data directory");
    let trouble = trouble.expect("an unknown version").to_string();
    assert!(trouble.contains("PostgreSQL 9.6: the catalogue's files are known of versions 12 to 18"), "{trouble}");

    let empty = tempfile::tempdir().expect("a scratch directory");
    let mut none = Names::find(empty.path()).expect("a directory");
    assert!(none.is_empty());
    assert_eq!(none.name_of("base/5/1259"), None);
    let error = none.ask("user=me".parse().expect("a connection")).expect_err("nothing to ask about").to_string();
    assert!(error.contains("no data directory of PostgreSQL"), "{error}");
}
