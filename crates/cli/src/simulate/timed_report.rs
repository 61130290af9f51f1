//! The results of a simulation with time: on a terminal, as a table for a file, and as a page.

use super::report_parts;
use super::report_series;
use super::results::label;
use super::timed::{TimedResult, TimedResults};
use crate::output;
use crate::trace_source;
use entresol_render::{
    Axis, BarChart, BarLayout, Cell, Column, NumberFormat, Page, Section, Table, TableOf, TextStyle,
};
use entresol_sim::{DeviceRow, Row};

const READ_CACHE: &str = "Average read cache latency, 004 fig. 4.8: over the tiers, a read's mean latency times the \
                          share of all reads found there. Misses add nothing: it compares devices, not policies";

/// The report for a terminal: figures of the requests, and work of the devices.
pub fn text(results: &TimedResults) -> String {
    let rows = requests(std::slice::from_ref(results), false).to_text(TextStyle::stdout());
    let devices = devices(std::slice::from_ref(results), false).to_text(TextStyle::stdout());
    format!("{}\n{rows}\n{devices}", trace_source::describe(&results.named))
}

/// The page of all traces.
pub fn page(all: &[TimedResults]) -> Page {
    let title = all.iter().map(|results| results.named.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut page = Page::new(format!("Simulation of {title} with time")).command(output::command_line());
    if all.len() == 1 {
        page = page.subtitle(trace_source::facts(&all[0].named));
    }
    for results in all {
        let heading = match all.len() {
            1 => "Throughput and latency".to_owned(),
            _ => format!("{}: throughput and latency", results.named.name),
        };
        page = page.section(charts(results, heading));
        let heading =
            |text: &str| if all.len() == 1 { text.to_owned() } else { format!("{}: {text}", results.named.name) };
        let rows: Vec<&Row> = results.rows.iter().map(|result| &result.row).collect();
        let more = [
            report_series::section(&rows, None, heading("Over the trace")),
            report_parts::section(&rows, heading("Per table and per query")),
        ];
        page = more.into_iter().flatten().fold(page, Page::section);
        if !results.skipped.is_empty() {
            let reasons = results.skipped.iter();
            let facts = reasons.map(|skip| (format!("{} at {}", skip.policy, skip.size), skip.error.to_string()));
            page = page.section(Section::new(format!("{}: left out", results.named.name)).facts(facts));
        }
    }
    let several = all.len() > 1;
    page.section(Section::new("Requests").text(REQUESTS).table(requests(all, several)))
        .section(Section::new("Requests by where they were found").text(FOUND).table(latencies(all, several)))
        .section(Section::new("Devices").text(DEVICES).table(devices(all, several)))
}

const REQUESTS: &str = "A request's latency is from its arrival to its completion, waiting for a full background window \
                        included. A percentile is left out with fewer than 10 requests beyond it.";
const WAF: &str = "Bytes programmed per byte written to flash: mech counts the pages that its cleaning \
                   moved, curve is the drive's measured figure for writes of that size";
const FOUND: &str = "The same latencies apart for each tier, and for requests served by the level below.";
const DEVICES: &str = "Filling, demotion, write-back and cleaning run behind the requests on the same devices. \
                       Utilisation is the share of the time with at least one I/O under way; sequential is an I/O that \
                       begins where the one before it, of its kind, ended.";

fn name(result: &TimedResult) -> String {
    format!("{} {}", label(&result.row), result.row.size)
}

fn charts(results: &TimedResults, heading: String) -> Section {
    let rows = &results.rows;
    let throughput = BarChart::new(
        "Throughput",
        Axis::new("requests per second", NumberFormat::Count),
        BarLayout::Grouped,
        rows.iter().map(name),
    )
    .series("requests per second", rows.iter().map(|result| result.timed.requests_per_second));
    let seconds = |us: Option<f64>| us.map_or(f64::NAN, |us| us / 1e6);
    let latency = BarChart::new(
        "Latency",
        Axis::new("latency of a request", NumberFormat::Seconds),
        BarLayout::Grouped,
        rows.iter().map(name),
    )
    .series("mean", rows.iter().map(|result| seconds(Some(result.timed.latencies[0].mean_us))))
    .series("99th percentile", rows.iter().map(|result| seconds(result.timed.latencies[0].p99_us)));
    let busy = rows.first().map_or(0, |result| result.timed.devices.len());
    let mut utilisation = BarChart::new(
        "Utilisation",
        Axis::new("share of the time with an I/O under way", NumberFormat::Percent).at_least(0.0, 1.0),
        BarLayout::Grouped,
        rows.iter().map(name),
    );
    for at in 0..busy {
        // Two-tier policies and stacks name their tiers differently, but the devices are the same.
        let device = device_name(&rows[0].timed.devices[at].name);
        let shares = rows.iter().map(|result| result.timed.devices.get(at).map_or(f64::NAN, |row| row.utilisation));
        utilisation = utilisation.series(format!("{} {device}", at + 1), shares);
    }
    Section::new(heading).chart(throughput).chart(latency).chart(utilisation)
}

/// `tier (device)` without the tier.
fn device_name(name: &str) -> &str {
    name.rsplit_once('(').map_or(name, |(_, device)| device.trim_end_matches(')'))
}

/// A table over results, with the columns that identify each.
fn over<'r, T>(
    name: &str,
    all: &'r [TimedResults],
    several: bool,
    parts: impl Fn(&'r TimedResult) -> &'r [T],
) -> TableOf<(&'r str, &'r TimedResult, &'r T)> {
    let each = all.iter().flat_map(|results| results.rows.iter().map(move |result| (results, result)));
    let items = each.flat_map(|(results, result)| {
        parts(result).iter().map(move |part| (results.named.name.as_str(), result, part))
    });
    Table::of(name, items)
        .column_if(several, Column::text("trace"), |(trace, ..)| *trace)
        .column(Column::text("policy"), |(_, result, _)| label(&result.row))
        .column(Column::text("size"), |(_, result, _)| result.row.size.clone())
}

/// A table with a line per result.
pub fn requests(all: &[TimedResults], several: bool) -> Table {
    let number = |name: &str, help: &str| Column::number(name).help(help);
    let seconds = number("seconds", "Virtual time from the end of the warm-up to the last completion").priority(4);
    over("Requests", all, several, |result| std::slice::from_ref(&result.timed))
        .column(Column::number("requests/s"), |(.., timed)| Cell::fixed(timed.requests_per_second, 1))
        .column(number("mean us", MEAN), |(.., timed)| Cell::fixed(timed.latencies[0].mean_us, 2))
        .column(number("p99 us", P99), |(.., timed)| us(timed.latencies[0].p99_us))
        .column(Column::number("hit ratio"), |(_, result, _)| Cell::percent(result.row.hit_ratio(), 2))
        .column(number("read cache us", READ_CACHE).priority(2), |(.., t)| Cell::fixed(t.read_cache_latency_us, 3))
        .column(Column::number("requests").priority(3), |(.., timed)| timed.requests)
        .column(seconds, |(.., timed)| Cell::fixed(timed.elapsed_seconds, 3))
        .done()
}

const MEAN: &str = "Mean latency of a request, in microseconds";
const P99: &str = "99th percentile of the latency of a request, in microseconds";

fn us(value: Option<f64>) -> Cell {
    value.map(|us| Cell::fixed(us, 2)).into()
}

fn latencies(all: &[TimedResults], several: bool) -> Table {
    over("Latencies", all, several, |result| &result.timed.latencies)
        .column(Column::text("found in"), |(.., row)| row.name.clone())
        .column(Column::number("requests"), |(.., row)| row.count)
        .column(Column::number("mean us"), |(.., row)| us((row.count > 0).then_some(row.mean_us)))
        .column(Column::number("p50 us"), |(.., row)| us(row.p50_us))
        .column(Column::number("p95 us"), |(.., row)| us(row.p95_us))
        .column(Column::number("p99 us"), |(.., row)| us(row.p99_us))
        .column(Column::number("p99.9 us"), |(.., row)| us(row.p999_us))
        .column(Column::number("max us"), |(.., row)| us(Some(row.max_us)))
        .done()
}

fn devices(all: &[TimedResults], several: bool) -> Table {
    let number = |name: &str, priority, help: &str| Column::number(name).priority(priority).help(help);
    let of = |count: u64, cell: Cell| if count == 0 { Cell::missing() } else { cell };
    let waf = |d: &DeviceRow| d.waf_mode.as_ref().map(|mode| format!("{:.2} {mode}", d.write_amplification));
    let sequential = number("sequential", 1, "Share of the writes that began where the one before ended");
    let write_size = number("mean write", 1, "Mean size of a write, in bytes");
    let years = number("years", 6, "Until its endurance is used up at this rate");
    over("Devices", all, several, |result| &result.timed.devices)
        .column(Column::text("device"), |(.., d)| d.name.clone())
        .column(number("utilisation", 0, BUSY), |(.., d)| Cell::percent(d.utilisation, 1))
        .column(Column::number("reads").priority(4), |(.., d)| d.reads)
        .column(Column::number("writes").priority(4), |(.., d)| d.writes)
        .column(Column::number("I/Os per s").priority(5), |(.., d)| Cell::fixed(d.ios_per_second, 1))
        .column(write_size, |(.., d)| of(d.writes, Cell::fixed(d.mean_write_bytes, 0)))
        .column(sequential, |(.., d)| of(d.writes, Cell::percent(d.sequential_writes, 1)))
        .column(number("read us", 3, READ_US), |(.., d)| of(d.reads, Cell::fixed(d.mean_read_us, 2)))
        .column(number("write us", 3, WRITE_US), |(.., d)| of(d.writes, Cell::fixed(d.mean_write_us, 2)))
        .column(Column::text("WAF").help(WAF).priority(2), |(.., d)| waf(d))
        .column(years, |(.., d)| us(d.lifetime_years))
        .done()
}

const BUSY: &str = "Share of the time with at least one I/O under way";
const READ_US: &str = "Mean latency of a read, in microseconds";
const WRITE_US: &str = "Mean latency of a write, in microseconds";
