//! `make bench-recovery`: fills a large cache through the engine in a process that kills itself. Further processes
//! open the cache again, each after the kernel's caches were dropped, and are killed in turn.

mod load;
mod report;

use clap::{Parser, Subcommand};
use entresol_core::Size;
use entresol_store::Layout;
use load::Sizes;
use report::{Filled, Opened};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Measures recovery; prints Markdown.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,
    /// Directory for the cache and its backing store; as much space as the cache takes is needed
    #[arg(long, value_name = "DIRECTORY", default_value = "target/bench/recovery", global = true)]
    dir: PathBuf,
    /// Size of the cache
    #[arg(long, default_value = "10GiB", global = true)]
    size: Size,
    /// The policy
    #[arg(long, default_value = "lru", global = true)]
    policy: String,
    /// Layout in which the store keeps pages
    #[arg(long, default_value = "log", value_parser = ["log", "slots"], global = true)]
    layout: String,
    /// Pages between flushes while the cache is filled; 0 for none but those of its own
    #[arg(long, default_value_t = 0, global = true)]
    flush_every: u64,
    /// Seed of the requests
    #[arg(long, default_value_t = 1, global = true, hide = true)]
    seed: u64,
    /// Times that the cache is opened; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Write the report to this file too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Work of a process that the benchmark itself started
#[derive(Clone, Copy, Subcommand)]
enum Part {
    /// Fills a new cache and is killed
    #[command(hide = true)]
    Fill,
    /// Opens the cache, works on it for a second and is killed
    #[command(hide = true)]
    Open,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.part {
        Some(part) => work(part, &arguments),
        None => run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("entresol-bench-recovery: {error}");
            ExitCode::from(2)
        }
    }
}

fn sizes(arguments: &Arguments) -> Result<Sizes, String> {
    match arguments.size {
        Size::Bytes(bytes) => {
            let layout = if arguments.layout == "slots" { Layout::Slots } else { Layout::Log };
            Sizes::of(bytes, layout, &arguments.policy, arguments.flush_every)
        }
        _ => Err("--size: must be a number of bytes, such as 10GiB".to_owned()),
    }
}

/// Runs a part in its own process: prints one line and kills itself, as a crash would.
fn work(part: Part, arguments: &Arguments) -> Result<(), String> {
    let sizes = sizes(arguments)?;
    let line = match part {
        Part::Fill => load::fill(&arguments.dir, &sizes)?.to_line(),
        Part::Open => load::open(&arguments.dir, &sizes, arguments.seed)?.to_line(),
    };
    println!("{line}");
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
        .map_err(|error| format!("kill: {error}"))
}

/// Starts a part and reads its line.
fn child(part: &str, seed: u32, arguments: &Arguments) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.arg(part).arg("--dir").arg(&arguments.dir).args(["--size", &arguments.size.to_string()]);
    command.args(["--policy", &arguments.policy, "--flush-every", &arguments.flush_every.to_string()]);
    command.args(["--layout", &arguments.layout, "--seed", &seed.to_string()]);
    let output = command.stderr(std::process::Stdio::inherit()).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.code().is_some() { Err(format!("{part}: {}", output.status)) } else { Ok(said) }
}

/// Writes all dirty data out and drops the kernel's clean cached pages; the error says why it could not.
fn drop_caches() -> Result<(), String> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "1").map_err(|error| error.to_string())
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let sizes = sizes(arguments)?;
    let at = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(&arguments.dir).map_err(|error| at(&arguments.dir, error))?;
    eprintln!("filling {} segments ...", sizes.geometry.segments);
    let filled = Filled::from_line(&child("fill", 1, arguments)?)?;
    let mut dropped = Ok(());
    let mut opened = Vec::new();
    for round in 1..=arguments.rounds {
        eprintln!("opening, {round} of {} ...", arguments.rounds);
        dropped = dropped.and(drop_caches());
        opened.push(Opened::from_line(&child("open", 1 + round, arguments)?)?);
    }
    std::fs::remove_dir_all(&arguments.dir).map_err(|error| at(&arguments.dir, error))?;
    let text = report::text(&sizes, &filled, &opened, dropped);
    print!("{text}");
    match &arguments.out {
        Some(path) => std::fs::write(path, &text).map_err(|error| at(path, error)),
        None => Ok(()),
    }
}
