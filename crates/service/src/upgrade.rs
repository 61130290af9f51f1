//! An upgrade of the process that serves a cache, under its users.

use super::control;
use super::stats::check_at_rest;
use anyhow::{Result, bail};
use entresol_hold::UPGRADED;
use std::path::Path;
use std::time::Duration;

/// Longest wait for the outcome. The new server may take half a minute to start, and the next one as long to take over.
const OUTCOME_MAX: Duration = Duration::from_secs(90);

/// Replaces the process that serves a cache by one of the program on disk; returns a line for the outcome.
///
/// # Errors
/// If the cache is not in use, its server does not answer within `limit`, or there is no upgrade: the text says why.
pub fn upgrade(cache: &Path, limit: Option<Duration>) -> Result<String> {
    let name = cache.display();
    match control::upgrade(cache, limit, OUTCOME_MAX)?.as_deref() {
        Some(UPGRADED) => Ok(format!("{name}: {UPGRADED}\n")),
        Some("") => bail!("{name}: the server ended before the upgrade was done"),
        Some(refused) => bail!("{name}: {refused}"),
        None => {
            check_at_rest(cache)?;
            bail!("{name}: is not in use; the next start is one of the program on disk")
        }
    }
}
