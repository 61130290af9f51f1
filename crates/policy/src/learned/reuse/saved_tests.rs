//! Learned state goes from one policy to another, and any other bytes do no harm.

use super::Reuse;
use super::tests::{OBJECT, SEED, built, driven};
use crate::check::{Checker, Layout, Refusals};
use crate::info::Config;
use crate::interface::Policy;
use crate::options::Options;
use crate::ranked::Ranked;
use crate::state::Learned;
use entresol_core::{NEVER, Page, Random, Request};

/// Requests to a few pages, some of them far more often than others, among as many to pages that never return.
fn skewed_and_once(seed: u64) -> impl Iterator<Item = Request> {
    let mut random = Random::new(seed);
    (0..).map(move |i: u32| {
        let page = if random.chance(0.5) { OBJECT + i } else { (random.next_f64().powi(2) * 1500.0) as u32 };
        if random.chance(0.2) { Request::write(page) } else { Request::read(page) }
    })
}

/// A new policy that is shown the pages of another one, longest unused first, and goes on from its tables.
fn gone_on_from(before: &Reuse, with_state: bool) -> Reuse {
    let mut reuse = built(1_000, &[]);
    if with_state {
        assert!(reuse.go_on_from(&Learned::tables(before)));
    }
    let mut held: Vec<Page> = (0..before.pages.residents()).map(|at| before.pages.page(at)).collect();
    held.sort_by_key(|&page| (std::cmp::Reverse(before.pages.history(page).age(before.tick)), page));
    for page in held {
        let dirty = before.pages.history(page).is_dirty();
        driven(&mut reuse, [if dirty { Request::write(page.0) } else { Request::read(page.0) }]);
        if with_state {
            reuse.recall(page, Learned::history(before, page).expect("it is held"));
        }
    }
    reuse
}

#[test]
fn a_policy_goes_on_from_what_another_has_learned() {
    println!("seed {SEED}");
    let mut before = built(1_000, &[]);
    driven(&mut before, skewed_and_once(SEED).take(60_000));
    let mut with = gone_on_from(&before, true);
    for at in 0..before.pages.residents() {
        let page = before.pages.page(at);
        assert_eq!(with.rank(page).to_bits(), before.rank(page).to_bits(), "{page:?}");
        assert_eq!(with.state(page), before.state(page));
        assert_eq!(Learned::history(&with, page), Learned::history(&before, page));
    }
    assert_eq!(Learned::tables(&with), Learned::tables(&before));
    let ghost = (0..60_000).map(|i| Page(OBJECT + i)).find(|&page| !before.pages.history(page).is_resident());
    assert_eq!(Learned::history(&before, ghost.expect("pages that never return")), None);
    let ios = |reuse: &mut Reuse| {
        let counts = driven(reuse, skewed_and_once(SEED).skip(60_000).take(20_000));
        counts.fetches + counts.write_backs + counts.write_bypasses
    };
    let [uninterrupted, with, without] =
        [ios(&mut before.clone()), ios(&mut with), ios(&mut gone_on_from(&before, false))];
    println!("disk I/Os: {uninterrupted} uninterrupted, {with} with what was learned, {without} without");
    assert!(with.abs_diff(uninterrupted) * 50 < uninterrupted, "within 2 %: {with} and {uninterrupted}");
    assert!(without * 100 > with * 103, "{without} and {with}");
}

#[test]
fn a_policy_refuses_what_it_cannot_go_on_from() {
    let mut before = built(1_000, &[]);
    driven(&mut before, skewed_and_once(SEED).take(20_000));
    let tables = Learned::tables(&before);
    let refused = |mut reuse: Reuse, tables: &[u8]| {
        let as_new = Learned::tables(&reuse);
        let refused = !reuse.go_on_from(tables);
        assert!(!refused || Learned::tables(&reuse) == as_new, "what is refused changes nothing");
        refused
    };
    assert!(!refused(built(1_000, &[]), &tables));
    assert!(!refused(built(1_000, &["price=0.3"]), &tables), "a price counts no other events");
    assert!(refused(built(100, &[]), &tables));
    assert!(refused(built(1_000, &["writes=through"]), &tables));
    (0..tables.len()).step_by(7).for_each(|end| {
        let is_whole = end >= 28 && (end - 28) % 462 == 0;
        assert_eq!(refused(built(1_000, &[]), &tables[..end]), !is_whole, "cut at {end}");
    });
    let mut twice = tables.clone();
    twice.extend_from_slice(&tables[28..28 + 462]);
    assert!(refused(built(1_000, &[]), &twice), "a class comes twice");
}

/// Tables and histories of any bytes are refused, or the policy keeps the rules of the interface with them.
#[test]
fn any_bytes_leave_a_policy_that_works() {
    let (pages, capacity) = (400, 64);
    let layout = Layout { pages, object_pages: 100 };
    let config = Config { objects: 4, seed: SEED, ..Config::single(pages as usize, capacity) };
    let reuse = Reuse::new(&config, &Options::defaults(&Reuse::INFO)).expect("a policy");
    let mut before = reuse.clone();
    driven(
        &mut before,
        skewed_and_once(SEED).map(|request| Request { page: Page(request.page.0 % pages), ..request }).take(5_000),
    );
    let sound = Learned::tables(&before);
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let mut tables = sound.clone();
        for _ in 0..random.below(4) {
            let at = random.below(tables.len() as u64) as usize;
            let end = (at + 4).min(tables.len());
            match random.below(3) {
                0 => tables[at] ^= 1 << random.below(8),
                1 => tables[at..end].fill(0xff),
                _ => tables[at..end].fill(0),
            }
        }
        let mut reuse = reuse.clone();
        if reuse.go_on_from(&tables) {
            accepted += 1;
        } else {
            refused += 1;
        }
        let mut checker = Checker::new(layout, &[capacity], Refusals::NONE);
        for page in 0..2 * capacity as u32 {
            checker.request(&mut reuse, Request::read(page), NEVER);
            reuse.recall(Page(page), random.next_u64() as u32);
        }
        for _ in 0..1_000 {
            let page = (random.next_f64().powi(3) * f64::from(pages)) as u32;
            let request = if random.chance(0.3) { Request::write(page) } else { Request::read(page) };
            checker.request(&mut reuse, request, NEVER);
        }
        checker.verify_all(&reuse);
    }
    println!("seeds 0 to 149: {accepted} accepted, {refused} refused");
    assert!(accepted > 30 && refused > 30);
}
