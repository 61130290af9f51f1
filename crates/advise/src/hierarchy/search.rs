//! The search: measures as few candidates as possible.
//!
//! Candidates are taken by price. A candidate is left out if a simulated one costs no more, keeps all limits, and has
//! at least the throughput of the candidate's bound. Then it is not the fastest within the budget, nor the one with the
//! most throughput per dollar, nor the cheapest, nor on the front of price and throughput. For p99, lifetime and energy
//! there is no such bound, so every candidate is simulated.
//!
//! If that is too much work, the search uses a sample of the pages (Waldspurger et al., FAST 2015 and ATC 2017) and
//! hierarchies smaller by the same factor. Only the best are then simulated with the whole trace. The cost of a request
//! in a hierarchy stays as it is; only the number of hits in each tier is estimated.

use super::AdviceError;
use super::candidate::Candidate;
use super::catalogue::Catalogue;
use super::choose::{Limits, Objective};
use super::measure::{Measured, Workload};
use entresol_sim::{Addresses, in_parallel, sample_trace};
use entresol_trace::Trace;
use serde::Serialize;

/// Candidates decided together. The number is fixed, so the result does not depend on the number of threads.
const BATCH: usize = 8;

/// Outcome of the search for one candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// Simulated with the whole trace.
    Simulated(Measured),
    /// Simulated with a sample of the pages only: others did better.
    Estimated(Measured),
    /// Left out: the candidate at this index costs no more and has at least the throughput of the bound.
    Beaten(usize),
    /// The reason why it cannot be simulated: a tier is too small for its policy.
    Impossible(String),
}

/// A candidate and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// The hierarchy.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// Upper bound on the requests a second of these tiers with any policy.
    pub most_per_second: f64,
    /// Outcome of the search for the candidate.
    pub fate: Fate,
}

impl Tried {
    /// Figures of the candidate, if it was simulated with the whole trace.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.fate {
            Fate::Simulated(measured) => Some(measured),
            _ => None,
        }
    }

    /// Figures of the candidate, if it was simulated with the whole trace or with a sample.
    pub fn figures(&self) -> Option<&Measured> {
        match &self.fate {
            Fate::Simulated(measured) | Fate::Estimated(measured) => Some(measured),
            _ => None,
        }
    }
}

/// Options of a search.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// Concurrent simulations.
    pub threads: usize,
    /// Quantity by which the best is chosen.
    pub objective: Objective,
    /// Limits that the best must keep.
    pub limits: Limits,
    /// True to leave out candidates that cannot be the answer.
    pub prune: bool,
    /// Share of the pages in the first comparison, after which the best are simulated in full; 1 to simulate all in
    /// full.
    pub sample: f64,
}

/// Candidates that are simulated in full after a sample.
pub const FINALISTS: usize = 8;
/// Most page requests of a search without a sample.
const WORK_MAX: f64 = 1e8;
/// Page requests of a sample for all candidates together, and the fewest for each.
const SAMPLED_WORK: f64 = 5e7;
const SAMPLED_MIN: f64 = 1e5;
/// Samples of which the fairest is taken.
const SAMPLES: u64 = 8;

/// Default share of the pages for the first comparison of this many candidates: 1 if that is little work.
pub fn usual_sample(candidates: usize, requests: usize) -> f64 {
    let work = candidates as f64 * requests as f64;
    if work <= WORK_MAX { 1.0 } else { (SAMPLED_WORK / work).max(SAMPLED_MIN / requests as f64).min(1.0) }
}

/// Simulates the possible answers among candidates sorted by price. `done` is called after each decision.
///
/// # Errors
/// When a device cannot be built, or the sample is empty.
pub fn search(
    catalogue: &Catalogue,
    candidates: Vec<Candidate>,
    workload: &Workload,
    options: &SearchOptions,
    done: &(dyn Fn() + Sync),
) -> Result<Vec<Tried>, AdviceError> {
    if options.sample >= 1.0 {
        return decide(catalogue, candidates, workload, options, done);
    }
    let sampled = fair_sample(workload, options.sample)
        .ok_or_else(|| AdviceError::Trace(format!("a sample of {} of the pages is empty", options.sample)))?;
    let addresses = Addresses::new(&sampled);
    let small = workload.with(&addresses);
    // The share of the pages that the sample has, which is not quite the one asked for.
    let share = sampled.footprint() as f64 / workload.addresses.trace.footprint() as f64;
    let smaller = candidates.iter().map(|candidate| candidate.sampled(share)).collect();
    let estimates = decide(catalogue, smaller, &small, options, done)?;
    let finalists = best(&estimates, options);
    let times = workload.shortest(catalogue, candidates.iter())?;
    let most = workload.most_hits();
    let full = in_parallel(&finalists, options.threads, |&at| {
        let fate = workload.measure(catalogue, &candidates[at]).map_or_else(Fate::Impossible, Fate::Simulated);
        (workload.most_per_second(&most, &times, &candidates[at]), fate)
    });
    let estimated = |(estimate, candidate): (Tried, Candidate)| Tried {
        candidate,
        most_per_second: estimate.most_per_second,
        fate: match estimate.fate {
            Fate::Simulated(measured) => Fate::Estimated(measured),
            other => other,
        },
    };
    let mut tried: Vec<Tried> = estimates.into_iter().zip(candidates).map(estimated).collect();
    for (at, (most_per_second, fate)) in finalists.into_iter().zip(full) {
        (tried[at].most_per_second, tried[at].fate) = (most_per_second, fate);
    }
    Ok(tried)
}

