//! The kinds of backing store.

use entresol_files::CachedFiles;
use std::sync::Arc;

/// Kind of a cache's backing store.
#[derive(Clone)]
pub(crate) enum Below {
    /// A file or a block device.
    Store,
    /// The files of a directory.
    Files(Arc<CachedFiles>),
}
