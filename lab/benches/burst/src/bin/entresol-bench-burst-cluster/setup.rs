//! A run's place in the experiment: workload, seed and policy, and the cluster of the thesis at a smaller scale.

use crate::role::Planned;
use anyhow::{Context, Result};
use entresol_burst::simulate::{BATCH_BYTES, Cluster, CopiesBy, Published, Workload, fit};
use entresol_burst::{CHUNK_BYTES, Kind, Policy};

/// Sizes of the thesis over sizes here.
pub const SIZES: u64 = 1000;
/// Rates of the thesis over rates here.
pub const RATES: f64 = 100.0;
/// Times of the thesis over times here.
pub const TIMES: f64 = SIZES as f64 / RATES;
/// Seeds of the fit, as `burst simulate` has them.
const FIT_SEEDS: u64 = 32;
/// Rate with which the fit begins, bytes a second.
const FIRST_PFS: f64 = 2e9;

/// A run that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub workload: &'static str,
    pub seed: u64,
    pub kind: Kind,
}

impl Wanted {
    /// Name of its file.
    pub fn name(&self) -> String {
        format!("{}-seed{}-{}", self.workload, self.seed, self.kind.name())
    }
}

const KINDS: [Kind; 3] = [Kind::Ldbb, Kind::Cdbb, Kind::Chunked];

/// All runs: Medium with five seeds and Heavy with two, those of the first seeds first.
pub fn all() -> Vec<Wanted> {
    let of = |seed| {
        let workloads = ["medium", "heavy"].into_iter().filter(move |&name| name == "medium" || seed < 2);
        workloads.flat_map(move |workload| KINDS.map(|kind| Wanted { workload, seed, kind }))
    };
    (0..5).flat_map(of).collect()
}

/// The thesis's workload of a name.
pub fn workload(name: &str) -> Workload {
    if name == "heavy" { Workload::heavy() } else { Workload::medium() }
}

/// The rate of the PFS in the thesis, fitted as `burst simulate --fit` does.
pub fn fitted_pfs(workload: &Workload) -> Result<f64> {
    let published = Published::of(workload).context("no published times")?;
    let ldbb = Policy::new(Kind::Ldbb);
    let map = |one: &(dyn Fn(u64) -> (f64, f64) + Sync)| (0..FIT_SEEDS).map(one).collect();
    Ok(fit(&Cluster::thesis(FIRST_PFS), workload, ldbb, &published, map).pfs)
}

/// A cluster at the scale of the run.
pub fn scaled_cluster(thesis: &Cluster) -> Cluster {
    Cluster {
        buffer_bytes: thesis.buffer_bytes / SIZES,
        link: thesis.link / RATES,
        copy: thesis.copy / RATES,
        stream: thesis.stream / RATES,
        pfs: thesis.pfs / RATES,
        batch_bytes: Some(BATCH_BYTES / SIZES),
        ..*thesis
    }
}

/// A workload at the scale of the run.
pub fn scaled_workload(thesis: &Workload, checkpoints: u32) -> Workload {
    let mut scaled = thesis.clone();
    scaled.programs.iter_mut().for_each(|program| program.bytes /= SIZES);
    scaled.interval_s /= TIMES;
    scaled.starts_s /= TIMES;
    scaled.checkpoints = checkpoints;
    scaled
}

/// A policy with its defaults, at the scale of the run.
pub fn scaled_policy(kind: Kind) -> Policy {
    let mut policy = Policy::new(kind);
    policy.chunk_bytes = policy.chunk_bytes.map(|_| CHUNK_BYTES / SIZES);
    policy
}

/// The model of what the live code does where the published model differs: the parts of an object are sent one after the other, each
/// followed by its copy; and the space of a piece is free when all of it is on the PFS.
pub fn as_live(cluster: &Cluster, policy: Policy) -> (Cluster, Policy) {
    let cluster = Cluster { batch_bytes: None, copies_by: CopiesBy::Writer, ..*cluster };
    (cluster, Policy { streams: Some(1), ..policy })
}

/// The writers of each node, as the simulation starts them.
pub fn plans(cluster: &Cluster, workload: &Workload, seed: u64) -> Vec<Vec<Planned>> {
    let mut plans = vec![Vec::new(); cluster.nodes as usize];
    let mut slot = 0;
    for (job, (program, start_s)) in (0..).zip(workload.programs.iter().zip(workload.starts(seed))) {
        for rank in 0..program.writers {
            let (share, rest) =
                (program.bytes / u64::from(program.writers), program.bytes % u64::from(program.writers));
            let bytes = share + u64::from(u64::from(rank) < rest);
            let at_s = (1..=workload.checkpoints).map(|number| start_s + f64::from(number) * workload.interval_s);
            let planned = Planned { job, rank, ranks: program.writers, bytes, at_s: at_s.collect() };
            plans[cluster.node_of(slot) as usize].push(planned);
            slot += 1;
        }
    }
    plans
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_burst::simulate::run;

    #[test]
    fn the_small_cluster_has_a_tenth_of_the_times() {
        let (thesis, medium) = (Cluster::thesis(1.97e9), Workload::medium());
        let scaled = (scaled_cluster(&thesis), scaled_workload(&medium, medium.checkpoints));
        for kind in KINDS {
            let large = run(&thesis, &medium, Policy::new(kind), 3);
            let small = run(&scaled.0, &scaled.1, scaled_policy(kind), 3);
            let ratio = large.total_s() / small.total_s();
            assert!((ratio - TIMES).abs() < 0.01 * TIMES, "{}: {ratio}", kind.name());
        }
    }

    #[test]
    fn every_writer_of_the_simulation_is_planned_once() {
        let cluster = Cluster::thesis(2e9);
        let plans = plans(&cluster, &Workload::medium(), 0);
        assert_eq!(plans.iter().map(Vec::len).sum::<usize>(), 320);
        assert!(plans.iter().all(|plan| plan.len() <= cluster.writers_per_node as usize) && plans[0].len() == 6);
        let first = &plans[0][0];
        assert_eq!(first.at_s[0], Workload::medium().starts(0)[0] + 600.0);
        assert_eq!((all().len(), all()[0].name()), (21, "medium-seed0-ldbb".to_owned()));
    }
}
