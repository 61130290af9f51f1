//! Pool of the descriptors that this process holds of files that it only remembers. Beyond a bound the one that was not
//! used longest is closed.

use super::Holder;
use rustix::process::{Resource, getrlimit};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Holders that are looked at when one is to be found, unless there are many more than there should be.
const LOOKED_AT: usize = 64;
/// Holders that may keep their descriptors before the search ends.
const REFUSED_MAX: usize = 16;

/// All holders that have their descriptors open, in the order in which they came, with a second chance for those that were used (CLOCK).
pub(super) struct Pool {
    ring: Mutex<VecDeque<Weak<dyn Holder>>>,
    /// 0 before it is known.
    bound: AtomicUsize,
    closed: AtomicU64,
}

/// The limit is the process's, and so is the pool.
pub(super) static POOL: Pool =
    Pool { ring: Mutex::new(VecDeque::new()), bound: AtomicUsize::new(0), closed: AtomicU64::new(0) };

/// Half of the files that this process may have open: the others are for who uses them.
fn half_of_limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    usize::try_from(limit / 2).unwrap_or(usize::MAX).max(16)
}

impl Pool {
    /// Number of descriptors that may be open.
    pub fn bound(&self) -> usize {
        match self.bound.load(Relaxed) {
            0 => {
                let bound = half_of_limit();
                self.bound.store(bound, Relaxed);
                bound
            }
            bound => bound,
        }
    }

    /// The limit of the process has changed.
    pub fn measure(&self) {
        self.bound.store(half_of_limit(), Relaxed);
    }

    /// Number of times that a descriptor was closed because of the bound.
    pub fn closed(&self) -> u64 {
        self.closed.load(Relaxed)
    }

    /// A holder has its descriptor open; others may lose theirs. None may be locked by the caller.
    pub fn admit(&self, holder: Weak<dyn Holder>) {
        self.enter(holder);
        let (bound, mut refused) = (self.bound(), 0);
        while refused < REFUSED_MAX {
            let Some(victim) = self.victim(bound) else { return };
            if victim.let_go() {
                self.closed.fetch_add(1, Relaxed);
            } else {
                // It is in use, or is found by no name: it stays, and others are for later.
                refused += 1;
                self.ring.lock().unwrap_or_else(PoisonError::into_inner).push_back(Arc::downgrade(&victim));
            }
        }
    }

    /// Puts one in, and takes out some that are there no more: files come and go that never come near the bound.
    fn enter(&self, holder: Weak<dyn Holder>) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.push_back(holder);
        for _ in 0..2 {
            let Some(first) = ring.pop_front() else { return };
            if first.strong_count() > 0 {
                ring.push_back(first);
            }
        }
    }

    /// One that is to be closed; none while there are no more than so many.
    fn victim(&self, bound: usize) -> Option<Arc<dyn Holder>> {
        // What is dropped as the last needs no lock.
        let mut passed = Vec::new();
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        // More than half as many again as there should be: none has a second chance.
        let many = ring.len() > bound + bound / 2;
        let mut looked_at = if many { ring.len() } else { LOOKED_AT.min(ring.len()) };
        while ring.len() > bound && looked_at > 0 {
            looked_at -= 1;
            let holder = ring.pop_front()?;
            let Some(strong) = holder.upgrade() else { continue };
            if !strong.was_used() || many {
                return Some(strong);
            }
            ring.push_back(holder);
            passed.push(strong);
        }
        drop(ring);
        drop(passed);
        None
    }
}
