//! `auto`: its arithmetic against a second computation, its changes against the rules of the interface, and its choices
//! in cases with a known answer.

use entresol_core::{Op, Page, Random, Request, Tier};
use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::check::{self, Checker, Layout, Refusals};
use entresol_policy::choice::Auto;
use entresol_policy::choice::chooser::{Chooser, KEPT, Limits, Met, PARTS};
use entresol_policy::{Config, Info, Options, Policy};

const SEED: u64 = 5;

fn auto(options: &str, config: &Config) -> Auto {
    let options = Options::parse(&Auto::INFO, options.split(':').filter(|part| !part.is_empty())).expect("options");
    Auto::new(config, &options).expect("a policy")
}

/// Changes at every opportunity.
const RESTLESS: &str = "sample=100%:window=20:first=1:stay=1:gain=0:errors=0:payback=1000000000";

/// All that was reported to the chooser, from which the same figures are computed anew each time.
struct History {
    /// Window, part, and outcome for each candidate.
    told: Vec<(u64, usize, Vec<Met>)>,
    window: u64,
}

impl History {
    /// Requests of a part, and costs and hits of a candidate, as weighted at the end of a window.
    fn sums(&self, (at, kept): At, part: usize, candidate: usize) -> [f64; 3] {
        let mut sums = [0.0; 3];
        for (window, _, met) in self.told.iter().filter(|told| told.1 == part) {
            let weight = kept.powi((at - window) as i32);
            let met = met[candidate];
            let found = if met.hit { 1.0 } else { 0.0 };
            sums = [sums[0] + weight, sums[1] + weight * met.cost, sums[2] + weight * found];
        }
        sums
    }

    /// Requests, cost of a request, hit ratio.
    fn figures(&self, at: At, candidate: usize) -> [f64; 3] {
        let parts = (0..PARTS).map(|part| self.sums(at, part, candidate));
        let [n, cost, hits] = parts.fold([0.0; 3], |a, b| [a[0] + b[0], a[1] + b[1], a[2] + b[2]]);
        [n, cost / n, hits / n]
    }

    /// The standard error of the gain, by leaving out the mean of what the parts gain beyond their share.
    fn error(&self, at: At, from: usize, to: usize) -> f64 {
        let [n, cost_from, _] = self.figures(at, from);
        let gain = cost_from - self.figures(at, to)[1];
        let beyond = |part| {
            let ([n, from, _], [_, to, _]) = (self.sums(at, part, from), self.sums(at, part, to));
            from - to - gain * n
        };
        let beyond: Vec<f64> = (0..PARTS).map(beyond).collect();
        let variance = beyond.iter().map(|d| d * d).sum::<f64>() / (PARTS - 1) as f64;
        (variance * PARTS as f64).sqrt() / n
    }

    /// Candidate that the chooser's rules select, and the memory that selects it; `None` for no change.
    fn best(&self, window: u64, active: usize, limits: &Limits, candidates: usize) -> Option<(usize, At)> {
        let gain = |at: At, to| self.figures(at, active)[1] - self.figures(at, to)[1];
        for at in KEPT.map(|kept| (window, kept)) {
            let mut best: Option<usize> = None;
            for to in (0..candidates).filter(|&to| to != active) {
                let gains = gain(at, to);
                let enough = gains >= limits.gain * self.figures(at, active)[1] && gains >= limits.payback;
                let sure = gains > limits.errors * self.error(at, active, to) && gain((window, KEPT[0]), to) > 0.0;
                let cost = |candidate| self.figures(at, candidate)[1];
                if enough && sure && best.is_none_or(|best| cost(to) < cost(best)) {
                    best = Some(to);
                }
            }
            if let Some(best) = best {
                return Some((best, at));
            }
        }
        None
    }
}

/// The window at whose end the figures are taken, and the share of the past that a window keeps.
type At = (u64, f64);

