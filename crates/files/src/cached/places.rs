//! Which file a page of the cache belongs to, for whoever tells of pages.

use super::CachedFiles;
use crate::below::OpenDirectory;
use std::path::PathBuf;

/// Position of a page of the cache for those who use the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FilePage {
    /// The file's number, and when it was made in nanoseconds since 1970: together they are no other file's.
    pub file: (u64, u64),
    /// The page's number in it.
    pub page: u64,
}

impl CachedFiles {
    /// Position of a page of the cache in its file; none when the file is gone.
    pub fn page_at(&self, page: u64) -> Option<FilePage> {
        let page_bytes = self.shared.page_bytes;
        let (below, offset) = self.shared.disk.file_at(page * page_bytes)?;
        Some(FilePage { file: (below.key.inode, below.key.made), page: offset / page_bytes })
    }

    /// The path of a page's file in the directory; none when it is gone.
    pub fn path_at(&self, page: u64) -> Option<PathBuf> {
        let (below, _) = self.shared.disk.file_at(page * self.shared.page_bytes)?;
        below.path(&self.root.path().ok()?).ok()
    }
}
