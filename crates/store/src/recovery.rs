//! Opening a log: its end and its contents. `docs/cache-format.md`, "Recovery", numbers the steps.

use super::age;
use super::ages::Ages;
use super::clock::Clock;
use super::commit::Commit;
use super::index::{Entry, Index};
use super::memory::BatchMemory;
use super::rewrite::{Copied, Hole, Past};
use super::standing::{self, Standing};
use super::superblock::{Geometry, LogEnd, PLACES_MAX, State, Superblock, Tables};
use super::table::{self, Head, Kind, Record, Table};
use super::{LogStore, StoreCounts, StoreError, byte_of, crc32c, next_address};
use crate::mutant::{self, Mutant};
use entresol_disk::{AlignedBytes, Disk, Transfer};
use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

/// Tables that are read in one submission, each of another segment.
const TABLES: usize = 128;
/// Stands for a UUID in a table of which only the position is known.
const MISSING: [u8; 16] = [0; 16];
/// Most bytes of first blocks that are kept from step 1 for step 4.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Prefetch distance, in entries of a table.
const AHEAD: usize = 12;
/// Most times that a durable end stated by one table is followed to a further one.
const ROUNDS_MAX: usize = 8;
/// Bytes of one transfer in reads of a whole stretch.
const STRETCH_BYTES: usize = 128 << 10;

/// Findings of an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// True if the cache had been closed in good order.
    pub clean_shutdown: bool,
    /// Batches after the last known sync that counted.
    pub unsynced_batches: u64,
    /// Pages that the store holds, lost ones among them.
    pub pages: u64,
    /// Pages that the backing store is not known to have.
    pub dirty_pages: u64,
    /// Bytes read of the cache device.
    pub read_bytes: u64,
    /// Time that the open took.
    pub took: Duration,
}

/// The first table of the segment in a slot.
#[derive(Clone, Copy)]
struct First {
    address: u64,
    epoch: u64,
}

/// Reader of a log at its open, with everything read so far.
struct Walk<'d, D> {
    disk: &'d D,
    superblock: Superblock,
    /// The commit records found.
    records: [Option<Commit>; 2],
    /// First table of every slot, if it is of this cache.
    firsts: Vec<Option<First>>,
    /// Slots whose segment was found void: an earlier epoch's remains of a segment that lies elsewhere.
    void: Vec<u32>,
    /// The first block of every slot, unless all of them take too much memory.
    first_blocks: Option<AlignedBytes>,
    read_bytes: Cell<u64>,
    /// Tables taken from copies, in the form in which they can be written again.
    copied: RefCell<Vec<Copied>>,
    /// Findings about missing tables. None unless tables may be missing.
    past: Option<Past>,
    /// True if ages are to be kept.
    keeps_ages: bool,
}

/// A log address and the slot of its segment.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Spot {
    slot: u32,
    address: u64,
}

/// Contents of the log, and the order of its slots.
struct Loaded {
    index: Index,
    ages: Option<Ages>,
    order: Vec<u32>,
    /// The last table.
    last: Option<Table>,
}

/// Point at which the log is inconsistent, and the slots whose segments may have been mistaken for others.
struct Broken {
    at: Spot,
    why: &'static str,
    suspects: Vec<u32>,
}

/// Result of step 2.
struct Unsynced {
    end: LogEnd,
    /// Batches that counted after the certain end.
    batches: u64,
    /// Stretch read last.
    last: Stretch,
}

/// Consecutive blocks of one segment.
struct Stretch {
    slot: u32,
    address: u64,
    bytes: AlignedBytes,
}

