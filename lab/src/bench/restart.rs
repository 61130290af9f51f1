//! Restarts after a crash of database server and mount in the middle between two checkpoints, and the throughput
//! afterwards: 001, section 6.8, table 8 and figure 14.
//!
//! The benchmark sets the time between checkpoints: the server makes none of its own accord, and is asked for one half
//! of that time before the kill. (PostgreSQL takes no less than 30 s between its own, and spreads their writes.)

use super::daemon::{CacheFigures, DeviceFigures, Figures, OpenFigures};
use super::kill::{CLIENTS_A_ROUND, pause};
use super::mounted::Mounted;
use super::restart_report as report;
use super::tpcc::{Bench, Driven, Victim};
use super::turns::{Turns, tell};
use super::variant::Variant;
use super::witness::Findings;
use anyhow::{Context, Result, bail};
use entresol_bench::drive::Ran;
use entresol_bench::server::Server;
use entresol_bench::tpcc::Ledger;
use entresol_render::{Progress, Unit};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// All restarts of a variant, one after the other on the same database.
pub struct RestartRun {
    pub variant: Variant,
    /// Number of the repetition, from 1.
    pub repeat: u32,
    pub restarts: Vec<Restarted>,
    /// Faults that the checks at the end found.
    pub faults: Vec<String>,
    /// Findings of the witness, if there was one.
    pub witness: Option<Findings>,
}

/// A crash and the restart after it. Times are in seconds.
pub struct Restarted {
    /// Time between two checkpoints.
    pub interval_s: f64,
    pub crash: Crash,
    /// New orders a minute from the checkpoint to the kill; none where that is less than a whole second.
    pub before: Option<f64>,
    /// Time until the process that mounts served.
    pub mounted_s: f64,
    /// Figures of the cache's open by that process.
    pub opened: OpenFigures,
    /// Time until the server answered, from the same beginning.
    pub answered_s: f64,
    /// Figures of the cache and the devices until then.
    pub recovery: Figures,
    /// Time until clients were at work, from the same beginning.
    pub at_work_s: f64,
    pub after: Ran,
    /// Counts of the cache from then on; none without a cache.
    pub cache: Option<CacheFigures>,
}

/// The time before a kill.
pub struct Crash {
    /// Time that the last checkpoint took.
    pub checkpoint_s: f64,
    /// Time from the checkpoint's beginning to the kill.
    pub after_s: f64,
    /// Bytes of the log that the server will have to replay.
    pub redo_bytes: u64,
    /// Time from when clients were at work to the kill.
    pub load_s: f64,
}

impl Restarted {
    /// Bytes of files that were read in the recovery: through the cache, or from an emulated device below it. None
    /// where neither counts them.
    pub fn read_bytes(&self, page_size: u32) -> Option<u64> {
        self.moved(page_size, |cache| cache.reads, |device| device.read_bytes)
    }

    /// Bytes of files that were written in the recovery.
    pub fn written_bytes(&self, page_size: u32) -> Option<u64> {
        self.moved(page_size, |cache| cache.writes, |device| device.written_bytes)
    }

    fn moved(&self, page_size: u32, pages: fn(&CacheFigures) -> u64, bytes: fn(&DeviceFigures) -> u64) -> Option<u64> {
        let Figures { cache, backing_device, .. } = &self.recovery;
        let cached = cache.as_ref().map(|cache| pages(cache) * u64::from(page_size));
        cached.or_else(|| backing_device.as_ref().map(bytes))
    }

    /// Share of the reads in the recovery that the cache served.
    pub fn served(&self) -> Option<f64> {
        self.recovery.cache.filter(|cache| cache.reads > 0).map(|cache| cache.read_hit_ratio())
    }
}

/// Most restarts: each has clients of its own numbers.
const RESTARTS_MAX: usize = 100;

/// Measures all variants and reports them.
pub fn run(bench: &mut Bench, intervals: &[Duration], quiet: bool) -> Result<()> {
    let arguments = &bench.arguments.run;
    if intervals.len() > RESTARTS_MAX {
        bail!("--restart: {} times; at most {RESTARTS_MAX} follow each other", intervals.len());
    }
    let load: Duration = intervals.iter().map(|interval| *interval / 2 + arguments.duration).sum();
    let variants = bench.testbed.variants.clone();
    let total = (arguments.warmup + load).as_secs() * variants.len() as u64 * u64::from(arguments.testbed.repeat);
    let bar = Progress::start("restarting", Some(total), Unit::Items("s"), quiet);
    let name = |its: &Variant| its.name().to_owned();
    let measure = |variant: &Variant, repeat| bench.restart_run(variant, intervals, repeat, &bar);
    let turns = Turns::take(&variants, arguments.testbed.repeat, &bar, name, measure, |restart_run| {
        if !quiet {
            eprint!("{}", report::lines(restart_run));
        }
    });
    drop(bar);
    let turns = turns?;
    let report =
        report::Report { arguments: bench.arguments, intervals, testbed: &bench.testbed, stories: &turns.runs };
    tell(&arguments.testbed, &report::text(&report), || report::json(&report), || report::page(&report))?;
    match turns.end()?.iter().find(|restart_run| !restart_run.faults.is_empty()) {
        Some(restart_run) => bail!("{}: {}", restart_run.variant.name(), restart_run.faults.join("; ")),
        None => Ok(()),
    }
}

