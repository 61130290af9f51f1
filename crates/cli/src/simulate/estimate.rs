//! `entresol simulate --sample`: estimates with their errors.

use super::args::SimulateArgs;
use super::report::over_sizes;
use super::results::{self, TraceInfo, distinct};
use super::{Plan, text};
use crate::output;
use crate::trace_source::{self, Named};
use anyhow::{Context, Result};
use entresol_core::{Address, Size};
use entresol_policy::parts::Sampler;
use entresol_render::{
    Better, Cell, Chart, Column, LineChart, Page, Progress, Section, Series, Table, TextStyle, Unit,
};
use entresol_sim::{CACHE_PAGES_MIN, CellError, Estimate, PolicySpec, Sample, Skipped};
use entresol_trace::Population;

/// All estimates of one trace.
struct Estimates {
    /// The trace, of which it has a sample.
    named: Named,
    population: Population,
    rows: Vec<Estimate>,
    /// Cells that could not be run.
    skipped: Vec<Skipped>,
}

/// Policies that one sample serves: those that look for neighbours, or those that do not.
struct Kind<'a> {
    sampler: Sampler,
    /// Positions in the list of all cells.
    cells: Vec<usize>,
    specs: Vec<(&'a PolicySpec, Size)>,
}

/// Estimates every policy at every size from a sample of a share `rate` of the pages.
pub fn run(arguments: &SimulateArgs, plan: &Plan, rate: f64, quiet: bool) -> Result<()> {
    let mut all = Vec::new();
    for path in &arguments.traces {
        let kinds = kinds(arguments, plan, rate);
        let kept = |at: Address| kinds.iter().any(|kind| kind.sampler.find(at).is_some());
        let (named, population) = trace_source::open_sample(path, &arguments.read, &kept, quiet)?;
        let name = named.name.clone();
        all.push(estimate(arguments, plan, rate, &kinds, (named, population), quiet).context(name)?);
    }
    write(arguments, &all)?;
    for estimates in &all {
        output::print(&estimates.text())?;
    }
    Ok(())
}

/// The cells, parted by the samples that they need.
fn kinds<'a>(arguments: &SimulateArgs, plan: &'a Plan, rate: f64) -> Vec<Kind<'a>> {
    let sizes = arguments.size.len();
    let cells = plan.policies.iter().flat_map(|policy| arguments.size.iter().map(move |&size| (policy, size)));
    let cells: Vec<(&PolicySpec, Size)> = cells.collect();
    let kind = |neighbours: bool| {
        let own = (0..cells.len()).filter(|at| plan.policies[at / sizes].info.neighbours == neighbours);
        let own: Vec<usize> = own.collect();
        let specs = own.iter().map(|&at| cells[at]).collect();
        Kind { sampler: Sampler::of_share(plan.options.seed, neighbours, rate), cells: own, specs }
    };
    [false, true].map(kind).into_iter().filter(|kind| !kind.cells.is_empty()).collect()
}

fn estimate(
    arguments: &SimulateArgs,
    plan: &Plan,
    rate: f64,
    kinds: &[Kind],
    (named, population): (Named, Population),
    quiet: bool,
) -> Result<Estimates> {
    let cells: usize = kinds.iter().map(|kind| kind.cells.len()).sum();
    let mut made: Vec<Option<Result<Estimate, CellError>>> = (0..cells).map(|_| None).collect();
    for kind in kinds {
        // With one kind, all pages that were read are of its sample.
        let apart = (kinds.len() > 1).then(|| named.trace.sampled(&|at| kind.sampler.find(at).is_some()).trace);
        let trace = apart.as_ref().unwrap_or(&named.trace);
        let sample = Sample::new(trace, &population, kind.sampler.clone(), rate, arguments.samples as usize)?;
        let total = sample.simulations(kind.cells.len());
        let bar = Progress::start(&named.name, Some(total), Unit::Items("simulations"), quiet);
        let rows = sample.estimate(&kind.specs, &plan.options, plan.threads, &|| bar.advance(1));
        kind.cells.iter().zip(rows).for_each(|(&at, row)| made[at] = Some(row));
    }
    let mut estimates = Estimates { named, population, rows: Vec::new(), skipped: Vec::new() };
    let sizes = arguments.size.len();
    for (at, row) in made.into_iter().enumerate() {
        match row.expect("every cell has a kind") {
            Ok(row) => estimates.rows.push(row),
            Err(error) if plan.lenient => estimates.skipped.push(Skipped {
                policy: plan.policies[at / sizes].info.name.to_owned(),
                size: arguments.size[at % sizes].to_string(),
                error,
            }),
            Err(error) => return Err(error.into()),
        }
    }
    if !quiet {
        text::skipped_lines(&estimates.skipped, plan.policies.len()).iter().for_each(|line| say!("{line}"));
    }
    Ok(estimates)
}

