//! The benchmarks' testbed: the database, its place, the devices below it, and the variants to compare.

use super::mounted::Mounted;
use super::place::Place;
use super::variant::{Devices, Variant};
use super::witness::Findings;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use entresol_bench::driver::Database;
use entresol_bench::server::{MariaDbServer, MemoryBound, Owner, PostgreSqlServer, Server, Setup, SqliteFile};
use entresol_cache::Mode;
use entresol_cli::shared as output;
use entresol_cli::shared::Waf;
use entresol_cli::shared::{DIRTY_AGE, keyword};
use entresol_cli::shared::{Limit, OnOff, bytes, bytes_or_none, layout, seconds_or_none};
use entresol_core::Size;
use entresol_policy::Wear;
use entresol_render::{Progress, Unit};
use entresol_store::Layout;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Options of every benchmark.
#[derive(Args)]
pub struct TestbedArgs {
    /// The database
    #[arg(long, value_enum, default_value = "sqlite")]
    pub db: Db,
    /// Compare the database on the cache's device alone, too
    #[arg(long, requires = "cache_profile")]
    pub ssd_only: bool,
    /// Handling of writes by the cache
    #[arg(long, value_parser = keyword::<Mode>(), default_value = "write-back")]
    pub mode: Mode,
    /// Layout in which a cache keeps its pages, as `entresol format` has it [default: in a log for policies that evict
    /// in its order, in slots for all others]
    #[arg(long, value_name = "log|slots|segments", value_parser = layout)]
    pub layout: Option<Layout>,
    /// Bound on what is written to caches of the layout segments, as `entresol mount` has it
    #[arg(long, value_name = "BOUND", default_value = "unbounded")]
    pub wear: Wear,
    /// Use of the kernel's page cache above the mount. This machine's memory usually holds the whole database, so that
    /// a cache below the page cache gets next to no requests
    #[arg(long, value_name = "WHETHER", value_enum, default_value = "off")]
    pub page_cache: OnOff,
    /// Bytes of a sequential stream after which its I/O bypasses the cache; 0: no stream does
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes_or_none)]
    pub sequential_cutoff: u64,
    /// Longest time that a page of a cache may differ from the backing store, as `entresol mount` has it; none: no
    /// such bound. Several, separated by commas, are compared with each other
    #[arg(long, value_name = "LIST", default_value = DIRTY_AGE, value_delimiter = ',', value_parser = seconds_or_none)]
    pub dirty_age: Vec<Limit>,
    /// Direct access of the kernel to logs and temporary files, and to all files of a mount without a cache and without
    /// an emulated device
    #[arg(long, value_name = "WHETHER", value_enum, default_value = "on")]
    pub passthrough: OnOff,
    /// Memory for the upper tier of policies that manage two [default: the policy's own share]
    #[arg(long, value_name = "SIZE")]
    pub dram: Option<Size>,
    /// Bytes of a page of the cache [default: the database's: 4096 SQLite, 8192 PostgreSQL, 16384 MariaDB]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub page_size: Option<u64>,
    /// Emulate this device below: a built-in profile (an unknown one lists them) or a TOML file
    #[arg(long, value_name = "PROFILE")]
    pub backing_profile: Option<String>,
    /// Emulate this device for the cache
    #[arg(long, value_name = "PROFILE")]
    pub cache_profile: Option<String>,
    /// Write amplification of flash drives, whatever their profiles say: by their cleaning, or as measured by the size
    /// of a write
    #[arg(long, value_enum)]
    pub waf: Option<Waf>,
    /// Memory of the database's own buffer pool
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = bytes)]
    pub memory: u64,
    /// For root: bound on the memory that the server's processes use together, their share of the page cache above the
    /// mount included. The process that mounts is outside
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub memory_bound: Option<u64>,
    /// Number of repetitions; all runs take turns
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    /// Seed of the load and of the emulated devices
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Directory of the databases while it runs; every user must be able to get there [default: the system's temporary
    /// files]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// For root: the user that servers run as
    #[arg(long, value_name = "NAME", default_value = "nobody")]
    pub user: String,
    /// Write all figures to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Options of benchmarks whose runs are measured for a time
#[derive(Args)]
pub struct RunArgs {
    /// Connections that work at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub clients: u64,
    /// Time for which each run is measured: 90s, 5m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub duration: Duration,
    /// Warm-up of each run before that
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub warmup: Duration,
    /// Variants to compare, separated by commas: policies (`entresol policies` lists them), one with a layout or a mode of
    /// its own as reuse@segments@write-through, none for no cache, or none@PROFILE for none over another emulated device
    #[arg(long, value_name = "LIST", default_value = "none,face-gsc", value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Pages that the cache keeps, of the loaded database; the log that they lie in takes a third more
    #[arg(long, value_name = "SIZE", default_value = "10%")]
    pub cache_size: Size,
    /// Time between checkpoints of PostgreSQL
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = time)]
    pub checkpoint: Duration,
    /// Record the database's requests to the device below, where there is no cache, as a trace; of several such runs
    /// the last one stays
    ///
    /// For `entresol advise hierarchy --below-pool`, with the requesters and the processor time that are printed at
    /// the end.
    #[arg(long, value_name = "FILE", requires = "backing_profile")]
    pub record: Option<PathBuf>,
    #[command(flatten)]
    pub testbed: TestbedArgs,
}

