//! Ledger of acknowledged commits, and a check that the database has them.

use crate::DriverError;
use crate::driver::{Session, Value};
use std::collections::HashMap;

/// Record of a committed transaction's lasting effect on the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An order.
    Order {
        /// Warehouse.
        warehouse: i64,
        /// District.
        district: i64,
        /// Number of the order.
        order: i64,
        /// Customer.
        customer: i64,
        /// Number of lines.
        lines: i64,
    },
    /// A payment.
    Payment {
        /// Key of the payment's row of history.
        id: i64,
        /// Cents.
        amount: i64,
    },
    /// A delivery.
    Delivery {
        /// Warehouse.
        warehouse: i64,
        /// Carrier.
        carrier: i64,
        /// District and number of each order.
        orders: Vec<(i64, i64)>,
    },
}

/// Commits that were acknowledged to clients, and those in doubt.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Entries whose commit the database acknowledged.
    pub committed: Vec<Entry>,
    /// Entries that are committed or not: the answer to the commit was lost.
    pub in_doubt: Vec<Entry>,
}

type OrderKey = (i64, i64, i64);

impl Ledger {
    /// Adds the entries of another ledger.
    pub fn append(&mut self, mut other: Ledger) {
        self.committed.append(&mut other.committed);
        self.in_doubt.append(&mut other.in_doubt);
    }

    /// Faults: commits that are lost or altered, and rows that belong to no acknowledged or doubtful commit.
    /// `first_order` is the number of the first order of a district that was not loaded.
    ///
    /// # Errors
    /// The database's error.
    pub fn faults(&self, session: &mut dyn Session, first_order: i64) -> Result<Vec<String>, DriverError> {
        let mut faults = Vec::new();
        self.check_orders(session, first_order, &mut faults)?;
        self.check_payments(session, &mut faults)?;
        Ok(faults)
    }

    fn check_orders(&self, session: &mut dyn Session, first: i64, faults: &mut Vec<String>) -> Result<(), DriverError> {
        let sql = "SELECT o_w_id, o_d_id, o_id, o_c_id, o_ol_cnt FROM orders WHERE o_id >= $1";
        let mut found: HashMap<OrderKey, (i64, i64)> = HashMap::new();
        for row in session.query(sql, &[Value::Int(first)])? {
            found.insert((row[0].int()?, row[1].int()?, row[2].int()?), (row[3].int()?, row[4].int()?));
        }
        let sql = "SELECT o_w_id, o_d_id, o_id, o_carrier_id FROM orders WHERE o_carrier_id IS NOT NULL";
        let mut carriers: HashMap<OrderKey, i64> = HashMap::new();
        if self.committed.iter().any(|entry| matches!(entry, Entry::Delivery { .. })) {
            for row in session.query(sql, &[])? {
                carriers.insert((row[0].int()?, row[1].int()?, row[2].int()?), row[3].int()?);
            }
        }
        for entry in &self.committed {
            match entry {
                Entry::Order { warehouse, district, order, customer, lines } => {
                    match found.remove(&(*warehouse, *district, *order)) {
                        Some(there) if there == (*customer, *lines) => {}
                        Some(there) => faults.push(format!("{entry:?} is committed, and there is {there:?}")),
                        None => faults.push(format!("lost: {entry:?}")),
                    }
                }
                Entry::Delivery { warehouse, carrier, orders } => {
                    let kept = |(district, order): &(i64, i64)| {
                        carriers.get(&(*warehouse, *district, *order)) == Some(carrier)
                    };
                    if !orders.iter().all(kept) {
                        faults.push(format!("lost: {entry:?}"));
                    }
                }
                Entry::Payment { .. } => {}
            }
        }
        for entry in &self.in_doubt {
            if let Entry::Order { warehouse, district, order, customer, lines } = entry
                && found.get(&(*warehouse, *district, *order)) == Some(&(*customer, *lines))
            {
                found.remove(&(*warehouse, *district, *order));
            }
        }
        faults.extend(found.keys().map(|key| format!("order {key:?} is there, and nobody was told")));
        Ok(())
    }

    fn check_payments(&self, session: &mut dyn Session, faults: &mut Vec<String>) -> Result<(), DriverError> {
        // Loaded rows have smaller keys.
        let rows = session.query("SELECT h_id, h_amount FROM history WHERE h_id >= $1", &[Value::Int(1 << 32)])?;
        let mut found: HashMap<i64, i64> = HashMap::new();
        for row in rows {
            found.insert(row[0].int()?, row[1].int()?);
        }
        for entry in &self.committed {
            if let Entry::Payment { id, amount } = entry {
                match found.remove(id) {
                    Some(there) if there == *amount => {}
                    Some(there) => faults.push(format!("{entry:?} is committed, and there is {there}")),
                    None => faults.push(format!("lost: {entry:?}")),
                }
            }
        }
        for entry in &self.in_doubt {
            if let Entry::Payment { id, amount } = entry
                && found.get(id) == Some(amount)
            {
                found.remove(id);
            }
        }
        faults.extend(found.keys().map(|id| format!("payment {id} is there, and nobody was told")));
        Ok(())
    }
}
