//! Slots of threads: a small number that belongs to one thread until it ends.

/// Threads that can have a slot at a time. The hits of further threads are counted, and lost to the policy.
pub(crate) const SLOTS: usize = if cfg!(shuttle) { 8 } else { 128 };

/// The number of the calling thread, if it could get one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(pub usize);

#[cfg(not(shuttle))]
mod threads {
    use super::{SLOTS, Slot};
    use std::cell::Cell;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const UNKNOWN: usize = usize::MAX;
    const NONE: usize = usize::MAX - 1;

    static TAKEN: Mutex<[bool; SLOTS]> = Mutex::new([false; SLOTS]);
    /// One more than the highest slot ever taken: a drain looks no further.
    static IN_USE: AtomicUsize = AtomicUsize::new(0);

    /// Gives the slot back when its thread ends.
    struct Claim(usize);

    impl Drop for Claim {
        fn drop(&mut self) {
            // A hit by a later destructor of this thread must not use a slot that may by then be another thread's.
            MINE.set(NONE);
            TAKEN.lock().expect("nobody panics here")[self.0] = false;
        }
    }

    thread_local! {
        // Apart from the claim, so that the hit path reads a plain cell without a destructor to check for.
        static MINE: Cell<usize> = const { Cell::new(UNKNOWN) };
        static CLAIM: Cell<Option<Claim>> = const { Cell::new(None) };
    }

    impl Slot {
        /// The slot of the calling thread.
        #[inline(always)]
        pub fn mine() -> Option<Slot> {
            let slot = MINE.get();
            if slot < SLOTS { Some(Slot(slot)) } else { Self::first(slot) }
        }

        #[cold]
        fn first(known: usize) -> Option<Slot> {
            if known == NONE {
                return None;
            }
            let mut taken = TAKEN.lock().expect("nobody panics here");
            let free = taken.iter().position(|&t| !t);
            // A thread that gets no slot now does not ask again at every hit.
            MINE.set(free.unwrap_or(NONE));
            let slot = free?;
            if CLAIM.try_with(|claim| claim.set(Some(Claim(slot)))).is_err() {
                // The thread is ending: nothing would give the slot back.
                MINE.set(NONE);
                return None;
            }
            taken[slot] = true;
            IN_USE.fetch_max(slot + 1, Ordering::Release);
            Some(Slot(slot))
        }
    }

    /// One more than the highest slot in use so far.
    pub(crate) fn slots_in_use() -> usize {
        IN_USE.load(Ordering::Acquire)
    }
}

#[cfg(shuttle)]
mod threads {
    use super::{SLOTS, Slot};

    impl Slot {
        /// The slot of the calling thread: its number in the execution. Each execution numbers its threads anew.
        pub fn mine() -> Option<Slot> {
            let slot = usize::from(shuttle::current::me());
            (slot < SLOTS).then_some(Slot(slot))
        }
    }

    /// Every slot that a short execution can have.
    pub(crate) fn slots_in_use() -> usize {
        SLOTS
    }
}

pub(crate) use threads::slots_in_use;

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::{Barrier, Mutex};

    /// One test, because slots belong to the whole process.
    #[test]
    fn threads_alive_together_have_slots_of_their_own_and_slots_come_back() {
        for threads in [16, SLOTS + 4, 16] {
            let (slots, all) = (Mutex::new(Vec::new()), Barrier::new(threads));
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        let slot = Slot::mine();
                        assert_eq!(Slot::mine(), slot, "a thread keeps its slot");
                        slots.lock().expect("no panic").extend(slot);
                        all.wait();
                    });
                }
            });
            let mut slots: Vec<usize> = slots.into_inner().expect("no panic").iter().map(|slot| slot.0).collect();
            slots.sort_unstable();
            let given = slots.len();
            slots.dedup();
            assert_eq!(slots.len(), given, "two threads had one slot");
            // Other tests' threads may hold one or two.
            assert!(given == threads || (threads > SLOTS && given <= SLOTS), "{given} slots for {threads} threads");
            assert!(slots.iter().all(|&slot| slot < slots_in_use()));
        }
    }
}
