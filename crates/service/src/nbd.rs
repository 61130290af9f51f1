//! A file or block device served over NBD: with a cache, without one, or at the speed of another device.

use super::backing_record::check_complete;
use super::device_cache::DeviceCache;
use super::doubt::{self, Doubt};
use super::ending;
use super::holder::Holder;
use super::log::Log;
use super::lost::Opened;
use super::notify;
use super::running::Running;
use super::serving::serving;
use anyhow::{Context, Result, anyhow, bail};
use entresol_cache::{Block, FileBlock, Mode};
use entresol_device::emulated::{EmulatedDevice, WallClock};
use entresol_device::{Device, profile};
use entresol_nbd::{Counts, Error, Export, Limits, Listener, Server};
use rustix::process::{Signal, getpid, kill_process};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A block to be served over NBD.
pub struct NbdOptions {
    /// Contents of the block.
    pub source: Source,
    /// Address of the server.
    pub address: Address,
    /// Limits of the server.
    pub limits: Limits,
    /// Time between two signs of life to a holder.
    pub beat: Duration,
}

/// Contents of a block.
pub enum Source {
    /// A file without a cache.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Profile of the device whose speed it has, by name or path.
        emulate: Option<String>,
        /// True if all writes are refused.
        read_only: bool,
    },
    /// A backing store through its cache.
    Cached(DeviceCache),
}

/// Address of a server.
pub enum Address {
    /// Path of a Unix socket, which only its owner may open.
    Unix(PathBuf),
    /// A loopback address.
    Tcp(SocketAddr),
}

/// Name of the socket that a holder keeps.
const LISTENER: &str = "nbd.listener";

/// Serves until a signal ends it, alone or for a holder. `announce` gets the URI once it can be reached.
///
/// # Errors
/// If the server did not begin, or did not end in good order.
pub fn serve(options: &NbdOptions, holder: Option<&Holder>, announce: &dyn Fn(&str), quiet: bool) -> Result<()> {
    // The arena is a file too, and may grow at the open.
    ending::heed_size_limit()?;
    holder.map_or(Ok(()), |holder| holder.starting(options.beat))?;
    let serving = Serving { options, holder, announce, quiet };
    match &options.source {
        Source::Cached(cache) => serving.cached(cache),
        Source::File { path, emulate, read_only } => {
            check_complete(path)?;
            serving.uncached(path, emulate.as_deref(), *read_only)
        }
    }
}

/// A server that is about to begin.
#[derive(Clone, Copy)]
struct Serving<'a> {
    options: &'a NbdOptions,
    holder: Option<&'a Holder>,
    announce: &'a dyn Fn(&str),
    quiet: bool,
}

