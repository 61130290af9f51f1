//! A policy that counts what each write saves counts reads alone where the backing store has each write at once.

use entresol_cache::{Block, BlockCache, CacheConfig, Mode};
use entresol_core::Random;
use entresol_crashtest::{Power, SimDisk};
use entresol_policy::{Options, catalogue};
use entresol_store::{Geometry, Layout};

const PAGE: u64 = 512;
const PAGES: u64 = 400;
const SEED: u64 = 20_261_128;

fn cache(mode: Mode, options: &[&str]) -> BlockCache {
    let power = Power::steady();
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 16, segments: 40, layout: Layout::Slots };
    let (cache, backing) = (SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(PAGES * PAGE, &power));
    BlockCache::format(&cache, geometry, &backing, [1; 16], [2; 16]).expect("room");
    let info = catalogue::info("reuse").expect("a policy");
    let options = Options::parse(info, options.iter().copied()).expect("options");
    let config = CacheConfig { mode, options, handles: PAGES as usize, ..CacheConfig::new(info, &[60]) };
    BlockCache::open(cache, backing, [2; 16], &config).expect("a cache")
}

/// Hits, fetches and bypasses of random requests.
fn decided(cache: &BlockCache, seed: u64) -> [u64; 4] {
    let before = cache.stats().expect("counts").counts;
    let mut random = Random::new(seed);
    for _ in 0..20_000 {
        let page = (random.next_f64().powi(3) * PAGES as f64) as u64;
        // Some pages are read more often than they are written, others less.
        if random.chance(if page.is_multiple_of(2) { 0.8 } else { 0.2 }) {
            cache.write(page * PAGE, &[1; PAGE as usize], false).expect("a write");
        } else {
            cache.read(page * PAGE, &mut [0; PAGE as usize]).expect("a read");
        }
    }
    let after = cache.stats().expect("counts").counts;
    [
        after.read_hits - before.read_hits,
        after.write_hits - before.write_hits,
        after.fetches - before.fetches,
        after.bypasses - before.bypasses,
    ]
}

#[test]
fn the_mode_decides_what_counts_unless_the_user_does() {
    println!("seed {SEED}");
    let counts = |mode, options: &[&str]| decided(&cache(mode, options), SEED);
    let (through, back) = (counts(Mode::WriteBack, &["writes=through"]), counts(Mode::WriteBack, &["writes=back"]));
    assert_ne!(through, back);
    assert_eq!(counts(Mode::WriteBack, &[]), back);
    assert_eq!(counts(Mode::WriteThrough, &[]), through);
    assert_eq!(counts(Mode::WriteThrough, &["writes=back"]), back);
}

#[test]
fn a_change_of_the_mode_changes_what_counts() {
    println!("seed {SEED}");
    let (changed, opened) = (cache(Mode::WriteBack, &[]), cache(Mode::WriteThrough, &[]));
    changed.set_mode(Mode::WriteThrough).expect("a mode");
    assert_eq!(decided(&changed, SEED), decided(&opened, SEED));
}
