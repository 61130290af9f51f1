//! A read-only look at the place where a cache should be.

use super::signature::{LOOKED_AT, signature};
use crate::hold::ReadFile;
use crate::identity::{self, Identity};
use crate::translation::generations;
use anyhow::{Context, Result};
use entresol_files::record::{CacheKind, Mismatch, Record, compare};
use entresol_fsck::{Bytes, State, Superblock, SurveyError, claims, superblock, survey};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Contents of the place where a cache should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// No file has that path.
    Missing(Remaking),
    /// Zeros and nothing else: an instance store after a stop, or an empty file.
    Blank,
    /// A cache of this backing store, according to its superblocks.
    Ours,
    /// A cache of this backing store that cannot be opened, with the reason.
    Damaged(String),
    /// An older copy of the cache, or an earlier cache of this backing store, with the evidence.
    Stale(String),
    /// A cache of this backing store that is newer than the backing store itself, with the evidence.
    Ahead(String),
    /// A cache of another backing store.
    Foreign {
        /// Dirty pages that it holds of the other backing store.
        dirty_pages: u64,
        /// True if this backing store was last used with a cache at another path: the backing store may be the one at
        /// the wrong place.
        elsewhere: bool,
    },
    /// A cache of a version that this program does not know.
    Version(u32),
    /// A file system or the like, by its signature.
    Signature(&'static str),
    /// Bytes without a superblock of this program.
    SomethingElse,
    /// A device that cannot be read, and why.
    Unreadable(String),
}

/// Permission to make a missing cache at its path, or the reason against that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaking {
    /// The cache was a regular file, and its folder is on the same file system as before.
    Allowed,
    /// The path is below /dev, where devices come and go.
    BelowDev,
    /// The cache was a device.
    WasDevice,
    /// The cache was a regular file at another path.
    OtherPath,
    /// The folder does not exist.
    NoFolder,
    /// The folder is on another file system than before: the right one may not be mounted yet.
    OtherFileSystem,
    /// The kind of the earlier cache is not known.
    Unknown,
}

impl Look {
    /// Describes the contents, for use after the name of the place; `backing` is the store whose cache should be there.
    pub fn words(&self, backing: &Path) -> String {
        match self {
            Look::Missing(remaking) => format!("is not there{}", remaking.because()),
            Look::Blank => "is blank".to_owned(),
            Look::Ours => "is in order".to_owned(),
            Look::Damaged(why) => format!("cannot be opened: {why}"),
            Look::Stale(why) | Look::Ahead(why) => why.clone(),
            Look::Foreign { dirty_pages, .. } => {
                let right = if backing.is_dir() { "file system mounted" } else { "one attached" };
                let dirty = match dirty_pages {
                    0 => String::new(),
                    pages => format!(" and holds {pages} dirty pages of that: is the right {right}?"),
                };
                format!("this is the cache of another backing store than {}{dirty}", backing.display())
            }
            Look::Version(version) => {
                format!("a cache of layout version {version}; this program knows versions 2 and 3")
            }
            Look::Signature(what) => format!("holds {what}"),
            Look::SomethingElse => "not an Entresol cache: neither superblock is there".to_owned(),
            Look::Unreadable(why) => format!("cannot be read: {why}"),
        }
    }
}

impl Remaking {
    fn because(self) -> &'static str {
        match self {
            Remaking::Allowed => "",
            Remaking::BelowDev => ": no such device",
            Remaking::WasDevice => "; it was a device",
            Remaking::OtherPath => "; it was at another path",
            Remaking::NoFolder => ", nor is its folder: is its file system mounted?",
            Remaking::OtherFileSystem => {
                ", and its folder is on another file system than before: is the right one mounted?"
            }
            Remaking::Unknown => "",
        }
    }

    /// For a path without a file.
    fn of(path: &Path, record: Option<&Record>) -> Self {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if is_below_dev(path) || folder.canonicalize().is_ok_and(|folder| is_below_dev(&folder)) {
            return Remaking::BelowDev;
        }
        let Some(made) = record.and_then(|record| record.choices.as_ref()) else { return Remaking::Unknown };
        match std::fs::metadata(folder) {
            _ if made.kind != CacheKind::File => Remaking::WasDevice,
            Err(_) => Remaking::NoFolder,
            Ok(found) if found.dev() != made.device => Remaking::OtherFileSystem,
            // A dangling symbolic link is no place for a file.
            Ok(_) if path.is_symlink() => Remaking::Unknown,
            Ok(_) if made.path.is_none() || made.path != absolute(folder, path) => Remaking::OtherPath,
            Ok(_) => Remaking::Allowed,
        }
    }
}

/// The absolute path of a file in its folder.
fn absolute(folder: &Path, path: &Path) -> Option<PathBuf> {
    Some(folder.canonicalize().ok()?.join(path.file_name()?))
}

fn is_below_dev(path: &Path) -> bool {
    path.starts_with("/dev")
}

/// The backing store.
#[derive(Clone, Copy)]
pub struct Below<'a> {
    /// Path of the backing store.
    pub path: &'a Path,
    /// Identity by which the backing store is known now.
    pub identity: Identity,
}

