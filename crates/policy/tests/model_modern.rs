//! Plain models of the modern policies, straight from their papers, compared event by event.

#[path = "common/single.rs"]
mod single;

use entresol_core::Page;
use entresol_policy::modern::{S3Fifo, Sieve};
use single::{cases, compare};

/// SIEVE, algorithm 1, over a vector with the head at its end; the hand is the page it points at.
#[test]
fn sieve_leaves_visited_pages_in_place() {
    for (capacity, seed) in cases() {
        let mut queue: Vec<(Page, bool)> = Vec::new();
        let mut hand: Option<Page> = None;
        compare::<Sieve>(&[], capacity, seed, |request, _, _| {
            if let Some(entry) = queue.iter_mut().find(|entry| entry.0 == request.page) {
                entry.1 = true;
                return None;
            }
            let mut victims = Vec::new();
            if queue.len() == capacity {
                let mut at = hand.map_or(0, |page| queue.iter().position(|entry| entry.0 == page).unwrap());
                while queue[at].1 {
                    queue[at].1 = false;
                    at = if at + 1 == queue.len() { 0 } else { at + 1 };
                }
                hand = queue.get(at + 1).map(|entry| entry.0);
                victims.push(queue.remove(at).0);
            }
            queue.push((request.page, false));
            Some(victims)
        });
    }
}

/// S3-FIFO, algorithm 1, word for word; queues are vectors with the tail first.
struct S3Model {
    capacity: usize,
    small_share: usize,
    ghost_share: usize,
    promote: u32,
    warm_up_main: bool,
    small: Vec<(Page, u32)>,
    main: Vec<(Page, u32)>,
    ghost: Vec<Page>,
    victims: Vec<Page>,
}

impl S3Model {
    fn read(&mut self, page: Page) -> Option<Vec<Page>> {
        if let Some(entry) = self.small.iter_mut().chain(&mut self.main).find(|entry| entry.0 == page) {
            entry.1 = 3.min(entry.1 + 1);
            return None;
        }
        while self.small.len() + self.main.len() == self.capacity {
            self.warm_up_main = false;
            if self.small.len() >= self.small_share { self.evict_small() } else { self.evict_main() }
        }
        if self.ghost.contains(&page) {
            self.ghost.retain(|&ghost| ghost != page);
            self.main.push((page, 0));
        } else if self.warm_up_main && self.small.len() >= self.small_share {
            self.main.push((page, 0));
        } else {
            self.small.push((page, 0));
        }
        Some(std::mem::take(&mut self.victims))
    }

    fn evict_small(&mut self) {
        let mut evicted = false;
        while !evicted && !self.small.is_empty() {
            let (tail, count) = self.small.remove(0);
            if count >= self.promote {
                self.main.push((tail, 0));
                if self.main.len() >= self.capacity - self.small_share {
                    self.evict_main();
                }
            } else {
                self.ghost.push(tail);
                let excess = self.ghost.len().saturating_sub(self.ghost_share);
                self.ghost.drain(..excess);
                self.victims.push(tail);
                evicted = true;
            }
        }
    }

    fn evict_main(&mut self) {
        let mut evicted = false;
        while !evicted && !self.main.is_empty() {
            let (tail, count) = self.main.remove(0);
            if count > 0 {
                self.main.push((tail, count - 1));
            } else {
                self.victims.push(tail);
                evicted = true;
            }
        }
    }
}

/// Shares of the small and the ghost queue in per cent.
fn s3_fifo(options: &[&str], small: usize, ghost: usize, promote: u32, warm_up_main: bool) {
    for (capacity, seed) in cases() {
        let mut model = S3Model {
            capacity,
            small_share: (capacity * small / 100).max(1),
            ghost_share: capacity * ghost / 100,
            promote,
            warm_up_main,
            small: Vec::new(),
            main: Vec::new(),
            ghost: Vec::new(),
            victims: Vec::new(),
        };
        compare::<S3Fifo>(options, capacity, seed, |request, _, _| model.read(request.page));
    }
}

#[test]
fn s3_fifo_is_algorithm_1() {
    s3_fifo(&[], 10, 90, 2, false);
}

#[test]
fn s3_fifo_has_shares() {
    s3_fifo(&["small=30%", "ghost=20%"], 30, 20, 2, false);
    s3_fifo(&["ghost=0%"], 10, 0, 2, false);
}

#[test]
fn s3_fifo_can_promote_sooner_or_later() {
    s3_fifo(&["promote=1"], 10, 90, 1, false);
    s3_fifo(&["promote=3"], 10, 90, 3, false);
}

#[test]
fn s3_fifo_can_fill_the_main_queue_first() {
    s3_fifo(&["warm-up=main"], 10, 90, 2, true);
}
