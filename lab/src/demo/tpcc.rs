//! A TPC-C-like load on SQLite: the specification's tables, its five transactions in their mix, its NURand (clause
//! 2.1.6) and its consistency conditions (clause 3.3.2). Customers, items and orders are fewer than the specification
//! asks for, and there are no terminals.

use entresol_core::Random;
use rusqlite::{Connection, OptionalExtension, Result, params};

const WAREHOUSES: u64 = 2;
const DISTRICTS: u64 = 10;
const CUSTOMERS: u64 = 600;
const ITEMS: u64 = 10_000;
/// Orders of a district when the run starts; the last third is not delivered.
const ORDERS: u64 = 600;

/// The constant C of NURand.
const NURAND_C: u64 = 123;

const TABLES: &str = "
    CREATE TABLE warehouse(w_id INTEGER PRIMARY KEY, name TEXT, tax REAL, ytd INTEGER);
    CREATE TABLE district(w_id INTEGER, d_id INTEGER, tax REAL, ytd INTEGER, next_o_id INTEGER, info TEXT,
        PRIMARY KEY(w_id, d_id)) WITHOUT ROWID;
    CREATE TABLE customer(w_id INTEGER, d_id INTEGER, c_id INTEGER, last TEXT, balance INTEGER, ytd_payment INTEGER,
        payments INTEGER, deliveries INTEGER, data TEXT, PRIMARY KEY(w_id, d_id, c_id)) WITHOUT ROWID;
    CREATE INDEX customer_last ON customer(w_id, d_id, last);
    CREATE TABLE history(c_w_id INTEGER, c_d_id INTEGER, c_id INTEGER, w_id INTEGER, d_id INTEGER, at INTEGER, amount INTEGER,
        data TEXT);
    CREATE TABLE orders(w_id INTEGER, d_id INTEGER, o_id INTEGER, c_id INTEGER, entered INTEGER, carrier INTEGER,
        lines INTEGER, PRIMARY KEY(w_id, d_id, o_id)) WITHOUT ROWID;
    CREATE INDEX orders_customer ON orders(w_id, d_id, c_id, o_id);
    CREATE TABLE new_order(w_id INTEGER, d_id INTEGER, o_id INTEGER, PRIMARY KEY(w_id, d_id, o_id)) WITHOUT ROWID;
    CREATE TABLE order_line(w_id INTEGER, d_id INTEGER, o_id INTEGER, number INTEGER, i_id INTEGER, supply_w_id INTEGER,
        delivered INTEGER, quantity INTEGER, amount INTEGER, info TEXT, PRIMARY KEY(w_id, d_id, o_id, number)) WITHOUT ROWID;
    CREATE TABLE item(i_id INTEGER PRIMARY KEY, name TEXT, price INTEGER, data TEXT);
    CREATE TABLE stock(w_id INTEGER, i_id INTEGER, quantity INTEGER, ytd INTEGER, orders INTEGER, remote INTEGER, info TEXT,
        PRIMARY KEY(w_id, i_id)) WITHOUT ROWID;
    CREATE TABLE committed(number INTEGER);
    INSERT INTO committed VALUES(0);";

/// Consistency conditions; each query gives the rows for which its condition does not hold.
const CONDITIONS: [(&str, &str); 4] = [
    (
        "a warehouse's turnover is that of its districts",
        "SELECT 1 FROM warehouse w WHERE ytd <> (SELECT sum(ytd) FROM district d WHERE d.w_id = w.w_id)",
    ),
    (
        "a district's next order follows the last one, new or not",
        "SELECT 1 FROM district d WHERE
            next_o_id - 1 <> (SELECT max(o_id) FROM orders o WHERE o.w_id = d.w_id AND o.d_id = d.d_id) OR
            next_o_id - 1 <> (SELECT max(o_id) FROM new_order n WHERE n.w_id = d.w_id AND n.d_id = d.d_id)",
    ),
    (
        "new orders have no gaps",
        "SELECT 1 FROM new_order GROUP BY w_id, d_id HAVING max(o_id) - min(o_id) + 1 <> count(*)",
    ),
    (
        "every order has its lines",
        "SELECT 1 FROM orders o WHERE lines <>
            (SELECT count(*) FROM order_line l WHERE l.w_id = o.w_id AND l.d_id = o.d_id AND l.o_id = o.o_id)",
    ),
];

/// From `low` to `high`, both included.
fn within(random: &mut Random, low: u64, high: u64) -> u64 {
    low + random.below(high - low + 1)
}

/// A skewed draw from `1..=high`: some numbers come far more often.
fn nurand(random: &mut Random, a: u64, high: u64) -> u64 {
    let mixed = within(random, 0, a) | within(random, 1, high);
    (mixed + NURAND_C) % high + 1
}

