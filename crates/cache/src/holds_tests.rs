//! Holds of the core's lock, counted: none grows with what an operation is about.

use crate::Block;
use crate::search::LOOKED_AT;
use crate::{BlockCache, CacheConfig, LearnedState, Maintenance, Mode, Tag};
use entresol_core::Random;
use entresol_crashtest::{Power, SimDisk};
use entresol_disk::Disk;
use entresol_policy::{Info, Options, catalogue};
use entresol_store::{Geometry, Layout};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const PAGE: u64 = 512;
const ID: [u8; 16] = [4; 16];

/// A disk that counts calls made within a hold of the core's lock, and may report more bytes than it has.
pub(crate) struct Watched {
    disk: SimDisk,
    calls: Arc<AtomicU64>,
    said_bytes: Option<u64>,
}

impl Watched {
    /// Counts calls of a disk.
    pub fn of(disk: SimDisk, calls: &Arc<AtomicU64>) -> Self {
        Watched { disk, calls: Arc::clone(calls), said_bytes: None }
    }

    fn note(&self) {
        self.calls.fetch_add(u64::from(entresol_store::holds::holding()), Relaxed);
    }
}

impl Disk for Watched {
    fn size_bytes(&self) -> u64 {
        self.said_bytes.unwrap_or_else(|| self.disk.size_bytes())
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.note();
        self.disk.read_at(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.note();
        self.disk.write_at(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.note();
        self.disk.sync()
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.note();
        let end = (at + bytes).min(self.disk.size_bytes());
        if at < end { self.disk.discard(at, end - at) } else { Ok(()) }
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        self.note();
        self.disk.grow(bytes)
    }
}

/// An operation on a cache of `pages` pages, half of them dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Discard,
    ChangeBelow,
    Look,
    Stats,
    Policy,
    Drain,
    Mode,
    Flush,
    Grow,
    Learned,
}

/// Entries that the longest hold looks at, and device calls within holds.
fn measure(operation: Operation, layout: Layout, pages: u64) -> (u64, u64) {
    let least = Geometry { page_bytes: PAGE as u32, segment_pages: 64, segments: 1, layout };
    let segments = (16..).find(|&segments| Geometry { segments, ..least }.capacity_pages() >= 2 * pages + 500);
    let geometry = Geometry { segments: segments.expect("some number"), ..least };
    let power = Power::steady();
    let calls = Arc::new(AtomicU64::new(0));
    let watched = |bytes| Watched::of(SimDisk::new(bytes, &power), &calls);
    let (cache, backing) = (watched(geometry.size_bytes()), watched(2 * pages * PAGE));
    BlockCache::format(&cache, geometry, &backing, [1; 16], ID).expect("room");
    let policy = catalogue::info(if operation == Operation::Learned { "reuse" } else { "lru" }).expect("a policy");
    let config = CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(policy, &[pages as usize]) };
    let cache = BlockCache::open(cache, backing, ID, &config).expect("a cache");
    let mut random = Random::new(pages);
    // Every second page of twice as many is requested, and about half of these are written.
    for page in (0..2 * pages).step_by(2) {
        if random.chance(0.5) {
            cache.write(page * PAGE, &[1; PAGE as usize], false).expect("a write");
        } else {
            cache.read(page * PAGE, &mut [0; PAGE as usize]).expect("a read");
        }
    }
    cache.flush().expect("a flush");
    entresol_store::holds::longest();
    calls.store(0, Relaxed);
    match operation {
        Operation::Discard => cache.discard(0, 2 * pages * PAGE).expect("a discard"),
        Operation::ChangeBelow => cache.change_below(0, 2 * pages * PAGE, || Ok(())).expect("a change"),
        Operation::Look => {
            let held = cache.held_in(0, 2 * pages * PAGE).expect("a list");
            let cached = |&(page, _): &(u64, bool)| page % 2 == 0 && page < 2 * pages;
            assert!(held.len() as u64 >= pages - 1 && held.iter().all(cached) && held.is_sorted());
        }
        Operation::Stats => {
            assert!(cache.stats().expect("counts").dirty_pages > 0);
            assert!(cache.lost_pages().expect("a list").is_empty());
            let by_object = cache.dirty_by_object().expect("counts");
            assert!(by_object.values().sum::<u64>() > 0);
            cache.policy_gauges().expect("figures");
        }
        Operation::Policy => {
            let arc = catalogue::info("arc").expect("a policy");
            cache.set_policy(arc, &Options::defaults(arc), &[pages as usize]).expect("another policy");
        }
        Operation::Drain => cache.drain().expect("a drain"),
        Operation::Mode => cache.set_mode(Mode::WriteThrough).expect("another mode"),
        Operation::Flush => cache.flush().expect("a flush"),
        Operation::Learned => {
            let learned = cache.learned().expect("a live cache").expect("what was learned");
            assert!(LearnedState::decode(&learned).expect("a state").histories().count() as u64 >= pages - 1);
        }
        Operation::Grow => drop(cache.grow(geometry.size_bytes() + 64 * 64 * PAGE).expect("more room")),
    }
    let longest = entresol_store::holds::longest();
    let calls = calls.load(Relaxed);
    if matches!(operation, Operation::Discard | Operation::ChangeBelow) {
        assert!(cache.held_pages().expect("a list").iter().all(|&(_, dirty)| dirty), "what is left is obsolete");
        (0..2 * pages).step_by(101).for_each(|page| {
            let mut bytes = [0; PAGE as usize];
            cache.read(page * PAGE, &mut bytes).expect("a read");
            assert!(operation == Operation::ChangeBelow || bytes == [0; PAGE as usize], "page {page}");
        });
    }
    (longest, calls)
}

