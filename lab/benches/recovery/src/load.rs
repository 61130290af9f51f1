//! Work of the processes that are killed: fill a cache, open it again, use it.

use crate::report::{Filled, Opened};
use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig};
use entresol_core::Random;
use entresol_disk::{Caching, FileDisk};
use entresol_policy::{Info, catalogue};
use entresol_store::{Geometry, Layout};
use std::path::Path;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const IDENTITY: [u8; 16] = [1; 16];
/// Pages of the backing store for each page of the cache's capacity.
const FOOTPRINT: u64 = 3;
/// Share of requests that write.
const WRITES: f64 = 0.3;
/// Blocks that the fill writes, in multiples of the store: above 1, so that space was reused and reclaim has worked.
const TURNS: f64 = 1.1;
/// Reads that give the hit ratio before the crash.
const SAMPLE: u64 = 400_000;

/// Sizes and settings that all parts must agree on.
pub struct Sizes {
    pub geometry: Geometry,
    pub policy: &'static Info,
    pub tiers: Vec<usize>,
    pub flush_every: u64,
}

impl Sizes {
    /// A cache of `bytes` bytes, as the command formats it.
    pub fn of(bytes: u64, layout: Layout, policy: &str, flush_every: u64) -> Result<Self, String> {
        let geometry = Geometry::for_device(bytes, PAGE as u32, layout).map_err(|error| error.to_string())?;
        let policy = catalogue::info(policy).map_err(|error| error.to_string())?;
        let space = geometry.capacity_pages() as usize;
        let mut tiers = vec![space];
        if policy.tiers.len() == 2 {
            tiers.insert(0, ((space as f64 * policy.top_share) as usize).max(policy.min_pages[0]));
        }
        Ok(Sizes { geometry, policy, tiers, flush_every })
    }

    /// Number of pages that requests may use.
    pub fn footprint(&self) -> u64 {
        FOOTPRINT * self.geometry.capacity_pages()
    }
}

/// Skewed requests: a tenth of the pages gets more than half of them. The same seed gives the same requests.
struct Requests {
    random: Random,
    footprint: u64,
}

impl Requests {
    fn new(seed: u64, sizes: &Sizes) -> Self {
        Requests { random: Random::new(seed), footprint: sizes.footprint() }
    }

    /// The next page, and whether it is written.
    fn next(&mut self) -> (u64, bool) {
        let share = self.random.next_f64().powi(4);
        let rank = (share * self.footprint as f64) as u64;
        // Neighbours in popularity are no neighbours on the device.
        (Random::mix(rank) % self.footprint, self.random.chance(WRITES))
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn files(dir: &Path, sizes: &Sizes) -> Result<(FileDisk, FileDisk), String> {
    let cache = FileDisk::create(&dir.join("cache"), sizes.geometry.size_bytes(), Caching::Buffered).map_err(text)?;
    // Only the cache's write-back ever writes this file: a hole costs no space.
    let backing = FileDisk::create(&dir.join("backing"), sizes.footprint() * PAGE as u64, Caching::Buffered);
    Ok((cache, backing.map_err(text)?))
}

fn serve(cache: &BlockCache, (page, write): (u64, bool), bytes: &mut [u8]) -> Result<(), String> {
    let at = page * PAGE as u64;
    if write { cache.write(at, bytes, false) } else { cache.read(at, bytes) }.map_err(text)
}

/// Makes a cache and uses it until the whole store was written and reused.
pub fn fill(dir: &Path, sizes: &Sizes) -> Result<Filled, String> {
    let (cache, backing) = files(dir, sizes)?;
    BlockCache::format(&cache, sizes.geometry, &backing, [3; 16], IDENTITY).map_err(text)?;
    let config = CacheConfig::new(sizes.policy, &sizes.tiers);
    let cache = BlockCache::open(cache, backing, IDENTITY, &config).map_err(text)?;
    let started = Instant::now();
    let mut requests = Requests::new(1, sizes);
    let mut bytes = vec![0; PAGE];
    let blocks = u64::from(sizes.geometry.segments) * u64::from(sizes.geometry.segment_pages);
    let mut served = 0u64;
    loop {
        for _ in 0..100_000 {
            serve(&cache, requests.next(), &mut bytes)?;
            served += 1;
            if sizes.flush_every > 0 && served.is_multiple_of(sizes.flush_every) {
                cache.flush().map_err(text)?;
            }
        }
        if cache.stats().map_err(text)?.store.blocks as f64 >= TURNS * blocks as f64 {
            break;
        }
    }
    let before = cache.stats().map_err(text)?;
    for _ in 0..SAMPLE {
        serve(&cache, requests.next(), &mut bytes)?;
    }
    let after = cache.stats().map_err(text)?;
    let hits = after.counts.read_hits - before.counts.read_hits;
    Ok(Filled {
        requests: (served + SAMPLE) as f64,
        seconds: started.elapsed().as_secs_f64(),
        blocks_per_batch: after.store.blocks as f64 / after.store.batches as f64,
        pages_per_sync: after.store.pages as f64 / after.store.syncs as f64,
        hit_ratio: hits as f64 / (after.counts.reads - before.counts.reads) as f64,
        index_bytes: after.index_bytes as f64,
        directory_bytes: after.directory_bytes as f64,
    })
}

/// Opens the cache, reads until the first hit, and works on it for a second.
pub fn open(dir: &Path, sizes: &Sizes, seed: u64) -> Result<Opened, String> {
    let read_before = device_bytes();
    let started = Instant::now();
    let (cache, backing) = files(dir, sizes)?;
    let executor = cache.executor();
    let config = CacheConfig::new(sizes.policy, &sizes.tiers);
    let cache = BlockCache::open(cache, backing, IDENTITY, &config).map_err(text)?;
    let served_s = started.elapsed().as_secs_f64();
    let served_cpu_s = processor_s();
    let recovered = cache.recovered();
    let (mut requests, mut bytes) = (Requests::new(seed, sizes), vec![0; PAGE]);
    let hit_s = loop {
        let (page, _) = requests.next();
        serve(&cache, (page, false), &mut bytes)?;
        let elapsed = started.elapsed();
        // Counting takes longer than the read.
        if cache.stats().map_err(text)?.counts.read_hits > 0 {
            break elapsed.as_secs_f64();
        }
    };
    let device_bytes = device_bytes() - read_before;
    let cpu_s = processor_s();
    let before = cache.stats().map_err(text)?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        (0..100).try_for_each(|_| serve(&cache, requests.next(), &mut bytes))?;
    }
    let after = cache.stats().map_err(text)?;
    let hits = after.counts.read_hits - before.counts.read_hits;
    Ok(Opened {
        store_s: recovered.took.as_secs_f64(),
        served_s,
        hit_s,
        cpu_s,
        served_cpu_s,
        read_bytes: recovered.read_bytes as f64,
        device_bytes,
        pages: recovered.pages as f64,
        dirty_pages: recovered.dirty_pages as f64,
        unsynced_batches: recovered.unsynced_batches as f64,
        hit_ratio: hits as f64 / (after.counts.reads - before.counts.reads) as f64,
        rings: f64::from(u8::from(executor == "io_uring")),
    })
}

/// Processor time that this process has used, in seconds.
fn processor_s() -> f64 {
    let taken = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    taken.tv_sec as f64 + taken.tv_nsec as f64 / 1e9
}

/// Bytes that this process has read from storage, not from the kernel's cache.
fn device_bytes() -> f64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let bytes = io.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(f64::NAN)
}
