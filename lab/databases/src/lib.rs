//! Databases under load: private servers, drivers, a TPC-C-like benchmark that checks what it did, and queries of TPC-H and
//! CH-benCHmark.
//!
//! A [`server`] is PostgreSQL or MariaDB as the distribution installed it, started in a scratch directory on a Unix socket
//! and removed with it. A [`Database`](driver::Database) gives blocking sessions, one for each thread, on either or on SQLite. [`tpcc`] loads,
//! runs and checks; [`drive`] is its clients and the clock. [`ch`] is what can be asked beside them, [`tpch`] loads and asks. [`plain`]
//! reads and changes single rows, and scans.
//!
//! [`outside`] starts the load generators that the distribution has.
//!
//! Nothing here knows of caches: whoever calls says in which directory a database lies.

pub mod ch;
pub mod drive;
pub mod driver;
mod error;
mod load;
pub mod outside;
pub mod plain;
pub mod server;
pub mod tpcc;
pub mod tpch;

pub use error::{BenchError, DriverError, Failure};