/// Writes the files that were asked for.
fn write(arguments: &SimulateArgs, all: &[Estimates]) -> Result<()> {
    let rows = || all.iter().map(|estimates| (estimates.info(), &estimates.rows[..], &estimates.skipped[..]));
    output::write_asked(&arguments.json, || results::json(rows()))?;
    output::write_asked(&arguments.csv, || Ok(table(all, true).to_csv()))?;
    output::write_asked(&arguments.html, || Ok(page(all).to_html()))?;
    // It is asked for with one trace alone.
    output::write_asked(&arguments.svg, || Ok(all[0].miss_ratios().to_svg()))
}

impl Estimates {
    fn info(&self) -> TraceInfo<'_> {
        TraceInfo::of_sample(&self.named, self.population.requests, self.population.pages)
    }

    fn facts(&self) -> String {
        let Population { requests, writes, pages, .. } = self.population;
        trace_source::facts_of(&self.named.trace, requests, writes, pages)
    }

    fn text(&self) -> String {
        let table = table(std::slice::from_ref(self), false).to_text(TextStyle::stdout());
        let note = if self.rows.iter().any(|row| row.small) { format!("{SMALL}\n") } else { String::new() };
        format!("{}: {}\n{table}{note}", self.named.name, self.facts())
    }

    /// The miss ratios over the size of the cache.
    fn miss_ratios(&self) -> Chart {
        let page_bytes = f64::from(self.named.trace.page_bytes);
        let names = distinct(&self.rows, label);
        let chart = over_sizes("Miss ratio", "misses per request").best(names.len(), Better::Lower);
        let series = names.into_iter().map(|name| {
            let own: Vec<&Estimate> = self.rows.iter().filter(|row| label(row) == name).collect();
            Series::new(name, own.into_iter().map(|row| (row.capacity_pages as f64 * page_bytes, row.miss_ratio)))
        });
        series.fold(chart, LineChart::series).into()
    }
}

/// Meaning of the mark.
const SMALL: &str =
    "small: the cache has fewer than 8 sampled pages; a larger share of the pages gives a better estimate";
const _: () = assert!(CACHE_PAGES_MIN == 8, "the text says 8");
const ESTIMATED: &str =
    "Estimates from a sample of the pages. The true value is within from ... to with a confidence of 95%.";

/// The page of all traces.
fn page(all: &[Estimates]) -> Page {
    let title = all.iter().map(|estimates| estimates.named.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut page = Page::new(format!("Simulation of {title} by a sample")).command(output::command_line());
    if let [one] = all {
        page = page.subtitle(one.facts());
    }
    for estimates in all {
        let heading = if all.len() > 1 { format!("{}: curves", estimates.named.name) } else { "Curves".to_owned() };
        page = page.section(Section::new(heading).chart(estimates.miss_ratios()));
        if !estimates.skipped.is_empty() {
            let reasons = estimates.skipped.iter();
            let facts = reasons.map(|skip| (format!("{} at {}", skip.policy, skip.size), skip.error.to_string()));
            page = page.section(Section::new(format!("{}: left out", estimates.named.name)).facts(facts));
        }
    }
    let mut section = Section::new("All numbers").text(ESTIMATED);
    if all.iter().flat_map(|estimates| &estimates.rows).any(|row| row.small) {
        section = section.text(SMALL);
    }
    page.section(section.table(table(all, all.len() > 1)))
}

/// Name of an estimate's policy with its options.
fn label(row: &Estimate) -> String {
    results::name(&row.policy, &row.options)
}

/// A row per estimate; a file has a column for the trace.
fn table(all: &[Estimates], with_trace: bool) -> Table {
    let rows = all.iter().flat_map(|estimates| estimates.rows.iter().map(|row| (estimates.named.name.as_str(), row)));
    let percent = |value: f64| Cell::percent(value, 2);
    let any_small = with_trace || all.iter().flat_map(|estimates| &estimates.rows).any(|row| row.small);
    let mark = |row: &Estimate| if row.small { "small" } else { "" };
    Table::of("Estimates", rows)
        .column_if(with_trace, Column::text("trace"), |(trace, _)| *trace)
        .column(Column::text("policy"), |(_, row)| label(row))
        .column(Column::text("size"), |(_, row)| row.size.clone())
        .column(Column::number("miss ratio"), move |(_, row)| percent(row.miss_ratio))
        .column(Column::number("± standard error"), move |(_, row)| percent(row.miss_ratio_error))
        .column(Column::number("written per request"), move |(_, row)| percent(row.write_ratio))
        .column(Column::number("± standard error"), move |(_, row)| percent(row.write_ratio_error))
        .column(Column::number("samples").priority(3), |(_, row)| row.samples as u64)
        .column(Column::number("from").help("lower end of the 95% interval of the miss ratio"), move |(_, row)| {
            percent(row.miss_ratio_low)
        })
        .column(Column::number("to").help("upper end of the 95% interval of the miss ratio"), move |(_, row)| {
            percent(row.miss_ratio_high)
        })
        .column(Column::number("cache, sampled pages").priority(2), |(_, row)| row.sampled_capacity_pages)
        .column_if(any_small, Column::text("mark"), move |(_, row)| mark(row))
        .done()
}
