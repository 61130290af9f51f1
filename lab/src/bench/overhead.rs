//! `entresol-lab bench overhead`: the cost of a mount and a cache for loads that they cannot speed up.

use super::daemon::CacheFigures;
use super::mounted::Mounted;
use super::overhead_report as report;
use super::testbed::{Testbed, TestbedArgs, Wanted, mib, said, time};
use super::tpcc::loaded;
use super::turns::{Turns, tell};
use super::variant::Variant;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use entresol_bench::BenchError;
use entresol_bench::driver::Database;
use entresol_bench::plain::{Client, Load, Pass, pass, round};
use entresol_bench::server::processor_time;
use entresol_bench::tpcc::Scale;
use entresol_cli::shared::word;
use entresol_core::Size;
use entresol_render::{Progress, Unit};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Measure the cost of a mount and a cache to a private database where they can speed nothing up
///
/// The tables are those of `entresol-lab bench tpcc`. With --load scan all of a table larger than pool and cache is
/// read in order. With --load reads,updates and as much --memory everything lies in the database's own pool. In each
/// of --repeat rounds the database lies in a plain directory first, then on each mount of --policy. Throughput and
/// processor time (of server, mount and clients together) are compared with those of the first in the same round; the
/// table shows medians.
#[derive(Args)]
pub struct OverheadArgs {
    /// Loads, separated by commas
    #[arg(long, value_enum, value_name = "LIST", default_value = "scan", value_delimiter = ',')]
    pub load: Vec<LoadArg>,
    /// Warehouses, of about 100 MB each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub warehouses: u64,
    /// Divide items, customers and orders by this, for a try
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub shrink: u64,
    /// Connections that read and change rows at the same time; one alone scans
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub clients: u64,
    /// Time for which each load is measured; what was begun by then is finished
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub duration: Duration,
    /// Warm-up of each load before that
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    pub warmup: Duration,
    /// Mounts to compare with the directory, separated by commas: policies, or none for a mount without a cache
    ///
    /// The directory cannot be on an emulated device: with --backing-profile the first of these is what the others are compared
    /// with.
    #[arg(long, value_name = "LIST", default_value = "none,face-gsc", value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Pages that the cache keeps, of the loaded database
    #[arg(long, value_name = "SIZE", default_value = "10%")]
    pub cache_size: Size,
    #[command(flatten)]
    pub testbed: TestbedArgs,
}

/// A load as it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadArg {
    /// Rows by key
    Reads,
    /// One in ten is changed
    Updates,
    /// All of a table in order
    Scan,
    /// The same, each time after the kernel has forgotten what it held of files, which root alone can make it do
    ColdScan,
}

impl LoadArg {
    fn is_scan(self) -> bool {
        matches!(self, LoadArg::Scan | LoadArg::ColdScan)
    }
}

impl From<LoadArg> for Load {
    fn from(load: LoadArg) -> Self {
        match load {
            LoadArg::Reads => Load::Reads,
            LoadArg::Updates => Load::Updates,
            LoadArg::Scan | LoadArg::ColdScan => Load::Scan,
        }
    }
}

/// Place of the database: a directory, or a mount over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    Directory,
    Mount(Variant),
}

impl On {
    pub fn name(&self) -> &str {
        match self {
            On::Directory => "directory",
            On::Mount(variant) => variant.name(),
        }
    }
}

/// One measurement of a load.
pub struct Timed {
    pub load: LoadArg,
    pub pass: Pass,
    pub processor: Spent,
    /// Counts of the cache while the load was measured; none without a cache.
    pub cache: Option<CacheFigures>,
}

/// Processor time by process.
#[derive(Clone, Copy, Default)]
pub struct Spent {
    pub server: Duration,
    pub mount: Duration,
    /// The clients and the code that drives them.
    pub clients: Duration,
}

impl Spent {
    pub fn all(&self) -> Duration {
        self.server + self.mount + self.clients
    }

    fn with(&self, other: &Spent, of: fn(Duration, Duration) -> Duration) -> Spent {
        Spent {
            server: of(self.server, other.server),
            mount: of(self.mount, other.mount),
            clients: of(self.clients, other.clients),
        }
    }

    fn plus(&self, other: &Spent) -> Spent {
        self.with(other, |one, more| one + more)
    }

    fn since(&self, before: &Spent) -> Spent {
        self.with(before, Duration::saturating_sub)
    }
}

/// All loads at one place, measured once.
pub struct Measured {
    pub on: On,
    /// Number of the repetition, from 1.
    pub repeat: u32,
    pub loads: Vec<Timed>,
}

/// Writes dirty pages and makes the kernel drop its cached file pages.
fn drop_kernel_caches() -> Result<()> {
    const SWITCH: &str = "/proc/sys/vm/drop_caches";
    rustix::fs::sync();
    std::fs::write(SWITCH, "1").with_context(|| format!("{SWITCH}; --load cold-scan is for root"))
}

/// A benchmark with its testbed.
struct Bench<'a> {
    arguments: &'a OverheadArgs,
    testbed: Testbed,
    scale: Scale,
}

