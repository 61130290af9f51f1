//! `entresol mount`: a directory again at another place.

use crate::output;
use anyhow::{Context, Result};
use clap::Args;
use entresol_front::fuse::{DirectFiles, Mount, Options};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use std::sync::Arc;

/// Mount a directory at another place through FUSE, without a cache
///
/// Prints a line once it is mounted, for the user who runs this alone, and serves until it is unmounted (fusermount3 -u),
/// interrupted or terminated. While files are open it stays mounted.
#[derive(Args)]
pub struct MountArgs {
    /// The directory whose files are served; no other program should change it meanwhile
    pub backing: PathBuf,
    /// Where they appear: a directory, perhaps the same
    pub mountpoint: PathBuf,
    /// Threads that carry out what has to wait for the backing
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: u16,
}

/// Runs the command.
pub fn run(arguments: &MountArgs, quiet: bool) -> Result<()> {
    // From here on a signal ends it in order.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals")?;
    let options = Options { workers: arguments.workers.into(), ..Options::default() };
    let mount = Mount::start(&arguments.backing, &arguments.mountpoint, Arc::new(DirectFiles), options)?;
    if !mount.shared_mappings() && !quiet {
        eprintln!("this kernel is older than 6.6: files cannot be mapped and written, and SQLite's WAL will not work");
    }
    let unmounter = mount.unmounter();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            match unmounter.unmount() {
                Ok(()) => return,
                Err(error) => eprintln!("entresol: {error}; close what is open, then try again"),
            }
        }
    })?;
    output::print(&format!("{} at {}, no cache\n", arguments.backing.display(), arguments.mountpoint.display()))?;
    mount.wait().with_context(|| arguments.mountpoint.display().to_string())
}
