//! Rules of Reuse, each with a mutant that its test finds.

use super::history::{AGE_MAX, BUCKETS, Gaps, History, WORK, cell};
use super::pages::{BLOCK, BLOCKS_MAX, GHOSTS_LOOKED_AT, Pages};
use super::tables::{BUILT, End, Tables, decode};
use super::{CLAMPED, GHOSTS, Reuse, SAMPLED_AT_ONCE};
use crate::check::{Checker, Layout, Refusals};
use crate::counts::Counts;
use crate::info::Config;
use crate::interface::{Driver, Policy};
use crate::mutant::{Mutant, activate};
use crate::options::Options;
use crate::ranked::Ranked;
use entresol_core::{Address, Movement, NEVER, ObjectId, Page, Random, Request, Tier};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Pages of an object in these tests.
pub(super) const OBJECT: u32 = 100_000;
pub(super) const SEED: u64 = 5;

/// A driver that counts, over pages of which it is given the addresses.
struct Counting<A> {
    address: A,
    counts: Counts,
    writing: bool,
}

impl<A: Fn(Page) -> Address> Driver for Counting<A> {
    fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
        true
    }
    fn emit(&mut self, movement: Movement) {
        self.counts.movement(movement, self.writing);
    }
    fn now_us(&self) -> u64 {
        0
    }
    fn next_use(&self) -> u32 {
        NEVER
    }
    fn address(&self, page: Page) -> Address {
        (self.address)(page)
    }
    fn successor(&self, _page: Page) -> Option<Page> {
        None
    }
    fn predecessor(&self, _page: Page) -> Option<Page> {
        None
    }
    fn object_pages(&self, _object: ObjectId) -> u64 {
        u64::from(OBJECT)
    }
}

pub(super) fn built(capacity: usize, options: &[&str]) -> Reuse {
    let config = Config { seed: SEED, ..Config::single(3 * OBJECT as usize, capacity) };
    let options = Options::parse(&Reuse::INFO, options.iter().copied()).expect("good options");
    Reuse::new(&config, &options).expect("a policy")
}

pub(super) fn driven(reuse: &mut Reuse, requests: impl IntoIterator<Item = Request>) -> Counts {
    let address = |page: Page| Address { object: ObjectId(page.0 / OBJECT), block: u64::from(page.0 % OBJECT) };
    driven_at(address, reuse, requests)
}

/// Requests to pages with these addresses.
pub(super) fn driven_at(
    address: impl Fn(Page) -> Address,
    reuse: &mut Reuse,
    requests: impl IntoIterator<Item = Request>,
) -> Counts {
    let mut driver = Counting { address, counts: Counts::default(), writing: false };
    for request in requests {
        driver.writing = request.op.is_write();
        let outcome = reuse.access(request, &mut driver);
        driver.counts.outcome(request, outcome);
    }
    driver.counts
}

/// Requests to a few pages again and again, every other one, and in between to pages that never return.
fn once_and_again(requests: u32, write: bool) -> impl Iterator<Item = Request> {
    let mut random = Random::new(SEED);
    (0..requests).map(move |i| match (i % 2, write) {
        (0, _) => Request::read(random.below(60) as u32),
        (_, true) => Request::write(OBJECT + i),
        (_, false) => Request::read(OBJECT + i),
    })
}

fn pages_read_once_pass() {
    let mut reuse = built(100, &[]);
    driven(&mut reuse, once_and_again(20_000, false));
    let counts = driven(&mut reuse, once_and_again(60_000, false).skip(20_000));
    assert!(counts.tiers[0].fetched < 2_000, "{counts:?}");
    assert!(counts.read_hits() > 19_900, "{counts:?}");
}

fn pages_written_once_pass() {
    let mut reuse = built(100, &[]);
    driven(&mut reuse, once_and_again(20_000, true));
    let counts = driven(&mut reuse, once_and_again(60_000, true).skip(20_000));
    assert!(counts.tiers[0].installed < 2_000, "{counts:?}");
    assert!(counts.read_hits() > 19_900, "{counts:?}");
}

