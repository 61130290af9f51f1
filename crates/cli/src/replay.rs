//! `entresol replay`: runs a trace through the live cache, and compares the counts with a simulation.

use crate::arguments::keyword;
use crate::output;
use crate::tiers::Waf;
use crate::trace_source;
use crate::trace_source::ReadArgs;
use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, CacheStats, Maintenance, Mode, Tag};
use entresol_core::{Op, Page, Size};
use entresol_device::Device;
use entresol_device::emulated::{Clock, VirtualClock};
use entresol_device::profile;
use entresol_disk::{Caching, Disk, FileDisk};
use entresol_files::paced::{Paced, PacedDisk, Traffic};
use entresol_policy::{LogLayout, Wear};
use entresol_render::{Cell, Column, Progress, Table, TextStyle, Unit, percent};
use entresol_service::values;
use entresol_sim::{
    Addresses, Cell as SimulatedCell, CellOptions, Hierarchy, LayerSpec, Mode as SimulatedMode, NamedDevice,
    PolicySpec, Row, TimedOptions, TimedRow, parse_policies, run_cell,
};
use entresol_store::{Geometry, Layout};
use entresol_trace::{Column as TraceColumn, Object, ObjectKind, Trace};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Run a trace through a live cache, check every byte it reads, and compare it with its simulation
///
/// Each policy and size gets a new cache file and a sparse backing file in DIR, which have no names and leave nothing
/// behind. Requests come one at a time; their counts should equal the simulator's. The table shows where they do not.
#[derive(Args)]
pub struct ReplayArgs {
    /// A trace file, or generate:SPEC for a generated one
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Policies, separated by commas
    #[arg(long, short, default_value = "face-gsc", value_name = "LIST")]
    pub policy: String,
    /// Sizes of the cache, separated by commas
    #[arg(long, short, value_delimiter = ',', value_name = "LIST", default_value = "10%")]
    pub size: Vec<Size>,
    /// Size of the memory above the cache: the upper tier of policies that manage two, an LRU pool above the others
    #[arg(long, value_name = "SIZE")]
    pub dram: Option<Size>,
    /// Bytes of a segment of the cache [default: 1MiB, less if fewer than 64 of those fit]
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    pub segment_size: Option<u64>,
    /// Layout of the pages on the cache device
    #[arg(long, value_name = "log|slots|segments", value_parser = values::layout, default_value = "log")]
    pub layout: Layout,
    /// With --layout segments: bound on what is written to the cache, simulated and live, as `mount` has it
    #[arg(long, value_name = "BOUND", default_value = "unbounded")]
    pub wear: Wear,
    /// Treatment of writes, simulated and live, as `mount` has it
    #[arg(long, value_parser = keyword::<SimulatedMode>(), default_value = "write-back")]
    pub mode: SimulatedMode,
    /// Length of a sequential stream after which its pages bypass the cache, simulated and live; 0: never
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = values::bytes_or_none)]
    pub sequential_cutoff: u64,
    /// Flush after every N writes, as a database does at a commit; 0: at the end only
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub flush_every: u64,
    /// Compare the write amplification of this flash drive under the cache too: a built-in profile (an unknown name lists
    /// them) or a TOML file. Its time passes without waiting
    #[arg(long, value_name = "PROFILE")]
    pub cache_profile: Option<String>,
    /// Compare the time of this device as the backing store too: a built-in profile or a TOML file. Its time is virtual and
    /// passes while a request waits; simulated, one request and one write-back go on at a time
    #[arg(long, value_name = "PROFILE")]
    pub backing_profile: Option<String>,
    /// Source of the write amplification of the drive [default: as its profile says]
    #[arg(long, value_name = "MODE", requires = "cache_profile")]
    pub waf: Option<Waf>,
    /// Directory of the temporary files
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Seed of policies that draw at random
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Write the full results to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// One policy at one size.
struct Outcome {
    size: Size,
    simulated: Row,
    live: CacheStats,
    page_bytes: u64,
    amplification: Option<Amplification>,
    below: Option<[Busy; 2]>,
    seconds: f64,
}

/// Work of the device that is the backing store.
#[derive(Clone, Copy, Debug)]
struct Busy {
    /// Seconds in which an I/O was under way.
    seconds: f64,
    reads: u64,
    writes: u64,
    write_bytes: f64,
}

