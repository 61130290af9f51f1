//! `entresol trace`: convert, stat, generate, head, formats.

pub mod stat_report;

use crate::output;
use crate::trace_source;
use crate::trace_source::ReadArgs;
use anyhow::Result;
use clap::Subcommand;
use entresol_service::values::page_size;
use entresol_trace::{Format, PAGE_BYTES_DEFAULT, Record, StatOptions, Trace, Unit, head, native, stat};
use std::fmt::Write as _;
use std::path::Path;
use std::path::PathBuf;

/// Convert, measure, generate and look at traces
#[derive(Subcommand)]
pub enum TraceCommand {
    /// Write a trace in the native format, which loads fastest, or as text
    ///
    /// An output whose name ends in .csv becomes text: a line for each page request with its time, operation, object and
    /// page, which is read again as the format csv.
    Convert {
        /// The trace, of any format, compressed or not, or generate:SPEC
        trace: PathBuf,
        /// The file to write
        output: PathBuf,
        #[command(flatten)]
        read: ReadArgs,
        /// Store the index of next uses, which offline policies need
        #[arg(long)]
        next_use: bool,
    },
    /// Measure a trace: requests, footprint, skew, distances, per table and per query
    Stat {
        /// The trace, or generate:SPEC
        trace: PathBuf,
        #[command(flatten)]
        read: ReadArgs,
        /// Number of windows for the working set over time
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        windows: u32,
        /// Write all measurements to this file as JSON
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Write a page with the charts to this file
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Generate a trace, the same to the last bit for the same specification
    ///
    /// SPEC is KIND:KEY=VALUE:... with KIND one of zipf, pareto, hotcold, uniform, loop, scan, mixed, tpcc, olap;
    /// phases are joined by +, mixtures by |. Example: zipf:n=1M:pages=100k:seed=7:write=30
    Generate {
        /// Specification of the trace to generate
        spec: String,
        /// The file to write, in the native format
        output: PathBuf,
        /// Page size in bytes, a power of two
        #[arg(long, value_name = "BYTES", value_parser = page_size, default_value = "4096")]
        page_size: u32,
        /// Store the index of next uses, which offline policies need
        #[arg(long)]
        next_use: bool,
    },
    /// Print the first records of a trace as they are in the file
    Head {
        /// The trace, or generate:SPEC
        trace: PathBuf,
        /// Number of records
        #[arg(short, default_value_t = 10)]
        n: usize,
        /// Format of the trace; detected unless given
        #[arg(long)]
        format: Option<Format>,
    },
    /// List the formats that can be read
    Formats,
}

/// Runs the command.
pub fn run(command: &TraceCommand, quiet: bool) -> Result<()> {
    match command {
        TraceCommand::Convert { trace, output, read, next_use } => {
            let named = trace_source::open(trace, read, *next_use, quiet)?;
            match output.extension() {
                Some(end) if end == "csv" => write_csv(&named.trace, output)?,
                _ => native::write(&named.trace, output)?,
            }
            told(quiet, &format!("{} -> {}", trace_source::describe(&named), output.display()));
            Ok(())
        }
        TraceCommand::Stat { trace, read, windows, json, html } => {
            json.iter().chain(html).try_for_each(|path| output::check_writable(path))?;
            let named = trace_source::open(trace, read, false, quiet)?;
            let measured = stat(&named.trace, &StatOptions { windows: *windows });
            output::write_asked(json, || Ok(serde_json::to_vec_pretty(&measured)?))?;
            output::write_asked(html, || Ok(stat_report::page(&named, &measured).to_html()))?;
            output::print(&stat_report::text(&named, &measured))
        }
        TraceCommand::Generate { spec, output, page_size, next_use } => {
            let mut trace = trace_source::generated(spec, *page_size)?;
            if *next_use {
                trace.compute_next_use();
            }
            native::write(&trace, output)?;
            told(quiet, &format!("{} page requests -> {}", trace.len(), output.display()));
            Ok(())
        }
        TraceCommand::Head { trace, n, format } => print_head(trace, *n, *format),
        TraceCommand::Formats => {
            let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
            output::print(&(names.join("\n") + "\n"))
        }
    }
}

fn told(quiet: bool, text: &str) {
    if !quiet {
        say!("{text}");
    }
}

/// Writes the page requests of a trace as csv.
fn write_csv(trace: &Trace, path: &Path) -> Result<()> {
    let mut text = Vec::new();
    trace.write_csv(&mut text)?;
    output::write_file(path, &text)
}

fn print_head(path: &Path, records: usize, format: Option<Format>) -> Result<()> {
    let (format, unit, records) = match trace_source::generated_by(path) {
        Some(spec) => {
            let trace = trace_source::generated(spec, PAGE_BYTES_DEFAULT)?;
            ("generated", Unit::Pages, trace.records().take(records).collect())
        }
        None => head(path, format, records).map(|(format, unit, records)| (format.name(), unit, records))?,
    };
    let unit = if unit == Unit::Bytes { "bytes" } else { "pages" };
    let mut text = format!("format {format}, offsets and sizes in {unit}\n");
    for record in &records {
        match record {
            Record::Io { time_us, op, stream, object, offset, size, .. } => {
                writeln!(
                    text,
                    "{time_us:>14} us  {op:?}  object {object}  offset {offset}  size {size}  stream {stream}"
                )?;
            }
            Record::Object { object, name, .. } => writeln!(text, "object {object} is {name:?}")?,
            other => writeln!(text, "{other:?}")?,
        }
    }
    output::print(&text)
}
