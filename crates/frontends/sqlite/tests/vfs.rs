//! The VFS as a program sees it: SQLite over it behaves as over the file system.

mod support;

use rusqlite::{Connection, Error, OpenFlags, ffi};
use support::{Scratch, fingerprint, integrity, open, random_sql};

/// Parameters of caches smaller and larger than the databases below, with pages smaller than, as large as and larger
/// than the database's.
const CACHES: [&str; 7] = [
    "cache_policy=lru&cache_size=640KiB",
    "cache_policy=face-gsc&cache_size=640KiB&cache_dram=64KiB",
    "cache_policy=arc&cache_size=2MiB&cache_page=8192",
    "cache_policy=h-arc&cache_size=4MiB&cache_page=1024",
    "cache_policy=lc&cache_size=640KiB&cache_dram=128KiB&cache_mode=write-through",
    "cache_policy=lru&cache_size=640KiB&cache_mode=write-around",
    "cache_policy=reuse&cache_size=640KiB&cache_dram=64KiB&cache_mode=write-back",
];

#[test]
fn random_sql_gives_what_the_unix_vfs_gives() {
    for (seed, parameters) in CACHES.iter().enumerate() {
        for journal in ["wal", "delete", "truncate"] {
            println!("seed {seed}, {parameters}, {journal}");
            let scratch = Scratch::new();
            let plain = Connection::open(scratch.path("plain.db")).expect("a database");
            let cached = open(&scratch, "cached.db", parameters);
            let mut answers = Vec::new();
            for connection in [&plain, &cached] {
                answers.push(random_sql(connection, journal, seed as u64, 250));
            }
            let differs = answers[0].iter().zip(&answers[1]).find(|(one, other)| one != other);
            assert_eq!(differs, None, "(plain, cached)");
            assert_eq!(fingerprint(&plain), fingerprint(&cached));
            assert_eq!(integrity(&cached), "ok");
            // Read again through the cache in another run, and from the drained file alone.
            drop(cached);
            let cached = open(&scratch, "cached.db", parameters);
            assert_eq!((fingerprint(&cached), integrity(&cached)), (fingerprint(&plain), "ok".to_owned()));
            let drained: String = cached.query_row("PRAGMA entresol_drain", [], |row| row.get(0)).expect("a drain");
            assert!(drained.starts_with("drained"), "{drained}");
            drop(cached);
            let alone = Connection::open(scratch.path("cached.db")).expect("a database");
            assert_eq!((fingerprint(&alone), integrity(&alone)), (fingerprint(&plain), "ok".to_owned()));
        }
    }
}

#[test]
fn a_database_larger_than_its_cache_is_read_and_written_through_it() {
    let scratch = Scratch::new();
    let connection = open(&scratch, "data.db", "cache_policy=arc&cache_size=640KiB");
    let fill = "PRAGMA journal_mode=wal; PRAGMA cache_size=10; CREATE TABLE t(k INTEGER PRIMARY KEY, v BLOB);
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
                INSERT INTO t SELECT i, randomblob(700) FROM n; PRAGMA wal_checkpoint(truncate)";
    connection.execute_batch(fill).expect("a table");
    let sum = |connection: &Connection| -> (i64, i64) {
        let sql = "SELECT count(*), sum(length(v)) FROM t";
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).expect("a sum")
    };
    assert_eq!(sum(&connection), (5000, 3_500_000));
    let stats: String = connection.query_row("PRAGMA entresol_stats", [], |row| row.get(0)).expect("counts");
    let count = |name: &str| -> u64 {
        let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} is not in {stats}"))
    };
    assert!(count("write_backs") + count("bypasses") > 500, "most pages went below: {stats}");
    assert!(count("fetches") > 500, "and were read from there: {stats}");
    assert_eq!(integrity(&connection), "ok");
}

#[test]
fn attached_databases_have_caches_of_their_own_or_none() {
    let scratch = Scratch::new();
    let main = open(&scratch, "main.db", "cache_size=1MiB");
    let uri = scratch.uri("other.db", "cache_size=1MiB");
    main.execute("ATTACH ?1 AS other", [&uri]).expect("a database with a cache");
    main.execute("ATTACH ?1 AS bare", [scratch.path("bare.db").to_str()]).expect("a database without");
    main.execute_batch(
        "CREATE TABLE main.t(x); CREATE TABLE other.t(x); CREATE TABLE bare.t(x);
         BEGIN; INSERT INTO main.t VALUES(1); INSERT INTO other.t VALUES(2); INSERT INTO bare.t VALUES(3); COMMIT;
         BEGIN; DELETE FROM main.t; DELETE FROM other.t; DELETE FROM bare.t; ROLLBACK",
    )
    .expect("a transaction over three databases");
    let sum: i64 = main
        .query_row(
            "SELECT (SELECT x FROM main.t) * 100 + (SELECT x FROM other.t) * 10 + (SELECT x FROM bare.t)",
            [],
            |row| row.get(0),
        )
        .expect("a sum");
    assert_eq!(sum, 123);
    let names = scratch.names();
    assert!(names.contains(&"main.db.cache".to_owned()) && names.contains(&"other.db.cache".to_owned()), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("bare.db.")), "{names:?}");
}

