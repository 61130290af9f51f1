//! Options of `entresol simulate`.

use crate::arguments::keyword;
use crate::tiers::TimedArgs;
use crate::trace_source::ReadArgs;
use anyhow::{Result, bail};
use clap::Args;
use entresol_core::Size;
use entresol_policy::Wear;
use entresol_service::values::{bytes, bytes_or_none, count, share};
use entresol_sim::{LogLayout, Mode};
use std::path::PathBuf;

const DEFAULT_SIZES: &str = "1%,5%,10%,20%";

/// Simulate policies on a trace, with writes and dirty pages
///
/// A policy is NAME or NAME:OPTION=VALUE:...; `all` is the whole catalogue. A size is a share of the trace's footprint
/// (5%), bytes (64MiB) or pages (2000p). Results go to the terminal as a table, and in full to files.
#[derive(Args)]
pub struct SimulateArgs {
    /// Trace files, or generate:SPEC for a generated one
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Policies, separated by commas
    #[arg(long, short, default_value = "lru", value_name = "LIST")]
    pub policy: String,
    /// Sizes of the cache, separated by commas; with --dram, of the second tier
    #[arg(long, short, value_delimiter = ',', value_name = "LIST", default_value = DEFAULT_SIZES, allow_hyphen_values = true)]
    pub size: Vec<Size>,
    /// Size of the DRAM above the cache: the top tier of policies that manage two, an LRU pool above the others
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub dram: Option<Size>,
    /// Length of a sequential stream after which its pages bypass the cache, the lowest layer, unless the policy holds
    /// them (bcache's sequential_cutoff, 4MiB there); 0: the policy decides on all pages
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes_or_none, conflicts_with = "sample")]
    pub sequential_cutoff: u64,
    /// Layout of the cache, the lowest layer: slots, in which a page is written wherever there is room, or segments, in
    /// which pages are written one after the other. To make room in segments some of their pages are appended again and others dropped; a policy
    /// that ranks its pages (reuse) says which, and of any other all are appended again
    #[arg(long, value_name = "slots|segments", default_value = "slots", value_parser = ["slots", "segments"], conflicts_with = "sample")]
    pub layout: String,
    /// With --layout segments: size of a segment [default: 256KiB, less if fewer than 128 of those fit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub segment_size: Option<u64>,
    /// With --layout segments: bound on what is written to the cache: 1DWPD (times its size a day), 200GB (a day),
    /// amplification=1.8 (for each byte that requests write; 1.8+0.04: and for each that they read), or unbounded
    #[arg(long, value_name = "BOUND", default_value = "unbounded")]
    pub wear: Wear,
    /// Treatment of writes by the cache, the lowest layer, as `mount` and `serve` take it. The default here is another than
    /// that of a cache in use, which is write-through
    #[arg(long, value_parser = keyword::<Mode>(), default_value = "write-back")]
    pub mode: Mode,
    /// Simulate a stack of layers instead, each fed the misses and write-backs of the one before it:
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
    /// Record hit ratio and the policies' gauges every N requests
    #[arg(long, value_name = "N", value_parser = count)]
    pub interval: Option<u64>,
    /// Compare all others with this policy, which is simulated too [default: lru if it is simulated]
    #[arg(long, value_name = "POLICY", conflicts_with = "sample")]
    pub baseline: Option<String>,
    /// Count per table, index or file, and per query
    #[arg(long)]
    pub parts: bool,
    /// Count the writes that a final drain of all dirty pages would take
    #[arg(long)]
    pub drain: bool,
    /// Estimate from a sample of this share of the pages, e.g. 0.01, instead of simulating every request
    #[arg(long, value_name = "SHARE", value_parser = sample_share, conflicts_with_all = ["dram", "interval", "parts", "drain"])]
    pub sample: Option<f64>,
    /// Number of pairs of divisions of the sample into halves, or of single divisions if it has more than 2 million
    /// requests; the spread of the halves gives the error
    #[arg(long, value_name = "N", default_value_t = 4, requires = "sample", value_parser = clap::value_parser!(u64).range(2..))]
    pub samples: u64,
    /// Most threads [default: one per processor]
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Write all results to this file; an interrupted run with the same arguments continues
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write one line per result to this file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a report with charts to this file: one page, readable without a network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write only the chart of the miss ratios to this file, for a document; for one trace
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

impl SimulateArgs {
    /// The log below the policies, if there is one.
    pub fn log(&self) -> Result<Option<LogLayout>> {
        if self.layout == "slots" {
            if self.segment_size.is_some() || self.wear != Wear::Unbounded {
                bail!("--segment-size and --wear are for --layout segments");
            }
            return Ok(None);
        }
        Ok(Some(LogLayout { segment_bytes: self.segment_size, wear: self.wear }))
    }

    /// True if sizes other than the default were given.
    pub fn size_given(&self) -> bool {
        let default: Result<Vec<Size>, _> = DEFAULT_SIZES.split(',').map(str::parse).collect();
        default.as_ref() != Ok(&self.size)
    }
}

fn sample_share(text: &str) -> Result<f64, String> {
    share(text).and_then(|value| if value > 0.0 { Ok(value) } else { Err("it must be above 0".to_owned()) })
}
