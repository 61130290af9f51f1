//! `entresol burst`: burst buffers for checkpoints, simulated and live.

mod access;
mod daemons;
mod metrics;
mod mount;
mod report;
mod run;
mod study;
mod study_report;
mod top;
mod writers;

use crate::output;
use access::{KeyArgs, TicketArgs};
use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use daemons::{CoordinateArgs, ServeArgs};
use entresol_burst::simulate::{
    Cluster, Destinations, Failures, Fit, Loss, Published, Run, Workload, fit, losses, run as simulate_one,
};
use entresol_burst::{Kind, Policy, Redundancy};
use entresol_render::{Progress, Unit};
use metrics::BurstMetricsArgs;
use mount::MountArgs;
pub use run::{BurstRunArgs, run as run_program};
use std::sync::atomic::{AtomicU64, Ordering};
use study::{Candidate, Cost, Read};
use top::BurstTopArgs;
use writers::{DrainArgs, ListArgs, PutArgs, RestoreArgs};

/// Burst buffers for the checkpoints of parallel programs: simulated, and live in the memory of nodes
#[derive(Subcommand)]
pub enum BurstCommand {
    Simulate(Box<BurstSimulateArgs>),
    Coordinate(CoordinateArgs),
    Serve(ServeArgs),
    Put(PutArgs),
    Ls(ListArgs),
    Restore(RestoreArgs),
    Drain(DrainArgs),
    Mount(MountArgs),
    Run(BurstRunArgs),
    Top(BurstTopArgs),
    Metrics(BurstMetricsArgs),
    Key(KeyArgs),
    Ticket(TicketArgs),
}

/// Simulate the destinations and times of checkpoints, and the cost of a node's failure
///
/// 46 nodes with buffers of 4 GB, 320 writers and one parallel file system (PFS), as in chapter 5 of Fan's thesis
/// (2017). A policy is NAME[:OPTION=VALUE]...: pfs, ldbb, cdbb or chunked, with object=split|whole, chunk=SIZE|none,
/// redundancy=none|partner|xor, drain=fair|low, order=fifo|oldest, remote=any|others, streams=N|all. All numbers are
/// simulated, except those of --coordinator-cost, which are measured.
#[derive(Args)]
pub struct BurstSimulateArgs {
    /// The programs that run at the same time
    #[arg(long, value_enum, default_value_t = WorkloadName::Medium)]
    pub workload: WorkloadName,
    /// A policy; may be given several times. Ratios are to the first [default: ldbb, cdbb, chunked, pfs]
    #[arg(long, short, value_name = "SPEC")]
    pub policy: Vec<Policy>,
    /// Number of draws of the programs' starts, the same for every policy
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// Bandwidth of the PFS, GB/s [default: 3 for heavy, else 2: near the fitted rates]
    #[arg(long, value_name = "GB/S", value_parser = rate, conflicts_with = "fit")]
    pub pfs: Option<f64>,
    /// Fit the rate of the PFS to the published times of QE and pBWA under ldbb, for medium or heavy
    #[arg(long)]
    pub fit: bool,
    /// Print the data of figures 5.6 to 5.8 of the thesis: totals, programs and checkpoints, beside the published
    /// numbers
    #[arg(long)]
    pub figures: bool,
    /// Print the work lost by a node's failure, at 1 to 24 hours between failures, with every kind of redundancy
    #[arg(long)]
    pub lost_work: bool,
    /// Print every reading of the thesis beside the published numbers, with the PFS rate fitted for each; medium or
    /// heavy
    #[arg(long)]
    pub readings: bool,
    /// Print each policy's p90 with every redundancy and drain priority, beside the least possible p90. Also print the
    /// policy with the least lost work among those within 1.1 times the best
    #[arg(long)]
    pub choose: bool,
    /// Print the coordinator's own processing time on this machine for operations that writers wait for, without
    /// messages
    #[arg(long)]
    pub coordinator_cost: bool,
    /// Approximate number of failures drawn for each seed
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub failures: u32,
    /// Most threads [default: one per processor]
    #[arg(long, short = 'j', value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The workloads of the thesis, and one job alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WorkloadName {
    /// The five smallest programs
    Light,
    /// The two smallest, the middle one and the two largest
    Medium,
    /// The five largest programs
    Heavy,
    /// One job on all nodes, whose writers checkpoint at the same time
    InPhase,
}

impl WorkloadName {
    fn workload(self) -> Workload {
        match self {
            WorkloadName::Light => Workload::light(),
            WorkloadName::Medium => Workload::medium(),
            WorkloadName::Heavy => Workload::heavy(),
            WorkloadName::InPhase => Workload::in_phase(),
        }
    }

