//! `entresol simulate --sample`: estimates with their errors.

use super::args::SimulateArgs;
use crate::output;
use crate::trace_source;
use anyhow::{Result, bail};
use entresol_core::Size;
use entresol_report::{Cell, Column, Progress, Table, TextStyle, Unit};
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
    if let Some(path) = &arguments.csv {
        let rows = all.iter().flat_map(|(_, name, estimates)| estimates.iter().map(move |e| (Some(name.as_str()), e)));
        output::write_file(path, table(rows).to_csv().as_bytes())?;
    }
    for (description, _, estimates) in &all {
        let text = table(estimates.iter().map(|estimate| (None, estimate))).to_text(TextStyle::stdout());
        output::print(&format!("{description}\n{text}"))?;
    }
    Ok(())
}

/// A row per estimate; a file has a column for the trace.
fn table<'e>(rows: impl Iterator<Item = (Option<&'e str>, &'e Estimate)>) -> Table {
    let rows: Vec<_> = rows.collect();
    let with_trace = rows.iter().any(|(name, _)| name.is_some());
    let columns = [
        Column::text("policy"),
        Column::text("size"),
        Column::number("miss ratio"),
        Column::number("± standard error"),
        Column::number("written per request"),
        Column::number("± standard error"),
        Column::number("samples").priority(1),
    ];
    let trace = with_trace.then(|| Column::text("trace"));
    let mut table = Table::new("Estimates", trace.into_iter().chain(columns));
    for (name, estimate) in rows {
        let name = name.map(Cell::from);
        let options = if estimate.options.is_empty() { String::new() } else { format!(":{}", estimate.options) };
        let cells = [
            format!("{}{options}", estimate.policy).into(),
            estimate.size.clone().into(),
            Cell::percent(estimate.miss_ratio, 2),
            Cell::percent(estimate.miss_ratio_error, 2),
            Cell::percent(estimate.write_ratio, 2),
            Cell::percent(estimate.write_ratio_error, 2),
            (estimate.samples as u64).into(),
        ];
        table.push(name.into_iter().chain(cells));
    }
    table
}
