//! Account of holds of the core's lock, for tests: index entries looked at, and device calls made, within a hold.

#[cfg(any(test, feature = "mutants"))]
pub use counted::{all, began, ended, holding, longest, looked, taken};

/// A hold begins.
#[cfg(not(any(test, feature = "mutants")))]
#[inline(always)]
pub fn began() {}

/// A hold ends.
#[cfg(not(any(test, feature = "mutants")))]
#[inline(always)]
pub fn ended() {}

/// An entry of the index is looked at.
#[cfg(not(any(test, feature = "mutants")))]
#[inline(always)]
pub fn looked() {}

#[cfg(any(test, feature = "mutants"))]
mod counted {
    use std::cell::Cell;

    thread_local! {
        static HOLDING: Cell<bool> = const { Cell::new(false) };
        static LOOKED: Cell<u64> = const { Cell::new(0) };
        static LONGEST: Cell<u64> = const { Cell::new(0) };
        static ALL: Cell<u64> = const { Cell::new(0) };
        static TAKEN: Cell<u64> = const { Cell::new(0) };
    }

    pub fn began() {
        HOLDING.set(true);
        TAKEN.set(TAKEN.get() + 1);
        LOOKED.set(0);
    }

    pub fn ended() {
        HOLDING.set(false);
        LONGEST.set(LONGEST.get().max(LOOKED.get()));
    }

    pub fn looked() {
        LOOKED.set(LOOKED.get() + 1);
        ALL.set(ALL.get() + 1);
    }

    /// True if this thread holds the core's lock.
    pub fn holding() -> bool {
        HOLDING.get()
    }

    /// Holds that this thread began since the last call.
    pub fn taken() -> u64 {
        TAKEN.replace(0)
    }

    /// Entries that this thread looked at since the last call.
    pub fn all() -> u64 {
        ALL.replace(0)
    }

    /// Entries that this thread's longest hold looked at since the last call.
    pub fn longest() -> u64 {
        LONGEST.replace(0)
    }
}
