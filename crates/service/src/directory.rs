//! A directory as backing store: its errors, and the place of its cache.

use anyhow::{Result, bail};
use entresol_files::FilesError;
use std::path::Path;

/// An error about a directory, with the directory's name.
pub(crate) fn refusal(path: &Path, error: FilesError) -> anyhow::Error {
    match error {
        FilesError::Path { .. } => anyhow::Error::new(error),
        other => anyhow::Error::new(other).context(path.display().to_string()),
    }
}

/// Refuses a cache inside the directory that it caches, where it would be one of the files.
pub(crate) fn check_outside(cache: &Path, directory: &Path) -> Result<()> {
    let place = cache.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(place), Ok(directory)) = (place.canonicalize(), directory.canonicalize()) else { return Ok(()) };
    if place.starts_with(&directory) {
        bail!("{}: lies in {}, whose files it would cache", cache.display(), directory.display());
    }
    Ok(())
}
