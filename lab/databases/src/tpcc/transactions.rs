//! The five transactions: clauses 2.4.2, 2.5.2, 2.6.2, 2.7.4, 2.8.2.

use super::terminal::{Customer, Input, Line};
use super::{DISTRICTS, Entry};
use crate::driver::{Row, Session, Value, one};
use crate::{DriverError, Failure};
use std::time::{SystemTime, UNIX_EPOCH};

/// Outcome of a transaction that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Committed, as the database acknowledged; with an entry if the transaction changed rows.
    Committed(Option<Entry>),
    /// Rolled back because an ordered item does not exist, as in one of a hundred.
    RolledBack,
}

/// A transaction that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The database's error.
    pub error: DriverError,
    /// Entry that may be committed all the same, because the commit itself failed.
    pub in_doubt: Option<Entry>,
}

impl From<DriverError> for Failed {
    fn from(error: DriverError) -> Self {
        Self { error, in_doubt: None }
    }
}

/// Carries out a transaction, once.
///
/// # Errors
/// The database's error; the transaction is rolled back then, or in doubt.
pub fn perform(session: &mut dyn Session, input: &Input) -> Result<Done, Failed> {
    session.begin(input.writes())?;
    let worked = match input {
        Input::NewOrder { warehouse, district, customer, lines } => {
            new_order(session, *warehouse, *district, *customer, lines)
        }
        Input::Payment { at, home, customer, amount, id } => {
            payment(session, *at, *home, customer, *amount, *id).map(Some).map(Some)
        }
        Input::OrderStatus { at, customer } => order_status(session, *at, customer).map(|()| Some(None)),
        Input::Delivery { warehouse, carrier } => delivery(session, *warehouse, *carrier).map(Some).map(Some),
        Input::StockLevel { at, threshold } => stock_level(session, *at, *threshold).map(|()| Some(None)),
    };
    match worked {
        Ok(Some(entry)) => match session.commit() {
            Ok(()) => Ok(Done::Committed(entry)),
            Err(error) if error.failure == Failure::Transient => {
                session.rollback()?;
                Err(error.into())
            }
            Err(error) => Err(Failed { error, in_doubt: entry }),
        },
        Ok(None) => {
            session.rollback()?;
            Ok(Done::RolledBack)
        }
        Err(error) => {
            if error.failure != Failure::Lost {
                session.rollback()?;
            }
            Err(error.into())
        }
    }
}

fn now() -> Value {
    Value::Int(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64))
}

fn ints<const N: usize>(numbers: [i64; N]) -> [Value; N] {
    numbers.map(Value::Int)
}

fn select(session: &mut dyn Session, sql: &'static str, parameters: &[Value]) -> Result<Row, DriverError> {
    one(session.query(sql, parameters)?, sql)
}

/// Changes a row, which must exist.
fn change(session: &mut dyn Session, sql: &'static str, parameters: &[Value]) -> Result<(), DriverError> {
    match session.execute(sql, parameters)? {
        1 => Ok(()),
        count => Err(DriverError {
            database: "the database",
            failure: Failure::Refused,
            text: format!("{count} rows changed, not one: {sql}"),
        }),
    }
}

macro_rules! stock_of {
    ($district:literal) => {
        concat!(
            "SELECT s_quantity, s_data, s_dist_",
            $district,
            " FROM stock WHERE s_w_id = $1 AND s_i_id = $2 FOR UPDATE"
        )
    };
}

/// One statement for each district, whose information goes into the line.
const STOCK: [&str; DISTRICTS as usize] = [
    stock_of!("01"),
    stock_of!("02"),
    stock_of!("03"),
    stock_of!("04"),
    stock_of!("05"),
    stock_of!("06"),
    stock_of!("07"),
    stock_of!("08"),
    stock_of!("09"),
    stock_of!("10"),
];

