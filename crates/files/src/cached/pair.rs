//! A directory and its cache as a pair: the file map contains the record, and both sides are raised together.

use super::learned;
use super::map::{self, FileMap};
use super::start::Backing;
use super::{CachedFiles, FilesError, HIDDEN, Shared, key};
use crate::below::{Directory, OpenDirectory, Paths, System};
use crate::record::{Pairing, Record, RecordPlace, volume};
use entresol_cache::{Mode, Opening};
use entresol_store::Geometry;
use rustix::fs::FlockOperation;
use std::io;
use std::path::{Path, PathBuf};

/// The file map in use as the location of the record.
pub(super) struct MapPlace<'a>(pub &'a Shared);

impl RecordPlace for MapPlace<'_> {
    fn read(&self) -> io::Result<Option<Record>> {
        Ok(self.0.map().record().cloned())
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        self.0.map().note_record(record)
    }

    fn clear(&self) -> io::Result<()> {
        // The record is removed with the map.
        Err(io::ErrorKind::Unsupported.into())
    }

    fn volume(&self) -> io::Result<Option<[u8; 16]>> {
        Ok(self.0.map().record().and_then(|record| record.volume))
    }

    fn name(&self) -> String {
        "the file map".to_owned()
    }
}

impl Backing {
    /// Record in the map of the directory's cache; none if no cache of this version was used with the directory yet.
    pub fn record(&self) -> Option<&Record> {
        self.contents().record.as_ref()
    }

    /// Path of a directory's cache when the cache was made, if known. The directory may be in use.
    ///
    /// # Errors
    /// When the directory's map is damaged or of another version, or the error of the system.
    pub fn cache_of(directory: &Path) -> Result<Option<PathBuf>, FilesError> {
        Ok(Self::record_of(directory)?.and_then(|record| record.choices).and_then(|choices| choices.path))
    }

    /// The record in the map of a directory's cache, as [`record`](Self::record). The directory may be in use.
    ///
    /// # Errors
    /// When the directory's map is damaged or of another version, or the error of the system.
    pub fn record_of(directory: &Path) -> Result<Option<Record>, FilesError> {
        let hidden = System.open_directory(directory)?.open_directory(HIDDEN).map_err(io::Error::from)?;
        Ok(map::read(&hidden)?.and_then(|contents| contents.record))
    }

    /// The btrfs subvolume of the directory, if any.
    ///
    /// # Errors
    /// The error of the system.
    pub fn volume(&self) -> io::Result<Option<[u8; 16]>> {
        self.root().descriptor().map_or(Ok(None), volume::of)
    }

    /// With `overruled`, a start accepts a cache whose generation is not the map's.
    #[must_use]
    pub fn overruling_generations(mut self, overruled: bool) -> Self {
        self.overruled = overruled;
        self
    }

    /// The pair of an opened cache and this directory.
    pub(super) fn pair(&self, opening: &Opening) -> Result<Pairing, FilesError> {
        let (record, volume) = (self.record().cloned(), self.volume()?);
        Ok(Pairing::find(opening, record, volume, self.overruled)?)
    }
}

/// Relation of a directory to its cache, which tells whether the directory may be served without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// There is no cache, or every byte is in the files.
    Free,
    /// A process uses the cache.
    InUse,
    /// The cache has bytes that the files lack.
    Incomplete,
}

/// Returns the standing of a directory to its cache. Nothing is changed, and no lock is kept.
///
/// # Errors
/// When the directory's map is damaged or of another version, or the error of the system.
pub fn standing(directory: &Path) -> Result<Standing, FilesError> {
    let opened = System.open_directory(directory).and_then(|root| Ok((root.open_directory(HIDDEN)?, root)));
    let (hidden, root): (Directory, Directory) = match opened {
        Ok(opened) => opened,
        // A user who may not look at the map may not serve the directory's contents either.
        Err(error) if is_no_map(&error) => return Ok(Standing::Free),
        Err(error) => return Err(error.into()),
    };
    if let Some(descriptor) = hidden.descriptor() {
        let locked = rustix::fs::flock(descriptor, FlockOperation::NonBlockingLockShared);
        let _held_no_longer = rustix::fs::flock(descriptor, FlockOperation::Unlock);
        if matches!(locked, Err(rustix::io::Errno::WOULDBLOCK)) {
            return Ok(Standing::InUse);
        }
    }
    let Some(contents) = map::read(&hidden)? else { return Ok(Standing::Free) };
    // A map that was copied with its directory says nothing of the copy.
    let is_own = contents.directory == key(&root.found()?)?;
    Ok(if is_own && !contents.is_complete() { Standing::Incomplete } else { Standing::Free })
}

