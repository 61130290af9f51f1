//! The write buffers beside plain models of their texts, event by event: a vector of blocks, times instead of lists,
//! every victim found by a search through all blocks.

use entresol_core::{Movement, Op, Outcome, Page, Request, Tier, Verb};
use entresol_policy::check::{self, Checker, Layout, Refusals};
use entresol_policy::{Config, Driver, Options, Policy, writebuffer};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Three objects whose length is no multiple of eight: the last block of each is a short one.
const LAYOUT: Layout = Layout { pages: 60, object_pages: 20 };

fn single(page: u32, verb: Verb) -> Movement {
    Movement { page: Page(page), verb, joined: false }
}

/// Object and number of the block of a page.
fn block_of(page: u32, block: u32) -> (u32, u32) {
    (page / LAYOUT.object_pages, page % LAYOUT.object_pages / block)
}

#[derive(Clone, Debug)]
struct Block {
    id: (u32, u32),
    pages: BTreeSet<u32>,
    /// Time of the last write.
    written: u64,
    /// The writes since the last one to the first page of the block.
    sequence: Vec<u32>,
    /// Time at which the block was last written in sequence to the end, unless it was written again.
    completed: Option<u64>,
    /// LB-CLOCK: time at which the hand cleared the block's bit.
    cleared: Option<u64>,
    /// CLC: true if the block is in the size-independent list.
    hot: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Fab,
    Bplru { compensation: bool, padding: bool },
    LbClock { sequential: bool },
    Clc { hot: usize },
    Wrb { threshold: usize },
}

struct Model {
    kind: Kind,
    block: u32,
    capacity: usize,
    /// Blocks in the order in which the hand of LB-CLOCK meets them.
    blocks: Vec<Block>,
    clock: u64,
    out: Vec<Movement>,
}

impl Model {
    fn new(kind: Kind, block: u32, capacity: usize) -> Self {
        Model { kind, block, capacity, blocks: vec![], clock: 0, out: vec![] }
    }

    fn access(&mut self, request: Request) -> (Outcome, Vec<Movement>) {
        self.out.clear();
        self.clock += 1;
        let page = request.page.0;
        let id = block_of(page, self.block);
        let held = self.blocks.iter().any(|b| b.pages.contains(&page));
        if request.op == Op::Read {
            if !held {
                self.out.push(single(page, Verb::Bypass));
            }
            let outcome = if held { Outcome::Hit(Tier::TOP) } else { Outcome::BYPASSED };
            return (outcome, self.out.clone());
        }
        self.refer(id);
        if !held && self.blocks.iter().map(|b| b.pages.len()).sum::<usize>() == self.capacity {
            let victim = self.victim();
            self.flush(victim);
        }
        self.out.push(single(page, Verb::Install { to: Tier::TOP }));
        self.insert(id, page);
        (if held { Outcome::Hit(Tier::TOP) } else { Outcome::ADMITTED }, self.out.clone())
    }

    /// A write refers to its block, which may not be there.
    fn refer(&mut self, id: (u32, u32)) {
        let now = self.clock;
        if let Some(block) = self.blocks.iter_mut().find(|b| b.id == id) {
            block.written = now;
            block.completed = None;
            block.cleared = None;
            block.hot = true;
        }
        self.cool();
    }

    fn insert(&mut self, id: (u32, u32), page: u32) {
        let now = self.clock;
        if !self.blocks.iter().any(|b| b.id == id) {
            let pages = BTreeSet::new();
            let sequence = vec![];
            self.blocks.push(Block { id, pages, written: now, sequence, completed: None, cleared: None, hot: true });
        }
        let first = id.0 * LAYOUT.object_pages + id.1 * self.block;
        let whole: Vec<u32> = (first..first + self.block).collect();
        let block = self.blocks.iter_mut().find(|b| b.id == id).unwrap();
        block.pages.insert(page);
        block.cleared = None;
        if page == first {
            block.sequence.clear();
        }
        block.sequence.push(page);
        if block.sequence == whole && whole.len() > 1 {
            block.completed = Some(now);
        }
        self.cool();
    }

