//! The backing record of a file or block device, and how a cache in use is kept in step with its record, whatever it stands before.

use super::around;
use super::chosen::Kept;
use super::identity::Identity;
use super::metadata;
use crate::values::word;
use anyhow::{Context, Result, bail};
use entresol_engine::cache::{Mode, Opening};
use entresol_engine::store::{Generations, Geometry};
use entresol_files::CachedFiles;
use entresol_files::record::{self, CacheKind, Choices, PairError, Record, RecordPlace, StorePair};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// A cache in use and the record of what is below it.
pub trait Paired: Send + Sync {
    /// As [`Pairing::raise_if_due`](record::Pairing::raise_if_due).
    fn raise_if_due(&self) -> io::Result<()>;

    /// As [`Pairing::set_mode`](record::Pairing::set_mode).
    fn set_mode(&self, mode: Mode) -> io::Result<()>;

    /// As [`Pairing::note_grown`](record::Pairing::note_grown).
    fn note_grown(&self, geometry: Geometry) -> io::Result<()>;

    /// Closes the cache in good order, a generation further on both sides.
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

    fn close(&self) -> io::Result<()> {
        self.close()
    }
}

impl Paired for StorePair {
    fn raise_if_due(&self) -> io::Result<()> {
        self.raise_if_due()
    }

    fn set_mode(&self, mode: Mode) -> io::Result<()> {
        self.set_mode(mode)
    }

    fn note_grown(&self, geometry: Geometry) -> io::Result<()> {
        self.note_grown(geometry)
    }

    fn close(&self) -> io::Result<()> {
        self.close()
    }
}

/// Place of the record of a backing file or block device; `identity` is its name as of now.
pub fn place(backing: &Path, identity: Identity) -> Result<Box<dyn RecordPlace>> {
    let lasting = super::identity::lasting(backing, identity);
    record::place_of(backing, lasting).with_context(|| backing.display().to_string())
}

/// Refuses a cache that is not the one of its record.
pub fn check(cache: &Path, uuid: [u8; 16], generations: Generations, place: &dyn RecordPlace) -> Result<()> {
    let record = record::read_record(place)?;
    let compared = record::compare(uuid, generations, record.as_ref(), place.volume()?);
    compared.with_context(|| cache.display().to_string())
}

/// Begins to use a cache that was found in order: compared with its record, and a generation further on both sides.
pub fn start(path: &Path, opening: Opening, place: Box<dyn RecordPlace>, overruled: bool) -> Result<Arc<StorePair>> {
    match StorePair::start(opening, place, overruled) {
        Ok(pair) => Ok(Arc::new(pair)),
        // It says where it lies.
        Err(error @ PairError::Record { .. }) => Err(error.into()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Refuses to make a second cache before a file or block device of which the first has what that has not.
pub fn check_free(backing: &Path, place: &dyn RecordPlace) -> Result<()> {
    around::check_parents(backing)?;
    if let Some(Record { complete: false, choices, .. }) = record::read_record(place)? {
        let name = backing.display();
        bail!("{name}: another cache{} has what it has not: drain that, or lose it by --force", of(choices.as_ref()));
    }
    Ok(())
}

/// Refuses to serve a file or block device past the cache that has what it has not.
pub fn check_complete(backing: &Path) -> Result<()> {
    around::check_parents(backing)?;
    // What has no identity has no record.
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

/// Choices of `format`, for the record.
pub fn choices(cache: &Path, geometry: Geometry, size_bytes: u64, kept: &Kept) -> Result<Choices> {
    let path = cache.canonicalize().with_context(|| cache.display().to_string())?;
    let device = metadata(path.parent().unwrap_or(Path::new("/")))?.dev();
    let kind = if metadata(&path)?.file_type().is_block_device() { CacheKind::BlockDevice } else { CacheKind::File };
    let (policy, mode) = (kept.policy.clone(), kept.mode.map(word));
    Ok(Choices { geometry, size_bytes, path: Some(path), kind, device, policy, mode })
}
