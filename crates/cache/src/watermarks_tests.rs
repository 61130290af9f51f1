//! Watermarks under load: enough room for what a policy moves, and a bounded start.

use super::durability::{SYNC_IDLE, SYNC_MUST};
use super::maintenance::StoreAccess;
use super::{Block, BlockCache, CacheConfig, CacheStats, Maintenance};
use entresol_core::Random;
use entresol_crashtest::{Power, SimDisk};
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout, Recovered};

const PAGE: u64 = 4096;
const ID: [u8; 16] = [5; 16];
/// Maintenance steps after one request that correct code never reaches.
const STEPS_MAX: usize = 50;

/// Workload of a cache whose maintenance runs between requests, until it has no work left.
struct Work {
    policy: &'static str,
    tiers: &'static [usize],
    geometry: Geometry,
    requests: u64,
    /// Requests for each flush. None: no flush.
    flush_every: Option<u64>,
}

/// Result of a workload.
struct Done {
    stats: CacheStats,
    /// Syncs of the cache device.
    syncs: u64,
    flushes: u64,
    /// Requests after which fewer segments were free than a request must find while maintenance is under way.
    short: u64,
    /// Findings of the open after the process was killed, and its number of read calls.
    recovered: Recovered,
    reads: u64,
}

impl Work {
    fn open(&self, device: &SimDisk, backing: &SimDisk) -> BlockCache {
        let policy = catalogue::info(self.policy).expect("a policy");
        let config = CacheConfig { maintenance: Maintenance::Hand, ..CacheConfig::new(policy, self.tiers) };
        BlockCache::open(device.clone(), backing.clone(), ID, &config).expect("a cache in order")
    }

    fn run(&self) -> Done {
        let (power, footprint) = (Power::steady(), 3 * self.tiers.iter().sum::<usize>() as u64);
        let device = SimDisk::new(self.geometry.size_bytes(), &power);
        let backing = SimDisk::new(footprint * PAGE, &power);
        BlockCache::format(&device, self.geometry, &backing, [1; 16], ID).expect("room");
        let cache = self.open(&device, &backing);
        let mut random = Random::new(7);
        let (mut flushes, mut short, before) = (0, 0, cache.devices()[0].sync.calls);
        let mut page = vec![0; PAGE as usize];
        for request in 1..=self.requests {
            let at = (random.next_f64().powi(3) * footprint as f64) as u64 * PAGE;
            if random.chance(0.5) {
                page.fill(request as u8);
                cache.write(at, &page, false).expect("a write");
            } else {
                cache.read(at, &mut page).expect("a read");
            }
            if self.flush_every.is_some_and(|every| request.is_multiple_of(every)) {
                cache.flush().expect("a flush");
                flushes += 1;
            }
            short += u64::from(work(&cache, request));
        }
        let (stats, syncs) = (cache.stats().expect("counts"), cache.devices()[0].sync.calls - before);
        drop(cache);
        let again = self.open(&device, &backing);
        let reads = again.devices()[0].read.calls;
        Done { stats, syncs, flushes, short, recovered: again.recovered(), reads }
    }
}

/// Does the maintenance threads' work. True if requests would find too few free segments even so.
fn work(cache: &BlockCache, request: u64) -> bool {
    let mut steps = 0;
    while cache.has_work().expect("a cache that goes on") {
        steps += 1;
        assert!(steps < STEPS_MAX, "request {request}: it makes room and has none");
        cache.step().expect("maintenance");
    }
    let mut guard = cache.locks.guard().expect("a cache that goes on");
    let write_back = guard.write_back();
    write_back.store.free_segments() < write_back.free_apart()
}

fn geometry(layout: Layout, segment_pages: u32, segments: u32) -> Geometry {
    Geometry { page_bytes: PAGE as u32, segment_pages, segments, layout }
}

/// Slots under policies with memory above and without. Every request finds enough free slots, however much its
/// policy moves at once, and no maintenance is done in vain.
#[test]
fn over_slots_room_is_made_for_what_a_policy_may_move() {
    let small = geometry(Layout::Slots, 8, 64);
    let large = geometry(Layout::Slots, 32, 80);
    let works = [
        ("lru", &[380][..], small),
        ("face", &[40, 200], small),
        ("face-gsc", &[40, 400], small),
        ("lru", &[1900], large),
        ("face", &[190, 1900], large),
        ("face-gsc", &[190, 1900], large),
        ("h-arc", &[2250], large),
    ];
    for (policy, tiers, geometry) in works {
        let done = Work { policy, tiers, geometry, requests: 20_000, flush_every: Some(16) }.run();
        let Done { stats, syncs, flushes, short, .. } = done;
        let (freed, evicted_dirty) = (stats.write_back.slots_freed, stats.write_back.evicted_dirty);
        println!(
            "{policy} {tiers:?}: {syncs} syncs for {flushes} flushes, {freed} slots freed, {evicted_dirty} rescued, {short} short"
        );
        assert!(freed > 1000 && stats.counts.admissions_failed == 0, "{policy} {tiers:?}: {stats:?}");
        assert_eq!(short, 0, "{policy} {tiers:?}");
        assert!(syncs < 3 * flushes, "{policy} {tiers:?}: {syncs} syncs for {flushes} flushes");
    }
}

/// A start has to check a bounded number of bytes even where no client ever flushes. The cache's own syncs bound
/// them, and cost little as long as little is written.
#[test]
fn a_cache_that_nobody_flushes_is_opened_after_reading_little() {
    for layout in [Layout::Log, Layout::Slots] {
        let geometry = geometry(layout, 64, 40);
        let work = Work { policy: "h-arc", tiers: &[1500], geometry, requests: 20_000, flush_every: None };
        let Done { stats, syncs, recovered, reads, .. } = work.run();
        let segments = recovered.read_bytes as f64 / geometry.segment_bytes() as f64;
        println!("{layout:?}: {recovered:?}, {segments:.1} segments read in {reads} calls; {syncs} syncs, {stats:?}");
        assert!(recovered.unsynced_batches <= 2 * SYNC_IDLE + 1, "{layout:?}: {recovered:?}");
        assert!(segments < SYNC_MUST as f64, "{layout:?}: {segments} segments read");
        let most = stats.store.pages / u64::from(geometry.segment_pages);
        assert!(syncs < most, "{layout:?}: {syncs} syncs, more than one for a segment");
    }
}
