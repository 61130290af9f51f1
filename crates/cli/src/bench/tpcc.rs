//! `entresol bench tpcc`.

use super::daemon::{CacheFigures, DeviceFigures, Figures};
use super::mounted::Mounted;
use super::place::Place;
use super::variant::{Devices, Variant};
use super::{kill, report};
use crate::args::bytes;
use crate::live::serve::ModeArg;
use crate::output;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use entresol_bench::drive::{self, Plan, Ran, Watch};
use entresol_bench::driver::Database;
use entresol_bench::server::{MariaDbServer, Owner, PostgreSqlServer, Server, Setup, SqliteFile};
use entresol_bench::tpcc::{LOADED, Ledger, Scale, broken, conditions, load};
use entresol_core::Size;
use entresol_device::profile;
use entresol_report::{Progress, Unit};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Run a TPC-C-like load on a private database, without a cache and with one under several policies
///
/// The five transactions of TPC-C in its mix, without think times; not audited, and no tpmC in the specification's sense.
/// PostgreSQL and MariaDB are those that this machine has installed: each is started in a directory of its own, on a Unix
/// socket, as a user without rights, and removed with everything else at the end. Each run begins with a fresh copy of
/// the loaded database on a mount of its own; logs and temporary files go past the cache. After each run consistency
/// conditions 1 to 10 and 12 of the specification's clause 3.3.2 are checked, and that nothing is lost which a client was
/// told is committed.
#[derive(Args)]
pub struct TpccArgs {
    /// The database
    #[arg(long, value_enum, default_value = "sqlite")]
    pub db: Db,
    /// Warehouses, of about 100 MB each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub warehouses: u64,
    /// Divide items, customers and orders by this, for a try
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub shrink: u64,
    /// Connections that work at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub clients: u64,
    /// How long each run is measured: 90s, 5m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub duration: Duration,
    /// How long each run goes before that
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub warmup: Duration,
    /// What is compared, separated by commas: policies (`entresol policies` lists them), or none for no cache
    #[arg(long, value_name = "LIST", default_value = "none,face-gsc", value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Compare the database on the cache's device alone, too
    #[arg(long, requires = "cache_profile")]
    pub ssd_only: bool,
    /// What becomes of writes to the cache
    #[arg(long, value_enum, default_value = "write-back")]
    pub mode: ModeArg,
    /// Pages that the cache keeps, of the loaded database; the log that they lie in takes a third more
    #[arg(long, value_name = "SIZE", default_value = "10%")]
    pub cache_size: Size,
    /// Memory for the upper tier of policies that manage two [default: the policy's own share]
    #[arg(long, value_name = "SIZE")]
    pub dram: Option<Size>,
    /// Bytes of a page of the cache [default: the database's: 4096 SQLite, 8192 PostgreSQL, 16384 MariaDB]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub page_size: Option<u64>,
    /// Emulate this device below: a profile of the house (an unknown one lists them) or a TOML file
    #[arg(long, value_name = "PROFILE")]
    pub backing_profile: Option<String>,
    /// Emulate this device for the cache
    #[arg(long, value_name = "PROFILE")]
    pub cache_profile: Option<String>,
    /// Memory of the database's own buffer pool
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = bytes)]
    pub memory: u64,
    /// Time between checkpoints of PostgreSQL
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = time)]
    pub checkpoint: Duration,
    /// Run everything so often, one after the other in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeat: u32,
    /// Kill these under load instead, again and again, and check what is left
    #[arg(long, value_enum)]
    pub kill: Option<Victim>,
    /// How often
    #[arg(long, value_name = "N", default_value_t = 10, requires = "kill", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Seed of the load and of the emulated devices
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Where the databases are while it runs; every user must be able to get there [default: the system's temporary files]
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
    fn page_bytes(self) -> u64 {
        match self {
            Db::Sqlite => 4096,
            Db::Postgresql => 8192,
            Db::Mariadb => 16384,
        }
    }
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Victim {
    /// The process with the cache, and the server once it has noticed
    Daemon,
    /// The database server
    Server,
    /// Both at once
    Both,
}

/// A time as a person writes it.
fn time(text: &str) -> Result<Duration, String> {
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

/// A run that was measured.
pub struct Measured {
    pub variant: Variant,
    /// From 1.
    pub repeat: u32,
    pub ran: Ran,
    pub cache: Option<CacheFigures>,
    pub cache_device: Option<DeviceFigures>,
    pub backing_device: Option<DeviceFigures>,
    /// Time between the two looks at the figures.
    pub looked_s: f64,
    /// How long the server took to be ready.
    pub ready: Duration,
    /// What the checks found wrong.
    pub faults: Vec<String>,
}

/// All that a benchmark works with. The order is that of the end: the server, then the place.
pub struct Bench<'a> {
    pub arguments: &'a TpccArgs,
    pub server: Box<dyn Server>,
    pub place: Place,
    pub devices: Devices,
    pub variants: Vec<Variant>,
    pub ended: Arc<AtomicBool>,
    pub loaded_bytes: u64,
    pub quiet: bool,
}

/// Runs the command.
pub fn run(arguments: &TpccArgs, quiet: bool) -> Result<()> {
    for path in [&arguments.json, &arguments.html].into_iter().flatten() {
        output::check_writable(path)?;
    }
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, ended.clone()).context("signals")?;
    }
    let mut bench = Bench::prepare(arguments, ended, quiet)?;
    if let Some(victim) = arguments.kill {
        return kill::run(&mut bench, victim);
    }
    let mut runs = Vec::new();
    let each = (arguments.warmup + arguments.duration).as_secs();
    let total = each * u64::from(arguments.repeat) * bench.variants.len() as u64;
    let bar = Progress::start("measuring", Some(total), Unit::Items("s"), quiet);
    let order =
        (1..=arguments.repeat).flat_map(|repeat| bench.variants.clone().into_iter().map(move |its| (repeat, its)));
    let mut failed = None;
    for (repeat, variant) in order.collect::<Vec<_>>() {
        match bench.measure(&variant, repeat, &bar) {
            Ok(measured) => {
                if !quiet {
                    bar.aside(|| eprintln!("{}", report::line(&measured)));
                }
                runs.push(measured);
            }
            // What was measured before is told all the same.
            Err(error) => {
                failed = Some(error.context(format!("{}, run {repeat}", variant.name())));
                break;
            }
        }
    }
    drop(bar);
    if let Some(error) = failed.take_if(|_| runs.is_empty()) {
        return Err(error);
    }
    let told = report::Told {
        arguments,
        server: bench.server.name(),
        loaded_bytes: bench.loaded_bytes,
        devices: &bench.devices,
        runs: &runs,
    };
    output::print(&report::text(&told))?;
    if let Some(path) = &arguments.json {
        output::write_file(path, report::json(&told)?.as_bytes())?;
    }
    if let Some(path) = &arguments.html {
        output::write_file(path, report::page(&told).to_html().as_bytes())?;
    }
    if let Some(error) = failed {
        return Err(error);
    }
    if let Some(run) = runs.iter().find(|run| !run.faults.is_empty()) {
        bail!("{}: the database is not what it should be: {}", run.variant.name(), run.faults.join("; "));
    }
    Ok(())
}

