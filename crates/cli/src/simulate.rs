//! `entresol simulate`.

use crate::args::SimulateArgs;
use crate::journal::Journal;
use crate::trace_source::Named;
use crate::{output, simulate_report, trace_source};
use anyhow::{Context, Result, bail};
use entresol_core::Size;
use entresol_report::{Cell as TableCell, Column, Progress, Table, TextStyle, Tone, Unit};
use entresol_sim::{
    Cell, CellOptions, Estimate, LayerSpec, PolicySpec, Row, Skipped, World, parse_policies, parse_stack, sample, sweep,
};
use serde::Serialize;
use std::path::PathBuf;

/// All results of one trace.
pub struct TraceResults {
    /// The trace.
    pub named: Named,
    /// A row per cell.
    pub rows: Vec<Row>,
    /// Cells that could not be run.
    pub skipped: Vec<Skipped>,
}

/// What is to be simulated, apart from the trace.
struct Plan {
    policies: Vec<PolicySpec>,
    /// Stacks with their texts.
    stacks: Vec<(String, Vec<LayerSpec>)>,
    /// Cells that cannot be run are reported and passed over, as nobody asked for each of them by name.
    lenient: bool,
    options: CellOptions,
    threads: usize,
}

/// Runs the command.
pub fn run(arguments: &SimulateArgs, quiet: bool) -> Result<()> {
    let outputs: Vec<&PathBuf> = [&arguments.json, &arguments.csv, &arguments.html].into_iter().flatten().collect();
    outputs.iter().try_for_each(|path| output::check_writable(path))?;
    let plan = Plan::new(arguments)?;
    if let Some(rate) = arguments.sample {
        return estimate(arguments, &plan, rate, quiet);
    }
    let mut journal = Journal::open(arguments.json.as_deref(), &fingerprint(arguments))?;
    if journal.len() > 0 && !quiet {
        eprintln!("taking over {} finished results of an interrupted run", journal.len());
    }
    let mut all = Vec::new();
    for path in &arguments.traces {
        let needs_future = plan.policies.iter().any(|policy| policy.info.future);
        let named = trace_source::open(path, &arguments.read, needs_future, quiet)?;
        all.push(simulate(arguments, &plan, named, &mut journal, quiet)?);
    }
    write_outputs(arguments, &all)?;
    journal.finish()?;
    for results in &all {
        output::print(&format!("{}\n", trace_source::describe(&results.named)))?;
        output::print(&text(results))?;
    }
    Ok(())
}

/// All that changes results, so that a journal of another sweep is not taken for this one's.
fn fingerprint(arguments: &SimulateArgs) -> String {
    let read = &arguments.read;
    let files = arguments.traces.iter().map(|path| {
        let metadata = std::fs::metadata(path);
        let modified = metadata.as_ref().ok().and_then(|data| data.modified().ok());
        format!("{}:{:?}:{modified:?}", path.display(), metadata.map(|data| data.len()).ok())
    });
    format!(
        "entresol {} simulate {:?} {:?} {:?} {} {} {:?} {} {} {} {:?} {} {}",
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
    )
}

impl Plan {
    fn new(arguments: &SimulateArgs) -> Result<Self> {
        let stacks = arguments.stack.iter().map(|text| Ok((text.clone(), parse_stack(text)?)));
        let stacks = stacks.collect::<Result<Vec<_>>>()?;
        let policies = if stacks.is_empty() { parse_policies(&arguments.policy)? } else { Vec::new() };
        Ok(Plan {
            lenient: arguments.policy.split(',').any(|name| name.trim() == "all"),
            policies,
            stacks,
            options: CellOptions {
                warmup: arguments.warmup,
                interval: arguments.interval,
                parts: arguments.parts,
                drain: arguments.drain,
                seed: arguments.seed,
            },
            threads: arguments
                .threads
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |count| count.get())),
        })
    }

    /// The cells over one trace, and those that cannot be.
    fn cells(&self, arguments: &SimulateArgs, world: &World) -> Result<(Vec<Cell>, Vec<Skipped>)> {
        let stacks = self.stacks.iter().map(|(text, layers)| Cell::stack(layers, text.clone(), world));
        let singles = self
            .policies
            .iter()
            .flat_map(|policy| arguments.size.iter().map(|&size| Cell::single(policy, size, arguments.dram, world)));
        let (mut cells, mut skipped) = (Vec::new(), Vec::new());
        for cell in stacks.chain(singles) {
            match cell {
                Ok(cell) => cells.push(cell),
                Err(skip) if self.lenient => skipped.push(*skip),
                Err(skip) => {
                    let size = skip.size.clone();
                    return Err(skip.error).with_context(|| format!("size {size}"));
                }
            }
        }
        if cells.is_empty() {
            bail!("no policy can be run at these sizes; the first reason: {}", skipped[0].error);
        }
        Ok((cells, skipped))
    }
}

