//! `entresol set`: changes a cache that is in use.

use crate::arguments::{NameArgs, TimeoutArg};
use crate::output;
use anyhow::Result;
use clap::Args;
use entresol_service::set::set;
use std::path::PathBuf;

/// Change a cache that is in use
///
/// A change holds until the command that serves the cache is stopped; its command line or configuration decides again at the
/// next start. The mode and the size of the device stay. All settings are checked before the first is applied.
/// docs/OPERATING.md describes each.
#[derive(Args)]
pub struct SetArgs {
    /// The cache, its control socket, or a directory where it is mounted
    #[arg(long, value_name = "CACHE|SOCKET|DIR")]
    pub cache: PathBuf,
    /// Settings to change, in the order given: mode (write-back, write-through, write-around, read-only), policy (NAME
    /// or NAME:OPTION=VALUE:...), cache-size (pages the policy may keep: 50%, 10GiB, 2000p), device-size (bytes of its
    /// file or device to which the cache grows), dirty-high and dirty-low (per cent of its pages: above the first,
    /// dirty pages are written back down to the second), dirty-age (time for which a page may differ from the backing
    /// store, such as 1h, or none), sequential-cutoff (bytes of a sequential stream after which the rest bypasses the
    /// cache; 0: never), wear (bound on what is written to a cache of the layout segments: 1DWPD, 200GB (a day),
    /// amplification=1.8, unbounded), dram (memory above the cache: 1GiB; 0 is none), place and unplace (a table or
    /// index by its database's name or the part of the name after a dot, or a file: policy table-placement holds it
    /// whole, or no longer), place-rate (bytes a second that this may read)
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = pair)]
    pub settings: Vec<(String, String)>,
    #[command(flatten)]
    pub names: NameArgs,
    #[command(flatten)]
    pub timeout: TimeoutArg,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it must be NAME=VALUE".to_owned()),
    }
}

/// Runs the command.
pub fn run(arguments: &SetArgs, quiet: bool) -> Result<()> {
    let text = set(&arguments.cache, &arguments.settings, &arguments.names.source(), arguments.timeout.limit())?;
    if quiet { Ok(()) } else { output::print(&text) }
}