pub fn run(arguments: &OverheadArgs, quiet: bool) -> Result<()> {
    let mut bench = Bench::prepare(arguments, quiet)?;
    let directory = arguments.testbed.backing_profile.is_none().then_some(On::Directory);
    let places: Vec<On> = directory.into_iter().chain(bench.testbed.variants.iter().cloned().map(On::Mount)).collect();
    if places.len() < 2 {
        bail!("--policy: with --backing-profile there is no directory to compare with, so two are needed");
    }
    let total = places.len() * arguments.load.len() * arguments.testbed.repeat as usize;
    let bar = Progress::start("measuring", Some(total as u64), Unit::Items("loads"), quiet);
    let measure = |on: &On, repeat| bench.measure(on, repeat, &bar);
    let turns = Turns::take(
        &places,
        arguments.testbed.repeat,
        &bar,
        |on| on.name().to_owned(),
        measure,
        |run| {
            if !quiet {
                eprint!("{}", report::lines(run));
            }
        },
    );
    drop(bar);
    let turns = turns?;
    let report = report::Report { arguments, testbed: &bench.testbed, runs: &turns.runs };
    tell(&arguments.testbed, &report::text(&report), || report::json(&report), || report::page(&report))?;
    turns.end().map(drop)
}

impl<'a> Bench<'a> {
    fn prepare(arguments: &'a OverheadArgs, quiet: bool) -> Result<Self> {
        let scale = Scale::new(arguments.warehouses).shrunk(arguments.shrink);
        let seed = arguments.testbed.seed;
        let load = |database: &dyn Database, ended: &AtomicBool| loaded(scale, seed, database, ended, quiet);
        let wanted = Wanted { connections: arguments.clients as usize, checkpoint: Duration::from_secs(3600) };
        let mut testbed = Testbed::prepare(&arguments.testbed, &arguments.policy, wanted, quiet, load)?;
        testbed.devices.pages = testbed.cache_pages(arguments.cache_size)?;
        let (bytes, memory) = (testbed.loaded_bytes, arguments.testbed.memory);
        if memory < bytes && arguments.load.iter().any(|load| !load.is_scan()) {
            bail!(
                "--memory: {} for a database of {}: for reads and updates it is to have room for all",
                mib(memory),
                mib(bytes)
            );
        }
        Ok(Bench { arguments, testbed, scale })
    }

    /// Measures all loads on a fresh copy.
    fn measure(&mut self, on: &On, repeat: u32, bar: &Progress) -> Result<Measured> {
        bar.note(format!("{}, run {repeat}: starting", on.name()));
        let mut mounted = match on {
            On::Mount(variant) => Some(self.testbed.start(variant)?.0),
            On::Directory => {
                self.testbed.place.renew()?;
                self.testbed.server.move_to(&self.testbed.place.work());
                self.testbed.start_server()?;
                None
            }
        };
        let mut loads = Vec::new();
        for &load in &self.arguments.load {
            bar.note(format!("{}, run {repeat}: {}", on.name(), word(load)));
            let timed = self.time(load, mounted.as_mut());
            loads.push(timed.map_err(|error| said(&*self.testbed.server, error))?);
            bar.advance(1);
        }
        if let Some(mounted) = &mut mounted {
            // The rest is not measured.
            mounted.ask("hurry")?;
        }
        self.testbed.server.stop()?;
        if let Some(mounted) = mounted {
            mounted.close()?;
        }
        self.testbed.place.clear()?;
        Ok(Measured { on: on.clone(), repeat, loads })
    }

    fn time(&mut self, load: LoadArg, mut mounted: Option<&mut Mounted>) -> Result<Timed> {
        let database = self.testbed.server.database();
        let (seed, number) = (self.arguments.testbed.seed, if load.is_scan() { 1 } else { self.arguments.clients });
        let connect = |client| Client::connect(&*database, load.into(), self.scale, seed, client);
        let mut clients = (0..number).map(connect).collect::<Result<Vec<_>, _>>()?;
        let ended = self.testbed.ended.clone();
        pass(&mut clients, self.arguments.warmup, &ended)?;
        let figures = |mounted: &mut Option<&mut Mounted>| match mounted {
            Some(mounted) => mounted.ask("figures").map(|figures| figures.cache),
            None => Ok(None),
        };
        let cache_before = figures(&mut mounted)?;
        let duration = self.arguments.duration;
        let (pass, processor) = match load {
            LoadArg::ColdScan => {
                let (mut sum, mut processor) = (Pass::default(), Spent::default());
                while sum.took < duration {
                    drop_kernel_caches()?;
                    let (one, spent) = self.counted(&mut mounted, || round(&mut clients, &ended))?;
                    sum.operations += one.operations;
                    sum.took += one.took;
                    processor = processor.plus(&spent);
                }
                (sum, processor)
            }
            _ => self.counted(&mut mounted, || pass(&mut clients, duration, &ended))?,
        };
        let cache = figures(&mut mounted)?.zip(cache_before).map(|(now, before)| now.since(&before));
        Ok(Timed { load, pass, processor, cache })
    }

    /// Runs `work`; returns its result and the processor time that it took.
    fn counted(
        &mut self,
        mounted: &mut Option<&mut Mounted>,
        work: impl FnOnce() -> Result<Pass, BenchError>,
    ) -> Result<(Pass, Spent)> {
        let before = self.spent(mounted);
        let pass = work()?;
        Ok((pass, self.spent(mounted).since(&before)))
    }

    fn spent(&mut self, mounted: &mut Option<&mut Mounted>) -> Spent {
        Spent {
            server: self.testbed.server.processor_time(),
            mount: mounted.as_mut().map_or(Duration::ZERO, |mounted| mounted.processor_time()),
            clients: processor_time(std::process::id()),
        }
    }
}