/// The sample whose share of the requests is nearest to its share of the pages. A sample without the hottest pages
/// would favour larger caches, one with too many of them smaller caches.
fn fair_sample(workload: &Workload, rate: f64) -> Option<Trace> {
    let trace = workload.addresses.trace;
    let share = |of: usize, all: usize| of as f64 / all as f64;
    let off =
        |sample: &Trace| (share(sample.len(), trace.len()) / share(sample.footprint(), trace.footprint())).ln().abs();
    let neighbours = workload.policies.look_for_neighbours();
    let samples = (0..SAMPLES).filter_map(|i| sample_trace(trace, workload.seed.wrapping_add(i), neighbours, rate));
    samples.min_by(|a, b| off(a).total_cmp(&off(b)))
}

/// Indices of the best candidates by the objective: those within the limits first, then those that miss them least.
fn best(tried: &[Tried], options: &SearchOptions) -> Vec<usize> {
    let short =
        |at: usize| tried[at].measured().map_or(f64::INFINITY, |measured| options.limits.shortfall(measured).max(1.0));
    let score = |at: usize| options.objective.score(&tried[at]).unwrap_or(f64::NEG_INFINITY);
    let mut order: Vec<usize> = (0..tried.len()).filter(|&at| tried[at].measured().is_some()).collect();
    order.sort_by(|&a, &b| short(a).total_cmp(&short(b)).then(score(b).total_cmp(&score(a))).then(a.cmp(&b)));
    order.truncate(FINALISTS);
    order
}

/// Simulates the possible answers with one trace.
fn decide(
    catalogue: &Catalogue,
    candidates: Vec<Candidate>,
    workload: &Workload,
    options: &SearchOptions,
    done: &(dyn Fn() + Sync),
) -> Result<Vec<Tried>, AdviceError> {
    let times = workload.shortest(catalogue, candidates.iter())?;
    let most = workload.most_hits();
    let bounds =
        in_parallel(&candidates, options.threads, |candidate| workload.most_per_second(&most, &times, candidate));
    let mut tried: Vec<Tried> = Vec::new();
    let mut fastest: Option<(f64, usize)> = None;
    let prune = options.prune && options.objective.is_bounded();
    let mut all = candidates.into_iter().zip(bounds).peekable();
    while all.peek().is_some() {
        let first = tried.len();
        let batch: Vec<(Candidate, f64)> = all.by_ref().take(BATCH).collect();
        let fates = in_parallel(&batch, options.threads, |(candidate, bound)| {
            let fate = match fastest {
                Some((per_second, by)) if prune && *bound <= per_second => Fate::Beaten(by),
                _ => workload.measure(catalogue, candidate).map_or_else(Fate::Impossible, Fate::Simulated),
            };
            done();
            fate
        });
        let of = |((candidate, most_per_second), fate)| Tried { candidate, most_per_second, fate };
        tried.extend(batch.into_iter().zip(fates).map(of));
        for (at, entry) in tried.iter().enumerate().skip(first) {
            // A candidate whose prediction is too high excludes no other.
            let page_bytes = workload.addresses.trace.page_bytes;
            let believed = entry.candidate.cramped(&workload.policies, page_bytes).is_none();
            let within = |measured: &&Measured| believed && options.limits.hold(measured);
            let Some(measured) = entry.measured().filter(within) else { continue };
            if fastest.is_none_or(|(per_second, _)| measured.requests_per_second > per_second) {
                fastest = Some((measured.requests_per_second, at));
            }
        }
    }
    Ok(tried)
}
