//! `entresol trace`: convert, stat, generate, head, formats.

use crate::args::TraceCommand;
use crate::{output, stat_report, trace_source};
use anyhow::Result;
use entresol_trace::{Format, Record, StatOptions, Unit, head, native, stat};
use std::fmt::Write as _;
use std::path::Path;

/// Runs the command.
pub fn run(command: &TraceCommand, quiet: bool) -> Result<()> {
    match command {
        TraceCommand::Convert { trace, output, read, next_use } => {
            let named = trace_source::open(trace, read, *next_use, quiet)?;
            native::write(&named.trace, output)?;
            told(quiet, &format!("{} -> {}", trace_source::describe(&named), output.display()));
            Ok(())
        }
        TraceCommand::Stat { trace, read, windows, json, html } => {
            json.iter().chain(html).try_for_each(|path| output::check_writable(path))?;
            let named = trace_source::open(trace, read, false, quiet)?;
            let measured = stat(&named.trace, &StatOptions { windows: *windows });
            if let Some(path) = json {
                output::write_file(path, &serde_json::to_vec_pretty(&measured)?)?;
            }
            if let Some(path) = html {
                output::write_file(path, stat_report::page(&named, &measured).to_html().as_bytes())?;
            }
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

fn print_head(path: &Path, records: usize, format: Option<Format>) -> Result<()> {
    let (format, unit, records) = head(path, format, records)?;
    let unit = if unit == Unit::Bytes { "bytes" } else { "pages" };
    let mut text = format!("format {}, offsets and sizes in {unit}\n", format.name());
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
