//! A cache that a command holds open, over any kind of backing store, and the result of its open.

use super::backing_record::Paired;
use super::backing_store::Below;
use super::chosen::Chosen;
use super::doubt::Doubt;
use super::holder::Holder;
use super::log::LogFormat;
use super::places::PlacesOf;
use super::settings::Settings;
use super::words::counted;
use anyhow::{Context, Result};
use entresol_cache::{BlockCache, CacheStats, Learning};
use entresol_files::record::Changed;
use entresol_policy::Info;
use entresol_store::Geometry;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An open cache.
pub struct OpenCache {
    /// Path of the cache; `backing` is the path of its backing store.
    pub(crate) path: PathBuf,
    pub(crate) backing: PathBuf,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) below: Below,
    /// The cache and the record at its backing store.
    pub(crate) pair: Arc<dyn Paired>,
    /// Result of the open.
    pub found: Found,
    pub(crate) geometry: Geometry,
    /// The policy at the open.
    pub(crate) policy: &'static Info,
    /// Names of the policy and mode chosen at the start.
    pub(crate) chosen: Chosen,
    /// Message that the cache was lost and recreated; none if it was not.
    pub(crate) recreated: Option<String>,
    /// Format of the cache's events on standard error.
    pub(crate) log: LogFormat,
    /// Age at which an unsynced write is flushed; none: never.
    pub(crate) sync_after: Option<Duration>,
    /// Bytes of a stream after which its rest bypasses the cache.
    pub(crate) sequential_cutoff: u64,
    /// The holder, and what a former server left with it.
    pub(crate) inherited: Inherited,
}

/// The holder of a cache, if there is one, and what a former server left with it.
#[derive(Default)]
pub(crate) struct Inherited {
    pub(crate) holder: Option<Holder>,
    /// Settings that were changed while a former server ran.
    pub(crate) settings: Option<Settings>,
    /// Doubt whether all is there that a former server had answered.
    pub(crate) doubt: Option<Arc<Doubt>>,
}

impl OpenCache {
    /// The objects in which the users of the cache see its pages.
    pub(super) fn places(&self) -> PlacesOf {
        match &self.below {
            Below::Store => PlacesOf::One(self.backing.file_name().unwrap_or_default().to_string_lossy().into_owned()),
            Below::Files(files) => PlacesOf::Files(files.clone()),
        }
    }

    /// Closes the cache in good order; returns its counters.
    pub fn close(&self) -> Result<CacheStats> {
        let closed = self.pair.close();
        closed.with_context(|| format!("{}: the close", self.path.display()))?;
        Ok(self.cache.stats()?)
    }

    /// Pages whose only copy could not be read, by their position in the backing store.
    pub(crate) fn lost(&self) -> io::Result<Vec<String>> {
        Ok(match &self.below {
            Below::Store => self.cache.lost_pages()?.iter().map(|page| format!("page {page}")).collect(),
            Below::Files(files) => {
                let lost = files.lost_pages()?;
                lost.iter().map(|(path, byte)| format!("{}, byte {byte}", path.display())).collect()
            }
        })
    }
}

/// Result of an open: the pages found, and the time and bytes read to find them.
pub struct Found {
    pub(crate) pages: u64,
    /// Pages that are newer in the cache than in the backing store.
    pub dirty: u64,
    /// Dirty pages that the open dropped.
    pub dropped: Dropped,
    clean_shutdown: bool,
    unsynced_batches: u64,
    took: Duration,
    read_bytes: u64,
    executor: String,
    pub(crate) learning: Learning,
}

impl Found {
    /// `started` is when the open began, `executor` the name of the I/O executor.
    pub(super) fn new(cache: &BlockCache, started: Instant, executor: String, dropped: Dropped) -> Self {
        let recovered = cache.recovered();
        Found {
            pages: recovered.pages,
            dirty: recovered.dirty_pages,
            dropped,
            clean_shutdown: recovered.clean_shutdown,
            unsynced_batches: recovered.unsynced_batches,
            took: started.elapsed(),
            read_bytes: recovered.read_bytes,
            executor,
            learning: cache.learning(),
        }
    }

    /// The result as JSON, for an event.
    pub(super) fn figures(&self) -> serde_json::Value {
        serde_json::json!({
            "pages": self.pages,
            "dirty_pages": self.dirty,
            "clean_shutdown": self.clean_shutdown,
            "unsynced_batches": self.unsynced_batches,
            "took_ms": self.took.as_secs_f64() * 1e3,
            "read_bytes": self.read_bytes,
            "executor": self.executor,
        })
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Found { pages, dirty, unsynced_batches, read_bytes, executor, .. } = self;
        let how = if self.clean_shutdown { "closed in good order" } else { "recovered after a crash" };
        let ms = self.took.as_secs_f64() * 1e3;
        write!(f, "{how}: {pages} pages, {dirty} of them dirty, {unsynced_batches} batches after the last sync; ")?;
        write!(f, "{ms:.1} ms, {read_bytes} bytes read; I/O by {executor}")?;
        let goes_on = self.learning == Learning::GoesOn;
        f.write_str(if goes_on { "; the policy goes on with what it had learned" } else { "" })
    }
}

/// Dirty pages that an open dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Pages of files that were removed through the cache.
    pub removed: u64,
    /// Pages of files that are missing without having been removed through the cache; `--drop-gone` asked to drop them.
    pub gone: u64,
    /// Pages beyond the ends of their files.
    pub beyond: u64,
    /// Pages of a backing store that was complete without them, and was written without its cache.
    pub written: u64,
}

impl From<Changed> for Dropped {
    fn from(changed: Changed) -> Self {
        Dropped { written: changed.dropped_dirty as u64, ..Dropped::default() }
    }
}

impl From<&entresol_files::Found> for Dropped {
    fn from(found: &entresol_files::Found) -> Self {
        let [removed, gone, beyond] =
            [found.removed_pages, found.dropped_pages, found.beyond_pages].map(|pages| pages as u64);
        Dropped { removed, gone, beyond, written: 0 }
    }
}

impl Dropped {
    /// A phrase that says what was dropped; empty if nothing was.
    pub fn said(&self) -> String {
        let reasons = [
            (self.removed, "of files that were removed"),
            (self.gone, "of files that are gone, as --drop-gone asked"),
            (self.beyond, "beyond the ends of their files"),
            (self.written, "of a backing store that was written without its cache"),
        ];
        let some = reasons.iter().filter(|(pages, _)| *pages > 0);
        some.map(|(pages, why)| format!(", {} dropped {why}", counted(*pages as usize, "page"))).collect()
    }
}
