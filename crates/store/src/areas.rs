//! Division of a device's blocks among the journal and the slots, in the slots layout.

use super::geometry::{Geometry, Layout, Tables};
use super::journal;

/// Most segments' worth of entries between two renewals of the journal: pages cleaned by a sync of the backing
/// store, and pages declared gone.
const BURST_SEGMENTS: u64 = 25;

/// Fewest segments of a policy's log.
const LOG_SEGMENTS_MIN: u64 = 6;

/// Most blocks of the journal beside those that it needs, where slots are given by segments: one for 32 slots.
const SPARE_MAX: u64 = 256;

/// Most segments that are kept free beside a policy's log, above those that are needed to work in.
const AHEAD_SEGMENTS_MAX: u64 = 20;

/// Areas of a store: the journal lies before the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Areas {
    base: u64,
    page_bytes: u64,
    segment_pages: u64,
    /// Blocks of the journal.
    pub journal: u64,
    /// Slots, a block each: a whole number of segments where they are given by segments.
    pub slots: u64,
    /// True if slots are given by segments.
    pub by_segments: bool,
    /// Blocks of the journal that the entries of all slots take.
    pub live: u64,
    /// Free blocks of the journal needed for each segment's worth of free slots.
    pub pace: u64,
    /// Blocks of the journal beside those that it needs.
    spare: u64,
}

impl Areas {
    /// Blocks that one round of renewal may take, even if each says little.
    pub const ROUND: u64 = 4;

    /// Renewal begins when no more blocks of the journal than this are free, and goes on while no more than `begun`
    /// says. With blocks to spare it comes more rarely than every few blocks, since it ends with a sync.
    pub fn enough_free(&self, begun: bool) -> u64 {
        let spare = if begun { self.spare / 2 } else { self.spare / 4 };
        4 * self.pace + Areas::ROUND + self.pace.max(Areas::ROUND) / 2 + spare
    }

    /// Segments' worth of slots that the free blocks of the journal allow to be written. Four and more count as
    /// unlimited, because more than four is of no further use.
    pub fn free_segments(&self, free_blocks: u64) -> u64 {
        let segments = free_blocks.saturating_sub(Areas::ROUND) / self.pace;
        if segments < 4 { segments } else { u64::MAX }
    }

    /// The areas of a store. The journal takes the entries of all slots twice or more often. So one turn of it
    /// repeats no more entries than it adds, the extra space for renewal apart.
    pub fn of(geometry: &Geometry, tables: Tables) -> Self {
        let entries = journal::entries_max(tables, geometry.page_bytes as usize) as u64;
        let blocks = u64::from(geometry.blocks());
        let live = blocks.div_ceil(entries);
        let segment_pages = u64::from(geometry.segment_pages);
        let pace = (BURST_SEGMENTS * segment_pages).min(blocks).div_ceil(entries).max(live / 16);
        let turn = match tables {
            Tables::V2 => 2 * live,
            // Half of each block is a copy. With the size of version 2, valid entries would be repeated twice as often.
            Tables::V3 => 5 * live / 2,
        };
        let by_segments = geometry.layout == Layout::Segments;
        // Batches cut short by syncs take a block each, though they have few entries.
        let spare = if by_segments { (blocks / 32).min(SPARE_MAX) } else { 0 };
        let journal = (turn + 5 * pace + 3 * Areas::ROUND + spare).min(blocks);
        let slots = blocks - journal;
        let slots = if by_segments { slots - slots % segment_pages } else { slots };
        let page_bytes = u64::from(geometry.page_bytes);
        Areas { base: tables.base(geometry), page_bytes, segment_pages, journal, slots, by_segments, live, pace, spare }
    }

    /// Capacity for a policy, in pages: all slots except four segments' worth to work in, and one in 64 so that slots
    /// need not be freed often. Where slots are given by segments, these are the pages of the policy's log, dead versions
    /// included; 0 if that is too small. Beside the log are up to 24 segments, which are made free ahead of need.
    pub fn capacity_pages(&self) -> u64 {
        if self.by_segments {
            let ahead = (self.slots / self.segment_pages / 8).min(AHEAD_SEGMENTS_MAX);
            let log = self.slots.saturating_sub((4 + ahead) * self.segment_pages);
            return if log < LOG_SEGMENTS_MIN * self.segment_pages { 0 } else { log };
        }
        (self.slots - self.slots / 64).saturating_sub(4 * self.segment_pages)
    }

    /// Offset of a block of the journal on the device, in bytes.
    pub fn byte_of_block(&self, number: u64) -> u64 {
        self.base + number % self.journal * self.page_bytes
    }

    /// Offset of a slot on the device, in bytes.
    pub fn byte_of_slot(&self, slot: u32) -> u64 {
        self.base + (self.journal + u64::from(slot)) * self.page_bytes
    }
}
