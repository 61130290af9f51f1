//! Reads of several pages: decided page by page, as if each had been read alone, but submitted to the devices together.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, CacheStats, Tag};
use entresol_core::Random;
use entresol_crashtest::{Power, SimDisk};
use entresol_disk::{Disk, Transfer};
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

const PAGE: u64 = 512;
const PAGES: u64 = 120;
/// A backing store that ends within a page.
const SIZE: u64 = PAGES * PAGE - 100;
const ID: [u8; 16] = [5; 16];

/// A disk that notes its reads and its calls, and cannot read one byte.
#[derive(Clone)]
struct Watched {
    disk: SimDisk,
    calls: Arc<AtomicU64>,
    reads: Arc<Mutex<Vec<(u64, usize)>>>,
    bad: Arc<AtomicU64>,
}

impl Watched {
    fn new(size: u64, power: &Power) -> Self {
        let bad = Arc::new(AtomicU64::new(u64::MAX));
        Watched { disk: SimDisk::new(size, power), calls: Arc::default(), reads: Arc::default(), bad }
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.reads.lock().unwrap().push((at, bytes.len()));
        if (at..at + bytes.len() as u64).contains(&self.bad.load(SeqCst)) {
            return Err(io::Error::other("a bad byte"));
        }
        self.disk.read_at(at, bytes)
    }

    /// Calls that read, and their reads, since the last time.
    fn taken(&self) -> (u64, Vec<(u64, usize)>) {
        (self.calls.swap(0, SeqCst), std::mem::take(&mut self.reads.lock().unwrap()))
    }
}

impl Disk for Watched {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.calls.fetch_add(1, SeqCst);
        self.read(at, bytes)
    }
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at(at, bytes)
    }
    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }
    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.disk.discard(at, bytes)
    }
    fn submit(&self, transfers: &mut [Transfer]) -> io::Result<()> {
        // Maintenance threads write batches at any time.
        let reads = transfers.iter().any(|transfer| matches!(transfer, Transfer::Read { .. }));
        self.calls.fetch_add(u64::from(reads), SeqCst);
        transfers.iter_mut().try_for_each(|transfer| match transfer {
            Transfer::Read { at, bytes } => self.read(*at, bytes),
            Transfer::Write { at, bytes } => self.disk.write_at(*at, bytes),
        })
    }
}

struct Cache {
    cache: BlockCache,
    device: Watched,
    backing: Watched,
}

/// A cache over a backing store in which byte *n* is `byte(n)`.
fn cache(policy: &str, tiers: &[usize]) -> Cache {
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 8, segments: 20, layout: Layout::Log };
    let power = Power::steady();
    let (device, backing) = (Watched::new(geometry.size_bytes(), &power), Watched::new(SIZE, &power));
    backing.disk.write_at(0, &original()).expect("room");
    BlockCache::format(&device, geometry, &backing, [1; 16], ID).expect("room");
    let config = CacheConfig::new(catalogue::info(policy).expect("a policy"), tiers);
    let cache = BlockCache::open(device.clone(), backing.clone(), ID, &config).expect("a cache");
    drop((device.taken(), backing.taken()));
    Cache { cache, device, backing }
}

fn original() -> Vec<u8> {
    (0..SIZE).map(|at| Random::mix(at / 16) as u8).collect()
}

fn stats(cache: &BlockCache) -> CacheStats {
    cache.stats().expect("counts")
}

