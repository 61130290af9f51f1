//! Caches that are worse than none, or that cannot be believed to be better.
//!
//! - **Slower**: the same hierarchy without one or more of its caches was simulated as well, and does as much or more. A cache
//!   costs an I/O for every page that it takes in, and gives nothing for those that leave before they are asked for again.
//! - **Cramped**: flash of so few pages that the live cache spends its time making room, of which the simulation knows the queue of
//!   write-backs and not the rounds. `crates/engine/src/cache/watermarks.rs`: a request goes on only with [`FREE_MIN`] segments free and
//!   as many as it may move pages into, [`MOVED_MAX`] at once; a log has a third more room than pages; segments are of 1 MiB, or
//!   smaller where fewer than 64 of them fit. Where that much is more than a third of what the pages leave free, it is cramped.
//!   The third is between the two smallest caches that docs/results/advise-built.md has built: 11 segments of 16 pages that have to be
//!   free were too many for one of 12 MiB, which did less than half of what was predicted and less than no cache, and the one of
//!   twice that, with 7 of 32 pages, was within 7 % of its prediction.

use super::candidate::{Candidate, Part};
use super::search::{Fate, Tried};
use serde::Serialize;
use std::fmt;

/// Free segments of the live cache that are not for what a request moves.
const FREE_MIN: u64 = 3;
/// Pages that a policy of DRAM and flash may move for one request.
const MOVED_MAX: u64 = 128;

/// Warning about the caches of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Warning {
    /// The candidate's place in the list.
    pub at: usize,
    /// Reason for the warning.
    #[serde(flatten)]
    pub what: Worse,
}

/// Fault of a candidate's caches.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Worse {
    /// Without a cache there is as much throughput or more.
    Slower {
        /// The place of the one without.
        without: usize,
        /// Throughput as a multiple of that one's: 1 at most.
        times: f64,
    },
    /// Its flash is so small that the prediction is too high.
    Cramped(Cramped),
}

/// Flash with too little room beside its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cramped {
    /// Pages that it keeps.
    pub pages: u64,
    /// Pages of it that would not be cramped, at the same size of a segment.
    pub enough_pages: u64,
}

impl fmt::Display for Cramped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cramped { pages, enough_pages } = self;
        write!(
            f,
            "with {pages} pages of flash, fewer than {enough_pages}, its cache has so little room that it may do less than none; the \
             prediction does not have the rounds in which it makes room, and is too high"
        )
    }
}

impl Candidate {
    /// Is its flash so small that the live cache would spend its time making room? For flash below a pool, which is predicted as a
    /// live cache.
    pub fn cramped(&self, page_bytes: u32) -> Option<Cramped> {
        let pages = self.bare_flash()?.pages;
        let page_bytes = u64::from(page_bytes);
        // A store begins with superblocks, so 64 segments that fill it to the byte do not fit.
        let log_bytes = (pages * page_bytes * 4 / 3).saturating_sub(1);
        let segment = ((1 << (log_bytes / 64).clamp(1, 1 << 20).ilog2()) / page_bytes).max(16);
        let free_pages = segment * (FREE_MIN + MOVED_MAX.div_ceil(segment));
        // A third of the third that pages leave.
        let enough_pages = 9 * free_pages;
        (pages < enough_pages).then_some(Cramped { pages, enough_pages })
    }

    /// Is this the other one without one or more of its caches?
    fn is_without_caches_of(&self, other: &Candidate) -> bool {
        let same = |a: &Part, b: &Part| a.item == b.item && a.piece == b.piece;
        let fewer = self.parts.len() < other.parts.len() && same(self.lowest(), other.lowest());
        fewer && self.caches().iter().all(|cache| other.caches().iter().any(|its| same(cache, its)))
    }
}

/// Lists the warnings about the caches of candidates, in the order of the list. Only candidates that were simulated
/// with the same trace are compared.
pub fn warnings(tried: &[Tried], page_bytes: u32) -> Vec<Warning> {
    let mut found = Vec::new();
    for (at, entry) in tried.iter().enumerate() {
        let Some(measured) = entry.figures() else { continue };
        let like = |other: &(usize, &Tried)| {
            let whole = |fate: &Fate| matches!(fate, Fate::Simulated(_));
            whole(&other.1.fate) == whole(&entry.fate) && other.1.candidate.is_without_caches_of(&entry.candidate)
        };
        let rate = |entry: &Tried| entry.figures().map_or(0.0, |measured| measured.requests_per_second);
        let without = tried.iter().enumerate().filter(like).max_by(|a, b| rate(a.1).total_cmp(&rate(b.1)));
        if let Some((without, other)) = without.filter(|(_, other)| rate(other) >= measured.requests_per_second) {
            let times = measured.requests_per_second / rate(other);
            found.push(Warning { at, what: Worse::Slower { without, times } });
        }
        if let Some(cramped) = entry.candidate.cramped(page_bytes) {
            found.push(Warning { at, what: Worse::Cramped(cramped) });
        }
    }
    found
}