impl Bench<'_> {
    /// The restarts of one variant, and the checks at their end.
    fn restart_run(
        &mut self,
        variant: &Variant,
        intervals: &[Duration],
        repeat: u32,
        bar: &Progress,
    ) -> Result<RestartRun> {
        bar.note(format!("{}, run {repeat}: starting", variant.name()));
        let (mut mounted, _) = self.testbed.start(variant)?;
        let (mut ledger, mut restarts) = (Ledger::default(), Vec::new());
        let mut warmup = self.arguments.run.warmup;
        for (nth, &interval) in intervals.iter().enumerate() {
            let first_client = 2 * nth as u64 * CLIENTS_A_ROUND;
            let (again, restarted) =
                self.restart(variant, mounted, (warmup, interval), first_client, &mut ledger, bar)?;
            mounted = again;
            restarts.push(restarted);
            // The clients after a restart have warmed up the server.
            warmup = Duration::ZERO;
        }
        // The rest is not measured.
        mounted.ask("hurry")?;
        bar.note(format!("{}, run {repeat}: checking", variant.name()));
        let mut faults = self.faults(&ledger)?;
        faults.extend(self.testbed.server.check()?);
        let witness = self.testbed.findings();
        witness.clone().unwrap_or_default().explain(&mut faults);
        self.testbed.server.stop()?;
        mounted.close()?;
        self.testbed.place.clear()?;
        Ok(RestartRun { variant: variant.clone(), repeat, restarts, faults, witness })
    }

    /// One restart: load, crash, restart, load.
    fn restart(
        &mut self,
        variant: &Variant,
        mut mounted: Mounted,
        (warmup, interval): (Duration, Duration),
        first_client: u64,
        ledger: &mut Ledger,
        bar: &Progress,
    ) -> Result<(Mounted, Restarted)> {
        bar.note(format!("{}: before the crash", variant.name()));
        let until = |server: &dyn Server, over: &dyn Fn() -> bool| until_crash(server, warmup, interval, over);
        let (ran, crash) = self.strike(Victim::Both, &mut mounted, first_client, until)?;
        if self.testbed.ended.load(Relaxed) {
            bail!("interrupted");
        }
        bar.advance(crash.load_s as u64);
        let before = rate(&ran, &crash);
        ledger.append(ran.ledger);
        bar.note(format!("{}: recovery", variant.name()));
        // The time to remove the dead mount is not part of the restart.
        drop(mounted);
        let started = Instant::now();
        let (mut mounted, found) = self.testbed.devices.mount(&self.testbed.place, variant)?;
        let mounted_s = started.elapsed().as_secs_f64();
        self.testbed.start_server().with_context(|| format!("{}, the restart", variant.name()))?;
        let answered_s = started.elapsed().as_secs_f64();
        let recovery = mounted.ask("figures")?;
        let plan = self.plan(first_client + CLIENTS_A_ROUND, Duration::ZERO, self.arguments.run.duration);
        let (driven, ()) = self.drive(&plan, &mut mounted, variant, bar, &|_, _| Ok(()))?;
        let Driven { ran: mut after, before: looked, after: last } = driven;
        let span = looked.until(&last);
        let at_work_s = started.elapsed().as_secs_f64() - span.seconds;
        ledger.append(std::mem::take(&mut after.ledger));
        let (opened, cache) = (found.opened, span.figures.cache);
        let interval_s = interval.as_secs_f64();
        let restarted =
            Restarted { interval_s, crash, before, mounted_s, opened, answered_s, recovery, at_work_s, after, cache };
        Ok((mounted, restarted))
    }
}

/// New orders a minute in the whole seconds from the checkpoint's beginning to the kill.
fn rate(ran: &Ran, crash: &Crash) -> Option<f64> {
    let (begun, killed) = ((crash.load_s - crash.after_s).ceil() as usize, crash.load_s as usize);
    let seconds = ran.seconds.get(begun..killed.min(ran.seconds.len())).filter(|seconds| !seconds.is_empty())?;
    Some(seconds.iter().map(|second| second.new_orders).sum::<u64>() as f64 * 60.0 / seconds.len() as f64)
}

/// Passes the warm-up, a checkpoint, and the time from its beginning to the middle before the next. If the checkpoint
/// takes longer than that, the kill comes at its end.
fn until_crash(server: &dyn Server, warmup: Duration, interval: Duration, over: &dyn Fn() -> bool) -> Result<Crash> {
    let started = Instant::now();
    pause(warmup, over);
    let begun = Instant::now();
    if !over() {
        server.checkpoint().context("a checkpoint")?;
    }
    let checkpoint_s = begun.elapsed().as_secs_f64();
    pause((interval / 2).saturating_sub(begun.elapsed()), over);
    let redo_bytes = if over() { 0 } else { server.redo_bytes()? };
    let (after_s, load_s) = (begun.elapsed().as_secs_f64(), started.elapsed().as_secs_f64());
    Ok(Crash { checkpoint_s, after_s, redo_bytes, load_s })
}
