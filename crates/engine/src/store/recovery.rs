//! Opening a log: where it ends, what it holds. `docs/cache-format.md`, "Recovery", numbers the steps.

use super::index::{Entry, Index};
use super::superblock::{Geometry, LogEnd, State, Superblock};
use super::table::{self, Head, Kind, Table};
use super::{Log, LogCounts, StoreError, byte_of, crc32c, next_place};
use crate::disk::{AlignedBytes, Disk, Transfer};
use crate::mutant::{self, Mutant};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// Tables that are read in one submission, each of another segment.
const TABLES: usize = 128;
/// First blocks of segments are kept from step 1 for step 4 if they take no more than this.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Entries of a table between the one that is entered and the one for which memory is asked.
const AHEAD: usize = 12;
/// Bytes of one transfer where whole stretches are read.
const STRETCH_BYTES: usize = 128 << 10;

/// What an open found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The cache had been closed in good order.
    pub clean_shutdown: bool,
    /// Batches after the last sync that counted.
    pub unsynced_batches: u64,
    /// Pages that the log holds, lost ones among them.
    pub pages: u64,
    /// Of them those that the backing store is not known to have.
    pub dirty_pages: u64,
    /// Bytes read of the cache device.
    pub read_bytes: u64,
    /// How long it took.
    pub took: Duration,
}

/// What an open reads of a store.
struct Walk<'d, D> {
    disk: &'d D,
    superblock: Superblock,
    /// The first block of every slot, unless that is too much to keep.
    first_blocks: Option<AlignedBytes>,
    read_bytes: Cell<u64>,
}

/// Consecutive blocks of one segment.
struct Stretch {
    place: u64,
    bytes: AlignedBytes,
}

impl<D: Disk> Log<D> {
    /// Opens the store on a device for a backing store of this identity and size in pages.
    ///
    /// # Errors
    /// Anything but a store in order whose unsynced end may be torn.
    pub fn open(disk: D, backing: [u8; 16], backing_pages: u64) -> Result<(Self, Recovered), StoreError> {
        let started = Instant::now();
        let superblock = Superblock::read(&disk)?;
        check_owner(&superblock, backing, backing_pages)?;
        let read_bytes = Cell::new(Superblock::READ_BYTES);
        let mut walk = Walk { disk: &disk, superblock, first_blocks: None, read_bytes };
        let newest = walk.newest_table()?;
        let certain = newest.as_ref().map_or(superblock.end, |head| head.durable);
        let certain = if superblock.end.place > certain.place { superblock.end } else { certain };
        let (end, unsynced_batches) = walk.walk_unsynced(certain)?;
        walk.check_nothing_durable_follows(end, newest.as_ref())?;
        let index = walk.load(end)?;
        let mut recovered = Recovered {
            clean_shutdown: superblock.state == State::Closed,
            unsynced_batches,
            pages: index.len() as u64,
            dirty_pages: index.dirty_len() as u64,
            read_bytes: walk.read_bytes.get(),
            took: Duration::ZERO,
        };

        let geometry = superblock.geometry;
        let mut log = Log {
            geometry,
            identity: superblock.identity,
            generation: superblock.generation,
            epoch: superblock.epoch + 1,
            index,
            tail: end.tail,
            written_tail: end.tail,
            place: end.place,
            chain: end.chain,
            durable: end,
            unsynced: false,
            sealed: VecDeque::new(),
            buffer: AlignedBytes::zeroed(geometry.segment_bytes() as usize),
            spare: Vec::new(),
            records: Vec::new(),
            pages: 0,
            counts: LogCounts::default(),
            disk,
        };
        // What was just read may be in the kernel's cache only, after the process alone died.
        log.disk.sync()?;
        log.write_superblock(State::Open)?;
        recovered.took = started.elapsed();
        Ok((log, recovered))
    }
}