    /// The rate that `--fit` finds, rounded.
    fn pfs(self) -> f64 {
        if self == WorkloadName::Heavy { 3.0e9 } else { 2.0e9 }
    }
}

/// Mean hours between two failures of the cluster's nodes.
pub const MTBF_HOURS: [u32; 6] = [1, 2, 4, 8, 12, 24];

/// Parses a rate in GB/s to bytes a second.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.map(|rate| rate * 1e9).ok_or_else(|| "it must be a rate in GB/s above 0, such as 2.0".to_owned())
}

/// Results of one seed.
pub struct Outcome {
    /// Seconds of each checkpoint of each program.
    pub times_s: Vec<Vec<f64>>,
    /// First destination of the bytes.
    pub destinations: Destinations,
}

impl Outcome {
    pub fn of(run: &Run, workload: &Workload) -> Outcome {
        let times_s = (0..workload.programs.len()).map(|program| run.times_s(program)).collect();
        Outcome { times_s, destinations: run.destinations }
    }

    /// Seconds of all checkpoints of a program.
    pub fn program_s(&self, program: usize) -> f64 {
        self.times_s[program].iter().sum()
    }

    /// Seconds of all checkpoints.
    pub fn total_s(&self) -> f64 {
        self.times_s.iter().flatten().sum()
    }
}

/// Results of one policy, seed by seed.
pub struct Simulated {
    pub policy: Policy,
    pub outcomes: Vec<Outcome>,
}

/// Cost of failures under one policy, for each of [`MTBF_HOURS`].
pub struct Lost {
    pub policy: Policy,
    pub losses: Vec<Loss>,
}

/// All reported results.
pub struct Results {
    pub workload: Workload,
    pub cluster: Cluster,
    pub fit: Option<Fit>,
    pub seeds: u64,
    pub failures: u32,
    pub simulated: Vec<Simulated>,
    pub lost: Vec<Lost>,
    pub readings: Vec<Read>,
    pub candidates: Vec<Candidate>,
    pub costs: Vec<Cost>,
}

/// Runs the command.
pub fn run(command: &BurstCommand, quiet: bool) -> Result<()> {
    match command {
        BurstCommand::Simulate(arguments) => run_simulation(arguments, quiet),
        BurstCommand::Coordinate(arguments) => daemons::coordinate(arguments, quiet),
        BurstCommand::Serve(arguments) => daemons::serve(arguments, quiet),
        BurstCommand::Put(arguments) => writers::put(arguments),
        BurstCommand::Ls(arguments) => writers::list(arguments),
        BurstCommand::Restore(arguments) => writers::restore(arguments, quiet),
        BurstCommand::Drain(arguments) => writers::drain(arguments),
        BurstCommand::Mount(arguments) => mount::mount(arguments, quiet),
        BurstCommand::Run(_) => unreachable!("run where its code can be passed on"),
        BurstCommand::Top(arguments) => top::top(arguments),
        BurstCommand::Metrics(arguments) => metrics::metrics(arguments),
        BurstCommand::Key(arguments) => access::key(arguments),
        BurstCommand::Ticket(arguments) => access::ticket(arguments),
    }
}

fn run_simulation(arguments: &BurstSimulateArgs, quiet: bool) -> Result<()> {
    let results = simulate(arguments, quiet)?;
    match arguments.json {
        true => output::print(&(serde_json::to_string_pretty(&report::json(&results))? + "\n")),
        false => output::print(&report::text(&results, arguments.figures)),
    }
}

