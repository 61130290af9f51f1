//! `entresol resolve`: decides which version of a file counts after a change made without its cache.

use super::control::{self, KeepArg, Question, ask};
use super::files::{self, DirectArgs};
use super::serve::CacheArgs;
use super::stats::TimeoutArg;
use super::unwritten::counted;
use crate::output;
use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_files::{Backing, HIDDEN, Keep};
use std::path::{Path, PathBuf};

/// End the conflict of a file that was changed without its cache while the cache had dirty pages of it
///
/// `stats`, `check` and `drain` name such files. Until the conflict is ended, reads of those pages and syncs
/// of the file fail, and nothing is written to the file. Look at the file in the backing directory first: the
/// version that is not kept is lost for good.
#[derive(Args)]
pub struct ResolveArgs {
    /// The file, by its path in the mount or in the backing directory
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The version to keep: `cache` writes the cache's dirty pages over the file and restores the size that
    /// it had; `below` drops those pages
    #[arg(long, value_enum, value_name = "WHOSE")]
    pub keep: KeepArg,
    /// The cache, needed if the backing directory does not name it
    #[arg(long, value_name = "FILE")]
    pub cache: Option<PathBuf>,
    #[command(flatten)]
    pub timeout: TimeoutArg,
}

impl From<KeepArg> for Keep {
    fn from(keep: KeepArg) -> Self {
        match keep {
            KeepArg::Cache => Keep::Cache,
            KeepArg::Below => Keep::Below,
        }
    }
}

/// The line that reports the outcome.
pub fn done(path: &str, keep: KeepArg, pages: u64) -> String {
    let pages = counted(pages as usize, "page");
    match keep {
        KeepArg::Cache => format!("{path}: {pages} of the cache count again, over what was written there"),
        KeepArg::Below => format!("{path}: {pages} of the cache are dropped; the file counts as it is"),
    }
}

/// A file in a cached directory.
struct Found {
    cache: PathBuf,
    /// The backing directory, where it is known.
    backing: Option<PathBuf>,
    /// Path of the file, relative to the directory.
    path: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &ResolveArgs, quiet: bool) -> Result<()> {
    let Found { cache, backing, path } = find(arguments)?;
    let name = path.to_str().with_context(|| format!("{}: its name is no text", path.display()))?;
    let question = Question::Resolve { path: name.to_owned(), keep: arguments.keep };
    let said = match (ask(&cache, question, arguments.timeout.limit())?, backing) {
        (Some(done), _) => done.as_str().unwrap_or_default().to_owned(),
        (None, Some(backing)) => at_rest(&cache, &backing, &path, arguments.keep)?,
        (None, None) => bail!("{}: nobody answers for the mount that the file lies in", cache.display()),
    };
    if quiet { Ok(()) } else { output::print(&format!("{said}\n")) }
}

fn find(arguments: &ResolveArgs) -> Result<Found> {
    let name = || arguments.file.display().to_string();
    let (Some(file), folder) = (arguments.file.file_name(), arguments.file.parent()) else {
        bail!("{}: is no file", name());
    };
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = folder.canonicalize().with_context(name)?.join(file);
    if let Some((cache, path)) = control::file_of_mount(&place)? {
        return Ok(Found { cache: arguments.cache.clone().unwrap_or(cache), backing: None, path });
    }
    let is_backing = |folder: &&Path| folder.join(HIDDEN).join("map").is_file();
    let Some(backing) = place.ancestors().skip(1).find(is_backing) else {
        bail!("{}: lies in no directory that has a cache", name());
    };
    let path = place.strip_prefix(backing).expect("it lies there").to_owned();
    let cache = match &arguments.cache {
        Some(cache) => cache.clone(),
        None => match Backing::cache_of(backing).map_err(|error| files::refusal(backing, error))? {
            Some(cache) => cache,
            None => bail!("{}: does not say where its cache is: give --cache", backing.display()),
        },
    };
    Ok(Found { cache, backing: Some(backing.to_owned()), path })
}

/// Resolves the conflict in a cache that is not in use.
fn at_rest(cache: &Path, backing: &Path, path: &Path, keep: KeepArg) -> Result<String> {
    let direct = DirectArgs { nested_ok: true, ..DirectArgs::default() };
    let (held, files, _) = files::open(cache, backing, &CacheArgs::any_policy(), &direct)?.cached()?;
    let resolved = files.resolve(path, keep.into()).with_context(|| backing.join(path).display().to_string());
    let closed = held.close();
    let pages = resolved?;
    closed?;
    Ok(done(&path.display().to_string(), keep, pages))
}
