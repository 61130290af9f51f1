//! `entresol bench pgbench` and `entresol bench sysbench`: load generators that the distribution has.

use super::daemon::{CacheFigures, DeviceFigures, Figures};
use super::ground::{Db, Ground, RunArgs, Wanted, said};
use super::outside_report as report;
use super::turns::{Turns, tell};
use super::variant::Variant;
use anyhow::{Result, bail};
use clap::Args;
use entresol_bench::driver::Database;
use entresol_bench::outside::{Generator, Pace, Pgbench, Program, Said, Script, Sysbench, Test};
use entresol_bench::server::Owner;
use entresol_report::{Progress, Unit};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Run pgbench on a private PostgreSQL, without a cache and with one under several policies
///
/// pgbench as it comes with PostgreSQL: its tables, its transactions, its words. Everything else is as with `entresol bench tpcc`.
/// After each run the balances must be those of the history, and every transaction that it counted must be in there.
#[derive(Args)]
#[command(mut_arg("db", |arg| arg.default_value("postgresql")))]
pub struct PgbenchArgs {
    /// Hundred thousands of accounts, of about 15 MB each
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=20_000))]
    pub scale: u64,
    /// Its script: tpcb-like, simple-update or select-only
    #[arg(long, value_name = "NAME", default_value = "tpcb-like", value_parser = script)]
    pub script: Script,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Run sysbench on a private MariaDB or PostgreSQL, without a cache and with one under several policies
///
/// sysbench as the machine has it: its tables, its transactions and its own distribution of keys, its words. Everything else is as
/// with `entresol bench tpcc`. After each run its tables must have as many rows as at first.
#[derive(Args)]
#[command(mut_arg("db", |arg| arg.default_value("mariadb")))]
pub struct SysbenchArgs {
    /// Tables
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub tables: u64,
    /// Rows of each, of about 200 bytes
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    pub rows: u64,
    /// Its test: oltp_read_write, oltp_read_only, oltp_write_only or oltp_point_select
    #[arg(long, value_name = "NAME", default_value = "oltp_read_write", value_parser = test)]
    pub test: Test,
    #[command(flatten)]
    pub run: RunArgs,
}

/// The one of this name.
fn named<T: Copy>(all: &[T], name: fn(T) -> &'static str, text: &str) -> Result<T, String> {
    let there_are = || all.iter().map(|&one| name(one)).collect::<Vec<_>>().join(", ");
    all.iter().copied().find(|&one| name(one) == text).ok_or_else(|| format!("there are {}", there_are()))
}

fn script(text: &str) -> Result<Script, String> {
    named(&[Script::TpcbLike, Script::SimpleUpdate, Script::SelectOnly], Script::name, text)
}

fn test(text: &str) -> Result<Test, String> {
    named(&[Test::ReadWrite, Test::ReadOnly, Test::WriteOnly, Test::PointSelect], Test::name, text)
}

