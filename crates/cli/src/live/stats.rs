//! `entresol stats`: activity of a cache in use, or contents of a cache that is not.

use super::check::refusal;
use super::control::{Question, ask};
use super::figures::Figures;
use super::survey::{self, State, Superblock, Survey};
use super::tables::{NameArgs, Tables};
use super::{ReadFile, hex};
use crate::output;
use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_store::{Geometry, Layout};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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

/// Time limit for the process that serves a cache
#[derive(Args)]
pub struct TimeoutArg {
    /// Seconds that the process which serves the cache may take to answer; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    timeout: f64,
}

impl TimeoutArg {
    /// The limit, if there is one.
    pub fn limit(&self) -> Option<Duration> {
        (self.timeout > 0.0).then(|| Duration::from_secs_f64(self.timeout.max(0.001)))
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=86400.0).contains(seconds));
    seconds.ok_or_else(|| "it must be a number of seconds from 0 to 86400".to_owned())
}

/// Parses the seconds between two readings.
pub fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86400.0).contains(seconds));
    seconds.ok_or_else(|| "it must be a number of seconds from 0.1 to 86400".to_owned())
}

/// Runs the command.
pub fn run(arguments: &StatsArgs) -> Result<()> {
    let Some(cache) = arguments.place.as_ref().or(arguments.cache.as_ref()) else { bail!("no cache was named") };
    let mut tables = Tables::new(&arguments.names);
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
        (None, None) => at_rest(arguments, cache),
    }
}

/// Opens a cache for which no process answers. Fails if the cache is gone or held by a command that serves nothing.
pub(super) fn check_at_rest(cache: &Path) -> Result<ReadFile> {
    if super::metadata(cache)?.file_type().is_socket() {
        bail!("{}: nobody answers there", cache.display());
    }
    if cache.is_dir() {
        bail!("{}: the process that serves this mount does not answer", cache.display());
    }
    ReadFile::open(cache)
}

/// The figures of a cache in use; none if no process serves it. Includes the names of its tables, as far as both come
/// within a limit.
pub fn live(cache: &Path, tables: &mut Tables, limit: Option<Duration>) -> Result<Option<Figures>> {
    let began = Instant::now();
    let Some(mut figures) = figures(cache, limit)? else { return Ok(None) };
    tables.name(&mut figures, limit.map(|limit| limit.saturating_sub(began.elapsed())))?;
    Ok(Some(figures))
}

/// The figures of a cache in use; none if no process serves it.
fn figures(cache: &Path, limit: Option<Duration>) -> Result<Option<Figures>> {
    let Some(value) = ask(cache, Question::Stats, limit)? else { return Ok(None) };
    let answered = || format!("{}: what its server answered", cache.display());
    serde_json::from_value(value).with_context(answered).map(Some)
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

fn at_rest(arguments: &StatsArgs, path: &Path) -> Result<()> {
    let cache = check_at_rest(path)?;
    let found = survey::survey(&cache, false).map_err(|error| refusal(path, error))?;
    let text = if arguments.json { json(&found) } else { table(&found) };
    output::print(&text)
}

fn state(found: &Survey) -> &'static str {
    match found.superblock.state {
        State::Open => "not closed: in use until a crash or a kill",
        State::Closed => "closed in good order",
        State::Retired => "retired after a failure of its device",
    }
}

/// Numbers of dirty, clean and lost pages, and of obsolete versions.
fn shares(found: &Survey) -> [u64; 4] {
    let (dirty, lost) = (found.count(|version| version.dirty && !version.lost), found.count(|version| version.lost));
    let pages = found.pages.len() as u64;
    [dirty, pages - dirty - lost, lost, found.versions - (pages - lost)]
}

/// Describes the layout of the store and its live part.
fn places(found: &Survey) -> String {
    let Superblock { geometry, journal_blocks, .. } = found.superblock;
    let Geometry { segment_pages, segments, layout, .. } = geometry;
    let name = layout.name();
    match layout {
        Layout::Log => format!("{name}: {segments} segments of {segment_pages} pages, {} live", found.live_segments),
        Layout::Slots => {
            let slots = u64::from(segments) * u64::from(segment_pages) - journal_blocks;
            format!("{name}: {slots} slots, a journal of {journal_blocks} blocks, {} of them live", found.batches)
        }
    }
}

fn json(found: &Survey) -> String {
    let Superblock { geometry, uuid, backing, backing_pages, epoch, .. } = found.superblock;
    let [dirty, clean, lost, obsolete] = shares(found);
    let value = serde_json::json!({
        "uuid": hex(&uuid),
        "state": state(found),
        "opened": epoch,
        "layout": geometry.layout.name(),
        "page_bytes": geometry.page_bytes,
        "segments": geometry.segments,
        "segment_pages": geometry.segment_pages,
        "live_segments": (geometry.layout == Layout::Log).then_some(found.live_segments),
        "journal_blocks": found.superblock.journal_blocks,
        "room_pages": geometry.capacity_pages(),
        "backing_pages": backing_pages,
        "backing_identity": hex(&backing),
        "pages": found.pages.len(),
        "dirty_pages": dirty,
        "clean_pages": clean,
        "lost_pages": lost,
        "obsolete_versions": obsolete,
        "batches": found.batches,
        "unsynced_batches": found.unsynced_batches,
    });
    format!("{value}\n")
}

fn table(found: &Survey) -> String {
    let Superblock { geometry, uuid, backing, backing_pages, epoch, .. } = found.superblock;
    let [dirty, clean, lost, obsolete] = shares(found);
    let lines = [
        ("uuid", hex(&uuid)),
        ("state", state(found).to_owned()),
        ("opened", format!("{epoch} times")),
        ("page size", format!("{} B", geometry.page_bytes)),
        ("layout", places(found)),
        ("capacity", format!("{} pages", geometry.capacity_pages())),
        ("backing store", format!("{backing_pages} pages, identity {}", hex(&backing))),
        ("pages", found.pages.len().to_string()),
        ("dirty", dirty.to_string()),
        ("clean", clean.to_string()),
        ("lost", lost.to_string()),
        ("obsolete", format!("{obsolete} versions")),
        ("batches", format!("{}, {} of them not known to be synced", found.batches, found.unsynced_batches)),
    ];
    lines.map(|(name, value)| format!("{name:<14} {value}\n")).concat()
}
