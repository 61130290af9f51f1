//! Least time of a checkpoint under any placement, from bytes and rates alone.
//!
//! The program is alone and all buffers are empty, so a run can only be slower. Two things bound the time: the link out
//! of the node with most bytes, and the PFS for bytes that fit in no buffer. Without redundancy a node's own buffer
//! spares its link. With any redundancy that survives the loss of a node, all bytes must leave the node.

use super::model::{Cluster, Program, Workload};
use crate::policy::{Kind, Policy, Redundancy, STRIPE_MEMBERS_MAX};

/// Lower bound in seconds of a checkpoint of a program of the workload, under `cdbb` or `chunked` with this redundancy.
///
/// The bounds of `ldbb` and `pfs` are not lower, so this bound holds for all policies.
pub fn bound_s(cluster: &Cluster, workload: &Workload, program: usize, policy: Policy) -> f64 {
    let first: u32 = workload.programs[..program].iter().map(|program| program.writers).sum();
    let Program { bytes, writers, .. } = workload.programs[program];
    let mut on_node = vec![0u32; cluster.nodes as usize];
    (first..first + writers).for_each(|writer| on_node[cluster.node_of(writer) as usize] += 1);
    let most = on_node.into_iter().max().map_or(0.0, |count| f64::from(count) * bytes as f64 / f64::from(writers));
    let (buffer, bytes) = (cluster.buffer_bytes as f64, bytes as f64);
    let space = buffer * f64::from(cluster.nodes);
    let members = STRIPE_MEMBERS_MAX as f64;
    let (stays, fits) = match policy.redundancy {
        _ if policy.kind == Kind::Pfs => (0.0, 0.0),
        Redundancy::None => (buffer.min(most), space),
        Redundancy::Partner => (0.0, space / 2.0),
        Redundancy::Xor => (0.0, space * members / (members + 1.0)),
    };
    let out = most - stays;
    // Bytes sent to the PFS directly count in both.
    let by_link = if cluster.pfs_apart { 0.0 } else { out / cluster.link };
    // Bytes that may stay are copied while others leave.
    let by_copy = if stays > 0.0 { most / (cluster.copy + cluster.link) } else { 0.0 };
    let by_pfs = (bytes - fits).max(0.0) / cluster.pfs;
    by_link.max(by_copy).max(by_pfs)
}

#[cfg(test)]
mod tests {
    use super::super::run::run;
    use super::*;

    /// pBWA by hand: 14.4375 GB on a node of seven writers, 4 of which may stay; 132 GB in all. Of these 92 GB fit
    /// twice, or 161 GB with parities.
    #[test]
    fn bounds_are_as_by_hand() {
        let (cluster, workload) = (Cluster::thesis(2.0e9), Workload::medium());
        let bound = |text: &str| bound_s(&cluster, &workload, 4, text.parse().expect(text));
        let close =
            |text: &str, expected: f64| assert!((bound(text) - expected).abs() < 1e-9, "{text}: {}", bound(text));
        close("cdbb", 10.4375 / 1.83);
        close("chunked:redundancy=xor", 14.4375 / 1.83);
        close("chunked", 20.0);
        close("pfs", 66.0);
    }

    #[test]
    fn no_checkpoint_is_faster_than_its_bound() {
        let cluster = Cluster::thesis(2.0e9);
        for workload in [Workload::light(), Workload::medium(), Workload::heavy(), Workload::in_phase()] {
            for text in ["pfs", "ldbb", "cdbb", "chunked:redundancy=none", "chunked", "chunked:redundancy=xor"] {
                let policy = text.parse().expect(text);
                for seed in 0..2 {
                    for checkpoint in run(&cluster, &workload, policy, seed).checkpoints {
                        let bound = bound_s(&cluster, &workload, checkpoint.program, policy);
                        let took = checkpoint.end_s - checkpoint.start_s;
                        assert!(
                            took >= bound - 1e-3,
                            "{} {text}, seed {seed}: {took} s, bound {bound} s",
                            workload.name
                        );
                    }
                }
            }
        }
    }
}
