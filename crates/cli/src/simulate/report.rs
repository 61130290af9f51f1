//! The report of `entresol simulate`: one page with a summary, curves, heat maps, series, the trace's own charts and
//! all numbers.

use super::report_parts;
use super::report_series;
use super::results::{Role, TraceResults, distinct, label, miss_ratio, size, write_ratio};
use super::summary;
use crate::output;
use crate::trace::stat_report;
use crate::trace_source;
use entresol_render::{
    Axis, Better, Cell, Chart, Column, HeatMap, LineChart, NumberFormat, Page, Section, Series, Spread, Table,
};
use entresol_sim::Row;
use entresol_trace::{StatOptions, stat};

/// Number of policies in the foreground of charts, besides the baseline and the bound.
const BEST: usize = 6;
/// From this many policies on, the y axis ends at a multiple of their median. Otherwise a few policies unsuited to the
/// trace would compress all others.
const CROPPED_FROM: usize = 8;
const CROP_MEDIANS: f64 = 1.4;
/// Up to this many policies, traces share one heat map, as in 000 fig. 4.3 and 4.4.
const SHARED_HEAT_POLICIES: usize = 8;

/// An empty chart of a share of the requests over the size of the cache.
pub fn over_sizes(title: &str, y: &str) -> LineChart {
    let size = Axis::new("cache size, all tiers", NumberFormat::Bytes).spread(Spread::Log2);
    LineChart::new(title, size, Axis::new(y, NumberFormat::Percent).at_least(0.0, 0.0))
}

/// The page of all traces.
pub fn page(all: &[TraceResults], base: Option<&str>) -> Page {
    let title = all.iter().map(|results| results.named.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut page = Page::new(format!("Simulation of {title}")).command(output::command_line());
    if all.len() == 1 {
        page = page.subtitle(trace_source::facts(&all[0].named));
    }
    page = page.section(in_short(all, base));
    let shared =
        all.len() > 1 && distinct(all.iter().flat_map(|results| &results.rows), label).len() <= SHARED_HEAT_POLICIES;
    if let Some(base) = base.filter(|_| shared) {
        page = page.section(against(&all.iter().collect::<Vec<_>>(), base, format!("Against {base}")));
    }
    for results in all {
        let heading = |text: &str| {
            if all.len() > 1 { format!("{}: {text}", results.named.name) } else { text.to_owned() }
        };
        page = page.section(curves(results, base, heading("Curves over the cache size")));
        if let Some(base) = base.filter(|_| !shared) {
            page = page.section(against(&[results], base, heading(&format!("Against {base}"))));
        }
        let rows: Vec<&Row> = results.rows.iter().collect();
        let more = [
            report_series::section(&rows, base, heading("Over time")),
            report_parts::section(&rows, heading("Per table and per query")),
        ];
        page = more.into_iter().flatten().fold(page, Page::section);
        let measured = stat(&results.named.trace, &StatOptions { windows: 100 });
        page = page.section(stat_report::charts(&measured, heading("The trace")));
        if !results.skipped.is_empty() || !results.named.left_out.is_empty() {
            page = page.section(left_out(results, heading("Left out")));
        }
    }
    page.section(Section::new("All numbers").text(COLUMNS).table(table(all, all.len() > 1)))
}

const COLUMNS: &str = "Counts are pages and exact; point at the name of a column for its meaning. Written below are the \
                       pages that evictions, cleaning, flush rules and bypassing writes put on the level below, without \
                       pages still dirty at the end.";

/// Section with a summary for a newcomer: text and a table.
fn in_short(all: &[TraceResults], base: Option<&str>) -> Section {
    let mut section = Section::new("Summary");
    for results in all {
        let words = summary::words(results, base);
        section = section.text(if all.len() > 1 { format!("{}: {words}", results.named.name) } else { words });
    }
    let section = section.table(summary::table(&all.iter().collect::<Vec<_>>(), base));
    let roles = [Role::Offline, Role::WriteBuffer].into_iter();
    let present = |role: &Role| all.iter().any(|results| results.rows.iter().any(|row| Role::of(row) == *role));
    let marks = roles.filter(present).map(|role| match role {
        Role::Offline => {
            let names = names_of(all, role);
            format!("{names} know the future: they show how far a cache could go, and cannot be run.")
        }
        _ => format!(
            "{} are write buffers: only writes bring pages in, so they have no place among the hit ratios.",
            names_of(all, role)
        ),
    });
    section.text(marks.collect::<Vec<_>>().join(" "))
}

fn names_of(all: &[TraceResults], role: Role) -> String {
    let rows = all.iter().flat_map(|results| &results.rows).filter(|row| Role::of(row) == role);
    distinct(rows, label).join(", ")
}

fn left_out(results: &TraceResults, heading: String) -> Section {
    let skipped =
        results.skipped.iter().map(|skip| (format!("{} at {}", skip.policy, skip.size), skip.error.to_string()));
    let trace = results.named.left_out.iter().map(|clause| ("of the trace".to_owned(), clause.clone()));
    Section::new(heading).facts(trace.chain(skipped))
}

/// A figure of all rows with some roles, over the size of the cache.
struct Curves<'a> {
    results: &'a TraceResults,
    base: Option<&'a str>,
}