#[test]
fn the_chooser_agrees_with_the_same_figures_computed_from_all_that_was_told() {
    let (mut changes, mut long) = (0, 0);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let limits = Limits {
            window: 40 + random.below(100),
            first: 1 + random.below(6),
            stay: 1 + random.below(4),
            gain: random.next_f64() * 0.1,
            payback: random.next_f64() * 0.02,
            errors: random.next_f64() * 3.0,
        };
        let candidates = 2 + random.below(3) as usize;
        let mut chooser = Chooser::new(candidates, limits);
        let mut history = History { told: Vec::new(), window: 0 };
        let (mut active, mut from) = (0, limits.first - 1);
        let mut odds: Vec<f64> = Vec::new();
        for step in 0..3_000 {
            if step % 1_000 == 0 {
                // Candidates far apart, or close to each other.
                let (least, spread) = if seed % 2 == 0 { (0.0, 1.0) } else { (0.4, 0.2) };
                odds = (0..candidates).map(|_| least + spread * random.next_f64()).collect();
            }
            let part = random.below(PARTS as u64) as usize;
            let met: Vec<Met> = odds.iter().map(|&odds| random.chance(odds)).map(met_of).collect();
            let free = random.chance(0.8);
            history.told.push((history.window, part, met.clone()));
            let ends = history.told.iter().filter(|told| told.0 == history.window).count() as u64 == limits.window;
            let mut expected = None;
            if ends {
                let due = free && history.window >= from;
                expected = due.then(|| history.best(history.window, active, &limits, candidates)).flatten();
            }
            let change = chooser.told(part, &met, free);
            assert_eq!(change.map(|change| change.to), expected.map(|(to, _)| to), "seed {seed}, step {step}");
            if let (Some(change), Some((_, at))) = (change, expected) {
                long += u64::from(at.1 == KEPT[1]);
                let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
                assert!(near(change.cost_from, history.figures(at, active)[1]), "seed {seed}, step {step}");
                assert!(near(change.cost_to, history.figures(at, change.to)[1]), "seed {seed}, step {step}");
                assert!(near(change.error, history.error(at, active, change.to)), "seed {seed}, step {step}");
                assert_eq!(change.from, active);
                (active, from) = (change.to, history.window + limits.stay);
                changes += 1;
            }
            history.window += u64::from(ends);
            if step % 50 > 0 {
                continue;
            }
            let [n, cost, hits] = history.figures((history.window, KEPT[0]), active);
            assert!((chooser.sampled() - n).abs() < 1e-6, "seed {seed}, step {step}");
            assert!((chooser.cost(active) - cost).abs() < 1e-9, "seed {seed}, step {step}");
            assert!((chooser.hit_ratio(active) - hits).abs() < 1e-9, "seed {seed}, step {step}");
        }
    }
    println!("{changes} changes, {long} of them by the long memory");
    assert!(changes > 30 && long > 3, "{changes} changes, {long} by the long memory, tell little");
}

fn met_of(hit: bool) -> Met {
    Met { cost: if hit { 0.0 } else { 1.1 }, hit }
}

#[test]
fn few_pages_decide_nothing_however_often_they_are_asked_for() {
    let limits = Limits { window: 1000, first: 1, stay: 1, gain: 0.05, payback: 0.001, errors: 3.0 };
    // All of the second candidate's gain is on one page.
    let mut chooser = Chooser::new(2, limits);
    for i in 0..100_000 {
        let part = i % PARTS;
        let met = [met_of(part != 3), met_of(true)];
        assert_eq!(chooser.told(part, &met, true), None);
    }
    // The same gain on pages of all parts is believed.
    let mut chooser = Chooser::new(2, limits);
    let change = (0..1000).find_map(|i| chooser.told(i % PARTS, &[met_of(i / PARTS % 16 != 3), met_of(true)], true));
    assert_eq!(change.expect("a change").to, 1);
}

/// Requests that LRU serves badly (a loop longer than the cache) or well (recently requested pages).
struct Phases {
    random: Random,
    at: u32,
    pages: u32,
}

impl Phases {
    fn new(seed: u64, pages: u32) -> Self {
        Phases { random: Random::new(seed), at: 0, pages }
    }

    fn next(&mut self, loops: bool) -> Request {
        self.at += 1;
        // A working set of a third that moves all the time.
        let near = self.at / 4 + self.random.below(u64::from(self.pages) / 3) as u32;
        let page = if loops { self.at % self.pages } else { near % self.pages };
        let op = if self.random.chance(0.2) { Op::Write } else { Op::Read };
        Request { page: Page(page), op, sequential: false }
    }
}

