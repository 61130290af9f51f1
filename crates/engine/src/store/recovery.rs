//! Opening a log: where it ends, what it holds. `docs/cache-format.md`, "Recovery", numbers the steps.

use super::index::{Entry, Index};
use super::superblock::{Geometry, LogEnd, State, Superblock};
use super::table::{self, Kind, Table};
use super::{Log, LogCounts, Segments, StoreError, byte_of, crc32c, next_place};
use crate::disk::{AlignedBytes, Disk};
use crate::mutant::{self, Mutant};
use std::collections::VecDeque;

/// First blocks of segments that are read in one submission.
const SCAN_BATCH: usize = 64;

/// What an open found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The cache had been closed in good order.
    pub clean_shutdown: bool,
    /// Batches after the last sync that counted.
    pub unsynced_batches: u64,
}

/// A batch that counts, found while walking.
struct Walk<'d, D> {
    disk: &'d D,
    superblock: Superblock,
}

impl<D: Disk> Log<D> {
    /// Opens the store on a device for a backing store of this identity and size in pages.
    ///
    /// # Errors
    /// Anything but a store in order whose unsynced end may be torn.
    pub fn open(disk: D, backing: [u8; 16], backing_pages: u64) -> Result<(Self, Recovered), StoreError> {
        let superblock = Superblock::read(&disk)?;
        check_owner(&superblock, backing, backing_pages)?;
        let walk = Walk { disk: &disk, superblock };
        let newest = walk.newest_table()?;
        let certain = newest.as_ref().map_or(superblock.end, |table| table.head.durable);
        let certain = if superblock.end.place > certain.place { superblock.end } else { certain };
        let (end, unsynced_batches) = walk.walk_unsynced(certain)?;
        walk.check_nothing_durable_follows(end, newest.as_ref())?;
        let (index, segments) = walk.load(end)?;

        let geometry = superblock.geometry;
        let mut log = Log {
            geometry,
            identity: superblock.identity,
            generation: superblock.generation,
            epoch: superblock.epoch + 1,
            index,
            segments,
            tail: end.tail,
            written_tail: end.tail,
            place: end.place,
            chain: end.chain,
            durable: end,
            unsynced: false,
            buffer: AlignedBytes::zeroed(geometry.segment_bytes() as usize),
            records: Vec::new(),
            pages: 0,
            counts: LogCounts::default(),
            disk,
        };
        // What was just read may be in the kernel's cache only, after the process alone died.
        log.disk.sync()?;
        log.write_superblock(State::Open)?;
        Ok((log, Recovered { clean_shutdown: superblock.state == State::Closed, unsynced_batches }))
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

    fn is_ours(&self, table: &Table) -> bool {
        table.head.uuid == self.superblock.identity.uuid || mutant::is(Mutant::NoUuidCheck)
    }

    fn is_of_this_epoch(&self, table: &Table) -> bool {
        self.is_ours(table) && (table.head.epoch == self.superblock.epoch || mutant::is(Mutant::NoLineageCheck))
    }

    fn table_at(&self, place: u64) -> Result<Option<Table>, StoreError> {
        let mut block = AlignedBytes::zeroed(self.page_bytes());
        self.disk.read_at(byte_of(self.geometry(), place), &mut block)?;
        Ok(table::decode(&block).filter(|table| table.head.place == place))
    }

    /// Step 1: the newest first table of a segment that this epoch has written.
    fn newest_table(&self) -> Result<Option<Table>, StoreError> {
        let (geometry, page_bytes) = (*self.geometry(), self.page_bytes());
        let mut blocks = AlignedBytes::zeroed(SCAN_BATCH * page_bytes);
        let mut newest: Option<Table> = None;
        let slots: Vec<u64> = (0..u64::from(geometry.segments)).collect();
        for batch in slots.chunks(SCAN_BATCH) {
            let starts = batch.iter().map(|slot| slot * u64::from(geometry.segment_pages));
            let mut reads: Vec<_> = blocks
                .chunks_exact_mut(page_bytes)
                .zip(starts.clone())
                .map(|(bytes, start)| crate::disk::Transfer::Read { at: byte_of(&geometry, start), bytes })
                .collect();
            self.disk.submit(&mut reads)?;
            for (block, start) in blocks.chunks_exact(page_bytes).zip(starts) {
                let here = |table: &Table| byte_of(&geometry, table.head.place) == byte_of(&geometry, start);
                let Some(table) = table::decode(block).filter(|table| here(table) && self.is_ours(table)) else {
                    continue;
                };
                if table.head.epoch > self.superblock.epoch {
                    return Err(self.damaged(table.head.place, "it is newer than both superblocks"));
                }
                let newer = newest.as_ref().is_none_or(|other| table.head.place > other.head.place);
                if self.is_of_this_epoch(&table) && newer {
                    newest = Some(table);
                }
            }
        }
        Ok(newest)
    }

    /// Step 2: goes on from where the log was certainly durable as long as batches count.
    fn walk_unsynced(&self, certain: LogEnd) -> Result<(LogEnd, u64), StoreError> {
        let mut end = certain;
        let mut batches = 0;
        while let Some(table) = self.table_at(end.place)? {
            let chained = table.head.chain == end.chain || mutant::is(Mutant::NoLineageCheck);
            if !self.is_of_this_epoch(&table) || !chained || !self.pages_agree(&table)? {
                break;
            }
            let place = next_place(self.geometry(), end.place, 1 + u64::from(table.pages));
            end = LogEnd { place, tail: table.head.tail, chain: table.crc };
            batches += 1;
        }
        Ok((end, batches))
    }

    fn pages_agree(&self, table: &Table) -> Result<bool, StoreError> {
        if table.pages == 0 || mutant::is(Mutant::NoPageCheck) {
            return Ok(true);
        }
        let mut pages = AlignedBytes::zeroed(table.pages as usize * self.page_bytes());
        self.disk.read_at(byte_of(self.geometry(), table.head.place + 1), &mut pages)?;
        let records = table.records.iter().filter(|record| record.kind.has_page());
        Ok(pages.chunks_exact(self.page_bytes()).zip(records).all(|(bytes, record)| crc32c(bytes) == record.crc))
    }

    /// Step 3: a batch beyond the end that was written when the log was durable past it proves damage.
    fn check_nothing_durable_follows(&self, end: LogEnd, newest: Option<&Table>) -> Result<(), StoreError> {
        let segment_pages = u64::from(self.geometry().segment_pages);
        let last = newest.map_or(end.place, |table| table.head.place.max(end.place));
        for place in end.place..(last / segment_pages + 1) * segment_pages {
            let table = self.table_at(place)?.filter(|table| self.is_of_this_epoch(table));
            if table.is_some_and(|table| table.head.durable.place > end.place) {
                return Err(self.damaged(end.place, "a batch that was durable is not there any more"));
            }
        }
        Ok(())
    }

    /// Step 4: the tables from the tail to the end, oldest first.
    fn load(&self, end: LogEnd) -> Result<(Index, Segments), StoreError> {
        let segment_pages = u64::from(self.geometry().segment_pages);
        let mut index = Index::default();
        let mut segments = VecDeque::from([Vec::new()]);
        let mut chain = None;
        let mut place = end.tail;
        while place < end.place {
            let table = self.table_at(place)?.filter(|table| self.is_ours(table));
            let table = table.ok_or_else(|| self.damaged(place, "a table that was durable is not there any more"))?;
            if chain.is_some_and(|chain| chain != table.head.chain) && !mutant::is(Mutant::NoLineageCheck) {
                return Err(self.damaged(place, "the table does not follow the one before"));
            }
            let pages = self.superblock.identity.backing_pages;
            if table.records.iter().any(|record| record.page >= pages) {
                return Err(self.damaged(place, "the table names a page beyond the end of the backing store"));
            }
            let segment = segments.back_mut().expect("never empty");
            load_table(&table, segment_pages, &mut index, segment);
            chain = Some(table.crc);
            let next = next_place(self.geometry(), place, 1 + u64::from(table.pages));
            if next / segment_pages > place / segment_pages {
                segments.push_back(Vec::new());
            }
            place = next;
        }
        Ok((index, segments))
    }
}

fn load_table(table: &Table, segment_pages: u64, index: &mut Index, segment: &mut Vec<(u64, u32)>) {
    let mut place = table.head.place;
    for record in &table.records {
        let page = record.page;
        let lost = record.kind == Kind::Lost;
        match record.kind {
            Kind::Gone => index.remove(page),
            Kind::Cleaned => index.update(page, |entry| entry.dirty = false),
            Kind::Clean | Kind::Dirty | Kind::Lost => {
                place += u64::from(!lost);
                let at = if lost { table.head.place } else { place };
                segment.push((page, (at % segment_pages) as u32));
                let dirty = record.kind != Kind::Clean;
                index.insert(page, Entry { place: at, crc: record.crc, dirty, resident: false, lost });
            }
        }
    }
}
