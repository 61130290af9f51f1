//! The backing record of a file or block device, and how a cache in use is kept in step with its record, whatever it stands before.

use super::chosen::Kept;
use super::identity::Identity;
use super::log::{Level, Log};
use super::metadata;
use crate::args::word;
use anyhow::{Context, Result, anyhow, bail};
use entresol_engine::cache::{BlockCache, CacheError, Opening};
use entresol_engine::store::{Generations, Geometry};
use entresol_files::CachedFiles;
use entresol_files::record::{self, CacheKind, Choices, FileRecord, Pairing, Record, RecordPlace, StateFile};
use serde_json::json;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A cache in use and the record of what is below it.
pub trait Paired: Send + Sync {
    /// Raises the generation on both sides.
    fn raise(&self) -> io::Result<()>;

    /// Notes durably whether what is below has every byte.
    fn mark(&self, complete: bool) -> io::Result<()>;
}

impl Paired for CachedFiles {
    fn raise(&self) -> io::Result<()> {
        self.raise_generation()
    }

    fn mark(&self, complete: bool) -> io::Result<()> {
        self.mark_complete(complete)
    }
}

/// A cache before a file or block device, and the place of its record.
struct StorePair {
    cache: Arc<BlockCache>,
    pairing: Pairing,
    place: Box<dyn RecordPlace>,
}

impl Paired for StorePair {
    fn raise(&self) -> io::Result<()> {
        self.pairing.raise(&self.cache, &*self.place)
    }

    fn mark(&self, complete: bool) -> io::Result<()> {
        self.pairing.mark(&self.cache, &*self.place, complete)
    }
}

/// Where the record of a backing file or block device lies; `identity` is what that is known as now.
pub fn place(backing: &Path, identity: Identity) -> Result<Box<dyn RecordPlace>> {
    if metadata(backing)?.file_type().is_block_device() {
        return Ok(Box::new(StateFile::of(super::identity::lasting(backing, identity))));
    }
    Ok(Box::new(FileRecord::of(backing, identity).with_context(|| backing.display().to_string())?))
}

/// Reads a record. One that is damaged is not taken for none.
pub fn read(place: &dyn RecordPlace) -> Result<Option<Record>> {
    place.read().map_err(|error| {
        let way_out = "`entresol drain --generation-ok` writes what this cache has below without it, `entresol format --force` makes \
                       a new cache and loses that";
        let way_out = if error.kind() == io::ErrorKind::InvalidData { format!("; {way_out}") } else { String::new() };
        anyhow!("the record of the cache, {}: {error}{way_out}", place.name())
    })
}

/// Refuses a cache that is not the one of its record.
pub fn check(cache: &Path, uuid: [u8; 16], generations: Generations, place: &dyn RecordPlace) -> Result<()> {
    let record = read(place)?;
    let compared = record::compare(uuid, generations, record.as_ref(), place.volume()?);
    compared.with_context(|| cache.display().to_string())
}

/// Begins to use a cache that was found in order: compared with its record, and a generation further on both sides.
pub fn start(
    path: &Path,
    mut opening: Opening,
    place: Box<dyn RecordPlace>,
    overruled: bool,
) -> Result<(Arc<BlockCache>, Arc<dyn Paired>)> {
    let record = match read(&*place) {
        Err(_) if overruled => None,
        read => read?,
    };
    let name = || path.display().to_string();
    let pairing = Pairing::find(&opening, record, place.volume()?, overruled).with_context(name)?;
    let write = |record: &Record| place.write(record);
    let unwritten = || format!("the record of the cache, {}", place.name());
    let mode = opening.mode();
    let next = pairing.propose(&mut opening, pairing.stays_complete(mode), write).with_context(unwritten)?;
    let begin = || -> Result<(), Began> { next.as_ref().map_or(Ok(()), write).map_err(Began::Record) };
    let cache = match opening.start(begin) {
        Ok((cache, ())) => Arc::new(cache),
        Err(Began::Record(error)) => return Err(error).with_context(unwritten),
        Err(Began::Cache(error)) => return Err(error).with_context(name),
    };
    pairing.begun(&cache).with_context(name)?;
    pairing.began(&cache, &*place, mode).with_context(unwritten)?;
    Ok((cache.clone(), Arc::new(StorePair { cache, pairing, place })))
}

/// What kept a cache from being used.
enum Began {
    Record(io::Error),
    Cache(CacheError),
}

impl From<CacheError> for Began {
    fn from(error: CacheError) -> Self {
        Began::Cache(error)
    }
}

/// Closes the cache before a file or block device, a generation further on both sides; its record says then whether the cache
/// may be lost.
pub fn close(cache: &BlockCache, pair: Option<&Arc<dyn Paired>>) -> io::Result<()> {
    let Some(pair) = pair else { return cache.close() };
    // A close after a record that could not be written leaves a pair all the same.
    let raised = pair.raise();
    cache.close()?;
    raised?;
    let left = cache.stats()?.dirty_pages > 0 || !cache.lost_pages()?.is_empty();
    pair.mark(!left)
}