#[test]
fn changes_at_every_opportunity_break_no_rule() {
    let layout = Layout { pages: 400, object_pages: 100 };
    let plain = |info: &&&Info| info.tiers.len() == 1 && !info.future && info.known_bound.is_none();
    let names = catalogue::ALL.iter().filter(plain).map(|info| info.name);
    let names: Vec<&str> = names.filter(|name| !["auto", "table-placement"].contains(name)).collect();
    let mut changed = 0;
    for (i, name) in names.iter().enumerate() {
        let other = names[(i + 7) % names.len()];
        let third =
            ["lru", "mru", "fifo"].into_iter().find(|third| third != name && *third != other).expect("one of three");
        for (capacity, percent, seed) in [(40, 0, 1), (150, 0, 2), (40, 10, 3), (150, 60, 4), (7, 100, 5), (2, 0, 6)] {
            let config = Config { objects: 4, tiers: vec![capacity], ..Config::single(layout.pages as usize, 0) };
            let mut policy = auto(&format!("of={name}/{other}/{third}:{RESTLESS}"), &config);
            let requests = check::workload(seed, layout, 3_000);
            let context = format!("{name}/{other}/{third}, {capacity} pages, {percent} % refused, seed {seed}");
            let run = || check::run(&mut policy, layout, &config, &requests, Refusals { percent, seed });
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            assert!(outcome.is_ok(), "{context}");
            changed += policy.choice().expect("it chooses").switches;
        }
    }
    assert!(changed > 500, "only {changed} changes");
}

#[test]
fn what_is_held_stays() {
    let layout = Layout::one_object(600);
    let config = Config::single(600, 200);
    let mut policy = auto(&format!("of=lru/mru/h-arc:{RESTLESS}"), &config);
    let mut checker = Checker::new(layout, &[200], Refusals::NONE);
    let mut phases = Phases::new(SEED, 300);
    let mut before = 0;
    let mut kept = 0;
    for step in 0..20_000 {
        checker.request(&mut policy, phases.next(step / 1_000 % 2 == 0), 0);
        let switches = policy.choice().expect("it chooses").switches;
        if switches == before {
            continue;
        }
        before = switches;
        let held = |policy: &Auto| {
            let held = |&page: &u32| !policy.state(Page(page)).tiers.is_empty();
            (0..600).filter(held).collect::<Vec<_>>()
        };
        // Requests for held pages leave everything in place, and each is a hit.
        let mut asked = policy.clone();
        let mut aside = checker.clone();
        let all = held(&asked);
        assert_eq!(all.len(), policy.occupancy(Tier::TOP));
        for &page in all.iter().take(15) {
            assert!(aside.request(&mut asked, Request::read(page), 0).is_hit(), "page {page} after change {switches}");
        }
        let again = asked.choice().expect("it chooses").switches;
        if again == switches {
            assert_eq!(held(&asked), all, "after change {switches}");
            kept += 1;
        }
    }
    assert!(kept >= 5, "{kept} changes were looked at");
}

#[test]
fn no_requests_make_it_change_oftener_than_it_may() {
    let (capacity, window, stay) = (100, 200, 3);
    let config = Config::single(400, capacity);
    for seed in 0..4 {
        let mut phases = Phases::new(seed, 150);
        // The candidate that became active is given the requests that it is worst at.
        let options =
            format!("of=lru/lfu/mru:sample=100%:window={window}:first=1:stay={stay}:gain=0:errors=0:payback=1e9");
        let mut policy = auto(&options, &config);
        let mut checker = Checker::new(Layout::one_object(400), &[capacity], Refusals::NONE);
        let (mut told, mut last, mut gaps) = (0u64, 0u64, Vec::new());
        let mut switches = 0;
        while told < 40_000 {
            let active = policy.choice().expect("it chooses").active;
            for _ in 0..50 {
                checker.request(&mut policy, phases.next(active != 2), 0);
                told += 1;
                let now = policy.choice().expect("it chooses").switches;
                if now > switches {
                    gaps.push(told - last);
                    (switches, last) = (now, told);
                }
            }
        }
        assert!(switches >= 2, "seed {seed}: the requests were to make it change");
        assert!(gaps[1..].iter().all(|&gap| gap >= window * stay), "seed {seed}: {gaps:?}");
        assert!(switches <= 1 + told / (window * stay), "seed {seed}: {switches}");
    }
}

