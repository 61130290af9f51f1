//! Contents of a log at its open: step 4 of "Recovery" in `docs/cache-format.md`. A table that cannot be read is taken
//! from a copy. If there is none, and a repair passes over it, an empty table takes its place.

use super::super::{byte_of, next_address};
use super::{First, Loaded, Spot, TABLES, Walk, spot};
use crate::age;
use crate::ages::Ages;
use crate::error::StoreError;
use crate::index::{Entry, Index};
use crate::log_end::LogEnd;
use crate::mutant::{self, Mutant};
use crate::rewrite::{Copied, Hole};
use crate::table::{self, Head, Kind, Record, Table};
use entresol_disk::{AlignedBytes, Disk};
use std::io;

/// Stands for a UUID in a table of which only the position is known.
const MISSING: [u8; 16] = [0; 16];
/// Prefetch distance, in entries of a table.
const AHEAD: usize = 12;

/// Point at which the log is inconsistent, and the slots whose segments may have been mistaken for others.
struct Broken {
    at: Spot,
    why: &'static str,
    suspects: Vec<u32>,
}

impl<D: Disk> Walk<'_, D> {
    /// Step 4. Where a segment's first table is unreadable, an earlier epoch's void remains of that segment may have
    /// been mistaken for it. Then the log is inconsistent, and is read again without those remains.
    pub(super) fn load_past_void(&mut self, end: LogEnd) -> Result<Loaded, StoreError> {
        // Missing tables are passed over only if there is no other way.
        let Some(past) = self.past.take() else { return self.load_sound(end) };
        let firsts = self.firsts.clone();
        let sound = self.load_sound(end);
        self.past = Some(past);
        if sound.is_ok() {
            return sound;
        }
        (self.firsts, self.void) = (firsts, Vec::new());
        self.load(end)?.map_err(|broken| self.damaged(broken.at, broken.why))
    }

    /// Step 4 where no table may be missing.
    fn load_sound(&mut self, end: LogEnd) -> Result<Loaded, StoreError> {
        let broken = match self.load(end)? {
            Ok(loaded) => return Ok(loaded),
            Err(broken) => broken,
        };
        for slot in broken.suspects {
            self.void = vec![slot];
            self.firsts[slot as usize] = None;
            if let Ok(Ok(loaded)) = self.load(end) {
                return Ok(loaded);
            }
        }
        Err(self.damaged(broken.at, broken.why))
    }

    /// Step 4: the tables from the tail to the end, oldest first. The first block of each segment is a table, so
    /// segments are independent, and one submission reads tables of as many segments as it has transfers.
    fn load(&mut self, end: LogEnd) -> Result<Result<Loaded, Broken>, StoreError> {
        let (segment_pages, blocks) = (self.segment_pages(), self.geometry().blocks());
        if !end.tail.is_multiple_of(segment_pages) || end.address - end.tail.min(end.address) > u64::from(blocks) {
            return Err(self.damaged(spot(end), "no live segment can begin at its tail"));
        }
        self.copied.borrow_mut().clear();
        let starts = self.live_segments(end)?;
        let order = match self.order(&starts, end) {
            Ok(order) => order,
            Err(broken) => return Ok(Err(broken)),
        };
        let mut index = Index::new(blocks, end.tail);
        let mut ages = self.keeps_ages.then(|| Ages::new(blocks as usize, self.superblock.clock));
        let (mut chain, mut last) = (None, None);
        // A missing table, and the chain before it.
        let (mut missing, mut gaps): (Option<(Table, Option<u32>)>, _) = (None, Vec::new());
        for starts in starts.chunks(TABLES) {
            let tables = match self.tables(starts, end)? {
                Ok(tables) => tables,
                Err(broken) => return Ok(Err(broken)),
            };
            for table in tables.into_iter().flatten() {
                let at = Spot { slot: table.head.slot, address: table.head.address };
                let broken = |why| Ok(Err(Broken { at, why, suspects: vec![at.slot] }));
                if let Some((gap, before)) = missing.take() {
                    gaps.push(self.fall_into(gap, before, table.head.chain));
                }
                if table.head.uuid == MISSING {
                    missing = Some((table, chain.take()));
                    continue;
                }
                if chain.is_some_and(|chain| chain != table.head.chain) && !mutant::is(Mutant::NoLineageCheck) {
                    let suspects = last.iter().map(|last: &Table| last.head.slot).chain([at.slot]).collect();
                    return Ok(Err(Broken { at, why: "the table does not follow the one before", suspects }));
                }
                if at.address % segment_pages + table.blocks > segment_pages {
                    return broken("the table names more pages than its segment has room for");
                }
                if next_address(self.geometry(), at.address, table.blocks) > end.address {
                    return broken("the batch reaches beyond the end of the log");
                }
                let pages = self.superblock.identity.backing_pages;
                if table.records.iter().any(|record| record.page >= pages) {
                    return broken("the table names a page beyond the end of the backing store");
                }
                load_table(&table, &mut index, ages.as_mut());
                if let Some(past) = &mut self.past {
                    past.names(table.records.iter().map(|record| record.page));
                }
                chain = Some(table.crc);
                last = Some(table);
            }
        }
        if let Some((gap, before)) = missing {
            gaps.push(self.fall_into(gap, before, end.chain));
            last = None;
        }
        self.fill(gaps, &index);
        if chain.is_some_and(|chain| chain != end.chain) && !mutant::is(Mutant::NoLineageCheck) {
            let suspects = last.iter().map(|last| last.head.slot).collect();
            return Ok(Err(Broken { at: spot(end), why: "the last table is not the one that was there", suspects }));
        }
        Ok(Ok(Loaded { index, ages, order, last }))
    }

    /// Spots at which the segments from the tail to the end begin, oldest first. Of several slots with one segment,
    /// that of the latest epoch counts: an earlier epoch's is void. The chain tells whether the choice was right.
    fn live_segments(&mut self, end: LogEnd) -> Result<Vec<Spot>, StoreError> {
        let starts: Vec<u64> = (end.tail..end.address).step_by(self.segment_pages() as usize).collect();
        let mut found: Vec<Option<(u64, u32)>> = vec![None; starts.len()];
        for again in [false, true] {
            for (slot, first) in (0..).zip(&self.firsts) {
                let Some(First { address, epoch }) = first.filter(|first| first.address >= end.tail) else { continue };
                let at = ((address - end.tail) / self.segment_pages()) as usize;
                if let Some(found) = found.get_mut(at).filter(|found| found.is_none_or(|(other, _)| epoch > other)) {
                    *found = Some((epoch, slot));
                }
            }
            if again || found.iter().all(Option::is_some) {
                break;
            }
            self.read_firsts_again()?;
        }
        let spots = starts.iter().zip(&found).map(|(&address, found)| {
            let slot = match found {
                Some((_, slot)) => *slot,
                None => self.slot_without_first(address, end)?.ok_or_else(|| {
                    // If several slots have no first table, the right one cannot be told.
                    let slot = self.firsts.iter().position(Option::is_none).unwrap_or(0) as u32;
                    self.damaged(Spot { slot, address }, "a table that was durable is not there any more")
                })?,
            };
            Ok(Spot { slot, address })
        });
        spots.collect()
    }

    /// Slot of a segment whose first table is damaged, from a copy of that table or from another table of the segment.
    fn slot_without_first(&self, address: u64, end: LogEnd) -> io::Result<Option<u32>> {
        let of_it = |other: u64| other / self.segment_pages() == address / self.segment_pages();
        if of_it(end.address) {
            return Ok(Some(end.slot));
        }
        let following = self.first_tables_at((address / self.segment_pages() + 1) * self.segment_pages())?;
        let carried = following.iter().filter_map(|table| table.carried.as_ref());
        let recorded = self.records.iter().flatten().filter_map(|record| record.carried.as_deref());
        let mut carried = carried.chain(recorded).filter(|carried| carried.slot < self.geometry().segments);
        if let Some(carried) = carried.find(|carried| of_it(carried.address)) {
            return Ok(Some(carried.slot));
        }
        for (slot, _) in (0..).zip(&self.firsts).filter(|(_, first)| first.is_none()) {
            let stretch = self.rest_of_segment(Spot { slot, address })?;
            let mut tables = stretch.bytes.chunks_exact(self.page_bytes()).filter_map(|block| self.decode(block));
            if tables.any(|table| self.is_ours(&table.head) && table.head.slot == slot && of_it(table.head.address)) {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// Reads again the first block of each slot in which no table was found. A transfer may have damaged bytes that
    /// are sound on the device.
    fn read_firsts_again(&mut self) -> io::Result<()> {
        let mut block = AlignedBytes::zeroed(self.page_bytes());
        let each = block.len();
        for slot in 0..self.firsts.len() {
            let spot = Spot { slot: slot as u32, address: 0 };
            if self.firsts[slot].is_none() && !self.void.contains(&spot.slot) {
                self.read(std::iter::once(spot), &mut block, each)?;
                self.firsts[slot] =
                    self.first_in(spot.slot, &block).map(|Head { address, epoch, .. }| First { address, epoch });
                if let Some(blocks) = &mut self.first_blocks {
                    blocks[slot * each..][..each].copy_from_slice(&block);
                }
            }
        }
        Ok(())
    }

    /// The order of all slots: those of live segments first, then the announced one, then the others.
    fn order(&self, live: &[Spot], end: LogEnd) -> Result<Vec<u32>, Broken> {
        let slots = self.geometry().segments;
        let mut order = vec![None; slots as usize];
        let mut used = vec![false; slots as usize];
        let announced =
            Some(spot(end)).filter(|end| live.len() < order.len() && !is_in_last(live, *end, self.segment_pages()));
        for &Spot { slot, address } in live.iter().chain(&announced) {
            if std::mem::replace(&mut used[slot as usize], true) {
                let at = Spot { slot, address };
                return Err(Broken { at, why: "two segments lie in one slot", suspects: vec![slot] });
            }
            order[(address / self.segment_pages() % u64::from(slots)) as usize] = Some(slot);
        }
        let mut free = (end.slot + 1..slots).chain(0..end.slot + 1).filter(|&slot| !used[slot as usize]);
        let first = end.address / self.segment_pages() % u64::from(slots);
        let mut whole = vec![0; slots as usize];
        for at in (first..u64::from(slots)).chain(0..first) {
            let slot = order[at as usize].or_else(|| free.next());
            whole[at as usize] = slot.expect("there are as many slots as places for them");
        }
        Ok(whole)
    }

    /// The tables of segments that begin at these spots, up to the end of the log, in order within each segment.
    fn tables(&self, starts: &[Spot], end: LogEnd) -> Result<Result<Vec<Vec<Table>>, Broken>, StoreError> {
        let page_bytes = self.page_bytes();
        let mut tables: Vec<Vec<Table>> = starts.iter().map(|_| Vec::new()).collect();
        let mut wanted: Vec<(usize, Spot)> = starts.iter().copied().enumerate().collect();
        let mut blocks = AlignedBytes::zeroed(starts.len() * page_bytes);
        while !wanted.is_empty() {
            let unread = wanted.iter().map(|&(_, spot)| spot).filter(|&spot| self.kept(spot).is_none());
            self.read(unread, &mut blocks, page_bytes)?;
            let mut read = blocks.chunks_exact(page_bytes);
            let mut following = Vec::new();
            for (segment, spot) in wanted {
                let block = self.kept(spot).unwrap_or_else(|| read.next().expect("one for each that was read"));
                let table = match self.table_of(block, spot) {
                    // A transfer may have damaged bytes that are sound on the device.
                    None if !mutant::is(Mutant::ReadOnce) => self.table_again(spot)?,
                    table => table,
                };
                let table = match table {
                    None => self.copy_of(spot)?,
                    table => table,
                };
                let table = match table {
                    None if self.past.is_some() => self.missing(spot, end)?,
                    table => table,
                };
                let Some(table) = table else {
                    if mutant::is(Mutant::VoidNotTried) {
                        return Err(self.damaged(spot, "a table is not there"));
                    }
                    let why = "a table that was durable is not there any more";
                    return Ok(Err(Broken { at: spot, why, suspects: vec![spot.slot] }));
                };
                let next = next_address(self.geometry(), spot.address, table.blocks);
                tables[segment].push(table);
                if next < end.address && next / self.segment_pages() == spot.address / self.segment_pages() {
                    following.push((segment, Spot { address: next, ..spot }));
                }
            }
            wanted = following;
        }
        Ok(Ok(tables))
    }

    /// Returns a copy of an unreadable table: the one at the end of its batch, in the table after it, or in a commit
    /// record. Of copies from several epochs the latest counts: earlier ones may be of void batches.
    fn copy_of(&self, at: Spot) -> io::Result<Option<Table>> {
        if mutant::is(Mutant::CopyIgnored) {
            return Ok(None);
        }
        let mut found: Option<(u64, Table)> = None;
        let mut take = |epoch: u64, table: Option<Table>| {
            let here = |table: &Table| table.head.address == at.address && table.head.slot == at.slot;
            if let Some(table) = table.filter(here).filter(|_| found.as_ref().is_none_or(|(other, _)| epoch > *other)) {
                found = Some((epoch, table));
            }
        };
        let uuid = self.superblock.identity.uuid;
        for record in self.records.iter().flatten() {
            take(record.epoch, record.carried.as_ref().and_then(|carried| table::carried_table(carried, uuid)));
        }
        let within = self.rest_of_segment(at)?;
        let within = within.bytes.chunks_exact(self.page_bytes()).filter_map(|block| self.decode(block));
        let following = self.first_tables_at((at.address / self.segment_pages() + 1) * self.segment_pages())?;
        for table in within.chain(following).filter(|table| self.is_ours(&table.head)) {
            let epoch = table.head.epoch;
            take(epoch, table.carried.as_ref().and_then(|carried| table::carried_table(carried, uuid)));
            take(epoch, Some(table));
        }
        Ok(found.map(|(epoch, table)| {
            self.copied.borrow_mut().extend(self.written_again(epoch, &table));
            table
        }))
    }

    /// A table taken from a copy that this epoch made, in the form in which it can be written again.
    fn written_again(&self, epoch: u64, table: &Table) -> Option<Copied> {
        let (tables, head, carried) = (self.superblock.tables, Head { epoch, ..table.head }, table.carried.as_ref());
        let space = table::entries_beside(tables, self.page_bytes(), carried).checked_sub(table.records.len())?;
        let encode = |block: &mut [u8]| table::encode(tables, &head, &table.records, carried, block);
        let byte = byte_of(self.geometry(), tables, head.slot, head.address);
        Copied::new(byte, self.page_bytes(), table.crc, space > 0, encode)
    }

    /// A table in place of a missing one, of its size: up to the next readable table, or to the end of its segment.
    fn missing(&self, at: Spot, end: LogEnd) -> io::Result<Option<Table>> {
        let within = self.rest_of_segment(at)?;
        let stop = ((at.address / self.segment_pages() + 1) * self.segment_pages()).min(end.address);
        let is_next = |address: &u64| {
            let table = within.table(*address, self.superblock.tables, self.page_bytes());
            table.is_some_and(|table| self.is_ours(&table.head))
        };
        let next = (at.address + 1..stop).find(is_next).unwrap_or(stop);
        let copies = |pages| table::copies(self.superblock.tables, self.page_bytes(), pages);
        let blocks = (next - at.address) as usize;
        let pages = (blocks.saturating_sub(2)..blocks).find(|&pages| 1 + pages + copies(pages) == blocks);
        let space = table::entries_max(self.superblock.tables, self.page_bytes());
        let Some(pages) = pages.filter(|&pages| pages + 1 < space) else { return Ok(None) };
        // The filler names one page as often as there are pages, and then declares it gone. The page is chosen after
        // everything is read.
        let record = |kind| Record { page: 0, kind, age: age::UNKNOWN, crc: 0 };
        let gone = (pages > 0).then(|| record(Kind::Gone));
        let records: Vec<Record> = std::iter::repeat_n(record(Kind::Clean), pages).chain(gone).collect();
        let (epoch, tail) = (self.superblock.epoch, end.tail);
        let durable = LogEnd { address: 0, slot: 0, tail: 0, chain: 0 };
        let Spot { slot, address } = at;
        let head = Head { uuid: MISSING, epoch, address, slot, next: slot, tail, durable, chain: 0, clock: 0 };
        Ok(Some(Table { head, records, pages: pages as u32, crc: 0, blocks: blocks as u64, carried: None }))
    }

    /// Notes a missing table between these CRCs of the chain. Returns the table that is to take its place.
    fn fall_into(&mut self, gap: Table, before: Option<u32>, crc: u32) -> Table {
        let head = Head { uuid: self.superblock.identity.uuid, chain: before.unwrap_or(0), ..gap.head };
        let byte = byte_of(self.geometry(), self.superblock.tables, head.slot, head.address);
        if let Some(past) = &mut self.past {
            past.falls_into(Hole { byte, pages: gap.pages.into(), filler: None, given_up: Vec::new() });
        }
        Table { head, crc, ..gap }
    }

    /// Makes the fillers for missing tables. A filler names a page of which no dirty version is older.
    fn fill(&mut self, mut gaps: Vec<Table>, index: &Index) {
        let Some(mut past) = self.past.take() else { return };
        let is_free = |page: &u64| past.named.contains(page) || index.get(*page).is_none_or(|entry| !entry.dirty);
        let free = (0..self.superblock.identity.backing_pages).find(is_free);
        for (gap, hole) in gaps.iter_mut().zip(&mut past.holes) {
            let Some(page) = free else { break };
            gap.records.iter_mut().for_each(|record| record.page = page);
            hole.filler = self.written_again(gap.head.epoch, gap);
        }
        self.past = Some(past);
    }

    /// The first tables of segments that begin at a log address: one of each epoch that wrote the segment.
    fn first_tables_at(&self, address: u64) -> io::Result<Vec<Table>> {
        let begin_there = |first: &Option<First>| first.is_some_and(|first| first.address == address);
        let slots = (0..).zip(&self.firsts).filter(|(_, first)| begin_there(first)).map(|(slot, _)| slot);
        let tables = slots.map(|slot| self.table_again(Spot { slot, address }));
        tables.filter_map(Result::transpose).collect()
    }

    /// The block at a spot, if it was kept.
    fn kept(&self, Spot { slot, address }: Spot) -> Option<&[u8]> {
        let first = address.is_multiple_of(self.segment_pages());
        let blocks = self.first_blocks.as_ref().filter(|_| first)?;
        Some(&blocks[slot as usize * self.page_bytes()..][..self.page_bytes()])
    }
}

/// True if a spot lies in the last of these segments.
fn is_in_last(live: &[Spot], Spot { address, .. }: Spot, segment_pages: u64) -> bool {
    live.last().is_some_and(|last| last.address / segment_pages == address / segment_pages)
}

fn load_table(table: &Table, index: &mut Index, mut ages: Option<&mut Ages>) {
    let mut address = table.head.address;
    for (i, record) in table.records.iter().enumerate() {
        if let Some(later) = table.records.get(i + AHEAD) {
            index.prefetch(later.page);
        }
        let page = record.page;
        let lost = record.kind == Kind::Lost;
        match record.kind {
            Kind::Gone => index.remove(page),
            Kind::Cleaned => index.update(page, |entry| entry.dirty = false),
            Kind::Clean | Kind::Dirty | Kind::Lost => {
                address += u64::from(!lost);
                let at = if lost { table.head.address } else { address };
                let dirty = record.kind != Kind::Clean;
                index.insert(page, Entry { address: at, crc: record.crc, dirty, resident: false, lost });
            }
        }
        if let Some(ages) = &mut ages {
            ages.remove(page);
            if record.kind == Kind::Dirty {
                ages.insert(page, age::since(record.age, table.head.clock));
            }
        }
    }
}
