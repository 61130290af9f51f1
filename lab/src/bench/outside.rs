//! `entresol-lab bench pgbench` and `entresol-lab bench sysbench`: load generators of the distribution.

use super::outside_report as report;
use super::span::{Look, Span};
use super::testbed::{Db, RunArgs, Testbed, Wanted, said};
use super::turns::{Turns, tell};
use super::variant::Variant;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use entresol_bench::driver::Database;
use entresol_bench::outside::{File, Generator, Own, Pace, Pgbench, Program, Said, Script, Sysbench, Test, Work};
use entresol_bench::server::Owner;
use entresol_render::{Progress, Unit};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Run pgbench on a private PostgreSQL, without a cache and with one under several policies
///
/// pgbench as it comes with PostgreSQL: its tables, its transactions, its output; or a load of your own, in its
/// language. Everything else is as with `entresol-lab bench tpcc`. After each run the balances must be those of the
/// history, and every transaction that pgbench counted must be in it. For a load of your own the checks are those of
/// --check.
#[derive(Args)]
#[command(mut_arg("db", |arg| arg.default_value("postgresql")))]
pub struct PgbenchArgs {
    /// Hundred thousands of accounts, of about 15 MB each
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=20_000))]
    pub scale: u64,
    /// Its script: tpcb-like, simple-update or select-only; or files, separated by commas, each with a weight if it has one
    #[arg(long, value_name = "NAME|FILE[@WEIGHT]", default_value = "tpcb-like", value_delimiter = ',')]
    pub script: Vec<String>,
    /// Have psql make and fill tables for these files, instead of pgbench its own
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// Checks after a run of these files: statements that give 0, each after a comment that describes the fault if
    /// they give more. `:transactions` is the number of commits that were acknowledged to pgbench
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// Run sysbench on a private MariaDB or PostgreSQL, without a cache and with one under several policies
///
/// sysbench as the machine has it: its tables, its transactions and its own distribution of keys, its output.
/// Everything else is as with `entresol-lab bench tpcc`. After each run its tables must have as many rows as at first.
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

/// The value of this name.
fn named<T: Copy>(all: &[T], name: fn(T) -> &'static str, text: &str) -> Result<T, String> {
    let there_are = || all.iter().map(|&one| name(one)).collect::<Vec<_>>().join(", ");
    all.iter().copied().find(|&one| name(one) == text).ok_or_else(|| format!("there are {}", there_are()))
}

fn script(text: &str) -> Result<Script, String> {
    named(&[Script::TpcbLike, Script::SimpleUpdate, Script::SelectOnly], Script::name, text)
}

