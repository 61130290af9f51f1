//! The block cache under many threads. No read returns an older version than one acknowledged before it began. No
//! crash loses a flushed version. The hit ratio stays that of one thread.
//!
//! Operations of each thread follow from the seed; how they interleave does not.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, Mode};
use entresol_core::Random;
use entresol_crashtest::{Fault, Power, SimDisk};
use entresol_disk::Disk;
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, PoisonError};

/// One sector: no page is ever torn.
const PAGE: usize = 512;
const PAGES: u64 = 160;
const THREADS: u64 = 6;
const ID: [u8; 16] = [5; 16];

fn geometry() -> Geometry {
    let of = |segments| Geometry { page_bytes: PAGE as u32, segment_pages: 8, segments, layout: super::LAYOUT };
    match super::LAYOUT {
        Layout::Log => of(14),
        // A journal takes space too.
        Layout::Slots => of(36),
        Layout::Segments => (36..).map(of).find(|geometry| geometry.capacity_pages() >= 48).expect("some number"),
    }
}

fn config(policy: &str, mode: Mode) -> CacheConfig {
    let info = catalogue::info(policy).expect("a policy");
    // A log below the policy has dead versions too.
    let last = if super::LAYOUT == Layout::Segments { 48 } else { 40 };
    let tiers = [8, last];
    CacheConfig { mode, ..CacheConfig::new(info, &tiers[2 - info.tiers.len()..]) }
}

/// A disk that lets other threads run before and after every transfer, at times for longer.
struct Lazy {
    disk: SimDisk,
    transfers: AtomicU64,
}

impl Lazy {
    fn new(disk: &SimDisk) -> Self {
        Lazy { disk: disk.clone(), transfers: AtomicU64::new(0) }
    }

    fn slowly<T>(&self, io: impl FnOnce() -> T) -> T {
        let pause = || match Random::mix(self.transfers.fetch_add(1, SeqCst)) % 16 {
            0 => std::thread::sleep(std::time::Duration::from_micros(50)),
            1..8 => std::thread::yield_now(),
            _ => {}
        };
        pause();
        let done = io();
        pause();
        done
    }
}

impl Disk for Lazy {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.slowly(|| self.disk.read_at(at, bytes))
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.slowly(|| self.disk.write_at(at, bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.slowly(|| self.disk.sync())
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.slowly(|| self.disk.discard(at, bytes))
    }
}

fn open(disks: &(SimDisk, SimDisk), config: &CacheConfig) -> BlockCache {
    BlockCache::open(Lazy::new(&disks.0), Lazy::new(&disks.1), ID, config).expect("a cache in order")
}

/// Opens the cache; every other seed cleans pages ahead.
fn open_for(seed: u64, disks: &(SimDisk, SimDisk), config: &CacheConfig) -> BlockCache {
    let cache = open(disks, config);
    if seed % 2 == 1 {
        cache.set_dirty_limits(0.5, 0.2).expect("limits");
    }
    cache
}

/// The bytes of a page at a version; a new page is version 0.
fn stamped(page: u64, version: u64) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    if version > 0 {
        for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
            let words = [version, Random::mix(page << 32 ^ version)];
            word.copy_from_slice(&words[at.min(1)].to_le_bytes());
        }
    }
    bytes
}

#[derive(Default)]
struct Version {
    /// Held by the thread that changes the page, so that versions are in order. True once a change has failed: the page
    /// may be as before or after it.
    writing: Mutex<bool>,
    issued: AtomicU64,
    acknowledged: AtomicU64,
    durable: AtomicU64,
    /// Newest version that was written below without the cache.
    below: AtomicU64,
    /// Newest version that a flush covered.
    flushed: AtomicU64,
    /// A change below may have failed, which leaves whatever version the backing store has.
    as_below: AtomicBool,
    /// Events of the page, for the message of a failure.
    history: Mutex<Vec<(String, u64)>>,
}

impl Version {
    fn note(&self, event: &str, version: u64) {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).push((event.to_owned(), version));
    }

    fn history(&self) -> String {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.iter().rev().take(30).rev().map(|(event, version)| format!("{event} {version}\n")).collect()
    }

    /// True if a crash may have undone a change below: no flush has followed it, and whoever made it is to repeat it.
    fn is_to_be_repeated(&self) -> bool {
        self.below.load(SeqCst) > self.flushed.load(SeqCst)
    }
}