    /// CLC: the least recent clusters leave a size-independent list that is too long.
    fn cool(&mut self) {
        let Kind::Clc { hot } = self.kind else { return };
        loop {
            let list: Vec<&Block> = self.blocks.iter().filter(|b| b.hot).collect();
            if list.len() <= 1 || list.iter().map(|b| b.pages.len()).sum::<usize>() <= hot {
                return;
            }
            let oldest = list.iter().min_by_key(|b| b.written).unwrap().id;
            self.blocks.iter_mut().find(|b| b.id == oldest).unwrap().hot = false;
        }
    }

    fn victim(&mut self) -> (u32, u32) {
        let oldest = |b: &&Block| b.written;
        let blocks = || self.blocks.iter();
        let victim = match self.kind {
            Kind::Fab => blocks().max_by_key(|b| (b.pages.len(), Reverse(b.written))),
            Kind::Bplru { compensation, .. } => {
                let completed = blocks().filter(|b| compensation && b.completed.is_some());
                completed.max_by_key(|b| b.completed).or_else(|| blocks().min_by_key(oldest))
            }
            Kind::Wrb { threshold } => {
                let largest = blocks().max_by_key(|b| (b.pages.len(), Reverse(b.written)));
                largest.filter(|b| b.pages.len() > threshold).or_else(|| blocks().min_by_key(oldest))
            }
            Kind::Clc { .. } => {
                let cold = blocks().filter(|b| !b.hot).max_by_key(|b| (b.pages.len(), Reverse(b.written)));
                cold.or_else(|| blocks().min_by_key(oldest))
            }
            Kind::LbClock { sequential } => return self.clock_victim(sequential),
        };
        victim.unwrap().id
    }

    fn clock_victim(&mut self, sequential: bool) -> (u32, u32) {
        let completed = self.blocks.iter().filter(|b| sequential && b.completed.is_some());
        if let Some(first) = completed.min_by_key(|b| b.completed) {
            return first.id;
        }
        while self.blocks[0].cleared.is_none() {
            // Bits cleared within one request are told apart by small steps of time.
            self.clock += 1;
            self.blocks[0].cleared = Some(self.clock);
            self.blocks.rotate_left(1);
        }
        let clear = self.blocks.iter().filter(|b| b.cleared.is_some());
        clear.max_by_key(|b| (b.pages.len(), Reverse(b.cleared))).unwrap().id
    }

    fn flush(&mut self, id: (u32, u32)) {
        let at = self.blocks.iter().position(|b| b.id == id).unwrap();
        let block = self.blocks.remove(at);
        let padding = matches!(self.kind, Kind::Bplru { padding: true, .. });
        let mut previous = None;
        for &page in &block.pages {
            let joined = previous.is_some_and(|p| padding || p + 1 == page);
            self.out.push(Movement { page: Page(page), verb: Verb::WriteBack { from: Tier::TOP }, joined });
            previous = Some(page);
        }
        self.out.extend(block.pages.iter().map(|&page| single(page, Verb::Drop { from: Tier::TOP })));
    }
}

/// A cluster of BPAC: its pages, when it last grew, and from when on it is used up.
#[derive(Clone, Debug)]
struct Cluster {
    id: (u32, u32),
    pages: BTreeSet<u32>,
    grown: u64,
    used_up: Option<u64>,
}

struct BpacModel {
    block: u32,
    capacity: usize,
    region: usize,
    step: usize,
    patience: u64,
    target: usize,
    /// Most recent last.
    list: Vec<u32>,
    clusters: Vec<Cluster>,
    joins: u64,
    /// Orders the moments at which clusters are used up or change size thereafter.
    moments: u64,
    idle_max: Option<u64>,
    writes: usize,
    hits_in_region: usize,
    hits_in_clusters: usize,
    gaps: Vec<u64>,
}

impl BpacModel {
    fn new(block: u32, capacity: usize, [pages, region, step]: [usize; 3], patience: u64) -> Self {
        BpacModel {
            block,
            capacity,
            region: region.max(1),
            step: step.max(1),
            patience,
            target: pages.min(capacity.saturating_sub(1)).max(1),
            list: vec![],
            clusters: vec![],
            joins: 0,
            moments: 0,
            idle_max: None,
            writes: 0,
            hits_in_region: 0,
            hits_in_clusters: 0,
            gaps: vec![],
        }
    }

    fn clustered(&self) -> usize {
        self.clusters.iter().map(|c| c.pages.len()).sum()
    }

