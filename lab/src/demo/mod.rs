//! `entresol-lab demo`: a TPC-C-like load on SQLite over a slow disk. Runs are without a cache, with one under several
//! policies, with a kill, and with the same stream of requests in the simulator.

mod crash;
mod report;
mod slow;
mod tpcc;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use entresol_cli::shared as output;
use entresol_core::Size;
use entresol_device::profile::{self, Profile};
use entresol_disk::{Caching, FileDisk};
use entresol_policy::{Info, catalogue};
use entresol_render::{Progress, Unit};
use entresol_sim::{Addresses, CellOptions, LayerSpec, PolicySpec, run_cell};
use entresol_sqlite::{Api, Mode, Options, register};
use entresol_trace::{LoadOptions, load};
use rusqlite::{Connection, OpenFlags};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Run a TPC-C-like load on SQLite over an emulated disk, without a cache and with one, with a kill and a simulation
///
/// Needs no server and no root. Everything goes into one directory: databases, caches, recorded requests and the report.
#[derive(Args)]
pub struct DemoArgs {
    /// The directory, which is made where absent; what an earlier demo left in it is replaced
    #[arg(long, value_name = "DIR", default_value = "entresol-demo")]
    pub out: PathBuf,
    /// Transactions of each run
    #[arg(long, value_name = "N", default_value_t = 250, value_parser = clap::value_parser!(u64).range(50..=100_000))]
    pub transactions: u64,
    /// Seed of the load
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// The device that the database lies on: a built-in profile or a TOML file
    #[arg(long, value_name = "PROFILE", default_value = "face-disk")]
    pub model: String,
    /// Run the part that is killed: transactions without an end
    #[arg(long, hide = true)]
    pub victim: bool,
}

/// Policies that are shown; one of two tiers gets memory besides.
const POLICIES: [&str; 4] = ["lru", "arc", "h-arc", "face-gsc"];
/// Policy of the cache that is killed and recovers.
const KILLED: &str = "face-gsc";
const PAGE_BYTES: u32 = 4096;
/// Size of a cache file.
const CACHE_BYTES: u64 = 6 << 20;
/// Memory of the upper tier of a policy that has two, in pages.
const DRAM_PAGES: u64 = 128;
/// Largest size of the database: no more than the smallest emulated device holds.
const CAPACITY_BYTES: u64 = 16 << 30;
/// Handles for every page of the database, so that the directory is the simulator's.
const HANDLES: usize = 1 << 16;
/// Transactions between two samples of the hit ratio.
const WINDOW: u64 = 25;
const DEVICE_SEED: u64 = 1;

/// Requested pages, and hits among them, since the cache was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    pub requests: u64,
    pub found: u64,
    pub written_back: u64,
}

impl Hits {
    fn ratio(self) -> f64 {
        self.found as f64 / self.requests.max(1) as f64
    }

    fn since(self, before: Hits) -> Hits {
        Hits {
            requests: self.requests - before.requests,
            found: self.found - before.found,
            written_back: self.written_back - before.written_back,
        }
    }
}

/// Results of a run of the load.
pub struct Ran {
    pub name: &'static str,
    pub took: Duration,
    /// Hits after each window of transactions; empty without a cache.
    pub series: Vec<Hits>,
    /// Hits of the same requests in the simulator.
    pub simulated: Option<Hits>,
}

impl Ran {
    fn hits(&self) -> Option<Hits> {
        self.series.last().copied()
    }
}

/// Arguments of the demo, the profile of its emulated device, and whether it is quiet.
struct Demo<'a> {
    arguments: &'a DemoArgs,
    profile: Profile,
    quiet: bool,
}

pub fn run(arguments: &DemoArgs, quiet: bool) -> Result<()> {
    let profile = profile::load(&arguments.model)?;
    let demo = Demo { arguments, profile, quiet };
    if arguments.victim {
        return demo.victim();
    }
    fs::create_dir_all(&arguments.out).with_context(|| arguments.out.display().to_string())?;
    let started = Instant::now();
    let pages = demo.load()?;
    let mut runs = vec![demo.measure("no cache", None)?];
    for name in POLICIES {
        let mut ran = demo.measure(name, Some(catalogue::info(name)?))?;
        ran.simulated = Some(demo.simulate(&ran)?);
        runs.push(ran);
    }
    let crash = demo.crash(&runs)?;
    let report = report::Report { arguments, about: &demo.profile.about, pages, runs: &runs, crash: &crash };
    output::print(&report::text(&report))?;
    let page = arguments.out.join("demo.html");
    output::write_file(&page, report::page(&report).to_html().as_bytes())?;
    if !quiet {
        say!("the report: {}; it took {:.0} s", page.display(), started.elapsed().as_secs_f64());
    }
    if runs.iter().any(|run| run.simulated.is_some_and(|simulated| Some(simulated) != run.hits())) {
        bail!("what was measured is not what was simulated");
    }
    Ok(())
}

