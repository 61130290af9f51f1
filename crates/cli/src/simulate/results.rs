//! Results of a simulation: rows by trace, the name and role of a row, and the JSON and CSV files.

use super::args::SimulateArgs;
use super::report;
use crate::output;
use crate::trace_source::Named;
use anyhow::Result;
use entresol_policy::catalogue;
use entresol_sim::{Row, Skipped};
use serde::Serialize;

/// All results of one trace.
pub struct TraceResults {
    /// The trace.
    pub named: Named,
    /// A row per cell.
    pub rows: Vec<Row>,
    /// Cells that could not be run.
    pub skipped: Vec<Skipped>,
}

/// Role of a policy in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A cache for reads and writes that knows only the past.
    Cache,
    /// A policy that knows the future: a bound on what a cache that admits every page can reach, not a choice.
    Offline,
    /// A policy that admits pages only on writes, so that its hit ratio is not a cache's.
    WriteBuffer,
}

impl Role {
    /// The role of a row's policy; for a stack, that of its top layer.
    pub fn of(row: &Row) -> Self {
        let top = row.policy.split('+').next().unwrap_or_default();
        match catalogue::info(top) {
            Ok(info) if info.future => Role::Offline,
            Ok(info) if info.family == "writebuffer" => Role::WriteBuffer,
            _ => Role::Cache,
        }
    }

    /// The mark after a policy's name in tables.
    pub fn mark(self) -> &'static str {
        match self {
            Role::Cache => "",
            Role::Offline => "*",
            Role::WriteBuffer => "w",
        }
    }

    /// The meaning of the mark.
    pub fn meaning(self) -> &'static str {
        match self {
            Role::Cache => "",
            Role::Offline => "* knows the future: a bound for policies that admit every page, not a choice",
            Role::WriteBuffer => "w a write buffer: only writes bring pages in",
        }
    }
}

/// Name of a row's policy with its options.
pub fn label(row: &Row) -> String {
    name(&row.policy, &row.options)
}

/// Name of policies with their options.
pub fn name(policy: &str, options: &str) -> String {
    let options = options.trim_matches('+');
    if options.is_empty() { policy.to_owned() } else { format!("{policy}:{options}") }
}

/// The size under which a row is compared with others: as given, or the sum for a stack.
pub fn size(row: &Row) -> String {
    if row.layers.is_empty() || !row.size.contains(':') { row.size.clone() } else { format!("{}p", row.capacity_pages) }
}

/// The distinct values of `of`, in order of first appearance.
pub fn distinct<'r, R: 'r>(rows: impl IntoIterator<Item = &'r R>, of: impl Fn(&R) -> String) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for value in rows.into_iter().map(of) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

/// Pages written to the backing store per request.
pub fn write_ratio(row: &Row) -> f64 {
    row.written_below() as f64 / row.requests.max(1) as f64
}

/// Misses per request.
pub fn miss_ratio(row: &Row) -> f64 {
    1.0 - row.hit_ratio()
}

/// The label of the baseline rows: the baseline that was asked for, else lru if it was simulated. Under `--dram` the
/// baseline has an LRU pool above it, as the others have.
pub fn baseline(arguments: &SimulateArgs, all: &[TraceResults]) -> Option<String> {
    let wanted = arguments.baseline.as_deref().unwrap_or("lru").trim();
    let pooled = format!("lru+{wanted}");
    let labels = distinct(all.iter().flat_map(|results| &results.rows), label);
    labels.into_iter().find(|label| label == wanted || *label == pooled)
}

/// The trace, as results describe it.
#[derive(Serialize)]
pub struct TraceInfo<'a> {
    name: &'a str,
    format: &'a str,
    provenance: &'a str,
    page_bytes: u32,
    requests: u64,
    footprint_pages: u64,
    left_out: &'a [String],
}

impl<'a> TraceInfo<'a> {
    /// A trace.
    pub fn of(named: &'a Named) -> Self {
        TraceInfo::of_sample(named, named.trace.len() as u64, named.trace.footprint() as u64)
    }

    /// A trace with so many requests and pages, of which `named` is a sample.
    pub fn of_sample(named: &'a Named, requests: u64, footprint_pages: u64) -> Self {
        TraceInfo {
            name: &named.name,
            format: &named.format,
            provenance: &named.trace.provenance,
            page_bytes: named.trace.page_bytes,
            requests,
            footprint_pages,
            left_out: &named.left_out,
        }
    }
}

#[derive(Serialize)]
struct SkippedInfo<'a> {
    policy: &'a str,
    size: &'a str,
    reason: String,
}

#[derive(Serialize)]
struct Results<'a, R> {
    trace: TraceInfo<'a>,
    command: String,
    results: &'a [R],
    skipped: Vec<SkippedInfo<'a>>,
}

impl<'a, R> Results<'a, R> {
    fn new(trace: TraceInfo<'a>, rows: &'a [R], skipped: &'a [Skipped]) -> Self {
        let skip =
            |skip: &'a Skipped| SkippedInfo { policy: &skip.policy, size: &skip.size, reason: skip.error.to_string() };
        Results { trace, command: output::command_line(), results: rows, skipped: skipped.iter().map(skip).collect() }
    }
}

/// Rows and skipped cells as JSON, one item per trace.
pub fn json<'a, R: Serialize + 'a>(
    all: impl Iterator<Item = (TraceInfo<'a>, &'a [R], &'a [Skipped])>,
) -> Result<Vec<u8>> {
    let mut each: Vec<Results<R>> = all.map(|(trace, rows, skipped)| Results::new(trace, rows, skipped)).collect();
    // A single trace keeps the published format; each of several has its own object of that form.
    Ok(match each.len() {
        1 => serde_json::to_vec_pretty(&each.remove(0))?,
        _ => serde_json::to_vec_pretty(&serde_json::json!({ "traces": each }))?,
    })
}

/// Writes the files that were asked for.
pub fn write(arguments: &SimulateArgs, all: &[TraceResults]) -> Result<()> {
    let base = baseline(arguments, all);
    let rows = || all.iter().map(|results| (TraceInfo::of(&results.named), &results.rows[..], &results.skipped[..]));
    output::write_asked(&arguments.json, || json(rows()))?;
    output::write_asked(&arguments.csv, || Ok(report::table(all, true).to_csv()))?;
    output::write_asked(&arguments.html, || Ok(report::page(all, base.as_deref()).to_html()))?;
    // It is asked for with one trace alone.
    output::write_asked(&arguments.svg, || Ok(report::miss_ratios(&all[0], base.as_deref()).to_svg()))
}
