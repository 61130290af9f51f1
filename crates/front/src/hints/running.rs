//! The queries that run, by whom they were told: a policy knows them by small numbers.

use super::message::QueryId;
use std::collections::{HashMap, VecDeque};

/// Queries that are noted at once: a server that was killed ends none of its own, so the oldest is taken for ended.
pub(super) const RUNNING_MAX: usize = 1024;

/// Numbers of the queries that run.
#[derive(Debug, Default)]
pub(super) struct Running {
    numbers: HashMap<QueryId, u32>,
    /// In the order in which they began; those that have ended stay until they come to the front.
    order: VecDeque<(QueryId, u32)>,
    next: u32,
}

/// Number of a query that begins, and the queries that its beginning ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Begun {
    /// Its number.
    pub number: u32,
    /// Numbers of queries that are taken for ended: one under the same id, and the oldest where there are too many.
    pub forgotten: Vec<u32>,
}

impl Running {
    /// A query begins.
    pub fn begin(&mut self, query: QueryId) -> Begun {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let mut forgotten: Vec<u32> = self.numbers.insert(query, number).into_iter().collect();
        self.order.push_back((query, number));
        while let Some(&(oldest, its)) = self.order.front() {
            let runs = self.numbers.get(&oldest) == Some(&its);
            if runs && self.numbers.len() <= RUNNING_MAX && self.order.len() <= 2 * RUNNING_MAX {
                break;
            }
            self.order.pop_front();
            if runs {
                self.numbers.remove(&oldest);
                forgotten.push(its);
            }
        }
        Begun { number, forgotten }
    }

    /// A query has ended: its number, if it had begun.
    pub fn end(&mut self, query: QueryId) -> Option<u32> {
        self.numbers.remove(&query)
    }

    /// Number of queries that run.
    pub fn count(&self) -> usize {
        self.numbers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map_with_a_bound(steps in proptest::collection::vec((any::<bool>(), 0..3000_u32), 0..6000)) {
            let mut running = Running::default();
            // The model: who runs, oldest first.
            let mut model: Vec<(QueryId, u32)> = Vec::new();
            for (at, (begins, number)) in steps.into_iter().enumerate() {
                let query = QueryId { pid: number % 7, number };
                let before = model.iter().position(|(known, _)| *known == query);
                if begins {
                    let mut forgotten: Vec<u32> = before.map(|at| model.remove(at).1).into_iter().collect();
                    let begun = running.begin(query);
                    model.push((query, begun.number));
                    if model.len() > RUNNING_MAX {
                        forgotten.push(model.remove(0).1);
                    }
                    // A long list of ended ones in front of the oldest may cost it its place; never the newest.
                    for extra in begun.forgotten.iter().filter(|number| !forgotten.contains(number)) {
                        prop_assert_eq!(model.first().map(|oldest| oldest.1), Some(*extra), "step {}", at);
                        model.remove(0);
                    }
                    prop_assert!(forgotten.iter().all(|number| begun.forgotten.contains(number)), "step {}", at);
                } else {
                    prop_assert_eq!(running.end(query), before.map(|at| model.remove(at).1), "step {}", at);
                }
                prop_assert_eq!(running.count(), model.len());
                prop_assert!(running.order.len() <= 2 * RUNNING_MAX);
            }
        }
    }
}