impl<'a> Bench<'a> {
    /// Makes the place, the server and the database that all runs begin with.
    fn prepare(arguments: &'a TpccArgs, ended: Arc<AtomicBool>, quiet: bool) -> Result<Self> {
        if arguments.db == Db::Sqlite && matches!(arguments.kill, Some(Victim::Server | Victim::Both)) {
            bail!("--kill: SQLite has no server; the process with the cache can be killed (--kill daemon)");
        }
        let mut variants = arguments.policy.iter().map(|name| Variant::parse(name)).collect::<Result<Vec<_>>>()?;
        if arguments.ssd_only {
            variants.push(Variant::SsdOnly);
        }
        for name in [&arguments.backing_profile, &arguments.cache_profile].into_iter().flatten() {
            profile::load(name)?;
        }
        // SQLite's processes are this one, which must get at the mount.
        let owner = if arguments.db == Db::Sqlite { Owner::own() } else { Owner::dropping(&arguments.user)? };
        let page_size = u32::try_from(arguments.page_size.unwrap_or(arguments.db.page_bytes()))?;
        let scratch = arguments.scratch.clone().unwrap_or_else(std::env::temp_dir);
        let setup = |place: &Place, memory_bytes| Setup {
            data: place.loaded(),
            run: place.run().to_owned(),
            owner: place.owner().clone(),
            memory_bytes,
            connections: arguments.clients as usize,
            checkpoint: arguments.checkpoint,
        };
        let make = |setup: Setup| -> Result<Box<dyn Server>> {
            Ok(match arguments.db {
                Db::Sqlite => Box::new(SqliteFile::new(setup)),
                Db::Postgresql => Box::new(PostgreSqlServer::new(setup)?),
                Db::Mariadb => Box::new(MariaDbServer::new(setup)?),
            })
        };
        let place = Place::make(&scratch, owner)?;
        let server = make(setup(&place, arguments.memory))?;
        let devices = Devices {
            backing_profile: arguments.backing_profile.clone(),
            cache_profile: arguments.cache_profile.clone(),
            mode: arguments.mode,
            page_size,
            pages: 0,
            dram: arguments.dram,
            seed: arguments.seed,
        };
        let mut bench = Bench { arguments, server, place, devices, variants, ended, loaded_bytes: 0, quiet };
        // A load needs memory that the runs shall not have.
        let mut loader = make(setup(&bench.place, arguments.memory.max(256 << 20)))?;
        bench.load(&mut *loader)?;
        bench.loaded_bytes = bench.place.loaded_bytes()?;
        let pages = arguments.cache_size.pages(page_size, bench.loaded_bytes / u64::from(page_size));
        bench.devices.pages = pages;
        if pages < 64 {
            bail!("--cache-size: {pages} pages of {page_size} B; a cache has at least 64");
        }
        Ok(bench)
    }

