//! `make bench-burst`: how fast the burst buffer takes a checkpoint, beside what the machine does with the same bytes without one. Every pair
//! is interleaved in one run, and the ratio of a pair counts. Coordinator, nodes and mount are processes of their own.

mod cluster;
mod role;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use cluster::{Cluster, Process};
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

/// Measures how fast the burst buffer takes a checkpoint; prints Markdown.
#[derive(Parser)]
struct Arguments {
    /// Write the report to this file too.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Pairs of each comparison.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
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

/// A comparison: what is measured, beside what, and the bound on the ratio of their rates.
struct Comparison {
    name: &'static str,
    beside: &'static str,
    bound: f64,
    /// Times of each pair in seconds: ours, and the other's.
    pairs: Vec<(f64, f64)>,
}

impl Comparison {
    /// Runs both once unmeasured, and then pairs of them in turns, every second time the other one first.
    fn run(
        name: &'static str,
        beside: &'static str,
        bound: f64,
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

    fn row(&self, bytes: u64) -> String {
        let mut ratios: Vec<f64> = self.pairs.iter().map(|(ours, other)| other / ours).collect();
        ratios.sort_by(f64::total_cmp);
        let rate =
            |of: fn(&(f64, f64)) -> f64| bytes as f64 / 1e9 / median(&self.pairs.iter().map(of).collect::<Vec<_>>());
        // Of ten values the second and the ninth enclose the median with 98 % confidence.
        let outer = usize::from(ratios.len() >= 10);
        let (low, high) = (ratios[outer], ratios[ratios.len() - 1 - outer]);
        let ratio = median(&ratios);
        let verdict = if ratio >= self.bound { "met" } else { "short" };
        let (ours, other) = (rate(|pair| pair.0), rate(|pair| pair.1));
        format!(
            "| {} | {ours:.2} | {} | {other:.2} | {ratio:.2} | {low:.2} to {high:.2} | >= {} {verdict} |\n",
            self.name, self.beside, self.bound
        )
    }
}

const READING: &str = "A checkpoint of one writer goes into the buffer of a node in another process, and is acknowledged with one copy. Rates are medians in \
10^9 bytes a second. The ratio is that of the rates of one pair; its interval is from the second to the ninth of ten pairs. Between two measurements all is \
drained. The drain of a checkpoint begins when it is stored, and the PFS is in memory. The TCP stream goes over the loopback in writes of 1 MiB into memory that was \
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

fn measure(arguments: &Arguments) -> Result<String> {
    let bytes = arguments.mib << 20;
    let source = &*touched(bytes as usize, false)?;
    let arena = touched(bytes as usize, true)?;
    let scratch = tempfile::tempdir_in(&arguments.scratch).context("the scratch directory")?;
    let mut copy = || {
        seconds(|| {
            arena.copy_from_slice(source);
            Ok(())
        })
    };
    let mut report = heading("How fast the burst buffer takes a checkpoint", "bench-burst", READING);
    report += &format!("A checkpoint has {} MiB.\n\n", arguments.mib);
    report += "| ours | GB/s | beside | GB/s | ratio | interval | bound |\n|:--|--:|:--|--:|--:|:--|:--|\n";
    let pairs = arguments.pairs;
    let mut add = |comparison: Comparison| {
        eprint!("{}", comparison.row(bytes));
        report += &comparison.row(bytes);
    };

    // Little more than a checkpoint: the next one has the same space again.
    let memory = bytes + (64 << 20);
    let local = "into the node of the writer";
    let mut cluster = Cluster::start(scratch.path(), "local", &[memory], true)?;
    add(Comparison::run(local, "a copy of memory", 0.5, pairs, || cluster.put(source), &mut copy)?);
    let mount = cluster.mount()?;
    let (mut at, plain) = (0, scratch.path().join("plain"));
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
    add(Comparison::run("a file of a program, through the mount", "a file in memory", 0.5, pairs, ours, others)?);
    drop(mount);
    drop(cluster);

    without_checksums(true);
    let mut cluster = Cluster::start(scratch.path(), "unchecked", &[memory], false)?;
    let without = "the same without checksums";
    add(Comparison::run(without, "a copy of memory", 0.8, pairs, || cluster.put(source), &mut copy)?);
    drop(cluster);
    without_checksums(false);

    // The writer's own node has no room for it.
    let mut cluster = Cluster::start(scratch.path(), "remote", &[1 << 20, memory], true)?;
    let sink = Process::start(&["sink", &bytes.to_string()])?;
    let others = || seconds(|| stream(&sink.address, source));
    add(Comparison::run("into another node", "a TCP stream", 0.8, pairs, || cluster.put(source), others)?);
    Ok(report)
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
