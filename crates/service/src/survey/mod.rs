//! A reader of the cache store that changes nothing.
//!
//! The reader follows `docs/cache-format.md` and shares no code with the engine that writes the store. A mistake in one
//! of them therefore shows in the other.

mod slots;

use entresol_store::{Generation, Generations, Geometry, Layout};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"\x89ETCACHE";
const TABLE_MAGIC: [u8; 8] = *b"\x89ETBATCH";
const SUPERBLOCK: usize = 512;
const SECOND_AT: u64 = 4096;
const RECORD_MAGIC: [u8; 8] = *b"\x89ETCOMMI";
/// Offset in bytes of the first of two commit records; the second is [`RECORD_BLOCK`] bytes after it.
const RECORDS_AT: u64 = 8192;
const RECORD_BLOCK: usize = 4096;
const ENTRY: usize = 12;
/// Bytes of a copy of a table before its entries.
pub(super) const COPY_HEADER: usize = 48;
/// Greatest log address that is accepted.
pub(super) const PLACES_MAX: u64 = 1 << 56;

/// Most rounds in which the tables' statements about each other's durability are followed.
const ROUNDS_MAX: usize = 8;
/// Number of reads before data that disagrees with its CRC counts as damaged.
pub(super) const READS: usize = 2;

/// Source from which a store is read.
pub trait Bytes {
    fn size_bytes(&self) -> u64;
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;
}

/// Reason why the store could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    #[error("not an Entresol cache: neither superblock is there")]
    NotACache,
    #[error("a cache of layout version {0}; this program knows versions 2 and 3")]
    Version(u32),
    #[error("both superblocks are damaged")]
    Superblocks,
    #[error("the cache needs {needed} bytes, the file has {found}")]
    Short { needed: u64, found: u64 },
    #[error("byte {byte}: {why}")]
    Damaged { byte: u64, why: &'static str },
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Open,
    Closed,
    Retired,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub place: u64,
    pub slot: u32,
    pub tail: u64,
    pub chain: u32,
}

/// The valid superblock with the higher generation.
#[derive(Clone, Copy, Debug)]
pub struct Superblock {
    pub geometry: Geometry,
    pub uuid: [u8; 16],
    pub backing: [u8; 16],
    pub backing_pages: u64,
    /// Bytes of the backing store; 0 if unknown.
    pub backing_bytes: u64,
    pub state: State,
    pub epoch: u64,
    /// Version of the structures after the superblocks: 2 or 3.
    pub tables: u32,
    /// Generations; the backing store's record has one of them.
    pub generations: Generations,
    /// Lower bound of the cache time, in seconds.
    #[allow(dead_code, reason = "ages of dirty pages are told by it")]
    pub clock: u64,
    /// Number of valid superblocks: 1 or 2.
    pub valid: u32,
    /// Blocks of the journal, in the slots layout.
    pub journal_blocks: u64,
    writes: u64,
    pub(super) end: End,
}

impl Superblock {
    /// Offset of segment 0, in bytes.
    pub fn base(&self) -> u64 {
        let before = if self.tables == 2 { 2 * SECOND_AT } else { 4 * SECOND_AT };
        before.max(self.geometry.page_bytes.into())
    }

    fn size_bytes(&self) -> u64 {
        self.base() + self.geometry.segment_bytes() * u64::from(self.geometry.segments)
    }
}

/// The newest version of a page.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// Offset of the version's bytes in the file.
    pub byte: u64,
    pub dirty: bool,
    /// True if the only copy of the page was lost before: the version has no bytes.
    pub lost: bool,
    /// True if the bytes agree with their CRC, or were not read.
    pub sound: bool,
}

/// Contents of the store.
pub struct Survey {
    pub superblock: Superblock,
    pub pages: HashMap<u64, Version>,
    /// Versions in live segments, including obsolete ones.
    pub versions: u64,
    /// Tables read between the first live log address and the end; in the slots layout, blocks of the journal.
    pub batches: u64,
    /// Tables after the last known sync.
    pub unsynced_batches: u64,
    pub live_segments: u64,
    /// Obsolete versions with damaged bytes: no loss.
    pub obsolete_damaged: u64,
    /// Offsets in bytes of damaged tables that have an intact copy: no loss.
    pub tables_copied: Vec<u64>,
}

