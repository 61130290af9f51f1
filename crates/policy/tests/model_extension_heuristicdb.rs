//! A plain model of HeuristicDB, from 000, sections 3.3 to 3.5, compared event by event, queries included. It has the
//! paper's tables: one count for every page accessed, and a linked list of cached pages for every frequency.

use entresol_core::{Hint, Movement, ObjectId, Op, Outcome, Page, Random, Request, Tier, Verb};
use entresol_policy::check::{self, Event, Layout};
use entresol_policy::extension::HeuristicDb;
use entresol_policy::{Config, Options, Policy};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const LAYOUT: Layout = Layout { pages: 200, object_pages: 50 };
const NVM: Tier = Tier::TOP;

#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
enum Status {
    Unknown,
    Sequential,
    Random,
    Repeated,
    Hot,
}

struct Profile {
    query: u32,
    tables: Vec<ObjectId>,
    hits: u64,
    running: bool,
}

struct Model {
    capacity: usize,
    watched: f64,
    watched_min: usize,
    ratio: f64,
    counted_max: Option<usize>,
    /// All profiles ever; the paper's queue is its end.
    queue: Vec<Profile>,
    counting: BTreeMap<Page, u32>,
    /// Counted pages that are not cached, the one accessed last at the end.
    recent: Vec<Page>,
    status: BTreeMap<ObjectId, Status>,
    /// By table: accesses watched, and how many of them came by read-ahead.
    monitor: BTreeMap<ObjectId, (usize, usize)>,
    /// Cached pages by access frequency, the most recently used first.
    lfu: BTreeMap<u32, VecDeque<Page>>,
    dirty: BTreeSet<Page>,
    seen: BTreeSet<&'static str>,
    out: Vec<Movement>,
}

impl Model {
    fn emit(&mut self, page: Page, verb: Verb) {
        self.out.push(Movement { page, verb, joined: false });
    }

    fn status(&self, table: ObjectId) -> Status {
        *self.status.get(&table).unwrap_or(&Status::Unknown)
    }

    fn frequency_if_cached(&self, page: Page) -> Option<u32> {
        self.lfu.iter().find(|(_, list)| list.contains(&page)).map(|(frequency, _)| *frequency)
    }

    fn unlink(&mut self, page: Page) {
        self.lfu.values_mut().for_each(|list| list.retain(|&other| other != page));
        self.lfu.retain(|_, list| !list.is_empty());
    }

    fn remember(&mut self, page: Page) {
        self.recent.retain(|&other| other != page);
        self.recent.push(page);
        if self.counted_max.is_some_and(|most| self.recent.len() > most) {
            let forgotten = self.recent.remove(0);
            self.counting.remove(&forgotten);
        }
    }

    fn query_begins(&mut self, query: u32, tables: &[ObjectId]) {
        let previous = self.queue.last();
        let shared: Vec<ObjectId> = tables
            .iter()
            .filter(|table| previous.is_some_and(|profile| profile.tables.contains(table)))
            .copied()
            .collect();
        let evict = !shared.is_empty() && previous.is_some_and(|profile| profile.hits == 0);
        if let Some(profile) = previous.filter(|profile| profile.running) {
            for &table in &profile.tables {
                self.status.insert(table, Status::Unknown);
            }
        }
        for &table in tables {
            let hot = evict && shared.contains(&table);
            self.status.insert(table, if hot { Status::Hot } else { Status::Unknown });
        }
        self.seen.insert(if evict { "eviction" } else { "demotion" });
        let number = u32::from(!evict);
        let mut list = VecDeque::new();
        for (_, pages) in std::mem::take(&mut self.lfu) {
            list.extend(pages);
        }
        self.counting = list.iter().map(|&page| (page, number)).collect();
        self.recent.clear();
        if !list.is_empty() {
            self.lfu.insert(number, list);
        }
        self.monitor.clear();
        self.queue.push(Profile { query, tables: tables.to_vec(), hits: 0, running: true });
    }

