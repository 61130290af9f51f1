//! `entresol simulate --sample`: estimates with their errors.

use super::args::SimulateArgs;
use crate::output;
use crate::trace_source;
use anyhow::{Result, bail};
use entresol_core::Size;
use entresol_render::{Cell, Column, Progress, Table, TextStyle, Unit};
use entresol_sim::{Addresses, CellOptions, Estimate, LayerSpec, PolicySpec, sample};

/// Estimates every policy at every size from samples of a share `rate` of the pages each. With `lenient`, cells that
/// cannot be run are skipped.
pub fn run(
    arguments: &SimulateArgs,
    policies: &[PolicySpec],
    options: &CellOptions,
    rate: f64,
    lenient: bool,
    quiet: bool,
) -> Result<()> {
    if rate * arguments.samples as f64 > 1.0 {
        bail!("{} samples of {rate} of the pages each are more than all pages", arguments.samples);
    }
    let mut all = Vec::new();
    for path in &arguments.traces {
        let named = trace_source::open(path, &arguments.read, false, quiet)?;
        let addresses = Addresses::new(&named.trace);
        let cells: Vec<(&PolicySpec, Size)> =
            policies.iter().flat_map(|policy| arguments.size.iter().map(move |&size| (policy, size))).collect();
        let bar = Progress::start(&named.name, Some(cells.len() as u64), Unit::Items("estimates"), quiet);
        let mut estimates = Vec::new();
        for (policy, size) in cells {
            let layer = LayerSpec { policy: policy.clone(), sizes: vec![size] };
            let made = sample(&addresses, &[layer], size.to_string(), options, rate, arguments.samples as usize);
            bar.advance(1);
            match made {
                Ok(estimate) => estimates.push(estimate),
                Err(error) if lenient && quiet => drop(error),
                Err(error) if lenient => bar.aside(|| say!("skipped {} at {size}: {error}", policy.info.name)),
                Err(error) => return Err(error.into()),
            }
        }
        all.push((trace_source::describe(&named), named.name.clone(), estimates));
    }
    let rows = || all.iter().flat_map(|(_, name, estimates)| estimates.iter().map(move |made| (name.as_str(), made)));
    output::write_asked(&arguments.csv, || Ok(table(rows(), rows().next().is_some()).to_csv()))?;
    for (description, name, estimates) in &all {
        let text = table(estimates.iter().map(|made| (name.as_str(), made)), false).to_text(TextStyle::stdout());
        output::print(&format!("{description}\n{text}"))?;
    }
    Ok(())
}

/// A row per estimate; a file has a column for the trace.
fn table<'e>(rows: impl Iterator<Item = (&'e str, &'e Estimate)>, with_trace: bool) -> Table {
    let name = |estimate: &Estimate| {
        let options = if estimate.options.is_empty() { String::new() } else { format!(":{}", estimate.options) };
        format!("{}{options}", estimate.policy)
    };
    Table::of("Estimates", rows)
        .column_if(with_trace, Column::text("trace"), |(trace, _)| *trace)
        .column(Column::text("policy"), |(_, made)| name(made))
        .column(Column::text("size"), |(_, made)| made.size.clone())
        .column(Column::number("miss ratio"), |(_, made)| Cell::percent(made.miss_ratio, 2))
        .column(Column::number("± standard error"), |(_, made)| Cell::percent(made.miss_ratio_error, 2))
        .column(Column::number("written per request"), |(_, made)| Cell::percent(made.write_ratio, 2))
        .column(Column::number("± standard error"), |(_, made)| Cell::percent(made.write_ratio_error, 2))
        .column(Column::number("samples").priority(1), |(_, made)| made.samples as u64)
        .done()
}