    fn access(&mut self, request: Request) -> (Outcome, Vec<Movement>) {
        let page = request.page.0;
        let in_list = self.list.iter().position(|&p| p == page);
        let in_cluster = self.clusters.iter().position(|c| c.pages.contains(&page));
        let hit = in_list.is_some() || in_cluster.is_some();
        if request.op == Op::Read {
            return match hit {
                true => (Outcome::Hit(Tier::TOP), vec![]),
                false => (Outcome::BYPASSED, vec![single(page, Verb::Bypass)]),
            };
        }
        let mut out = vec![];
        if let Some(at) = in_list {
            self.hits_in_region += usize::from(at < self.region);
            self.list.remove(at);
        } else if let Some(at) = in_cluster {
            self.hits_in_clusters += 1;
            let cluster = &mut self.clusters[at];
            cluster.pages.remove(&page);
            // A used-up cluster that changes its size is the last among those of its new size.
            self.moments += 1;
            cluster.used_up = cluster.used_up.map(|_| self.moments);
            self.clusters.retain(|c| !c.pages.is_empty());
        } else if self.list.len() + self.clustered() == self.capacity {
            out = self.evict();
        }
        out.push(single(page, Verb::Install { to: Tier::TOP }));
        self.list.push(page);
        while self.list.len() > self.target {
            let oldest = self.list.remove(0);
            self.join(oldest);
        }
        self.writes += 1;
        if self.writes == self.capacity {
            self.adapt();
        }
        (if hit { Outcome::Hit(Tier::TOP) } else { Outcome::ADMITTED }, out)
    }

    fn join(&mut self, page: u32) {
        self.joins += 1;
        let id = block_of(page, self.block);
        if let Some(cluster) = self.clusters.iter_mut().find(|c| c.id == id) {
            self.gaps.push(self.joins - cluster.grown);
            cluster.pages.insert(page);
            (cluster.grown, cluster.used_up) = (self.joins, None);
        } else {
            self.clusters.push(Cluster { id, pages: BTreeSet::from([page]), grown: self.joins, used_up: None });
        }
    }

    fn evict(&mut self) -> Vec<Movement> {
        self.clusters.sort_by_key(|c| c.grown);
        for cluster in &mut self.clusters {
            let idle = self.joins - cluster.grown;
            if cluster.used_up.is_none() && self.idle_max.is_some_and(|max| idle > max) {
                self.moments += 1;
                cluster.used_up = Some(self.moments);
            }
        }
        let used_up = (0..self.clusters.len()).filter(|&i| self.clusters[i].used_up.is_some());
        let largest = used_up.max_by_key(|&i| (self.clusters[i].pages.len(), Reverse(self.clusters[i].used_up)));
        let first_grown = (0..self.clusters.len()).min_by_key(|&i| self.clusters[i].grown);
        let pages = match largest.or(first_grown) {
            Some(at) => self.clusters.remove(at).pages,
            None => BTreeSet::from([self.list.remove(0)]),
        };
        let mut out = vec![];
        for &page in &pages {
            let joined = page > 0 && pages.contains(&(page - 1));
            out.push(Movement { page: Page(page), verb: Verb::WriteBack { from: Tier::TOP }, joined });
        }
        out.extend(pages.iter().map(|&page| single(page, Verb::Drop { from: Tier::TOP })));
        out
    }

    fn adapt(&mut self) {
        let density = |hits: usize, pages: usize| hits as f64 / pages.max(1) as f64;
        let in_region = density(self.hits_in_region, self.region.min(self.list.len()));
        let in_clusters = density(self.hits_in_clusters + self.gaps.len(), self.clustered());
        if in_region > in_clusters {
            self.target = (self.target + self.step).min(self.capacity.saturating_sub(1)).max(1);
        } else if in_region < in_clusters {
            self.target = self.target.saturating_sub(self.step).max(1);
        }
        if !self.gaps.is_empty() {
            self.idle_max = Some(self.patience * self.gaps.iter().sum::<u64>() / self.gaps.len() as u64);
        }
        (self.writes, self.hits_in_region, self.hits_in_clusters) = (0, 0, 0);
        self.gaps.clear();
    }
}

/// The shared workload, and one of writes that run through whole blocks now and then.
fn workloads(seed: u64) -> [Vec<Request>; 2] {
    let mut random = entresol_core::Random::new(seed ^ 0x5eed);
    let mut writes = vec![];
    while writes.len() < 1_500 {
        let start = random.below(u64::from(LAYOUT.pages)) as u32;
        let run = if random.chance(0.3) { 1 + random.below(12) as u32 } else { 1 };
        let start = if run > 4 { start / 4 * 4 } else { start };
        for page in start..(start + run).min(LAYOUT.pages) {
            writes.push(if random.chance(0.1) { Request::read(page) } else { Request::write(page) });
        }
    }
    [check::workload(seed, LAYOUT, 1_500), writes]
}

