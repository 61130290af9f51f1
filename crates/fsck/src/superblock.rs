//! The superblocks of a store, and the types of their fields.

use crate::bytes::{Bytes, READS, crc32c, id_at, u32_at, u64_at};
use crate::error::SurveyError;

const MAGIC: [u8; 8] = *b"\x89ETCACHE";
/// Bytes of a superblock.
pub(crate) const SUPERBLOCK: usize = 512;
const SECOND_AT: u64 = 4096;
/// Greatest log address that is accepted.
pub(crate) const PLACES_MAX: u64 = 1 << 56;

/// Layout of the pages on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Pages are appended to a log of segments.
    Log,
    /// Each page has a slot, and a journal says which.
    Slots,
    /// As slots, which are given in order within segments.
    Segments,
}

/// Sizes of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Page size in bytes.
    pub page_bytes: u32,
    /// Pages in a segment, the tables included.
    pub segment_pages: u32,
    /// Number of segments.
    pub segments: u32,
    /// Layout of the pages.
    pub layout: Layout,
}

impl Geometry {
    /// Blocks of all segments; a block has the size of a page.
    pub(crate) fn blocks(&self) -> u64 {
        u64::from(self.segment_pages) * u64::from(self.segments)
    }
}

/// A generation: a number that rises, and a nonce that distinguishes generations of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Number of times that the generation was raised; 0 if it never was.
    pub number: u64,
    /// Chosen at random for each.
    pub nonce: u64,
}

/// The generations of a cache. Its backing store has one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generations {
    /// The generation that the backing store has durably.
    pub settled: Generation,
    /// The generation that the backing store is about to get, or has got.
    pub pending: Option<Generation>,
}

/// State of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The store is in use, or was until a crash.
    Open,
    /// The store was closed in good order.
    Closed,
    /// The store was given up after a failure of its device.
    Retired,
}

/// An end of the log or of the journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// Log address, or number of the block, of what comes next.
    pub place: u64,
    /// Slot of the segment with that address.
    pub slot: u32,
    /// Log address of the oldest live segment, or number of the oldest live block.
    pub tail: u64,
    /// CRC of the table or block before the end.
    pub chain: u32,
}

/// The valid superblock with more writes.
#[derive(Clone, Copy, Debug)]
pub struct Superblock {
    /// Sizes and layout of the store.
    pub geometry: Geometry,
    /// UUID of the cache, new with every format.
    pub uuid: [u8; 16],
    /// Identity of the backing store.
    pub backing: [u8; 16],
    /// Pages of the backing store, the last one perhaps in part.
    pub backing_pages: u64,
    /// Bytes of the backing store; 0 if unknown.
    pub backing_bytes: u64,
    /// State in which the store was left.
    pub state: State,
    /// Number of opens.
    pub epoch: u64,
    /// Version of the structures after the superblocks: 2 or 3.
    pub tables: u32,
    /// Generations; the backing store's record has one of them.
    pub generations: Generations,
    /// Lower bound of the cache time, in seconds.
    pub clock: u64,
    /// Number of valid superblocks: 1 or 2.
    pub valid: u32,
    /// Blocks of the journal, in the slots layout.
    pub journal_blocks: u64,
    /// Number of times that a superblock was written.
    writes: u64,
    pub(crate) end: End,
}

impl Superblock {
    /// Offset of segment 0, in bytes.
    pub fn base(&self) -> u64 {
        let before = if self.tables == 2 { 2 * SECOND_AT } else { 4 * SECOND_AT };
        before.max(self.geometry.page_bytes.into())
    }

    fn size_bytes(&self) -> u64 {
        self.base() + self.geometry.blocks() * u64::from(self.geometry.page_bytes)
    }
}

/// True if a store can have these sizes.
fn are_sizes(page_bytes: u32, segment_pages: u32, segments: u32) -> bool {
    let pages = u64::from(segment_pages) * u64::from(segments);
    let page = page_bytes.is_power_of_two() && (512..=65536).contains(&page_bytes);
    page && (4..=65536).contains(&segment_pages) && segments >= 8 && pages < u64::from(u32::MAX)
}

