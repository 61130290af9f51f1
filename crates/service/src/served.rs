//! A cache served by a front-end: its control socket, its health monitor, its events and its end.

use super::backing_store::Below;
use super::cache_file::CacheFile;
use super::chosen::Chosen;
use super::conflicts;
use super::control::{Control, Controlled};
use super::drain::past_lost_pages;
use super::health_monitor::HealthMonitor;
use super::keyword::Keyword;
use super::log::{Level, Log};
use super::open_cache::{Dropped, OpenCache};
use super::running::Running;
use super::unwritten::{self, advice, by_file};
use super::words::{counted, drain_command, format_command};
use anyhow::{Context, Result, bail};
use entresol_cache::{Block, Learning};
use entresol_files::CachedFiles;
use entresol_files::record::Changed;
use entresol_store::Layout;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// The handling of a backing store that was written without its cache, in words.
fn written_without(backing: &Path, Changed { dropped, dropped_dirty, kept_dirty }: Changed) -> String {
    let mut said = format!("{} was written without its cache; {}", backing.display(), counted(dropped, "cached page"));
    said += if dropped == 1 { " is dropped" } else { " are dropped" };
    if dropped_dirty > 0 {
        said += &format!(", {dropped_dirty} of them with what was not flushed");
    }
    if kept_dirty > 0 {
        said += &format!(", and {} stay", counted(kept_dirty, "dirty page"));
    }
    said
}

/// A cache served by a front-end, with its control socket.
pub struct Served {
    held: OpenCache,
    /// The cache in use, as front-ends and the control socket see it.
    pub running: Arc<Running>,
    file: Arc<CacheFile>,
    control: Option<Control>,
    log: Log,
    health_monitor: HealthMonitor,
}

impl OpenCache {
    /// Reports what the open found, and opens the control socket. A cache whose control socket cannot be opened is
    /// served all the same, with a warning.
    pub fn serve(self, quiet: bool) -> Served {
        let log = self.new_log(quiet);
        log.event(Level::Info, "open", &self.found.to_string(), self.found.figures());
        if let Some(said) = &self.recreated {
            log.event(Level::Warning, "cache-recreated", said, Value::Null);
        }
        if let Some(changed) = self.pair.changed() {
            let said = written_without(&self.backing, changed);
            let figures = json!({
                "pages": changed.dropped, "dirty_pages": changed.dropped_dirty, "dirty_pages_kept": changed.kept_dirty,
            });
            log.event(Level::Warning, "backing-written", &said, figures);
        }
        if self.found.learning == Learning::Damaged {
            let message = "what the policy had learned is damaged; it learns anew";
            log.event(Level::Warning, "learned-damaged", message, Value::Null);
        }
        if let Some(said) = self.chosen.said() {
            let figures = json!({ "policy": self.chosen.policy, "mode": self.chosen.mode.keyword() });
            log.event(Level::Info, "chosen", &said, figures);
        }
        self.mention_layout(&log);
        if let Err(error) = self.pair.note_used(self.chosen.mode) {
            let message = format!("{error}; the next start will not know the mode of this one");
            log.event(Level::Warning, "mode-not-noted", &message, json!({ "error": error.to_string() }));
        }
        self.begin(log)
    }

    /// As [`serve`](Self::serve), in place of the server before: the open is no event of its own.
    pub fn serve_on(self, quiet: bool) -> Served {
        let log = self.new_log(quiet);
        self.begin(log)
    }

    fn new_log(&self, quiet: bool) -> Log {
        Log::new(self.path.display().to_string(), self.log, quiet)
    }

    fn begin(self, log: Log) -> Served {
        if let Some(doubt) = &self.inherited.doubt {
            let message = format!(
                "answered writes of the former server may be lost: {}; the first sync of each file or connection fails",
                doubt.why()
            );
            log.event(Level::Warning, "doubt", &message, json!({ "why": doubt.why() }));
        }
        let file = Arc::new(CacheFile::new(&self.path));
        if let Some(mode) = file.close_to_others() {
            let message = format!("the cache file was open to others (mode {mode:04o}); it is 0600 now");
            log.event(Level::Info, "permissions", &message, json!({ "before": format!("{mode:04o}") }));
        }
        let running = Arc::new(Running::new(&self, file.clone(), log.clone()));
        let control = Control::start(&self.path, Arc::clone(&running) as Arc<dyn Controlled>);
        let unheard = |error| {
            let message = format!("{error:#}; stats, top, set, record, metrics and upgrade will not find it");
            log.event(Level::Warning, "no-control", &message, Value::Null);
        };
        let control = control.map_err(unheard).ok();
        let (cache, below, pair) = (self.cache.clone(), (self.below.clone(), self.backing.clone()), self.pair.clone());
        let health_monitor = HealthMonitor::start(cache, below, file.clone(), pair, self.sync_after, log.clone());
        Served { held: self, running, file, control, log, health_monitor }
    }

    /// Notes a layout that copies pages of the policy. The pair works, but costs more than its user may know.
    fn mention_layout(&self, log: &Log) {
        let (name, layout) = (self.policy.name, self.geometry.layout);
        let why = match layout {
            Layout::Log if entresol_cache::layout_suiting(self.policy) != layout => {
                "evicts in an order of its own, so that the log layout copies live pages to free segments"
            }
            Layout::Segments if !self.policy.ranked => {
                "does not rank its pages, so that all live pages of a segment are copied when it is emptied"
            }
            _ => return,
        };
        let (drain, format) = (drain_command(&self.path, &self.backing), format_command(&self.path, &self.backing));
        let message = format!(
            "{name} {why}; a cache that is made anew in slots copies none: at its end `{drain}`, then `{format} --layout \
             slots --force`"
        );
        log.event(Level::Info, "layout", &message, json!({ "layout": layout.name(), "policy": name }));
    }
}