/// The longest holds do not grow from `few` cached pages to `many`, and no device is called within a hold.
fn check(few: u64, many: u64) {
    use Operation::{ChangeBelow, Discard, Drain, Flush, Grow, Learned, Look, Mode, Policy, Stats};
    for layout in [Layout::Log, Layout::Slots] {
        for operation in [Discard, ChangeBelow, Look, Stats, Policy, Drain, Mode, Flush, Learned, Grow] {
            // Growth is not measured over slots, whose store cannot grow. Growing a log rebuilds its index.
            if (operation, layout) == (Grow, Layout::Slots) {
                continue;
            }
            let [(of_few, calls_of_few), (of_many, calls_of_many)] =
                [few, many].map(|pages| measure(operation, layout, pages));
            let calls = [calls_of_few, calls_of_many];
            println!(
                "{layout:?}, {operation:?}: entries in the longest hold {of_few} of {few} pages, {of_many} of {many}; \
                 calls of devices in holds {calls:?}"
            );
            let is_bounded = of_many <= 3 * LOOKED_AT && calls == [0, 0];
            assert!(is_bounded || operation == Grow, "{layout:?}, {operation:?}: {of_many}, {calls:?}");
        }
    }
}

#[test]
fn no_hold_of_a_long_operation_grows_with_what_it_is_about() {
    check(1000, 32_000);
}

/// Calls of devices in holds during random requests to a cache with this policy, which is closed and opened in between.
fn calls_of_requests(policy: &'static Info, layout: Layout, segment_pages: u32) -> u64 {
    const PAGES: u64 = 300;
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages, segments: 40, layout };
    let power = Power::steady();
    let (disk, below) = (SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(PAGES * PAGE, &power));
    let calls = Arc::<AtomicU64>::default();
    BlockCache::format(&disk, geometry, &below, [1; 16], ID).expect("room");
    let tiers = if policy.tiers.len() == 2 { vec![24, 100] } else { vec![100] };
    let config = CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(policy, &tiers) };
    let mut random = Random::new(7);
    let mut newest = [0; PAGES as usize];
    let mut in_holds = 0;
    for _ in 0..4 {
        let cache =
            BlockCache::open(Watched::of(disk.clone(), &calls), Watched::of(below.clone(), &calls), ID, &config);
        let cache = cache.expect("a cache");
        calls.store(0, Relaxed);
        for _ in 0..3000 {
            let among = if random.chance(0.6) { PAGES / 3 } else { PAGES };
            let page = random.below(among);
            let pages =
                if random.chance(0.2) { page..(page + 1 + random.below(24)).min(PAGES) } else { page..page + 1 };
            let bytes = ((pages.end - pages.start) * PAGE) as usize;
            if random.chance(0.4) {
                let version = random.next_u64() as u8;
                newest[pages.start as usize..pages.end as usize].fill(version);
                cache.write(pages.start * PAGE, &vec![version; bytes], random.chance(0.02)).expect("a write");
            } else {
                let mut read = vec![0; bytes];
                cache.read(pages.start * PAGE, &mut read).expect("a read");
                for (page, bytes) in pages.zip(read.chunks(PAGE as usize)) {
                    assert_eq!(bytes, [newest[page as usize]; PAGE as usize], "page {page}");
                }
            }
        }
        in_holds += calls.load(Relaxed);
        cache.close().expect("an end");
    }
    in_holds
}

/// Frames without bytes move down after each open.
#[test]
fn no_request_calls_a_device_in_a_hold() {
    let mut all = 0;
    for layout in [Layout::Log, Layout::Slots] {
        for policy in catalogue::ALL.iter().filter(|policy| !policy.future && policy.live.is_empty()) {
            // A group that this policy moves at once is larger than a small segment, whose size is no default.
            let segment_pages = if policy.name == "face-gsc" { 256 } else { 16 };
            let calls = calls_of_requests(policy, layout, segment_pages);
            if calls > 0 {
                println!("{layout:?}, {}: {calls} calls of devices in holds", policy.name);
            }
            all += calls;
        }
    }
    assert_eq!(all, 0);
}

