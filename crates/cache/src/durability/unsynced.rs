//! The account of pages written below and not known to be durable there, which a sync of the backing store settles.
//!
//! A sync covers the writes made before it began. Each write is numbered by the syncs that had begun, and the list
//! keeps that order. So the pages that a sync has settled can be gone through a few at a time while more are written.

use super::write_batch::InFlight;
use entresol_store::PageMap;
use std::collections::VecDeque;

struct Item {
    in_flight: InFlight,
    /// Syncs that had begun when the page was written.
    syncs: u64,
}

/// Pages written below since the last sync of the backing store.
#[derive(Default)]
pub(crate) struct Unsynced {
    items: PageMap<Item>,
    /// Pages and their numbers, ascending by number. An entry whose item is gone or has another number is skipped.
    order: VecDeque<(u64, u64)>,
    /// Syncs that have begun.
    syncs: u64,
}

impl Unsynced {
    /// Notes a write of a page.
    pub fn insert(&mut self, page: u64, in_flight: InFlight) {
        self.insert_at(page, in_flight, self.syncs);
    }

    /// Replaces the note on a page's write; the same sync covers it.
    pub fn replace(&mut self, page: u64, in_flight: InFlight) {
        let syncs = self.items.get(&page).map_or(self.syncs, |item| item.syncs);
        self.insert_at(page, in_flight, syncs);
    }

    fn insert_at(&mut self, page: u64, in_flight: InFlight, syncs: u64) {
        let before = self.items.insert(page, Item { in_flight, syncs });
        if before.is_none_or(|before| before.syncs != syncs) {
            self.order.push_back((page, syncs));
        }
    }

    /// Last write of a page.
    pub fn get(&self, page: u64) -> Option<&InFlight> {
        self.items.get(&page).map(|item| &item.in_flight)
    }

    /// Last write of a page, to be changed.
    pub fn get_mut(&mut self, page: u64) -> Option<&mut InFlight> {
        self.items.get_mut(&page).map(|item| &mut item.in_flight)
    }

    /// True if the account has a write of the page.
    pub fn contains(&self, page: u64) -> bool {
        self.items.contains_key(&page)
    }

    /// Forgets a page whose last write no longer matters.
    pub fn remove(&mut self, page: u64) {
        self.items.remove(&page);
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True if the account has no pages.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The pages, in no order.
    pub fn pages(&self) -> impl Iterator<Item = u64> {
        self.items.keys().copied()
    }

    /// At most `most` entries of the ordered list, from position `from`. Every page is listed, some twice, some not any
    /// more.
    pub fn listed(&self, from: usize, most: usize) -> Vec<u64> {
        self.order.iter().skip(from).take(most).map(|&(page, _)| page).collect()
    }

    /// Last writes of all pages, in no order.
    pub fn values(&self) -> impl Iterator<Item = &InFlight> {
        self.items.values().map(|item| &item.in_flight)
    }

    /// Begins a sync, and returns the number by which the writes that it covers are found.
    pub fn begin_sync(&mut self) -> u64 {
        self.syncs += 1;
        self.syncs - 1
    }

    /// Takes out a page that a sync has covered.
    pub fn settled(&mut self, sync: u64) -> Option<(u64, InFlight)> {
        while let Some((page, syncs)) = self.order.front().copied().filter(|&(_, syncs)| syncs <= sync) {
            self.order.pop_front();
            if self.items.get(&page).is_some_and(|item| item.syncs == syncs) {
                return self.items.remove(&page).map(|item| (page, item.in_flight));
            }
        }
        None
    }

    /// Takes all pages out, ascending.
    pub fn take(&mut self) -> Vec<(u64, InFlight)> {
        self.order.clear();
        let items = std::mem::take(&mut self.items);
        let mut all: Vec<(u64, InFlight)> = items.into_iter().map(|(page, item)| (page, item.in_flight)).collect();
        all.sort_unstable_by_key(|&(page, _)| page);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::write_batch::LogRelation;
    use super::*;
    use entresol_core::Random;
    use std::collections::BTreeMap;

    #[test]
    fn a_sync_settles_what_was_written_before_it_began() {
        let (mut account, mut random) = (Unsynced::default(), Random::new(7));
        // By page: log address of the last version written, and the syncs that had begun.
        let mut model = BTreeMap::new();
        let (mut syncs, mut written) = (0, 0);
        for address in 0..20_000 {
            let page = random.below(50);
            let in_flight = || InFlight::elsewhere(LogRelation::Same(address), 0);
            written += 1;
            match random.below(8) {
                0..=4 => {
                    account.insert(page, in_flight());
                    model.insert(page, (address, syncs));
                }
                5 => {
                    account.replace(page, in_flight());
                    let before = model.get(&page).map_or(syncs, |&(_, before)| before);
                    model.insert(page, (address, before));
                }
                6 => {
                    account.remove(page);
                    model.remove(&page);
                }
                _ => {
                    assert_eq!(account.begin_sync(), syncs);
                    syncs += 1;
                    // A page is written while the sync goes on.
                    account.insert(60, in_flight());
                    model.insert(60, (address, syncs));
                    let mut settled = BTreeMap::new();
                    while let Some((page, in_flight)) = account.settled(syncs - 1) {
                        assert!(settled.insert(page, in_flight.relation).is_none());
                    }
                    let due = model.iter().filter(|&(_, &(_, before))| before < syncs);
                    assert_eq!(settled, due.map(|(&page, &(address, _))| (page, LogRelation::Same(address))).collect());
                    model.retain(|_, &mut (_, before)| before == syncs);
                    written = 1;
                }
            }
            assert_eq!((account.len(), account.is_empty()), (model.len(), model.is_empty()));
            assert!(account.order.len() <= written, "nothing is listed of before the last sync");
            let found = account.get(page).map(|in_flight| in_flight.relation);
            assert_eq!(found, model.get(&page).map(|&(address, _)| LogRelation::Same(address)));
        }
        assert_eq!(account.take().iter().map(|&(page, _)| page).collect::<Vec<_>>(), Vec::from_iter(model.into_keys()));
        assert!(account.is_empty() && account.order.is_empty());
    }
}
