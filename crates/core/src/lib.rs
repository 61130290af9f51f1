//! The basic types of Entresol: pages, requests, tiers, movements, free slots, and sizes with units. There is no caching logic
//! here. Every other crate may depend on this one, and it depends on none of them.

mod demand;
mod fault_point;
mod free_slots;
mod movement;
mod random;
mod request;
mod size;

pub use demand::{Demand, PARTS, STATIONS, Shadow};
pub use free_slots::FreeSlots;
pub use movement::{Movement, Verb};
pub use random::Random;
pub use request::{Address, Hint, NEVER, ObjectId, Op, Outcome, Page, Request, Tier};
pub use size::{Size, SizeError};

/// Loads `slice[index]` into the processor's cache. A hint: it changes nothing, and an index out of range is ignored.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = slice.get(index) {
        // SAFETY: the address is that of a live element; prefetching has no architectural effect.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}