#[test]
fn pages_read_together_are_decided_on_as_one_by_one() {
    let policies = ["lru", "arc", "s3-fifo", "tac", "face-gsc", "lc", "multi-tier", "hibachi"];
    for policy in policies {
        let info = catalogue::info(policy).expect("a policy");
        let tiers: &[usize] = if info.tiers.len() == 1 { &[40] } else { &[12, 40] };
        let (together, alone) = (cache(policy, tiers), cache(policy, tiers));
        let mut random = Random::new(11);
        let mut model = original();
        for step in 0..6000_u64 {
            let (near, long) = (random.chance(0.7), random.chance(0.05));
            let offset = random.below(if near { 15 * PAGE } else { SIZE });
            let len = 1 + random.below(if long { 50 * PAGE } else { 5 * PAGE });
            let aligned = random.chance(0.5);
            let offset = if aligned { offset / PAGE * PAGE } else { offset };
            let len = if aligned { len.next_multiple_of(PAGE) } else { len }.min(SIZE - offset);
            let range = offset as usize..(offset + len) as usize;
            let tag = Tag { sequential: false, now_us: step };
            if random.chance(0.2) {
                model[range.clone()].fill(step as u8);
                together.cache.write_tagged(offset, &model[range.clone()], tag).expect("a write");
                alone.cache.write_tagged(offset, &model[range], tag).expect("a write");
                continue;
            }
            let mut bytes = vec![0xee; len as usize];
            together.cache.read_tagged(offset, &mut bytes, tag).expect("a read");
            assert!(bytes == model[range.clone()], "{policy}: step {step}: {range:?}");
            let mut at = offset;
            while at < offset + len {
                let end = ((at / PAGE + 1) * PAGE).min(offset + len);
                let tag = Tag { sequential: at > offset, ..tag };
                let part = &mut bytes[(at - offset) as usize..(end - offset) as usize];
                alone.cache.read_tagged(at, part, tag).expect("a read");
                at = end;
            }
            assert!(bytes == model[range], "{policy}: step {step}");
        }
        assert_eq!(stats(&together.cache).counts, stats(&alone.cache).counts, "{policy}");
        let calls = [together.device, together.backing, alone.device, alone.backing].map(|disk| disk.taken().0);
        println!("{policy}: reading calls of the device and of the backing store, together and alone: {calls:?}");
        assert!(calls[0] + calls[1] < calls[2] + calls[3], "{policy}: {calls:?}");
    }
}

/// The transfer of these pages of the backing store.
fn run(pages: std::ops::Range<u64>) -> (u64, usize) {
    (pages.start * PAGE, ((pages.end - pages.start) * PAGE) as usize)
}

#[test]
fn clean_pages_between_pages_below_are_read_below_with_them() {
    let Cache { cache, device, backing } = cache("lru", &[60]);
    let mut model = original();
    let mut bytes = vec![0; 8 * PAGE as usize];
    for page in [1, 4, 5, 7] {
        cache.read(page * PAGE, &mut bytes[..PAGE as usize]).expect("a read");
    }
    cache.flush().expect("a flush");
    drop((device.taken(), backing.taken()));
    cache.read(0, &mut bytes).expect("a read");
    assert!(bytes == model[..bytes.len()]);
    // Page 7 has nothing below after it.
    assert_eq!((device.taken().1.len(), backing.taken()), (1, (1, vec![run(0..7)])));
    let counts = stats(&cache);
    assert_eq!((counts.write_back.below_reads, counts.write_back.below_bridge_reads), (4 + 7, 3));
    assert_eq!((counts.counts.read_hits, counts.store.reads), (4, 1));

    // Where the backing store has other bytes, or cannot be read, those of the cache are the page's.
    let pages = 20..23;
    cache.read(21 * PAGE, &mut bytes[..PAGE as usize]).expect("a read");
    cache.flush().expect("a flush");
    backing.disk.write_at(21 * PAGE, &[9; 4]).expect("room");
    let three = &mut bytes[..3 * PAGE as usize];
    cache.read(20 * PAGE, three).expect("a read");
    assert!(three == &model[(pages.start * PAGE) as usize..(pages.end * PAGE) as usize]);
    model[(31 * PAGE) as usize..][..4].fill(7);
    cache.write(31 * PAGE, &model[(31 * PAGE) as usize..][..4], false).expect("a write");
    cache.read(41 * PAGE, &mut bytes[..PAGE as usize]).expect("a read");
    cache.flush().expect("a flush");
    drop((device.taken(), backing.taken()));
    cache.read(30 * PAGE, &mut bytes[..3 * PAGE as usize]).expect("a read");
    assert!(bytes[..3 * PAGE as usize] == model[(30 * PAGE) as usize..(33 * PAGE) as usize]);
    assert_eq!(backing.taken(), (1, vec![run(30..31), run(32..33)]), "a dirty page is read from the cache");
    backing.bad.store(41 * PAGE, SeqCst);
    cache.read(40 * PAGE, &mut bytes[..3 * PAGE as usize]).expect("the cache has the page that is bad below");
    assert!(bytes[..3 * PAGE as usize] == model[(40 * PAGE) as usize..(43 * PAGE) as usize]);
}

