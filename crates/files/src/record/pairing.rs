//! A cache and its backing record in step. Every open tells which of two copies is the older. A crash between the
//! writes to the two neither refuses the right cache nor accepts an old one.
//!
//! A generation is raised in three steps. First the cache notes durably that the record is about to get it
//! ([`propose`]). Then the record gets it durably. Last the cache settles it in memory, and its next superblock says
//! so. So the record always has one of the cache's two generations. After a failed write, or a read after a crash, the
//! pending one may not be durable in the record. The record is then written again before anything else is proposed: a
//! third generation would leave the record with neither of the two.
//!
//! [`propose`]: BlockCache::propose_generation

use super::minutes::Minutes;
use super::{Choices, Record, RecordPlace};
use entresol_cache::{BlockCache, Mode, Opening};
use entresol_store::{Generation, Generations, Geometry};
use std::io::{self, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Reason why a cache and a backing store are no pair.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Another cache was made for the backing store since.
    #[error("another cache was made for this backing store since{}; give that one", of_path(.path))]
    Foreign {
        /// Path at which that cache was made, if it is known.
        path: Option<std::path::PathBuf>,
    },
    /// The cache is an older copy.
    #[error(
        "this cache is an older copy: its generation is {cache}, its backing store has seen {backing}; give the cache that was \
         used last. If that is lost, so are the pages that only it had: make a new one by `entresol format --force`"
    )]
    Older {
        /// Generation of the cache.
        cache: u64,
        /// Generation of the record.
        backing: u64,
    },
    /// The backing store is an older copy.
    #[error(
        "the backing store is an older copy than its cache: its generation is {backing}, its cache has seen {cache}; bring back \
         the backing store that was used last. If it was restored on purpose, the cache's pages do not belong to it: make a \
         new cache by `entresol format --force`"
    )]
    Newer {
        /// Generation of the cache.
        cache: u64,
        /// Generation of the record.
        backing: u64,
    },
    /// Both were used apart, each with a copy of the other.
    #[error(
        "this cache and its backing store have each been used without the other since generation {0}: one of them is a copy; \
         give the two that were used last together"
    )]
    Parted(u64),
    /// There is no record, and the cache knows that there was one.
    #[error(
        "the backing store has no record of its cache, which has seen generation {0}: it was copied or restored without it, or \
         another machine has it"
    )]
    NoRecord(u64),
    /// The backing store was written without its cache, which has pages that are newer than they were below.
    #[error(
        "the backing store was written without its cache, which has {0} dirty pages of it: together they may be the bytes of no \
         time; `entresol drain --generation-ok` writes those pages over what was written, `entresol format --force` makes a new \
         cache and loses them"
    )]
    Written(usize),
    /// The backing store lies in a snapshot of its former subvolume.
    #[error(
        "the backing store is in another btrfs subvolume than when its cache was used last: it is a snapshot, or was restored \
         from one; give the one that was used last"
    )]
    Snapshot,
}

fn of_path(path: &Option<std::path::PathBuf>) -> String {
    path.as_ref().map_or(String::new(), |path| format!(" ({})", path.display()))
}

impl Mismatch {
    /// True if a user may override this and have the cache's dirty pages written to the backing store.
    pub fn may_be_overruled(&self) -> bool {
        !matches!(self, Mismatch::Foreign { .. })
    }
}

/// Compares a cache with the record of its backing store; `volume` is where the backing store lies now.
///
/// # Errors
/// The reason why they are no pair.
pub fn compare(
    uuid: [u8; 16],
    generations: Generations,
    record: Option<&Record>,
    volume: Option<[u8; 16]>,
) -> Result<(), Mismatch> {
    let newest = generations.pending.map_or(generations.settled.number, |pending| pending.number);
    let Some(record) = record else {
        // The cache is older than records, or its first was proposed and is not written yet.
        return match generations.is_right(Generation::default()) {
            true => Ok(()),
            false => Err(Mismatch::NoRecord(generations.settled.number)),
        };
    };
    if record.cache != uuid {
        let path = record.choices.as_ref().and_then(|choices| choices.path.clone());
        return Err(Mismatch::Foreign { path });
    }
    if record.volume.is_some() && volume != record.volume {
        return Err(Mismatch::Snapshot);
    }
    let backing = record.generation.number;
    if generations.is_right(record.generation) {
        Ok(())
    } else if backing > newest {
        Err(Mismatch::Older { cache: newest, backing })
    } else if backing < generations.settled.number {
        Err(Mismatch::Newer { cache: generations.settled.number, backing })
    } else {
        Err(Mismatch::Parted(backing.saturating_sub(1)))
    }
}

