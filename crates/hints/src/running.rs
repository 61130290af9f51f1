//! The running queries, by their ids: a policy knows them by small numbers.

use crate::message::QueryId;
use std::collections::{HashMap, VecDeque};

/// Queries tracked at once. A killed server ends none of its queries, so the oldest is then taken as ended.
pub(super) const RUNNING_MAX: usize = 1024;

/// Numbers of the running queries.
#[derive(Debug, Default)]
pub(super) struct Running {
    numbers: HashMap<QueryId, u32>,
    /// In order of beginning. Ended queries stay until they come to the front.
    order: VecDeque<(QueryId, u32)>,
    next: u32,
}

/// Number of a query that begins, and the queries taken as ended because of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Begun {
    /// The query's number.
    pub number: u32,
    /// Numbers of queries taken as ended: one with the same id, and the oldest when there are too many.
    pub forgotten: Vec<u32>,
}

impl Running {
    /// Begins a query.
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

    /// Ends a query; returns its number, if it had begun.
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
            // The model: the running queries, oldest first.
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
                    // Many ended queries in front of the oldest may push the oldest out, but never the newest.
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
