//! Requirements of a store: the memory that it takes, and the bytes that a start reads. Both follow from the store's
//! size, not from its contents.

use super::ages;
use super::areas::Areas;
use super::geometry::{Geometry, Layout, Tables};
use super::index::Index;
use super::log;
use super::superblock::Superblock;
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
            Layout::Slots | Layout::Segments => Areas::of(self, Tables::V3).slots,
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
                tables + log::first_blocks_read_again(self)
            }
            Layout::Slots | Layout::Segments => Areas::of(self, Tables::V3).journal,
        };
        Superblock::READ_BYTES + blocks * u64::from(self.page_bytes)
    }
}
