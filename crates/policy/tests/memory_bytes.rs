//! Memory of every policy for each page that exists, as the policy says it and as the allocator counts it.

use entresol_core::{Address, Movement, ObjectId, Op, Page, Random, Request, Tier};
use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::check::next_uses;
use entresol_policy::{Config, Driver, Options, Policy};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Most bytes for each page. Tables of fixed size are shared by the pages that there are here.
const BYTES_MAX: f64 = 64.0;
/// Pages that exist, of which the cache has half: it is as large as in `bench-growth`, where fixed tables weigh most.
const PAGES: usize = 20_000;
/// Requests of a stream. All pages are known and the cache is full long before.
const REQUESTS: usize = 400_000;
const SEED: u64 = 42;

/// The system's allocator with a count of the bytes in use.
struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged; counting does not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
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

/// Bytes of a policy.
struct Bytes {
    /// After half of the requests, as the policy says.
    half_way: usize,
    /// After all.
    reported: usize,
    /// After all, given back to the allocator as the policy ends.
    allocated: usize,
}

struct Run<'a> {
    requests: &'a [Request],
    next: &'a [u32],
    at: usize,
}

impl Visitor for Run<'_> {
    type Output = Bytes;

    fn visit<P: Policy>(mut self, mut policy: P) -> Bytes {
        let mut half_way = 0;
        while self.at < self.requests.len() {
            if self.at == self.requests.len() / 2 {
                half_way = policy.memory_bytes();
            }
            policy.access(self.requests[self.at], &mut self);
            self.at += 1;
        }
        let (reported, before) = (policy.memory_bytes(), TAKEN.load(Relaxed));
        drop(policy);
        Bytes { half_way, reported, allocated: before - TAKEN.load(Relaxed) }
    }
}

impl Driver for Run<'_> {
    fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
        true
    }
    fn emit(&mut self, _movement: Movement) {}
    fn now_us(&self) -> u64 {
        self.at as u64 * 100
    }
    fn next_use(&self) -> u32 {
        self.next[self.at]
    }
    fn address(&self, page: Page) -> Address {
        Address { object: ObjectId(0), block: u64::from(page.0) }
    }
    fn successor(&self, page: Page) -> Option<Page> {
        Some(Page(page.0 + 1)).filter(|page| page.index() < PAGES)
    }
    fn predecessor(&self, page: Page) -> Option<Page> {
        page.0.checked_sub(1).map(Page)
    }
    fn object_pages(&self, _object: ObjectId) -> u64 {
        PAGES as u64
    }
}

/// A stream of requests, 30 % of them writes, for the pages that a function of the request's number draws.
fn stream(mut page: impl FnMut(usize, &mut Random) -> usize) -> Vec<Request> {
    let mut random = Random::new(SEED);
    let request = |n| {
        let page = Page(page(n, &mut random) as u32);
        let op = if random.next_f64() < 0.3 { Op::Write } else { Op::Read };
        Request { page, op, sequential: false }
    };
    (0..REQUESTS).map(request).collect()
}

// One test: the allocator's count is that of the process.
#[test]
fn no_policy_takes_more_than_64_bytes_for_a_page() {
    let streams = [
        ("loop", stream(|n, _| n % PAGES)),
        // A skewed distribution whose popular pages are all over the object.
        ("skewed", stream(|_, random| (random.next_f64().powi(4) * PAGES as f64) as usize * 7_919 % PAGES)),
    ];
    let mut above = Vec::new();
    for (name, requests) in &streams {
        let next = next_uses(requests);
        for info in catalogue::ALL {
            let top = (PAGES as f64 / 2.0 * info.top_share) as usize;
            let tiers = if info.tiers.len() == 1 { vec![PAGES / 2] } else { vec![top, PAGES / 2 - top] };
            let config = Config { tiers, seed: SEED, ..Config::single(PAGES, 0) };
            let run = Run { requests, next: &next, at: 0 };
            let Bytes { half_way, reported, allocated } =
                catalogue::build(info, &config, &Options::defaults(info), run).expect("a buildable policy");
            let a_page = |bytes: usize| bytes as f64 / PAGES as f64;
            println!(
                "{name}, seed {SEED}: {} {:.1} bytes a page reported, {:.1} allocated",
                info.name,
                a_page(reported),
                a_page(allocated)
            );
            let steady = a_page(reported) - a_page(half_way) < 0.5;
            if !steady || a_page(reported) > BYTES_MAX || a_page(allocated) > BYTES_MAX {
                above.push(format!("{name}: {}", info.name));
            }
            // Boxes, scratch and what maps keep free are not reported.
            let apart = a_page(reported.abs_diff(allocated));
            assert!(
                apart <= 1.0 + 0.05 * a_page(allocated),
                "{}: {reported} bytes reported, {allocated} allocated",
                info.name
            );
        }
    }
    assert!(above.is_empty(), "above {BYTES_MAX} bytes a page, or not steady: {above:?}");
}
