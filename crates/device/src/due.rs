//! Queue of items by due time.

use crate::io::Nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    at: Nanos,
    number: u64,
    what: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (Nanos, u64) {
        (self.at, self.number)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// Items by due time, and by order of arrival where times are equal.
///
/// Most items arrive in the order of their times and wait in a queue; items that overtake others go through a heap.
#[derive(Clone, Debug)]
pub struct Due<T> {
    /// In order of time.
    in_order: VecDeque<Entry<T>>,
    /// Items that arrived after the last of `in_order` and are due before it.
    overtaking: BinaryHeap<Reverse<Entry<T>>>,
    pushed: u64,
}

impl<T> Default for Due<T> {
    fn default() -> Self {
        Due { in_order: VecDeque::new(), overtaking: BinaryHeap::new(), pushed: 0 }
    }
}

impl<T> Due<T> {
    /// Adds an item that is due at `at`.
    #[inline]
    pub fn push(&mut self, at: Nanos, what: T) {
        let entry = Entry { at, number: self.pushed, what };
        self.pushed += 1;
        if self.in_order.back().is_none_or(|last| last.at <= at) {
            self.in_order.push_back(entry);
        } else {
            self.overtaking.push(Reverse(entry));
        }
    }

    /// Number of items that were ever added.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// The first item, and true if it overtook others.
    #[inline]
    fn first(&self) -> Option<(&Entry<T>, bool)> {
        let (queued, overtaking) = (self.in_order.front(), self.overtaking.peek());
        match (queued, overtaking) {
            (Some(queued), Some(Reverse(overtaking))) if queued < overtaking => Some((queued, false)),
            (_, Some(Reverse(overtaking))) => Some((overtaking, true)),
            (queued, None) => queued.map(|entry| (entry, false)),
        }
    }

    /// Due time of the first item.
    #[inline]
    pub fn next(&self) -> Option<Nanos> {
        self.first().map(|(entry, _)| entry.at)
    }

    /// Takes the first item with its time, if it is due by `until` and among the first `pushed` that were added.
    #[inline]
    pub fn pop(&mut self, until: Nanos, pushed: u64) -> Option<(Nanos, T)> {
        let (entry, overtook) = self.first()?;
        if entry.at > until || entry.number >= pushed {
            return None;
        }
        let entry = if overtook { self.overtaking.pop().map(|reversed| reversed.0) } else { self.in_order.pop_front() };
        entry.map(|entry| (entry.at, entry.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    #[test]
    fn behaves_like_a_sorted_vector() {
        let seed = 9;
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut due = Due::default();
        let mut model: Vec<(Nanos, u64)> = Vec::new();
        let mut now = 0;
        for _ in 0..20_000 {
            if random.below(2) == 0 {
                let at = now + random.below(20);
                model.push((at, due.pushed()));
                model.sort_unstable();
                due.push(at, due.pushed());
            } else {
                now += random.below(3);
                let pushed = due.pushed() - random.below(2).min(due.pushed());
                let expected = model.first().copied().filter(|&(at, number)| at <= now && number < pushed);
                assert_eq!(due.pop(now, pushed), expected);
                model.retain(|&entry| Some(entry) != expected);
            }
            assert_eq!(due.next(), model.first().map(|&(at, _)| at));
        }
    }
}
