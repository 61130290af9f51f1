//! An analytic stream: queries one after another, as they reach the storage below a database whose pool keeps roots
//! and inner pages of indexes.
//!
//! Tables and indexes have the proportions of TPC-H. Each query is one of seven, two or three of each class that
//! Yang 2021 section 2.6 distinguishes (sequentially read; randomly read; randomly and repeatedly read), named after
//! members of the class there; how often q3 repeats its reads of `orders` and `lineitem` is from table 2.6. The events
//! carry labels such as `q3#5`: query 3, the sixth to run.

use super::draw::Permutation;
use super::{Item, Reference, Stream};
use entresol_core::{Op, Random};

/// Objects: name, size in thousandths of the whole.
const OBJECTS: [(&str, u64); 9] = [
    ("lineitem", 570),
    ("lineitem_pkey", 110),
    ("orders", 130),
    ("orders_pkey", 20),
    ("partsupp", 90),
    ("partsupp_pkey", 20),
    ("part", 25),
    ("part_pkey", 5),
    ("customer", 30),
];
const LINEITEM: u32 = 0;
const ORDERS: u32 = 2;
const PARTSUPP: u32 = 4;
const PART: u32 = 6;
const CUSTOMER: u32 = 8;

/// A piece of a query plan. The index of table `i` is object `i + 1`.
#[derive(Clone, Copy)]
enum Step {
    /// Every page of a table, in order, several to an I/O.
    Scan(u32),
    /// This per cent of the pages of a table, each once, in the random order in which a scan of its index meets them.
    Once(u32, u64),
    /// Lookups of random rows: leaf, then page; as many as this per cent of the pages of the table.
    Repeat(u32, u64),
}

/// Queries and their plans.
const QUERIES: [(&str, &[Step]); 7] = [
    ("q1", &[Step::Scan(LINEITEM)]),
    ("q10", &[Step::Scan(CUSTOMER), Step::Scan(ORDERS), Step::Scan(LINEITEM)]),
    ("q16", &[Step::Once(PART, 80), Step::Once(PARTSUPP, 90)]),
    ("q19", &[Step::Once(PART, 60), Step::Once(LINEITEM, 20)]),
    ("q3", &[Step::Scan(CUSTOMER), Step::Repeat(ORDERS, 1040), Step::Repeat(LINEITEM, 190)]),
    ("q9", &[Step::Scan(PART), Step::Repeat(PARTSUPP, 600), Step::Repeat(LINEITEM, 60)]),
    ("q13", &[Step::Scan(CUSTOMER), Step::Repeat(ORDERS, 1680)]),
];

/// The stream.
pub(super) struct Olap {
    /// Pages of each object.
    sizes: Vec<u64>,
    io: u64,
    random: Random,
    queries: u64,
    /// Steps of the running query that are still to come.
    plan: &'static [Step],
    step: Option<Running>,
    running: bool,
    /// The second reference of a lookup.
    then: Option<Reference>,
}

/// A step at work.
struct Running {
    step: Step,
    i: u64,
    count: u64,
    order: Permutation,
}

impl Olap {
    /// Tables and indexes of about `pages` pages together; scans read `io` pages in one I/O.
    pub fn new(pages: u64, io: u64, seed: u64) -> Self {
        let sizes = OBJECTS.iter().map(|(_, share)| (pages * share / 1000).max(1)).collect();
        let random = Random::new(seed);
        Olap { sizes, io, random, queries: 0, plan: &[], step: None, running: false, then: None }
    }

    fn start(&mut self, step: Step) -> Running {
        let (table, count) = match step {
            Step::Scan(table) => (table, self.sizes[table as usize]),
            Step::Once(table, percent) | Step::Repeat(table, percent) => {
                (table, (self.sizes[table as usize] * percent / 100).max(1))
            }
        };
        Running { step, i: 0, count, order: Permutation::new(self.sizes[table as usize], self.random.next_u64()) }
    }

    /// The next reference of the step, `None` when it is done.
    fn advance(&mut self) -> Option<Reference> {
        if let Some(page) = self.then.take() {
            return Some(page);
        }
        let running = self.step.as_mut()?;
        if running.i == running.count {
            self.step = None;
            return None;
        }
        let i = running.i;
        running.i += 1;
        match running.step {
            Step::Scan(table) => Some(read(table, i, i.is_multiple_of(self.io))),
            Step::Once(table, _) => {
                let page = read(table, running.order.map(i), true);
                let (leaves, pages) = (self.sizes[table as usize + 1], self.sizes[table as usize]);
                // The index is in the order of the lookups: a leaf is read when the lookups reach its first entry.
                let leaf = i * leaves / pages;
                if i > 0 && leaf == (i - 1) * leaves / pages {
                    return Some(page);
                }
                self.then = Some(page);
                Some(read(table + 1, leaf, true))
            }
            Step::Repeat(table, _) => {
                let page = self.random.below(self.sizes[table as usize]);
                let leaf = page * self.sizes[table as usize + 1] / self.sizes[table as usize];
                self.then = Some(read(table, page, true));
                Some(read(table + 1, leaf, true))
            }
        }
    }
}

fn read(object: u32, block: u64, first: bool) -> Reference {
    Reference { object, key: block, block, op: Op::Read, first }
}

impl Stream for Olap {
    fn names(&self) -> Vec<String> {
        OBJECTS.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    fn next(&mut self) -> Item {
        loop {
            if let Some(reference) = self.advance() {
                return Item::Reference(reference);
            }
            if let Some((step, rest)) = self.plan.split_first() {
                self.plan = rest;
                self.step = Some(self.start(*step));
                continue;
            }
            if self.running {
                self.running = false;
                return Item::End;
            }
            let (name, plan) = QUERIES[self.random.below(QUERIES.len() as u64) as usize];
            let label = format!("{name}#{}", self.queries);
            self.queries += 1;
            self.plan = plan;
            self.running = true;
            return Item::Begin(label);
        }
    }
}