/// Returns none if an item does not exist.
fn new_order(
    session: &mut dyn Session,
    warehouse: i64,
    district: i64,
    customer: i64,
    lines: &[Line],
) -> Result<Option<Option<Entry>>, DriverError> {
    let found = select(
        session,
        "SELECT c_discount, w_tax FROM customer, warehouse
         WHERE w_id = $1 AND c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
        &ints([warehouse, district, customer]),
    )?;
    let (_discount, _tax) = (found[0].int()?, found[1].int()?);
    let found = select(
        session,
        "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = $1 AND d_id = $2 FOR UPDATE",
        &ints([warehouse, district]),
    )?;
    let order = found[0].int()?;
    let sql = "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2";
    change(session, sql, &ints([warehouse, district]))?;
    let all_local = lines.iter().all(|line| line.supply == warehouse);
    let [w, d, o, c, count, local] = ints([warehouse, district, order, customer, lines.len() as i64, all_local.into()]);
    change(
        session,
        "INSERT INTO orders(o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
         VALUES($1, $2, $3, $4, $5, $6, $7)",
        &[w, d, o, c, now(), count, local],
    )?;
    let sql = "INSERT INTO new_order(no_w_id, no_d_id, no_o_id) VALUES($1, $2, $3)";
    change(session, sql, &ints([warehouse, district, order]))?;
    for (at, line) in lines.iter().enumerate() {
        let sql = "SELECT i_price, i_name, i_data FROM item WHERE i_id = $1";
        let Some(item) = session.query(sql, &ints([line.item]))?.into_iter().next() else { return Ok(None) };
        let stock = select(session, STOCK[district as usize - 1], &ints([line.supply, line.item]))?;
        let left = stock[0].int()? - line.quantity;
        let left = if left >= 10 { left } else { left + 91 };
        change(
            session,
            "UPDATE stock SET s_quantity = $3, s_ytd = s_ytd + $4, s_order_cnt = s_order_cnt + 1,
             s_remote_cnt = s_remote_cnt + $5 WHERE s_w_id = $1 AND s_i_id = $2",
            &ints([line.supply, line.item, left, line.quantity, i64::from(line.supply != warehouse)]),
        )?;
        let mut row: Row = ints([warehouse, district, order, at as i64 + 1, line.item, line.supply]).into();
        row.extend(ints([line.quantity, line.quantity * item[0].int()?]));
        row.push(stock[2].clone());
        change(
            session,
            "INSERT INTO order_line(ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity,
             ol_amount, ol_dist_info) VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            &row,
        )?;
    }
    let lines = lines.len() as i64;
    Ok(Some(Some(Entry::Order { warehouse, district, order, customer, lines })))
}

/// The number of a customer.
fn identify(session: &mut dyn Session, at: (i64, i64), customer: &Customer) -> Result<i64, DriverError> {
    match customer {
        Customer::Id(id) => Ok(*id),
        Customer::Name(name) => {
            let sql = "SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first";
            let found = session.query(sql, &[Value::Int(at.0), Value::Int(at.1), name.as_str().into()])?;
            let middle = found.len().div_ceil(2).saturating_sub(1);
            one(found.into_iter().skip(middle).collect(), sql)?[0].int()
        }
    }
}

