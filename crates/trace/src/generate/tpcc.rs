//! A TPC-C-like stream of page references, as a database makes them to its buffer pool.
//!
//! The five transaction types come in the standard mix (45 % new order, 43 % payment, 4 % each of order status,
//! delivery and stock level). Customers and items are chosen by the specification's NURand (clause 2.1.6). One line in
//! a hundred comes from a remote warehouse, 15 % of payments from a remote customer, and 60 % of customers are found
//! by last name. An index lookup references the pages from root to leaf, then the row's page. A row that is changed is
//! one [`Op::Update`]; the first row or entry on a fresh page is an [`Op::Write`], which needs no old contents.
//!
//! Left out, because they hardly touch pages: rolled-back orders, thinking times, and the reuse of deleted rows.

use super::tpcc_schema::{CUSTOMERS, DELIVERED, DISTRICTS, Heap, ITEMS, LOADED_LINES, ORDERS, Tree};
use super::{Item, Reference, Stream};
use entresol_core::{Op, Random};
use std::collections::HashMap;

/// Names, in the order of the object numbers below.
const NAMES: [&str; 19] = [
    "warehouse",
    "warehouse_pkey",
    "district",
    "district_pkey",
    "customer",
    "customer_pkey",
    "customer_name",
    "history",
    "new_order",
    "new_order_pkey",
    "orders",
    "orders_pkey",
    "orders_customer",
    "order_line",
    "order_line_pkey",
    "item",
    "item_pkey",
    "stock",
    "stock_pkey",
];

/// Multiplier of the order in which customers placed the loaded orders, and its inverse modulo [`CUSTOMERS`].
const SHUFFLE: u64 = 1013;
const UNSHUFFLE: u64 = 77;

/// An order placed during the run.
#[derive(Clone, Copy)]
struct Order {
    row: u64,
    new_order_row: u64,
    first_line: u64,
    first_line_key: u64,
    lines: u64,
    customer: u64,
}

/// State of a district: its orders and the keys of their lines.
struct District {
    /// Orders placed during the run, after the loaded ones.
    placed: Vec<Order>,
    /// Oldest order not delivered.
    undelivered: u64,
    /// Number of keys of order lines given out so far.
    line_keys: u64,
}

/// The stream.
pub(super) struct Tpcc {
    random: Random,
    warehouses: u64,
    /// The constants C of NURand for last names, customers and items.
    nurand: [u64; 3],
    warehouse: Heap,
    warehouse_pkey: Tree,
    district: Heap,
    district_pkey: Tree,
    customer: Heap,
    customer_pkey: Tree,
    customer_name: Tree,
    history: Heap,
    new_order: Heap,
    new_order_pkey: Tree,
    orders: Heap,
    orders_pkey: Tree,
    orders_customer: Tree,
    order_line: Heap,
    order_line_pkey: Tree,
    item: Heap,
    item_pkey: Tree,
    stock: Heap,
    stock_pkey: Tree,
    districts: Vec<District>,
    /// The newest order that a customer, numbered over all, placed during the run.
    newest: HashMap<u64, u64>,
    pending: Delayed,
}

/// References of the running transaction.
#[derive(Default)]
struct Delayed {
    references: Vec<Reference>,
    next: usize,
}

impl Delayed {
    /// References a page once more, unless it was also the last reference.
    fn touch(&mut self, object: u32, block: u64, op: Op) {
        let same = |last: &Reference| last.object == object && last.block == block && last.op == op;
        if !self.references.last().is_some_and(same) {
            self.references.push(Reference { object, key: block, block, op, first: true });
        }
    }

    fn row(&mut self, heap: &Heap, row: u64, op: Op) {
        self.touch(heap.object, heap.block(row), op);
    }

    fn append(&mut self, heap: &mut Heap) -> u64 {
        let (row, fresh) = heap.append();
        self.row(heap, row, if fresh { Op::Write } else { Op::Update });
        row
    }

