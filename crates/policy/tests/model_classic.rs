//! Plain models of the classic policies, straight from their definitions, compared event by event.

use crate::single::{cases, compare};
use entresol_core::Page;
use entresol_policy::classic::{Clock, Fifo, Lfu, LfuAging, Lru, Mru, Random};

/// Pages in a vector, which is all that a model of a queue or a stack needs.
fn position(pages: &[Page], page: Page) -> Option<usize> {
    pages.iter().position(|&held| held == page)
}

#[test]
fn lru_evicts_the_least_recently_used() {
    for (capacity, seed) in cases() {
        let mut stack: Vec<Page> = Vec::new();
        compare::<Lru>(&[], capacity, seed, |request, _, _| {
            let at = position(&stack, request.page);
            at.map(|at| stack.remove(at));
            let victims = if at.is_none() && stack.len() == capacity { vec![stack.remove(0)] } else { vec![] };
            stack.push(request.page);
            at.is_none().then_some(victims)
        });
    }
}

#[test]
fn mru_evicts_the_most_recently_used() {
    for (capacity, seed) in cases() {
        let mut stack: Vec<Page> = Vec::new();
        compare::<Mru>(&[], capacity, seed, |request, _, _| {
            let at = position(&stack, request.page);
            at.map(|at| stack.remove(at));
            let full = at.is_none() && stack.len() == capacity;
            let victims = if full { stack.pop().into_iter().collect() } else { vec![] };
            stack.push(request.page);
            at.is_none().then_some(victims)
        });
    }
}

#[test]
fn fifo_evicts_what_came_first() {
    for (capacity, seed) in cases() {
        let mut queue: Vec<Page> = Vec::new();
        compare::<Fifo>(&[], capacity, seed, |request, _, _| {
            if queue.contains(&request.page) {
                return None;
            }
            let victims = if queue.len() == capacity { vec![queue.remove(0)] } else { vec![] };
            queue.push(request.page);
            Some(victims)
        });
    }
}

/// CLOCK as a queue with re-insertion: no circle and no hand.
fn clock(options: &[&str], load_counts: bool) {
    for (capacity, seed) in cases() {
        let mut queue: Vec<(Page, bool)> = Vec::new();
        compare::<Clock>(options, capacity, seed, |request, _, _| {
            if let Some(entry) = queue.iter_mut().find(|entry| entry.0 == request.page) {
                entry.1 = true;
                return None;
            }
            let mut victims = Vec::new();
            while queue.len() == capacity {
                match queue.remove(0) {
                    (page, true) => queue.push((page, false)),
                    (page, false) => victims.push(page),
                }
            }
            queue.push((request.page, load_counts));
            Some(victims)
        });
    }
}

#[test]
fn clock_gives_a_second_chance() {
    clock(&[], false);
}

#[test]
fn clock_can_count_the_load_as_a_use() {
    clock(&["load=referenced"], true);
}

/// (count, request at which the page came to that count, page).
type Counted = Vec<(u32, usize, Page)>;

fn lfu(options: &[&str], most_recent: bool, all: bool) {
    for (capacity, seed) in cases() {
        let mut pages: Counted = Vec::new();
        let mut uses = std::collections::BTreeMap::new();
        let mut now = 0;
        compare::<Lfu>(options, capacity, seed, |request, _, _| {
            now += 1;
            *uses.entry(request.page).or_insert(0) += 1;
            if let Some(entry) = pages.iter_mut().find(|entry| entry.2 == request.page) {
                *entry = (entry.0 + 1, now, entry.2);
                return None;
            }
            let mut victims = Vec::new();
            if pages.len() == capacity {
                let order =
                    |&(count, since, _): &(u32, usize, Page)| (count, if most_recent { now - since } else { since });
                let at = (0..pages.len()).min_by_key(|&at| order(&pages[at])).unwrap();
                victims.push(pages.remove(at).2);
            }
            pages.push((if all { uses[&request.page] } else { 1 }, now, request.page));
            Some(victims)
        });
    }
}

#[test]
fn lfu_evicts_the_oldest_of_the_least_used() {
    lfu(&[], false, false);
}

#[test]
fn lfu_can_evict_the_most_recent_of_the_least_used() {
    lfu(&["ties=most-recent"], true, false);
}

#[test]
fn lfu_can_count_pages_outside_the_cache() {
    lfu(&["counts=all"], false, true);
    lfu(&["counts=all", "ties=most-recent"], true, true);
}

/// The pages in the order in which they would leave; halving keeps it.
fn lfu_aging(options: &[&str], threshold: f64) {
    let mut halvings = 0;
    for (capacity, seed) in cases() {
        let mut order: Vec<(Page, u32)> = Vec::new();
        compare::<LfuAging>(options, capacity, seed, |request, _, _| {
            let at = order.iter().position(|entry| entry.0 == request.page);
            let count = at.map_or(0, |at| order.remove(at).1) + 1;
            let full = at.is_none() && order.len() == capacity;
            let victims = if full { vec![order.remove(0).0] } else { vec![] };
            let behind = order.iter().position(|entry| entry.1 > count).unwrap_or(order.len());
            order.insert(behind, (request.page, count));
            let mean = order.iter().map(|entry| f64::from(entry.1)).sum::<f64>() / order.len() as f64;
            if mean > threshold {
                halvings += 1;
                order.iter_mut().for_each(|entry| entry.1 /= 2);
            }
            at.is_none().then_some(victims)
        });
    }
    assert!(halvings > 0, "the workload never made the counts age");
}

#[test]
fn lfu_aging_halves_the_counts() {
    lfu_aging(&[], 5.5);
}

#[test]
fn lfu_aging_has_a_threshold() {
    lfu_aging(&["threshold=2"], 2.0);
}

#[test]
fn random_evicts_what_is_drawn() {
    for (capacity, seed) in cases() {
        let mut held: Vec<Page> = Vec::new();
        let mut draws = entresol_core::Random::new(seed);
        compare::<Random>(&[], capacity, seed, |request, _, _| {
            if held.contains(&request.page) {
                return None;
            }
            if held.len() < capacity {
                held.push(request.page);
                return Some(vec![]);
            }
            let drawn = draws.below(capacity as u64) as usize;
            let victim = held[drawn];
            held[drawn] = request.page;
            Some(vec![victim])
        });
    }
}