type Access = Box<dyn FnMut(Request) -> (Outcome, Vec<Movement>)>;

/// Runs a policy beside the models that `model` makes for a capacity and a block size.
fn compare_with<P: Policy>(model: impl Fn(usize, u32) -> Access, options: &[&str]) {
    for seed in 0..12 {
        for (capacity, block) in [(1, 4), (2, 4), (3, 8), (10, 4), (10, 1), (23, 8), (40, 3), (59, 8), (59, 64)] {
            for requests in workloads(seed) {
                println!("{} {options:?}, seed {seed}, capacity {capacity}, block {block}", P::INFO.name);
                let mut policy = build::<P>(capacity, block, options);
                let mut model = model(capacity, block);
                let config = Config { objects: 3, ..Config::single(LAYOUT.pages as usize, capacity) };
                check::run_beside(&mut policy, LAYOUT, &config, &requests, |request, _, _| model(request));
            }
        }
    }
}

fn build<P: Policy>(capacity: usize, block: u32, options: &[&str]) -> P {
    let config = Config { objects: 3, ..Config::single(LAYOUT.pages as usize, capacity) };
    let block = format!("block={block}");
    let options = options.iter().copied().chain([block.as_str()]);
    P::new(&config, &Options::parse(&P::INFO, options).unwrap()).unwrap()
}

fn compare<P: Policy>(kind: impl Fn(usize, u32) -> Kind, options: &[&str]) {
    let model = |capacity, block| {
        let mut model = Model::new(kind(capacity, block), block, capacity);
        Box::new(move |request| model.access(request)) as Access
    };
    compare_with::<P>(model, options);
}

fn compare_bpac(shares: impl Fn(usize) -> [usize; 3], patience: u64, options: &[&str]) {
    let model = |capacity, block| {
        let mut model = BpacModel::new(block, capacity, shares(capacity), patience);
        Box::new(move |request| model.access(request)) as Access
    };
    compare_with::<writebuffer::Bpac>(model, options);
}

#[test]
fn fab_does_what_its_model_does() {
    compare::<writebuffer::Fab>(|_, _| Kind::Fab, &[]);
}

#[test]
fn bplru_does_what_its_model_does() {
    let kind = |compensation, padding| move |_, _| Kind::Bplru { compensation, padding };
    compare::<writebuffer::Bplru>(kind(true, false), &[]);
    compare::<writebuffer::Bplru>(kind(false, false), &["compensation=off"]);
    compare::<writebuffer::Bplru>(kind(true, true), &["padding=on"]);
}

#[test]
fn lb_clock_does_what_its_model_does() {
    compare::<writebuffer::LbClock>(|_, _| Kind::LbClock { sequential: true }, &[]);
    compare::<writebuffer::LbClock>(|_, _| Kind::LbClock { sequential: false }, &["sequential=off"]);
}

#[test]
fn clc_does_what_its_model_does() {
    compare::<writebuffer::Clc>(|capacity, _| Kind::Clc { hot: capacity / 10 }, &[]);
    compare::<writebuffer::Clc>(|capacity, _| Kind::Clc { hot: capacity / 2 }, &["hot=50%"]);
    compare::<writebuffer::Clc>(|_, _| Kind::Clc { hot: 7 }, &["hot=7"]);
}

#[test]
fn bpac_does_what_its_model_does() {
    compare_bpac(|c| [c / 2, c / 10, c / 50], 8, &[]);
    compare_bpac(|c| [c / 10, c / 4, 5], 1, &["pages=10%", "region=25%", "step=5", "patience=1"]);
    compare_bpac(|c| [c, c, c / 10], 2, &["pages=100%", "region=100%", "step=10%", "patience=2"]);
}

#[test]
fn wrb_does_what_its_model_does() {
    compare::<writebuffer::Wrb>(|_, block| Kind::Wrb { threshold: block as usize / 2 }, &[]);
    compare::<writebuffer::Wrb>(|_, _| Kind::Wrb { threshold: 3 }, &["threshold=3"]);
}

