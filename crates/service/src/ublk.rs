//! A backing store served through its cache as a block device of this machine.

use super::device_cache::DeviceCache;
use super::doubt::Doubt;
use super::ending;
use super::holder::Holder;
use super::identity::{self, Identity};
use super::lost::Opened;
use super::notify;
use super::restart::{Front, can_restart};
use super::serving::serving;
use anyhow::{Context, Result};
use entresol_cache::{Block, FileBlock, Mode};
use entresol_ublk::{Device, DeviceOptions};
use signal_hook::consts::SIGTERM;
use std::sync::Arc;
use std::time::Duration;

/// Serves until a signal ends it, or another program removes the device; alone or for a holder, which gets a sign of
/// life after each `beat`. For a holder the device outlives this process (`docs/ublk-recovery.md`). `announce` gets the
/// name of the device once it can be used.
///
/// # Errors
/// If the server did not begin, or did not end in good order.
pub fn serve(
    cache: &DeviceCache,
    holder: Option<&Holder>,
    beat: Duration,
    announce: &dyn Fn(&str),
    quiet: bool,
) -> Result<()> {
    if let Some(holder) = holder {
        can_restart(Front::Block).context("--restart")?;
        // The arena is a file too, and may grow at the open.
        ending::heed_size_limit()?;
        holder.starting(beat)?;
    }
    let mut signals = ending::signals()?;
    let (served, block, read_only): (_, Arc<dyn Block>, _) = match cache.serve(holder, quiet)? {
        Opened::Cached(served) => {
            let (block, read_only) = (served.running.block(), served.chosen().mode == Mode::ReadOnly);
            (Some(served), block, read_only)
        }
        Opened::Bypassed(bypass) => {
            (None, Arc::new(FileBlock::open(&cache.backing, bypass.read_only)?), bypass.read_only)
        }
    };
    let backing = identity::identity(&cache.backing, cache.devices.identity)?;
    // Users of a device of which something may be lost must not go on: it is removed, and they get errors.
    let doubt = Doubt::left(holder)?.filter(|doubt| doubt.is_unreported());
    let options = DeviceOptions {
        read_only,
        identity: number(identity::lasting(&cache.backing, backing)),
        outlives: holder.is_some(),
        takes_over: holder.is_some_and(|holder| !holder.is_first()) && doubt.is_none(),
    };
    // Other programs may remove the device too; nothing is left to wait for then.
    let ended = || drop(signal_hook::low_level::raise(SIGTERM));
    let device = Device::start(block, &options, ended)?;
    let path = device.path();
    let name = path.display().to_string();
    if let Some(doubt) = doubt {
        doubt.reported();
        say!("entresol: {name}: a new device; that of the killed server is removed: {}", doubt.why());
    }
    let announce = || announce(&format!("{name}\n"));
    match holder {
        Some(holder) => {
            let seen = served.as_ref().map(|served| (served.log().clone(), Arc::clone(&served.running)));
            let running = seen.as_ref().map(|(_, running)| Arc::clone(running));
            let look = move || running.iter().for_each(|running| running.prove_alive());
            // The handler of the signal ends this process in order.
            serving(holder, seen.as_ref(), &path, announce, look, ended, quiet)?;
        }
        None => {
            announce();
            notify::ready();
        }
    }
    let _ = signals.forever().next();
    notify::stopping();
    holder.iter().for_each(|holder| holder.ending());
    let answered = device.stop().with_context(|| format!("{name}: the end"))?;
    if let Some(served) = served {
        served.end(&format!("{answered} requests answered"))?;
    }
    ending::check_panics()
}

/// The number by which a device is found again. Devices of other programs have 0.
fn number(identity: Identity) -> u64 {
    let identity = u128::from_le_bytes(identity);
    ((identity as u64) ^ (identity >> 64) as u64).max(1)
}