/// A run that was measured.
pub struct Measured {
    pub variant: Variant,
    /// From 1.
    pub repeat: u32,
    pub said: Said,
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

/// Runs the command.
pub fn pgbench(arguments: &PgbenchArgs, quiet: bool) -> Result<()> {
    let PgbenchArgs { scale, script, run: with } = arguments;
    if with.ground.db != Db::Postgresql {
        bail!("--db: pgbench drives PostgreSQL alone");
    }
    let what = format!("pgbench, {}, {} accounts", script.name(), scale * 100_000);
    run(Box::new(Pgbench { scale: *scale, script: *script }), what, with, quiet)
}

/// Runs the command.
pub fn sysbench(arguments: &SysbenchArgs, quiet: bool) -> Result<()> {
    let SysbenchArgs { tables, rows, test, run: with } = arguments;
    if with.ground.db == Db::Sqlite {
        bail!("--db: SQLite has no server, which sysbench needs; take mariadb or postgresql");
    }
    let postgresql = with.ground.db == Db::Postgresql;
    let what = format!("sysbench, {}, {tables} tables of {rows} rows", test.name());
    run(Box::new(Sysbench { tables: *tables, rows: *rows, test: *test, postgresql }), what, with, quiet)
}

fn run(generator: Box<dyn Generator>, what: String, arguments: &RunArgs, quiet: bool) -> Result<()> {
    // Whether it is there is known before anything is made.
    let program = Program::find(generator, Owner::dropping(&arguments.ground.user)?)?;
    let load = |database: &dyn Database, ended: &AtomicBool| {
        let _bar = Progress::start("loading", Some(1), Unit::Items("database"), quiet);
        Ok(program.load(database, ended)?)
    };
    let wanted = Wanted { connections: arguments.clients as usize, checkpoint: arguments.checkpoint };
    let mut ground = arguments.prepare(wanted, quiet, load)?;
    let bar = arguments.bar(&ground);
    let (variants, name) = (ground.variants.clone(), |its: &Variant| its.name().to_owned());
    let take = |variant: &Variant, repeat| measure(&program, arguments, &mut ground, variant, repeat, &bar);
    let turns = Turns::take(&variants, arguments.ground.repeat, &bar, name, take, |run| {
        if !quiet {
            eprintln!("{}", report::line(run));
        }
    });
    drop(bar);
    let turns = turns?;
    let told = report::Told { arguments, what: &what, ground: &ground, runs: &turns.runs };
    tell(&arguments.ground, &report::text(&told), || report::json(&told), || report::page(&told))?;
    match turns.end()?.iter().find(|run| !run.faults.is_empty()) {
        Some(run) => bail!("{}: the database is not what it should be: {}", run.variant.name(), run.faults.join("; ")),
        None => Ok(()),
    }
}

/// A run of one variant on a fresh copy.
fn measure(
    program: &Program,
    arguments: &RunArgs,
    ground: &mut Ground,
    variant: &Variant,
    repeat: u32,
    bar: &Progress,
) -> Result<Measured> {
    bar.note(format!("{}, run {repeat}: starting", variant.name()));
    let (mut mounted, ready) = ground.start(variant)?;
    let database = ground.server.database();
    let each_second = |rate: f64| {
        bar.advance(1);
        bar.note(format!("{}: {rate:.0} transactions/s", variant.name()));
    };
    let go = |time, seed| {
        let pace = Pace { clients: arguments.clients, time, seed };
        program.run(&*database, &pace, &ground.ended, &each_second).map_err(|error| said(&*ground.server, error.into()))
    };
    // What comes before is a run of its own, of other keys.
    let warm = go(arguments.warmup, arguments.ground.seed.wrapping_add(1))?;
    let (before, looked) = (mounted.ask("figures")?, Instant::now());
    let ran = go(arguments.duration, arguments.ground.seed)?;
    let (after, looked_s) = (mounted.ask("figures")?, looked.elapsed().as_secs_f64());
    // What comes now is not measured.
    mounted.ask("hurry")?;
    bar.note(format!("{}, run {repeat}: checking", variant.name()));
    let faults = program.faults(&mut *database.connect()?, warm.transactions + ran.transactions)?;
    ground.server.stop()?;
    mounted.close()?;
    ground.place.clear()?;
    let Figures { cache, cache_device, backing_device, .. } = after.since(&before);
    let variant = variant.clone();
    Ok(Measured { variant, repeat, said: ran, cache, cache_device, backing_device, looked_s, ready, faults })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_programs_own() {
        assert_eq!(script("simple-update"), Ok(Script::SimpleUpdate));
        assert_eq!(test("oltp_point_select"), Ok(Test::PointSelect));
        assert!(script("tpcb").expect_err("no script").contains("tpcb-like, simple-update"));
        assert!(test("").expect_err("no test").contains("oltp_read_write"));
    }
}
