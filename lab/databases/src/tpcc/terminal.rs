//! A client's transactions and their inputs: clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1, 2.8.1 and 5.2.3.

use super::random::{Constants, customer, item, last_name, name_number, within};
use super::{DISTRICTS, Kind, Scale};
use entresol_core::Random;

/// Key by which a customer is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Customer {
    /// The number.
    Id(i64),
    /// The last name; of several customers with it, the middle one by first name.
    Name(String),
}

/// A line of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The item; none has this number if the order is to be rolled back.
    pub item: i64,
    /// The warehouse that supplies the item.
    pub supply: i64,
    /// Number of items ordered.
    pub quantity: i64,
}

/// A transaction to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// [`Kind::NewOrder`].
    NewOrder {
        /// The warehouse.
        warehouse: i64,
        /// The district.
        district: i64,
        /// The customer.
        customer: i64,
        /// Lines of the order, sorted as their rows are locked, so that two orders do not deadlock.
        lines: Vec<Line>,
    },
    /// [`Kind::Payment`].
    Payment {
        /// Warehouse and district of the payment.
        at: (i64, i64),
        /// Warehouse and district that the customer belongs to.
        home: (i64, i64),
        /// Customer who pays.
        customer: Customer,
        /// Amount paid, in cents.
        amount: i64,
        /// The key of the row of history.
        id: i64,
    },
    /// [`Kind::OrderStatus`].
    OrderStatus {
        /// Warehouse and district.
        at: (i64, i64),
        /// Customer who asks.
        customer: Customer,
    },
    /// [`Kind::Delivery`].
    Delivery {
        /// The warehouse.
        warehouse: i64,
        /// Number of the carrier.
        carrier: i64,
    },
    /// [`Kind::StockLevel`].
    StockLevel {
        /// Warehouse and district.
        at: (i64, i64),
        /// Quantity below which an item is short.
        threshold: i64,
    },
}

impl Input {
    /// Kind of the transaction.
    pub fn kind(&self) -> Kind {
        match self {
            Input::NewOrder { .. } => Kind::NewOrder,
            Input::Payment { .. } => Kind::Payment,
            Input::OrderStatus { .. } => Kind::OrderStatus,
            Input::Delivery { .. } => Kind::Delivery,
            Input::StockLevel { .. } => Kind::StockLevel,
        }
    }

    /// True if the transaction changes the database.
    pub fn writes(&self) -> bool {
        !matches!(self, Input::OrderStatus { .. } | Input::StockLevel { .. })
    }
}

/// A client: the sequence of its transactions.
#[derive(Clone, Debug)]
pub struct Terminal {
    scale: Scale,
    constants: Constants,
    random: Random,
    payments: i64,
}

impl Terminal {
    /// Payments that a client may make before its numbers reach those of the next.
    const PAYMENTS_MAX: i64 = 1 << 32;

    /// The client of this number, below a million, on a database that was loaded with this seed. A run on the database
    /// of an earlier run takes other numbers.
    pub fn new(scale: Scale, seed: u64, number: u64) -> Self {
        let random = Random::new(Random::mix(Random::mix(seed) ^ (number + 1)));
        let payments = (number as i64 + 1) * Self::PAYMENTS_MAX;
        Self { scale, constants: Constants::of_run(seed), random, payments }
    }

    /// The next transaction, its kind drawn by the specification's mix.
    pub fn next_input(&mut self) -> Input {
        let (drawn, warehouse) = (self.random.below(100), self.draw(1, self.scale.warehouses));
        match drawn {
            0..45 => self.new_order(warehouse),
            45..88 => self.payment(warehouse),
            88..92 => {
                let at = (warehouse, self.draw(1, DISTRICTS));
                Input::OrderStatus { at, customer: self.customer() }
            }
            92..96 => Input::Delivery { warehouse, carrier: self.draw(1, 10) },
            _ => Input::StockLevel { at: (warehouse, self.draw(1, DISTRICTS)), threshold: self.draw(10, 20) },
        }
    }

    fn draw(&mut self, low: u64, high: u64) -> i64 {
        within(&mut self.random, low, high) as i64
    }

