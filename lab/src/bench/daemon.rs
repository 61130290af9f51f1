//! The process that mounts a database's directory for a benchmark: with or without a cache, on emulated devices or
//! not.
//!
//! A process of its own can be killed. The process reads one command a line on its input, answers each with a line of
//! JSON, and ends with its input.

use super::recorder::{AskedFigures, Recorder};
use super::testbed::time;
use super::witness::Witness;
use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_cache::{CacheConfig, Mode, ObjectCounts};
use entresol_cli::shared as output;
use entresol_cli::shared::Waf;
use entresol_cli::shared::{Limit, OnOff, layout, seconds_or_none};
use entresol_cli::shared::{keyword, one_policy};
use entresol_core::Size;
use entresol_disk::{Caching, Disk, FileDisk};
use entresol_files::paced::{Paced, PacedDisk, PacedFiles};
use entresol_files::{Advised, Backing, CachedFiles, DirectFiles, FileCounts, FileId, FileLayer, Pattern, not_cached};
use entresol_fuse::{Error, Mount, Options};
use entresol_hints::{Served, Use};
use entresol_policy::Wear;
use entresol_store::{Geometry, Layout, geometry};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, Read};
use std::ops::{Add, Sub};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Arguments that the benchmark gives the process that mounts.
#[derive(Args)]
pub struct DaemonArgs {
    /// The directory
    pub backing: PathBuf,
    /// Mount point of the directory
    pub mountpoint: PathBuf,
    /// The cache file
    #[arg(long)]
    pub cache: Option<PathBuf>,
    /// Make the cache, for so many pages
    #[arg(long)]
    pub make: Option<u64>,
    #[arg(long, default_value_t = 4096)]
    pub page_size: u32,
    #[arg(long, default_value_t = 0)]
    pub pages: u64,
    #[arg(long, default_value = "lru")]
    pub policy: String,
    #[arg(long, value_parser = keyword::<Mode>(), default_value = "write-back")]
    pub mode: Mode,
    #[arg(long, value_parser = layout, default_value = "log")]
    pub layout: Layout,
    #[arg(long, default_value = "unbounded")]
    pub wear: Wear,
    #[arg(long, value_enum, default_value = "off")]
    pub page_cache: OnOff,
    #[arg(long, default_value_t = 0)]
    pub sequential_cutoff: u64,
    #[arg(long, value_parser = seconds_or_none, default_value = "none")]
    pub dirty_age: Limit,
    #[arg(long, value_enum, default_value = "on")]
    pub passthrough: OnOff,
    #[arg(long)]
    pub dram: Option<Size>,
    #[arg(long)]
    pub backing_profile: Option<String>,
    #[arg(long)]
    pub cache_profile: Option<String>,
    #[arg(long, value_enum)]
    pub waf: Option<Waf>,
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Write the requests to the backing device to this trace, where there is no cache
    #[arg(long, requires = "backing_profile", conflicts_with = "cache")]
    pub record: Option<PathBuf>,
    /// Note writes and syncs in the working directory, and compare the files with the notes of former processes
    #[arg(long)]
    pub witness: bool,
    /// Time of a write and of a sync of a tablespace of InnoDB, where a kill loses what no sync has covered
    #[arg(long, value_parser = time, requires = "witness")]
    pub volatile: Option<Duration>,
}

/// I/Os and times of an emulated device, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceFigures {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub sequential_writes: u64,
    pub flushes: u64,
    pub busy_s: f64,
    /// Bytes programmed into the medium of a flash device.
    pub media_written_bytes: u64,
    /// I/Os whose bytes were ready only after the model's time.
    pub late: u64,
    /// Time from the model's completion of I/Os to their handover, in seconds, summed over all I/Os.
    #[serde(default)]
    pub late_s: f64,
    /// Processor time of threads that waited for the model's time.
    #[serde(default)]
    pub spun_s: f64,
}

/// Counts of a cache, in pages, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheFigures {
    pub reads: u64,
    pub read_hits: u64,
    pub writes: u64,
    pub write_hits: u64,
    /// Pages that the policy wrote back; in another mode than write-back all writes, since each reaches the backing store.
    pub write_backs: u64,
    pub bypasses: u64,
    /// Misses whose page was admitted.
    pub admissions: u64,
    /// Pages of whole tables that were prefetched before a query.
    #[serde(default)]
    pub placed: u64,
    pub dirty_pages: u64,
    /// Pages that reclaim copied.
    pub copied_pages: u64,
    /// Pages written to the backing store, and the writes and syncs for them.
    #[serde(default)]
    pub below_pages: u64,
    #[serde(default)]
    pub below_writes: u64,
    #[serde(default)]
    pub below_syncs: u64,
    /// Pages among these that were written because of their age.
    #[serde(default)]
    pub aged_pages: u64,
    /// Writes that waited because the bound on ages could not be kept.
    #[serde(default)]
    pub aged_waits: u64,
    pub failed: bool,
}

