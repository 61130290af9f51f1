//! Traces that a command line names: files of any format, or generated traces.

use anyhow::Result;
use clap::Args;
use entresol_core::Address;
use entresol_render::grouped;
use entresol_service::values::{count, page_size};
use entresol_trace::{Format, Split};
use entresol_trace::{
    GenerateSpec, LoadOptions, LoadReport, PAGE_BYTES_DEFAULT, Population, Trace, generate, load, load_sample,
};
use std::path::Path;

/// Options for reading a trace
#[derive(Args, Clone)]
pub struct ReadArgs {
    /// Format of the trace; detected unless given (`entresol trace formats` lists them)
    #[arg(long)]
    pub format: Option<Format>,
    /// Page size in bytes, a power of two [default: as stated in the trace, else 4096]
    #[arg(long, value_name = "BYTES", value_parser = page_size)]
    pub page_size: Option<u32>,
    /// Rule that turns an I/O into page requests: touch (every page it touches), exp (pages at its offset + 4096 i),
    /// fan (from the first page it touches, as many as its size holds, cut off at a 256-KiB block)
    #[arg(long, default_value = "touch")]
    pub split: Split,
    /// Skip up to N lines or records that do not parse, and report their number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_bad: u64,
    /// Keep requests to write-ahead and redo logs
    #[arg(long)]
    pub keep_logs: bool,
    /// Read at most this many page requests
    #[arg(long, value_name = "N", value_parser = count)]
    pub limit: Option<u64>,
}

const GENERATE: &str = "generate:";

/// A trace, with notes on how it was read.
pub struct Named {
    /// The trace.
    pub trace: Trace,
    /// Short name for tables.
    pub name: String,
    /// Name of its format.
    pub format: String,
    /// Parts of the trace that were left out or altered, one clause each.
    pub left_out: Vec<String>,
}

impl ReadArgs {
    /// The options for the trace reader.
    pub fn load_options(&self, next_use: bool) -> LoadOptions {
        LoadOptions {
            format: self.format,
            page_bytes: self.page_size,
            split: self.split,
            skip_bad: self.skip_bad,
            keep_logs: self.keep_logs,
            limit: self.limit,
            next_use,
        }
    }
}

/// The specification of a trace that is to be generated, where the path is one.
pub fn generated_by(path: &Path) -> Option<&str> {
    path.to_str().and_then(|text| text.strip_prefix(GENERATE))
}

/// Loads or generates a trace, and reports the parts left out unless `quiet`.
pub fn open(path: &Path, read: &ReadArgs, next_use: bool, quiet: bool) -> Result<Named> {
    if let Some(spec) = generated_by(path) {
        let mut trace = generated(spec, read.page_size.unwrap_or(PAGE_BYTES_DEFAULT))?;
        if next_use {
            trace.compute_next_use();
        }
        return Ok(Named { trace, name: spec.to_owned(), format: "generated".to_owned(), left_out: Vec::new() });
    }
    let loaded = load(path, &read.load_options(next_use))?;
    Ok(named(path, loaded.trace, &loaded.report, quiet))
}

fn named(path: &Path, trace: Trace, report: &LoadReport, quiet: bool) -> Named {
    let left_out = report.left_out();
    if !quiet && !left_out.is_empty() {
        say!("{}: left out or altered: {}", path.display(), left_out.join("; "));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Named { trace, name, format: report.format.name().to_owned(), left_out }
}

/// Reads or generates the sample of a trace that consists of the pages that `keep` returns true for, with the counts of
/// the whole trace, and reports the parts left out unless `quiet`.
pub fn open_sample(
    path: &Path,
    read: &ReadArgs,
    keep: &dyn Fn(Address) -> bool,
    quiet: bool,
) -> Result<(Named, Population)> {
    if generated_by(path).is_some() {
        let named = open(path, read, false, quiet)?;
        let sampled = named.trace.sampled(keep);
        return Ok((Named { trace: sampled.trace, ..named }, sampled.population));
    }
    let loaded = load_sample(path, &read.load_options(false), keep)?;
    let sampled = loaded.sampled;
    Ok((named(path, sampled.trace, &loaded.report, quiet), sampled.population))
}

/// Generates a trace from its specification.
pub fn generated(spec: &str, page_bytes: u32) -> Result<Trace> {
    Ok(generate(&GenerateSpec::parse(spec, page_bytes)?))
}

/// One line about a trace, with its name.
pub fn describe(named: &Named) -> String {
    format!("{}: {}", named.name, facts(named))
}

/// Summary of a trace in one line.
pub fn facts(named: &Named) -> String {
    let trace = &named.trace;
    let writes = (0..trace.len()).filter(|&at| trace.request(at).op.is_write()).count();
    facts_of(trace, trace.len() as u64, writes as u64, trace.footprint() as u64)
}

/// Summary in one line of a trace with these counts, of which `trace` may be a sample.
pub fn facts_of(trace: &Trace, requests: u64, writes: u64, pages: u64) -> String {
    format!(
        "{} page requests ({} writes) to {} pages of {} B, {}",
        grouped(i128::from(requests)),
        grouped(i128::from(writes)),
        grouped(i128::from(pages)),
        trace.page_bytes,
        match trace.objects.len() {
            1 => "1 object".to_owned(),
            n => format!("{n} objects"),
        },
    )
}
