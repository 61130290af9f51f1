//! The words of the command line. Their help texts are the manual.

use crate::advise::AdviseArgs;
use crate::burst::BurstCommand;
use crate::emulate::EmulateArgs;
use crate::live::check::CheckArgs;
use crate::live::drain::DrainArgs;
use crate::live::format::FormatArgs;
use crate::live::namer::NamerArgs;
use crate::live::record::RecordArgs;
use crate::live::resolve::ResolveArgs;
use crate::live::set::SetArgs;
use crate::live::stats::StatsArgs;
use crate::metrics::MetricsArgs;
use crate::mount::MountArgs;
use crate::moved::MovedArgs;
use crate::names::NamesArgs;
use crate::probe::ProbeArgs;
use crate::replay::ReplayArgs;
use crate::run::RunArgs;
use crate::serve::ServeCommand;
use crate::timed::TimedArgs;
use crate::top::TopArgs;
use crate::tune::TuneArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
use entresol_core::Size;
use entresol_engine::store::Layout;
use entresol_trace::{Format, Split};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The release, the commit that it was built from, and the features that it was built with.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("ENTRESOL_COMMIT"),
    ", features ",
    env!("ENTRESOL_FEATURES"),
    ")"
);

const DEFAULT_SIZES: &str = "1%,5%,10%,20%";

/// Choose, size and run a hierarchy of DRAM, NVM, SSD and disk
#[derive(Parser)]
#[command(name = "entresol", version = VERSION, max_term_width = 120)]
pub struct Cli {
    /// Print results and errors only
    #[arg(long, short, global = true)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Simulate(Box<SimulateArgs>),
    Tune(Box<TuneArgs>),
    Replay(Box<ReplayArgs>),
    Probe(Box<ProbeArgs>),
    #[command(subcommand)]
    Trace(TraceCommand),
    Policies(PoliciesArgs),
    #[command(hide = true)]
    Demo(MovedArgs),
    #[command(hide = true)]
    Bench(MovedArgs),
    #[command(subcommand)]
    Burst(BurstCommand),
    Emulate(EmulateArgs),
    Mount(MountArgs),
    Run(RunArgs),
    #[command(subcommand)]
    Serve(ServeCommand),
    Format(FormatArgs),
    Check(CheckArgs),
    Drain(DrainArgs),
    Stats(StatsArgs),
    Set(SetArgs),
    Resolve(ResolveArgs),
    Record(RecordArgs),
    Top(TopArgs),
    Metrics(MetricsArgs),
    Names(NamesArgs),
    #[command(name = "names-of", hide = true)]
    Namer(NamerArgs),
    Advise(Box<AdviseArgs>),
    /// Print a configuration for --config, every default written out and explained
    Config,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory
    Man {
        /// The directory, which is made where absent
        directory: PathBuf,
    },
}

/// How a trace is read
#[derive(Args, Clone)]
pub struct ReadArgs {
    /// Format of the trace; detected unless given (`entresol trace formats` lists them)
    #[arg(long)]
    pub format: Option<Format>,
    /// Page size in bytes, a power of two [default: what the trace states, else 4096]
    #[arg(long, value_name = "BYTES", value_parser = page_size)]
    pub page_size: Option<u32>,
    /// How an I/O becomes page requests: touch (every page it touches), exp (pages at its offset + 4096 i), fan (from
    /// the first page it touches, as many as its size has, cut off at a 256-KiB block)
    #[arg(long, default_value = "touch")]
    pub split: Split,
    /// Skip up to N lines or records that do not parse, and say how many there were
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub skip_bad: u64,
    /// Keep requests to write-ahead and redo logs
    #[arg(long)]
    pub keep_logs: bool,
    /// Read at most this many page requests
    #[arg(long, value_name = "N", value_parser = count)]
    pub limit: Option<u64>,
}