/// Misses over a range of requests, and the active candidate after each.
struct Misses<'a>(&'a [Request]);

impl Visitor for Misses<'_> {
    type Output = Vec<(bool, Option<usize>)>;

    fn visit<P: Policy>(self, mut policy: P) -> Self::Output {
        let mut checker = Recorder;
        let step = |request: &Request| {
            let outcome = policy.access(*request, &mut checker);
            (!outcome.is_hit(), policy.choice().map(|choice| choice.active))
        };
        self.0.iter().map(step).collect()
    }
}

/// A driver that ignores movements.
struct Recorder;

impl entresol_policy::Driver for Recorder {
    fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
        true
    }
    fn emit(&mut self, _movement: entresol_core::Movement) {}
    fn now_us(&self) -> u64 {
        0
    }
    fn next_use(&self) -> u32 {
        entresol_core::NEVER
    }
    fn address(&self, page: Page) -> entresol_core::Address {
        entresol_core::Address { object: entresol_core::ObjectId(0), block: u64::from(page.0) }
    }
    fn successor(&self, _page: Page) -> Option<Page> {
        None
    }
    fn predecessor(&self, _page: Page) -> Option<Page> {
        None
    }
    fn object_pages(&self, _object: entresol_core::ObjectId) -> u64 {
        0
    }
}

#[test]
fn a_change_of_the_requests_is_followed() {
    const PAGES: u32 = 12_000;
    const PHASE: usize = 600_000;
    let config = Config::single(PAGES as usize, 8_000);
    let mut phases = Phases::new(SEED, PAGES);
    let requests: Vec<Request> = (0..3 * PHASE).map(|at| phases.next(at / PHASE != 1)).collect();
    let run = |name: &str, options: &str| {
        let info = catalogue::info(name).expect("a policy");
        let options = Options::parse(info, options.split(':').filter(|part| !part.is_empty())).expect("options");
        catalogue::build(info, &config, &options, Misses(&requests)).expect("a policy")
    };
    // The wait of the first candidate, which is the wrong one here, is no change to be followed.
    let chosen = run("auto", "of=lru/mru:sample=5%:first=1");
    let misses = |run: &[(bool, Option<usize>)]| run.iter().filter(|(miss, _)| *miss).count();
    let (lru, mru) = (run("lru", ""), run("mru", ""));
    // At the end of each phase the candidate with fewer misses there is active.
    for (i, range) in (0..3).map(|i| (i, i * PHASE..(i + 1) * PHASE)) {
        let (a, b) = (misses(&lru[range.clone()]), misses(&mru[range.clone()]));
        let best = usize::from(b < a);
        assert_eq!(chosen[range.end - 1].1, Some(best), "phase {i}: {a} and {b} misses");
    }
    let (chosen, lru, mru) = (misses(&chosen), misses(&lru), misses(&mru));
    assert!(chosen < lru.min(mru), "chosen {chosen}, lru {lru}, mru {mru}");
}

#[test]
fn nonsense_is_refused() {
    let config = Config::single(1000, 100);
    for (options, told) in [
        ("of=lru", "two policies"),
        ("of=lru/arc/lru", "'lru' twice"),
        ("of=lru/nolru", "no policy 'nolru'"),
        ("of=lru/face", "two tiers"),
        ("of=lru/min", "future"),
        ("of=lru/auto", "candidates of its own"),
        ("of=lru/heuristicdb", "all pages"),
        ("of=lru/2q+kin=x", "kin"),
        ("sample=200%", "more than the cache"),
        ("first=0", "first"),
        ("stay=0", "stay"),
        ("payback=0", "payback"),
    ] {
        let options = Options::parse(&Auto::INFO, [options]).expect("known options");
        let error = Auto::new(&config, &options).map(|_| ()).expect_err("a refusal").to_string();
        assert!(error.contains(told), "{error}");
    }
}
