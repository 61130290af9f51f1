//! `entresol-lab bench survive`: a database under load, whose mount loses its server again and again.

use super::place::Place;
use super::testbed::{Db, time};
use super::tpcc::{broken_conditions, loaded};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use entresol_bench::drive::{self, Plan, Watch, acknowledged};
use entresol_bench::driver::Database;
use entresol_bench::outside::{Pace, Pgbench, Program, Script, Work};
use entresol_bench::server::{Guarded, MariaDbServer, Owner, PostgreSqlServer, Server, Setup, last_lines};
use entresol_bench::tpcc::Scale;
use entresol_cache::Mode;
use entresol_cli::shared::{self as output, Keyword, OnOff, bytes, keyword, layout, word};
use entresol_core::{Random, Size};
use entresol_device::load::Histogram;
use entresol_store::Layout;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Run a database on `entresol mount --restart on`, and kill the mount's server under it again and again
///
/// The database is loaded on a plain directory, which is then mounted with a cache. No client may see an error, all
/// acknowledged commits must be there at the end, and the database's own checker must find nothing. A further program
/// writes and reads 8 bytes of a file of the mount without pause: its longest step is the pause that programs see. It
/// must never read an older number than it wrote last.
#[derive(Args)]
pub struct SurviveArgs {
    /// The database: postgresql or mariadb
    #[arg(long, value_enum, default_value = "postgresql")]
    pub db: Db,
    /// The load: TPC-C's mix, or pgbench's own script on PostgreSQL
    #[arg(long, value_enum, default_value = "tpcc")]
    pub load: Load,
    /// Fate of the server of the mount
    #[arg(long, value_enum, default_value = "kill")]
    pub by: By,
    /// Number of times
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Warehouses of TPC-C, or hundred thousands of pgbench's accounts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub scale: u64,
    /// Divide items, customers and orders of TPC-C by this
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub shrink: u64,
    /// Connections that work at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub clients: u64,
    /// Longest time between two rounds; the shortest is a fifth of it
    #[arg(long, value_name = "TIME", default_value = "2500ms", value_parser = time)]
    pub between: Duration,
    /// The policy of the cache
    #[arg(long, default_value = "face-gsc")]
    pub policy: String,
    /// Bytes of the cache
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = bytes)]
    pub cache_size: u64,
    /// Memory above the cache, for a policy that manages two tiers
    #[arg(long, value_name = "SIZE")]
    pub dram: Option<Size>,
    /// Treatment of writes
    #[arg(long, value_parser = keyword::<Mode>(), default_value = "write-back")]
    pub mode: Mode,
    /// Layout of the cache
    #[arg(long, value_name = "log|slots|segments", value_parser = layout, default_value = "log")]
    pub layout: Layout,
    /// Use of the kernel's page cache above the mount
    #[arg(long, value_name = "WHETHER", value_enum, default_value = "on")]
    pub page_cache: OnOff,
    /// Memory of the database's own buffer pool
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = bytes)]
    pub memory: u64,
    /// The program `entresol`; every user must be able to run it
    #[arg(long, value_name = "FILE")]
    pub program: PathBuf,
    /// Directory of the database while it runs; every user must be able to get there [default: the system's temporary
    /// files]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// For root: the user that mount and server run as
    #[arg(long, value_name = "NAME", default_value = "nobody")]
    pub user: String,
    /// Seed of the load and of the times between rounds
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Write all figures to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// TPC-C's mix, whose clients keep a ledger of what was acknowledged
    Tpcc,
    /// pgbench's tpcb-like
    Pgbench,
}

/// Fate of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// SIGKILL
    Kill,
    /// SIGSTOP: a server that gives no sign of life is replaced
    Hang,
    /// SIGUSR2 to the holder: an upgrade in place
    Upgrade,
}

/// Longest time until another server answers.
const BACK_WITHIN: Duration = Duration::from_secs(60);
/// Longest time for a mount to end, which drains nothing.
const CLOSED_WITHIN: Duration = Duration::from_secs(300);
/// Silence after which a server counts as hung, where servers are stopped.
const WATCHDOG: &str = "2s";

