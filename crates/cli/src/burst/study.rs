//! Studies of `entresol burst simulate`: readings of the thesis, the choice of a policy, and the coordinator's own
//! time.

use super::{Each, MTBF_HOURS, Outcome, with_every_redundancy};
use entresol_burst::simulate::{
    Cluster, Failures, Loss, Published, Reading, Sensitivity, Workload, bound_s, losses, quantile, run, sensitivity,
};
use entresol_burst::{CheckpointId, Coordinator, DrainPriority, Epoch, Event, JobId, Kind, LEASE_NS, Policy};
use std::collections::BTreeMap;
use std::time::Instant;

/// A policy may be chosen if its p90 is at most this many times the best one's.
pub const NEAR_BEST: f64 = 1.1;
/// Seconds by which `cdbb` took longer than `ldbb` in the light experiment (section 5.4.4), over all thirty checkpoints
/// together.
pub const LIGHT_OVERHEAD_S: f64 = 3.72;

/// A reading and its results.
pub struct Read {
    pub reading: Reading,
    pub sensitivity: Sensitivity,
}

/// Every reading of the thesis, each with the PFS rate fitted again.
pub fn readings(cluster: &Cluster, workload: &Workload, published: &Published, each: &Each) -> Vec<Read> {
    let read = |reading: Reading| {
        let setup = reading.setup(*cluster, workload.clone());
        Read { reading, sensitivity: sensitivity(&setup, published, |one| each.seed(one)) }
    };
    Reading::ALL.into_iter().map(read).collect()
}

/// A policy that may be chosen, with its costs.
pub struct Candidate {
    pub policy: Policy,
    /// 90th percentile over single checkpoints of all programs and seeds.
    pub checkpoint_p90_s: f64,
    /// The least p90 that any placement with this redundancy could have.
    pub bound_p90_s: f64,
    /// 90th percentile over seeds of the sum of all checkpoints.
    pub total_p90_s: f64,
    /// Core-hours lost by a failure, over all times between failures.
    pub lost_core_hours: f64,
}

/// Policies with every redundancy and both drain priorities.
pub fn candidates(
    cluster: &Cluster,
    workload: &Workload,
    policies: &[Policy],
    count: u32,
    each: &Each,
) -> Vec<Candidate> {
    let buffering: Vec<Policy> = policies.iter().copied().filter(|policy| policy.kind != Kind::Pfs).collect();
    let drains = [DrainPriority::Fair, DrainPriority::Low];
    let all =
        with_every_redundancy(&buffering).into_iter().flat_map(|policy| drains.map(|drain| Policy { drain, ..policy }));
    let mut found: Vec<Candidate> = Vec::new();
    for policy in all {
        if !found.iter().any(|candidate| candidate.policy == policy) {
            found.push(candidate(cluster, workload, policy, count, each));
        }
    }
    found
}

fn candidate(cluster: &Cluster, workload: &Workload, policy: Policy, count: u32, each: &Each) -> Candidate {
    let runs = each.seed(&|seed| {
        let run = run(cluster, workload, policy, seed);
        let mut sum = Loss::default();
        for hours in MTBF_HOURS {
            let failures = Failures { mtbf_s: f64::from(hours) * 3600.0, count, seed };
            sum.add(&losses(cluster, workload, &run, &failures));
        }
        (Outcome::of(&run, workload), sum)
    });
    let mut lost = Loss::default();
    runs.iter().for_each(|(_, loss)| lost.add(loss));
    let bounds = (0..workload.programs.len()).map(|program| bound_s(cluster, workload, program, policy));
    Candidate {
        policy,
        checkpoint_p90_s: quantile(runs.iter().flat_map(|(run, _)| run.times_s.iter().flatten().copied()), 0.9),
        bound_p90_s: quantile(bounds.flat_map(|bound| vec![bound; runs.len() * workload.checkpoints as usize]), 0.9),
        total_p90_s: quantile(runs.iter().map(|(run, _)| run.total_s()), 0.9),
        lost_core_hours: lost.core_hours_per_failure(),
    }
}

/// The candidate with the least lost work of those whose p90 is within [`NEAR_BEST`] of the best.
pub fn chosen<'a>(
    candidates: impl Iterator<Item = &'a Candidate> + Clone,
    p90: impl Fn(&Candidate) -> f64,
) -> Option<&'a Candidate> {
    let best = candidates.clone().map(&p90).min_by(f64::total_cmp)?;
    let near = candidates.filter(|candidate| p90(candidate) <= NEAR_BEST * best);
    near.min_by(|a, b| a.lost_core_hours.total_cmp(&b.lost_core_hours))
}

/// Time that the coordinator object itself took on this machine, without messages.
pub struct Cost {
    pub policy: Policy,
    /// Median number of answers in a run.
    pub answers: f64,
    /// Median over runs of the slowest checkpoint's time: the sum of its answers, in seconds.
    pub checkpoint_s: f64,
    /// Median over runs of the seconds of all checkpoints together.
    pub total_s: f64,
}

/// Replays a run's messages to a new coordinator, and times the operations that writers wait for: medians over seeds.
pub fn cost(cluster: &Cluster, workload: &Workload, policy: Policy, seeds: u64) -> Cost {
    let mut measured: Vec<[f64; 3]> = Vec::new();
    for seed in 0..seeds {
        let run = run(cluster, workload, policy, seed);
        let mut coordinator = Coordinator::new(policy, Epoch(1), LEASE_NS);
        let mut by_checkpoint: BTreeMap<(JobId, CheckpointId), f64> = BTreeMap::new();
        let mut answers = 0.0;
        for (at_ns, event) in &run.events {
            let begin = Instant::now();
            let answer = std::hint::black_box(coordinator.apply(*at_ns, event));
            let took_s = begin.elapsed().as_secs_f64();
            drop(answer);
            if let Event::Open { object, .. } | Event::Renew { object } | Event::Commit { object } = event {
                *by_checkpoint.entry((object.job, object.checkpoint)).or_default() += took_s;
                answers += 1.0;
            }
        }
        let slowest = by_checkpoint.values().copied().fold(0.0, f64::max);
        measured.push([answers, slowest, by_checkpoint.values().sum()]);
    }
    let [answers, checkpoint_s, total_s] = [0, 1, 2].map(|at| quantile(measured.iter().map(|of_run| of_run[at]), 0.5));
    Cost { policy, answers, checkpoint_s, total_s }
}