impl Survey {
    pub fn count(&self, which: impl Fn(&Version) -> bool) -> u64 {
        self.pages.values().filter(|version| which(version)).count() as u64
    }
}

pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub(super) fn id_at(bytes: &[u8], at: usize) -> [u8; 16] {
    bytes[at..at + 16].try_into().expect("sixteen bytes")
}

/// True if a store can have these sizes.
fn are_sizes(page_bytes: u32, segment_pages: u32, segments: u32) -> bool {
    let pages = u64::from(segment_pages) * u64::from(segments);
    let page = page_bytes.is_power_of_two() && (512..=65536).contains(&page_bytes);
    page && (4..=65536).contains(&segment_pages) && segments >= 8 && pages < u64::from(u32::MAX)
}

fn decode_superblock(bytes: &[u8]) -> Result<Superblock, SurveyError> {
    if bytes[..8] != SUPERBLOCK_MAGIC {
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

/// A copy of a table or of a block of the journal.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    /// Log address of the table, or number of the block.
    pub place: u64,
    pub tail: u64,
    pub chain: u32,
    pub crc: u32,
    pub slot: u32,
    pub next: u32,
    /// Entries, byte for byte.
    pub entries: Vec<u8>,
}

/// The copy at the beginning of these bytes; none if they do not hold a valid one.
pub(super) fn copy_in(bytes: &[u8], entry: usize) -> Option<Copy> {
    let header = bytes.get(..COPY_HEADER)?;
    let entries = bytes[COPY_HEADER..].get(..u32_at(header, 32) as usize * entry)?;
    let sum = crc32c(&[&header[..44], &[0; 4], entries].concat());
    let (place, tail) = (u64_at(header, 0), u64_at(header, 8));
    (sum == u32_at(header, 44) && tail <= place && place <= PLACES_MAX).then(|| Copy {
        place,
        tail,
        chain: u32_at(header, 24),
        crc: u32_at(header, 28),
        slot: u32_at(header, 36),
        next: u32_at(header, 40),
        entries: entries.to_vec(),
    })
}

/// A commit record: the end up to which the store was durable, and a copy of the last table.
pub(super) struct CommitRecord {
    pub epoch: u64,
    pub end: End,
    pub copy: Option<Copy>,
}

/// The valid commit records.
pub(super) fn commit_records(
    file: &impl Bytes,
    superblock: &Superblock,
    entry: usize,
) -> Result<Vec<CommitRecord>, SurveyError> {
    if superblock.tables == 2 {
        return Ok(Vec::new());
    }
    let mut records = Vec::new();
    for at in [RECORDS_AT, RECORDS_AT + RECORD_BLOCK as u64] {
        let mut block = [0; RECORD_BLOCK];
        for _ in 0..READS {
            file.read_at(at, &mut block)?;
            let whole = block[..8] == RECORD_MAGIC && crc32c(&block[..508]) == u32_at(&block, 508);
            let (place, tail) = (u64_at(&block, 32), u64_at(&block, 40));
            if whole && id_at(&block, 8) == superblock.uuid && tail <= place && place <= PLACES_MAX {
                let end = End { place, slot: u32_at(&block, 52), tail, chain: u32_at(&block, 48) };
                let copy = copy_in(&block[SUPERBLOCK..], entry);
                records.push(CommitRecord { epoch: u64_at(&block, 24), end, copy });
                break;
            }
        }
    }
    Ok(records)
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Page { dirty: bool },
    Gone,
    Cleaned,
    Lost,
}

struct Table {
    epoch: u64,
    place: u64,
    slot: u32,
    next: u32,
    tail: u64,
    durable: End,
    chain: u32,
    entries: Vec<(u64, Kind, u32)>,
    pages: u64,
    /// Blocks of the batch.
    blocks: u64,
    crc: u32,
    /// Copy of the preceding table.
    copy: Option<Copy>,
}

fn entries_in(bytes: &[u8]) -> Option<Vec<(u64, Kind, u32)>> {
    let entry = |entry: &[u8]| {
        let kind = match entry[6] {
            1 => Kind::Page { dirty: false },
            2 => Kind::Page { dirty: true },
            3 => Kind::Gone,
            4 => Kind::Cleaned,
            5 => Kind::Lost,
            _ => return None,
        };
        Some((u64_at(&[entry, &[0; 2]].concat(), 0) & 0xFFFF_FFFF_FFFF, kind, u32_at(entry, 8)))
    };
    bytes.chunks_exact(ENTRY).map(entry).collect()
}

fn pages_of(entries: &[(u64, Kind, u32)]) -> u64 {
    entries.iter().filter(|entry| matches!(entry.1, Kind::Page { .. })).count() as u64
}

/// Blocks of a batch. A table with more entries than the next one can copy is repeated at the end of its batch.
fn blocks_of(superblock: &Superblock, entries: usize, pages: u64) -> u64 {
    let half = (superblock.geometry.page_bytes as usize - 104 - COPY_HEADER) / 2 / ENTRY;
    let carried = half.min((RECORD_BLOCK - SUPERBLOCK - COPY_HEADER) / ENTRY);
    1 + pages + u64::from(superblock.tables > 2 && entries > carried)
}

fn decode_table(block: &[u8], superblock: &Superblock) -> Option<Table> {
    if block[..8] != TABLE_MAGIC || id_at(block, 8) != superblock.uuid {
        return None;
    }
    let header = if superblock.tables == 2 { 96 } else { 104 };
    let crc = u32_at(block, 80);
    let mut without = block.to_vec();
    without[80..84].fill(0);
    let count = u32_at(block, 72) as usize;
    if crc32c(&without) != crc || count > (block.len() - header) / ENTRY {
        return None;
    }
    let (bytes, rest) = block[header..].split_at(count * ENTRY);
    let entries = entries_in(bytes)?;
    let pages = pages_of(&entries);
    let durable =
        End { place: u64_at(block, 48), slot: u32_at(block, 92), tail: u64_at(block, 56), chain: u32_at(block, 64) };
    let (slot, next) = (u32_at(block, 84), u32_at(block, 88));
    let (epoch, place, tail, chain) = (u64_at(block, 24), u64_at(block, 32), u64_at(block, 40), u32_at(block, 68));
    let in_order = tail <= place && durable.tail <= durable.place && place.max(durable.place) <= PLACES_MAX;
    (in_order && pages == u64::from(u32_at(block, 76))).then(|| Table {
        epoch,
        place,
        slot,
        next,
        tail,
        durable,
        chain,
        blocks: blocks_of(superblock, entries.len(), pages),
        entries,
        pages,
        crc,
        copy: if superblock.tables == 2 { None } else { copy_in(rest, ENTRY) },
    })
}

/// Rebuilds a table from its copy.
fn copied_table(copy: &Copy, superblock: &Superblock) -> Option<Table> {
    let Copy { place, tail, chain, crc, slot, next, .. } = *copy;
    let entries = entries_in(&copy.entries)?;
    let pages = pages_of(&entries);
    let blocks = blocks_of(superblock, entries.len(), pages);
    // The copy lacks the durable end, which matters only until the table itself was durable.
    let durable = End { place: 0, slot: 0, tail: 0, chain: 0 };
    Some(Table { epoch: 0, place, slot, next, tail, durable, chain, entries, pages, blocks, crc, copy: None })
}

/// The first table of the segment in a slot.
#[derive(Clone, Copy)]
struct First {
    place: u64,
    epoch: u64,
}

struct Reader<'a, F> {
    file: &'a F,
    superblock: Superblock,
    records: Vec<CommitRecord>,
    /// First tables by slot; none for a slot without a table of this cache.
    firsts: Vec<Option<First>>,
}

