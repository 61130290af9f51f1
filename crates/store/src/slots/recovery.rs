//! Opening a store of slots: the end of its journal and its contents. `docs/cache-format.md`, "The slots layout",
//! has the steps.

use super::free::Free;
use super::{NO_SLOT, Slots};
use crate::age;
use crate::ages::Ages;
use crate::areas::Areas;
use crate::checksum::crc32c;
use crate::clock::Clock;
use crate::commit::Commit;
use crate::counts::{Recovered, StoreCounts};
use crate::error::StoreError;
use crate::geometry::{Geometry, Tables};
use crate::index::{Entry, Index};
use crate::journal::{self, Block, Head, Kind, Record};
use crate::log_end::LogEnd;
use crate::memory::Memories;
use crate::mutant::{self, Mutant};
use crate::rewrite::{Copied, Hole, Past};
use crate::standing::{self, Standing};
use crate::superblock::{State, Superblock, check_owner};
use entresol_disk::{AlignedBytes, Disk, Transfer};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

/// Most bytes of a journal that is kept in memory between its two passes.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// Prefetch distance, in entries of a block.
const AHEAD: usize = 12;
/// Bytes of one transfer, and of all transfers of a submission.
const STRETCH_BYTES: u64 = 128 << 10;
const AT_ONCE_BYTES: u64 = 8 << 20;

/// The CRC of a block that takes the place of a missing one before another missing one.
const FILLED: u32 = 0x4649_4c4c;

/// Reader of a store at its open, with everything read so far.
struct Walk<'d, D> {
    disk: &'d D,
    superblock: Superblock,
    areas: Areas,
    /// The commit records found.
    records: [Option<Commit>; 2],
    /// The whole journal, unless it takes too much memory.
    kept: Option<AlignedBytes>,
    read_bytes: Cell<u64>,
    /// Blocks taken from copies, in the form in which they can be written again.
    copied: RefCell<Vec<Copied>>,
    /// Findings about missing blocks. None unless blocks may be missing.
    past: RefCell<Option<Past>>,
    /// True if ages are to be kept.
    keeps_ages: bool,
}

impl<D: Disk> Slots<D> {
    /// As [`AnyStore::find`](crate::AnyStore::find).
    ///
    /// # Errors
    /// As there.
    pub(crate) fn find(
        disk: D,
        backing: [u8; 16],
        backing_pages: u64,
        clock: Option<&Clock>,
        past: Option<Past>,
    ) -> Result<(Self, Recovered), StoreError> {
        let started = Instant::now();
        let superblock = Superblock::read(&disk)?;
        check_owner(&superblock, backing, backing_pages)?;
        let areas = Areas::of(&superblock.geometry, superblock.tables);
        let read_bytes = Cell::new(Superblock::READ_BYTES);
        let records = standing::records(&disk, &superblock, journal::ENTRY)?;
        let (copied, past, keeps_ages) = (RefCell::default(), RefCell::new(past), clock.is_some());
        let mut walk =
            Walk { disk: &disk, superblock, areas, records, kept: None, read_bytes, copied, past, keeps_ages };
        let certain = walk.certain_end()?;
        let (end, unsynced_batches) = walk.walk_unsynced(certain)?;
        let (index, ages, last) = walk.load(end)?;
        let shown = last.as_ref().map_or(0, |last| last.head.clock);
        let mut standing = Standing::found(superblock, &walk.records, shown);
        if let Some((ages, clock)) = ages.zip(clock) {
            standing.keep_ages(ages, clock.clone());
        }
        let last = last.filter(|_| superblock.tables == Tables::V3);
        standing.carried = last.map(|last| journal::carry(&last.head, &last.records, last.crc).into());
        let recovered = Recovered {
            clean_shutdown: superblock.state == State::Closed,
            unsynced_batches,
            pages: index.len() as u64,
            dirty_pages: index.dirty_len() as u64,
            read_bytes: walk.read_bytes.get(),
            took: started.elapsed(),
        };
        let (copied, past) = (walk.copied.take(), walk.past.take());
        Ok((Slots { copied, past, ..Slots::new(disk, superblock.geometry, standing, end, index) }, recovered))
    }

