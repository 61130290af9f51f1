//! A TPC-C-like benchmark: tables, load, five transactions, conditions, and a ledger of committed transactions.
//!
//! After the specification's revision 5.11, with differences for which results are no tpmC in its sense. The benchmark
//! is not audited, and has no think or keying times and no terminals' screens. Every transaction draws its warehouse
//! from all, so that few clients touch the whole database. Amounts are whole cents and rates whole ten-thousandths;
//! times are microseconds in a `BIGINT`. `history` has a key, `h_id`, by which a lost payment is identified. A
//! delivery is one transaction for all ten districts, carried out at once.
//!
//! The requests of a client depend on the seed, its number and the scale alone ([`Terminal`]). The rows that the
//! requests find depend on the other clients too.

mod conditions;
mod ledger;
mod load;
pub(crate) mod random;
mod schema;
mod terminal;
mod transactions;

pub use conditions::{Condition, LOADED, broken, conditions};
pub use ledger::{Entry, Ledger};
pub use load::{load, rows};
pub use schema::{INDEXES, TABLES};
pub use terminal::{Input, Terminal};
pub use transactions::{Done, perform};

/// Districts of a warehouse.
pub const DISTRICTS: u64 = 10;

/// The five kinds of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A customer orders five to fifteen items.
    NewOrder,
    /// A customer pays.
    Payment,
    /// A customer asks for the last order.
    OrderStatus,
    /// The oldest order of each district is delivered.
    Delivery,
    /// Items of the last orders that are short are counted.
    StockLevel,
}

impl Kind {
    /// All, in the order of the specification.
    pub const ALL: [Kind; 5] = [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel];

    /// Name of the kind in the specification.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NewOrder => "New-Order",
            Kind::Payment => "Payment",
            Kind::OrderStatus => "Order-Status",
            Kind::Delivery => "Delivery",
            Kind::StockLevel => "Stock-Level",
        }
    }
}

/// Numbers of rows of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Warehouses.
    pub warehouses: u64,
    /// Items, and rows of stock of each warehouse.
    pub items: u64,
    /// Customers of each district, and orders that it begins with.
    pub customers: u64,
}

impl Scale {
    /// Scale that the specification gives for this many warehouses.
    pub fn new(warehouses: u64) -> Self {
        Self { warehouses, items: 100_000, customers: 3_000 }
    }

    /// The same with fewer items, customers and orders, for trial runs.
    pub fn shrunk(self, by: u64) -> Self {
        let by = by.max(1);
        Self { items: (self.items / by).max(100), customers: (self.customers / by).max(30), ..self }
    }

    /// Orders of each district that are not delivered when a run begins: three in ten.
    pub fn undelivered(self) -> u64 {
        self.customers * 3 / 10
    }

    /// Rows that a load makes, without the lines of orders, of which there are ten an order on average.
    pub fn rows_about(self) -> u64 {
        let district = 1 + 3 * self.customers + self.undelivered() + 10 * self.customers;
        self.items + self.warehouses * (1 + self.items + DISTRICTS * district)
    }
}
