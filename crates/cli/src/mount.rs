//! `entresol mount`: mounts a directory, optionally with a cache or at the speed of another device.

use crate::arguments::{CacheArgs, FileArgs, HintArgs, OnOff};
use crate::holder::{RestartArgs, Role, role};
use crate::output::announce;
use anyhow::{Result, bail};
use clap::Args;
use entresol_hold::Server;
use entresol_service::mount::{DirectoryCache, FrontOptions, Layer, MountOptions, serve};
use entresol_service::restart::Front;
use entresol_service::values::bytes;
use std::path::PathBuf;
use std::process::ExitCode;

/// Mount a directory at another place, or over itself, through FUSE, with a cache or without
///
/// With --cache, which `entresol format --backing DIR` has made, the contents of files go through the cache;
/// docs/OPERATING.md describes when writes are durable.
///
/// Prints a line once the directory is mounted, for the user who runs this (and root with --allow-root). Serves until
/// it is unmounted (fusermount3 -u), interrupted or terminated, and then ends as soon as no file is open.
#[derive(Args)]
pub struct MountArgs {
    /// The directory whose files are served; no other program should change it meanwhile
    pub backing: PathBuf,
    /// Mount point: a directory, which may be the one whose files are served
    pub mountpoint: PathBuf,
    /// Threads for requests that have to wait [default: 16, and 128 with --emulate]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// Use the kernel's page cache above the mount, as for any file system. The page cache answers reads of pages that
    /// it holds and reads ahead; the cache sees the rest. Files opened with O_DIRECT bypass the page cache [default:
    /// on, and off with --emulate]
    #[arg(long, value_name = "WHETHER", value_enum)]
    pub page_cache: Option<OnOff>,
    /// Let the kernel itself read and write files that bypass the cache, and all files if there is no cache. Needs
    /// Linux 6.9 and CAP_SYS_ADMIN. Otherwise this process reads and writes them, as with --emulate
    #[arg(long, value_name = "WHETHER", value_enum, default_value = "on")]
    pub passthrough: OnOff,
    /// Serve root as well as the user who runs this, as Debian's pg_ctlcluster needs. Files that root creates belong to
    /// that user. Needs CAP_SYS_ADMIN, or user_allow_other in /etc/fuse.conf
    #[arg(long)]
    pub allow_root: bool,
    /// The cache for the contents of the files
    #[arg(long, value_name = "FILE", conflicts_with = "emulate")]
    pub cache: Option<PathBuf>,
    #[command(flatten)]
    pub cached: CacheArgs,
    #[command(flatten)]
    pub files: FileArgs,
    #[command(flatten)]
    pub hints: HintArgs,
    #[command(flatten)]
    pub restart: RestartArgs,
    /// Make files as slow as this device: a built-in profile (an unknown name lists them) or a TOML file. Each file is
    /// a device of its own from its first open on. Reads, writes and syncs take the device's time; operations on names
    /// take the host's
    #[arg(long, value_name = "PROFILE")]
    pub emulate: Option<String>,
    /// Size of each file's device in bytes, unless the profile has one; no file may be larger
    #[arg(long, value_name = "SIZE", requires = "emulate", default_value = "1GiB", value_parser = bytes)]
    pub size: u64,
}

/// Runs the command; `server` is this process's end of a holder.
pub fn run(arguments: &MountArgs, server: Option<Server>, quiet: bool) -> Result<ExitCode> {
    if arguments.emulate.is_some() && arguments.restart.is_wanted() {
        bail!("--restart on: an emulated device is in the memory of one process, and would begin anew with the next");
    }
    let is_on = || arguments.restart.is_on(Front::Mount, arguments.cache.is_some(), quiet);
    match role(server, &arguments.restart, is_on)? {
        Role::Holder(code) => Ok(code),
        Role::Server(holder) => {
            serve(&arguments.options(), holder.as_ref(), &announce, quiet).map(|()| ExitCode::SUCCESS)
        }
    }
}

impl MountArgs {
    fn options(&self) -> MountOptions {
        let MountArgs { workers, page_cache, passthrough, allow_root, size, .. } = *self;
        let layer = match (&self.cache, &self.emulate) {
            (Some(path), _) => Layer::Cached(Box::new(DirectoryCache {
                path: path.clone(),
                options: self.cached.options(),
                files: self.files.options(),
                hints: self.hints.sources(),
            })),
            (None, Some(profile)) => Layer::Emulated { profile: profile.clone(), size },
            (None, None) => Layer::Direct,
        };
        let (page_cache, passthrough) = (page_cache.map(OnOff::is_on), passthrough.is_on());
        MountOptions {
            backing: self.backing.clone(),
            mountpoint: self.mountpoint.clone(),
            layer,
            checked: false,
            front: FrontOptions { workers, page_cache, passthrough },
            allow_root,
            beat: self.restart.beat(),
        }
    }
}
