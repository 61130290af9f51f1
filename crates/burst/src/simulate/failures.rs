//! Lost work: the cost of node failures, given the location of every piece of every checkpoint over time.
//!
//! Failures come at random while all programs run (exponential times between failures of the whole cluster, nodes
//! uniform). A failed node loses its buffer and is replaced at once. The programs with ranks on it restart from their
//! newest complete checkpoint that can be restored. All progress since the beginning of that checkpoint is lost. A
//! restart does not move later checkpoints in time. Bytes that a guard holds are drained or rebuilt by the time at
//! which the lost piece would have been on the PFS.

use super::model::{Cluster, Workload};
use super::run::{Buffered, Protection, Run};
use entresol_core::Random;

/// Node failures to draw for a study.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failures {
    /// Mean time in seconds between failures of any of the cluster's nodes.
    pub mtbf_s: f64,
    /// Approximate number of failures to draw for each run.
    pub count: u32,
    /// Seed of the draws; the same for every policy.
    pub seed: u64,
}

/// Cost of failures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// Failures.
    pub failures: u64,
    /// Restarts of programs.
    pub restarts: u64,
    /// Seconds of progress lost by all restarts, each times the program's cores.
    pub core_s: f64,
    /// Restarts that found their newest complete checkpoint gone.
    pub newest_gone: u64,
}

impl Loss {
    /// Adds the loss of another run.
    pub fn add(&mut self, other: &Loss) {
        self.failures += other.failures;
        self.restarts += other.restarts;
        self.core_s += other.core_s;
        self.newest_gone += other.newest_gone;
    }

    /// Core-hours lost by one failure of a node, on average.
    pub fn core_hours_per_failure(&self) -> f64 {
        self.core_s / 3600.0 / self.failures as f64
    }

    /// The share of restarts that had to take an older checkpoint than the newest complete one.
    pub fn newest_gone_share(&self) -> f64 {
        self.newest_gone as f64 / self.restarts as f64
    }
}

/// Draws failures in a run and adds up their cost.
pub fn losses(cluster: &Cluster, workload: &Workload, run: &Run, failures: &Failures) -> Loss {
    let study = Study::new(cluster, workload, run);
    let mut random = Random::new(failures.seed);
    let mut loss = Loss::default();
    // While all programs run: after the last start, and before the first end.
    let from_s = run.starts_s.iter().copied().fold(0.0, f64::max);
    let first = run.starts_s.iter().copied().fold(f64::INFINITY, f64::min);
    let until_s = first + f64::from(workload.checkpoints) * workload.interval_s;
    while loss.failures < u64::from(failures.count) {
        study.trial(failures.mtbf_s, (from_s, until_s), &mut random, &mut loss);
    }
    loss
}

/// One checkpoint with its pieces.
struct Kept {
    start_s: f64,
    end_s: f64,
    pieces: Vec<Buffered>,
}

struct Study<'a> {
    run: &'a Run,
    nodes: u32,
    /// For each program: its cores, its first and last node, and its checkpoints in order.
    programs: Vec<(u32, (u32, u32), Vec<Kept>)>,
}

impl<'a> Study<'a> {
    fn new(cluster: &Cluster, workload: &Workload, run: &'a Run) -> Self {
        let mut first = 0;
        let mut programs = Vec::new();
        for (at, program) in workload.programs.iter().enumerate() {
            let nodes = (cluster.node_of(first), cluster.node_of(first + program.writers - 1));
            first += program.writers;
            let mut kept: Vec<Kept> = Vec::new();
            let mut own: Vec<_> = run.checkpoints.iter().filter(|checkpoint| checkpoint.program == at).collect();
            own.sort_by_key(|checkpoint| checkpoint.number);
            for checkpoint in own {
                kept.push(Kept { start_s: checkpoint.start_s, end_s: checkpoint.end_s, pieces: Vec::new() });
            }
            programs.push((program.writers, nodes, kept));
        }
        for piece in &run.buffered {
            programs[piece.program].2[piece.number as usize].pieces.push(*piece);
        }
        Study { run, nodes: cluster.nodes, programs }
    }

