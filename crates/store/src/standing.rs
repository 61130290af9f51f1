//! State of a store that both layouts record on the device: superblocks, commit records, generations and the clock.

use super::age;
use super::ages::Ages;
use super::carried::Carried;
use super::clock::{CacheTime, Clock};
use super::commit::{self, Commit, Commits};
use super::generation::{Generation, Generations};
use super::geometry::Tables;
use super::log_end::LogEnd;
use super::superblock::{Identity, State, Superblock};
use crate::mutant::{self, Mutant};
use entresol_disk::Disk;
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// State of a store in use, as its superblock has it.
pub(super) struct Standing {
    /// The superblock that is written next, except for its state and end.
    superblock: Superblock,
    commits: Arc<Commits>,
    /// A copy of the last table, unless the table's own batch has one.
    pub carried: Option<Arc<Carried>>,
    /// Seconds of cache time when the store was found.
    clock: u64,
    /// Cache time, which continues from `clock` while ages are kept.
    time: Option<CacheTime>,
    /// Cache time last recorded on the device, in seconds.
    stored: Cell<u64>,
    /// Times since which pages differ from the backing store, while ages are kept.
    pub ages: Option<Ages>,
}

/// Most seconds of cache time between two records of it on the device while any page is dirty.
pub const STORED_EVERY: u64 = 10;

/// Most seconds by which the recorded cache time may be late after a kill or a loss of power. The last record
/// need not be durable; the one before it is.
const UNTOLD_MAX: u64 = 2 * STORED_EVERY;

/// The end of all writes when a sync of the device began, and the commit record written after the sync.
#[derive(Clone, Debug)]
pub struct SyncPoint {
    pub(super) end: LogEnd,
    record: Option<(Arc<Commits>, Commit)>,
}

impl SyncPoint {
    /// Writes the commit record of a successful sync, before the success is reported. The record itself is not synced.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn write_record<D: Disk + ?Sized>(&self, disk: &D) -> io::Result<()> {
        self.record.as_ref().map_or(Ok(()), |(commits, commit)| commits.write(disk, commit))
    }
}

/// Syncs the device of a log.
///
/// # Errors
/// The error that the device returned.
pub fn sync_device<D: Disk + ?Sized>(disk: &D) -> io::Result<()> {
    if mutant::is(Mutant::NoLogSync) { Ok(()) } else { disk.sync() }
}

impl Standing {
    /// State of a store found with this superblock and these records, about to be opened. `clock` is that of its last
    /// table.
    pub fn found(superblock: Superblock, records: &[Option<Commit>; 2], clock: u64) -> Self {
        let told = records.iter().flatten().map(|commit| commit.clock);
        let told = told.fold(superblock.clock.max(clock), u64::max);
        let untold = if superblock.state == State::Closed { 0 } else { UNTOLD_MAX };
        Standing {
            superblock: superblock.next(),
            commits: Commits::after(records),
            carried: None,
            // No time can be lost of a store that never kept ages.
            clock: if told == 0 { 0 } else { told.saturating_add(untold) },
            time: None,
            stored: Cell::new(told),
            ages: None,
        }
    }

    /// Keeps these ages from now on, by this clock.
    pub fn keep_ages(&mut self, ages: Ages, clock: Clock) {
        // Second 0 stands for unknown ages.
        self.time = Some(CacheTime::from(self.clock().max(1), clock));
        self.ages = Some(ages);
    }

    /// Stops keeping ages. Cache time stands still.
    pub fn drop_ages(&mut self) {
        self.clock = self.clock();
        self.time = None;
        self.ages = None;
    }

    /// Age code of a dirty page at this time of the cache.
    pub fn age_code(&self, page: u64, clock: u64) -> u8 {
        let since = self.ages.as_ref().and_then(|ages| ages.since(page));
        since
            .filter(|_| !mutant::is(Mutant::AgeUnwritten))
            .map_or(age::UNKNOWN, |since| age::encode(clock.saturating_sub(since)))
    }

