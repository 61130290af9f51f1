//! One run of check 7, and its entry in the journal.

use crate::cluster::{Cluster, Outcome};
use crate::network::Counters;
use crate::role::{Put, contents};
use crate::setup::{
    SIZES, TIMES, Wanted, as_live, fitted_pfs, plans, scaled_cluster, scaled_policy, scaled_workload, workload,
};
use crate::transfers::{Bytes, GrantLog, LATE_MAX, Lateness, Transfers, checkpoint_times, simulated_bytes};
use anyhow::{Context, Result, ensure};
use entresol_bench_common::load_average;
use entresol_burst::simulate::{Cluster as Model, Run, Workload, run as simulate, run_in_order};
use entresol_burst::{CheckpointId, JobId, LEASE_NS};
use entresol_burst_live::layout;
use entresol_burst_live::pfs::{Directory, Pfs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;

/// Times of one checkpoint in seconds, at the scale of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timed {
    pub program: String,
    pub number: u64,
    pub live_s: f64,
    pub simulated_s: f64,
    /// By the model of what the live code does, with the ranks in the order in which they opened here.
    pub simulated_as_live_s: f64,
}

/// The bytes of a node's links: counted by the interfaces, summed over the transfers, and simulated.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Link {
    pub node: u32,
    pub counted: Bytes,
    pub sent: Bytes,
    pub simulated: Bytes,
}

/// The bytes of the PFS's link.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PfsBytes {
    pub counted: u64,
    pub sent: u64,
    pub simulated: u64,
}

/// The journal's entry of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub workload: String,
    pub seed: u64,
    pub policy: String,
    /// Policy as it ran, with its scaled options.
    pub options: String,
    pub date: String,
    pub load_before: String,
    pub load_after: String,
    /// Rates here, bytes a second.
    pub pfs_rate: f64,
    pub link_rate: f64,
    pub checkpoints: Vec<Timed>,
    /// Attempts that failed, of all puts.
    pub failures: Vec<String>,
    pub lateness: Vec<Lateness>,
    pub late_share: f64,
    /// More transfers are late than may be.
    pub is_void: bool,
    pub links: Vec<Link>,
    pub pfs: PfsBytes,
    pub control_bytes: u64,
    pub dropped: u64,
    pub events: usize,
    pub coordinator_processor_s: f64,
    pub nodes_processor_s: f64,
    pub writers_processor_s: f64,
    /// Bytes on the PFS that were compared with those of the writers.
    pub compared_bytes: u64,
}