/// Write amplification of the drive under the cache: bytes programmed for each byte written.
#[derive(Clone, Copy)]
struct Amplification {
    simulated: f64,
    live: f64,
    /// Mean size of a live write, in bytes.
    write_bytes: f64,
}

/// Runs the command.
pub fn run(arguments: &ReplayArgs, quiet: bool) -> Result<()> {
    if let Some(path) = &arguments.json {
        output::check_writable(path)?;
    }
    if arguments.wear != Wear::Unbounded && arguments.layout != Layout::Segments {
        bail!("--wear is for --layout segments");
    }
    let policies = parse_policies(&arguments.policy)?;
    let needs_future = policies.iter().any(|policy| policy.info.future);
    let mut named = trace_source::open(&arguments.trace, &arguments.read, needs_future, quiet)?;
    let backing_pages = lay_out(&mut named.trace)?;
    let addresses = Addresses::new(&named.trace);
    let mut outcomes = Vec::new();
    for policy in &policies {
        for &size in &arguments.size {
            outcomes.push(one(&addresses, backing_pages, policy, size, arguments, quiet)?);
        }
    }
    output::write_asked(&arguments.json, || {
        let rows: Vec<_> = outcomes.iter().map(Outcome::json).collect();
        Ok(serde_json::to_string_pretty(&serde_json::json!({"trace": named.name, "results": rows}))?)
    })?;
    output::print(&text(&outcomes))
}

/// Objects begin at multiples of so many pages, for policies that work on extents.
const ALIGNED_PAGES: u64 = 4096;

/// Lays the objects of a trace out in one range of bytes, as the live cache has them: one after the other, so that neighbouring
/// pages stay neighbours. A gap between objects keeps them from becoming neighbours. Returns the pages of the range.
fn lay_out(trace: &mut Trace) -> Result<u64> {
    let addresses: Vec<_> = (0..trace.footprint() as u32).map(|page| trace.address(Page(page))).collect();
    let mut lengths = vec![0u64; trace.objects.len().max(1)];
    for address in &addresses {
        let length = &mut lengths[address.object.0 as usize];
        *length = (*length).max(address.block.saturating_add(1));
    }
    let mut bases = Vec::new();
    let mut pages = 0u64;
    for length in lengths {
        bases.push(pages);
        pages = pages.saturating_add(length + 1).next_multiple_of(ALIGNED_PAGES);
    }
    // A file system with a lower limit reports that itself.
    let bytes = pages.checked_mul(trace.page_bytes.into()).filter(|&bytes| i64::try_from(bytes).is_ok());
    if bytes.is_none() {
        bail!("the trace's addresses span {pages} pages, more than one file can have");
    }
    let blocks = addresses.iter().map(|address| bases[address.object.0 as usize] + address.block);
    trace.page_block = TraceColumn::Owned(blocks.collect());
    trace.page_object = TraceColumn::Owned(vec![0; addresses.len()]);
    trace.objects = vec![Object { name: "backing".into(), kind: ObjectKind::Data, pages, asked_bytes: None }];
    Ok(pages)
}

