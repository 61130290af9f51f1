//! `entresol set`: changes a cache that is in use.

use super::control::{Question, ask};
use super::stats::check_at_rest;
use crate::output;
use anyhow::{Result, bail};
use clap::Args;
use std::path::PathBuf;

/// Change a cache that is in use
///
/// What is changed holds until the process that serves the cache ends; its command line or configuration decides again at
/// the next start. All settings are checked before the first is carried out. docs/OPERATING.md says what each does.
#[derive(Args)]
pub struct SetArgs {
    /// The cache, its control socket, or a directory where it is mounted
    #[arg(long, value_name = "CACHE|SOCKET|DIR")]
    pub cache: PathBuf,
    /// What is to be changed, in this order: mode (write-back, write-through, write-around, read-only), policy (NAME or
    /// NAME:OPTION=VALUE:...), cache-size (pages the policy may keep: 50%, 10GiB, 2000p), device-size (the cache
    /// grows to so many bytes of its file or device), dirty-high and dirty-low (per cent of its pages: more dirty ones than the
    /// first are written below down to the second), dram (its memory, where it has two
    /// tiers)
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = pair)]
    pub settings: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it must be NAME=VALUE".to_owned()),
    }
}

/// Runs the command.
pub fn run(arguments: &SetArgs, quiet: bool) -> Result<()> {
    let Some(done) = ask(&arguments.cache, Question::Set(arguments.settings.clone()))? else {
        check_at_rest(&arguments.cache)?;
        bail!("{}: is not in use; what it is served with is decided when it is", arguments.cache.display());
    };
    let lines = done.as_array().into_iter().flatten().filter_map(|line| line.as_str());
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    if quiet { Ok(()) } else { output::print(&text) }
}
