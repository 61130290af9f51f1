//! Figures of a cache in use, or the contents of a cache that is not.

use super::check::refusal;
use super::control::{Question, ask};
use super::figures::Figures;
use super::hold::{ReadFile, hex, metadata};
use super::tables::Tables;
use super::translation;
use anyhow::{Context, Result, bail};
use entresol_fsck::{State, Superblock, Survey, survey};
use entresol_store::{Geometry, Layout};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Fails if a cache for which no process answers is gone or held by a command that serves nothing.
pub fn check_at_rest(cache: &Path) -> Result<()> {
    open_at_rest(cache).map(drop)
}

/// Opens a cache for which no process answers. Fails if the cache is gone or held by a command that serves nothing.
fn open_at_rest(cache: &Path) -> Result<ReadFile> {
    if metadata(cache)?.file_type().is_socket() {
        bail!("{}: no process answers there", cache.display());
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
pub fn figures(cache: &Path, limit: Option<Duration>) -> Result<Option<Figures>> {
    let Some(value) = ask(cache, Question::Stats, limit)? else { return Ok(None) };
    let answered = || format!("{}: the answer of its server", cache.display());
    serde_json::from_value(value).with_context(answered).map(Some)
}

/// The contents of a cache that is not in use: one JSON object, or a table.
pub fn at_rest(path: &Path, as_json: bool) -> Result<String> {
    let cache = open_at_rest(path)?;
    let found = survey(&cache, false).map_err(|error| refusal(path, error))?;
    Ok(if as_json { json(&found) } else { table(&found) })
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
    let Superblock { journal_blocks, .. } = found.superblock;
    let Geometry { segment_pages, segments, layout, .. } = translation::geometry(&found.superblock);
    let name = layout.name();
    match layout {
        Layout::Log => format!("{name}: {segments} segments of {segment_pages} pages, {} live", found.live_segments),
        Layout::Slots | Layout::Segments => {
            let slots = u64::from(segments) * u64::from(segment_pages) - journal_blocks;
            format!("{name}: {slots} slots, a journal of {journal_blocks} blocks, {} of them live", found.batches)
        }
    }
}

fn json(found: &Survey) -> String {
    let Superblock { uuid, backing, backing_pages, epoch, .. } = found.superblock;
    let geometry = translation::geometry(&found.superblock);
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
    let Superblock { uuid, backing, backing_pages, epoch, .. } = found.superblock;
    let geometry = translation::geometry(&found.superblock);
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
