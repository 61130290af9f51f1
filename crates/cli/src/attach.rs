//! `entresol attach` and `entresol detach`: a directory behind a cache, in one command.

use crate::arguments::keyword;
use crate::format::{self, FormatArgs};
use crate::output;
use anyhow::Result;
use clap::Args;
use entresol_cache::Mode;
use entresol_policy::Wear;
use entresol_service::attach::{self, Attached};
use entresol_service::keyword::Keyword;
use entresol_service::values::bytes;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Put a directory behind a cache, until `entresol detach`
///
/// Makes the cache if there is none, and mounts it over the directory in the background, so that programs find their files at
/// their usual place. No program may have files of the directory open: stop the server first, and start it afterwards.
/// Run this as the user who runs the server.
///
/// After a restart of the machine run the same command again, before the server starts: the cache is used as it was
/// left. docs/DBA.md has a unit for systemd that does so.
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
/// Unmounts the directory, and writes what only the cache has to its files. The directory is complete without the cache
/// then. No program may have files of it open: stop the server first.
#[derive(Args)]
pub struct DetachArgs {
    /// The directory
    pub directory: PathBuf,
}

/// Runs `entresol attach`.
pub fn attach(arguments: &AttachArgs, quiet: bool) -> Result<()> {
    let writers_ok = arguments.options.iter().any(|option| option == "--writers-ok");
    let directory = attach::check(&arguments.directory, writers_ok)?;
    let cache = attach::cache_path(&directory, &arguments.cache);
    let log = arguments.log.clone().map_or_else(|| attach::log(&cache), Ok)?;
    if !attach::has_cache(&cache)? {
        format::run(&arguments.format(&directory, &cache)?, quiet)?;
    } else if !quiet && (arguments.size.is_some() || arguments.wear.is_some()) {
        say!("{}: there already; --size and --wear are for a cache that is made", cache.display());
    }
    let mode = arguments.mode.map(|mode| ["--mode".into(), mode.keyword().into()]);
    let more: Vec<OsString> = mode.into_iter().flatten().chain(arguments.options.iter().cloned()).collect();
    let Attached { line, said } = attach::start(&directory, &cache, &log, &more)?;
    if quiet {
        return Ok(());
    }
    said.lines().for_each(|line| say!("{line}"));
    let (name, cache) = (arguments.directory.display(), cache.display());
    output::print(&format!(
        "{line}\n\
         Start the server now. `entresol top {cache}` shows the cache at work, {} has what it says.\n\
         `entresol detach {name}` takes the cache off again.\n",
        log.display()
    ))
}

impl AttachArgs {
    fn format(&self, directory: &Path, cache: &Path) -> Result<FormatArgs> {
        // A file or device that is there has a size.
        let size = if cache.exists() { None } else { Some(attach::size(directory, cache)?) };
        Ok(FormatArgs {
            cache: cache.to_owned(),
            backing: directory.to_owned(),
            identity: None,
            size: self.size.or(size),
            page_size: None,
            segment_size: None,
            layout: None,
            wear: self.wear,
            policy: None,
            mode: self.mode,
            force: false,
        })
    }
}

/// Runs `entresol detach`.
pub fn detach(arguments: &DetachArgs, quiet: bool) -> Result<()> {
    let cache = attach::detach(&arguments.directory, quiet)?;
    if quiet { Ok(()) } else { output::print(&format!("{} is not needed any more.\n", cache.display())) }
}
