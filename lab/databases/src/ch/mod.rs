//! Analytical queries over the tables of TPC-C: CH-benCHmark, of which the clients of [`tpcc`](crate::tpcc) are the other half.
//!
//! After Cole et al. 2011, "The mixed workload CH-benCHmark": three tables more, and TPC-H's queries over that schema, without
//! parameters. What is different, for all databases shall give the same answers:
//!
//! - Times are microseconds in a `BIGINT`, and a year one of 365.2425 days, told by its first microsecond.
//! - Letters in patterns are digits, for databases differ in whether their case counts; regions are in capitals, as TPC-H has them.
//! - Dates of which every row is the younger are 2000-01-01, as what [`tpcc`](crate::tpcc) loads is of the year 2001.
//! - Queries 3, 10 and 18 give the hundred orders or customers of most revenue, not all.
//! - Amounts are whole cents, also the 200 of query 18. Query 15 has its view as a common table expression. What is the same in
//!   all alternatives of query 19 stands before them.

mod load;
mod queries;
mod schema;

pub use load::{load, rows, rows_more};
pub use queries::{QUERIES, Query, query};
pub use schema::TABLES;

/// Suppliers: an item of a warehouse is the one's of which this is the remainder of the product of both numbers.
pub const SUPPLIERS: u64 = 10_000;