    /// Epoch: number of this use of the store.
    pub fn epoch(&self) -> u64 {
        self.superblock.epoch
    }

    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.identity.uuid
    }

    pub fn tables(&self) -> Tables {
        self.superblock.tables
    }

    pub fn set_segments(&mut self, segments: u32) {
        self.superblock.geometry.segments = segments;
    }

    pub fn identity(&self) -> Identity {
        self.superblock.identity
    }

    /// Sets the identity after the backing store has grown or changed its name. The next superblock has it.
    pub fn set_identity(&mut self, identity: Identity) {
        self.superblock.identity = identity;
    }

    /// Seconds of cache time, which never runs backwards.
    pub fn clock(&self) -> u64 {
        self.now().as_secs()
    }

    pub fn now(&self) -> Duration {
        self.time.as_ref().map_or(Duration::from_secs(self.clock), CacheTime::now)
    }

    /// True if the device's record of cache time is so old that another is due. A store of version 2 has no field for
    /// it.
    pub fn is_clock_old(&self) -> bool {
        self.time.is_some() && self.tables() == Tables::V3 && self.clock() >= self.stored.get() + STORED_EVERY
    }

    pub fn generations(&self) -> Generations {
        self.superblock.generations
    }

    /// True if the superblock has fields for generations.
    pub fn keeps_generations(&self) -> bool {
        !self.superblock.before
    }

    /// Sets the generation that the backing store is about to get. The next superblock has it.
    pub fn propose(&mut self, generation: Generation) {
        self.superblock.generations.pending = Some(generation);
    }

    /// Notes that the backing store has the pending generation, durably. The next superblock says so.
    pub fn settle(&mut self) {
        self.superblock.generations.settle();
    }

    /// Sync point of a device sync that begins now: the end that it makes durable, and the commit record for it.
    pub fn sync_point(&self, end: LogEnd) -> SyncPoint {
        let of_version = self.tables() == Tables::V3;
        let record = of_version.then(|| (Arc::clone(&self.commits), self.commit(end)));
        if let Some((_, commit)) = &record {
            self.stored.set(commit.clock);
        }
        SyncPoint { end, record }
    }

    fn commit(&self, end: LogEnd) -> Commit {
        Commit { uuid: self.uuid(), epoch: self.epoch(), end, clock: self.clock(), carried: self.carried.clone() }
    }

    /// Writes both superblocks with this state and end.
    pub fn write<D: Disk>(&mut self, disk: &D, state: State, end: LogEnd) -> io::Result<()> {
        self.superblock.writes += 1;
        let clock = self.clock();
        self.stored.set(clock);
        Superblock { state, end, clock, ..self.superblock }.write(disk)
    }

    /// Begins to use a store that ends here.
    pub fn begin<D: Disk>(&mut self, disk: &D, end: LogEnd) -> io::Result<()> {
        // After a kill the bytes read at the open may be in the kernel's cache only.
        disk.sync()?;
        if self.tables() == Tables::V3 {
            // The record is of the epoch that ends here. The end in it counts as long as the superblock is of that
            // epoch.
            let commit = Commit { epoch: self.epoch() - 1, ..self.commit(end) };
            self.commits.write(disk, &commit)?;
        }
        self.write(disk, State::Open, end)
    }
}

/// The commit records of a store; a store of version 2 has none.
pub(super) fn records<D: Disk>(disk: &D, superblock: &Superblock, each: usize) -> io::Result<[Option<Commit>; 2]> {
    match superblock.tables {
        Tables::V2 => Ok([None, None]),
        Tables::V3 => commit::read(disk, &superblock.identity.uuid, each),
    }
}

/// Durable end of the store as the commit records of this epoch state it.
pub(super) fn recorded_end(superblock: &Superblock, records: &[Option<Commit>; 2]) -> Option<LogEnd> {
    let of_this_epoch = |commit: &&Commit| commit.epoch == superblock.epoch;
    let ends = records.iter().flatten().filter(of_this_epoch).map(|commit| commit.end);
    ends.max_by_key(|end| end.address)
}
