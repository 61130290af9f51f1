//! Changes of ours that do not touch a file's bytes: modes, owners, times, names. They are counted by the file's
//! number, for a file may become known during one.

use super::super::Known;
use super::super::disk::Below;
use crate::FileId;
use crate::below::OpenFile;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of changes under way for each file.
#[derive(Clone, Default)]
pub(in super::super) struct UnderWay(Arc<Mutex<HashMap<FileId, usize>>>);

/// A change under way, which ends when this is dropped.
struct Guard {
    id: FileId,
    under_way: UnderWay,
    files: Arc<Mutex<HashMap<FileId, Known>>>,
}

impl UnderWay {
    fn counts(&self) -> MutexGuard<'_, HashMap<FileId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of changes under way for a file that becomes known. The caller holds the lock of the known files.
    pub fn of(&self, id: FileId) -> usize {
        self.counts().get(&id).copied().unwrap_or(0)
    }

    /// Begins a change.
    pub fn begin(&self, id: FileId, files: &Arc<Mutex<HashMap<FileId, Known>>>) -> Box<dyn Send> {
        let below = |known: &HashMap<FileId, Known>| known.get(&id).map(|known| known.file.below.clone());
        let lock = || files.lock().unwrap_or_else(PoisonError::into_inner);
        // Compared without the lock: the file may have to be opened.
        let before = below(&lock());
        if let Some(before) = before {
            let _unseen = before.look();
        }
        let known = lock();
        *self.counts().entry(id).or_default() += 1;
        // Under the lock: a file that leaves the known ones and returns counts this change.
        if let Some(below) = below(&known) {
            below.watch.begin_attributes();
        }
        drop(known);
        Box::new(Guard { id, under_way: self.clone(), files: files.clone() })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let known = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = self.under_way.counts();
        if let Some(count) = counts.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.id);
            }
        }
        drop(counts);
        let below = known.get(&self.id).map(|known| known.file.below.clone());
        drop(known);
        if let Some(below) = below {
            below.end_attributes();
        }
    }
}

impl Below {
    fn end_attributes(&self) {
        // Opened before the lock is taken under which the attributes are read.
        let file = self.opened().ok();
        self.end_seen(|| file?.attributes().ok());
    }
}