fn simulate(
    arguments: &SimulateArgs,
    plan: &Plan,
    named: Named,
    journal: &mut Journal,
    quiet: bool,
) -> Result<TraceResults> {
    let world = World::new(&named.trace);
    let (cells, skipped) = plan.cells(arguments, &world)?;
    let key = |cell: &Cell| format!("{}|{}", named.name, cell.key());
    let mut rows: Vec<Option<Row>> = cells.iter().map(|cell| journal.take(&key(cell))).collect();
    let missing: Vec<usize> = (0..cells.len()).filter(|&i| rows[i].is_none()).collect();
    let todo: Vec<Cell> = missing.iter().map(|&i| cells[i].clone()).collect();
    let bar = Progress::start(&named.name, Some(todo.len() as u64), Unit::Items("results"), quiet);
    let mut kept = Ok(());
    let swept = sweep(&world, &todo, &plan.options, plan.threads, &mut |progress| {
        bar.advance(1);
        bar.note(format!("{} {}", progress.row.policy, progress.row.size));
        if kept.is_ok() {
            kept = journal.keep(&key(progress.cell), progress.row);
        }
    })?;
    kept?;
    missing.into_iter().zip(swept.rows).for_each(|(i, row)| rows[i] = Some(row));
    drop(bar);
    let rows = rows.into_iter().map(|row| row.expect("every cell was run or taken over")).collect();
    for skip in skipped.iter().filter(|_| !quiet) {
        eprintln!("skipped {} at {}: {}", skip.policy, skip.size, skip.error);
    }
    Ok(TraceResults { named, rows, skipped })
}

/// The trace as results name it.
#[derive(Serialize)]
struct TraceInfo<'a> {
    name: &'a str,
    format: &'a str,
    provenance: &'a str,
    page_bytes: u32,
    requests: usize,
    footprint_pages: usize,
    left_out: &'a [String],
}

#[derive(Serialize)]
struct SkippedInfo<'a> {
    policy: &'a str,
    size: &'a str,
    reason: String,
}

#[derive(Serialize)]
struct Results<'a> {
    trace: TraceInfo<'a>,
    command: String,
    results: &'a [Row],
    skipped: Vec<SkippedInfo<'a>>,
}

impl<'a> Results<'a> {
    fn new(results: &'a TraceResults) -> Self {
        let TraceResults { named, rows, skipped } = results;
        let trace = TraceInfo {
            name: &named.name,
            format: &named.format,
            provenance: &named.trace.provenance,
            page_bytes: named.trace.page_bytes,
            requests: named.trace.len(),
            footprint_pages: named.trace.footprint(),
            left_out: &named.left_out,
        };
        let skip =
            |skip: &'a Skipped| SkippedInfo { policy: &skip.policy, size: &skip.size, reason: skip.error.to_string() };
        Results { trace, command: output::command_line(), results: rows, skipped: skipped.iter().map(skip).collect() }
    }
}

fn write_outputs(arguments: &SimulateArgs, all: &[TraceResults]) -> Result<()> {
    if let Some(path) = &arguments.json {
        let mut each: Vec<Results> = all.iter().map(Results::new).collect();
        // One trace is the published format; of several each has its own object of that form.
        let json = match each.len() {
            1 => serde_json::to_vec_pretty(&each.remove(0))?,
            _ => serde_json::to_vec_pretty(&serde_json::json!({ "traces": each }))?,
        };
        output::write_file(path, &json)?;
    }
    if let Some(path) = &arguments.csv {
        output::write_file(path, simulate_report::table(all).to_csv().as_bytes())?;
    }
    if let Some(path) = &arguments.html {
        let page = simulate_report::page(all, &arguments.baseline);
        output::write_file(path, page.to_html().as_bytes())?;
    }
    Ok(())
}

/// Name of a row's policy with its options.
pub fn label(row: &Row) -> String {
    let options = row.options.trim_matches('+');
    if options.is_empty() { row.policy.clone() } else { format!("{}:{options}", row.policy) }
}

/// Pages written below per request.
pub fn write_ratio(row: &Row) -> f64 {
    row.written_below() as f64 / row.requests.max(1) as f64
}

/// The results for a terminal: a table of sizes by policies when there are many of both, else one line a result.
fn text(results: &TraceResults) -> String {
    let mut sizes: Vec<&str> = Vec::new();
    let mut labels: Vec<String> = Vec::new();
    for row in &results.rows {
        if !sizes.contains(&row.size.as_str()) {
            sizes.push(&row.size);
        }
        if !labels.contains(&label(row)) {
            labels.push(label(row));
        }
    }
    if sizes.len() < 2 || labels.len() < 4 {
        return lines(&results.rows).to_text(TextStyle::stdout());
    }
    let mut text = ranking("hit ratio", &results.rows, &sizes, &labels, Row::hit_ratio, true);
    if results.rows.iter().any(|row| row.writes > 0) {
        text += &ranking("pages written below per request", &results.rows, &sizes, &labels, write_ratio, false);
    }
    text
}

