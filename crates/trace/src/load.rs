//! Opens a trace of any format and loads it whole.

use crate::builder::{BuildOptions, Counts, Split, TraceBuilder};
use crate::formats::{Detection, Format, Meta, detect, source};
use crate::input::{Compression, Input};
use crate::native;
use crate::parse::Bad;
use crate::record::{PageReads, Record, Source, TraceError, Unit};
use crate::thin::{Sampled, Thinner};
use crate::trace::Trace;
use entresol_core::Address;
use std::fmt::Write as _;
use std::path::Path;

/// Page size of a trace that states none, in bytes.
pub const PAGE_BYTES_DEFAULT: u32 = 4096;
/// A compressed native trace is decompressed into memory up to this many bytes.
const NATIVE_BYTES_MAX: u64 = 64 << 30;

/// Reads that are taken from a source at once: their columns stay within the processor's first-level caches.
const READS_AT_ONCE: usize = 1024;

/// Requests after which a trace is thinned while it is read.
const DRAINED_AT_ONCE: usize = 1 << 20;

/// Options for loading a trace.
///
/// [`LoadOptions::default`] detects the format, takes the trace's own page size or 4 KiB, splits by `touch`, tolerates
/// no bad line, leaves logs out and reads to the end.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// The format; detected when absent.
    pub format: Option<Format>,
    /// Page size in bytes, a power of two from 64 B to 16 MiB; when absent, what the trace states, else 4096. Where the
    /// trace counts pages (ARC, LIRS, libCacheSim, before the pool) it only says how large those are.
    pub page_bytes: Option<u32>,
    /// Rule by which I/Os are split into pages.
    pub split: Split,
    /// At most this many malformed lines or records are skipped, and counted.
    pub skip_bad: u64,
    /// Keep requests to write-ahead and redo logs.
    pub keep_logs: bool,
    /// At most this many page requests are loaded.
    pub limit: Option<u64>,
    /// Fill in [`Trace::next_use`].
    pub next_use: bool,
}

/// Report of a load: the format, the counts of requests kept, and all that was left out or altered.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// The format, given or detected.
    pub format: Format,
    /// Compression of the file.
    pub compression: Compression,
    /// Counts of the records kept and left out; all zero for a native trace, from which nothing is left out.
    pub counts: Counts,
    /// Malformed lines or records that were skipped.
    pub bad: u64,
    /// The first malformed line or record, as the error it would have been.
    pub first_bad: Option<String>,
    /// Records that were older than the one before them. Their time was raised to it, their order kept.
    pub clock_reversals: u64,
}

impl LoadReport {
    /// A report of nothing read yet.
    pub fn new(format: Format, compression: Compression) -> Self {
        LoadReport { format, compression, counts: Counts::default(), bad: 0, first_bad: None, clock_reversals: 0 }
    }

    /// All omissions and alterations, one clause each, for a terminal or a report; empty when there were none.
    pub fn left_out(&self) -> Vec<String> {
        let counts = &self.counts;
        let mut clauses = Vec::new();
        let mut clause = |count: u64, what: &str| {
            if count > 0 {
                clauses.push(format!("{count} {what}"));
            }
        };
        clause(self.bad, "malformed lines or records");
        clause(counts.log_ios, "I/Os to logs");
        for (what, count) in &counts.others {
            clause(*count, &format!("x {what}"));
        }
        clause(counts.pages_cut, "pages cut off by the `fan` rule");
        clause(counts.marks_unmatched, "dirty marks without a reference");
        clause(counts.query_ends_unmatched, "ends of queries that had not begun");
        clause(counts.queries_unended, "queries that never ended");
        clause(self.clock_reversals, "times raised to the one before");
        clauses
    }
}

/// A trace and the report of its load.
pub struct Loaded {
    /// The trace.
    pub trace: Trace,
    /// Report of the records read and left out.
    pub report: LoadReport,
}

/// A sample of a trace's pages and the report of the load.
pub struct LoadedSample {
    /// The sample, and the counts of the whole trace.
    pub sampled: Sampled,
    /// Report of the records read and left out.
    pub report: LoadReport,
}

