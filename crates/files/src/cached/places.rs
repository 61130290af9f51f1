//! The file that a page of the cache belongs to, for reports about pages.

use super::CachedFiles;
use crate::below::OpenDirectory;
use std::path::PathBuf;

/// Position of a cached page in terms of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilePage {
    /// The file's number and its time of making in nanoseconds since 1970: together they are unique.
    pub file: (u64, u64),
    /// Number of the page in the file.
    pub page: u64,
}

impl CachedFiles {
    /// Position of a cached page in its file; none if the file is gone.
    pub fn page_at(&self, page: u64) -> Option<FilePage> {
        let page_bytes = self.shared.page_bytes;
        let (below, offset) = self.shared.disk.file_at(page * page_bytes)?;
        Some(FilePage { file: (below.key.inode, below.key.made), page: offset / page_bytes })
    }

    /// Path of a page's file in the directory; none if the file is gone.
    pub fn path_at(&self, page: u64) -> Option<PathBuf> {
        let (below, _) = self.shared.disk.file_at(page * self.shared.page_bytes)?;
        below.path(&self.root.path().ok()?).ok()
    }
}
