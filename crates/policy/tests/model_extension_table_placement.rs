//! A plain model of table placement, from 000, section 2.7.1, compared event by event, queries included.

use entresol_core::{Hint, Movement, ObjectId, Op, Outcome, Page, Random, Request, Tier, Verb};
use entresol_policy::check::{self, Event, Layout};
use entresol_policy::extension::TablePlacement;
use entresol_policy::{Config, Options, Policy};
use std::collections::{BTreeMap, BTreeSet};

const LAYOUT: Layout = Layout { pages: 200, object_pages: 20 };
const NVM: Tier = Tier::TOP;
const SIZE: usize = LAYOUT.object_pages as usize;

#[derive(Default)]
struct Model {
    capacity: usize,
    first_seen: BTreeMap<ObjectId, Page>,
    random: BTreeMap<ObjectId, u64>,
    /// Placed objects, the least recently required first.
    placed: Vec<ObjectId>,
    dirty: BTreeSet<Page>,
    seen: BTreeSet<&'static str>,
    out: Vec<Movement>,
}

impl Model {
    fn access(&mut self, Request { page, op, sequential }: Request) -> Outcome {
        let object = LAYOUT.address(page).object;
        self.first_seen.entry(object).or_insert(page);
        *self.random.entry(object).or_default() += u64::from(!sequential);
        if !self.placed.contains(&object) {
            self.out.push(Movement { page, verb: Verb::Bypass, joined: false });
            return Outcome::BYPASSED;
        }
        if op != Op::Read {
            self.out.push(Movement { page, verb: Verb::Install { to: NVM }, joined: false });
            self.dirty.insert(page);
        }
        Outcome::Hit(NVM)
    }

    fn query(&mut self, objects: &[ObjectId]) {
        for object in objects {
            if let Some(at) = self.placed.iter().position(|placed| placed == object) {
                let object = self.placed.remove(at);
                self.placed.push(object);
            }
        }
        let known = |object: &&ObjectId| self.first_seen.contains_key(object) && !self.placed.contains(object);
        let mut wanted: Vec<ObjectId> = objects.iter().filter(known).copied().collect();
        // All objects are of one size here, so the benefit per page is that of the object.
        wanted.sort_by_key(|object| (std::cmp::Reverse(self.random[object]), *object));
        for object in wanted {
            let fits = |placed: &[ObjectId]| (placed.len() + 1) * SIZE <= self.capacity;
            let mut after = self.placed.clone();
            let mut leaving = Vec::new();
            while !fits(&after) {
                let Some(at) = after.iter().position(|placed| !objects.contains(placed)) else { break };
                leaving.push(after.remove(at));
            }
            if !fits(&after) {
                self.seen.insert("does not fit");
                continue;
            }
            if !leaving.is_empty() && self.random[&object] == 0 {
                self.seen.insert("not worth it");
                continue;
            }
            for gone in leaving {
                self.seen.insert("moved out");
                self.drop_object(gone);
            }
            let page = self.first_seen[&object];
            let verb = Verb::FetchObject { object, pages: LAYOUT.object_pages, to: NVM };
            self.out.push(Movement { page, verb, joined: false });
            self.placed.retain(|placed| after.contains(placed));
            self.placed.push(object);
        }
    }

    fn drop_object(&mut self, object: ObjectId) {
        let first = object.0 * LAYOUT.object_pages;
        let mut joined = false;
        for page in (first..first + LAYOUT.object_pages).map(Page) {
            let dirty = self.dirty.remove(&page);
            if dirty {
                self.out.push(Movement { page, verb: Verb::WriteBack { from: NVM }, joined });
                self.seen.insert(if joined { "run" } else { "single" });
            }
            joined = dirty;
        }
        let verb = Verb::DropObject { object, pages: LAYOUT.object_pages, from: NVM };
        self.out.push(Movement { page: self.first_seen[&object], verb, joined: false });
    }

    fn event(&mut self, event: Event) -> (Option<Outcome>, Vec<Movement>) {
        let outcome = match event {
            Event::Request(request) => Some(self.access(request)),
            Event::Hint(Hint::QueryBegin { objects, .. }) => {
                self.query(objects);
                None
            }
            Event::Hint(_) => None,
        };
        (outcome, std::mem::take(&mut self.out))
    }
}

#[test]
fn table_placement_does_what_its_model_does() {
    let mut seen = BTreeSet::new();
    for capacity in [1, 19, 20, 45, 100, 200] {
        for seed in 0..10 {
            println!("capacity {capacity}, seed {seed}");
            let config = Config { objects: 10, ..Config::single(200, capacity) };
            let mut policy = TablePlacement::new(&config, &Options::defaults(&TablePlacement::INFO)).unwrap();
            let mut model = Model { capacity, ..Model::default() };
            let mut random = Random::new(seed);
            let mut requests = check::workload(seed, LAYOUT, 2_000);
            // Some objects are only ever scanned.
            requests.iter_mut().for_each(|request| request.sequential |= request.page.0 >= 160);
            for request in &mut requests {
                if random.chance(0.3) {
                    request.page = Page(random.below(160) as u32);
                }
            }
            check::run_beside_queries(&mut policy, LAYOUT, &config, &requests, seed, |event| model.event(event));
            seen.extend(model.seen);
        }
    }
    let all = ["does not fit", "moved out", "not worth it", "run", "single"];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
}

