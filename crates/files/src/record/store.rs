//! A cache of one backing file or device, kept in step with its record.

use super::{FileRecord, Mismatch, Pairing, Record, RecordPlace, StateFile};
use entresol_cache::{BlockCache, CacheError, Mode, Opening};
use entresol_store::Geometry;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

/// Reason why a cache and its record could not be paired. Nothing was changed then, unless a store failed.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// The two do not belong together.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The record could not be read or written.
    #[error("the record of the cache, {place}: {error}")]
    Record {
        /// Location of the record, in words.
        place: String,
        /// Error of the system, or the fault of the record.
        error: io::Error,
    },
    /// The error of the cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// The location of the record of a backing file or block device, which `identity` tells from all others.
///
/// # Errors
/// The error of the system.
pub fn place_of(backing: &Path, identity: [u8; 16]) -> io::Result<Box<dyn RecordPlace>> {
    if std::fs::metadata(backing)?.file_type().is_block_device() {
        return Ok(Box::new(StateFile::of(identity)));
    }
    Ok(Box::new(FileRecord::of(backing, identity)?))
}

/// Reads a record. An error names its location and, for a damaged record, the way out.
///
/// # Errors
/// As [`RecordPlace::read`].
pub fn read_record(place: &dyn RecordPlace) -> Result<Option<Record>, PairError> {
    place.read().map_err(|error| {
        let way_out = "`entresol drain --generation-ok` writes this cache's dirty pages below without it, `entresol \
                       format --force` makes a new cache and loses them";
        let error = match error.kind() {
            io::ErrorKind::InvalidData => io::Error::new(error.kind(), format!("{error}; {way_out}")),
            _ => error,
        };
        PairError::Record { place: place.name(), error }
    })
}

/// Bytes of learned state that a request pays for when a program ends: an eighth of those that it moves.
const LEARNED_BYTES_PER_REQUEST: u64 = 512;

/// A cache in use and its record.
pub struct StorePair {
    cache: Arc<BlockCache>,
    pairing: Pairing,
    place: Box<dyn RecordPlace>,
    /// Location of the learned state, if it is not the record's.
    beside: Option<StateFile>,
}

impl StorePair {
    /// Starts a cache that was opened in good order: compares it with its record and raises the generation on both
    /// sides. `overruled` accepts a cache that is not the one last used, or whose record is damaged.
    ///
    /// # Errors
    /// The reason why the cache cannot be started.
    pub fn start(opening: Opening, place: Box<dyn RecordPlace>, overruled: bool) -> Result<Self, PairError> {
        Self::start_with(opening, place, None, overruled)
    }