/// Tables of four classes that differ in nothing but the events counted.
fn learned() -> Tables {
    let mut tables = Tables::new(1_000, 31, true);
    for _ in 0..100_000 {
        // Half of the pages are read at the age of 10 ticks, the others never.
        tables.count(cell(300, 10), End::Read);
        tables.count(cell(300, 2_000), End::Never);
        // All at 10; all at 40; all written at 10.
        tables.count(cell(302, 10), End::Read);
        tables.count(cell(304, 40), End::Read);
        tables.count(cell(306, 10), End::Write);
    }
    tables.build(0.0, 0);
    tables
}

fn ranks_order_pages_by_what_they_save() {
    let tables = learned();
    let rank = |class, age, dirty| decode(tables.rank(cell(class, age), dirty));
    let [half, all, late, written] = [300, 302, 304, 306];
    assert!(rank(all, 0, false) > 1.8 * rank(half, 0, false), "{} {}", rank(all, 0, false), rank(half, 0, false));
    assert!(rank(half, 0, false) > 1.3 * rank(late, 0, false));
    // Whoever is older than 10 ticks will never be read; one that waits for 40 is the nearer to it.
    assert!(rank(half, 100, false) < 0.01 * rank(late, 0, false));
    assert!(rank(late, 30, false) > 2.0 * rank(late, 0, false));
    assert!(rank(half, 9, false) > 1.7 * rank(half, 0, false));
    // A write saves nothing of a clean page, and as much as a read of a dirty one, but for what the read leaves undone.
    assert!(rank(written, 0, false) < 0.01 * rank(all, 0, false), "a write is no benefit of a clean page");
    let ratio = rank(all, 0, true) / rank(written, 0, true);
    assert!((1.2..1.3).contains(&ratio), "{ratio}");
}

fn dirty_pages_gain_by_writes() {
    let tables = learned();
    let [clean, dirty] = [false, true].map(|dirty| decode(tables.rank(cell(302, 0), dirty)));
    assert!((1.2..1.3).contains(&(dirty / clean)), "{dirty} {clean}");
}

fn forgotten_pages_count_as_never() {
    let mut reuse = built(100, &[]);
    driven(&mut reuse, (0..400).map(Request::read));
    let counted = reuse.tables.weights()[End::Never as usize];
    assert_eq!(counted as usize, 400 - 100 * (1 + GHOSTS));
}

fn pages_that_wait_count_at_the_first_build() {
    let mut reuse = built(1_000, &[]);
    let pages = (0..).flat_map(|i: u32| if i % 16 == 2 { vec![i, i - 2] } else { vec![i] });
    driven(&mut reuse, pages.take(520).chain([900]).map(Request::read));
    assert_eq!(reuse.builds, 3);
    let rank = reuse.rank(Page(900));
    assert!(rank > 0.0 && rank < 0.006, "{rank}: most pages did not return yet");
}

fn ages_do_not_wrap() {
    let mut reuse = built(20, &[]);
    driven(&mut reuse, (0..20).map(Request::read));
    for i in 0..20_000u32 {
        driven(&mut reuse, [Request::read(i % 10)]);
        let age = reuse.pages.history(Page(15)).age(reuse.tick);
        assert!(age >= i.min(AGE_MAX), "age {age} after {i} ticks");
    }
}

/// Number of a history that stands for a rank.
fn numbered(rank: u32) -> History {
    History::first(0, false, rank).resident(false)
}

fn rank_of(history: History) -> i16 {
    (history.class() / 2) as i16
}

fn full(capacity: u32, rank: impl Fn(u32) -> u32) -> Pages {
    let mut pages = Pages::new(10_000, capacity as usize, 2 * capacity as usize);
    (0..capacity).for_each(|page| pages.fill(Page(page), numbered(rank(page)), rank_of));
    pages
}

