//! Requirements of a store, as `Geometry` states them, compared with those of a cache in use.

use entresol_cache::{Block, BlockCache, CacheConfig, Maintenance};
use entresol_crashtest::{Power, SimDisk};
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};

#[test]
fn a_full_cache_takes_what_was_told_of_it() {
    const PAGE: u64 = 4096;
    for layout in [Layout::Log, Layout::Slots] {
        for segment_pages in [64, 256] {
            let geometry = Geometry { page_bytes: PAGE as u32, segment_pages, segments: 24, layout };
            let [cache, backing] =
                [geometry.size_bytes(), 8000 * PAGE].map(|size| SimDisk::new(size, &Power::steady()));
            BlockCache::format(&cache, geometry, &backing, [1; 16], [2; 16]).expect("a format");
            let lru = catalogue::info("lru").expect("a policy");
            // Maintenance threads write small batches on a busy machine, and the next start then reads more tables.
            let space = geometry.capacity_pages() as usize;
            let config = CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(lru, &[space]) };
            let open = || BlockCache::open(cache.clone(), backing.clone(), [2; 16], &config).expect("an open");
            let used = open();
            for page in 0..8000 {
                used.write(page % 7001 * PAGE, &[page as u8; PAGE as usize], false).expect("a write");
            }
            used.close().expect("a close");
            let again = open();
            let (stats, read) = (again.stats().expect("counts"), again.recovered().read_bytes);
            println!("{geometry}: {read} bytes read of {}; {stats:?}", geometry.start_bytes());
            assert_eq!(stats.index_bytes, geometry.index_bytes(), "{geometry}");
            let most = geometry.start_bytes() + geometry.segment_bytes();
            assert!(read <= most, "{geometry}: {read} bytes read of {most}");
            // The tables of a log are read whatever they hold.
            let tables = u64::from(geometry.segments) * PAGE;
            assert!(layout == Layout::Slots || read >= tables, "{geometry}: {read}");
        }
    }
}
