//! The slots layout of a cache store: every page in a slot of its own, and a journal of the pages in slots.
//! `docs/cache-format.md`, "The slots layout", draws it to the byte.
//!
//! The interface is that of a [log](super::LogStore): versions are appended, and each makes the one before
//! obsolete. A new version goes to a free slot. The old version's slot is written again once a durable block
//! states that the block which freed it is durable.

mod free;
mod recovery;

use super::age;
use super::areas::Areas;
use super::batch::Batch;
use super::checksum::check_page;
use super::counts::StoreCounts;
use super::geometry::{Geometry, Tables};
use super::index::{Entry, Index};
use super::journal::{self, Head, Kind, Record};
use super::log_end::LogEnd;
use super::rewrite::{self, Copied, Past};
use super::standing::{Standing, SyncPoint, sync_device};
use super::superblock::State;
use crate::arena::Arena;
use crate::memory::{BatchMemory, Memories, Unfilled};
use crate::mutant::{self, Mutant};
use entresol_disk::Disk;
use free::Free;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Most blocks of the journal that are renewed at once.
const RENEWED_MAX: u64 = 256;

/// The slots layout: the slots on a device, their journal, and the newest version of each page.
pub struct Slots<D> {
    disk: D,
    geometry: Geometry,
    areas: Areas,
    pub(crate) standing: Standing,
    /// Newest version of each page in the slots.
    pub index: Index,
    free: Free,
    /// Slot at which the search for versions that the policy does not hold continues.
    hand: usize,
    tail: u64,
    /// Tail in the last block written.
    written_tail: u64,
    /// Number of the open block of the journal.
    number: u64,
    chain: u32,
    durable: LogEnd,
    /// Number of the version after the durable ones.
    durable_versions: u32,
    /// Blocks that are not known to be durable.
    statements: VecDeque<Statement>,
    /// True if a block must be written to state the durable end, even without entries.
    must_state: bool,
    unsynced: bool,
    /// Pages written since the last sync.
    unsynced_pages: u64,
    /// Sealed batches that the device may not have yet, oldest first, with their first versions.
    sealed: VecDeque<(u32, Arc<Batch>)>,
    /// Space for the open block, and after it its pages in the order of their versions.
    buffer: Arc<BatchMemory>,
    /// Memory for future batches.
    memories: Memories,
    /// The first version of the open block.
    first: u32,
    /// The slots of the open batch's pages, in the same order.
    fresh: Vec<u32>,
    records: Vec<Record>,
    /// Position in `records` of the entry of each page of the open batch.
    versions: Vec<u32>,
    counts: StoreCounts,
    /// Blocks of the journal that were taken from their copies.
    copied: Vec<Copied>,
    /// Findings about missing blocks, of a store that was read in spite of them.
    pub(crate) past: Option<Past>,
}

/// Statement of a block of the journal, apart from its entries.
struct Statement {
    block: u64,
    /// Durable end of the journal, as a block's number, when the block was written.
    durable: u64,
    /// Number of the version after those of the block.
    versions: u32,
}

/// Slot of an address. An address is a slot and the version's number, which tells it from other versions in the slot.
/// (Numbers repeat after 2^32 versions; no address is kept that long.)
fn slot_of(address: u64) -> u32 {
    address as u32
}

fn version_of(address: u64) -> u32 {
    (address >> 32) as u32
}

impl<D: Disk> Slots<D> {
    /// Writes the blocks of the journal that were taken from their copies. Returns their offsets on the device in
    /// bytes.
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

    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Counts of the store's work since the open.
    pub fn counts(&self) -> StoreCounts {
        self.counts
    }

    fn page_bytes(&self) -> usize {
        self.geometry.page_bytes as usize
    }

    /// Offset on the device of an address's slot, in bytes.
    pub fn byte_of(&self, address: u64) -> u64 {
        self.areas.byte_of_slot(slot_of(address))
    }

    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Counts reads of the device that others perform.
    pub fn count_reads(&mut self, reads: u64) {
        self.counts.reads += reads;
    }

    /// Block of the open batch that has an address's page, if one does.
    fn open_block(&self, address: u64) -> Option<usize> {
        let at = version_of(address).wrapping_sub(self.first) as usize;
        (at < self.fresh.len()).then_some(1 + at)
    }

