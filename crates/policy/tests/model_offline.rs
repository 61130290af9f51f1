//! Plain models of the offline policies, straight from their definitions, compared event by event.

use crate::single::{Frames, cases, compare};
use entresol_core::Page;
use entresol_policy::offline::{Min, MinClean};

#[test]
fn min_evicts_what_is_used_farthest_in_the_future() {
    for (capacity, seed) in cases() {
        // (next use, request that set it, page): of pages never used again the last to become so goes first.
        let mut held: Vec<(u32, usize, Page)> = Vec::new();
        let mut now = 0;
        compare::<Min>(&[], capacity, seed, |request, next_use, _| {
            now += 1;
            let hit = held.iter().any(|entry| entry.2 == request.page);
            held.retain(|entry| entry.2 != request.page);
            let mut victims = Vec::new();
            if !hit && held.len() == capacity {
                let farthest = *held.iter().max().unwrap();
                held.retain(|&entry| entry != farthest);
                victims.push(farthest.2);
            }
            held.push((next_use, now, request.page));
            (!hit).then_some(victims)
        });
    }
}

fn min_clean(options: &[&str], window: impl Fn(usize) -> usize) {
    let mut spared = 0;
    for (capacity, seed) in cases() {
        let mut held: Vec<(u32, Page)> = Vec::new();
        compare::<MinClean>(options, capacity, seed, |request, next_use, frames: &Frames| {
            let hit = held.iter().any(|entry| entry.1 == request.page);
            held.retain(|entry| entry.1 != request.page);
            let mut victims = Vec::new();
            if !hit && held.len() == capacity {
                held.sort();
                held.reverse();
                let in_window = &held[..window(capacity).max(1)];
                let clean = in_window.iter().position(|entry| !frames[&entry.1]);
                spared += usize::from(clean.is_some_and(|at| at > 0));
                victims.push(held.remove(clean.unwrap_or(0)).1);
            }
            held.push((next_use, request.page));
            (!hit).then_some(victims)
        });
    }
    assert!(spared > 0, "no dirty page was ever spared");
}

#[test]
fn min_clean_spares_dirty_pages_in_its_window() {
    min_clean(&[], |capacity| capacity / 10);
}

#[test]
fn min_clean_has_a_window() {
    min_clean(&["window=100%"], |capacity| capacity);
    min_clean(&["window=3p"], |capacity| capacity.min(3));
}