    fn detect(&mut self, request: Request, table: ObjectId) {
        let reused = self.counting[&request.page] > 1;
        match self.status(table) {
            Status::Unknown => {
                let (accessed, sequential) = self.monitor.entry(table).or_default();
                *accessed += 1;
                *sequential += usize::from(request.sequential && request.op == Op::Read);
                let enough = (f64::from(LAYOUT.object_pages) * self.watched / 100.0).ceil() as usize;
                if *accessed >= enough.max(self.watched_min) {
                    let ratio = *sequential as f64 / *accessed as f64;
                    let found = if ratio * 100.0 > self.ratio { Status::Sequential } else { Status::Random };
                    self.status.insert(table, found);
                }
            }
            Status::Sequential | Status::Random if reused => {
                self.status.insert(table, Status::Repeated);
            }
            _ => {}
        }
        self.seen.insert(match self.status(table) {
            Status::Unknown => "unknown",
            Status::Sequential => "sequential",
            Status::Random => "random",
            Status::Repeated => "repeated",
            Status::Hot => "hot",
        });
    }

    fn evict_coldest(&mut self) {
        let (&frequency, list) = self.lfu.iter().next().unwrap();
        let victim = *list.back().unwrap();
        self.unlink(victim);
        if frequency == 0 {
            self.counting.remove(&victim);
        } else {
            self.remember(victim);
        }
        if self.dirty.remove(&victim) {
            self.emit(victim, Verb::WriteBack { from: NVM });
        }
        self.emit(victim, Verb::Drop { from: NVM });
    }

    fn access(&mut self, request: Request) -> Outcome {
        let Request { page, op, .. } = request;
        let table = LAYOUT.address(page).object;
        let cached = self.frequency_if_cached(page);
        let count = self.counting.entry(page).or_insert(0);
        *count += 1;
        let count = *count;
        if cached.is_none() {
            self.remember(page);
        }
        self.detect(request, table);
        if let Some(frequency) = cached {
            assert_eq!(frequency + 1, count, "the counting table and the lists agree");
            self.unlink(page);
            self.lfu.entry(count).or_default().push_front(page);
            if let Some(profile) = self.queue.last_mut() {
                profile.hits += 1;
            }
            if op != Op::Read {
                self.emit(page, Verb::Install { to: NVM });
                self.dirty.insert(page);
            }
            return Outcome::Hit(NVM);
        }
        let full = self.lfu.values().map(VecDeque::len).sum::<usize>() == self.capacity;
        let hotter = !full || count > *self.lfu.keys().next().unwrap();
        if op == Op::Read && (self.status(table) == Status::Sequential || !hotter) {
            self.emit(page, Verb::Bypass);
            return Outcome::BYPASSED;
        }
        if full {
            self.evict_coldest();
        }
        self.emit(page, if op == Op::Read { Verb::Fetch { to: NVM } } else { Verb::Install { to: NVM } });
        if op != Op::Read {
            self.dirty.insert(page);
        }
        self.recent.retain(|&other| other != page);
        self.counting.insert(page, count);
        self.lfu.entry(count).or_default().push_front(page);
        Outcome::ADMITTED
    }

    fn event(&mut self, event: Event) -> (Option<Outcome>, Vec<Movement>) {
        let outcome = match event {
            Event::Request(request) => Some(self.access(request)),
            Event::Hint(hint) => {
                match hint {
                    Hint::QueryBegin { query, objects } => self.query_begins(query, objects),
                    Hint::Place { .. } | Hint::Unplace { .. } => {}
                    Hint::QueryEnd { query } => {
                        self.queue.iter_mut().filter(|p| p.query == query).for_each(|p| p.running = false);
                    }
                }
                None
            }
        };
        (outcome, std::mem::take(&mut self.out))
    }
}

