//! A cache file and its backing file as one block that a front-end serves.

use super::backing_record::{self, Paired};
use super::chosen::{Chosen, Kept};
use super::hold::{ReadFile, check_apart, hold, hold_cache, in_use_or, patiently};
use super::identity::{self, Identity};
use super::log::LogArg;
use super::lost::{self, IfLost, Opened};
use super::memory;
use super::open_cache::{Below, OpenCache};
use super::survey::{self, Superblock};
use super::tally::Dropped;
use crate::values::{Limit, bytes_or_none, seconds_or_none};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use entresol_cache::{BlockCache, CacheConfig, Mode, Objects};
use entresol_core::Size;
use entresol_disk::{Caching, Disk, FileDisk};
use entresol_files::record::RecordPlace;
use entresol_policy::Info;
use entresol_sim::PolicySpec;
use entresol_sqlite::{CAPACITY_BYTES, GrowingFile};
use entresol_store::{Geometry, Recovered};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default bound on the age of dirty pages; docs/results/dirty-age.md has its cost.
pub const DIRTY_AGE: &str = "1h";

/// Options of a running cache
#[derive(Args)]
pub struct CacheArgs {
    /// With --cache: the policy, NAME or NAME:OPTION=VALUE:... (`entresol policies` lists them) [default: the one given
    /// to `format`, else face-gsc]
    #[arg(long, value_name = "POLICY", requires = "cache")]
    pub policy: Option<String>,
    /// With --cache: treatment of writes [default: the one given to `format`, else write-back]
    #[arg(long, value_enum, requires = "cache")]
    pub mode: Option<ModeArg>,
    /// With --cache: pages that the policy may keep in the cache, as a share of its capacity. A smaller share leaves
    /// more space to dead versions, so that fewer pages are copied to free segments
    #[arg(long, value_name = "SIZE", default_value = "100%", requires = "cache")]
    pub cache_size: Size,
    /// With --cache: share of those pages that may be dirty; above it the coldest dirty pages are written back early
    /// [default: no limit]
    #[arg(long, value_name = "PERCENT", requires = "cache", value_parser = percent)]
    pub dirty_high: Option<f64>,
    /// With --dirty-high: share of dirty pages at which the early write-back ends [default: nine tenths of
    /// --dirty-high]
    #[arg(long, value_name = "PERCENT", requires = "dirty_high", value_parser = percent)]
    pub dirty_low: Option<f64>,
    /// With --cache: time for which a page may differ from the backing store, such as 1h: the most that losing the
    /// cache device can cost. Older pages are written back and synced unasked, and writes wait if that cannot be kept;
    /// none: no such bound
    #[arg(long, value_name = "DURATION", default_value = DIRTY_AGE, requires = "cache", value_parser = seconds_or_none)]
    pub dirty_age: Limit,
    /// With --cache: time after which a write that no program syncs is made durable, as file systems do; none: at the
    /// next sync, or when the cache needs the space
    #[arg(long, value_name = "DURATION", default_value = "30s", requires = "cache", value_parser = seconds_or_none)]
    pub sync_after: Limit,
    /// With --cache: length of a sequential stream after which its pages bypass the cache, unless the policy holds them
    /// (bcache's sequential_cutoff, 4MiB there); 0: the policy decides on all pages
    #[arg(long, value_name = "BYTES", default_value = "0", requires = "cache", value_parser = bytes_or_none)]
    pub sequential_cutoff: u64,
    /// With --cache: memory for the upper tier of a policy that manages two [default: the policy's own share]
    #[arg(long, value_name = "SIZE", requires = "cache")]
    pub dram: Option<Size>,
    /// With --cache: format of events on standard error
    #[arg(long, value_enum, default_value = "text", requires = "cache")]
    pub log: LogArg,
    /// With --cache: go on although another process seems to write to the backing store without the cache. Only if you
    /// know that it does not: writes that bypass a cache are lost
    #[arg(long, requires = "cache")]
    pub writers_ok: bool,
    /// With --cache: what to do if the cache is missing, blank, damaged, or not the one that was used last. The backing
    /// store's record says whether the store is complete without it. [default: recreate if it is, else refuse]
    #[arg(long, value_enum, value_name = "WHAT", requires = "cache")]
    pub if_lost: Option<IfLost>,
}