/// Objects of unequal size, described by a special driver: the benefit counts per page.
#[test]
fn the_benefit_is_per_page() {
    /// Object 0 has 10 pages, object 1 has 2.
    #[derive(Default)]
    struct Sizes(Vec<Movement>);
    impl entresol_policy::Driver for Sizes {
        fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
            true
        }
        fn emit(&mut self, movement: Movement) {
            self.0.push(movement);
        }
        fn now_us(&self) -> u64 {
            0
        }
        fn next_use(&self) -> u32 {
            0
        }
        fn address(&self, page: Page) -> entresol_core::Address {
            let object = ObjectId(u32::from(page.0 >= 10));
            entresol_core::Address { object, block: u64::from(page.0 % 10) }
        }
        fn successor(&self, page: Page) -> Option<Page> {
            (page.0 != 9 && page.0 != 11).then_some(Page(page.0 + 1))
        }
        fn predecessor(&self, page: Page) -> Option<Page> {
            (page.0 != 0 && page.0 != 10).then(|| Page(page.0 - 1))
        }
        fn object_pages(&self, object: ObjectId) -> u64 {
            [10, 2][object.index()]
        }
    }
    let config = Config { objects: 2, ..Config::single(12, 10) };
    let mut policy = TablePlacement::new(&config, &Options::defaults(&TablePlacement::INFO)).unwrap();
    let mut driver = Sizes::default();
    for page in [0, 1, 2, 3, 10] {
        policy.access(Request::read(page), &mut driver);
    }
    driver.0.clear();
    policy.hint(Hint::QueryBegin { query: 1, objects: &[ObjectId(0), ObjectId(1)] }, &mut driver);
    // One access to two pages is worth more than four to ten, and both do not fit.
    let fetched: Vec<Verb> = driver.0.iter().map(|movement| movement.verb).collect();
    assert_eq!(fetched, [Verb::FetchObject { object: ObjectId(1), pages: 2, to: NVM }]);
    assert_eq!(policy.occupancy(NVM), 2);
    assert!(policy.state(Page(11)).known && !policy.state(Page(1)).known);
}

/// Gradual filling keeps the rules of all policies. A placed object's page is admitted when it is requested and stays.
/// An object placed by a person stays until the person ends it. No other page is kept.
#[test]
fn what_is_filled_gradually_is_what_is_placed() {
    let (mut pinned_all, mut refused, mut left) = (0, 0, 0);
    for capacity in [19, 20, 45, 100, 200] {
        for seed in 0..10 {
            println!("capacity {capacity}, seed {seed}");
            let config = Config { objects: 10, ..Config::single(200, capacity) };
            let options = Options::parse(&TablePlacement::INFO, ["fill=gradual"]).unwrap();
            let mut policy = TablePlacement::new(&config, &options).unwrap();
            let mut checker = check::Checker::new(LAYOUT, &config.tiers, check::Refusals::NONE);
            let (mut random, mut pinned) = (Random::new(seed), BTreeSet::new());
            for (step, request) in check::workload(seed, LAYOUT, 2_000).into_iter().enumerate() {
                let object = ObjectId(random.below(10) as u32);
                match random.below(60) {
                    0 => {
                        checker.hint(&mut policy, Hint::Place { object });
                        if policy.placed(object) > 0 {
                            pinned.insert(object);
                            pinned_all += 1;
                        } else {
                            refused += 1;
                        }
                    }
                    1 => {
                        checker.hint(&mut policy, Hint::Unplace { object });
                        pinned.remove(&object);
                        assert_eq!(policy.placed(object), 0);
                    }
                    2..=4 => {
                        let objects = [object, ObjectId((object.0 + 1) % 10)];
                        checker.hint(&mut policy, Hint::QueryBegin { query: step as u32, objects: &objects });
                    }
                    _ => {}
                }
                let of = |object| policy.placed(ObjectId(object));
                assert!((0..10).map(of).sum::<u64>() <= capacity as u64, "step {step}");
                assert!(pinned.iter().all(|&object| policy.placed(object) == SIZE as u64), "step {step}: {pinned:?}");
                let held = !policy.state(request.page).tiers.is_empty();
                let placed = policy.placed(LAYOUT.address(request.page).object) > 0;
                let outcome = checker.request(&mut policy, request, u32::MAX);
                match (held, placed) {
                    (true, true) => assert!(outcome.is_hit(), "step {step}"),
                    (false, true) => assert_eq!(outcome, Outcome::ADMITTED, "step {step}"),
                    (false, false) => assert_eq!(outcome, Outcome::BYPASSED, "step {step}"),
                    (true, false) => {
                        // The page leaves after this request, or after one of the next.
                        assert!(outcome.is_hit(), "step {step}");
                        left += 1;
                    }
                }
            }
            checker.verify_all(&policy);
        }
    }
    println!("{pinned_all} pinned, {refused} refused, {left} asked for while they left");
    assert!(pinned_all > 100 && refused > 100 && left > 20);
}
