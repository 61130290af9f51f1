//! The open files, by the numbers of their handles.

use crate::nodes::Node;
use crate::passthrough::Share;
use crate::table::{Asked, Open, Table};
use entresol_files::FileData;
use fuser::{Errno, FileHandle};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// An open file. The fields are dropped in this order: the way to the bytes ends before the bytes, and the node is
/// dropped last, when it may report that the file is gone.
pub(super) struct Handle {
    _share: Share,
    pub data: Arc<dyn FileData>,
    pub node: Arc<Node>,
}

impl Handle {
    pub fn new(node: Arc<Node>, data: Arc<dyn FileData>, share: Share) -> Self {
        Self { _share: share, data, node }
    }
}

/// All open files.
pub(super) struct Handles {
    open: RwLock<HashMap<u64, Arc<Handle>>>,
    next: AtomicU64,
    table: Option<Arc<Table>>,
    /// Handles of a former server, by the requests that opened them: those may come again.
    former: HashMap<u64, u64>,
    /// Shares of a former server's handles whose files could not be opened again. The kernel goes on with them.
    lost: Mutex<HashMap<u64, Share>>,
}

impl Handles {
    pub fn new(table: Option<Arc<Table>>) -> Self {
        Self { open: RwLock::default(), next: AtomicU64::new(1), table, former: HashMap::new(), lost: Mutex::default() }
    }

    /// Restores a handle of a former server. That of a directory is kept elsewhere.
    pub fn restore(&mut self, number: u64, open: &Open, file: Option<Handle>) {
        self.former.insert(open.unique, number);
        if let Some(file) = file {
            self.open.get_mut().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(file));
        }
    }

    /// Restores a handle of a former server whose file cannot be opened.
    pub fn lose(&mut self, number: u64, share: Share) {
        self.lost.get_mut().unwrap_or_else(PoisonError::into_inner).insert(number, share);
    }

    /// Gives no number below `next` from now on.
    pub fn go_on_from(&mut self, next: u64) {
        *self.next.get_mut() = next.max(1);
    }

    /// The handle that a request opened, if it comes again after a former server carried it out.
    pub fn opened_by(&self, asked: Asked) -> Option<u64> {
        self.former.get(&asked.unique).copied().filter(|_| asked.again)
    }

    /// A number that no other open file or directory of this mount has had.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    pub fn get(&self, handle: FileHandle) -> Result<Arc<Handle>, Errno> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    pub fn keep(&self, asked: Asked, flags: i32, node: Arc<Node>, data: Arc<dyn FileData>, share: Share) -> FileHandle {
        let known = self.opened_by(asked).filter(|number| self.get(FileHandle(*number)).is_ok());
        if let Some(number) = known {
            return FileHandle(number);
        }
        let number = self.number();
        self.enter(number, asked, &node, flags, false);
        let handle = Arc::new(Handle::new(node, data, share));
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, handle);
        FileHandle(number)
    }

    /// Enters a handle in the table.
    pub fn enter(&self, number: u64, asked: Asked, node: &Node, flags: i32, directory: bool) {
        let open = Open { node: node.number, flags: flags as u32, directory, unique: asked.unique };
        self.table.iter().for_each(|table| table.opened(number, open));
    }

    /// Enters in the table that a handle is closed.
    pub fn leave(&self, handle: FileHandle) {
        self.table.iter().for_each(|table| table.closed(handle.0));
    }

    /// Removes a handle. The caller drops it where that may take time.
    pub fn take(&self, handle: FileHandle) -> (Option<Arc<Handle>>, Option<Share>) {
        self.leave(handle);
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.0);
        (self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.0), lost)
    }
}
