//! `entresol serve`: serves a file or a block device to other programs.

mod ublk;

use crate::arguments::{CacheArgs, DeviceArgs};
use crate::holder::{RestartArgs, Role, role};
use crate::output::announce;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use entresol_nbd::{Limits, Peers};
use entresol_service::device_cache::DeviceCache;
use entresol_service::nbd::{Address, NbdOptions, Source, serve};
use entresol_service::restart::Front;
use entresol_service::values::bytes;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
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

/// Runs the command; `server` is this process's end of a holder.
pub fn run(command: &ServeCommand, server: Option<entresol_hold::Server>, quiet: bool) -> Result<ExitCode> {
    let restart = match command {
        ServeCommand::Nbd(arguments) => arguments.restart.clone(),
        ServeCommand::Ublk(arguments) => arguments.restart(),
    };
    let is_on = || match command {
        ServeCommand::Nbd(arguments) => restart.is_on(Front::Sockets, arguments.cache.is_some(), quiet),
        ServeCommand::Ublk(_) => restart.is_wanted(),
    };
    let holder = match role(server, &restart, is_on)? {
        Role::Holder(code) => return Ok(code),
        Role::Server(holder) => holder,
    };
    let served = match command {
        ServeCommand::Nbd(arguments) => {
            arguments.options().and_then(|options| serve(&options, holder.as_deref(), &announce, quiet))
        }
        ServeCommand::Ublk(arguments) => ublk::run(arguments, holder.as_deref(), quiet),
    };
    holder.iter().for_each(|holder| holder.ended(served.is_ok()));
    served.map(|()| ExitCode::SUCCESS)
}

impl NbdArgs {
    fn options(&self) -> Result<NbdOptions> {
        let source = match (&self.file, &self.backing, &self.cache) {
            (_, Some(backing), Some(path)) => Source::Cached(DeviceCache {
                path: path.clone(),
                backing: backing.clone(),
                options: self.cached.options(),
                devices: self.devices.options(),
            }),
            (Some(path), ..) => {
                Source::File { path: path.clone(), emulate: self.emulate.clone(), read_only: self.read_only }
            }
            _ => bail!("neither --file nor --backing and --cache were given"),
        };
        let address = match (&self.socket, self.tcp) {
            (Some(path), _) => Address::Unix(path.clone()),
            (None, Some(address)) => Address::Tcp(address),
            (None, None) => bail!("neither --socket nor --tcp was given"),
        };
        Ok(NbdOptions { source, address, limits: self.limits(), beat: self.restart.beat() })
    }

    fn limits(&self) -> Limits {
        let peers = if self.any_user { Peers::Any } else { Peers::OwnerAndRoot };
        let memory_max = usize::try_from(self.memory).unwrap_or(usize::MAX);
        Limits { connections_max: self.max_connections.into(), memory_max, peers, ..Limits::default() }
    }
}
