//! The free segments that maintenance threads keep: their cost, and the requests that wait for them.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig};
use entresol_crashtest::{Power, SimDisk};
use entresol_disk::Metered;
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};
use std::time::Duration;

const PAGE: usize = 4096;
const ID: [u8; 16] = [5; 16];

/// In a log whose requests sync anyway, segments are freed without further syncs. A dropped segment is free after the
/// next sync of a request.
#[test]
fn segments_become_free_by_the_syncs_that_users_ask_for() {
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 8, segments: 64, layout: Layout::Log };
    let power = Power::steady();
    let device = Metered::new(SimDisk::new(geometry.size_bytes(), &power));
    let backing = SimDisk::new(4096 * PAGE as u64, &power);
    BlockCache::format(&device, geometry, &backing, [1; 16], ID).expect("room");
    let meter = device.meter();
    let lru = catalogue::info("lru").expect("a policy");
    let cache = BlockCache::open(device, backing, ID, &CacheConfig::new(lru, &[200])).expect("a cache in order");
    let (mut flushes, before) = (0, meter.counts().sync.calls);
    for round in 0..300_u64 {
        // A segment's worth each, so that one segment must be reclaimed each time once the log has gone round.
        for page in 0..7 {
            let at = (round * 7 + page) % 4096 * PAGE as u64;
            cache.write(at, &[round as u8; PAGE], false).expect("a write");
        }
        cache.flush().expect("a flush");
        flushes += 1;
        // Gives the threads time for their work, on a busy machine too.
        std::thread::sleep(Duration::from_millis(2));
    }
    let stats = cache.stats().expect("counts");
    let syncs = meter.counts().sync.calls - before;
    println!("{syncs} syncs for {flushes} flushes; {} segments reclaimed", stats.write_back.segments_reclaimed);
    assert!(stats.write_back.segments_reclaimed > 200, "the log went round");
    assert!(syncs < flushes * 5 / 4, "{syncs} syncs for {flushes} flushes");
}
