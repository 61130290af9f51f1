//! `entresol simulate --tiers`: simulation with time over device models.

use super::args::SimulateArgs;
use super::results::{self, TraceInfo};
use super::timed_report;
use crate::output;
use crate::tiers::{Devices, Tiers};
use crate::trace_source::{self, Named};
use anyhow::{Result, bail};
use entresol_core::Size;
use entresol_render::{Progress, Unit};
use entresol_sim::{Addresses, Cell, CellOptions, PolicySpec, Row, Skipped, TimedOptions, TimedRow, parse_policies};
use serde::Serialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn check_words(arguments: &SimulateArgs) -> Result<()> {
    let given = [
        (!arguments.stack.is_empty(), "--stack", "its layers have sizes of their own, and --tiers has places for two"),
        (arguments.dram.is_some(), "--dram", "the size of DRAM stands with its device: dram=PROFILE:SIZE"),
        (arguments.sample.is_some(), "--sample", "a sample of the pages has the misses of all, not their time"),
        (arguments.baseline.is_some(), "--baseline", "rows are compared by their miss ratios, which need no devices"),
        (
            arguments.svg.is_some(),
            "--svg",
            "it draws miss ratios, which are the same without devices; --html has charts",
        ),
    ];
    match given.iter().find(|(given, ..)| *given) {
        Some((_, word, reason)) => bail!("--tiers and {word} do not go together: {reason}"),
        None => Ok(()),
    }
}

/// The result of one cell.
#[derive(Serialize)]
pub struct TimedResult {
    /// Counts of the policy's actions.
    #[serde(flatten)]
    pub row: Row,
    /// Times that the actions took on the devices.
    pub timed: TimedRow,
}

/// All results of one trace.
pub struct TimedResults {
    /// The trace.
    pub named: Named,
    /// Results in the order of the command line.
    pub rows: Vec<TimedResult>,
    /// Cells that could not be run.
    pub skipped: Vec<Skipped>,
}

/// Plan of a timed simulation: everything except the trace.
struct Plan<'a> {
    devices: Devices<'a>,
    policies: Vec<PolicySpec>,
    sizes: Vec<Size>,
    lenient: bool,
    options: CellOptions,
    timed: TimedOptions,
    threads: usize,
}

/// Runs the command.
pub fn run(arguments: &SimulateArgs, tiers: &Tiers, quiet: bool) -> Result<()> {
    check_words(arguments)?;
    let plan = Plan::new(arguments, tiers, quiet)?;
    let needs_future = plan.policies.iter().any(|policy| policy.info.future);
    let mut all = Vec::new();
    for path in &arguments.traces {
        let named = trace_source::open(path, &arguments.read, needs_future, quiet)?;
        all.push(plan.simulate(named, quiet)?);
    }
    let rows = || all.iter().map(|results| (TraceInfo::of(&results.named), &results.rows[..], &results.skipped[..]));
    output::write_asked(&arguments.json, || results::json(rows()))?;
    output::write_asked(&arguments.csv, || Ok(timed_report::requests(&all, true).to_csv()))?;
    output::write_asked(&arguments.html, || Ok(timed_report::page(&all).to_html()))?;
    all.iter().try_for_each(|results| output::print(&timed_report::text(results)))
}

impl<'a> Plan<'a> {
    fn new(arguments: &SimulateArgs, tiers: &'a Tiers, quiet: bool) -> Result<Self> {
        let devices = Devices::load(tiers, &arguments.timed)?;
        let lenient = arguments.policy.split(',').any(|name| name.trim() == "all");
        let mut policies = parse_policies(&arguments.policy)?;
        if tiers.dram.is_none() {
            policies = of_one_tier(policies, lenient, quiet)?;
        }
        let sizes = match tiers.cache.size {
            Some(_) if arguments.size_given() => {
                bail!("the size of the cache is given twice: by --tiers and by --size")
            }
            Some(size) => vec![size],
            None => arguments.size.clone(),
        };
        let every_processor = || std::thread::available_parallelism().map_or(1, |count| count.get());
        let timed = arguments.timed.options(&devices)?;
        Ok(Plan {
            devices,
            policies,
            sizes,
            lenient: lenient || tiers.cache.size.is_none() && !arguments.size_given(),
            options: CellOptions {
                warmup: arguments.warmup,
                interval: arguments.interval,
                parts: arguments.parts,
                drain: arguments.drain,
                seed: arguments.seed,
                sequential_cutoff: arguments.sequential_cutoff,
                log: arguments.log()?,
                mode: arguments.mode,
            },
            timed,
            threads: arguments.threads.map_or_else(every_processor, usize::from),
        })
    }

    fn cells(&self, addresses: &Addresses) -> Result<(Vec<Cell>, Vec<Skipped>)> {
        let dram = self.devices.tiers.dram_size();
        let each = self.policies.iter().flat_map(|policy| self.sizes.iter().map(move |size| (policy, size)));
        super::parted(each.map(|(policy, &size)| Cell::single(policy, size, dram, addresses)), self.lenient)
    }

    fn simulate(&self, named: Named, quiet: bool) -> Result<TimedResults> {
        let addresses = Addresses::new(&named.trace);
        let (cells, skipped) = self.cells(&addresses)?;
        let bar = Progress::start(&named.name, Some(cells.len() as u64), Unit::Items("results"), quiet);
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let done: Vec<Mutex<Option<Result<TimedResult>>>> = cells.iter().map(|_| Mutex::new(None)).collect();
        std::thread::scope(|scope| {
            for _ in 0..self.threads.min(cells.len()) {
                scope.spawn(|| {
                    while !failed.load(Ordering::Relaxed) {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(cell) = cells.get(at) else { break };
                        let result = self.run(cell, &addresses);
                        failed.fetch_or(result.is_err(), Ordering::Relaxed);
                        *done[at].lock().expect("no thread panics with it") = Some(result);
                        bar.advance(1);
                    }
                });
            }
        });
        drop(bar);
        // A cell that was not begun comes after a failed cell, so that the error is returned.
        let results = done.into_iter().filter_map(|slot| slot.into_inner().expect("no thread panicked with it"));
        let rows = results.collect::<Result<Vec<_>>>()?;
        Ok(TimedResults { named, rows, skipped })
    }

    fn run(&self, cell: &Cell, addresses: &Addresses) -> Result<TimedResult> {
        let hierarchy = self.devices.hierarchy(cell, addresses, &self.options)?;
        let (row, timed) = cell.run_timed(addresses, hierarchy, &self.options, &self.timed)?;
        Ok(TimedResult { row, timed })
    }
}

/// Without DRAM, only policies that manage one tier can be run. With `lenient`, for the whole catalogue, the others are
/// left out.
fn of_one_tier(policies: Vec<PolicySpec>, lenient: bool, quiet: bool) -> Result<Vec<PolicySpec>> {
    let (one, two): (Vec<_>, Vec<_>) = policies.into_iter().partition(|policy| policy.info.tiers.len() == 1);
    let Some(first) = two.first() else { return Ok(one) };
    let names: Vec<&str> = two.iter().map(|policy| policy.info.name).collect();
    if !lenient {
        let (name, tiers) = (first.info.name, first.info.tiers.join(" and "));
        bail!("policy '{name}' manages {tiers}: --tiers needs dram=PROFILE:SIZE as well");
    }
    if !quiet {
        say!("left out, for --tiers gives no dram: {}", names.join(", "));
    }
    Ok(one)
}
