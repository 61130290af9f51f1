//! `entresol tune`: compares tuners of a policy's settings with fixed settings, simulated with time or in a live
//! buffer.

mod live;
mod report;
mod shadows;

use crate::arguments::{keyword, word};
use crate::output;
use crate::tiers::{Devices, TimedArgs};
use crate::trace_source::ReadArgs;
use crate::trace_source::{self, Named};
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use entresol_device::profile::{Model, Profile};
use entresol_render::{Progress, Unit};
use entresol_service::values::{count, share};
use entresol_sim::{
    Addresses, Cell, CellOptions, Mode, PolicySpec, Row, TimedOptions, TimedRow, Tuning, parse_policies,
};
use entresol_trace::Trace;
use entresol_tune::search::{Annealing, Climb, Halving, Schedule, Search};
use entresol_tune::{
    EpochRow, Fixed, Guarded, Knob, Limits, Objective, Plain, Point, Shadowing, ShadowingOptions, Space, Tuner,
};
use live::{LiveRow, Time};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const SECONDS_PER_YEAR: f64 = 365.25 * 86_400.0;
/// Most fixed settings: more would be hours of work, and were probably asked for by mistake.
const GRID_MAX: usize = 10_000;

/// Let a policy find its own settings, and compare these with fixed ones
///
/// Simulates with time, or runs with --live. Epoch by epoch a tuner changes the options that the policy declares
/// tunable (`entresol policies NAME` lists them) and learns from the throughput. The tuner begins with the options that
/// are given, and costs at most --bound against them. Several traces are run one after the other: a workload that
/// changes.
#[derive(Args)]
pub struct TuneArgs {
    /// Trace files, or generate:SPEC for generated ones, run one after the other
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// The policy, with the options that the tuner begins with
    #[arg(long, short, default_value = "multi-tier:preset=eager", value_name = "POLICY")]
    pub policy: String,
    /// Tune only these of its options, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Tuners to compare, separated by commas
    #[arg(
        long,
        short,
        value_enum,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "annealing,climb,halving"
    )]
    pub tuner: Vec<TunerName>,
    /// Requests of an epoch
    #[arg(long, value_name = "N", default_value = "20000", value_parser = count)]
    pub epoch: u64,
    /// Epochs that are run but not counted after a change of the settings, until the contents of the cache have adapted
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..1000))]
    pub settle: u32,
    /// Share of the time that a tuner may lose in the long run, compared with its initial settings
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = share)]
    pub bound: f64,
    /// Count NVM writes too: throughput plus LAMBDA per page written in a million requests (003, section 4)
    #[arg(long, value_name = "LAMBDA", conflicts_with = "years", value_parser = lambda)]
    pub lambda: Option<f64>,
    /// Years that the NVM tier is to last, its wear spread evenly
    #[arg(long, value_name = "YEARS", value_parser = lambda)]
    pub years: Option<f64>,
    /// Compare with all combinations of N levels of each option, each fixed; 0 for none
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub grid: usize,
    /// Run the trace through a buffer over memory of this machine and emulated devices
    ///
    /// DRAM is the machine's own. NVM is memory in which an access takes as long as on the cache's device. The backing
    /// store is in memory too, behind a device that takes its time. Every page read is compared with the last write.
    /// With real time --clients are threads, and runs follow one another unless --threads is given, because clients
    /// wait by spinning. With counted time the clients share one processor, which serves others while one waits for the
    /// backing store, and results are the same on any machine.
    #[arg(
        long,
        value_name = "TIME",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "real",
        conflicts_with_all = ["think", "work", "clock"]
    )]
    pub live: Option<Time>,
    /// Treatment of writes by the cache, as `mount` and `serve` take it. A buffer of memory, which --live is, writes back
    #[arg(long, value_parser = keyword::<Mode>(), default_value = "write-back")]
    pub mode: Mode,
    #[command(flatten)]
    pub timed: TimedArgs,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Seed of policies, devices and tuners
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Share of the requests that warm the caches up, before any tuning or counting
    #[arg(long, default_value = "0", value_parser = share)]
    pub warmup: f64,
    /// Most threads [default: one per processor, with --live=real one]
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Write all results to this file, epoch by epoch
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report with charts to this file: one page, readable without a network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

fn lambda(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| "it must be a number above 0".to_owned())
}

