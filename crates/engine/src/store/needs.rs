//! Requirements of a store: the memory that it takes, and the bytes that a start reads. Both follow from the store's
//! size, not from its contents.

use super::ages;
use super::index::Index;
use super::recovery;
use super::slots::Areas;
use super::superblock::{Geometry, Layout, Superblock, Tables};
use super::table;

impl Geometry {
    /// Bytes of memory that the index of a new store of these sizes takes in use.
    pub fn index_bytes(&self) -> u64 {
        Index::bytes_of(self.kept(), self.layout)
    }

    /// Bytes of memory for the ages of its pages, when all are dirty and there is a bound on ages.
    pub fn ages_bytes(&self) -> u64 {
        self.kept() * ages::PAGE_BYTES
    }

    /// Versions, live or dead, for which a store of these sizes has blocks or slots.
    fn kept(&self) -> u64 {
        match self.layout {
            Layout::Log => u64::from(self.blocks()),
            Layout::Slots => Areas::of(self, Tables::V3).slots,
        }
    }

    /// Bytes that a start reads of a full store written in batches of the greatest size. These bytes are the
    /// superblocks, and the tables of a log or the journal of the slots layout. The pages written last are checked
    /// besides: after a close, one segment of them.
    pub fn start_bytes(&self) -> u64 {
        let blocks = match self.layout {
            Layout::Log => {
                let entries = table::entries_max(Tables::V3, self.page_bytes as usize) as u64;
                let tables = u64::from(self.segments) * u64::from(self.segment_pages).div_ceil(entries + 1);
                tables + recovery::first_blocks_read_again(self)
            }
            Layout::Slots => Areas::of(self, Tables::V3).journal,
        };
        Superblock::READ_BYTES + blocks * u64::from(self.page_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Block;
    use crate::cache::{BlockCache, CacheConfig, Maintenance};
    use entresol_crashtest::{Power, SimDisk};
    use entresol_policy::catalogue;

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
}
