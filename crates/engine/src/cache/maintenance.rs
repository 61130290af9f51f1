//! Maintenance of a cache between requests: making the log durable, writing the queue below, reclaiming segments.
//! Written once for both ways of doing it: with the cache to itself ([`WriteBack`] is its own lease), and with the lock given
//! back during every I/O, so that other requests go on.

use super::slot_reclaim::reclaim_slots;
use super::watermarks::{DEPTH_MAX, FREE_MIN};
use super::write_back::WriteBack;
use super::write_batch::WriteBatch;
use crate::disk::{AlignedBytes, Disk, Transfer};
use crate::mutant::{self, Mutant};
use crate::store::{Batch, Entry, check_page, sync_device};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Access to a keeper that can be given back for a while.
///
/// Only one lease at a time may do more than make the log durable: the keeper's state belongs to it, but for requests
/// that look pages up, append to the log and add to the queue.
pub(super) trait StoreAccess {
    /// The keeper.
    fn write_back(&mut self) -> &mut WriteBack;

    /// Performs I/O while others may use the keeper.
    fn unlocked<R>(&mut self, io: impl FnOnce() -> R) -> io::Result<R>;

    /// Between two parts of a long operation: lets those go first who wait for the keeper.
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
        // The other one needs the lock to go on. Another sync does no harm.
        Ok(false)
    }
}