fn check_owner(superblock: &Superblock, backing: [u8; 16], backing_pages: u64) -> Result<(), StoreError> {
    let identity = superblock.identity;
    if superblock.state == State::Retired {
        return Err(StoreError::Retired);
    }
    if identity.backing != backing {
        return Err(StoreError::OtherBacking { found: identity.backing, expected: backing });
    }
    if identity.backing_pages != backing_pages {
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

    fn damaged(&self, place: u64, why: &'static str) -> StoreError {
        StoreError::Damaged { block: place, byte: byte_of(self.geometry(), place), why }
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

    /// Reads blocks that begin at these places, as many bytes each.
    fn read(&self, places: impl Iterator<Item = u64>, bytes: &mut [u8], each: usize) -> io::Result<()> {
        let reads = places.zip(bytes.chunks_mut(each));
        let mut reads: Vec<Transfer> =
            reads.map(|(place, bytes)| Transfer::Read { at: byte_of(self.geometry(), place), bytes }).collect();
        let read: usize = reads.iter().map(Transfer::len).sum();
        self.read_bytes.set(self.read_bytes.get() + read as u64);
        self.disk.submit(&mut reads)
    }

    /// Step 1: the newest first table of a segment that this epoch has written.
    fn newest_table(&mut self) -> Result<Option<Head>, StoreError> {
        let (page_bytes, segment_pages) = (self.page_bytes(), self.segment_pages());
        let slots = self.geometry().segments as usize;
        let keep = slots * page_bytes <= KEPT_BYTES_MAX;
        let at_once = if keep { slots } else { TABLES };
        let mut blocks = AlignedBytes::zeroed(at_once * page_bytes);
        let mut newest: Option<Head> = None;
        for first in (0..slots).step_by(at_once) {
            let number = at_once.min(slots - first);
            let starts = (first as u64..).map(|slot| slot * segment_pages).take(number);
            self.read(starts.clone(), &mut blocks[..number * page_bytes], page_bytes)?;
            for (block, start) in blocks.chunks_exact(page_bytes).zip(starts) {
                let here = |head: &Head| byte_of(self.geometry(), head.place) == byte_of(self.geometry(), start);
                let Some(head) = table::decode_head(block).filter(|head| here(head) && self.is_ours(head)) else {
                    continue;
                };
                if head.epoch > self.superblock.epoch {
                    return Err(self.damaged(head.place, "it is newer than both superblocks"));
                }
                let newer = newest.as_ref().is_none_or(|other| head.place > other.place);
                if self.is_of_this_epoch(&head) && newer {
                    newest = Some(head);
                }
            }
        }
        self.first_blocks = keep.then_some(blocks);
        Ok(newest)
    }

    /// The blocks from a place to the end of its segment.
    fn rest_of_segment(&self, place: u64) -> io::Result<Stretch> {
        let blocks = self.segment_pages() - place % self.segment_pages();
        let each = STRETCH_BYTES.max(self.page_bytes());
        let mut bytes = AlignedBytes::zeroed(blocks as usize * self.page_bytes());
        self.read((place..).step_by(each / self.page_bytes()), &mut bytes, each)?;
        Ok(Stretch { place, bytes })
    }

    /// Step 2: goes on from where the log was certainly durable as long as batches count.
    fn walk_unsynced(&self, certain: LogEnd) -> Result<(LogEnd, u64), StoreError> {
        let mut end = certain;
        let mut batches = 0;
        let mut stretch = self.rest_of_segment(end.place)?;
        loop {
            if !stretch.holds(end.place, self.page_bytes()) {
                stretch = self.rest_of_segment(end.place)?;
            }
            let Some(table) = stretch.table(end.place, self.page_bytes()) else { break };
            let chained = table.head.chain == end.chain || mutant::is(Mutant::NoLineageCheck);
            if !self.is_of_this_epoch(&table.head) || !chained || !stretch.agrees(&table, self.page_bytes()) {
                break;
            }
            let place = next_place(self.geometry(), end.place, 1 + u64::from(table.pages));
            end = LogEnd { place, tail: table.head.tail, chain: table.crc };
            batches += 1;
        }
        Ok((end, batches))
    }

    /// Step 3: a batch beyond the end that was written when the log was durable past it proves damage.
    fn check_nothing_durable_follows(&self, end: LogEnd, newest: Option<&Head>) -> Result<(), StoreError> {
        let segment_pages = self.segment_pages();
        let last = newest.map_or(end.place, |head| head.place.max(end.place));
        let mut place = end.place;
        while place <= last {
            let stretch = self.rest_of_segment(place)?;
            let next = (place / segment_pages + 1) * segment_pages;
            for place in place..next {
                let table = stretch.table(place, self.page_bytes()).filter(|table| self.is_of_this_epoch(&table.head));
                if table.is_some_and(|table| table.head.durable.place > end.place) {
                    return Err(self.damaged(end.place, "a batch that was durable is not there any more"));
                }
            }
            place = next;
        }
        Ok(())
    }

    /// Step 4: the tables from the tail to the end, oldest first. Segments are independent until then: the first block
    /// of each is a table, so as many are read at once as there are transfers in a submission.
    fn load(&self, end: LogEnd) -> Result<Index, StoreError> {
        let (segment_pages, blocks) = (self.segment_pages(), self.geometry().blocks());
        if !end.tail.is_multiple_of(segment_pages) || end.place - end.tail.min(end.place) > u64::from(blocks) {
            return Err(self.damaged(end.place, "its tail is no place where a live segment can begin"));
        }
        let mut index = Index::new(blocks, end.tail);
        let mut chain = None;
        let starts: Vec<u64> = (end.tail..end.place).step_by(segment_pages as usize).collect();
        for starts in starts.chunks(TABLES) {
            for table in self.tables(starts, end)?.iter().flatten() {
                let place = table.head.place;
                if chain.is_some_and(|chain| chain != table.head.chain) && !mutant::is(Mutant::NoLineageCheck) {
                    return Err(self.damaged(place, "the table does not follow the one before"));
                }
                let pages = self.superblock.identity.backing_pages;
                if table.records.iter().any(|record| record.page >= pages) {
                    return Err(self.damaged(place, "the table names a page beyond the end of the backing store"));
                }
                load_table(table, &mut index);
                chain = Some(table.crc);
            }
        }
        Ok(index)
    }

    /// The tables of segments that begin at these places, up to the end of the log, each segment's in order.
    fn tables(&self, starts: &[u64], end: LogEnd) -> Result<Vec<Vec<Table>>, StoreError> {
        let page_bytes = self.page_bytes();
        let mut tables: Vec<Vec<Table>> = starts.iter().map(|_| Vec::new()).collect();
        let mut wanted: Vec<(usize, u64)> = starts.iter().copied().enumerate().collect();
        let mut blocks = AlignedBytes::zeroed(starts.len() * page_bytes);
        while !wanted.is_empty() {
            let unread = wanted.iter().map(|&(_, place)| place).filter(|&place| self.kept(place).is_none());
            self.read(unread, &mut blocks, page_bytes)?;
            let mut read = blocks.chunks_exact(page_bytes);
            let mut following = Vec::new();
            for (segment, place) in wanted {
                let block = self.kept(place).unwrap_or_else(|| read.next().expect("one for each that was read"));
                let table = match self.table_of(block, place) {
                    // What is wrong on the way may be right on the device.
                    None => self.table_again(place)?,
                    table => table,
                };
                let table =
                    table.ok_or_else(|| self.damaged(place, "a table that was durable is not there any more"))?;
                let next = next_place(self.geometry(), place, 1 + u64::from(table.pages));
                tables[segment].push(table);
                if next < end.place && next / self.segment_pages() == place / self.segment_pages() {
                    following.push((segment, next));
                }
            }
            wanted = following;
        }
        Ok(tables)
    }

    fn table_of(&self, block: &[u8], place: u64) -> Option<Table> {
        table::decode(block).filter(|table| table.head.place == place && self.is_ours(&table.head))
    }

    fn table_again(&self, place: u64) -> io::Result<Option<Table>> {
        let mut block = AlignedBytes::zeroed(self.page_bytes());
        let each = block.len();
        self.read(std::iter::once(place), &mut block, each)?;
        Ok(self.table_of(&block, place))
    }

    /// The block at a place if it was kept.
    fn kept(&self, place: u64) -> Option<&[u8]> {
        let (segment, within) = (place / self.segment_pages(), place % self.segment_pages());
        let blocks = self.first_blocks.as_ref().filter(|_| within == 0)?;
        let slot = (segment % u64::from(self.geometry().segments)) as usize;
        Some(&blocks[slot * self.page_bytes()..][..self.page_bytes()])
    }
}

impl Stretch {
    fn holds(&self, place: u64, page_bytes: usize) -> bool {
        (self.place..self.place + (self.bytes.len() / page_bytes) as u64).contains(&place)
    }

    /// The table at a place.
    fn table(&self, place: u64, page_bytes: usize) -> Option<Table> {
        let block = &self.bytes[(place - self.place) as usize * page_bytes..][..page_bytes];
        table::decode(block).filter(|table| table.head.place == place)
    }

    /// Do all pages of a batch agree with their CRCs?
    fn agrees(&self, table: &Table, page_bytes: usize) -> bool {
        let after = (table.head.place + 1 - self.place) as usize * page_bytes;
        let records = table.records.iter().filter(|record| record.kind.has_page());
        let pages = self.bytes[after..].chunks_exact(page_bytes);
        // A batch ends in the segment in which it begins.
        pages.len() >= table.pages as usize
            && (mutant::is(Mutant::NoPageCheck)
                || pages.zip(records).all(|(bytes, record)| crc32c(bytes) == record.crc))
    }
}

fn load_table(table: &Table, index: &mut Index) {
    let mut place = table.head.place;
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
                place += u64::from(!lost);
                let at = if lost { table.head.place } else { place };
                let dirty = record.kind != Kind::Clean;
                index.insert(page, Entry { place: at, crc: record.crc, dirty, resident: false, lost });
            }
        }
    }
}
