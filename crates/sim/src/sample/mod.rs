//! Quick estimates for any policy: a sample of a trace's pages in a cache scaled down with it.
//!
//! Spatial sampling as in Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with SHARDS", FAST 2015;
//! scaled-down simulation as in Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and optimization using
//! miniature simulations", ATC 2017. Three things differ from both, because a few hot pages have most requests of a
//! database: the cache has the sample's share of the pages, not the rate that was asked for; hot and cold pages are
//! extrapolated apart ([`octaves`]); and the interval comes from simulations of halves of the sample ([`halves`]).
//!
//! The unit is a page. Policies that look for runs and blocks ([`Info::neighbours`](entresol_policy::Info)) get groups
//! of neighbours, which are in the sample together or not at all.

mod halves;
mod octaves;

use crate::addresses::Addresses;
use crate::cell::{CellError, CellOptions, Stack, run_counted};
use crate::row::Row;
use crate::spec::{LayerSpec, PolicySpec};
use crate::sweep::check;
use entresol_core::{Address, Size};
use entresol_policy::BuildError;
use entresol_policy::parts::Sampler;
use entresol_trace::{Population, Trace};
use halves::Halves;
use octaves::Octaves;
use serde::Serialize;

/// Fewest sampled pages that an estimate is made from.
pub const SAMPLED_PAGES_MIN: usize = 300;
/// A cache of fewer sampled pages is marked: policies divide such a cache into lists of a page or two.
pub const CACHE_PAGES_MIN: u64 = 8;

/// An estimate, its standard error, and the interval that holds the true value with a confidence of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Interval95 {
    /// The estimate.
    value: f64,
    /// Its standard error.
    error: f64,
    /// Lower end of the interval.
    low: f64,
    /// Upper end of the interval.
    high: f64,
}

/// An estimate of a policy at a size.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Estimate {
    /// The policy.
    pub policy: String,
    /// Options of the policy.
    pub options: String,
    /// Size as it was requested.
    pub size: String,
    /// Capacity in pages.
    pub capacity_pages: u64,
    /// Capacity in sampled pages.
    pub sampled_capacity_pages: u64,
    /// True if the cache has fewer than [`CACHE_PAGES_MIN`] sampled pages: the estimate is rough, and its interval too.
    pub small: bool,
    /// Share of the pages that are in the sample.
    pub rate: f64,
    /// Pages in the sample.
    pub sampled_pages: u64,
    /// Requests in the sample.
    pub sampled_requests: u64,
    /// Misses per request.
    pub miss_ratio: f64,
    /// Standard error of the miss ratio.
    pub miss_ratio_error: f64,
    /// Lower end of the 95 % interval of the miss ratio.
    pub miss_ratio_low: f64,
    /// Upper end of the 95 % interval of the miss ratio.
    pub miss_ratio_high: f64,
    /// Pages written below per request.
    pub write_ratio: f64,
    /// Standard error of the write ratio.
    pub write_ratio_error: f64,
    /// Lower end of the 95 % interval of the write ratio.
    pub write_ratio_low: f64,
    /// Upper end of the 95 % interval of the write ratio.
    pub write_ratio_high: f64,
    /// Halves of the sample that were simulated for the errors.
    pub samples: usize,
    /// Processor time, in seconds.
    pub cpu_seconds: f64,
}

/// Why there is no estimate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// The sample has too few pages.
    #[error(
        "a sample of {rate} has {sampled} of {pages} pages, too few for an estimate (at least {SAMPLED_PAGES_MIN}); a \
         larger share, or all requests, will do"
    )]
    TooFewPages {
        /// Share of the pages that was asked for.
        rate: f64,
        /// Pages in the sample.
        sampled: usize,
        /// Pages of the trace.
        pages: u64,
    },
    /// The cell cannot be run.
    #[error(transparent)]
    Cell(#[from] CellError),
}

/// The part of a trace for a share `rate` of its pages, renumbered, for policies that look for `neighbours` or do not;
/// objects keep their lengths. `None` when no page is in the sample.
///
/// # Panics
/// When the rate is not above 0 and at most 1.
pub fn sample_trace(trace: &Trace, seed: u64, neighbours: bool, rate: f64) -> Option<Trace> {
    assert!(rate > 0.0 && rate <= 1.0, "a sample of {rate} of the pages");
    let sampler = Sampler::of_share(seed, neighbours, rate);
    let sampled = trace.sampled(&|at| sampler.find(at).is_some()).trace;
    (!sampled.is_empty()).then_some(sampled)
}

/// A sample of a trace's pages, from which cells are estimated.
pub struct Sample<'t> {
    trace: &'t Trace,
    population: &'t Population,
    sampler: Sampler,
    rate: f64,
    halves: Halves,
}

impl<'t> Sample<'t> {
    /// The sample `trace` of a trace with the counts `population`: its pages are those that `sampler` finds, a share
    /// `rate`. For the interval it is divided into halves in two times `samples` ways, or in `samples` if it is large.
    ///
    /// # Errors
    /// When the sample has too few pages.
    pub fn new(
        trace: &'t Trace,
        population: &'t Population,
        sampler: Sampler,
        rate: f64,
        samples: usize,
    ) -> Result<Self, SampleError> {
        let (sampled, pages) = (trace.footprint(), population.pages);
        if sampled < SAMPLED_PAGES_MIN {
            return Err(SampleError::TooFewPages { rate, sampled, pages });
        }
        Ok(Sample { trace, population, sampler, rate, halves: Halves::of(samples, trace.len()) })
    }