    fn descend(&mut self, tree: &Tree, group: u64, ordinal: u64, op: Op) {
        let leaf = tree.leaf(group, ordinal);
        for page in tree.above(leaf) {
            self.touch(tree.object, page, Op::Read);
        }
        self.touch(tree.object, leaf, op);
    }

    fn insert(&mut self, tree: &mut Tree, group: u64, ordinal: u64) {
        let split = tree.append(group, ordinal);
        self.descend(tree, group, ordinal, if split { Op::Write } else { Op::Update });
        if split && let Some(parent) = tree.above(tree.leaf(group, ordinal)).last() {
            self.touch(tree.object, parent, Op::Update);
        }
    }

    fn lookup(&mut self, tree: &Tree, heap: &Heap, row: u64, op: Op) {
        self.descend(tree, 0, row, Op::Read);
        self.row(heap, row, op);
    }
}

impl Tpcc {
    pub fn new(warehouses: u64, seed: u64, page_bytes: u32) -> Self {
        let page = u64::from(page_bytes);
        let mut random = Random::new(seed);
        let (districts, customers) = (warehouses * DISTRICTS, warehouses * DISTRICTS * CUSTOMERS);
        let (orders, undelivered) = (districts * ORDERS, districts * (ORDERS - DELIVERED));
        let fresh = |_| District { placed: Vec::new(), undelivered: DELIVERED, line_keys: ORDERS * LOADED_LINES };
        Tpcc {
            warehouses,
            nurand: [random.below(256), random.below(1024), random.below(8192)],
            random,
            warehouse: Heap::new(0, 89, warehouses, page),
            warehouse_pkey: Tree::new(1, 8, 1, warehouses, false, page),
            district: Heap::new(2, 95, districts, page),
            district_pkey: Tree::new(3, 8, 1, districts, false, page),
            customer: Heap::new(4, 655, customers, page),
            customer_pkey: Tree::new(5, 16, 1, customers, false, page),
            customer_name: Tree::new(6, 40, 1, customers, false, page),
            history: Heap::new(7, 46, customers, page),
            new_order: Heap::new(8, 8, undelivered, page),
            new_order_pkey: Tree::new(9, 16, districts, ORDERS - DELIVERED, true, page),
            orders: Heap::new(10, 24, orders, page),
            orders_pkey: Tree::new(11, 16, districts, ORDERS, true, page),
            orders_customer: Tree::new(12, 16, 1, orders, false, page),
            order_line: Heap::new(13, 54, orders * LOADED_LINES, page),
            order_line_pkey: Tree::new(14, 16, districts, ORDERS * LOADED_LINES, true, page),
            item: Heap::new(15, 82, ITEMS, page),
            item_pkey: Tree::new(16, 8, 1, ITEMS, false, page),
            stock: Heap::new(17, 306, warehouses * ITEMS, page),
            stock_pkey: Tree::new(18, 8, 1, warehouses * ITEMS, false, page),
            districts: (0..districts).map(fresh).collect(),
            newest: HashMap::new(),
            pending: Delayed::default(),
        }
    }

    /// Non-uniform random in `0..len` (clause 2.1.6).
    fn nurand(&mut self, a: u64, constant: u64, len: u64) -> u64 {
        ((self.random.below(a + 1) | self.random.below(len)) + constant) % len
    }

    fn nurand_customer(&mut self) -> u64 {
        self.nurand(1023, self.nurand[1], CUSTOMERS)
    }

    fn nurand_item(&mut self) -> u64 {
        self.nurand(8191, self.nurand[2], ITEMS)
    }

    /// Another warehouse than this one, where there is another.
    fn remote(&mut self, home: u64) -> u64 {
        match self.warehouses {
            1 => home,
            warehouses => (home + 1 + self.random.below(warehouses - 1)) % warehouses,
        }
    }

