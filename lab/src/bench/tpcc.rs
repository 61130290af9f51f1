//! `entresol-lab bench tpcc`: a TPC-C-like load, kills under it, and restarts.

use super::mounted::{Mounted, Shared, ask};
use super::span::{Look, Span};
use super::testbed::{Db, RunArgs, Testbed, Wanted, said, time};
use super::turns::{Turns, tell};
use super::variant::Variant;
use super::{kill, report, restart};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use entresol_bench::drive::{self, Plan, Ran, Watch};
use entresol_bench::driver::{Database, Session};
use entresol_bench::tpcc::{LOADED, Ledger, Scale, broken, conditions, load};
use entresol_render::{Progress, Unit};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Run a TPC-C-like load on a private database, without a cache and with one under several policies
///
/// The five transactions of TPC-C in its mix, without think times; not audited, and no tpmC in the specification's
/// sense. PostgreSQL and MariaDB are those that this machine has installed. Each is started in a directory of its own,
/// on a Unix socket, as a user without rights, and removed at the end. Each run begins with a fresh copy of the loaded
/// database on a mount of its own; logs and temporary files bypass the cache. After each run the consistency
/// conditions 1 to 10 and 12 of the specification's clause 3.3.2 are checked. So is that no acknowledged commit is
/// lost.
#[derive(Args)]
pub struct TpccArgs {
    #[command(flatten)]
    pub load: LoadArgs,
    /// Kill these under load instead, again and again, and check the remaining database
    #[arg(long, value_enum, conflicts_with = "record")]
    pub kill: Option<Victim>,
    /// Number of kills of each variant
    #[arg(long, value_name = "N", default_value_t = 10, requires = "kill", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Measure restarts instead: crash server and cache together in the middle between two checkpoints that are this
    /// far apart
    ///
    /// After --warmup the database makes a checkpoint; half of this time later both processes are killed and started again, and the
    /// throughput is measured for --duration. Several times, separated by commas, follow each other, without another warm-up.
    #[arg(long, value_name = "TIMES", value_parser = time, value_delimiter = ',', conflicts_with_all = ["kill", "checkpoint", "record"])]
    pub restart: Vec<Duration>,
    /// Note what the database writes and syncs, and compare each page with that after a kill. It takes time: each file is
    /// read when it is opened
    ///
    /// A page must be at least as new as the last write of it that a sync has covered. Checkpoints of InnoDB that count on
    /// pages which no sync has covered are noted too, since the loss of such pages damages the database.
    #[arg(long)]
    pub witness: bool,
    /// Keep writes to tablespaces of InnoDB in memory until a sync of their file, and kill at the first checkpoint that
    /// counts on pages which no sync has covered. A write and a sync take this long
    ///
    /// A kill loses those writes, as a loss of power does on a disk with a volatile write cache. Nothing of this project
    /// is needed for that: --policy none has no cache. Without such a checkpoint the kill comes at its time. A second
    /// kill comes in the same way in the recovery from it. In the first round alone.
    #[arg(long, value_name = "TIME", value_parser = time, requires_all = ["kill", "witness"])]
    pub volatile: Option<Duration>,
}

/// The load, and what it is measured on
#[derive(Args)]
pub struct LoadArgs {
    /// Warehouses, of about 100 MB each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub warehouses: u64,
    /// Divide items, customers and orders by this, for a try
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub shrink: u64,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Process or processes to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Victim {
    /// The process with the cache, and the server once it has noticed
    Daemon,
    /// The database server
    Server,
    /// Both at once
    Both,
}

pub struct Measured {
    pub variant: Variant,
    /// Number of the repetition, from 1.
    pub repeat: u32,
    pub ran: Ran,
    pub span: Span,
    /// Time from the server's start until it was ready.
    pub ready: Duration,
    /// Faults that the checks found.
    pub faults: Vec<String>,
}

/// A benchmark with its testbed.
pub struct Bench<'a> {
    pub arguments: &'a LoadArgs,
    pub testbed: Testbed,
}