    pub fn scale(&self) -> Scale {
        Scale::new(self.arguments.warehouses).shrunk(self.arguments.shrink)
    }

    fn load(&self, server: &mut dyn Server) -> Result<()> {
        server.create()?;
        server.start(&self.ended)?;
        let scale = self.scale();
        let bar = Progress::start("loading", Some(scale.rows_about()), Unit::Items("rows"), self.quiet);
        let mut session = server.database().connect()?;
        load(&mut *session, scale, self.arguments.seed, &self.ended, &|rows| bar.advance(rows))?;
        bar.note("checking");
        let mut faults = broken_conditions(&*server.database())?;
        if broken(&mut *session, &LOADED)? > 0 {
            faults.push(format!("condition {}: {}", LOADED.number, LOADED.says));
        }
        drop(session);
        server.stop()?;
        if !faults.is_empty() {
            bail!("what was loaded is not what it should be: {}", faults.join("; "));
        }
        Ok(())
    }

    pub fn plan(&self, first_client: u64, warmup: Duration, duration: Duration) -> Plan {
        let clients = self.arguments.clients;
        Plan { scale: self.scale(), seed: self.arguments.seed, first_client, clients, warmup, duration }
    }

    /// A run of one variant on a fresh copy.
    fn measure(&mut self, variant: &Variant, repeat: u32, bar: &Progress) -> Result<Measured> {
        bar.note(format!("{}, run {repeat}: starting", variant.name()));
        self.place.renew()?;
        let (mut mounted, _) = self.devices.mount(&self.place, variant)?;
        self.server.move_to(&self.place.mountpoint());
        let started = Instant::now();
        self.server.start(&self.ended)?;
        let ready = started.elapsed();
        let plan = self.plan(0, self.arguments.warmup, self.arguments.duration);
        let watch = Watch { ended: self.ended.clone(), ..Watch::default() };
        let database = self.server.database();
        let (ran, before, after, looked_s) = self.drive(&*database, &plan, &watch, &mut mounted, variant, bar)?;
        // What comes now is not measured.
        mounted.ask("hurry")?;
        bar.note(format!("{}, run {repeat}: checking", variant.name()));
        let faults = self.faults(&ran.ledger)?;
        self.server.stop()?;
        mounted.close()?;
        let since = |of: fn(&Figures) -> Option<DeviceFigures>| Some(of(&after)?.since(&of(&before)?));
        let cache = after.cache.zip(before.cache).map(|(after, before)| after.since(&before));
        let measured = Measured {
            variant: variant.clone(),
            repeat,
            cache,
            cache_device: since(|figures| figures.cache_device),
            backing_device: since(|figures| figures.backing_device),
            looked_s,
            ran,
            ready,
            faults,
        };
        self.place.clear()?;
        Ok(measured)
    }

