//! A cache and its backing record in step: which of two copies is the older is told at every open, and a crash between the
//! writes to the two is neither a refusal of the right cache nor a welcome for an old one.
//!
//! A generation is raised in three steps: the cache notes durably that the record is about to get it ([`propose`]), the
//! record gets it durably, and the cache takes it for settled, in memory; its next superblock says so. The record therefore
//! always has one of the two generations of its cache. Whenever it is not known whether it got the pending one (a write that
//! failed, a record that was just read after a crash and may not be durable), it is written again before anything else is
//! proposed: a third generation would leave it with none of the two.
//!
//! [`propose`]: BlockCache::propose_generation

use super::minutes::Minutes;
use super::{Choices, Record, RecordPlace};
use entresol_engine::cache::{BlockCache, Mode, Opening};
use entresol_engine::store::{Generation, Generations, Geometry};
use std::io::{self, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Why a cache and a backing store are no pair.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Another cache was made for the backing store since.
    #[error("another cache was made for this backing store since{}; only that may stand before it", of_path(.path))]
    Foreign {
        /// Path at which that cache was made, if it is known.
        path: Option<std::path::PathBuf>,
    },
    /// The cache is an older copy.
    #[error(
        "this cache is an older copy: its generation is {cache}, its backing store has seen {backing}; give the cache that was \
         used last. If that is lost, what only it had is lost: make a new one by `entresol format --force`"
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
         the backing store that was used last. If it was restored on purpose, what the cache holds is not its: make a new \
         cache by `entresol format --force`"
    )]
    Newer {
        /// Generation of the cache.
        cache: u64,
        /// Generation of the record.
        backing: u64,
    },
    /// Both went on, each with a copy of the other.
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
    /// The backing store lies in a snapshot of where it was.
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
    /// May who knows better have the dirty pages of the cache written below all the same?
    pub fn may_be_overruled(&self) -> bool {
        !matches!(self, Mismatch::Foreign { .. })
    }
}

