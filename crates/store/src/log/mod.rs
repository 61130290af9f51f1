//! The log layout of a cache store: versions of pages are appended to a log, in batches that each begin with a table.
//! `docs/cache-format.md` draws it to the byte.

mod recovery;

pub(super) use recovery::first_blocks_read_again;

use super::age;
use super::arena::Arena;
use super::batch::Batch;
use super::checksum::check_page;
use super::counts::StoreCounts;
use super::error::StoreError;
use super::geometry::{Geometry, Tables};
use super::index::{Entry, Index};
use super::log_end::LogEnd;
use super::memory::{BatchMemory, Memories, Unfilled};
use super::rewrite::{self, Copied, Past};
use super::standing::{Standing, SyncPoint, sync_device};
use super::superblock::State;
use super::table::{self, Head, Kind, Record};
use crate::mutant::{self, Mutant};
use entresol_disk::Disk;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// The log layout: the log on a device, and its newest version of each page.
pub struct LogStore<D> {
    disk: D,
    geometry: Geometry,
    pub(crate) standing: Standing,
    /// Newest version of each page in the log.
    pub index: Index,
    /// Slots of the device in the order of writing: segment `s` lies in the slot at `s` modulo their number.
    order: Vec<u32>,
    tail: u64,
    /// Tail in the last table written.
    written_tail: u64,
    /// Log address of the open batch.
    address: u64,
    chain: u32,
    durable: LogEnd,
    unsynced: bool,
    /// Sealed batches that the device may not have yet, oldest first.
    sealed: VecDeque<Arc<Batch>>,
    /// The open batch: its table is written into the first block when the batch is sealed.
    buffer: Arc<BatchMemory>,
    /// Memory for future batches.
    memories: Memories,
    records: Vec<Record>,
    /// Position in `records` of the entry of each page of the open batch.
    versions: Vec<u32>,
    pages: usize,
    counts: StoreCounts,
    /// Tables that were taken from their copies.
    copied: Vec<Copied>,
    /// Findings about missing tables, of a store that was read in spite of them.
    pub(crate) past: Option<Past>,
}