fn one(
    addresses: &Addresses,
    backing_pages: u64,
    policy: &PolicySpec,
    size: Size,
    arguments: &ReplayArgs,
    quiet: bool,
) -> Result<Outcome> {
    let name = policy.info.name;
    let mut sizes = match (policy.info.tiers.len(), arguments.dram) {
        (1, None) => vec![size],
        (_, Some(dram)) => vec![dram, size],
        (_, None) => bail!("policy '{name}' manages memory too: --dram gives its size"),
    };
    let trace = addresses.trace;
    let pages = |size: &Size| size.pages(trace.page_bytes, trace.footprint() as u64) as usize;
    let last = sizes.last_mut().expect("a policy has a tier");
    let geometry = geometry(pages(last) as u64, trace.page_bytes, arguments.segment_size, arguments.layout)?;
    let &ReplayArgs { seed, mode, wear, sequential_cutoff, .. } = arguments;
    let log = (geometry.layout == Layout::Segments).then(|| {
        // All segments are in use, also where the last would be needed in part only.
        *last = Size::Pages(geometry.capacity_pages());
        LogLayout { segment_bytes: Some(geometry.segment_bytes()), wear }
    });
    let tiers: Vec<usize> = sizes.iter().map(pages).collect();
    let options = CellOptions { seed, sequential_cutoff, log, mode, ..CellOptions::default() };
    let layer = LayerSpec { policy: policy.clone(), sizes };
    let simulated = run_cell(addresses, std::slice::from_ref(&layer), size.to_string(), &options)?;
    let config = CacheConfig {
        options: policy.options.clone(),
        // As many handles as the simulator has; a live cache would otherwise recycle them.
        handles: trace.footprint(),
        seed,
        mode: match mode {
            SimulatedMode::WriteBack => Mode::WriteBack,
            SimulatedMode::WriteThrough => Mode::WriteThrough,
            SimulatedMode::WriteAround => Mode::WriteAround,
        },
        wear,
        // Maintenance in the requests makes all counts repeatable.
        maintenance: Maintenance::Requests,
        ..CacheConfig::new(policy.info, &tiers)
    };
    let cache = Arc::new(nameless(&arguments.dir, "cache", geometry.size_bytes())?);
    let backing = Arc::new(nameless(&arguments.dir, "backing", backing_pages * u64::from(trace.page_bytes))?);
    BlockCache::format(&*cache, geometry, &*backing, [1; 16], [2; 16])?;
    let flash = arguments.cache_profile.as_ref().map(|name| flash(name, &cache, arguments)).transpose()?;
    let below = arguments.backing_profile.as_ref().map(|name| below(name, &backing, arguments)).transpose()?;
    let cache: Arc<dyn Disk> = flash.as_ref().map_or(cache as _, |flash| Arc::clone(flash) as _);
    let backing: Arc<dyn Disk> = below.as_ref().map_or(backing as _, |(below, _)| Arc::clone(below) as _);
    let cache = BlockCache::open(cache, backing, [2; 16], &config)?;
    cache.set_sequential_cutoff(sequential_cutoff)?;
    let bar = Progress::start(&format!("{name} {size}"), Some(trace.len() as u64), Unit::Items("requests"), quiet);
    let started = std::time::Instant::now();
    drive(trace, &cache, arguments.flush_every, &bar).with_context(|| format!("{name} {size}"))?;
    let live = cache.stats()?;
    let seconds = started.elapsed().as_secs_f64();
    let live_below = below.map(|(below, clock)| Busy::live(&below.traffic(), &clock));
    let timed = (flash.is_some() || live_below.is_some())
        .then(|| simulated_devices(addresses, &layer, &options, arguments))
        .transpose()?;
    let amplification = flash.zip(timed.as_ref()).map(|(flash, timed)| Amplification {
        simulated: timed.devices[timed.devices.len() - 2].write_amplification,
        live: flash.wear().write_amplification(),
        write_bytes: flash.traffic().written_bytes as f64 / flash.traffic().writes as f64,
    });
    let below = live_below.zip(timed).map(|(live, timed)| [Busy::simulated(&timed), live]);
    Ok(Outcome { size, simulated, live, page_bytes: trace.page_bytes.into(), amplification, below, seconds })
}

impl Busy {
    fn simulated(timed: &TimedRow) -> Self {
        let device = timed.devices.last().expect("a cell has a level below");
        Busy {
            seconds: device.utilisation * timed.elapsed_seconds,
            reads: device.reads,
            writes: device.writes,
            write_bytes: device.mean_write_bytes,
        }
    }

    /// `clock` stands still unless an I/O of the device is waited for.
    fn live(traffic: &Traffic, clock: &VirtualClock) -> Self {
        Busy {
            seconds: clock.now() as f64 / 1e9,
            reads: traffic.reads,
            writes: traffic.writes,
            write_bytes: traffic.written_bytes as f64 / traffic.writes as f64,
        }
    }
}

/// A drive of this profile that has the cache's bytes. Its time is virtual: it passes while a request waits.
fn flash(name: &str, cache: &Arc<FileDisk>, arguments: &ReplayArgs) -> Result<Arc<Emulated>> {
    // Each extent of the file that is in use takes one of the drive, and the last may not be full.
    let bytes = cache.size_bytes() + FLASH_EXTENT_BYTES;
    let model = Waf::profile(arguments.waf, name)?.build(bytes, arguments.seed)?;
    if model.amplification().is_none() {
        bail!("--cache-profile: '{name}' is no flash drive");
    }
    Ok(Arc::new(PacedDisk::with_clock(Arc::clone(cache), model, Arc::new(VirtualClock::new()))?))
}

