//! Tests that a policy's memory follows from the number of existing pages, however large the given cache or option.

use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::{Config, Info, Options, Policy};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Pages of the trace.
const PAGES: usize = 3;
/// Bytes that a policy for these pages may take, tables of fixed size included.
const BYTES_MAX: usize = 32 << 20;
/// Largest single allocation: the machine may not have more, and the program would abort.
const PIECE_MAX: usize = 1 << 30;
/// Pages of a cache of 64 TiB, of the largest possible cache, and of one that is refused.
const CAPACITIES: [usize; 3] = [1 << 34, 1 << 48, usize::MAX];
const VALUES: [&str; 6] =
    ["1000000", "4294967295", "18446744073709551615", "64TiB", "1000000000%", "18446744073709551615p"];

/// The system's allocator with a count of the requested bytes.
struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static REFUSED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator, or is refused with a null pointer as a system may.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > PIECE_MAX {
            REFUSED.fetch_max(layout.size(), Relaxed);
            return std::ptr::null_mut();
        }
        TAKEN.fetch_add(layout.size(), Relaxed);
        // SAFETY: the contract is that of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the contract is that of this function.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Measures the bytes taken while a policy is held.
struct Pinned;

impl Visitor for Pinned {
    type Output = usize;

    fn visit<P: Policy>(self, policy: P) -> usize {
        let taken = TAKEN.load(Relaxed);
        drop(policy);
        taken
    }
}

/// Builds a policy and checks its memory, unless it is refused with an error.
fn build(info: &'static Info, tiers: &[usize], given: &[String]) {
    let said = format!("{} over {tiers:?} pages, {given:?}", info.name);
    // The line names the policy if the process aborts.
    println!("{said}");
    let options = Options::parse(info, given.iter().map(String::as_str)).expect("an option that there is");
    let config = Config { tiers: tiers.to_vec(), ..Config::single(PAGES, 0) };
    let before = TAKEN.load(Relaxed);
    if let Ok(taken) = catalogue::build(info, &config, &options, Pinned) {
        let taken = taken.saturating_sub(before);
        assert!(taken <= BYTES_MAX, "{said}: {taken} bytes");
    }
    assert_eq!(REFUSED.load(Relaxed), 0, "{said}: a piece of so many bytes");
}

#[test]
fn no_size_and_no_option_takes_more_memory_than_the_pages_need() {
    for info in catalogue::ALL {
        for capacity in CAPACITIES {
            for tier in 0..info.tiers.len() {
                let mut tiers: Vec<usize> = info.min_pages.iter().map(|&min| min.max(2)).collect();
                tiers[tier] = capacity;
                build(info, &tiers, &[]);
            }
            build(info, &vec![capacity; info.tiers.len()], &[]);
        }
        let small: Vec<usize> = info.min_pages.iter().map(|&min| min.max(2)).collect();
        for tiers in [small, vec![CAPACITIES[0]; info.tiers.len()]] {
            for option in info.options {
                VALUES.iter().for_each(|value| build(info, &tiers, &[format!("{}={value}", option.name)]));
            }
        }
    }
}