/// Simulate policies on a trace, with writes and dirty pages
///
/// A policy is NAME or NAME:OPTION=VALUE:..., `all` is the whole catalogue. A size is a share of the trace's footprint
/// (5%), bytes (64MiB) or pages (2000p). Results go to the terminal as a table, and in full to files.
#[derive(Args)]
pub struct SimulateArgs {
    /// Trace files, or generate:SPEC for a generated one
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Policies, separated by commas
    #[arg(long, short, default_value = "lru", value_name = "LIST")]
    pub policy: String,
    /// Sizes of the cache, separated by commas; of the second tier when --dram is given
    #[arg(long, short, value_delimiter = ',', value_name = "LIST", default_value = DEFAULT_SIZES)]
    pub size: Vec<Size>,
    /// Size of the DRAM above the cache: the top tier of policies that manage two, an LRU pool above the others
    #[arg(long, value_name = "SIZE")]
    pub dram: Option<Size>,
    /// Have what comes after so many bytes of a sequential stream pass by the cache, the lowest layer, unless the policy holds it
    /// (bcache's sequential_cutoff, 4MiB there); 0: all is the policy's to decide
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes_or_none, conflicts_with = "sample")]
    pub sequential_cutoff: u64,
    /// A stack of layers instead, each fed the misses and write-backs of the one before it:
    /// POLICY:SIZE[:SIZE][:OPTION=VALUE]... separated by commas; may be given several times
    #[arg(long, value_name = "LAYERS", conflicts_with_all = ["policy", "size", "dram", "sample", "baseline"])]
    pub stack: Vec<String>,
    #[command(flatten)]
    pub timed: TimedArgs,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Seed of policies and devices that draw at random
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Share of the requests that warm the caches up and are not counted, 0 to 1
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    pub warmup: f64,
    /// Record hit ratio and the policies' inner figures every N requests
    #[arg(long, value_name = "N", value_parser = count)]
    pub interval: Option<u64>,
    /// Compare all others with this policy, which is simulated too [default: lru where it is simulated]
    #[arg(long, value_name = "POLICY", conflicts_with = "sample")]
    pub baseline: Option<String>,
    /// Count per table, index or file, and per query
    #[arg(long)]
    pub parts: bool,
    /// Count what writing all dirty pages at the end would take
    #[arg(long)]
    pub drain: bool,
    /// Estimate from samples of this share of the pages each, e.g. 0.01, instead of simulating every request
    #[arg(long, value_name = "SHARE", value_parser = sample_share, conflicts_with_all = ["dram", "interval", "parts", "drain", "json", "html", "svg"])]
    pub sample: Option<f64>,
    /// Number of disjoint samples; their spread gives the error
    #[arg(long, value_name = "N", default_value_t = 4, requires = "sample", value_parser = clap::value_parser!(u64).range(2..))]
    pub samples: u64,
    /// Threads at most [default: one per processor]
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Write all results here; an interrupted run with the same arguments goes on from where it was
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write one line per result here
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a report with charts here: one page, no network needed to read it
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the chart of the miss ratios alone here, for a document; of one trace
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

impl SimulateArgs {
    /// Are the sizes other than the default?
    pub fn size_given(&self) -> bool {
        let default: Result<Vec<Size>, _> = DEFAULT_SIZES.split(',').map(str::parse).collect();
        default.as_ref() != Ok(&self.size)
    }
}

