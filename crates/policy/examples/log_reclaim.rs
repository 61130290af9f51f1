//! Estimate, without an engine, of the write amplification of the log layout: blocks appended per write of its users,
//! by the rule that chooses the segment to reclaim.
//!
//! A policy decides on a zipf list of requests. A page that it admits is appended, and a page that it drops is dead.
//! Segments are reclaimed when the last free ones are in use. `lab/results/log-reclaim.md` has the figures.

use entresol_core::{Address, Movement, ObjectId, Op, Page, Random, Request, Tier, Verb};
use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::{Config, Driver, Options, Policy};

/// Pages of the backing store, and blocks of a segment without its table: the sizes of the peer benchmark.
const PAGES: usize = 2046 * 256;
const BLOCKS: usize = 255;
const SEGMENTS: usize = 204;
/// Requests of the warm-up, and counted requests.
const WARM: usize = 400_000;
const COUNTED: usize = 300_000;
/// Segments reclaimed at once, as the engine does at this size, and the least number of free segments.
const WON: usize = 3;
const FREE_MIN: usize = 3;

#[derive(Clone, Copy)]
enum Event {
    Append(u32),
    Drop(u32),
    Write,
    Count,
}

/// Decisions of a policy on a list of requests, in order: pages appended and pages dropped.
#[derive(Default)]
struct Events(Vec<Event>);

impl Driver for Events {
    fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
        true
    }

    fn emit(&mut self, Movement { page, verb, .. }: Movement) {
        match verb {
            Verb::Fetch { .. } | Verb::Install { .. } => self.0.push(Event::Append(page.0)),
            Verb::Drop { .. } => self.0.push(Event::Drop(page.0)),
            _ => {}
        }
    }

    fn now_us(&self) -> u64 {
        0
    }

    fn next_use(&self) -> u32 {
        u32::MAX
    }

    fn address(&self, page: Page) -> Address {
        Address { object: ObjectId(0), block: u64::from(page.0) }
    }

    fn successor(&self, page: Page) -> Option<Page> {
        Some(Page(page.0 + 1)).filter(|page| page.index() < PAGES)
    }

    fn predecessor(&self, page: Page) -> Option<Page> {
        page.0.checked_sub(1).map(Page)
    }

    fn object_pages(&self, _object: ObjectId) -> u64 {
        PAGES as u64
    }
}

struct Decide<'a>(&'a [(u32, Op)]);

impl Visitor for Decide<'_> {
    type Output = Vec<Event>;

    fn visit<P: Policy>(self, mut policy: P) -> Vec<Event> {
        let mut events = Events::default();
        for (at, &(page, op)) in self.0.iter().enumerate() {
            if at == WARM {
                events.0.push(Event::Count);
            }
            if op.is_write() {
                events.0.push(Event::Write);
            }
            policy.access(Request { page: Page(page), op, sequential: false }, &mut events);
        }
        events.0
    }
}

/// Rule that chooses the segment to reclaim.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Oldest,
    Emptiest,
    /// Blocks freed per block copied, times the root of the segment's age: cost and benefit (Rosenblum and Ousterhout
    /// 1992, section 3.6).
    Worth,
}

struct Log {
    victim: Victim,
    /// Complete segments still in memory, the open one included: pages in them are replaced in place.
    buffered: u64,
    page_of: Vec<Option<u32>>,
    block_of: Vec<Option<usize>>,
    live: Vec<usize>,
    /// Number of each segment in the order of writing; `None` for a free one.
    born: Vec<Option<u64>>,
    open: usize,
    filled: usize,
    begun: u64,
    appended: u64,
    copied: u64,
}

impl Log {
    fn new(victim: Victim, buffered: u64) -> Self {
        let mut born = vec![None; SEGMENTS];
        born[0] = Some(0);
        let (page_of, block_of) = (vec![None; SEGMENTS * BLOCKS], vec![None; PAGES]);
        let live = vec![0; SEGMENTS];
        Log { victim, buffered, page_of, block_of, live, born, open: 0, filled: 0, begun: 0, appended: 0, copied: 0 }
    }

    fn drop(&mut self, page: u32) {
        if let Some(block) = self.block_of[page as usize].take() {
            self.page_of[block] = None;
            self.live[block / BLOCKS] -= 1;
        }
    }