impl CacheArgs {
    /// The options for emptying a cache, for which any policy will do.
    pub(crate) fn any_policy() -> Self {
        let cache_size = Size::Percent(100.0);
        CacheArgs {
            policy: Some("lru".to_owned()),
            mode: Some(ModeArg::WriteBack),
            cache_size,
            dirty_high: None,
            dirty_low: None,
            dirty_age: Limit(None),
            sync_after: Limit(None),
            sequential_cutoff: 0,
            dram: None,
            log: LogArg::Text,
            writers_ok: false,
            if_lost: Some(IfLost::Refuse),
        }
    }

    /// Applies the options that are not part of the cache's configuration.
    pub(crate) fn adjust(&self, cache: &BlockCache) -> Result<()> {
        if let Some(high) = self.dirty_high {
            let low = self.dirty_low.unwrap_or(high * LOW_BY_HIGH);
            cache.set_dirty_limits(high, low).context("--dirty-high, --dirty-low")?;
        }
        Ok(cache.set_sequential_cutoff(self.sequential_cutoff)?)
    }
}

/// Default lower limit of dirty pages as a fraction of the upper limit. Early write-back begins at the upper limit and
/// ends at the lower.
pub(crate) const LOW_BY_HIGH: f64 = 0.9;

/// Parses a percentage, with or without the sign, to a fraction.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let share = text.strip_suffix('%').unwrap_or(text).parse::<f64>().map_err(|_| "it is no percentage".to_owned())?;
    if (0.0..=100.0).contains(&share) { Ok(share / 100.0) } else { Err("it is not between 0% and 100%".to_owned()) }
}

/// Options for opening block devices
#[derive(Args, Default)]
pub struct DeviceArgs {
    /// With --cache: the UUID that `entresol format` was given for a backing block device
    #[arg(long, value_name = "UUID", requires = "cache", value_parser = identity::uuid)]
    pub identity: Option<Identity>,
    /// With --cache: open both with O_DIRECT, bypassing the kernel's page cache; the page size and both sizes must be
    /// multiples of 4096 bytes
    #[arg(long, requires = "cache")]
    pub direct: bool,
    /// True if the generations of cache and backing store are not compared.
    #[arg(skip)]
    pub generation_ok: bool,
}

impl DeviceArgs {
    fn caching(&self) -> Caching {
        if self.direct { Caching::Direct } else { Caching::Buffered }
    }
}

/// Treatment of writes
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Writes stay in the cache until the policy writes them back; a flush makes them durable in the cache
    #[value(alias = "writeback")]
    WriteBack,
    /// Writes go to the cache and the backing store; a flush makes them durable in the backing store
    #[value(alias = "writethrough")]
    WriteThrough,
    /// Writes go to the backing store, and to the cache if it already holds the page
    #[value(alias = "writearound")]
    WriteAround,
    /// Writes are refused
    ReadOnly,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::WriteBack => Mode::WriteBack,
            ModeArg::WriteThrough => Mode::WriteThrough,
            ModeArg::WriteAround => Mode::WriteAround,
            ModeArg::ReadOnly => Mode::ReadOnly,
        }
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
}

impl Found {
    /// `started` is when the open began, `executor` the name of the I/O executor.
    pub(super) fn new(recovered: &Recovered, started: Instant, executor: String) -> Self {
        Found {
            pages: recovered.pages,
            dirty: recovered.dirty_pages,
            dropped: Dropped::default(),
            clean_shutdown: recovered.clean_shutdown,
            unsynced_batches: recovered.unsynced_batches,
            took: started.elapsed(),
            read_bytes: recovered.read_bytes,
            executor,
        }
    }
}

impl Found {
    /// Sets the pages that the open dropped.
    pub(super) fn with_dropped(self, dropped: Dropped) -> Self {
        Found { dropped, ..self }
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
        write!(f, "{ms:.1} ms, {read_bytes} bytes read; I/O by {executor}")
    }
}

/// Opens a cache and its backing store, each for this process alone. A lost cache is recreated or bypassed if that was
/// asked for or costs nothing.
pub fn open(path: &Path, backing: &Path, arguments: &CacheArgs, devices: &DeviceArgs) -> Result<Opened<OpenCache>> {
    check_apart(path, backing)?;
    lost::twice(|damage| open_once(path, backing, arguments, devices, damage))
}