type Emulated = PacedDisk<Arc<FileDisk>, Arc<VirtualClock>>;

const FLASH_EXTENT_BYTES: u64 = 1 << 20;

/// A device of this profile that has the backing file's bytes where the file has them, and its clock.
fn below(name: &str, backing: &Arc<FileDisk>, arguments: &ReplayArgs) -> Result<(Arc<Emulated>, Arc<VirtualClock>)> {
    let bytes = backing.size_bytes().next_multiple_of(FLASH_EXTENT_BYTES);
    let model = profile::load(name)?.build(bytes, arguments.seed)?;
    let clock = Arc::new(VirtualClock::new());
    let disk = PacedDisk::with_clock(Arc::clone(backing), model, Arc::clone(&clock))?;
    disk.place_in_order()
        .with_context(|| format!("--backing-profile: '{name}' has not the {bytes} bytes of the trace"))?;
    Ok((Arc::new(disk), clock))
}

/// The devices of a simulation with time. Tiers without a profile are DRAM: their times change nothing here.
fn simulated_devices(
    addresses: &Addresses,
    layer: &LayerSpec,
    options: &CellOptions,
    arguments: &ReplayArgs,
) -> Result<TimedRow> {
    let cell =
        SimulatedCell::stack(std::slice::from_ref(layer), String::new(), addresses).map_err(|skipped| skipped.error)?;
    let (needs, spare) = (cell.needs(addresses), cell.spare(addresses, options));
    let (cache, below) = (needs.len() - 2, needs.len() - 1);
    let device = |at: usize| -> Result<NamedDevice> {
        let plain = |name: &str| -> Result<Box<dyn Device + Send>> {
            Ok(profile::load(name)?.build(needs[at].max(addresses.trace.page_bytes.into()), options.seed)?)
        };
        let device = match (&arguments.cache_profile, &arguments.backing_profile) {
            (Some(name), _) if at == cache => {
                let drive = Waf::profile(arguments.waf, name)?;
                drive.build(drive.bytes_with_spare(needs[at], spare[at]), options.seed)?
            }
            (_, Some(name)) if at == below => plain(name)?,
            _ => plain("dram")?,
        };
        Ok((String::new(), device as _))
    };
    let mut tiers = (0..needs.len()).map(device).collect::<Result<Vec<_>>>()?;
    let backing = tiers.pop().context("a cell has a level below")?;
    let mut timed = TimedOptions::default();
    if arguments.backing_profile.is_some() {
        timed.background = 1;
    }
    Ok(cell.run_timed(addresses, Hierarchy { tiers, backing }, options, &timed)?.1)
}

/// Geometry of a store with room for so many pages.
fn geometry(pages: u64, page_bytes: u32, segment_bytes: Option<u64>, layout: Layout) -> Result<Geometry> {
    let wanted = pages * u64::from(page_bytes);
    let mut size = wanted + wanted / 3;
    loop {
        let geometry = match segment_bytes {
            None => Geometry::for_device(size.max(16 * 16 * u64::from(page_bytes)), page_bytes, layout)?,
            Some(bytes) => {
                let segment_pages = u32::try_from(bytes / u64::from(page_bytes))?;
                let segments = u32::try_from(size.div_ceil(bytes.max(1)))?.max(8);
                let geometry = Geometry { page_bytes, segment_pages, segments, layout };
                geometry.check()?;
                geometry
            }
        };
        if geometry.capacity_pages() >= pages {
            return Ok(geometry);
        }
        size += geometry.segment_bytes();
    }
}

/// A new sparse file that loses its name at once.
fn nameless(dir: &Path, role: &str, bytes: u64) -> Result<FileDisk> {
    let path = dir.join(format!(".entresol-replay.{role}.{}.tmp", std::process::id()));
    let name = || path.display().to_string();
    let file = FileDisk::create(&path, bytes, Caching::Buffered).with_context(name)?;
    std::fs::remove_file(&path).with_context(name)?;
    Ok(file)
}

/// Stamps of the two halves of a page: the number of the last request that wrote each, plus one; 0 if none did. A whole
/// write stamps both halves, an update only the second.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Stamps([u32; 2]);

impl Stamps {
    fn fill(self, bytes: &mut [u8]) {
        let half = bytes.len() / 2;
        for (stamp, half) in self.0.into_iter().zip(bytes.chunks_mut(half)) {
            half.chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&stamp.to_le_bytes()));
        }
    }
}

