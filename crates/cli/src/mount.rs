//! `entresol mount`: a directory mounted again, its files as slow as another device.

use crate::{emulate, output};
use anyhow::{Context, Result};
use clap::Args;
use entresol_device::profile;
use entresol_front::fuse::{EmulatedFiles, Mount, Options, Unmounter};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Requests in flight at a time, each of which keeps a thread waiting.
const WORKERS: usize = 128;

/// Mount a directory a second time through FUSE, its files as slow as another device
///
/// Each file is a device of its own from when it is first opened: byte N of the file is byte N of the device. Reads,
/// writes and syncs take the device's time, whatever concerns names the host's. Prints the mountpoint once it is mounted,
/// and serves until it is unmounted, interrupted or terminated, which it refuses while files are open.
#[derive(Args)]
pub struct MountArgs {
    /// The device: a profile of the house (an unknown one lists them) or a TOML file
    #[arg(long, value_name = "PROFILE")]
    pub emulate: String,
    /// Size of each file's device in bytes, where it has none of its own; no file may be larger
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = emulate::bytes)]
    pub size: u64,
    /// The directory that has the files
    pub backing: PathBuf,
    /// The directory at which they appear
    pub mountpoint: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &MountArgs, quiet: bool) -> Result<()> {
    // As for the other door: a disk starts at the same angle.
    const SEED: u64 = 42;
    let profile = profile::load(&arguments.emulate)?;
    let size = arguments.size;
    // What is wrong with the profile is said now, not at the first `open`.
    profile.build(size, SEED)?;
    let make_model =
        move || profile.build(size, SEED).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error));
    let files = Arc::new(EmulatedFiles::new(make_model));
    // From here on a signal ends it in order.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals")?;
    let options = Options { workers: WORKERS, ..Options::default() };
    let mount = Mount::start(&arguments.backing, &arguments.mountpoint, files.clone(), options)?;
    let unmounter = mount.unmounter();
    let handle = signals.handle();
    let listener = std::thread::spawn(move || unmount_when_asked(&mut signals, &unmounter));
    output::print(&format!("{}\n", arguments.mountpoint.display()))?;
    let ended = mount.wait();
    handle.close();
    // It panics nowhere, and what it could not do it has said.
    let _ = listener.join();
    ended?;
    if !quiet {
        eprintln!("{}", files.accuracy());
    }
    Ok(())
}

fn unmount_when_asked(signals: &mut Signals, unmounter: &Unmounter) {
    for _ in signals.forever() {
        match unmounter.unmount() {
            Ok(()) => return,
            Err(error) => eprintln!("entresol: {error}; still mounted"),
        }
    }
}