fn simulate(arguments: &BurstSimulateArgs, quiet: bool) -> Result<Results> {
    let workload = arguments.workload.workload();
    let policies = policies(&arguments.policy)?;
    let each = Each {
        seeds: arguments.seeds,
        threads: arguments
            .threads
            .map_or_else(|| std::thread::available_parallelism().map_or(1, |count| count.get()), usize::from),
    };
    let mut cluster = Cluster::thesis(arguments.pfs.unwrap_or(arguments.workload.pfs()));
    let fitted = if arguments.fit { Some(fitted(&cluster, &workload, &each)?) } else { None };
    if let Some(fit) = &fitted {
        cluster.pfs = fit.pfs;
    }
    let guarded = if arguments.lost_work { with_every_redundancy(&policies) } else { Vec::new() };
    if arguments.readings && Published::of(&workload).is_none() {
        bail!("--readings: no time of the workload '{}' was published, only of medium and heavy", workload.name);
    }
    let items = (policies.len() + guarded.len()) as u64;
    let bar = Progress::start(workload.name, Some(items), Unit::Items("policies"), quiet);
    let mut simulated = Vec::new();
    for &policy in &policies {
        bar.note(policy.to_string());
        let one = |seed| Outcome::of(&simulate_one(&cluster, &workload, policy, seed), &workload);
        simulated.push(Simulated { policy, outcomes: each.seed(&one) });
        bar.advance(1);
    }
    let mut lost = Vec::new();
    for policy in guarded {
        bar.note(format!("failures under {policy}"));
        lost.push(Lost { policy, losses: lose(&cluster, &workload, policy, arguments.failures, &each) });
        bar.advance(1);
    }
    let (seeds, failures) = (arguments.seeds, arguments.failures);
    let readings = match Published::of(&workload).filter(|_| arguments.readings) {
        Some(published) => {
            bar.note("readings");
            study::readings(&cluster, &workload, &published, &each)
        }
        None => Vec::new(),
    };
    let candidates = match arguments.choose {
        true => {
            bar.note("choice");
            study::candidates(&cluster, &workload, &policies, failures, &each)
        }
        false => Vec::new(),
    };
    drop(bar);
    let costed: &[Policy] = if arguments.coordinator_cost { &policies } else { &[] };
    let costs = costed.iter().map(|&policy| study::cost(&cluster, &workload, policy, seeds)).collect();
    Ok(Results { workload, cluster, fit: fitted, seeds, failures, simulated, lost, readings, candidates, costs })
}

/// The policies that were asked for, or the default ones.
fn policies(given: &[Policy]) -> Result<Vec<Policy>> {
    if given.is_empty() {
        return Ok([Kind::Ldbb, Kind::Cdbb, Kind::Chunked, Kind::Pfs].map(Policy::new).to_vec());
    }
    for (at, policy) in given.iter().enumerate() {
        if given[..at].contains(policy) {
            bail!("--policy: '{policy}' is given twice");
        }
    }
    Ok(given.to_vec())
}

fn fitted(cluster: &Cluster, workload: &Workload, each: &Each) -> Result<Fit> {
    let Some(published) = Published::of(workload) else {
        bail!("--fit: no time of the workload '{}' was published, only of medium and heavy; --pfs sets the rate", {
            workload.name
        });
    };
    Ok(fit(cluster, workload, Policy::new(Kind::Ldbb), &published, |one| each.seed(one)))
}

/// Each policy with every kind of redundancy, except `pfs`, which has none.
pub fn with_every_redundancy(policies: &[Policy]) -> Vec<Policy> {
    let mut all: Vec<Policy> = Vec::new();
    for &policy in policies {
        let kinds = [Redundancy::None, Redundancy::Partner, Redundancy::Xor];
        let kinds = if policy.kind == Kind::Pfs { &kinds[..1] } else { &kinds[..] };
        for &redundancy in kinds {
            let guarded = Policy { redundancy, ..policy };
            if !all.contains(&guarded) {
                all.push(guarded);
            }
        }
    }
    all
}

/// Cost of failures for each of [`MTBF_HOURS`], over all seeds.
fn lose(cluster: &Cluster, workload: &Workload, policy: Policy, count: u32, each: &Each) -> Vec<Loss> {
    let one = |seed| {
        let run = simulate_one(cluster, workload, policy, seed);
        MTBF_HOURS.map(|hours| {
            let failures = Failures { mtbf_s: f64::from(hours) * 3600.0, count, seed };
            losses(cluster, workload, &run, &failures)
        })
    };
    let mut sums = vec![Loss::default(); MTBF_HOURS.len()];
    for of_seed in each.seed(&one) {
        sums.iter_mut().zip(&of_seed).for_each(|(sum, loss)| sum.add(loss));
    }
    sums
}

/// Runs a function for every seed, on several threads.
pub struct Each {
    seeds: u64,
    threads: usize,
}

impl Each {
    /// The results, in order of the seeds.
    pub fn seed<T: Send>(&self, one: &(dyn Fn(u64) -> T + Sync)) -> Vec<T> {
        let next = AtomicU64::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= self.seeds {
                    return done;
                }
                done.push((seed, one(seed)));
            }
        };
        let mut all: Vec<(u64, T)> = std::thread::scope(|scope| {
            let threads = self.threads.min(usize::try_from(self.seeds).unwrap_or(usize::MAX));
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("a simulation ends")).collect()
        });
        all.sort_by_key(|(seed, _)| *seed);
        all.into_iter().map(|(_, result)| result).collect()
    }
}
