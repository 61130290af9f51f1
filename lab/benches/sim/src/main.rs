//! `make bench-sim`: every policy of the catalogue against its bound and against libCacheSim, in processor time.

mod bounds;
mod growth;
mod measure;
mod peer;
mod report;
mod timed;

use clap::Parser;
use entresol_bench_common::{deliver, end, heading};
use entresol_sim::{Addresses, parse_policies};
use entresol_trace::{Trace, generate};
use measure::SIZES;
use peer::Peer;
use report::Oracle;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Measures every policy against its bound and against libCacheSim; prints Markdown.
#[derive(Parser)]
struct Arguments {
    /// Write the report to this file too.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Runs of each policy and size; the median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Requests of the trace.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    requests: u64,
    /// Policies, separated by commas.
    #[arg(long, default_value = "all")]
    policies: String,
    /// A Python that has the package libcachesim; without it there is no comparison.
    #[arg(long, value_name = "FILE")]
    python: Option<PathBuf>,
    /// Known misses of libCacheSim, to be printed beside ours.
    #[arg(long, value_name = "FILE")]
    oracle: Option<PathBuf>,
    /// Folder for the trace that libCacheSim reads.
    #[arg(long, value_name = "FOLDER", default_value = "target/bench")]
    scratch: PathBuf,
    /// Sweep twenty policies over twenty sizes as well.
    #[arg(long)]
    sweep: bool,
    /// Measure three tiers with device time, and nothing else.
    #[arg(long, conflicts_with_all = ["sweep", "policies", "python", "oracle"])]
    timed: bool,
    /// Measure the processor time of a request and the memory of every policy as streams get longer, and nothing else.
    #[arg(long, conflicts_with_all = ["sweep", "timed", "python", "oracle"])]
    growth: bool,
}

fn main() -> ExitCode {
    end("entresol-bench-sim", run(&Arguments::parse()))
}

const READING: &str = "Figures are processor time of one thread, the median of the rounds; a round runs every policy \
     once, libCacheSim's version of it right after it. On a machine that others use, only ratios within one run mean \
     much.";

fn run(arguments: &Arguments) -> Result<(), String> {
    let requests = arguments.requests;
    let reads_spec = format!("zipf:n={requests}:pages=1000000:seed=42:ids=hashed");
    // Hashed pages have no neighbours, but groups need some: the same requests over pages in a permuted order.
    let writes_spec = format!("zipf:n={requests}:pages=1000000:seed=42:ids=scattered:write=30");
    if arguments.growth {
        let policies = parse_policies(&arguments.policies).map_err(|error| error.to_string())?;
        let mut out =
            heading("Time and memory of policies on longer and longer streams", "bench-growth", growth::READING);
        out += &growth::tables(&policies, arguments.rounds, traced)?;
        return deliver(&out, arguments.out.as_deref());
    }
    let mut out = heading("Speed and memory of the simulator", "bench-sim", READING);
    if arguments.timed {
        let trace = traced(&writes_spec)?;
        let table = timed::table(&Addresses::new(&trace), arguments.rounds as usize)?;
        write!(out, "## Three tiers with device time: `{writes_spec}`\n\n{table}").expect("writing to a string");
        return deliver(&out, arguments.out.as_deref());
    }
    let reads = traced(&reads_spec)?;
    read_only(arguments, &reads, &reads_spec, &mut out)?;
    if arguments.sweep {
        writeln!(out, "## Twenty policies, twenty sizes\n").expect("writing to a string");
        out += &report::sweep(&measure::sweep_cost(&Addresses::new(&reads))?);
    }
    drop(reads);
    with_writes(arguments, &traced(&writes_spec)?, &writes_spec, &mut out)?;
    deliver(&out, arguments.out.as_deref())
}

fn traced(spec: &str) -> Result<Trace, String> {
    Ok(generate(&spec.parse().map_err(|error: entresol_trace::SpecError| error.to_string())?))
}

/// The trace of the oracle: all policies, beside libCacheSim.
fn read_only(arguments: &Arguments, trace: &Trace, spec: &str, out: &mut String) -> Result<(), String> {
    let addresses = Addresses::new(trace);
    let file = arguments.scratch.join("reads.oracleGeneral.bin");
    std::fs::create_dir_all(&arguments.scratch)
        .and_then(|()| peer::write_oracle_general(&addresses, &file))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    let mut peer = arguments.python.as_deref().map(|python| Peer::start(python, &file, trace.len()));
    let policies = parse_policies(&arguments.policies).map_err(|error| error.to_string())?;
    let mut cells = measure::cells(&policies);
    let running = peer.as_mut().and_then(|peer| peer.as_mut().ok());
    measure::rounds(&addresses, &mut cells, running, arguments.rounds as usize)?;
    let load = measure::loads(&file, arguments.rounds as usize)?;

    let mut section = format!("## Reads: `{spec}`\n\n{} distinct pages. ", trace.footprint());
    match &peer {
        Some(Ok(peer)) => section += &report::peer_note(&peer.version),
        Some(Err(why)) => section += &format!("libCacheSim could not be run: {why}.\n\n"),
        None => section += "libCacheSim was not asked for (`--python`).\n\n",
    }
    section += &format!("Loading the trace from libCacheSim's file takes us {:.3} s.\n\n", load.median());
    for pages in SIZES {
        section += &format!("### {pages} pages\n\n{}", report::speed(&cells, pages, &load));
    }
    section += &format!("### Misses\n\n{}", report::misses(&cells, &oracle(arguments)?));
    section += &format!("### State\n\n{STATE_NOTE}\n\n{}", report::state(&cells, trace.footprint())?);
    *out += &section;
    Ok(())
}

const STATE_NOTE: &str = "The simulator gives a handle to every page of the trace; a cache at work gives one to a page it \
     holds and to a ghost. So a resident page costs the bytes of a handle and those that grow with the capacity, a \
     ghost the bytes of a handle.";

/// 30 % writes: policies that distinguish clean from dirty pages, those with a bound for this, and three tiers.
fn with_writes(arguments: &Arguments, trace: &Trace, spec: &str, out: &mut String) -> Result<(), String> {
    let addresses = Addresses::new(trace);
    let mut policies = parse_policies(&arguments.policies).map_err(|error| error.to_string())?;
    policies.retain(|policy| policy.info.write_aware || policy.info.name == "lru");
    let mut cells = measure::cells(&policies);
    cells.push(measure::stack(THREE_TIERS)?);
    measure::rounds(&addresses, &mut cells, None, arguments.rounds as usize)?;
    let mut section = format!("## 30 % writes: `{spec}`\n\n");
    for pages in SIZES {
        section += &format!("### {pages} pages\n\n{}", report::writes(&cells, pages));
    }
    let stack = cells.last().map(report::three_tiers).unwrap_or_default();
    section += &format!("### Three tiers, without device time\n\n{stack}");
    *out += &section;
    Ok(())
}

/// A pool in DRAM over two tiers with migration.
const THREE_TIERS: &str = "lru:2000,multi-tier:8000:50000";

/// The oracle file holds figures of ten million requests.
fn oracle(arguments: &Arguments) -> Result<Oracle, String> {
    let Some(path) = arguments.oracle.as_deref().filter(|path| arguments.requests == 10_000_000 && path.exists())
    else {
        return Ok(Oracle::new());
    };
    read(path).map(|text| report::parse_oracle(&text))
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
