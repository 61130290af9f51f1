//! The queries: clause 2.4. Bounds of dates and discounts are computed beforehand, and columns of derived tables are
//! named inside these, as all databases understand that. The view of query 15 is a common table expression. The large
//! orders of query 18 are a derived table.

use super::parameters::{self, Parameters};
use entresol_core::Random;

/// Numbers of the queries, in their order.
pub const NUMBERS: [u32; 22] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22];

/// A query with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Number of the query in the specification.
    pub number: u32,
    /// Instance among the queries of this number, from 1: each has parameters of its own.
    pub instance: u32,
    /// Its parameters.
    pub parameters: Parameters,
}

const Q1: &str = "
    SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
        sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
        sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, avg(l_quantity) AS avg_qty,
        avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count(*) AS count_order
    FROM lineitem
    WHERE l_shipdate <= ':date'
    GROUP BY l_returnflag, l_linestatus
    ORDER BY l_returnflag, l_linestatus";

const Q2: &str = "
    SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
    FROM part, partsupp, supplier, nation, region
    WHERE p_size = :size AND p_type LIKE '%:type' AND ps_partkey = p_partkey AND s_suppkey = ps_suppkey
        AND n_nationkey = s_nationkey AND r_regionkey = n_regionkey AND r_name = ':region'
        AND ps_supplycost = (
            SELECT min(ps_supplycost)
            FROM partsupp, supplier, nation, region
            WHERE ps_partkey = p_partkey AND s_suppkey = ps_suppkey AND n_nationkey = s_nationkey
                AND r_regionkey = n_regionkey AND r_name = ':region')
    ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100";

const Q3: &str = "
    SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
    FROM customer, orders, lineitem
    WHERE c_mktsegment = ':segment' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
        AND o_orderdate < ':date' AND l_shipdate > ':date'
    GROUP BY l_orderkey, o_orderdate, o_shippriority
    ORDER BY revenue DESC, o_orderdate LIMIT 10";

const Q4: &str = "
    SELECT o_orderpriority, count(*) AS order_count
    FROM orders
    WHERE o_orderdate >= ':date' AND o_orderdate < ':end'
        AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
    GROUP BY o_orderpriority
    ORDER BY o_orderpriority";

const Q5: &str = "
    SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
    FROM region, nation, customer, orders, lineitem, supplier
    WHERE r_name = ':region' AND n_regionkey = r_regionkey AND c_nationkey = n_nationkey AND o_custkey = c_custkey
        AND o_orderdate >= ':date' AND o_orderdate < ':end' AND l_orderkey = o_orderkey AND s_suppkey = l_suppkey
        AND s_nationkey = c_nationkey
    GROUP BY n_name
    ORDER BY revenue DESC";

const Q6: &str = "
    SELECT sum(l_extendedprice * l_discount) AS revenue
    FROM lineitem
    WHERE l_shipdate >= ':date' AND l_shipdate < ':end' AND l_discount BETWEEN :least AND :most
        AND l_quantity < :quantity";

const Q7: &str = "
    SELECT supp_nation, cust_nation, l_year, sum(volume) AS revenue
    FROM (
        SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, extract(year from l_shipdate) AS l_year,
            l_extendedprice * (1 - l_discount) AS volume
        FROM supplier, lineitem, orders, customer, nation n1, nation n2
        WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
            AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
            AND ((n1.n_name = ':nation1' AND n2.n_name = ':nation2') OR (n1.n_name = ':nation2' AND n2.n_name = ':nation1'))
            AND l_shipdate BETWEEN '1995-01-01' AND '1996-12-31'
    ) AS shipping
    GROUP BY supp_nation, cust_nation, l_year
    ORDER BY supp_nation, cust_nation, l_year";