struct Model {
    pages: Vec<Version>,
    backing: SimDisk,
    /// True if the power may go: errors are then allowed.
    doomed: bool,
    stop: AtomicBool,
    /// Reads that were answered without waiting.
    at_once: AtomicU64,
}

impl Model {
    fn new(backing: &SimDisk, doomed: bool) -> Self {
        let pages = std::iter::repeat_with(Version::default).take(PAGES as usize).collect();
        Model { pages, backing: backing.clone(), doomed, stop: AtomicBool::default(), at_once: AtomicU64::default() }
    }

    fn page(&self, page: u64) -> &Version {
        &self.pages[page as usize]
    }

    /// Checks a read of a page, and returns the version. `oldest` was the last acknowledged one when the read began.
    /// A change below may just have failed where the power may go.
    fn check(&self, page: u64, bytes: &[u8], oldest: u64, what: &str) -> u64 {
        let version = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        let oldest = if self.page(page).as_below.load(SeqCst) { 0 } else { oldest };
        let newest = self.page(page).issued.load(SeqCst);
        self.page(page).note(what, version);
        let is_right = bytes == stamped(page, version) && (oldest..=newest).contains(&version);
        let history = || self.page(page).history();
        assert!(is_right, "{what}: page {page}: version {version} of {oldest} to {newest}: {bytes:?}\n{}", history());
        version
    }

    /// One request of a thread; false when the power is off.
    fn request(&self, cache: &BlockCache, random: &mut Random) -> bool {
        let page = if random.chance(0.6) { random.below(PAGES / 5) } else { random.below(PAGES) };
        let version = self.page(page);
        let result = match random.below(100) {
            0..50 => {
                let oldest = version.acknowledged.load(SeqCst);
                let mut bytes = [0; PAGE];
                // A front-end first asks for the bytes that need no waiting.
                let at_once = match random.below(4) {
                    0 => cache.read_now(page * PAGE as u64, &mut bytes),
                    1 => cache.read_some_now_tagged(page * PAGE as u64, &mut bytes, cache.tag(false)) == PAGE,
                    _ => false,
                };
                self.at_once.fetch_add(at_once.into(), SeqCst);
                let read = if at_once { Ok(()) } else { cache.read(page * PAGE as u64, &mut bytes) };
                if read.is_ok() {
                    self.check(page, &bytes, oldest, "a read");
                }
                read
            }
            50..92 => {
                let mut unsure = version.writing.lock().expect("nobody panics");
                let next = version.issued.fetch_add(1, SeqCst) + 1;
                let bytes = stamped(page, next);
                // A partial write and then a whole one would show both. So the part is of the version that is there
                // anyway.
                let written = if random.chance(0.2) && !*unsure {
                    let before = version.acknowledged.load(SeqCst);
                    version.note("part of", before);
                    let part = cache.write(page * PAGE as u64 + 100, &stamped(page, before)[100..200], false);
                    part.and_then(|()| cache.write(page * PAGE as u64, &bytes, false))
                } else {
                    cache.write(page * PAGE as u64, &bytes, false)
                };
                if written.is_ok() {
                    version.acknowledged.store(next, SeqCst);
                }
                version.note(if written.is_ok() { "written" } else { "perhaps written" }, next);
                *unsure |= written.is_err();
                written
            }
            92..96 => {
                let before: Vec<u64> = self.pages.iter().map(|version| version.acknowledged.load(SeqCst)).collect();
                let flushed = cache.flush();
                if flushed.is_ok() {
                    for (version, before) in self.pages.iter().zip(before) {
                        version.durable.fetch_max(before, SeqCst);
                        version.flushed.fetch_max(before, SeqCst);
                        version.note("flushed", before);
                    }
                }
                flushed
            }
            96..99 => self.change_below(cache, page),
            _ => cache.stats().map(|_| ()).and_then(|()| cache.drain()),
        };
        if let Err(error) = &result {
            assert!(self.doomed && !error.to_string().contains("fault of its own"), "{error}");
            self.stop.store(true, SeqCst);
        }
        result.is_ok()
    }