#[test]
fn a_read_of_pages_asks_each_device_once() {
    let Cache { cache, device, backing } = cache("lru", &[60]);
    let model = original();
    let mut bytes = vec![0; 8 * PAGE as usize];
    // Two dirty pages come into the log, and leave memory when their batch is written.
    for page in [2, 5] {
        cache.write(page * PAGE, &model[(page * PAGE) as usize..][..PAGE as usize], false).expect("a write");
    }
    cache.flush().expect("a flush");
    drop((device.taken(), backing.taken()));
    let (start, end) = (PAGE as usize / 2, 8 * PAGE as usize);
    cache.read(PAGE / 2, &mut bytes[start..]).expect("a read");
    assert!(bytes[start..] == model[start..end]);
    let (calls, reads) = device.taken();
    assert_eq!((calls, reads.len()), (1, 2), "{reads:?}");
    // Neighbours are one transfer.
    assert_eq!(backing.taken(), (1, vec![run(0..2), run(3..5), run(6..8)]));
    let counts = stats(&cache);
    assert_eq!((counts.write_back.below_reads, counts.counts.reads, counts.counts.read_hits), (6, 8, 2));
    // More pages than are held together take several reads.
    let mut all = vec![0; SIZE as usize];
    cache.read(0, &mut all).expect("a read");
    assert!(all == model);
    let (calls, reads) = backing.taken();
    assert_eq!(
        (calls, reads),
        (4, vec![run(8..32), run(32..64), run(64..96), (96 * PAGE, (SIZE - 96 * PAGE) as usize)])
    );
}

#[test]
fn a_page_that_cannot_be_read_is_the_readers_error_and_takes_no_other_with_it() {
    let Cache { cache, device, backing } = cache("lru", &[60]);
    let model = original();
    let mut bytes = vec![0; 6 * PAGE as usize];
    backing.bad.store(3 * PAGE + 7, SeqCst);
    assert_eq!(cache.read(0, &mut bytes).expect_err("a bad byte").to_string(), "a bad byte");
    // The pages before the bad one have been read and decided on.
    assert_eq!(stats(&cache).counts.admissions, 3);
    cache.read(4 * PAGE, &mut bytes[..2 * PAGE as usize]).expect("others can be read");
    backing.bad.store(u64::MAX, SeqCst);
    cache.read(0, &mut bytes).expect("a read");
    cache.flush().expect("a flush");
    // A clean copy in the log that is bad twice is read below.
    drop((device.taken(), backing.taken()));
    cache.read(0, &mut bytes).expect("a read");
    let (_, reads) = device.taken();
    // Pages that came together lie together: 0 to 2, and 4 and 5.
    let lens: Vec<u64> = reads.iter().map(|&(_, len)| len as u64 / PAGE).collect();
    assert_eq!(lens, [3, 1, 2], "all are in the log");
    device.bad.store(reads[0].0 + 2 * PAGE, SeqCst);
    cache.read(0, &mut bytes).expect("a read");
    assert!(bytes == model[..bytes.len()]);
    assert_eq!(backing.taken().1, [(2 * PAGE, PAGE as usize)]);
    assert_eq!(stats(&cache).write_back.clean_copies_bad, 1);
}