    /// True if only memory has a version, or a batch that is being written.
    pub(super) fn is_in_memory(&self, address: u64) -> bool {
        let is_of =
            |(first, batch): &(u32, Arc<Batch>)| batch.holds(1 + u64::from(version_of(address).wrapping_sub(*first)));
        self.open_block(address).is_some() || self.sealed.iter().any(is_of)
    }

    fn page_in_memory(&self, address: u64) -> Option<&[u8]> {
        if let Some(block) = self.open_block(address) {
            return Some(self.buffer.filled(block));
        }
        self.sealed.iter().find_map(|(first, batch)| {
            let block = 1 + u64::from(version_of(address).wrapping_sub(*first));
            batch.holds(block).then(|| batch.block(block))
        })
    }

    /// Bytes of a version that only memory holds, unless its block is still to be filled.
    pub fn filled_open(&self, entry: Entry) -> Option<&[u8]> {
        let Entry { address, lost, .. } = entry;
        if lost {
            return None;
        }
        if let Some(block) = self.open_block(address) {
            return self.buffer.filled_now(block);
        }
        self.sealed.iter().find_map(|(first, batch)| {
            let block = 1 + u64::from(version_of(address).wrapping_sub(*first));
            batch.holds(block).then(|| batch.block_now(block))?
        })
    }

    /// Copies a version that only memory holds; false if the device has it.
    pub fn read_open(&self, entry: Entry, bytes: &mut [u8]) -> bool {
        let page = if entry.lost { None } else { self.page_in_memory(entry.address) };
        page.inspect(|page| bytes.copy_from_slice(page)).is_some()
    }

    /// Blocks of the journal that may be written: their former entries are dead, durably.
    fn free_blocks(&self) -> u64 {
        let limit = if mutant::is(Mutant::BlockTooEarly) { self.tail } else { self.durable.tail };
        (limit + self.areas.journal).saturating_sub(self.number)
    }

    /// Segments' worth of free slots for which the journal has space.
    pub fn free_segments(&self) -> u64 {
        let slots = self.free.len() / u64::from(self.geometry.segment_pages);
        slots.min(self.areas.free_segments(self.free_blocks()))
    }

    /// As [`free_segments`](Slots::free_segments), once no slot and no block waits for a sync. Single slots count when they
    /// are free.
    pub fn free_segments_once_durable(&self) -> u64 {
        if !self.areas.by_segments {
            return self.free_segments();
        }
        let slots = self.free.len_once_durable() / u64::from(self.geometry.segment_pages);
        slots.min(self.areas.free_segments(self.blocks_once_durable()))
    }

    fn has_something_to_say(&self) -> bool {
        !self.records.is_empty() || self.must_state
    }

    /// Rear: number of the block after everything appended.
    pub fn rear(&self) -> u64 {
        self.number + u64::from(self.has_something_to_say())
    }

    /// True if everything appended is durable.
    pub fn is_durable(&self) -> bool {
        !self.has_something_to_say() && !self.unsynced
    }

    /// Appends a version of a page with this CRC, which becomes the newest. Returns its address, and its block, which
    /// is to be filled.
    ///
    /// # Errors
    /// `StorageFull` without a free slot or block: a fault of the code that frees them.
    pub fn append(&mut self, page: u64, crc: u32, dirty: bool, resident: bool) -> io::Result<(u64, Unfilled)> {
        self.reserve(1)?;
        let slot = self.free.take().ok_or_else(|| full("no free slot"))?;
        let block = 1 + self.fresh.len();
        self.free_slot_of(page);
        let version = self.index.next_version();
        let kind = if dirty { Kind::Dirty } else { Kind::Clean };
        self.versions.push(self.records.len() as u32);
        self.records.push(Record { page, kind, again: false, age: age::UNKNOWN, slot, version, crc });
        self.fresh.push(slot);
        let address = u64::from(version) << 32 | u64::from(slot);
        self.index.insert(page, Entry { address, crc, dirty, resident, lost: false });
        Ok((address, self.buffer.reserve(block, dirty.then_some(page))))
    }