    /// Writes the next version of a page below, without the cache.
    fn change_below(&self, cache: &BlockCache, page: u64) -> io::Result<()> {
        let version = self.page(page);
        let mut unsure = version.writing.lock().expect("nobody panics");
        let next = version.issued.fetch_add(1, SeqCst) + 1;
        version.below.store(next, SeqCst);
        let had_failed = version.as_below.swap(self.doomed, SeqCst);
        let changed = cache.change_below(page * PAGE as u64, PAGE as u64, || {
            self.backing.write_at(page * PAGE as u64, &stamped(page, next))
        });
        if changed.is_ok() {
            version.acknowledged.store(next, SeqCst);
        }
        version.note(if changed.is_ok() { "changed below" } else { "perhaps changed below" }, next);
        *unsure |= changed.is_err();
        version.as_below.store(had_failed || changed.is_err(), SeqCst);
        changed
    }

    /// Repeats the changes below that a crash may have undone. Until then a start may find either version, and the next
    /// start the other.
    fn repeat_changes_below(&self, cache: &BlockCache) {
        for page in (0..PAGES).filter(|&page| self.page(page).is_to_be_repeated()) {
            self.change_below(cache, page).expect("the power is on");
        }
    }

    /// Runs the threads, each until it has made so many requests or the power is off.
    fn run(&self, cache: &BlockCache, seed: u64, requests: u64) {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let mut random = Random::new(seed << 8 | thread);
                    for _ in 0..requests {
                        if self.stop.load(SeqCst) || !self.request(cache, &mut random) {
                            return;
                        }
                    }
                });
            }
        });
    }

    /// The model of the next life, by the versions that were found. What a kill left is there after the next one too.
    fn after_crash(mut self, all_found: Vec<u64>, power_loss: bool) -> Self {
        for (found, version) in all_found.into_iter().zip(&mut self.pages) {
            *version.writing.get_mut().expect("nobody panics") = false;
            *version.as_below.get_mut() = false;
            version.acknowledged.store(found, SeqCst);
            if !power_loss && !version.is_to_be_repeated() {
                version.durable.store(found, SeqCst);
            }
        }
        Model { stop: AtomicBool::default(), ..self }
    }

    /// Checks all pages, and returns their versions.
    fn check_all(&self, cache: &BlockCache, what: &str, oldest: impl Fn(&Version) -> u64) -> Vec<u64> {
        let check = |page| {
            let mut bytes = [0; PAGE];
            cache.read(page * PAGE as u64, &mut bytes).expect("a read");
            self.check(page, &bytes, oldest(self.page(page)), what)
        };
        (0..PAGES).map(check).collect()
    }
}

const POLICIES: [(&str, Mode); 7] = [
    ("lru", Mode::WriteBack),
    ("arc", Mode::WriteThrough),
    ("face-gsc", Mode::WriteBack),
    ("lc", Mode::WriteBack),
    ("tac", Mode::WriteAround),
    ("multi-tier", Mode::WriteBack),
    ("hibachi", Mode::WriteThrough),
];

fn formatted(power: &Power) -> (SimDisk, SimDisk) {
    formatted_as(geometry(), power)
}

fn formatted_as(geometry: Geometry, power: &Power) -> (SimDisk, SimDisk) {
    let cache = SimDisk::new(geometry.size_bytes(), power);
    let backing = SimDisk::new(PAGES * PAGE as u64, power);
    BlockCache::format(&cache, geometry, &backing, [1; 16], ID).expect("room");
    (cache, backing)
}

#[test]
fn threads_read_what_was_acknowledged_and_it_is_all_below_after_a_drain() {
    let mut at_once = 0;
    for (seed, (policy, mode)) in (0..21).zip(POLICIES.into_iter().cycle()) {
        println!("seed {seed}, {policy} {mode:?}");
        let disks = formatted(&Power::steady());
        let (cache, backing) = (open_for(seed, &disks, &config(policy, mode)), &disks.1);
        let model = Model::new(backing, false);
        model.run(&cache, seed, 600);
        model.check_all(&cache, "at the end", |version| version.acknowledged.load(SeqCst));
        cache.drain().expect("a drain");
        for page in 0..PAGES {
            let mut bytes = [0; PAGE];
            backing.read_at(page * PAGE as u64, &mut bytes).expect("a read");
            model.check(page, &bytes, model.page(page).acknowledged.load(SeqCst), "below");
        }
        let stats = cache.stats().expect("counts");
        let reclaimed = stats.write_back.segments_reclaimed + stats.write_back.slots_freed;
        assert!(reclaimed > 0 && stats.failed.is_none() && stats.write_back.pages_lost == 0, "{stats:?}");
        at_once += model.at_once.load(SeqCst);
    }
    assert!(at_once > 500, "{at_once} reads were answered at once");
}

