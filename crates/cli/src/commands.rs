//! The commands and their options. Their help texts are the manual.

use crate::advise::AdviseArgs;
use crate::attach::{AttachArgs, DetachArgs};
use crate::burst::BurstCommand;
use crate::check::CheckArgs;
use crate::drain::DrainArgs;
use crate::emulate::EmulateArgs;
use crate::format::FormatArgs;
use crate::metrics::MetricsArgs;
use crate::mount::MountArgs;
use crate::moved::MovedArgs;
use crate::namer::NamerArgs;
use crate::names::NamesArgs;
use crate::policies::PoliciesArgs;
use crate::probe::ProbeArgs;
use crate::record::RecordArgs;
use crate::replay::ReplayArgs;
use crate::resolve::ResolveArgs;
use crate::run::RunArgs;
use crate::serve::ServeCommand;
use crate::set::SetArgs;
use crate::simulate::SimulateArgs;
use crate::stats::StatsArgs;
use crate::top::TopArgs;
use crate::trace::TraceCommand;
use crate::tune::TuneArgs;
use crate::upgrade::UpgradeArgs;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Version, commit, and features of this build.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("ENTRESOL_COMMIT"),
    ", features ",
    env!("ENTRESOL_FEATURES"),
    ")"
);

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
    Attach(AttachArgs),
    Detach(DetachArgs),
    Mount(MountArgs),
    Run(RunArgs),
    #[command(subcommand)]
    Serve(ServeCommand),
    Format(FormatArgs),
    Check(CheckArgs),
    Drain(DrainArgs),
    Stats(StatsArgs),
    Set(SetArgs),
    Upgrade(UpgradeArgs),
    Resolve(ResolveArgs),
    Record(RecordArgs),
    Top(TopArgs),
    Metrics(MetricsArgs),
    Names(NamesArgs),
    #[command(name = "names-of", hide = true)]
    Namer(NamerArgs),
    /// Look at a mount for the server of that mount
    #[command(name = entresol_service::onlooker::WORD, hide = true)]
    Onlooker {
        /// Directory of the mount
        mountpoint: PathBuf,
    },
    Advise(Box<AdviseArgs>),
    /// Print a configuration for --config, with every default written out and explained
    Config,
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory
    Man {
        /// The directory, which is made if it does not exist
        directory: PathBuf,
    },
}
