//! The loadable extension in the distribution's `sqlite3` shell, which brings a SQLite of its own.

use std::path::PathBuf;
use std::process::{Command, Output};

fn shell(commands: &str) -> Option<Output> {
    let run = Command::new("sqlite3").args(["-batch", "-bail"]).arg(":memory:").arg(commands).output();
    let run = match run {
        Ok(output) => output,
        Err(error) => {
            entresol_skip::skipped!("sqlite3", "sqlite3 does not run here ({error}); `make clients` installs it");
            return None;
        }
    };
    Some(run)
}

/// Runs a script with the extension loaded; `None` where there is no shell.
fn script(lines: &str) -> Option<Output> {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let file = scratch.path().join("script");
    // Beside the rlib that this test is linked with.
    let library: PathBuf = std::env::current_exe().expect("this test").with_file_name("libentresol_sqlite");
    assert!(library.with_extension("so").exists(), "{} was built", library.display());
    std::fs::write(&file, format!(".log stderr\n.load {}\n{lines}\n", library.display())).expect("a script");
    shell(&format!(".read {}", file.display()))
}

#[test]
fn the_shell_loads_it_and_works_through_a_cache() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let database = scratch.path().join("data.db");
    let uri =
        format!("file:{0}?vfs=entresol&cache_file={0}.cache&cache_mode=write-back&cache_size=4MiB", database.display());
    let Some(written) = script(&format!(
        ".open '{uri}'\nPRAGMA journal_mode=wal;\nCREATE TABLE t(x);\n\
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) INSERT INTO t SELECT i FROM n;\n\
         PRAGMA wal_checkpoint(truncate);\n.vfsname main"
    )) else {
        return;
    };
    let said = String::from_utf8_lossy(&written.stdout).into_owned();
    assert!(written.status.success(), "{said} {}", String::from_utf8_lossy(&written.stderr));
    assert!(said.contains("wal\n") && said.contains("entresol/unix"), "{said}");
    let alone = std::fs::metadata(&database).expect("the database").len();
    assert!(alone > 100_000 && scratch.path().join("data.db.cache").exists(), "{alone}");

    let read = script(&format!(
        ".open '{uri}'\nSELECT count(*), sum(x) FROM t;\nPRAGMA integrity_check;\nPRAGMA entresol_drain;"
    ))
    .expect("it ran before");
    let said = String::from_utf8_lossy(&read.stdout).into_owned();
    assert!(said.contains("20000|200010000\nok\ndrained"), "{said} {}", String::from_utf8_lossy(&read.stderr));
    let plain = shell(&format!(".open {}\nSELECT sum(x) FROM t", database.display()));
    assert!(plain.is_some());
    let plain = Command::new("sqlite3").arg(&database).arg("SELECT sum(x) FROM t; PRAGMA integrity_check").output();
    assert_eq!(plain.expect("it ran before").stdout, b"200010000\nok\n");
}

#[test]
fn a_database_that_was_written_without_the_vfs_is_read_as_it_is() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let database = scratch.path().join("data.db");
    let open = |mode| {
        format!(
            ".open 'file:{0}?vfs=entresol&cache_file={0}.cache&cache_mode={mode}&cache_size=4MiB'",
            database.display()
        )
    };
    let through = |mode, sql: &str| script(&format!("{}\n{sql}", open(mode)));
    let said = |of: &Output| String::from_utf8_lossy(&of.stdout).into_owned() + &String::from_utf8_lossy(&of.stderr);
    let made = "CREATE TABLE t(x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) INSERT INTO t SELECT i FROM n;";
    let Some(made) = through("write-through", &format!("{made} SELECT sum(x) FROM t;")) else { return };
    assert_eq!(made.stdout, b"12502500\n", "{}", said(&made));
    let plain = |sql: &str| Command::new("sqlite3").arg(&database).arg(sql).output().expect("it ran before");
    for round in 1..=3 {
        assert!(plain("UPDATE t SET x = x + 1").status.success());
        let read = through("write-through", "SELECT sum(x) FROM t; PRAGMA integrity_check;").expect("it ran before");
        assert_eq!(
            String::from_utf8_lossy(&read.stdout),
            format!("{}\nok\n", 12502500 + round * 5000),
            "{}",
            said(&read)
        );
    }
    // In write-back the cache has pages that the database lacks, and what was written to it does not go with them.
    let dirty = through("write-back", "UPDATE t SET x = 0;").expect("it ran before");
    assert!(dirty.status.success(), "{}", said(&dirty));
    let file = std::fs::OpenOptions::new().write(true).open(&database).expect("a database");
    file.set_modified(std::time::SystemTime::now()).expect("a time");
    let refused = through("write-back", "SELECT sum(x) FROM t;").expect("it ran before");
    assert!(
        !refused.status.success() && said(&refused).contains("was written without its cache, which has"),
        "{}",
        said(&refused)
    );
}

#[test]
fn a_second_process_is_refused_with_the_reason() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let database = scratch.path().join("data.db");
    let uri =
        format!("file:{0}?vfs=entresol&cache_file={0}.cache&cache_mode=write-back&cache_size=4MiB", database.display());
    entresol_sqlite::register(entresol_sqlite::Api::linked(), "entresol", Default::default(), false).expect("a name");
    let held = rusqlite::Connection::open(&uri).expect("a database");
    held.execute_batch("CREATE TABLE t(x)").expect("a table");
    let Some(refused) = script(&format!(".open '{uri}'\nSELECT * FROM t;")) else { return };
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("is in use by another process; a cache belongs to one") && said.contains("locked"), "{said}");
    drop(held);
    let now = script(&format!(".open '{uri}'\nSELECT count(*) FROM t;")).expect("it ran before");
    assert_eq!(now.stdout, b"0\n", "{}", String::from_utf8_lossy(&now.stderr));
}

#[test]
fn the_shared_library_asks_for_no_sqlite_of_its_own() {
    let library = std::env::current_exe().expect("this test").with_file_name("libentresol_sqlite.so");
    let bytes = std::fs::read(&library).expect("the library");
    // Names in the symbol table: the entry points are the extension's own, and no symbol of SQLite is imported.
    for (name, expected) in [("sqlite3_entresol_init\0", true), ("\0sqlite3_vfs_find\0", false)] {
        let found = bytes.windows(name.len()).any(|window| window == name.as_bytes());
        assert_eq!(found, expected, "{name:?}");
    }
}