fn is_no_map(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

impl FileMap {
    /// The record.
    pub fn record(&self) -> Option<&Record> {
        self.contents().record.as_ref()
    }

    /// Replaces the record, durably. While pages are kept from a file in conflict, the record never says complete.
    pub fn note_record(&mut self, record: &Record) -> io::Result<()> {
        let complete = record.complete && self.contents().conflicts.is_empty();
        let record = &Record { complete, ..record.clone() };
        let before = self.contents().record.as_ref();
        let blocks = super::kept::changes(before, record);
        let other_choices = before.is_some_and(|before| before.choices != record.choices);
        self.contents_mut().record = Some(record.clone());
        if other_choices {
            // Choices take several blocks, of which a crash must not leave only some.
            return self.write_anew();
        }
        blocks.iter().try_for_each(|block| self.append_or_renew(block))?;
        self.sync()
    }
}

impl CachedFiles {
    /// The cache and its record, to be raised and marked.
    pub fn pairing(&self) -> &Pairing {
        &self.pairing
    }

    /// Raises the generation in the cache and in the map.
    ///
    /// # Errors
    /// As [`Pairing::raise`].
    pub fn raise_generation(&self) -> io::Result<()> {
        if self.shared.read_only {
            return Ok(());
        }
        self.pairing.raise(&self.shared.cache, &MapPlace(&self.shared))
    }

    /// Notes in the map that the files have every byte, if that holds in the mode in which the cache was opened.
    pub(super) fn began(&self, mode: Mode) -> io::Result<()> {
        if self.shared.read_only {
            return Ok(());
        }
        self.pairing.began(&self.shared.cache, &MapPlace(&self.shared), mode)
    }

    /// Keeps what the policy has learned beside the map, if it learns anything that lasts. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`BlockCache::learned`](entresol_cache::BlockCache::learned), or the error of the system.
    pub fn keep_learned(&self) -> io::Result<u64> {
        let Some(learned) = self.shared.cache.learned()?.filter(|_| !self.shared.read_only) else { return Ok(0) };
        learned::write(&self.root.open_directory(HIDDEN)?, &learned).map(|()| learned.len() as u64)
    }

    /// As [`Pairing::raise_if_due`].
    ///
    /// # Errors
    /// As [`Pairing::raise`].
    pub fn raise_if_due(&self) -> io::Result<()> {
        if self.shared.read_only {
            return Ok(());
        }
        self.pairing.raise_if_due(&self.shared.cache, &MapPlace(&self.shared)).map(|_raised| ())
    }

    /// As [`Pairing::note_grown`].
    ///
    /// # Errors
    /// The same.
    pub fn note_grown(&self, geometry: Geometry) -> io::Result<()> {
        self.pairing.note_grown(&self.shared.cache, &MapPlace(&self.shared), geometry)
    }

    /// As [`Pairing::note_mode`].
    ///
    /// # Errors
    /// The same.
    pub fn note_mode(&self, mode: &str) -> io::Result<()> {
        self.pairing.note_mode(&self.shared.cache, &MapPlace(&self.shared), mode)
    }

    /// As [`Pairing::set_mode`].
    ///
    /// # Errors
    /// The same.
    pub fn set_mode(&self, mode: Mode) -> io::Result<()> {
        self.pairing.set_mode(&self.shared.cache, &MapPlace(&self.shared), mode)
    }
}