impl<'a, F: Bytes> Reader<'a, F> {
    fn new(file: &'a F, superblock: Superblock) -> Result<Self, SurveyError> {
        let records = commit_records(file, &superblock, ENTRY)?;
        Ok(Reader { file, superblock, records, firsts: Vec::new() })
    }

    fn segment_pages(&self) -> u64 {
        u64::from(self.superblock.geometry.segment_pages)
    }

    /// Offset in bytes of a log address, if its segment lies in this slot.
    fn byte_of(&self, slot: u32, place: u64) -> u64 {
        let geometry = self.superblock.geometry;
        let block = u64::from(slot) * self.segment_pages() + place % self.segment_pages();
        self.superblock.base() + block * u64::from(geometry.page_bytes)
    }

    fn damaged(&self, slot: u32, place: u64, why: &'static str) -> SurveyError {
        SurveyError::Damaged { byte: self.byte_of(slot, place), why }
    }

    fn blocks(&self, byte: u64, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; (count * u64::from(self.superblock.geometry.page_bytes)) as usize];
        self.file.read_at(byte, &mut bytes)?;
        Ok(bytes)
    }

    /// The table of this cache at a log address in a slot.
    fn table(&self, slot: u32, place: u64) -> io::Result<Option<Table>> {
        if slot >= self.superblock.geometry.segments {
            return Ok(None);
        }
        for _ in 0..READS {
            let block = self.blocks(self.byte_of(slot, place), 1)?;
            let table = decode_table(&block, &self.superblock);
            let table = table.filter(|table| table.place == place && table.slot == slot);
            if table.is_some() {
                return Ok(table);
            }
        }
        Ok(None)
    }

    /// Finds a copy of a damaged table: at the end of its batch, in the next table, or in a commit record.
    ///
    /// Of several copies, the one of the latest epoch counts.
    fn copied(&self, slot: u32, place: u64) -> io::Result<Option<Table>> {
        let mut found: Vec<(u64, Table)> = Vec::new();
        let copied = |copy: &Copy| copied_table(copy, &self.superblock);
        for CommitRecord { epoch, copy, .. } in &self.records {
            found.extend(copy.as_ref().and_then(copied).map(|table| (*epoch, table)));
        }
        let next = (place / self.segment_pages() + 1) * self.segment_pages();
        let mut blocks: Vec<u64> = (place + 1..next)
            .filter(|_| slot < self.superblock.geometry.segments)
            .map(|at| self.byte_of(slot, at))
            .collect();
        let starts = |first: &Option<First>| first.is_some_and(|first| first.place == next);
        blocks
            .extend((0..).zip(&self.firsts).filter(|(_, first)| starts(first)).map(|(slot, _)| self.byte_of(slot, 0)));
        for byte in blocks {
            let Some(table) = decode_table(&self.blocks(byte, 1)?, &self.superblock) else { continue };
            found.extend(table.copy.as_ref().and_then(copied).map(|copy| (table.epoch, copy)));
            found.push((table.epoch, table));
        }
        let here = found.into_iter().filter(|(_, table)| table.place == place && table.slot == slot);
        Ok(here.max_by_key(|(epoch, _)| *epoch).map(|(_, table)| table))
    }

    /// The slot of a segment whose first table is damaged.
    fn slot_without_first(&self, place: u64, end: End) -> io::Result<Option<u32>> {
        let segment = |place: u64| place / self.segment_pages();
        if segment(end.place) == segment(place) {
            return Ok(Some(end.slot));
        }
        let slots = self.superblock.geometry.segments;
        let mut copies: Vec<Copy> = self.records.iter().filter_map(|record| record.copy.clone()).collect();
        for slot in 0..slots {
            let first = self.firsts[slot as usize];
            // In the next segment the first block is enough; in a segment without a first table any block may hold the
            // copy.
            let looked_at = match first {
                Some(First { place: at, .. }) if segment(at) == segment(place) + 1 => 1,
                Some(_) => 0,
                None => self.segment_pages(),
            };
            for at in 0..looked_at {
                let Some(table) = decode_table(&self.blocks(self.byte_of(slot, at), 1)?, &self.superblock) else {
                    continue;
                };
                if segment(table.place) == segment(place) && table.slot == slot {
                    return Ok(Some(slot));
                }
                copies.extend(table.copy);
            }
        }
        let of_it = copies.into_iter().find(|copy| segment(copy.place) == segment(place) && copy.slot < slots);
        Ok(of_it.map(|copy| copy.slot))
    }

    /// Checks the pages of a batch, in the order of the table: true for each that disagrees with its CRC.
    fn unsound(&self, table: &Table) -> io::Result<Vec<bool>> {
        if table.pages == 0 {
            return Ok(Vec::new());
        }
        if table.place % self.segment_pages() + table.blocks > self.segment_pages() {
            return Ok(vec![true; table.pages as usize]);
        }
        let crcs: Vec<u32> =
            table.entries.iter().filter(|entry| matches!(entry.1, Kind::Page { .. })).map(|entry| entry.2).collect();
        let mut unsound = vec![true; crcs.len()];
        for _ in 0..READS {
            let bytes = self.blocks(self.byte_of(table.slot, table.place + 1), table.pages)?;
            let pages = bytes.chunks_exact(self.superblock.geometry.page_bytes as usize);
            for ((unsound, page), crc) in unsound.iter_mut().zip(pages).zip(&crcs) {
                *unsound = *unsound && crc32c(page) != *crc;
            }
            if !unsound.contains(&true) {
                break;
            }
        }
        Ok(unsound)
    }

    /// Slot and log address of the next batch; no batch begins in the last block of a segment.
    fn next(&self, table: &Table) -> (u32, u64) {
        let next = table.place + table.blocks;
        let left = self.segment_pages() - next % self.segment_pages();
        let next = if left == 1 { next + 1 } else { next };
        let same = next / self.segment_pages() == table.place / self.segment_pages();
        (if same { table.slot } else { table.next }, next)
    }

    /// The newest first table of a segment of this epoch. Notes all first tables.
    fn newest(&mut self) -> Result<Option<Table>, SurveyError> {
        let mut newest: Option<Table> = None;
        for slot in 0..self.superblock.geometry.segments {
            let block = self.blocks(self.byte_of(slot, 0), 1)?;
            let begins = |table: &Table| table.slot == slot && table.place.is_multiple_of(self.segment_pages());
            let table = decode_table(&block, &self.superblock).filter(begins);
            self.firsts.push(table.as_ref().map(|table| First { place: table.place, epoch: table.epoch }));
            let Some(table) = table else { continue };
            if table.epoch > self.superblock.epoch {
                return Err(self.damaged(slot, table.place, "a table is newer than both superblocks"));
            }
            let newer = newest.as_ref().is_none_or(|other| table.place > other.place);
            if table.epoch == self.superblock.epoch && newer {
                newest = Some(table);
            }
        }
        Ok(newest)
    }

    /// Finds the end of the log, and the number of batches between the certain end and it.
    fn end(&mut self) -> Result<(End, u64), SurveyError> {
        let mut end = self.superblock.end;
        let newest = self.newest()?.map(|table| table.durable);
        let of_this_epoch = |record: &&CommitRecord| record.epoch == self.superblock.epoch;
        let recorded = self.records.iter().filter(of_this_epoch).map(|record| record.end);
        for stated in newest.into_iter().chain(recorded) {
            if stated.place > end.place {
                end = stated;
            }
        }
        for _ in 0..ROUNDS_MAX {
            if end.slot >= self.superblock.geometry.segments {
                return Err(self.damaged(0, end.place, "it lies beyond the end of the cache"));
            }
            let (reached, batches) = self.walk(end)?;
            match self.durable_beyond(reached)? {
                None => return Ok((reached, batches)),
                // Data that disagrees was durable, and is damaged.
                Some(further) => end = further,
            }
        }
        Err(self.damaged(end.slot, end.place, "tables contradict each other about what was durable"))
    }

    /// Follows the valid batches after an end; returns the end that they reach, and their number.
    fn walk(&self, mut end: End) -> Result<(End, u64), SurveyError> {
        let mut batches = 0;
        while let Some(table) = self.table(end.slot, end.place)? {
            let ours = table.epoch == self.superblock.epoch && table.chain == end.chain;
            if !ours || self.unsound(&table)?.contains(&true) {
                break;
            }
            let (slot, place) = self.next(&table);
            end = End { place, slot, tail: table.tail, chain: table.crc };
            batches += 1;
        }
        Ok((end, batches))
    }

    /// The furthest end after this one up to which a batch states that the log was durable.
    ///
    /// A segment with an unreadable first table is found by the announcement in an earlier table.
    fn durable_beyond(&self, end: End) -> Result<Option<End>, SurveyError> {
        let slots = self.superblock.geometry.segments;
        if end.slot >= slots {
            return Err(self.damaged(0, end.place, "what follows it lies beyond the end of the cache"));
        }
        let mut further: Option<End> = None;
        let ours = |first: &First| first.epoch == self.superblock.epoch && first.place > end.place;
        let later = (0..).zip(&self.firsts).filter_map(|(slot, first)| Some((slot, first.filter(ours)?.place)));
        // A store that was closed in good order has no announcements since.
        let announces = self.superblock.state != State::Closed;
        let before = if announces { end.place % self.segment_pages() } else { 0 };
        let mut begins: VecDeque<(u32, u64)> = std::iter::once((end.slot, end.place - before))
            .chain(later.filter(|(slot, _)| *slot != end.slot))
            .collect();
        let mut sought: HashSet<u32> = begins.iter().map(|(slot, _)| *slot).collect();
        while let Some((slot, from)) = begins.pop_front() {
            let following = (from / self.segment_pages() + 1) * self.segment_pages();
            for place in from..following {
                let Some(table) = self.table(slot, place)? else { continue };
                let of_now = table.epoch == self.superblock.epoch;
                let stated = table.durable;
                if of_now && stated.place > further.map_or(end.place, |other| other.place) {
                    further = Some(stated);
                }
                if announces && (of_now || place < end.place) && table.next < slots && sought.insert(table.next) {
                    begins.push_back((table.next, following));
                }
            }
        }
        Ok(further)
    }

    /// The slot of a segment; of several slots that claim it, the one of the latest epoch.
    fn slot_of(&self, place: u64) -> Option<u32> {
        let claims = (0..).zip(&self.firsts).filter_map(|(slot, first)| Some((slot, (*first)?)));
        let here = claims.filter(|(_, first)| first.place / self.segment_pages() == place / self.segment_pages());
        here.max_by_key(|(_, first)| first.epoch).map(|(slot, _)| slot)
    }
}