    /// Any other warehouse, if there is one.
    fn other(&mut self, than: i64) -> i64 {
        if self.scale.warehouses == 1 {
            return than;
        }
        let drawn = self.draw(1, self.scale.warehouses - 1);
        if drawn < than { drawn } else { drawn + 1 }
    }

    fn customer(&mut self) -> Customer {
        let customers = self.scale.customers;
        if self.random.below(100) < 60 {
            return Customer::Name(last_name(name_number(&mut self.random, self.constants.name, customers)));
        }
        Customer::Id(customer(&mut self.random, self.constants, customers) as i64)
    }

    fn new_order(&mut self, warehouse: i64) -> Input {
        let district = self.draw(1, DISTRICTS);
        let customer = customer(&mut self.random, self.constants, self.scale.customers) as i64;
        let count = self.draw(5, 15);
        let rolled_back = self.random.below(100) == 0;
        let mut lines: Vec<Line> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let item = item(&mut self.random, self.constants, self.scale.items) as i64;
            let remote = self.random.below(100) == 0;
            let supply = if remote { self.other(warehouse) } else { warehouse };
            lines.push(Line { item, supply, quantity: self.draw(1, 10) });
        }
        lines.sort_by_key(|line| (line.supply, line.item));
        if let Some(last) = lines.last_mut().filter(|_| rolled_back) {
            last.item = self.scale.items as i64 + 1;
        }
        Input::NewOrder { warehouse, district, customer, lines }
    }

    fn payment(&mut self, warehouse: i64) -> Input {
        let at = (warehouse, self.draw(1, DISTRICTS));
        let remote = self.random.below(100) < 15;
        let home = if remote { (self.other(warehouse), self.draw(1, DISTRICTS)) } else { at };
        let customer = self.customer();
        self.payments += 1;
        Input::Payment { at, home, customer, amount: self.draw(100, 500_000), id: self.payments }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_ask_the_same_again_and_different_things() {
        let scale = Scale::new(4);
        let ask = |seed, number| {
            let mut terminal = Terminal::new(scale, seed, number);
            (0..500).map(|_| terminal.next_input()).collect::<Vec<_>>()
        };
        assert_eq!(ask(1, 2), ask(1, 2));
        assert_ne!(ask(1, 2), ask(1, 3));
        assert_ne!(ask(1, 2), ask(2, 2));
    }

    #[test]
    fn the_mix_and_the_shares_are_the_specifications() {
        let seed = 3;
        let scale = Scale::new(5);
        let mut terminal = Terminal::new(scale, seed, 0);
        let (mut kinds, mut rolled_back, mut remote, mut lines_all, mut by_name, mut away) = ([0u32; 5], 0, 0, 0, 0, 0);
        let count = 100_000;
        for _ in 0..count {
            let input = terminal.next_input();
            kinds[Kind::ALL.iter().position(|kind| *kind == input.kind()).expect("one of five")] += 1;
            match input {
                Input::NewOrder { warehouse, lines, .. } => {
                    assert!((5..=15).contains(&lines.len()), "seed {seed}");
                    rolled_back += u32::from(lines.iter().any(|line| line.item > scale.items as i64));
                    remote += lines.iter().filter(|line| line.supply != warehouse).count();
                    lines_all += lines.len();
                }
                Input::Payment { at, home, customer, .. } => {
                    by_name += u32::from(matches!(customer, Customer::Name(_)));
                    away += u32::from(at.0 != home.0);
                }
                _ => {}
            }
        }
        let near = |given: f64, expected: f64| (given / expected - 1.0).abs() < 0.1;
        let share = |part: u32| f64::from(part) / f64::from(count);
        for (kind, expected) in kinds.into_iter().zip([0.45, 0.43, 0.04, 0.04, 0.04]) {
            assert!(near(share(kind), expected), "seed {seed}: {kinds:?}");
        }
        assert!(near(f64::from(rolled_back) / f64::from(kinds[0]), 0.01), "seed {seed}: {rolled_back}");
        assert!(near(remote as f64 / lines_all as f64, 0.01), "seed {seed}: {remote}");
        assert!(near(f64::from(by_name) / f64::from(kinds[1]), 0.6), "seed {seed}: {by_name}");
        assert!(near(f64::from(away) / f64::from(kinds[1]), 0.15), "seed {seed}: {away}");
    }
}