/// A tuner by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TunerName {
    /// Simulated annealing that cools down within some hundred epochs
    Annealing,
    /// Simulated annealing with the constants of 003, and no bound on its cost
    AnnealingPaper,
    /// Hill climbing, one option after the other
    Climb,
    /// Successive halving of samples
    Halving,
    /// Settings run as miniature caches over a sample of the pages, each with its own contents; the cache itself tries
    /// none
    Shadows,
}

/// Points of a sample of successive halving.
const SAMPLE: usize = 16;

impl TunerName {
    fn build(self, space: &Space, start: &Point, plan: &Plan) -> Box<dyn Tuner + Send> {
        let seed = plan.cell_options.seed;
        let search = match self {
            TunerName::Annealing => Search::Annealing(Annealing::new(Schedule::FAST, start, seed)),
            TunerName::AnnealingPaper => {
                let search = Search::Annealing(Annealing::new(Schedule::PAPER, start, seed));
                return Box::new(Plain::new(space.clone(), start.clone(), search, plan.objective));
            }
            TunerName::Climb => Search::Climb(Climb::new(start)),
            TunerName::Halving => Search::Halving(Halving::new(space, start, SAMPLE, seed)),
            TunerName::Shadows => {
                let options = ShadowingOptions { limits: plan.limits(), seed, ..plan.shadowing };
                return Box::new(Shadowing::new(space.clone(), start.clone(), plan.objective, &options, plan.epoch));
            }
        };
        let limits = plan.limits();
        Box::new(Guarded::new(space.clone(), start.clone(), search, plan.objective, limits, plan.epoch))
    }
}

/// Plan of the runs: everything except the trace.
pub struct Plan<'a> {
    /// The devices of --tiers.
    pub devices: Devices<'a>,
    /// Warm-up and seed.
    pub cell_options: CellOptions,
    /// Arrival of the requests, and their costs besides the devices.
    pub timed: TimedOptions,
    /// Run through a live buffer with this kind of time; none: simulate.
    pub live: Option<Time>,
    objective: Objective,
    bound: f64,
    settle: u32,
    /// Options of the tuner with shadows.
    shadowing: ShadowingOptions,
    /// Requests of an epoch.
    pub epoch: u64,
    /// Positions of the tuned options among the policy's tunables.
    pub tunables: Vec<usize>,
    /// The tier that wears.
    pub tier: usize,
}

/// One run: with a tuner, or with fixed settings.
#[derive(Serialize)]
pub struct TuneRun {
    /// Name of the tuner; absent for fixed settings.
    pub tuner: Option<String>,
    /// The settings at the end.
    pub values: Vec<f64>,
    /// Requests per second of virtual time, or of real time if run so.
    pub requests_per_second: f64,
    /// The same over the last quarter of the requests.
    pub last_quarter_per_second: f64,
    /// Pages written to the tier that wears, per million requests.
    pub pages_written_per_million: f64,
    /// Years until that tier is worn out, its wear spread evenly; absent if nothing wears.
    pub years: Option<f64>,
    /// Epochs after which the tuner holds its final settings; 0 for fixed settings.
    pub converged_after: usize,
    /// The epochs.
    pub epochs: Vec<EpochRow>,
    /// Counts of the run.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Counts of a run.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Counts {
    /// Counts of a simulation.
    Simulated {
        /// Counts of the policy's actions.
        row: Box<Row>,
        /// Times that the actions took on the devices.
        timed: Box<TimedRow>,
    },
    /// Counts of a live buffer.
    Live {
        /// Counts of the buffer.
        live: LiveRow,
    },
}

/// All results.
#[derive(Serialize)]
pub struct TuneResults {
    /// Description of the traces in a line.
    pub trace: String,
    /// The policy with its initial options.
    pub policy: String,
    /// The options that are tuned.
    pub knobs: Vec<Knob>,
    /// Requests of an epoch.
    pub epoch_requests: u64,
    /// Figure that the tuners maximise.
    pub objective: Objective,
    /// The initial settings, held throughout.
    pub start: TuneRun,
    /// The tuners, in the order of the command line.
    pub tuners: Vec<TuneRun>,
    /// Fixed settings, the best first.
    pub grid: Vec<TuneRun>,
    /// Accuracy of the emulated devices against their models, a line each; none if all is simulated.
    pub emulated: Vec<String>,
}