/// Pages that the cache found when it was opened, and the bytes read and seconds taken for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenFigures {
    pub pages: u64,
    pub dirty_pages: u64,
    pub read_bytes: u64,
    pub seconds: f64,
}

/// An answer to a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub opened: OpenFigures,
    pub cache: Option<CacheFigures>,
    pub cache_device: Option<DeviceFigures>,
    pub backing_device: Option<DeviceFigures>,
    /// Requests to the backing device, where they are recorded.
    #[serde(default)]
    pub asked: Option<AskedFigures>,
}

/// Counts of a file, in pages, and the policy's verdict on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFigures {
    /// Path below the directory.
    pub path: String,
    pub reads: u64,
    pub read_hits: u64,
    pub resident: u64,
    /// Usage of the file as the policy has classified it, in a word.
    pub verdict: Option<String>,
}

struct Daemon {
    served: Served,
    backing: PathBuf,
    layer: Arc<dyn FileLayer>,
    cached: Option<Arc<CachedFiles>>,
    cache_device: Option<Arc<dyn Paced>>,
    backing_device: Option<Arc<dyn Paced>>,
    recorder: Option<Arc<Recorder>>,
    opened: OpenFigures,
}

pub fn run(arguments: &DaemonArgs) -> Result<()> {
    let daemon = Daemon::open(arguments)?;
    let workers = if arguments.backing_profile.is_some() { 128 } else { 16 };
    let [page_cache, passthrough] = [arguments.page_cache, arguments.passthrough].map(|whether| whether == OnOff::On);
    let options = Options { workers, page_cache, passthrough, ..Options::default() };
    let mut layer = daemon.layer.clone();
    if arguments.witness {
        let (page_bytes, takes) = (arguments.page_size, arguments.volatile);
        layer = Arc::new(Witness::begin(layer, Path::new("."), page_bytes, patterns(), takes)?);
    }
    let mount = Mount::start(&arguments.backing, &arguments.mountpoint, layer, options)?;
    tell(&daemon.figures()?)?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (word, rest) = line.split_once(' ').unwrap_or((line.as_str(), ""));
        match word {
            "hurry" => daemon.hurry(true),
            "pace" => daemon.hurry(false),
            "figures" => {}
            "begin" => daemon.query_begins(rest)?,
            "end" => daemon.query_ends(rest)?,
            "files" => {
                tell(&daemon.files()?)?;
                continue;
            }
            other => bail!("'{other}' is not understood"),
        }
        tell(&daemon.figures()?)?;
    }
    let (unmounter, started) = (mount.unmounter(), Instant::now());
    while let Err(error) = unmounter.unmount() {
        if started.elapsed() > Duration::from_secs(20) {
            bail!(error);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon.hurry(true);
    match mount.wait() {
        // The copy has no user: the directory is this benchmark's alone.
        Ok(()) | Err(Error::Elsewhere { .. }) => {}
        Err(error) => bail!(error),
    }
    if let Some(cached) = &daemon.cached {
        cached.close().context("the close of the cache")?;
    }
    match daemon.recorder {
        Some(recorder) => recorder.finish(),
        None => Ok(()),
    }
}

fn patterns() -> Vec<Pattern> {
    not_cached().map(|name| name.parse().expect("the house's own patterns")).collect()
}

fn tell(answer: &impl Serialize) -> Result<()> {
    output::print(&(serde_json::to_string(answer)? + "\n"))
}

/// A disk, and the device whose time it takes.
type Timed = (Arc<dyn Disk>, Option<Arc<dyn Paced>>);

/// A disk as it is, or with the time of a device of this profile.
fn paced<D: Disk + Clone + 'static>(disk: D, name: Option<&str>, arguments: &DaemonArgs) -> Result<Timed> {
    let Some(name) = name else { return Ok((Arc::new(disk), None)) };
    let paced =
        Arc::new(PacedDisk::new(disk, Waf::profile(arguments.waf, name)?.build(CAPACITY_BYTES, arguments.seed)?)?);
    Ok((paced.clone(), Some(paced)))
}

