//! `entresol simulate`: plans and runs a simulation.

mod args;
mod estimate;
mod report;
mod report_parts;
mod report_series;
mod results;
mod summary;
mod text;
mod timed;
mod timed_report;

use crate::journal::Journal;
use crate::output;
use crate::trace_source;
use crate::trace_source::Named;
use anyhow::{Result, bail};
pub use args::SimulateArgs;
use entresol_render::{Progress, Unit};
use entresol_sim::{
    Addresses, Cell, CellOptions, LayerSpec, PolicySpec, Row, Skipped, parse_policies, parse_stack, sweep,
};
use results::{TraceResults, baseline};
use std::path::PathBuf;

/// Plan of a simulation: everything except the trace.
struct Plan {
    policies: Vec<PolicySpec>,
    /// Stacks with their texts.
    stacks: Vec<(String, Vec<LayerSpec>)>,
    /// True if cells that cannot be run are reported and skipped, because the user did not name them one by one.
    lenient: bool,
    options: CellOptions,
    threads: usize,
}

/// Runs the command.
pub fn run(arguments: &SimulateArgs, quiet: bool) -> Result<()> {
    let outputs: Vec<&PathBuf> =
        [&arguments.json, &arguments.csv, &arguments.html, &arguments.svg].into_iter().flatten().collect();
    outputs.iter().try_for_each(|path| output::check_writable(path))?;
    if let Some(tiers) = &arguments.timed.tiers {
        return timed::run(arguments, tiers, quiet);
    }
    if arguments.svg.is_some() && arguments.traces.len() > 1 {
        bail!("--svg draws one trace, not {}", arguments.traces.len());
    }
    let plan = Plan::new(arguments)?;
    if let Some(rate) = arguments.sample {
        return estimate::run(arguments, &plan, rate, quiet);
    }
    let mut journal = Journal::open(arguments.json.as_deref(), &fingerprint(arguments))?;
    if journal.len() > 0 && !quiet {
        say!("taking over {} finished results of an interrupted run", journal.len());
    }
    let all = match simulate_all(arguments, &plan, &mut journal, quiet) {
        Ok(all) => all,
        // The same command line would fail again in the same way, so the journal is of no use.
        Err(error) => {
            journal.finish()?;
            return Err(error);
        }
    };
    results::write(arguments, &all)?;
    journal.finish()?;
    let base = baseline(arguments, &all);
    for results in &all {
        output::print(&text::text(results, base.as_deref()))?;
    }
    Ok(())
}

fn simulate_all(
    arguments: &SimulateArgs,
    plan: &Plan,
    journal: &mut Journal<Row>,
    quiet: bool,
) -> Result<Vec<TraceResults>> {
    let needs_future = plan.policies.iter().any(|policy| policy.info.future);
    let mut all = Vec::new();
    for (index, path) in arguments.traces.iter().enumerate() {
        let named = trace_source::open(path, &arguments.read, needs_future, quiet)?;
        all.push(simulate(arguments, plan, (index, named), journal, quiet)?);
    }
    Ok(all)
}

/// All arguments that change results, so that the journal of another sweep is not taken for this one's.
fn fingerprint(arguments: &SimulateArgs) -> String {
    let read = &arguments.read;
    let files = arguments.traces.iter().map(|path| {
        let metadata = std::fs::metadata(path);
        let modified = metadata.as_ref().ok().and_then(|data| data.modified().ok());
        format!("{}:{:?}:{modified:?}", path.display(), metadata.map(|data| data.len()).ok())
    });
    format!(
        "entresol {} simulate {:?} {:?} {:?} {} {} {:?} {} {} {} {:?} {} {} {} {} {:?} {} {:?}",
        env!("CARGO_PKG_VERSION"),
        files.collect::<Vec<_>>(),
        read.format,
        read.page_size,
        read.split.name(),
        read.skip_bad,
        read.limit,
        read.keep_logs,
        arguments.seed,
        arguments.warmup,
        arguments.interval,
        arguments.parts,
        arguments.drain,
        arguments.sequential_cutoff,
        arguments.layout,
        arguments.segment_size,
        arguments.wear,
        arguments.mode,
    )
}