fn accessed_pages_are_not_taken_for_cold() {
    let mut random = Random::new(SEED);
    let mut ranks: Vec<u32> = (0..1_000).map(|_| random.below(32) as u32).collect();
    let mut pages = full(1_000, |page| ranks[page as usize]);
    for next in 1_000.. {
        for _ in 0..20 {
            // Ranks rise by accesses.
            let page = random.below(ranks.len() as u64) as usize;
            if pages.history(Page(page as u32)).is_resident() {
                ranks[page] = (ranks[page] + 8).min(63);
                pages.set_history(Page(page as u32), numbered(ranks[page]));
            }
        }
        let resident = |page: &usize| pages.history(Page(*page as u32)).is_resident();
        let least = (0..ranks.len()).filter(resident).map(|page| ranks[page]).min().expect("residents") as i16;
        let victim = pages.coldest(i16::MAX, rank_of).expect("a victim");
        assert_eq!(rank_of(pages.history(pages.page(victim.at))), least, "eviction {next}");
        assert!(pages.coldest(least, rank_of).is_none(), "eviction {next}: none is colder");
        if next == 3_000 {
            break;
        }
        ranks.push(random.below(32) as u32);
        pages.replace(victim, Page(next), numbered(ranks[next as usize]), rank_of);
    }
}

fn pages_that_grow_cold_are_seen_in_turn() {
    let mut pages = full(800, |_| 50);
    // Ranks fall without an access.
    pages.set_history(Page(77), numbered(3));
    for next in 800..901 {
        let victim = pages.coldest(i16::MAX, rank_of).expect("a victim");
        pages.replace(victim, Page(next), numbered(50), rank_of);
    }
    assert!(!pages.history(Page(77)).is_resident(), "the coldest page is still there after one turn of 100 blocks");
}

fn the_coldest_of_four_ghosts_is_forgotten() {
    let mut random = Random::new(SEED);
    let mut pages = full(8, |_| 60);
    let mut ghosts = Vec::new();
    for page in 100..2_000 {
        let rank = random.below(50) as u32;
        let forgotten = pages.add_ghost(Page(page), numbered(rank).ghost(), rank_of);
        if ghosts.len() < 16 {
            assert_eq!(forgotten, None);
            ghosts.push(rank);
            continue;
        }
        // Four in turn; the last of equals goes.
        let group = (1 + (page as usize - 116) * 4..).take(4).map(|at| at % 16);
        let at = group.min_by_key(|&at| (ghosts[at], std::cmp::Reverse((at + 15) % 16))).expect("four ghosts");
        assert_eq!(forgotten.map(rank_of), Some(ghosts[at] as i16), "page {page}");
        ghosts[at] = rank;
    }
    assert_eq!((pages.residents(), pages.ghosts()), (8, 16));
}

fn old_events_lose_their_weight() {
    let mut tables = Tables::new(1_000, 31, true);
    (0..100_000).for_each(|_| tables.count(cell(300, 5), End::Read));
    tables.build(0.0, 0);
    let before = tables.rank(cell(300, 0), false);
    for _ in 0..40 {
        (0..10_000).for_each(|_| tables.count(cell(300, 1_000), End::Never));
        tables.build(0.0, 0);
    }
    let after = tables.rank(cell(300, 0), false);
    assert!(decode(after) < 0.1 * decode(before), "{} {}", decode(after), decode(before));
}

fn tables_are_built_early() {
    let mut reuse = built(50_000, &[]);
    driven(&mut reuse, (0..64 + 128 + 256 + 512 + 300).map(|i| Request::read(i % 700)));
    assert_eq!(reuse.builds, 4);
}

