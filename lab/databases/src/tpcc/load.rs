//! The first contents: clause 4.3.3. Every row depends on the seed and its key alone, so tables can be made in any order.

use super::random::{self, Constants, data, digits, last_name, name_number, text, within};
use super::{DISTRICTS, INDEXES, Scale, TABLES};
use crate::BenchError;
use crate::driver::{Row, Session, Value};
use crate::load::fill;
use entresol_core::Random;
use std::sync::atomic::AtomicBool;

/// Time of the load in microseconds since 1970: a constant, so that two loads of a seed are the same.
const LOADED_AT: i64 = 1_000_000_000_000_000;

/// Makes the tables and fills them. `progress` receives the number of further rows; `ended` ends the load early.
///
/// # Errors
/// The database's error, or [`BenchError::Interrupted`].
pub fn load(
    session: &mut dyn Session,
    scale: Scale,
    seed: u64,
    ended: &AtomicBool,
    progress: &dyn Fn(u64),
) -> Result<(), BenchError> {
    fill(session, &TABLES, |table| rows(table.name, scale, seed), &INDEXES, ended, progress)
}

/// A stream of random numbers for a row or a group of rows of the table `of`.
fn stream(seed: u64, of: u64, keys: [u64; 3]) -> Random {
    Random::new(keys.iter().fold(Random::mix(seed ^ (of << 56)), |mixed, key| Random::mix(mixed ^ key)))
}

fn int(number: u64) -> Value {
    Value::Int(number as i64)
}

/// The keys of all districts.
fn districts(scale: Scale) -> impl Iterator<Item = (u64, u64)> {
    (1..=scale.warehouses).flat_map(|warehouse| (1..=DISTRICTS).map(move |district| (warehouse, district)))
}

/// The keys of all customers; orders have the same ones.
fn thirds(scale: Scale) -> impl Iterator<Item = (u64, u64, u64)> {
    districts(scale)
        .flat_map(move |(warehouse, district)| (1..=scale.customers).map(move |third| (warehouse, district, third)))
}

/// The rows of a table, as they are loaded.
///
/// # Panics
/// When there is no table of this name.
pub fn rows(table: &str, scale: Scale, seed: u64) -> Box<dyn Iterator<Item = Row>> {
    match table {
        "item" => Box::new((1..=scale.items).map(move |id| item(stream(seed, 1, [id, 0, 0]), id))),
        "warehouse" => {
            Box::new((1..=scale.warehouses).map(move |id| warehouse(stream(seed, 2, [id, 0, 0]), id, scale)))
        }
        "stock" => Box::new((1..=scale.warehouses).flat_map(move |warehouse| {
            (1..=scale.items).map(move |item| stock(stream(seed, 3, [warehouse, item, 0]), warehouse, item))
        })),
        "district" => Box::new(districts(scale).map(move |(w, d)| district(stream(seed, 4, [w, d, 0]), w, d, scale))),
        "customer" => {
            let constants = Constants::of_load(seed);
            Box::new(
                thirds(scale).map(move |(w, d, c)| customer(stream(seed, 5, [w, d, c]), constants, (w, d, c), scale)),
            )
        }
        "history" => Box::new(thirds(scale).enumerate().map(move |(at, (w, d, c))| {
            let data = text(&mut stream(seed, 6, [w, d, c]), 12, 24);
            let keys = [at as u64 + 1, c, d, w, d, w].map(int);
            keys.into_iter().chain([Value::Int(LOADED_AT), Value::Int(1000), data.into()]).collect()
        })),
        "orders" => Box::new(orders(scale, seed).map(|order| order.row())),
        "new_order" => Box::new(
            orders(scale, seed)
                .filter(|order| !order.delivered)
                .map(|order| [order.warehouse, order.district, order.id].map(int).into()),
        ),
        "order_line" => Box::new(orders(scale, seed).flat_map(move |order| order.lines(scale))),
        other => panic!("no table {other}"),
    }
}

fn item(mut random: Random, id: u64) -> Row {
    let random = &mut random;
    vec![
        int(id),
        int(within(random, 1, 10_000)),
        text(random, 14, 24).into(),
        int(within(random, 100, 10_000)),
        data(random).into(),
    ]
}

