//! Counts misses and write-backs: a minimal driver.

use entresol_core::{Address, Movement, ObjectId, Page, Request, Tier, Verb};
use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::check::next_uses;
use entresol_policy::{Config, Driver, Options, Policy};

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Requests not served from the cache.
    pub misses: u64,
    /// Pages written back.
    pub writes: u64,
}

struct Run<'a> {
    requests: &'a [Request],
    next: &'a [u32],
    next_use: u32,
    writes: u64,
}

impl Visitor for Run<'_> {
    type Output = Counts;

    fn visit<P: Policy>(mut self, mut policy: P) -> Counts {
        let mut misses = 0;
        for (&request, &next) in self.requests.iter().zip(self.next) {
            self.next_use = next;
            misses += u64::from(!policy.access(request, &mut self).is_hit());
        }
        Counts { misses, writes: self.writes }
    }
}

impl Driver for Run<'_> {
    fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
        true
    }
    fn emit(&mut self, movement: Movement) {
        self.writes += u64::from(matches!(movement.verb, Verb::WriteBack { .. }));
    }
    fn now_us(&self) -> u64 {
        0
    }
    fn next_use(&self) -> u32 {
        self.next_use
    }
    fn address(&self, page: Page) -> Address {
        Address { object: ObjectId(0), block: u64::from(page.0) }
    }
    fn successor(&self, _page: Page) -> Option<Page> {
        None
    }
    fn predecessor(&self, _page: Page) -> Option<Page> {
        None
    }
    fn object_pages(&self, _object: ObjectId) -> u64 {
        0
    }
}

/// Counts for a policy, written as on a command line (`lfu:ties=most-recent`), over requests.
pub fn count(policy: &str, capacity: usize, requests: &[Request]) -> Counts {
    let (name, options) = policy.split_once(':').unwrap_or((policy, ""));
    let info = catalogue::info(name).expect("a known policy");
    let options = Options::parse(info, options.split(':').filter(|part| !part.is_empty())).expect("good options");
    let pages = requests.iter().map(|request| request.page.index() + 1).max().unwrap_or(0);
    let next = next_uses(requests);
    let run = Run { requests, next: &next, next_use: 0, writes: 0 };
    catalogue::build(info, &Config::single(pages, capacity), &options, run).expect("a buildable policy")
}

/// Reads of these pages.
pub fn reads(pages: &[u32]) -> Vec<Request> {
    pages.iter().map(|&page| Request::read(page)).collect()
}