/// Result of a run.
#[derive(Serialize)]
struct Survived {
    rounds: u32,
    /// Longest step of the program that writes and reads, in each round, in ms.
    pauses_ms: Vec<f64>,
    transactions: u64,
    /// Longest transaction in ms, where the load tells it.
    longest_transaction_ms: Option<f64>,
    faults: Vec<String>,
}

/// Runs the command.
pub fn run(arguments: &SurviveArgs, quiet: bool) -> Result<()> {
    if arguments.db == Db::Sqlite {
        bail!("--db: SQLite has no server that lives on");
    }
    if arguments.load == Load::Pgbench && arguments.db != Db::Postgresql {
        bail!("--load: pgbench drives PostgreSQL alone");
    }
    if let Some(path) = &arguments.json {
        output::check_writable(path)?;
    }
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, ended.clone()).context("signals")?;
    }
    let owner = Owner::dropping(&arguments.user)?;
    let scratch = arguments.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let place = Place::make(&scratch, owner)?;
    let generator = match arguments.load {
        Load::Tpcc => None,
        Load::Pgbench => {
            let pgbench = Pgbench { scale: arguments.scale, work: Work::Builtin(Script::TpcbLike) };
            Some(Program::find(Box::new(pgbench), place.owner().clone())?)
        }
    };
    let mut server = make_server(arguments, &place)?;
    server.create()?;
    server.start(&ended)?;
    let scale = Scale::new(arguments.scale).shrunk(arguments.shrink);
    let database = server.database();
    match &generator {
        None => loaded(scale, arguments.seed, &*database, &ended, quiet)?,
        Some(program) => program.load(&*database, &ended)?,
    }
    server.stop()?;
    place.renew()?;
    let mounted = Mounted::start(arguments, &place)?;
    server.move_to(&place.mountpoint());
    server.start(&ended)?;
    let bench = Bench { arguments, place: &place, scale, ended: &ended };
    let survived = bench.survive(mounted, &mut *server, generator.as_ref(), quiet)?;
    output::print(&text(arguments, &survived))?;
    if let Some(path) = &arguments.json {
        output::write_file(path, (serde_json::to_string_pretty(&survived)? + "\n").as_bytes())?;
    }
    match survived.faults.first() {
        Some(_) => bail!("{}", survived.faults.join("; ")),
        None => Ok(()),
    }
}

fn make_server(arguments: &SurviveArgs, place: &Place) -> Result<Box<dyn Server>> {
    let setup = Setup {
        data: place.loaded(),
        run: place.run().to_owned(),
        owner: place.owner().clone(),
        memory_bytes: arguments.memory,
        connections: arguments.clients as usize + 2,
        checkpoint: Duration::from_secs(30),
    };
    Ok(match arguments.db {
        Db::Mariadb => Box::new(MariaDbServer::new(setup)?),
        _ => Box::new(PostgreSqlServer::new(setup)?),
    })
}

/// A mount by the program, with its holder and its server.
struct Mounted {
    /// Keeps the standard output open.
    _output: BufReader<std::process::ChildStdout>,
    holder: Guarded,
    log: PathBuf,
}

/// A command of the program, as the user of the mount.
fn entresol(arguments: &SurviveArgs, place: &Place, words: &[&str]) -> Command {
    let mut command = Command::new(&arguments.program);
    command.args(words).current_dir(place.run()).stdin(Stdio::null());
    place.owner().applied(&mut command);
    command
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}

