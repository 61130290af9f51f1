//! The page of `advise hierarchy`.

use super::hierarchy::Advice;
use super::hierarchy_text as text;
use crate::output;
use entresol_advise::hierarchy::{Candidate, Part, Tried};
use entresol_render::{Axis, BarChart, BarLayout, Curve, LineChart, NumberFormat, Page, Section, Series, percent};

/// Most bars of a chart.
const BARS_MAX: usize = 16;

/// The page; `trace` describes the trace.
pub fn page(advice: &Advice, trace: &str) -> Page {
    let best = &advice.candidates[advice.choice.best].candidate;
    let mut page = Page::new(format!("{best} for ${}", best.dollars)).subtitle(trace.trim_end());
    page = page.command(output::command_line());
    let summary = text::summary(advice);
    let recommendation =
        summary.lines().filter(|line| !line.is_empty()).fold(Section::new("Recommendation"), Section::text);
    page = page.section(recommendation.chart(front(advice)).table(text::front(advice)));
    let order = text::by_performance_per_price(advice.candidates);
    let mut per_price = Section::new("Performance per price")
        .text("Requests a second for each dollar (003, figure 10) of the candidates simulated in full, the best first.")
        .chart(bars(advice.candidates, &order));
    if advice.sample < 1.0 {
        let share = percent(advice.sample, 1);
        per_price = per_price.note(format!(
            "Candidates with ~ were compared with {share} of the pages, and are to be compared with each other only; \
             no chart has them."
        ));
    }
    page = page.section(per_price.table(text::all(advice.candidates, order)));
    match &advice.what_if {
        Some(found) => {
            let more = text::worth_of_more(found);
            let section = Section::new("Other circumstances").table(text::answers(found));
            page.section(more.lines().fold(section, Section::note))
        }
        None => page,
    }
}

/// Tiers without their sizes.
fn kind(candidate: &Candidate) -> String {
    candidate.parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join(" - ")
}

/// The most throughput that a price buys: over all candidates, and over the tiers of each kind. Only candidates
/// simulated in full count, because estimates from a sample are on another scale.
fn front(advice: &Advice) -> LineChart {
    let axis = |label: &str| Axis::new(label, NumberFormat::Count);
    let mut chart =
        LineChart::new("Price and throughput", axis("dollars"), axis("requests per second").at_least(0.0, 0.0));
    chart = chart.curve(Curve::Step);
    let mut kinds: Vec<String> = Vec::new();
    for entry in advice.candidates.iter().filter(|entry| entry.measured().is_some()) {
        let kind = kind(&entry.candidate);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for name in kinds {
        let of_kind = advice.candidates.iter().filter(|entry| kind(&entry.candidate) == name);
        let points = rising(of_kind);
        chart = chart.series(Series::new(name, points));
    }
    let all = advice.choice.front.iter().map(|&at| &advice.candidates[at]);
    chart.series(Series::new("front", rising(all)).emphasised())
}

/// Price and throughput of those candidates that are faster than all cheaper ones; the list is in order of price.
fn rising<'a>(tried: impl Iterator<Item = &'a Tried>) -> Vec<(f64, f64)> {
    let mut most: f64 = 0.0;
    let points =
        tried.filter_map(|entry| Some((entry.candidate.dollars.dollars(), entry.measured()?.requests_per_second)));
    let higher = |&(_, rate): &(f64, f64)| {
        let before = most;
        most = rate.max(before);
        rate > before
    };
    points.filter(higher).collect()
}

fn bars(tried: &[Tried], order: &[usize]) -> BarChart {
    let in_full = order.iter().copied().filter(|&at| tried[at].measured().is_some());
    let shown: Vec<usize> = in_full.take(BARS_MAX).collect();
    let part = |part: &Part| format!("{} {}", part.piece.gb, part.name);
    let short = |candidate: &Candidate| candidate.parts.iter().map(part).collect::<Vec<_>>().join(", ");
    let names = shown.iter().map(|&at| short(&tried[at].candidate));
    let value = Axis::new("requests per second for a dollar", NumberFormat::Decimal);
    let per_dollar =
        shown.iter().map(|&at| tried[at].measured().and_then(|measured| measured.per_dollar).unwrap_or(f64::NAN));
    BarChart::new("Performance per price, sizes in GB", value, BarLayout::Grouped, names)
        .series("requests/s per dollar", per_dollar)
}