/// Seeds of crashed caches, from 100 on.
fn crashes() -> u64 {
    std::env::var("ENTRESOL_THREAD_CRASHES").map_or(14, |text| text.parse().expect("a number"))
}

/// Crashes of one cache.
const LIVES: u64 = 6;

/// Crashes caches under threads again and again, and checks that what was flushed is there. Without a `power_loss` all
/// that was written stays, synced or not, as after a kill of the process.
fn crash_under_threads(power_loss: bool) {
    let mut flushed = 0;
    for (seed, (policy, mode)) in (100..100 + crashes()).zip(POLICIES.into_iter().cycle()) {
        println!("seed {seed}, {policy} {mode:?}");
        let power = Power::steady();
        let disks = formatted(&power);
        let mut random = Random::new(seed);
        let mut model = Model::new(&disks.1, true);
        for life in 0..LIVES {
            let cache = open_for(seed, &disks, &config(policy, mode));
            model.repeat_changes_below(&cache);
            power.fail_after(20 + random.below(600));
            model.run(&cache, seed << 4 | life, 400);
            drop(cache);
            if power_loss {
                disks.0.crash(random.next_u64());
                disks.1.crash(random.next_u64());
            }
            power.restore();
            let cache = open(&disks, &config(policy, mode));
            let found = model.check_all(&cache, &format!("after crash {life}"), |version| version.durable.load(SeqCst));
            model = model.after_crash(found, power_loss);
        }
        flushed += model.pages.iter().map(|version| version.durable.load(SeqCst).min(1)).sum::<u64>();
    }
    assert!(flushed > 1000, "{flushed} pages were flushed in all lives");
}

#[test]
fn a_crash_under_threads_keeps_what_was_flushed() {
    crash_under_threads(true);
}

#[test]
fn a_kill_under_threads_keeps_what_was_flushed() {
    crash_under_threads(false);
}

/// Hits per read of a stream that is dealt out to threads.
fn hit_ratio(policy: &str, pages: &[u64], threads: usize) -> f64 {
    const UNIVERSE: u64 = 4000;
    let geometry = Geometry {
        page_bytes: 512,
        segment_pages: 64,
        segments: match super::LAYOUT {
            Layout::Log => 18,
            Layout::Slots => 34,
            Layout::Segments => 60,
        },
        layout: super::LAYOUT,
    };
    let power = Power::steady();
    let (cache, backing) = (SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(UNIVERSE * 512, &power));
    BlockCache::format(&cache, geometry, &backing, [1; 16], ID).expect("room");
    let info = catalogue::info(policy).expect("a policy");
    let tiers: &[usize] = if info.tiers.len() == 1 { &[400] } else { &[80, 320] };
    let cache = open(&(cache, backing), &CacheConfig::new(info, tiers));
    // Threads wait for one another: one that the system stops for long would bring old requests, which is another stream.
    let turn = Barrier::new(threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (cache, turn) = (&cache, &turn);
            scope.spawn(move || {
                let mut bytes = [0; 512];
                for together in pages.chunks(64) {
                    for page in together.iter().skip(thread).step_by(threads) {
                        cache.read(page * 512, &mut bytes).expect("a read");
                    }
                    turn.wait();
                }
            });
        }
    });
    let counts = cache.stats().expect("counts").counts;
    assert_eq!(counts.reads, pages.len() as u64);
    counts.read_hits as f64 / counts.reads as f64
}

#[test]
fn eight_threads_hit_as_often_as_one() {
    let mut random = Random::new(9);
    // Zipf with exponent 1 by inversion: the logarithm of the rank is uniform.
    let rank = |random: &mut Random| (4000f64.powf(random.below(1 << 52) as f64 / (1u64 << 52) as f64) - 1.0) as u64;
    let pages: Vec<u64> = (0..60_000).map(|_| Random::mix(rank(&mut random)) % 4000).collect();
    for policy in ["lru", "arc", "face-gsc", "lc", "multi-tier"] {
        let (one, eight) = (hit_ratio(policy, &pages, 1), hit_ratio(policy, &pages, 8));
        println!("{policy}: {:.2} % by one thread, {:.2} % by eight", 100.0 * one, 100.0 * eight);
        assert!((one - eight).abs() < 0.005, "{policy}: {one} by one thread, {eight} by eight");
    }
}