fn decode_superblock(bytes: &[u8]) -> Result<Superblock, SurveyError> {
    if bytes[..8] != MAGIC {
        return Err(SurveyError::NotACache);
    }
    let version = u32_at(bytes, 8);
    if version != 2 && version != 3 {
        return Err(SurveyError::Version(version));
    }
    if crc32c(&bytes[..508]) != u32_at(bytes, 508) {
        return Err(SurveyError::Superblocks);
    }
    let state = match u32_at(bytes, 12) {
        0 => State::Open,
        1 => State::Closed,
        2 => State::Retired,
        _ => return Err(SurveyError::Superblocks),
    };
    let layout = match u32_at(bytes, 104) {
        0 => Layout::Log,
        1 => Layout::Slots,
        2 => Layout::Segments,
        _ => return Err(SurveyError::Superblocks),
    };
    let (page_bytes, segment_pages, segments) = (u32_at(bytes, 92), u32_at(bytes, 96), u32_at(bytes, 100));
    let geometry = Geometry { page_bytes, segment_pages, segments, layout };
    let end =
        End { place: u64_at(bytes, 72), slot: u32_at(bytes, 108), tail: u64_at(bytes, 80), chain: u32_at(bytes, 88) };
    let tables = if version == 2 { 2 } else { u32_at(bytes, 116) };
    let journal = u64::from(u32_at(bytes, 112));
    let blocks = u64::from(segment_pages) * u64::from(segments);
    let parts = layout == Layout::Log || (1..blocks).contains(&journal);
    let in_order = end.tail <= end.place && end.place <= PLACES_MAX && parts && matches!(tables, 2 | 3);
    if !are_sizes(page_bytes, segment_pages, segments) || !in_order {
        return Err(SurveyError::Superblocks);
    }
    let generation = |at| Generation { number: u64_at(bytes, at), nonce: u64_at(bytes, at + 8) };
    let pending = Some(generation(136)).filter(|pending| pending.number > 0);
    Ok(Superblock {
        geometry,
        uuid: id_at(bytes, 24),
        backing: id_at(bytes, 40),
        backing_pages: u64_at(bytes, 56),
        backing_bytes: if version == 2 { 0 } else { u64_at(bytes, 160) },
        state,
        epoch: u64_at(bytes, 64),
        tables,
        generations: Generations { settled: generation(120), pending },
        clock: u64_at(bytes, 152),
        valid: 1,
        journal_blocks: journal,
        writes: u64_at(bytes, 16),
        end,
    })
}

/// Reads the superblocks.
pub fn superblock(file: &impl Bytes) -> Result<Superblock, SurveyError> {
    if file.size_bytes() < 2 * SECOND_AT {
        return Err(SurveyError::NotACache);
    }
    let copy = |at| {
        let read = || {
            let mut copy = [0; SUPERBLOCK];
            file.read_at(at, &mut copy)?;
            decode_superblock(&copy)
        };
        (1..READS).fold(read(), |found, _| found.or_else(|_| read()))
    };
    let found = match [copy(0), copy(SECOND_AT)] {
        [Ok(one), Ok(other)] => {
            let newer = if other.writes > one.writes { other } else { one };
            Superblock { valid: 2, ..newer }
        }
        [Ok(one), Err(_)] | [Err(_), Ok(one)] => one,
        [Err(SurveyError::NotACache), Err(error)] | [Err(error), Err(_)] => return Err(error),
    };
    let needed = found.size_bytes();
    if file.size_bytes() < needed {
        return Err(SurveyError::Short { needed, found: file.size_bytes() });
    }
    Ok(found)
}

/// True if one of the superblocks in these first bytes of a store, valid or not, names this backing store.
pub fn claims(first: &[u8], backing: [u8; 16]) -> bool {
    const BACKING_AT: usize = 40;
    let places = [BACKING_AT, SECOND_AT as usize + BACKING_AT];
    places.iter().any(|&at| first.get(at..at + 16) == Some(&backing[..]))
}