impl Served {
    /// Path of the cache.
    pub(crate) fn path(&self) -> &Path {
        &self.held.path
    }

    /// Policy and mode at the open.
    pub fn chosen(&self) -> &Chosen {
        &self.held.chosen
    }

    /// The files of a directory; none over a file or block device.
    pub fn cached_files(&self) -> Option<&Arc<CachedFiles>> {
        match &self.held.below {
            Below::Files(files) => Some(files),
            Below::Store => None,
        }
    }

    /// Log of the cache's events.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Files in conflict, in words.
    pub fn conflicts(&self) -> Result<String> {
        Ok(conflicts::said(&self.held.backing, &self.held.conflicts()?))
    }

    /// Closes the control socket: for a front-end that has ended, before its last writes are made durable.
    pub fn leave_control(&mut self) {
        self.control.take();
    }

    /// Makes everything durable at the end of a front-end through which requests may still come. The next start finds
    /// the cache as after a crash.
    pub fn leave(mut self) -> Result<()> {
        self.leave_control();
        let flushed = self.held.cache.flush();
        self.health_monitor.stop();
        flushed.with_context(|| format!("{}: the last flush", self.path().display()))
    }

    /// Closes the cache at the end of its front-end, and reports the end. `served` is the front-end's own report.
    pub fn end(mut self, served: &str) -> Result<()> {
        self.leave_control();
        let refused = self.refused();
        // If the next start will not find the file's durable data, everything must be written back before this process
        // ends.
        let change = self.file.look().filter(|change| change.is_loss());
        let (before, found) = (self.held.mark()?, self.held.cache.stats()?.dirty_pages);
        let drained = change.map_or(Ok(()), |_| {
            let cache = &self.held.cache;
            past_lost_pages(|| cache.drain(), || Ok(cache.lost_pages()?.len()))
        });
        let tally = self.held.tally(found, Dropped::default(), before)?;
        let writable = self.held.check_writable();
        if let Below::Files(files) = &self.held.below {
            files.look();
        }
        let conflicts = self.held.conflicts()?;
        let left = if drained.is_err() { self.dirty() } else { String::new() };
        let closed = self.held.close();
        self.health_monitor.stop();
        if let Err(error) = closed.as_ref().map_or(Ok(0), |_| self.held.pair.keep_learned()) {
            let message = format!("what the policy has learned is not kept: {error}; the next start learns anew");
            self.log.event(Level::Info, "learned-lost", &message, json!({ "error": error.to_string() }));
        }
        let stats = match (closed, refused.as_ref()) {
            (Err(error), Some(refused)) => return Err(error.context(refused.clone())),
            (closed, _) => closed?,
        };
        let counts = stats.counts;
        let (hits, all) = (counts.read_hits + counts.write_hits, counts.reads + counts.writes);
        let dirty = stats.dirty_pages;
        let served = if served.is_empty() { String::new() } else { format!("{served}; ") };
        let message =
            format!("{served}the cache is closed; {all} page requests, {hits} hits, {dirty} pages dirty in the cache");
        let figures = serde_json::json!({ "requests": all, "hits": hits, "dirty_pages": dirty });
        self.log.event(Level::Info, "close", &message, figures);
        if let Some(why) = stats.failed {
            bail!("{}: its device failed ({why}); requests went to the backing store since", self.path().display());
        }
        if let Some(change) = change {
            let (name, what) = (self.path().display(), change.said());
            let unwritten = || format!("{name}: {what}, and {dirty} dirty pages could not be written below: {left}");
            drained.with_context(unwritten)?;
            // A truncated file is found at the next start, which reports what it lacks.
            if change.is_nameless() || dirty > 0 {
                bail!("{name}: {what}; it was drained: {tally}, {dirty} pages are left in it");
            }
        }
        if let Some(refused) = refused {
            bail!("{refused}; they are dirty in the cache, and {}", advice(self.path(), &self.held.backing));
        }
        let lost = self.held.lost()?;
        if let Some(first) = lost.first() {
            let name = self.path().display();
            bail!("{name}: lost until they are written again: {} pages, first: {first}", lost.len());
        }
        self.held.check_conflicts(&conflicts)?;
        writable
    }
}

impl Served {
    /// Describes the pages that the backing store refuses after one more try; none if there are none.
    fn refused(&self) -> Option<String> {
        if let Below::Files(files) = &self.held.below {
            // Clears the recorded failures: a write that failed before may succeed now.
            drop(files.failures());
        }
        let refused = self.held.cache.retry_refused().ok().filter(|refused| !refused.pages.is_empty())?;
        let message = unwritten::refused(&self.held, &refused);
        let figures = json!({ "pages": refused.pages.len() });
        self.log.event(Level::Warning, "refused-pages", &message, figures);
        let name = self.path().display();
        Some(format!("{name}: {message}"))
    }

    /// Dirty pages by file.
    fn dirty(&self) -> String {
        let held = self.held.cache.held_pages().unwrap_or_default();
        let dirty: Vec<u64> = held.into_iter().filter_map(|(page, dirty)| dirty.then_some(page)).collect();
        by_file(&self.held, &dirty)
    }
}
