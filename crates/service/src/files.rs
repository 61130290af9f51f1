//! A cache in front of all files of a directory.

use super::around;
use super::backing_store::Below;
use super::cache_options::CacheOptions;
use super::chosen::Kept;
use super::directory::{check_outside, refusal};
use super::doubt;
use super::hold::{HeldBytes, check_direct, hold_cache, patiently};
use super::holder::Holder;
use super::lost::{self, IfLost, Opened, dirty_pages, dirty_pages_at};
use super::open_cache::{Dropped, OpenCache};
use super::settings::Settings;
use super::setup::{Parts, Setup};
use super::words::format_command;
use anyhow::{Context, Result, anyhow, bail};
use entresol_cache::Mode;
use entresol_disk::Caching;
use entresol_files::{Backing, CachedFiles, FilesError, LOGS, Pattern, not_cached};
use entresol_fsck::{Bytes, Superblock};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for the locks of a server that was killed, whose last I/O may still be under way.
const LOCKED_MAX: Duration = Duration::from_secs(60);

/// Options of a cache over a directory.
#[derive(Clone, Debug, Default)]
pub struct FileOptions {
    /// Files that bypass the cache, as patterns of names: a directory's name covers all files in it. `none` alone names
    /// none, `logs` alone the logs of databases; no pattern at all: logs and temporary files of databases.
    pub bypass: Vec<String>,
    /// True if dirty pages of files that no longer exist are dropped.
    pub drop_gone: bool,
    /// True if the generations of cache and directory are not compared.
    pub generation_ok: bool,
    /// True if other caches may be in use inside or around the directory: for a drain.
    pub nested_ok: bool,
    /// True if the cache is opened with O_DIRECT, bypassing the kernel's page cache. The page size must be a multiple of
    /// 4096 bytes.
    pub direct: bool,
}

impl FileOptions {
    fn patterns(&self) -> Result<Vec<Pattern>> {
        let given = self.bypass.iter().map(String::as_str);
        let names: Vec<&str> = match self.bypass.as_slice() {
            [] => not_cached().collect(),
            [one] if one == "none" => Vec::new(),
            [one] if one == "logs" => LOGS.to_vec(),
            _ => given.collect(),
        };
        names.iter().map(|name| name.parse().map_err(|error| anyhow!("--bypass '{name}': {error}"))).collect()
    }
}

/// Refuses to use a directory without its cache while the cache is dirty.
pub fn check_complete(directory: &Path) -> Result<()> {
    if Backing::needs_its_cache(directory).map_err(|error| refusal(directory, error))? {
        bail!("{}: its files are not complete without their cache; give --cache, or drain it", directory.display());
    }
    around::check(directory)
}

/// The directory, if the cache was made for it.
pub(crate) fn backing_of(cache: &Path, store: &impl Bytes, directory: &Path) -> Result<(Backing, Superblock)> {
    let backing = mapped(cache, directory)?;
    let superblock = entresol_fsck::superblock(store).with_context(|| cache.display().to_string())?;
    if superblock.backing != backing.id() {
        let hint = match dirty_pages(store) {
            0 => String::new(),
            dirty => format!(" and holds {dirty} dirty pages of that: is the right file system mounted?"),
        };
        let (name, directory) = (cache.display(), directory.display());
        bail!("{name}: this is the cache of another backing store than {directory}{hint}");
    }
    Ok((backing, superblock))
}

/// A directory with a file map, held by this process alone.
fn mapped(cache: &Path, directory: &Path) -> Result<Backing> {
    let open = || match Backing::open(directory) {
        Err(FilesError::InUse) => Err(io::ErrorKind::WouldBlock.into()),
        opened => Ok(opened),
    };
    match patiently(directory, open).unwrap_or(Err(FilesError::InUse)) {
        Ok(backing) => Ok(backing),
        // A mount point whose file system is not mounted yet looks like a directory that was never formatted.
        Err(FilesError::NotFormatted) if dirty_pages_at(cache) > 0 => {
            let (name, dirty) = (cache.display(), dirty_pages_at(cache));
            bail!(
                "{name}: the cache holds {dirty} dirty pages of another directory than {}, for which no cache was made: is \
                 its file system mounted?",
                directory.display()
            );
        }
        Err(FilesError::NotFormatted) => {
            let size = if cache.exists() { "" } else { " --size SIZE" };
            let format = format_command(cache, directory);
            bail!("{}: no cache was made for this directory; `{format}{size}` makes one", directory.display());
        }
        Err(error) => Err(refusal(directory, error)),
    }
}

/// An open cache, its files, and what the open found of them.
pub type OpenFiles = (OpenCache, Arc<CachedFiles>, entresol_files::Found);

