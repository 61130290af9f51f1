//! Databases under load: private servers, drivers, a TPC-C-like benchmark that checks its own results, and queries of
//! TPC-H and CH-benCHmark.
//!
//! A [`server`] is PostgreSQL or MariaDB as the distribution installed it, started in a scratch directory on a Unix
//! socket and removed with it. A [`Database`](driver::Database) gives blocking sessions, one for each thread, on
//! either or on SQLite. [`tpcc`] loads, runs and checks; [`drive`] has its clients and the clock. [`ch`] has
//! analytical queries beside them, and [`tpch`] a load and queries of its own. [`plain`] reads and changes single
//! rows, and scans.
//!
//! [`outside`] starts the load generators of the distribution.
//!
//! No module here depends on the cache: the caller chooses the directory of a database.

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