/// Reads all tables, and with `verify` the pages too.
pub fn survey(file: &impl Bytes, verify: bool) -> Result<Survey, SurveyError> {
    let superblock = superblock(file)?;
    if superblock.geometry.layout == Layout::Slots {
        return slots::survey(file, superblock, verify);
    }
    let mut reader = Reader::new(file, superblock)?;
    let (end, unsynced_batches) = reader.end()?;
    let blocks = reader.segment_pages() * u64::from(superblock.geometry.segments);
    if !end.tail.is_multiple_of(reader.segment_pages()) || end.tail > end.place || end.place - end.tail > blocks {
        return Err(reader.damaged(end.slot, end.place, "its tail is no place where a live segment can begin"));
    }
    let first = end.tail / reader.segment_pages();
    let mut found = Survey {
        superblock,
        pages: HashMap::new(),
        versions: 0,
        batches: 0,
        unsynced_batches,
        live_segments: end.place.div_ceil(reader.segment_pages()) - first,
        obsolete_damaged: 0,
        tables_copied: Vec::new(),
    };
    let mut damaged = HashSet::new();
    let (mut place, mut slot, mut chain) = (end.tail, 0, None);
    while place < end.place {
        if place.is_multiple_of(reader.segment_pages()) {
            slot = match reader.slot_of(place) {
                None => reader.slot_without_first(place, end)?.unwrap_or(0),
                Some(slot) => slot,
            };
        }
        let table = match reader.table(slot, place)? {
            None => {
                found.tables_copied.push(reader.byte_of(slot, place));
                reader.copied(slot, place)?
            }
            table => table,
        };
        let table =
            table.ok_or_else(|| reader.damaged(slot, place, "a table that was durable is not there any more"))?;
        if place % reader.segment_pages() + table.blocks > reader.segment_pages() {
            return Err(reader.damaged(slot, place, "the table names more pages than its segment has room for"));
        }
        if chain.is_some_and(|chain| chain != table.chain) {
            return Err(reader.damaged(slot, place, "the table does not follow the one before"));
        }
        if table.entries.iter().any(|entry| entry.0 >= superblock.backing_pages) {
            return Err(reader.damaged(slot, place, "the table names a page beyond the end of the backing store"));
        }
        let unsound = if verify { reader.unsound(&table)? } else { vec![false; table.pages as usize] };
        found.batches += 1;
        let mut unsound = unsound.into_iter();
        let mut at = place;
        for &(page, kind, _) in &table.entries {
            match kind {
                Kind::Page { dirty } => {
                    at += 1;
                    found.versions += 1;
                    let byte = reader.byte_of(slot, at);
                    let sound = !unsound.next().expect("one for each page");
                    if !sound {
                        damaged.insert(byte);
                    }
                    found.pages.insert(page, Version { byte, dirty, lost: false, sound });
                }
                Kind::Lost => {
                    let byte = reader.byte_of(slot, place);
                    found.pages.insert(page, Version { byte, dirty: true, lost: true, sound: true });
                }
                Kind::Gone => drop(found.pages.remove(&page)),
                Kind::Cleaned => {
                    if let Some(version) = found.pages.get_mut(&page) {
                        version.dirty = false;
                    }
                }
            }
        }
        chain = Some(table.crc);
        place = reader.next(&table).1;
    }
    if chain.is_some_and(|chain| chain != end.chain) {
        return Err(reader.damaged(end.slot, end.place, "the last table is not the one that was there"));
    }
    found.obsolete_damaged = damaged.len() as u64 - found.count(|version| !version.sound);
    Ok(found)
}

