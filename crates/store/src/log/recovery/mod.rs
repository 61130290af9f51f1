//! Opening a log: its end, and with `load.rs` its contents. `docs/cache-format.md`, "Recovery", numbers the steps.

mod load;

use super::{LogStore, byte_of, next_address};
use crate::ages::Ages;
use crate::checksum::crc32c;
use crate::clock::Clock;
use crate::commit::Commit;
use crate::counts::{Recovered, StoreCounts};
use crate::error::StoreError;
use crate::geometry::{Geometry, Tables};
use crate::index::Index;
use crate::log_end::{LogEnd, PLACES_MAX};
use crate::memory::Memories;
use crate::mutant::{self, Mutant};
use crate::rewrite::{Copied, Past};
use crate::standing::{self, Standing};
use crate::superblock::{State, Superblock, check_owner};
use crate::table::{self, Head, Table};
use entresol_disk::{AlignedBytes, Disk, Transfer};
use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::time::Instant;

/// Tables that are read in one submission, each of another segment.
const TABLES: usize = 128;
/// Most bytes of first blocks that are kept from step 1 for step 4.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Most times that a durable end stated by one table is followed to a further one.
const ROUNDS_MAX: usize = 8;
/// Bytes of one transfer in reads of a whole stretch.
const STRETCH_BYTES: usize = 128 << 10;

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
        let mut memories = Memories::new(geometry.batch_blocks(), geometry.page_bytes as usize);
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
            buffer: memories.next(),
            memories,
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

    /// As [`AnyStore::begin`](crate::AnyStore::begin).
    ///
    /// # Errors
    /// As there.
    pub fn begin(&mut self) -> io::Result<()> {
        self.standing.begin(&self.disk, self.durable)
    }
}

/// First blocks of segments that an open reads twice, because they are too many to keep.
pub(crate) fn first_blocks_read_again(geometry: &Geometry) -> u64 {
    let blocks = u64::from(geometry.segments);
    if blocks * u64::from(geometry.page_bytes) > KEPT_BYTES_MAX as u64 { blocks } else { 0 }
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
}

/// Spot of an end of the log.
fn spot(end: LogEnd) -> Spot {
    Spot { slot: end.slot, address: end.address }
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
