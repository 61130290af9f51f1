//! TPC-C on private servers: a whole life with a kill in it. A server that is not installed is passed over with a word.

mod common;

use common::{a_whole_life, installed, setup};
use entresol_bench::server::{MariaDbServer, PostgreSqlServer, Server};
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
