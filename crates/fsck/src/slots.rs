//! The slots layout: its journal, and the end of the journal.

use crate::bytes::{Bytes, READS, crc32c, id_at, u32_at, u64_at};
use crate::commit::{COPY_HEADER, CommitRecord, Copy, commit_records, copy_in};
use crate::contents::{Kind, Survey, Version};
use crate::error::SurveyError;
use crate::superblock::{End, PLACES_MAX, Superblock};
use std::collections::HashMap;
use std::io;

const MAGIC: [u8; 8] = *b"\x89ETJOURN";
const HEADER: usize = 96;
const ENTRY: usize = 20;

struct Entry {
    page: u64,
    kind: Kind,
    again: bool,
    slot: u32,
    version: u32,
    crc: u32,
}

struct Block {
    epoch: u64,
    number: u64,
    tail: u64,
    durable: End,
    chain: u32,
    entries: Vec<Entry>,
    crc: u32,
    /// Copy of the preceding block.
    copy: Option<Copy>,
}

fn entries_in(bytes: &[u8], tables: u32) -> Option<Vec<Entry>> {
    let entry = |entry: &[u8]| {
        let kind = Kind::of(entry[6])?;
        let again = if tables == 2 { entry[7] != 0 } else { entry[7] & 0x80 != 0 };
        let page = u64_at(entry, 0) & 0xFFFF_FFFF_FFFF;
        Some(Entry { page, kind, again, slot: u32_at(entry, 8), version: u32_at(entry, 12), crc: u32_at(entry, 16) })
    };
    bytes.chunks_exact(ENTRY).map(entry).collect()
}

/// Most entries of a block. From version 3 on it is about half, because each block carries a copy of the one before.
fn entries_max(page_bytes: usize, tables: u32) -> usize {
    let half = (page_bytes - HEADER - COPY_HEADER) / 2 / ENTRY;
    if tables == 2 { (page_bytes - HEADER) / ENTRY } else { half.min((4096 - 512 - COPY_HEADER) / ENTRY) }
}

fn decode(block: &[u8], superblock: &Superblock) -> Option<Block> {
    if block[..8] != MAGIC || id_at(block, 8) != superblock.uuid {
        return None;
    }
    let tables = superblock.tables;
    let crc = u32_at(block, 80);
    let mut without = block.to_vec();
    without[80..84].fill(0);
    let count = u32_at(block, 72) as usize;
    if crc32c(&without) != crc || count > entries_max(block.len(), tables) {
        return None;
    }
    let (bytes, rest) = block[HEADER..].split_at(count * ENTRY);
    let entries = entries_in(bytes, tables)?;
    let durable = End { place: u64_at(block, 48), slot: 0, tail: u64_at(block, 56), chain: u32_at(block, 64) };
    let (epoch, number, tail, chain) = (u64_at(block, 24), u64_at(block, 32), u64_at(block, 40), u32_at(block, 68));
    let in_order = tail <= number && durable.tail <= durable.place && number.max(durable.place) <= PLACES_MAX;
    let copy = if tables == 2 { None } else { copy_in(rest, ENTRY) };
    in_order.then_some(Block { epoch, number, tail, durable, chain, entries, crc, copy })
}

struct Reader<'a, F> {
    file: &'a F,
    superblock: Superblock,
    records: Vec<CommitRecord>,
}