    /// Estimates the cells, each a policy at a size, on `threads` threads. The sample is divided once for all cells.
    /// `done` is called after each simulation, of which [`Sample::simulations`] are made.
    pub fn estimate(
        &self,
        cells: &[(&PolicySpec, Size)],
        options: &CellOptions,
        threads: usize,
        done: &(dyn Fn() + Sync),
    ) -> Vec<Result<Estimate, CellError>> {
        let measured = |trace: &Trace| {
            let addresses = Addresses::new(trace);
            let octaves = Octaves::new(self.population, trace);
            crate::parallel::in_parallel(cells, threads, |(policy, size)| {
                let measured = self.measure(&addresses, &octaves, policy, *size, options);
                done();
                measured
            })
        };
        let whole = measured(self.trace);
        let halves: Vec<Vec<Result<Measured, CellError>>> = (0..self.halves.len())
            .map(|half| {
                let kept = |at: Address| self.sampler.find(at).is_some_and(|hash| self.halves.contains(half, hash));
                measured(&self.trace.sampled(&kept).trace)
            })
            .collect();
        let estimate = |(cell, whole): (usize, Result<Measured, CellError>)| {
            let whole = whole?;
            let of = |figure: fn(&Measured) -> f64, most: f64| {
                let parts = halves.iter().map(|half| half[cell].as_ref().map(figure).unwrap_or(f64::NAN));
                let unseen = self.trace.footprint() as f64 / self.population.pages as f64;
                let least = 3.0 / self.trace.len() as f64;
                self.halves.interval(figure(&whole), &parts.collect::<Vec<_>>(), 1.0 - unseen, least).within(most)
            };
            let misses = of(|made| made.miss_ratio, 1.0);
            let writes = of(|made| made.write_ratio, f64::INFINITY);
            let cpu_seconds =
                halves.iter().filter_map(|half| half[cell].as_ref().ok()).map(|made| made.row.cpu_seconds);
            let (policy, size) = cells[cell];
            Ok(Estimate {
                capacity_pages: self.pages(size),
                sampled_capacity_pages: whole.row.capacity_pages,
                small: whole.row.capacity_pages < CACHE_PAGES_MIN,
                rate: self.rate,
                sampled_pages: self.trace.footprint() as u64,
                sampled_requests: self.trace.len() as u64,
                miss_ratio: misses.value,
                miss_ratio_error: misses.error,
                miss_ratio_low: misses.low,
                miss_ratio_high: misses.high,
                write_ratio: writes.value,
                write_ratio_error: writes.error,
                write_ratio_low: writes.low,
                write_ratio_high: writes.high,
                samples: self.halves.len(),
                cpu_seconds: whole.row.cpu_seconds + cpu_seconds.sum::<f64>(),
                policy: policy.info.name.to_owned(),
                options: policy.options.summary(),
                size: size.to_string(),
            })
        };
        whole.into_iter().enumerate().map(estimate).collect()
    }

    /// Number of simulations that estimates of so many cells take.
    pub fn simulations(&self, cells: usize) -> u64 {
        (cells * (1 + self.halves.len())) as u64
    }

    /// A size in pages of the whole trace.
    fn pages(&self, size: Size) -> u64 {
        size.pages(self.trace.page_bytes, self.population.pages)
    }

    /// Simulates a cell on the sample or a half of it.
    fn measure(
        &self,
        addresses: &Addresses,
        octaves: &Octaves,
        policy: &PolicySpec,
        size: Size,
        options: &CellOptions,
    ) -> Result<Measured, CellError> {
        // A size that is too small for the whole trace is refused as it is without a sample.
        stack(policy, size, size, addresses, self.population.pages)?;
        let share = addresses.trace.footprint() as f64 / self.population.pages as f64;
        let scaled = ((self.pages(size) as f64 * share).round() as u64).max(1);
        let stack = smallest(policy, scaled, size, addresses)?;
        let (row, pages) = run_counted(addresses, &stack, options, true)?;
        let counted = octaves.total(|page| pages[page].requests, false);
        Ok(Measured {
            miss_ratio: octaves.total(|page| pages[page].misses, true) / counted,
            write_ratio: octaves.total(|page| pages[page].written, false) / counted,
            row,
        })
    }
}

/// A policy of a size that it can be built with, over a trace of `footprint` pages. `label` is the size asked for.
fn stack(
    policy: &PolicySpec,
    size: Size,
    label: Size,
    addresses: &Addresses,
    footprint: u64,
) -> Result<Stack, CellError> {
    let layer = LayerSpec { policy: policy.clone(), sizes: vec![size] };
    let stack = Stack::over(&[layer], label.to_string(), addresses.trace.page_bytes, footprint)?;
    check(&stack, addresses)?;
    Ok(stack)
}

/// A policy with this many pages, or as many more as it needs to be built.
fn smallest(policy: &PolicySpec, pages: u64, size: Size, addresses: &Addresses) -> Result<Stack, CellError> {
    /// More than any policy needs.
    const MORE_MAX: u64 = 1 << 10;
    let mut last = None;
    for pages in pages..pages + MORE_MAX {
        match stack(policy, Size::Pages(pages), size, addresses, addresses.trace.footprint() as u64) {
            Ok(stack) => return Ok(stack),
            Err(error @ CellError::Build(BuildError::TooSmall { .. })) => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(last.expect("a size was tried"))
}

/// Figures of a cell, extrapolated to the whole trace.
struct Measured {
    miss_ratio: f64,
    write_ratio: f64,
    row: Row,
}