    /// Runs the clients and looks at the figures when counting begins and when it ends.
    fn drive(
        &self,
        database: &dyn Database,
        plan: &Plan,
        watch: &Watch,
        mounted: &mut Mounted,
        variant: &Variant,
        bar: &Progress,
    ) -> Result<(Ran, Figures, Figures, f64)> {
        std::thread::scope(|scope| {
            let clients = scope.spawn(|| drive::run(database, plan, watch));
            let (started, mut shown, mut before, mut looked) = (Instant::now(), 0, None, Instant::now());
            while !clients.is_finished() {
                std::thread::sleep(Duration::from_millis(20));
                if before.is_none() && watch.counting.load(Relaxed) {
                    before = Some(mounted.ask("figures")?);
                    looked = Instant::now();
                }
                let seconds = started.elapsed().as_secs().min((plan.warmup + plan.duration).as_secs());
                if seconds > shown {
                    bar.advance(seconds - shown);
                    shown = seconds;
                    let rate = watch.new_orders.load(Relaxed) as f64 * 60.0 / started.elapsed().as_secs_f64();
                    bar.note(format!("{}: {rate:.0} new orders/min", variant.name()));
                }
            }
            let ran = clients.join().expect("clients do not panic").map_err(|error| {
                let said = self.server.said().join(" | ");
                let error = anyhow::Error::new(error);
                if said.is_empty() { error } else { error.context(format!("the server said: {said}")) }
            })?;
            let after = mounted.ask("figures")?;
            Ok((ran, before.unwrap_or_default(), after, looked.elapsed().as_secs_f64()))
        })
    }

    /// What is wrong with the database.
    pub fn faults(&self, ledger: &Ledger) -> Result<Vec<String>> {
        let database = self.server.database();
        let mut faults = broken_conditions(&*database)?;
        let mut session = database.connect()?;
        let mut lost = ledger.faults(&mut *session, self.scale().customers as i64 + 1)?;
        let more = lost.len().saturating_sub(10);
        lost.truncate(10);
        faults.append(&mut lost);
        if more > 0 {
            faults.push(format!("and {more} more"));
        }
        Ok(faults)
    }
}

/// Conditions of the specification that do not hold.
fn broken_conditions(database: &dyn Database) -> Result<Vec<String>> {
    let mut session = database.connect()?;
    let mut faults = Vec::new();
    for condition in conditions() {
        let rows = broken(&mut *session, condition)?;
        if rows > 0 {
            faults.push(format!("condition {} ({}) is broken in {rows} rows", condition.number, condition.says));
        }
    }
    Ok(faults)
}