impl<F: Bytes> Reader<'_, F> {
    fn page_bytes(&self) -> u64 {
        self.superblock.geometry.page_bytes.into()
    }

    fn slots(&self) -> u64 {
        self.superblock.geometry.blocks() - self.superblock.journal_blocks
    }

    fn byte_of_block(&self, number: u64) -> u64 {
        self.superblock.base() + number % self.superblock.journal_blocks * self.page_bytes()
    }

    fn byte_of_slot(&self, slot: u32) -> u64 {
        self.superblock.base() + (self.superblock.journal_blocks + u64::from(slot)) * self.page_bytes()
    }

    fn damaged(&self, number: u64, why: &'static str) -> SurveyError {
        SurveyError::Damaged { byte: self.byte_of_block(number), why }
    }

    fn page(&self, at: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.page_bytes() as usize];
        self.file.read_at(at, &mut bytes)?;
        Ok(bytes)
    }

    fn block_at(&self, number: u64) -> io::Result<Option<Block>> {
        for _ in 0..READS {
            let block = decode(&self.page(self.byte_of_block(number))?, &self.superblock);
            if block.is_some() {
                return Ok(block);
            }
        }
        Ok(None)
    }

    fn block(&self, number: u64) -> io::Result<Option<Block>> {
        Ok(self.block_at(number)?.filter(|block| block.number == number))
    }

    /// Finds a copy of a journal block, in the block after it or in a commit record.
    ///
    /// Of several copies, the one of the latest epoch counts.
    fn copied(&self, number: u64) -> io::Result<Option<Block>> {
        let recorded = self.records.iter().map(|record| (record.epoch, record.copy.clone()));
        let next = self.block(number + 1)?.map(|block| (block.epoch, block.copy));
        let copies = recorded.chain(next).filter_map(|(epoch, copy)| Some((epoch, copy?)));
        let newest = copies.filter(|(_, copy)| copy.place == number).max_by_key(|(epoch, _)| *epoch);
        let Some((epoch, Copy { tail, chain, crc, entries, .. })) = newest else { return Ok(None) };
        let durable = End { place: 0, slot: 0, tail: 0, chain: 0 };
        let entries = entries_in(&entries, self.superblock.tables);
        Ok(entries.map(|entries| Block { epoch, number, tail, durable, chain, entries, crc, copy: None }))
    }

    fn is_sound(&self, slot: u32, crc: u32) -> io::Result<bool> {
        for _ in 0..READS {
            if u64::from(slot) < self.slots() && crc32c(&self.page(self.byte_of_slot(slot))?) == crc {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if the slots hold the pages that a block says were written with it.
    fn agrees(&self, block: &Block) -> io::Result<bool> {
        for entry in block.entries.iter().filter(|entry| matches!(entry.kind, Kind::Page { .. }) && !entry.again) {
            if !self.is_sound(entry.slot, entry.crc)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Finds the end of the journal, and the number of blocks between the certain end and it.
    fn end(&self) -> Result<(End, u64), SurveyError> {
        let mut end = self.superblock.end;
        for record in self.records.iter().filter(|record| record.epoch == self.superblock.epoch) {
            if record.end.place > end.place {
                end = End { slot: 0, ..record.end };
            }
        }
        for at in 0..self.superblock.journal_blocks {
            let here = |block: &Block| block.number % self.superblock.journal_blocks == at;
            let Some(block) = self.block_at(at)?.filter(here) else { continue };
            if block.epoch > self.superblock.epoch {
                return Err(self.damaged(block.number, "a block is newer than both superblocks"));
            }
            if block.epoch == self.superblock.epoch && block.durable.place > end.place {
                end = block.durable;
            }
        }
        let certain = end.place;
        while let Some(block) = self.block(end.place)? {
            let ours = block.epoch == self.superblock.epoch && block.chain == end.chain;
            if !ours || !self.agrees(&block)? {
                break;
            }
            end = End { place: end.place + 1, slot: 0, tail: block.tail, chain: block.crc };
        }
        Ok((end, end.place - certain))
    }
}

/// Contents of the newest entry of a page.
struct SlotCopy {
    version: u32,
    slot: u32,
    dirty: bool,
    lost: bool,
    crc: u32,
}

/// Reads the journal, and with `verify` the pages too.
pub(crate) fn survey(file: &impl Bytes, superblock: Superblock, verify: bool) -> Result<Survey, SurveyError> {
    let reader = Reader { file, superblock, records: commit_records(file, &superblock, ENTRY)? };
    let (end, unsynced_batches) = reader.end()?;
    if end.tail > end.place || end.place - end.tail > superblock.journal_blocks {
        return Err(reader.damaged(end.place, "its tail is no block that can be live"));
    }
    let mut tables_copied = Vec::new();
    let mut held: HashMap<u64, SlotCopy> = HashMap::new();
    let mut chain = None;
    for number in end.tail..end.place {
        let block = match reader.block(number)? {
            None => {
                tables_copied.push(reader.byte_of_block(number));
                reader.copied(number)?
            }
            block => block,
        };
        let block = block.ok_or_else(|| reader.damaged(number, "a block that was durable is not there any more"))?;
        if chain.is_some_and(|chain| chain != block.chain) {
            return Err(reader.damaged(number, "the block does not follow the one before"));
        }
        for entry in &block.entries {
            let Entry { page, version, slot, crc, .. } = *entry;
            if page >= superblock.backing_pages {
                return Err(reader.damaged(number, "the block names a page beyond the end of the backing store"));
            }
            match entry.kind {
                Kind::Page { dirty } if u64::from(slot) < reader.slots() => {
                    held.insert(page, SlotCopy { version, slot, dirty, lost: false, crc });
                }
                Kind::Page { .. } => return Err(reader.damaged(number, "the block names a slot that is not there")),
                Kind::Lost => drop(held.insert(page, SlotCopy { version, slot, dirty: true, lost: true, crc })),
                Kind::Gone => drop(held.remove(&page)),
                Kind::Cleaned => {
                    if let Some(held) = held.get_mut(&page).filter(|held| (held.version, held.slot) == (version, slot))
                    {
                        held.dirty = false;
                    }
                }
            }
        }
        chain = Some(block.crc);
    }
    if chain.is_some_and(|chain| chain != end.chain) {
        return Err(reader.damaged(end.place, "the last block is not the one that was there"));
    }
    let mut pages = HashMap::with_capacity(held.len());
    for (page, SlotCopy { slot, dirty, lost, crc, .. }) in held {
        let sound = lost || !verify || reader.is_sound(slot, crc)?;
        let byte = if lost { 0 } else { reader.byte_of_slot(slot) };
        pages.insert(page, Version { byte, dirty, lost, sound });
    }
    let versions = pages.values().filter(|version| !version.lost).count() as u64;
    let batches = end.place - end.tail;
    Ok(Survey {
        superblock,
        pages,
        versions,
        batches,
        unsynced_batches,
        live_segments: 0,
        obsolete_damaged: 0,
        tables_copied,
    })
}
