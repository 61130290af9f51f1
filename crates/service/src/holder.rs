//! The holder of a served cache: what outlives this process, by name, and the signs of life that it expects.

use super::hold::follow_killed;
use anyhow::{Context, Result};
use entresol_files::FileStates;
use entresol_hold::{Reason, Server};
use rustix::fs::{MemfdFlags, memfd_create};
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
pub(crate) const ARENA: &str = "cache.arena";
/// Name of the file with the states of cached files.
pub(crate) const STATES: &str = "cache.files";
/// Name of the backing directory, which a mount may cover.
const DIRECTORY: &str = "cache.directory";

/// The holder, and what former servers left with it. Clones are the same holder.
#[derive(Clone)]
pub struct Holder {
    server: Arc<Server>,
    /// Descriptors that no part of this process has taken, and values.
    left: Arc<Mutex<BTreeMap<String, OwnedFd>>>,
    /// The server ends in order.
    is_ending: Arc<AtomicBool>,
    /// The sign of life of a server that serves; none before.
    look: Arc<Mutex<Option<Look>>>,
}

type Look = Box<dyn FnMut() + Send>;

impl Holder {
    /// The holder that started this process as a server. An upgrade's server waits here until the one before is gone,
    /// so it is called when the command is known to be in order.
    ///
    /// # Errors
    /// If the holder is gone.
    pub fn new(server: Server) -> Result<Arc<Self>> {
        server.standby_ready().context("the holder")?;
        let left = Arc::new(Mutex::new(server.kept().context("the holder")?));
        let holder = Holder { server: Arc::new(server), left, is_ending: Arc::default(), look: Arc::default() };
        if !holder.is_first() {
            follow_killed();
        }
        Ok(Arc::new(holder))
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
        // Without the states that belong to it a start is right too, and slower.
        if let Some(states) = self.take(STATES).and_then(|file| FileStates::open(File::from(file)).ok()) {
            return Ok(states);
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

    /// Another descriptor of what a former server left.
    pub(crate) fn left(&self, name: &str) -> io::Result<Option<OwnedFd>> {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.get(name).map(|file| file.try_clone()).transpose()
    }

    /// Forgets a descriptor, so that no later server gets it.
    ///
    /// # Errors
    /// As [`Server::forget`].
    pub fn forget(&self, name: &str) -> io::Result<()> {
        self.take(name);
        self.server.forget(name)
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

    /// The value that was last kept under this name by [`keep_value`](Self::keep_value); none if there is none.
    ///
    /// # Errors
    /// If it is of another form, or errors of the system.
    pub fn value<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let Some(file) = self.left(name)?.map(File::from) else { return Ok(None) };
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
        self.keep(name, &file)?;
        self.left.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), file.into());
        Ok(())
    }

    /// Does something that no former server has done; twice only if one was killed in the middle of it.
    pub fn once(&self, name: &str, act: impl FnOnce()) {
        if self.take(name).is_none() {
            act();
            // It fails if the holder is gone, and there is no later server then.
            let _ = self.keep_value(name, &true);
        }
    }

    /// Says from now on, in a thread, that this process is alive, for a service manager whose patience a start may exceed:
    /// each time after `every`, of which several fit into the holder's patience.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn starting(&self, every: Duration) -> Result<()> {
        let Holder { server, is_ending, look, .. } = self.clone();
        let beats = move || {
            loop {
                // While that waits, this process gives no sign of life.
                if let Some(look) = look.lock().unwrap_or_else(PoisonError::into_inner).as_mut()
                    && !is_ending.load(Relaxed)
                {
                    look();
                }
                if server.beat().is_err() {
                    return;
                }
                std::thread::sleep(every);
            }
        };
        Builder::new().name("beat".into()).spawn(beats).context("a thread for signs of life")?;
        Ok(())
    }

    /// Says that this server serves, after [`starting`](Self::starting). From then on it counts as alive as long as
    /// `look` returns. A panic of any thread aborts this process, so that the next server serves at once. `end` is to end
    /// this process in order if the holder is gone.
    ///
    /// # Errors
    /// If the holder is gone, or no thread can be started.
    pub fn serving(&self, look: impl FnMut() + Send + 'static, end: impl FnOnce() + Send + 'static) -> Result<()> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            std::process::abort();
        }));
        *self.look.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(look));
        self.server.ready().context("the holder")?;
        let server = Arc::clone(&self.server);
        let lost = move || {
            if server.lost().is_ok() {
                say!("entresol: the holder is gone; the server ends");
                end();
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
    /// `is_done` as [`Server::stopping`] has it.
    pub fn ended(&self, is_done: bool) {
        if self.is_ending.load(Relaxed) {
            // The holder may be gone.
            let _ = self.server.stopping(is_done);
        }
    }
}
