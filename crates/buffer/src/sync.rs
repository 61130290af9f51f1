//! The primitives that the buffer manager synchronises with, in one place so that the same code runs under loom
//! (`--cfg loom`, the frame word) and under shuttle (`--cfg shuttle`, the whole manager).

#[cfg(loom)]
pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[cfg(shuttle)]
pub(crate) mod atomic {
    // Shuttle schedules at every atomic access and treats each as sequentially consistent; a fence adds nothing.
    pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
}

#[cfg(not(any(loom, shuttle)))]
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
}

#[cfg(all(shuttle, not(loom)))]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Lets another thread go on; in a loop that waits for one.
#[cfg(not(loom))]
pub(crate) fn pause() {
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
    #[cfg(not(shuttle))]
    std::hint::spin_loop();
}
