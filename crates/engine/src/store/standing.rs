//! What both layouts note of themselves on the device: superblocks, commit records, generations and the clock.

use super::carried::Carried;
use super::commit::{self, Commit, Commits};
use super::generation::{Generation, Generations};
use super::superblock::{Identity, LogEnd, State, Superblock, Tables};
use crate::disk::Disk;
use std::io;
use std::sync::Arc;

/// A store that is in use, as its superblock has it.
pub(super) struct Standing {
    /// The one that is written next, but for its state and end.
    superblock: Superblock,
    commits: Arc<Commits>,
    /// A copy of the last table, unless it has one at the end of its batch.
    pub carried: Option<Arc<Carried>>,
    /// Seconds of cache time.
    clock: u64,
}

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
    /// What the device answered.
    pub fn write_record<D: Disk + ?Sized>(&self, disk: &D) -> io::Result<()> {
        self.record.as_ref().map_or(Ok(()), |(commits, commit)| commits.write(disk, commit))
    }
}

impl Standing {
    /// Of a store that was found with this superblock and these records, at this time, and is to be opened.
    pub fn found(superblock: Superblock, records: &[Option<Commit>; 2], clock: u64) -> Self {
        Standing { superblock: superblock.next(), commits: Commits::after(records), carried: None, clock }
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

    /// Seconds of cache time.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Goes on with the clock, which never runs backwards.
    pub fn set_clock(&mut self, seconds: u64) {
        self.clock = self.clock.max(seconds);
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

    /// What a sync of the device makes durable that begins now.
    pub fn sync_point(&self, end: LogEnd) -> SyncPoint {
        let of_version = self.tables() == Tables::V3;
        SyncPoint { end, record: of_version.then(|| (Arc::clone(&self.commits), self.commit(end))) }
    }

    fn commit(&self, end: LogEnd) -> Commit {
        Commit { uuid: self.uuid(), epoch: self.epoch(), end, clock: self.clock, carried: self.carried.clone() }
    }

    /// Writes both superblocks, and for a store that begins to be used what is known of its end.
    pub fn write<D: Disk>(&mut self, disk: &D, state: State, end: LogEnd) -> io::Result<()> {
        self.superblock.writes += 1;
        Superblock { state, end, clock: self.clock, ..self.superblock }.write(disk)
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

/// Up to where records of this use of a store say that it was durable.
pub(super) fn recorded_end(superblock: &Superblock, records: &[Option<Commit>; 2]) -> Option<LogEnd> {
    let of_this_epoch = |commit: &&Commit| commit.epoch == superblock.epoch;
    let ends = records.iter().flatten().filter(of_this_epoch).map(|commit| commit.end);
    ends.max_by_key(|end| end.place)
}