const Q8: &str = "
    SELECT o_year, 1.0 * sum(CASE WHEN nation = ':nation' THEN volume ELSE 0 END) / sum(volume) AS mkt_share
    FROM (
        SELECT extract(year from o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume,
            n2.n_name AS nation
        FROM part, lineitem, supplier, orders, customer, nation n1, nation n2, region
        WHERE p_type = ':type' AND l_partkey = p_partkey AND s_suppkey = l_suppkey AND o_orderkey = l_orderkey
            AND o_orderdate BETWEEN '1995-01-01' AND '1996-12-31' AND c_custkey = o_custkey
            AND n1.n_nationkey = c_nationkey AND r_regionkey = n1.n_regionkey AND r_name = ':region'
            AND n2.n_nationkey = s_nationkey
    ) AS sold
    GROUP BY o_year
    ORDER BY o_year";

const Q9: &str = "
    SELECT nation, o_year, sum(amount) AS sum_profit
    FROM (
        SELECT n_name AS nation, extract(year from o_orderdate) AS o_year,
            l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
        FROM part, supplier, lineitem, partsupp, orders, nation
        WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey
            AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey AND p_name LIKE '%:color%'
    ) AS profit
    GROUP BY nation, o_year
    ORDER BY nation, o_year DESC";

const Q10: &str = "
    SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address, c_phone,
        c_comment
    FROM customer, orders, lineitem, nation
    WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= ':date' AND o_orderdate < ':end'
        AND l_returnflag = 'R' AND c_nationkey = n_nationkey
    GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
    ORDER BY revenue DESC LIMIT 20";

const Q11: &str = "
    SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value
    FROM nation, supplier, partsupp
    WHERE n_name = ':nation' AND s_nationkey = n_nationkey AND ps_suppkey = s_suppkey
    GROUP BY ps_partkey
    HAVING sum(ps_supplycost * ps_availqty) > (
        SELECT sum(ps_supplycost * ps_availqty) * :fraction
        FROM nation, supplier, partsupp
        WHERE n_name = ':nation' AND s_nationkey = n_nationkey AND ps_suppkey = s_suppkey)
    ORDER BY value DESC";

const Q12: &str = "
    SELECT l_shipmode,
        sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS high_line_count,
        sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 0 ELSE 1 END) AS low_line_count
    FROM lineitem, orders
    WHERE o_orderkey = l_orderkey AND l_shipmode IN (':mode1', ':mode2') AND l_shipdate < l_commitdate
        AND l_commitdate < l_receiptdate AND l_receiptdate >= ':date' AND l_receiptdate < ':end'
    GROUP BY l_shipmode
    ORDER BY l_shipmode";

const Q13: &str = "
    SELECT c_count, count(*) AS custdist
    FROM (
        SELECT c_custkey, count(o_orderkey) AS c_count
        FROM customer LEFT OUTER JOIN orders
            ON c_custkey = o_custkey AND o_comment NOT LIKE '%:word1%:word2%'
        GROUP BY c_custkey
    ) AS c_orders
    GROUP BY c_count
    ORDER BY custdist DESC, c_count DESC";

const Q14: &str = "
    SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
        / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue
    FROM lineitem, part
    WHERE p_partkey = l_partkey AND l_shipdate >= ':date' AND l_shipdate < ':end'";

const Q15: &str = "
    WITH revenue AS (
        SELECT l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total_revenue
        FROM lineitem
        WHERE l_shipdate >= ':date' AND l_shipdate < ':end'
        GROUP BY l_suppkey)
    SELECT s_suppkey, s_name, s_address, s_phone, total_revenue
    FROM revenue, supplier
    WHERE s_suppkey = supplier_no AND total_revenue = (SELECT max(total_revenue) FROM revenue)
    ORDER BY s_suppkey";

const Q16: &str = "
    SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS supplier_cnt
    FROM partsupp, part
    WHERE p_partkey = ps_partkey AND p_brand <> ':brand' AND p_type NOT LIKE ':type%' AND p_size IN (:sizes)
        AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
    GROUP BY p_brand, p_type, p_size
    ORDER BY supplier_cnt DESC, p_brand, p_type, p_size";

const Q17: &str = "
    SELECT sum(l_extendedprice) / 7.0 AS avg_yearly
    FROM part, lineitem l1
    WHERE p_brand = ':brand' AND p_container = ':container' AND l1.l_partkey = p_partkey
        AND l1.l_quantity < (SELECT 0.2 * avg(l2.l_quantity) FROM lineitem l2 WHERE l2.l_partkey = p_partkey)";