impl Plan {
    fn new(arguments: &SimulateArgs) -> Result<Self> {
        let stacks = arguments.stack.iter().map(|text| Ok((text.clone(), parse_stack(text)?)));
        let stacks = stacks.collect::<Result<Vec<_>>>()?;
        let mut policies = if stacks.is_empty() { parse_policies(&arguments.policy)? } else { Vec::new() };
        if let Some(text) = &arguments.baseline {
            add_baseline(&mut policies, text)?;
        }
        let every_processor = || std::thread::available_parallelism().map_or(1, |count| count.get());
        Ok(Plan {
            lenient: arguments.policy.split(',').any(|name| name.trim() == "all")
                || stacks.is_empty() && !arguments.size_given(),
            policies,
            stacks,
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
            threads: arguments.threads.map_or_else(every_processor, usize::from),
        })
    }

    /// The cells over one trace, and the skipped ones.
    fn cells(&self, arguments: &SimulateArgs, addresses: &Addresses) -> Result<(Vec<Cell>, Vec<Skipped>)> {
        let stacks = self.stacks.iter().map(|(text, layers)| Cell::stack(layers, text.clone(), addresses));
        let singles = self.policies.iter().flat_map(|policy| {
            arguments.size.iter().map(|&size| Cell::single(policy, size, arguments.dram, addresses))
        });
        parted(stacks.chain(singles), self.lenient)
    }
}

/// Cells that can be run, and those skipped if `lenient`.
fn parted(all: impl Iterator<Item = Result<Cell, Box<Skipped>>>, lenient: bool) -> Result<(Vec<Cell>, Vec<Skipped>)> {
    let (mut cells, mut skipped) = (Vec::new(), Vec::new());
    for cell in all {
        match cell {
            Ok(cell) => cells.push(cell),
            Err(skip) if lenient => skipped.push(*skip),
            Err(skip) => return Err((*skip).into()),
        }
    }
    if cells.is_empty() {
        bail!("no policy can be run at these sizes; the first reason: {}", skipped[0]);
    }
    Ok((cells, skipped))
}

/// Adds the baseline to the simulated policies, if it is missing.
fn add_baseline(policies: &mut Vec<PolicySpec>, text: &str) -> Result<()> {
    let mut specs = parse_policies(text)?;
    if specs.len() != 1 {
        bail!("the baseline is one policy, not {}: '{text}'", specs.len());
    }
    let baseline = specs.remove(0);
    let same = |policy: &PolicySpec| {
        policy.info.name == baseline.info.name && policy.options.summary() == baseline.options.summary()
    };
    if !policies.iter().any(same) {
        policies.push(baseline);
    }
    Ok(())
}

fn simulate(
    arguments: &SimulateArgs,
    plan: &Plan,
    (index, named): (usize, Named),
    journal: &mut Journal<Row>,
    quiet: bool,
) -> Result<TraceResults> {
    let addresses = Addresses::new(&named.trace);
    let (cells, skipped) = plan.cells(arguments, &addresses)?;
    // Keyed by the trace's position on the command line, because two traces may have one name.
    let key = |cell: &Cell| format!("{index}|{}", cell.key());
    let mut rows: Vec<Option<Row>> = cells.iter().map(|cell| journal.take(&key(cell))).collect();
    let missing: Vec<usize> = (0..cells.len()).filter(|&i| rows[i].is_none()).collect();
    let todo: Vec<Cell> = missing.iter().map(|&i| cells[i].clone()).collect();
    let bar = Progress::start(&named.name, Some(todo.len() as u64), Unit::Items("results"), quiet);
    let mut keeping = true;
    let swept = sweep(&addresses, &todo, &plan.options, plan.threads, &mut |progress| {
        bar.advance(1);
        bar.note(format!("{} {}", progress.row.policy, progress.row.size));
        let kept = if keeping { journal.keep(&key(progress.cell), progress.row) } else { Ok(()) };
        if let Err(error) = kept {
            // The results are still to come; the journal matters only after an interruption.
            keeping = false;
            bar.aside(|| say!("finished results are no longer kept for a later run: {error:#}"));
        }
    })?;
    missing.into_iter().zip(swept.rows).for_each(|(i, row)| rows[i] = Some(row));
    drop(bar);
    let rows = rows.into_iter().map(|row| row.expect("every cell was run or taken over")).collect();
    if !quiet {
        text::skipped_lines(&skipped, plan.policies.len()).iter().for_each(|line| say!("{line}"));
    }
    Ok(TraceResults { named, rows, skipped })
}