impl Curves<'_> {
    /// A chart of a figure. With `all`, every policy has a line; without, only the foreground.
    fn chart(&self, title: &str, y: &str, roles: &[Role], all: bool, figure: &dyn Fn(&Row) -> f64) -> Chart {
        let page_bytes = f64::from(self.results.named.trace.page_bytes);
        let rows: Vec<&Row> = self.results.rows.iter().filter(|row| roles.contains(&Role::of(row))).collect();
        let mut chart = over_sizes(title, y).best(BEST, Better::Lower);
        if let Some(limit) = crop(&rows, figure) {
            chart = chart.crop(limit);
        }
        let mut names = distinct(rows.iter().copied(), label);
        if !all {
            names = self.foreground(&rows, names, figure);
        }
        for name in names {
            let own: Vec<&Row> = rows.iter().copied().filter(|row| label(row) == name).collect();
            let points = own.iter().map(|row| (row.capacity_pages as f64 * page_bytes, figure(row)));
            let series = Series::new(name.clone(), points);
            let apart = Some(name.as_str()) == self.base || own.iter().any(|row| Role::of(row) == Role::Offline);
            chart = chart.series(if apart { series.emphasised() } else { series });
        }
        chart.into()
    }

    /// The best policies by mean, the baseline and the bound.
    fn foreground(&self, rows: &[&Row], mut names: Vec<String>, figure: &dyn Fn(&Row) -> f64) -> Vec<String> {
        let mean = |name: &String| {
            let values: Vec<f64> = rows.iter().filter(|row| label(row) == *name).map(|row| figure(row)).collect();
            values.iter().sum::<f64>() / values.len().max(1) as f64
        };
        names.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
        let offline = |name: &String| rows.iter().any(|row| label(row) == *name && Role::of(row) == Role::Offline);
        let apart = |name: &String| Some(name.as_str()) == self.base || offline(name);
        let mut kept = 0;
        names.retain(|name| {
            kept += usize::from(!apart(name));
            apart(name) || kept <= BEST
        });
        names
    }
}

/// Upper end of the y axis of a chart of these rows, if it is cropped. It is the largest median over all sizes, times
/// [`CROP_MEDIANS`]. Only caches count, and only sizes with at least [`CROPPED_FROM`] of them.
fn crop(rows: &[&Row], figure: &dyn Fn(&Row) -> f64) -> Option<f64> {
    let sizes = distinct(rows.iter().copied(), size);
    let medians = sizes.iter().filter_map(|wanted| {
        let mut values: Vec<f64> = rows
            .iter()
            .filter(|row| size(row) == *wanted && Role::of(row) == Role::Cache)
            .map(|row| figure(row))
            .collect();
        values.sort_by(f64::total_cmp);
        (values.len() >= CROPPED_FROM).then(|| values[values.len() / 2])
    });
    medians.max_by(f64::total_cmp).map(|median| median * CROP_MEDIANS).filter(|&limit| limit > 0.0)
}

const CACHES: [Role; 2] = [Role::Cache, Role::Offline];
const ALL: [Role; 3] = [Role::Cache, Role::Offline, Role::WriteBuffer];

