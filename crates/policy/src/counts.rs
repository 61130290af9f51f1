//! Counts of a policy's outcomes and movements, for a driver that only counts.
//!
//! The simulator keeps them for a layer. A policy that runs others beside it keeps them for each of those. All figures
//! are page counts and exact.

use entresol_core::{Movement, Op, Outcome, Request, Tier, Verb};

/// The most tiers a layer has.
pub const MAX_TIERS: usize = 2;

/// Counts of one tier, in pages except for the fields in I/Os.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCounts {
    /// Reads found here.
    pub read_hits: u64,
    /// Writes whose page was found here.
    pub write_hits: u64,
    /// Pages read from the level below into this tier.
    pub fetched: u64,
    /// Pages that the host wrote into this tier.
    pub installed: u64,
    /// Pages copied into this tier from another.
    pub copied_in: u64,
    /// Pages copied out of this tier into another.
    pub copied_out: u64,
    /// Pages read from the front of a log and appended to its rear.
    pub requeued: u64,
    /// Pages read from this tier to be written below.
    pub written_back: u64,
    /// I/Os by which pages came into this tier.
    pub write_ios: u64,
}

impl TierCounts {
    /// Pages written to the tier's device.
    pub fn pages_in(&self) -> u64 {
        self.fetched + self.installed + self.copied_in + self.requeued
    }
}

/// Counts of one layer since they were last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Page requests.
    pub requests: u64,
    /// Writes among the requests, whole or partial.
    pub writes: u64,
    /// Pages read from the level below, admitted or not, including those that complete a partial write.
    pub fetches: u64,
    /// Misses whose page was admitted.
    pub admissions: u64,
    /// Reads that bypassed the layer.
    pub read_bypasses: u64,
    /// Writes that bypassed the layer.
    pub write_bypasses: u64,
    /// Pages written to the level below by an eviction, cleaning or flush rule.
    pub write_backs: u64,
    /// I/Os of those write-backs.
    pub write_back_ios: u64,
    /// Writes that the driver sent below at once, beside what the policy decided on them.
    pub write_throughs: u64,
    /// Writes that the driver sent below at once and did not show to the policy.
    pub write_arounds: u64,
    /// Per tier.
    pub tiers: [TierCounts; MAX_TIERS],
}

impl Counts {
    /// Reads found in any tier.
    pub fn read_hits(&self) -> u64 {
        self.tiers.iter().map(|tier| tier.read_hits).sum()
    }

    /// Writes whose page was found in any tier.
    pub fn write_hits(&self) -> u64 {
        self.tiers.iter().map(|tier| tier.write_hits).sum()
    }

    /// Pages written to the level below, whatever the reason.
    pub fn written_below(&self) -> u64 {
        self.write_backs + self.write_bypasses + self.write_throughs + self.write_arounds
    }

    /// Requests whose page was in no tier.
    pub fn misses(&self) -> u64 {
        self.requests - self.read_hits() - self.write_hits()
    }

    /// Counts a request and its outcome.
    #[inline(always)]
    pub fn outcome(&mut self, request: Request, outcome: Outcome) {
        self.requests += 1;
        let write = u64::from(request.op.is_write());
        self.writes += write;
        match outcome {
            Outcome::Hit(tier) => {
                let tier = &mut self.tiers[tier.index() % MAX_TIERS];
                tier.write_hits += write;
                tier.read_hits += 1 - write;
            }
            Outcome::Miss { admitted } => {
                self.admissions += u64::from(admitted);
                // A partial write that misses needs the rest of its page from below, in whichever tier the page is
                // installed.
                self.fetches += u64::from(request.op == Op::Update);
            }
        }
    }

    /// Counts a movement; `writing` is true if the current request is a write.
    #[inline(always)]
    pub fn movement(&mut self, movement: Movement, writing: bool) {
        let io = u64::from(!movement.joined);
        match movement.verb {
            Verb::Fetch { to } => {
                self.fetches += 1;
                let tier = self.tier(to);
                tier.fetched += 1;
                tier.write_ios += io;
            }
            Verb::Install { to } => {
                let tier = self.tier(to);
                tier.installed += 1;
                tier.write_ios += io;
            }
            Verb::Copy { from, to } => {
                self.tier(from).copied_out += 1;
                let tier = self.tier(to);
                tier.copied_in += 1;
                tier.write_ios += io;
            }
            Verb::WriteBack { from } => {
                self.write_backs += 1;
                self.write_back_ios += io;
                self.tier(from).written_back += 1;
            }
            Verb::Requeue { tier } => {
                let tier = self.tier(tier);
                tier.requeued += 1;
                tier.write_ios += io;
            }
            Verb::Bypass if writing => self.write_bypasses += 1,
            Verb::Bypass => {
                self.read_bypasses += 1;
                self.fetches += 1;
            }
            Verb::FetchObject { pages, to, .. } => {
                self.fetches += u64::from(pages);
                let tier = self.tier(to);
                tier.fetched += u64::from(pages);
                tier.write_ios += 1;
            }
            Verb::Drop { .. } | Verb::DropObject { .. } | Verb::Supersede { .. } | Verb::Reclaim { .. } => {}
        }
    }

    #[inline(always)]
    fn tier(&mut self, tier: Tier) -> &mut TierCounts {
        // The remainder spares a bounds check in the hottest loop; a policy has no other tiers.
        &mut self.tiers[tier.index() % MAX_TIERS]
    }
}