pub fn run(arguments: &TpccArgs, quiet: bool) -> Result<()> {
    let TpccArgs { load: arguments, kill, rounds, restart, witness, volatile } = arguments;
    if arguments.run.testbed.db == Db::Sqlite && matches!(kill, Some(Victim::Server | Victim::Both)) {
        bail!("--kill: SQLite has no server; the process with the cache can be killed (--kill daemon)");
    }
    // For restarts the benchmark makes the checkpoints.
    let checkpoint = if restart.is_empty() { arguments.run.checkpoint } else { Duration::from_secs(86_400) };
    let wanted = Wanted { connections: arguments.run.clients as usize, checkpoint };
    let mut bench = Bench::prepare(arguments, wanted, quiet, |_, _| Ok(()))?;
    bench.testbed.devices.witness = *witness;
    bench.testbed.devices.volatile = *volatile;
    if let Some(victim) = *kill {
        return kill::run(&mut bench, victim, *rounds);
    }
    if !restart.is_empty() {
        return restart::run(&mut bench, restart, quiet);
    }
    let bar = arguments.run.bar(&bench.testbed);
    let (variants, name) = (bench.testbed.variants.clone(), |its: &Variant| its.name().to_owned());
    let measure = |variant: &Variant, repeat| Ok(bench.measure(variant, repeat, &bar, &|_, _| Ok(()))?.0);
    let turns = Turns::take(&variants, arguments.run.testbed.repeat, &bar, name, measure, |run| {
        if !quiet {
            say!("{}", report::line(run));
        }
    });
    drop(bar);
    let turns = turns?;
    let report = report::Report { arguments, testbed: &bench.testbed, runs: turns.runs.iter().collect() };
    tell(&arguments.run.testbed, &report::text(&report), || report::json(&report), || report::page(&report))?;
    let runs = turns.end()?;
    if let Some(run) = runs.iter().find(|run| !run.faults.is_empty()) {
        bail!("{}: the database is not what it should be: {}", run.variant.name(), run.faults.join("; "));
    }
    Ok(())
}

impl<'a> Bench<'a> {
    /// Makes the database that all runs begin with: TPC-C's tables, and what `more` loads beside them.
    pub fn prepare(
        arguments: &'a LoadArgs,
        wanted: Wanted,
        quiet: bool,
        more: impl FnOnce(&mut dyn Session, &AtomicBool) -> Result<()>,
    ) -> Result<Self> {
        let load = |database: &dyn Database, ended: &AtomicBool| {
            loaded(scale(arguments), arguments.run.testbed.seed, database, ended, quiet)?;
            more(&mut *database.connect()?, ended)
        };
        let testbed = arguments.run.prepare(wanted, quiet, load)?;
        Ok(Bench { arguments, testbed })
    }

    pub fn plan(&self, first_client: u64, warmup: Duration, duration: Duration) -> Plan {
        let clients = self.arguments.run.clients;
        Plan {
            scale: scale(self.arguments),
            seed: self.arguments.run.testbed.seed,
            first_client,
            clients,
            warmup,
            duration,
        }
    }

    /// Measures one variant on a fresh copy, and the work done `beside` the clients, which must end when they have.
    pub fn measure<B: Send>(
        &mut self,
        variant: &Variant,
        repeat: u32,
        bar: &Progress,
        beside: &(dyn Fn(&Watch, &Shared) -> Result<B> + Sync),
    ) -> Result<(Measured, B)> {
        bar.note(format!("{}, run {repeat}: starting", variant.name()));
        let (mut mounted, ready) = self.testbed.start(variant)?;
        let plan = self.plan(0, self.arguments.run.warmup, self.arguments.run.duration);
        let (driven, beside) = self.drive(&plan, &mut mounted, variant, bar, beside)?;
        let Driven { ran, before, after } = driven;
        // The rest is not measured.
        mounted.ask("hurry")?;
        bar.note(format!("{}, run {repeat}: checking", variant.name()));
        let faults = self.faults(&ran.ledger)?;
        self.testbed.server.stop()?;
        mounted.close()?;
        self.testbed.keep_recording(variant)?;
        let measured = Measured { variant: variant.clone(), repeat, span: before.until(&after), ran, ready, faults };
        self.testbed.place.clear()?;
        Ok((measured, beside))
    }

