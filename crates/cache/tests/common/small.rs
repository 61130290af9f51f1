//! A small cache whose tables, or blocks of the journal, are damaged by tests.

use entresol_cache::{BlockCache, CacheConfig, Maintenance};
use entresol_crashtest::{Power, SimDisk};
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};

pub const ID: [u8; 16] = [6; 16];
pub const PAGES: u64 = 60;

/// A formatted cache device, and its backing store of [`PAGES`] pages.
pub fn formatted(layout: Layout, page_bytes: u32) -> [SimDisk; 2] {
    let segments = if layout == Layout::Log { 20 } else { 80 };
    let geometry = Geometry { page_bytes, segment_pages: 32, segments, layout };
    let power = Power::steady();
    let disks = [geometry.size_bytes(), PAGES * u64::from(page_bytes)].map(|bytes| SimDisk::new(bytes, &power));
    BlockCache::format(&disks[0], geometry, &disks[1], [1; 16], ID).expect("room");
    disks
}

/// Opens the cache under an LRU that keeps all pages.
pub fn open(disks: &[SimDisk; 2]) -> Result<BlockCache, String> {
    let policy = catalogue::info("lru").expect("a policy");
    let config = CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(policy, &[80]) };
    BlockCache::open(disks[0].clone(), disks[1].clone(), ID, &config).map_err(|error| error.to_string())
}

/// Offsets and contents of tables, of blocks of the journal, and of copies of tables at the ends of batches.
pub fn tables(disk: &SimDisk, page_bytes: usize) -> Vec<(u64, Vec<u8>)> {
    let is_table = |block: &[u8]| block.starts_with(b"\x89ETBATCH") || block.starts_with(b"\x89ETJOURN");
    let image = disk.copy();
    let blocks = (0..).step_by(page_bytes).zip(image.chunks_exact(page_bytes));
    blocks.filter(|(_, block)| is_table(block)).map(|(at, block)| (at, block.to_vec())).collect()
}