/// The miss ratios over the size of the cache, of all policies except write buffers.
pub fn miss_ratios(results: &TraceResults, base: Option<&str>) -> Chart {
    let curves = Curves { results, base };
    curves.chart("Miss ratio", "misses per request", roles_of_hits(results), true, &miss_ratio)
}

/// The roles whose hits are compared. If all rows are write buffers, these are compared too, so that charts are not
/// empty.
fn roles_of_hits(results: &TraceResults) -> &'static [Role] {
    if results.rows.iter().all(|row| Role::of(row) == Role::WriteBuffer) { &ALL } else { &CACHES }
}

fn curves(results: &TraceResults, base: Option<&str>, heading: String) -> Section {
    let curves = Curves { results, base };
    let writes = results.rows.iter().any(|row| row.writes > 0);
    let mut section = Section::new(heading);
    if distinct(&results.rows, label).len() > BEST {
        section = section.text(format!(
            "Lower is better. The {BEST} best, the baseline and the bound are in front; the others are faint until you \
             point at their names. Click a name to hide its line, shift-click to see it alone."
        ));
    }
    let buffers = results.rows.iter().any(|row| Role::of(row) == Role::WriteBuffer);
    let hits = roles_of_hits(results);
    section = section.chart(miss_ratios(results, base));
    if !writes {
        return section;
    }
    let write_ios = |row: &Row| (row.write_back_ios + row.written_at_once()) as f64 / row.requests.max(1) as f64;
    let read_misses = |row: &Row| 1.0 - row.read_hit_ratio();
    let mut small = vec![
        curves.chart("Read misses", "read misses per read", hits, false, &read_misses),
        curves.chart("Write I/Os", "write I/Os per request", hits, false, &write_ios),
    ];
    if buffers && hits.len() < ALL.len() {
        let roles = [Role::WriteBuffer, Role::Offline];
        small.push(curves.chart(
            "Write buffers: pages",
            "pages written below per request",
            &roles,
            false,
            &write_ratio,
        ));
        small.push(curves.chart("Write buffers: I/Os", "write I/Os per request", &roles, false, &write_ios));
    }
    section
        .chart(curves.chart("Pages written below", "pages written below per request", hits, true, &write_ratio))
        .grid(small)
}

/// Hit ratios and writes against a baseline, as in 000 fig. 4.3 and 4.4: rows are policies, the best first, with the
/// trace's name if there are several.
fn against(all: &[&TraceResults], base: &str, heading: String) -> Section {
    let sizes = distinct(all.iter().flat_map(|results| &results.rows), size);
    let mut hits = Vec::new();
    let mut writes = Vec::new();
    for results in all {
        let find =
            |name: &str, wanted: &String| results.rows.iter().find(|row| label(row) == name && size(row) == *wanted);
        for name in distinct(&results.rows, label).into_iter().filter(|name| name != base) {
            let Some(role) = results.rows.iter().find(|row| label(row) == name).map(Role::of) else { continue };
            let figure = |of: &dyn Fn(&Row, &Row) -> f64| -> Vec<f64> {
                let pair = |wanted: &String| Some(of(find(&name, wanted)?, find(base, wanted)?));
                sizes.iter().map(|wanted| pair(wanted).unwrap_or(f64::NAN)).collect()
            };
            let mark = format!("{name} {}", role.mark());
            let own = if all.len() > 1 { format!("{} {mark}", results.named.name) } else { mark };
            let own = own.trim_end().to_owned();
            if role != Role::WriteBuffer {
                hits.push((own.clone(), figure(&|row, base| 100.0 * (row.hit_ratio() - base.hit_ratio()))));
            }
            writes.push((own, figure(&|row, base| row.written_below() as f64 / base.written_below() as f64)));
        }
    }
    let mut charts = Vec::new();
    if !hits.is_empty() {
        let title = format!("Hit ratio against {base}, in percentage points");
        let map = HeatMap::differences(title, Better::Higher).digits(2);
        charts.push(heat(map, &sizes, hits, -1.0));
    }
    if all.iter().any(|results| results.rows.iter().any(|row| row.writes > 0)) {
        let title = format!("Pages written below as a multiple of {base}'s");
        charts.push(heat(HeatMap::ratios(title, Better::Lower), &sizes, writes, 1.0));
    }
    let marks = [Role::Offline, Role::WriteBuffer].into_iter();
    let present = |role: &Role| all.iter().any(|results| results.rows.iter().any(|row| Role::of(row) == *role));
    let meanings: Vec<&str> = marks.filter(present).map(Role::meaning).collect();
    let section = Section::new(heading).grid(charts);
    if meanings.is_empty() { section } else { section.text(format!("{}.", meanings.join("; "))) }
}

