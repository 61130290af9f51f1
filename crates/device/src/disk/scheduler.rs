//! The order in which a disk serves the commands that wait.
//!
//! Shortest positioning time first (SPTF) is from Seltzer, Chen and Ousterhout, "Disk scheduling revisited", and
//! Jacobson and Wilkes, "Disk scheduling algorithms based on rotational position" (both 1990-91).

use crate::io::Nanos;
use serde::{Deserialize, Serialize};

/// A queue discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// In order of arrival.
    Fcfs,
    /// The next higher sector; after the highest, the lowest.
    CLook,
    /// The nearest cylinder.
    Sstf,
    /// The sector that the heads can reach first, seek and rotation taken together. Only the window limits how often a
    /// command is passed over, so it may wait long.
    Sptf,
}

/// Properties of a waiting command by which a discipline chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Order of arrival.
    pub(super) number: u64,
    /// Time at which the drive has decoded the command.
    pub(super) ready: Nanos,
    /// First sector.
    pub(super) first: u64,
    /// Cylinder of the first sector.
    pub(super) cylinder: u32,
    /// When the first sector passes after the start of a turn, in nanoseconds.
    pub(super) angle: u32,
    /// Settling after a seek, in nanoseconds.
    pub(super) settle: u32,
    /// True if the command reads.
    pub(super) reads: bool,
}

/// The index of the candidate with the least key, the oldest of equals. The candidates are in no particular order.
/// `bound` is a cheap lower bound of the key, which spares most candidates the key itself.
#[inline]
pub(super) fn least(
    candidates: &[Candidate],
    bound: impl Fn(&Candidate) -> u64,
    key: impl Fn(&Candidate) -> u64,
) -> usize {
    let mut best = (u64::MAX, u64::MAX);
    let mut chosen = 0;
    for (index, candidate) in candidates.iter().enumerate() {
        if bound(candidate) > best.0 {
            continue;
        }
        let rank = (key(candidate), candidate.number);
        if rank < best {
            (best, chosen) = (rank, index);
        }
    }
    chosen
}
