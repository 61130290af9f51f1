//! `make bench-burst`: how fast the burst buffer takes a checkpoint and gives it back, beside what the machine does with the same bytes without
//! one. Every pair is interleaved in one run, and the ratio of a pair counts. Coordinator, nodes and mount are processes of their own.

mod cluster;
mod neighbour;
mod restore;
mod role;
mod triad;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use cluster::{Cluster, Process, Shape};
use entresol_bench_common::{deliver, end, heading, median};
use entresol_burst_live::without_checksums;
use role::Role;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// A half of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Half {
    Write,
    Restore,
}

/// Measures how fast the burst buffer takes a checkpoint and gives it back; prints Markdown.
#[derive(Parser)]
struct Arguments {
    /// Write the report to this file too.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Pairs of each comparison.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Leave out the other half.
    #[arg(long, value_name = "HALF")]
    only: Option<Half>,
    /// Measure the slowdown of a program beside a node instead, over three arrays of so many MiB.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    neighbour: Option<u64>,
    /// Bytes a second of the checkpoints and of the cap beside the program.
    #[arg(long, default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1..), requires = "neighbour")]
    rate: u64,
    /// Size of a checkpoint in MiB.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=4096))]
    mib: u64,
    /// Directory in memory for the PFS and for the files of comparison.
    #[arg(long, default_value = "/dev/shm")]
    scratch: PathBuf,
    #[command(subcommand)]
    role: Option<Role>,
}

/// Bytes of one write of a program.
const WRITE: usize = 1 << 20;

/// Memory with all its pages, of which every byte was written once.
fn touched(bytes: usize, shared: bool) -> Result<&'static mut [u8]> {
    let flags = if shared { MapFlags::SHARED } else { MapFlags::PRIVATE } | MapFlags::POPULATE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)? };
    // SAFETY: the mapping is this long, nothing else refers to it, and it is never unmapped.
    let memory = unsafe { std::slice::from_raw_parts_mut(base.cast::<u8>(), bytes) };
    (0..).zip(memory.iter_mut()).for_each(|(at, byte): (u64, _)| *byte = ((at * 31) >> 7) as u8);
    Ok(memory)
}

/// Time of an action in seconds.
fn seconds(act: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begin = Instant::now();
    act()?;
    Ok(begin.elapsed().as_secs_f64())
}

/// A comparison: what is measured, beside what, and the bound on the ratio of their rates, if there is one.
struct Comparison {
    name: &'static str,
    beside: &'static str,
    bound: Option<f64>,
    /// Times of each pair in seconds: ours, and the other's.
    pairs: Vec<(f64, f64)>,
}

impl Comparison {
    /// Runs both once unmeasured, and then pairs of them in turns, every second time the other one first.
    fn run(
        name: &'static str,
        beside: &'static str,
        bound: Option<f64>,
        pairs: u32,
        mut ours: impl FnMut() -> Result<f64>,
        mut others: impl FnMut() -> Result<f64>,
    ) -> Result<Comparison> {
        ours()?;
        others()?;
        let mut measured = Vec::new();
        for pair in 0..pairs {
            let first = pair.is_multiple_of(2).then(&mut ours).transpose()?;
            let other = others()?;
            measured.push((first.map_or_else(&mut ours, Ok)?, other));
        }
        Ok(Comparison { name, beside, bound, pairs: measured })
    }

    /// The median of the ratios of pairs, and their interval.
    fn ratios(&self) -> (f64, f64, f64) {
        let mut ratios: Vec<f64> = self.pairs.iter().map(|(ours, other)| other / ours).collect();
        ratios.sort_by(f64::total_cmp);
        // Of ten values the second and the ninth enclose the median with 98 % confidence.
        let outer = usize::from(ratios.len() >= 10);
        (median(&ratios), ratios[outer], ratios[ratios.len() - 1 - outer])
    }

    /// A row of a report, which is shown at once too.
    fn row(&self, bytes: u64) -> String {
        let rate =
            |of: fn(&(f64, f64)) -> f64| bytes as f64 / 1e9 / median(&self.pairs.iter().map(of).collect::<Vec<_>>());
        let (ratio, low, high) = self.ratios();
        let verdict = |bound: f64| format!(">= {bound} {}", if ratio >= bound { "met" } else { "short" });
        let verdict = self.bound.map_or_else(|| "none".to_owned(), verdict);
        let (ours, other) = (rate(|pair| pair.0), rate(|pair| pair.1));
        let row = format!(
            "| {} | {ours:.2} | {} | {other:.2} | {ratio:.2} | {low:.2} to {high:.2} | {verdict} |\n",
            self.name, self.beside
        );
        eprint!("{row}");
        row
    }
}

const READING: &str = "Rates are medians in 10^9 bytes a second. The ratio is that of the rates of one pair; its interval is from the second to the \
ninth of ten pairs, or from the least to the greatest of fewer. Daemons are processes of their own, and the PFS is in memory.";

const WRITING: &str = "A checkpoint of one writer goes into the buffer of a node in another process, and is acknowledged with one copy. Between two \
measurements all is drained. The drain of a checkpoint begins when it is stored. The TCP stream goes over the loopback in writes of 1 MiB into memory that was \
touched. The file of a program is written by 1 MiB and closed.";