/// The rows as a heat map; `sign` is 1 if low values are better, -1 if high ones are. The best come first.
fn heat(map: HeatMap, sizes: &[String], mut rows: Vec<(String, Vec<f64>)>, sign: f64) -> Chart {
    let mean = |values: &[f64]| {
        let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        if finite.is_empty() { f64::INFINITY } else { sign * finite.iter().sum::<f64>() / finite.len() as f64 }
    };
    rows.sort_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)));
    let map = map.columns("cache size", sizes.iter().cloned());
    rows.into_iter().fold(map, |map, (name, values)| map.row(name, values)).into()
}

/// All numbers, one row per result: the table of the page and the CSV file.
pub fn table(all: &[TraceResults], with_trace: bool) -> Table {
    let number = |name: &str, help: &str| Column::number(name).help(help);
    let rows = all.iter().flat_map(|results| results.rows.iter().map(|row| (results.named.name.as_str(), row)));
    let any = |count: fn(&Row) -> u64| all.iter().flat_map(|results| &results.rows).any(|row| count(row) > 0);
    let (throughs, arounds) = (number("write_throughs", THROUGHS), number("write_arounds", AROUNDS));
    Table::of("results", rows)
        .column_if(with_trace, Column::text("trace"), |(trace, _)| *trace)
        .column(Column::text("policy"), |(_, row)| row.policy.clone())
        .column(Column::text("options"), |(_, row)| row.options.clone())
        .column(Column::text("size"), |(_, row)| row.size.clone())
        .column(number("capacity_pages", "capacity of all tiers, in pages"), |(_, row)| row.capacity_pages)
        .column(number("hit_ratio", "hits of both kinds per request"), |(_, row)| Cell::percent(row.hit_ratio(), 2))
        .column(number("requests", "page requests after the warm-up"), |(_, row)| row.requests)
        .column(number("reads", "of them reads"), |(_, row)| row.reads)
        .column(number("writes", "of them writes, whole or partial"), |(_, row)| row.writes)
        .column(number("read_hits", "reads found in any tier"), |(_, row)| row.read_hits)
        .column(number("write_hits", "writes whose page was found in any tier"), |(_, row)| row.write_hits)
        .column(number("fetches", "pages read from the level below"), |(_, row)| row.fetches)
        .column(number("admissions", "misses whose page was admitted"), |(_, row)| row.admissions)
        .column(number("bypasses", "requests that went past all tiers"), |(_, row)| row.bypasses)
        .column(number("write_backs", WRITE_BACKS), |(_, row)| row.write_backs)
        .column(number("write_back_ios", "I/Os by which they were written"), |(_, row)| row.write_back_ios)
        .column(number("write_bypasses", "pages written below at once"), |(_, row)| row.write_bypasses)
        .column_if(any(|row| row.write_throughs), throughs, |(_, row)| row.write_throughs)
        .column_if(any(|row| row.write_arounds), arounds, |(_, row)| row.write_arounds)
        .column(number("dirty_at_end", "pages newer than the level below at the end"), |(_, row)| row.dirty_at_end)
        .column(number("migrated", MIGRATED), |(_, row)| row.migrated())
        .column(number("cpu_seconds", "processor time of the simulation"), |(_, row)| Cell::fixed(row.cpu_seconds, 3))
        .done()
}

const WRITE_BACKS: &str = "pages written below by evictions, cleaning and flush rules";
const THROUGHS: &str = "writes that the mode sent below at once, and to the cache as the policy decided";
const AROUNDS: &str = "writes that the mode sent below at once, and not to the cache, which did not hold the page";
const MIGRATED: &str = "pages moved between the level below and the tiers, both ways";
