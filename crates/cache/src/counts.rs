//! Counts of a cache: page requests and movements, as the simulator counts them.

use entresol_core::{Movement, Op, Outcome, Verb};

/// Counts since the cache was opened, in pages.
///
/// On the same requests, one at a time, these are the simulator's counts. The engine's own work for durability is
/// counted by [`WriteBackCounts`](super::WriteBackCounts).
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
    /// Hits in each tier, the fastest first; the second is 0 where there is only one tier.
    pub tier_hits: [u64; 2],
    /// Pages that misses read from the level below, including those that complete a partial write.
    pub fetches: u64,
    /// Misses whose page was admitted.
    pub admissions: u64,
    /// Pages that the policy wrote back, in write-back mode. In another mode the backing store had them already.
    pub write_backs: u64,
    /// I/Os that the policy meant the write-backs to take.
    pub write_back_ios: u64,
    /// Requests that bypassed the cache by the policy's decision, or as part of a long sequential stream.
    pub bypasses: u64,
    /// Those of them in long sequential streams, which the policy was not told of.
    pub passed: u64,
    /// Writes of pages in no tier that bypassed the policy because of the mode.
    pub around: u64,
    /// Requests for which the directory had no handle.
    pub directory_full: u64,
    /// Pages prefetched without a request, because the policy holds their objects whole.
    pub placed: u64,
    /// Pages that should have been kept but could not be; their requests were served all the same.
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

    /// Adds hits of the uppermost tier of which the policy has not heard.
    pub(super) fn hits_unheard(&mut self, hits: u64) {
        self.reads += hits;
        self.read_hits += hits;
        self.tier_hits[0] += hits;
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
