//! A reader of the cache store that changes nothing. It follows `docs/cache-format.md` and shares no code with the engine
//! that writes the store, so that what one of them gets wrong the other finds.

use super::survey_slots;
use entresol_engine::store::{Geometry, Layout};
use std::collections::{HashMap, HashSet};
use std::io;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"\x89ETCACHE";
const TABLE_MAGIC: [u8; 8] = *b"\x89ETBATCH";
const SUPERBLOCK: usize = 512;
const SECOND_AT: u64 = 4096;
const HEADER: usize = 96;
const ENTRY: usize = 12;

/// What a store is read from.
pub trait Bytes {
    fn size_bytes(&self) -> u64;
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;
}

/// Why the store could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    #[error("not an Entresol cache: neither superblock is there")]
    NotACache,
    #[error("a cache of layout version {0}; this program knows version 2 only")]
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
    pub state: State,
    pub epoch: u64,
    /// Copies that are valid: 1 or 2.
    pub valid: u32,
    /// Blocks of the journal, in the slots layout.
    pub journal_blocks: u64,
    generation: u64,
    pub(super) end: End,
}

/// The newest version of a page.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// Where its bytes are in the file.
    pub byte: u64,
    pub dirty: bool,
    /// Its only copy was lost before: there are no bytes.
    pub lost: bool,
    /// Its bytes agree with their CRC; true too where they were not read.
    pub sound: bool,
}