impl<D: Disk> LogStore<D> {
    /// Writes the tables that were taken from their copies. Returns their offsets on the device in bytes.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn rewrite_copied(&mut self) -> io::Result<Vec<u64>> {
        rewrite::write(&self.disk, &std::mem::take(&mut self.copied))
    }

    /// Has batches be kept in an arena from now on. Nothing may have been appended yet.
    pub fn keep_in(&mut self, arena: &Arc<Arena>) {
        self.memories.keep_in(arena);
        self.buffer = self.memories.next();
    }

    /// Blocks of the memory of a batch.
    pub fn batch_blocks(&self) -> usize {
        self.memories.blocks()
    }

    /// Sizes of the store.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Counts of the log's work since the open.
    pub fn counts(&self) -> StoreCounts {
        self.counts
    }

    fn page_bytes(&self) -> usize {
        self.geometry.page_bytes as usize
    }

    fn segment_pages(&self) -> u64 {
        u64::from(self.geometry.segment_pages)
    }

    /// Offset of a log address on the device, in bytes.
    pub fn byte_of(&self, address: u64) -> u64 {
        byte_of(&self.geometry, self.standing.tables(), self.slot_of(address), address)
    }

    /// The slot in which the segment of a log address lies, or will lie.
    fn slot_of(&self, address: u64) -> u32 {
        self.order[(address / self.segment_pages() % self.order.len() as u64) as usize]
    }

    /// The device that holds the store.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Counts reads of the device that others perform.
    pub fn count_reads(&mut self, reads: u64) {
        self.counts.reads += reads;
    }

    /// Copies a version that only memory holds; false if the device has it.
    pub fn read_open(&self, entry: Entry, bytes: &mut [u8]) -> bool {
        let block = if entry.lost { None } else { self.block_in_memory(entry.address) };
        block.inspect(|block| bytes.copy_from_slice(block)).is_some()
    }

    /// Bytes of a version that only memory holds, unless its block is still to be filled.
    pub fn filled_open(&self, entry: Entry) -> Option<&[u8]> {
        if entry.lost {
            None
        } else if self.is_open(entry.address) {
            self.buffer.filled_now((entry.address - self.address) as usize)
        } else {
            self.sealed.iter().find(|batch| batch.holds(entry.address))?.block_now(entry.address)
        }
    }

    /// True if only memory has a version, or a batch that is being written.
    pub(super) fn is_in_memory(&self, address: u64) -> bool {
        self.is_open(address) || self.sealed.iter().any(|batch| batch.holds(address))
    }

    fn block_in_memory(&self, address: u64) -> Option<&[u8]> {
        if self.is_open(address) {
            return Some(self.buffer.filled((address - self.address) as usize));
        }
        let batch = self.sealed.iter().find(|batch| batch.holds(address))?;
        Some(batch.block(address))
    }

    /// Blocks from the open batch to the end of its segment.
    fn blocks_left(&self) -> usize {
        (self.segment_pages() - self.address % self.segment_pages()) as usize
    }

    /// Segments after the open one that may be written: all of their former contents is dead, durably.
    pub fn free_segments(&self) -> u64 {
        self.free_before(if mutant::is(Mutant::ReuseTooEarly) { self.tail } else { self.durable.tail })
    }

    /// Free segments, once it is durable that the dropped segments are dead.
    pub fn free_segments_once_durable(&self) -> u64 {
        self.free_before(self.tail)
    }

    fn free_before(&self, tail: u64) -> u64 {
        let occupied = self.address / self.segment_pages() + 1 - tail / self.segment_pages();
        u64::from(self.geometry.segments).saturating_sub(occupied)
    }

    /// Log address after everything appended.
    pub fn rear(&self) -> u64 {
        self.address + if self.records.is_empty() { 0 } else { 1 + self.pages as u64 }
    }

    /// True if everything appended is durable.
    pub fn is_durable(&self) -> bool {
        self.records.is_empty() && !self.unsynced
    }

    /// True if the log address is that of a version in the open batch.
    fn is_open(&self, address: u64) -> bool {
        address >= self.address
    }

    /// Appends a version of a page with this CRC, which becomes the log's newest. Returns its log address, and its
    /// block, which is to be filled.
    ///
    /// # Errors
    /// `StorageFull` without a free segment: a fault of the code that reclaims.
    pub fn append(&mut self, page: u64, crc: u32, dirty: bool, resident: bool) -> io::Result<(u64, Unfilled)> {
        self.reserve(1)?;
        let block = 1 + self.pages;
        let kind = if dirty { Kind::Dirty } else { Kind::Clean };
        self.versions.push(self.records.len() as u32);
        self.records.push(Record { page, kind, age: age::UNKNOWN, crc });
        self.pages += 1;
        let address = self.address + block as u64;
        self.index.insert(page, Entry { address, crc, dirty, resident, lost: false });
        Ok((address, self.buffer.reserve(block, dirty.then_some(page))))
    }

    /// Puts a version with this CRC in place of one in the open batch; none if the page has no such version. The older
    /// version never reached the device and no flush promised it, so it need not be written. Returns as
    /// [`append`](LogStore::append) does.
    pub fn rewrite(&mut self, page: u64, crc: u32, dirty: bool, resident: bool) -> Option<(u64, Unfilled)> {
        let entry = self.index.get(page).filter(|entry| !entry.lost && self.is_open(entry.address))?;
        let block = (entry.address - self.address) as usize;
        let record = &mut self.records[self.versions[block - 1] as usize];
        // A later entry that the page was cleaned would be taken for the new version's.
        if record.kind == Kind::Dirty && !entry.dirty && !mutant::is(Mutant::RewriteCleaned) {
            return None;
        }
        let noted = (dirty && record.kind != Kind::Dirty).then_some(page);
        record.kind = if dirty { Kind::Dirty } else { Kind::Clean };
        record.crc = crc;
        self.index.insert(page, Entry { crc, dirty, resident, ..entry });
        self.counts.rewritten += 1;
        Some((entry.address, self.buffer.reserve(block, noted)))
    }

    /// Declares that the log's version of a page is obsolete.
    ///
    /// # Errors
    /// As [`append`](LogStore::append).
    pub fn gone(&mut self, page: u64) -> io::Result<()> {
        self.record(page, Kind::Gone)?;
        self.buffer.note_gone(page);
        self.index.remove(page);
        Ok(())
    }

    /// Declares that the backing store has the log's version of a page.
    ///
    /// # Errors
    /// As [`append`](LogStore::append).
    pub fn cleaned(&mut self, page: u64) -> io::Result<()> {
        self.index.update(page, |entry| entry.dirty = false);
        // The entry spares work after a crash. That is not worth the space that reclaim needs.
        if self.free_segments() > 1 {
            return self.record(page, Kind::Cleaned);
        }
        self.index.leave_unsaid(page);
        Ok(())
    }

    /// As [`AnyStore::enter_clean`](crate::AnyStore::enter_clean).
    ///
    /// # Errors
    /// As [`append`](LogStore::append).
    pub fn enter_clean(&mut self, page: u64) -> io::Result<()> {
        if self.index.take_unsaid(page) { self.record(page, Kind::Cleaned) } else { Ok(()) }
    }

    /// Declares that the only copy of a page cannot be read.
    ///
    /// # Errors
    /// As [`append`](LogStore::append).
    pub fn lost(&mut self, page: u64) -> io::Result<()> {
        self.record(page, Kind::Lost)?;
        self.index.insert(page, Entry { address: self.address, crc: 0, dirty: true, resident: false, lost: true });
        Ok(())
    }

    fn record(&mut self, page: u64, kind: Kind) -> io::Result<()> {
        self.reserve(0)?;
        self.records.push(Record { page, kind, age: age::UNKNOWN, crc: 0 });
        Ok(())
    }

    /// Makes space in the open batch for one entry and so many pages.
    fn reserve(&mut self, pages: usize) -> io::Result<()> {
        let (tables, page_bytes, entries) = (self.standing.tables(), self.page_bytes(), self.records.len() + 1);
        let full = entries > table::entries_beside(tables, page_bytes, self.standing.carried.as_deref());
        let copies = table::copies(tables, page_bytes, entries);
        if full || self.buffer.is_list_full() || 1 + self.pages + pages + copies > self.blocks_left() {
            self.seal();
        }
        let segment = self.address / self.segment_pages();
        let limit = if mutant::is(Mutant::ReuseTooEarly) { self.tail } else { self.durable.tail };
        if segment >= limit / self.segment_pages() + u64::from(self.geometry.segments) {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the cache log has no free segment"));
        }
        Ok(())
    }

    /// Seals the open batch, unless it has neither entries nor a new tail. Any thread may then write the
    /// [sealed batches](LogStore::sealed), with or without the core's lock; [`tidy`](LogStore::tidy) follows.
    pub fn seal(&mut self) {
        if self.records.is_empty() && self.written_tail == self.tail {
            return;
        }
        let head = Head {
            uuid: self.standing.uuid(),
            epoch: self.standing.epoch(),
            address: self.address,
            slot: self.slot_of(self.address),
            next: self.slot_of(self.address + self.segment_pages()),
            tail: self.tail,
            durable: self.durable,
            chain: self.chain,
            clock: self.standing.clock(),
        };
        let (tables, page_bytes) = (self.standing.tables(), self.page_bytes());
        for record in self.records.iter_mut().filter(|record| record.kind == Kind::Dirty) {
            record.age = self.standing.age_code(record.page, head.clock);
        }
        let carried = self.standing.carried.take();
        let mut crc = 0;
        self.buffer.write(0..page_bytes, |block| {
            crc = table::encode(tables, &head, &self.records, carried.as_deref(), block);
        });
        let copies = table::copies(tables, page_bytes, self.records.len());
        if copies > 0 {
            let copy = (1 + self.pages) * page_bytes;
            self.buffer.write(copy..copy + page_bytes, |block| block.copy_from_slice(self.buffer.at(0..page_bytes)));
        } else if tables == Tables::V3 {
            self.standing.carried = Some(Arc::new(table::carry(&head, &self.records, crc)));
        }
        let blocks = 1 + self.pages + copies;
        let bytes = std::mem::replace(&mut self.buffer, self.memories.next());
        let writes = vec![(self.byte_of(self.address), 0..blocks * page_bytes)];
        let batch = Batch::new(self.address, blocks, writes, bytes);
        self.sealed.push_back(Arc::new(batch));
        self.counts.batches += 1;
        self.counts.blocks += blocks as u64;
        self.counts.pages += self.pages as u64;
        self.chain = crc;
        self.written_tail = self.tail;
        self.records.clear();
        self.versions.clear();
        self.pages = 0;
        self.unsynced = true;
        self.address = next_address(&self.geometry, self.address, blocks as u64);
    }

    /// Batches that the device may not have yet, in the order of writing.
    pub fn sealed(&self) -> Vec<Arc<Batch>> {
        self.sealed.iter().cloned().collect()
    }

    /// Complete batches in memory that the device does not have yet.
    pub fn sealed_len(&self) -> usize {
        self.sealed.len()
    }

    /// Forgets batches that the device has: their pages are read from the device from now on.
    pub fn tidy(&mut self) {
        while self.sealed.front().is_some_and(|batch| batch.is_written()) {
            let Some(batch) = self.sealed.pop_front() else { return };
            batch.release();
            // The thread that wrote the batch may still hold it.
            self.memories.put(Arc::into_inner(batch).and_then(Batch::into_memory));
        }
    }

    /// Writes the open batch and all before it.
    ///
    /// # Errors
    /// The error that the device returned. Batches that could not be written stay sealed.
    pub fn write_out(&mut self) -> io::Result<()> {
        self.seal();
        let written = self.sealed.iter().try_for_each(|batch| batch.write(&self.disk));
        self.tidy();
        written
    }

    /// Makes everything durable that was written out.
    ///
    /// # Errors
    /// The error that the device returned. The fate of all writes since the last success is then unknown.
    pub fn sync(&mut self) -> io::Result<()> {
        if let Some(end) = self.unsynced() {
            sync_device(&self.disk)?;
            end.write_record(&self.disk)?;
            self.synced(end);
        }
        Ok(())
    }

    /// Whole segments' worth written since the last sync.
    pub fn unsynced_segments(&self) -> u64 {
        (self.address - self.durable.address) / self.segment_pages()
    }

    /// Sync point of a device sync that begins when all sealed batches are written: the log is durable to there
    /// afterwards. None if the log is durable.
    pub fn unsynced(&self) -> Option<SyncPoint> {
        let end = LogEnd {
            address: self.address,
            slot: self.slot_of(self.address),
            tail: self.written_tail,
            chain: self.chain,
        };
        self.unsynced.then(|| self.standing.sync_point(end))
    }

    /// Sync point of the last durable end, recorded once more with the current time. None while a write is not synced.
    pub fn restated(&self) -> Option<SyncPoint> {
        (!self.unsynced).then(|| self.standing.sync_point(self.durable))
    }

    /// Notes that the sync of this point has succeeded.
    pub fn synced(&mut self, SyncPoint { end, .. }: SyncPoint) {
        self.counts.syncs += 1;
        if end.address >= self.durable.address {
            self.durable = end;
            self.unsynced = end.address != self.address;
        }
    }

    /// True if the log is durable up to a log address, and its current tail as well.
    pub fn is_durable_to(&self, address: u64) -> bool {
        self.durable.address >= address && self.durable.tail >= self.tail
    }

    /// True if everything before a log address is durable. The tail may not be.
    pub fn is_written_durably(&self, address: u64) -> bool {
        self.durable.address >= address
    }

    /// Age of a version: the number of versions appended since, or a little more.
    pub fn age(&self, address: u64) -> u64 {
        self.rear().saturating_sub(address)
    }

    /// True if the version at a log address is durable.
    pub fn is_version_durable(&self, address: u64) -> bool {
        self.is_written_durably(address + 1)
    }

    /// Reads a version.
    ///
    /// # Errors
    /// `InvalidData` if the bytes are not those that were written; otherwise the device's error.
    pub fn read(&mut self, entry: Entry, bytes: &mut [u8]) -> io::Result<()> {
        if entry.lost {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the only copy of this page was lost"));
        }
        if self.read_open(entry, bytes) {
            return Ok(());
        }
        // A transfer may have damaged bytes that are sound on the device: a copy is bad only if two reads are.
        match self.read_device(entry, bytes) {
            Err(_) if !mutant::is(Mutant::ReadOnce) => self.read_device(entry, bytes),
            read => read,
        }
    }

    fn read_device(&mut self, entry: Entry, bytes: &mut [u8]) -> io::Result<()> {
        self.counts.reads += 1;
        let byte = self.byte_of(entry.address);
        self.disk.read_at(byte, bytes)?;
        check_page(entry, bytes)
    }

    /// Segments from the tail to the open one, both included.
    fn live_segments(&self) -> u64 {
        self.address / self.segment_pages() + 1 - self.tail / self.segment_pages()
    }

    /// Pages and log addresses of the newest versions in the n-th oldest segment; none if that is the open one.
    pub fn segment(&self, n: usize) -> Option<Vec<(u64, u64)>> {
        let start = self.tail + n as u64 * self.segment_pages();
        (n as u64 + 1 < self.live_segments()).then(|| self.index.between(start, self.segment_pages()))
    }

    /// Pages and log addresses of the newest versions in the segment of a log address, and where the next segment
    /// begins. A log address before the tail stands for the oldest segment. None if the segment is the open one.
    pub fn segment_from(&self, address: u64) -> Option<(u64, Vec<(u64, u64)>)> {
        let n = address.saturating_sub(self.tail) / self.segment_pages();
        let next = self.tail + (n + 1) * self.segment_pages();
        Some((next, self.segment(n as usize)?))
    }

    /// Declares the oldest segment dead. The next table says so.
    pub fn drop_oldest_segment(&mut self) {
        assert!(self.live_segments() > 1, "the segment being filled is the only one");
        self.tail += self.segment_pages();
        self.index.move_tail(self.segment_pages());
    }

    /// Grows the log to so many segments. The device must have the bytes for them, durably.
    ///
    /// # Errors
    /// `Geometry` if there can be no such log, `TooSmall` if the device is too small. Otherwise the device's error,
    /// after which the log must not be used any more.
    pub fn grow(&mut self, segments: u32) -> Result<(), StoreError> {
        let before = self.geometry;
        let grown = Geometry { segments, ..before };
        grown.check()?;
        if segments <= before.segments {
            return Err(StoreError::Geometry { geometry: grown, why: "it has as many segments already" });
        }
        let (needed, found) = (grown.size_bytes(), self.disk.size_bytes());
        if found < needed {
            return Err(StoreError::TooSmall { needed, found });
        }
        self.geometry = grown;
        self.standing.set_segments(segments);
        if !mutant::is(Mutant::GrownUnsaid) {
            self.write_superblock(State::Open)?;
        }
        // The new slots come after that of the open segment, and its next table says so. The order of all others stays.
        let (first, count) = (self.durable.tail / self.segment_pages(), u64::from(before.segments));
        let until_now = self.address / self.segment_pages() + 1 - first;
        let old = |ahead: u64| self.order[((first + ahead) % count) as usize];
        let slots = (0..until_now).map(old).chain(before.segments..segments).chain((until_now..count).map(old));
        let mut order = vec![0; segments as usize];
        for (segment, slot) in (first..).zip(slots) {
            order[(segment % u64::from(segments)) as usize] = slot;
        }
        self.order = order;
        self.index = self.index.grown(grown.blocks());
        Ok(())
    }

    /// Notes in the superblock that the log ends in good order. Everything must be durable.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn close(&mut self) -> io::Result<()> {
        assert!(self.is_durable(), "a log is flushed before it is closed");
        self.write_superblock(State::Closed)
    }

    /// Marks the contents as not to be trusted again, in the superblock, if the device still takes it.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn retire(&mut self) -> io::Result<()> {
        if mutant::is(Mutant::RetireUnmarked) {
            return Ok(());
        }
        self.write_superblock(State::Retired)
    }

    /// Writes both superblocks while the log is in use.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn write_open(&mut self) -> io::Result<()> {
        self.write_superblock(State::Open)
    }

    fn write_superblock(&mut self, state: State) -> io::Result<()> {
        self.standing.write(&self.disk, state, self.durable)
    }
}

/// Offset of a log address on the device, in bytes, if its segment lies in this slot.
fn byte_of(geometry: &Geometry, tables: Tables, slot: u32, address: u64) -> u64 {
    let within = address % u64::from(geometry.segment_pages);
    tables.base(geometry) + u64::from(slot) * geometry.segment_bytes() + within * u64::from(geometry.page_bytes)
}

/// Log address of the batch after one of so many blocks. The last block of a segment alone holds no batch and is
/// skipped.
fn next_address(geometry: &Geometry, address: u64, blocks: u64) -> u64 {
    let segment_pages = u64::from(geometry.segment_pages);
    let next = address + blocks;
    let left = segment_pages - next % segment_pages;
    if left < 2 { next + left } else { next }
}