impl<D: Disk> LogStore<D> {
    /// As [`AnyStore::find`](super::AnyStore::find).
    ///
    /// # Errors
    /// As there.
    pub(super) fn find(
        disk: D,
        backing: [u8; 16],
        backing_pages: u64,
        clock: Option<&Clock>,
        past: Option<Past>,
    ) -> Result<(Self, Recovered), StoreError> {
        let started = Instant::now();
        let superblock = Superblock::read(&disk)?;
        check_owner(&superblock, backing, backing_pages)?;
        let read_bytes = Cell::new(Superblock::READ_BYTES);
        let records = standing::records(&disk, &superblock, table::ENTRY)?;
        let mut walk = Walk {
            disk: &disk,
            superblock,
            records,
            firsts: Vec::new(),
            void: Vec::new(),
            first_blocks: None,
            read_bytes,
            copied: RefCell::default(),
            past,
            keeps_ages: clock.is_some(),
        };
        let newest = walk.newest_table()?;
        let stated = [newest.map(|head| head.durable), standing::recorded_end(&superblock, &walk.records)];
        let certain = stated.into_iter().flatten().fold(superblock.end, LogEnd::later);
        let (end, unsynced_batches) = walk.end(certain)?;
        let Loaded { index, ages, order, last } = walk.load_past_void(end)?;
        let recovered = Recovered {
            clean_shutdown: superblock.state == State::Closed,
            unsynced_batches,
            pages: index.len() as u64,
            dirty_pages: index.dirty_len() as u64,
            read_bytes: walk.read_bytes.get(),
            took: started.elapsed(),
        };

        let (copied, past) = (walk.copied.take(), walk.past.take());
        let geometry = superblock.geometry;
        let shown = last.as_ref().map_or(0, |last| last.head.clock);
        let mut standing = Standing::found(superblock, &walk.records, shown);
        if let Some((ages, clock)) = ages.zip(clock) {
            standing.keep_ages(ages, clock.clone());
        }
        standing.carried = last.and_then(|last| {
            let copies = table::copies(superblock.tables, geometry.page_bytes as usize, last.records.len());
            let carried = superblock.tables == Tables::V3 && copies == 0;
            carried.then(|| table::carry(&last.head, &last.records, last.crc).into())
        });
        let log = LogStore {
            geometry,
            standing,
            index,
            order,
            tail: end.tail,
            written_tail: end.tail,
            address: end.address,
            chain: end.chain,
            durable: end,
            unsynced: false,
            sealed: VecDeque::new(),
            buffer: BatchMemory::new(
                AlignedBytes::zeroed(geometry.segment_bytes() as usize),
                geometry.page_bytes as usize,
            ),
            spare: Vec::new(),
            records: Vec::new(),
            versions: Vec::new(),
            pages: 0,
            counts: StoreCounts::default(),
            copied,
            past,
            disk,
        };
        Ok((log, recovered))
    }

    /// As [`AnyStore::begin`](super::AnyStore::begin).
    ///
    /// # Errors
    /// As there.
    pub fn begin(&mut self) -> io::Result<()> {
        self.standing.begin(&self.disk, self.durable)
    }
}

/// First blocks of segments that an open reads twice, because they are too many to keep.
pub(super) fn first_blocks_read_again(geometry: &Geometry) -> u64 {
    let blocks = u64::from(geometry.segments);
    if blocks * u64::from(geometry.page_bytes) > KEPT_BYTES_MAX as u64 { blocks } else { 0 }
}

pub(super) fn check_owner(superblock: &Superblock, backing: [u8; 16], backing_pages: u64) -> Result<(), StoreError> {
    let identity = superblock.identity;
    if superblock.state == State::Retired {
        return Err(StoreError::Retired);
    }
    if mutant::is(Mutant::OwnerUnchecked) {
        return Ok(());
    }
    if identity.backing != backing {
        return Err(StoreError::OtherBacking { found: identity.backing, expected: backing });
    }
    if identity.backing_pages > backing_pages {
        return Err(StoreError::BackingSize { found: backing_pages, expected: identity.backing_pages });
    }
    Ok(())
}

