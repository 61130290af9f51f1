//! `make bench-burst-cluster`: the burst buffer on an emulated cluster of 46 nodes and 320 writers, beside the simulation (checks 7 and 8).
//!
//! Nodes are network namespaces of this machine whose links have token buckets. A run is a file in the journal's directory; the command
//! goes on with those that are missing. Sizes are a thousandth of the thesis's, rates a hundredth, so times a tenth.

mod cluster;
mod messages;
mod meter;
mod network;
mod pfs;
mod result;
mod role;
mod run;
mod setup;
mod transfers;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use entresol_bench_common::end;
use role::Role;
use rustix::fs::{FlockOperation, flock};
use setup::{Wanted, all};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Seconds of a run of six checkpoints, for the message about what is left.
const RUN_S: u64 = 460;

/// Runs the burst buffer on an emulated cluster; writes a journal.
#[derive(Parser)]
struct Arguments {
    /// Directory of the journal.
    #[arg(long, default_value = "target/results/burst-cluster")]
    out: PathBuf,
    /// Most runs of this call.
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    runs: usize,
    /// Only runs whose name begins so, such as medium-seed0.
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,
    /// Checkpoints of a program; other than six is for trying, and has a journal of its own.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=6))]
    checkpoints: u32,
    /// Count the coordinator's messages instead.
    #[arg(long)]
    messages: bool,
    /// Remove the network that an interrupted run has left, and do nothing else.
    #[arg(long)]
    clean: bool,
    /// Directory in memory for the PFS.
    #[arg(long, default_value = "/dev/shm")]
    scratch: PathBuf,
    #[command(subcommand)]
    role: Option<Role>,
}

/// Beginning of the names of scratch directories; a start removes those of earlier ones.
const SCRATCH: &str = "entresol-burst-cluster-";
const LOCK: &str = "/run/lock/entresol-burst-cluster";

fn clean(scratch: &Path) -> Result<()> {
    network::remove()?;
    for entry in std::fs::read_dir(scratch)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(SCRATCH) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn scratch(of: &Path) -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix(SCRATCH).tempdir_in(of)?)
}

/// True if a run is in the journal. One that is void is put aside, and run again.
fn is_done(path: &Path) -> Result<bool> {
    if !path.exists() {
        return Ok(false);
    }
    let entry: run::Entry = result::read(path)?;
    if entry.is_void {
        let mut asides = (1..).map(|number| path.with_extension(format!("void{number}.json")));
        let aside = asides.find(|aside| !aside.exists()).context("a name")?;
        std::fs::rename(path, aside)?;
    }
    Ok(!entry.is_void)
}

fn work(arguments: &Arguments) -> Result<()> {
    if let Some(role) = &arguments.role {
        return role.play();
    }
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root");
    let lock = File::create(LOCK).context(LOCK)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).context("another run is under way")?;
    clean(&arguments.scratch)?;
    if arguments.clean {
        return Ok(());
    }
    let of_trial = if arguments.checkpoints == 6 { String::new() } else { format!("-of{}", arguments.checkpoints) };
    let out = PathBuf::from(format!("{}{of_trial}", arguments.out.display()));
    std::fs::create_dir_all(&out)?;
    if arguments.messages {
        for kind in [entresol_burst::Kind::Ldbb, entresol_burst::Kind::Cdbb, entresol_burst::Kind::Chunked] {
            let scratch = scratch(&arguments.scratch)?;
            let entry = messages::run(setup::scaled_policy(kind), scratch.path())?;
            println!("{}", serde_json::to_string_pretty(&entry)?);
            result::write(&out.join(format!("messages-{}.json", kind.name())), &entry)?;
        }
        return Ok(());
    }
    let path = |wanted: &Wanted| out.join(format!("{}.json", wanted.name()));
    let mut missing = Vec::new();
    for wanted in all() {
        if !is_done(&path(&wanted))? {
            missing.push(wanted);
        }
    }
    let asked: Vec<&Wanted> = missing.iter().filter(|wanted| wanted.name().starts_with(&arguments.only)).collect();
    let count = asked.len().min(arguments.runs);
    for (at, wanted) in asked.into_iter().take(count).enumerate() {
        let left = count - at;
        println!(
            "{}: {left} runs of this call are left, about {} minutes",
            wanted.name(),
            (left as u64 * RUN_S).div_ceil(60)
        );
        let scratch = scratch(&arguments.scratch)?;
        let log = out.join(format!("{}.grants.jsonl", wanted.name()));
        let entry = run::run(wanted, arguments.checkpoints, scratch.path(), &log)?;
        println!("{}", entry.summary());
        result::write(&path(wanted), &entry)?;
    }
    println!("{} of {} runs are missing or void", all().len() - done(&path)?, all().len());
    Ok(())
}

/// Number of runs in the journal that count.
fn done(path: &impl Fn(&Wanted) -> PathBuf) -> Result<usize> {
    let paths = all().into_iter().map(|wanted| path(&wanted)).filter(|path| path.exists());
    let entries = paths.map(|path| result::read::<run::Entry>(&path)).collect::<Result<Vec<_>>>()?;
    Ok(entries.iter().filter(|entry| !entry.is_void).count())
}

fn main() -> ExitCode {
    end("bench-burst-cluster", work(&Arguments::parse()).map_err(|error| format!("{error:#}")))
}
