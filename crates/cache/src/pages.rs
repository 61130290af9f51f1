//! Locks of pages and of ranges of them. A thread waits only for pages that it needs, never for a neighbour. The
//! reason: a lock is held for the time of a read from a slow disk.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Lists among which the pages are divided, so that threads seldom contend for one.
const LISTS: u64 = 64;

/// Line of holders and waiters, in the order of arrival.
#[derive(Default)]
struct Line {
    /// Ranges by order of arrival. A range is held if no range before it overlaps it.
    wanted: Vec<(u64, Range<u64>)>,
    /// Number of the last arrival.
    last: u64,
    /// Number of threads that wait.
    waiting: usize,
}

impl Line {
    fn join(&mut self, pages: Range<u64>) -> u64 {
        self.last += 1;
        self.wanted.push((self.last, pages));
        self.last
    }

    fn must_wait(&self, number: u64) -> bool {
        let at = self.wanted.iter().position(|&(other, _)| other == number).expect("who waits is in line");
        let (before, own) = (&self.wanted[..at], &self.wanted[at].1);
        before.iter().any(|(_, pages)| pages.start < own.end && own.start < pages.end)
    }
}

#[derive(Default)]
struct List {
    line: Mutex<Line>,
    /// Notified when a range has left the line.
    left: Condvar,
}

impl List {
    fn line(&self) -> MutexGuard<'_, Line> {
        // No code that can panic runs while the lock is held.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold_now(&self, page: u64) -> Option<LockedPages<'_>> {
        let mut line = self.line();
        let is_wanted = line.wanted.iter().any(|(_, pages)| pages.contains(&page));
        let number = (!is_wanted).then(|| line.join(page..page + 1))?;
        Some(LockedPages { list: self, number })
    }

    fn hold(&self, pages: Range<u64>) -> LockedPages<'_> {
        let mut line = self.line();
        let number = line.join(pages);
        if line.must_wait(number) {
            line.waiting += 1;
            let waited = self.left.wait_while(line, |line| line.must_wait(number));
            line = waited.unwrap_or_else(PoisonError::into_inner);
            line.waiting -= 1;
        }
        drop(line);
        LockedPages { list: self, number }
    }
}

/// Pages that no other thread holds until this is dropped.
pub(super) struct LockedPages<'a> {
    list: &'a List,
    number: u64,
}

impl Drop for LockedPages<'_> {
    fn drop(&mut self) {
        let mut line = self.list.line();
        line.wanted.retain(|&(number, _)| number != self.number);
        if line.waiting > 0 {
            self.list.left.notify_all();
        }
    }
}

/// The locks of all pages.
pub(super) struct PageLocks {
    lists: Vec<List>,
}

impl PageLocks {
    pub fn new() -> Self {
        PageLocks { lists: std::iter::repeat_with(List::default).take(LISTS as usize).collect() }
    }

    /// Waits for a page.
    pub fn page(&self, page: u64) -> LockedPages<'_> {
        #[cfg(test)]
        super::plan::open_plans::settle_pages(&(page..page + 1));
        self.lists[(page % LISTS) as usize].hold(page..page + 1)
    }

    /// As [`page`](Self::page), if no thread holds the page or waits for it.
    pub fn page_now(&self, page: u64) -> Option<LockedPages<'_>> {
        #[cfg(test)]
        if super::plan::open_plans::is_held(page) {
            return None;
        }
        self.lists[(page % LISTS) as usize].hold_now(page)
    }

    /// Waits for a range of pages. All threads take the lists in the same order.
    pub fn range(&self, pages: &Range<u64>) -> Vec<LockedPages<'_>> {
        #[cfg(test)]
        super::plan::open_plans::settle_pages(pages);
        let is_in = |list: &u64| {
            let first = pages.start + (list + LISTS - pages.start % LISTS) % LISTS;
            first < pages.end
        };
        (0..LISTS).filter(is_in).map(|list| self.lists[list as usize].hold(pages.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_page_that_is_held_keeps_its_own_requests_waiting_and_no_others() {
        let locks = PageLocks::new();
        let held = locks.page(5);
        thread::scope(|scope| {
            let same = scope.spawn(|| drop(locks.page(5)));
            let others = scope.spawn(|| {
                for other in [4, 6, 5 + LISTS, 5 + 256, 5 + (1 << 40)] {
                    drop(locks.page(other));
                }
            });
            others.join().expect("none of them is page 5");
            let with_it = scope.spawn(|| drop(locks.range(&(0..100))));
            thread::sleep(Duration::from_millis(20));
            assert!(!same.is_finished() && !with_it.is_finished(), "page 5 is held");
            drop(held);
        });
        assert!(locks.page_now(5).is_some_and(|_held| locks.page_now(5).is_none() && locks.page_now(6).is_some()));
        drop(locks.page(5));
    }

    #[test]
    fn pages_and_ranges_exclude_one_another_and_everybody_gets_through() {
        const PAGES: u64 = 200;
        let locks = PageLocks::new();
        let holders: Vec<AtomicU64> = std::iter::repeat_with(AtomicU64::default).take(PAGES as usize).collect();
        let (locks, holders) = (&locks, &holders);
        thread::scope(|scope| {
            for seed in 0..6 {
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for step in 0..3000 {
                        let start = random.below(PAGES / 4);
                        let pages = if random.chance(0.9) { start..start + 1 } else { start..start + 1 + start * 3 };
                        let held = if pages.end == start + 1 { vec![locks.page(start)] } else { locks.range(&pages) };
                        for page in pages.clone() {
                            assert_eq!(holders[page as usize].swap(1 + seed, SeqCst), 0, "{seed}: {step}: page {page}");
                        }
                        if random.chance(0.2) {
                            thread::yield_now();
                        }
                        pages.for_each(|page| holders[page as usize].store(0, SeqCst));
                        drop(held);
                    }
                });
            }
        });
        assert!(locks.lists.iter().all(|list| list.line().wanted.is_empty()));
    }
}
