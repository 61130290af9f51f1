//! A policy under a pool: pages enter its tier when they leave the pool. A model of two LRU lists has the same counts. Of streams of writes
//! alone, whose pages leave the pool written, the policy decides as the lower of two stacked layers does, whose upper one is LRU.

use entresol_core::{Op, Page, Size};
use entresol_policy::catalogue;
use entresol_sim::{Addresses, CellOptions, LayerSpec, PolicySpec, Row, parse_policies, parse_stack, run_cell};
use entresol_trace::{Trace, generate};

const SEED: u64 = 11;

fn options(seed: u64) -> CellOptions {
    CellOptions { seed, ..CellOptions::default() }
}

fn pooled(policy: &PolicySpec, sizes: [usize; 2], addresses: &Addresses) -> Row {
    let layer = LayerSpec { policy: policy.clone(), sizes: sizes.map(|pages| Size::Pages(pages as u64)).to_vec() };
    run_cell(addresses, &[layer], String::new(), &options(SEED)).expect("a run")
}

/// The same as two layers. The seed of the lower one is one above that of the stack.
fn stacked(policy: &PolicySpec, sizes: [usize; 2], addresses: &Addresses) -> Row {
    let [dram, size] = sizes;
    let layers = parse_stack(&format!("lru:{dram},{}:{size}", policy.info.name)).expect("a stack");
    run_cell(addresses, &layers, String::new(), &options(SEED - 1)).expect("a run")
}

fn trace(spec: &str) -> Trace {
    generate(&spec.parse().expect("a trace specification"))
}

/// Pages of a pool or of the tier below it, the most recently used first; those that are newer than the level below.
#[derive(Default)]
struct Lru {
    capacity: usize,
    pages: Vec<(Page, bool)>,
}

impl Lru {
    fn find(&self, page: Page) -> Option<usize> {
        self.pages.iter().position(|&(there, _)| there == page)
    }

    fn use_again(&mut self, at: usize) {
        self.pages[..=at].rotate_right(1);
    }
}

/// An LRU pool above an LRU tier which pages enter when they leave the pool.
#[derive(Default)]
struct Model {
    pool: Lru,
    tier: Lru,
    hits: [u64; 2],
    fetches: u64,
    copied_up: u64,
    copied_down: u64,
    written_below: u64,
}

impl Model {
    fn access(&mut self, page: Page, op: Op) {
        let written = op.is_write();
        if let Some(at) = self.pool.find(page) {
            self.hits[usize::from(written)] += 1;
            self.pool.pages[at].1 |= written;
            return self.pool.use_again(at);
        }
        if self.pool.pages.len() == self.pool.capacity {
            self.leave();
        }
        match (self.tier.find(page), op) {
            (Some(at), Op::Read) => {
                self.hits[0] += 1;
                self.copied_up += 1;
                self.tier.use_again(at);
            }
            (Some(_), _) => self.hits[1] += 1,
            (None, Op::Read) => self.fetches += 1,
            (None, _) => {}
        }
        self.pool.pages.insert(0, (page, written));
    }

    fn leave(&mut self) {
        let (page, written) = self.pool.pages.pop().expect("it is full");
        match self.tier.find(page) {
            Some(_) if !written => return,
            Some(at) => {
                self.tier.use_again(at);
                self.tier.pages[0].1 = true;
            }
            None => {
                if self.tier.pages.len() == self.tier.capacity {
                    let (gone, dirty) = self.tier.pages.pop().expect("it is full");
                    // A version that is superseded in the pool is written nowhere.
                    let is_superseded = self.pool.find(gone).is_some_and(|at| self.pool.pages[at].1);
                    self.written_below += u64::from(dirty && !is_superseded);
                }
                self.tier.pages.insert(0, (page, written));
            }
        }
        self.copied_down += 1;
    }
}

#[test]
fn a_pool_above_lru_has_the_counts_of_two_lists() {
    let specs = [
        "zipf:n=20k:pages=2k:seed=1:write=40",
        "mixed:n=20k:pages=1k:seed=2:write=20",
        "uniform:n=8k:pages=300:seed=3:write=60",
        "zipf:n=20k:pages=2k:seed=4:write=0",
    ];
    let policy = &parse_policies("lru").expect("a policy")[0];
    for spec in specs {
        let trace = trace(spec);
        let addresses = Addresses::new(&trace);
        for sizes in [[1, 60], [20, 200], [200, 40], [150, 150]] {
            let [pool, tier] = sizes.map(|capacity| Lru { capacity, ..Lru::default() });
            let mut model = Model { pool, tier, ..Model::default() };
            (0..trace.len()).for_each(|at| {
                let request = trace.request(at);
                model.access(request.page, request.op);
            });
            let row = pooled(policy, sizes, &addresses);
            let [above, below] = &row.tiers[..] else { panic!("two tiers") };
            let found =
                [row.read_hits, row.write_hits, row.fetches, below.copied_out, below.copied_in, row.written_below()];
            let [reads, writes] = model.hits;
            let expected = [reads, writes, model.fetches, model.copied_up, model.copied_down, model.written_below];
            assert_eq!(found, expected, "{spec}, {sizes:?}");
            assert_eq!((above.fetched, below.fetched, below.installed), (row.fetches, 0, 0), "{spec}, {sizes:?}");
        }
    }
}

#[test]
fn a_pool_and_a_stack_have_the_same_requests_below_where_all_are_writes() {
    // No request is marked as sequential: a layer does not hear of that mark from the one above.
    let specs = [
        "zipf:n=20k:pages=2k:seed=1:write=100",
        "mixed:n=20k:pages=1k:seed=2:write=100",
        "uniform:n=8k:pages=300:seed=3:write=100",
    ];
    let (mut spared, mut exact) = (0, 0);
    for spec in specs {
        let trace = trace(spec);
        let addresses = Addresses::new(&trace);
        for info in catalogue::ALL.iter().filter(|info| info.tiers.len() == 1 && !info.future) {
            let policy = &parse_policies(info.name).expect("a policy")[0];
            for sizes in [[1, 60], [20, 200], [200, 40]] {
                let (ours, stack) = (pooled(policy, sizes, &addresses), stacked(policy, sizes, &addresses));
                let context = format!("{spec}, {}, {sizes:?}, seed {SEED}", info.name);
                assert_eq!(ours.policy, stack.policy, "{context}");
                assert_eq!(ours.read_hits, stack.read_hits, "{context}: read hits");
                assert_eq!(ours.fetches, stack.fetches, "{context}: fetches");
                // A layer of a stack writes below what is newer in the layer above as well.
                let (written, most) = (ours.written_below(), stack.written_below());
                assert!(written <= most, "{context}: {written} pages written below, {most} from a stack");
                spared += most - written;
                exact += u64::from(written == most);
                assert_eq!(ours.dirty_at_end, stack.dirty_at_end, "{context}: dirty at the end");
                // Writes of pages that the lower layer has count as hits, as they do for policies of two tiers.
                assert!(ours.write_hits >= stack.write_hits, "{context}: write hits");
            }
        }
    }
    println!("{spared} pages not written, equal in {exact} cells");
    assert!(spared > 0 && exact > 0);
}
