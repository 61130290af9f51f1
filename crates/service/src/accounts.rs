//! The accounts of a cache's objects, which come within a time limit or not at all.
//!
//! Naming a file needs a lock that a request may hold while the backing store stalls. Figures of the cache as a whole
//! need no such lock, and are reported without the accounts then.

use super::backing_store::Below;
use super::conflicts::ConflictFigures;
use super::objects::ObjectFigures;
use entresol_cache::Block;
use entresol_cache::BlockCache;
use entresol_core::ObjectId;
use entresol_files::FileCounts;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Threads that wait for accounts at a time, including those whose asker has gone on.
const THREADS_MAX: usize = 8;

/// The objects of a cache.
#[derive(Clone)]
pub struct Accounts {
    cache: Arc<BlockCache>,
    below: Below,
    backing: PathBuf,
    /// Threads at work.
    threads: Arc<AtomicUsize>,
}

impl Accounts {
    /// The accounts of a cache over this backing store.
    pub fn new(cache: Arc<BlockCache>, below: Below, backing: PathBuf) -> Self {
        Accounts { cache, below, backing, threads: Arc::default() }
    }

    /// The account of each object, and the files in conflict; none if they do not come within `limit`.
    ///
    /// # Errors
    /// If the cache has stopped after a fault of its own.
    pub fn within(&self, limit: Duration) -> io::Result<Option<(Vec<ObjectFigures>, Vec<ConflictFigures>)>> {
        if self.threads.fetch_add(1, SeqCst) >= THREADS_MAX {
            self.threads.fetch_sub(1, SeqCst);
            return Ok(None);
        }
        let (told, accounts) = channel();
        let own = self.clone();
        let tell = move || {
            // The asker may have gone on.
            let _ = told.send(own.conflicts().and_then(|conflicts| Ok((own.objects()?, conflicts))));
            own.threads.fetch_sub(1, SeqCst);
        };
        if let Err(error) = std::thread::Builder::new().name("accounts".into()).spawn(tell) {
            self.threads.fetch_sub(1, SeqCst);
            return Err(error);
        }
        accounts.recv_timeout(limit).ok().transpose()
    }

    /// Files in conflict: those found changed without the cache now or earlier, while the cache has dirty pages of
    /// them.
    fn conflicts(&self) -> io::Result<Vec<ConflictFigures>> {
        let Below::Files(files) = &self.below else { return Ok(Vec::new()) };
        files.look();
        Ok(files.conflicts()?.into_iter().map(ConflictFigures::from).collect())
    }

    /// The account of each object.
    fn objects(&self) -> io::Result<Vec<ObjectFigures>> {
        let dirty = self.cache.dirty_by_object()?;
        let mut objects: Vec<ObjectFigures> = match &self.below {
            Below::Files(files) => {
                let named = |file: FileCounts| {
                    let path = file.path.unwrap_or_default().to_string_lossy().into_owned();
                    ObjectFigures::new(file.object.0, path, file.size_bytes, file.counts)
                };
                files.counts()?.into_iter().map(named).collect()
            }
            Below::Store => {
                let counts = self.cache.with_objects(|objects| objects.counts())?;
                let (path, size) = (self.backing.to_string_lossy(), self.cache.size_bytes());
                let named =
                    |(object, counts): (ObjectId, _)| ObjectFigures::new(object.0, path.to_string(), size, counts);
                counts.into_iter().map(named).collect()
            }
        };
        let numbers: Vec<ObjectId> = objects.iter().map(|object| ObjectId(object.object)).collect();
        let verdicts = self.cache.verdicts(&numbers)?;
        for ((object, number), verdict) in objects.iter_mut().zip(numbers).zip(verdicts) {
            object.dirty = dirty.get(&number).copied().unwrap_or(0);
            object.verdict = verdict.map(str::to_owned);
        }
        Ok(objects)
    }
}