/// An address: two streets, city, state, zip.
fn address(random: &mut Random) -> [Value; 5] {
    let state: String = (0..2).map(|_| char::from(b'A' + random.below(26) as u8)).collect();
    [
        text(random, 10, 20).into(),
        text(random, 10, 20).into(),
        text(random, 10, 20).into(),
        state.into(),
        (digits(random, 4) + "11111").into(),
    ]
}

fn warehouse(mut random: Random, id: u64, scale: Scale) -> Row {
    let random = &mut random;
    let mut row = vec![int(id), text(random, 6, 10).into()];
    row.extend(address(random));
    row.extend([int(within(random, 0, 2000)), int(DISTRICTS * scale.customers * 1000)]);
    row
}

fn stock(mut random: Random, warehouse: u64, item: u64) -> Row {
    let random = &mut random;
    let mut row = vec![int(warehouse), int(item), int(within(random, 10, 100))];
    row.extend((0..10).map(|_| Value::from(text(random, 24, 24))));
    row.extend([int(0), int(0), int(0), data(random).into()]);
    row
}

fn district(mut random: Random, warehouse: u64, district: u64, scale: Scale) -> Row {
    let random = &mut random;
    let mut row = vec![int(warehouse), int(district), text(random, 6, 10).into()];
    row.extend(address(random));
    row.extend([int(within(random, 0, 2000)), int(scale.customers * 1000), int(scale.customers + 1)]);
    row
}

fn customer(mut random: Random, constants: Constants, key: (u64, u64, u64), scale: Scale) -> Row {
    let random = &mut random;
    let (warehouse, district, id) = key;
    let names = random::names(scale.customers);
    // Every name has a customer.
    let name = if id <= names { id - 1 } else { name_number(random, constants.name, scale.customers) };
    let mut row = vec![int(warehouse), int(district), int(id)];
    row.extend([text(random, 8, 16).into(), "OE".into(), last_name(name).into()]);
    row.extend(address(random));
    let credit = if random.below(10) == 0 { "BC" } else { "GC" };
    row.extend([digits(random, 16).into(), Value::Int(LOADED_AT), credit.into(), int(5_000_000)]);
    row.extend([int(within(random, 0, 5000)), Value::Int(-1000), int(1000), int(1), int(0)]);
    row.push(text(random, 300, 500).into());
    row
}

/// A loaded order.
struct Order {
    warehouse: u64,
    district: u64,
    id: u64,
    customer: u64,
    delivered: bool,
    carrier: u64,
    lines: u64,
    random: Random,
}

fn orders(scale: Scale, seed: u64) -> impl Iterator<Item = Order> {
    districts(scale).flat_map(move |(warehouse, district)| {
        let mut customers: Vec<u64> = (1..=scale.customers).collect();
        let mut random = stream(seed, 7, [warehouse, district, 0]);
        for at in (1..customers.len()).rev() {
            customers.swap(at, random.below(at as u64 + 1) as usize);
        }
        customers.into_iter().enumerate().map(move |(at, customer)| {
            let id = at as u64 + 1;
            let mut random = stream(seed, 8, [warehouse, district, id]);
            let (lines, carrier) = (within(&mut random, 5, 15), within(&mut random, 1, 10));
            let delivered = id <= scale.customers - scale.undelivered();
            Order { warehouse, district, id, customer, delivered, carrier, lines, random }
        })
    })
}

impl Order {
    fn row(&self) -> Row {
        let carrier = if self.delivered { int(self.carrier) } else { Value::Null };
        let mut row: Row = [self.warehouse, self.district, self.id, self.customer].map(int).into();
        row.extend([Value::Int(LOADED_AT), carrier, int(self.lines), int(1)]);
        row
    }

    fn lines(self, scale: Scale) -> impl Iterator<Item = Row> {
        let mut random = self.random.clone();
        (1..=self.lines).map(move |number| {
            let item = within(&mut random, 1, scale.items);
            // Delivered lines have amount 0.
            let (delivered, amount) = match self.delivered {
                true => (Value::Int(LOADED_AT), 0),
                false => (Value::Null, within(&mut random, 1, 999_999)),
            };
            let mut row: Row = [self.warehouse, self.district, self.id, number, item, self.warehouse].map(int).into();
            row.extend([delivered, int(5), int(amount), text(&mut random, 24, 24).into()]);
            row
        })
    }
}