impl Serving<'_> {
    /// Serves a backing store through its cache.
    fn cached(self, cache: &DeviceCache) -> Result<()> {
        let DeviceCache { path, backing, .. } = cache;
        let mut served = match cache.serve(self.holder, self.quiet)? {
            Opened::Cached(served) => served,
            Opened::Bypassed(bypass) => return self.uncached(backing, None, bypass.read_only),
        };
        let policy = &served.chosen().policy;
        let description = format!("{}, cached by {policy} in {}", backing.display(), path.display());
        let read_only = served.chosen().mode == Mode::ReadOnly;
        let export = Export { block: served.running.block(), name: String::new(), description, read_only };
        let seen = (served.log().clone(), Arc::clone(&served.running));
        let counts = self.until_signal(export, self.options.limits, Some(seen))?;
        served.leave_control();
        let counts = counts.with_context(|| format!("{}: the last flush", path.display()))?;
        served.end(&said(&counts))?;
        ending::check_panics()
    }

    /// Serves a file without a cache.
    fn uncached(self, path: &Path, emulate: Option<&str>, read_only: bool) -> Result<()> {
        let file = FileBlock::open(path, read_only)?;
        if Block::size_bytes(&file) == 0 {
            bail!("{}: is empty; NBD serves a size that does not change", path.display());
        }
        let (block, emulated) = match emulate {
            None => (Arc::new(file) as Arc<dyn Block>, None),
            Some(model) => {
                let device = Arc::new(emulated(file, model)?);
                (Arc::clone(&device) as Arc<dyn Block>, Some(device))
            }
        };
        let description = match emulate {
            None => format!("{}, no cache", path.display()),
            Some(model) => format!("{}, as slow as {model}", path.display()),
        };
        let block = doubt::block(block, Doubt::left(self.holder)?);
        let export = Export { block, name: String::new(), description, read_only };
        let mut limits = self.options.limits;
        if emulated.is_some() {
            // The depth of the emulated device is the client's: each request occupies a worker.
            limits.workers_max = limits.requests_max;
        }
        let counts = self.until_signal(export, limits, None)?;
        let counts = counts.with_context(|| format!("{}: the last flush", path.display()))?;
        if !self.quiet {
            say!("{}; everything is flushed", said(&counts));
            if let Some(device) = emulated {
                say!("{}", device.accuracy());
            }
        }
        Ok(())
    }

    /// Serves until a signal ends it in order; returns the result of the last flush. `seen` is the cache, if there is one.
    fn until_signal(
        self,
        export: Export,
        limits: Limits,
        seen: Option<(Log, Arc<Running>)>,
    ) -> Result<std::io::Result<Counts>> {
        let Serving { options, holder, announce, quiet } = self;
        let mut signals = ending::signals()?;
        // Checked before the socket exists.
        limits.check().map_err(|error| match error {
            Error::Memory { connections, needed } => {
                let (memory, needed) = (limits.memory_max, needed.div_ceil(1 << 20));
                anyhow!(
                    "--memory: {memory} bytes are too few for {connections} connections (--max-connections): {needed}MiB do"
                )
            }
            other => other.into(),
        })?;
        let left = holder.and_then(|holder| holder.take(LISTENER));
        let is_left = left.is_some();
        let listener = match (left, &options.address) {
            (Some(socket), Address::Unix(path)) => Listener::left(socket, Some(path)),
            (Some(socket), Address::Tcp(_)) => Listener::left(socket, None),
            (None, Address::Unix(path)) => Listener::unix(path)?,
            (None, &Address::Tcp(address)) => Listener::loopback(address)?,
        };
        if let Some(holder) = holder.filter(|_| !is_left) {
            holder.keep(LISTENER, &listener).context("the holder")?;
        }
        let uri = listener.uri()?;
        let server = Server::start(listener, export, limits, move |error| {
            if !quiet {
                say!("client: {error}");
            }
        })?;
        let announce = || announce(&format!("{uri}\n"));
        match holder {
            Some(holder) => {
                let running = seen.as_ref().map(|(_, running)| Arc::clone(running));
                let look = move || running.iter().for_each(|running| running.prove_alive());
                // The handler of the signal ends this process in order.
                let end = || {
                    let _ = kill_process(getpid(), Signal::TERM);
                };
                serving(holder, seen.as_ref(), Path::new(&uri), announce, look, end, quiet)?;
            }
            None => {
                announce();
                notify::ready();
            }
        }
        let _ = signals.forever().next();
        notify::stopping();
        if let Some(holder) = holder {
            holder.ending();
            // A server that had to be started before the end makes another socket, as this one accepts no more.
            let _ = holder.forget(LISTENER);
        }
        Ok(server.stop())
    }
}

fn said(counts: &Counts) -> String {
    let Counts { connections, connections_refused, connections_failed, held_bytes_max, .. } = counts;
    let held = held_bytes_max.div_ceil(1 << 20);
    format!(
        "{connections} connections, {connections_refused} refused, {connections_failed} ended in an error; requests held {held} \
         MiB at most"
    )
}

type Emulated = EmulatedDevice<FileBlock, Box<dyn Device + Send>, WallClock>;

/// The file at the speed of a device model. The seed of its random choices is fixed: a disk starts at the same angle.
fn emulated(file: FileBlock, model: &str) -> Result<Emulated> {
    const SEED: u64 = 42;
    let device = profile::load(model)?.build(Block::size_bytes(&file), SEED)?;
    Ok(EmulatedDevice::new(file, device, WallClock::new())?)
}