    /// Puts a version with this CRC in place of one in the open batch; none if the page has no such version. Returns as
    /// [`append`](Slots::append) does.
    pub fn rewrite(&mut self, page: u64, crc: u32, dirty: bool, resident: bool) -> Option<(u64, Unfilled)> {
        let entry = self.index.get(page).filter(|entry| !entry.lost)?;
        let block = self.open_block(entry.address)?;
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

    /// Declares that the store's version of a page is obsolete.
    ///
    /// # Errors
    /// As [`append`](Slots::append).
    pub fn gone(&mut self, page: u64) -> io::Result<()> {
        self.record(page, Kind::Gone)?;
        self.buffer.note_gone(page);
        self.free_slot_of(page);
        self.index.remove(page);
        Ok(())
    }

    /// Declares that the backing store has the store's version of a page.
    ///
    /// # Errors
    /// As [`append`](Slots::append).
    pub fn cleaned(&mut self, page: u64) -> io::Result<()> {
        self.index.update(page, |entry| entry.dirty = false);
        // The entry spares work after a crash. That is not worth scarce space, nor an entry for a page that will be gone
        // soon.
        let worth = self.index.resident(page).is_some() && self.free_segments() > 1;
        if worth {
            return self.record(page, Kind::Cleaned);
        }
        self.index.leave_unsaid(page);
        Ok(())
    }

    /// As [`AnyStore::enter_clean`](crate::AnyStore::enter_clean).
    ///
    /// # Errors
    /// As [`append`](Slots::append).
    pub fn enter_clean(&mut self, page: u64) -> io::Result<()> {
        if self.index.take_unsaid(page) { self.record(page, Kind::Cleaned) } else { Ok(()) }
    }

    /// Declares that the only copy of a page cannot be read.
    ///
    /// # Errors
    /// As [`append`](Slots::append).
    pub fn lost(&mut self, page: u64) -> io::Result<()> {
        self.reserve(0)?;
        self.free_slot_of(page);
        let version = self.index.get(page).map_or(0, |entry| version_of(entry.address));
        self.records.push(Record {
            page,
            kind: Kind::Lost,
            again: false,
            age: age::UNKNOWN,
            slot: NO_SLOT,
            version,
            crc: 0,
        });
        let address = u64::from(version) << 32 | u64::from(NO_SLOT);
        self.index.insert(page, Entry { address, crc: 0, dirty: true, resident: false, lost: true });
        Ok(())
    }

    /// Adds an entry of this kind for a page to the open block, with the slot and the version that hold the page.
    fn record(&mut self, page: u64, kind: Kind) -> io::Result<()> {
        self.reserve(0)?;
        let address = self.index.get(page).map_or(u64::from(NO_SLOT), |entry| entry.address);
        let (slot, version) = (slot_of(address), version_of(address));
        self.records.push(Record { page, kind, again: false, age: age::UNKNOWN, slot, version, crc: 0 });
        Ok(())
    }

    /// The slot of a page becomes free when the open block is known to be durable.
    fn free_slot_of(&mut self, page: u64) {
        let Some(entry) = self.index.get(page).filter(|entry| !entry.lost) else { return };
        let slot = slot_of(entry.address);
        if mutant::is(Mutant::ReuseTooEarly) { self.free.put_unused(slot) } else { self.free.wait(self.number, slot) }
    }

    /// Makes space in the open block for an entry and so many pages.
    fn reserve(&mut self, pages: usize) -> io::Result<()> {
        let full_block = self.records.len() == journal::entries_max(self.standing.tables(), self.page_bytes());
        // A batch that ends with its segment is one write of pages, not two.
        let ends = pages > 0 && !self.fresh.is_empty() && self.free.is_between_segments();
        if full_block
            || ends
            || self.buffer.is_list_full()
            || self.fresh.len() + pages > self.geometry.segment_pages as usize
        {
            self.seal();
        }
        if self.free_blocks() == 0 { Err(full("no room in its journal")) } else { Ok(()) }
    }

    /// Seals the open batch, unless there is nothing to state. Any thread may then write the [sealed
    /// batches](Slots::sealed), with or without the core's lock; [`tidy`](Slots::tidy) follows.
    pub fn seal(&mut self) {
        if !self.has_something_to_say() && self.written_tail == self.tail {
            return;
        }
        let head = Head {
            uuid: self.standing.uuid(),
            epoch: self.standing.epoch(),
            number: self.number,
            tail: self.tail,
            durable: self.durable,
            chain: self.chain,
            versions: self.index.versions(),
            clock: self.standing.clock(),
        };
        let (tables, page_bytes) = (self.standing.tables(), self.page_bytes());
        for record in self.records.iter_mut().filter(|record| record.kind == Kind::Dirty) {
            record.age = self.standing.age_code(record.page, head.clock);
        }
        let carried = self.standing.carried.take();
        let mut crc = 0;
        self.buffer.write(0..page_bytes, |block| {
            crc = journal::encode(tables, &head, &self.records, carried.as_deref(), block);
        });
        if tables == Tables::V3 {
            self.standing.carried = Some(Arc::new(journal::carry(&head, &self.records, crc)));
        }
        let writes = self.writes();
        let pages = self.fresh.len() as u64;
        self.counts.batches += writes.len() as u64;
        self.counts.blocks += 1 + pages;
        self.counts.pages += pages;
        let bytes = std::mem::replace(&mut self.buffer, self.memories.next());
        self.sealed.push_back((self.first, Arc::new(Batch::new(0, 1 + self.fresh.len(), writes, bytes))));
        let statement = Statement { block: self.number, durable: self.durable.address, versions: head.versions };
        self.statements.push_back(statement);
        self.chain = crc;
        self.written_tail = self.tail;
        self.must_state = false;
        self.records.clear();
        self.versions.clear();
        self.fresh.clear();
        self.first = head.versions;
        self.unsynced = true;
        self.unsynced_pages += pages;
        self.number += 1;
    }

    /// Writes of the open batch: its block, and its pages in runs of neighbouring slots. Each has an offset on the
    /// device and a range of the buffer.
    fn writes(&self) -> Vec<(u64, Range<usize>)> {
        let page_bytes = self.page_bytes();
        let mut writes = vec![(self.areas.byte_of_block(self.number), 0..page_bytes)];
        let mut from = page_bytes;
        for run in self.fresh.chunk_by(|slot, next| slot + 1 == *next) {
            let to = from + run.len() * page_bytes;
            writes.push((self.areas.byte_of_slot(run[0]), from..to));
            from = to;
        }
        writes
    }

    /// Batches that the device may not have yet, in the order of writing.
    pub fn sealed(&self) -> Vec<Arc<Batch>> {
        self.sealed.iter().map(|(_, batch)| Arc::clone(batch)).collect()
    }

    pub fn sealed_len(&self) -> usize {
        self.sealed.len()
    }

    /// Forgets batches that the device has: their pages are read from the device from now on.
    pub fn tidy(&mut self) {
        while self.sealed.front().is_some_and(|(_, batch)| batch.is_written()) {
            let Some((_, batch)) = self.sealed.pop_front() else { return };
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
        let written = self.sealed.iter().try_for_each(|(_, batch)| batch.write(&self.disk));
        self.tidy();
        written
    }

    /// Makes everything durable that was written out.
    ///
    /// # Errors
    /// The error that the device returned. The fate of all writes since the last success is then unknown.
    pub fn sync(&mut self) -> io::Result<()> {
        if let Some(point) = self.unsynced() {
            sync_device(&self.disk)?;
            point.write_record(&self.disk)?;
            self.synced(point);
        }
        Ok(())
    }

    /// Segments' worth written since the last sync, of pages or of blocks of the journal, whichever is more.
    pub fn unsynced_segments(&self) -> u64 {
        let blocks = (self.number - self.durable.address) / self.areas.pace;
        blocks.max(self.unsynced_pages / u64::from(self.geometry.segment_pages))
    }

    /// Sync point of a device sync that begins when all sealed batches are written: the journal is durable to there
    /// afterwards. None if the journal is durable.
    pub fn unsynced(&self) -> Option<SyncPoint> {
        let end = LogEnd { address: self.number, slot: 0, tail: self.written_tail, chain: self.chain };
        self.unsynced.then(|| self.standing.sync_point(end))
    }

    /// Sync point of the last durable end, recorded once more with the current time. None while a write is not synced.
    pub fn restated(&self) -> Option<SyncPoint> {
        (!self.unsynced).then(|| self.standing.sync_point(self.durable))
    }

    /// Notes that the sync of this point has succeeded.
    pub fn synced(&mut self, SyncPoint { end, .. }: SyncPoint) {
        self.counts.syncs += 1;
        if end.address < self.durable.address {
            return;
        }
        self.durable = end;
        self.unsynced = end.address != self.number;
        self.unsynced_pages = 0;
        while self.statements.front().is_some_and(|statement| statement.block < end.address) {
            let Some(statement) = self.statements.pop_front() else { return };
            self.free.release(statement.durable);
            self.durable_versions = statement.versions;
        }
        if mutant::is(Mutant::FreedUnsaid) {
            self.free.release(end.address);
        }
    }

    /// True if the journal is durable up to a block, and its current tail as well.
    pub fn is_durable_to(&self, number: u64) -> bool {
        self.durable.address >= number && self.durable.tail >= self.tail
    }

    /// True if all blocks before a number are durable. The tail may not be.
    pub fn is_written_durably(&self, number: u64) -> bool {
        self.durable.address >= number
    }

    /// Pages and addresses of the versions in a segment's worth of slots from one on, and the slot after them. None
    /// after the last slot.
    pub fn segment_from(&self, slot: u64) -> Option<(u64, Vec<(u64, u64)>)> {
        let slots = self.geometry.segment_pages as usize;
        (slot < self.areas.slots).then(|| (slot + slots as u64, self.index.in_slots(slot as usize, slots)))
    }

    /// Age of a version: the number of versions appended since.
    pub fn age(&self, address: u64) -> u64 {
        self.index.versions().wrapping_sub(version_of(address)).into()
    }

    /// True if the version at an address is durable.
    pub fn is_version_durable(&self, address: u64) -> bool {
        // There are fewer versions that are not durable than slots: a version further away came before.
        version_of(address).wrapping_sub(self.durable_versions)
            >= self.index.versions().wrapping_sub(self.durable_versions)
    }

    /// Has the next block written even without entries, to state the durable end, if that frees a slot.
    pub fn state_what_is_durable(&mut self) {
        self.must_state |= self.free.waiting() > 0;
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
        self.disk.read_at(self.byte_of(entry.address), bytes)?;
        check_page(entry, bytes)
    }

    pub fn slots(&self) -> u64 {
        self.areas.slots
    }

    pub fn journal_bytes(&self) -> u64 {
        self.areas.journal * u64::from(self.geometry.page_bytes)
    }

    /// Takes the segments that were filled, or have lost their last newest version, since the last call; all of them after
    /// an open.
    pub fn take_changed(&mut self) -> Vec<u32> {
        self.free.take_changed()
    }

    /// True if a segment is full and holds a newest version.
    pub fn is_sealed(&self, segment: u32) -> bool {
        self.free.is_sealed(segment)
    }

    /// Slots that can be written once no slot waits.
    pub fn free_once_durable(&self) -> u64 {
        self.free.len_once_durable()
    }

    /// Newest versions in a segment that cannot be given up at once: pages that count as cached, and dirty ones.
    pub fn needed_in(&self, segment: u32) -> usize {
        let pages = self.geometry.segment_pages as usize;
        self.index.needed(segment as usize * pages..(segment as usize + 1) * pages)
    }

    /// Pages and addresses of the newest versions in a segment.
    pub fn versions_in(&self, segment: u32) -> Vec<(u64, u64)> {
        let pages = self.geometry.segment_pages as usize;
        self.index.in_slots(segment as usize * pages, pages)
    }

    /// True if a slot waits for the block that freed it to be known as durable.
    pub fn has_waiting(&self) -> bool {
        self.free.waiting() > 0
    }

    /// Versions that the policy does not hold, dirty or clean ones, from the end of the last search on. Their number
    /// is that of slots missing from `enough` free ones.
    pub fn unheld(&mut self, enough: u64, dirty: bool) -> Vec<(u64, Entry)> {
        let missing = enough.saturating_sub(self.free.len() + self.free.waiting());
        let (unheld, hand) = self.index.unheld(self.hand, missing as usize, dirty);
        self.hand = hand;
        unheld
    }

    /// Blocks of the journal that may be written once the tail is known to be durable.
    fn blocks_once_durable(&self) -> u64 {
        self.tail + self.areas.journal - self.number
    }

    /// True if a sync would free blocks of the journal that requests wait for, or as many blocks as are left.
    pub fn awaits_blocks(&self) -> bool {
        let (free, once_durable) = (self.free_blocks(), self.blocks_once_durable());
        let gained = self.areas.free_segments(free) < self.areas.free_segments(once_durable);
        free < once_durable && (gained || 2 * free <= once_durable)
    }

    /// Range of bytes on the device of the oldest blocks of the journal, to be read and given to
    /// [`renew`](Slots::renew), which repeats their valid entries. None while enough blocks are free, of which a renewal
    /// that has `begun` asks for more; or when no older durable block is left.
    pub fn oldest_blocks(&self, begun: bool) -> Option<Range<u64>> {
        if self.blocks_once_durable() > self.areas.enough_free(begun) {
            return None;
        }
        // The valid entries of any number of blocks fit into the blocks for all slots' entries.
        let free = self.free_blocks();
        let few = if free > self.areas.live + 2 { RENEWED_MAX } else { (free / 2).clamp(1, RENEWED_MAX) };
        let to_its_end = self.areas.journal - self.tail % self.areas.journal;
        let blocks = few.min(to_its_end).min(self.durable.address.saturating_sub(self.tail));
        let start = self.areas.byte_of_block(self.tail);
        (blocks > 0).then(|| start..start + blocks * self.page_bytes() as u64)
    }

    /// True if these are the blocks that [`oldest_blocks`](Slots::oldest_blocks) asked for.
    pub fn are_oldest(&self, blocks: &[u8]) -> bool {
        self.decoded(blocks).iter().all(Option::is_some)
    }

    /// Offset on the device of the block after the oldest ones, which take so many bytes.
    pub fn byte_after_oldest(&self, bytes: usize) -> u64 {
        self.areas.byte_of_block(self.tail + (bytes / self.page_bytes()) as u64)
    }

    fn decoded(&self, blocks: &[u8]) -> Vec<Option<journal::Block>> {
        let uuid = self.standing.uuid();
        let here = |number| move |block: &journal::Block| block.head.number == number && block.head.uuid == uuid;
        let blocks = blocks.chunks_exact(self.page_bytes()).zip(self.tail..);
        blocks.map(|(block, number)| journal::decode(self.standing.tables(), block).filter(here(number))).collect()
    }

    /// True if the contents of the oldest blocks are known, if need be from the block `after` them.
    pub fn can_mend(&self, blocks: &[u8], after: &[u8]) -> bool {
        self.mended(blocks, after).is_some()
    }

    /// Contents of the oldest blocks. A damaged block is taken from its copy in the next one; none without a copy.
    fn mended(&self, blocks: &[u8], after: &[u8]) -> Option<Vec<journal::Block>> {
        let mut decoded = self.decoded(blocks);
        let uuid = self.standing.uuid();
        let after = journal::decode(self.standing.tables(), after).filter(|block| block.head.uuid == uuid);
        let last = self.tail + (decoded.len() as u64).saturating_sub(1);
        let carriers =
            after.and_then(|block| block.carried).into_iter().chain(self.standing.carried.as_deref().cloned());
        let mut carried = carriers.into_iter().find(|carried| carried.address == last);
        for (at, block) in decoded.iter_mut().enumerate().rev() {
            let number = self.tail + at as u64;
            if block.is_none() && !mutant::is(Mutant::CopyIgnored) {
                let copy = carried.take().filter(|carried| carried.address == number);
                *block = copy.and_then(|copy| journal::carried_block(&copy, uuid));
            }
            carried = block.as_ref().and_then(|block| block.carried.clone());
        }
        decoded.into_iter().collect()
    }

    /// Repeats the valid entries of the oldest blocks, and gives the blocks up; the next block says so. A damaged one
    /// is taken from its copy, if need be in the block `after` them.
    ///
    /// # Errors
    /// `InvalidData` if these are not the blocks; otherwise as [`append`](Slots::append).
    pub fn renew(&mut self, blocks: &[u8], after: &[u8]) -> io::Result<()> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a block of the cache's journal is damaged");
        let decoded = self.mended(blocks, after).ok_or_else(damaged)?;
        for record in decoded.iter().flat_map(|block| &block.records) {
            let held = self.index.get(record.page);
            let address = u64::from(record.version) << 32 | u64::from(record.slot);
            let Some(held) = held.filter(|held| held.address == address && !matches!(record.kind, Kind::Cleaned))
            else {
                continue;
            };
            let kind = match (held.lost, held.dirty) {
                (true, _) => Kind::Lost,
                (false, true) => Kind::Dirty,
                (false, false) => Kind::Clean,
            };
            if !mutant::is(Mutant::NotRenewed) {
                self.reserve(0)?;
                self.records.push(Record { kind, again: true, crc: held.crc, ..*record });
                self.index.take_unsaid(record.page);
                self.counts.renewed += 1;
            }
        }
        self.tail += decoded.len() as u64;
        Ok(())
    }

    /// Notes in the superblock that the journal ends in good order. Everything must be durable.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn close(&mut self) -> io::Result<()> {
        assert!(self.is_durable(), "a store is flushed before it is closed");
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

    /// Writes both superblocks while the store is in use.
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

/// Stands for no slot.
const NO_SLOT: u32 = u32::MAX;

fn full(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, format!("the cache has {why}"))
}
