//! `entresol serve ublk`: serves a backing store through its cache as a block device of this machine.

use crate::arguments::{CacheArgs, DeviceArgs};
use crate::output::announce;
use anyhow::Result;
use clap::Args;
use entresol_service::device_cache::DeviceCache;
use entresol_service::ublk::serve;
use std::path::PathBuf;

/// Serve a backing store through its cache as a block device of this machine, /dev/ublkbN
///
/// Needs Linux 6.5 with the ublk driver and the right to administer the system. Prints the name of the device once it
/// can be used, and serves until it is interrupted or terminated. It then answers outstanding requests and flushes
/// everything. Users of the device should have stopped by then: unmount a file system first.
///
/// If this program is killed, the device goes away and its requests fail; flushed data is there after the next start.
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
}

/// Runs the command.
pub fn run(arguments: &UblkArgs, quiet: bool) -> Result<()> {
    let UblkArgs { backing, cache, cached, devices } = arguments;
    let (path, backing, options, devices) = (cache.clone(), backing.clone(), cached.options(), devices.options());
    serve(&DeviceCache { path, backing, options, devices }, &announce, quiet)
}
