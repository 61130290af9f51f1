//! Names of an open directory.

use crate::attributes::kind;
use crate::mutant::{Mutant, is};
use crate::nodes::{Node, ROOT, is_hidden};
use fuser::FileType;
use rustix::fs::{Dir, OFlags, SeekFrom};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of a file, its kind and its name.
pub(super) type Entry = (u64, FileType, OsString);

/// Meaning of the offsets of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offsets {
    /// Position among the names as they were read.
    Position,
    /// Position in the backing directory, which another server can go on from too.
    Backing,
}

/// An open directory, with its names as of the last read from the start.
pub(super) struct Listing {
    node: Arc<Node>,
    /// Kept open, so that its user can go on after losing the right to it.
    directory: OwnedFd,
    /// The root's number in the backing file system.
    root: u64,
    offsets: Offsets,
    names: Mutex<Names>,
}

/// The names read from an offset on.
#[derive(Default)]
struct Names {
    /// The offset; none before the first read.
    from: Option<u64>,
    /// Each with the offset of the next.
    entries: Vec<(Entry, u64)>,
    /// Index of the entry at which the last answer ended.
    next: usize,
}

impl Names {
    /// Index of the entry at an offset.
    fn find(&self, offset: u64) -> Option<usize> {
        if self.from == Some(offset) {
            return Some(0);
        }
        let ends_at = |index: usize| self.entries.get(index).is_some_and(|(_, next)| *next == offset);
        let near = self.next.checked_sub(1).filter(|&before| ends_at(before));
        Some(near.or_else(|| (0..self.entries.len()).find(|&index| ends_at(index)))? + 1)
    }
}

impl Listing {
    /// Opens a directory, in a mount whose root has this number in the backing file system.
    pub fn new(node: Arc<Node>, root: u64, offsets: Offsets) -> rustix::io::Result<Self> {
        let directory = node.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Listing { node, directory, root, offsets, names: Mutex::default() })
    }

    /// `fsync`, or `fdatasync`.
    pub fn sync(&self, data_only: bool) -> rustix::io::Result<()> {
        if data_only { rustix::fs::fdatasync(&self.directory) } else { rustix::fs::fsync(&self.directory) }
    }

    /// Passes on the entries from `offset` on, each with the offset of the next, until `add` returns true for full. At
    /// offset 0 the directory is read again.
    pub fn entries_from(&self, offset: u64, mut add: impl FnMut(&Entry, u64) -> bool) -> rustix::io::Result<()> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let start = match names.find(offset).filter(|_| offset != 0) {
            Some(start) => start,
            // Not from here: this listing began in another server.
            None if offset == 0 || self.offsets == Offsets::Backing => {
                let from = if is(Mutant::ListingFromStart) { 0 } else { offset };
                *names = Names { from: Some(offset), entries: self.read(from)?, next: 0 };
                0
            }
            None => names.entries.len(),
        };
        names.next = names.entries.len();
        for index in start..names.entries.len() {
            let (entry, next) = &names.entries[index];
            if add(entry, *next) {
                names.next = index;
                break;
            }
        }
        Ok(())
    }

    fn read(&self, from: u64) -> rustix::io::Result<Vec<(Entry, u64)>> {
        let mut names = Vec::new();
        // The copy shares its position, which no other thread moves: `names` is locked.
        rustix::fs::seek(&self.directory, SeekFrom::Start(from))?;
        for entry in Dir::new(rustix::io::fcntl_dupfd_cloexec(&self.directory, 0)?)? {
            let entry = entry?;
            let kind = kind(entry.file_type().as_raw_mode());
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if !is_hidden(&self.node, &name) {
                let number = if entry.ino() == self.root { ROOT } else { entry.ino() };
                let next = match self.offsets {
                    Offsets::Position => names.len() as u64 + 1,
                    Offsets::Backing => entry.offset() as u64,
                };
                names.push(((number, kind, name), next));
            }
        }
        Ok(names)
    }
}
