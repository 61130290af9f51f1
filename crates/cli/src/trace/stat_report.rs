//! Report that `entresol trace stat` prints and draws.

use crate::output;
use crate::trace_source::{self, Named};
use entresol_render::{
    Axis, Cell, Chart, Column, Curve, Histogram, LineChart, NumberFormat, Page, Panel, Section, Series, Spread, Table,
    TableOf, TextStyle, TimeSeries, grouped, percent,
};
use entresol_trace::Stat;
use entresol_trace::stat::{Log2Histogram, QueryClass, Tally};

/// The statistics for a terminal.
pub fn text(named: &Named, stat: &Stat) -> String {
    let mut text = format!("{}\n\n", trace_source::describe(named));
    for (name, value) in facts(stat) {
        text += &format!("{name:<32} {value}\n");
    }
    for table in tables(stat) {
        text += &format!("\n{}", table.to_text(TextStyle::stdout()));
    }
    text
}

/// The statistics as a page.
pub fn page(named: &Named, stat: &Stat) -> Page {
    let mut page = Page::new(format!("Trace {}", named.name))
        .subtitle(trace_source::facts(named))
        .command(output::command_line())
        .section(Section::new("Summary").facts(facts(stat)));
    if !named.left_out.is_empty() {
        let clauses = named.left_out.iter().map(|clause| ("of the trace", clause.clone()));
        page = page.section(Section::new("Left out").facts(clauses));
    }
    page = page.section(charts(stat, "Charts".to_owned()));
    let tables = tables(stat);
    if tables.is_empty() {
        return page;
    }
    page.section(tables.into_iter().fold(Section::new("Tables"), Section::table))
}

fn facts(stat: &Stat) -> Vec<(String, String)> {
    let total = &stat.total;
    let count = |value: u64| grouped(i128::from(value));
    let ratio = |value: Option<f64>| value.map_or("no writes".to_owned(), |value| format!("{value:.3}"));
    let mut facts = vec![
        ("page requests".to_owned(), count(total.page_requests)),
        ("I/Os".to_owned(), count(stat.ios)),
        ("mean I/O size".to_owned(), NumberFormat::Bytes.short(total.mean_io_bytes)),
        ("reads".to_owned(), count(total.reads.page_requests)),
        ("writes".to_owned(), count(total.writes.page_requests)),
        ("of them partial".to_owned(), count(stat.updates)),
        ("reads per write".to_owned(), ratio(stat.read_write_ratio)),
        ("footprint, pages".to_owned(), count(total.unique_pages)),
        ("footprint, bytes".to_owned(), NumberFormat::Bytes.short(total.unique_bytes as f64)),
        ("repeat access rate".to_owned(), format!("{:.3}", total.repeat_access_rate)),
        ("sequential share of reads".to_owned(), percent(total.reads.sequential_share, 1)),
        ("sequential share of writes".to_owned(), percent(total.writes.sequential_share, 1)),
        ("peak temporal distance, requests".to_owned(), count(u64::from(stat.peak_temporal_distance))),
    ];
    if let Some(span) = stat.span_us {
        facts.push(("time span".to_owned(), NumberFormat::Seconds.short(span as f64 / 1e6)));
    }
    for point in stat.spread.all.skew.iter().filter(|point| [1.0, 5.0, 10.0, 20.0, 50.0].contains(&point.percent)) {
        facts.push((format!("hottest {} % of pages get", point.percent), percent(point.share, 1)));
    }
    facts
}

/// A table over parts of a trace. `of` gives the name and the figures of each.
fn tallies<'s, T>(
    name: &str,
    kind: &str,
    parts: &'s [T],
    of: impl Fn(&'s T) -> (&'s str, &'s Tally),
) -> TableOf<(&'s T, &'s str, &'s Tally)> {
    let items = parts.iter().map(|part| {
        let (name, tally) = of(part);
        (part, name, tally)
    });
    Table::of(name, items)
        .column(Column::text(kind), |(_, name, _)| *name)
        .column(Column::number("requests"), |(.., tally)| tally.page_requests)
        .column(Column::number("reads").priority(3), |(.., tally)| tally.reads.page_requests)
        .column(Column::number("writes").priority(2), |(.., tally)| tally.writes.page_requests)
        .column(Column::number("pages"), |(.., tally)| tally.unique_pages)
        .column(Column::number("accessed"), |(.., t)| Cell::short(t.accessed_bytes as f64, NumberFormat::Bytes))
        .column(Column::number("repeat rate"), |(.., tally)| Cell::fixed(tally.repeat_access_rate, 2))
        .column(Column::number("sequential reads").priority(1), |(.., t)| Cell::percent(t.reads.sequential_share, 1))
        .column(Column::number("sequential writes").priority(4), |(.., t)| Cell::percent(t.writes.sequential_share, 1))
}