/// Makes durable what was appended before. Whoever comes while a sync is under way waits for it, and the first of them
/// then syncs for all.
pub(super) fn sync_store(access: &mut impl StoreAccess) -> io::Result<()> {
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

/// Makes durable what is complete of the log, and leaves the open batch open. True if there was anything.
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

/// Tells the device what time it is, with a sync of what was appended if there is anything.
pub(super) fn store_clock(access: &mut impl StoreAccess) -> io::Result<()> {
    sync_store(access)?;
    let write_back = access.write_back();
    let old = write_back.store.is_clock_old();
    let Some(point) = write_back.store.restated().filter(|_| old) else { return Ok(()) };
    let disk = write_back.store.disk().clone();
    // The record before this one is made durable with it.
    let told = access.unlocked(|| sync_device(&*disk).and_then(|()| point.write_record(&*disk)))?;
    access.write_back().noted(told)
}

/// Asks the log's device whether it still works: that it does not would be learnt with the next request only, which may be long
/// after it failed.
pub(super) fn look_at_device(access: &mut impl StoreAccess) -> io::Result<()> {
    let disk = access.write_back().store.disk().clone();
    let works = access.unlocked(|| sync_device(&*disk))?;
    access.write_back().noted(works)
}

/// Makes durable what is complete of the log ahead of need. If somebody does so just now, that is waited for.
pub(super) fn sync_ahead(access: &mut impl StoreAccess) -> io::Result<()> {
    if access.write_back().syncing && access.wait_for_sync()? { Ok(()) } else { sync_sealed(access).map(drop) }
}

fn write_and_sync(batches: Vec<Arc<Batch>>, disk: &dyn Disk) -> io::Result<()> {
    let early = mutant::is(Mutant::SyncBeforeBatches).then(|| sync_device(disk));
    batches.iter().try_for_each(|batch| batch.write(disk))?;
    early.unwrap_or_else(|| sync_device(disk))
}

/// Writes to the log's device the batches that are complete.
pub(super) fn write_batches(access: &mut impl StoreAccess) -> io::Result<()> {
    let write_back = access.write_back();
    let (disk, batches) = (write_back.store.disk().clone(), write_back.store.sealed());
    let written = access.unlocked(|| batches.iter().try_for_each(|batch| batch.write(&*disk)))?;
    // Their memory is used again when nobody refers to them.
    drop(batches);
    let write_back = access.write_back();
    write_back.store.tidy();
    write_back.noted(written)
}

/// Keeps the log from running too far ahead of its device, and from waiting for a sync to have room.
pub(super) fn catch_up(access: &mut impl StoreAccess) -> io::Result<()> {
    if access.write_back().must_sync() || access.write_back().awaits_segments() {
        return sync_store(access);
    }
    if access.write_back().has_many_batches() { write_batches(access) } else { Ok(()) }
}

/// Makes the log durable, then writes below what is queued (rule 1).
pub(super) fn commit(access: &mut impl StoreAccess) -> io::Result<()> {
    if mutant::is(Mutant::BelowOvertakes) {
        write_queue(access)?;
    }
    // What is queued while the log is being synced is not covered by the sync.
    let write_batch = access.write_back().begin_batch();
    if let Err(error) = sync_store(access) {
        access.write_back().abort_batch(write_batch);
        return Err(error);
    }
    fly(access, write_batch)
}

/// Writes the queue below, in runs of neighbours. What cannot be written stays queued.
pub(super) fn write_queue(access: &mut impl StoreAccess) -> io::Result<()> {
    let write_batch = access.write_back().begin_batch();
    fly(access, write_batch)
}

/// Writes part of the queue below: so many runs of neighbours at most. The log is synced only if none of the pages could be
/// written without.
pub(super) fn write_some(access: &mut impl StoreAccess, runs: usize) -> io::Result<()> {
    let mut write_batch = access.write_back().begin_batch_some(runs);
    if write_batch.is_empty() {
        sync_store(access)?;
        write_batch = access.write_back().begin_batch_some(runs);
    }
    fly(access, write_batch)
}

/// Writes below those of these pages that are queued now, in parts, each after a sync of the log. Pages may be queued again
/// meanwhile.
pub(super) fn write_these(access: &mut impl StoreAccess, pages: &[u64]) -> io::Result<()> {
    for pages in pages.chunks(DEPTH_MAX) {
        sync_store(access)?;
        let write_batch = access.write_back().begin_batch_with(pages);
        fly(access, write_batch)?;
    }
    Ok(())
}

pub(super) fn fly(access: &mut impl StoreAccess, write_batch: WriteBatch) -> io::Result<()> {
    if write_batch.is_empty() {
        return Ok(());
    }
    let write_back = access.write_back();
    let (store, backing) = (write_back.store.disk().clone(), write_back.backing().clone());
    let written = access.unlocked(|| write_batch.perform(&*store, &*backing))?;
    access.write_back().complete_batch(write_batch, written)
}

/// Makes durable what was written below and draws the consequences in the log; true when one of them has to be durable
/// before a flush may return.
pub(super) fn settle(access: &mut impl StoreAccess) -> io::Result<bool> {
    let write_back = access.write_back();
    if !write_back.owes_sync_below() {
        return Ok(false);
    }
    let backing = write_back.backing().clone();
    let sync = write_back.unsynced.begin_sync();
    let synced = access.unlocked(|| if mutant::is(Mutant::NoBackingSync) { Ok(()) } else { backing.sync() })?;
    access.write_back().synced_below(synced)?;
    let mut urgent = false;
    while access.write_back().settle_some(sync, &mut urgent)? {
        access.pass()?;
    }
    Ok(urgent)
}

/// Makes every version that was handed over durable: in the log, or below if the log does not have it. With `through`
/// below in any case.
pub(super) fn flush(access: &mut impl StoreAccess, through: bool) -> io::Result<()> {
    // Asked before too: a read that comes meanwhile puts what went past into the log, behind what is about to be durable.
    let past = through || (access.write_back().went_past() && !mutant::is(Mutant::FlushAskedAfter));
    commit(access)?;
    if (past || access.write_back().went_past()) && settle(access)? {
        sync_store(access)?;
    }
    Ok(())
}

/// A flush once the log is given up.
pub(super) fn flush_without_store(access: &mut impl StoreAccess) -> io::Result<()> {
    write_queue(access)?;
    let backing = access.write_back().backing().clone();
    let synced = access.unlocked(|| backing.sync())?;
    // There is no log for which it means anything.
    let write_back = access.write_back();
    write_back.synced_below(synced)?;
    write_back.unsynced.take();
    Ok(())
}

/// Makes room for a request: in the queue, in what is remembered of writes below, in the log. Until this succeeds none is
/// begun, so that within one nothing that leaves the cache is without a place to go.
pub(super) fn make_ready(access: &mut impl StoreAccess) -> io::Result<()> {
    while access.write_back().is_queue_full() {
        write_some(access, DEPTH_MAX)?;
    }
    if access.write_back().is_unsynced_full() {
        settle(access)?;
    }
    make_room(access)?;
    catch_up(access)
}

/// Sees to it that the log has free segments.
pub(super) fn make_room(access: &mut impl StoreAccess) -> io::Result<()> {
    let rounds = 2 * u64::from(access.write_back().store.geometry().segments);
    for _ in 0..rounds {
        if access.write_back().store.free_segments() >= FREE_MIN {
            return Ok(());
        }
        reclaim(access)?;
    }
    Err(io::Error::new(io::ErrorKind::StorageFull, "every segment of the cache is full of pages that are needed"))
}

/// Frees the oldest segments (rule 6). In the slots layout it frees slots.
fn reclaim(access: &mut impl StoreAccess) -> io::Result<()> {
    if reclaim_slots(access)? {
        return Ok(());
    }
    // Several at a time on a large cache, for the price of one sync.
    let wanted = u64::from(access.write_back().store.geometry().segments / 64).clamp(1, 8);
    drop_oldest(access, wanted)?;
    if mutant::is(Mutant::ReuseTooEarly) { Ok(()) } else { sync_store(access) }
}

/// As `reclaim`, ahead of need: segments are free when the log has been synced, by whomever.
pub(super) fn reclaim_ahead(access: &mut impl StoreAccess) -> io::Result<()> {
    if reclaim_slots(access)? {
        return Ok(());
    }
    let wanted = access.write_back().lacking_segments();
    drop_oldest(access, wanted)
}

/// Drops the oldest segments, until so many more are free.
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
        // Requests go on: what they queue again meanwhile is written in the next round.
        loop {
            let needed = access.write_back().needed_of(&taken)?;
            if needed.is_empty() {
                break;
            }
            write_these(access, &needed)?;
            settle(access)?;
        }
    }
    access.write_back().drop_segments(&taken);
    Ok(())
}

/// Moves on what is still needed of a segment; true when that takes a sync of the backing store.
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

/// Reads pages that lie at these bytes of a device, together; false when any of it failed.
pub(super) fn read_pages(disk: &dyn Disk, at: &[u64], bytes: &mut [u8], page_bytes: usize) -> bool {
    let mut reads = Vec::new();
    let mut rest = bytes;
    for run in runs(at.len(), |n| at[n] == at[n - 1] + page_bytes as u64) {
        let (these, others) = rest.split_at_mut(run.len() * page_bytes);
        reads.push(Transfer::Read { at: at[run.start], bytes: these });
        rest = others;
    }
    reads.is_empty() || disk.submit(&mut reads).is_ok()
}

/// Positions of runs: stretches of items each of which `follows` the one before.
pub(super) fn runs(len: usize, follows: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in 0..len {
        match runs.last_mut() {
            Some(run) if follows(at) => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}
