//! Kinds of caches that the histories use.

use entresol_cache::{CacheConfig, Maintenance, Mode};
use entresol_core::Random;
use entresol_policy::{Wear, catalogue};
use entresol_store::{Geometry, Layout};

/// Least capacity of a cache in pages.
const CAPACITY_MIN: u64 = 8;

/// Cache whose history is run, and the behaviour of the backing file system.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub policy: &'static str,
    pub tiers: Vec<usize>,
    pub mode: Mode,
    pub geometry: Geometry,
    /// Shares of dirty pages at which cleaning starts and stops.
    pub dirty_limits: (f64, f64),
    /// Bytes of new blocks become durable before the metadata that refers to them.
    pub ordered: bool,
    /// Calls of the backing file system sometimes fail.
    pub faults: bool,
    /// Bound on what is written to a cache of segments.
    pub wear: Wear,
}

impl Setup {
    /// A small cache of some kind.
    pub fn random(seed: u64, layout: Layout) -> Self {
        let mut random = Random::new(seed);
        let page_bytes = [512, 1024][random.below(2) as usize];
        let segment_pages = [4, 8, 16][random.below(3) as usize];
        let of = |segments| Geometry { page_bytes, segment_pages, segments, layout };
        // The journal of a small store takes a large part of it.
        let least = if layout.has_slots() { 16 } else { 9 };
        let mut large_enough = (least..).map(of).filter(|geometry| geometry.capacity_pages() >= CAPACITY_MIN);
        let geometry = large_enough.nth(random.below(6) as usize).expect("some number");
        let policies = ["lru", "arc", "h-arc", "face", "face-gsc", "lc", "tac", "fifo", "io-cache"];
        let mut policy = policies[random.below(policies.len() as u64) as usize];
        if layout.has_slots() && Random::mix(seed).is_multiple_of(3) {
            // The default over these layouts. Of a policy with ranks the log of segments drops pages.
            policy = "reuse";
        }
        let info = catalogue::info(policy).expect("a policy");
        let cache = (1 + random.below(geometry.capacity_pages())) as usize;
        let mut tiers = vec![cache.max(*info.min_pages.last().expect("a tier"))];
        if info.tiers.len() == 2 {
            let pool = if random.chance(0.3) { 0 } else { random.below(10) as usize };
            tiers.insert(0, pool.max(info.min_pages[0]));
        }
        let mode = [Mode::WriteBack, Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround][random.below(4) as usize];
        let dirty_limits = [(1.0, 1.0), (0.2, 0.0), (0.5, 0.3)][random.below(3) as usize];
        let (ordered, faults) = (random.chance(0.6), random.chance(0.4));
        let is_bounded = layout == Layout::Segments && random.chance(0.5);
        let wear = if is_bounded { Wear::Amplification { written: 1.2, read: 0.1 } } else { Wear::Unbounded };
        Setup { policy, tiers, mode, geometry, dirty_limits, ordered, faults, wear }
    }

    pub fn config(&self) -> CacheConfig {
        let info = catalogue::info(self.policy).expect("a policy");
        // A maintenance thread would make runs differ.
        let maintenance = Maintenance::Requests;
        CacheConfig { mode: self.mode, maintenance, wear: self.wear, ..CacheConfig::new(info, &self.tiers) }
    }
}
