//! A backing store served through its cache as a block device of this machine.

use super::device_cache::DeviceCache;
use super::ending;
use super::lost::Opened;
use super::notify;
use anyhow::{Context, Result};
use entresol_cache::{Block, FileBlock, Mode};
use entresol_ublk::Device;
use signal_hook::consts::SIGTERM;
use std::sync::Arc;

/// Serves until a signal ends it, or another program removes the device. `announce` gets the name of the device once
/// it can be used.
///
/// # Errors
/// If the server did not begin, or did not end in good order.
pub fn serve(cache: &DeviceCache, announce: &dyn Fn(&str), quiet: bool) -> Result<()> {
    let mut signals = ending::signals()?;
    let (served, block, read_only): (_, Arc<dyn Block>, _) = match cache.serve(None, quiet)? {
        Opened::Cached(served) => {
            let (block, read_only) = (served.running.block(), served.chosen().mode == Mode::ReadOnly);
            (Some(served), block, read_only)
        }
        Opened::Bypassed(bypass) => {
            (None, Arc::new(FileBlock::open(&cache.backing, bypass.read_only)?), bypass.read_only)
        }
    };
    // Other programs may remove the device too; nothing is left to wait for then.
    let ended = || drop(signal_hook::low_level::raise(SIGTERM));
    let device = Device::start(block, read_only, ended)?;
    let name = device.path().display().to_string();
    announce(&format!("{name}\n"));
    notify::ready();
    let _ = signals.forever().next();
    notify::stopping();
    let answered = device.stop().with_context(|| format!("{name}: the end"))?;
    if let Some(served) = served {
        served.end(&format!("{answered} requests answered"))?;
    }
    ending::check_panics()
}