/// Runs the command.
pub fn run(arguments: &TuneArgs, quiet: bool) -> Result<()> {
    let tiers = arguments.timed.tiers.as_ref().ok_or_else(|| {
        anyhow!("devices are missing: --tiers [dram=PROFILE:SIZE,]cache=PROFILE:SIZE,backing=PROFILE")
    })?;
    let devices = Devices::load(tiers, &arguments.timed)?;
    for path in [&arguments.json, &arguments.html].into_iter().flatten() {
        output::check_writable(path)?;
    }
    let policies = parse_policies(&arguments.policy)?;
    let [policy] = &policies[..] else { bail!("--policy: one policy is tuned at a time, not {}", policies.len()) };
    ensure!(!policy.info.tunables.is_empty(), "policy '{}' has no tunable option", policy.info.name);
    let tunables = chosen(policy, &arguments.options)?;
    let named = opened(arguments, quiet)?;
    let addresses = Addresses::new(&named.trace);
    let cell = cell(policy, &devices, &addresses)?;
    let above = devices.tiers.dram_size().is_some();
    let timed = arguments.timed.options(&devices)?;
    let mut plan = Plan {
        objective: Objective::Throughput,
        devices,
        cell_options: CellOptions {
            warmup: arguments.warmup,
            seed: arguments.seed,
            mode: arguments.mode,
            ..CellOptions::default()
        },
        timed,
        live: arguments.live,
        bound: arguments.bound,
        settle: arguments.settle,
        shadowing: shadows::options(arguments, &cell, &addresses),
        epoch: arguments.epoch,
        tunables,
        tier: usize::from(above),
    };
    if arguments.live.is_some() {
        live::check(policy, arguments.mode)?;
    }
    plan.objective = plan.objective(arguments, &cell, &addresses)?;
    let results = plan.run(arguments, &named, policy, &cell, &addresses, quiet)?;
    output::write_asked(&arguments.json, || Ok(serde_json::to_string(&results)? + "\n"))?;
    output::write_asked(&arguments.html, || Ok(report::page(&results).to_html()))?;
    output::print(&report::text(&results))
}