/// An unpredictable number.
fn nonce() -> io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A cache and its record, kept in step.
pub struct Pairing {
    /// None where the cache keeps no generations yet.
    state: Option<Mutex<State>>,
    nonce: fn() -> io::Result<u64>,
    minutes: Mutex<Minutes>,
    /// Held while the mode changes together with the completeness mark.
    changing: Mutex<()>,
    began: Instant,
}

struct State {
    /// The record at its location.
    record: Record,
    /// The record may be this one instead.
    doubtful: Option<Record>,
    /// Syncs of the record since the open.
    writes: u64,
}

impl Pairing {
    /// The pair of an opened cache and the record at its location.
    ///
    /// # Errors
    /// The reason why they are no pair; with `overruled`, only a reason that may not be overridden.
    pub fn find(
        opening: &Opening,
        record: Option<Record>,
        volume: Option<[u8; 16]>,
        overruled: bool,
    ) -> Result<Self, Mismatch> {
        let (cache, generations) = (opening.uuid(), opening.generation());
        match compare(cache, generations, record.as_ref(), volume) {
            Err(mismatch) if !(overruled && mismatch.may_be_overruled()) => return Err(mismatch),
            _ => {}
        }
        let before = Record { cache, generation: Generation::default(), complete: false, volume, choices: None };
        let record = Record { volume, ..record.unwrap_or(before) };
        // A record that the cache does not know to be durable may have been read from memory only.
        let doubtful = (Some(record.generation) == generations.pending).then(|| record.clone());
        let state = State { record, doubtful, writes: 0 };
        let state = opening.keeps_generations().then(|| Mutex::new(state));
        Ok(Pairing {
            state,
            nonce,
            minutes: Mutex::new(Minutes::new()),
            changing: Mutex::default(),
            began: Instant::now(),
        })
    }

