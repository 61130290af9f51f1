//! Clean cached pages in the middle of a long sequential stream may be read from below. The bytes are right
//! whatever pages are dirty or on their way, and the policy decides as before. The disk below is asked for no
//! more than it may be.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, CacheStats, Maintenance, Tag, WriteBackCounts};
use entresol_core::Random;
use entresol_crashtest::{Power, SimDisk};
use entresol_disk::Disk;
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const PAGE: usize = 512;
const PAGES: u64 = 400;
const CUTOFF: u64 = 24;
const ID: [u8; 16] = [5; 16];

/// A disk whose pages are all in memory, unless a flag says otherwise.
#[derive(Clone)]
struct HeldBelow {
    disk: SimDisk,
    in_memory: Arc<AtomicBool>,
    /// Pages that were read without waiting.
    at_once: Arc<AtomicU64>,
}

impl Disk for HeldBelow {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(at, bytes)
    }
    fn read_now(&self, at: u64, bytes: &mut [u8]) -> bool {
        let found = self.in_memory.load(SeqCst) && self.disk.read_at(at, bytes).is_ok();
        self.at_once.fetch_add(if found { (bytes.len() / PAGE) as u64 } else { 0 }, SeqCst);
        found
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
}

fn cache(policy: &str, tiers: &[usize], layout: Layout, maintenance: Maintenance) -> (BlockCache, HeldBelow) {
    // A journal of small pages takes much of a small store.
    let segments = if layout == Layout::Log { 60 } else { 80 };
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 8, segments, layout };
    let power = Power::steady();
    let device = SimDisk::new(geometry.size_bytes(), &power);
    let disk = SimDisk::new(PAGES * PAGE as u64, &power);
    let below = HeldBelow { disk, in_memory: Arc::new(AtomicBool::new(true)), at_once: Arc::default() };
    BlockCache::format(&device, geometry, &below.disk, [1; 16], ID).expect("room");
    let config = CacheConfig { maintenance, ..CacheConfig::new(catalogue::info(policy).expect("a policy"), tiers) };
    let cache = BlockCache::open(device, below.clone(), ID, &config).expect("a cache");
    cache.set_sequential_cutoff(CUTOFF * PAGE as u64).expect("a change");
    (cache, below)
}

fn stats(cache: &BlockCache) -> CacheStats {
    cache.stats().expect("counts")
}

/// Reads pages, first as many as need no waiting. Returns the number of bytes read so.
fn read(cache: &BlockCache, first: u64, bytes: &mut [u8]) -> usize {
    let (offset, tag) = (first * PAGE as u64, cache.tag(false));
    let done = cache.read_some_now_tagged(offset, bytes, tag);
    let rest = Tag { sequential: tag.sequential || done > 0, ..tag };
    cache.read_tagged(offset + done as u64, &mut bytes[done..], rest).expect("a read");
    done
}

const KINDS: [(&str, &[usize]); 4] =
    [("lru", &[200]), ("arc", &[200]), ("face-gsc", &[20, 200]), ("multi-tier", &[20, 200])];

