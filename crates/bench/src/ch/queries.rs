//! The queries: what Cole et al. 2011 define, in the SQL that all databases here have.

/// The queries there are.
pub const NUMBERS: [u32; 9] = [1, 3, 4, 6, 7, 9, 13, 16, 20];

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The number of TPC-H's query that it is made from.
    pub number: u32,
    /// The tables that it reads.
    pub tables: &'static [&'static str],
    text: &'static str,
}

impl Query {
    /// The statement.
    pub fn sql(&self) -> String {
        self.text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// `CH7`.
    pub fn name(&self) -> String {
        format!("CH{}", self.number)
    }
}

/// The query of this number, if it is one of [`NUMBERS`].
pub fn query(number: u32) -> Option<&'static Query> {
    QUERIES.iter().find(|query| query.number == number)
}

/// All queries, in the order of [`NUMBERS`]. 946684800000000 is 2000-01-01 in microseconds, 31556952000000 a year.
pub static QUERIES: [Query; 9] = [
    Query {
        number: 1,
        tables: &["order_line"],
        text: "
            SELECT ol_number, sum(ol_quantity) AS sum_qty, sum(ol_amount) AS sum_amount, avg(ol_quantity) AS avg_qty,
                avg(ol_amount) AS avg_amount, count(*) AS count_order
            FROM order_line
            WHERE ol_delivery_d > 946684800000000
            GROUP BY ol_number
            ORDER BY ol_number",
    },
    Query {
        number: 3,
        tables: &["customer", "new_order", "orders", "order_line"],
        text: "
            SELECT ol_o_id, ol_w_id, ol_d_id, sum(ol_amount) AS revenue, o_entry_d
            FROM customer, new_order, orders, order_line
            WHERE c_state LIKE 'A%' AND c_w_id = o_w_id AND c_d_id = o_d_id AND c_id = o_c_id
                AND no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
                AND ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id AND o_entry_d > 946684800000000
            GROUP BY ol_o_id, ol_w_id, ol_d_id, o_entry_d
            ORDER BY revenue DESC, o_entry_d, ol_w_id, ol_d_id, ol_o_id LIMIT 100",
    },
    Query {
        number: 4,
        tables: &["orders", "order_line"],
        text: "
            SELECT o_ol_cnt, count(*) AS order_count
            FROM orders
            WHERE o_entry_d >= 946684800000000 AND EXISTS (
                SELECT * FROM order_line
                WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id AND ol_delivery_d >= o_entry_d)
            GROUP BY o_ol_cnt
            ORDER BY o_ol_cnt",
    },
    Query {
        number: 6,
        tables: &["order_line"],
        text: "
            SELECT sum(ol_amount) AS revenue
            FROM order_line
            WHERE ol_delivery_d >= 946684800000000 AND ol_quantity BETWEEN 1 AND 100000",
    },
    Query {
        number: 7,
        tables: &["supplier", "stock", "order_line", "orders", "customer", "nation"],
        text: "
            SELECT su_nationkey AS supp_nation, substr(c_state, 1, 1) AS cust_nation,
                o_entry_d - o_entry_d % 31556952000000 AS l_year, sum(ol_amount) AS revenue
            FROM supplier, stock, order_line, orders, customer, nation n1, nation n2
            WHERE ol_supply_w_id = s_w_id AND ol_i_id = s_i_id AND su_suppkey = (s_w_id * s_i_id) % 10000
                AND o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
                AND c_w_id = o_w_id AND c_d_id = o_d_id AND c_id = o_c_id
                AND su_nationkey = n1.n_nationkey AND ascii(substr(c_state, 1, 1)) = n2.n_nationkey
                AND ((n1.n_name = 'Germany' AND n2.n_name = 'Cambodia') OR (n1.n_name = 'Cambodia' AND n2.n_name = 'Germany'))
                AND ol_delivery_d > 946684800000000
            GROUP BY supp_nation, cust_nation, l_year
            ORDER BY supp_nation, cust_nation, l_year",
    },
    Query {
        number: 9,
        tables: &["item", "stock", "supplier", "order_line", "orders", "nation"],
        text: "
            SELECT n_name, o_entry_d - o_entry_d % 31556952000000 AS l_year, sum(ol_amount) AS sum_profit
            FROM item, stock, supplier, order_line, orders, nation
            WHERE ol_supply_w_id = s_w_id AND ol_i_id = s_i_id AND su_suppkey = (s_w_id * s_i_id) % 10000
                AND o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
                AND i_id = ol_i_id AND su_nationkey = n_nationkey AND i_data LIKE '%11'
            GROUP BY n_name, l_year
            ORDER BY n_name, l_year DESC",
    },
    Query {
        number: 13,
        tables: &["customer", "orders"],
        text: "
            SELECT c_count, count(*) AS custdist
            FROM (
                SELECT c_id, count(o_id) AS c_count
                FROM customer LEFT OUTER JOIN orders
                    ON c_w_id = o_w_id AND c_d_id = o_d_id AND c_id = o_c_id AND o_carrier_id > 8
                GROUP BY c_id
            ) AS c_orders
            GROUP BY c_count
            ORDER BY custdist DESC, c_count DESC",
    },
    Query {
        number: 16,
        tables: &["stock", "item", "supplier"],
        text: "
            SELECT i_name, substr(i_data, 1, 3) AS brand, i_price,
                count(DISTINCT (s_w_id * s_i_id) % 10000) AS supplier_cnt
            FROM stock, item
            WHERE i_id = s_i_id AND i_data NOT LIKE '00%'
                AND (s_w_id * s_i_id) % 10000 NOT IN (SELECT su_suppkey FROM supplier WHERE su_comment LIKE '%bad%')
            GROUP BY i_name, brand, i_price
            ORDER BY supplier_cnt DESC",
    },
    Query {
        number: 20,
        tables: &["supplier", "nation", "stock", "order_line", "item"],
        text: "
            SELECT su_name, su_address
            FROM supplier, nation
            WHERE su_suppkey IN (
                    SELECT (s_w_id * s_i_id) % 10000 FROM stock, order_line
                    WHERE s_i_id IN (SELECT i_id FROM item WHERE i_data LIKE '10%')
                        AND ol_i_id = s_i_id AND ol_delivery_d > 946684800000000
                    GROUP BY s_i_id, s_w_id, s_quantity
                    HAVING 2 * s_quantity > sum(ol_quantity))
                AND su_nationkey = n_nationkey AND n_name = 'Germany'
            ORDER BY su_name",
    },
];

#[cfg(test)]
mod tests {
    use super::super::TABLES;
    use super::*;
    use crate::tpcc;

    #[test]
    fn queries_are_known_by_their_numbers_and_read_the_tables_that_are_said() {
        assert_eq!(NUMBERS.map(|number| query(number).expect("a query").number), NUMBERS);
        assert_eq!(query(2), None);
        for query in &QUERIES {
            let sql = query.sql();
            for table in TABLES.iter().chain(&tpcc::TABLES) {
                let words =
                    |text: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == table.name);
                let reads = sql.split("FROM ").skip(1).any(|from| words(from.split(" WHERE").next().unwrap_or(from)));
                assert_eq!(reads, query.tables.contains(&table.name), "{}: {sql}", table.name);
            }
        }
    }
}
