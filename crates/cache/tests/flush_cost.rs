//! Cost of a flush on the cache device: one sync, one write for its batch and one for the commit record.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, Maintenance};
use entresol_crashtest::{Power, SimDisk};
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};

const PAGE: u64 = 4096;
const ID: [u8; 16] = [5; 16];
/// Bytes of a commit record.
const RECORD: u64 = 4096;

#[test]
fn a_flush_costs_one_sync_and_a_commit_record() {
    for layout in [Layout::Log, Layout::Slots] {
        let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 64, segments: 40, layout };
        let power = Power::steady();
        let disks = [SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(4000 * PAGE, &power)];
        BlockCache::format(&disks[0], geometry, &disks[1], [1; 16], ID).expect("room");
        let policy = catalogue::info("lru").expect("lru");
        let config = CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(policy, &[1000]) };
        let cache = BlockCache::open(disks[0].clone(), disks[1].clone(), ID, &config).expect("a cache");
        let counts = || {
            let device = cache.devices()[0];
            [device.sync.calls, device.write.calls, device.write.bytes]
        };
        for (pages, flushes) in [(1, 40), (2, 20), (8, 10)] {
            let before = counts();
            for flush in 0..flushes {
                for page in 0..pages {
                    cache.write((flush * pages + page) * PAGE, &[flush as u8; PAGE as usize], false).expect("a write");
                }
                cache.flush().expect("a flush");
            }
            let after = counts();
            let each = [0, 1, 2].map(|at| (after[at] - before[at]) as f64 / flushes as f64);
            println!(
                "{layout:?}, flushes of {pages} pages: {:.2} syncs, {:.2} writes, {:.0} bytes each",
                each[0], each[1], each[2]
            );
            assert_eq!(each[0], 1.0, "{layout:?}: syncs of each flush of {pages} pages");
            // A batch that meets the end of its segment becomes two. In the slots layout a batch's pages lie apart from
            // its block.
            let writes = if layout == Layout::Log { 2.0 } else { 3.0 };
            assert!(each[1] < writes + 0.5, "{layout:?}: {} writes of each flush of {pages} pages", each[1]);
            let bytes = ((pages + 1) * PAGE + RECORD) as f64;
            assert!(each[2] < bytes * 1.1, "{layout:?}: {} bytes of each flush of {pages} pages", each[2]);
        }
    }
}