fn payment(
    session: &mut dyn Session,
    at: (i64, i64),
    home: (i64, i64),
    customer: &Customer,
    amount: i64,
    id: i64,
) -> Result<Entry, DriverError> {
    let sql = "UPDATE warehouse SET w_ytd = w_ytd + $2 WHERE w_id = $1";
    change(session, sql, &ints([at.0, amount]))?;
    let sql = "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = $1";
    let warehouse = select(session, sql, &ints([at.0]))?;
    let sql = "UPDATE district SET d_ytd = d_ytd + $3 WHERE d_w_id = $1 AND d_id = $2";
    change(session, sql, &ints([at.0, at.1, amount]))?;
    let sql = "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district
               WHERE d_w_id = $1 AND d_id = $2";
    let district = select(session, sql, &ints([at.0, at.1]))?;
    let number = identify(session, home, customer)?;
    let key = ints([home.0, home.1, number]);
    let sql = "SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since,
               c_credit, c_credit_lim, c_discount, c_balance FROM customer
               WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 FOR UPDATE";
    let found = select(session, sql, &key)?;
    let [w, d, c] = key;
    if found[10].text()? == "BC" {
        let sql = "SELECT c_data FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
        let data = select(session, sql, &[w.clone(), d.clone(), c.clone()])?;
        let before = data[0].text()?;
        let mut data = format!("{number} {} {} {} {} {amount} {before}", home.1, home.0, at.1, at.0);
        data.truncate(500);
        let sql = "UPDATE customer SET c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4,
                   c_payment_cnt = c_payment_cnt + 1, c_data = $5 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
        change(session, sql, &[w, d, c, Value::Int(amount), data.into()])?;
    } else {
        let sql = "UPDATE customer SET c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4,
                   c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
        change(session, sql, &[w, d, c, Value::Int(amount)])?;
    }
    let mut row: Row = ints([id, number, home.1, home.0, at.1, at.0]).into();
    row.extend([now(), Value::Int(amount), format!("{}    {}", warehouse[0].text()?, district[0].text()?).into()]);
    let sql = "INSERT INTO history(h_id, h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
               VALUES($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    change(session, sql, &row)?;
    Ok(Entry::Payment { id, amount })
}

fn order_status(session: &mut dyn Session, at: (i64, i64), customer: &Customer) -> Result<(), DriverError> {
    let number = identify(session, at, customer)?;
    let sql = "SELECT c_first, c_middle, c_last, c_balance FROM customer
               WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
    select(session, sql, &ints([at.0, at.1, number]))?;
    let sql = "SELECT o_id, o_entry_d, o_carrier_id FROM orders
               WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1";
    let order = select(session, sql, &ints([at.0, at.1, number]))?[0].int()?;
    let sql = "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
               WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3";
    session.query(sql, &ints([at.0, at.1, order])).map(drop)
}

fn delivery(session: &mut dyn Session, warehouse: i64, carrier: i64) -> Result<Entry, DriverError> {
    let mut orders = Vec::new();
    for district in 1..=DISTRICTS as i64 {
        let sql = "SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2
                   ORDER BY no_o_id LIMIT 1 FOR UPDATE";
        let Some(oldest) = session.query(sql, &ints([warehouse, district]))?.into_iter().next() else { continue };
        let key = ints([warehouse, district, oldest[0].int()?]);
        let sql = "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3";
        change(session, sql, &key)?;
        let sql = "SELECT o_c_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3";
        let customer = select(session, sql, &key)?[0].int()?;
        let [w, d, o] = key.clone();
        let sql = "UPDATE orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3";
        change(session, sql, &[w.clone(), d.clone(), o.clone(), Value::Int(carrier)])?;
        let sql = "UPDATE order_line SET ol_delivery_d = $4 WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3";
        session.execute(sql, &[w, d, o, now()])?;
        let sql = "SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3";
        let sum = select(session, sql, &key)?[0].int()?;
        let sql = "UPDATE customer SET c_balance = c_balance + $4, c_delivery_cnt = c_delivery_cnt + 1
                   WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
        change(session, sql, &ints([warehouse, district, customer, sum]))?;
        orders.push((district, oldest[0].int()?));
    }
    Ok(Entry::Delivery { warehouse, carrier, orders })
}

fn stock_level(session: &mut dyn Session, at: (i64, i64), threshold: i64) -> Result<(), DriverError> {
    let sql = "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2";
    let next = select(session, sql, &ints([at.0, at.1]))?[0].int()?;
    let sql = "SELECT count(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = $1 AND ol_d_id = $2
               AND ol_o_id >= $3 AND ol_o_id < $4 AND s_w_id = $1 AND s_i_id = ol_i_id AND s_quantity < $5";
    select(session, sql, &ints([at.0, at.1, next - 20, next, threshold])).map(drop)
}
