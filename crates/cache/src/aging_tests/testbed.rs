//! A cache in virtual time, and a model, independent of the engine's ages, of the versions that its backing store
//! lacks.

use super::super::{BlockCache, CacheConfig, Clock, Maintenance, Mode};
use crate::Block;
use entresol_crashtest::{Power, SimDisk};
use entresol_disk::Disk;
use entresol_policy::{Info, catalogue};
use entresol_store::{Geometry, Layout};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PAGE: u64 = 512;
const ID: [u8; 16] = [6; 16];
/// Longest virtual time between two looks of a maintenance thread at its work.
const TICK_US: u64 = 50_000;
/// Maintenance steps at one moment that correct code never reaches.
const STEPS_MAX: usize = 2000;

/// Virtual time that I/O takes, in microseconds.
#[derive(Clone, Copy)]
pub struct Cost {
    pub io_us: u64,
    pub page_us: u64,
    pub sync_us: u64,
}

impl Cost {
    /// A slow disk.
    pub const DISK: Cost = Cost { io_us: 2000, page_us: 50, sync_us: 8000 };
}

/// Kind of cache that a test sets up.
#[derive(Clone)]
pub struct Setup {
    pub info: &'static Info,
    pub tiers: Vec<usize>,
    pub mode: Mode,
    pub geometry: Geometry,
    pub pages: u64,
    /// Seconds; 0 for no bound.
    pub bound: u64,
    pub cost: Cost,
    pub seed: u64,
}

impl Setup {
    pub fn new(info: &'static Info, layout: Layout, bound: u64, seed: u64) -> Self {
        let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 16, segments: 40, layout };
        let mut tiers = vec![140.max(*info.min_pages.last().expect("a tier"))];
        if info.tiers.len() == 2 {
            tiers.insert(0, 12.max(info.min_pages[0]));
        }
        Setup { info, tiers, mode: Mode::WriteBack, geometry, pages: 400, bound, cost: Cost::DISK, seed }
    }

    /// A cache with space for thousands of dirty pages.
    pub fn large(layout: Layout, bound: u64, seed: u64) -> Self {
        let info = catalogue::info("lru").expect("a policy");
        let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 64, segments: 160, layout };
        Setup { tiers: vec![5000], geometry, pages: 6000, ..Setup::new(info, layout, bound, seed) }
    }
}

/// Model of the writes above and of those durable below, by number of the write.
#[derive(Default)]
struct Model {
    /// Writes of each page that are not durable below, with their moments in microseconds, oldest first.
    lacking: BTreeMap<u64, Vec<(u64, u64)>>,
    /// Last write of each page written below since the last sync there.
    unsynced: BTreeMap<u64, u64>,
    writes_below: BTreeMap<u64, u64>,
    ios: u64,
    /// The greatest age that any page ever had, in microseconds, and the page.
    worst: (u64, u64),
}

impl Model {
    fn look(&mut self, now: u64) {
        for (&page, writes) in &self.lacking {
            let age = now - writes[0].1;
            if age > self.worst.0 {
                self.worst = (age, page);
            }
        }
    }
}

/// A backing store whose I/O takes virtual time.
#[derive(Clone)]
struct Below {
    disk: SimDisk,
    time: Arc<AtomicU64>,
    cost: Cost,
    model: Arc<Mutex<Model>>,
    fails: Arc<AtomicBool>,
}

impl Disk for Below {
    fn size_bytes(&self) -> u64 {
        Disk::size_bytes(&self.disk)
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if self.fails.load(Relaxed) {
            return Err(io::Error::other("it fails"));
        }
        let pages = bytes.len() as u64 / PAGE;
        self.time.fetch_add(self.cost.io_us + pages * self.cost.page_us, Relaxed);
        let mut model = self.model.lock().expect("no holder panics");
        model.ios += 1;
        for (page, bytes) in (at / PAGE..).zip(bytes.chunks_exact(PAGE as usize)) {
            let write = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
            model.unsynced.insert(page, write);
            *model.writes_below.entry(page).or_default() += 1;
        }
        self.disk.write_at(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.time.fetch_add(self.cost.sync_us, Relaxed);
        let mut model = self.model.lock().expect("no holder panics");
        model.look(self.time.load(Relaxed));
        for (page, durable) in std::mem::take(&mut model.unsynced) {
            if let Some(writes) = model.lacking.get_mut(&page) {
                writes.retain(|&(write, _)| write > durable);
                if writes.is_empty() {
                    model.lacking.remove(&page);
                }
            }
        }
        drop(model);
        self.disk.sync()
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.disk.discard(at, bytes)
    }
}

/// The devices and the time.
pub struct Scene {
    device: SimDisk,
    below: Below,
    writes: u64,
    /// Microseconds by which the clock of the next process is ahead of the virtual time.
    ahead_us: u64,
}

impl Scene {
    pub fn new(setup: &Setup) -> Self {
        let power = Power::steady();
        let device = SimDisk::new(setup.geometry.size_bytes(), &power);
        let below = Below {
            disk: SimDisk::new(setup.pages * PAGE, &power),
            time: Arc::default(),
            cost: setup.cost,
            model: Arc::default(),
            fails: Arc::default(),
        };
        BlockCache::format(&device, setup.geometry, &below, [1; 16], ID).expect("room");
        Scene { device, below, writes: 0, ahead_us: 0 }
    }