fn drive(trace: &Trace, cache: &BlockCache, flush_every: u64, bar: &Progress) -> Result<()> {
    let page_bytes = trace.page_bytes as usize;
    let mut stamps = vec![Stamps::default(); trace.footprint()];
    let (mut bytes, mut expected) = (vec![0; page_bytes], vec![0; page_bytes]);
    let mut writes = 0u64;
    for at in 0..trace.len() {
        let request = trace.request(at);
        let offset = trace.address(request.page).block * page_bytes as u64;
        let now_us = trace.times_us.as_ref().map_or(at as u64, |times| times[at]);
        let tag = Tag { sequential: request.sequential, now_us };
        let stamp = &mut stamps[request.page.index()];
        match request.op {
            Op::Read => {
                cache.read_tagged(offset, &mut bytes, tag)?;
                stamp.fill(&mut expected);
                if bytes != expected {
                    bail!("request {at}: the page at byte {offset} differs from the last write there");
                }
            }
            Op::Write => {
                *stamp = Stamps([at as u32 + 1; 2]);
                stamp.fill(&mut bytes);
                cache.write_tagged(offset, &bytes, tag)?;
            }
            Op::Update => {
                stamp.0[1] = at as u32 + 1;
                stamp.fill(&mut bytes);
                cache.write_tagged(offset + page_bytes as u64 / 2, &bytes[page_bytes / 2..], tag)?;
            }
        }
        writes += u64::from(request.op.is_write());
        if request.op.is_write() && flush_every > 0 && writes.is_multiple_of(flush_every) {
            cache.flush()?;
        }
        if at % 1024 == 0 {
            bar.advance(1024.min((trace.len() - at) as u64));
        }
    }
    Ok(cache.flush()?)
}

