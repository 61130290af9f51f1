//! The open files, by the numbers of their handles.

use crate::nodes::Node;
use crate::passthrough::Way;
use entresol_files::FileData;
use fuser::{Errno, FileHandle};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// An open file. The fields are dropped in this order: the way to the bytes ends before the bytes, and the node is
/// dropped last, when it may report that the file is gone.
pub(super) struct Handle {
    _way: Arc<Way>,
    pub data: Arc<dyn FileData>,
    pub node: Arc<Node>,
}

/// All open files.
pub(super) struct Handles {
    open: RwLock<HashMap<u64, Arc<Handle>>>,
    next: AtomicU64,
}

impl Handles {
    pub fn new() -> Self {
        Self { open: RwLock::default(), next: AtomicU64::new(1) }
    }

    /// A number that no other open file or directory of this mount has had.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    pub fn get(&self, handle: FileHandle) -> Result<Arc<Handle>, Errno> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    pub fn keep(&self, node: Arc<Node>, data: Arc<dyn FileData>, way: Arc<Way>) -> FileHandle {
        let number = self.number();
        let handle = Arc::new(Handle { _way: way, data, node });
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, handle);
        FileHandle(number)
    }

    /// Removes a handle. The caller drops it where that may take time.
    pub fn take(&self, handle: FileHandle) -> Option<Arc<Handle>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.0)
    }
}