const Q18: &str = "
    SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS sum_qty
    FROM (
        SELECT l_orderkey AS large_orderkey
        FROM lineitem
        GROUP BY l_orderkey
        HAVING sum(l_quantity) > :quantity
    ) AS large, orders, customer, lineitem
    WHERE o_orderkey = large_orderkey AND c_custkey = o_custkey AND l_orderkey = o_orderkey
    GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
    ORDER BY o_totalprice DESC, o_orderdate LIMIT 100";

const Q19: &str = "
    SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue
    FROM part, lineitem
    WHERE l_partkey = p_partkey AND l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON'
        AND ((p_brand = ':brand1' AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
                AND p_size BETWEEN 1 AND 5 AND l_quantity BETWEEN :quantity1 AND :quantity1 + 10)
            OR (p_brand = ':brand2' AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
                AND p_size BETWEEN 1 AND 10 AND l_quantity BETWEEN :quantity2 AND :quantity2 + 10)
            OR (p_brand = ':brand3' AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
                AND p_size BETWEEN 1 AND 15 AND l_quantity BETWEEN :quantity3 AND :quantity3 + 10))";

const Q20: &str = "
    SELECT s_name, s_address
    FROM supplier, nation
    WHERE s_suppkey IN (
            SELECT ps_suppkey FROM partsupp
            WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE ':color%')
                AND ps_availqty > (
                    SELECT 0.5 * sum(l_quantity) FROM lineitem
                    WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey
                        AND l_shipdate >= ':date' AND l_shipdate < ':end'))
        AND s_nationkey = n_nationkey AND n_name = ':nation'
    ORDER BY s_name";

const Q21: &str = "
    SELECT s_name, count(*) AS numwait
    FROM nation, supplier, lineitem l1, orders
    WHERE n_name = ':nation' AND s_nationkey = n_nationkey AND l1.l_suppkey = s_suppkey
        AND l1.l_receiptdate > l1.l_commitdate AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F'
        AND EXISTS (
            SELECT * FROM lineitem l2
            WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)
        AND NOT EXISTS (
            SELECT * FROM lineitem l3
            WHERE l3.l_orderkey = l1.l_orderkey AND l3.l_suppkey <> l1.l_suppkey
                AND l3.l_receiptdate > l3.l_commitdate)
    GROUP BY s_name
    ORDER BY numwait DESC, s_name LIMIT 100";

const Q22: &str = "
    SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal
    FROM (
        SELECT substr(c_phone, 1, 2) AS cntrycode, c_acctbal
        FROM customer
        WHERE substr(c_phone, 1, 2) IN (:codes)
            AND c_acctbal > (
                SELECT avg(c_acctbal) FROM customer
                WHERE c_acctbal > 0.00 AND substr(c_phone, 1, 2) IN (:codes))
            AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey)
    ) AS idle
    GROUP BY cntrycode
    ORDER BY cntrycode";

impl Query {
    /// A query with parameters drawn for this seed. A parameter of query 11 depends on the scale factor of the data.
    ///
    /// # Panics
    /// When the number is none of [`NUMBERS`].
    pub fn draw(seed: u64, number: u32, instance: u32, scale: f64) -> Self {
        let parameters = parameters::draw(number, &mut parameters::stream(seed, number, instance), scale);
        Query { number, instance, parameters }
    }

    /// The query with the parameters for which the specification gives the answer, at scale factor 1.
    ///
    /// # Panics
    /// When the number is none of [`NUMBERS`].
    pub fn validation(number: u32) -> Self {
        Query { number, instance: 0, parameters: parameters::validation(number) }
    }

    /// Name as 000 writes it: `Q20_3`.
    pub fn name(&self) -> String {
        format!("Q{}_{}", self.number, self.instance)
    }

