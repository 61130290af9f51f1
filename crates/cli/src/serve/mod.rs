//! `entresol serve`: serves a file or a block device to other programs.

mod ublk;

use crate::ending;
use crate::holder::{Front, RestartArgs, Role, role, serving};
use crate::notify;
use crate::output;
use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use entresol_cache::{Block, FileBlock};
use entresol_device::emulated::{EmulatedDevice, WallClock};
use entresol_device::{Device, profile};
use entresol_nbd::{Counts, Error, Export, Limits, Listener, Peers, Server};
use entresol_service::cache_args::CacheArgs;
use entresol_service::doubt::{self, Doubt};
use entresol_service::guard::Guard;
use entresol_service::holder::Holder;
use entresol_service::log::Log;
use entresol_service::lost::{Opened, without_backing};
use entresol_service::mode::ModeArg;
use entresol_service::running::Running;
use entresol_service::serve::DeviceArgs;
use entresol_service::values::bytes;
use rustix::process::{Signal, getpid, kill_process};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use ublk::UblkArgs;

/// Serve a file or a block device to other programs
#[derive(Subcommand)]
pub enum ServeCommand {
    Nbd(NbdArgs),
    Ublk(UblkArgs),
}

/// Serve a file over NBD: with a cache in front of it, as it is, or as slow as another device
///
/// With --backing and --cache, which `entresol format` has made, clients see the backing store through the cache;
/// docs/OPERATING.md describes when writes are durable. With --file alone there is no cache.
///
/// Prints the URI that clients take (nbdinfo, qemu-img, fio --ioengine=nbd --uri=...) once it can be reached, and
/// serves until it is interrupted or terminated. It then answers outstanding requests and flushes everything.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("place").required(true))]
pub struct NbdArgs {
    /// File to serve; no other program may serve it meanwhile
    #[arg(long, value_name = "FILE", required_unless_present = "cache")]
    pub file: Option<PathBuf>,
    /// Serve this file through the cache that --cache names; no other program may use either meanwhile
    #[arg(long, value_name = "FILE", requires = "cache")]
    pub backing: Option<PathBuf>,
    /// The cache in front of --backing
    #[arg(long, value_name = "FILE", requires = "backing", conflicts_with_all = ["file", "emulate", "read_only"])]
    pub cache: Option<PathBuf>,
    #[command(flatten)]
    pub cached: CacheArgs,
    #[command(flatten)]
    pub devices: DeviceArgs,
    #[command(flatten)]
    pub restart: RestartArgs,
    /// Listen on this Unix socket, which only its owner may open
    #[arg(long, value_name = "PATH", group = "place")]
    pub socket: Option<PathBuf>,
    /// Listen on this TCP address instead, which must be a loopback address: the user who runs this and root may
    /// connect
    #[arg(long, value_name = "ADDRESS:PORT", group = "place")]
    pub tcp: Option<SocketAddr>,
    /// Answer at the speed of this device: a built-in profile (an unknown name lists them) or a TOML file. At the end,
    /// report the accuracy of the emulation
    #[arg(long, value_name = "PROFILE")]
    pub emulate: Option<String>,
    /// Refuse all writes
    #[arg(long)]
    pub read_only: bool,
    /// Most connections at a time; a further client gets an error and is disconnected
    #[arg(long, alias = "connections", value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub max_connections: u16,
    /// Memory for the requests of all connections together, in equal shares. A share always fits requests of the size
    /// offered to clients. A larger request is answered ENOMEM if others hold the memory that it needs for 10 seconds
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = bytes)]
    pub memory: u64,
    /// Let every user of this machine connect, not only root and the user who runs this
    #[arg(long)]
    pub any_user: bool,
}

impl NbdArgs {
    fn limits(&self) -> Limits {
        let peers = if self.any_user { Peers::Any } else { Peers::OwnerAndRoot };
        let memory_max = usize::try_from(self.memory).unwrap_or(usize::MAX);
        Limits { connections_max: self.max_connections.into(), memory_max, peers, ..Limits::default() }
    }
}

/// Name of the socket that a holder keeps.
const LISTENER: &str = "nbd.listener";

