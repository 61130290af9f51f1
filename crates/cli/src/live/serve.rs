//! A cache file and its backing file as one block that a door serves.

use super::survey::{self, Bytes};
use super::{check_apart, hold, identity};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use entresol_core::Size;
use entresol_engine::cache::{BlockCache, CacheConfig, Mode};
use entresol_engine::disk::{Disk, FileDisk};
use entresol_policy::Info;
use entresol_sim::PolicySpec;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How a cache is run
#[derive(Args)]
pub struct CacheArgs {
    /// With --cache: the policy, NAME or NAME:OPTION=VALUE:... (`entresol policies` lists them)
    #[arg(long, value_name = "POLICY", default_value = "face-gsc", requires = "cache")]
    pub policy: String,
    /// With --cache: what becomes of writes
    #[arg(long, value_enum, default_value = "write-back", requires = "cache")]
    pub mode: ModeArg,
    /// With --cache: pages that the policy may keep there, of the room that there is
    #[arg(long, value_name = "SIZE", default_value = "100%", requires = "cache")]
    pub cache_size: Size,
    /// With --cache: memory for the upper tier of a policy that manages two [default: the policy's own share]
    #[arg(long, value_name = "SIZE", requires = "cache")]
    pub dram: Option<Size>,
}

/// What becomes of writes
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// They stay in the cache until the policy writes them back; a flush makes them durable in the cache
    #[value(alias = "writeback")]
    WriteBack,
    /// They go to the cache and below; a flush makes them durable below
    #[value(alias = "writethrough")]
    WriteThrough,
    /// They go below, and to the cache where that holds the page already
    #[value(alias = "writearound")]
    WriteAround,
    /// They are refused
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

/// What an open found, and what that took.
pub struct Found {
    pub pages: u64,
    pub dirty: u64,
    clean_shutdown: bool,
    unsynced_batches: u64,
    took: Duration,
    read_bytes: u64,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Found { pages, dirty, unsynced_batches, read_bytes, .. } = self;
        let how = if self.clean_shutdown { "closed in good order" } else { "recovered after a crash" };
        let ms = self.took.as_secs_f64() * 1e3;
        write!(f, "{how}: {pages} pages, {dirty} of them dirty, {unsynced_batches} batches after the last sync; ")?;
        write!(f, "{ms:.1} ms, {read_bytes} bytes read")
    }
}

/// An open cache.
pub struct Opened {
    pub cache: BlockCache,
    pub found: Found,
    pub page_bytes: u32,
}

/// A file that counts the bytes read of it.
struct Counted {
    file: FileDisk,
    read_bytes: Arc<AtomicU64>,
}

impl Bytes for Counted {
    fn size_bytes(&self) -> u64 {
        Disk::size_bytes(&self.file)
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        Disk::read_at(self, at, bytes)
    }
}

impl Disk for Counted {
    fn size_bytes(&self) -> u64 {
        Disk::size_bytes(&self.file)
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_bytes.fetch_add(bytes.len() as u64, Relaxed);
        Disk::read_at(&self.file, at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.file.discard(at, bytes)
    }
}

/// Opens a cache and its backing store, each for this process alone.
pub fn open(cache: &Path, backing: &Path, arguments: &CacheArgs) -> Result<Opened> {
    check_apart(cache, backing)?;
    let started = Instant::now();
    let read_bytes = Arc::new(AtomicU64::new(0));
    let store = Counted { file: hold(cache)?, read_bytes: Arc::clone(&read_bytes) };
    let below = hold(backing)?;
    let identity = identity(backing)?;
    let name = || cache.display().to_string();
    let superblock = survey::superblock(&store).with_context(name)?;
    let page_bytes = superblock.geometry.page_bytes;
    if superblock.backing != identity {
        bail!("{}: this is the cache of another backing store than {}", cache.display(), backing.display());
    }
    let backing_pages = Disk::size_bytes(&below).div_ceil(page_bytes.into());
    if superblock.backing_pages != backing_pages {
        let made_for = superblock.backing_pages;
        bail!("{}: has {backing_pages} pages, the cache was made for {made_for}", backing.display());
    }
    let spec = one_policy(&arguments.policy)?;
    let room = superblock.geometry.capacity_pages();
    let kept = arguments.cache_size.pages(page_bytes, room);
    let tiers = tiers(spec.info, kept, arguments.dram, page_bytes)?;
    let mode = arguments.mode.into();
    let config = CacheConfig { options: spec.options, mode, ..CacheConfig::new(spec.info, &tiers) };
    let held = survey::survey(&store, false).with_context(name)?;
    let (pages, dirty) = (held.pages.len() as u64, held.count(|version| version.dirty));
    drop(held);
    let cache = BlockCache::open(store, below, identity, &config).with_context(name)?;
    let recovered = cache.recovered();
    let found = Found {
        pages,
        dirty,
        clean_shutdown: recovered.clean_shutdown,
        unsynced_batches: recovered.unsynced_batches,
        took: started.elapsed(),
        read_bytes: read_bytes.load(Relaxed),
    };
    Ok(Opened { cache, found, page_bytes })
}

/// Pages of each tier, of which the lower one has `room`.
fn tiers(info: &Info, room: u64, dram: Option<Size>, page_bytes: u32) -> Result<Vec<usize>> {
    if info.tiers.len() == 1 {
        if dram.is_some() {
            bail!("--dram: policy '{}' manages one tier, the cache", info.name);
        }
        return Ok(vec![room as usize]);
    }
    Ok(vec![top_tier(info, room, dram, page_bytes), room as usize])
}

/// Pages of the memory above a cache of so many: what was asked for, else the policy's own share.
pub fn top_tier(info: &Info, room: u64, dram: Option<Size>, page_bytes: u32) -> usize {
    match dram {
        Some(size) => size.pages(page_bytes, room) as usize,
        None => ((room as f64 * info.top_share) as usize).max(info.min_pages[0]),
    }
}

/// The policy that a text names, with its options.
pub fn one_policy(text: &str) -> Result<PolicySpec> {
    let mut specs = entresol_sim::parse_policies(text)?;
    match specs.len() {
        1 => Ok(specs.remove(0)),
        number => bail!("{text}: names {number} policies; a cache has one"),
    }
}