/// Looks at the place of a backing store's cache. `record` is the store's record; `volume` is its btrfs subvolume.
///
/// # Errors
/// If the place is in use, or may not be read.
pub fn look(path: &Path, below: Below, record: Option<&Record>, volume: Option<[u8; 16]>) -> Result<Look> {
    let found = match path.metadata() {
        Ok(found) => found,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Look::Missing(Remaking::of(path, record)));
        }
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    if !found.is_file() && !found.file_type().is_block_device() {
        return Ok(Look::SomethingElse);
    }
    let file = ReadFile::open(path)?;
    Ok(contents(&file, below, record, volume)
        .and_then(|told| match told {
            Some(Look::Foreign { dirty_pages, .. }) => {
                let left_at = record.and_then(|record| record.choices.as_ref()).and_then(|made| made.path.clone());
                Ok(Look::Foreign { dirty_pages, elsewhere: left_at != path.canonicalize().ok() })
            }
            Some(look) => Ok(look),
            None if is_blank(&file, found.is_file())? => Ok(Look::Blank),
            None => Ok(Look::SomethingElse),
        })
        .unwrap_or_else(|error| Look::Unreadable(error.to_string())))
}

/// As [`dirty_pages`], for the file at a path.
pub(crate) fn dirty_pages_at(cache: &Path) -> u64 {
    ReadFile::open(cache).map_or(0, |store| dirty_pages(&store))
}

/// Number of dirty pages in a cache, as far as it can be read.
pub(crate) fn dirty_pages(store: &impl Bytes) -> u64 {
    survey(store, false).map_or(0, |found| found.count(|version| version.dirty))
}

/// Contents according to superblocks and signatures; none if there is neither.
fn contents(
    file: &impl Bytes,
    below: Below,
    record: Option<&Record>,
    volume: Option<[u8; 16]>,
) -> io::Result<Option<Look>> {
    let mut first = vec![0; file.size_bytes().min(LOOKED_AT as u64) as usize];
    file.read_at(0, &mut first)?;
    let told = match superblock(file) {
        Ok(found) if identity::is_of(&found, below.path, below.identity) => ours(&found, record, volume),
        Ok(_) => Look::Foreign { dirty_pages: dirty_pages(file), elsewhere: false },
        Err(SurveyError::Io(error)) => return Err(error),
        Err(SurveyError::Version(version)) => Look::Version(version),
        // The identity may be legible all the same, and its sixteen bytes do not occur by chance.
        Err(error) if claims(&first, below.identity) => Look::Damaged(error.to_string()),
        Err(SurveyError::NotACache) => return Ok(signature(&first).map(Look::Signature)),
        Err(_) => Look::SomethingElse,
    };
    Ok(Some(told))
}

/// Judges a cache of this backing store with a valid superblock: the cache that was left, or another.
fn ours(found: &Superblock, record: Option<&Record>, volume: Option<[u8; 16]>) -> Look {
    let generations = generations(found);
    let newest = generations.pending.unwrap_or(generations.settled).number;
    match compare(found.uuid, generations, record, volume) {
        Ok(()) => {}
        Err(error @ (Mismatch::Foreign { .. } | Mismatch::Older { .. }))
            if record.is_some_and(|record| newest <= record.generation.number) =>
        {
            return Look::Stale(error.to_string());
        }
        // A cache that is newer than the backing store, or of another history, must not be overwritten.
        Err(error) => return Look::Ahead(error.to_string()),
    }
    match found.state {
        State::Retired => Look::Damaged("it was retired when its device failed".to_owned()),
        State::Open | State::Closed => Look::Ours,
    }
}

/// Bytes read at once in the search for data.
const PART: u64 = 1 << 20;
/// Samples of a device that are read besides its two ends.
const SAMPLES: u64 = 4096;
/// Bytes of a sample.
const SAMPLE: u64 = 4096;
/// Largest device in bytes that is read as a whole.
const WHOLE_MAX: u64 = 1 << 30;

/// True if the place holds only zeros.
///
/// A regular file is read wherever it has data, and a device of up to 1 GiB as a whole. A larger device is read at both
/// ends, 1 MiB each, and at 4096 places in between. A full read would take minutes at each start of a machine.
fn is_blank(file: &ReadFile, is_file: bool) -> io::Result<bool> {
    let size = file.size_bytes;
    if is_file {
        return no_data(file);
    }
    if size <= WHOLE_MAX {
        return all_zeros(file, 0, size);
    }
    if !all_zeros(file, 0, PART)? || !all_zeros(file, size - PART, size)? {
        return Ok(false);
    }
    for sample in 0..SAMPLES {
        let at = size / SAMPLES * sample;
        if !all_zeros(file, at, at + SAMPLE)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// True if all data of a file is zeros; holes are skipped.
fn no_data(file: &ReadFile) -> io::Result<bool> {
    use rustix::fs::SeekFrom::{Data, Hole};
    let mut at = 0;
    while at < file.size_bytes {
        let data = match rustix::fs::seek(file.file.as_fd(), Data(at)) {
            Ok(data) => data,
            // The file has no data from here on.
            Err(rustix::io::Errno::NXIO) => return Ok(true),
            // The file system does not report holes.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => {
                return all_zeros(file, at, file.size_bytes);
            }
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file.file.as_fd(), Hole(data))?.min(file.size_bytes);
        if !all_zeros(file, data, end)? {
            return Ok(false);
        }
        at = end;
    }
    Ok(true)
}

fn all_zeros(file: &impl Bytes, from: u64, to: u64) -> io::Result<bool> {
    let mut bytes = vec![0; PART as usize];
    let mut at = from;
    while at < to {
        let part = &mut bytes[..(to - at).min(PART) as usize];
        file.read_at(at, part)?;
        if part.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += part.len() as u64;
    }
    Ok(true)
}