/// Reads a trace file as [`load`] does, and keeps the requests of the pages that `keep` returns true for. The others
/// are counted and forgotten while the file is read, but for a trace with dirty marks, which is loaded first.
///
/// # Errors
/// See [`load`].
pub fn load_sample(
    path: &Path,
    options: &LoadOptions,
    keep: &dyn Fn(Address) -> bool,
) -> Result<LoadedSample, TraceError> {
    let mut thinner = Thinner::new(keep);
    let Loaded { trace, report } = read(path, options, Some(&mut thinner))?;
    // A trace that was not thinned while it was read still has its requests.
    let sampled = if trace.is_empty() { thinner.finish(trace) } else { trace.sampled(keep) };
    Ok(LoadedSample { sampled, report })
}

/// Loads a trace file of any format, compressed or not.
///
/// # Errors
/// One error that names the file and, where there is one, the line or byte offset; see [`TraceError`].
pub fn load(path: &Path, options: &LoadOptions) -> Result<Loaded, TraceError> {
    read(path, options, None)
}

fn read(path: &Path, options: &LoadOptions, thinner: Option<&mut Thinner>) -> Result<Loaded, TraceError> {
    let input = Input::open(path)?;
    let compression = input.compression();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let format = match options.format {
        Some(format) => format,
        None => match detect(input.head(), input.head_is_all(), &name) {
            Detection::Format(format) => format,
            Detection::Unclear(what) => return Err(TraceError::refused(path, what)),
        },
    };
    if format == Format::Native {
        let trace = load_native(path, input, options)?;
        return Ok(Loaded { trace, report: LoadReport::new(format, compression) });
    }
    let meta = if format.needs_meta() { Meta::beside(path)? } else { Meta::default() };
    let mut source = source(format, input, meta)?;
    let mut report = LoadReport::new(format, compression);
    let mut trace = build_thinned(path, &mut *source, options, &mut report, thinner)?;
    trace.provenance = provenance(&name, options, &trace, &report);
    if options.next_use {
        trace.compute_next_use();
    }
    Ok(Loaded { trace, report })
}

/// Builds a trace from a source. `report` counts the omissions; the provenance is left empty.
///
/// # Errors
/// See [`load`]; errors call the source `path`.
pub fn build(
    path: &Path,
    source: &mut dyn Source,
    options: &LoadOptions,
    report: &mut LoadReport,
) -> Result<Trace, TraceError> {
    build_thinned(path, source, options, report, None)
}

/// As [`build`]; with `thinner`, requests go there, and the trace is without any.
fn build_thinned(
    path: &Path,
    source: &mut dyn Source,
    options: &LoadOptions,
    report: &mut LoadReport,
    mut thinner: Option<&mut Thinner>,
) -> Result<Trace, TraceError> {
    let mut builder = TraceBuilder::new(BuildOptions {
        page_bytes: options.page_bytes.or(source.page_bytes()).unwrap_or(PAGE_BYTES_DEFAULT),
        split: options.split,
        unit: source.unit(),
        keep_logs: options.keep_logs,
        limit: options.limit,
        times: source.has_time(),
        marks: source.has_marks(),
    })
    .map_err(|what| TraceError::refused(path, what))?;
    if builder.is_full() {
        return Err(TraceError::refused(path, "a limit of 0 requests leaves nothing"));
    }
    if let Some(requests) = source.requests_expected().filter(|_| thinner.is_none()) {
        builder.reserve(requests);
    }
    let mut reads = PageReads::default();
    loop {
        if let Some(thinner) = thinner.as_deref_mut().filter(|_| builder.drainable() >= DRAINED_AT_ONCE) {
            builder.drain(thinner);
        }
        source.buffered_reads(builder.room_for_reads().min(READS_AT_ONCE), &mut reads);
        if !reads.pages.is_empty() {
            builder.push_reads(&reads);
            if builder.is_full() {
                break;
            }
            continue;
        }
        match step(path, source, &mut builder) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error @ TraceError::Malformed { .. }) if report.bad < options.skip_bad => {
                report.bad += 1;
                report.first_bad.get_or_insert_with(|| error.to_string());
            }
            Err(error) => return Err(too_many_bad(error, options.skip_bad)),
        }
    }
    if let Some(thinner) = thinner.filter(|_| builder.drainable() > 0) {
        builder.drain(thinner);
    }
    report.clock_reversals = source.clock_reversals();
    let (trace, counts) = builder.finish().map_err(|what| TraceError::refused(path, empty(&what, report)))?;
    report.counts = counts;
    Ok(trace)
}