/// What the store holds.
pub struct Survey {
    pub superblock: Superblock,
    pub pages: HashMap<u64, Version>,
    /// Versions in live segments, obsolete ones included.
    pub versions: u64,
    /// Tables read between the first live place and the end; in the slots layout blocks of the journal.
    pub batches: u64,
    /// Of them those after the last sync that is known of.
    pub unsynced_batches: u64,
    pub live_segments: u64,
    /// Obsolete versions whose bytes are damaged: no loss.
    pub obsolete_damaged: u64,
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

fn decode_superblock(bytes: &[u8]) -> Result<Superblock, SurveyError> {
    if bytes[..8] != SUPERBLOCK_MAGIC {
        return Err(SurveyError::NotACache);
    }
    if u32_at(bytes, 8) != 2 {
        return Err(SurveyError::Version(u32_at(bytes, 8)));
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
    if geometry.check().is_err() || end.tail > end.place {
        return Err(SurveyError::Superblocks);
    }
    Ok(Superblock {
        geometry,
        uuid: id_at(bytes, 24),
        backing: id_at(bytes, 40),
        backing_pages: u64_at(bytes, 56),
        state,
        epoch: u64_at(bytes, 64),
        valid: 1,
        journal_blocks: u32_at(bytes, 112).into(),
        generation: u64_at(bytes, 16),
        end,
    })
}

/// Reads the superblocks.
pub fn superblock(file: &impl Bytes) -> Result<Superblock, SurveyError> {
    if file.size_bytes() < 2 * SECOND_AT {
        return Err(SurveyError::NotACache);
    }
    let mut copies = [[0; SUPERBLOCK]; 2];
    file.read_at(0, &mut copies[0])?;
    file.read_at(SECOND_AT, &mut copies[1])?;
    let found = match copies.map(|copy| decode_superblock(&copy)) {
        [Ok(one), Ok(other)] => {
            let newer = if other.generation > one.generation { other } else { one };
            Superblock { valid: 2, ..newer }
        }
        [Ok(one), Err(_)] | [Err(_), Ok(one)] => one,
        [Err(SurveyError::NotACache), Err(error)] | [Err(error), Err(_)] => return Err(error),
    };
    let needed = found.geometry.size_bytes();
    if file.size_bytes() < needed {
        return Err(SurveyError::Short { needed, found: file.size_bytes() });
    }
    Ok(found)
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
    crc: u32,
}

fn decode_table(block: &[u8], uuid: &[u8; 16]) -> Option<Table> {
    if block[..8] != TABLE_MAGIC || id_at(block, 8) != *uuid {
        return None;
    }
    let crc = u32_at(block, 80);
    let mut without = block.to_vec();
    without[80..84].fill(0);
    let count = u32_at(block, 72) as usize;
    if crc32c(&without) != crc || count > (block.len() - HEADER) / ENTRY {
        return None;
    }
    let mut entries = Vec::with_capacity(count);
    for entry in block[HEADER..].chunks_exact(ENTRY).take(count) {
        let page = u64_at(entry, 0) & 0xFFFF_FFFF_FFFF;
        let kind = match entry[6] {
            1 => Kind::Page { dirty: false },
            2 => Kind::Page { dirty: true },
            3 => Kind::Gone,
            4 => Kind::Cleaned,
            5 => Kind::Lost,
            _ => return None,
        };
        entries.push((page, kind, u32_at(entry, 8)));
    }
    let pages = entries.iter().filter(|entry| matches!(entry.1, Kind::Page { .. })).count() as u64;
    let durable =
        End { place: u64_at(block, 48), slot: u32_at(block, 92), tail: u64_at(block, 56), chain: u32_at(block, 64) };
    let (slot, next) = (u32_at(block, 84), u32_at(block, 88));
    let (epoch, place, tail, chain) = (u64_at(block, 24), u64_at(block, 32), u64_at(block, 40), u32_at(block, 68));
    (pages == u64::from(u32_at(block, 76))).then_some(Table {
        epoch,
        place,
        slot,
        next,
        tail,
        durable,
        chain,
        entries,
        pages,
        crc,
    })
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
    /// Of every slot, if there is one of this cache.
    firsts: Vec<Option<First>>,
}

impl<'a, F: Bytes> Reader<'a, F> {
    fn new(file: &'a F, superblock: Superblock) -> Self {
        Reader { file, superblock, firsts: Vec::new() }
    }

    fn segment_pages(&self) -> u64 {
        u64::from(self.superblock.geometry.segment_pages)
    }

    /// Where a place is if its segment lies in a slot.
    fn byte_of(&self, slot: u32, place: u64) -> u64 {
        let geometry = self.superblock.geometry;
        let block = u64::from(slot) * self.segment_pages() + place % self.segment_pages();
        geometry.base() + block * u64::from(geometry.page_bytes)
    }

    fn damaged(&self, slot: u32, place: u64, why: &'static str) -> SurveyError {
        SurveyError::Damaged { byte: self.byte_of(slot, place), why }
    }

    fn blocks(&self, byte: u64, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; (count * u64::from(self.superblock.geometry.page_bytes)) as usize];
        self.file.read_at(byte, &mut bytes)?;
        Ok(bytes)
    }

    /// The table of this cache that a place in a slot holds.
    fn table(&self, slot: u32, place: u64) -> io::Result<Option<Table>> {
        if slot >= self.superblock.geometry.segments {
            return Ok(None);
        }
        let block = self.blocks(self.byte_of(slot, place), 1)?;
        let table = decode_table(&block, &self.superblock.uuid);
        Ok(table.filter(|table| table.place == place && table.slot == slot))
    }

    /// Which pages of a batch disagree with their CRC, in the order of the table.
    fn unsound(&self, table: &Table) -> io::Result<Vec<bool>> {
        if table.pages == 0 {
            return Ok(Vec::new());
        }
        let bytes = self.blocks(self.byte_of(table.slot, table.place + 1), table.pages)?;
        let crcs = table.entries.iter().filter(|entry| matches!(entry.1, Kind::Page { .. })).map(|entry| entry.2);
        let pages = bytes.chunks_exact(self.superblock.geometry.page_bytes as usize);
        Ok(pages.zip(crcs).map(|(page, crc)| crc32c(page) != crc).collect())
    }

    /// Slot and place of the batch after one: none begins in the last block of a segment.
    fn next(&self, table: &Table) -> (u32, u64) {
        let next = table.place + 1 + table.pages;
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
            let table = decode_table(&block, &self.superblock.uuid).filter(begins);
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

    /// Where the log ends, and how many batches that is beyond what is certain.
    fn end(&mut self) -> Result<(End, u64), SurveyError> {
        let newest = self.newest()?;
        let mut end = newest.as_ref().map_or(self.superblock.end, |table| table.durable);
        if self.superblock.end.place > end.place {
            end = self.superblock.end;
        }
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
        let ours = |first: &First| first.epoch == self.superblock.epoch && first.place > end.place;
        let later = (0..).zip(&self.firsts).filter_map(|(slot, first)| Some((slot, first.filter(ours)?.place)));
        for (slot, from) in std::iter::once((end.slot, end.place)).chain(later) {
            for place in from..(from / self.segment_pages() + 1) * self.segment_pages() {
                let table = self.table(slot, place)?.filter(|table| table.epoch == self.superblock.epoch);
                if table.is_some_and(|table| table.durable.place > end.place) {
                    return Err(self.damaged(end.slot, end.place, "a batch that was durable is not there any more"));
                }
            }
        }
        Ok((end, batches))
    }

    /// The slot of a segment: of several that claim to be it, the one of the latest epoch.
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
        return survey_slots::survey(file, superblock, verify);
    }
    let mut reader = Reader::new(file, superblock);
    let (end, unsynced_batches) = reader.end()?;
    let first = end.tail / reader.segment_pages();
    let mut found = Survey {
        superblock,
        pages: HashMap::new(),
        versions: 0,
        batches: 0,
        unsynced_batches,
        live_segments: end.place.div_ceil(reader.segment_pages()) - first,
        obsolete_damaged: 0,
    };
    let mut damaged = HashSet::new();
    let (mut place, mut slot, mut chain) = (end.tail, 0, None);
    while place < end.place {
        if place.is_multiple_of(reader.segment_pages()) {
            slot = reader.slot_of(place).unwrap_or(0);
        }
        let table = reader.table(slot, place)?;
        let table =
            table.ok_or_else(|| reader.damaged(slot, place, "a table that was durable is not there any more"))?;
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
