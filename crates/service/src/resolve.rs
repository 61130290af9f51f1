//! The end of a conflict: decides which version of a file counts after a change made without its cache.

use super::cache_options::CacheOptions;
use super::control::{self, Question, ask};
use super::directory::refusal;
use super::files::{self, FileOptions};
use super::words::counted;
use anyhow::{Context, Result, bail};
use entresol_files::{Backing, HIDDEN, Keep};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The line that reports the outcome.
pub fn done(path: &str, keep: Keep, pages: u64) -> String {
    let pages = counted(pages as usize, "page");
    match keep {
        Keep::Cache => format!("{path}: {pages} of the cache count again, over the bytes written there"),
        Keep::Below => format!("{path}: {pages} of the cache are dropped; the file counts as it is"),
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

/// Ends the conflict of a file, by the process that serves its cache or, if there is none, here; returns the line that
/// reports the outcome.
///
/// `cache` is the cache, if it is known. The process that serves it has to answer within `limit`.
pub fn resolve(file: &Path, cache: Option<&Path>, keep: Keep, limit: Option<Duration>) -> Result<String> {
    let Found { cache, backing, path } = find(file, cache)?;
    let name = path.to_str().with_context(|| format!("{}: its name is not valid UTF-8", path.display()))?;
    let question = Question::Resolve { path: name.to_owned(), keep };
    Ok(match (ask(&cache, question, limit)?, backing) {
        (Some(done), _) => done.as_str().unwrap_or_default().to_owned(),
        (None, Some(backing)) => at_rest(&cache, &backing, &path, keep)?,
        (None, None) => bail!("{}: no process answers for the mount that the file lies in", cache.display()),
    })
}

/// Finds the cache of a file, and the file's path in the cached directory.
fn find(given: &Path, cache: Option<&Path>) -> Result<Found> {
    let name = || given.display().to_string();
    let (Some(file), folder) = (given.file_name(), given.parent()) else {
        bail!("{}: is no file", name());
    };
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = folder.canonicalize().with_context(name)?.join(file);
    if let Some((served, path)) = control::file_of_mount(&place)? {
        return Ok(Found { cache: cache.map_or(served, Path::to_owned), backing: None, path });
    }
    let is_backing = |folder: &&Path| folder.join(HIDDEN).join("map").is_file();
    let Some(backing) = place.ancestors().skip(1).find(is_backing) else {
        bail!("{}: lies in no directory that has a cache", name());
    };
    let path = place.strip_prefix(backing).expect("it lies there").to_owned();
    let cache = match cache {
        Some(cache) => cache.to_owned(),
        None => match Backing::cache_of(backing).map_err(|error| refusal(backing, error))? {
            Some(cache) => cache,
            None => bail!("{}: does not say where its cache is: give --cache", backing.display()),
        },
    };
    Ok(Found { cache, backing: Some(backing.to_owned()), path })
}

/// Resolves the conflict in a cache that is not in use.
fn at_rest(cache: &Path, backing: &Path, path: &Path, keep: Keep) -> Result<String> {
    let direct = FileOptions { nested_ok: true, ..FileOptions::default() };
    let (held, files, _) = files::open(cache, backing, &CacheOptions::any_policy(), &direct, None)?.cached()?;
    let resolved = files.resolve(path, keep).with_context(|| backing.join(path).display().to_string());
    let closed = held.close();
    let pages = resolved?;
    closed?;
    Ok(done(&path.display().to_string(), keep, pages))
}
