//! Names of an open directory.

use crate::attributes::kind;
use crate::nodes::{Node, ROOT, is_hidden};
use fuser::FileType;
use rustix::fs::{Dir, OFlags, SeekFrom};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of a file, its kind and its name.
pub(super) type Entry = (u64, FileType, OsString);

/// An open directory, with its names as of the last read from the start.
pub(super) struct Listing {
    node: Arc<Node>,
    /// Kept open, so that its user can go on after losing the right to it.
    directory: OwnedFd,
    /// The root's number in the backing file system.
    root: u64,
    entries: Mutex<Vec<Entry>>,
}

impl Listing {
    /// Opens a directory, in a mount whose root has this number in the backing file system.
    pub fn new(node: Arc<Node>, root: u64) -> rustix::io::Result<Self> {
        let directory = node.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Listing { node, directory, root, entries: Mutex::default() })
    }

    /// `fsync`, or `fdatasync`.
    pub fn sync(&self, data_only: bool) -> rustix::io::Result<()> {
        if data_only { rustix::fs::fdatasync(&self.directory) } else { rustix::fs::fsync(&self.directory) }
    }

    /// Passes on the entries from `offset` on, each with the offset of the next, until `add` returns true for full. At
    /// offset 0 the directory is read again.
    pub fn entries_from(&self, offset: u64, mut add: impl FnMut(&Entry, u64) -> bool) -> rustix::io::Result<()> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 {
            *entries = self.read()?;
        }
        for (position, entry) in entries.iter().enumerate().skip(offset as usize) {
            if add(entry, position as u64 + 1) {
                break;
            }
        }
        Ok(())
    }

    fn read(&self) -> rustix::io::Result<Vec<Entry>> {
        let mut names = Vec::new();
        // The copy shares its position, which no other thread moves: `entries` is locked.
        rustix::fs::seek(&self.directory, SeekFrom::Start(0))?;
        for entry in Dir::new(rustix::io::fcntl_dupfd_cloexec(&self.directory, 0)?)? {
            let entry = entry?;
            let kind = kind(entry.file_type().as_raw_mode());
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if !is_hidden(&self.node, &name) {
                let number = if entry.ino() == self.root { ROOT } else { entry.ino() };
                names.push((number, kind, name));
            }
        }
        Ok(names)
    }
}
