//! Quick estimates for any policy: a sampled trace in a cache scaled down by the same rate.
//!
//! Spatial sampling as in Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC construction with SHARDS", FAST 2015;
//! scaled-down simulation as in Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and optimization using
//! miniature simulations", ATC 2017. Groups of neighbouring pages are kept or left out together, so that policies
//! which look for runs and blocks still find them. Disjoint samples give the standard error.

use crate::addresses::Addresses;
use crate::cell::{CellError, CellOptions, run_cell};
use crate::spec::LayerSpec;
use entresol_core::{Page, Size};
use entresol_policy::parts::Sampler;
use entresol_trace::{Column, Trace};
use serde::Serialize;

/// Pages that are sampled together: the largest erase block of the write-buffer policies.
const GROUP_PAGES: u64 = 128;
/// An estimate from several disjoint samples. Errors are standard errors of the mean over the samples.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Estimate {
    /// Policies, joined by `+`.
    pub policy: String,
    /// Options of the policies.
    pub options: String,
    /// Size as it was requested.
    pub size: String,
    /// Share of the pages in one sample.
    pub rate: f64,
    /// Number of samples.
    pub samples: usize,
    /// Misses per request.
    pub miss_ratio: f64,
    /// Standard error of the miss ratio.
    pub miss_ratio_error: f64,
    /// Pages written below per request.
    pub write_ratio: f64,
    /// Standard error of the write ratio.
    pub write_ratio_error: f64,
    /// Processor time of all samples, in seconds.
    pub cpu_seconds: f64,
}

/// The part of a trace whose groups of pages hash into `from..to`, with pages renumbered. `None` when it is empty.
fn sampled(trace: &Trace, seed: u64, from: u64, to: u64) -> Option<Trace> {
    let sampler = Sampler::new(seed, GROUP_PAGES, from..to);
    let kept = |page: u32| sampler.find(trace.address(Page(page))).is_some();
    const LEFT_OUT: u32 = u32::MAX;
    const UNSEEN: u32 = u32::MAX - 1;
    let mut number: Vec<u32> =
        (0..trace.footprint() as u32).map(|page| if kept(page) { UNSEEN } else { LEFT_OUT }).collect();
    let mut order = Vec::new();
    let mut pages = Vec::new();
    let mut ops = Vec::new();
    let mut times = trace.times_us.as_ref().map(|_| Vec::new());
    let mut events = Vec::new();
    let mut upcoming = trace.events.iter().peekable();
    for (at, &page) in trace.pages.iter().enumerate() {
        while let Some(event) = upcoming.next_if(|event| event.at as usize <= at) {
            events.push(entresol_trace::Event { at: pages.len() as u64, kind: event.kind.clone() });
        }
        let new = &mut number[page as usize];
        if *new == LEFT_OUT {
            continue;
        }
        if *new == UNSEEN {
            *new = order.len() as u32;
            order.push(page);
        }
        pages.push(*new);
        ops.push(trace.ops[at]);
        if let (Some(times), Some(all)) = (&mut times, &trace.times_us) {
            times.push(all[at]);
        }
    }
    (!pages.is_empty()).then(|| Trace {
        page_bytes: trace.page_bytes,
        pages: Column::Owned(pages),
        ops: Column::Owned(ops),
        times_us: times.map(Column::Owned),
        next_use: None,
        page_object: Column::Owned(order.iter().map(|&page| trace.page_object[page as usize]).collect()),
        page_block: Column::Owned(order.iter().map(|&page| trace.page_block[page as usize]).collect()),
        objects: trace.objects.clone(),
        events,
        provenance: format!("sample {from}..{to} of 2^24 of {}", trace.provenance),
    })
}

/// The part of a trace for a share `rate` of its pages, sampled in groups of neighbours and renumbered; objects keep
/// their lengths. A cache smaller by the same rate has nearly the same hit ratio. `None` when no page is in the sample.
///
/// # Panics
/// When the rate is not above 0 and at most 1.
pub fn sample_trace(trace: &Trace, seed: u64, rate: f64) -> Option<Trace> {
    assert!(rate > 0.0 && rate <= 1.0, "a sample of {rate} of the pages");
    sampled(trace, seed, 0, (Sampler::RANGE as f64 * rate) as u64)
}

/// Mean and standard error of the mean.
fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, f64::NAN);
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

/// Estimates a cell from `samples` disjoint samples of a share `rate` of the pages each.
///
/// Applies the correction of SHARDS-adj: a surplus or lack of requests in a sample comes from a few very hot groups, so
/// the difference from its expected share is counted as hits.
///
/// # Panics
/// When the samples together are larger than the trace.
pub fn sample(
    addresses: &Addresses,
    layers: &[LayerSpec],
    size: String,
    options: &CellOptions,
    rate: f64,
    samples: usize,
) -> Result<Estimate, CellError> {
    assert!(rate > 0.0 && rate * samples as f64 <= 1.0, "samples of {rate} x {samples} do not fit into the trace");
    let scaled: Vec<LayerSpec> = layers.iter().map(|layer| scale(layer, addresses, rate)).collect();
    let width = (Sampler::RANGE as f64 * rate) as u64;
    let (mut misses, mut writes) = (Vec::new(), Vec::new());
    let mut estimate = Estimate { size, rate, ..Estimate::default() };
    for i in 0..samples as u64 {
        let Some(trace) = sampled(addresses.trace, options.seed, i * width, (i + 1) * width) else { continue };
        let row = run_cell(&Addresses::new(&trace), &scaled, estimate.size.clone(), options)?;
        let expected = addresses.trace.len() as f64 * rate * (1.0 - options.warmup);
        misses.push((row.requests - row.read_hits - row.write_hits) as f64 / expected);
        writes.push(row.written_below() as f64 / expected);
        estimate.cpu_seconds += row.cpu_seconds;
        (estimate.policy, estimate.options) = (row.policy, row.options);
    }
    estimate.samples = misses.len();
    (estimate.miss_ratio, estimate.miss_ratio_error) = mean_and_error(&misses);
    (estimate.write_ratio, estimate.write_ratio_error) = mean_and_error(&writes);
    Ok(estimate)
}

/// The layer at a size scaled down with the trace, and at least one page if it had one.
fn scale(layer: &LayerSpec, addresses: &Addresses, rate: f64) -> LayerSpec {
    let (page_bytes, footprint) = (addresses.trace.page_bytes, addresses.trace.footprint() as u64);
    let sizes = layer.sizes.iter().map(|size| {
        let pages = size.pages(page_bytes, footprint);
        Size::Pages(((pages as f64 * rate).round() as u64).max(u64::from(pages > 0)))
    });
    LayerSpec { policy: layer.policy.clone(), sizes: sizes.collect() }
}