/// Opens a cache and its directory, each for this process alone. A lost cache is recreated or bypassed if that was
/// asked for or costs nothing. With a holder, what is answered and only memory has outlives this process, and a later
/// server opens what the one before had.
pub fn open(
    path: &Path,
    directory: &Path,
    options: &CacheOptions,
    over: &FileOptions,
    holder: Option<&Holder>,
) -> Result<Opened<OpenFiles>> {
    if let Some(holder) = holder.filter(|holder| !holder.is_first()) {
        let again = || open_again(path, directory, options, over, holder);
        return doubt::past_unusable(Some(holder), again).map(Opened::Cached);
    }
    check_outside(path, directory)?;
    lost::twice(|damage| open_once(path, directory, options, over, holder, damage))
}

/// One attempt of a first server to open them; `damage` is what an earlier attempt found.
fn open_once(
    path: &Path,
    directory: &Path,
    options: &CacheOptions,
    over: &FileOptions,
    holder: Option<&Holder>,
    damage: Option<&str>,
) -> Result<Opened<OpenFiles>> {
    let started = Instant::now();
    let mut backing = mapped(path, directory)?;
    // Checked while this directory is held: a process that starts at the same time in another folder finds it in use.
    if !over.nested_ok {
        around::check(directory)?;
    }
    let (identity, asked, overruled) = (backing.id(), options.if_lost, over.generation_ok);
    let start = lost::Start { cache: path, backing: directory, identity, given: None, asked, overruled };
    let kept = start.kept(&backing)?;
    let chosen = options.chosen(&kept, None)?;
    if asked == Some(IfLost::Bypass) && chosen.mode == Mode::ReadOnly {
        bail!("--if-lost bypass: it serves writable files, but the mode is read-only");
    }
    let recreated = match start.settle(&mut backing, damage)?.or_bypass(chosen.mode) {
        Ok(recreated) => recreated,
        Err(bypass) => return Ok(Opened::Bypassed(bypass)),
    };
    if let Some(holder) = holder {
        holder.directory(directory)?;
        backing = backing.keeping(holder.file_states()?);
    }
    let backing = backing.dropping_gone(over.drop_gone).overruling_generations(over.generation_ok);
    let setup = Setup { path, backing: directory, options, holder, settings: None, chosen, recreated, started };
    open_over(setup, backing, over).map(Opened::Cached)
}

/// Opens what the server before had, which other programs still use. It is no new start for them: nothing is decided
/// anew, and no other cache can have come in between. The directory is found below any mount that covers it.
fn open_again(
    path: &Path,
    directory: &Path,
    options: &CacheOptions,
    over: &FileOptions,
    holder: &Holder,
) -> Result<OpenFiles> {
    let started = Instant::now();
    let backing = backing_again(directory, holder)?;
    let settings = Settings::left(Some(holder))?;
    let chosen = options.chosen(&Kept::of(backing.record()), settings.as_ref())?;
    let (holder, recreated) = (Some(holder), None);
    open_over(Setup { path, backing: directory, options, holder, settings, chosen, recreated, started }, backing, over)
}

/// The directory of the server before, without a look at its path.
fn backing_again(directory: &Path, holder: &Holder) -> Result<Backing> {
    let opened = Backing::open_held(holder.directory(directory)?.as_fd(), directory, LOCKED_MAX);
    let backing = opened.map_err(|error| refusal(directory, error))?;
    Ok(backing.keeping(holder.file_states()?).with_open(holder.copies("fuse.node.")?))
}

/// Opens a cache over its locked directory.
fn open_over(setup: Setup, backing: Backing, over: &FileOptions) -> Result<OpenFiles> {
    let (path, directory, holder) = (setup.path, setup.backing, setup.holder);
    let store = hold_cache(path, directory, Caching::direct_if(over.direct))?;
    let superblock = entresol_fsck::superblock(&HeldBytes(&store)).with_context(|| path.display().to_string())?;
    if over.direct {
        check_direct(superblock.geometry.page_bytes)?;
    }
    let (held, (files, names)) = setup.open(store, &superblock, |store, config| {
        if let Some((holder, arena)) = holder.zip(config.arena.as_ref()) {
            doubt::settle_syncs_of_files(holder, directory, arena)?;
        }
        let opened = CachedFiles::open(backing, store, config, over.patterns()?);
        let (files, names) = opened.map_err(|error| match error {
            FilesError::Cache(error) => anyhow::Error::new(error).context(path.display().to_string()),
            FilesError::Mismatch(error) => anyhow::Error::new(error).context(path.display().to_string()),
            other => refusal(directory, other),
        })?;
        let files = Arc::new(files);
        let (cache, below) = (Arc::clone(files.cache()), Below::Files(Arc::clone(&files)));
        let parts = Parts { cache, below, pair: Arc::clone(&files) as _, dropped: Dropped::from(&names) };
        Ok((parts, (files, names)))
    })?;
    Ok((held, files, names))
}
