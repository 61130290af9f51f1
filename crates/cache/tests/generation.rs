//! Generations of a cache: a proposal is durable when it returns, and a settled generation with the next superblock.

use entresol_cache::{Block, CacheError};
use entresol_cache::{BlockCache, CacheConfig, Objects};
use entresol_crashtest::{Power, SimDisk};
use entresol_policy::catalogue;
use entresol_store::{Generation, Generations, Geometry, Layout};

const ID: [u8; 16] = [5; 16];

fn generation(number: u64) -> Generation {
    Generation { number, nonce: 1000 + number }
}

fn found(disks: &[SimDisk; 2]) -> entresol_cache::Opening {
    let config = CacheConfig::new(catalogue::info("lru").expect("a policy"), &[20]);
    let [cache, backing] = disks.clone();
    BlockCache::find(cache, backing, ID, &config, Objects::new(1)).expect("a cache in order")
}

fn start(opening: entresol_cache::Opening) -> BlockCache {
    opening.start(|| Ok::<_, CacheError>(())).expect("a start").0
}

fn formatted(layout: Layout) -> [SimDisk; 2] {
    let power = Power::steady();
    let segments = if layout == Layout::Log { 12 } else { 40 };
    let geometry = Geometry { page_bytes: 1024, segment_pages: 8, segments, layout };
    let disks = [SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(1 << 16, &power)];
    BlockCache::format_of(&disks[0], geometry, &disks[1], [1; 16], ID, generation(3)).expect("room");
    disks
}

#[test]
fn a_generation_is_durable_when_it_is_proposed_and_settled_by_the_next_superblock() {
    for layout in [Layout::Log, Layout::Slots] {
        let disks = formatted(layout);
        let mut opening = found(&disks);
        assert_eq!(opening.generation(), Generations::settled(generation(3)));
        opening.propose_generation(opening.generation().next(1004));
        let cache = start(opening);
        cache.settle_generation().expect("settled");
        for number in 5..8 {
            cache.write(number * 1024, &[number as u8; 1024], true).expect("a write");
            cache.propose_generation(generation(number)).expect("proposed");
            disks[0].crash(number);
            let pending = Generations { settled: generation(number - 1), pending: Some(generation(number)) };
            assert_eq!(found(&disks).generation(), pending, "{layout:?}");
            assert!(pending.is_right(generation(number - 1)) && pending.is_right(generation(number)));
            assert!(!pending.is_right(Generation { nonce: 0, ..generation(number) }));
            cache.settle_generation().expect("settled");
        }
        drop(cache);
        // After a crash the backing store's generation decides which of the two counts.
        let mut opening = found(&disks);
        opening.settle_generation();
        let cache = start(opening);
        let mut bytes = [0; 1024];
        for page in 5..8 {
            cache.read(page * 1024, &mut bytes).expect("a read");
            assert_eq!(bytes, [page as u8; 1024], "{layout:?}");
        }
        assert_eq!(cache.generation().expect("known"), Generations::settled(generation(7)));
        cache.close().expect("a close");
        drop(cache);
        assert_eq!(found(&disks).generation(), Generations::settled(generation(7)), "{layout:?}");
    }
}
