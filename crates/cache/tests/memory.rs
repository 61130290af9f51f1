//! Memory of a cache per page of its capacity, counted by the allocator.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig};
use entresol_disk::{Caching, FileDisk};
use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::{Config, Policy};
use entresol_store::Geometry;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged; counting does not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes of the index for each page of the policy's capacity.
const INDEX_BYTES_MAX: f64 = 24.0;
/// Most bytes of the page names of a policy without ghosts, for each page of its capacity.
const NAME_BYTES_MAX: f64 = 13.0;
/// Segments in memory: the open batch, four on their way to the device, two kept for later ones.
const BUFFERS: usize = 7;
/// Most bytes that do not grow with the cache, apart from those buffers: counts, file handles.
const FIXED_BYTES_MAX: usize = 256 << 10;

/// Bytes of a policy alone.
struct Alone;

impl Visitor for Alone {
    type Output = usize;

    fn visit<P: Policy>(self, policy: P) -> usize {
        policy.memory_bytes()
    }
}

/// Most bytes of a page in memory beside its contents, in a table that has just doubled.
const FRAME_BYTES_MAX: usize = 160;

#[test]
fn a_full_cache_takes_no_more_for_each_page_than_it_says() {
    // One after the other: the allocator's counts are those of the process.
    takes_no_more("lru", 0.0);
    takes_no_more("face", 0.02);
}

/// Checks a cache with memory above for this share of the pages.
fn takes_no_more(policy: &str, above: f64) {
    let dir = tempfile::tempdir().expect("a directory");
    let geometry = Geometry::for_device(128 << 20, 4096, entresol_store::Layout::Log).expect("a geometry");
    let space = geometry.capacity_pages() as usize;
    let file = |name: &str, bytes| FileDisk::create(&dir.path().join(name), bytes, Caching::Buffered).expect("a file");
    // The file is a hole: pages read from it are cached like any others.
    let backing = file("backing", 4 * space as u64 * 4096);
    let cache = file("cache", geometry.size_bytes());
    BlockCache::format(&cache, geometry, &backing, [1; 16], [2; 16]).expect("room");
    let above = (space as f64 * above) as usize;
    let tiers: Vec<usize> = [above, space].into_iter().filter(|&pages| pages > 0).collect();
    let config = CacheConfig::new(catalogue::info(policy).expect("a policy"), &tiers);
    let built_for = Config {
        pages: config.handles,
        objects: 1,
        tiers: config.tiers.clone(),
        page_bytes: 4096,
        seed: config.seed,
        peak_temporal_distance: None,
    };
    let policy_bytes = catalogue::build(config.policy, &built_for, &config.options, Alone).expect("a policy");

    let before = LIVE.load(Relaxed);
    let cache = BlockCache::open(cache, backing, [2; 16], &config).expect("a cache");
    let mut bytes = vec![0; 4096];
    for page in 0..3 * space as u64 {
        cache.read(page * 4096, &mut bytes).expect("a read");
    }
    drop(bytes);
    let all = LIVE.load(Relaxed) - before;

    let stats = cache.stats().expect("counts");
    assert!(stats.write_back.segments_reclaimed > 0, "the log is full");
    let by_page = |bytes: usize| bytes as f64 / space as f64;
    let (index, names) = (by_page(stats.index_bytes as usize), by_page(stats.directory_bytes as usize));
    println!(
        "{policy}, {space} pages: {all} bytes; {index:.2} B a page of index, {names:.2} of names, {:.2} of policy",
        by_page(policy_bytes)
    );
    assert!(index <= INDEX_BYTES_MAX, "{index} B a page of index");
    assert!(names <= NAME_BYTES_MAX, "{names} B a page of names");
    let told = stats.index_bytes as usize + stats.directory_bytes as usize + policy_bytes;
    let buffers = BUFFERS * geometry.segment_bytes() as usize + FIXED_BYTES_MAX;
    let frames = above * (4096 + FRAME_BYTES_MAX);
    assert!(told <= all && all <= told + buffers + frames, "{told} bytes told of, {all} allocated");
}