/// A script and its weight, which is 1 where there is none.
fn file(text: &str) -> Result<File> {
    let (path, weight) = match text.rsplit_once('@').map(|(path, weight)| (path, weight.parse())) {
        Some((path, Ok(weight))) => (path, weight),
        _ => (text, 1),
    };
    let path = Path::new(path);
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(File { name, text: read(path)?, weight })
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

impl PgbenchArgs {
    /// Scripts for pgbench, and a description of them.
    fn work(&self) -> Result<(Work, String)> {
        let first = &self.script[0];
        let there_are = match script(first) {
            Ok(builtin) if self.script.len() == 1 => {
                if self.init.is_some() {
                    bail!("--init: its tables are for scripts in files");
                }
                if self.check.is_some() {
                    bail!("--check: pgbench's own scripts have checks of their own");
                }
                let what = format!("{}, {} accounts", builtin.name(), self.scale * 100_000);
                return Ok((Work::Builtin(builtin), what));
            }
            Ok(_) => "of pgbench's own scripts one runs, alone".to_owned(),
            Err(there_are) => format!("{there_are}, and files"),
        };
        let files = self.script.iter().map(|text| file(text)).collect::<Result<Vec<_>>>();
        let scripts = files.with_context(|| format!("--script {first}: {there_are}"))?;
        let Some(check) = &self.check else {
            bail!("--check: it has to be said what must hold after scripts in files")
        };
        let checks = Own::checks(&read(check)?).map_err(|error| anyhow!("--check: {}: {error}", check.display()))?;
        let init = self.init.as_deref().map(read).transpose()?;
        let accounts = if init.is_some() { String::new() } else { format!(", {} accounts", self.scale * 100_000) };
        let named = scripts.iter().map(|File { name, weight, .. }| format!("{name}@{weight}")).collect::<Vec<_>>();
        let what = format!("{}{accounts}", named.join(" "));
        Ok((Work::Own(Own { init, scripts, checks }), what))
    }
}

fn test(text: &str) -> Result<Test, String> {
    named(&[Test::ReadWrite, Test::ReadOnly, Test::WriteOnly, Test::PointSelect], Test::name, text)
}

pub struct Measured {
    pub variant: Variant,
    /// Number of the repetition, from 1.
    pub repeat: u32,
    pub said: Said,
    pub span: Span,
    /// Time from the server's start until it was ready.
    pub ready: Duration,
    /// Faults that the checks found.
    pub faults: Vec<String>,
}

pub fn pgbench(arguments: &PgbenchArgs, quiet: bool) -> Result<()> {
    let with = &arguments.run;
    if with.testbed.db != Db::Postgresql {
        bail!("--db: pgbench drives PostgreSQL alone");
    }
    let (work, what) = arguments.work()?;
    run(Box::new(Pgbench { scale: arguments.scale, work }), format!("pgbench, {what}"), with, quiet)
}

pub fn sysbench(arguments: &SysbenchArgs, quiet: bool) -> Result<()> {
    let SysbenchArgs { tables, rows, test, run: with } = arguments;
    if with.testbed.db == Db::Sqlite {
        bail!("--db: SQLite has no server, which sysbench needs; take mariadb or postgresql");
    }
    let postgresql = with.testbed.db == Db::Postgresql;
    let what = format!("sysbench, {}, {tables} tables of {rows} rows", test.name());
    run(Box::new(Sysbench { tables: *tables, rows: *rows, test: *test, postgresql }), what, with, quiet)
}

fn run(generator: Box<dyn Generator>, what: String, arguments: &RunArgs, quiet: bool) -> Result<()> {
    // A missing program is reported before any database is made.
    let program = Program::find(generator, Owner::dropping(&arguments.testbed.user)?)?;
    let load = |database: &dyn Database, ended: &AtomicBool| {
        let _bar = Progress::start("loading", Some(1), Unit::Items("database"), quiet);
        Ok(program.load(database, ended)?)
    };
    let wanted = Wanted { connections: arguments.clients as usize, checkpoint: arguments.checkpoint };
    let mut testbed = arguments.prepare(wanted, quiet, load)?;
    let bar = arguments.bar(&testbed);
    let (variants, name) = (testbed.variants.clone(), |its: &Variant| its.name().to_owned());
    let take = |variant: &Variant, repeat| measure(&program, arguments, &mut testbed, variant, repeat, &bar);
    let turns = Turns::take(&variants, arguments.testbed.repeat, &bar, name, take, |run| {
        if !quiet {
            say!("{}", report::line(run));
        }
    });
    drop(bar);
    let turns = turns?;
    let report = report::Report { arguments, what: &what, testbed: &testbed, runs: &turns.runs };
    tell(&arguments.testbed, &report::text(&report), || report::json(&report), || report::page(&report))?;
    match turns.end()?.iter().find(|run| !run.faults.is_empty()) {
        Some(run) => bail!("{}: the database is not what it should be: {}", run.variant.name(), run.faults.join("; ")),
        None => Ok(()),
    }
}

/// Measures one variant on a fresh copy.
fn measure(
    program: &Program,
    arguments: &RunArgs,
    testbed: &mut Testbed,
    variant: &Variant,
    repeat: u32,
    bar: &Progress,
) -> Result<Measured> {
    bar.note(format!("{}, run {repeat}: starting", variant.name()));
    let (mut mounted, ready) = testbed.start(variant)?;
    let database = testbed.server.database();
    let each_second = |rate: f64| {
        bar.advance(1);
        bar.note(format!("{}: {rate:.0} transactions/s", variant.name()));
    };
    let go = |time, seed| {
        let pace = Pace { clients: arguments.clients, time, seed };
        program
            .run(&*database, &pace, &testbed.ended, &each_second)
            .map_err(|error| said(&*testbed.server, error.into()))
    };
    // The warm-up is a run of its own, with other keys.
    let warm = go(arguments.warmup, arguments.testbed.seed.wrapping_add(1))?;
    let pid = mounted.pid();
    let before = Look::take(testbed, variant, pid, || mounted.ask("figures"))?;
    let ran = go(arguments.duration, arguments.testbed.seed)?;
    let after = Look::take(testbed, variant, pid, || mounted.ask("figures"))?;
    // The rest is not measured.
    mounted.ask("hurry")?;
    bar.note(format!("{}, run {repeat}: checking", variant.name()));
    let faults = program.faults(&mut *database.connect()?, warm.transactions + ran.transactions)?;
    testbed.server.stop()?;
    mounted.close()?;
    testbed.keep_recording(variant)?;
    testbed.place.clear()?;
    Ok(Measured { variant: variant.clone(), repeat, said: ran, span: before.until(&after), ready, faults })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_programs_own() {
        assert_eq!(script("simple-update"), Ok(Script::SimpleUpdate));
        assert_eq!(test("oltp_point_select"), Ok(Test::PointSelect));
        let named = file("/dev/null@x@7").expect_err("no such file").to_string();
        assert!(named.contains("/dev/null@x"), "{named}");
        let (null, weight) = (file("/dev/null").expect("a file"), file("/dev/null@7").expect("a file").weight);
        assert_eq!((null.weight, weight, null.name.as_str()), (1, 7, "null"));
        assert!(script("tpcb").expect_err("no script").contains("tpcb-like, simple-update"));
        assert!(test("").expect_err("no test").contains("oltp_read_write"));
    }
}