#[cfg(test)]
#[path = "../../../cache/tests/common/hostile.rs"]
mod hostile;

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_cache::BlockCache;
    use entresol_core::Random;
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    impl Bytes for Vec<u8> {
        fn size_bytes(&self) -> u64 {
            self.len() as u64
        }

        fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
            let beyond = || io::Error::from(io::ErrorKind::UnexpectedEof);
            let from = usize::try_from(at).map_err(|_| beyond())?;
            let to = from.checked_add(bytes.len()).ok_or_else(beyond)?;
            bytes.copy_from_slice(self.get(from..to).ok_or_else(beyond)?);
            Ok(())
        }
    }

    /// The pages of a store by the survey, and whether each is dirty.
    fn surveyed(image: &Vec<u8>) -> Option<BTreeMap<u64, bool>> {
        let found = survey(image, true).ok()?;
        Some(found.pages.iter().map(|(&page, version)| (page, version.dirty)).collect())
    }

    /// The pages of a store by the engine.
    fn served(image: &[u8]) -> Option<BTreeMap<u64, bool>> {
        let disks = hostile::disks(image);
        let cache = BlockCache::open(disks[0].clone(), disks[1].clone(), hostile::ID, &hostile::config()).ok()?;
        Some(cache.held_pages().expect("no thread panicked").into_iter().collect())
    }

    /// Stores whose superblocks, tables, journals and commit records have correct checksums but false contents.
    #[test]
    fn two_thousand_hostile_stores_are_read_or_refused() {
        let sound = hostile::sound();
        for image in &sound {
            assert_eq!(surveyed(image).expect("in order"), served(image).expect("in order"));
        }
        let (mut read, mut alike) = (0, 0);
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let mut image = sound[random.below(sound.len() as u64) as usize].clone();
            let what = hostile::mutate(&mut image, &mut random);
            let started = Instant::now();
            let found = std::panic::catch_unwind(|| surveyed(&image));
            let found = found.unwrap_or_else(|_| panic!("seed {seed}, changed{what}: a panic"));
            assert!(started.elapsed() < Duration::from_secs(5), "seed {seed}, changed{what}");
            read += u64::from(found.is_some());
            alike += u64::from(found.is_some() == served(&image).is_some());
        }
        println!("{read} of 2000 were read, {alike} were opened or refused by both");
        assert!(read > 200 && alike > 1900, "{read} were read, {alike} alike");
    }

    /// One bit that flips anywhere: both readers find the same pages.
    #[test]
    fn one_flipped_bit_is_seen_alike_by_both_readers() {
        let sound = hostile::sound();
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let mut image = sound[random.below(sound.len() as u64) as usize].clone();
            let bit = random.below(8 * image.len() as u64);
            image[bit as usize / 8] ^= 1 << (bit % 8);
            let found = surveyed(&image).unwrap_or_else(|| panic!("seed {seed}, bit {bit}: refused"));
            let opened = served(&image).unwrap_or_else(|| panic!("seed {seed}, bit {bit}: not opened"));
            assert_eq!(found, opened, "seed {seed}, bit {bit}");
        }
    }
}