/// Refuses to make a second cache before a file or block device of which the first has what that has not.
pub fn check_free(backing: &Path, place: &dyn RecordPlace) -> Result<()> {
    if let Some(Record { complete: false, choices, .. }) = read(place)? {
        let name = backing.display();
        bail!("{name}: another cache{} has what it has not: drain that, or lose it by --force", of(choices.as_ref()));
    }
    Ok(())
}

/// Refuses to serve a file or block device past the cache that has what it has not.
pub fn check_complete(backing: &Path) -> Result<()> {
    // What has no identity has no record.
    let Ok(identity) = super::identity::identity(backing, None) else { return Ok(()) };
    let record = read(&*place(backing, identity)?).with_context(|| backing.display().to_string())?;
    if let Some(Record { complete: false, choices, .. }) = record {
        let name = backing.display();
        bail!("{name}: is not complete without its cache{}; give --cache, or drain it", of(choices.as_ref()));
    }
    Ok(())
}

fn of(choices: Option<&Choices>) -> String {
    choices.and_then(|choices| choices.path.as_ref()).map_or(String::new(), |path| format!(" ({})", path.display()))
}

/// What `format` chose, for the record.
pub fn choices(cache: &Path, geometry: Geometry, size_bytes: u64, kept: &Kept) -> Result<Choices> {
    let path = cache.canonicalize().with_context(|| cache.display().to_string())?;
    let device = metadata(path.parent().unwrap_or(Path::new("/")))?.dev();
    let kind = if metadata(&path)?.file_type().is_block_device() { CacheKind::BlockDevice } else { CacheKind::File };
    let (policy, mode) = (kept.policy.clone(), kept.mode.map(word));
    Ok(Choices { geometry, size_bytes, path: Some(path), kind, device, policy, mode })
}

/// How long a generation lasts at least that is raised while the cache is in use.
const MINUTE: Duration = Duration::from_secs(60);

/// When the generation of a cache in use is to be raised: when a minute has passed, and something was written below and synced
/// there since it was raised last. What was not synced below is not there for an older copy of the cache to be older than.
pub struct Minutes {
    every: Duration,
    raised: Duration,
    written: u64,
    syncs: u64,
    failed: bool,
}

impl Minutes {
    /// From now on.
    pub fn new() -> Self {
        Minutes { every: minute(), raised: Duration::ZERO, written: 0, syncs: 0, failed: false }
    }

    /// Whether it is time: `now` since the cache was opened, with so many pages written below and so many syncs there. Asked
    /// until then, not again.
    fn is_time(&mut self, now: Duration, written: u64, syncs: u64) -> bool {
        if now.saturating_sub(self.raised) < self.every || written <= self.written || syncs <= self.syncs {
            return false;
        }
        (self.raised, self.written, self.syncs) = (now, written, syncs);
        true
    }

    /// Raises it if it is time.
    pub fn look(&mut self, now: Duration, cache: &BlockCache, pair: &dyn Paired, log: &Log) {
        let Ok(stats) = cache.stats() else { return };
        if !self.is_time(now, stats.keeper.below_pages, stats.keeper.below_syncs) {
            return;
        }
        let failed = pair.raise().err();
        if let Some(error) = failed.as_ref().filter(|_| !self.failed) {
            let message = format!(
                "the generation could not be raised: {error}; a copy of the cache or of the backing store of before is not \
                 told from them until it is"
            );
            log.event(Level::Warning, "generation", &message, json!({ "error": error.to_string() }));
        }
        self.failed = failed.is_some();
    }
}

/// A minute, or what a test takes for one.
fn minute() -> Duration {
    let given = std::env::var("ENTRESOL_MINUTE_MS").ok().filter(|_| cfg!(debug_assertions));
    given.and_then(|ms| ms.parse().ok()).map_or(MINUTE, Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_time_after_a_minute_with_writes_that_were_synced_below() {
        let second = Duration::from_secs;
        let mut minutes = Minutes { every: MINUTE, ..Minutes::new() };
        assert!(!minutes.is_time(second(59), 5, 5), "a minute has not passed");
        assert!(!minutes.is_time(second(600), 0, 0), "nothing was written");
        assert!(!minutes.is_time(second(600), 5, 0), "nothing was synced");
        assert!(!minutes.is_time(second(600), 0, 5), "nothing was written, and synced");
        assert!(minutes.is_time(second(600), 5, 1));
        assert!(!minutes.is_time(second(601), 6, 2), "once a minute");
        assert!(!minutes.is_time(second(661), 5, 1), "nothing since");
        assert!(minutes.is_time(second(661), 6, 2));
    }
}
