//! The results of a simulation with time: on a terminal, as a table for a file, and as a page.

use super::report_parts;
use super::report_series;
use super::results::label;
use super::timed::{TimedResult, TimedResults};
use crate::output;
use crate::trace_source;
use entresol_report::{Axis, BarChart, BarLayout, Cell, Column, NumberFormat, Page, Section, Table, TextStyle};
use entresol_sim::{DeviceRow, LatencyRow, Row};

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

/// One line per result.
pub fn table(all: &[TimedResults]) -> Table {
    requests(all, true)
}

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

/// The columns that identify the result of a line.
fn which(several: bool) -> Vec<Column> {
    let trace = several.then(|| Column::text("trace"));
    trace.into_iter().chain([Column::text("policy"), Column::text("size")]).collect()
}

fn whose(results: &TimedResults, result: &TimedResult, several: bool) -> Vec<Cell> {
    let trace = several.then(|| results.named.name.clone().into());
    trace.into_iter().chain([label(&result.row).into(), result.row.size.clone().into()]).collect()
}

fn each(all: &[TimedResults]) -> impl Iterator<Item = (&TimedResults, &TimedResult)> {
    all.iter().flat_map(|results| results.rows.iter().map(move |result| (results, result)))
}

fn requests(all: &[TimedResults], several: bool) -> Table {
    let columns = [
        Column::number("requests/s"),
        Column::number("mean us").help("Mean latency of a request, in microseconds"),
        Column::number("p99 us").help("99th percentile of the latency of a request, in microseconds"),
        Column::number("hit ratio"),
        Column::number("read cache us").help(READ_CACHE).priority(2),
        Column::number("requests").priority(3),
        Column::number("seconds").help("Virtual time from the end of the warm-up to the last completion").priority(4),
    ];
    let mut table = Table::new("Requests", which(several).into_iter().chain(columns));
    for (results, result) in each(all) {
        let TimedResult { row, timed } = result;
        let overall = &timed.latencies[0];
        let cells = [
            Cell::fixed(timed.requests_per_second, 1),
            Cell::fixed(overall.mean_us, 2),
            us(overall.p99_us),
            Cell::percent(row.hit_ratio(), 2),
            Cell::fixed(timed.read_cache_latency_us, 3),
            timed.requests.into(),
            Cell::fixed(timed.elapsed_seconds, 3),
        ];
        table.push(whose(results, result, several).into_iter().chain(cells));
    }
    table
}

fn us(value: Option<f64>) -> Cell {
    value.map_or_else(Cell::missing, |us| Cell::fixed(us, 2))
}

fn latencies(all: &[TimedResults], several: bool) -> Table {
    let columns = [
        Column::text("found in"),
        Column::number("requests"),
        Column::number("mean us"),
        Column::number("p50 us"),
        Column::number("p95 us"),
        Column::number("p99 us"),
        Column::number("p99.9 us"),
        Column::number("max us"),
    ];
    let mut table = Table::new("Latencies", which(several).into_iter().chain(columns));
    for (results, result) in each(all) {
        for LatencyRow { name, count, mean_us, p50_us, p95_us, p99_us, p999_us, max_us } in &result.timed.latencies {
            let mean = if *count == 0 { Cell::missing() } else { Cell::fixed(*mean_us, 2) };
            let figures = [mean, us(*p50_us), us(*p95_us), us(*p99_us), us(*p999_us), Cell::fixed(*max_us, 2)];
            let own = [Cell::from(name.clone()), (*count).into()].into_iter().chain(figures);
            table.push(whose(results, result, several).into_iter().chain(own));
        }
    }
    table
}

fn devices(all: &[TimedResults], several: bool) -> Table {
    let columns = [
        Column::text("device"),
        Column::number("utilisation").help("Share of the time with at least one I/O under way"),
        Column::number("reads").priority(4),
        Column::number("writes").priority(4),
        Column::number("I/Os per s").priority(5),
        Column::number("mean write").help("Mean size of a write, in bytes").priority(1),
        Column::number("sequential").help("Share of the writes that began where the one before ended").priority(1),
        Column::number("read us").help("Mean latency of a read, in microseconds").priority(3),
        Column::number("write us").help("Mean latency of a write, in microseconds").priority(3),
        Column::text("WAF").help(WAF).priority(2),
        Column::number("years").help("Until its endurance is used up at this rate").priority(6),
    ];
    let mut table = Table::new("Devices", which(several).into_iter().chain(columns));
    for (results, result) in each(all) {
        for device in &result.timed.devices {
            table.push(whose(results, result, several).into_iter().chain(device_cells(device)));
        }
    }
    table
}

fn device_cells(device: &DeviceRow) -> [Cell; 11] {
    let of = |count: u64, cell: Cell| if count == 0 { Cell::missing() } else { cell };
    [
        device.name.clone().into(),
        Cell::percent(device.utilisation, 1),
        device.reads.into(),
        device.writes.into(),
        Cell::fixed(device.ios_per_second, 1),
        of(device.writes, Cell::fixed(device.mean_write_bytes, 0)),
        of(device.writes, Cell::percent(device.sequential_writes, 1)),
        of(device.reads, Cell::fixed(device.mean_read_us, 2)),
        of(device.writes, Cell::fixed(device.mean_write_us, 2)),
        device.waf_mode.map_or_else(Cell::missing, |mode| format!("{:.2} {mode}", device.write_amplification).into()),
        device.lifetime_years.map_or_else(Cell::missing, |years| Cell::fixed(years, 2)),
    ]
}
