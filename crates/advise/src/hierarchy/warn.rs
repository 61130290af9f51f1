//! Warnings of caches that are worse than none, whose prediction cannot be trusted, or that wear out early.
//!
//! - **Slower**: the same hierarchy without one or more of its caches was simulated too, and is at least as fast. A
//!   cache costs an I/O for every page that it takes in, and gains nothing from pages that leave before they are
//!   requested again.
//! - **Cramped**: flash of so few pages that the live cache spends its time freeing segments, under a policy whose layout is a
//!   log. The simulation models the queue of write-backs but not the rounds of reclaim. In `crates/cache/src/durability/watermarks.rs` a request goes on
//!   only with [`FREE_MIN`] free segments, plus as many as it may move pages into, [`MOVED_MAX`] at once. A log has a
//!   third more slots than pages. Segments are of 1 MiB, or smaller if fewer than 64 of them fit. A cache is cramped if
//!   those free segments take more than a third of the slots that the pages leave free. The third lies between the two
//!   smallest caches built for lab/results/advise-built.md. One of 12 MiB had to keep 11 segments of 16 pages free;
//!   its throughput was less than half of the prediction and less than without a cache. One of 24 MiB, with 7 segments
//!   of 32 pages, was within 7 % of its prediction.
//! - **Worn**: a device whose endurance is used up within [`YEARS_MIN`] years, if the load is always as high as the
//!   simulated one. The catalogue's price buys it once.

use super::candidate::{Candidate, Part, Policies};
use super::search::{Fate, Tried};
use serde::Serialize;
use std::fmt;

/// Free segments of the live cache beside those for the moves of a request.
const FREE_MIN: u64 = 3;
/// Years for which drives are usually bought: makers' warranties are of three to five.
const YEARS_MIN: f64 = 3.0;
/// Most pages that a policy of DRAM and flash moves for one request.
const MOVED_MAX: u64 = 128;

/// Warning about the devices of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Warning {
    /// Index of the candidate.
    pub at: usize,
    /// Reason for the warning.
    #[serde(flatten)]
    pub what: Worse,
}

/// Fault of a candidate's devices.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Worse {
    /// The hierarchy without a cache has at least as much throughput.
    Slower {
        /// Index of the hierarchy without the cache.
        without: usize,
        /// Throughput as a multiple of that hierarchy's: at most 1.
        times: f64,
    },
    /// The flash is so small that the prediction is too high.
    Cramped(Cramped),
    /// A device wears out early.
    Worn {
        /// Name of the device.
        device: String,
        /// Years until its endurance is used up, at the simulated rate day and night.
        years: f64,
    },
}

/// Flash with too few free segments beside its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cramped {
    /// Pages of the cache.
    pub pages: u64,
    /// Pages of a cache that would not be cramped, at the same segment size.
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
    /// Warns if the flash is so small that the live cache would spend its time freeing segments. Only flash below a
    /// pool is predicted as a live cache. Slots are no segments.
    pub fn cramped(&self, policies: &Policies, page_bytes: u32) -> Option<Cramped> {
        let pages = self.bare_flash().filter(|_| policies.flash.info.log)?.pages;
        let page_bytes = u64::from(page_bytes);
        // A store begins with superblocks, so 64 segments that fill it to the byte do not fit.
        let log_bytes = (pages * page_bytes * 4 / 3).saturating_sub(1);
        let segment = ((1 << (log_bytes / 64).clamp(1, 1 << 20).ilog2()) / page_bytes).max(16);
        let free_pages = segment * (FREE_MIN + MOVED_MAX.div_ceil(segment));
        // The pages leave a third of their number free, and the limit is a third of that.
        let enough_pages = 9 * free_pages;
        (pages < enough_pages).then_some(Cramped { pages, enough_pages })
    }

    /// True if this is `other` without one or more of its caches.
    fn is_without_caches_of(&self, other: &Candidate) -> bool {
        let same = |a: &Part, b: &Part| a.item == b.item && a.piece == b.piece;
        let fewer = self.parts.len() < other.parts.len() && same(self.lowest(), other.lowest());
        fewer && self.caches().iter().all(|cache| other.caches().iter().any(|its| same(cache, its)))
    }
}

/// Lists the warnings about candidates, in the order of the list. Only candidates that were simulated
/// with the same trace are compared.
pub fn warnings(tried: &[Tried], policies: &Policies, page_bytes: u32) -> Vec<Warning> {
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
        if let Some(cramped) = entry.candidate.cramped(policies, page_bytes) {
            found.push(Warning { at, what: Worse::Cramped(cramped) });
        }
        let used = entry.candidate.parts.iter().zip(&measured.devices);
        let years = used.filter_map(|(part, device)| Some((device.lifetime_years?, part)));
        if let Some((years, part)) = years.min_by(|a, b| a.0.total_cmp(&b.0)).filter(|(years, _)| *years < YEARS_MIN) {
            found.push(Warning { at, what: Worse::Worn { device: part.name.clone(), years } });
        }
    }
    found
}