fn tables(stat: &Stat) -> Vec<Table> {
    let class = |class: Option<QueryClass>| match class {
        None => "no request",
        Some(QueryClass::Sequential) => "sequentially read",
        Some(QueryClass::Random) => "randomly read",
        Some(QueryClass::RandomRepeated) => "randomly and repeatedly read",
    };
    let objects = tallies("Per object", "object", &stat.objects, |object| (&object.name, &object.tally)).done();
    let queries = tallies("Per query", "query", &stat.queries, |query| (&query.label, &query.tally))
        .column(Column::text("class"), |(query, ..)| class(query.class))
        .done();
    let wanted = [(stat.objects.len() > 1, objects), (!stat.queries.is_empty(), queries)];
    wanted.into_iter().filter_map(|(wanted, table)| wanted.then_some(table)).collect()
}

/// The charts of a trace: temporal distances (004 fig. 4.2), frequency (fig. 4.3), skew (003 fig. 3), working set.
pub fn charts(stat: &Stat, heading: String) -> Section {
    let counts = |histogram: &Log2Histogram| histogram.buckets.iter().map(|bucket| bucket.count).collect::<Vec<_>>();
    let distances = &stat.distances;
    let mut distance = Histogram::new("Temporal distance", "distinct pages in between", NumberFormat::Binary);
    for (name, histogram) in [
        ("read after read", &distances.read_after_read),
        ("write after write", &distances.write_after_write),
        ("read after write", &distances.read_after_write),
        ("write after read", &distances.write_after_read),
    ] {
        if histogram.count > 0 {
            distance = distance.series(name, counts(histogram));
        }
    }
    let spreads =
        [("reads and writes", &stat.spread.all), ("reads", &stat.spread.reads), ("writes", &stat.spread.writes)];
    let pages = || Axis::new("share of the pages", NumberFormat::Percent);
    let mut frequency = LineChart::new(
        "Frequency of access",
        Axis::new("accesses to a page, at least", NumberFormat::Binary).spread(Spread::Log2),
        pages().spread(Spread::Log10),
    );
    let mut skew = LineChart::new(
        "Skew: accesses to the hottest pages",
        pages().at_least(0.0, 1.0),
        Axis::new("share of the accesses", NumberFormat::Percent).at_least(0.0, 1.0),
    );
    for (name, spread) in spreads.iter().filter(|(_, spread)| !spread.skew.is_empty()) {
        let points = spread.frequency.iter().map(|point| (point.at_least as f64, point.pages_share));
        frequency = frequency.series(Series::new(*name, points));
        let points = spread.skew.iter().map(|point| (point.percent / 100.0, point.share));
        skew = skew.series(Series::new(*name, [(0.0, 0.0)].into_iter().chain(points)));
    }
    let lru = LineChart::new(
        "Miss ratio of LRU",
        Axis::new("cache size", NumberFormat::Bytes).spread(Spread::Log2),
        Axis::new("misses per request", NumberFormat::Percent).at_least(0.0, 1.0),
    );
    let bytes = |pages: u64| pages as f64 * f64::from(stat.page_bytes);
    let points = stat.lru_curve.iter().map(|point| (bytes(point.capacity_pages), point.miss_ratio));
    let lru = lru.series(Series::new("lru", points)).curve(Curve::Step);
    let grid: [Chart; 4] = [distance.into(), frequency.into(), skew.into(), lru.into()];
    Section::new(heading).grid(grid).chart(working_set(stat))
}

fn working_set(stat: &Stat) -> TimeSeries {
    let points = |of: fn(&entresol_trace::stat::Window) -> u64| -> Vec<(f64, f64)> {
        stat.working_set.iter().map(|window| (window.end as f64, of(window) as f64)).collect()
    };
    let pages = Panel::new(Axis::new("pages per window", NumberFormat::Count).at_least(0.0, 0.0))
        .series(Series::new("working set", points(|window| window.unique_pages)))
        .series(Series::new("pages never seen before", points(|window| window.new_pages)));
    let requests = Panel::new(Axis::new("requests per window", NumberFormat::Count).at_least(0.0, 0.0))
        .series(Series::new("reads", points(|window| window.reads)))
        .series(Series::new("writes", points(|window| window.writes)));
    TimeSeries::new("Working set", Axis::new("requests", NumberFormat::Count)).panel(pages).panel(requests)
}