#[test]
fn connections_of_one_process_share_a_cache() {
    let scratch = Scratch::new();
    let writer = open(&scratch, "data.db", "cache_size=1MiB");
    writer.execute_batch("PRAGMA journal_mode=wal; CREATE TABLE t(x)").expect("a table");
    // The second connection need not repeat the cache's parameters.
    let flags = OpenFlags::default();
    let bare = scratch.path("data.db");
    let reader = Connection::open_with_flags_and_vfs(&bare, flags, "entresol").expect("a second connection");
    let writer = std::thread::scope(|scope| {
        let writing = scope.spawn(move || {
            for i in 0..300 {
                writer.execute("INSERT INTO t VALUES(?1)", [i]).expect("an insert");
            }
            writer
        });
        let mut seen = 0;
        while seen < 300 {
            let now: i64 = reader.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("a count");
            assert!(now >= seen, "{now} rows after {seen}");
            seen = now;
        }
        writing.join().expect("no panic")
    });
    let read = |connection: &Connection| -> String {
        connection.query_row("PRAGMA entresol_stats", [], |row| row.get(0)).expect("counts")
    };
    assert_eq!(read(&writer), read(&reader), "there is one cache");
    drop(writer);
    assert_eq!(integrity(&reader), "ok");
    let other = scratch.uri("data.db", "cache_policy=fifo");
    let refused = Connection::open_with_flags(&other, flags).expect_err("it runs another policy");
    assert!(refused.to_string().contains("unable to open"), "{refused}");
}

#[test]
fn what_makes_no_sense_is_refused_and_the_log_says_why() {
    let scratch = Scratch::new();
    let expected = [
        ("cache_policy=lru&cache_size=1p", "cache_size: '1p' is no number of bytes"),
        ("cache_policy=none", "there is no policy 'none'"),
        ("cache_mode=fast", "'fast' is none of write-back"),
        ("cache_pages=7", "cache_pages: there is no such parameter"),
        ("cache_size=4096", "fewer than 8 segments"),
    ];
    for (parameters, why) in expected {
        let refused = Connection::open(scratch.uri("data.db", parameters)).map(|_| ());
        let code = refused.as_ref().err().and_then(Error::sqlite_error_code);
        assert_eq!(code, Some(rusqlite::ErrorCode::CannotOpen), "{parameters}");
        let said = support::logged();
        assert!(said.iter().any(|line| line.contains(why)), "{parameters}: {said:?}");
        assert!(!scratch.names().contains(&"data.db.cache".to_owned()), "a cache that cannot be is not begun");
    }
    let uri = format!("file:{}?vfs=entresol&cache_policy=lru", scratch.path("data.db").display());
    assert!(Connection::open(&uri).is_err(), "a policy without a cache");
    scratch.file("else", b"something else");
    let uri = format!(
        "file:{}?vfs=entresol&cache_file={}",
        scratch.path("data.db").display(),
        scratch.path("else").display()
    );
    assert!(Connection::open(&uri).is_err(), "a file that is no cache");
    assert_eq!(scratch.bytes("else"), b"something else");
}

#[test]
fn the_cache_of_another_database_is_refused() {
    let scratch = Scratch::new();
    drop(support::with_table(&scratch, "data.db"));
    std::fs::remove_file(scratch.path("data.db")).expect("the database");
    // Keeps its inode from being used again.
    scratch.file("taken", b"");
    assert!(Connection::open(scratch.uri("data.db", "")).is_err());
    let said = support::logged();
    assert!(said.iter().any(|line| line.contains("another backing store")), "{said:?}");
}