#[test]
fn a_write_bypasses_only_a_buffer_of_pinned_pages() {
    fn hold<P: Policy>() {
        for (seed, percent) in [(1, 5), (2, 30), (3, 70), (4, 100)] {
            for (capacity, block) in [(1, 4), (5, 4), (16, 8), (40, 4)] {
                for requests in workloads(seed) {
                    println!("{}, seed {seed}, {percent} %, capacity {capacity}, block {block}", P::INFO.name);
                    let mut policy = build::<P>(capacity, block, &[]);
                    let mut checker = Checker::new(LAYOUT, &[capacity], Refusals { percent, seed });
                    let mut flushed = 0;
                    for &request in &requests {
                        let outcome = checker.request(&mut policy, request, entresol_core::NEVER);
                        if request.op.is_write() && outcome == Outcome::BYPASSED {
                            let held = (0..LAYOUT.pages).map(Page).filter(|&page| policy.state(page).known);
                            let held: Vec<Page> = held.collect();
                            assert_eq!(held.len(), capacity, "{request:?}: bypassed a free frame");
                            let pinned = held.iter().all(|&page| !checker.may_evict(page, Tier::TOP));
                            assert!(pinned, "{request:?}: bypassed a buffer with a page that may go");
                        }
                        let dropped = |m: &&Movement| m.verb == Verb::Drop { from: Tier::TOP };
                        flushed += checker.movements.iter().filter(dropped).count();
                    }
                    checker.verify_all(&policy);
                    assert_eq!(flushed == 0, percent == 100);
                }
            }
        }
    }
    hold::<writebuffer::Fab>();
    hold::<writebuffer::Bplru>();
    hold::<writebuffer::LbClock>();
    hold::<writebuffer::Clc>();
    hold::<writebuffer::Bpac>();
    hold::<writebuffer::Wrb>();
}

fn gauge(policy: &impl Policy, wanted: &str) -> Option<f64> {
    let mut found = None;
    policy.gauges(&mut |name, value| found = if name == wanted { Some(value) } else { found });
    found
}

/// A buffer makes room by one block a request, so the blocks among the write-backs of each request are its flushes.
#[test]
fn every_flushed_block_is_counted() {
    fn hold<P: Policy>() {
        for (seed, percent) in [(1, 0), (2, 30)] {
            for requests in workloads(seed) {
                println!("{}, seed {seed}, {percent} %", P::INFO.name);
                let (capacity, block) = (16, 8);
                let mut policy = build::<P>(capacity, block, &[]);
                let mut checker = Checker::new(LAYOUT, &[capacity], Refusals { percent, seed });
                let mut expected = 0;
                for &request in &requests {
                    checker.request(&mut policy, request, entresol_core::NEVER);
                    let written = checker.movements.iter().filter(|m| m.verb == Verb::WriteBack { from: Tier::TOP });
                    let blocks: BTreeSet<_> = written.map(|m| block_of(m.page.0, block)).collect();
                    assert!(blocks.len() <= 1, "{request:?}: {blocks:?}");
                    expected += blocks.len();
                }
                assert!(expected > 0);
                assert_eq!(gauge(&policy, "flushed_blocks"), Some(expected as f64));
            }
        }
    }
    hold::<writebuffer::Fab>();
    hold::<writebuffer::Bplru>();
    hold::<writebuffer::LbClock>();
    hold::<writebuffer::Clc>();
    hold::<writebuffer::Wrb>();
}

/// Pages 0 and 3 of a block of four lack two pages, the last block of an object of six lacks one of its two.
#[test]
fn padding_counts_what_a_block_lacks() {
    let layout = Layout { pages: 12, object_pages: 6 };
    let config = Config { objects: 2, ..Config::single(12, 3) };
    let options = Options::parse(&writebuffer::Bplru::INFO, ["block=4", "padding=on"]).unwrap();
    let mut policy = writebuffer::Bplru::new(&config, &options).unwrap();
    let mut checker = Checker::new(layout, &config.tiers, Refusals::NONE);
    for (page, expected) in [(0, 0.0), (3, 0.0), (5, 0.0), (6, 2.0), (7, 2.0), (8, 3.0)] {
        checker.request(&mut policy, Request::write(page), entresol_core::NEVER);
        assert_eq!(gauge(&policy, "padded_pages"), Some(expected), "after page {page}");
    }
}