    /// As [`AnyStore::begin`](crate::AnyStore::begin).
    ///
    /// # Errors
    /// As there.
    pub fn begin(&mut self) -> io::Result<()> {
        self.standing.begin(&self.disk, self.durable)
    }

    /// A store whose journal ends here, all of it durable, with these contents.
    fn new(disk: D, geometry: Geometry, standing: Standing, end: LogEnd, index: Index) -> Self {
        let areas = Areas::of(&geometry, standing.tables());
        let mut free = Free::new(areas.slots, areas.by_segments.then_some(geometry.segment_pages));
        index.empty_blocks().for_each(|slot| free.put_unused(slot));
        free.change_all();
        let mut memories = Memories::new(geometry.batch_blocks(), geometry.page_bytes as usize);
        Slots {
            disk,
            geometry,
            areas,
            standing,
            first: index.versions(),
            durable_versions: index.versions(),
            index,
            free,
            hand: 0,
            tail: end.tail,
            written_tail: end.tail,
            number: end.address,
            chain: end.chain,
            durable: end,
            statements: VecDeque::new(),
            must_state: false,
            unsynced: false,
            unsynced_pages: 0,
            sealed: VecDeque::new(),
            buffer: memories.next(),
            memories,
            fresh: Vec::new(),
            records: Vec::new(),
            versions: Vec::new(),
            counts: StoreCounts::default(),
            copied: Vec::new(),
            past: None,
        }
    }
}