/// The files of the directory, for serving through the mount.
fn served(arguments: &DaemonArgs) -> Served {
    Served::new(arguments.mountpoint.clone(), arguments.backing.clone())
}

/// Capacity of an emulated device that has no size of its own.
const CAPACITY_BYTES: u64 = 16 << 30;

fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes)).context("/dev/urandom")?;
    Ok(bytes)
}

/// Size in bytes and geometry of a store for `pages` pages. Its capacity is at least that, with a third more than the
/// pages for reclaim and tables, but for segments: there dead versions lie among the pages.
fn store(pages: u64, page_bytes: u32, layout: Layout) -> Result<(u64, Geometry)> {
    let wanted = pages * u64::from(page_bytes);
    let spare = if layout == Layout::Segments { 0 } else { wanted / 3 };
    let mut bytes = (wanted + spare).max(4 << 20).next_multiple_of(1 << 20);
    loop {
        let geometry = Geometry::for_device(bytes, page_bytes, layout)?;
        if geometry.capacity_pages() >= pages {
            return Ok((bytes, geometry));
        }
        bytes += (bytes / 64).next_multiple_of(1 << 20);
    }
}

impl Daemon {
    fn open(arguments: &DaemonArgs) -> Result<Self> {
        let backing_profile = arguments.backing_profile.as_deref();
        if let Some(path) = &arguments.cache {
            return Self::cached(arguments, path, backing_profile);
        }
        let plain = |layer, backing_device| Daemon {
            served: served(arguments),
            backing: arguments.backing.clone(),
            layer,
            cached: None,
            cache_device: None,
            backing_device,
            recorder: None,
            opened: OpenFigures::default(),
        };
        let Some(name) = backing_profile else { return Ok(plain(Arc::new(DirectFiles), None)) };
        let root = File::open(&arguments.backing).with_context(|| arguments.backing.display().to_string())?;
        let model = Waf::profile(arguments.waf, name)?.build(CAPACITY_BYTES, arguments.seed)?;
        let files = PacedFiles::new(root, model, patterns())?;
        let device = files.device();
        let Some(path) = &arguments.record else { return Ok(plain(Arc::new(files), Some(device))) };
        let recorder = Arc::new(Recorder::create(path, arguments.page_size)?);
        let files = files.heard_by(recorder.clone());
        Ok(Daemon { recorder: Some(recorder), ..plain(Arc::new(files), Some(device)) })
    }

    fn cached(arguments: &DaemonArgs, path: &Path, backing_profile: Option<&str>) -> Result<Self> {
        let name = || path.display().to_string();
        if let Some(pages) = arguments.make {
            let (bytes, geometry) = store(pages, arguments.page_size, arguments.layout)?;
            File::create_new(path).and_then(|file| file.set_len(bytes)).with_context(name)?;
            let disk = FileDisk::open(path, Caching::Buffered).with_context(name)?;
            Backing::format(&arguments.backing, &disk, geometry, random()?, random()?)?;
        }
        let started = Instant::now();
        let disk = Arc::new(FileDisk::open(path, Caching::Buffered).with_context(name)?);
        let space = geometry(&disk).with_context(name)?.capacity_pages();
        if arguments.pages > space {
            bail!("{}: has room for {space} pages, not for {}", name(), arguments.pages);
        }
        let (disk, cache_device) = paced(disk, arguments.cache_profile.as_deref(), arguments)?;
        let spec = one_policy(&arguments.policy)?;
        let pages = arguments.pages;
        let memory = arguments.dram.map(|size| size.pages(arguments.page_size, pages));
        let tiers = entresol_cache::tiers(spec.info, pages, memory);
        let mode = arguments.mode;
        let dirty_age = arguments.dirty_age.0;
        let (options, wear) = (spec.options, arguments.wear);
        let config = CacheConfig { options, mode, dirty_age, wear, ..CacheConfig::new(spec.info, &tiers) };
        let mut backing_device = None;
        let backing = Backing::open(&arguments.backing)?;
        let (files, _) = CachedFiles::open_over(backing, disk, &config, patterns(), |files| {
            let (below, device) = paced(files, backing_profile, arguments).map_err(std::io::Error::other)?;
            backing_device = device;
            Ok(below)
        })?;
        files.cache().set_sequential_cutoff(arguments.sequential_cutoff)?;
        let recovered = files.cache().recovered();
        let opened = OpenFigures {
            pages: recovered.pages,
            dirty_pages: recovered.dirty_pages,
            read_bytes: recovered.read_bytes,
            seconds: started.elapsed().as_secs_f64(),
        };
        let cached = Arc::new(files);
        let (layer, served) = (cached.clone(), served(arguments));
        let backing = arguments.backing.clone();
        let (cached, recorder) = (Some(cached), None);
        Ok(Daemon { served, backing, layer, cached, cache_device, backing_device, recorder, opened })
    }