#[test]
fn bytes_are_right_and_decisions_are_those_of_reads() {
    for layout in [Layout::Log, Layout::Slots] {
        for (policy, tiers) in KINDS {
            let (asked, _) = cache(policy, tiers, layout, Maintenance::Requests);
            let (plain, _) = cache(policy, tiers, layout, Maintenance::Requests);
            let seed = 0x6a95;
            println!("seed {seed:#x}");
            let mut random = Random::new(seed);
            let mut model = vec![0_u8; PAGES as usize * PAGE];
            for step in 0..3000_u64 {
                let first = random.below(PAGES - 120);
                // A scan, in requests of so many pages each; otherwise single pages.
                let (pages, each) =
                    if random.chance(0.05) { (120, 1 + random.below(16)) } else { (1 + random.below(2), 2) };
                if pages < 120 && random.chance(0.3) {
                    let range = first as usize * PAGE..(first + pages) as usize * PAGE;
                    model[range.clone()].fill(step as u8);
                    for cache in [&asked, &plain] {
                        cache.write(first * PAGE as u64, &model[range.clone()], false).expect("a write");
                    }
                }
                if random.chance(0.02) {
                    for cache in [&asked, &plain] {
                        if step % 2 == 0 { cache.drain() } else { cache.flush() }.expect("room");
                    }
                }
                for at in (first..first + pages).step_by(each as usize) {
                    let count = each.min(first + pages - at) as usize * PAGE;
                    let wanted = &model[at as usize * PAGE..][..count];
                    let mut bytes = vec![0xee; count];
                    read(&asked, at, &mut bytes);
                    assert!(bytes == wanted, "{policy}, {layout:?}: step {step}: page {at}");
                    plain.read(at * PAGE as u64, &mut bytes).expect("a read");
                    assert!(bytes == wanted, "{policy}, {layout:?}: step {step}: page {at}");
                }
            }
            let (one, other) = (stats(&asked), stats(&plain));
            assert_eq!(one.counts, other.counts, "{policy}, {layout:?}");
            let kept = |stats: &CacheStats| {
                let write_back =
                    WriteBackCounts { below_reads: 0, below_gap_reads: 0, below_bridge_reads: 0, ..stats.write_back };
                (write_back, stats.store.pages, stats.store.batches, stats.store.rewritten, stats.dirty_pages)
            };
            assert_eq!(kept(&one), kept(&other), "{policy}, {layout:?}");
            let gaps = one.write_back.below_gap_reads;
            println!("{policy}, {layout:?}: {gaps} pages of gaps, {} passed", one.counts.passed);
            assert!(gaps > 500 && gaps <= one.counts.passed, "{policy}, {layout:?}: {gaps}");
            assert_eq!(other.write_back.below_gap_reads, 0);
        }
    }
}

/// Bytes of a version of a page.
fn contents(page: u64, version: u64) -> [u8; PAGE] {
    let mut bytes = [version as u8; PAGE];
    bytes[..8].copy_from_slice(&page.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// Stops threads when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn no_scan_reads_what_is_older_than_what_was_written_before_it() {
    for (policy, tiers) in KINDS {
        let (cache, _) = cache(policy, tiers, Layout::Log, Maintenance::Threads);
        cache.set_dirty_limits(0.1, 0.02).expect("limits");
        for page in 0..PAGES {
            cache.write(page * PAGE as u64, &contents(page, 0), false).expect("a write");
        }
        cache.drain().expect("a drain");
        let versions = || -> Vec<AtomicU64> { (0..PAGES).map(|_| AtomicU64::new(0)).collect() };
        let (begun, ended, stop) = (versions(), versions(), AtomicBool::new(false));
        let (cache, begun, ended, stop) = (&cache, &begun, &ended, &stop);
        std::thread::scope(|scope| {
            for writer in 0..2 {
                scope.spawn(move || {
                    let mut random = Random::new(writer);
                    while !stop.load(SeqCst) {
                        // Each writer has its own pages.
                        let page = random.below(PAGES / 2) * 2 + writer;
                        let version = begun[page as usize].fetch_add(1, SeqCst) + 1;
                        cache.write(page * PAGE as u64, &contents(page, version), false).expect("a write");
                        ended[page as usize].store(version, SeqCst);
                        if random.chance(0.02) {
                            std::thread::sleep(std::time::Duration::from_millis(2));
                        }
                    }
                });
            }
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    cache.drain().expect("a drain");
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            });
            // The other threads end with this one, even if it panics.
            let _stop = Stop(stop);
            let mut bytes = [0; 8 * PAGE];
            for scan in 0..150 {
                for first in (0..PAGES).step_by(8) {
                    let least: Vec<u64> = (first..first + 8).map(|page| ended[page as usize].load(SeqCst)).collect();
                    read(cache, first, &mut bytes);
                    for ((page, least), bytes) in (first..).zip(least).zip(bytes.chunks_exact(PAGE)) {
                        let version = u64::from_le_bytes(bytes[8..16].try_into().expect("eight"));
                        let most = begun[page as usize].load(SeqCst);
                        assert!((least..=most).contains(&version), "{policy}: scan {scan}: page {page}");
                        assert!(*bytes == contents(page, version), "{policy}: scan {scan}: page {page}");
                    }
                }
            }
        });
        println!("{policy}: {:?}", stats(cache).write_back);
        assert!(stats(cache).write_back.below_gap_reads > 100, "{policy}: {:?}", stats(cache).write_back);
        cache.close().expect("a close");
    }
}