    /// An order of a district, loaded or placed.
    fn order(&self, district: u64, number: u64) -> Order {
        match number.checked_sub(ORDERS) {
            Some(placed) => self.districts[district as usize].placed[placed as usize],
            None => {
                let row = district * ORDERS + number;
                let undelivered = ORDERS - DELIVERED;
                Order {
                    row,
                    new_order_row: district * undelivered + number.saturating_sub(DELIVERED),
                    first_line: row * LOADED_LINES,
                    first_line_key: number * LOADED_LINES,
                    lines: LOADED_LINES,
                    customer: number * SHUFFLE % CUSTOMERS,
                }
            }
        }
    }

    fn orders_of(&self, district: u64) -> u64 {
        ORDERS + self.districts[district as usize].placed.len() as u64
    }

    /// Runs one transaction.
    fn transaction(&mut self) {
        let warehouse = self.random.below(self.warehouses);
        let district = warehouse * DISTRICTS + self.random.below(DISTRICTS);
        match self.random.below(100) {
            0..45 => self.place_order(warehouse, district),
            45..88 => self.payment(warehouse, district),
            88..92 => self.order_status(district),
            92..96 => self.delivery(warehouse),
            _ => self.stock_level(warehouse, district),
        }
    }

    /// New order, clause 2.4.
    fn place_order(&mut self, warehouse: u64, district: u64) {
        let customer = self.nurand_customer();
        let over_all = district * CUSTOMERS + customer;
        self.pending.lookup(&self.warehouse_pkey, &self.warehouse, warehouse, Op::Read);
        self.pending.lookup(&self.district_pkey, &self.district, district, Op::Update);
        self.pending.lookup(&self.customer_pkey, &self.customer, over_all, Op::Read);
        let number = self.orders_of(district);
        let row = self.pending.append(&mut self.orders);
        self.pending.insert(&mut self.orders_pkey, district, number);
        self.pending.descend(&self.orders_customer, 0, over_all, Op::Update);
        let new_order_row = self.pending.append(&mut self.new_order);
        self.pending.insert(&mut self.new_order_pkey, district, number - DELIVERED);
        let lines = 5 + self.random.below(11);
        let first_line_key = self.districts[district as usize].line_keys;
        let mut first_line = None;
        for line in 0..lines {
            let item = self.nurand_item();
            let supplier = if self.random.below(100) == 0 { self.remote(warehouse) } else { warehouse };
            self.pending.lookup(&self.item_pkey, &self.item, item, Op::Read);
            self.pending.lookup(&self.stock_pkey, &self.stock, supplier * ITEMS + item, Op::Update);
            let line_row = self.pending.append(&mut self.order_line);
            first_line.get_or_insert(line_row);
            self.pending.insert(&mut self.order_line_pkey, district, first_line_key + line);
        }
        let first_line = first_line.expect("an order has at least five lines");
        let state = &mut self.districts[district as usize];
        state.line_keys += lines;
        state.placed.push(Order { row, new_order_row, first_line, first_line_key, lines, customer });
        self.newest.insert(over_all, number);
    }

    /// Finds a customer of a district, 60 % by last name. References all pages read on the way, and the customer's row
    /// with `op`. Three customers of a district bear each of its thousand names.
    fn find_customer(&mut self, district: u64, op: Op) -> u64 {
        if self.random.below(100) >= 60 {
            let customer = district * CUSTOMERS + self.nurand_customer();
            self.pending.lookup(&self.customer_pkey, &self.customer, customer, op);
            return customer;
        }
        let names = CUSTOMERS / 3;
        let name = self.nurand(255, self.nurand[0], names);
        self.pending.descend(&self.customer_name, 0, district * CUSTOMERS + name * 3, Op::Read);
        let bearers = [0, 1, 2].map(|k| district * CUSTOMERS + k * names + name);
        for bearer in bearers {
            self.pending.row(&self.customer, bearer, Op::Read);
        }
        if op.is_write() {
            self.pending.row(&self.customer, bearers[1], op);
        }
        bearers[1]
    }

