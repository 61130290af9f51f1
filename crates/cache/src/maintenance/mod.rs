//! Maintenance of a cache between requests: making the store durable, writing the queue below, reclaiming segments.
//!
//! The code is written once for two kinds of [`StoreAccess`]. [`WriteBack`] itself is one, with the cache to itself. A
//! hold of the core's lock is the other: it gives the lock back during every I/O, so that other requests go on.

mod ahead;
mod refused;
mod segment_reclaim;
mod slot_reclaim;

pub(crate) use ahead::{Role, make_some_room};
pub use refused::Refused;

use crate::durability::{DEPTH_MAX, FREE_MIN, WriteBack, WriteBatch};
use crate::transfers::read_pages;
use entresol_disk::{AlignedBytes, Disk};
use entresol_store::mutant::{self, Mutant};
use entresol_store::{Batch, Entry, Unfilled, check_page, sync_device};
use slot_reclaim::{free_waiting, reclaim_slots};
use std::io;
use std::sync::Arc;

/// Access to the write-back state, which can be given back for a while.
///
/// Only one access at a time may do more than make the store durable. Meanwhile requests only look pages up, append to
/// the store and add to the queue.
pub(crate) trait StoreAccess {
    /// The write-back state.
    fn write_back(&mut self) -> &mut WriteBack;

    /// Performs I/O while others may use the write-back state.
    fn unlocked<R>(&mut self, io: impl FnOnce() -> R) -> io::Result<R>;

    /// Lets threads that wait for the write-back state go first, between two parts of a long operation.
    fn pass(&mut self) -> io::Result<()>;

    /// Waits for the sync that another thread has under way; false at once if there can be none.
    fn wait_for_sync(&mut self) -> io::Result<bool>;
}

impl StoreAccess for WriteBack {
    fn write_back(&mut self) -> &mut WriteBack {
        self
    }

    fn unlocked<R>(&mut self, io: impl FnOnce() -> R) -> io::Result<R> {
        Ok(io())
    }

