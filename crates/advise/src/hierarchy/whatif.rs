//! Sensitivity of an answer to its inputs (prices, the latency of NVM, the trace), and the gain from more capacity in
//! each tier.

use super::AdviceError;
use super::bound::Shortest;
use super::candidate::{Candidate, Part, Scale, candidates};
use super::catalogue::{Catalogue, Class};
use super::choose::choose;
use super::measure::Workload;
use super::search::{SearchOptions, Tried, search};
use crate::money::Money;
use entresol_device::Nanos;
use entresol_device::profile::Model;
use entresol_sim::Addresses;
use entresol_trace::{Column, Trace};
use serde::Serialize;

/// Prices to try, as multiples of the catalogue's.
const PRICES: [f64; 2] = [0.5, 2.0];
/// Latencies of NVM to try, as multiples of DRAM's (003, section 6.4).
const LATENCIES: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
/// Share of a tier's capacity that is added to measure its gain. The effect of less is lost in the noise of a scaled
/// trace.
const MORE: f64 = 0.1;

/// Inputs of the search that recommended a hierarchy.
pub struct Question<'a> {
    /// Devices that can be bought.
    pub catalogue: &'a Catalogue,
    /// Scale of the real data to the trace.
    pub scale: &'a Scale,
    /// Budget.
    pub budget: Money,
    /// True to include lowest tiers larger than needed.
    pub spare: bool,
    /// The trace and how it is run.
    pub workload: &'a Workload<'a>,
    /// Options of the search.
    pub options: &'a SearchOptions,
}

/// The answer under a changed circumstance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The circumstance.
    pub what: String,
    /// Reason why there is no answer; absent if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub none: Option<String>,
    /// The best hierarchy.
    pub hierarchy: String,
    /// Price of the best hierarchy.
    pub dollars: Money,
    /// Requests a second of the best hierarchy.
    pub requests_per_second: f64,
    /// Throughput of the recommended hierarchy here, as a share of the best one's; `None` if it cannot be simulated.
    pub recommended_share: Option<f64>,
    /// True if the best hierarchy is the recommended one.
    pub same: bool,
}

/// Gain from more capacity in a tier.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct More {
    /// The tier.
    pub name: String,
    /// Added capacity, in 10^9 bytes.
    pub gb: f64,
    /// Additional requests a second per 10^9 bytes.
    pub gain_per_gb: f64,
    /// Additional requests a second per dollar, at the tier's price; `None` if the tier costs nothing.
    pub gain_per_dollar: Option<f64>,
}

/// 001, equation 1: an amount of flash worth as much as an amount of DRAM, with the simulated result of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BreakEven {
    /// Added DRAM, in 10^9 bytes.
    pub dram_gb: f64,
    /// Price of the added DRAM.
    pub dram_dollars: Money,
    /// Requests a second with the added DRAM.
    pub dram_per_second: f64,
    /// Name of the tier that is enlarged instead.
    pub other: String,
    /// Capacity of that tier worth as much by the equation, in 10^9 bytes.
    pub other_gb: f64,
    /// Price of that capacity.
    pub other_dollars: Money,
    /// Requests a second with that capacity.
    pub other_per_second: f64,
}

/// Results of all variations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WhatIf {
    /// Answers under other prices, latencies and halves of the trace.
    pub answers: Vec<Answer>,
    /// Gains from more of each tier above the lowest.
    pub more: Vec<More>,
    /// DRAM against the next tier; `None` without DRAM, or if no device exists between DRAM and the lowest tier.
    pub break_even: Option<BreakEven>,
}

/// Varies the circumstances of a search. `tried` and `best` are its answer; `done` is called after each circumstance.
///
/// # Errors
/// When a device cannot be built.
pub fn what_if(question: &Question, tried: &[Tried], best: usize, done: &dyn Fn()) -> Result<WhatIf, AdviceError> {
    let recommended = &tried[best].candidate;
    let mut answers = Vec::new();
    let mut note = |answer| {
        answers.push(answer);
        done();
    };
    for class in [Class::Dram, Class::Nvm, Class::Ssd, Class::Disk] {
        let there = question.catalogue.items.iter().any(|item| item.class == class);
        for factor in PRICES.into_iter().filter(|_| there) {
            let catalogue = priced(question.catalogue, class, factor);
            let what = format!("price of {class} x {factor}");
            note(answer(what, &Question { catalogue: &catalogue, ..*question }, recommended));
        }
    }
    for factor in LATENCIES {
        let Some(catalogue) = with_nvm_latency(question.catalogue, factor) else { continue };
        let workload = question.workload.with(question.workload.addresses);
        let what = format!("latency of nvm {factor} x DRAM's");
        note(answer(what, &Question { catalogue: &catalogue, workload: &workload, ..*question }, recommended));
    }
    let trace = question.workload.addresses.trace;
    for (what, from, to) in
        [("first half of the trace", 0, trace.len() / 2), ("second half of the trace", trace.len() / 2, trace.len())]
    {
        let half = part_of(trace, from, to);
        let addresses = Addresses::new(&half);
        let workload = question.workload.with(&addresses);
        note(answer(what.to_owned(), &Question { workload: &workload, ..*question }, recommended));
    }
    Ok(WhatIf { answers, more: more(question, recommended), break_even: break_even(question, recommended)? })
}