impl Demo<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.arguments.out.join(name)
    }

    fn bar(&self, doing: &str, total: u64, what: &'static str) -> Progress {
        Progress::start(doing, Some(total), Unit::Items(what), self.quiet)
    }

    /// Makes the database that every run begins with; returns its number of pages.
    fn load(&self) -> Result<u64> {
        let path = self.path("loaded.db");
        remove(&path)?;
        let connection = Connection::open(&path).with_context(|| path.display().to_string())?;
        connection.execute_batch(&format!("PRAGMA page_size={PAGE_BYTES}; PRAGMA synchronous=off"))?;
        let bar = self.bar("loading", tpcc::LOADED_ROWS, "rows");
        tpcc::load(&connection, self.arguments.seed, &|rows| bar.advance(rows))?;
        Ok(connection.query_row("PRAGMA page_count", [], |row| row.get(0))?)
    }

    /// Options of the cache of a run, without the trace of its requests.
    fn options(&self, name: &str, policy: Option<&Info>) -> Options {
        Options {
            cache: policy.map(|_| self.path(&format!("{name}.cache"))),
            policy: policy.map(|info| info.name.to_owned()),
            mode: Mode::WriteBack,
            dram: policy.filter(|info| info.tiers.len() == 2).map(|_| Size::Pages(DRAM_PAGES)),
            size_bytes: CACHE_BYTES,
            page_bytes: PAGE_BYTES,
            handles: Some(HANDLES),
            capacity_bytes: CAPACITY_BYTES,
            below: Some(slow::below(self.profile.clone(), DEVICE_SEED)),
            ..Options::default()
        }
    }

    /// A fresh copy of the loaded database, without a cache yet.
    fn copy(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(&format!("{name}.db"));
        for file in [path.clone(), self.path(&format!("{name}.cache"))] {
            remove(&file)?;
        }
        fs::copy(self.path("loaded.db"), &path).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Opens a database through a VFS of its own.
    fn open(&self, path: &Path, vfs: &str, options: Options) -> Result<Connection> {
        register(Api::linked(), vfs, options, false)?;
        let opened = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs);
        let connection = opened.with_context(|| path.display().to_string())?;
        // A small cache of SQLite's own, as for a database much larger than memory; checkpoints by default.
        let set = "PRAGMA journal_mode=wal; PRAGMA synchronous=full; PRAGMA cache_size=-256";
        connection.execute_batch(set).with_context(|| path.display().to_string())?;
        Ok(connection)
    }

    /// Runs the load once on a fresh copy.
    fn measure(&self, name: &'static str, policy: Option<&Info>) -> Result<Ran> {
        let file = name.replace(' ', "-");
        let path = self.copy(&file)?;
        let trace = Some(self.path(&format!("{file}.csv")));
        let options = Options { trace, ..self.options(&file, policy) };
        let connection = self.open(&path, &format!("demo-{file}"), options)?;
        let bar = self.bar(name, self.arguments.transactions, "transactions");
        let (started, mut series) = (Instant::now(), Vec::new());
        for number in 1..=self.arguments.transactions {
            tpcc::transaction(&connection, self.arguments.seed, number)?;
            bar.advance(1);
            if policy.is_some() && (number.is_multiple_of(WINDOW) || number == self.arguments.transactions) {
                series.push(hits(&connection)?);
            }
        }
        let took = started.elapsed();
        drop(bar);
        connection.close().map_err(|(_, error)| error)?;
        Ok(Ran { name, took, series, simulated: None })
    }

    /// Replays the recorded requests of a run through its policy in the simulator.
    fn simulate(&self, ran: &Ran) -> Result<Hits> {
        let info = catalogue::info(ran.name)?;
        let measured = ran.hits().context("a run with a cache")?;
        // Closing the database made further requests after the figures were taken.
        let limit = Some(measured.requests);
        let options = LoadOptions { page_bytes: Some(PAGE_BYTES), limit, ..LoadOptions::default() };
        let loaded = load(&self.path(&format!("{}.csv", ran.name)), &options)?;
        ensure!(loaded.trace.len() as u64 == measured.requests, "the recording of {} is not complete", ran.name);
        let cache = FileDisk::open(&self.path(&format!("{}.cache", ran.name)), Caching::Buffered)?;
        let space = entresol_store::geometry(&cache)?.capacity_pages();
        let sizes = if info.tiers.len() == 2 { vec![DRAM_PAGES, space] } else { vec![space] };
        let policy = PolicySpec { info, options: entresol_policy::Options::defaults(info) };
        let layer = LayerSpec { policy, sizes: sizes.into_iter().map(Size::Pages).collect() };
        let options = CellOptions { seed: 42, ..CellOptions::default() };
        let row = run_cell(&Addresses::new(&loaded.trace), &[layer], String::new(), &options)?;
        Ok(Hits { requests: row.requests, found: row.read_hits + row.write_hits, written_back: row.write_backs })
    }
}

/// Counts of the cache since it was opened.
fn hits(connection: &Connection) -> Result<Hits> {
    let text: String = connection.query_row("PRAGMA entresol_stats", [], |row| row.get(0))?;
    let count = |name: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.context("a figure of the cache")?.parse().context("a figure of the cache")
    };
    Ok(Hits {
        requests: count("reads")? + count("writes")?,
        found: count("read_hits")? + count("write_hits")?,
        written_back: count("write_backs")?,
    })
}

/// Removes a file, and SQLite's files beside it.
fn remove(path: &Path) -> Result<()> {
    for ending in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        match fs::remove_file(&name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| name.to_string_lossy().into_owned());
            }
            _ => {}
        }
    }
    Ok(())
}