/// Event that happens once.
type Event = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A disk with an event during its next sync.
struct Meanwhile {
    disk: SimDisk,
    event: Event,
}

impl Disk for Meanwhile {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()?;
        if let Some(event) = self.event.lock().expect("nobody panics").take() {
            event();
        }
        Ok(())
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.disk.discard(at, bytes)
    }
}

/// A cache over a log with many free segments: a request during a maintenance step need not wait for it.
fn roomy() -> (SimDisk, SimDisk) {
    formatted_as(Geometry { segments: geometry().segments.max(40), ..geometry() }, &Power::steady())
}

/// The flush makes a newer version durable below, while the log has an older dirty one. A version that becomes
/// the log's newest meanwhile must be durable there too.
#[test]
fn a_page_that_is_cached_again_while_a_flush_writes_it_below_does_not_grow_older() {
    for mode in [Mode::WriteAround, Mode::WriteBack] {
        let disks = roomy();
        let event = Event::default();
        let device = Meanwhile { disk: disks.0.clone(), event: Arc::clone(&event) };
        let config =
            CacheConfig { mode: Mode::WriteAround, ..CacheConfig::new(catalogue::info("lru").expect("lru"), &[4]) };
        let cache = Arc::new(BlockCache::open(device, disks.1.clone(), ID, &config).expect("a cache in order"));
        let read = |page: u64| cache.read(page * PAGE as u64, &mut [0; PAGE]).expect("a read");
        // The page is read back before it is durable below, so it is entered as dirty. Then the policy evicts it.
        cache.write(0, &stamped(0, 1), false).expect("a write");
        (0..5).for_each(read);
        cache.write(0, &stamped(0, 2), false).expect("a write");
        cache.set_mode(mode).expect("a mode");
        let other = Arc::clone(&cache);
        let again = move || other.read(0, &mut [0; PAGE]).expect("a read during the sync");
        *event.lock().expect("nobody panics") = Some(Box::new(again));
        cache.flush().expect("a flush");
        assert!(event.lock().expect("nobody panics").is_none(), "the log was synced");
        drop(cache);
        for seed in 0..20 {
            disks.0.crash(seed);
            disks.1.crash(seed);
        }
        let cache = open(&disks, &CacheConfig { mode: Mode::WriteBack, ..config });
        let mut bytes = [0; PAGE];
        cache.read(0, &mut bytes).expect("a read");
        assert!(bytes == stamped(0, 2), "{mode:?}: version {}", bytes[0]);
    }
}

/// A frame whose bytes are still in the log's copy, which cannot be read. If the page was sent to the backing
/// store, it is read there.
#[test]
fn a_copy_that_cannot_be_read_while_it_is_made_durable_below_is_given_up() {
    let disks = roomy();
    let config = config("face-gsc", Mode::WriteBack);
    let cache = open(&disks, &config);
    cache.write(0, &stamped(0, 1), true).expect("a write");
    drop(cache);
    let event = Event::default();
    let backing = Meanwhile { disk: disks.1.clone(), event: Arc::clone(&event) };
    let cache = Arc::new(BlockCache::open(disks.0.clone(), backing, ID, &config).expect("a cache in order"));
    // Behind this request the policy is shown the recovered pages.
    cache.read(PAGE as u64, &mut [0; PAGE]).expect("a read");
    let (other, device) = (Arc::clone(&cache), disks.0.clone());
    let read = move || {
        (0..20).for_each(|_| device.inject(Fault::ReadError));
        let mut bytes = [0; PAGE];
        other.read(0, &mut bytes).expect("the page is below");
        assert!(bytes == stamped(0, 1), "version {}", bytes[0]);
    };
    *event.lock().expect("nobody panics") = Some(Box::new(read));
    cache.drain().expect("a drain");
    assert!(event.lock().expect("nobody panics").is_none(), "the backing store was synced");
    let refused = (0..20).filter(|_| disks.0.read_at(0, &mut [0; 512]).is_err()).count();
    assert_eq!(refused, 18, "a copy is bad when it is bad twice");
}
