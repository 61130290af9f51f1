//! Rings of hits: each hit is recorded for the policy, without a lock and without waiting.
//!
//! Each thread has a slot, and in each shard a ring for it. The thread appends; the holder of the shard's lock drains.
//! A full ring loses hits, and counts them: recency and frequency stay right in the mean. BP-Wrapper (Ding, Jiang,
//! Zhang, ICDE 2009) batches the same way but blocks when a queue is full.

mod slots;

use crate::frame::NO_HANDLE;
use crate::sync::atomic::{AtomicU64, Ordering};
use entresol_core::Op;

pub(crate) use slots::{SLOTS, Slot, slots_in_use};

/// Hits that a ring holds; a power of two. 64 words are eight cache lines, and a batch large enough to amortise a lock.
pub(crate) const RING: usize = if cfg!(shuttle) { 4 } else { 64 };

/// A hit: frame (32 bits), handle of its page at the time (30 bits), operation (2 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit(u64);

/// Handles must be below this to fit a hit; the last value means none.
pub(crate) const MAX_HANDLES: usize = NO_HANDLE as usize;

impl Hit {
    #[inline(always)]
    pub fn new(frame: u32, handle: u32, op: Op) -> Self {
        Hit(u64::from(frame) << 32 | u64::from(handle) << 2 | op as u64)
    }

    pub fn frame(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub fn handle(self) -> u32 {
        self.0 as u32 >> 2
    }

    pub fn op(self) -> Op {
        match self.0 & 3 {
            0 => Op::Read,
            1 => Op::Write,
            _ => Op::Update,
        }
    }
}

/// One thread's hits on one shard. One thread appends, and one at a time drains.
#[repr(align(64))]
pub(crate) struct Ring {
    /// Hits appended so far. On a line with `lost`, which only the appending thread writes.
    tail: AtomicU64,
    lost: AtomicU64,
    drained: Drained,
    hits: [AtomicU64; RING],
}

#[repr(align(64))]
struct Drained {
    /// Hits drained so far.
    head: AtomicU64,
}

impl Ring {
    pub fn new() -> Self {
        Ring {
            tail: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            drained: Drained { head: AtomicU64::new(0) },
            hits: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Appends a hit and returns the number of hits in the ring. `None`, and the hit not taken, when the ring is full.
    /// Only the slot's thread may call this.
    #[inline(always)]
    pub fn push(&self, hit: Hit) -> Option<usize> {
        let tail = self.tail.load(Ordering::Relaxed);
        // Pairs with `drain`: an entry is overwritten only after it was read.
        let held = (tail - self.drained.head.load(Ordering::Acquire)) as usize;
        if held == RING {
            return None;
        }
        self.hits[tail as usize % RING].store(hit.0, Ordering::Relaxed);
        self.tail.store(tail + 1, Ordering::Release);
        Some(held + 1)
    }

    /// Counts a hit that found the ring full. Only the slot's thread may call this.
    pub fn lose(&self) {
        self.lost.store(self.lost.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Moves all hits into `batch`, oldest first. The caller holds the lock of the shard.
    pub fn drain(&self, batch: &mut Vec<Hit>) {
        let (head, tail) = (self.drained.head.load(Ordering::Relaxed), self.tail.load(Ordering::Acquire));
        if head == tail {
            return;
        }
        batch.extend((head..tail).map(|i| Hit(self.hits[i as usize % RING].load(Ordering::Relaxed))));
        self.drained.head.store(tail, Ordering::Release);
    }

    /// Hits so far, and how many of them were lost. Exact when the thread is quiet.
    pub fn counts(&self) -> (u64, u64) {
        let lost = self.lost.load(Ordering::Relaxed);
        (self.tail.load(Ordering::Relaxed) + lost, lost)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_hit_keeps_its_parts() {
        for op in [Op::Read, Op::Write, Op::Update] {
            let hit = Hit::new(u32::MAX - 1, MAX_HANDLES as u32 - 1, op);
            assert_eq!((hit.frame(), hit.handle(), hit.op()), (u32::MAX - 1, MAX_HANDLES as u32 - 1, op));
        }
    }

    #[test]
    fn a_full_ring_takes_no_hit_until_it_is_drained() {
        let ring = Ring::new();
        for i in 0..RING as u32 {
            assert_eq!(ring.push(Hit::new(i, i, Op::Read)), Some(i as usize + 1));
        }
        assert_eq!(ring.push(Hit::new(99, 0, Op::Read)), None);
        ring.lose();
        assert_eq!(ring.counts(), (RING as u64 + 1, 1));
        let mut batch = Vec::new();
        ring.drain(&mut batch);
        assert!(batch.iter().map(|hit| hit.frame()).eq(0..RING as u32), "oldest first");
        assert_eq!(ring.push(Hit::new(7, 7, Op::Read)), Some(1));
    }

    /// One thread appends, another drains: each hit taken comes out once and in order.
    #[test]
    fn nothing_taken_is_lost_or_doubled() {
        const HITS: u32 = 200_000;
        let ring = Ring::new();
        let mut drained: Vec<Hit> = Vec::new();
        std::thread::scope(|scope| {
            let appender = scope.spawn(|| {
                let mut taken = Vec::new();
                for i in 0..HITS {
                    match ring.push(Hit::new(i, i, Op::Read)) {
                        Some(_) => taken.push(i),
                        None => ring.lose(),
                    }
                }
                taken
            });
            while !appender.is_finished() {
                ring.drain(&mut drained);
            }
            ring.drain(&mut drained);
            let taken = appender.join().expect("the appender ends");
            assert!(drained.iter().map(|hit| hit.frame()).eq(taken.iter().copied()));
            assert!(drained.iter().all(|hit| hit.frame() == hit.handle()));
            assert_eq!(ring.counts(), (u64::from(HITS), u64::from(HITS) - taken.len() as u64));
        });
    }
}
