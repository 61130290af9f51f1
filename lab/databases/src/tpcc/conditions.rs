//! Consistency conditions, which always hold: clause 3.3.2.

use crate::DriverError;
use crate::driver::Session;

/// A condition of the specification.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    /// Number of the condition in clause 3.3.2.
    pub number: u32,
    /// Description of the condition.
    pub says: &'static str,
    /// Statement that counts the rows for which the condition does not hold.
    broken: &'static str,
}

/// Conditions that hold after any number of transactions.
const ALWAYS: [Condition; 11] = [
    Condition {
        number: 1,
        says: "a warehouse's turnover is that of its districts",
        broken:
            "SELECT count(*) FROM warehouse JOIN
                 (SELECT d_w_id, sum(d_ytd) AS ytd FROM district GROUP BY d_w_id) d ON d_w_id = w_id WHERE w_ytd <> ytd",
    },
    Condition {
        number: 2,
        says: "a district's next order follows its last one, delivered or not",
        broken: "SELECT count(*) FROM district
                 LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS last FROM orders GROUP BY o_w_id, o_d_id) o
                   ON o_w_id = d_w_id AND o_d_id = d_id
                 LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS newest FROM new_order GROUP BY no_w_id, no_d_id) n
                   ON no_w_id = d_w_id AND no_d_id = d_id
                 WHERE last IS NULL OR d_next_o_id - 1 <> last OR (newest IS NOT NULL AND d_next_o_id - 1 <> newest)",
    },
    Condition {
        number: 3,
        says: "new orders of a district have no gaps",
        broken: "SELECT count(*) FROM (SELECT no_w_id FROM new_order GROUP BY no_w_id, no_d_id
                 HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)) g",
    },
    Condition {
        number: 4,
        says: "a district has as many lines as its orders say",
        broken: "SELECT count(*) FROM
                 (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS said FROM orders GROUP BY o_w_id, o_d_id) o
                 LEFT JOIN (SELECT ol_w_id, ol_d_id, count(*) AS there FROM order_line GROUP BY ol_w_id, ol_d_id) l
                   ON ol_w_id = o_w_id AND ol_d_id = o_d_id WHERE there IS NULL OR said <> there",
    },
    Condition {
        number: 5,
        says: "an order has a carrier unless it is new",
        broken: "SELECT count(*) FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id
                 AND no_o_id = o_id WHERE (o_carrier_id IS NULL AND no_o_id IS NULL)
                 OR (o_carrier_id IS NOT NULL AND no_o_id IS NOT NULL)",
    },
    Condition {
        number: 6,
        says: "every order has its lines",
        broken: "SELECT count(*) FROM orders LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS there
                 FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id) l
                 ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE there IS NULL OR there <> o_ol_cnt",
    },
    Condition {
        number: 7,
        says: "a line is delivered when its order has a carrier",
        broken: "SELECT count(*) FROM order_line LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id
                 AND o_id = ol_o_id WHERE o_id IS NULL OR (ol_delivery_d IS NULL AND o_carrier_id IS NOT NULL)
                 OR (ol_delivery_d IS NOT NULL AND o_carrier_id IS NULL)",
    },
    Condition {
        number: 8,
        says: "a warehouse's turnover is what was paid there",
        broken: "SELECT count(*) FROM warehouse LEFT JOIN (SELECT h_w_id, sum(h_amount) AS paid FROM history
                 GROUP BY h_w_id) h ON h_w_id = w_id WHERE paid IS NULL OR w_ytd <> paid",
    },
    Condition {
        number: 9,
        says: "a district's turnover is what was paid there",
        broken: "SELECT count(*) FROM district LEFT JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history
                 GROUP BY h_w_id, h_d_id) h ON h_w_id = d_w_id AND h_d_id = d_id WHERE paid IS NULL OR d_ytd <> paid",
    },
    Condition {
        number: 10,
        says: "a customer owes what was delivered less what was paid",
        broken: "SELECT count(*) FROM customer
                 LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS due FROM orders JOIN order_line
                   ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL
                   GROUP BY o_w_id, o_d_id, o_c_id) d ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
                 LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history
                   GROUP BY h_c_w_id, h_c_d_id, h_c_id) h ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
                 WHERE c_balance <> coalesce(due, 0) - coalesce(paid, 0)",
    },
    Condition {
        number: 12,
        says: "what a customer owes and has paid is what was delivered",
        broken: "SELECT count(*) FROM customer
                 LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS due FROM orders JOIN order_line
                   ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL
                   GROUP BY o_w_id, o_d_id, o_c_id) d ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
                 WHERE c_balance + c_ytd_payment <> coalesce(due, 0)",
    },
];

/// Condition on the first contents: seven of ten orders are delivered.
pub const LOADED: Condition = Condition {
    number: 11,
    says: "seven of ten orders are delivered when a run begins",
    broken: "SELECT count(*) FROM (SELECT o_w_id, o_d_id, count(*) AS orders, count(no_o_id) AS undelivered FROM orders
             LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
             GROUP BY o_w_id, o_d_id) g WHERE 10 * (orders - undelivered) <> 7 * orders",
};

/// Conditions of clause 3.3.2 that hold after any number of transactions: 1 to 10 and 12.
pub fn conditions() -> &'static [Condition] {
    &ALWAYS
}

/// Number of rows for which a condition does not hold.
///
/// # Errors
/// The database's error.
pub fn broken(session: &mut dyn Session, condition: &Condition) -> Result<i64, DriverError> {
    crate::driver::one(session.query(condition.broken, &[])?, condition.broken)?[0].int()
}
