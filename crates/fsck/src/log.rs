//! The log layout: its tables, and the end of the log.

use crate::bytes::{Bytes, READS, crc32c, id_at, u32_at, u64_at};
use crate::commit::{COPY_HEADER, CommitRecord, Copy, RECORD_BLOCK, commit_records, copy_in};
use crate::contents::{Kind, Survey, Version};
use crate::error::SurveyError;
use crate::superblock::{End, PLACES_MAX, SUPERBLOCK, State, Superblock};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;

const MAGIC: [u8; 8] = *b"\x89ETBATCH";
const ENTRY: usize = 12;
/// Most rounds in which the tables' statements about each other's durability are followed.
const ROUNDS_MAX: usize = 8;

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
        let kind = Kind::of(entry[6])?;
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
    if block[..8] != MAGIC || id_at(block, 8) != superblock.uuid {
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
pub(crate) fn survey(file: &impl Bytes, superblock: Superblock, verify: bool) -> Result<Survey, SurveyError> {
    let mut reader = Reader::new(file, superblock)?;
    let (end, unsynced_batches) = reader.end()?;
    let blocks = reader.segment_pages() * u64::from(superblock.geometry.segments);
    if !end.tail.is_multiple_of(reader.segment_pages()) || end.tail > end.place || end.place - end.tail > blocks {
        return Err(reader.damaged(end.slot, end.place, "no live segment can begin at its tail"));
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