    /// Payment, clause 2.5.
    fn payment(&mut self, warehouse: u64, district: u64) {
        self.pending.lookup(&self.warehouse_pkey, &self.warehouse, warehouse, Op::Update);
        self.pending.lookup(&self.district_pkey, &self.district, district, Op::Update);
        let of = if self.random.below(100) < 15 {
            self.remote(warehouse) * DISTRICTS + self.random.below(DISTRICTS)
        } else {
            district
        };
        self.find_customer(of, Op::Update);
        self.pending.append(&mut self.history);
    }

    /// Order status, clause 2.6: the newest order of a customer, with its lines.
    fn order_status(&mut self, district: u64) {
        let over_all = self.find_customer(district, Op::Read);
        let loaded = over_all % CUSTOMERS * UNSHUFFLE % CUSTOMERS;
        let number = self.newest.get(&over_all).copied().unwrap_or(loaded);
        let order = self.order(district, number);
        self.pending.descend(&self.orders_customer, 0, over_all, Op::Read);
        self.pending.row(&self.orders, order.row, Op::Read);
        self.lines(district, &order, Op::Read);
    }

    fn lines(&mut self, district: u64, order: &Order, op: Op) {
        self.pending.descend(&self.order_line_pkey, district, order.first_line_key, Op::Read);
        for row in order.first_line..order.first_line + order.lines {
            self.pending.row(&self.order_line, row, op);
        }
    }

    /// Delivery, clause 2.7: the oldest undelivered order of every district of a warehouse.
    fn delivery(&mut self, warehouse: u64) {
        for district in warehouse * DISTRICTS..(warehouse + 1) * DISTRICTS {
            let number = self.districts[district as usize].undelivered;
            if number == self.orders_of(district) {
                continue;
            }
            self.districts[district as usize].undelivered += 1;
            let order = self.order(district, number);
            self.pending.descend(&self.new_order_pkey, district, number - DELIVERED, Op::Update);
            self.pending.row(&self.new_order, order.new_order_row, Op::Update);
            self.pending.descend(&self.orders_pkey, district, number, Op::Read);
            self.pending.row(&self.orders, order.row, Op::Update);
            self.lines(district, &order, Op::Update);
            let customer = district * CUSTOMERS + order.customer;
            self.pending.lookup(&self.customer_pkey, &self.customer, customer, Op::Update);
        }
    }

    /// Stock level, clause 2.8: the items of the last 20 orders of a district, and their stock. The items of an order
    /// are not remembered; they are drawn anew from the same law.
    fn stock_level(&mut self, warehouse: u64, district: u64) {
        self.pending.lookup(&self.district_pkey, &self.district, district, Op::Read);
        let end = self.orders_of(district);
        let orders: Vec<Order> = (end - 20..end).map(|number| self.order(district, number)).collect();
        self.pending.descend(&self.order_line_pkey, district, orders[0].first_line_key, Op::Read);
        for order in &orders {
            let leaf = self.order_line_pkey.leaf(district, order.first_line_key);
            self.pending.touch(self.order_line_pkey.object, leaf, Op::Read);
            for row in order.first_line..order.first_line + order.lines {
                self.pending.row(&self.order_line, row, Op::Read);
            }
        }
        for _ in 0..orders.iter().map(|order| order.lines).sum() {
            let item = self.nurand_item();
            self.pending.lookup(&self.stock_pkey, &self.stock, warehouse * ITEMS + item, Op::Read);
        }
    }
}

impl Stream for Tpcc {
    fn names(&self) -> Vec<String> {
        NAMES.iter().map(|name| (*name).to_owned()).collect()
    }

    fn next(&mut self) -> Item {
        while self.pending.next == self.pending.references.len() {
            self.pending.references.clear();
            self.pending.next = 0;
            self.transaction();
        }
        self.pending.next += 1;
        Item::Reference(self.pending.references[self.pending.next - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shuffle_has_its_inverse() {
        assert_eq!(SHUFFLE * UNSHUFFLE % CUSTOMERS, 1);
    }
}
