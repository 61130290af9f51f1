//! Check that the file of a cache in use is still the file at its path.
//!
//! Data that is durable in a file without a name is lost when the process ends.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Change of the file of a cache in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The file has no name any more.
    Unlinked,
    /// Another file is at its path.
    Replaced,
    /// The file is shorter than it was.
    Truncated,
    /// The file has another name, by which it can be opened.
    Renamed,
}

impl Change {
    /// Describes the change, in words that follow the name of the cache.
    pub fn said(self) -> &'static str {
        match self {
            Change::Unlinked => "the cache file was unlinked while in use",
            Change::Replaced => "the cache file was replaced by another at its path while in use",
            Change::Truncated => "the cache file was truncated while in use",
            Change::Renamed => "the cache file was renamed while in use",
        }
    }

    /// True if the next start will not find the file itself.
    pub fn is_nameless(self) -> bool {
        matches!(self, Change::Unlinked | Change::Replaced)
    }

    /// True if the next start will not find everything that is durable in the file.
    pub fn is_loss(self) -> bool {
        self != Change::Renamed
    }
}

/// A cache file in use. A block device is not checked.
pub struct CacheFile {
    path: PathBuf,
    file: Option<File>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    bytes: u64,
    change: Option<Change>,
}

impl CacheFile {
    /// Opens a handle on the cache that this process has opened.
    pub fn new(path: &Path) -> Self {
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok().map(File::from);
        let file = file.filter(|file| file.metadata().is_ok_and(|found| found.is_file()));
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        CacheFile { path, file, seen: Mutex::default() }
    }

    /// Path from the root at which the file was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// See [`entresol_files::close_to_others`].
    pub fn close_to_others(&self) -> Option<u32> {
        entresol_files::close_to_others(self.file.as_ref()?)
    }

    /// Compares the open file with the file at its path; returns the change, if there is one.
    pub fn look(&self) -> Option<Change> {
        let now = self.file.as_ref()?.metadata().ok()?;
        let at_path = std::fs::metadata(&self.path);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let truncated = now.len() < seen.bytes;
        seen.bytes = seen.bytes.max(now.len());
        seen.change = match at_path {
            _ if now.nlink() == 0 => Some(Change::Unlinked),
            _ if truncated => Some(Change::Truncated),
            Ok(other) if (other.dev(), other.ino()) != (now.dev(), now.ino()) => Some(Change::Replaced),
            Ok(_) => None,
            Err(_) => Some(Change::Renamed),
        };
        seen.change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_from_the_others() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let (path, other) = (scratch.path().join("cache"), scratch.path().join("other"));
        let fresh = || {
            std::fs::write(&path, [0; 100]).expect("a file");
            let file = CacheFile::new(&path);
            assert_eq!(file.look(), None);
            file
        };
        let file = fresh();
        std::fs::rename(&path, &other).expect("another name");
        assert_eq!(file.look(), Some(Change::Renamed));
        std::fs::write(&path, "").expect("a file");
        assert_eq!(file.look(), Some(Change::Replaced));
        std::fs::remove_file(&other).expect("it goes");
        assert_eq!(file.look(), Some(Change::Unlinked));
        let file = fresh();
        File::options().write(true).open(&path).and_then(|file| file.set_len(50)).expect("it is shorter");
        assert_eq!(file.look(), Some(Change::Truncated));
    }
}