fn stream(sink: &str, bytes: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(sink)?;
    bytes.chunks(WRITE).try_for_each(|part| stream.write_all(part))?;
    Ok(stream.read_exact(&mut [0])?)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path)?;
    bytes.chunks(WRITE).try_for_each(|part| file.write_all(part))?;
    // The close of a file of the burst buffer is its commit, whose error is that of `sync_all` before it.
    Ok(file.sync_all()?)
}

/// Setup that all measurements share.
struct Bench {
    bytes: u64,
    pairs: u32,
    scratch: tempfile::TempDir,
    source: &'static [u8],
    /// Memory of the length of a checkpoint.
    arena: &'static mut [u8],
}

impl Bench {
    fn new(arguments: &Arguments) -> Result<Bench> {
        let bytes = arguments.mib << 20;
        let scratch = tempfile::tempdir_in(&arguments.scratch).context("the scratch directory")?;
        let (source, arena) = (&*touched(bytes as usize, false)?, touched(bytes as usize, true)?);
        Ok(Bench { bytes, pairs: arguments.pairs, scratch, source, arena })
    }
}

const HEAD: &str = "| ours | GB/s | beside | GB/s | ratio | interval | bound |\n|:--|--:|:--|--:|--:|:--|:--|\n";

fn measure(arguments: &Arguments) -> Result<String> {
    if let Some(mib) = arguments.neighbour {
        let scratch = tempfile::tempdir_in(&arguments.scratch).context("the scratch directory")?;
        let report =
            heading("A program beside a node of the burst buffer", "bench-burst-neighbour", neighbour::READING);
        return Ok(report + &neighbour::measure(scratch.path(), arguments.pairs, mib, arguments.rate)?);
    }
    let mut bench = Bench::new(arguments)?;
    let mut report = heading("How fast the burst buffer takes a checkpoint", "bench-burst", READING);
    report += &format!("A checkpoint has {} MiB.\n", arguments.mib);
    if arguments.only != Some(Half::Restore) {
        report += &format!("\n{WRITING}\n\n{HEAD}{}", writing(&mut bench)?);
    }
    if arguments.only != Some(Half::Write) {
        report += &format!("\n{}\n\n{HEAD}{}", restore::READING, restore::measure(&mut bench)?);
    }
    Ok(report)
}

/// Stores and drains checkpoints: rows of a report.
fn writing(bench: &mut Bench) -> Result<String> {
    let (bytes, pairs, source) = (bench.bytes, bench.pairs, bench.source);
    let scratch = bench.scratch.path();
    let arena = &mut *bench.arena;
    let mut copy = || {
        seconds(|| {
            arena.copy_from_slice(source);
            Ok(())
        })
    };
    let mut rows = String::new();
    let mut add = |comparison: Comparison| rows += &comparison.row(bytes);
    // Little more than a checkpoint: the next one has the same space again.
    let memory = &[bytes + (64 << 20)];
    let shape = Shape { memory, policy: "cdbb:drain=low", checksums: true, keeps: false, drain_rate: 0 };

    let local = "into the node of the writer";
    let mut cluster = Cluster::start(scratch, "local", &shape)?;
    add(Comparison::run(local, "a copy of memory", Some(0.5), pairs, || cluster.put(source), &mut copy)?);
    let mount = cluster.mount()?;
    let (mut at, plain) = (0, scratch.join("plain"));
    let ours = || {
        at += 1;
        let folder = mount.path.join(at.to_string());
        std::fs::create_dir(&folder)?;
        let time = seconds(|| write_file(&folder.join("file"), source))?;
        ensure!(at > 1 || std::fs::read(folder.join("file"))? == source, "other bytes are read");
        mount.wait_for_drain()?;
        Ok(time)
    };
    let others = || {
        let time = seconds(|| write_file(&plain, source))?;
        std::fs::remove_file(&plain)?;
        Ok(time)
    };
    add(Comparison::run("a file of a program, through the mount", "a file in memory", Some(0.5), pairs, ours, others)?);
    drop(mount);
    drop(cluster);

    without_checksums(true);
    let mut cluster = Cluster::start(scratch, "unchecked", &Shape { checksums: false, ..shape })?;
    let without = "the same without checksums";
    add(Comparison::run(without, "a copy of memory", Some(0.8), pairs, || cluster.put(source), &mut copy)?);
    drop(cluster);
    without_checksums(false);

    // The writer's own node has no room for it.
    let mut cluster = Cluster::start(scratch, "remote", &Shape { memory: &[1 << 20, memory[0]], ..shape })?;
    let sink = Process::start(&["sink", &bytes.to_string()])?;
    let others = || seconds(|| stream(&sink.address, source));
    add(Comparison::run("into another node", "a TCP stream", Some(0.8), pairs, || cluster.put(source), others)?);
    Ok(rows)
}

fn run() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(role) = &arguments.role {
        return role.play();
    }
    ensure!(arguments.scratch.is_dir(), "{}: no such directory", arguments.scratch.display());
    let report = measure(&arguments)?;
    deliver(&report, arguments.out.as_deref()).map_err(anyhow::Error::msg)
}

fn main() -> ExitCode {
    end("bench-burst", run().map_err(|error| format!("{error:#}")))
}
