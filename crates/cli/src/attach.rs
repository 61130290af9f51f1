//! `entresol attach` and `entresol detach`: a directory behind a cache, in one command.

use crate::arguments::keyword;
use crate::format::{self, FormatArgs};
use crate::output;
use anyhow::{Result, bail};
use clap::Args;
use entresol_cache::Mode;
use entresol_policy::Wear;
use entresol_service::attach::{self, Attached};
use entresol_service::keyword::Keyword;
use entresol_service::values::bytes;
use entresol_service::words::quoted_path;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Put a directory behind a cache, until `entresol detach`
///
/// Makes the cache if there is none, and mounts it over the directory in the background, so that programs find their files at
/// their usual place. No program may have files of the directory open: stop the server first, and start it afterwards.
/// Run this as the user who runs the server.
///
/// In write-back the files are moved to DIRECTORY.below, and the directory is empty while it is not mounted: a server that is
/// started without the cache ends, instead of working on files that lack their newest pages.
///
/// A cache that is made has the default layout, policy and page size. For others make it by `entresol format` first, with the
/// directory as --backing: a cache that is there is used as it is. A policy may also be given with each start: `-- --policy
/// arc`.
///
/// After a restart of the machine run the same command again, before the server starts: the cache is used as it was
/// left. For a service that starts with the machine, contrib/systemd/entresol@.service is a unit (`systemctl cat entresol@`
/// prints it where the package is installed).
#[derive(Args)]
pub struct AttachArgs {
    /// The directory, such as the data directory of a database server that is stopped
    pub directory: PathBuf,
    /// The cache: a file or block device on a fast device, or a directory there, for a file with the name of the
    /// attached directory
    #[arg(long, value_name = "FILE|DIR")]
    pub cache: PathBuf,
    /// Size in bytes of a cache that is made [default: that of the directory's files, or nine tenths of the free space if
    /// that is less; that of a block device]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub size: Option<u64>,
    /// Bound on what is written to a cache that is made, as of `entresol format`
    #[arg(long, value_name = "BOUND")]
    pub wear: Option<Wear>,
    /// The mode [default: the one used last, at first write-through]
    #[arg(long, value_parser = keyword::<Mode>())]
    pub mode: Option<Mode>,
    /// File for what the mount says [default: the path of a cache that is a file, with the suffix .log]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Further options of `entresol mount`
    #[arg(last = true, value_name = "OPTIONS")]
    pub options: Vec<OsString>,
}

/// Take the cache off a directory that `entresol attach` has put behind it
///
/// Unmounts the directory, writes what only the cache has to its files, and moves them back if they were moved. The directory is
/// complete without the cache then. No program may have files of it open: stop the server first.
#[derive(Args)]
pub struct DetachArgs {
    /// The directory
    pub directory: PathBuf,
}

/// Runs `entresol attach`.
pub fn attach(arguments: &AttachArgs, quiet: bool) -> Result<()> {
    let writers_ok = arguments.options.iter().any(|option| option == "--writers-ok");
    if arguments.options.iter().any(|option| option.as_encoded_bytes().starts_with(b"--mode")) {
        bail!("--mode is an option of attach too: give it before --");
    }
    let mut attachable = attach::check(&arguments.directory, writers_ok)?;
    let cache = attach::cache_path(&attachable.directory, &arguments.cache);
    let log = arguments.log.clone().map_or_else(|| attach::log(&cache), Ok)?;
    let has_cache = attach::has_cache(&cache)?;
    let mode = arguments.mode.or_else(|| attachable.was_in_write_back().then_some(Mode::WriteBack));
    let has_moved = mode == Some(Mode::WriteBack) && attachable.move_aside()?;
    let made = if has_cache { Ok(()) } else { arguments.make(&attachable.backing, &cache, quiet) };
    if has_cache && !quiet && (arguments.size.is_some() || arguments.wear.is_some()) {
        say!("{}: there already; --size and --wear are for a cache that is made", cache.display());
    }
    let mode = mode.map(|mode| ["--mode".into(), mode.keyword().into()]);
    let more: Vec<OsString> = mode.into_iter().flatten().chain(arguments.options.iter().cloned()).collect();
    let attached = made.and_then(|()| attach::start(&attachable, &cache, &log, &more));
    let Attached { line, said } = match attached {
        Err(error) if has_moved => return attachable.move_back().and(Err(error)),
        attached => attached?,
    };
    if quiet {
        return Ok(());
    }
    said.lines().for_each(|line| say!("{line}"));
    let (name, cache) = (quoted_path(&arguments.directory), quoted_path(&cache));
    output::print(&format!(
        "{line}\n\
         Start the server now. `entresol top {cache}` shows the cache at work, {} has what it says.\n\
         `entresol detach {name}` takes the cache off again.\n",
        log.display()
    ))
}

impl AttachArgs {
    fn make(&self, backing: &Path, cache: &Path, quiet: bool) -> Result<()> {
        let size = match self.size {
            // A file or device that is there has a size.
            None if !cache.exists() => Some(attach::size(backing, cache)?),
            given => given,
        };
        let arguments = FormatArgs {
            cache: cache.to_owned(),
            backing: backing.to_owned(),
            identity: None,
            size,
            page_size: None,
            segment_size: None,
            layout: None,
            wear: self.wear,
            policy: None,
            mode: self.mode,
            force: false,
        };
        format::run(&arguments, quiet)
    }
}

/// Runs `entresol detach`.
pub fn detach(arguments: &DetachArgs, quiet: bool) -> Result<()> {
    let cache = attach::detach(&arguments.directory, quiet)?;
    if quiet { Ok(()) } else { output::print(&format!("{} is not needed any more.\n", cache.display())) }
}