pub fn date() -> String {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    date.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

fn simulated_times(run: &Run) -> BTreeMap<(u64, u64), f64> {
    let time =
        |it: &entresol_burst::simulate::Checkpoint| ((it.program as u64, u64::from(it.number)), it.end_s - it.start_s);
    run.checkpoints.iter().map(time).collect()
}

/// Compares all checkpoints on the PFS with the bytes of the writers, and returns the number of bytes.
fn compare(pfs: &Path, workload: &Workload) -> Result<u64> {
    let pfs = Directory::open(pfs)?;
    let mut compared = 0;
    for job in 0..workload.programs.len() as u64 {
        for checkpoint in 0..u64::from(workload.checkpoints) {
            let (of_job, number) = (JobId(job), CheckpointId(checkpoint));
            let manifest = layout::manifest(&pfs, of_job, number)?.context("a manifest")?;
            for object in &manifest.objects {
                let expected = contents(job, checkpoint, object.rank, object.bytes);
                for part in &object.parts {
                    let read = pfs.read(&layout::folder(of_job, number), &part.file, 0, part.bytes)?;
                    let own = &expected[part.offset as usize..(part.offset + part.bytes) as usize];
                    ensure!(read == own, "job {job}, checkpoint {checkpoint}, {}: other bytes", part.file);
                    compared += part.bytes;
                }
            }
            ensure!(
                manifest.objects.len() as u32 == manifest.ranks,
                "job {job}, checkpoint {checkpoint}: ranks are missing"
            );
        }
    }
    Ok(compared)
}

/// Runs the cluster once. The grant log is moved to `log`.
pub fn run(wanted: &Wanted, checkpoints: u32, scratch: &Path, log: &Path) -> Result<Entry> {
    let thesis = workload(wanted.workload);
    let model = scaled_cluster(&Model::thesis(fitted_pfs(&thesis)?));
    let workload = scaled_workload(&thesis, checkpoints);
    let policy = scaled_policy(wanted.kind);
    let plans = plans(&model, &workload, wanted.seed);
    let cluster = Cluster {
        model: &model,
        policy: policy.to_string(),
        lease_ns: LEASE_NS / TIMES as u64,
        is_paced: true,
        is_metered: false,
        scratch,
    };
    let is_drained = |pfs: &Path| {
        (0..workload.programs.len()).all(|job| {
            (0..checkpoints).all(|number| pfs.join(format!("job-{job}/checkpoint-{number}/manifest.json")).exists())
        })
    };
    let load_before = load_average();
    let outcome = cluster.run(&plans, is_drained)?;
    let load_after = load_average();
    let compared_bytes = compare(&cluster.pfs(), &workload)?;
    let total: u64 = workload.programs.iter().map(|program| program.bytes * u64::from(checkpoints)).sum();
    ensure!(compared_bytes == total, "{compared_bytes} of {total} bytes are on the PFS");
    // Another file system may be below.
    std::fs::copy(cluster.grant_log(), log)?;
    let entry = Entry { load_before, load_after, compared_bytes, ..judge(wanted, &model, &workload, &outcome, log)? };
    Ok(entry)
}

fn judge(wanted: &Wanted, model: &Model, workload: &Workload, outcome: &Outcome, log: &Path) -> Result<Entry> {
    let policy = scaled_policy(wanted.kind);
    let simulated = simulate(model, workload, policy, wanted.seed);
    let (as_live_model, as_live_policy) = as_live(model, policy);
    let log = GrantLog::read(BufReader::new(File::open(log)?))?;
    let order = |program: usize, number: u32| log.order(program as u64, u64::from(number));
    let as_live = run_in_order(&as_live_model, workload, as_live_policy, wanted.seed, &order);

    let puts: Vec<Put> = outcome.writers.iter().flat_map(|results| results.puts.clone()).collect();
    let starts = workload.starts(wanted.seed);
    let due_ns = |job: u64, checkpoint: u64| {
        let at_s = starts[job as usize] + (checkpoint + 1) as f64 * workload.interval_s;
        outcome.begin_ns + (at_s * 1e9) as u64
    };
    let (of_model, of_live) = (simulated_times(&simulated), simulated_times(&as_live));
    let timed = |(&(job, number), &live_s): (&(u64, u64), &f64)| Timed {
        program: workload.programs[job as usize].name.to_owned(),
        number,
        live_s,
        simulated_s: of_model[&(job, number)],
        simulated_as_live_s: of_live[&(job, number)],
    };
    let checkpoints = checkpoint_times(&puts, due_ns).iter().map(timed).collect();

    let written: Vec<_> = outcome.writers.iter().flat_map(|results| results.moved.clone()).collect();
    let drained: Vec<_> = outcome.nodes.iter().map(|results| results.moved.clone()).collect();
    let transfers = Transfers::of(&log, &written, &drained)?;
    let lateness = transfers.lateness(model);
    let (late, all) = lateness.iter().fold((0, 0), |sum, it| (sum.0 + it.late, sum.1 + it.transfers));
    let late_share = late as f64 / all.max(1) as f64;

    let (sent, sent_to_pfs) = transfers.bytes(model.nodes);
    let (by_model, to_pfs) = simulated_bytes(model, policy, &simulated)?;
    let Counters { nodes, pfs, control, dropped } = &outcome.counters;
    let counted = nodes.iter().map(|it| Bytes { out: it.out, into: it.into, copied: it.copied });
    let links = (0..).zip(counted.zip(sent).zip(by_model));
    let processor = |of: &[crate::role::Results]| of.iter().map(|results| results.processor_s).sum();
    Ok(Entry {
        workload: wanted.workload.to_owned(),
        seed: wanted.seed,
        policy: wanted.kind.name().to_owned(),
        options: policy.to_string(),
        date: date(),
        load_before: String::new(),
        load_after: String::new(),
        pfs_rate: model.pfs,
        link_rate: model.link,
        checkpoints,
        failures: puts.into_iter().flat_map(|put| put.failures).collect(),
        lateness,
        late_share,
        is_void: late_share > LATE_MAX,
        links: links.map(|(node, ((counted, sent), simulated))| Link { node, counted, sent, simulated }).collect(),
        pfs: PfsBytes { counted: pfs.into, sent: sent_to_pfs, simulated: to_pfs },
        control_bytes: control.out + control.into,
        dropped: *dropped,
        events: log.events,
        coordinator_processor_s: outcome.coordinator.processor_s,
        nodes_processor_s: processor(&outcome.nodes),
        writers_processor_s: processor(&outcome.writers),
        compared_bytes: 0,
    })
}

impl Entry {
    /// One line for the terminal.
    pub fn summary(&self) -> String {
        let sum = |of: fn(&Timed) -> f64| self.checkpoints.iter().map(of).sum::<f64>();
        let ratio = |of: fn(&Timed) -> f64| {
            let ratios: Vec<f64> = self.checkpoints.iter().map(|it| it.live_s / of(it)).collect();
            entresol_bench_common::median(&ratios)
        };
        format!(
            "{} seed {} {}: emulated {:.2} s, simulated {:.2} s (as the live code does {:.2} s); median ratio of a checkpoint {:.3} ({:.3}); \
             {:.2} % late{}; {} failed attempts, {} frames dropped, sizes 1/{SIZES}",
            self.workload,
            self.seed,
            self.policy,
            sum(|it| it.live_s),
            sum(|it| it.simulated_s),
            sum(|it| it.simulated_as_live_s),
            ratio(|it| it.simulated_s),
            ratio(|it| it.simulated_as_live_s),
            100.0 * self.late_share,
            if self.is_void { ", void" } else { "" },
            self.failures.len(),
            self.dropped,
        )
    }
}