    /// Draws the failures of one stretch of time, on the same timeline.
    fn trial(&self, mtbf_s: f64, (from_s, until_s): (f64, f64), random: &mut Random, loss: &mut Loss) {
        let mut failed: Vec<(f64, u32)> = Vec::new();
        // Progress of each program at a point in time; between failures the two grow together.
        let mut progress: Vec<(f64, f64)> = self.run.starts_s.iter().map(|&start| (start, 0.0)).collect();
        // Progress saved in each checkpoint.
        let mut held: Vec<Vec<Option<f64>>> = self.programs.iter().map(|(_, _, kept)| vec![None; kept.len()]).collect();
        let mut at_s = from_s;
        loop {
            at_s -= mtbf_s * (1.0 - random.next_f64()).ln();
            if at_s >= until_s {
                return;
            }
            let node = random.below(u64::from(self.nodes)) as u32;
            failed.push((at_s, node));
            loss.failures += 1;
            for (program, (cores, nodes, kept)) in self.programs.iter().enumerate() {
                if !(nodes.0..=nodes.1).contains(&node) {
                    continue;
                }
                let (since_s, had) = progress[program];
                let now = had + at_s - since_s;
                // Checkpoints that began since the last restart save the progress at their beginning.
                for (number, checkpoint) in kept.iter().enumerate() {
                    if checkpoint.start_s >= since_s && checkpoint.end_s <= at_s {
                        held[program][number] = Some(had + checkpoint.start_s - since_s);
                    }
                }
                let mut complete = (0..kept.len()).rev().filter(|&number| held[program][number].is_some());
                let newest = complete.clone().next();
                let restored = complete.find(|&number| restorable(&kept[number].pieces, &failed));
                let back = restored.and_then(|number| held[program][number]).unwrap_or(0.0);
                loss.restarts += 1;
                loss.newest_gone += u64::from(newest.is_some() && newest != restored);
                loss.core_s += (now - back) * f64::from(*cores);
                progress[program] = (at_s, back);
            }
        }
    }
}

/// True if a failure has taken this node's memory while the piece was nowhere else.
fn is_lost(node: u32, piece: &Buffered, failed: &[(f64, u32)]) -> bool {
    failed.iter().any(|&(at_s, dead)| dead == node && (piece.from_s..piece.until_s).contains(&at_s))
}

/// True if a checkpoint can be restored from the PFS and the remaining buffers.
fn restorable(pieces: &[Buffered], failed: &[(f64, u32)]) -> bool {
    let lost: Vec<usize> = (0..pieces.len()).filter(|&at| is_lost(pieces[at].node, &pieces[at], failed)).collect();
    lost.iter().all(|&at| {
        let piece = &pieces[at];
        match piece.protection {
            Protection::None => false,
            Protection::Copy(node) => !is_lost(node, piece, failed),
            Protection::Parity(node, parity) => {
                let shares = |other: usize| {
                    matches!(pieces[other].protection, Protection::Parity(_, name) if name == parity) && other != at
                };
                !is_lost(node, piece, failed) && !lost.iter().any(|&other| shares(other))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, Lease};

    fn piece(node: u32, protection: Protection, from_s: f64, until_s: f64) -> Buffered {
        Buffered { program: 0, number: 0, node, bytes: 1, protection, from_s, until_s }
    }

    #[test]
    fn a_checkpoint_survives_what_its_guards_cover() {
        let bare = [piece(1, Protection::None, 10.0, 20.0)];
        assert!(!restorable(&bare, &[(15.0, 1)]));
        assert!(restorable(&bare, &[(15.0, 2), (25.0, 1), (5.0, 1)]), "another node, drained, not yet written");
        let copied = [piece(1, Protection::Copy(2), 10.0, 20.0)];
        assert!(restorable(&copied, &[(15.0, 1)]));
        assert!(!restorable(&copied, &[(15.0, 1), (16.0, 2)]));
        assert!(restorable(&copied, &[(15.0, 1), (21.0, 2)]));
        let parity = Lease { epoch: Epoch(1), number: 0 };
        let member = |node| piece(node, Protection::Parity(9, parity), 10.0, 20.0);
        let striped = [member(1), member(2)];
        assert!(restorable(&striped, &[(15.0, 1), (25.0, 2)]));
        assert!(!restorable(&striped, &[(15.0, 1), (16.0, 2)]));
        assert!(!restorable(&striped, &[(15.0, 1), (16.0, 9)]));
    }

    /// One program on one node without a buffer: a failure costs the work since the newest complete checkpoint began.
    #[test]
    fn progress_is_lost_once() {
        use super::super::run::{Checkpoint, Destinations};
        let cluster = Cluster { nodes: 1, writers_per_node: 2, ..Cluster::thesis(1.0) };
        let mut workload = Workload::in_phase();
        workload.programs[0].writers = 1;
        let times = (1..=6).map(|k| Checkpoint {
            program: 0,
            number: k - 1,
            start_s: f64::from(k) * 600.0,
            end_s: f64::from(k) * 600.0 + 60.0,
        });
        let run = Run {
            starts_s: vec![0.0],
            checkpoints: times.collect(),
            buffered: Vec::new(),
            destinations: Destinations::default(),
            events: Vec::new(),
        };
        // Rare failures: uniform over the hour. In 600 s .. 3600 s the mean loss is 300 s + 60 s (the newest is not
        // complete at first); in the first 660 s all work so far is lost.
        let failures = Failures { mtbf_s: 1e6, count: 200_000, seed: 3 };
        let loss = losses(&cluster, &workload, &run, &failures);
        let expected = (660.0f64 * 330.0 + 2940.0 * 300.0 + 2400.0 / 600.0 * 600.0 * 60.0) / 3600.0;
        let mean = loss.core_s / loss.failures as f64;
        assert!((mean / expected - 1.0).abs() < 0.02, "{mean} s, expected {expected} s");
        assert_eq!(loss.newest_gone, 0);
    }
}