/// A cache that holds every page of a range and no others.
fn holding(pages: std::ops::Range<u64>) -> (BlockCache, HeldBelow) {
    let (cache, below) = cache("lru", &[200], Layout::Log, Maintenance::Requests);
    cache.set_sequential_cutoff(0).expect("a change");
    for page in pages {
        cache.read(page * PAGE as u64, &mut [0; PAGE]).expect("a read");
    }
    cache.flush().expect("a flush");
    cache.set_sequential_cutoff(CUTOFF * PAGE as u64).expect("a change");
    (cache, below)
}

fn scan(cache: &BlockCache, pages: std::ops::Range<u64>) {
    for first in pages.step_by(8) {
        read(cache, first, &mut [0; 8 * PAGE]);
    }
}

#[test]
fn gaps_are_paid_for_by_what_passes() {
    let (cache, below) = holding(80..240);
    // Without a stream no held page is read below.
    scan(&cache, 96..112);
    assert_eq!((below.at_once.load(SeqCst), stats(&cache).write_back.below_gap_reads), (0, 0));
    // Nor are held pages that the stream does not pass.
    scan(&cache, 0..80);
    let before = below.at_once.load(SeqCst);
    scan(&cache, 200..208);
    assert_eq!(below.at_once.load(SeqCst), before);
    let (cache, below) = holding(80..240);
    // Of 80 pages 24 do not bypass the cache. Twice the cutoff pays for no more than 48 of the held pages.
    scan(&cache, 0..240);
    let after = stats(&cache);
    assert_eq!((after.counts.passed, after.write_back.below_gap_reads), (80 - CUTOFF, 2 * CUTOFF));
    assert_eq!(below.at_once.load(SeqCst), 80 + 2 * CUTOFF);
    assert_eq!(after.counts.read_hits, 160);
}

#[test]
fn a_gap_that_is_not_in_memory_below_is_left_to_the_cache() {
    let (cache, below) = holding(80..240);
    scan(&cache, 0..96);
    assert_eq!(stats(&cache).write_back.below_gap_reads, 16);
    below.in_memory.store(false, SeqCst);
    scan(&cache, 96..104);
    below.in_memory.store(true, SeqCst);
    // There is no credit left, until more pages have bypassed the cache.
    scan(&cache, 104..240);
    assert_eq!(stats(&cache).write_back.below_gap_reads, 16);
    assert_eq!(stats(&cache).counts.read_hits, 160);
}

#[test]
fn dirty_pages_and_those_on_their_way_come_from_the_cache() {
    let (cache, below) = holding(80..120);
    cache.write(100 * PAGE as u64, &[7; PAGE], false).expect("a write");
    scan(&cache, 0..96);
    let mut bytes = [0; 8 * PAGE];
    let before = below.at_once.load(SeqCst);
    assert_eq!(read(&cache, 96, &mut bytes), 0);
    assert_eq!((bytes[4 * PAGE], below.at_once.load(SeqCst)), (7, before));
    // Once the page is durable below, it may be read there.
    cache.drain().expect("a drain");
    assert_eq!(read(&cache, 104, &mut bytes), bytes.len());
    scan(&cache, 0..96);
    assert_eq!(read(&cache, 96, &mut bytes), bytes.len());
    assert_eq!(bytes[4 * PAGE], 7);
}
