//! The record of a file or block device as backing store, and the trait that keeps a cache in use in step
//! with its record.

use super::around;
use super::chosen::Kept;
use super::hold::metadata;
use super::identity::Identity;
use super::keyword::Keyword;
use anyhow::{Context, Result, bail};
use entresol_cache::{Mode, Opening};
use entresol_files::CachedFiles;
use entresol_files::record::{self, CacheKind, Changed, Choices, LastWrite, PairError, Record, RecordPlace, StorePair};
use entresol_store::{Generations, Geometry};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// A cache in use and the record at its backing store.
pub(crate) trait Paired: Send + Sync {
    /// As [`Pairing::raise_if_due`](record::Pairing::raise_if_due).
    fn raise_if_due(&self) -> io::Result<()>;

    /// As [`Pairing::set_mode`](record::Pairing::set_mode).
    fn set_mode(&self, mode: Mode) -> io::Result<()>;

    /// As [`Pairing::note_grown`](record::Pairing::note_grown).
    fn note_grown(&self, geometry: Geometry) -> io::Result<()>;

    /// As [`Pairing::note_mode`](record::Pairing::note_mode).
    fn note_mode(&self, mode: &str) -> io::Result<()>;

    /// Notes the mode for later starts, which stay in it. A mode without writes is for one start.
    fn note_used(&self, mode: Mode) -> io::Result<()> {
        if mode == Mode::ReadOnly { Ok(()) } else { self.note_mode(mode.keyword()) }
    }

    /// Called before the backing store is changed, but not through the cache: as [`LastWrite::precede`]. A directory notes
    /// its own changes.
    fn precede(&self) {}

    /// As [`StorePair::changed`]; a directory says by itself which files were changed.
    fn changed(&self) -> Option<Changed> {
        None
    }

    /// Keeps what the policy has learned for the next start, if it learns anything that lasts. Returns the number of bytes.
    fn keep_learned(&self) -> io::Result<u64>;

    /// Closes the cache in good order and raises the generation on both sides.
    fn close(&self) -> io::Result<()>;
}

impl Paired for CachedFiles {
    fn raise_if_due(&self) -> io::Result<()> {
        self.raise_if_due()
    }

    fn set_mode(&self, mode: Mode) -> io::Result<()> {
        self.set_mode(mode)
    }

    fn note_grown(&self, geometry: Geometry) -> io::Result<()> {
        self.note_grown(geometry)
    }

    fn note_mode(&self, mode: &str) -> io::Result<()> {
        self.note_mode(mode)
    }

    fn keep_learned(&self) -> io::Result<u64> {
        self.keep_learned()
    }

    fn close(&self) -> io::Result<()> {
        self.close()
    }
}

impl Paired for StorePair {
    fn precede(&self) {
        self.last_write().precede();
    }

    fn changed(&self) -> Option<Changed> {
        self.changed()
    }

    fn raise_if_due(&self) -> io::Result<()> {
        self.raise_if_due()
    }

    fn set_mode(&self, mode: Mode) -> io::Result<()> {
        self.set_mode(mode)
    }

    fn note_grown(&self, geometry: Geometry) -> io::Result<()> {
        self.note_grown(geometry)
    }

    fn note_mode(&self, mode: &str) -> io::Result<()> {
        self.note_mode(mode)
    }

    fn keep_learned(&self) -> io::Result<u64> {
        self.keep_learned()
    }

    fn close(&self) -> io::Result<()> {
        self.close()
    }
}

/// Location of the record of a backing file or block device; `identity` is the backing store's identity now.
pub(crate) fn place(backing: &Path, identity: Identity) -> Result<Arc<dyn RecordPlace>> {
    let lasting = super::identity::lasting(backing, identity);
    record::place_of(backing, lasting).with_context(|| backing.display().to_string())
}

/// Refuses a cache that does not match the record.
pub(crate) fn check(cache: &Path, uuid: [u8; 16], generations: Generations, place: &dyn RecordPlace) -> Result<()> {
    let record = record::read_record(place)?;
    let compared = record::compare(uuid, generations, record.as_ref(), place.volume()?);
    compared.with_context(|| cache.display().to_string())
}

/// Begins to use an intact cache: compares it with its record and raises the generation on both sides.
pub(crate) fn start(
    path: &Path,
    opening: Opening,
    last_write: Arc<LastWrite>,
    overruled: bool,
) -> Result<Arc<StorePair>> {
    match StorePair::start(opening, last_write, overruled) {
        Ok(pair) => Ok(Arc::new(pair)),
        // The error names the record's own path.
        Err(error @ PairError::Record { .. }) => Err(error.into()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Refuses a second cache for a file or block device while the first has data that the backing store lacks.
pub(crate) fn check_free(backing: &Path, place: &dyn RecordPlace) -> Result<()> {
    around::check_parents(backing)?;
    if let Some(Record { complete: false, choices, .. }) = record::read_record(place)? {
        let name = backing.display();
        bail!(
            "{name}: another cache{} may have dirty pages of it: drain that cache, or lose them by --force",
            of(choices.as_ref())
        );
    }
    Ok(())
}

/// Refuses to serve a file or block device without its cache while that cache has data which the backing store lacks.
pub fn check_complete(backing: &Path) -> Result<()> {
    around::check_parents(backing)?;
    // A backing store without an identity has no record.
    let Ok(identity) = super::identity::identity(backing, None) else { return Ok(()) };
    let record = record::read_record(&*place(backing, identity)?).with_context(|| backing.display().to_string())?;
    if let Some(Record { complete: false, choices, .. }) = record {
        let name = backing.display();
        bail!("{name}: is not complete without its cache{}; give --cache, or drain it", of(choices.as_ref()));
    }
    Ok(())
}

fn of(choices: Option<&Choices>) -> String {
    choices.and_then(|choices| choices.path.as_ref()).map_or(String::new(), |path| format!(" ({})", path.display()))
}

/// The choices of `format`, as the record keeps them.
pub(crate) fn choices(cache: &Path, geometry: Geometry, size_bytes: u64, kept: &Kept) -> Result<Choices> {
    let path = cache.canonicalize().with_context(|| cache.display().to_string())?;
    let device = metadata(path.parent().unwrap_or(Path::new("/")))?.dev();
    let kind = if metadata(&path)?.file_type().is_block_device() { CacheKind::BlockDevice } else { CacheKind::File };
    let (policy, mode) = (kept.policy.clone(), kept.mode.map(|mode| mode.keyword().to_owned()));
    let wear = kept.wear.map(|wear| wear.to_string());
    Ok(Choices { geometry, size_bytes, path: Some(path), kind, device, policy, mode, wear })
}
