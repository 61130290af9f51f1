//! Processors that requesters share; the work between two requests waits for one of them.

use entresol_device::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Processor time of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Processor time in nanoseconds that a requester spends on each request before its next one.
    pub ns: Nanos,
    /// Processors that requesters share; 0 is taken as 1.
    pub processors: u32,
}

impl Work {
    /// No work at all.
    pub const NONE: Work = Work { ns: 0, processors: 1 };
}

/// Processors, served in order of arrival.
pub(super) struct Processors {
    work_ns: Nanos,
    /// Times at which each processor becomes free.
    free: BinaryHeap<Reverse<Nanos>>,
}

impl Processors {
    pub fn new(work: Work) -> Self {
        Processors { work_ns: work.ns, free: (0..work.processors.max(1)).map(|_| Reverse(0)).collect() }
    }

    /// Begins a request's work once a processor is free, not before `now`; returns the end of the work.
    #[inline]
    pub fn work(&mut self, now: Nanos) -> Nanos {
        if self.work_ns == 0 {
            return now;
        }
        let mut next = self.free.peek_mut().expect("there is one at least");
        next.0 = now.max(next.0) + self.work_ns;
        next.0
    }
}
