//! Analytical queries over the tables of TPC-C: CH-benCHmark, of which [`tpcc`](crate::tpcc) has the clients.
//!
//! After Cole et al. 2011, "The mixed workload CH-benCHmark": three more tables, and TPC-H's queries over that schema,
//! without parameters. The differences, needed so that all databases give the same answers:
//!
//! - Times are microseconds in a `BIGINT`; a year has 365.2425 days and is identified by its first microsecond.
//! - Letters in patterns are digits, because databases differ in case sensitivity; regions are in capitals, as TPC-H
//!   has them.
//! - Lower bounds of dates that every row meets are 2000-01-01, because [`tpcc`](crate::tpcc) loads rows of the year
//!   2001.
//! - Queries 3, 10 and 18 give the hundred orders or customers of most revenue, not all.
//! - Amounts are whole cents, also the 200 of query 18. Query 15 has its view as a common table expression. Conditions
//!   that all alternatives of query 19 share stand before them.

mod load;
mod queries;
mod schema;

pub use load::{load, rows, rows_more};
pub use queries::{QUERIES, Query, query};
pub use schema::TABLES;

/// Suppliers. The supplier of an item of a warehouse is the remainder of the product of both numbers.
pub const SUPPLIERS: u64 = 10_000;
