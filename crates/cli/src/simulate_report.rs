//! The report of `entresol simulate`: one page with curves, heat maps, series, the trace's own charts and all numbers.

use crate::simulate::{TraceResults, label, write_ratio};
use crate::{output, stat_report, trace_source};
use entresol_report::{
    Axis, Better, Cell, Chart, Column, HeatMap, LineChart, NumberFormat, Page, Panel, Section, Series, Spread, Table,
    TimeSeries,
};
use entresol_sim::{PartRow, Row};
use entresol_trace::{StatOptions, stat};
use std::collections::BTreeSet;

/// Series over time are drawn for this many results at most; the rest are in the JSON file.
const TIME_CHARTS_MAX: usize = 12;

/// The page of all traces.
pub fn page(all: &[TraceResults], baseline: &str) -> Page {
    let title = all.iter().map(|results| results.named.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut page = Page::new(format!("Simulation of {title}")).command(output::command_line());
    if all.len() == 1 {
        page = page.subtitle(trace_source::describe(&all[0].named));
    }
    page = page.section(baseline_section(all, baseline));
    for results in all {
        for section in trace_sections(results, all.len() > 1) {
            page = page.section(section);
        }
    }
    page.section(Section::new("All numbers").text(COLUMNS).table(table(all)))
}

const COLUMNS: &str = "Counts are pages and exact. Written below is what evictions, cleaning, flush rules and bypassing \
                       writes put on the level below; pages still dirty at the end are not in it.";

fn trace_sections(results: &TraceResults, named: bool) -> Vec<Section> {
    let heading = |text: &str| if named { format!("{}: {text}", results.named.name) } else { text.to_owned() };
    let mut sections = vec![curves(results, heading("Curves over the cache size"))];
    sections.extend(series(results, &heading("Over time")));
    sections.extend(parts(results, &heading("Per table and per query")));
    let measured = stat(&results.named.trace, &StatOptions { windows: 100 });
    sections.push(stat_report::charts(&measured, heading("The trace itself")));
    if !results.skipped.is_empty() || !results.named.left_out.is_empty() {
        sections.push(left_out(results, heading("Left out")));
    }
    sections
}

fn left_out(results: &TraceResults, heading: String) -> Section {
    let skipped =
        results.skipped.iter().map(|skip| (format!("{} at {}", skip.policy, skip.size), skip.error.to_string()));
    let trace = results.named.left_out.iter().map(|clause| ("of the trace".to_owned(), clause.clone()));
    Section::new(heading).facts(trace.chain(skipped))
}

/// Labels in order of first appearance.
fn labels(rows: &[Row]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for row in rows {
        if !labels.contains(&label(row)) {
            labels.push(label(row));
        }
    }
    labels
}

fn curves(results: &TraceResults, heading: String) -> Section {
    let page_bytes = f64::from(results.named.trace.page_bytes);
    let chart = |title: &str, y: Axis, figure: &dyn Fn(&Row) -> f64| -> Chart {
        let size = Axis::new("cache size, all tiers", NumberFormat::Bytes).spread(Spread::Log2);
        let mut chart = LineChart::new(title, size, y).best(6, Better::Lower);
        for name in labels(&results.rows) {
            let rows = results.rows.iter().filter(|row| label(row) == name);
            let points = rows.map(|row| (row.capacity_pages as f64 * page_bytes, figure(row)));
            chart = chart.series(Series::new(name.clone(), points));
        }
        chart.into()
    };
    let per_request = |label: &str| Axis::new(label, NumberFormat::Percent).at_least(0.0, 0.0);
    let mut section = Section::new(heading)
        .chart(chart("Miss ratio", per_request("misses per request"), &|row| 1.0 - row.hit_ratio()));
    if results.rows.iter().any(|row| row.writes > 0) {
        section = section
            .chart(chart("Pages written below", per_request("pages written below per request"), &write_ratio))
            .grid([
                chart("Read misses", per_request("read misses per read"), &|row| 1.0 - row.read_hit_ratio()),
                chart("Write I/Os", per_request("write I/Os per request"), &|row| {
                    (row.write_back_ios + row.write_bypasses) as f64 / row.requests.max(1) as f64
                }),
            ]);
    }
    section
}

/// Differences and ratios against a baseline, as 000 fig. 4.3 and 4.4 show them: rows are policies of a trace.
fn baseline_section(all: &[TraceResults], baseline: &str) -> Section {
    let section = Section::new(format!("Against {baseline}"));
    let sizes: Vec<String> = {
        let mut seen = BTreeSet::new();
        let rows = all.iter().flat_map(|results| &results.rows);
        rows.filter(|row| seen.insert(row.size.clone())).map(|row| row.size.clone()).collect()
    };
    let base = |results: &TraceResults, size: &str| {
        results.rows.iter().find(|row| row.policy == baseline && row.size == size).cloned()
    };
    if !all.iter().any(|results| results.rows.iter().any(|row| row.policy == baseline)) {
        return section.note(format!("{baseline} was not simulated, so there is nothing to compare with."));
    }
    let mut hits = HeatMap::differences(format!("Hit ratio minus that of {baseline}"), Better::Higher)
        .columns("cache size", sizes.clone());
    let mut writes =
        HeatMap::ratios(format!("Pages written below by {baseline} per page written below"), Better::Higher)
            .columns("cache size", sizes.clone());
    for results in all {
        for name in labels(&results.rows) {
            let row = |size: &String| results.rows.iter().find(|row| label(row) == name && row.size == *size);
            if name == baseline {
                continue;
            }
            let pair = |size: &String| Some((row(size)?.clone(), base(results, size)?));
            let heading = if all.len() > 1 { format!("{} {name}", results.named.name) } else { name.clone() };
            let figure = |of: &dyn Fn(&Row, &Row) -> f64| -> Vec<f64> {
                sizes.iter().map(|size| pair(size).map_or(f64::NAN, |(row, base)| of(&row, &base))).collect()
            };
            hits = hits.row(heading.clone(), figure(&|row, base| row.hit_ratio() - base.hit_ratio()));
            writes = writes.row(heading, figure(&|row, base| base.written_below() as f64 / row.written_below() as f64));
        }
    }
    let written = all.iter().any(|results| results.rows.iter().any(|row| row.writes > 0));
    let section = section.chart(hits);
    if written { section.chart(writes) } else { section }
}

fn series(results: &TraceResults, heading: &str) -> Option<Section> {
    let with: Vec<&Row> = results.rows.iter().filter(|row| !row.series.is_empty()).collect();
    if with.is_empty() {
        return None;
    }
    let mut section = Section::new(heading);
    let requests = || Axis::new("requests", NumberFormat::Count);
    let mut sizes: Vec<&str> = with.iter().map(|row| row.size.as_str()).collect();
    sizes.dedup();
    let ratio = |label: &str| Axis::new(label, NumberFormat::Percent).at_least(0.0, 0.0);
    for size in sizes.iter().take(TIME_CHARTS_MAX) {
        let mut hits = Panel::new(ratio("hits per request"));
        let mut writes = Panel::new(ratio("pages written below per request"));
        for row in with.iter().filter(|row| row.size == *size) {
            let per = |value: u64, requests: u64| value as f64 / requests.max(1) as f64;
            let points = |of: &dyn Fn(&entresol_sim::Interval) -> u64| -> Vec<(f64, f64)> {
                row.series.iter().map(|i| (i.at as f64, per(of(i), i.requests))).collect()
            };
            hits = hits.series(Series::new(label(row), points(&|i| i.hits)));
            writes = writes.series(Series::new(label(row), points(&|i| i.write_backs)));
        }
        section = section.chart(TimeSeries::new(format!("At {size}"), requests()).panel(hits).panel(writes));
    }
    for row in with.iter().filter(|row| !row.gauges.is_empty()).take(TIME_CHARTS_MAX) {
        section = section.chart(gauges(row, requests()));
    }
    Some(section)
}

/// A policy's inner figures over time, one panel for shares and one for each other gauge's scale.
fn gauges(row: &Row, requests: Axis) -> TimeSeries {
    let points = |name: &String| -> Vec<(f64, f64)> {
        let value =
            |interval: &entresol_sim::Interval| interval.gauges.iter().find(|(other, _)| other == name).map(|g| g.1);
        row.series.iter().filter_map(|i| Some((i.at as f64, value(i)?))).collect()
    };
    let mut shares = Panel::new(Axis::new("share", NumberFormat::Decimal));
    let mut counts = Panel::new(Axis::new("pages or count", NumberFormat::Count));
    let (mut any_share, mut any_count) = (false, false);
    for (name, _) in &row.gauges {
        let points = points(name);
        if points.iter().all(|&(_, value)| (0.0..=1.0).contains(&value)) {
            shares = shares.series(Series::new(name.clone(), points));
            any_share = true;
        } else {
            counts = counts.series(Series::new(name.clone(), points));
            any_count = true;
        }
    }
    let mut chart = TimeSeries::new(format!("Inside {} at {}", label(row), row.size), requests);
    if any_share {
        chart = chart.panel(shares);
    }
    if any_count {
        chart = chart.panel(counts);
    }
    chart
}

fn parts(results: &TraceResults, heading: &str) -> Option<Section> {
    let with = results.rows.iter().filter(|row| !row.objects.is_empty()).count();
    if with == 0 {
        return None;
    }
    let mut section = Section::new(heading);
    for (name, of) in [("object", (|row| &row.objects) as fn(&Row) -> &Vec<PartRow>), ("query", |row| &row.queries)] {
        if results.rows.iter().all(|row| of(row).is_empty()) {
            continue;
        }
        let mut table = Table::new(
            format!("Per {name}"),
            [
                Column::text("policy"),
                Column::text("size"),
                Column::text(name),
                Column::number("requests"),
                Column::number("writes"),
                Column::number("hits"),
                Column::number("hit ratio"),
            ],
        );
        for row in &results.rows {
            for part in of(row) {
                let hits = part.read_hits + part.write_hits;
                table.push([
                    label(row).into(),
                    row.size.clone().into(),
                    part.name.clone().into(),
                    part.requests.into(),
                    part.writes.into(),
                    hits.into(),
                    Cell::percent(hits as f64 / part.requests.max(1) as f64, 2),
                ]);
            }
        }
        section = section.table(table);
    }
    Some(section)
}

/// All numbers, one row a result: the table of the page and the CSV file.
pub fn table(all: &[TraceResults]) -> Table {
    let number = |name: &str, help: &str| Column::number(name).help(help);
    let mut table = Table::new(
        "results",
        [
            Column::text("trace"),
            Column::text("policy"),
            Column::text("options"),
            Column::text("size"),
            number("capacity_pages", "capacity of all tiers, in pages"),
            number("hit_ratio", "hits of both kinds per request"),
            number("requests", "page requests after the warm-up"),
            number("reads", "of them reads"),
            number("writes", "of them writes, whole or partial"),
            number("read_hits", "reads found in any tier"),
            number("write_hits", "writes whose page was found in any tier"),
            number("fetches", "pages read from the level below"),
            number("admissions", "misses whose page was admitted"),
            number("bypasses", "requests that went past all tiers"),
            number("write_backs", "pages written below by evictions, cleaning and flush rules"),
            number("write_back_ios", "I/Os by which they were written"),
            number("write_bypasses", "pages written below at once"),
            number("dirty_at_end", "pages newer than the level below at the end"),
            number("migrated", "pages moved between the level below and the tiers, both ways"),
            number("cpu_seconds", "processor time of the simulation"),
        ],
    );
    for results in all {
        for row in &results.rows {
            table.push([
                results.named.name.clone().into(),
                row.policy.clone().into(),
                row.options.clone().into(),
                row.size.clone().into(),
                row.capacity_pages.into(),
                Cell::percent(row.hit_ratio(), 2),
                row.requests.into(),
                row.reads.into(),
                row.writes.into(),
                row.read_hits.into(),
                row.write_hits.into(),
                row.fetches.into(),
                row.admissions.into(),
                row.bypasses.into(),
                row.write_backs.into(),
                row.write_back_ios.into(),
                row.write_bypasses.into(),
                row.dirty_at_end.into(),
                row.migrated().into(),
                Cell::fixed(row.cpu_seconds, 3),
            ]);
        }
    }
    table
}