    /// Runs the clients and takes a look when counting begins and when it ends.
    pub fn drive<B: Send>(
        &self,
        plan: &Plan,
        mounted: &mut Mounted,
        variant: &Variant,
        bar: &Progress,
        beside: &(dyn Fn(&Watch, &Shared) -> Result<B> + Sync),
    ) -> Result<(Driven, B)> {
        let pid = mounted.pid();
        let (database, watch, mounted) = (self.testbed.server.database(), Watch::default(), Mutex::new(mounted));
        std::thread::scope(|scope| {
            let clients = scope.spawn(|| drive::run(&*database, plan, &watch));
            let beside = scope.spawn(|| beside(&watch, &mounted));
            let look = || Look::take(&self.testbed, variant, pid, || ask(&mounted, "figures"));
            let (started, mut shown) = (Instant::now(), 0);
            let (mut before, mut after) = (None, None);
            while !clients.is_finished() {
                std::thread::sleep(Duration::from_millis(20));
                // A separate watch, because an error beside the clients ends them too.
                if self.testbed.ended.load(Relaxed) {
                    watch.ended.store(true, Relaxed);
                }
                if before.is_none() && watch.counting.load(Relaxed) {
                    before = Some(look()?);
                }
                // Transactions that clients finish after the end are not counted.
                let over = before.as_ref().is_some_and(|look: &Look| look.elapsed() >= plan.duration);
                if over && after.is_none() {
                    after = Some(look()?);
                }
                let seconds = started.elapsed().as_secs().min((plan.warmup + plan.duration).as_secs());
                if seconds > shown {
                    bar.advance(seconds - shown);
                    shown = seconds;
                    let rate = watch.new_orders.load(Relaxed) as f64 * 60.0 / started.elapsed().as_secs_f64();
                    bar.note(format!("{}: {rate:.0} new orders/min", variant.name()));
                }
            }
            let ran = clients.join().expect("clients do not panic");
            let after = after.map_or_else(look, Ok);
            let failed = |error| said(&*self.testbed.server, error);
            // The error that ended the clients, if it came from the work beside them.
            let beside = beside.join().expect("what goes on beside clients does not panic").map_err(failed)?;
            let ran = ran.map_err(|error| failed(error.into()))?;
            let before = before.unwrap_or_else(|| Look::nothing(started));
            Ok((Driven { ran, before, after: after? }, beside))
        })
    }

    /// Faults of the database: conditions that do not hold, and lost commits. At most ten lost commits are named.
    pub fn faults(&self, ledger: &Ledger) -> Result<Vec<String>> {
        let database = self.testbed.server.database();
        let mut faults = broken_conditions(&*database)?;
        let mut session = database.connect()?;
        let mut lost = ledger.faults(&mut *session, scale(self.arguments).customers as i64 + 1)?;
        let more = lost.len().saturating_sub(10);
        lost.truncate(10);
        faults.append(&mut lost);
        if more > 0 {
            faults.push(format!("and {more} more"));
        }
        Ok(faults)
    }
}

/// Results of the clients, and the looks at the run when counting began and when it ended.
pub struct Driven {
    pub ran: Ran,
    pub before: Look,
    pub after: Look,
}

/// Scale of the database to load.
fn scale(arguments: &LoadArgs) -> Scale {
    Scale::new(arguments.warehouses).shrunk(arguments.shrink)
}

/// Loads the database and checks its contents.
pub fn loaded(scale: Scale, seed: u64, database: &dyn Database, ended: &AtomicBool, quiet: bool) -> Result<()> {
    let bar = Progress::start("loading", Some(scale.rows_about()), Unit::Items("rows"), quiet);
    let mut session = database.connect()?;
    load(&mut *session, scale, seed, ended, &|rows| bar.advance(rows))?;
    bar.note("checking");
    let mut faults = broken_conditions(database)?;
    if broken(&mut *session, &LOADED)? > 0 {
        faults.push(format!("condition {}: {}", LOADED.number, LOADED.says));
    }
    if !faults.is_empty() {
        bail!("what was loaded is not what it should be: {}", faults.join("; "));
    }
    Ok(())
}

/// Conditions of the specification that do not hold.
pub fn broken_conditions(database: &dyn Database) -> Result<Vec<String>> {
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
