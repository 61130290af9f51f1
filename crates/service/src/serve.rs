//! A cache file and its backing file as one block that a front-end serves.

use super::backing_record;
use super::backing_store::Below;
use super::cache_options::CacheOptions;
use super::chosen::Kept;
use super::doubt;
use super::hold::{
    DIRECT_BYTES, HeldBytes, ReadFile, check_apart, check_direct, hold, hold_cache, in_use_or, patiently,
};
use super::holder::Holder;
use super::identity::{self, Identity};
use super::lost::{self, Opened};
use super::open_cache::{Dropped, OpenCache};
use super::settings::Settings;
use super::setup::{Parts, Setup};
use anyhow::{Context, Result, bail};
use entresol_cache::{BlockCache, CacheConfig, Objects};
use entresol_disk::{Caching, Disk, FileDisk};
use entresol_files::record::{LastWrite, RecordPlace};
use entresol_fsck::Superblock;
use entresol_sqlite::{CAPACITY_BYTES, GrowingFile};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Options of a cache over a file or block device.
#[derive(Debug, Default)]
pub struct DeviceOptions {
    /// UUID that was given to `format` for a backing block device.
    pub identity: Option<Identity>,
    /// True if both are opened with O_DIRECT, bypassing the kernel's page cache. The page size and both sizes must be
    /// multiples of 4096 bytes.
    pub direct: bool,
    /// True if the generations of cache and backing store are not compared.
    pub generation_ok: bool,
}

/// Opens a cache and its backing store, each for this process alone. A lost cache is recreated or bypassed if that was
/// asked for or costs nothing. With a holder, what is answered and only memory has outlives this process.
pub(crate) fn open(
    path: &Path,
    backing: &Path,
    options: &CacheOptions,
    devices: &DeviceOptions,
    holder: Option<&Holder>,
) -> Result<Opened<OpenCache>> {
    check_apart(path, backing)?;
    doubt::past_unusable(holder, || lost::twice(|damage| open_once(path, backing, options, devices, holder, damage)))
}

/// One attempt to open them; `damage` is what an earlier attempt found.
fn open_once(
    path: &Path,
    backing: &Path,
    options: &CacheOptions,
    devices: &DeviceOptions,
    holder: Option<&Holder>,
    damage: Option<&str>,
) -> Result<Opened<OpenCache>> {
    let started = Instant::now();
    let caching = Caching::direct_if(devices.direct);
    let below = hold(backing, caching).map_err(|error| lost::without_backing(path, error))?;
    let identity = identity::identity(backing, devices.identity);
    let identity = identity.with_context(|| format!("the backing store of {}", path.display()))?;
    let place = backing_record::place(backing, identity)?;
    let start = lost::Start {
        cache: path,
        backing,
        identity,
        given: devices.identity,
        asked: options.if_lost,
        overruled: devices.generation_ok,
    };
    let mut without = lost::Store { place: &*place, disk: &below, identity };
    let settings = Settings::left(holder)?;
    let chosen = options.chosen(&start.kept(&without)?, settings.as_ref())?;
    let recreated = match start.settle(&mut without, damage)?.or_bypass(chosen.mode) {
        Ok(recreated) => recreated,
        Err(bypass) => {
            doubt::bypassed(holder)?;
            return Ok(Opened::Bypassed(bypass));
        }
    };
    let store = hold_cache(path, backing, caching)?;
    let superblock = entresol_fsck::superblock(&HeldBytes(&store)).with_context(|| path.display().to_string())?;
    let known_as = identity::check(path, &superblock, backing, devices.identity)?;
    let page_bytes = superblock.geometry.page_bytes;
    if devices.direct {
        check_direct(page_bytes)?;
        check_whole(backing, Disk::size_bytes(&below))?;
    }
    if is_database(&superblock) {
        bail!("{}: is a database of SQLite's to this cache: open it by the VFS", backing.display());
    }
    check_size(backing, Disk::size_bytes(&below), &superblock)?;
    let setup = Setup { path, backing, options, holder, settings, chosen, recreated, started };
    open_over(setup, store, below, (&superblock, known_as), (place, devices.generation_ok)).map(Opened::Cached)
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
        "{}: has {bytes} bytes, fewer than the {about}{had} that it had when this cache was last opened: give it \
         that size again to keep the cache's dirty pages of its end",
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
    let options = CacheOptions::any_policy();
    let database =
        ReadFile::open(path).ok().and_then(|cache| entresol_fsck::superblock(&cache).ok()).filter(is_database);
    let Some(superblock) = database else {
        return open(path, backing, &options, &DeviceOptions { identity, direct: false, generation_ok }, None)?
            .cached();
    };
    check_apart(path, backing)?;
    let started = Instant::now();
    let store = hold_cache(path, backing, Caching::Buffered)?;
    let below = patiently(backing, || GrowingFile::open(backing, true, CAPACITY_BYTES));
    let below = below.map_err(|error| in_use_or(backing, error))?;
    let known_as = identity::check(path, &superblock, backing, identity)?;
    let place = (backing_record::place(backing, known_as)?, generation_ok);
    let chosen = options.chosen(&Kept::default(), None)?;
    let (options, holder, settings, recreated) = (&options, None, None, None);
    let setup = Setup { path, backing, options, holder, settings, chosen, recreated, started };
    open_over(setup, store, below, (&superblock, known_as), place)
}

/// True for the cache of a database of the SQLite VFS, whose backing size is a constant whatever the database's own
/// size.
pub(super) fn is_database(superblock: &Superblock) -> bool {
    superblock.backing_pages == CAPACITY_BYTES / u64::from(superblock.geometry.page_bytes)
}

fn open_over(
    setup: Setup,
    store: FileDisk,
    below: impl Disk + 'static,
    (superblock, known_as): (&Superblock, Identity),
    (place, overruled): (Arc<dyn RecordPlace>, bool),
) -> Result<OpenCache> {
    let (path, backing, holder) = (setup.path, setup.backing, setup.holder);
    let open = |store, config: &CacheConfig| {
        if let Some((holder, arena)) = holder.zip(config.arena.as_ref()) {
            doubt::settle_syncs(holder, backing, arena)?;
        }
        let last_write = LastWrite::of(place);
        let opening = BlockCache::find(store, last_write.over(below), superblock.backing, config, Objects::new(1));
        let mut opening = opening.with_context(|| path.display().to_string())?;
        opening.rename_backing(known_as);
        let pair = backing_record::start(path, opening, last_write, overruled)?;
        let (cache, below) = (Arc::clone(pair.cache()), Below::Store);
        let dropped = pair.changed().map(Dropped::from).unwrap_or_default();
        Ok((Parts { cache, below, pair, dropped }, ()))
    };
    Ok(setup.open(store, superblock, open)?.0)
}

/// Refuses a backing store that ends within a block.
fn check_whole(backing: &Path, backing_bytes: u64) -> Result<()> {
    if !backing_bytes.is_multiple_of(DIRECT_BYTES) {
        bail!("--direct: {} has {backing_bytes} bytes, no multiple of {DIRECT_BYTES}", backing.display());
    }
    Ok(())
}