    fn config(&self, setup: &Setup, maintenance: Maintenance) -> CacheConfig {
        let dirty_age = (setup.bound > 0).then(|| Duration::from_secs(setup.bound));
        CacheConfig {
            mode: setup.mode,
            seed: setup.seed,
            maintenance,
            dirty_age,
            ..CacheConfig::new(setup.info, &setup.tiers)
        }
    }

    fn open_as(&self, config: &CacheConfig) -> BlockCache {
        BlockCache::open(self.device.clone(), self.below.clone(), ID, config).expect("a cache in order")
    }

    pub fn open(&self, setup: &Setup) -> BlockCache {
        self.open_kept_by(setup, Maintenance::Hand)
    }

    /// Opens a cache in virtual time, with this kind of maintenance.
    pub fn open_kept_by(&self, setup: &Setup, maintenance: Maintenance) -> BlockCache {
        let (time, ahead) = (Arc::clone(&self.below.time), self.ahead_us);
        let clock = Clock::of(move || Duration::from_micros(ahead + time.load(Relaxed)));
        self.open_as(&CacheConfig { clock, ..self.config(setup, maintenance) })
    }

    pub fn open_with_threads(&self, setup: &Setup) -> BlockCache {
        self.open_as(&self.config(setup, Maintenance::Threads))
    }

    /// Sets the clock of the next process ahead of the virtual time.
    pub fn jump(&mut self, seconds: f64) {
        self.ahead_us = (seconds * 1e6) as u64;
    }

    pub fn bound(&self, cache: &BlockCache, seconds: u64) {
        cache.set_dirty_age((seconds > 0).then(|| Duration::from_secs(seconds))).expect("a bound");
    }

    /// The cache device loses power.
    pub fn crash(&self, seed: u64) {
        self.device.crash(seed);
    }

    /// Makes writes below fail from now on, or succeed again.
    pub fn fail(&self, fails: bool) {
        self.below.fails.store(fails, Relaxed);
    }

    fn model(&self) -> std::sync::MutexGuard<'_, Model> {
        self.below.model.lock().expect("no holder panics")
    }

    pub fn write(&mut self, cache: &BlockCache, page: u64) {
        self.write_alone(cache, page);
        self.work(cache);
    }

    /// Lets virtual time pass without any work.
    pub fn idle(&self, seconds: f64) {
        self.below.time.fetch_add((seconds * 1e6) as u64, Relaxed);
    }

    /// A write without the maintenance that would follow it.
    pub fn write_alone(&mut self, cache: &BlockCache, page: u64) {
        self.writes += 1;
        let now = self.below.time.load(Relaxed);
        self.model().lacking.entry(page).or_default().push((self.writes, now));
        let bytes = self.writes.to_le_bytes().repeat(PAGE as usize / 8);
        let before = now;
        cache.write(page * PAGE, &bytes, false).expect("a write");
        // A write that waits is not made before it returns.
        let now = self.below.time.load(Relaxed);
        let writes = self.writes;
        if now > before
            && let Some(list) = self.model().lacking.get_mut(&page)
            && let Some(last) = list.last_mut().filter(|last| last.0 == writes)
        {
            last.1 = now;
        }
    }

    pub fn read(&mut self, cache: &BlockCache, page: u64) {
        let mut bytes = [0; PAGE as usize];
        cache.read(page * PAGE, &mut bytes).expect("a read");
        self.work(cache);
    }

    /// Does the work that maintenance threads would do now.
    fn work(&self, cache: &BlockCache) {
        let mut steps = 0;
        while cache.has_work().expect("a cache that goes on") {
            steps += 1;
            assert!(steps < STEPS_MAX, "there is always something to do");
            if cache.step().is_err() {
                return;
            }
        }
    }

    /// Lets virtual time pass without requests.
    pub fn pass(&mut self, cache: &BlockCache, seconds: f64) {
        self.pass_until(cache, seconds, |_| false);
    }

    pub fn pass_until(&mut self, cache: &BlockCache, seconds: f64, enough: impl Fn(&Scene) -> bool) {
        let until = self.below.time.load(Relaxed) + (seconds * 1e6) as u64;
        loop {
            self.work(cache);
            let now = self.below.time.load(Relaxed);
            self.model().look(now);
            if now >= until || enough(self) {
                return;
            }
            self.below.time.fetch_add(TICK_US.min(until - now), Relaxed);
        }
    }

    /// Virtual time in seconds.
    pub fn now(&self) -> f64 {
        self.below.time.load(Relaxed) as f64 / 1e6
    }

    /// Pages whose last write is not durable below.
    pub fn differing(&self) -> usize {
        self.model().lacking.len()
    }

    /// Writes below.
    pub fn ios(&self) -> u64 {
        self.model().ios
    }

    /// Writes below of a page.
    pub fn writes_of(&self, page: u64) -> u64 {
        self.model().writes_below.get(&page).copied().unwrap_or(0)
    }

    /// An error if a page was ever older than `bound`, in seconds.
    pub fn check(&self, bound: f64) -> Result<(), String> {
        let (age, page) = self.model().worst;
        let age = age as f64 / 1e6;
        if age > bound { Err(format!("page {page} differed for {age:.2} s, not {bound} at most")) } else { Ok(()) }
    }
}