    fn template(&self) -> &'static str {
        match self.number {
            1 => Q1,
            2 => Q2,
            3 => Q3,
            4 => Q4,
            5 => Q5,
            6 => Q6,
            7 => Q7,
            8 => Q8,
            9 => Q9,
            10 => Q10,
            11 => Q11,
            12 => Q12,
            13 => Q13,
            14 => Q14,
            15 => Q15,
            16 => Q16,
            17 => Q17,
            18 => Q18,
            19 => Q19,
            20 => Q20,
            21 => Q21,
            22 => Q22,
            other => unreachable!("query {other} was drawn"),
        }
    }

    /// The statement.
    pub fn sql(&self) -> String {
        let put = |text: String, (name, value): &(&str, String)| text.replace(&format!(":{name}"), value);
        let text = self.parameters.iter().fold(self.template().to_owned(), put);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The tables that the query reads.
    pub fn tables(&self) -> &'static [&'static str] {
        match self.number {
            1 => &["lineitem"],
            2 => &["part", "partsupp", "supplier", "nation", "region"],
            3 => &["customer", "orders", "lineitem"],
            4 => &["orders", "lineitem"],
            5 => &["region", "nation", "customer", "orders", "lineitem", "supplier"],
            6 => &["lineitem"],
            7 => &["supplier", "lineitem", "orders", "customer", "nation"],
            8 => &["part", "lineitem", "supplier", "orders", "customer", "nation", "region"],
            9 => &["part", "supplier", "lineitem", "partsupp", "orders", "nation"],
            10 => &["customer", "orders", "lineitem", "nation"],
            11 => &["nation", "supplier", "partsupp"],
            12 => &["lineitem", "orders"],
            13 => &["customer", "orders"],
            14 => &["lineitem", "part"],
            15 => &["lineitem", "supplier"],
            16 => &["partsupp", "part", "supplier"],
            17 => &["part", "lineitem"],
            18 => &["lineitem", "orders", "customer"],
            19 => &["part", "lineitem"],
            20 => &["supplier", "nation", "partsupp", "part", "lineitem"],
            21 => &["nation", "supplier", "lineitem", "orders"],
            22 => &["customer", "orders"],
            other => unreachable!("query {other} was drawn"),
        }
    }
}

/// Number of instances of each query in the mixed sequence. 000 (section 3.6.1) has twenty queries of five kinds in
/// random order: the longer a kind takes, the fewer it has. We do not have its figure 3.8a with the numbers; its text
/// names a fifth Q7 and a fourth Q20.
const MIXED: [(u32, u32); 5] = [(3, 4), (7, 5), (9, 2), (13, 4), (20, 5)];

/// The mixed sequence of 000, section 3.6.1, in an order drawn for this seed, for data of this scale factor.
pub fn mixed(seed: u64, scale: f64) -> Vec<Query> {
    let each = |(number, count)| (1..=count).map(move |instance| Query::draw(seed, number, instance, scale));
    let mut queries: Vec<Query> = MIXED.into_iter().flat_map(each).collect();
    let mut random = Random::new(Random::mix(seed ^ 0x6d78));
    for at in (1..queries.len()).rev() {
        queries.swap(at, random.below(at as u64 + 1) as usize);
    }
    queries
}

#[cfg(test)]
mod tests {
    use super::super::TABLES;
    use super::*;

    #[test]
    fn statements_have_all_parameters_and_read_the_tables_that_are_said() {
        for number in NUMBERS {
            let query = Query::draw(3, number, 1, 0.05);
            let sql = query.sql();
            assert!(!sql.contains(':'), "{sql}");
            for (name, value) in &query.parameters {
                assert!(sql.contains(value.as_str()), "{name} = {value}: {sql}");
            }
            for table in &TABLES {
                let words = |text: &str| text.split(|c: char| !c.is_alphanumeric()).any(|word| word == table.name);
                let reads = sql.split("FROM ").skip(1).any(|from| words(from.split(" WHERE").next().unwrap_or(from)));
                assert_eq!(reads, query.tables().contains(&table.name), "{}: {sql}", table.name);
            }
        }
    }

    #[test]
    fn the_mixed_sequence_is_twenty_different_queries_in_an_order_of_the_seeds() {
        let one = mixed(1, 1.0);
        assert_eq!(one.len(), 20);
        let mut names: Vec<String> = one.iter().map(Query::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 20);
        assert_eq!(one, mixed(1, 1.0));
        let order = |queries: &[Query]| queries.iter().map(Query::name).collect::<Vec<_>>();
        assert_ne!(order(&one), order(&mixed(2, 1.0)));
    }
}
