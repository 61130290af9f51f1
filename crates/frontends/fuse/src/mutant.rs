//! Faults that the tests put into the take-over, one at a time, and steps at which they kill the process: see
//! [`entresol_core::fault_points`].

entresol_core::fault_points! {
    /// One step of the rules of `docs/fuse-take-over.md` that is left out.
    pub(crate) enum Mutant {
        /// Rule 3: a request that was carried out is carried out again when it comes again.
        Repeated,
        /// Rule 3: at a take-over, a request without an outcome counts as not carried out.
        NotCompared,
        /// Rule 4: open files and directories are forgotten.
        HandlesForgotten,
        /// Rule 4: each node is restored with one lookup.
        LookupsForgotten,
        /// Rule 5: a file that loses its name is not handed to the holder.
        NamelessNotKept,
        /// Rule 6: a listing begins anew.
        ListingFromStart,
        /// Rule 7: the handles of a former server have no backing ids.
        BackingsForgotten,
        /// Rule 7: an id stays open after its last handle.
        NotClosed,
        /// Rule 7: an id that has no handle at a take-over stays open.
        UnusedLeft,
        /// Rule 7: an id that was registered and not entered stays open.
        NotEnteredLeft,
        /// Rule 7: an id is not entered.
        NotEntered,
        /// Rule 8: a layer serves a file that the kernel reads and writes past it.
        LayerAsked,
        /// Rule 8: the page cache keeps its bytes of a file that was passed through before a take-over.
        StaleForgotten,
        /// Rule 1: a record is committed before it is complete.
        CommittedEarly,
    }
}

/// A step after which a test may kill the process.
#[cfg(not(any(test, feature = "mutants")))]
#[inline(always)]
pub(crate) const fn step() {}

/// A step after which a test may kill the process.
#[cfg(any(test, feature = "mutants"))]
pub(crate) use killing::step;
#[cfg(feature = "mutants")]
pub use killing::{kill_after, steps_taken};

#[cfg(any(test, feature = "mutants"))]
mod killing {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    static TAKEN: AtomicU64 = AtomicU64::new(0);
    static LAST: AtomicU64 = AtomicU64::new(u64::MAX);

    pub(crate) fn step() {
        if TAKEN.fetch_add(1, SeqCst) >= LAST.load(SeqCst) {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            loop {
                std::thread::park();
            }
        }
    }

    /// Kills this process as with `kill -9` when it has taken this many more steps.
    #[cfg(feature = "mutants")]
    pub fn kill_after(steps: u64) {
        LAST.store(TAKEN.load(SeqCst).saturating_add(steps), SeqCst);
    }

    /// Number of steps that this process has taken.
    #[cfg(feature = "mutants")]
    pub fn steps_taken() -> u64 {
        TAKEN.load(SeqCst)
    }
}