/// The best hierarchy for a question, compared with the recommended one.
fn answer(what: String, question: &Question, recommended: &Candidate) -> Answer {
    let Question { catalogue, workload, options, .. } = question;
    let found = workload.check().and_then(|()| {
        let list = candidates(catalogue, question.scale, question.budget, question.spare)?.list;
        let tried = search(catalogue, list, workload, options, &|| ())?;
        let best = choose(&tried, options.objective, &options.limits)?.best;
        Ok(tried[best].clone())
    });
    match found {
        Err(error) => Answer {
            what,
            none: Some(error.to_string()),
            hierarchy: String::new(),
            dollars: Money::default(),
            requests_per_second: 0.0,
            recommended_share: None,
            same: false,
        },
        Ok(best) => {
            let per_second = best.measured().map_or(f64::NAN, |measured| measured.requests_per_second);
            let own = workload.measure(catalogue, recommended).ok();
            Answer {
                what,
                none: None,
                hierarchy: best.candidate.to_string(),
                dollars: best.candidate.dollars,
                requests_per_second: per_second,
                recommended_share: own.map(|own| own.requests_per_second / per_second),
                same: best.candidate.to_string() == recommended.to_string(),
            }
        }
    }
}

fn priced(catalogue: &Catalogue, class: Class, factor: f64) -> Catalogue {
    let mut other = catalogue.clone();
    let items = other.items.iter_mut().filter(|item| item.class == class);
    items.flat_map(|item| &mut item.pieces).for_each(|piece| piece.dollars = piece.dollars.times(factor));
    other
}

/// The catalogue with the latency of NVM set to `factor` times DRAM's, as 003 emulates it. `None` if the DRAM's profile
/// states no latency, or no NVM has one that can be set.
fn with_nvm_latency(catalogue: &Catalogue, factor: f64) -> Option<Catalogue> {
    let dram = catalogue.items.iter().find(|item| item.class == Class::Dram)?;
    let (read_ns, write_ns) = match &dram.profile.device {
        Model::Dram(dram) => (dram.read_ns, dram.write_ns),
        Model::Fixed(fixed) => (fixed.read_ns, fixed.write_ns),
        _ => return None,
    };
    let mut other = catalogue.clone();
    let mut set = 0;
    let times = |ns: Nanos| (ns as f64 * factor).round() as Nanos;
    for item in other.items.iter_mut().filter(|item| item.class == Class::Nvm) {
        set += 1;
        match &mut item.profile.device {
            Model::NvmDimm(dimm) => {
                (dimm.dram_read_ns, dimm.dram_write_ns) = (read_ns, write_ns);
                (dimm.read_factor, dimm.sequential_read_factor, dimm.write_factor) = (factor, factor, factor);
            }
            Model::Fixed(fixed) => (fixed.read_ns, fixed.write_ns) = (times(read_ns), times(write_ns)),
            _ => set -= 1,
        }
    }
    (set > 0).then_some(other)
}

/// The requests `from..to`, over the pages of the whole trace.
fn part_of(trace: &Trace, from: usize, to: usize) -> Trace {
    let events = trace.events.iter().filter(|event| (from..to).contains(&(event.at as usize)));
    Trace {
        pages: Column::Owned(trace.pages[from..to].to_vec()),
        ops: Column::Owned(trace.ops[from..to].to_vec()),
        times_us: trace.times_us.as_ref().map(|times| Column::Owned(times[from..to].to_vec())),
        next_use: None,
        events: events
            .map(|event| entresol_trace::Event { at: event.at - from as u64, kind: event.kind.clone() })
            .collect(),
        page_bytes: trace.page_bytes,
        page_object: Column::Owned(trace.page_object.to_vec()),
        page_block: Column::Owned(trace.page_block.to_vec()),
        objects: trace.objects.iter().map(entresol_trace::Object::of_part).collect(),
        provenance: format!("requests {from}..{to} of {}", trace.provenance),
    }
}

/// A part with `gb` more capacity.
fn grown(part: &Part, scale: &Scale, gb: f64) -> Part {
    let mut larger = part.clone();
    larger.piece.gb += gb;
    larger.pages = scale.pages(&larger.piece);
    larger
}