/// One attempt to open them; `damage` is what an earlier attempt found.
fn open_once(
    path: &Path,
    backing: &Path,
    arguments: &CacheArgs,
    devices: &DeviceArgs,
    damage: Option<&str>,
) -> Result<Opened<OpenCache>> {
    let started = Instant::now();
    let below = hold(backing, devices.caching()).map_err(|error| lost::without_backing(path, error))?;
    let identity = identity::identity(backing, devices.identity);
    let identity = identity.with_context(|| format!("the backing store of {}", path.display()))?;
    let place = backing_record::place(backing, identity)?;
    let start = lost::Start {
        cache: path,
        backing,
        identity,
        given: devices.identity,
        asked: arguments.if_lost,
        overruled: devices.generation_ok,
    };
    let mut without = lost::Store { place: &*place, disk: &below, identity };
    let chosen = Chosen::new(arguments, &start.kept(&without)?);
    let recreated = match start.settle(&mut without, damage)?.or_bypass(chosen.mode) {
        Ok(recreated) => recreated,
        Err(bypass) => return Ok(Opened::Bypassed(bypass)),
    };
    let store = hold_cache(path, devices.caching())?;
    let superblock = survey::superblock(&store).with_context(|| path.display().to_string())?;
    let known_as = identity::check(path, &superblock, backing, devices.identity)?;
    let page_bytes = superblock.geometry.page_bytes;
    if devices.direct {
        check_direct(backing, Disk::size_bytes(&below), page_bytes)?;
    }
    if is_database(&superblock) {
        bail!("{}: is a database of SQLite's to this cache: open it by the VFS", backing.display());
    }
    check_size(backing, Disk::size_bytes(&below), &superblock)?;
    let place = (place, devices.generation_ok);
    let held = open_over(path, backing, store, below, (&superblock, known_as), arguments, chosen, place, started)?;
    Ok(Opened::Cached(OpenCache { recreated, ..held }))
}

/// Refuses a backing store that has become smaller. A store that has grown is served whole.
pub(super) fn check_size(backing: &Path, bytes: u64, superblock: &Superblock) -> Result<()> {
    let page_bytes = u64::from(superblock.geometry.page_bytes);
    let (had, about) = match superblock.backing_bytes {
        // A superblock of version 2 has the size in pages alone.
        0 => ((superblock.backing_pages.saturating_sub(1)) * page_bytes + 1, "at least "),
        bytes => (bytes, ""),
    };
    if bytes >= had && bytes.div_ceil(page_bytes) >= superblock.backing_pages {
        return Ok(());
    }
    bail!(
        "{}: has {bytes} bytes, fewer than the {about}{had} that it had when this cache was last opened: give it that size again, and \
         what the cache holds of its end is not lost",
        backing.display()
    );
}

/// Opens a cache to empty it. Any policy will do; the backing store may be a database of the SQLite VFS.
pub(crate) fn open_to_drain(
    path: &Path,
    backing: &Path,
    identity: Option<Identity>,
    generation_ok: bool,
) -> Result<OpenCache> {
    let arguments = CacheArgs::any_policy();
    let database = ReadFile::open(path).ok().and_then(|cache| survey::superblock(&cache).ok()).filter(is_database);
    let Some(superblock) = database else {
        return open(path, backing, &arguments, &DeviceArgs { identity, direct: false, generation_ok })?.cached();
    };
    check_apart(path, backing)?;
    let started = Instant::now();
    let store = hold_cache(path, Caching::Buffered)?;
    let below = patiently(|| GrowingFile::open(backing, true, CAPACITY_BYTES));
    let below = below.map_err(|error| in_use_or(backing, error))?;
    let known_as = identity::check(path, &superblock, backing, identity)?;
    let place = (backing_record::place(backing, known_as)?, generation_ok);
    let chosen = Chosen::new(&arguments, &Kept::default());
    open_over(path, backing, store, below, (&superblock, known_as), &arguments, chosen, place, started)
}

/// True for the cache of a database of the SQLite VFS, whose backing size is a constant whatever the database's own
/// size.
pub(super) fn is_database(superblock: &Superblock) -> bool {
    superblock.backing_pages == CAPACITY_BYTES / u64::from(superblock.geometry.page_bytes)
}

