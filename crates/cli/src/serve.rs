//! `entresol serve`: a file or a block device for other programs.

use crate::output;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use entresol_device::emulated::{EmulatedDevice, WallClock};
use entresol_device::{Device, profile};
use entresol_engine::Block;
use entresol_front::FileBlock;
use entresol_front::nbd::{Export, Limits, Listener, Server};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Serve a file or a block device to other programs
#[derive(Subcommand)]
pub enum ServeCommand {
    Nbd(NbdArgs),
}

/// Serve a file or a block device over NBD as it is, without a cache, or as slow as another device
///
/// Prints the URI that clients take (nbdinfo, qemu-img, fio --ioengine=nbd --uri=...) once it can be reached, and serves
/// until it is interrupted or terminated; then requests in flight are answered and everything is flushed.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("place").required(true))]
pub struct NbdArgs {
    /// What is served; no other program may serve it meanwhile
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Listen on this Unix socket, which only its owner may open
    #[arg(long, value_name = "PATH", group = "place")]
    pub socket: Option<PathBuf>,
    /// Listen on this TCP address instead, which must be of the loopback: every user of this machine may connect
    #[arg(long, value_name = "ADDRESS:PORT", group = "place")]
    pub tcp: Option<SocketAddr>,
    /// Answer when this device would: a profile of the house (an unknown one lists them) or a TOML file; at the end say
    /// how near that came
    #[arg(long, value_name = "PROFILE")]
    pub emulate: Option<String>,
    /// Refuse whatever writes
    #[arg(long)]
    pub read_only: bool,
    /// Connections at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub connections: u16,
}

/// Runs the command.
pub fn run(command: &ServeCommand, quiet: bool) -> Result<()> {
    match command {
        ServeCommand::Nbd(arguments) => nbd(arguments, quiet),
    }
}

fn nbd(arguments: &NbdArgs, quiet: bool) -> Result<()> {
    let file = FileBlock::open(&arguments.file, arguments.read_only)?;
    if Block::size_bytes(&file) == 0 {
        bail!("{}: is empty; NBD serves a size that does not change", arguments.file.display());
    }
    let (block, emulated) = match &arguments.emulate {
        None => (Arc::new(file) as Arc<dyn Block>, None),
        Some(model) => {
            let device = Arc::new(emulated(file, model)?);
            (Arc::clone(&device) as Arc<dyn Block>, Some(device))
        }
    };
    // From here on a signal ends it in order.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals")?;
    let listener = match (&arguments.socket, arguments.tcp) {
        (Some(path), _) => Listener::unix(path)?,
        (None, Some(address)) => Listener::loopback(address)?,
        (None, None) => bail!("neither --socket nor --tcp was given"),
    };
    let uri = listener.uri()?;
    let description = match &arguments.emulate {
        None => format!("{}, no cache", arguments.file.display()),
        Some(model) => format!("{}, as slow as {model}", arguments.file.display()),
    };
    let export = Export { block, name: String::new(), description, read_only: arguments.read_only };
    let mut limits = Limits { connections_max: arguments.connections.into(), ..Limits::default() };
    if emulated.is_some() {
        // Its depth is the client's: a worker waits with each request.
        limits.workers_max = limits.requests_max;
    }
    let server = Server::start(listener, export, limits, move |error| {
        if !quiet {
            eprintln!("client: {error}");
        }
    })?;
    output::print(&format!("{uri}\n"))?;
    let _ = signals.forever().next();
    let counts = server.stop().with_context(|| format!("{}: the last flush", arguments.file.display()))?;
    if !quiet {
        eprintln!(
            "{} connections, {} refused, {} ended in an error; everything is flushed",
            counts.connections, counts.connections_refused, counts.connections_failed
        );
        if let Some(device) = emulated {
            eprintln!("{}", device.accuracy());
        }
    }
    Ok(())
}

type Emulated = EmulatedDevice<FileBlock, Box<dyn Device + Send>, WallClock>;

/// The file with the time of a model. The seed of its random choices is fixed: a disk starts at the same angle.
fn emulated(file: FileBlock, model: &str) -> Result<Emulated> {
    const SEED: u64 = 42;
    let device = profile::load(model)?.build(Block::size_bytes(&file), SEED)?;
    Ok(EmulatedDevice::new(file, device, WallClock::new())?)
}