    fn pass(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wait_for_sync(&mut self) -> io::Result<bool> {
        // The other thread needs the lock to go on. Another sync does no harm.
        Ok(false)
    }
}

/// Makes all earlier appends durable. Threads that come during a sync wait for it; the first of them then syncs for
/// all.
pub(crate) fn sync_store(access: &mut impl StoreAccess) -> io::Result<()> {
    let end = access.write_back().store.rear();
    loop {
        let write_back = access.write_back();
        if write_back.store.is_durable_to(end) {
            return Ok(());
        }
        if write_back.syncing && access.wait_for_sync()? {
            continue;
        }
        access.write_back().store.seal();
        if !sync_sealed(access)? {
            return Ok(());
        }
    }
}

/// Makes the complete batches durable, and leaves the open batch open. True if there were any.
fn sync_sealed(access: &mut impl StoreAccess) -> io::Result<bool> {
    let write_back = access.write_back();
    let Some(point) = write_back.store.unsynced() else { return Ok(false) };
    let (disk, batches) = (write_back.store.disk().clone(), write_back.store.sealed());
    let others = std::mem::replace(&mut write_back.syncing, true);
    let synced = access.unlocked(|| write_and_sync(batches, &*disk).and_then(|()| point.write_record(&*disk)))?;
    let write_back = access.write_back();
    write_back.syncing = others;
    write_back.store.tidy();
    write_back.noted(synced)?;
    write_back.store.synced(point);
    Ok(true)
}

/// Writes the time to the device, with a sync of earlier appends if there are any.
pub(crate) fn store_clock(access: &mut impl StoreAccess) -> io::Result<()> {
    sync_store(access)?;
    let write_back = access.write_back();
    let old = write_back.store.is_clock_old();
    let Some(point) = write_back.store.restated().filter(|_| old) else { return Ok(()) };
    let disk = write_back.store.disk().clone();
    // The sync makes the record before this one durable.
    let told = access.unlocked(|| sync_device(&*disk).and_then(|()| point.write_record(&*disk)))?;
    access.write_back().noted(told)
}

/// Checks by a sync whether the cache device still works. Otherwise the next request would learn of a failure, perhaps
/// late.
pub(crate) fn look_at_device(access: &mut impl StoreAccess) -> io::Result<()> {
    let disk = access.write_back().store.disk().clone();
    let works = access.unlocked(|| sync_device(&*disk))?;
    access.write_back().noted(works)
}

/// Makes the complete batches durable ahead of need, or waits for a sync that is under way.
pub(crate) fn sync_ahead(access: &mut impl StoreAccess) -> io::Result<()> {
    if access.write_back().syncing && access.wait_for_sync()? { Ok(()) } else { sync_sealed(access).map(drop) }
}

fn write_and_sync(batches: Vec<Arc<Batch>>, disk: &dyn Disk) -> io::Result<()> {
    let early = mutant::is(Mutant::SyncBeforeBatches).then(|| sync_device(disk));
    batches.iter().try_for_each(|batch| batch.write(disk))?;
    early.unwrap_or_else(|| sync_device(disk))
}

/// Writes the complete batches to the cache device.
pub(crate) fn write_batches(access: &mut impl StoreAccess) -> io::Result<()> {
    let write_back = access.write_back();
    let (disk, batches) = (write_back.store.disk().clone(), write_back.store.sealed());
    let written = access.unlocked(|| batches.iter().try_for_each(|batch| batch.write(&*disk)))?;
    // Their memory is used again once no reference is left.
    drop(batches);
    let write_back = access.write_back();
    write_back.store.tidy();
    write_back.noted(written)
}

/// Keeps the store from running too far ahead of its device, and frees segments that wait for a sync.
pub(crate) fn catch_up(access: &mut impl StoreAccess) -> io::Result<()> {
    if access.write_back().awaits_segments() {
        return free_waiting(access);
    }
    if access.write_back().must_sync() {
        return sync_store(access);
    }
    if access.write_back().has_many_batches() { write_batches(access) } else { Ok(()) }
}

/// Makes the store durable, then writes the queue below (rule 1).
pub(crate) fn commit(access: &mut impl StoreAccess) -> io::Result<()> {
    if mutant::is(Mutant::BelowOvertakes) {
        write_queue(access)?;
    }
    // The sync does not cover pages queued while it is under way.
    let write_batch = access.write_back().begin_batch();
    if let Err(error) = sync_store(access) {
        access.write_back().abort_batch(write_batch);
        return Err(error);
    }
    carry_out(access, write_batch)
}

/// Writes the queue below, in runs of neighbours. Pages that cannot be written stay queued.
pub(crate) fn write_queue(access: &mut impl StoreAccess) -> io::Result<()> {
    let write_batch = access.write_back().begin_batch();
    carry_out(access, write_batch)
}

/// Writes part of the queue below, at most `runs` runs of neighbours. The store is synced only if nothing can go
/// without.
pub(crate) fn write_some(access: &mut impl StoreAccess, runs: usize) -> io::Result<()> {
    let mut write_batch = access.write_back().begin_batch_some(runs);
    if write_batch.is_empty() {
        sync_store(access)?;
        write_batch = access.write_back().begin_batch_some(runs);
    }
    carry_out(access, write_batch)
}

/// Writes below those of these pages that are queued, in parts, each after a sync of the store. Pages may be queued
/// again.
pub(crate) fn write_these(access: &mut impl StoreAccess, pages: &[u64]) -> io::Result<()> {
    for pages in pages.chunks(DEPTH_MAX) {
        sync_store(access)?;
        let write_batch = access.write_back().begin_batch_with(pages);
        carry_out(access, write_batch)?;
    }
    Ok(())
}

pub(crate) fn carry_out(access: &mut impl StoreAccess, write_batch: WriteBatch) -> io::Result<()> {
    if write_batch.is_empty() {
        return Ok(());
    }
    let write_back = access.write_back();
    let (store, backing) = (write_back.store.disk().clone(), write_back.backing().clone());
    let written = access.unlocked(|| write_batch.perform(&*store, &*backing))?;
    access.write_back().complete_batch(write_batch, written)
}

/// Syncs the backing store and enters in the store that the pages written there are clean or gone. True when one of
/// the entries has to be durable before a flush may return.
pub(crate) fn settle(access: &mut impl StoreAccess) -> io::Result<bool> {
    let write_back = access.write_back();
    if !write_back.owes_sync_below() {
        return Ok(false);
    }
    let backing = write_back.backing().clone();
    let sync = write_back.unsynced.begin_sync();
    write_back.begin_sync_below();
    let synced = access.unlocked(|| if mutant::is(Mutant::NoBackingSync) { Ok(()) } else { backing.sync() })?;
    access.write_back().synced_below(synced)?;
    let mut urgent = false;
    while access.write_back().settle_some(sync, &mut urgent)? {
        access.pass()?;
    }
    Ok(urgent)
}

/// Makes every version that was handed over durable: in the store, or in the backing store if the store does not have
/// it. With `through`, in the backing store in any case.
pub(crate) fn flush(access: &mut impl StoreAccess, through: bool) -> io::Result<()> {
    // Checked before the commit too: a read during it may append a bypassing version, behind the part being synced.
    let past = through || (access.write_back().went_past() && !mutant::is(Mutant::FlushAskedAfter));
    commit(access)?;
    if (past || access.write_back().went_past()) && settle(access)? {
        sync_store(access)?;
    }
    Ok(())
}

/// A flush once the store has been given up.
pub(crate) fn flush_without_store(access: &mut impl StoreAccess) -> io::Result<()> {
    write_queue(access)?;
    let backing = access.write_back().backing().clone();
    access.write_back().begin_sync_below();
    let synced = access.unlocked(|| backing.sync())?;
    // No store is left in which to enter the result.
    let write_back = access.write_back();
    write_back.synced_below(synced)?;
    write_back.unsynced.take();
    Ok(())
}

/// Brings the queue, the account of unsynced writes and the free segments within the hard limits. No request begins
/// before that succeeds, so that within a request every page that leaves the cache has a place to go.
pub(crate) fn make_ready(access: &mut impl StoreAccess) -> io::Result<()> {
    while access.write_back().is_queue_full() {
        write_some(access, DEPTH_MAX)?;
    }
    if access.write_back().is_unsynced_full() {
        settle(access)?;
    }
    make_room(access)?;
    catch_up(access)
}

/// Reclaims until [`FREE_MIN`] segments are free.
pub(crate) fn make_room(access: &mut impl StoreAccess) -> io::Result<()> {
    let rounds = 2 * u64::from(access.write_back().store.geometry().segments);
    for _ in 0..rounds {
        if access.write_back().store.free_segments() >= FREE_MIN {
            return Ok(());
        }
        reclaim(access)?;
    }
    Err(io::Error::new(io::ErrorKind::StorageFull, "every segment of the cache is full of pages that are needed"))
}

/// Appends a version for a decision, as [`WriteBack::put`]. The last free segments are for maintenance: it makes room
/// before the next request.
pub(crate) fn put(
    write_back: &mut WriteBack,
    page: u64,
    crc: u32,
    dirty: bool,
    resident: bool,
) -> io::Result<(Entry, Unfilled)> {
    if !write_back.has_room_to_put() {
        return Err(io::Error::new(
            io::ErrorKind::StorageFull,
            "the request moves more pages than fit into the free segments",
        ));
    }
    write_back.put(page, crc, dirty, resident)
}

/// Closes the store in good order, with all that is known to be clean entered. Comes after a flush.
pub(crate) fn close_store(write_back: &mut WriteBack) -> io::Result<()> {
    settle(write_back)?;
    sync_store(write_back)?;
    let result = write_back.store.close();
    write_back.noted(result)
}

/// Frees the oldest segments (rule 6), or slots where a journal says what they hold.
fn reclaim(access: &mut impl StoreAccess) -> io::Result<()> {
    if reclaim_slots(access, false)? {
        return Ok(());
    }
    // Several segments at a time on a large cache, for the price of one sync.
    let wanted = u64::from(access.write_back().store.geometry().segments / 64).clamp(1, 8);
    drop_oldest(access, wanted)?;
    if mutant::is(Mutant::ReuseTooEarly) { Ok(()) } else { sync_store(access) }
}

/// As `reclaim`, ahead of need: the segments are free after the next sync of the store, whichever thread makes it.
pub(crate) fn reclaim_ahead(access: &mut impl StoreAccess) -> io::Result<()> {
    if reclaim_slots(access, true)? {
        return Ok(());
    }
    let wanted = access.write_back().lacking_segments();
    drop_oldest(access, wanted)
}

/// Drops the oldest segments until so many more are free.
fn drop_oldest(access: &mut impl StoreAccess, wanted: u64) -> io::Result<()> {
    let geometry = access.write_back().store.geometry();
    let wanted = wanted * u64::from(geometry.segment_pages);
    let start = access.write_back().store.rear();
    let mut taken = Vec::new();
    let mut owed = false;
    // The copies of several segments are packed together: those of one alone might fill as many blocks as it frees.
    loop {
        let freed = taken.len() as u64 * u64::from(geometry.segment_pages);
        let write_back = access.write_back();
        let no_room = write_back.store.free_segments() < FREE_MIN - 1;
        if freed >= wanted + (write_back.store.rear() - start) || (no_room && !taken.is_empty()) {
            break;
        }
        let Some(versions) = write_back.store.segment(taken.len()) else { break };
        owed |= empty_segment(access, &versions)?;
        catch_up(access)?;
        taken.push(versions);
    }
    if owed && !mutant::is(Mutant::TailTooEarly) {
        write_needed(access, &taken)?;
    }
    access.write_back().drop_segments(&taken);
    Ok(())
}

/// Writes below those of these segments' versions that are still needed, and syncs. Requests go on: pages that they queue
/// again meanwhile are written in the next round.
fn write_needed(access: &mut impl StoreAccess, segments: &[Vec<(u64, u64)>]) -> io::Result<()> {
    loop {
        let needed = access.write_back().needed_of(segments)?;
        if needed.is_empty() {
            return Ok(());
        }
        write_these(access, &needed)?;
        settle(access)?;
    }
}

/// Moves the versions of a segment that are still needed. True when that takes a sync of the backing store.
fn empty_segment(access: &mut impl StoreAccess, versions: &[(u64, u64)]) -> io::Result<bool> {
    let write_back = access.write_back();
    let needed: Vec<(u64, Entry)> = versions
        .iter()
        .filter_map(|&(page, address)| {
            Some((page, write_back.store.index().get(page).filter(|entry| entry.address == address)?))
        })
        .filter(|&(page, entry)| write_back.must_move(page, entry))
        .collect();
    let page_bytes = write_back.store.geometry().page_bytes as usize;
    let at: Vec<u64> = needed.iter().map(|(_, entry)| write_back.store.byte_of(entry.address)).collect();
    write_back.store.count_reads(at.len() as u64);
    let disk = write_back.store.disk().clone();
    let mut bytes = AlignedBytes::zeroed(needed.len() * page_bytes);
    let read = access.unlocked(|| read_pages(&*disk, &at, &mut bytes, page_bytes))?;
    let write_back = access.write_back();
    let mut moves = needed.iter().zip(bytes.chunks_exact(page_bytes)).peekable();
    let mut owed = false;
    for &(page, address) in versions {
        let (entry, bytes) = match moves.next_if(|((moved, entry), _)| *moved == page && entry.address == address) {
            Some((&(_, entry), bytes)) => (Some(entry), bytes),
            None => (None, &[][..]),
        };
        let good = entry.filter(|&entry| read && check_page(entry, bytes).is_ok());
        owed |= write_back.empty_address(page, address, good.map(|_| bytes))?;
    }
    Ok(owed)
}