fn writes_leave_the_history_in_write_through() {
    let mut reuse = built(100, &["writes=through"]);
    driven(&mut reuse, (0..50).flat_map(|_| (0..90).map(Request::read)));
    let before = reuse.pages.history(Page(7));
    let counts = driven(&mut reuse, (0..10).map(|_| Request::write(7)));
    assert_eq!(reuse.pages.history(Page(7)), before);
    assert_eq!((counts.tiers[0].installed, counts.write_backs), (10, 10), "each write reaches both");
    assert!(!reuse.state(Page(7)).dirty);
}

fn a_price_spares_writes_of_the_device() {
    let requests = || {
        let mut random = Random::new(SEED);
        (0..200_000).map(move |_| Request::read(random.below(1 + random.clone().below(20_000)) as u32))
    };
    let [free, dear] = ["price=0", "price=0.65"].map(|price| driven(&mut built(1_000, &[price]), requests()));
    assert!(2 * dear.tiers[0].fetched < free.tiers[0].fetched, "{} {}", dear.tiers[0].fetched, free.tiers[0].fetched);
    assert!(10 * dear.misses() < 12 * free.misses(), "{} {}", dear.misses(), free.misses());
}

/// Mean gaps in histories beside the mean that they stand for.
fn mean_gaps_are_kept() {
    let (mut random, mut gaps) = (Random::new(SEED), Gaps::new());
    for spread in [1, 4, 100] {
        let (mut classes, mut exact) = (0.0, 0.0);
        for _ in 0..300 {
            let (mut tick, mut sum, mut count) = (0u32, 0.0, 1.0);
            let mut history = History::first(tick, false, 0);
            for _ in 0..300 {
                let age = 20 + random.below(spread) as u32;
                tick += age;
                (sum, count) = (sum + f64::from(age), count + 1.0);
                if count == 128.0 {
                    (sum, count) = (sum / 127.0 * 63.0, 64.0);
                }
                history = gaps.access(history, tick, false, &mut random);
            }
            classes += (history.class() / 2 % super::GAPS) as f64 + 0.5;
            exact += 2.0 * (16.0 * sum / (count - 1.0)).log2();
        }
        let error = (classes - exact) / 300.0;
        assert!(error.abs() < 0.6, "spread {spread}: {error} half octaves too much");
    }
}

fn objects_are_told_apart() {
    let mut reuse = built(500, &[]);
    let pages = (0..30_000u32).map(|i| if i % 2 == 0 { i / 2 - i / 2 % 100 / 2 } else { OBJECT + i });
    driven(&mut reuse, pages.map(Request::read));
    driven(&mut reuse, [Request::read(OBJECT - 1), Request::read(2 * OBJECT - 1)]);
    let [returning, passing] = [OBJECT - 1, 2 * OBJECT - 1].map(|page| reuse.rank(Page(page)));
    assert!(returning > 5.0 * passing, "{returning} {passing}");
}

/// Most pages ranked or sampled and cells built in a request.
fn most_work(reuse: &mut Reuse, requests: impl IntoIterator<Item = Request>) -> usize {
    let work = |request| {
        WORK.set(0);
        driven(reuse, [request]);
        WORK.get()
    };
    requests.into_iter().map(work).max().expect("requests")
}

/// Ranks of the missed page and of the victim.
const OWN_RANKS: usize = 5;
const EVICTION: usize = (BLOCKS_MAX + 1) * BLOCK + GHOSTS_LOOKED_AT + OWN_RANKS;

fn a_request_builds_a_part_of_the_tables() {
    let mut random = Random::new(SEED);
    let mut reuse = built(10_000, &[]);
    let pages = (0..200_000).map(|_| (random.next_f64().powi(3) * 60_000.0) as u32);
    let requests: Vec<Request> =
        pages.map(|page| if page % 3 == 0 { Request::write(page) } else { Request::read(page) }).collect();
    let most = most_work(&mut reuse, requests);
    assert!(reuse.builds > 10, "{} builds", reuse.builds);
    assert!(most <= EVICTION + SAMPLED_AT_ONCE + BUILT * BUCKETS + CLAMPED, "{most}");
    assert!(most <= 260, "{most}");
}

