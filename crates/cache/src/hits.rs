//! Hits that were read without the core's lock, until the policy has heard of them.
//!
//! A thread notes its hits in the list of its group. Whoever takes the core's lock next has the policy decide on the noted
//! hits first. So a policy with one requester hears of all requests in their order, as in the simulator. Requesters that
//! run beside each other have no order; their hits are sorted by time.
//!
//! A list of [`BATCH`] hits is handed over by its thread, if the core's lock is free, with those of the others. A
//! list that is full loses hits; they are counted. That takes a hold in which a list fills up; no hit waits for it.

use super::Tag;
use super::core::Core;
use super::frame_hits::FrameHits;
use entresol_disk::{THREAD_GROUPS, thread_group};
use entresol_store::HitTable;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Hits of a list at which its thread hands them over.
const BATCH: usize = 16;
/// Hits that a list holds at most: 100 microseconds of hits from memory.
const NOTED_MAX: usize = 512;
/// Hits that one hold of the core's lock decides on.
pub(super) const PER_HOLD: usize = 256;
/// Holds for the hits of all lists.
pub(super) const HOLDS_MAX: usize = THREAD_GROUPS * NOTED_MAX / PER_HOLD;

/// A hit that the policy has not heard of.
#[derive(Clone, Copy)]
pub(super) struct Noted {
    pub page: u64,
    pub tag: Tag,
}

/// The list of a group of threads, in cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct List(Mutex<Vec<Noted>>);

impl List {
    fn noted(&self) -> MutexGuard<'_, Vec<Noted>> {
        // No code that can panic runs while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hits that the policy has not heard of.
pub(super) struct Hits {
    /// Versions on the device that are read without the core's lock.
    pub table: Arc<HitTable>,
    /// Pages in memory that are.
    pub frames: Arc<FrameHits>,
    lists: [List; THREAD_GROUPS],
    /// There may be a hit that the policy has not heard of.
    any: AtomicBool,
    /// Hits taken from the lists, in their order. For the holder of the core's lock.
    taken: Mutex<VecDeque<Noted>>,
    /// Hits of which the policy has not heard and never will.
    dropped: AtomicU64,
    /// The policy hears of no more hits.
    ended: AtomicBool,
}

impl Hits {
    /// Hits of a core whose policy has tiers of so many pages.
    pub fn sharing_with(core: &mut dyn Core, tiers: &[usize]) -> Self {
        let (above, space) = if let [above, space] = *tiers { (above, space) } else { (0, tiers[0]) };
        let (table, frames) = (Arc::new(HitTable::new(space as u64)), Arc::new(FrameHits::new(above)));
        core.write_back().store.share(Arc::clone(&table));
        core.share_frames(Arc::clone(&frames));
        Hits {
            table,
            frames,
            lists: Default::default(),
            any: AtomicBool::new(false),
            taken: Mutex::default(),
            ended: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
        }
    }

    /// Notes a hit. True if the list is to be handed over.
    pub fn note(&self, noted: Noted) -> bool {
        let mut list = self.lists[thread_group()].noted();
        if list.len() == NOTED_MAX {
            self.dropped.fetch_add(1, Relaxed);
            return true;
        }
        list.push(noted);
        let noted = list.len();
        drop(list);
        // The line of the flag stays with all readers while it is set.
        if !self.any.load(Relaxed) {
            self.any.store(true, Relaxed);
        }
        noted.is_multiple_of(BATCH)
    }

    /// Has the policy hear of the hits of one hold of the core's lock, by `decide`: None when it may not decide now, false
    /// when the page is there no more. True if some hits are left.
    pub fn hear(&self, mut decide: impl FnMut(Noted) -> Option<bool>) -> bool {
        if !self.any.load(Relaxed) || self.ended.load(Relaxed) {
            return false;
        }
        let mut taken = self.taken();
        for _ in 0..PER_HOLD {
            if taken.is_empty() {
                if !self.any.load(Relaxed) {
                    break;
                }
                self.take(&mut taken);
            }
            let Some(&noted) = taken.front() else { continue };
            let Some(is_there) = decide(noted) else { break };
            taken.pop_front();
            self.dropped.fetch_add(u64::from(!is_there), Relaxed);
        }
        let are_left = !taken.is_empty();
        if are_left {
            self.any.store(true, Relaxed);
        }
        are_left
    }

    fn taken(&self) -> MutexGuard<'_, VecDeque<Noted>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the hits from the lists.
    fn take(&self, taken: &mut VecDeque<Noted>) {
        // A thread that notes a hit after its list was emptied finds the flag cleared, and sets it.
        self.any.store(false, Relaxed);
        let (from, mut groups) = (taken.len(), 0);
        for list in &self.lists {
            let mut list = list.noted();
            groups += usize::from(!list.is_empty());
            taken.extend(list.drain(..));
        }
        if groups > 1 {
            taken.make_contiguous()[from..].sort_by_key(|noted| noted.tag.now_us);
        }
    }

    /// Has the policy hear of no more hits: nothing may be moved between the last flush and the end of the cache. For the
    /// holder of the core's lock.
    pub fn end(&self) {
        self.close();
        self.ended.store(true, Relaxed);
    }

    /// Bytes of memory of the tables.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.frames.memory_bytes()
    }

    /// Has nothing be read without the core's lock until the tables are cleared (`clear_hits`). For the holder of
    /// the core's lock.
    pub fn close(&self) {
        self.table.close();
        self.frames.close();
    }

    /// True if there are hits of which the policy has not heard.
    #[cfg(test)]
    pub fn are_noted(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Hits of which the policy is still to hear. For the holder of the core's lock.
    pub fn left(&self) -> u64 {
        let noted: usize = self.lists.iter().map(|list| list.noted().len()).sum();
        (self.taken().len() + noted) as u64
    }

    /// Hits that the policy never heard of.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}
