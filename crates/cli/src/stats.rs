//! `entresol stats`: activity of a cache in use, or contents of a cache that is not.

use crate::arguments::{NameArgs, TimeoutArg};
use crate::output;
use anyhow::{Result, bail};
use clap::Args;
use entresol_service::figures::Figures;
use entresol_service::stats::{at_rest, check_at_rest, figures};
use entresol_service::tables::Tables;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Show the activity of a cache in use, or the contents of a cache that is not
#[derive(Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub struct StatsArgs {
    /// The cache, its control socket, or a directory where it is mounted
    #[arg(value_name = "CACHE|SOCKET|DIR", group = "which")]
    pub place: Option<PathBuf>,
    /// The same, as an option
    #[arg(long, value_name = "CACHE|SOCKET|DIR", group = "which")]
    pub cache: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Print the figures again at this interval until the cache is no longer in use; requests and hits are those of the
    /// time between
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    pub watch: Option<f64>,
    #[command(flatten)]
    pub names: NameArgs,
    #[command(flatten)]
    pub timeout: TimeoutArg,
}

/// Parses the seconds between two readings.
pub fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86400.0).contains(seconds));
    seconds.ok_or_else(|| "it must be a number of seconds from 0.1 to 86400".to_owned())
}

/// Runs the command.
pub fn run(arguments: &StatsArgs) -> Result<()> {
    let Some(cache) = arguments.place.as_ref().or(arguments.cache.as_ref()) else { bail!("no cache was named") };
    let mut tables = Tables::new(&arguments.names.source());
    let limit = arguments.timeout.limit();
    let figures = figures(cache, limit)?;
    match (figures, arguments.watch) {
        (Some(first), seconds) => {
            let first = print(arguments, &mut tables, first, None)?;
            tables.troubles().iter().for_each(|trouble| say!("entresol: {trouble}"));
            seconds.map_or(Ok(()), |seconds| watch(arguments, cache, &mut tables, first, seconds))
        }
        (None, Some(_)) => {
            check_at_rest(cache)?;
            bail!("{}: is not in use; there is nothing to watch", cache.display());
        }
        (None, None) => output::print(&at_rest(cache, arguments.json)?),
    }
}

/// Prints figures, and returns them with names.
///
/// Figures are printed before the names of tables are read, because names come through the mount, which may stall.
/// Names come first for JSON, and if a server is to be asked for them, which it may refuse.
fn print(arguments: &StatsArgs, tables: &mut Tables, mut now: Figures, before: Option<&Figures>) -> Result<Figures> {
    let figures_first = !arguments.json && arguments.names.ask.is_none();
    if figures_first {
        output::print(&now.table(before))?;
    }
    // Half of the server's limit, so that the whole ends within the limit or soon after.
    tables.name(&mut now, arguments.timeout.limit().map(|limit| limit / 2))?;
    let rest = match arguments.json {
        true => format!("{}\n", serde_json::to_string(&now)?),
        false if figures_first => now.objects_table(before),
        false => now.table(before) + &now.objects_table(before),
    };
    output::print(&rest)?;
    Ok(now)
}

fn watch(arguments: &StatsArgs, cache: &Path, tables: &mut Tables, first: Figures, seconds: f64) -> Result<()> {
    let mut before = first;
    loop {
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let Ok(Some(now)) = figures(cache, arguments.timeout.limit()) else { return Ok(()) };
        if !arguments.json {
            output::print("\n")?;
        }
        // Another process counts from zero.
        let same = now.process == before.process;
        before = print(arguments, tables, now, same.then_some(&before))?;
    }
}
