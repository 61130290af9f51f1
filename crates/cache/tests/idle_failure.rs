//! A cache device that fails while the cache is idle. The failure is detected, and the device taken out of use.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, CacheError, Objects};
use entresol_crashtest::{Fault, Power, SimDisk};
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout, StoreError};
use std::time::{Duration, Instant};

const PAGE: u64 = 1024;
const ID: [u8; 16] = [7; 16];
const PAGES: u64 = 12;
const LAYOUTS: [Layout; 2] = [Layout::Log, Layout::Slots];
/// Longest time that a test waits for an event that takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

fn config() -> CacheConfig {
    let policy = catalogue::info("lru").expect("a policy");
    CacheConfig { watch: Some(Duration::from_millis(20)), ..CacheConfig::new(policy, &[30]) }
}

/// A cache with dirty pages that are durable in it and nowhere else.
fn idle(layout: Layout) -> (BlockCache, [SimDisk; 2]) {
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 8, segments: 40, layout };
    let power = Power::steady();
    let disks = [SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(64 * PAGE, &power)];
    BlockCache::format(&disks[0], geometry, &disks[1], [1; 16], ID).expect("room");
    let cache = BlockCache::open(disks[0].clone(), disks[1].clone(), ID, &config()).expect("a cache in order");
    for page in 0..PAGES {
        cache.write(page * PAGE, &[1 + page as u8; PAGE as usize], false).expect("a write");
    }
    cache.flush().expect("a flush");
    (cache, disks)
}

fn wait_for(what: &str, come: impl Fn() -> bool) {
    let begun = Instant::now();
    while !come() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// True if the cache is marked as retired on its device.
fn is_retired(disks: &[SimDisk; 2]) -> bool {
    let power = Power::steady();
    let image = disks[0].copy();
    let copy = SimDisk::new(image.len() as u64, &power);
    copy.put_back(&image);
    let found = BlockCache::find(copy, disks[1].clone(), ID, &config(), Objects::new(1));
    matches!(found, Err(CacheError::Store(StoreError::Retired)))
}

#[test]
fn a_device_that_fails_while_nothing_is_asked_is_taken_out_of_use() {
    for layout in LAYOUTS {
        let (cache, disks) = idle(layout);
        assert!(!is_retired(&disks), "{layout:?}");
        disks[0].inject(Fault::SyncError);
        // The cache gets no requests.
        wait_for(&format!("{layout:?}: out of use"), || is_retired(&disks));
        let below = disks[1].copy();
        for page in 0..PAGES {
            assert_eq!(below[(page * PAGE) as usize], 1 + page as u8, "{layout:?}: what could be read is below");
        }
        let stats = cache.stats().expect("a cache that runs");
        println!("{layout:?}: {:?}, {} dirty pages", stats.failed, stats.dirty_pages);
        assert!(stats.failed.is_some(), "{layout:?}");
    }
}

#[test]
fn a_device_that_is_pulled_out_while_nothing_is_asked_is_known_to_have_failed() {
    for layout in LAYOUTS {
        let (cache, disks) = idle(layout);
        disks[0].vanish();
        let lost = || cache.lost_pages().expect("a list");
        wait_for(&format!("{layout:?}: known"), || cache.stats().expect("a cache that runs").failed.is_some());
        wait_for(&format!("{layout:?}: listed"), || lost().len() as u64 == PAGES);
        cache.read(0, &mut [0; PAGE as usize]).expect_err("its only copy was there");
        cache.write(0, &[9; PAGE as usize], false).expect("it goes below");
        cache.flush().expect_err("the first flush after it says that pages are lost");
        cache.flush().expect("below");
        assert_eq!(disks[1].copy()[0], 9);
    }
}

#[test]
fn a_device_that_works_is_asked_now_and_then_and_stays_in_use() {
    let (cache, disks) = idle(Layout::Log);
    let before = disks[0].counts()[2];
    wait_for("three times", || disks[0].counts()[2] >= before + 3);
    assert!(cache.stats().expect("a cache that runs").failed.is_none());
    let mut byte = [0];
    cache.read(3 * PAGE, &mut byte).expect("a read");
    assert_eq!(byte[0], 4);
}