#[allow(clippy::too_many_arguments)]
fn open_over(
    path: &Path,
    backing: &Path,
    store: FileDisk,
    below: impl Disk + 'static,
    (superblock, known_as): (&Superblock, Identity),
    arguments: &CacheArgs,
    chosen: Chosen,
    (place, overruled): (Box<dyn RecordPlace>, bool),
    started: Instant,
) -> Result<OpenCache> {
    let (executor, geometry) = (store.executor(), superblock.geometry);
    let config = config(arguments, &chosen, geometry)?;
    let name = || path.display().to_string();
    let opening = BlockCache::find(store, below, superblock.backing, &config, Objects::new(1));
    let mut opening = opening.with_context(name)?;
    opening.rename_backing(known_as);
    let pair = backing_record::start(path, opening, place, overruled)?;
    let (cache, pair) = (Arc::clone(pair.cache()), pair as Arc<dyn Paired>);
    arguments.adjust(&cache)?;
    let found = Found::new(&cache.recovered(), started, executor);
    let (path, backing) = (path.to_owned(), backing.to_owned());
    let (below, policy) = (Below::Store, config.policy);
    let (recreated, log, sync_after) = (None, arguments.log, arguments.sync_after.0);
    Ok(OpenCache { path, backing, cache, below, pair, found, geometry, policy, chosen, recreated, log, sync_after })
}

/// Returns the configuration for running a store of this geometry.
pub(super) fn config(arguments: &CacheArgs, chosen: &Chosen, geometry: Geometry) -> Result<CacheConfig> {
    let spec = one_policy(&chosen.policy)?;
    let space = geometry.capacity_pages();
    let held = arguments.cache_size.pages(geometry.page_bytes, space);
    if held == 0 || held > space {
        bail!("--cache-size: {held} pages; the store has room for {space}");
    }
    let tiers = tiers(spec.info, held, arguments.dram, geometry.page_bytes)?;
    memory::check(&geometry, above_bytes(&tiers, geometry.page_bytes))?;
    let (mode, dirty_age) = (chosen.mode.into(), arguments.dirty_age.0);
    Ok(CacheConfig { options: spec.options, mode, dirty_age, ..CacheConfig::new(spec.info, &tiers) })
}

/// Refuses sizes that are no multiple of a block: O_DIRECT moves whole blocks, and half a block cannot be written
/// without its neighbour.
fn check_direct(backing: &Path, backing_bytes: u64, page_bytes: u32) -> Result<()> {
    const BLOCK: u64 = 4096;
    if !u64::from(page_bytes).is_multiple_of(BLOCK) {
        bail!("--direct: pages of {page_bytes} bytes are no multiple of {BLOCK}");
    }
    if !backing_bytes.is_multiple_of(BLOCK) {
        bail!("--direct: {} has {backing_bytes} bytes, no multiple of {BLOCK}", backing.display());
    }
    Ok(())
}

/// Pages of each tier: the lower tier has the whole capacity given.
fn tiers(info: &Info, space: u64, dram: Option<Size>, page_bytes: u32) -> Result<Vec<usize>> {
    if info.tiers.len() == 1 {
        if dram.is_some() {
            bail!("--dram: policy '{}' manages one tier, the cache", info.name);
        }
        return Ok(vec![space as usize]);
    }
    Ok(vec![top_tier(info, space, dram, page_bytes), space as usize])
}

/// Pages of the memory tier above a cache of `space` pages: the size asked for, else the policy's own share.
pub fn top_tier(info: &Info, space: u64, dram: Option<Size>, page_bytes: u32) -> usize {
    match dram {
        Some(size) => size.pages(page_bytes, space) as usize,
        None => ((space as f64 * info.top_share) as usize).max(info.min_pages[0]),
    }
}

/// Bytes of the memory tier above a cache with these tiers.
pub(crate) fn above_bytes(tiers: &[usize], page_bytes: u32) -> u64 {
    let above = if let [above, _] = tiers { *above as u64 } else { 0 };
    above.saturating_mul(page_bytes.into())
}

/// Parses exactly one policy with its options.
pub fn one_policy(text: &str) -> Result<PolicySpec> {
    let mut specs = entresol_sim::parse_policies(text)?;
    match specs.len() {
        1 => Ok(specs.remove(0)),
        number => bail!("{text}: names {number} policies; a cache has one"),
    }
}