fn more(question: &Question, recommended: &Candidate) -> Vec<More> {
    let Question { catalogue, workload, scale, .. } = question;
    let Ok(before) = workload.measure(catalogue, recommended) else { return Vec::new() };
    let each = recommended.caches().iter().enumerate().filter_map(|(at, part)| {
        let mut larger = recommended.clone();
        let gb = part.piece.gb * MORE;
        larger.parts[at] = grown(part, scale, gb);
        let added_gb = scale.gb(larger.parts[at].pages - part.pages);
        let after = workload.measure(catalogue, &larger).ok().filter(|_| added_gb > 0.0)?;
        let gain_per_gb = (after.requests_per_second - before.requests_per_second) / added_gb;
        let dollars = part.piece.dollars.dollars();
        let gain_per_dollar = (dollars > 0.0).then(|| gain_per_gb * part.piece.gb / dollars);
        Some(More { name: part.name.clone(), gb: added_gb, gain_per_gb, gain_per_dollar })
    });
    each.collect()
}

/// 001, section 2.3: `1 + theta = (1 + delta)^(C_disk / (C_disk - C_flash))`, with the time of a single page on both
/// devices.
pub fn theta(delta: f64, below_ns: f64, cache_ns: f64) -> f64 {
    (1.0 + delta).powf(below_ns / (below_ns - cache_ns)) - 1.0
}

fn break_even(question: &Question, recommended: &Candidate) -> Result<Option<BreakEven>, AdviceError> {
    let Question { catalogue, workload, scale, .. } = question;
    let dram = &recommended.caches()[0];
    let lowest = recommended.lowest();
    if dram.class != Class::Dram {
        return Ok(None);
    }
    // The existing tier, or the smallest possible one.
    let Some(other) = recommended.caches().get(1).cloned().or_else(|| between(catalogue, lowest)) else {
        return Ok(None);
    };
    let parts = [dram.clone(), other.clone(), lowest.clone()];
    let one = Candidate { parts: parts.to_vec(), dollars: Money::default() };
    let times = workload.shortest(catalogue, std::iter::once(&one))?;
    let read = |part: &Part| -> Shortest { times[&part.item] };
    let (below_ns, cache_ns) = (read(lowest).read_ns, read(&other).read_ns);
    if cache_ns >= below_ns {
        return Ok(None);
    }
    let (dram_gb, other_gb) = (dram.piece.gb * MORE, dram.piece.gb * theta(MORE, below_ns, cache_ns));
    let mut with_dram = recommended.clone();
    with_dram.parts[0] = grown(dram, scale, dram_gb);
    let mut with_other = recommended.clone();
    match recommended.caches().get(1) {
        Some(there) => with_other.parts[1] = grown(there, scale, other_gb),
        None => {
            let mut small = other.clone();
            small.piece.gb = 0.0;
            with_other.parts.insert(1, grown(&small, scale, other_gb));
        }
    }
    let run = |candidate: &Candidate| {
        workload.measure(catalogue, candidate).ok().map(|measured| measured.requests_per_second)
    };
    let (Some(dram_per_second), Some(other_per_second)) = (run(&with_dram), run(&with_other)) else { return Ok(None) };
    Ok(Some(BreakEven {
        dram_gb,
        dram_dollars: dram.piece.dollars.times(dram_gb / dram.piece.gb),
        dram_per_second,
        other: other.name.clone(),
        other_gb,
        other_dollars: other.piece.dollars.times(other_gb / other.piece.gb),
        other_per_second,
    }))
}

/// A device of the catalogue between DRAM and the lowest tier.
fn between(catalogue: &Catalogue, lowest: &Part) -> Option<Part> {
    let mut order: Vec<usize> = (0..catalogue.items.len()).collect();
    order.sort_by_key(|&item| catalogue.items[item].class);
    let fits = |&item: &usize| catalogue.items[item].class > Class::Dram && catalogue.items[item].class < lowest.class;
    let item = order.into_iter().find(fits)?;
    let chosen = &catalogue.items[item];
    Some(Part { name: chosen.name.clone(), class: chosen.class, piece: chosen.pieces[0], pages: 1, item })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 001, section 2.3: 1.006 for reads and 1.025 for writes with the disk and the flash of its table 1.
    #[test]
    fn the_exponent_is_that_of_the_paper() {
        for (below, cache, exponent) in [(1.0 / 409.0, 1.0 / 65_803.0, 1.006), (1.0 / 343.0, 1.0 / 13_979.0, 1.025)] {
            let theta = theta(1.0, below, cache);
            assert!(((1.0 + theta).log2() - exponent).abs() < 0.0005, "{theta}");
        }
    }

    #[test]
    fn nvm_is_as_slow_as_asked() {
        let house = Catalogue::load("arulraj-2019").expect("a catalogue");
        let slow = with_nvm_latency(&house, 8.0).expect("it can be set");
        let nvm = slow.items.iter().find(|item| item.class == Class::Nvm).expect("NVM");
        let Model::Fixed(fixed) = &nvm.profile.device else { panic!("fixed") };
        assert_eq!((fixed.read_ns, fixed.write_ns), (400, 400), "of DRAM's 50 ns");
        assert_eq!(with_nvm_latency(&Catalogue::load("kang-2015").expect("a catalogue"), 2.0), None, "no NVM there");
    }
}
