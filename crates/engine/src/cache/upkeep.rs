//! Maintenance of a cache between requests: making the log durable, writing the queue below, reclaiming segments.
//! Written once for both ways of doing it: with the cache to itself ([`Keeper`] is its own lease), and with the lock given
//! back during every I/O, so that other requests go on.

use super::flight::Flight;
use super::keeper::Keeper;
use super::room::{DEPTH_MAX, FREE_MIN};
use super::vacate::reclaim_slots;
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
pub(super) trait Lease {
    /// The keeper.
    fn keeper(&mut self) -> &mut Keeper;

    /// Performs I/O while others may use the keeper.
    fn unlocked<R>(&mut self, io: impl FnOnce() -> R) -> io::Result<R>;

    /// Between two parts of a long operation: lets those go first who wait for the keeper.
    fn pass(&mut self) -> io::Result<()>;

    /// Waits for the sync that another thread has under way; false at once if there can be none.
    fn wait_for_sync(&mut self) -> io::Result<bool>;
}

impl Lease for Keeper {
    fn keeper(&mut self) -> &mut Keeper {
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
pub(super) fn sync_log(lease: &mut impl Lease) -> io::Result<()> {
    let end = lease.keeper().log.rear();
    loop {
        let keeper = lease.keeper();
        if keeper.log.is_durable_to(end) {
            return Ok(());
        }
        if keeper.syncing && lease.wait_for_sync()? {
            continue;
        }
        lease.keeper().log.seal();
        if !sync_sealed(lease)? {
            return Ok(());
        }
    }
}

/// Makes durable what is complete of the log, and leaves the open batch open. True if there was anything.
fn sync_sealed(lease: &mut impl Lease) -> io::Result<bool> {
    let keeper = lease.keeper();
    let Some(point) = keeper.log.unsynced() else { return Ok(false) };
    let (disk, batches) = (keeper.log.disk().clone(), keeper.log.sealed());
    let others = std::mem::replace(&mut keeper.syncing, true);
    let synced = lease.unlocked(|| write_and_sync(batches, &*disk).and_then(|()| point.write_record(&*disk)))?;
    let keeper = lease.keeper();
    keeper.syncing = others;
    keeper.log.tidy();
    keeper.noted(synced)?;
    keeper.log.synced(point);
    Ok(true)
}

/// Tells the device what time it is, with a sync of what was appended if there is anything.
pub(super) fn store_clock(lease: &mut impl Lease) -> io::Result<()> {
    sync_log(lease)?;
    let keeper = lease.keeper();
    let old = keeper.log.is_clock_old();
    let Some(point) = keeper.log.restated().filter(|_| old) else { return Ok(()) };
    let disk = keeper.log.disk().clone();
    // The record before this one is made durable with it.
    let told = lease.unlocked(|| sync_device(&*disk).and_then(|()| point.write_record(&*disk)))?;
    lease.keeper().noted(told)
}

/// Asks the log's device whether it still works: that it does not would be learnt with the next request only, which may be long
/// after it failed.
pub(super) fn look_at_device(lease: &mut impl Lease) -> io::Result<()> {
    let disk = lease.keeper().log.disk().clone();
    let works = lease.unlocked(|| sync_device(&*disk))?;
    lease.keeper().noted(works)
}

/// Makes durable what is complete of the log ahead of need. If somebody does so just now, that is waited for.
pub(super) fn sync_ahead(lease: &mut impl Lease) -> io::Result<()> {
    if lease.keeper().syncing && lease.wait_for_sync()? { Ok(()) } else { sync_sealed(lease).map(drop) }
}

fn write_and_sync(batches: Vec<Arc<Batch>>, disk: &dyn Disk) -> io::Result<()> {
    let early = mutant::is(Mutant::SyncBeforeBatches).then(|| sync_device(disk));
    batches.iter().try_for_each(|batch| batch.write(disk))?;
    early.unwrap_or_else(|| sync_device(disk))
}

/// Writes to the log's device the batches that are complete.
pub(super) fn write_batches(lease: &mut impl Lease) -> io::Result<()> {
    let keeper = lease.keeper();
    let (disk, batches) = (keeper.log.disk().clone(), keeper.log.sealed());
    let written = lease.unlocked(|| batches.iter().try_for_each(|batch| batch.write(&*disk)))?;
    // Their memory is used again when nobody refers to them.
    drop(batches);
    let keeper = lease.keeper();
    keeper.log.tidy();
    keeper.noted(written)
}

/// Keeps the log from running too far ahead of its device, and from waiting for a sync to have room.
pub(super) fn catch_up(lease: &mut impl Lease) -> io::Result<()> {
    if lease.keeper().must_sync() || lease.keeper().awaits_segments() {
        return sync_log(lease);
    }
    if lease.keeper().has_many_batches() { write_batches(lease) } else { Ok(()) }
}

/// Makes the log durable, then writes below what is queued (rule 1).
pub(super) fn commit(lease: &mut impl Lease) -> io::Result<()> {
    if mutant::is(Mutant::BelowOvertakes) {
        write_queue(lease)?;
    }
    // What is queued while the log is being synced is not covered by the sync.
    let flight = lease.keeper().take_off();
    if let Err(error) = sync_log(lease) {
        lease.keeper().call_back(flight);
        return Err(error);
    }
    fly(lease, flight)
}

/// Writes the queue below, in runs of neighbours. What cannot be written stays queued.
pub(super) fn write_queue(lease: &mut impl Lease) -> io::Result<()> {
    let flight = lease.keeper().take_off();
    fly(lease, flight)
}

/// Writes part of the queue below: so many runs of neighbours at most. The log is synced only if none of the pages could be
/// written without.
pub(super) fn write_some(lease: &mut impl Lease, runs: usize) -> io::Result<()> {
    let mut flight = lease.keeper().take_off_some(runs);
    if flight.is_empty() {
        sync_log(lease)?;
        flight = lease.keeper().take_off_some(runs);
    }
    fly(lease, flight)
}

/// Writes below those of these pages that are queued now, in parts, each after a sync of the log. Pages may be queued again
/// meanwhile.
pub(super) fn write_these(lease: &mut impl Lease, pages: &[u64]) -> io::Result<()> {
    for pages in pages.chunks(DEPTH_MAX) {
        sync_log(lease)?;
        let flight = lease.keeper().take_off_with(pages);
        fly(lease, flight)?;
    }
    Ok(())
}

pub(super) fn fly(lease: &mut impl Lease, flight: Flight) -> io::Result<()> {
    if flight.is_empty() {
        return Ok(());
    }
    let keeper = lease.keeper();
    let (log, backing) = (keeper.log.disk().clone(), keeper.backing().clone());
    let written = lease.unlocked(|| flight.perform(&*log, &*backing))?;
    lease.keeper().land(flight, written)
}

/// Makes durable what was written below and draws the consequences in the log; true when one of them has to be durable
/// before a flush may return.
pub(super) fn settle(lease: &mut impl Lease) -> io::Result<bool> {
    let keeper = lease.keeper();
    if !keeper.owes_sync_below() {
        return Ok(false);
    }
    let backing = keeper.backing().clone();
    let sync = keeper.unsynced.begin_sync();
    let synced = lease.unlocked(|| if mutant::is(Mutant::NoBackingSync) { Ok(()) } else { backing.sync() })?;
    lease.keeper().synced_below(synced)?;
    let mut urgent = false;
    while lease.keeper().settle_some(sync, &mut urgent)? {
        lease.pass()?;
    }
    Ok(urgent)
}

/// Makes every version that was handed over durable: in the log, or below if the log does not have it. With `through`
/// below in any case.
pub(super) fn flush(lease: &mut impl Lease, through: bool) -> io::Result<()> {
    // Asked before too: a read that comes meanwhile puts what went past into the log, behind what is about to be durable.
    let past = through || (lease.keeper().went_past() && !mutant::is(Mutant::FlushAskedAfter));
    commit(lease)?;
    if (past || lease.keeper().went_past()) && settle(lease)? {
        sync_log(lease)?;
    }
    Ok(())
}

/// A flush once the log is given up.
pub(super) fn flush_without_log(lease: &mut impl Lease) -> io::Result<()> {
    write_queue(lease)?;
    let backing = lease.keeper().backing().clone();
    let synced = lease.unlocked(|| backing.sync())?;
    // There is no log for which it means anything.
    let keeper = lease.keeper();
    keeper.synced_below(synced)?;
    keeper.unsynced.take();
    Ok(())
}

/// Makes room for a request: in the queue, in what is remembered of writes below, in the log. Until this succeeds none is
/// begun, so that within one nothing that leaves the cache is without a place to go.
pub(super) fn make_ready(lease: &mut impl Lease) -> io::Result<()> {
    while lease.keeper().is_queue_full() {
        write_some(lease, DEPTH_MAX)?;
    }
    if lease.keeper().is_account_full() {
        settle(lease)?;
    }
    make_room(lease)?;
    catch_up(lease)
}

/// Sees to it that the log has free segments.
pub(super) fn make_room(lease: &mut impl Lease) -> io::Result<()> {
    let rounds = 2 * u64::from(lease.keeper().log.geometry().segments);
    for _ in 0..rounds {
        if lease.keeper().log.free_segments() >= FREE_MIN {
            return Ok(());
        }
        reclaim(lease)?;
    }
    Err(io::Error::new(io::ErrorKind::StorageFull, "every segment of the cache is full of pages that are needed"))
}

/// Frees the oldest segments (rule 6). In the slots layout it frees slots.
fn reclaim(lease: &mut impl Lease) -> io::Result<()> {
    if reclaim_slots(lease)? {
        return Ok(());
    }
    // Several at a time on a large cache, for the price of one sync.
    let wanted = u64::from(lease.keeper().log.geometry().segments / 64).clamp(1, 8);
    drop_oldest(lease, wanted)?;
    if mutant::is(Mutant::ReuseTooEarly) { Ok(()) } else { sync_log(lease) }
}

/// As `reclaim`, ahead of need: segments are free when the log has been synced, by whomever.
pub(super) fn reclaim_ahead(lease: &mut impl Lease) -> io::Result<()> {
    if reclaim_slots(lease)? {
        return Ok(());
    }
    let wanted = lease.keeper().lacking_segments();
    drop_oldest(lease, wanted)
}

/// Drops the oldest segments, until so many more are free.
fn drop_oldest(lease: &mut impl Lease, wanted: u64) -> io::Result<()> {
    let geometry = lease.keeper().log.geometry();
    let wanted = wanted * u64::from(geometry.segment_pages);
    let start = lease.keeper().log.rear();
    let mut taken = Vec::new();
    let mut owed = false;
    // The copies of several segments are packed together: those of one alone might fill as many blocks as it frees.
    loop {
        let freed = taken.len() as u64 * u64::from(geometry.segment_pages);
        let keeper = lease.keeper();
        let no_room = keeper.log.free_segments() < FREE_MIN - 1;
        if freed >= wanted + (keeper.log.rear() - start) || (no_room && !taken.is_empty()) {
            break;
        }
        let Some(versions) = keeper.log.segment(taken.len()) else { break };
        owed |= empty_segment(lease, &versions)?;
        catch_up(lease)?;
        taken.push(versions);
    }
    if owed && !mutant::is(Mutant::TailTooEarly) {
        // Requests go on: what they queue again meanwhile is written in the next round.
        loop {
            let needed = lease.keeper().needed_of(&taken)?;
            if needed.is_empty() {
                break;
            }
            write_these(lease, &needed)?;
            settle(lease)?;
        }
    }
    lease.keeper().drop_segments(&taken);
    Ok(())
}

/// Moves on what is still needed of a segment; true when that takes a sync of the backing store.
fn empty_segment(lease: &mut impl Lease, versions: &[(u64, u64)]) -> io::Result<bool> {
    let keeper = lease.keeper();
    let needed: Vec<(u64, Entry)> = versions
        .iter()
        .filter_map(|&(page, place)| Some((page, keeper.log.index().get(page).filter(|entry| entry.place == place)?)))
        .filter(|&(page, entry)| keeper.must_move(page, entry))
        .collect();
    let page_bytes = keeper.log.geometry().page_bytes as usize;
    let at: Vec<u64> = needed.iter().map(|(_, entry)| keeper.log.byte_of(entry.place)).collect();
    keeper.log.count_reads(at.len() as u64);
    let disk = keeper.log.disk().clone();
    let mut bytes = AlignedBytes::zeroed(needed.len() * page_bytes);
    let read = lease.unlocked(|| read_pages(&*disk, &at, &mut bytes, page_bytes))?;
    let keeper = lease.keeper();
    let mut moves = needed.iter().zip(bytes.chunks_exact(page_bytes)).peekable();
    let mut owed = false;
    for &(page, place) in versions {
        let (entry, bytes) = match moves.next_if(|((moved, entry), _)| *moved == page && entry.place == place) {
            Some((&(_, entry), bytes)) => (Some(entry), bytes),
            None => (None, &[][..]),
        };
        let good = entry.filter(|&entry| read && check_page(entry, bytes).is_ok());
        owed |= keeper.empty_place(page, place, good.map(|_| bytes))?;
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