/// Moves one record from the source to the builder; false at the end or at the limit.
#[inline]
fn step(path: &Path, source: &mut dyn Source, builder: &mut TraceBuilder) -> Result<bool, TraceError> {
    // An I/O is taken apart in place: moving it whole costs more than numbering its page.
    let pushed = match source.next() {
        Ok(Some(Record::Io { time_us, op, stream, object, offset, size, .. })) => {
            builder.push_io(time_us, stream, op, object, offset, size)
        }
        Ok(Some(record)) => builder.push(record),
        Ok(None) => return Ok(false),
        Err(error) => return Err(error),
    };
    pushed.map_err(|Bad(what)| TraceError::malformed(path, source.place(), what))
}

fn too_many_bad(error: TraceError, skip_bad: u64) -> TraceError {
    match error {
        TraceError::Malformed { path, place, what } if skip_bad > 0 => {
            let what =
                format!("{what} (and {skip_bad} malformed lines were skipped before, which is the most allowed)");
            TraceError::Malformed { path, place, what }
        }
        other => other,
    }
}

fn empty(what: &str, report: &LoadReport) -> String {
    match report.bad {
        0 => format!("{what} (format {})", report.format),
        bad => format!("{what} (format {}); {bad} malformed lines were skipped", report.format),
    }
}

fn provenance(name: &str, options: &LoadOptions, trace: &Trace, report: &LoadReport) -> String {
    let mut line = format!("{name} ({}, {} B pages, split {}", report.format, trace.page_bytes, options.split);
    if options.keep_logs {
        line.push_str(", logs kept");
    }
    if let Some(limit) = options.limit {
        let _ = write!(line, ", first {limit} requests");
    }
    line.push(')');
    let left_out = report.left_out();
    if !left_out.is_empty() {
        let _ = write!(line, "; left out or altered: {}", left_out.join(", "));
    }
    line
}

fn load_native(path: &Path, input: Input, options: &LoadOptions) -> Result<Trace, TraceError> {
    let mut trace = match input.compression() {
        Compression::Plain => {
            drop(input);
            native::open(path)?
        }
        _ => native::from_bytes(path, &input.read_all(NATIVE_BYTES_MAX)?)?,
    };
    let fixed = |what: &str| {
        let what = format!("{what} was fixed when this native trace was converted; convert the original again");
        Err(TraceError::refused(path, what))
    };
    if options.page_bytes.is_some_and(|bytes| bytes != trace.page_bytes) {
        return fixed(&format!("its page size, {} B,", trace.page_bytes));
    }
    if options.split != Split::default() {
        return fixed("its splitting rule");
    }
    if options.keep_logs {
        return fixed("whether it keeps logs");
    }
    if let Some(limit) = options.limit {
        if limit == 0 {
            return Err(TraceError::refused(path, "a limit of 0 requests leaves nothing"));
        }
        trace.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    }
    if options.next_use && trace.next_use.is_none() {
        trace.compute_next_use();
    }
    Ok(trace)
}

/// Loads a trace and writes it in the native format.
///
/// # Errors
/// See [`load`] and [`native::write`].
pub fn convert(from: &Path, to: &Path, options: &LoadOptions) -> Result<Loaded, TraceError> {
    let loaded = load(from, options)?;
    native::write(&loaded.trace, to)?;
    Ok(loaded)
}

/// Reads the first records of a trace as they stand in the file, for a look at it. Those of a native trace are its page
/// requests, see [`Trace::records`].
///
/// # Errors
/// See [`load`].
pub fn head(path: &Path, format: Option<Format>, records: usize) -> Result<(Format, Unit, Vec<Record>), TraceError> {
    let input = Input::open(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let format = match format {
        Some(format) => format,
        None => match detect(input.head(), input.head_is_all(), &name) {
            Detection::Format(format) => format,
            Detection::Unclear(what) => return Err(TraceError::refused(path, what)),
        },
    };
    if format == Format::Native {
        let trace = load_native(path, input, &LoadOptions::default())?;
        return Ok((format, Unit::Pages, trace.records().take(records).collect()));
    }
    let meta = if format.needs_meta() { Meta::beside(path)? } else { Meta::default() };
    let mut source = source(format, input, meta)?;
    let mut first = Vec::new();
    while first.len() < records
        && let Some(record) = source.next()?
    {
        first.push(record);
    }
    Ok((format, source.unit(), first))
}