/// Positions of the options to tune: all, or those named.
fn chosen(policy: &PolicySpec, names: &[String]) -> Result<Vec<usize>> {
    let tunables = policy.info.tunables;
    if names.is_empty() {
        return Ok((0..tunables.len()).collect());
    }
    let place = |name: &String| {
        let place = tunables.iter().position(|tunable| tunable.option == name.trim());
        place.ok_or_else(|| {
            let known: Vec<&str> = tunables.iter().map(|tunable| tunable.option).collect();
            anyhow!(
                "--options: '{name}' of policy '{}' is not tunable; these are: {}",
                policy.info.name,
                known.join(", ")
            )
        })
    };
    let mut places = names.iter().map(place).collect::<Result<Vec<_>>>()?;
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

/// The traces, joined into one.
fn opened(arguments: &TuneArgs, quiet: bool) -> Result<Named> {
    let open = |path: &PathBuf| trace_source::open(path, &arguments.read, false, quiet);
    let mut all = arguments.traces.iter().map(open).collect::<Result<Vec<_>>>()?;
    if all.len() == 1 {
        return Ok(all.remove(0));
    }
    let name = all.iter().map(|named| named.name.as_str()).collect::<Vec<_>>().join(", then ");
    let format = all[0].format.clone();
    let traces: Vec<Trace> = all.into_iter().map(|named| named.trace).collect();
    Ok(Named { trace: Trace::joined(&traces)?, name, format, left_out: Vec::new() })
}

fn cell(policy: &PolicySpec, devices: &Devices, addresses: &Addresses) -> Result<Cell> {
    let size =
        devices.tiers.cache_size().ok_or_else(|| anyhow!("the size of the cache is missing: cache=PROFILE:SIZE"))?;
    let dram = devices.tiers.dram_size();
    if dram.is_none() && policy.info.tiers.len() == 2 {
        bail!(
            "policy '{}' manages {}: --tiers needs dram=PROFILE:SIZE as well",
            policy.info.name,
            policy.info.tiers.join(" and ")
        );
    }
    Ok(Cell::single(policy, size, dram, addresses).map_err(|skip| *skip)?)
}

/// Times that each byte of a device may be written; none if nothing wears or no source is known.
fn endurance_writes(profile: &Profile) -> Option<f64> {
    match &profile.device {
        Model::Fixed(device) => device.endurance_writes,
        Model::NvmDimm(device) => device.endurance_writes,
        Model::NvmBlock(device) => device.endurance_writes,
        _ => None,
    }
}

impl Plan<'_> {
    fn limits(&self) -> Limits {
        Limits { bound: self.bound, settle: self.settle, ..Limits::default() }
    }

    /// Seed of policies, devices and tuners.
    pub fn seed(&self) -> u64 {
        self.cell_options.seed
    }

    /// Pages that can be written to the tier that wears before it is worn out, if spread evenly.
    fn writes_in_all(&self, cell: &Cell, addresses: &Addresses) -> Option<f64> {
        let pages = cell.needs(addresses)[self.tier] as f64 / f64::from(addresses.trace.page_bytes);
        endurance_writes(self.devices.cache_profile()).map(|writes| writes * pages)
    }

    fn objective(&self, arguments: &TuneArgs, cell: &Cell, addresses: &Addresses) -> Result<Objective> {
        if let Some(lambda) = arguments.lambda {
            return Ok(Objective::Weighted { lambda });
        }
        let Some(years) = arguments.years else { return Ok(Objective::Throughput) };
        let writes = self.writes_in_all(cell, addresses).with_context(|| {
            format!("--years: profile '{}' states no endurance_writes", self.devices.cache_profile().name)
        })?;
        Ok(Objective::Lifetime { pages_per_second_max: writes / (years * SECONDS_PER_YEAR) })
    }

    fn run(
        &self,
        arguments: &TuneArgs,
        named: &Named,
        policy: &PolicySpec,
        cell: &Cell,
        addresses: &Addresses,
        quiet: bool,
    ) -> Result<TuneResults> {
        let all = cell.knobs(addresses, &self.cell_options)?;
        let knobs: Vec<Knob> = self.tunables.iter().map(|&at| all[at].clone()).collect();
        let (space, start) = Space::new(knobs.clone())?;
        let grid = grid(&space, arguments.grid)?;
        // The start first, then the tuners, then the grid.
        let fixed = |values: &Vec<f64>| Box::new(Fixed(values.clone())) as Box<dyn Tuner + Send>;
        let jobs = 1 + arguments.tuner.len() + grid.len();
        let tuner = |at: usize| match at.checked_sub(1) {
            None => fixed(&space.values(&start)),
            Some(at) => match arguments.tuner.get(at) {
                Some(name) => name.build(&space, &start, self),
                None => fixed(&grid[at - arguments.tuner.len()]),
            },
        };
        let bar = Progress::start(&named.name, Some(jobs as u64), Unit::Items("results"), quiet);
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let done: Vec<Mutex<Option<Result<TuneRun>>>> = (0..jobs).map(|_| Mutex::new(None)).collect();
        let usual = if self.live == Some(Time::Real) { 1 } else { every_processor() };
        let threads = arguments.threads.map_or(usual, usize::from).min(jobs);
        let emulated = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !failed.load(Ordering::Relaxed) {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        if at >= jobs {
                            break;
                        }
                        let name = at.checked_sub(1).and_then(|at| arguments.tuner.get(at)).map(|&name| word(name));
                        let result = self.one(name, tuner(at), policy, cell, addresses).map(|(run, accuracy)| {
                            if at == 0 {
                                *emulated.lock().expect("no thread panics with it") = accuracy;
                            }
                            run
                        });
                        failed.fetch_or(result.is_err(), Ordering::Relaxed);
                        *done[at].lock().expect("no thread panics with it") = Some(result);
                        bar.advance(1);
                    }
                });
            }
        });
        drop(bar);
        let runs = done.into_iter().filter_map(|slot| slot.into_inner().expect("no thread panicked with it"));
        let mut runs = runs.collect::<Result<Vec<_>>>()?.into_iter();
        let start = runs.next().ok_or_else(|| anyhow!("the start is run first"))?;
        let tuners = runs.by_ref().take(arguments.tuner.len()).collect();
        let mut grid: Vec<TuneRun> = runs.collect();
        grid.sort_by(|a, b| b.requests_per_second.total_cmp(&a.requests_per_second));
        Ok(TuneResults {
            trace: trace_source::describe(named),
            policy: arguments.policy.clone(),
            knobs,
            epoch_requests: self.epoch,
            objective: self.objective,
            start,
            tuners,
            grid,
            emulated: emulated.into_inner().expect("no thread panicked with it"),
        })
    }

    /// One run, and the accuracy of its emulated devices.
    fn one(
        &self,
        name: Option<String>,
        mut tuner: Box<dyn Tuner + Send>,
        policy: &PolicySpec,
        cell: &Cell,
        addresses: &Addresses,
    ) -> Result<(TuneRun, Vec<String>)> {
        let shadows = shadows::of(self, tuner.as_ref(), cell, addresses)?;
        if let Some(time) = self.live {
            let ran = live::run(self, time, policy, &cell.needs(addresses), addresses, tuner, shadows)?;
            return Ok((self.summed(name, ran.epochs, Counts::Live { live: ran.row }, cell, addresses), ran.accuracy));
        }
        let hierarchy = self.devices.hierarchy(cell, addresses, &self.cell_options)?;
        let tuning = Tuning {
            tuner: tuner.as_mut(),
            tunables: self.tunables.clone(),
            epoch_requests: self.epoch,
            shadows,
            tier: self.tier,
        };
        let (row, timed, epochs) = cell.run_tuned(addresses, hierarchy, &self.cell_options, &self.timed, tuning)?;
        let counts = Counts::Simulated { row: Box::new(row), timed: Box::new(timed) };
        Ok((self.summed(name, epochs, counts, cell, addresses), Vec::new()))
    }

    fn summed(
        &self,
        name: Option<String>,
        epochs: Vec<EpochRow>,
        counts: Counts,
        cell: &Cell,
        addresses: &Addresses,
    ) -> TuneRun {
        let values = epochs.last().map(|epoch| epoch.held.clone()).unwrap_or_default();
        let written: u64 = epochs.iter().map(|epoch| epoch.pages_written).sum();
        let requests: u64 = epochs.iter().map(|epoch| epoch.requests).sum();
        let seconds: f64 = epochs.iter().map(|epoch| epoch.seconds).sum();
        let years = |writes: f64| writes / (written.max(1) as f64 / seconds) / SECONDS_PER_YEAR;
        let kept = epochs.iter().rev().take_while(|epoch| epoch.held == values).count();
        TuneRun {
            converged_after: if name.is_some() { epochs.len() - kept } else { 0 },
            tuner: name,
            values,
            requests_per_second: requests as f64 / seconds,
            last_quarter_per_second: last_quarter(&epochs),
            pages_written_per_million: written as f64 * 1e6 / requests.max(1) as f64,
            years: self.writes_in_all(cell, addresses).map(years),
            epochs,
            counts,
        }
    }
}