impl<D: Disk> Walk<'_, D> {
    fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    fn page_bytes(&self) -> usize {
        self.geometry().page_bytes as usize
    }

    fn damaged(&self, Spot { slot, address }: Spot, why: &'static str) -> StoreError {
        StoreError::Damaged {
            block: address,
            byte: byte_of(self.geometry(), self.superblock.tables, slot, address),
            why,
        }
    }

    fn decode(&self, block: &[u8]) -> Option<Table> {
        table::decode(self.superblock.tables, block)
    }

    fn is_ours(&self, head: &Head) -> bool {
        head.uuid == self.superblock.identity.uuid || mutant::is(Mutant::NoUuidCheck)
    }

    fn is_of_this_epoch(&self, head: &Head) -> bool {
        self.is_ours(head) && (head.epoch == self.superblock.epoch || mutant::is(Mutant::NoLineageCheck))
    }

    fn segment_pages(&self) -> u64 {
        u64::from(self.geometry().segment_pages)
    }

    /// Reads `each` bytes at each of these spots.
    fn read(&self, spots: impl Iterator<Item = Spot>, bytes: &mut [u8], each: usize) -> io::Result<()> {
        let at = |spot: Spot| byte_of(self.geometry(), self.superblock.tables, spot.slot, spot.address);
        let reads = spots.zip(bytes.chunks_mut(each));
        let mut reads: Vec<Transfer> = reads.map(|(spot, bytes)| Transfer::Read { at: at(spot), bytes }).collect();
        let read: usize = reads.iter().map(Transfer::len).sum();
        self.read_bytes.set(self.read_bytes.get() + read as u64);
        self.disk.submit(&mut reads)
    }

    /// Step 1: the segment in each slot, and the newest first table of this epoch.
    fn newest_table(&mut self) -> Result<Option<Head>, StoreError> {
        let page_bytes = self.page_bytes();
        let slots = self.geometry().segments as usize;
        let keep = slots * page_bytes <= KEPT_BYTES_MAX;
        let at_once = if keep { slots } else { TABLES };
        let mut blocks = AlignedBytes::zeroed(at_once * page_bytes);
        let mut newest: Option<Head> = None;
        for first in (0..slots).step_by(at_once) {
            let number = at_once.min(slots - first);
            let spots = (first as u32..).map(|slot| Spot { slot, address: 0 }).take(number);
            self.read(spots.clone(), &mut blocks[..number * page_bytes], page_bytes)?;
            for (block, Spot { slot, .. }) in blocks.chunks_exact(page_bytes).zip(spots) {
                let head = self.first_in(slot, block);
                self.firsts.push(head.map(|Head { address, epoch, .. }| First { address, epoch }));
                let Some(head) = head else { continue };
                if head.epoch > self.superblock.epoch {
                    return Err(self.damaged(Spot { slot, address: head.address }, "it is newer than both superblocks"));
                }
                let newer = newest.as_ref().is_none_or(|other| head.address > other.address);
                if self.is_of_this_epoch(&head) && newer {
                    newest = Some(head);
                }
            }
        }
        self.first_blocks = keep.then_some(blocks);
        Ok(newest)
    }

    /// The head of the first block of a slot, if that is a first table of this cache.
    fn first_in(&self, slot: u32, block: &[u8]) -> Option<Head> {
        let begins = |head: &Head| head.slot == slot && head.address.is_multiple_of(self.segment_pages());
        table::decode_head(self.superblock.tables, block).filter(|head| begins(head) && self.is_ours(head))
    }

    /// The blocks from a spot to the end of its segment.
    fn rest_of_segment(&self, Spot { slot, address }: Spot) -> io::Result<Stretch> {
        let blocks = self.segment_pages() - address % self.segment_pages();
        let each = STRETCH_BYTES.max(self.page_bytes());
        let mut bytes = AlignedBytes::zeroed(blocks as usize * self.page_bytes());
        let addresses = (address..).step_by(each / self.page_bytes());
        self.read(addresses.map(|address| Spot { slot, address }), &mut bytes, each)?;
        Ok(Stretch { slot, address, bytes })
    }

    /// Steps 2 and 3: the end of the log, and the number of batches beyond the certain end.
    fn end(&self, mut certain: LogEnd) -> Result<(LogEnd, u64), StoreError> {
        for _ in 0..ROUNDS_MAX {
            if certain.slot >= self.geometry().segments {
                return Err(
                    self.damaged(Spot { slot: 0, address: certain.address }, "it lies beyond the end of the cache")
                );
            }
            let Unsynced { end, batches, last } = self.walk_unsynced(certain)?;
            let Some(further) = self.durable_beyond(end, last)? else { return Ok((end, batches)) };
            // The batch that does not agree was durable, and is damaged. Its table may be whole, or have a copy.
            certain = further;
        }
        Err(self.damaged(spot(certain), "tables contradict each other about what was durable"))
    }

    /// Step 2: goes on from the certain end as long as batches count.
    fn walk_unsynced(&self, certain: LogEnd) -> Result<Unsynced, StoreError> {
        let mut end = certain;
        let mut batches = 0;
        let mut stretch = self.rest_of_segment(spot(end))?;
        loop {
            if !stretch.holds(spot(end), self.page_bytes()) {
                stretch = self.rest_of_segment(spot(end))?;
            }
            let mut table = self.counting(&stretch, end);
            if table.is_none() && self.is_to_be_read_again(&stretch, end)? {
                stretch = self.rest_of_segment(spot(end))?;
                table = self.counting(&stretch, end);
            }
            let Some(table) = table else { break };
            let Spot { slot, address } = self.after(&table);
            if slot >= self.geometry().segments || address > PLACES_MAX {
                return Err(self.damaged(spot(end), "what follows it lies beyond the end of the cache"));
            }
            end = LogEnd { address, slot, tail: table.head.tail, chain: table.crc };
            batches += 1;
        }
        Ok(Unsynced { end, batches, last: stretch })
    }

    /// The table at an end of the log, if it follows there.
    fn following(&self, table: Option<Table>, end: LogEnd) -> Option<Table> {
        let chained = |table: &Table| table.head.chain == end.chain || mutant::is(Mutant::NoLineageCheck);
        table.filter(|table| self.is_of_this_epoch(&table.head) && chained(table))
    }

    /// The table at an end of the log, if its batch counts.
    fn counting(&self, stretch: &Stretch, end: LogEnd) -> Option<Table> {
        let table = self.following(stretch.table(end.address, self.superblock.tables, self.page_bytes()), end);
        table.filter(|table| stretch.agrees(table, self.page_bytes()))
    }

    /// True if the batch at `end` must be read again, since a transfer may have damaged bytes that are sound on the
    /// device. The batch must if its table is sound and its pages are not, or if a second read finds a sound table.
    fn is_to_be_read_again(&self, stretch: &Stretch, end: LogEnd) -> io::Result<bool> {
        if mutant::is(Mutant::ReadOnce) {
            return Ok(false);
        }
        let read = stretch.table(end.address, self.superblock.tables, self.page_bytes());
        Ok(self.following(read, end).is_some() || self.following(self.table_again(spot(end))?, end).is_some())
    }

    /// Spot of the batch after this one.
    fn after(&self, table: &Table) -> Spot {
        let Head { address, slot, next, .. } = table.head;
        let after = next_address(self.geometry(), address, table.blocks);
        let same = after / self.segment_pages() == address / self.segment_pages();
        Spot { slot: if same { slot } else { next }, address: after }
    }

    /// Step 3: the furthest durable end stated by batches beyond the end. A segment whose first table cannot be read
    /// is found by the announcement in tables before it.
    fn durable_beyond(&self, end: LogEnd, last: Stretch) -> Result<Option<LogEnd>, StoreError> {
        if mutant::is(Mutant::NothingBeyond) {
            return Ok(None);
        }
        let begun_later = |first: &First| first.address > end.address && first.epoch == self.superblock.epoch;
        let later = (0..).zip(&self.firsts).filter_map(|(slot, first)| {
            let First { address, .. } = first.filter(|first| begun_later(first) && slot != end.slot)?;
            Some(Spot { slot, address })
        });
        // After a close in good order the superblock states the end, and nothing was announced since.
        let announces = self.superblock.state != State::Closed && !mutant::is(Mutant::AnnouncedUnread);
        // A table before the end may be the only one to announce what follows this segment.
        let before = if announces { end.address % self.segment_pages() } else { 0 };
        let ending = Spot { slot: end.slot, address: end.address - before };
        let mut last = Some(last).filter(|stretch| stretch.holds(ending, self.page_bytes()));
        let mut begins: VecDeque<Spot> = std::iter::once(ending).chain(later).collect();
        let mut sought: HashSet<u32> = begins.iter().map(|begin| begin.slot).collect();
        let mut further: Option<LogEnd> = None;
        while let Some(begin) = begins.pop_front() {
            let stretch = last.take().map_or_else(|| self.rest_of_segment(begin), Ok)?;
            let following = (begin.address / self.segment_pages() + 1) * self.segment_pages();
            for address in begin.address..following {
                let table = stretch.table(address, self.superblock.tables, self.page_bytes());
                let Some(table) = table.filter(|table| self.is_ours(&table.head)) else { continue };
                let Head { durable, next, .. } = table.head;
                let is_of_now = self.is_of_this_epoch(&table.head);
                if is_of_now && durable.address > end.address {
                    further = Some(further.map_or(durable, |other| other.later(durable)));
                }
                // Batches of an earlier epoch beyond the end are void.
                let counts = is_of_now || address < end.address;
                if announces && counts && next < self.geometry().segments && sought.insert(next) {
                    begins.push_back(Spot { slot: next, address: following });
                }
            }
        }
        Ok(further)
    }

    /// Step 4. Where a segment's first table is unreadable, an earlier epoch's void remains of that segment may have
    /// been mistaken for it. Then the log is inconsistent, and is read again without those remains.
    fn load_past_void(&mut self, end: LogEnd) -> Result<Loaded, StoreError> {
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

    fn table_of(&self, block: &[u8], Spot { slot, address }: Spot) -> Option<Table> {
        let here = |head: &Head| head.address == address && head.slot == slot;
        self.decode(block).filter(|table| here(&table.head) && self.is_ours(&table.head))
    }

    fn table_again(&self, spot: Spot) -> io::Result<Option<Table>> {
        let mut block = AlignedBytes::zeroed(self.page_bytes());
        let each = block.len();
        self.read(std::iter::once(spot), &mut block, each)?;
        Ok(self.table_of(&block, spot))
    }

    /// The block at a spot, if it was kept.
    fn kept(&self, Spot { slot, address }: Spot) -> Option<&[u8]> {
        let first = address.is_multiple_of(self.segment_pages());
        let blocks = self.first_blocks.as_ref().filter(|_| first)?;
        Some(&blocks[slot as usize * self.page_bytes()..][..self.page_bytes()])
    }
}