/// Convert, measure, generate and look at traces
#[derive(Subcommand)]
pub enum TraceCommand {
    /// Write a trace in the native format, which loads at once
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
        /// Windows of the working set over time
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        windows: u32,
        /// Write everything that was measured here
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Write a page with the charts here
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// Generate a trace, the same to the last bit for the same specification
    ///
    /// SPEC is KIND:KEY=VALUE:... with KIND one of zipf, pareto, hotcold, uniform, loop, scan, mixed, tpcc, olap;
    /// phases are joined by +, mixtures by |. Example: zipf:n=1M:pages=100k:seed=7:write=30
    Generate {
        /// What to generate
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
    /// Print the first records of a trace as they stand in the file
    Head {
        /// The trace
        trace: PathBuf,
        /// How many
        #[arg(short, default_value_t = 10)]
        n: usize,
        /// Format of the trace; detected unless given
        #[arg(long)]
        format: Option<Format>,
    },
    /// List the formats that can be read
    Formats,
}

/// List the policies, or describe one with its options and its paper
#[derive(Args)]
pub struct PoliciesArgs {
    /// The policy
    pub name: Option<String>,
    /// Only those of this family
    #[arg(long, conflicts_with = "name")]
    pub family: Option<String>,
    /// All of them with all options, as Markdown
    #[arg(long, hide = true, conflicts_with_all = ["name", "family"])]
    pub markdown: bool,
}

fn page_size(text: &str) -> Result<u32, String> {
    let size: Size = match text.parse() {
        Ok(Size::Pages(bytes)) | Ok(Size::Bytes(bytes)) => Size::Bytes(bytes),
        _ => return Err("a page size is a number of bytes, such as 4096 or 8KiB".to_owned()),
    };
    let bytes = size.pages(1, 0);
    let fits = bytes.is_power_of_two() && (64..=16 << 20).contains(&bytes);
    if fits { Ok(bytes as u32) } else { Err("a page size is a power of two from 64 B to 16 MiB".to_owned()) }
}

/// The layout of a cache by its name.
pub fn layout(text: &str) -> Result<Layout, String> {
    let named = [Layout::Log, Layout::Slots].into_iter().find(|layout| layout.name() == text);
    named.ok_or_else(|| "it must be log or slots".to_owned())
}

/// Whether something is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    /// It is.
    #[value(help = None)]
    On,
    /// It is not.
    #[value(help = None)]
    Off,
}

/// The word by which a value is given on the command line.
pub fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Bytes as a person writes them: 4096, 64KiB, 10GB.
pub fn bytes(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Size::Bytes(bytes)) if bytes > 0 => Ok(bytes),
        Ok(Size::Pages(bytes)) if bytes > 0 && !text.contains('p') => Ok(bytes),
        _ => Err("it must be a number of bytes above 0, such as 4096, 64KiB or 10GB".to_owned()),
    }
}

/// The same, or 0 for nothing of the kind.
pub fn bytes_or_none(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Size::Bytes(0) | Size::Pages(0)) if !text.contains('p') => Ok(0),
        _ => bytes(text).map_err(|why| format!("{why}, or 0")),
    }
}

/// A time as a person writes it: 90, 90s, 15m, 2h.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, seconds) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1.0),
        Some((at, 'm')) => (&text[..at], 60.0),
        Some((at, 'h')) => (&text[..at], 3600.0),
        _ => (text, 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * seconds).filter(|seconds| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "it must be a time above 0, such as 90s, 15m or 2h".to_owned())
}

/// A time that may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<Duration>);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {
            Some(time) => write!(f, "{}s", time.as_secs()),
            None => f.write_str("none"),
        }
    }
}

/// A time of a second or more in whole seconds, or `none`.
pub fn seconds_or_none(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit(None));
    }
    let whole = |time: &Duration| time.as_secs() > 0 && time.subsec_nanos() == 0;
    let time = duration(text).ok().filter(whole);
    time.map(|time| Limit(Some(time)))
        .ok_or_else(|| "it must be whole seconds, such as 90s, 15m or 2h, or none".to_owned())
}

/// A count as sizes in pages are written: 5000, 10k, 2Mi.
pub fn count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Size::Pages(count)) if count > 0 && !text.contains('p') => Ok(count),
        _ => Err("it must be a count above 0, such as 5000, 10k or 2Mi".to_owned()),
    }
}

/// A share as a person writes it: 0.05, 5%.
pub fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(percent) => (percent, 0.01),
        None => (text, 1.0),
    };
    let value = number.parse::<f64>().map_err(|error| error.to_string())? * scale;
    if (0.0..1.0).contains(&value) { Ok(value) } else { Err("it must be at least 0 and below 1".to_owned()) }
}

fn sample_share(text: &str) -> Result<f64, String> {
    share(text).and_then(|value| if value > 0.0 { Ok(value) } else { Err("it must be above 0".to_owned()) })
}
