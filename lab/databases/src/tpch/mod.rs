//! Tables and queries of TPC-H: data, the 22 queries, their parameters, and their answers.
//!
//! After the specification's revision 3.0.1. The complex OLAP workload of 000 (section 3.6.1) consists of 3, 7, 9, 13
//! and 20; by 10 and 16 it compares caching and placing tables (section 2.7). The benchmark is not audited, and has no
//! refresh functions: results are no QphH.

mod answer;
mod load;
mod parameters;
mod queries;
mod schema;

pub use answer::Answer;
pub use load::{SCALE_MAX, SCALE_MIN, load, rows, rows_about};
pub use parameters::Parameters;
pub use queries::{NUMBERS, Query, mixed};
pub use schema::{INDEXES, TABLES};
pub(crate) use schema::{NATION, REGION};