/// Compares a cache with what its backing store knows of it; `volume` is where that lies now.
///
/// # Errors
/// Why they are no pair.
pub fn compare(
    uuid: [u8; 16],
    generations: Generations,
    record: Option<&Record>,
    volume: Option<[u8; 16]>,
) -> Result<(), Mismatch> {
    let newest = generations.pending.map_or(generations.settled.number, |pending| pending.number);
    let Some(record) = record else {
        // Of before records were kept, or the first was proposed and is not there yet.
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

/// A number that nobody can foretell.
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
    /// Held while the mode changes, and with it the mark.
    changing: Mutex<()>,
    began: Instant,
}

struct State {
    /// Record that the place has.
    record: Record,
    /// It may have this one instead.
    doubtful: Option<Record>,
    /// Syncs of the record since the open.
    writes: u64,
}

impl Pairing {
    /// The pair of a cache that was found in order and the record that its place has.
    ///
    /// # Errors
    /// Why they are no pair. With `overruled` only what may not be.
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
        // One that the cache does not know to be durable was perhaps only read from memory.
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

    /// Has nonces come from here, for tests.
    #[must_use]
    pub fn with_nonces(self, nonce: fn() -> io::Result<u64>) -> Self {
        Pairing { nonce, ..self }
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        Some(self.state.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The record as it was last written; none where the cache keeps no generations yet.
    pub fn record(&self) -> Option<Record> {
        self.state().map(|state| state.doubtful.clone().unwrap_or_else(|| state.record.clone()))
    }

    /// Number of times that the record was written since the open, each with a sync of its own.
    pub fn writes(&self) -> u64 {
        self.state().map_or(0, |state| state.writes)
    }

    /// Proposes the next generation, before the cache is in use. The record that was read becomes durable first if it
    /// may not be. Returns the next record, or none where the cache keeps no generations yet. It has to become durable
    /// after the cache was marked as in use and before anything is written below.
    ///
    /// # Errors
    /// The error of the place: nothing is changed then. Or the error of the source of nonces.
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

    /// The record became what was proposed, durably.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn begun(&self, cache: &BlockCache) -> io::Result<()> {
        let Some(mut state) = self.state() else { return Ok(()) };
        state.accept();
        cache.settle_generation()
    }

    /// True if the record may go on saying that the backing store is complete, once a cache is in use in this mode. It
    /// may unless a write can be answered that is in the cache alone. Writes that an earlier run left there are below
    /// before the first request.
    pub fn stays_complete(&self, mode: Mode) -> bool {
        mode != Mode::WriteBack && self.state().is_some_and(|state| state.record.complete)
    }

    /// Notes that the backing store is complete, of a cache that has begun to work in this mode: all that it had is below by then, but for
    /// pages that were lost.
    ///
    /// # Errors
    /// The error of the cache or of the place.
    pub fn began(&self, cache: &BlockCache, place: &dyn RecordPlace, mode: Mode) -> io::Result<()> {
        if mode == Mode::WriteBack || !cache.lost_pages()?.is_empty() {
            return Ok(());
        }
        self.mark(cache, place, true)
    }

    /// Another mode of a cache in use, and the mark with it: that says that the backing store is not complete before the first write may
    /// be in the cache alone, and that it is after the last such write went below.
    ///
    /// # Errors
    /// The error of the cache or of the place. Where the mode is the new one all the same, the record says that the
    /// backing store is not complete.
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
    /// The error of the cache device or of the place. The two are a pair all the same, and the next call begins with
    /// the work that this one left undone.
    pub fn raise(&self, cache: &BlockCache, place: &dyn RecordPlace) -> io::Result<()> {
        let Some(mut state) = self.state() else { return Ok(()) };
        state.settle(cache, place)?;
        let generation = Generation { number: state.record.generation.number + 1, nonce: (self.nonce)()? };
        cache.propose_generation(generation)?;
        let next = Record { generation, ..state.record.clone() };
        state.write(next, place)?;
        cache.settle_generation()
    }

    /// Raises the generation if a minute has passed, and something was written below and synced there since it was raised so last: for
    /// who looks after the cache, each second or after each flush.
    ///
    /// # Errors
    /// As [`raise`](Self::raise). It is tried again a minute with writes later.
    pub fn raise_if_due(&self, cache: &BlockCache, place: &dyn RecordPlace) -> io::Result<()> {
        let minutes = || self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.began.elapsed();
        if !minutes().has_passed(now) {
            return Ok(());
        }
        let write_back = cache.stats()?.write_back;
        let is_time = minutes().is_time(now, write_back.below_pages, write_back.below_syncs);
        if is_time { self.raise(cache, place) } else { Ok(()) }
    }

    /// Notes whether the backing store has every byte: durable when it returns.
    ///
    /// # Errors
    /// The error of the place; the mark is then this or the one before.
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
    /// Notes that a cache in use has become larger, so that one that is made anew has the size of now: durable when it returns. Nothing
    /// where the record has no choices.
    ///
    /// # Errors
    /// The error of the cache or of the place; the choices are then these or the ones before.
    pub fn note_grown(&self, cache: &BlockCache, place: &dyn RecordPlace, geometry: Geometry) -> io::Result<()> {
        let Some(mut state) = self.state() else { return Ok(()) };
        state.settle(cache, place)?;
        let Some(choices) = state.record.choices.clone() else { return Ok(()) };
        let size_bytes = choices.size_bytes.max(geometry.size_bytes());
        let choices = Some(Choices { geometry, size_bytes, ..choices });
        let next = Record { choices, ..state.record.clone() };
        state.write(next, place)
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

    /// Writes again what may or may not be there.
    fn settle(&mut self, cache: &BlockCache, place: &dyn RecordPlace) -> io::Result<()> {
        let Some(doubtful) = self.doubtful.clone() else { return Ok(()) };
        self.write(doubtful, place)?;
        cache.settle_generation()
    }
}