impl RunArgs {
    /// Prepares the testbed for caches of the requested size.
    pub fn prepare(
        &self,
        wanted: Wanted,
        quiet: bool,
        load: impl FnOnce(&dyn Database, &AtomicBool) -> Result<()>,
    ) -> Result<Testbed> {
        if let Some(path) = &self.record {
            if !self.policy.iter().any(|name| name == "none") {
                bail!("--record: what is asked without a cache is recorded, so --policy must have none");
            }
            output::check_writable(path)?;
        }
        let mut testbed = Testbed::prepare(&self.testbed, &self.policy, wanted, quiet, load)?;
        testbed.devices.pages = testbed.cache_pages(self.cache_size)?;
        testbed.devices.record = self.record.clone();
        Ok(testbed)
    }

    /// Progress bar over the seconds of all runs.
    pub fn bar(&self, testbed: &Testbed) -> Progress {
        let each = (self.warmup + self.duration).as_secs();
        let total = each * u64::from(self.testbed.repeat) * testbed.variants.len() as u64;
        Progress::start("measuring", Some(total), Unit::Items("s"), testbed.quiet)
    }
}

/// A database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Db {
    /// SQLite, in this program
    Sqlite,
    /// PostgreSQL, as it is installed
    Postgresql,
    /// MariaDB, as it is installed
    Mariadb,
}

impl Db {
    pub fn page_bytes(self) -> u64 {
        match self {
            Db::Sqlite => 4096,
            Db::Postgresql => 8192,
            Db::Mariadb => 16384,
        }
    }
}

/// A duration in the notation of the command line.
pub fn time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let millis = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => 0,
    };
    let parsed = number.parse::<u64>().ok().and_then(|number| number.checked_mul(millis));
    let parsed = parsed.filter(|&millis| millis > 0 && millis <= 7 * 86_400_000);
    parsed
        .map(Duration::from_millis)
        .ok_or_else(|| "it must be a time of at most a week, such as 500ms, 90s or 5m".into())
}

/// Demands that a server must be ready for.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub connections: usize,
    /// Time between checkpoints of PostgreSQL.
    pub checkpoint: Duration,
}

/// Least memory of the server that loads: the runs' memory would make loading slow.
const LOADING_BYTES: u64 = 256 << 20;

/// Server, place and devices of a benchmark's runs. Fields are dropped in order: the server, then the place.
pub struct Testbed {
    pub server: Box<dyn Server>,
    /// Bound on the server's memory.
    bound: Option<MemoryBound>,
    pub place: Place,
    pub devices: Devices,
    pub variants: Vec<Variant>,
    pub ended: Arc<AtomicBool>,
    pub loaded_bytes: u64,
    pub quiet: bool,
}