/// All residents are accessed, so every block was looked at before an access, and the search for a victim is long.
fn an_eviction_looks_at_a_bounded_number_of_blocks() {
    let mut pages = full(4_000, |page| 10 + page % 7);
    (0..4_000).for_each(|page| pages.set_history(Page(page), numbered(40 + page % 13)));
    let looks = std::cell::Cell::new(0);
    let counted = |history| {
        looks.set(looks.get() + 1);
        rank_of(history)
    };
    for next in 4_000..5_000 {
        looks.set(0);
        let victim = pages.coldest(63, counted).expect("a victim");
        assert!(looks.get() <= BLOCKS_MAX * BLOCK, "{} ranks", looks.get());
        pages.replace(victim, Page(next), numbered(60), rank_of);
    }
}

/// The rules, by their mutants.
const RULES: &[(Mutant, fn())] = &[
    (Mutant::EveryReadAdmitted, pages_read_once_pass),
    (Mutant::EveryWriteAdmitted, pages_written_once_pass),
    (Mutant::WritesAsReads, ranks_order_pages_by_what_they_save),
    (Mutant::DirtyReadsAsWrites, dirty_pages_gain_by_writes),
    (Mutant::ForgottenNotCounted, forgotten_pages_count_as_never),
    (Mutant::WaitingNotCounted, pages_that_wait_count_at_the_first_build),
    (Mutant::AgesWrap, ages_do_not_wrap),
    (Mutant::NoLookInTurn, pages_that_grow_cold_are_seen_in_turn),
    (Mutant::StaleMinimum, accessed_pages_are_not_taken_for_cold),
    (Mutant::NoDecay, old_events_lose_their_weight),
    (Mutant::LateBuild, tables_are_built_early),
    (Mutant::WritesCounted, writes_leave_the_history_in_write_through),
    (Mutant::NoPrice, a_price_spares_writes_of_the_device),
    (Mutant::GapsRoundedDown, mean_gaps_are_kept),
    (Mutant::AnyGhostForgotten, the_coldest_of_four_ghosts_is_forgotten),
    (Mutant::OneObject, objects_are_told_apart),
    (Mutant::BuiltAtOnce, a_request_builds_a_part_of_the_tables),
    (Mutant::EndlessSearch, an_eviction_looks_at_a_bounded_number_of_blocks),
];

#[test]
fn every_rule_holds() {
    println!("seed {SEED}");
    RULES.iter().for_each(|(mutant, rule)| {
        println!("{mutant:?}");
        rule();
    });
}

#[test]
fn every_mutant_is_found() {
    for mutant in Mutant::ALL {
        let (_, rule) = RULES.iter().find(|(of, _)| *of == mutant).expect("a rule for each mutant");
        activate(Some(mutant));
        let found = catch_unwind(AssertUnwindSafe(rule)).is_err();
        activate(None);
        assert!(found, "{mutant:?} is not found");
    }
}

#[test]
fn memory_is_bounded() {
    const FIXED: usize = 800_000;
    for capacity in [1, 10, 1_000, 50_000] {
        let config = Config::single((1 + GHOSTS) * capacity + 16, capacity);
        let mut reuse = Reuse::new(&config, &Options::defaults(&Reuse::INFO)).expect("a policy");
        let bytes = reuse.memory_bytes();
        assert!(bytes <= FIXED + 64 * capacity, "{capacity} pages: {bytes} bytes");
        let mut random = Random::new(SEED);
        let all = config.pages as u64;
        driven(&mut reuse, (0..100_000).map(|_| Request::read(random.below(all) as u32)));
        let known = (0..config.pages as u32).filter(|&page| reuse.state(Page(page)).known).count();
        assert!(known <= Reuse::INFO.known_per_page * capacity, "{known} of {capacity}");
        assert_eq!(reuse.memory_bytes(), bytes, "nothing is allocated by requests");
    }
}