    fn hurry(&self, hurried: bool) {
        [&self.cache_device, &self.backing_device].into_iter().flatten().for_each(|device| device.hurry(hurried));
    }

    /// Begins a query, given by its number, which no running query has, and the files that it reads with their further
    /// segments.
    fn query_begins(&self, said: &str) -> Result<()> {
        let Some(cached) = &self.cached else { return Ok(()) };
        let mut files = Vec::new();
        let (query, paths) = said.split_once(' ').unwrap_or((said, ""));
        for path in paths.split_whitespace() {
            if cached.cache().places_objects() {
                self.touch(cached, path);
            }
            self.served.relation(Path::new(""), Use::Rows, path, &mut files);
        }
        cached.query_begins(query.parse()?, &files);
        // Tables are prefetched before the query runs.
        cached.wait_placed();
        Ok(())
    }

    /// Reads a byte of each segment, so that the first query too finds its tables prefetched: a cache knows a file
    /// only from its first use. The database will report a file that cannot be read.
    fn touch(&self, cached: &CachedFiles, path: &str) {
        let segments = std::iter::once(path.to_owned()).chain((1..).map(|n| format!("{path}.{n}")));
        for segment in segments {
            let Ok(file) = File::open(self.backing.join(segment)) else { return };
            let Ok(found) = file.metadata() else { return };
            let opened = cached.open(FileId { device: found.dev(), inode: found.ino() }, file, false);
            let _read = opened.and_then(|file| file.read(0, &mut [0]));
        }
    }

    fn query_ends(&self, query: &str) -> Result<()> {
        if let Some(cached) = &self.cached {
            cached.query_ends(query.parse()?);
        }
        Ok(())
    }

    /// The counts of all files.
    fn files(&self) -> Result<Vec<FileFigures>> {
        let Some(cached) = &self.cached else { return Ok(Vec::new()) };
        let counted = cached.counts()?;
        let objects: Vec<_> = counted.iter().map(|file| file.object).collect();
        let figures = |(file, verdict): (FileCounts, Option<&str>)| {
            let ObjectCounts { reads, read_hits, resident, .. } = file.counts;
            Some(FileFigures {
                path: file.path?.to_string_lossy().into_owned(),
                reads,
                read_hits: read_hits.memory + read_hits.device,
                resident: resident.memory + resident.device,
                verdict: verdict.map(str::to_owned),
            })
        };
        let verdicts = cached.cache().verdicts(&objects)?;
        Ok(counted.into_iter().zip(verdicts).filter_map(figures).collect())
    }

    fn figures(&self) -> Result<Figures> {
        let device = |device: &Arc<dyn Paced>| {
            let (traffic, accuracy) = (device.traffic(), device.accuracy());
            DeviceFigures {
                reads: traffic.reads,
                read_bytes: traffic.read_bytes,
                writes: traffic.writes,
                written_bytes: traffic.written_bytes,
                sequential_writes: traffic.sequential_writes,
                flushes: traffic.flushes,
                busy_s: traffic.busy.as_secs_f64(),
                media_written_bytes: device.wear().media_written_bytes,
                late: accuracy.host_late.count(),
                late_s: accuracy.late.mean() * accuracy.late.count() as f64 / 1e9,
                spun_s: accuracy.spun_ns as f64 / 1e9,
            }
        };
        let cache = match &self.cached {
            None => None,
            Some(files) => {
                let stats = files.cache().stats()?;
                let writes_back = stats.mode == Mode::WriteBack;
                Some(CacheFigures {
                    reads: stats.counts.reads,
                    read_hits: stats.counts.read_hits,
                    writes: stats.counts.writes,
                    write_hits: stats.counts.write_hits,
                    write_backs: if writes_back { stats.counts.write_backs } else { stats.counts.writes },
                    bypasses: stats.counts.bypasses,
                    admissions: stats.counts.admissions,
                    placed: stats.counts.placed,
                    dirty_pages: stats.dirty_pages,
                    copied_pages: stats.write_back.copied,
                    below_pages: stats.write_back.below_pages,
                    below_writes: stats.write_back.below_ios,
                    below_syncs: stats.write_back.below_syncs,
                    aged_pages: stats.dirty_age.map_or(0, |age| age.written),
                    aged_waits: stats.dirty_age.map_or(0, |age| age.waits),
                    failed: stats.failed.is_some(),
                })
            }
        };
        Ok(Figures {
            opened: self.opened,
            cache,
            cache_device: self.cache_device.as_ref().map(device),
            backing_device: self.backing_device.as_ref().map(device),
            asked: self.recorder.as_ref().map(|recorder| recorder.figures()),
        })
    }
}

