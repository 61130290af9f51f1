//! Geometry of a store: its layout, the form of its tables, its sizes, and the byte at which its segments begin. It
//! uses no other module of the store, as even the errors and the list of mutants name it.

use std::fmt;

/// Bytes between the two copies of the superblock, and bytes read and written of each.
pub(super) const COPY_BYTES: usize = 4096;

/// Layout: the way in which a store keeps pages on its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Appended to a log, many pages at once: for flash, and for other devices that favour long writes.
    Log = 0,
    /// Each page in a slot, and a journal of the pages in slots: what a new cache has (`lab/results/default.md`).
    #[default]
    Slots = 1,
    /// Slots that are given in order within segments, and a segment is given again as a whole.
    Segments = 2,
}

impl Layout {
    /// True if a journal says which page is in which slot.
    pub fn has_slots(self) -> bool {
        self != Layout::Log
    }

    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Log => "log",
            Layout::Slots => "slots",
            Layout::Segments => "segments",
        }
    }
}

/// Sizes of a cache store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Page size in bytes: a power of two, 512 to 65536.
    pub page_bytes: u32,
    /// Pages in a segment, the tables included: at least 4. In the slots layout: pages that are written at once.
    pub segment_pages: u32,
    /// Segments: at least 8.
    pub segments: u32,
    /// Layout of the pages in the segments.
    pub layout: Layout,
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Geometry { page_bytes, segment_pages, segments, layout } = self;
        write!(f, "{segments} segments of {segment_pages} pages of {page_bytes} B as {}", layout.name())
    }
}

impl Geometry {
    /// The same sizes in another layout.
    #[must_use]
    pub fn with(self, layout: Layout) -> Self {
        Geometry { layout, ..self }
    }

    /// Blocks of all segments.
    pub fn blocks(&self) -> u32 {
        self.segments * self.segment_pages
    }

    /// Offset of segment 0 of a new store, in bytes.
    pub fn base(&self) -> u64 {
        Tables::V3.base(self)
    }

    /// Bytes of one segment.
    pub fn segment_bytes(&self) -> u64 {
        u64::from(self.page_bytes) * u64::from(self.segment_pages)
    }

    /// Blocks of a page in the memory of a batch: a table, and the pages that it names.
    pub fn batch_blocks(&self) -> usize {
        // A table of slots lies in the journal, apart from a segment's pages.
        self.segment_pages as usize + usize::from(self.layout.has_slots())
    }

    /// Bytes of a whole new store.
    pub fn size_bytes(&self) -> u64 {
        self.base() + self.segment_bytes() * u64::from(self.segments)
    }
}

/// The form of tables and of blocks of the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tables {
    /// Form before version 3: without commit records, without copies of tables.
    V2 = 2,
    /// Form that `format` makes.
    #[default]
    V3 = 3,
}

impl Tables {
    /// Offset of segment 0, in bytes.
    pub(super) fn base(self, geometry: &Geometry) -> u64 {
        let before = match self {
            Tables::V2 => 2 * COPY_BYTES,
            Tables::V3 => 4 * COPY_BYTES,
        };
        u64::from(geometry.page_bytes).max(before as u64)
    }

    /// Bytes of the whole store.
    pub(super) fn size_bytes(self, geometry: &Geometry) -> u64 {
        self.base(geometry) + geometry.segment_bytes() * u64::from(geometry.segments)
    }
}
