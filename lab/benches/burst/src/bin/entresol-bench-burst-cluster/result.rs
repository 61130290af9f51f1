//! Files of results, which are JSON.

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// Writes a file under another name first, so that a run that is interrupted leaves no half of one.
pub fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let unfinished = path.with_extension("unfinished");
    std::fs::write(&unfinished, serde_json::to_vec_pretty(value)?)?;
    std::fs::rename(&unfinished, path).with_context(|| path.display().to_string())
}

pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&bytes).with_context(|| path.display().to_string())
}