/// Spot of an end of the log.
fn spot(end: LogEnd) -> Spot {
    Spot { slot: end.slot, address: end.address }
}

/// True if a spot lies in the last of these segments.
fn is_in_last(live: &[Spot], Spot { address, .. }: Spot, segment_pages: u64) -> bool {
    live.last().is_some_and(|last| last.address / segment_pages == address / segment_pages)
}

impl Stretch {
    fn holds(&self, Spot { slot, address }: Spot, page_bytes: usize) -> bool {
        slot == self.slot && (self.address..self.address + (self.bytes.len() / page_bytes) as u64).contains(&address)
    }

    /// The table at a log address.
    fn table(&self, address: u64, tables: Tables, page_bytes: usize) -> Option<Table> {
        let block = &self.bytes[(address - self.address) as usize * page_bytes..][..page_bytes];
        table::decode(tables, block).filter(|table| table.head.address == address && table.head.slot == self.slot)
    }

    /// True if all pages of a batch agree with their CRCs.
    fn agrees(&self, table: &Table, page_bytes: usize) -> bool {
        let after = (table.head.address + 1 - self.address) as usize * page_bytes;
        let records = table.records.iter().filter(|record| record.kind.has_page());
        let pages = self.bytes[after..].chunks_exact(page_bytes);
        // A batch ends in the segment in which it begins.
        pages.len() >= table.pages as usize
            && (mutant::is(Mutant::NoPageCheck)
                || pages.zip(records).all(|(bytes, record)| crc32c(bytes) == record.crc))
    }
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