fn every_processor() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Requests per second over the epochs that begin in the last quarter of the requests.
fn last_quarter(epochs: &[EpochRow]) -> f64 {
    let (Some(first), Some(last)) = (epochs.first(), epochs.last()) else { return 0.0 };
    let end = last.at + last.requests;
    let from = end - (end - first.at) / 4;
    let late = || epochs.iter().filter(|epoch| epoch.at >= from);
    late().map(|epoch| epoch.requests).sum::<u64>() as f64 / late().map(|epoch| epoch.seconds).sum::<f64>()
}

/// All combinations of `levels` levels of each knob: the first, the last and evenly spaced ones in between.
fn grid(space: &Space, levels: usize) -> Result<Vec<Vec<f64>>> {
    if levels == 0 {
        return Ok(Vec::new());
    }
    let mut points: Vec<Point> = vec![Point::new()];
    for knob in 0..space.knobs().len() {
        let all = space.levels(knob);
        let taken = levels.min(all);
        let place = |i: usize| if taken == 1 { all - 1 } else { (i * (all - 1)).div_ceil(taken - 1) };
        points = points
            .iter()
            .flat_map(|point| (0..taken).map(move |i| point.iter().copied().chain([place(i)]).collect()))
            .collect();
        ensure!(
            points.len() <= GRID_MAX,
            "--grid {levels}: more than {GRID_MAX} fixed settings; fewer levels or fewer --options"
        );
    }
    Ok(points.iter().map(|point| space.values(point)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_has_the_ends_and_what_lies_between() {
        let knob = |levels: &[f64]| Knob { name: "k".to_owned(), levels: levels.to_vec(), value: 1.0 };
        let (space, _) = Space::new([knob(&[0.0, 0.001, 0.01, 0.1, 0.3, 1.0]), knob(&[0.0, 1.0])]).expect("a space");
        assert_eq!(grid(&space, 0).expect("none"), Vec::<Vec<f64>>::new());
        assert_eq!(grid(&space, 1).expect("one"), [[1.0, 1.0]]);
        assert_eq!(grid(&space, 2).expect("four"), [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]);
        let three: Vec<f64> = grid(&space, 3).expect("six").iter().map(|values| values[0]).collect();
        assert_eq!(three, [0.0, 0.0, 0.1, 0.1, 1.0, 1.0]);
        assert_eq!(grid(&space, 100).expect("all").len(), 12);
        let (wide, _) = Space::new((0..6).map(|_| knob(&[0.0, 0.1, 0.2, 0.5, 0.6, 1.0]))).expect("a space");
        assert!(grid(&wide, 6).is_err());
    }
}
