//! The holder of a served cache: what outlives this process, by name, and the signs of life that it expects.

use anyhow::{Context, Result};
use entresol_files::FileStates;
use entresol_hold::{Reason, Server};
use entresol_store::Geometry;
use entresol_store::arena::Arena;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Signal, getpid, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// Name of the file of the arena.
const ARENA: &str = "cache.arena";
/// Name of the file with the states of cached files.
const STATES: &str = "cache.files";
/// Name of the backing directory, which a mount may cover.
const DIRECTORY: &str = "cache.directory";

/// Interval of the signs of life. The holder's patience is several of them.
const BEAT: Duration = Duration::from_secs(2);

/// The holder, and what former servers left with it. Clones are the same holder.
#[derive(Clone)]
pub struct Holder {
    server: Arc<Server>,
    /// Descriptors that no part of this process has taken yet.
    left: Arc<Mutex<BTreeMap<String, OwnedFd>>>,
    /// The server ends in order.
    is_ending: Arc<AtomicBool>,
}

impl Holder {
    /// The holder that started this process as a server. An upgrade's server waits here until the one before is gone,
    /// so it is called when the command is known to be in order.
    ///
    /// # Errors
    /// If the holder is gone.
    pub fn new(server: Server) -> Result<Arc<Self>> {
        server.standby_ready().context("the holder")?;
        let left = Arc::new(Mutex::new(server.kept().context("the holder")?));
        Ok(Arc::new(Holder { server: Arc::new(server), left, is_ending: Arc::default() }))
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

    /// The states of cached files that a former server left, or new ones, which are kept from now on.
    pub(crate) fn file_states(&self) -> Result<Arc<FileStates>> {
        if let Some(file) = self.take(STATES) {
            return FileStates::open(File::from(file)).context("the states of files of the former server");
        }
        let states = FileStates::anonymous().context("memory for the states of files")?;
        self.keep(STATES, states.file()).context("the holder")?;
        Ok(states)
    }

    /// Copies of the descriptors that a former server left under names with this beginning, and that nobody has taken.
    pub(crate) fn copies(&self, beginning: &str) -> io::Result<Vec<OwnedFd>> {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.iter().filter(|(name, _)| name.starts_with(beginning)).map(|(_, file)| file.try_clone()).collect()
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

    /// The value that was last kept under this name by [`keep_value`](Self::keep_value); none if there is none.
    ///
    /// # Errors
    /// If it is of another form, or errors of the system.
    pub fn value<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let Some(file) = self.take(name).map(File::from) else { return Ok(None) };
        let mut bytes = vec![0; usize::try_from(file.metadata()?.len())?];
        file.read_exact_at(&mut bytes, 0)?;
        serde_json::from_slice(&bytes).with_context(|| format!("{name}, which the former server left")).map(Some)
    }

    /// Keeps a value for the next server, in place of the one of that name. It survives this process once this returns.
    ///
    /// # Errors
    /// As [`keep`](Self::keep), and of the system if there is no memory.
    pub fn keep_value(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
        file.write_all_at(&serde_json::to_vec(value)?, 0)?;
        self.keep(name, file)
    }

    /// Says that this server serves. From then on a thread says that it is alive, as long as `look` returns. A panic of
    /// any thread aborts this process, so that the next server serves at once. If the holder is gone, SIGTERM is sent to
    /// this process, whose handler ends it in order.
    ///
    /// # Errors
    /// If the holder is gone, or no thread can be started.
    pub fn serving(&self, mut look: impl FnMut() + Send + 'static) -> Result<()> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            std::process::abort();
        }));
        self.server.ready().context("the holder")?;
        let (server, is_ending) = (Arc::clone(&self.server), Arc::clone(&self.is_ending));
        let beats = move || {
            loop {
                if !is_ending.load(Relaxed) {
                    look();
                }
                if server.beat().is_err() {
                    return;
                }
                std::thread::sleep(BEAT);
            }
        };
        Builder::new().name("beat".into()).spawn(beats).context("a thread for signs of life")?;
        let server = Arc::clone(&self.server);
        let lost = move || {
            if server.lost().is_ok() {
                say!("entresol: the holder is gone; the server ends in order");
                let _ = kill_process(getpid(), Signal::TERM);
            }
        };
        Builder::new().name("holder lost".into()).spawn(lost).context("a thread for the holder's end")?;
        Ok(())
    }

    /// Notes that the server ends in order. Signs of life no longer depend on requests. A server that is killed
    /// meanwhile is followed by another one, which ends in order too.
    pub fn ending(&self) {
        self.is_ending.store(true, Relaxed);
    }

    /// Says, if the server was [`ending`](Self::ending), that it has ended: no other follows, with whatever exit code.
    pub fn ended(&self) {
        if self.is_ending.load(Relaxed) {
            // The holder may be gone.
            let _ = self.server.stopping();
        }
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
