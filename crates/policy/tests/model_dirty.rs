//! Plain models of the write-aware single-tier policies, straight from their papers, compared event by event.

use entresol_core::{Movement, Op, Outcome, Page, Request, Tier, Verb};
use entresol_policy::check::{self, Layout};
use entresol_policy::{Config, Options, Policy, dirty};

const LAYOUT: Layout = Layout::one_object(60);
const CAPACITIES: [usize; 6] = [1, 2, 3, 10, 25, 59];

/// A page in a model's list; what a policy does not use stays at its default.
#[derive(Clone, Copy)]
struct Frame {
    page: Page,
    dirty: bool,
    /// LRU-WSR's cold flag, AD-LRU's cleared reference bit.
    cold: bool,
    dirty_since_us: u64,
}

fn single(page: Page, verb: Verb) -> Movement {
    Movement { page, verb, joined: false }
}

fn write_back(page: Page) -> Movement {
    single(page, Verb::WriteBack { from: Tier::TOP })
}

fn evicted(victim: Frame) -> Vec<Movement> {
    let drop = single(victim.page, Verb::Drop { from: Tier::TOP });
    if victim.dirty { vec![write_back(victim.page), drop] } else { vec![drop] }
}

/// Outcome of a request in every one-tier cache without bypass, and the movement of the request's own page.
fn served(request: Request, hit: bool) -> (Outcome, Option<Movement>) {
    let outcome = if hit { Outcome::Hit(Tier::TOP) } else { Outcome::ADMITTED };
    let verb = match request.op {
        Op::Read if hit => return (outcome, None),
        Op::Read => Verb::Fetch { to: Tier::TOP },
        Op::Write | Op::Update => Verb::Install { to: Tier::TOP },
    };
    (outcome, Some(single(request.page, verb)))
}

fn take(list: &mut Vec<Frame>, page: Page) -> Option<Frame> {
    let at = list.iter().position(|frame| frame.page == page)?;
    Some(list.remove(at))
}

/// Drives a list (most recent page last) with a rule that removes the victim from it.
fn list_model(
    capacity: usize,
    mut remove_victim: impl FnMut(&mut Vec<Frame>) -> Frame,
) -> impl FnMut(Request, u32, u64) -> (Outcome, Vec<Movement>) {
    let mut list: Vec<Frame> = Vec::new();
    move |request, _, _| {
        let held = take(&mut list, request.page);
        let full = held.is_none() && list.len() == capacity;
        let mut movements = if full { evicted(remove_victim(&mut list)) } else { Vec::new() };
        let (outcome, own) = served(request, held.is_some());
        movements.extend(own);
        let dirty = held.is_some_and(|frame| frame.dirty) || request.op.is_write();
        list.push(Frame { page: request.page, dirty, cold: false, dirty_since_us: 0 });
        (outcome, movements)
    }
}

fn cflru_victim(list: &mut Vec<Frame>, window: usize) -> Frame {
    let within = list.len().min(window);
    let clean = list[..within].iter().position(|frame| !frame.dirty);
    list.remove(clean.unwrap_or(0))
}

fn lru_wsr_victim(list: &mut Vec<Frame>) -> Frame {
    loop {
        let candidate = list.remove(0);
        if !candidate.dirty || candidate.cold {
            return candidate;
        }
        list.push(Frame { cold: true, ..candidate });
    }
}

fn ad_lru_victim(queue: &mut Vec<Frame>) -> Frame {
    if let Some(first_clean) = queue.iter().position(|frame| !frame.dirty) {
        return queue.remove(first_clean);
    }
    loop {
        let candidate = queue.remove(0);
        if candidate.cold {
            return candidate;
        }
        queue.push(Frame { cold: true, ..candidate });
    }
}

fn ad_lru_model(capacity: usize, min_lc: usize) -> impl FnMut(Request, u32, u64) -> (Outcome, Vec<Movement>) {
    let (mut cold, mut hot): (Vec<Frame>, Vec<Frame>) = Default::default();
    move |request, _, _| {
        let held = take(&mut cold, request.page).or_else(|| take(&mut hot, request.page));
        let mut movements = Vec::new();
        if held.is_none() && cold.len() + hot.len() == capacity {
            let from_cold = cold.len() > min_lc || hot.is_empty();
            movements = evicted(ad_lru_victim(if from_cold { &mut cold } else { &mut hot }));
        }
        let (outcome, own) = served(request, held.is_some());
        movements.extend(own);
        let dirty = held.is_some_and(|frame| frame.dirty) || request.op.is_write();
        let frame = Frame { page: request.page, dirty, cold: false, dirty_since_us: 0 };
        if held.is_some() {
            hot.push(frame)
        } else {
            cold.push(frame)
        }
        (outcome, movements)
    }
}