impl Outcome {
    /// Names and values of the counts that both sides keep: simulated, live.
    fn counts(&self) -> [(&'static str, u64, u64); 7] {
        let (row, live) = (&self.simulated, &self.live.counts);
        [
            ("read_hits", row.read_hits, live.read_hits),
            ("write_hits", row.write_hits, live.write_hits),
            ("fetches", row.fetches, live.fetches),
            ("admissions", row.admissions, live.admissions),
            ("write_backs", row.write_backs, live.write_backs),
            ("write_back_ios", row.write_back_ios, live.write_back_ios),
            ("bypasses", row.bypasses, live.bypasses),
        ]
    }

    fn differences(&self) -> String {
        let differ = self.counts().into_iter().filter(|(_, simulated, live)| simulated != live);
        let differ: Vec<String> = differ.map(|(name, simulated, live)| format!("{name} {simulated}/{live}")).collect();
        if differ.is_empty() { "yes".to_owned() } else { differ.join(", ") }
    }

    /// Pages written to the store for the policy or for a flush, without second chances.
    fn new_pages(&self) -> u64 {
        self.live.store.pages - self.live.write_back.copied
    }

    fn json(&self) -> serde_json::Value {
        let (log, write_back) = (&self.live.store, &self.live.write_back);
        let counts: serde_json::Map<_, _> = self
            .counts()
            .into_iter()
            .map(|(name, simulated, live)| (name.to_owned(), serde_json::json!([simulated, live])))
            .collect();
        let mut json = serde_json::json!({
            "policy": self.simulated.policy, "options": self.simulated.options, "size": self.size.to_string(),
            "capacity_pages": self.simulated.capacity_pages, "requests": self.simulated.requests,
            "simulated_and_live": counts,
            "cache_batches": log.batches, "cache_blocks": log.blocks, "cache_pages": log.pages, "cache_syncs": log.syncs,
            "cache_reads": log.reads, "copied": write_back.copied, "rescued": write_back.evicted_dirty,
            "below_pages": write_back.below_pages, "below_ios": write_back.below_ios, "below_syncs": write_back.below_syncs,
            "below_reads": write_back.below_reads, "page_bytes": self.page_bytes, "seconds": self.seconds,
        });
        if let Some(Amplification { simulated, live, .. }) = self.amplification {
            json["write_amplification"] = serde_json::json!([simulated, live]);
        }
        if let Some(both) = self.below {
            json["below_device"] = serde_json::json!({
                "seconds": both.map(|busy| busy.seconds), "reads": both.map(|busy| busy.reads),
                "writes": both.map(|busy| busy.writes), "mean_write_bytes": both.map(|busy| busy.write_bytes),
            });
        }
        json
    }
}

fn text(outcomes: &[Outcome]) -> String {
    let number = |name: &str, help: &str| Column::number(name).help(help);
    let ratio = |a: u64, b: u64| if b == 0 { f64::NAN } else { a as f64 / b as f64 };
    let hits = |outcome: &Outcome| {
        let counts = &outcome.live.counts;
        ratio(counts.read_hits + counts.write_hits, counts.reads + counts.writes)
    };
    let kilobytes = |outcome: &Outcome, pages, ios| Cell::fixed(ratio(pages, ios) * outcome.page_bytes as f64 / 1e3, 1);
    let driven = outcomes.iter().any(|outcome| outcome.amplification.is_some());
    let drive = |value: fn(Amplification) -> f64, digits| {
        move |(outcome, ..): &(&Outcome, _, _)| Cell::fixed(outcome.amplification.map_or(f64::NAN, value), digits)
    };
    let timed = outcomes.iter().any(|outcome| outcome.below.is_some());
    let device = |value: fn([Busy; 2]) -> f64, digits| {
        move |(outcome, ..): &(&Outcome, _, _)| Cell::fixed(outcome.below.map_or(f64::NAN, value), digits)
    };
    let items = outcomes.iter().map(|outcome| (outcome, &outcome.live.store, &outcome.live.write_back));
    let table = Table::of("replay", items)
        .column(Column::text("policy"), |(outcome, ..)| outcome.simulated.policy.clone())
        .column(Column::number("size"), |(outcome, ..)| outcome.size.to_string())
        .column(Column::number("hit ratio"), |(outcome, ..)| percent(hits(outcome), 2))
        .column(Column::text("counts as simulated"), |(outcome, ..)| outcome.differences())
        .column(number("cache writes", "write I/Os to the cache device"), |(_, log, _)| log.batches)
        .column(number("mean kB", "their mean size"), |(outcome, log, _)| kilobytes(outcome, log.blocks, log.batches))
        .column(number("new pages", NEW_PAGES), |(outcome, ..)| outcome.new_pages())
        .column(number("kept", "pages that reclaim appended again"), |(.., write_back)| write_back.copied)
        .column(number("bytes/page", PER_PAGE), |(_, log, _)| Cell::fixed(ratio(log.blocks, log.pages), 4))
        .column(number("bytes/new", "the same per byte of new pages"), |(outcome, log, _)| {
            Cell::fixed(ratio(log.blocks, outcome.new_pages()), 4)
        })
        .column(number("pages/sync", "new pages per sync of the cache device"), |(outcome, log, _)| {
            Cell::fixed(ratio(outcome.new_pages(), log.syncs), 0)
        })
        .column(number("below kB", "mean size of a write to the backing store"), |(outcome, _, write_back)| {
            kilobytes(outcome, write_back.below_pages, write_back.below_ios)
        })
        .column_if(driven, number("write kB", WRITE), drive(|drive| drive.write_bytes / 1e3, 1))
        .column_if(driven, number("WAF simulated", WAF), drive(|drive| drive.simulated, 2))
        .column_if(driven, number("WAF live", WAF), drive(|drive| drive.live, 2))
        .column_if(timed, number("device s simulated", DEVICE_S), device(|[busy, _]| busy.seconds, 1))
        .column_if(timed, number("device s live", DEVICE_S), device(|[_, busy]| busy.seconds, 1))
        .column_if(timed, number("device writes simulated", DEVICE_WRITES), device(|[busy, _]| busy.writes as f64, 0))
        .column_if(timed, number("device writes live", DEVICE_WRITES), device(|[_, busy]| busy.writes as f64, 0))
        .column(Column::number("s"), |(outcome, ..)| Cell::fixed(outcome.seconds, 1))
        .done();
    table.to_text(TextStyle::stdout())
}

const DEVICE_S: &str = "seconds of the device below in which an I/O was under way, in its own time";
const DEVICE_WRITES: &str = "writes to the device below";
const WRITE: &str = "mean size of a write to the drive, live";
const WAF: &str = "bytes programmed by the drive per byte written to it";
const NEW_PAGES: &str = "pages they carried, without those that reclaim kept";
const PER_PAGE: &str = "bytes written per byte of the pages carried, kept ones included";