impl Figures {
    /// Figures since an earlier look.
    pub fn since(&self, before: &Self) -> Self {
        let device = |of: fn(&Self) -> Option<DeviceFigures>| Some(of(self)?.since(&of(before)?));
        Figures {
            opened: self.opened,
            cache: self.cache.zip(before.cache).map(|(now, before)| now.since(&before)),
            cache_device: device(|figures| figures.cache_device),
            backing_device: device(|figures| figures.backing_device),
            asked: self.asked.zip(before.asked).map(|(now, before)| now.since(&before)),
        }
    }
}

impl DeviceFigures {
    /// Figures since an earlier look.
    pub fn since(&self, before: &Self) -> Self {
        self.with(before, Sub::sub, Sub::sub)
    }

    /// Sum of these figures and others.
    pub fn and(&self, other: &Self) -> Self {
        self.with(other, Add::add, Add::add)
    }

    fn with(&self, other: &Self, count: fn(u64, u64) -> u64, time: fn(f64, f64) -> f64) -> Self {
        DeviceFigures {
            reads: count(self.reads, other.reads),
            read_bytes: count(self.read_bytes, other.read_bytes),
            writes: count(self.writes, other.writes),
            written_bytes: count(self.written_bytes, other.written_bytes),
            sequential_writes: count(self.sequential_writes, other.sequential_writes),
            flushes: count(self.flushes, other.flushes),
            busy_s: time(self.busy_s, other.busy_s),
            media_written_bytes: count(self.media_written_bytes, other.media_written_bytes),
            late: count(self.late, other.late),
            late_s: time(self.late_s, other.late_s),
            spun_s: time(self.spun_s, other.spun_s),
        }
    }
}

impl CacheFigures {
    /// Counts since an earlier look; states keep their current values.
    pub fn since(&self, before: &Self) -> Self {
        self.with(before, Sub::sub)
    }

    /// Sums of these counts and later ones; states have the later values.
    pub fn and(&self, later: &Self) -> Self {
        later.with(self, Add::add)
    }

    /// Pages that entered the cache: admitted by misses, or prefetched.
    pub fn migrated(&self) -> u64 {
        self.admissions + self.placed
    }

    /// Share of the requested pages that were found.
    pub fn hit_ratio(&self) -> f64 {
        (self.read_hits + self.write_hits) as f64 / (self.reads + self.writes).max(1) as f64
    }

    /// Share of the reads that were found.
    pub fn read_hit_ratio(&self) -> f64 {
        self.read_hits as f64 / self.reads.max(1) as f64
    }

    /// Share of the pages written that were not written to the backing store: 001's write reduction.
    pub fn write_reduction(&self) -> f64 {
        1.0 - self.write_backs as f64 / self.writes.max(1) as f64
    }

    /// Combines the counts; states stay.
    fn with(&self, other: &Self, count: fn(u64, u64) -> u64) -> Self {
        CacheFigures {
            reads: count(self.reads, other.reads),
            read_hits: count(self.read_hits, other.read_hits),
            writes: count(self.writes, other.writes),
            write_hits: count(self.write_hits, other.write_hits),
            write_backs: count(self.write_backs, other.write_backs),
            bypasses: count(self.bypasses, other.bypasses),
            admissions: count(self.admissions, other.admissions),
            placed: count(self.placed, other.placed),
            copied_pages: count(self.copied_pages, other.copied_pages),
            below_pages: count(self.below_pages, other.below_pages),
            below_writes: count(self.below_writes, other.below_writes),
            below_syncs: count(self.below_syncs, other.below_syncs),
            aged_pages: count(self.aged_pages, other.aged_pages),
            aged_waits: count(self.aged_waits, other.aged_waits),
            ..*self
        }
    }
}
