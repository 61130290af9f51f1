//! Generators: seeded, and the same to the last bit on every machine, because no floating point decides a page.
//!
//! # Grammar
//!
//! ```text
//! spec    = mixture { "+" mixture }          phases, one after another
//! mixture = part { "|" part }                parts interleaved at random, each in its own order
//! part    = kind { ":" key "=" value }
//! ```
//!
//! In a mixture the next request comes from each part with a probability proportional to the requests that part still
//! has to give, so `n` is the weight and the counts are exact: `zipf:n=700k:pages=1M | scan:n=300k:base=1M`.
//!
//! Counts (`n`, `pages`, `base`, ...) are page counts in the notation of [`entresol_core::Size`] (`200k`, `64Ki`) or
//! bytes (`4GiB`), which are divided by the page size. Shares are whole per cents.
//!
//! | kind | its keys | the i-th reference goes to |
//! |---|---|---|
//! | `zipf` | `pages`, `exponent` = 1 | rank r with weight `floor(2^40 / r^exponent)` |
//! | `pareto` | `pages`, `hot` = 20, `to` = 80 | the first `hot` % of any leading part get `to` % of its references |
//! | `hotcold` | `pages`, `hot` = 20, `to` = 80 | the first `hot` % with `to` %, else the rest; uniform in each |
//! | `uniform` | `pages` | any page |
//! | `loop` | `pages` | page `i mod pages` |
//! | `scan` | | page i |
//! | `mixed` | `pages` | ten phases: zipf, one-touch scan over zipf, loop, uniform, and so on (the oracle trace) |
//! | `tpcc` | `warehouses` = 10 | pages, of tables and indexes, that five transaction types of TPC-C touch |
//! | `olap` | `pages` = 20000, `io` = 16 | pages that analytic queries read: scans and lookups, with query boundaries
//! |
//!
//! Every part has `n`, the number of page references; `seed` = 1; `gap` = 1, the microseconds to the next request.
//! All but `tpcc` and `olap`, which know their tables and writes, also have
//!
//! - `object` = `pages`: the name of the object; parts that name the same object share its pages;
//! - `base` = 0: the block of the part's first page;
//! - `ids` = `plain` (neighbouring ranks are neighbouring pages), `scattered` (the part's pages permuted among
//!   themselves by its seed: a new seed moves the hot spots, which is a phase change) or `hashed` (blocks are 64-bit
//!   hashes of the rank, as in the reference generator: no page has a neighbour);
//! - `write` = 0: per cent of the requests that write; `update` = 0: per cent of these that write only part of the
//!   page; `wseed` = 777: the i-th request of the part writes when `mix(wseed + (i + 1) * G) mod 100 < write`.
//!
//! Examples: `zipf:n=10M:pages=1M:seed=42:write=30`; a phase change `zipf:n=1M:pages=100k:ids=scattered:seed=1 +
//! zipf:n=1M:pages=100k:ids=scattered:seed=2:write=50`; `tpcc:n=1M | scan:n=100k:object=backup`.

mod collect;
mod draw;
mod olap;
mod spec;
mod tpcc;
mod tpcc_schema;
mod weights;

pub use collect::PageReference;
pub use spec::{GenerateSpec, SpecError};

use crate::{OpByte, Trace};
use collect::{Collector, OpenQuery};
use draw::Simple;
use entresol_core::{Op, Random};
use olap::Olap;
use spec::{Kind, Part};
use tpcc::Tpcc;

/// Item of a part's stream.
enum Item {
    Reference(Reference),
    /// A query of this label starts.
    Begin(String),
    /// The running query ends.
    End,
}

/// One page reference of a part.
#[derive(Clone, Copy)]
struct Reference {
    /// Index into the part's object names.
    object: u32,
    /// Key that stands for the page in the directory, see [`Collector::reference`].
    key: u64,
    block: u64,
    op: Op,
    first: bool,
}