impl Mounted {
    fn start(arguments: &SurviveArgs, place: &Place) -> Result<Self> {
        let page_size = arguments.db.page_bytes().to_string();
        let [work, at, cache] = [place.work(), place.mountpoint(), place.cache()].map(|path| text_of(&path));
        let size = arguments.cache_size.to_string();
        let format = ["--quiet", "format", "--backing", &work, "--cache", &cache, "--size", &size];
        let chosen = ["--page-size", &page_size, "--layout", arguments.layout.name(), "--policy", &arguments.policy];
        let made = entresol(arguments, place, &[&format[..], &chosen].concat()).output().context("entresol format")?;
        if !made.status.success() {
            bail!("entresol format: {}", String::from_utf8_lossy(&made.stderr).trim());
        }
        let (mode, page_cache) = (arguments.mode.keyword(), word(arguments.page_cache));
        let mut words = vec!["mount", &work, &at, "--cache", &cache, "--mode", mode, "--page-cache", &page_cache];
        words.extend(["--restart", "on"]);
        if arguments.by == By::Hang {
            words.extend(["--restart-after", WATCHDOG]);
        }
        let dram = arguments.dram.map(|dram| format!("{}B", dram.pages(4096, 0) * 4096));
        words.extend(dram.iter().flat_map(|dram| ["--dram", dram]));
        let log = place.run().join("mount.log");
        let errors = OpenOptions::new().create(true).append(true).open(&log)?;
        let mut command = entresol(arguments, place, &words);
        let mut holder = Guarded::spawn(command.stdout(Stdio::piped()).stderr(errors)).context("entresol mount")?;
        let mut output = BufReader::new(holder.child().stdout.take().context("a pipe")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        if line.is_empty() {
            bail!("entresol mount: {}", last_lines(&log, 3).join(" | "));
        }
        Ok(Mounted { _output: output, holder, log })
    }

    /// Process of the server, once there is one.
    fn server(&mut self) -> Option<Pid> {
        let holder = self.holder.child().id();
        let children = fs::read_to_string(format!("/proc/{holder}/task/{holder}/children")).ok()?;
        Pid::from_raw(children.split_whitespace().last()?.parse().ok()?)
    }

    /// Has the server meet its fate, and waits until there is another one.
    fn strike(&mut self, by: By) -> Result<()> {
        let former = self.server().context("the mount has no server")?;
        match by {
            By::Kill => kill_process(former, Signal::KILL)?,
            By::Hang => kill_process(former, Signal::STOP)?,
            By::Upgrade => self.holder.signal(Signal::USR2),
        }
        let since = Instant::now();
        // The server of an upgrade stands by at first, as another child.
        let is_there = |pid: Pid| Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists();
        while is_there(former) || self.server().is_none() {
            if since.elapsed() > BACK_WITHIN || self.holder.try_wait().is_some() {
                bail!("the mount has no other server: {}", last_lines(&self.log, 3).join(" | "));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn close(mut self) -> Result<()> {
        self.holder.signal(Signal::TERM);
        match self.holder.wait_within(CLOSED_WITHIN) {
            Some(status) if status.success() => Ok(()),
            ended => bail!("the mount's end: {ended:?}: {}", last_lines(&self.log, 3).join(" | ")),
        }
    }
}

/// The program that writes and reads, as the user of the mount.
struct Prober {
    process: Guarded,
    /// Start and length of each step that took long, by the system's clock in microseconds.
    long: Arc<Mutex<Vec<(u64, u64)>>>,
    steps: Arc<AtomicU64>,
}

/// Shortest step that is reported.
const LONG: Duration = Duration::from_millis(4);
/// Steps between two reports of their number.
const STEPS: u64 = 64;

fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_micros() as u64
}

/// Arguments of the program that writes and reads
#[derive(Args)]
pub struct ProbeArgs {
    /// The file, which is made
    pub file: PathBuf,
}

/// Writes and reads a number that grows, until it is killed. Prints each long step, and now and then their number.
pub fn probe(arguments: &ProbeArgs) -> Result<()> {
    let at = |what| format!("{}: {what}", arguments.file.display());
    let file = File::options().create(true).read(true).write(true).truncate(true).open(&arguments.file);
    let file = file.with_context(|| at("open"))?;
    for number in 1_u64.. {
        let (begun, since) = (now_us(), Instant::now());
        let mut found = [0; 8];
        let place = 8192 * (number % 16);
        file.write_all_at(&number.to_le_bytes(), place).with_context(|| at("write"))?;
        file.read_exact_at(&mut found, place).with_context(|| at("read"))?;
        if number > 16 && number % 3 == 0 {
            // The number of a step before, which a former server may have answered.
            let mut older = [0; 8];
            let before = number - 1 - number % 11;
            file.read_exact_at(&mut older, 8192 * (before % 16)).with_context(|| at("read"))?;
            if u64::from_le_bytes(older) != before {
                bail!("{}: {before} was written, {} is read", arguments.file.display(), u64::from_le_bytes(older));
            }
        }
        if u64::from_le_bytes(found) != number {
            bail!("{}: {number} was written, {} is read", arguments.file.display(), u64::from_le_bytes(found));
        }
        let took = since.elapsed();
        if took >= LONG {
            println!("{begun} {}", took.as_micros());
        }
        if number % STEPS == 0 {
            println!("steps {number}");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    unreachable!("numbers have no end")
}

impl Prober {
    fn start(place: &Place) -> Result<Self> {
        // A user who may not enter the program's directory can run it by this name.
        let mut command = Command::new("/proc/self/exe");
        command.args(["bench", "probe-pauses"]).arg(place.mountpoint().join("pauses")).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Guarded::spawn(place.owner().applied(&mut command)).context("the prober")?;
        let output = BufReader::new(process.child().stdout.take().context("a pipe")?);
        let (long, steps) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicU64>::default());
        let (noted, counted) = (Arc::clone(&long), Arc::clone(&steps));
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Some((one, other)) = line.split_once(' ') else { continue };
                match (one.parse(), other.parse()) {
                    (Ok(begun), Ok(took)) => noted.lock().unwrap_or_else(PoisonError::into_inner).push((begun, took)),
                    (_, Ok(number)) => counted.store(number, Relaxed),
                    _ => {}
                }
            }
        });
        Ok(Prober { process, long, steps })
    }

    /// Waits until it has gone on, and returns the longest step that was under way at `since` or later, in ms.
    fn pause_ms(&mut self, since: u64) -> Result<f64> {
        let (before, started) = (self.steps.load(Relaxed), Instant::now());
        while self.steps.load(Relaxed) < before + 2 * STEPS {
            if self.process.try_wait().is_some() {
                let mut said = String::new();
                let errors = self.process.child().stderr.take().context("a pipe")?;
                for line in BufReader::new(errors).lines().map_while(Result::ok) {
                    said += &line;
                }
                bail!("a program on the mount: {said}");
            }
            if started.elapsed() > BACK_WITHIN {
                bail!("a program on the mount waits for {} s", started.elapsed().as_secs());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = long.iter().filter(|(begun, took)| begun + took >= since);
        Ok(under_way.map(|&(_, took)| took).max().unwrap_or(0) as f64 / 1e3)
    }
}

struct Bench<'a> {
    arguments: &'a SurviveArgs,
    place: &'a Place,
    scale: Scale,
    ended: &'a AtomicBool,
}

/// Results of a load.
struct Ran {
    transactions: u64,
    longest_ms: Option<f64>,
    faults: Vec<String>,
}

impl Bench<'_> {
    fn survive(
        &self,
        mut mounted: Mounted,
        server: &mut dyn Server,
        generator: Option<&Program>,
        quiet: bool,
    ) -> Result<Survived> {
        let watch = Watch::default();
        let database = server.database();
        let mut prober = Prober::start(self.place)?;
        let (struck, ran) = std::thread::scope(|scope| {
            let load = scope.spawn(|| match generator {
                None => self.tpcc(&*database, &watch),
                Some(program) => self.pgbench(program, &*database, &watch),
            });
            let struck = self.rounds(&mut mounted, &mut prober, &|| load.is_finished(), quiet);
            // Errors from now on would be the end's; none may have come before.
            if !load.is_finished() {
                watch.crash.store(true, Relaxed);
            }
            watch.ended.store(true, Relaxed);
            (struck, load.join().expect("a load does not panic"))
        });
        prober.process.kill_all();
        let server_said = server.said().join(" | ");
        let pauses_ms = struck.with_context(|| format!("the database's server said: {server_said}"))?;
        let Ran { transactions, longest_ms, mut faults } = ran?;
        faults.extend(server.check()?);
        server.stop()?;
        mounted.close()?;
        let [cache, work] = [self.place.cache(), self.place.work()].map(|path| text_of(&path));
        let words = ["check", "--cache", &cache, "--backing", &work];
        let checked = entresol(self.arguments, self.place, &words).output().context("entresol check")?;
        if !checked.status.success() {
            faults.push(format!("entresol check: {}", String::from_utf8_lossy(&checked.stderr).trim()));
        }
        Ok(Survived {
            rounds: self.arguments.rounds,
            pauses_ms,
            transactions,
            longest_transaction_ms: longest_ms,
            faults,
        })
    }

    /// Strikes the server in each round; returns the pauses.
    fn rounds(
        &self,
        mounted: &mut Mounted,
        prober: &mut Prober,
        over: &dyn Fn() -> bool,
        quiet: bool,
    ) -> Result<Vec<f64>> {
        let mut random = Random::new(Random::mix(self.arguments.seed ^ 0x5e));
        let (shortest, longest) =
            (self.arguments.between.as_millis() as u64 / 5, self.arguments.between.as_millis() as u64);
        let mut pauses = Vec::new();
        for round in 1..=self.arguments.rounds {
            let wait = Duration::from_millis(shortest + random.below(longest - shortest + 1));
            let started = Instant::now();
            while started.elapsed() < wait {
                if self.ended.load(Relaxed) {
                    bail!("interrupted");
                }
                if over() {
                    return Ok(pauses);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let since = now_us();
            mounted.strike(self.arguments.by).with_context(|| format!("round {round}"))?;
            let pause = prober.pause_ms(since).with_context(|| format!("round {round}"))?;
            if !quiet {
                say!("round {round}: {pause:.0} ms");
            }
            pauses.push(pause);
        }
        Ok(pauses)
    }

    fn tpcc(&self, database: &dyn Database, watch: &Watch) -> Result<Ran> {
        let SurviveArgs { seed, clients, .. } = *self.arguments;
        let (warmup, duration) = (Duration::ZERO, Duration::from_secs(86_400));
        let plan = Plan { scale: self.scale, seed, first_client: 0, clients, warmup, duration };
        let ran = drive::run(database, &plan, watch)?;
        let mut faults = broken_conditions(database)?;
        faults.extend(ran.lost.iter().map(|error| format!("a client: {error}")));
        faults.extend(ran.ledger.faults(&mut *database.connect()?, self.scale.customers as i64 + 1)?);
        faults.extend((!ran.ledger.in_doubt.is_empty()).then(|| format!("{} in doubt", ran.ledger.in_doubt.len())));
        let mut latency = Histogram::default();
        ran.tallies.iter().for_each(|tally| latency.merge(&tally.latency));
        let longest_ms = Some(latency.max() as f64 / 1e6);
        Ok(Ran { transactions: acknowledged(&ran.ledger).iter().sum(), longest_ms, faults })
    }

    /// Runs pgbench for a second or two at a time, until the rounds are over.
    fn pgbench(&self, program: &Program, database: &dyn Database, watch: &Watch) -> Result<Ran> {
        let mut transactions = 0;
        for turn in 0.. {
            if watch.ended.load(Relaxed) || self.ended.load(Relaxed) {
                break;
            }
            let seed = self.arguments.seed + turn;
            let pace = Pace { clients: self.arguments.clients, time: Duration::from_secs(10), seed };
            transactions += program.run(database, &pace, self.ended, &|_| {})?.transactions;
        }
        let faults = program.faults(&mut *database.connect()?, transactions)?;
        Ok(Ran { transactions, longest_ms: None, faults })
    }
}

fn text(arguments: &SurviveArgs, survived: &Survived) -> String {
    let Survived { pauses_ms, transactions, longest_transaction_ms, faults, .. } = survived;
    let mut sorted = pauses_ms.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted.get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1)));
    let [median, p90, longest] = [0.5, 0.9, 1.0].map(|share| at(share).copied().unwrap_or(f64::NAN));
    let by = word(arguments.by);
    let transaction = longest_transaction_ms.map(|ms| format!(", the longest took {ms:.0} ms")).unwrap_or_default();
    let found =
        if faults.is_empty() { "nothing is lost, no client saw an error".to_owned() } else { faults.join("; ") };
    format!(
        "{} of {} rounds ({by}): pauses of {median:.0} ms (median), {p90:.0} ms (p90), {longest:.0} ms (longest); \
         {transactions} transactions acknowledged{transaction}; {found}\n",
        pauses_ms.len(),
        survived.rounds,
    )
}
