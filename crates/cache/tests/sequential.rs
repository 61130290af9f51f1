//! Long sequential streams bypass the cache: pages after the cutoff are not admitted, and are right and durable
//! all the same.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, Counts, Mode};
use entresol_crashtest::{Power, SimDisk};
use entresol_disk::Disk;
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};

const PAGE: u64 = 512;
const PAGES: u64 = 400;
const ID: [u8; 16] = [5; 16];
const CUTOFF_PAGES: u64 = 50;

fn contents(page: u64, version: u8) -> [u8; PAGE as usize] {
    [(page % 200) as u8 + version; PAGE as usize]
}

/// A cache over a backing store whose pages are each filled with their own pattern.
fn cache(mode: Mode) -> (BlockCache, [SimDisk; 2]) {
    let power = Power::steady();
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 16, segments: 60, layout: Layout::Log };
    let disks = [SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(PAGES * PAGE, &power)];
    for page in 0..PAGES {
        disks[1].write_at(page * PAGE, &contents(page, 0)).expect("a disk");
    }
    BlockCache::format(&disks[0], geometry, &disks[1], [1; 16], ID).expect("room");
    let cache = open(&disks, mode);
    (cache, disks)
}

fn open(disks: &[SimDisk; 2], mode: Mode) -> BlockCache {
    let lru = catalogue::info("lru").expect("a policy");
    let config = CacheConfig { mode, ..CacheConfig::new(lru, &[PAGES as usize]) };
    let cache = BlockCache::open(disks[0].clone(), disks[1].clone(), ID, &config).expect("a cache");
    cache.set_sequential_cutoff(CUTOFF_PAGES * PAGE).expect("a cache that runs");
    cache
}

fn read(cache: &BlockCache, page: u64) -> [u8; PAGE as usize] {
    let mut bytes = [0; PAGE as usize];
    cache.read(page * PAGE, &mut bytes).expect("a read");
    bytes
}

fn counts(cache: &BlockCache) -> Counts {
    cache.stats().expect("counts").counts
}

#[test]
fn a_scan_is_admitted_up_to_the_cutoff() {
    let (cache, _) = cache(Mode::WriteBack);
    // Requests of several pages: each page counts.
    for first in (0..PAGES).step_by(16) {
        let mut bytes = [0; 16 * PAGE as usize];
        cache.read(first * PAGE, &mut bytes).expect("a read");
        for (page, bytes) in (first..).zip(bytes.chunks_exact(PAGE as usize)) {
            assert_eq!(bytes, contents(page, 0));
        }
    }
    let all = counts(&cache);
    assert_eq!((all.reads, all.fetches), (PAGES, PAGES));
    assert_eq!((all.admissions, all.passed, all.bypasses), (CUTOFF_PAGES, PAGES - CUTOFF_PAGES, PAGES - CUTOFF_PAGES));
    // Single reads admit pages, and a scan finds the pages that the policy holds.
    // (Pages near the end of the stream count as late, and would not be admitted.)
    for page in [301, 333, 350] {
        assert_eq!(read(&cache, page), contents(page, 0));
    }
    for page in 0..PAGES {
        assert_eq!(read(&cache, page), contents(page, 0));
    }
    let again = counts(&cache);
    assert_eq!(again.read_hits, CUTOFF_PAGES + 3);
    assert_eq!(again.passed, all.passed + PAGES - CUTOFF_PAGES - 3);
    // With a cutoff of 0 nothing bypasses.
    cache.set_sequential_cutoff(0).expect("a cache that runs");
    for page in 0..PAGES {
        read(&cache, page);
    }
    assert_eq!((counts(&cache).passed, counts(&cache).admissions), (again.passed, PAGES));
}

#[test]
fn what_is_written_in_sequence_goes_below_and_is_durable_after_a_flush() {
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
        let (cache, disks) = cache(mode);
        // Dirty pages in the cache, overtaken by the stream: a held page is written in the cache, not bypassing it.
        for page in [200, 203, 206] {
            cache.write(page * PAGE, &contents(page, 10), false).expect("a write");
        }
        for page in 0..PAGES {
            cache.write(page * PAGE, &contents(page, 20), false).expect("a write");
        }
        let Counts { write_hits, passed, around, .. } = counts(&cache);
        match mode {
            // The mode sends them round the cache first.
            Mode::WriteAround => assert_eq!((passed, around), (0, PAGES + 3)),
            _ => assert_eq!((write_hits, passed, around), (3, PAGES - CUTOFF_PAGES - 3, 0), "{mode:?}"),
        }
        for page in 0..PAGES {
            assert_eq!(read(&cache, page), contents(page, 20), "{mode:?}, page {page}");
        }
        // Half of a page that bypassed, too.
        cache.write(300 * PAGE + 256, &[7; 256], false).expect("a write");
        cache.flush().expect("a flush");
        drop(cache);
        // The process is gone; the flushed pages are there.
        let cache = open(&disks, mode);
        for page in 0..PAGES {
            let mut wanted = contents(page, 20);
            if page == 300 {
                wanted[256..].fill(7);
            }
            assert_eq!(read(&cache, page), wanted, "{mode:?}, page {page}");
        }
    }
}