impl Testbed {
    /// Makes the place, the server and, by `load`, the database that all runs begin with. From then on a signal sets
    /// `ended`.
    pub fn prepare(
        arguments: &TestbedArgs,
        policies: &[String],
        wanted: Wanted,
        quiet: bool,
        load: impl FnOnce(&dyn Database, &AtomicBool) -> Result<()>,
    ) -> Result<Self> {
        for path in [&arguments.json, &arguments.html].into_iter().flatten() {
            output::check_writable(path)?;
        }
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            signal_hook::flag::register(signal, ended.clone()).context("signals")?;
        }
        let parsed = policies.iter().map(|name| Variant::parse(name, &arguments.dirty_age));
        let mut variants = parsed.collect::<Result<Vec<_>>>()?.concat();
        if arguments.ssd_only {
            variants.push(Variant::SsdOnly);
        }
        let profiles =
            [&arguments.backing_profile, &arguments.cache_profile].into_iter().filter_map(|its| its.as_deref());
        for name in profiles.chain(variants.iter().filter_map(Variant::profile)) {
            Waf::profile(arguments.waf, name)?;
        }
        // SQLite runs in this process, which must have access to the mount.
        let owner = if arguments.db == Db::Sqlite { Owner::own() } else { Owner::dropping(&arguments.user)? };
        let page_size = u32::try_from(arguments.page_size.unwrap_or(arguments.db.page_bytes()))?;
        let scratch = arguments.scratch.clone().unwrap_or_else(std::env::temp_dir);
        let place = Place::make(&scratch, owner)?;
        let make = |memory_bytes: u64| -> Result<Box<dyn Server>> {
            let Wanted { connections, checkpoint } = wanted;
            let (data, run, owner) = (place.loaded(), place.run().to_owned(), place.owner().clone());
            let setup = Setup { data, run, owner, memory_bytes, connections, checkpoint };
            Ok(match arguments.db {
                Db::Sqlite => Box::new(SqliteFile::new(setup)),
                Db::Postgresql => Box::new(PostgreSqlServer::new(setup)?),
                Db::Mariadb => Box::new(MariaDbServer::new(setup)?),
            })
        };
        let server = make(arguments.memory)?;
        let devices = Devices {
            backing_profile: arguments.backing_profile.clone(),
            cache_profile: arguments.cache_profile.clone(),
            waf: arguments.waf,
            mode: arguments.mode,
            layout: arguments.layout,
            wear: arguments.wear,
            page_cache: arguments.page_cache,
            sequential_cutoff: arguments.sequential_cutoff,
            passthrough: arguments.passthrough,
            page_size,
            pages: 0,
            dram: arguments.dram,
            seed: arguments.seed,
            record: None,
            witness: false,
            volatile: None,
        };
        if arguments.memory_bound.is_some() && arguments.db == Db::Sqlite {
            bail!("--memory-bound: SQLite has no server");
        }
        let bound = arguments.memory_bound.map(MemoryBound::new).transpose()?;
        let mut loader = make(arguments.memory.max(LOADING_BYTES))?;
        loader.create()?;
        loader.start(&ended)?;
        load(&*loader.database(), &ended).map_err(|error| said(&*loader, error))?;
        loader.stop()?;
        let loaded_bytes = place.loaded_bytes()?;
        Ok(Testbed { server, bound, place, devices, variants, ended, loaded_bytes, quiet })
    }

    /// Mounts a fresh copy of the database as the variant says and starts the server there; also returns the server's
    /// start-up time.
    pub fn start(&mut self, variant: &Variant) -> Result<(Mounted, Duration)> {
        self.place.renew()?;
        let (mounted, _) = self.devices.mount(&self.place, variant)?;
        self.server.move_to(&self.place.mountpoint());
        let started = Instant::now();
        self.start_server()?;
        Ok((mounted, started.elapsed()))
    }

    /// Starts the server where it is, and bounds its memory.
    pub fn start_server(&mut self) -> Result<()> {
        self.server.start(&self.ended)?;
        Ok(self.bound.as_ref().map_or(Ok(()), |bound| bound.take(&self.server.processes()))?)
    }

    /// Findings of the witness of the run under way, if there is one.
    pub fn findings(&self) -> Option<Findings> {
        self.devices.witness.then(|| Findings::read(self.place.run()))
    }

    /// Pages of a cache of this size over the loaded database.
    pub fn cache_pages(&self, size: Size) -> Result<u64> {
        let page_size = self.devices.page_size;
        let pages = size.pages(page_size, self.loaded_bytes / u64::from(page_size));
        if pages < 64 {
            bail!("--cache-size: {pages} pages of {page_size} B; a cache has at least 64");
        }
        Ok(pages)
    }

    /// Description of the databases and devices, for readers of the results.
    pub fn setting(&self, arguments: &TestbedArgs) -> Vec<(&'static str, String)> {
        let device = |name: &Option<String>| match name {
            Some(name) => format!("{name}, emulated"),
            None => "a file of this machine".to_owned(),
        };
        vec![
            ("its own buffer pool", mib(arguments.memory)),
            ("memory of its processes", arguments.memory_bound.map_or("not bounded".to_owned(), mib)),
            ("backing device", device(&arguments.backing_profile)),
            ("cache device", device(&arguments.cache_profile)),
            ("pages of a cache", self.layouts()),
            ("logs and temporary files", "past the cache, on this machine's file system".to_owned()),
        ]
    }

    /// The layouts of the policies' caches.
    fn layouts(&self) -> String {
        let of = |layout: Layout| {
            let names: Vec<_> =
                self.variants.iter().filter(|v| self.devices.layout_of(v) == Some(layout)).map(Variant::name).collect();
            (!names.is_empty()).then(|| format!("{}: {}", layout.name(), names.join(", ")))
        };
        let kept: Vec<_> = [Layout::Log, Layout::Slots, Layout::Segments].into_iter().filter_map(of).collect();
        if kept.is_empty() { "none".to_owned() } else { kept.join("; ") }
    }
}

/// The error with the last log lines of a server whose statement failed.
pub fn said(server: &dyn Server, error: anyhow::Error) -> anyhow::Error {
    let said = server.said().join(" | ");
    if said.is_empty() { error } else { error.context(format!("the server said: {said}")) }
}

/// A number of bytes for display.
pub fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}
