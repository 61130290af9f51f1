//! State that both layouts note of themselves on the device: superblocks, commit records, generations and the clock.

use super::age;
use super::ages::Ages;
use super::carried::Carried;
use super::clock::{CacheTime, Clock};
use super::commit::{self, Commit, Commits};
use super::generation::{Generation, Generations};
use super::superblock::{Identity, LogEnd, State, Superblock, Tables};
use crate::disk::Disk;
use crate::mutant::{self, Mutant};
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A store that is in use, as its superblock has it.
pub(super) struct Standing {
    /// The one that is written next, but for its state and end.
    superblock: Superblock,
    commits: Arc<Commits>,
    /// A copy of the last table, unless it has one at the end of its batch.
    pub carried: Option<Arc<Carried>>,
    /// Seconds of cache time when it was found.
    clock: u64,
    /// Cache time that goes on from `clock`, where ages are kept.
    time: Option<CacheTime>,
    /// Cache time in seconds that was last noted on the device.
    stored: Cell<u64>,
    /// Since when pages differ from the backing store, where ages are kept.
    pub ages: Option<Ages>,
}

/// Seconds of cache time after which the device is told of it at the latest, as long as any page is dirty.
pub(crate) const STORED_EVERY: u64 = 10;

/// Seconds by which the device may not have been told of it when a process ends without closing the store, or the power
/// goes: what was written last need not be down, what was written before it is.
const UNTOLD_MAX: u64 = 2 * STORED_EVERY;

/// The end of what was written when a sync of the device began, and what is noted of it when the sync is done.
#[derive(Clone, Debug)]
pub(crate) struct SyncPoint {
    pub(super) end: LogEnd,
    record: Option<(Arc<Commits>, Commit)>,
}

impl SyncPoint {
    /// Notes on the device that the sync has succeeded, before anybody hears of it. That is not synced itself.
    ///
    /// # Errors
    /// The error that the device returned.
    pub fn write_record<D: Disk + ?Sized>(&self, disk: &D) -> io::Result<()> {
        self.record.as_ref().map_or(Ok(()), |(commits, commit)| commits.write(disk, commit))
    }
}

impl Standing {
    /// Standing of a store that was found with this superblock and these records, and is to be opened. Its last table
    /// shows this time.
    pub fn found(superblock: Superblock, records: &[Option<Commit>; 2], clock: u64) -> Self {
        let told = records.iter().flatten().map(|commit| commit.clock);
        let told = told.fold(superblock.clock.max(clock), u64::max);
        let untold = if superblock.state == State::Closed { 0 } else { UNTOLD_MAX };
        Standing {
            superblock: superblock.next(),
            commits: Commits::after(records),
            carried: None,
            // Where nobody ever kept ages there is no time to be lost.
            clock: if told == 0 { 0 } else { told.saturating_add(untold) },
            time: None,
            stored: Cell::new(told),
            ages: None,
        }
    }

    /// Keeps these ages from now on, by this clock.
    pub fn keep_ages(&mut self, ages: Ages, clock: Clock) {
        // Second 0 is that of ages that nobody knows.
        self.time = Some(CacheTime::from(self.clock().max(1), clock));
        self.ages = Some(ages);
    }

    /// Keeps no ages any more. Cache time stands still.
    pub fn drop_ages(&mut self) {
        self.clock = self.clock();
        self.time = None;
        self.ages = None;
    }

    /// The code of the age that a dirty page has when the clock shows this.
    pub fn age_code(&self, page: u64, clock: u64) -> u8 {
        let since = self.ages.as_ref().and_then(|ages| ages.since(page));
        since
            .filter(|_| !mutant::is(Mutant::AgeUnwritten))
            .map_or(age::UNKNOWN, |since| age::encode(clock.saturating_sub(since)))
    }

    /// Number of this use of the store.
    pub fn epoch(&self) -> u64 {
        self.superblock.epoch
    }

    /// UUID of the cache.
    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.identity.uuid
    }

    /// The form of its tables.
    pub fn tables(&self) -> Tables {
        self.superblock.tables
    }

    /// The store has so many segments now.
    pub fn set_segments(&mut self, segments: u32) {
        self.superblock.geometry.segments = segments;
    }

    /// Whose cache it is.
    pub fn identity(&self) -> Identity {
        self.superblock.identity
    }

    /// The backing store is larger now, or known by another name: the next superblock says so.
    pub fn set_identity(&mut self, identity: Identity) {
        self.superblock.identity = identity;
    }

    /// Seconds of cache time. They never run backwards.
    pub fn clock(&self) -> u64 {
        self.now().as_secs()
    }

    /// Cache time.
    pub fn now(&self) -> Duration {
        self.time.as_ref().map_or(Duration::from_secs(self.clock), CacheTime::now)
    }

    /// Has cache time gone on so far since the device was told of it that it should be told again? A store of version 2
    /// has no room for it.
    pub fn is_clock_old(&self) -> bool {
        self.time.is_some() && self.tables() == Tables::V3 && self.clock() >= self.stored.get() + STORED_EVERY
    }

    /// The generations.
    pub fn generations(&self) -> Generations {
        self.superblock.generations
    }

    /// Does its superblock have room for them?
    pub fn keeps_generations(&self) -> bool {
        !self.superblock.before
    }

    /// The backing store is about to get this generation: the next superblock says so.
    pub fn propose(&mut self, generation: Generation) {
        self.superblock.generations.pending = Some(generation);
    }

    /// The backing store has the pending generation, durably: the next superblock says so.
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

    /// Writes both superblocks, and for a store that begins to be used what is known of its end.
    pub fn write<D: Disk>(&mut self, disk: &D, state: State, end: LogEnd) -> io::Result<()> {
        self.superblock.writes += 1;
        let clock = self.clock();
        self.stored.set(clock);
        Superblock { state, end, clock, ..self.superblock }.write(disk)
    }

    /// Begins to use the store, whose end this is.
    pub fn begin<D: Disk>(&mut self, disk: &D, end: LogEnd) -> io::Result<()> {
        // What was just read may be in the kernel's cache only, after the process alone died.
        disk.sync()?;
        if self.tables() == Tables::V3 {
            // Of the epoch that ends here: as long as the superblock is of it, this is what is known of its end.
            let commit = Commit { epoch: self.epoch() - 1, ..self.commit(end) };
            self.commits.write(disk, &commit)?;
        }
        self.write(disk, State::Open, end)
    }
}

/// The records of a store; none of one of the version before.
pub(super) fn records<D: Disk>(disk: &D, superblock: &Superblock, each: usize) -> io::Result<[Option<Commit>; 2]> {
    match superblock.tables {
        Tables::V2 => Ok([None, None]),
        Tables::V3 => commit::read(disk, &superblock.identity.uuid, each),
    }
}

/// Durable end of the store as the commit records of this use of it state it.
pub(super) fn recorded_end(superblock: &Superblock, records: &[Option<Commit>; 2]) -> Option<LogEnd> {
    let of_this_epoch = |commit: &&Commit| commit.epoch == superblock.epoch;
    let ends = records.iter().flatten().filter(of_this_epoch).map(|commit| commit.end);
    ends.max_by_key(|end| end.address)
}