    /// Takes nonces from `nonce`, for tests.
    #[must_use]
    pub fn with_nonces(self, nonce: fn() -> io::Result<u64>) -> Self {
        Pairing { nonce, ..self }
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        Some(self.state.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The record as last written; none where the cache keeps no generations yet.
    pub fn record(&self) -> Option<Record> {
        self.state().map(|state| state.doubtful.clone().unwrap_or_else(|| state.record.clone()))
    }

    /// Number of writes of the record since the open, each with a sync of its own.
    pub fn writes(&self) -> u64 {
        self.state().map_or(0, |state| state.writes)
    }

    /// Proposes the next generation, before the cache is in use. The record that was read is made durable first if it
    /// may not be. Returns the next record, or none where the cache keeps no generations yet. That record has to become
    /// durable after the cache was marked as in use and before anything is written to the backing store.
    ///
    /// # Errors
    /// The error of the record's location: nothing is changed then. Or the error of the source of nonces.
    pub fn propose(
        &self,
        opening: &mut Opening,
        complete: bool,
        ensure: impl FnOnce(&Record) -> io::Result<()>,
    ) -> io::Result<Option<Record>> {
        let Some(mut state) = self.state() else { return Ok(None) };
        if let Some(doubtful) = state.doubtful.clone() {
            ensure(&doubtful)?;
            state.doubtful = None;
            opening.settle_generation();
        }
        let generations = opening.generation();
        let newest = generations.pending.map_or(0, |pending| pending.number);
        let number = newest.max(generations.settled.number).max(state.record.generation.number) + 1;
        let generation = Generation { number, nonce: (self.nonce)()? };
        opening.propose_generation(generation);
        let next = Record { generation, complete, ..state.record.clone() };
        state.doubtful = Some(next.clone());
        Ok(Some(next))
    }

    /// Settles the generation, once the record has durably become the proposed one.
    ///
    /// # Errors
    /// When the cache has stopped after an internal fault.
    pub fn begun(&self, cache: &BlockCache) -> io::Result<()> {
        let Some(mut state) = self.state() else { return Ok(()) };
        state.accept();
        cache.settle_generation()
    }

    /// True if the record may go on saying that the backing store is complete while the cache is used in this mode.
    /// Write-back mode forbids that, because it acknowledges writes that only the cache has. Such writes of an earlier
    /// run are written back before the first request.
    pub fn stays_complete(&self, mode: Mode) -> bool {
        mode != Mode::WriteBack && self.state().is_some_and(|state| state.record.complete)
    }

    /// Notes that the backing store is complete, for a cache that has started in this mode. By then all its dirty pages
    /// were written back; lost pages prevent the note.
    ///
    /// # Errors
    /// The error of the cache or of the record's location.
    pub fn began(&self, cache: &BlockCache, place: &dyn RecordPlace, mode: Mode) -> io::Result<()> {
        if mode == Mode::WriteBack || !cache.lost_pages()?.is_empty() {
            return Ok(());
        }
        self.mark(cache, place, true)
    }

    /// Changes the mode of a cache in use, and the completeness mark with it. The mark is cleared before the first
    /// write may be in the cache alone. It is set after the last such write reached the backing store.
    ///
    /// # Errors
    /// The error of the cache or of the record's location. If the mode did change, the record says that the backing
    /// store is not complete.
    pub fn set_mode(&self, cache: &BlockCache, place: &dyn RecordPlace, mode: Mode) -> io::Result<()> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if mode == Mode::WriteBack {
            self.mark(cache, place, false)?;
        }
        cache.set_mode(mode)?;
        self.began(cache, place, mode)
    }

    /// Raises the generation on both sides.
    ///
    /// # Errors
    /// The error of the cache device or of the record's location. The two are a pair all the same, and the next call
    /// first completes the work that this one left undone.
    pub fn raise(&self, cache: &BlockCache, place: &dyn RecordPlace) -> io::Result<()> {
        let Some(mut state) = self.state() else { return Ok(()) };
        state.settle(cache, place)?;
        let generation = Generation { number: state.record.generation.number + 1, nonce: (self.nonce)()? };
        cache.propose_generation(generation)?;
        let next = Record { generation, ..state.record.clone() };
        state.write(next, place)?;
        cache.settle_generation()
    }

    /// Raises the generation, and returns true, if a minute has passed and pages were written to the backing store and synced there since
    /// the last such raise. To be called each second or after each flush.
    ///
    /// # Errors
    /// Same as [`raise`](Self::raise). The next attempt is a minute, with writes, later.
    pub fn raise_if_due(&self, cache: &BlockCache, place: &dyn RecordPlace) -> io::Result<bool> {
        let minutes = || self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.began.elapsed();
        if !minutes().has_passed(now) {
            return Ok(false);
        }
        let write_back = cache.stats()?.write_back;
        let is_time = minutes().is_time(now, write_back.below_pages, write_back.below_syncs);
        if is_time {
            self.raise(cache, place)?;
        }
        Ok(is_time)
    }

    /// Notes whether the backing store has every byte: durable when it returns.
    ///
    /// # Errors
    /// The error of the record's location; the mark is then this or the one before.
    pub fn mark(&self, cache: &BlockCache, place: &dyn RecordPlace, complete: bool) -> io::Result<()> {
        let Some(mut state) = self.state() else { return Ok(()) };
        state.settle(cache, place)?;
        if state.record.complete == complete {
            return Ok(());
        }
        let next = Record { complete, ..state.record.clone() };
        state.write(next, place)
    }
}

impl Pairing {
    /// Notes that a cache in use has grown, so that a cache made again has the present size: durable when it returns.
    /// Does nothing where the record has no choices.
    ///
    /// # Errors
    /// The error of the cache or of the record's location; the choices are then these or the ones before.
    pub fn note_grown(&self, cache: &BlockCache, place: &dyn RecordPlace, geometry: Geometry) -> io::Result<()> {
        self.note(cache, place, |choices| {
            choices.size_bytes = choices.size_bytes.max(geometry.size_bytes());
            choices.geometry = geometry;
        })
    }

    /// Notes the mode in which a cache is used, by its name, for later starts: durable when it returns. Does nothing
    /// where the record has no choices, or this one already.
    ///
    /// # Errors
    /// The error of the cache or of the record's location; the mode is then this or the one before.
    pub fn note_mode(&self, cache: &BlockCache, place: &dyn RecordPlace, mode: &str) -> io::Result<()> {
        self.note(cache, place, |choices| choices.mode = Some(mode.to_owned()))
    }

    /// Changes the choices of the record, if it has any and they differ then.
    fn note(&self, cache: &BlockCache, place: &dyn RecordPlace, change: impl FnOnce(&mut Choices)) -> io::Result<()> {
        let Some(mut state) = self.state() else { return Ok(()) };
        state.settle(cache, place)?;
        let mut next = state.record.clone();
        let Some(choices) = &mut next.choices else { return Ok(()) };
        change(choices);
        if next == state.record { Ok(()) } else { state.write(next, place) }
    }
}

impl State {
    fn accept(&mut self) {
        self.writes += 1;
        if let Some(now) = self.doubtful.take() {
            self.record = now;
        }
    }

    fn write(&mut self, next: Record, place: &dyn RecordPlace) -> io::Result<()> {
        self.doubtful = Some(next.clone());
        place.write(&next)?;
        self.accept();
        Ok(())
    }

    /// Writes a record again of which it is not known whether it is durable.
    fn settle(&mut self, cache: &BlockCache, place: &dyn RecordPlace) -> io::Result<()> {
        let Some(doubtful) = self.doubtful.clone() else { return Ok(()) };
        self.write(doubtful, place)?;
        cache.settle_generation()
    }
}