fn lru_dram_model(capacity: usize, flush_us: u64) -> impl FnMut(Request, u32, u64) -> (Outcome, Vec<Movement>) {
    let mut list: Vec<Frame> = Vec::new();
    move |request, _, now_us| {
        let mut due: Vec<Frame> = list.iter().copied().filter(|f| f.dirty).collect();
        due.retain(|frame| frame.dirty_since_us + flush_us <= now_us);
        due.sort_by_key(|frame| frame.dirty_since_us);
        let mut movements: Vec<Movement> = due.iter().map(|frame| write_back(frame.page)).collect();
        for frame in &mut list {
            frame.dirty &= due.iter().all(|flushed| flushed.page != frame.page);
        }
        let held = take(&mut list, request.page);
        if held.is_none() && list.len() == capacity {
            movements.extend(evicted(list.remove(0)));
        }
        let (outcome, own) = served(request, held.is_some());
        movements.extend(own);
        let frame = match held {
            Some(frame) if frame.dirty => frame,
            _ => Frame { page: request.page, dirty: request.op.is_write(), cold: false, dirty_since_us: now_us },
        };
        list.push(frame);
        (outcome, movements)
    }
}

/// Compares a policy with its model over seeds and capacities.
fn compare<P: Policy, M>(options: &[&str], mut model: impl FnMut(usize) -> M)
where
    M: FnMut(Request, u32, u64) -> (Outcome, Vec<Movement>),
{
    for seed in 0..12 {
        for capacity in CAPACITIES {
            println!("{} {options:?}, seed {seed}, capacity {capacity}", P::INFO.name);
            let config = Config::single(60, capacity);
            let options = Options::parse(&P::INFO, options.iter().copied()).unwrap();
            let mut policy = P::new(&config, &options).unwrap();
            let requests = check::workload(seed, LAYOUT, 1_200);
            check::run_beside(&mut policy, LAYOUT, &config, &requests, model(capacity));
        }
    }
}

#[test]
fn cflru_does_what_its_model_does() {
    let model = |share: f64| {
        move |capacity: usize| {
            let window = ((capacity as f64 * share) as usize).max(1);
            list_model(capacity, move |list| cflru_victim(list, window))
        }
    };
    compare::<dirty::Cflru, _>(&[], model(0.1));
    compare::<dirty::Cflru, _>(&["window=40%"], model(0.4));
    compare::<dirty::Cflru, _>(&["window=100%"], model(1.0));
}

#[test]
fn cflru_with_a_window_of_one_page_is_lru() {
    compare::<dirty::Cflru, _>(&["window=1p"], |capacity| list_model(capacity, |list| list.remove(0)));
}

#[test]
fn lru_wsr_does_what_its_model_does() {
    compare::<dirty::LruWsr, _>(&[], |capacity| list_model(capacity, lru_wsr_victim));
}

#[test]
fn ad_lru_does_what_its_model_does() {
    compare::<dirty::AdLru, _>(&[], |capacity| ad_lru_model(capacity, capacity / 10));
    compare::<dirty::AdLru, _>(&["min-lc=50%"], |capacity| ad_lru_model(capacity, capacity / 2));
    compare::<dirty::AdLru, _>(&["min-lc=3p"], |capacity| ad_lru_model(capacity, 3.min(capacity)));
}

#[test]
fn lru_dram_does_what_its_model_does() {
    compare::<dirty::LruDram, _>(&[], |capacity| lru_dram_model(capacity, 30_000_000));
    compare::<dirty::LruDram, _>(&["flush-seconds=1.5"], |capacity| lru_dram_model(capacity, 1_500_000));
    compare::<dirty::LruDram, _>(&["flush-seconds=0"], |capacity| lru_dram_model(capacity, 0));
}

/// Pages written below by a policy over one workload.
fn write_count<P: Policy>(options: &[&str], capacity: usize) -> usize {
    let config = Config::single(60, capacity);
    let mut policy = P::new(&config, &Options::parse(&P::INFO, options.iter().copied()).unwrap()).unwrap();
    let mut checker = check::Checker::new(LAYOUT, &config.tiers, check::Refusals::NONE);
    let requests = check::workload(5, LAYOUT, 5_000);
    let mut writes = 0;
    for &request in &requests {
        checker.request(&mut policy, request, 0);
        writes += checker.movements.iter().filter(|m| matches!(m.verb, Verb::WriteBack { .. })).count();
    }
    writes
}

#[test]
fn each_policy_saves_the_writes_it_was_made_to_save() {
    let lru = write_count::<entresol_policy::classic::Lru>(&[], 20);
    let narrow = write_count::<dirty::Cflru>(&[], 20);
    let wide = write_count::<dirty::Cflru>(&["window=80%"], 20);
    let wsr = write_count::<dirty::LruWsr>(&[], 20);
    let ad = write_count::<dirty::AdLru>(&[], 20);
    println!("writes: lru {lru}, cflru {narrow}, wide window {wide}, lru-wsr {wsr}, ad-lru {ad}");
    assert!(wide < narrow && narrow < lru, "a wider clean-first window writes less");
    assert!(wsr < lru && ad < lru);
    let (late, soon) =
        (write_count::<dirty::LruDram>(&[], 20), write_count::<dirty::LruDram>(&["flush-seconds=1"], 20));
    println!("writes: lru-dram {late}, flushed after a second {soon}");
    assert!(lru < late && late < soon, "what is flushed early is written more often");
}
