//! Counts of a cache: page requests and movements, as the simulator counts them.

use entresol_core::{Movement, Op, Outcome, Verb};

/// Counts since the cache was opened, in pages.
///
/// On the same requests, one at a time, they are the simulator's: what the engine does for durability on its own account
/// is counted by [`WriteBackCounts`](super::KeeperCounts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes, whole or partial.
    pub writes: u64,
    /// Reads found in some tier.
    pub read_hits: u64,
    /// Writes whose page was in some tier.
    pub write_hits: u64,
    /// Of all hits those in each tier, the fastest first; the second stays 0 where there is only one.
    pub tier_hits: [u64; 2],
    /// Pages that misses asked of the level below, those that complete a partial write included.
    pub fetches: u64,
    /// Misses whose page was admitted.
    pub admissions: u64,
    /// Pages that the policy wrote back.
    pub write_backs: u64,
    /// I/Os that it meant them to take.
    pub write_back_ios: u64,
    /// Requests that went past the cache by the policy's word, or as part of a long sequential stream.
    pub bypasses: u64,
    /// Of them those of long sequential streams, of which the policy did not hear.
    pub passed: u64,
    /// Writes that the mode sent past the policy.
    pub around: u64,
    /// Requests for which the directory had no handle.
    pub directory_full: u64,
    /// Pages that were brought because the policy holds their objects whole, without a request.
    pub placed: u64,
    /// Pages that should have been kept but could not be; they were served all the same.
    pub admissions_failed: u64,
}

impl Counts {
    pub(super) fn outcome(&mut self, op: Op, outcome: Outcome) {
        let write = u64::from(op.is_write());
        self.writes += write;
        self.reads += 1 - write;
        match outcome {
            Outcome::Hit(tier) => {
                self.tier_hits[tier.index()] += 1;
                self.write_hits += write;
                self.read_hits += 1 - write;
            }
            Outcome::Miss { admitted } => {
                self.admissions += u64::from(admitted);
                self.fetches += u64::from(op == Op::Update);
            }
        }
    }

    pub(super) fn movement(&mut self, movement: Movement, writing: bool) {
        match movement.verb {
            Verb::Fetch { .. } => self.fetches += 1,
            Verb::WriteBack { .. } => {
                self.write_backs += 1;
                self.write_back_ios += u64::from(!movement.joined);
            }
            Verb::Bypass => {
                self.bypasses += 1;
                self.fetches += u64::from(!writing);
            }
            _ => {}
        }
    }
}