/// Scans, look-ups, loops and bursts of writes, one object at a time or two in turn.
fn table_accesses(seed: u64, requests: usize) -> Vec<Request> {
    let mut random = Random::new(seed);
    let mut out = Vec::new();
    while out.len() < requests {
        let table = random.below(4) as u32 * 50;
        let other = random.below(4) as u32 * 50;
        let start = random.below(50) as u32;
        let kind = random.below(5);
        for i in 0..10 + random.below(60) as u32 {
            let scanned = table + (start + i) % 50;
            let looked_up = other + random.below(1 + random.clone().below(50)) as u32;
            out.push(match kind {
                0 | 1 => Request { page: Page(scanned), op: Op::Read, sequential: random.chance(0.98) },
                2 => Request { page: Page(looked_up), op: Op::Read, sequential: random.chance(0.05) },
                3 => Request {
                    page: Page(looked_up),
                    op: [Op::Write, Op::Update, Op::Read][i as usize % 3],
                    sequential: false,
                },
                _ if i % 2 == 0 => Request { page: Page(scanned), op: Op::Read, sequential: true },
                _ => Request { page: Page(looked_up), op: Op::Read, sequential: false },
            });
        }
    }
    out
}

#[test]
fn heuristicdb_does_what_its_model_does_with_queries() {
    let mut seen = BTreeSet::new();
    for (watched, watched_min, ratio, counted) in
        [(1.0, 16, 90.0, 0), (20.0, 1, 90.0, 0), (0.0, 4, 50.0, 20), (1.0, 16, 95.0, 1), (50.0, 30, 0.0, 5)]
    {
        for capacity in [1, 2, 10, 60, 150] {
            for seed in 0..10 {
                println!("watched {watched} {watched_min}, ratio {ratio}, counted {counted}, {capacity}, seed {seed}");
                let config = Config { objects: 4, ..Config::single(200, capacity) };
                let given = [
                    format!("watched={watched}"),
                    format!("watched-min={watched_min}"),
                    format!("ratio={ratio}"),
                    format!("counted={counted}"),
                ];
                let options = Options::parse(&HeuristicDb::INFO, given.iter().map(String::as_str)).unwrap();
                let mut policy = HeuristicDb::new(&config, &options).unwrap();
                let mut model = Model {
                    capacity,
                    watched,
                    watched_min,
                    ratio,
                    counted_max: (counted > 0).then_some(counted),
                    queue: Vec::new(),
                    counting: BTreeMap::new(),
                    recent: Vec::new(),
                    status: BTreeMap::new(),
                    monitor: BTreeMap::new(),
                    lfu: BTreeMap::new(),
                    dirty: BTreeSet::new(),
                    seen: BTreeSet::new(),
                    out: Vec::new(),
                };
                let requests =
                    if seed % 2 == 0 { table_accesses(seed, 2_000) } else { check::workload(seed, LAYOUT, 2_000) };
                check::run_beside_queries(&mut policy, LAYOUT, &config, &requests, seed, |event| model.event(event));
                for object in (0..4).map(ObjectId) {
                    let word = match model.status(object) {
                        Status::Unknown => None,
                        status => Some(format!("{status:?}").to_lowercase()),
                    };
                    assert_eq!(policy.verdict(object).map(str::to_owned), word, "{object:?}");
                }
                seen.extend(model.seen);
            }
        }
    }
    // The comparison must have passed through all of these cases.
    let all = ["demotion", "eviction", "hot", "random", "repeated", "sequential", "unknown"];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
}

/// Counts of pages outside NVM end with the query, so the handles of these pages can be reused.
#[test]
fn a_new_query_forgets_pages_outside() {
    let config = Config { objects: 4, ..Config::single(200, 1) };
    let mut policy = HeuristicDb::new(&config, &Options::defaults(&HeuristicDb::INFO)).unwrap();
    let mut checker = check::Checker::new(LAYOUT, &config.tiers, check::Refusals::NONE);
    checker.request(&mut policy, Request::write(7), 0);
    checker.request(&mut policy, Request::write(8), 0);
    assert!(policy.state(Page(7)).known, "counted");
    checker.hint(&mut policy, Hint::QueryBegin { query: 1, objects: &[ObjectId(0)] });
    assert!(!policy.state(Page(7)).known);
    assert!(policy.state(Page(8)).known, "still in NVM");
}