#[test]
fn unknown_pages_have_no_rank() {
    let mut reuse = built(100, &[]);
    driven(&mut reuse, (0..10).map(Request::read));
    assert!(reuse.rank(Page(3)) > 0.0);
    assert_eq!(reuse.rank(Page(11)), 0.0);
}

/// A store that drops pages by itself, and sets the bar of the rest, sees no page twice and loses no write.
#[test]
fn a_store_may_take_pages_away() {
    for (seed, options) in [(1, &[][..]), (2, &["price=0.2"]), (3, &["writes=through"])] {
        println!("seed {seed}");
        let layout = Layout { pages: 400, object_pages: 100 };
        let config = Config { objects: 4, seed, ..Config::single(400, 64) };
        let options = Options::parse(&Reuse::INFO, options.iter().copied()).expect("good options");
        let mut reuse = Reuse::new(&config, &options).expect("a policy");
        let mut checker = Checker::new(layout, &[64], Refusals::NONE);
        let mut random = Random::new(seed);
        let mut released = 0;
        for at in 0..40_000 {
            let page = (random.next_f64().powi(3) * 400.0) as u32;
            let request = if random.chance(0.3) { Request::write(page) } else { Request::read(page) };
            checker.request(&mut reuse, request, NEVER);
            if at == 1000 {
                reuse.set_bar(1e-3, Some(0.1));
            }
            if at > 1000 && random.chance(0.2) {
                let page = Page(random.below(400) as u32);
                if !reuse.state(page).tiers.is_empty() {
                    checker.release(&mut reuse, page);
                    assert!(reuse.state(page).known, "{page:?} is a ghost");
                    released += 1;
                }
            }
            if at % 1000 == 0 {
                checker.verify_all(&reuse);
            }
        }
        assert!(released > 500, "{released}");
        reuse.set_bar(f32::INFINITY, Some(0.0));
        let held: Vec<Page> = (0..400).map(Page).filter(|&page| !reuse.state(page).tiers.is_empty()).collect();
        held.into_iter().for_each(|page| checker.release(&mut reuse, page));
        for page in 0..400 {
            checker.request(&mut reuse, Request::read(page), NEVER);
        }
        assert_eq!(reuse.occupancy(Tier::TOP), 0, "no page is above the highest bar");
    }
}

#[test]
fn while_nothing_may_be_written_pages_only_leave() {
    for (seed, options) in [(1, &[][..]), (2, &["writes=through"])] {
        println!("seed {seed}");
        let layout = Layout { pages: 400, object_pages: 100 };
        let config = Config { objects: 4, seed, ..Config::single(400, 64) };
        let options = Options::parse(&Reuse::INFO, options.iter().copied()).expect("good options");
        let mut reuse = Reuse::new(&config, &options).expect("a policy");
        let mut checker = Checker::new(layout, &[64], Refusals::NONE);
        let mut random = Random::new(seed);
        let (mut refused, mut hits) = (0, 0);
        for at in 0..40_000 {
            // Closed in every second thousand.
            let is_closed = at / 1000 % 2 == 1;
            if at % 1000 == 0 {
                reuse.set_bar(1e-6, (!is_closed).then_some(0.0));
                checker.verify_all(&reuse);
            }
            let page = (random.next_f64().powi(3) * 400.0) as u32;
            let request = if random.chance(0.3) { Request::write(page) } else { Request::read(page) };
            let held = !reuse.state(Page(page)).tiers.is_empty();
            checker.request(&mut reuse, request, NEVER);
            if is_closed {
                let holds = !reuse.state(Page(page)).tiers.is_empty();
                assert_eq!(holds, held && !request.op.is_write(), "seed {seed}, request {at}: {request:?}");
                refused += u32::from(!holds);
                hits += u32::from(holds);
            }
        }
        assert!(refused > 1000 && hits > 1000, "{refused} refused, {hits} hits");
    }
}