/// An endless stream of references; its caller stops after the wanted number.
trait Stream {
    /// Names of the objects it references.
    fn names(&self) -> Vec<String>;
    fn next(&mut self) -> Item;
}

/// Generates the trace of a specification. Takes 13 bytes per request and 12 per page; while it runs, 4
/// more per page and 12 per rank of a table of weights.
///
/// A request is marked sequential when its part last made a request of the same direction (read or write) to the
/// block before it in the same object.
pub fn generate(spec: &GenerateSpec) -> Trace {
    let mut collector = Collector::new(spec.page_bytes, spec.requests() as usize);
    for mixture in &spec.phases {
        let mut lanes: Vec<Lane> = mixture.iter().map(|part| Lane::new(part, spec.page_bytes)).collect();
        let mut remaining: u64 = lanes.iter().map(|lane| lane.remaining).sum();
        let mut random = Random::new(mixture.iter().fold(0, |seed, part| Random::mix(seed ^ part.seed)));
        while remaining > 0 {
            let at = if lanes.len() == 1 { 0 } else { choose(&lanes, random.below(remaining)) };
            lanes[at].step(&mut collector);
            remaining -= 1;
        }
    }
    collector.finish(format!("generated: {spec}, pages of {} bytes", spec.page_bytes))
}

fn choose(lanes: &[Lane], mut ticket: u64) -> usize {
    for (at, lane) in lanes.iter().enumerate() {
        if ticket < lane.remaining {
            return at;
        }
        ticket -= lane.remaining;
    }
    unreachable!("a ticket is below the sum of what remains")
}

/// State of one of a lane's objects.
#[derive(Clone)]
struct LaneObject {
    name: String,
    /// Its number in the trace, once referenced.
    number: Option<u32>,
    /// The block after the last one read, and after the last one written.
    expected: [Option<u64>; 2],
}

/// A part at work.
struct Lane {
    stream: Box<dyn Stream>,
    remaining: u64,
    gap_us: u64,
    objects: Vec<LaneObject>,
    query: Option<OpenQuery>,
}

impl Lane {
    fn new(part: &Part, page_bytes: u32) -> Self {
        let stream: Box<dyn Stream> = match part.kind {
            Kind::Tpcc { warehouses } => Box::new(Tpcc::new(warehouses, part.seed, page_bytes)),
            Kind::Olap { pages, io } => Box::new(Olap::new(pages, io, part.seed)),
            _ => Box::new(Simple::new(part)),
        };
        let unseen = |name| LaneObject { name, number: None, expected: [None; 2] };
        let objects = stream.names().into_iter().map(unseen).collect();
        Lane { stream, remaining: part.n, gap_us: part.gap_us, objects, query: None }
    }

    /// Advances by one request and the events before it; after the last request ends the running query.
    fn step(&mut self, collector: &mut Collector) {
        loop {
            match self.stream.next() {
                Item::Begin(label) => self.query = Some(collector.begin_query(label)),
                Item::End => self.end_query(collector),
                Item::Reference(reference) => {
                    self.reference(&reference, collector);
                    break;
                }
            }
        }
        self.remaining -= 1;
        if self.remaining == 0 {
            self.end_query(collector);
        }
    }

    fn end_query(&mut self, collector: &mut Collector) {
        if let Some(query) = self.query.take() {
            collector.end_query(query);
        }
    }

    #[inline]
    fn reference(&mut self, reference: &Reference, collector: &mut Collector) {
        let object = &mut self.objects[reference.object as usize];
        let number = *object.number.get_or_insert_with(|| collector.object(&object.name));
        let expected = &mut object.expected[usize::from(reference.op.is_write())];
        let sequential = *expected == Some(reference.block);
        *expected = reference.block.checked_add(1);
        if let Some(query) = &mut self.query {
            query.uses(number);
        }
        let byte = OpByte::new(reference.op, sequential, reference.first);
        collector.reference(number, reference.key, reference.block, byte);
        collector.advance(self.gap_us);
    }
}
