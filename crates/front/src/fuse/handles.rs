//! The files that are open, by the numbers that the kernel has for their handles.

use super::nodes::Node;
use super::passthrough::Way;
use entresol_files::FileData;
use fuser::{Errno, FileHandle};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// An open file. The order in which its parts are let go matters: as long as there is a way to the bytes there are bytes, and when
/// these are gone the node may say that nobody needs them.
pub(super) struct Handle {
    _way: Arc<Way>,
    pub data: Arc<dyn FileData>,
    pub node: Arc<Node>,
}

/// All of them.
pub(super) struct Handles {
    open: RwLock<HashMap<u64, Arc<Handle>>>,
    next: AtomicU64,
}

impl Handles {
    pub fn new() -> Self {
        Self { open: RwLock::default(), next: AtomicU64::new(1) }
    }

    /// A number that no file and no directory has had.
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

    /// Takes one out, to be let go where that may take its time.
    pub fn take(&self, handle: FileHandle) -> Option<Arc<Handle>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.0)
    }
}
