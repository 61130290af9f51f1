//! `entresol burst mount`: the directory of checkpoints for programs that know nothing of a burst buffer.

use super::writers::BufferArgs;
use crate::output;
use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_burst_fuse::{Ending, Mount};
use entresol_burst_live::client::Files;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(50);

/// Mount a directory into which programs write the checkpoints of a job as files
///
/// CHECKPOINT/FILE is a file of the checkpoint with this number. Several hosts may mount the same job. A file is
/// committed when it is closed or synced, and one with a temporary name such as FILE.tmp when it is renamed. It can then
/// be read through every mount. A checkpoint is complete when it has --files committed files, and `newest` is a link to
/// the newest complete one. At an interrupt or termination no further file can be opened, and the command ends when the
/// open ones are closed; a second signal ends it at once.
#[derive(Args)]
pub struct MountArgs {
    #[command(flatten)]
    pub buffer: BufferArgs,
    /// Number of files of a checkpoint, the same at every mount of the job
    #[arg(long, value_name = "N")]
    pub files: u32,
    /// The mount point, an existing directory
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Mounts the directory until it is unmounted.
pub fn mount(arguments: &MountArgs, quiet: bool) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals")?;
    let buffer = &arguments.buffer;
    let credential = buffer.credential()?;
    let pfs = buffer.directory(credential.as_ref())?;
    let files = Files::new(buffer.client_at(Arc::clone(&pfs), credential), pfs, buffer.job(), arguments.files);
    let mount = Mount::start(Arc::new(files.context("--files")?), &arguments.directory).context("the mount")?;
    if !quiet {
        let (directory, job) = (arguments.directory.display(), buffer.job);
        output::print(&format!("job {job} at {directory}, {} files a checkpoint\n", arguments.files))?;
    }
    let mut signalled = || signals.pending().next().is_some();
    loop {
        match mount.ending() {
            Ending::None if signalled() => return unmount(&mount, signalled),
            Ending::None => std::thread::sleep(POLL),
            _ => return Ok(()),
        }
    }
}

/// Ends a mount, and waits until its open files are closed. `given_up` says that nobody waits any more.
pub fn unmount(mount: &Mount, mut given_up: impl FnMut() -> bool) -> Result<()> {
    mount.retire()?;
    loop {
        match mount.ending() {
            Ending::Over => return Ok(()),
            Ending::Unfinished(files) if given_up() => bail!("ended, and not committed: {}", files.join(", ")),
            _ => std::thread::sleep(POLL),
        }
    }
}