    fn put(&mut self, page: u32) {
        let born = |block: usize| self.born[block / BLOCKS].expect("a live block");
        if self.block_of[page as usize].is_some_and(|block| born(block) + self.buffered > self.begun) {
            return;
        }
        while self.born.iter().filter(|born| born.is_none()).count() < FREE_MIN {
            self.reclaim();
        }
        self.append(page);
    }

    fn append(&mut self, page: u32) {
        self.drop(page);
        if self.filled == BLOCKS {
            self.begun += 1;
            self.open = self.born.iter().position(Option::is_none).expect("a free segment");
            self.born[self.open] = Some(self.begun);
            self.filled = 0;
        }
        let block = self.open * BLOCKS + self.filled;
        self.filled += 1;
        self.page_of[block] = Some(page);
        self.block_of[page as usize] = Some(block);
        self.live[self.open] += 1;
        self.appended += 1;
    }

    fn reclaim(&mut self) {
        let mut won = 0;
        while won < WON * BLOCKS {
            let Some(segment) = self.next_victim() else { break };
            let pages: Vec<u32> = self.page_of[segment * BLOCKS..][..BLOCKS].iter().copied().flatten().collect();
            won += BLOCKS - pages.len();
            for page in pages {
                self.append(page);
                self.copied += 1;
            }
            self.born[segment] = None;
        }
    }

    fn next_victim(&self) -> Option<usize> {
        let written = |segment: &usize| self.born[*segment].is_some_and(|born| born + self.buffered <= self.begun);
        let merit = |segment: &usize| {
            let (dead, live) = ((BLOCKS - self.live[*segment]) as f64, self.live[*segment] as f64);
            let age = (self.begun - self.born[*segment].expect("it is written")) as f64;
            match self.victim {
                Victim::Oldest => age,
                Victim::Emptiest => dead,
                Victim::Worth => dead / (live + 1e-9) * age.sqrt(),
            }
        };
        (0..SEGMENTS).filter(written).max_by(|a, b| merit(a).total_cmp(&merit(b)))
    }
}

fn requests() -> Vec<(u32, Op)> {
    let mut random = Random::new(1);
    let mut sum = 0.0;
    let below: Vec<f64> = (1..=PAGES)
        .map(|rank| {
            sum += (rank as f64).powf(-1.1);
            sum
        })
        .collect();
    // Pages of similar popularity are not neighbours below.
    let mut page_of: Vec<u32> = (0..PAGES as u32).collect();
    for at in (1..PAGES).rev() {
        page_of.swap(at, random.below(at as u64 + 1) as usize);
    }
    let mut request = || {
        let drawn = random.next_f64() * sum;
        let rank = below.partition_point(|&share| share < drawn).min(PAGES - 1);
        (page_of[rank], if random.chance(0.3) { Op::Write } else { Op::Read })
    };
    (0..WARM + COUNTED).map(|_| request()).collect()
}

fn main() {
    let policy = std::env::args().nth(1).unwrap_or_else(|| "h-arc".to_owned());
    let info = catalogue::info(&policy).unwrap_or_else(|error| panic!("{error}"));
    let requests = requests();
    println!("{policy}: blocks appended for each write of the users, of them copies\n");
    println!("| pages of the policy | in memory | oldest | emptiest | cost and benefit |\n|---|---|---|---|---|");
    for pages in [30_480, 38_100, 40_640] {
        let built_for = Config { pages: PAGES, ..Config::single(PAGES, pages) };
        let events = catalogue::build(info, &built_for, &Options::defaults(info), Decide(&requests));
        let events = events.unwrap_or_else(|error| panic!("{error}"));
        for buffered in [1, 8] {
            let cells = [Victim::Oldest, Victim::Emptiest, Victim::Worth].map(|victim| {
                let mut log = Log::new(victim, buffered);
                let (mut writes, mut before) = (0, (0, 0));
                for &event in &events {
                    match event {
                        Event::Append(page) => log.put(page),
                        Event::Drop(page) => log.drop(page),
                        Event::Write => writes += 1,
                        Event::Count => (writes, before) = (0, (log.appended, log.copied)),
                    }
                }
                let per_write = |blocks: u64| blocks as f64 / f64::from(writes);
                // A table for each full batch.
                let all = per_write(log.appended - before.0) * (BLOCKS + 1) as f64 / BLOCKS as f64;
                format!("{all:.2} ({:.2})", per_write(log.copied - before.1))
            });
            println!("| {pages} | {buffered} MiB | {} |", cells.join(" | "));
        }
    }
}