/// Several pages of a request are decided on in one hold, and the policy is told of each as if it had come alone.
#[test]
fn pages_of_one_request_share_a_hold_and_count_as_they_do_alone() {
    const PAGES: u64 = 1200;
    for layout in [Layout::Log, Layout::Slots] {
        for policy in catalogue::ALL.iter().filter(|policy| !policy.future && policy.live.is_empty()) {
            let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 64, segments: 40, layout };
            let open = || {
                let power = Power::steady();
                let (disk, below) = (SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(PAGES * PAGE, &power));
                BlockCache::format(&disk, geometry, &below, [1; 16], ID).expect("room");
                let tiers = if policy.tiers.len() == 2 { vec![60, 300] } else { vec![360] };
                let config = CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(policy, &tiers) };
                BlockCache::open(disk, below, ID, &config).expect("a cache")
            };
            let (together, alone) = (open(), open());
            let mut random = Random::new(3);
            for _ in 0..400 {
                let first = random.below(PAGES - 300);
                let pages = 1 + if random.chance(0.1) { random.below(300) } else { random.below(20) };
                let (at, mut bytes) = (first * PAGE, vec![random.next_u64() as u8; (pages * PAGE) as usize]);
                let tag = Tag::default();
                let writes = random.chance(0.5);
                if writes {
                    together.write_tagged(at, &bytes, tag).expect("a write");
                } else {
                    together.read_tagged(at, &mut bytes, tag).expect("a read");
                }
                for (page, bytes) in bytes.chunks_exact_mut(PAGE as usize).enumerate() {
                    let (at, tag) = (at + page as u64 * PAGE, Tag { sequential: page > 0, ..tag });
                    if writes {
                        alone.write_tagged(at, bytes, tag).expect("a write");
                    } else {
                        let mut read = [0; PAGE as usize];
                        alone.read_tagged(at, &mut read, tag).expect("a read");
                        assert_eq!(read, bytes, "{layout:?}, {}: page {}", policy.name, at / PAGE);
                    }
                }
                let [together, alone] = [&together, &alone].map(|cache| cache.stats().expect("counts").counts);
                assert_eq!(together, alone, "{layout:?}, {}", policy.name);
            }
        }
    }
    // Where nothing else is due, it is one hold.
    let power = Power::steady();
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 512, segments: 16, layout: Layout::Log };
    let (disk, below) = (SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(PAGES * PAGE, &power));
    BlockCache::format(&disk, geometry, &below, [1; 16], ID).expect("room");
    let lru = catalogue::info("lru").expect("a policy");
    let config = CacheConfig { maintenance: Maintenance::Hand, ..CacheConfig::new(lru, &[1000]) };
    let cache = BlockCache::open(disk, below, ID, &config).expect("a cache");
    (0..256).for_each(|page| cache.write(page * PAGE, &[1; PAGE as usize], false).expect("a write"));
    cache.flush().expect("a flush");
    for pages in [2, 30, 100, 256] {
        entresol_store::holds::taken();
        cache.write(0, &vec![2; (pages * PAGE) as usize], false).expect("a write");
        let holds = entresol_store::holds::taken();
        println!("a write of {pages} pages: {holds} holds");
        assert!(holds <= 1 + pages / 32, "{holds} holds for {pages} pages");
        cache.flush().expect("a flush");
    }
}

/// A change or a discard of a petabyte takes no longer than the pages held of the range take.
#[test]
fn a_range_far_longer_than_the_cache_costs_what_is_held() {
    for layout in [Layout::Log, Layout::Slots] {
        for bytes in [1 << 24, 1 << 50] {
            let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 64, segments: 40, layout };
            let (power, calls) = (Power::steady(), Arc::default());
            let cache = SimDisk::new(geometry.size_bytes(), &power);
            let backing = Watched { disk: SimDisk::new(1 << 24, &power), calls, said_bytes: Some(bytes) };
            BlockCache::format(&cache, geometry, &backing, [1; 16], ID).expect("room");
            let lru = catalogue::info("lru").expect("a policy");
            let config = CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(lru, &[600]) };
            let cache = BlockCache::open(cache, backing, ID, &config).expect("a cache");
            for operation in [Operation::ChangeBelow, Operation::Discard] {
                (0..500).for_each(|page| cache.write(page * 7 * PAGE, &[1; PAGE as usize], false).expect("a write"));
                entresol_store::holds::all();
                if operation == Operation::Discard {
                    cache.discard(0, bytes).expect("a discard");
                } else {
                    cache.forget(0, bytes).expect("a change");
                }
                let looked = entresol_store::holds::all();
                println!("{layout:?}, {operation:?} of {bytes} bytes: {looked} looks");
                assert!(looked < 4 * u64::from(geometry.segments * geometry.segment_pages), "{looked}");
            }
        }
    }
}

#[test]
#[ignore = "a million pages take six gigabytes and two minutes: `make test-long` runs it"]
fn no_hold_of_a_long_operation_grows_with_a_million_pages() {
    check(1000, 1_000_000);
}