fn text(random: &mut Random, low: u64, high: u64) -> String {
    (0..within(random, low, high)).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

/// A last name, of a thousand.
fn last_name(number: u64) -> String {
    const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    [number / 100, number / 10, number].map(|digit| SYLLABLES[(digit % 10) as usize]).concat()
}

/// Rows that a load makes, for a progress bar.
pub const LOADED_ROWS: u64 = ITEMS + WAREHOUSES * (ITEMS + DISTRICTS * (CUSTOMERS + ORDERS));

/// Makes the tables and fills them; `progress` receives the number of further rows.
pub fn load(connection: &Connection, seed: u64, progress: &dyn Fn(u64)) -> Result<()> {
    let random = &mut Random::new(seed);
    connection.execute_batch(TABLES)?;
    connection.execute_batch("BEGIN")?;
    let mut insert = connection.prepare("INSERT INTO item VALUES(?1, ?2, ?3, ?4)")?;
    for item in 1..=ITEMS {
        insert.execute(params![item, text(random, 14, 24), within(random, 100, 10_000), text(random, 26, 50)])?;
    }
    progress(ITEMS);
    for warehouse in 1..=WAREHOUSES {
        let ytd = DISTRICTS * 30_000;
        let values = params![warehouse, text(random, 6, 10), 0.1, ytd];
        connection.execute("INSERT INTO warehouse VALUES(?1, ?2, ?3, ?4)", values)?;
        let mut insert = connection.prepare("INSERT INTO stock VALUES(?1, ?2, ?3, 0, 0, 0, ?4)")?;
        for item in 1..=ITEMS {
            insert.execute(params![warehouse, item, within(random, 10, 100), text(random, 240, 290)])?;
        }
        progress(ITEMS);
        for district in 1..=DISTRICTS {
            let values = params![warehouse, district, ORDERS + 1, text(random, 50, 80)];
            connection.execute("INSERT INTO district VALUES(?1, ?2, 0.1, 30000, ?3, ?4)", values)?;
            load_customers(connection, random, warehouse, district)?;
            load_orders(connection, random, warehouse, district)?;
            progress(CUSTOMERS + ORDERS);
        }
    }
    connection.execute_batch("COMMIT")
}

fn load_customers(connection: &Connection, random: &mut Random, warehouse: u64, district: u64) -> Result<()> {
    let mut insert = connection.prepare("INSERT INTO customer VALUES(?1, ?2, ?3, ?4, -10, 10, 1, 0, ?5)")?;
    for customer in 1..=CUSTOMERS {
        let name = if customer <= 200 { customer - 1 } else { nurand(random, 255, 200) - 1 };
        insert.execute(params![warehouse, district, customer, last_name(name), text(random, 350, 500)])?;
    }
    Ok(())
}

fn load_orders(connection: &Connection, random: &mut Random, warehouse: u64, district: u64) -> Result<()> {
    let mut order = connection.prepare("INSERT INTO orders VALUES(?1, ?2, ?3, ?4, 0, ?5, ?6)")?;
    let mut line = connection.prepare("INSERT INTO order_line VALUES(?1, ?2, ?3, ?4, ?5, ?1, 0, 5, ?6, ?7)")?;
    let mut new = connection.prepare("INSERT INTO new_order VALUES(?1, ?2, ?3)")?;
    for number in 1..=ORDERS {
        let lines = within(random, 5, 15);
        // Multiplying by a number without a common divisor gives every customer one order.
        let customer = number * 7 % CUSTOMERS + 1;
        let delivered = number <= ORDERS - ORDERS / 3;
        let carrier = delivered.then(|| within(random, 1, 10));
        order.execute(params![warehouse, district, number, customer, carrier, lines])?;
        for at in 1..=lines {
            let (item, amount) = (within(random, 1, ITEMS), within(random, 1, 1_000_000));
            line.execute(params![warehouse, district, number, at, item, amount, text(random, 24, 24)])?;
        }
        if !delivered {
            new.execute([warehouse, district, number])?;
        }
    }
    Ok(())
}

/// Runs the n-th transaction of a seed's sequence and commits it. The transaction depends only on seed, number and the
/// database.
pub fn transaction(connection: &Connection, seed: u64, number: u64) -> Result<()> {
    let mut random = Random::new(Random::mix(seed) ^ number);
    connection.execute_batch("BEGIN IMMEDIATE")?;
    match random.below(100) {
        0..45 => new_order(connection, &mut random, number),
        45..88 => payment(connection, &mut random, number),
        88..92 => order_status(connection, &mut random),
        92..96 => delivery(connection, &mut random, number),
        _ => stock_level(connection, &mut random),
    }?;
    connection.prepare_cached("UPDATE committed SET number = ?1")?.execute([number])?;
    connection.execute_batch("COMMIT")
}

/// Number of the last transaction in the database.
pub fn committed(connection: &Connection) -> Result<u64> {
    connection.query_row("SELECT number FROM committed", [], |row| row.get(0))
}

fn run(connection: &Connection, sql: &str, parameters: impl rusqlite::Params) -> Result<usize> {
    connection.prepare_cached(sql)?.execute(parameters)
}

fn number(connection: &Connection, sql: &str, parameters: impl rusqlite::Params) -> Result<u64> {
    connection.prepare_cached(sql)?.query_row(parameters, |row| row.get(0))
}

fn new_order(connection: &Connection, random: &mut Random, at: u64) -> Result<()> {
    let (warehouse, district) = (within(random, 1, WAREHOUSES), within(random, 1, DISTRICTS));
    let customer = nurand(random, 1023, CUSTOMERS);
    number(
        connection,
        "SELECT balance + 1000000000 FROM customer WHERE w_id = ?1 AND d_id = ?2 AND c_id = ?3",
        [warehouse, district, customer],
    )?;
    let sql = "UPDATE district SET next_o_id = next_o_id + 1 WHERE w_id = ?1 AND d_id = ?2 RETURNING next_o_id - 1";
    let order = number(connection, sql, [warehouse, district])?;
    let lines = within(random, 5, 15);
    let values = [warehouse, district, order, customer, at, lines];
    run(connection, "INSERT INTO orders VALUES(?1, ?2, ?3, ?4, ?5, NULL, ?6)", values)?;
    run(connection, "INSERT INTO new_order VALUES(?1, ?2, ?3)", [warehouse, district, order])?;
    for line in 1..=lines {
        let item = nurand(random, 8191, ITEMS);
        // One line in a hundred comes from another warehouse.
        let remote = random.below(100) == 0;
        let supply = if remote { warehouse % WAREHOUSES + 1 } else { warehouse };
        let quantity = within(random, 1, 10);
        let price = number(connection, "SELECT price FROM item WHERE i_id = ?1", [item])?;
        let sql =
            "UPDATE stock SET quantity = CASE WHEN quantity >= ?3 + 10 THEN quantity - ?3 ELSE quantity - ?3 + 91 END,
                   ytd = ytd + ?3, orders = orders + 1, remote = remote + ?4 WHERE w_id = ?1 AND i_id = ?2";
        run(connection, sql, [supply, item, quantity, u64::from(remote)])?;
        let sql = "INSERT INTO order_line VALUES(?1, ?2, ?3, ?4, ?5, ?6, NULL, ?7, ?8, 'twenty-four characters..')";
        run(connection, sql, [warehouse, district, order, line, item, supply, quantity, quantity * price])?;
    }
    Ok(())
}

/// Finds a customer by number, or in sixty of a hundred cases by last name: the middle one of those with the name.
fn customer(connection: &Connection, random: &mut Random, warehouse: u64, district: u64) -> Result<u64> {
    if random.below(100) >= 60 {
        return Ok(nurand(random, 1023, CUSTOMERS));
    }
    let name = last_name(nurand(random, 255, 200) - 1);
    let sql = "SELECT c_id FROM customer WHERE w_id = ?1 AND d_id = ?2 AND last = ?3 ORDER BY c_id";
    let mut query = connection.prepare_cached(sql)?;
    let found = query.query_map(params![warehouse, district, name], |row| row.get(0))?;
    let found = found.collect::<Result<Vec<u64>>>()?;
    Ok(found[found.len() / 2])
}

fn payment(connection: &Connection, random: &mut Random, at: u64) -> Result<()> {
    let (warehouse, district) = (within(random, 1, WAREHOUSES), within(random, 1, DISTRICTS));
    // Fifteen of a hundred customers belong to another warehouse.
    let remote = random.below(100) < 15;
    let home = if remote { (warehouse % WAREHOUSES + 1, within(random, 1, DISTRICTS)) } else { (warehouse, district) };
    let customer = customer(connection, random, home.0, home.1)?;
    let amount = within(random, 1, 5000);
    run(connection, "UPDATE warehouse SET ytd = ytd + ?2 WHERE w_id = ?1", [warehouse, amount])?;
    run(connection, "UPDATE district SET ytd = ytd + ?3 WHERE w_id = ?1 AND d_id = ?2", [warehouse, district, amount])?;
    let sql = "UPDATE customer SET balance = balance - ?4, ytd_payment = ytd_payment + ?4, payments = payments + 1
               WHERE w_id = ?1 AND d_id = ?2 AND c_id = ?3";
    run(connection, sql, [home.0, home.1, customer, amount])?;
    let sql = "INSERT INTO history VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, 'warehouse    district')";
    run(connection, sql, [home.0, home.1, customer, warehouse, district, at, amount]).map(drop)
}

fn order_status(connection: &Connection, random: &mut Random) -> Result<()> {
    let (warehouse, district) = (within(random, 1, WAREHOUSES), within(random, 1, DISTRICTS));
    let customer = customer(connection, random, warehouse, district)?;
    let sql = "SELECT max(o_id) FROM orders WHERE w_id = ?1 AND d_id = ?2 AND c_id = ?3";
    let order = number(connection, sql, [warehouse, district, customer])?;
    let sql = "SELECT sum(amount) FROM order_line WHERE w_id = ?1 AND d_id = ?2 AND o_id = ?3";
    number(connection, sql, [warehouse, district, order]).map(drop)
}

/// Delivers the oldest new order of every district, except a district's only one: the conditions need the last.
fn delivery(connection: &Connection, random: &mut Random, at: u64) -> Result<()> {
    let (warehouse, carrier) = (within(random, 1, WAREHOUSES), within(random, 1, 10));
    for district in 1..=DISTRICTS {
        let sql = "SELECT min(o_id) FROM new_order WHERE w_id = ?1 AND d_id = ?2 HAVING count(*) > 1";
        let mut query = connection.prepare_cached(sql)?;
        let Some(order) = query.query_row([warehouse, district], |row| row.get::<_, u64>(0)).optional()? else {
            continue;
        };
        let key = [warehouse, district, order];
        run(connection, "DELETE FROM new_order WHERE w_id = ?1 AND d_id = ?2 AND o_id = ?3", key)?;
        let sql = "UPDATE orders SET carrier = ?4 WHERE w_id = ?1 AND d_id = ?2 AND o_id = ?3 RETURNING c_id";
        let customer = number(connection, sql, [warehouse, district, order, carrier])?;
        let sql = "UPDATE order_line SET delivered = ?4 WHERE w_id = ?1 AND d_id = ?2 AND o_id = ?3";
        run(connection, sql, [warehouse, district, order, at])?;
        let sql = "SELECT sum(amount) FROM order_line WHERE w_id = ?1 AND d_id = ?2 AND o_id = ?3";
        let sum = number(connection, sql, key)?;
        let sql = "UPDATE customer SET balance = balance + ?4, deliveries = deliveries + 1
                   WHERE w_id = ?1 AND d_id = ?2 AND c_id = ?3";
        run(connection, sql, [warehouse, district, customer, sum])?;
    }
    Ok(())
}

/// Counts the items of the last twenty orders that are short.
fn stock_level(connection: &Connection, random: &mut Random) -> Result<()> {
    let (warehouse, district) = (within(random, 1, WAREHOUSES), within(random, 1, DISTRICTS));
    let threshold = within(random, 10, 20);
    let sql = "SELECT count(DISTINCT s.i_id) FROM district d
               JOIN order_line l ON l.w_id = d.w_id AND l.d_id = d.d_id AND l.o_id >= d.next_o_id - 20
               JOIN stock s ON s.w_id = l.w_id AND s.i_id = l.i_id
               WHERE d.w_id = ?1 AND d.d_id = ?2 AND s.quantity < ?3";
    number(connection, sql, [warehouse, district, threshold]).map(drop)
}

/// Faults of a database: of its pages, by SQLite's own check, and of its contents, by TPC-C's conditions.
pub fn faults(connection: &Connection) -> Result<Vec<String>> {
    let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    let mut faults: Vec<String> = (sound != "ok").then(|| format!("integrity_check: {sound}")).into_iter().collect();
    for (condition, broken) in CONDITIONS {
        if connection.query_row(broken, [], |_| Ok(())).optional()?.is_some() {
            faults.push(format!("it does not hold that {condition}"));
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_keep_what_must_hold_and_what_breaks_it_is_found() {
        let connection = Connection::open_in_memory().expect("SQLite");
        load(&connection, 1, &|_| {}).expect("a load");
        assert_eq!(faults(&connection).expect("checks"), [""; 0]);
        (1..=300).try_for_each(|number| transaction(&connection, 1, number)).expect("transactions");
        assert_eq!(committed(&connection).expect("a number"), 300);
        assert_eq!(faults(&connection).expect("checks"), [""; 0]);
        let broken = [
            "UPDATE warehouse SET ytd = ytd + 1 WHERE w_id = 2",
            "UPDATE district SET next_o_id = next_o_id + 1 WHERE d_id = 3",
            "DELETE FROM new_order WHERE o_id = (SELECT max(o_id) - 1 FROM new_order)",
            "DELETE FROM order_line WHERE o_id = 5 AND number = 1 AND d_id = 1",
        ];
        for (at, sql) in broken.into_iter().enumerate() {
            connection.execute_batch(sql).expect("a change");
            let found = faults(&connection).expect("checks");
            assert_eq!(found.len(), at + 1, "{sql}: {found:?}");
            assert!(found.iter().any(|fault| fault.contains(CONDITIONS[at].0)), "{sql}: {found:?}");
        }
    }
}
