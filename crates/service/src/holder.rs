//! The holder of a served cache: what outlives this process, by name.

use anyhow::{Context, Result};
use entresol_hold::{Reason, Server};
use entresol_store::Geometry;
use entresol_store::arena::Arena;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Name of the file of the arena.
const ARENA: &str = "cache.arena";
/// Name of the backing directory, which a mount may cover.
const DIRECTORY: &str = "cache.directory";

/// The holder, and what former servers left with it.
pub struct Holder {
    server: Server,
    /// Descriptors that no part of this process has taken yet.
    left: Mutex<BTreeMap<String, OwnedFd>>,
}

impl Holder {
    /// The holder that started this process as a server. An upgrade's server waits here until the one before is gone,
    /// so it is called when the command is known to be in order.
    ///
    /// # Errors
    /// If the holder is gone.
    pub fn new(server: Server) -> Result<Arc<Self>> {
        server.standby_ready().context("the holder")?;
        let left = Mutex::new(server.kept().context("the holder")?);
        Ok(Arc::new(Holder { server, left }))
    }

    /// The holder's end of the conversation.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// True if no server was there before this one.
    pub fn is_first(&self) -> bool {
        self.server.start().reason == Reason::First
    }

    /// Takes a descriptor that a former server left.
    pub fn take(&self, name: &str) -> Option<OwnedFd> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).remove(name)
    }

    /// True if a former server left the memory of a cache.
    pub fn has_cache(&self) -> bool {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).contains_key(ARENA)
    }

    /// The backing directory as it is below any mount. The first server opens it, and it is kept from then on.
    ///
    /// # Errors
    /// If it cannot be opened, or the holder is gone.
    pub fn directory(&self, path: &Path) -> Result<File> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if !left.contains_key(DIRECTORY) {
            let opened = OwnedFd::from(File::open(path).with_context(|| path.display().to_string())?);
            self.keep(DIRECTORY, &opened).context("the holder")?;
            left.insert(DIRECTORY.to_owned(), opened);
        }
        Ok(left[DIRECTORY].try_clone().context("the backing directory")?.into())
    }

    /// Takes the descriptors that a former server left under names with this beginning.
    pub fn take_all(&self, beginning: &str) -> Vec<(String, OwnedFd)> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, rest) = std::mem::take(&mut *left).into_iter().partition(|(name, _)| name.starts_with(beginning));
        *left = rest;
        let taken: BTreeMap<String, OwnedFd> = taken;
        taken.into_iter().collect()
    }

    /// Keeps a descriptor for the next server.
    ///
    /// # Errors
    /// As [`Server::keep`].
    pub fn keep(&self, name: &str, descriptor: impl AsFd) -> io::Result<()> {
        self.server.keep(name, descriptor)
    }

    /// Forgets a kept descriptor. Without the holder there is nothing to forget.
    pub fn forget(&self, name: &str) {
        let _ = self.server.forget(name);
    }

    /// The arena that a former server left, or a new one for a store of this geometry, which is kept from now on.
    pub(crate) fn arena(&self, geometry: &Geometry) -> Result<Arc<Arena>> {
        if let Some(file) = self.take(ARENA) {
            return Arena::open(File::from(file)).context("the arena of the former server");
        }
        let made = Arena::anonymous(geometry.page_bytes as usize, geometry.batch_blocks());
        let arena = made.context("memory for the arena")?;
        self.keep(ARENA, arena.file()).context("the holder")?;
        Ok(arena)
    }
}