impl<D: Disk> Walk<'_, D> {
    fn page_bytes(&self) -> usize {
        self.superblock.geometry.page_bytes as usize
    }

    fn damaged(&self, number: u64, why: &'static str) -> StoreError {
        StoreError::Damaged { block: number, byte: self.areas.byte_of_block(number), why }
    }

    fn is_of_this_epoch(&self, block: &Block) -> bool {
        block.head.epoch == self.superblock.epoch || mutant::is(Mutant::NoLineageCheck)
    }

    fn submit(&self, mut reads: Vec<Transfer>) -> io::Result<()> {
        let read: usize = reads.iter().map(Transfer::len).sum();
        self.read_bytes.set(self.read_bytes.get() + read as u64);
        self.disk.submit(&mut reads)
    }

    /// Reads blocks of the journal from one on, not across the end of the ring.
    fn blocks(&self, number: u64, bytes: &mut [u8]) -> io::Result<()> {
        let start = self.areas.byte_of_block(number);
        let stretches = bytes.chunks_mut(STRETCH_BYTES.max(self.page_bytes() as u64) as usize);
        let reads = stretches.scan(start, |at, bytes| {
            let read = Transfer::Read { at: *at, bytes };
            *at += read.len() as u64;
            Some(read)
        });
        self.submit(reads.collect())
    }

    fn is_ours(&self, block: &Block) -> bool {
        block.head.uuid == self.superblock.identity.uuid || mutant::is(Mutant::NoUuidCheck)
    }

    fn decode(&self, bytes: &[u8]) -> Option<Block> {
        journal::decode(self.superblock.tables, bytes)
    }

    /// The block of this number and cache, if these bytes are it.
    fn block_of(&self, number: u64, bytes: &[u8]) -> Option<Block> {
        self.decode(bytes).filter(|block| block.head.number == number && self.is_ours(block))
    }

    /// The blocks of a stretch, if they were kept.
    fn kept(&self, number: u64, blocks: u64) -> Option<&[u8]> {
        let at = (number % self.areas.journal) as usize * self.page_bytes();
        self.kept.as_ref().map(|kept| &kept[at..at + blocks as usize * self.page_bytes()])
    }

    /// Reads one block.
    fn read_block(&self, number: u64) -> io::Result<Option<Block>> {
        let mut bytes = AlignedBytes::zeroed(self.page_bytes());
        self.blocks(number, &mut bytes)?;
        Ok(self.block_of(number, &bytes))
    }

    fn block(&self, number: u64) -> io::Result<Option<Block>> {
        match self.kept(number, 1).and_then(|bytes| self.block_of(number, bytes)) {
            None => self.read_block(number),
            block => Ok(block),
        }
    }

    /// Stretches of blocks between two numbers, each read at once and not across the end of the ring.
    fn stretches(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
        let (ring, at_once) = (self.areas.journal, (AT_ONCE_BYTES / self.page_bytes() as u64).max(1));
        let length = move |first: u64| (ring - first % ring).min(at_once).min(to - first);
        let first = move |first: u64| (first < to).then(|| (first, length(first)));
        std::iter::successors(first(from), move |&(start, blocks)| first(start + blocks))
    }

    /// Step 1: the furthest durable end that blocks of this epoch state.
    fn certain_end(&mut self) -> Result<LogEnd, StoreError> {
        let (ring, page_bytes) = (self.areas.journal, self.page_bytes());
        let keep = ring * page_bytes as u64 <= KEPT_BYTES_MAX;
        let mut kept = AlignedBytes::zeroed(if keep { ring as usize * page_bytes } else { 0 });
        let mut read = AlignedBytes::zeroed(if keep { 0 } else { AT_ONCE_BYTES as usize });
        let recorded = standing::recorded_end(&self.superblock, &self.records);
        let mut certain = recorded.map_or(self.superblock.end, |end| self.superblock.end.later(end));
        for (first, blocks) in self.stretches(0, ring) {
            let bytes = if keep {
                &mut kept[first as usize * page_bytes..][..blocks as usize * page_bytes]
            } else {
                &mut read[..blocks as usize * page_bytes]
            };
            self.blocks(first, bytes)?;
            for (bytes, at) in bytes.chunks_exact(page_bytes).zip(first..) {
                let is_here = |block: &Block| block.head.number % ring == at && self.is_ours(block);
                let Some(block) = self.decode(bytes).filter(is_here) else { continue };
                if block.head.epoch > self.superblock.epoch {
                    return Err(self.damaged(block.head.number, "it is newer than both superblocks"));
                }
                if self.is_of_this_epoch(&block) && block.head.durable.address > certain.address {
                    certain = block.head.durable;
                }
            }
        }
        self.kept = keep.then_some(kept);
        Ok(certain)
    }

    /// Step 2: goes on from the certain end as long as blocks count.
    fn walk_unsynced(&self, certain: LogEnd) -> Result<(LogEnd, u64), StoreError> {
        let mut end = certain;
        while let Some(block) = self.block(end.address)? {
            let chained = block.head.chain == end.chain || mutant::is(Mutant::NoLineageCheck);
            // A transfer may have damaged bytes that are sound on the device.
            let agrees = || Ok(self.agrees(&block)? || (!mutant::is(Mutant::ReadOnce) && self.agrees(&block)?));
            if !self.is_of_this_epoch(&block) || !chained || !agrees().map_err(StoreError::Io)? {
                break;
            }
            end = LogEnd { address: end.address + 1, slot: 0, tail: block.head.tail, chain: block.crc };
        }
        Ok((end, end.address - certain.address))
    }

    /// True if the slots agree with the CRCs of the pages written with a block.
    fn agrees(&self, block: &Block) -> io::Result<bool> {
        let fresh: Vec<&Record> = block.records.iter().filter(|record| record.has_page() && !record.again).collect();
        if fresh.is_empty() || mutant::is(Mutant::NoPageCheck) {
            return Ok(true);
        }
        if fresh.iter().any(|record| u64::from(record.slot) >= self.areas.slots) {
            return Ok(false);
        }
        let mut bytes = AlignedBytes::zeroed(fresh.len() * self.page_bytes());
        let mut rest = &mut bytes[..];
        // Neighbouring slots were written as one, and are read so.
        let runs = fresh.chunk_by(|one, next| one.slot + 1 == next.slot).map(|run| {
            let (bytes, others) = std::mem::take(&mut rest).split_at_mut(run.len() * self.page_bytes());
            rest = others;
            Transfer::Read { at: self.areas.byte_of_slot(run[0].slot), bytes }
        });
        let runs = runs.collect();
        self.submit(runs)?;
        Ok(fresh.iter().zip(bytes.chunks_exact(self.page_bytes())).all(|(record, bytes)| crc32c(bytes) == record.crc))
    }

    /// Step 3: the entries of the blocks from the tail to the end, oldest first.
    fn load(&self, end: LogEnd) -> Result<(Index, Option<Ages>, Option<Block>), StoreError> {
        if end.tail > end.address || end.address - end.tail > self.areas.journal {
            return Err(self.damaged(end.address, "its tail is no block that can be live"));
        }
        let mut index = Index::of_slots(self.areas.slots as u32, self.areas.by_segments);
        let mut ages = self.keeps_ages.then(|| Ages::new(self.areas.slots as usize, self.superblock.clock));
        let (mut chain, mut last) = (None, None);
        // The number of a missing block, and the chain before it.
        let (mut missing, mut gaps): (Option<(u64, Option<u32>)>, _) = (None, Vec::new());
        for (first, blocks) in self.stretches(end.tail, end.address) {
            let mut read;
            let bytes = match self.kept(first, blocks) {
                Some(kept) => kept,
                None => {
                    read = AlignedBytes::zeroed(blocks as usize * self.page_bytes());
                    self.blocks(first, &mut read)?;
                    &read[..]
                }
            };
            for (bytes, number) in bytes.chunks_exact(self.page_bytes()).zip(first..) {
                // A transfer may have damaged bytes that are sound on the device.
                let block = match self.block_of(number, bytes) {
                    None => self.read_block(number)?,
                    block => block,
                };
                let block = match block {
                    None => self.copy_of(number)?,
                    block => block,
                };
                if block.is_none() && self.past.borrow().is_some() {
                    // Each of several missing blocks in a row gets a block in its place.
                    if let Some((gap, before)) = missing.replace((number, chain.take())) {
                        gaps.push(self.fall_into(gap, before, FILLED, &mut index));
                        missing = Some((number, Some(FILLED)));
                    }
                    continue;
                }
                let block =
                    block.ok_or_else(|| self.damaged(number, "a block that was durable is not there any more"))?;
                if let Some((gap, before)) = missing.take() {
                    gaps.push(self.fall_into(gap, before, block.head.chain, &mut index));
                }
                if chain.is_some_and(|chain| chain != block.head.chain) && !mutant::is(Mutant::NoLineageCheck) {
                    return Err(self.damaged(number, "the block does not follow the one before"));
                }
                self.enter_all(&mut index, ages.as_mut(), &block)?;
                chain = Some(block.crc);
                last = Some(block);
            }
        }
        if let Some((gap, before)) = missing {
            gaps.push(self.fall_into(gap, before, end.chain, &mut index));
            last = None;
        }
        self.fill(gaps);
        if chain.is_some_and(|chain| chain != end.chain) && !mutant::is(Mutant::NoLineageCheck) {
            return Err(self.damaged(end.address, "the last block is not the one that was there"));
        }
        Ok((index, ages, last))
    }

    /// Notes a missing block between these CRCs of the chain. Returns the block that is to take its place.
    fn fall_into(&self, number: u64, before: Option<u32>, crc: u32, index: &mut Index) -> Block {
        let (uuid, epoch) = (self.superblock.identity.uuid, self.superblock.epoch);
        let pages = journal::entries_max(self.superblock.tables, self.page_bytes());
        // The block may have given numbers to so many versions.
        let versions = index.versions().wrapping_add(pages as u32);
        index.set_versions(versions);
        if let Some(past) = &mut *self.past.borrow_mut() {
            let byte = self.areas.byte_of_block(number);
            past.falls_into(Hole { byte, pages: pages as u64, filler: None, given_up: Vec::new() });
        }
        let durable = LogEnd { address: 0, slot: 0, tail: 0, chain: 0 };
        let (tail, chain) = (self.superblock.end.tail.min(number), before.unwrap_or(0));
        let head = Head { uuid, epoch, number, tail, durable, chain, versions, clock: 0 };
        Block { head, records: Vec::new(), crc, carried: None }
    }

    /// Makes the fillers for missing blocks. A filler declares the former pages of slots gone that were written again.
    fn fill(&self, gaps: Vec<Block>) {
        let Some(past) = &mut *self.past.borrow_mut() else { return };
        for (mut gap, hole) in gaps.into_iter().zip(&mut past.holes) {
            let gone = |&page| Record {
                page,
                kind: Kind::Gone,
                again: false,
                age: age::UNKNOWN,
                slot: NO_SLOT,
                version: 0,
                crc: 0,
            };
            gap.records = hole.given_up.iter().map(gone).collect();
            hole.filler = self.written_again(gap.head.epoch, &gap);
        }
    }

    /// Returns a copy of a block: the one in the block after it, or the one in a commit record.
    fn copy_of(&self, number: u64) -> io::Result<Option<Block>> {
        if mutant::is(Mutant::CopyIgnored) {
            return Ok(None);
        }
        let next = self.read_block(number + 1)?;
        let recorded = self.records.iter().flatten().map(|record| (record.epoch, record.carried.as_deref().cloned()));
        let carried = recorded.chain(next.map(|block| (block.head.epoch, block.carried)));
        let here = carried.filter(|(_, carried)| carried.as_ref().is_some_and(|carried| carried.address == number));
        // Of copies from several epochs the latest counts: earlier ones may be of void blocks.
        let Some((epoch, Some(carried))) = here.max_by_key(|(epoch, _)| *epoch) else { return Ok(None) };
        let block = journal::carried_block(&carried, self.superblock.identity.uuid);
        self.copied.borrow_mut().extend(block.as_ref().and_then(|block| self.written_again(epoch, block)));
        Ok(block)
    }

    /// A block taken from a copy that this epoch made, in the form in which it can be written again.
    fn written_again(&self, epoch: u64, block: &Block) -> Option<Copied> {
        let head = Head { epoch, ..block.head };
        journal::entries_max(self.superblock.tables, self.page_bytes()).checked_sub(block.records.len())?;
        let encode = |bytes: &mut [u8]| journal::encode(self.superblock.tables, &head, &block.records, None, bytes);
        let byte = self.areas.byte_of_block(head.number);
        Copied::new(byte, self.page_bytes(), block.crc, true, encode)
    }

    fn enter_all(&self, index: &mut Index, mut ages: Option<&mut Ages>, block: &Block) -> Result<(), StoreError> {
        for (i, record) in block.records.iter().enumerate() {
            if let Some(later) = block.records.get(i + AHEAD) {
                index.prefetch(later.page);
            }
            if let Some(past) = &mut *self.past.borrow_mut() {
                past.names(std::iter::once(record.page));
                let other = if record.has_page() && u64::from(record.slot) < self.areas.slots {
                    index.page_in(record.slot).filter(|&page| page != record.page && !past.holes.is_empty())
                } else {
                    None
                };
                // The missing block must have freed this slot.
                if let Some(other) = other {
                    index.remove(other);
                    past.displaced.insert(other);
                    past.holes.last_mut().expect("there is one").given_up.push(other);
                }
            }
            self.enter(index, record, block.head.number)?;
            let Some(ages) = &mut ages else { continue };
            if record.kind != Kind::Cleaned || index.get(record.page).is_none_or(|entry| !entry.dirty) {
                ages.remove(record.page);
            }
            if record.kind == Kind::Dirty {
                ages.insert(record.page, age::since(record.age, block.head.clock));
            }
        }
        index.set_versions(block.head.versions);
        Ok(())
    }

    fn enter(&self, index: &mut Index, record: &Record, number: u64) -> Result<(), StoreError> {
        let page = record.page;
        if page >= self.superblock.identity.backing_pages {
            return Err(self.damaged(number, "the block names a page beyond the end of the backing store"));
        }
        let address = u64::from(record.version) << 32 | u64::from(record.slot);
        match record.kind {
            Kind::Gone => index.remove(page),
            Kind::Cleaned => {
                if index.get(page).is_some_and(|entry| entry.address == address) {
                    index.update(page, |entry| entry.dirty = false);
                }
            }
            Kind::Clean | Kind::Dirty => {
                if u64::from(record.slot) >= self.areas.slots || index.page_in(record.slot).is_some_and(|p| p != page) {
                    return Err(self.damaged(number, "the block names a slot that another page has"));
                }
                let dirty = record.kind == Kind::Dirty;
                index.insert(page, Entry { address, crc: record.crc, dirty, resident: false, lost: false });
            }
            Kind::Lost => index.insert(page, Entry { address, crc: 0, dirty: true, resident: false, lost: true }),
        }
        Ok(())
    }
}