/// Runs the command; `server` is this process's end of a holder.
pub fn run(command: &ServeCommand, server: Option<entresol_hold::Server>, quiet: bool) -> Result<ExitCode> {
    let done = match command {
        ServeCommand::Nbd(arguments) => {
            let front = if arguments.cache.is_some() { Front::Sockets } else { Front::Uncached };
            match role(server, &arguments.restart, || arguments.restart.is_on(front, quiet))? {
                Role::Holder(code) => return Ok(code),
                Role::Server(holder) => {
                    let done = serve_nbd(arguments, holder.as_deref(), quiet);
                    holder.iter().for_each(|holder| holder.ended());
                    done
                }
            }
        }
        ServeCommand::Ublk(arguments) => ublk::run(arguments, quiet),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn serve_nbd(arguments: &NbdArgs, holder: Option<&Holder>, quiet: bool) -> Result<()> {
    // The arena is a file too, and may grow at the open.
    ending::heed_size_limit()?;
    holder.map_or(Ok(()), |holder| holder.starting(arguments.restart.beat()))?;
    match (&arguments.file, &arguments.backing, &arguments.cache) {
        (_, Some(backing), Some(cache)) => cached(arguments, backing, cache, holder, quiet),
        (Some(file), ..) => plain(arguments, file, holder, quiet),
        _ => bail!("neither --file nor --backing and --cache were given"),
    }
}

/// Serves a backing store through its cache.
fn cached(arguments: &NbdArgs, backing: &Path, path: &Path, holder: Option<&Holder>, quiet: bool) -> Result<()> {
    let guard =
        Guard::check(backing, arguments.cached.writers_ok, quiet).map_err(|error| without_backing(path, error))?;
    let mut served = match entresol_service::serve::open(path, backing, &arguments.cached, &arguments.devices, holder)?
    {
        Opened::Cached(held) => held.serve(quiet),
        Opened::Bypassed(bypass) => {
            guard.watch_without(bypass.tell(path, arguments.cached.log, quiet));
            return past(arguments, backing, bypass.read_only, holder, quiet);
        }
    };
    guard.watch(&served);
    let policy = &served.chosen().policy;
    let description = format!("{}, cached by {policy} in {}", backing.display(), path.display());
    let read_only = served.chosen().mode == ModeArg::ReadOnly;
    let export = Export { block: served.running.block(), name: String::new(), description, read_only };
    let seen = (served.log().clone(), Arc::clone(&served.running));
    let counts = until_signal(arguments, export, arguments.limits(), holder, Some(seen), quiet)?;
    served.leave_control();
    let counts = counts.with_context(|| format!("{}: the last flush", path.display()))?;
    served.end(&said(&counts))?;
    ending::check_panics()
}

fn plain(arguments: &NbdArgs, path: &Path, holder: Option<&Holder>, quiet: bool) -> Result<()> {
    entresol_service::backing_record::check_complete(path)?;
    past(arguments, path, arguments.read_only, holder, quiet)
}

/// Serves a file without a cache.
fn past(arguments: &NbdArgs, path: &Path, read_only: bool, holder: Option<&Holder>, quiet: bool) -> Result<()> {
    let file = FileBlock::open(path, read_only)?;
    if Block::size_bytes(&file) == 0 {
        bail!("{}: is empty; NBD serves a size that does not change", path.display());
    }
    let (block, emulated) = match &arguments.emulate {
        None => (Arc::new(file) as Arc<dyn Block>, None),
        Some(model) => {
            let device = Arc::new(emulated(file, model)?);
            (Arc::clone(&device) as Arc<dyn Block>, Some(device))
        }
    };
    let description = match &arguments.emulate {
        None => format!("{}, no cache", path.display()),
        Some(model) => format!("{}, as slow as {model}", path.display()),
    };
    let block = doubt::block(block, Doubt::left(holder)?);
    let export = Export { block, name: String::new(), description, read_only };
    let mut limits = arguments.limits();
    if emulated.is_some() {
        // The depth of the emulated device is the client's: each request occupies a worker.
        limits.workers_max = limits.requests_max;
    }
    let counts = until_signal(arguments, export, limits, holder, None, quiet)?;
    let counts = counts.with_context(|| format!("{}: the last flush", path.display()))?;
    if !quiet {
        say!("{}; everything is flushed", said(&counts));
        if let Some(device) = emulated {
            say!("{}", device.accuracy());
        }
    }
    Ok(())
}

/// Serves until a signal ends it in order; returns the result of the last flush. `seen` is the cache, if there is one.
fn until_signal(
    arguments: &NbdArgs,
    export: Export,
    limits: Limits,
    holder: Option<&Holder>,
    seen: Option<(Log, Arc<Running>)>,
    quiet: bool,
) -> Result<std::io::Result<Counts>> {
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
    let listener = match (left, &arguments.socket, arguments.tcp) {
        (Some(socket), path, _) => Listener::left(socket, path.as_deref()),
        (None, Some(path), _) => Listener::unix(path)?,
        (None, None, Some(address)) => Listener::loopback(address)?,
        (None, None, None) => bail!("neither --socket nor --tcp was given"),
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
    let announce = || output::announce(&format!("{uri}\n"));
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
