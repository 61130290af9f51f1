//! A cache of one backing file or device, kept in step with its record.

use super::{Changed, FileRecord, LastWrite, Mismatch, Pairing, Record, RecordPlace, StateFile};
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
pub fn place_of(backing: &Path, identity: [u8; 16]) -> io::Result<Arc<dyn RecordPlace>> {
    if std::fs::metadata(backing)?.file_type().is_block_device() {
        return Ok(Arc::new(StateFile::of_device(backing, identity)?));
    }
    Ok(Arc::new(FileRecord::of(backing, identity)?))
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
    last_write: Arc<LastWrite>,
    /// The change below that the start found, if any.
    changed: Option<Changed>,
    /// Location of the learned state, if it is not the record's.
    beside: Option<StateFile>,
}

impl StorePair {
    /// Starts a cache that was opened in good order, over [this mark's](LastWrite::over) backing store: compares it with its
    /// record and raises the generation on both sides. `overruled` accepts a cache that is not the one last used, or whose
    /// record is damaged, or whose backing store was written without it while it had dirty pages.
    ///
    /// # Errors
    /// The reason why the cache cannot be started.
    pub fn start(opening: Opening, last_write: Arc<LastWrite>, overruled: bool) -> Result<Self, PairError> {
        Self::start_with(opening, last_write, None, overruled)
    }

    /// Starts a cache for a program that has it to itself, and may not be allowed to write the state directory: what the policy
    /// learns is kept beside the cache's file, in one with its name and the suffix `.learned`. Of a cache on a block device it is
    /// kept as by [`start`](Self::start).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_in_program(opening: Opening, last_write: Arc<LastWrite>, cache: &Path) -> Result<Self, PairError> {
        Self::start_with(opening, last_write, StateFile::beside(cache), false)
    }

    fn start_with(
        mut opening: Opening,
        last_write: Arc<LastWrite>,
        beside: Option<StateFile>,
        overruled: bool,
    ) -> Result<Self, PairError> {
        let place = last_write.place();
        let record = match read_record(place) {
            Err(_) if overruled => None,
            read => read?,
        };
        // Without it the policy learns anew.
        if let Ok(Some(learned)) = beside.as_ref().map_or_else(|| place.learned(), StateFile::learned) {
            opening.learn(&learned);
        }
        let failed = |error| PairError::Record { place: place.name(), error };
        let volume = place.volume().map_err(failed)?;
        let changed = last_write.compare(&mut opening, record.as_ref(), overruled);
        let pairing = Pairing::find(&opening, record, volume, overruled)?;
        let changed = changed?;
        let (mode, stays) = (opening.mode(), pairing.stays_complete(opening.mode()));
        let next = pairing.propose(&mut opening, stays, |record| place.write(record)).map_err(failed)?;
        last_write.begin(next.as_ref().map(|next| next.generation));
        let begin = || next.as_ref().map_or(Ok(()), |record| place.write(record)).map_err(failed);
        let (cache, ()) = opening.start(begin)?;
        pairing.begun(&cache).map_err(failed)?;
        pairing.began(&cache, place, mode).map_err(failed)?;
        last_write.begun();
        Ok(StorePair { cache: Arc::new(cache), pairing, last_write, changed, beside })
    }

    /// The cache.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// The mark of the last write, for a caller that changes the backing store itself.
    pub fn last_write(&self) -> &LastWrite {
        &self.last_write
    }

    /// The change below by somebody else that the start found, and its handling; none if there was none, or nothing was cached.
    pub fn changed(&self) -> Option<Changed> {
        self.changed
    }

    fn place(&self) -> &dyn RecordPlace {
        self.last_write.place()
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
        self.pairing.raise(&self.cache, self.place())?;
        self.renew();
        Ok(())
    }

    /// Has the mark of the last write go with the generation.
    fn renew(&self) {
        self.last_write.renew(self.record().map(|record| record.generation));
    }

    /// As [`Pairing::raise_if_due`].
    ///
    /// # Errors
    /// As [`Pairing::raise`].
    pub fn raise_if_due(&self) -> io::Result<()> {
        if self.pairing.raise_if_due(&self.cache, self.place())? {
            self.renew();
        }
        Ok(())
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
            None => self.place().keep_learned(&learned)?,
        }
        Ok(learned.len() as u64)
    }

    /// As [`Pairing::set_mode`].
    ///
    /// # Errors
    /// The same.
    pub fn set_mode(&self, mode: Mode) -> io::Result<()> {
        self.pairing.set_mode(&self.cache, self.place(), mode)
    }

    /// As [`Pairing::note_grown`].
    ///
    /// # Errors
    /// The same.
    pub fn note_grown(&self, geometry: Geometry) -> io::Result<()> {
        self.pairing.note_grown(&self.cache, self.place(), geometry)
    }

    /// As [`Pairing::note_mode`].
    ///
    /// # Errors
    /// The same.
    pub fn note_mode(&self, mode: &str) -> io::Result<()> {
        self.pairing.note_mode(&self.cache, self.place(), mode)
    }

    /// Notes whether the backing store has every byte while the cache stays in use: durable when it returns. True holds
    /// only after a drain and until the next write. A caller must note false before it writes.
    ///
    /// # Errors
    /// The error of the cache or of the record's location: the record then has this value or the one before.
    pub fn note_complete(&self, complete: bool) -> io::Result<()> {
        let complete = complete && self.is_empty()?;
        self.pairing.mark(&self.cache, self.place(), complete)
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
        self.note_complete(true)?;
        self.last_write.close();
        Ok(())
    }
}
