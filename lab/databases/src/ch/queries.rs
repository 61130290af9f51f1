//! The queries of Cole et al. 2011, in the SQL that all databases here share.

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The number of the TPC-H query from which the query is derived.
    pub number: u32,
    /// The tables that the query reads.
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

/// The query of this number, from 1 to 22.
pub fn query(number: u32) -> Option<&'static Query> {
    QUERIES.iter().find(|query| query.number == number)
}

/// All queries, in the order of their numbers. 946684800000000 is 2000-01-01 in microseconds, 1577836800000000 2020-01-01,
/// 31556952000000 a year.
pub static QUERIES: [Query; 22] = [
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
        number: 2,
        tables: &["item", "supplier", "stock", "nation", "region"],
        text: "
            SELECT su_suppkey, su_name, n_name, i_id, i_name, su_address, su_phone, su_comment
            FROM item, supplier, stock, nation, region, (
                SELECT s_i_id AS m_i_id, min(s_quantity) AS m_s_quantity
                FROM stock, supplier, nation, region
                WHERE (s_w_id * s_i_id) % 10000 = su_suppkey AND su_nationkey = n_nationkey AND n_regionkey = r_regionkey
                    AND r_name LIKE 'EUROP%'
                GROUP BY s_i_id) m
            WHERE i_id = s_i_id AND (s_w_id * s_i_id) % 10000 = su_suppkey AND su_nationkey = n_nationkey
                AND n_regionkey = r_regionkey AND i_data LIKE '%1' AND r_name LIKE 'EUROP%'
                AND i_id = m_i_id AND s_quantity = m_s_quantity
            ORDER BY n_name, su_name, i_id",
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
        number: 5,
        tables: &["customer", "orders", "order_line", "stock", "supplier", "nation", "region"],
        text: "
            SELECT n_name, sum(ol_amount) AS revenue
            FROM customer, orders, order_line, stock, supplier, nation, region
            WHERE c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id
                AND ol_o_id = o_id AND ol_w_id = o_w_id AND ol_d_id = o_d_id
                AND ol_w_id = s_w_id AND ol_i_id = s_i_id AND (s_w_id * s_i_id) % 10000 = su_suppkey
                AND ascii(substr(c_state, 1, 1)) = su_nationkey AND su_nationkey = n_nationkey AND n_regionkey = r_regionkey
                AND r_name = 'EUROPE' AND o_entry_d >= 946684800000000
            GROUP BY n_name
            ORDER BY revenue DESC",
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
        number: 8,
        tables: &["item", "supplier", "stock", "order_line", "orders", "customer", "nation", "region"],
        text: "
            SELECT o_entry_d - o_entry_d % 31556952000000 AS l_year,
                sum(CASE WHEN n2.n_name = 'Germany' THEN ol_amount ELSE 0 END) * 1.000000 / sum(ol_amount) AS mkt_share
            FROM item, supplier, stock, order_line, orders, customer, nation n1, nation n2, region
            WHERE i_id = s_i_id AND ol_i_id = s_i_id AND ol_supply_w_id = s_w_id AND (s_w_id * s_i_id) % 10000 = su_suppkey
                AND ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
                AND c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id
                AND n1.n_nationkey = ascii(substr(c_state, 1, 1)) AND n1.n_regionkey = r_regionkey
                AND ol_i_id < 1000 AND r_name = 'EUROPE' AND su_nationkey = n2.n_nationkey
                AND o_entry_d BETWEEN 946684800000000 AND 1577836800000000 AND i_data LIKE '%1'
            GROUP BY l_year
            ORDER BY l_year",
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
        number: 10,
        tables: &["customer", "orders", "order_line", "nation"],
        text: "
            SELECT c_id, c_last, sum(ol_amount) AS revenue, c_city, c_phone, n_name
            FROM customer, orders, order_line, nation
            WHERE c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id
                AND ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
                AND o_entry_d >= 946684800000000 AND o_entry_d <= ol_delivery_d
                AND n_nationkey = ascii(substr(c_state, 1, 1))
            GROUP BY c_id, c_last, c_city, c_phone, n_name
            ORDER BY revenue DESC, c_id, c_phone LIMIT 100",
    },
    Query {
        number: 11,
        tables: &["stock", "supplier", "nation"],
        text: "
            SELECT s_i_id, sum(s_order_cnt) AS ordercount
            FROM stock, supplier, nation
            WHERE (s_w_id * s_i_id) % 10000 = su_suppkey AND su_nationkey = n_nationkey AND n_name = 'Germany'
            GROUP BY s_i_id
            HAVING sum(s_order_cnt) > (
                SELECT sum(s_order_cnt) * 0.005
                FROM stock, supplier, nation
                WHERE (s_w_id * s_i_id) % 10000 = su_suppkey AND su_nationkey = n_nationkey AND n_name = 'Germany')
            ORDER BY ordercount DESC",
    },
    Query {
        number: 12,
        tables: &["orders", "order_line"],
        text: "
            SELECT o_ol_cnt, sum(CASE WHEN o_carrier_id = 1 OR o_carrier_id = 2 THEN 1 ELSE 0 END) AS high_line_count,
                sum(CASE WHEN o_carrier_id <> 1 AND o_carrier_id <> 2 THEN 1 ELSE 0 END) AS low_line_count
            FROM orders, order_line
            WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
                AND o_entry_d <= ol_delivery_d AND ol_delivery_d < 1577836800000000
            GROUP BY o_ol_cnt
            ORDER BY o_ol_cnt",
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
        number: 14,
        tables: &["order_line", "item"],
        text: "
            SELECT 100.00 * sum(CASE WHEN i_data LIKE '10%' THEN ol_amount ELSE 0 END) / (1 + sum(ol_amount)) AS promo_revenue
            FROM order_line, item
            WHERE ol_i_id = i_id AND ol_delivery_d >= 946684800000000 AND ol_delivery_d < 1577836800000000",
    },
    Query {
        number: 15,
        tables: &["order_line", "stock", "supplier"],
        text: "
            WITH revenue AS (
                SELECT (s_w_id * s_i_id) % 10000 AS supplier_no, sum(ol_amount) AS total_revenue
                FROM order_line, stock
                WHERE ol_i_id = s_i_id AND ol_supply_w_id = s_w_id AND ol_delivery_d >= 946684800000000
                GROUP BY supplier_no)
            SELECT su_suppkey, su_name, su_address, su_phone, total_revenue
            FROM supplier, revenue
            WHERE su_suppkey = supplier_no AND total_revenue = (SELECT max(total_revenue) FROM revenue)
            ORDER BY su_suppkey",
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
        number: 17,
        tables: &["order_line", "item"],
        text: "
            SELECT sum(ol_amount) / 2.0 AS avg_yearly
            FROM order_line, (
                SELECT i_id, avg(ol_quantity) AS a
                FROM item, order_line
                WHERE i_data LIKE '%1' AND ol_i_id = i_id
                GROUP BY i_id) t
            WHERE ol_i_id = t.i_id AND ol_quantity < t.a",
    },
    Query {
        number: 18,
        tables: &["customer", "orders", "order_line"],
        text: "
            SELECT c_last, c_id, o_id, o_entry_d, o_ol_cnt, sum(ol_amount) AS amount_sum
            FROM customer, orders, order_line
            WHERE c_id = o_c_id AND c_w_id = o_w_id AND c_d_id = o_d_id
                AND ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
            GROUP BY o_id, o_w_id, o_d_id, c_id, c_last, o_entry_d, o_ol_cnt
            HAVING sum(ol_amount) > 20000
            ORDER BY amount_sum DESC, o_entry_d, o_w_id, o_d_id, o_id LIMIT 100",
    },
    Query {
        number: 19,
        tables: &["order_line", "item"],
        text: "
            SELECT sum(ol_amount) AS revenue
            FROM order_line, item
            WHERE ol_i_id = i_id AND ol_quantity >= 1 AND ol_quantity <= 10 AND i_price BETWEEN 1 AND 400000
                AND ((i_data LIKE '%1' AND ol_w_id IN (1, 2, 3)) OR (i_data LIKE '%2' AND ol_w_id IN (1, 2, 4))
                    OR (i_data LIKE '%3' AND ol_w_id IN (1, 5, 3)))",
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
    Query {
        number: 21,
        tables: &["supplier", "order_line", "orders", "stock", "nation"],
        text: "
            SELECT su_name, count(*) AS numwait
            FROM supplier, order_line l1, orders, stock, nation
            WHERE l1.ol_o_id = o_id AND l1.ol_w_id = o_w_id AND l1.ol_d_id = o_d_id
                AND l1.ol_w_id = s_w_id AND l1.ol_i_id = s_i_id AND (s_w_id * s_i_id) % 10000 = su_suppkey
                AND l1.ol_delivery_d > o_entry_d AND NOT EXISTS (
                    SELECT * FROM order_line l2
                    WHERE l2.ol_o_id = l1.ol_o_id AND l2.ol_w_id = l1.ol_w_id AND l2.ol_d_id = l1.ol_d_id
                        AND l2.ol_delivery_d > l1.ol_delivery_d)
                AND su_nationkey = n_nationkey AND n_name = 'Germany'
            GROUP BY su_name
            ORDER BY numwait DESC, su_name",
    },
    Query {
        number: 22,
        tables: &["customer", "orders"],
        text: "
            SELECT substr(c_state, 1, 1) AS country, count(*) AS numcust, sum(c_balance) AS totacctbal
            FROM customer
            WHERE substr(c_phone, 1, 1) IN ('1', '2', '3', '4', '5', '6', '7')
                AND c_balance > (
                    SELECT avg(c_balance) FROM customer
                    WHERE c_balance > 0 AND substr(c_phone, 1, 1) IN ('1', '2', '3', '4', '5', '6', '7'))
                AND NOT EXISTS (SELECT * FROM orders WHERE o_c_id = c_id AND o_w_id = c_w_id AND o_d_id = c_d_id)
            GROUP BY country
            ORDER BY country",
    },
];

#[cfg(test)]
mod tests {
    use super::super::TABLES;
    use super::*;
    use crate::tpcc;

    #[test]
    fn queries_are_known_by_their_numbers_and_read_the_tables_that_are_said() {
        assert!((1..=22).all(|number| query(number).is_some_and(|query| query.number == number)));
        assert_eq!([query(0), query(23)], [None, None]);
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
