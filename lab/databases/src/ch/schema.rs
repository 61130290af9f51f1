//! The tables beside those of TPC-C: TPC-H's, with names of their own.

use crate::driver::Table;
use crate::tpch::{NATION, REGION};

/// The tables, in the order in which they are loaded.
pub const TABLES: [Table; 3] = [
    REGION,
    // A nation's key is the code of the first character of its customers' states.
    NATION,
    Table {
        name: "supplier",
        columns: &[
            ("su_suppkey", "INTEGER NOT NULL"),
            ("su_name", "CHAR(25) NOT NULL"),
            ("su_address", "VARCHAR(40) NOT NULL"),
            ("su_nationkey", "INTEGER NOT NULL"),
            ("su_phone", "CHAR(15) NOT NULL"),
            ("su_acctbal", "BIGINT NOT NULL"),
            ("su_comment", "VARCHAR(101) NOT NULL"),
        ],
        key: "su_suppkey",
    },
];
