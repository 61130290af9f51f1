//! `entresol serve ublk`: serves a backing store through its cache as a block device of this machine.

use crate::arguments::{CacheArgs, DeviceArgs, OnOff};
use crate::holder::RestartArgs;
use crate::output::announce;
use anyhow::Result;
use clap::Args;
use entresol_service::device_cache::DeviceCache;
use entresol_service::holder::Holder;
use entresol_service::ublk::serve;
use entresol_service::values::{Limit, seconds_or_none};
use std::path::PathBuf;

/// Serve a backing store through its cache as a block device of this machine, /dev/ublkbN
///
/// Needs Linux 6.5 with the ublk driver and the right to administer the system. Prints the name of the device once it
/// can be used, and serves until it is interrupted or terminated. It then answers outstanding requests and flushes
/// everything. Users of the device should have stopped by then: unmount a file system first.
///
/// If this program is killed, the device goes away and its requests fail; flushed data is there after the next start.
/// With --restart on the device stays, and its requests wait for the next server.
#[derive(Args)]
pub struct UblkArgs {
    /// Serve this file or block device; no other program may use it meanwhile
    #[arg(long, value_name = "FILE")]
    pub backing: PathBuf,
    /// The cache in front of --backing
    #[arg(long, value_name = "FILE")]
    pub cache: PathBuf,
    #[command(flatten)]
    pub cached: CacheArgs,
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Start the server again if it is killed, crashes or hangs. Programs that use the device see a pause, and lose
    /// nothing that was answered. Needs Linux 6.15
    #[arg(long, value_name = "WHETHER", value_enum, default_value = "off")]
    pub restart: OnOff,
    /// Time without a sign of life after which a server counts as hung, and is killed and replaced, where servers are
    /// started again; none: never
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = seconds_or_none)]
    pub restart_after: Limit,
}

impl UblkArgs {
    /// The arguments about a new start after a failure.
    pub fn restart(&self) -> RestartArgs {
        RestartArgs { restart: Some(self.restart), restart_after: self.restart_after }
    }
}

/// Serves, alone or for a holder.
pub fn run(arguments: &UblkArgs, holder: Option<&Holder>, quiet: bool) -> Result<()> {
    let UblkArgs { backing, cache, cached, devices, .. } = arguments;
    let (path, backing, options, devices) = (cache.clone(), backing.clone(), cached.options(), devices.options());
    let cache = DeviceCache { path, backing, options, devices };
    serve(&cache, holder, arguments.restart().beat(), &announce, quiet)
}
