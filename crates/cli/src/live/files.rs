//! A cache in front of all files of a directory.

use super::drain::past_lost_pages;
use super::hold;
use super::serve::{CacheArgs, Found, config};
use super::survey;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use entresol_engine::disk::Caching;
use entresol_front::files::{self, Backing, CachedFiles, FilesError, NOT_CACHED, Pattern};
use std::path::Path;
use std::time::Instant;

/// Which files go past the cache
#[derive(Args)]
pub struct DirectArgs {
    /// With --cache: files that go past it, by patterns of names, separated by commas; a directory's name means all in it.
    /// `none` names none [default: logs and temporary files of PostgreSQL, InnoDB and SQLite, see docs/OPERATING.md]
    #[arg(long = "bypass", value_name = "PATTERNS", requires = "cache", value_delimiter = ',')]
    pub direct: Vec<String>,
}

impl DirectArgs {
    fn patterns(&self) -> Result<Vec<Pattern>> {
        let given = self.direct.iter().map(String::as_str);
        let names: Vec<&str> = match self.direct.as_slice() {
            [] => NOT_CACHED.to_vec(),
            [one] if one == "none" => Vec::new(),
            _ => given.collect(),
        };
        names.iter().map(|name| name.parse().map_err(|error| anyhow!("--bypass '{name}': {error}"))).collect()
    }
}

/// Open files over their cache.
pub struct OpenedFiles {
    pub files: CachedFiles,
    pub found: Found,
    pub names: files::Found,
}

/// What is wrong with a directory, in a line that names it.
pub fn refusal(path: &Path, error: FilesError) -> anyhow::Error {
    match error {
        FilesError::Path { .. } | FilesError::Changed(_) => anyhow::Error::new(error),
        other => anyhow::Error::new(other).context(path.display().to_string()),
    }
}

/// A cache inside the directory that it caches would be one of the files.
pub fn check_outside(cache: &Path, directory: &Path) -> Result<()> {
    let place = cache.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(place), Ok(directory)) = (place.canonicalize(), directory.canonicalize()) else { return Ok(()) };
    if place.starts_with(&directory) {
        bail!("{}: lies in {}, whose files it would cache", cache.display(), directory.display());
    }
    Ok(())
}

/// A directory of which a cache is dirty must not be used without it.
pub fn check_complete(directory: &Path) -> Result<()> {
    if Backing::needs_its_cache(directory).map_err(|error| refusal(directory, error))? {
        bail!("{}: its files are not complete without their cache; give --cache, or drain it", directory.display());
    }
    Ok(())
}

/// The directory that a cache was made for.
pub fn backing_of(cache: &Path, store: &impl survey::Bytes, directory: &Path) -> Result<(Backing, survey::Superblock)> {
    let backing = Backing::open(directory).map_err(|error| refusal(directory, error))?;
    let superblock = survey::superblock(store).with_context(|| cache.display().to_string())?;
    if superblock.backing != backing.id() {
        bail!("{}: this is the cache of another backing store than {}", cache.display(), directory.display());
    }
    Ok((backing, superblock))
}

/// Opens a cache and the directory in front of which it stands, each for this process alone.
pub fn open(cache: &Path, directory: &Path, arguments: &CacheArgs, direct: &DirectArgs) -> Result<OpenedFiles> {
    check_outside(cache, directory)?;
    let started = Instant::now();
    let store = hold(cache, Caching::Buffered)?;
    let executor = store.executor();
    let name = || cache.display().to_string();
    let (backing, superblock) = backing_of(cache, &store, directory)?;
    let config = config(arguments, superblock.geometry)?;
    let patterns = direct.patterns()?;
    let opened = CachedFiles::open(backing, store, &config, patterns);
    let (files, names) = opened.map_err(|error| match error {
        FilesError::Cache(error) => anyhow::Error::new(error).context(name()),
        other => refusal(directory, other),
    })?;
    let found = Found::new(&files.recovered(), started, executor);
    Ok(OpenedFiles { files, found, names })
}

/// Writes everything dirty of a directory's cache to its files.
pub fn drain(cache: &Path, directory: &Path, quiet: bool) -> Result<()> {
    let direct = DirectArgs { direct: Vec::new() };
    let OpenedFiles { files, found, .. } = open(cache, directory, &CacheArgs::any_policy(), &direct)?;
    let name = || cache.display().to_string();
    past_lost_pages(|| files.drain(), || Ok(files.lost_pages()?.len())).with_context(name)?;
    files.close().with_context(name)?;
    let lost = files.lost_pages()?;
    if let Some((path, byte)) = lost.first() {
        let first = path.display();
        bail!(
            "{}: {} pages could not be read and are not in their files, first: {first}, byte {byte}",
            name(),
            lost.len()
        );
    }
    let stats = files.stats()?;
    if stats.dirty_pages > 0 {
        bail!("{}: {} pages are dirty still", name(), stats.dirty_pages);
    }
    if !quiet {
        eprintln!(
            "{} dirty pages found, {} pages written; {} is complete without the cache",
            found.dirty,
            stats.keeper.below_pages,
            directory.display()
        );
    }
    Ok(())
}
