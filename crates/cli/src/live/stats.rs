//! `entresol stats`: what a cache holds that is not in use.

use super::check::refusal;
use super::survey::{self, State, Superblock};
use super::{ReadFile, hex};
use crate::output;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

/// Count what a cache holds that is not in use
#[derive(Args)]
pub struct StatsArgs {
    /// The cache
    #[arg(long, value_name = "FILE")]
    pub cache: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &StatsArgs) -> Result<()> {
    let cache = ReadFile::open(&arguments.cache)?;
    let found = survey::survey(&cache, false).map_err(|error| refusal(&arguments.cache, error))?;
    let Superblock { geometry, uuid, backing, backing_pages, state, epoch, .. } = found.superblock;
    let state = match state {
        State::Open => "not closed: in use until a crash or a kill",
        State::Closed => "closed in good order",
        State::Retired => "retired after a failure of its device",
    };
    let (dirty, lost) = (found.count(|version| version.dirty && !version.lost), found.count(|version| version.lost));
    let lines = [
        ("uuid", hex(&uuid)),
        ("state", state.to_owned()),
        ("opened", format!("{epoch} times")),
        ("page size", format!("{} B", geometry.page_bytes)),
        (
            "segments",
            format!("{} of {} pages, {} live", geometry.segments, geometry.segment_pages, found.live_segments),
        ),
        ("capacity", format!("{} pages", geometry.capacity_pages())),
        ("backing store", format!("{backing_pages} pages, identity {}", hex(&backing))),
        ("pages", found.pages.len().to_string()),
        ("dirty", dirty.to_string()),
        ("clean", (found.pages.len() as u64 - dirty - lost).to_string()),
        ("lost", lost.to_string()),
        ("obsolete", format!("{} versions", found.versions - (found.pages.len() as u64 - lost))),
        ("batches", format!("{}, {} of them not known to be synced", found.batches, found.unsynced_batches)),
    ];
    output::print(&lines.map(|(name, value)| format!("{name:<14} {value}\n")).concat())
}