#[test]
fn an_older_copy_of_its_cache_is_refused_and_a_second_one_while_the_first_has_pages() {
    let scratch = Scratch::new();
    drop(support::with_table(&scratch, "data.db"));
    let cache = scratch.path("data.db.cache");
    let old = std::fs::read(&cache).expect("a cache");
    let connection = open(&scratch, "data.db", "");
    connection.execute("INSERT INTO t VALUES(7)", []).expect("an insert");
    drop(connection);
    let newest = std::fs::read(&cache).expect("a cache");
    std::fs::write(&cache, old).expect("a write");
    assert!(Connection::open(scratch.uri("data.db", "")).is_err());
    let said = support::logged();
    assert!(said.iter().any(|line| line.contains("this cache is an older copy")), "{said:?}");
    // A missing cache is made, unless another cache alone holds bytes of the database.
    std::fs::remove_file(&cache).expect("a cache");
    assert!(Connection::open(scratch.uri("data.db", "")).is_err());
    let said = support::logged();
    assert!(said.iter().any(|line| line.contains("another cache has what the database has not")), "{said:?}");
    assert!(!cache.exists(), "nothing is left of what was not made");
    std::fs::write(&cache, newest).expect("a write");
    let connection = open(&scratch, "data.db", "");
    let count: i64 = connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("a count");
    assert_eq!(count, 101);
    connection.query_row("PRAGMA entresol_drain", [], |_| Ok(())).expect("a drain");
    drop(connection);
    std::fs::remove_file(&cache).expect("a cache");
    drop(open(&scratch, "data.db", ""));
}

#[test]
fn a_database_opened_for_reading_is_read_through_the_cache() {
    let scratch = Scratch::new();
    drop(support::with_table(&scratch, "data.db"));
    let uri = scratch.uri("data.db", "cache_mode=read-only");
    let connection = Connection::open(&uri).expect("a database");
    let count: i64 = connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("a count");
    assert_eq!(count, 100);
    let refused = connection.execute("INSERT INTO t VALUES(1)", []).expect_err("nothing may be written");
    assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::ReadOnly));
}

#[test]
fn the_mode_can_be_changed_while_it_runs() {
    let scratch = Scratch::new();
    let connection = support::with_table(&scratch, "data.db");
    let mode = |sql: &str| -> String { connection.query_row(sql, [], |row| row.get(0)).expect("a mode") };
    assert_eq!(mode("PRAGMA entresol_mode"), "write-back");
    assert_eq!(mode("PRAGMA entresol_mode='write-through'"), "write-through");
    connection.execute("INSERT INTO t VALUES(7)", []).expect("an insert");
    assert!(connection.query_row("PRAGMA entresol_mode=fast", [], |_| Ok(())).is_err());
    drop(connection);
    let alone = Connection::open(scratch.path("data.db")).expect("a database");
    let count: i64 = alone.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("a count");
    assert_eq!((count, integrity(&alone)), (101, "ok".to_owned()));
}

#[test]
fn it_promises_no_more_than_it_holds() {
    let scratch = Scratch::new();
    let connection = support::with_table(&scratch, "data.db");
    let mapped: Result<i64, Error> = connection.query_row("PRAGMA mmap_size=1000000", [], |row| row.get(0));
    assert_eq!(mapped, Err(Error::QueryReturnedNoRows), "there is no map to be had");
    let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
    // SAFETY: the connection is open, and this operation fills in a pointer to its file.
    let characteristics = unsafe {
        let argument = (&raw mut file).cast();
        ffi::sqlite3_file_control(connection.handle(), c"main".as_ptr(), ffi::SQLITE_FCNTL_FILE_POINTER, argument);
        ((*(*file).pMethods).xDeviceCharacteristics.expect("a method"))(file)
    };
    assert_eq!(characteristics, ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE, "as the file system's, and nothing beyond");
}

#[test]
fn a_cache_file_is_its_owners_alone_from_its_next_open_on() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let cache = scratch.path("shared-once.db.cache");
    let mode = || std::fs::metadata(&cache).expect("a cache").permissions().mode() & 0o777;
    let open = || open(&scratch, "shared-once.db", "cache_size=1MiB");
    open().execute_batch("create table t(k)").expect("a table");
    assert_eq!(mode(), 0o600, "a new one");
    std::fs::set_permissions(&cache, PermissionsExt::from_mode(0o644)).expect("a mode");
    let connections = [open(), open()];
    connections.iter().for_each(|connection| connection.execute_batch("select k from t").expect("a table"));
    assert_eq!(mode(), 0o600, "one of an earlier release");
    let said = support::logged().iter().filter(|line| line.contains("shared-once.db") && line.contains("0644")).count();
    assert_eq!(said, 1, "{:?}", support::logged());
}
