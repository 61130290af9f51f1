//! TPC-C on private servers: a whole run with a kill in it. A server that is not installed is reported and skipped.

mod common;

use common::{a_whole_life, installed, setup};
use entresol_bench::server::{MariaDbServer, PostgreSqlServer, Server};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

#[test]
fn postgresql_keeps_what_it_said_through_a_kill() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    if let Some(mut server) = installed(PostgreSqlServer::new(setup(scratch.path()))) {
        a_whole_life(&mut server);
    }
}

#[test]
fn mariadb_keeps_what_it_said_through_a_kill() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    if let Some(mut server) = installed(MariaDbServer::new(setup(scratch.path()))) {
        a_whole_life(&mut server);
    }
}

/// System V shared memory that the server in this directory has mapped.
fn shared_memory(data: &Path) -> Vec<PathBuf> {
    let read = |path: &Path| std::fs::read_to_string(path).expect("text");
    let pid = read(&data.join("postmaster.pid")).lines().next().expect("a number").to_owned();
    let maps = read(&Path::new("/proc").join(pid).join("maps"));
    let paths = maps.lines().filter_map(|line| line.find("/dev/shm/").map(|at| PathBuf::from(&line[at..])));
    paths.collect()
}

#[test]
fn a_postgresql_that_is_left_leaves_no_shared_memory() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let setup = setup(scratch.path());
    let data = setup.data.clone();
    let Some(mut server) = installed(PostgreSqlServer::new(setup)) else { return };
    server.create().expect("an empty directory");
    server.start(&AtomicBool::new(false)).expect("it starts");
    let shared = shared_memory(&data);
    assert!(!shared.is_empty() && shared.iter().all(|path| path.exists()), "{shared:?}");
    drop(server);
    assert!(shared.iter().all(|path| !path.exists()), "{shared:?}");
}

#[test]
fn a_server_that_does_not_start_says_why_in_its_own_words() {
    let never = AtomicBool::new(false);
    let scratch = tempfile::tempdir().expect("a scratch directory");
    if let Some(mut server) = installed(PostgreSqlServer::new(setup(scratch.path()))) {
        let error = server.start(&never).expect_err("there are no data").to_string();
        assert!(error.contains("PostgreSQL does not start") && error.contains("postgresql.conf"), "{error}");
        std::fs::write(scratch.path().join("data/in-the-way"), "x").expect("a file");
        let error = server.create().expect_err("the directory is not empty").to_string();
        assert!(error.contains("initdb failed") && error.contains("not empty"), "{error}");
    }
    let scratch = tempfile::tempdir().expect("a scratch directory");
    if let Some(mut server) = installed(MariaDbServer::new(setup(scratch.path()))) {
        let error = server.start(&never).expect_err("there are no data").to_string();
        assert!(error.contains("MariaDB does not start") && error.contains("mysql"), "{error}");
    }
}
