//! Pool of the descriptors of remembered files in this process. Beyond a bound, the least recently used one is closed
//! (CLOCK).

use super::Holder;
use rustix::process::{Resource, getrlimit};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Holders examined per search for a victim, unless the ring is far above the bound.
const LOOKED_AT: usize = 64;
/// Refusals to close after which a search ends.
const REFUSED_MAX: usize = 16;

/// All holders with open descriptors, in order of arrival; used ones get a second chance (CLOCK).
pub(super) struct Pool {
    ring: Mutex<VecDeque<Weak<dyn Holder>>>,
    /// 0 until it is measured.
    bound: AtomicUsize,
    closed: AtomicU64,
}

/// One pool per process, as the limit is per process.
pub(super) static POOL: Pool =
    Pool { ring: Mutex::new(VecDeque::new()), bound: AtomicUsize::new(0), closed: AtomicU64::new(0) };

/// Half of the files that this process may have open: the other half is for callers with files in use.
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

    /// Reads the limit of the process again after a change.
    pub fn measure(&self) {
        self.bound.store(half_of_limit(), Relaxed);
    }

    /// Number of times that a descriptor was closed because of the bound.
    pub fn closed(&self) -> u64 {
        self.closed.load(Relaxed)
    }

    /// Adds a holder with an open descriptor; others may lose theirs. The caller must hold the lock of no holder.
    pub fn admit(&self, holder: Weak<dyn Holder>) {
        self.enter(holder);
        let (bound, mut refused) = (self.bound(), 0);
        while refused < REFUSED_MAX {
            let Some(victim) = self.victim(bound) else { return };
            if victim.let_go() {
                self.closed.fetch_add(1, Relaxed);
            } else {
                // The victim is in use, or no name leads to it: it stays, and the excess is left to later calls.
                refused += 1;
                self.ring.lock().unwrap_or_else(PoisonError::into_inner).push_back(Arc::downgrade(&victim));
            }
        }
    }

    /// Adds a holder and removes up to two dead ones: most files come and go without ever reaching the bound.
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

    /// The next holder to close; none while at most `bound` are open.
    fn victim(&self, bound: usize) -> Option<Arc<dyn Holder>> {
        // Dropped after the lock: the last reference may be dropped here.
        let mut passed = Vec::new();
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        // Above 1.5 times the bound there is no second chance.
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
