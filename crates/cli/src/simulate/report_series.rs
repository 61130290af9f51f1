//! The report's part about time: `entresol simulate --interval`.

use super::results::{Role, distinct, label, size, write_ratio};
use entresol_render::{Axis, NumberFormat, Panel, Section, Series, TimeSeries};
use entresol_sim::{Interval, Row};

/// Most lines in one chart, besides the baseline: more lines that cross all the time cannot be told apart.
const LINES_MAX: usize = 6;
/// Most charts of gauges; the rest are in the JSON file.
const INNER_CHARTS_MAX: usize = 12;

/// Hit ratios and writes over time at every size, then the policies' gauges; none without series.
pub fn section(rows: &[&Row], base: Option<&str>, heading: String) -> Option<Section> {
    let with: Vec<&Row> = rows.iter().copied().filter(|row| !row.series.is_empty()).collect();
    let first = with.first()?;
    let mut section = Section::new(heading);
    let labels = distinct(with.iter().copied(), label);
    if labels.len() > LINES_MAX + 1 {
        section = section.text(format!(
            "The {LINES_MAX} caches with the most hits and the baseline at each size; the JSON file has the series of all."
        ));
    }
    let step = first.series.first().map_or(0, |interval| interval.requests);
    for wanted in distinct(with.iter().copied(), size) {
        let mut here: Vec<&Row> = with.iter().copied().filter(|row| size(row) == wanted).collect();
        if here.len() > LINES_MAX + 1 {
            here = best(&here, base);
        }
        section = section.chart(ratios(&here, &wanted, step));
    }
    let inner: Vec<&Row> = with.iter().copied().filter(|row| !row.gauges.is_empty()).collect();
    if inner.len() > INNER_CHARTS_MAX {
        section = section.text(format!(
            "Inner figures of the first {INNER_CHARTS_MAX} of {} results; the JSON file has all.",
            inner.len()
        ));
    }
    Some(inner.into_iter().take(INNER_CHARTS_MAX).fold(section, |section, row| section.chart(gauges(row))))
}

/// The caches with the most hits, and the baseline, in their order.
fn best<'r>(rows: &[&'r Row], base: Option<&str>) -> Vec<&'r Row> {
    let is_base = |row: &&Row| Some(label(row).as_str()) == base;
    let mut caches: Vec<&Row> =
        rows.iter().copied().filter(|row| Role::of(row) == Role::Cache && !is_base(row)).collect();
    caches.sort_by(|a, b| b.hit_ratio().total_cmp(&a.hit_ratio()).then(write_ratio(a).total_cmp(&write_ratio(b))));
    caches.truncate(LINES_MAX);
    caches.extend(rows.iter().copied().filter(is_base));
    caches
}

fn requests() -> Axis {
    Axis::new("requests", NumberFormat::Count)
}

fn ratios(rows: &[&Row], size: &str, step: u64) -> TimeSeries {
    // Hit ratios lie in a narrow band near the top: an axis from zero would flatten them.
    let mut hits = Panel::new(Axis::new("hits per request", NumberFormat::Percent));
    let mut writes = Panel::new(Axis::new("pages written below per request", NumberFormat::Percent).at_least(0.0, 0.0));
    for row in rows {
        let points = |of: fn(&Interval) -> u64| -> Vec<(f64, f64)> {
            let per = |interval: &Interval| of(interval) as f64 / interval.requests.max(1) as f64;
            row.series.iter().map(|interval| (interval.at as f64, per(interval))).collect()
        };
        hits = hits.series(Series::new(label(row), points(|interval| interval.hits)));
        writes = writes.series(Series::new(label(row), points(|interval| interval.written_below)));
    }
    let title = format!("At {size}, per {} requests", entresol_render::grouped(i128::from(step)));
    let chart = TimeSeries::new(title, requests()).panel(hits);
    if rows.iter().any(|row| row.writes > 0) { chart.panel(writes) } else { chart }
}

/// A policy's gauges over time: a panel for shares, and one for all others.
fn gauges(row: &Row) -> TimeSeries {
    let points = |name: &String| -> Vec<(f64, f64)> {
        let value = |interval: &Interval| interval.gauges.iter().find(|(other, _)| other == name).map(|g| g.1);
        row.series.iter().filter_map(|interval| Some((interval.at as f64, value(interval)?))).collect()
    };
    let is_share = |name: &String| points(name).iter().all(|&(_, value)| (0.0..=1.0).contains(&value));
    let (shares, counts): (Vec<&String>, Vec<&String>) =
        row.gauges.iter().map(|(name, _)| name).partition(|n| is_share(n));
    let mut chart = TimeSeries::new(format!("Inside {} at {}", label(row), row.size), requests());
    for (names, what, format) in
        [(shares, "share", NumberFormat::Decimal), (counts, "pages or count", NumberFormat::Count)]
    {
        // A single line in a chart has no legend: the axis names it.
        let axis = if let [only] = names[..] { format!("{only}, {what}") } else { what.to_owned() };
        let panel = Panel::new(Axis::new(axis, format).at_least(0.0, 0.0));
        if !names.is_empty() {
            chart =
                chart.panel(names.into_iter().fold(panel, |p, name| p.series(Series::new(name.clone(), points(name)))));
        }
    }
    chart
}
