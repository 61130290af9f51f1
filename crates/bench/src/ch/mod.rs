//! Analytical queries over the tables of TPC-C: CH-benCHmark, of which the clients of [`tpcc`](crate::tpcc) are the other half.
//!
//! After Cole et al. 2011, "The mixed workload CH-benCHmark": three tables more, and TPC-H's queries over that schema, without
//! parameters. Of its 22 the counterparts of the queries that [`tpch`](crate::tpch) has, but for 10, and four that read
//! `order_line` and `orders` alone: 1, 3, 4, 6, 7, 9, 13, 16 and 20. What is different, for all databases shall give the same answers:
//!
//! - Times are microseconds in a `BIGINT`, and a year one of 365.2425 days, told by its first microsecond.
//! - Patterns of two letters are two digits, for databases differ in whether the case of letters counts.
//! - Dates of which every row is the younger are 2000-01-01, as what [`tpcc`](crate::tpcc) loads is of the year 2001.
//! - Query 3 gives the hundred orders of most revenue, not all.

mod load;
mod queries;
mod schema;

pub use load::{load, rows, rows_more};
pub use queries::{NUMBERS, QUERIES, Query, query};
pub use schema::TABLES;

/// Suppliers: an item of a warehouse is the one's of which this is the remainder of the product of both numbers.
pub const SUPPLIERS: u64 = 10_000;
