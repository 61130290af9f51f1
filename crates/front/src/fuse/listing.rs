//! Names of an open directory.

use super::attributes::kind;
use super::nodes::{Node, is_hidden};
use fuser::FileType;
use rustix::fs::{Dir, OFlags};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of a file, its kind and its name.
pub(super) type Entry = (u64, FileType, OsString);

/// An open directory, with its names as they were when they were last read from the start.
pub(super) struct Listing {
    node: Arc<Node>,
    entries: Mutex<Vec<Entry>>,
}

impl Listing {
    pub fn new(node: Arc<Node>) -> Self {
        Listing { node, entries: Mutex::default() }
    }

    /// Gives away the entries from `offset` on, each with the offset of the next, until `add` says that there is no room; the
    /// directory is read anew for those from the start.
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
        for entry in Dir::new(self.node.open(OFlags::RDONLY | OFlags::DIRECTORY)?)? {
            let entry = entry?;
            let kind = kind(entry.file_type().as_raw_mode());
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if !is_hidden(&self.node, &name) {
                names.push((entry.ino(), kind, name));
            }
        }
        Ok(names)
    }
}