    /// Starts a cache for a program that has it to itself, and may not be allowed to write the state directory: what the policy
    /// learns is kept beside the cache's file, in one with its name and the suffix `.learned`. Of a cache on a block device it is
    /// kept as by [`start`](Self::start).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_in_program(opening: Opening, place: Box<dyn RecordPlace>, cache: &Path) -> Result<Self, PairError> {
        Self::start_with(opening, place, StateFile::beside(cache), false)
    }

    fn start_with(
        mut opening: Opening,
        place: Box<dyn RecordPlace>,
        beside: Option<StateFile>,
        overruled: bool,
    ) -> Result<Self, PairError> {
        let record = match read_record(&*place) {
            Err(_) if overruled => None,
            read => read?,
        };
        // Without it the policy learns anew.
        if let Ok(Some(learned)) = beside.as_ref().map_or_else(|| place.learned(), StateFile::learned) {
            opening.learn(&learned);
        }
        let failed = |error| PairError::Record { place: place.name(), error };
        let pairing = Pairing::find(&opening, record, place.volume().map_err(failed)?, overruled)?;
        let (mode, stays) = (opening.mode(), pairing.stays_complete(opening.mode()));
        let next = pairing.propose(&mut opening, stays, |record| place.write(record)).map_err(failed)?;
        let begin = || next.as_ref().map_or(Ok(()), |record| place.write(record)).map_err(failed);
        let (cache, ()) = opening.start(begin)?;
        pairing.begun(&cache).map_err(failed)?;
        pairing.began(&cache, &*place, mode).map_err(failed)?;
        Ok(StorePair { cache: Arc::new(cache), pairing, place, beside })
    }

    /// The cache.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// The record as last written; none where the cache keeps no generations yet.
    pub fn record(&self) -> Option<Record> {
        self.pairing.record()
    }

    /// Raises the generation on both sides.
    ///
    /// # Errors
    /// As [`Pairing::raise`].
    pub fn raise(&self) -> io::Result<()> {
        self.pairing.raise(&self.cache, &*self.place)
    }

    /// As [`Pairing::raise_if_due`].
    ///
    /// # Errors
    /// As [`Pairing::raise`].
    pub fn raise_if_due(&self) -> io::Result<()> {
        self.pairing.raise_if_due(&self.cache, &*self.place)
    }

    /// Keeps what the policy has learned, if it learns anything that lasts. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`BlockCache::learned`] and [`RecordPlace::keep_learned`].
    pub fn keep_learned(&self) -> io::Result<u64> {
        self.keep_learned_of(u64::MAX)
    }

    /// As [`keep_learned`](Self::keep_learned), unless there are more bytes than 512 for each request since the start: a program that
    /// is run for a few requests must not write for many.
    ///
    /// # Errors
    /// The same.
    pub fn keep_learned_if_paid(&self) -> io::Result<u64> {
        let counts = self.cache.stats()?.counts;
        self.keep_learned_of((counts.reads + counts.writes).saturating_mul(LEARNED_BYTES_PER_REQUEST))
    }

    fn keep_learned_of(&self, bytes_max: u64) -> io::Result<u64> {
        let learned = self.cache.learned()?.filter(|learned| learned.len() as u64 <= bytes_max);
        let Some(learned) = learned else { return Ok(0) };
        match &self.beside {
            Some(beside) => beside.keep_learned(&learned)?,
            None => self.place.keep_learned(&learned)?,
        }
        Ok(learned.len() as u64)
    }

    /// As [`Pairing::set_mode`].
    ///
    /// # Errors
    /// The same.
    pub fn set_mode(&self, mode: Mode) -> io::Result<()> {
        self.pairing.set_mode(&self.cache, &*self.place, mode)
    }

    /// As [`Pairing::note_grown`].
    ///
    /// # Errors
    /// The same.
    pub fn note_grown(&self, geometry: Geometry) -> io::Result<()> {
        self.pairing.note_grown(&self.cache, &*self.place, geometry)
    }

    /// As [`Pairing::note_mode`].
    ///
    /// # Errors
    /// The same.
    pub fn note_mode(&self, mode: &str) -> io::Result<()> {
        self.pairing.note_mode(&self.cache, &*self.place, mode)
    }

    /// Notes whether the backing store has every byte while the cache stays in use: durable when it returns. True holds
    /// only after a drain and until the next write. A caller must note false before it writes.
    ///
    /// # Errors
    /// The error of the cache or of the record's location: the record then has this value or the one before.
    pub fn note_complete(&self, complete: bool) -> io::Result<()> {
        let complete = complete && self.is_empty()?;
        self.pairing.mark(&self.cache, &*self.place, complete)
    }

    /// True if the backing store has all that the cache has.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.cache.stats()?.dirty_pages == 0 && self.cache.lost_pages()?.is_empty())
    }

    /// Closes the cache and raises the generation on both sides; the record then says whether the cache may be lost.
    ///
    /// # Errors
    /// The error of the cache, the backing store or the place of the record.
    pub fn close(&self) -> io::Result<()> {
        // A close without the raised record still leaves a pair, so the cache is closed before the error is returned.
        let raised = self.raise();
        self.cache.close()?;
        raised?;
        self.note_complete(true)
    }
}
