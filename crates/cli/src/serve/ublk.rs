//! `entresol serve ublk`: serves a backing store through its cache as a block device of this machine.

use crate::arguments::{CacheArgs, DeviceArgs};
use crate::output;
use anyhow::{Context, Result};
use clap::Args;
use entresol_cache::{Block, FileBlock, Mode};
use entresol_service::ending;
use entresol_service::guard::Guard;
use entresol_service::lost::{Opened, without_backing};
use entresol_service::notify;
use entresol_service::serve::open;
use entresol_ublk::Device;
use signal_hook::consts::SIGTERM;
use std::path::PathBuf;
use std::sync::Arc;

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
    let mut signals = ending::signals()?;
    let path = &arguments.cache;
    let options = arguments.cached.options();
    let guard =
        Guard::check(&arguments.backing, options.writers_ok, quiet).map_err(|error| without_backing(path, error))?;
    let (served, block, read_only): (_, Arc<dyn Block>, _) =
        match open(path, &arguments.backing, &options, &arguments.devices.options(), None)? {
            Opened::Cached(held) => {
                let served = held.serve(quiet);
                guard.watch(&served);
                let (block, read_only) = (served.running.block(), served.chosen().mode == Mode::ReadOnly);
                (Some(served), block, read_only)
            }
            Opened::Bypassed(bypass) => {
                guard.watch_without(bypass.tell(path, options.log, quiet));
                (None, Arc::new(FileBlock::open(&arguments.backing, bypass.read_only)?), bypass.read_only)
            }
        };
    // Other programs may remove the device too; nothing is left to wait for then.
    let ended = || drop(signal_hook::low_level::raise(SIGTERM));
    let device = Device::start(block, read_only, ended)?;
    let name = device.path().display().to_string();
    output::announce(&format!("{name}\n"));
    notify::ready();
    let _ = signals.forever().next();
    notify::stopping();
    let answered = device.stop().with_context(|| format!("{name}: the end"))?;
    if let Some(served) = served {
        served.end(&format!("{answered} requests answered"))?;
    }
    ending::check_panics()
}