fn lines(rows: &[Row]) -> Table {
    let mut table = Table::new(
        "Results",
        [
            Column::text("policy"),
            Column::text("size"),
            Column::number("pages").priority(2),
            Column::number("hit ratio"),
            Column::number("read hits").priority(1),
            Column::number("write hits").priority(1),
            Column::number("fetches").priority(3),
            Column::number("write-backs"),
            Column::number("I/Os").priority(4),
            Column::number("bypasses").priority(5),
            Column::number("dirty at end").priority(6),
        ],
    );
    for row in rows {
        table.push([
            label(row).into(),
            row.size.clone().into(),
            row.capacity_pages.into(),
            TableCell::percent(row.hit_ratio(), 2),
            row.read_hits.into(),
            row.write_hits.into(),
            row.fetches.into(),
            row.write_backs.into(),
            row.write_back_ios.into(),
            row.bypasses.into(),
            row.dirty_at_end.into(),
        ]);
    }
    table
}

/// A table of one figure, a column a size, the best policies first; the best of each column stands out.
fn ranking(
    what: &str,
    rows: &[Row],
    sizes: &[&str],
    labels: &[String],
    figure: impl Fn(&Row) -> f64,
    more_is_better: bool,
) -> String {
    let value =
        |name: &String, size: &&str| rows.iter().find(|row| row.size == **size && label(row) == *name).map(&figure);
    let sign = if more_is_better { -1.0 } else { 1.0 };
    let mean = |name: &String| {
        let values: Vec<f64> = sizes.iter().filter_map(|size| value(name, size)).collect();
        sign * values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    let mut order: Vec<&String> = labels.iter().collect();
    order.sort_by(|a, b| mean(a).total_cmp(&mean(b)).then_with(|| a.cmp(b)));
    let columns = [Column::text("policy")].into_iter().chain(sizes.iter().map(|size| Column::number(*size)));
    let mut table = Table::new(what, columns);
    let best: Vec<Option<f64>> = sizes
        .iter()
        .map(|size| labels.iter().filter_map(|name| value(name, size)).min_by(|a, b| (sign * a).total_cmp(&(sign * b))))
        .collect();
    for name in order {
        let cells = sizes.iter().zip(&best).map(|(size, best)| match value(name, size) {
            None => TableCell::missing(),
            Some(value) if Some(value) == *best => TableCell::percent(value, 2).tone(Tone::Strong),
            Some(value) => TableCell::percent(value, 2),
        });
        table.push([TableCell::from(name.clone())].into_iter().chain(cells));
    }
    format!("\n{what}\n{}", table.to_text(TextStyle::stdout()))
}

/// `--sample`: estimates with their errors.
fn estimate(arguments: &SimulateArgs, plan: &Plan, rate: f64, quiet: bool) -> Result<()> {
    if rate * arguments.samples as f64 > 1.0 {
        bail!("{} samples of {rate} are more than the trace", arguments.samples);
    }
    for path in &arguments.traces {
        let named = trace_source::open(path, &arguments.read, false, quiet)?;
        let world = World::new(&named.trace);
        let cells: Vec<(&PolicySpec, Size)> =
            plan.policies.iter().flat_map(|policy| arguments.size.iter().map(move |&size| (policy, size))).collect();
        let bar = Progress::start(&named.name, Some(cells.len() as u64), Unit::Items("estimates"), quiet);
        let mut estimates = Vec::new();
        for (policy, size) in cells {
            let layer = LayerSpec { policy: policy.clone(), sizes: vec![size] };
            let made = sample(&world, &[layer], size.to_string(), &plan.options, rate, arguments.samples as usize);
            bar.advance(1);
            match made {
                Ok(estimate) => estimates.push(estimate),
                Err(error) if plan.lenient => {
                    bar.aside(|| eprintln!("skipped {} at {size}: {error}", policy.info.name))
                }
                Err(error) => return Err(error.into()),
            }
        }
        drop(bar);
        output::print(&format!("{}\n", trace_source::describe(&named)))?;
        let table = estimates_table(&estimates);
        if let Some(path) = &arguments.csv {
            output::write_file(path, table.to_csv().as_bytes())?;
        }
        output::print(&table.to_text(TextStyle::stdout()))?;
    }
    Ok(())
}

fn estimates_table(estimates: &[Estimate]) -> Table {
    let mut table = Table::new(
        "Estimates",
        [
            Column::text("policy"),
            Column::text("size"),
            Column::number("miss ratio"),
            Column::number("± standard error"),
            Column::number("written per request"),
            Column::number("± standard error"),
            Column::number("samples").priority(1),
        ],
    );
    for estimate in estimates {
        table.push([
            estimate.policy.clone().into(),
            estimate.size.clone().into(),
            TableCell::percent(estimate.miss_ratio, 2),
            TableCell::percent(estimate.miss_ratio_error, 2),
            TableCell::percent(estimate.write_ratio, 2),
            TableCell::percent(estimate.write_ratio_error, 2),
            (estimate.samples as u64).into(),
        ]);
    }
    table
}
