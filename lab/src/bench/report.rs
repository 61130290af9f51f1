//! Report of a benchmark with a TPC-C-like load: on the terminal, as JSON and as a page.

use super::parts::{Asked, device_table, distinct, median};
use super::span::joined;
use super::testbed::{Testbed, mib};
use super::tpcc::{LoadArgs, Measured};
use super::variant::{Devices, Variant};
use anyhow::Result;
use entresol_bench::tpcc::Kind;
use entresol_cli::shared as output;
use entresol_render::{
    Axis, BarChart, BarLayout, Cell, Column, LineChart, NumberFormat, Page, Section, Series, Table, TextStyle, Tone,
};
use serde_json::{Value, json};

pub struct Report<'a> {
    pub arguments: &'a LoadArgs,
    pub testbed: &'a Testbed,
    pub runs: Vec<&'a Measured>,
}

/// A run in a line, for printing as soon as it is over.
pub fn line(run: &Measured) -> String {
    let hits = run.span.hits();
    format!(
        "{}, run {}: {:.0} new orders/min, {:.0} transactions/s{hits}{}",
        run.variant.name(),
        run.repeat,
        run.ran.new_orders_a_minute(),
        run.ran.transactions_a_second(),
        if run.faults.is_empty() { "" } else { ": NOT SOUND" }
    )
}

impl Report<'_> {
    pub fn variants(&self) -> Vec<&Variant> {
        distinct(self.runs.iter().map(|run| &run.variant))
    }

    pub fn of<'b>(&'b self, variant: &'b Variant) -> impl Iterator<Item = &'b Measured> {
        self.runs.iter().copied().filter(move |run| run.variant == *variant)
    }

    pub fn middle(&self, variant: &Variant, value: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.of(variant).filter_map(value).collect();
        (!values.is_empty()).then(|| median(values))
    }

    pub fn rate(&self, variant: &Variant) -> f64 {
        self.middle(variant, |run| Some(run.ran.new_orders_a_minute())).unwrap_or_default()
    }

    /// The table of runs. The first variant is the baseline of the others.
    fn table(&self) -> Table {
        let first = self.variants()[0];
        let columns = [
            Column::text("cache"),
            Column::number("new orders/min").help("committed; medians where there are several runs"),
            Column::number(format!("against {}", first.name())),
            Column::number("transactions/s"),
            Column::number("p50 ms").help("New-Order"),
            Column::number("p99 ms").help("New-Order"),
            Column::number("hit ratio"),
            Column::number("read hit ratio"),
            Column::number("write reduction").help("pages that were written but never below"),
            Column::number("retries"),
            Column::text("checks"),
        ];
        let mut table = Table::new(format!("TPC-C-like load on {}", self.server()), columns);
        for variant in self.variants() {
            let optional = |value: Option<f64>| value.map_or_else(Cell::missing, |value| Cell::percent(value, 1));
            let latency = |q: f64| {
                self.middle(variant, |run| Some(run.ran.tallies[0].latency.quantile(q) as f64 / 1e6))
                    .unwrap_or_default()
            };
            let sound = self.of(variant).all(|run| run.faults.is_empty());
            table.push([
                Cell::from(variant.name()),
                Cell::fixed(self.rate(variant), 0),
                Cell::short(self.rate(variant) / self.rate(first), NumberFormat::Factor),
                Cell::fixed(self.middle(variant, |run| Some(run.ran.transactions_a_second())).unwrap_or_default(), 1),
                Cell::fixed(latency(0.5), 2),
                Cell::fixed(latency(0.99), 2),
                optional(self.middle(variant, |run| Some(run.span.figures.cache?.hit_ratio()))),
                optional(self.middle(variant, |run| Some(run.span.figures.cache?.read_hit_ratio()))),
                optional(self.middle(variant, |run| Some(run.span.figures.cache?.write_reduction()))),
                self.of(variant).map(|run| run.ran.retries()).sum::<u64>().into(),
                if sound { Cell::from("sound").tone(Tone::Good) } else { Cell::from("BROKEN").tone(Tone::Bad) },
            ]);
        }
        table
    }

    pub fn device_table(&self) -> Option<Table> {
        device_table(self.runs.iter().map(|run| Asked {
            of: run.variant.name().to_owned(),
            cache: run.span.figures.cache_device,
            backing: run.span.figures.backing_device,
            seconds: run.span.seconds,
        }))
    }

    pub fn latency_table(&self) -> Table {
        let columns = [
            Column::text("cache"),
            Column::text("transaction"),
            Column::number("committed"),
            Column::number("rolled back"),
            Column::number("p50 ms"),
            Column::number("p90 ms"),
            Column::number("p99 ms"),
            Column::number("max ms"),
        ];
        let mut table = Table::new("Latency of each kind of transaction", columns);
        for run in &self.runs {
            for (kind, tally) in Kind::ALL.iter().zip(&run.ran.tallies) {
                let ms = |ns: u64| Cell::fixed(ns as f64 / 1e6, 2);
                table.push([
                    Cell::from(run.variant.name()),
                    Cell::from(kind.name()),
                    tally.committed.into(),
                    tally.rolled_back.into(),
                    ms(tally.latency.quantile(0.5)),
                    ms(tally.latency.quantile(0.9)),
                    ms(tally.latency.quantile(0.99)),
                    ms(tally.latency.max()),
                ]);
            }
        }
        table
    }

    pub fn over_time(&self) -> LineChart {
        let time = Axis::new("seconds", NumberFormat::Count);
        let per_second = Axis::new("transactions per second", NumberFormat::Count);
        let mut over_time = LineChart::new("Throughput over time, first runs, warm-up included", time, per_second);
        for run in self.runs.iter().filter(|run| run.repeat == 1) {
            let points = run.ran.seconds.iter().enumerate().map(|(at, second)| (at as f64, second.committed as f64));
            over_time = over_time.series(Series::new(run.variant.name(), points));
        }
        over_time
    }

    pub fn setting(&self) -> Vec<(&'static str, String)> {
        setting(self.arguments, self.testbed).into_iter().chain(self.recorded()).collect()
    }

    fn recorded(&self) -> Option<(&'static str, String)> {
        let runs = self.runs.iter().map(|run| (&run.span, run.ran.new_orders_a_minute() / 60.0));
        self.testbed.recorded(runs, "new order")
    }

    pub fn server(&self) -> &'static str {
        self.testbed.server.name()
    }
}

/// Description of the load, the cache and the devices, for readers of the results.
pub fn setting(arguments: &LoadArgs, on: &Testbed) -> Vec<(&'static str, String)> {
    let LoadArgs { warehouses, shrink, run, .. } = arguments;
    let shrunk = if *shrink > 1 { format!(", its tables shrunk by {shrink}") } else { String::new() };
    let Devices { page_size, pages, .. } = on.devices;
    let (server, bytes) = (on.server.name(), mib(on.loaded_bytes));
    let mut setting = vec![
        ("database", format!("{server}, {warehouses} warehouses{shrunk}, {bytes}")),
        ("clients", format!("{}, without think times, seed {}", run.clients, run.testbed.seed)),
        ("cache", format!("{pages} pages of {page_size} B, {}", mib(pages * u64::from(page_size)))),
    ];
    setting.extend(on.setting(&run.testbed));
    setting
}

pub fn text(report: &Report) -> String {
    tables(&report.table(), report.device_table(), report.setting())
}

/// Text of a report on a TPC-C-like load: its table, that of emulated devices if there are any, and the setting.
pub fn tables(runs: &Table, devices: Option<Table>, setting: Vec<(&'static str, String)>) -> String {
    let mut text = runs.to_text(TextStyle::stdout());
    if let Some(devices) = devices {
        text += "\n";
        text += &devices.to_text(TextStyle::stdout());
    }
    text += "\n";
    for (name, value) in setting {
        text += &format!("{name}: {value}\n");
    }
    text + "TPC-C-like: not audited, not comparable with published results.\n"
}

pub fn page(report: &Report) -> Page {
    let variants = report.variants();
    let rates = Axis::new("new orders per minute", NumberFormat::Count);
    let rates = BarChart::new("Throughput", rates, BarLayout::Grouped, variants.iter().map(|variant| variant.name()))
        .series("median", variants.iter().map(|variant| report.rate(variant)));
    let title = format!("TPC-C-like load on {}", report.server());
    let mut page = Page::new(title)
        .command(output::command_line())
        .section(Section::new("Summary").table(report.table()).chart(rates))
        .section(Section::new("Over time").chart(report.over_time()))
        .section(Section::new("Latency").table(report.latency_table()));
    if let Some(devices) = report.device_table() {
        page = page.section(Section::new("Devices").table(devices));
    }
    page.section(Section::new("How it was run").facts(report.setting()).note(
        "The five transactions of TPC-C in its mix, without think times and drawn over all warehouses. Nobody audited it, \
         and it must not be compared with published results; what can be compared are the runs on this page.",
    ))
}

/// The figures of a run.
fn run_json(run: &Measured) -> Value {
    let kinds = Kind::ALL.iter().zip(&run.ran.tallies).map(|(kind, tally)| {
        let q = |q: f64| tally.latency.quantile(q);
        let value = json!({
            "committed": tally.committed, "rolled_back": tally.rolled_back, "retries": tally.retries,
            "latency_ns": {"p50": q(0.5), "p90": q(0.9), "p95": q(0.95), "p99": q(0.99), "p999": q(0.999),
                "max": tally.latency.max()},
        });
        (kind.name().to_owned(), value)
    });
    let all = json!({
        "cache": run.variant.name(), "repeat": run.repeat, "counted_s": run.ran.counted.as_secs_f64(),
        "new_orders_per_minute": run.ran.new_orders_a_minute(),
        "transactions_per_second": run.ran.transactions_a_second(),
        "server_ready_s": run.ready.as_secs_f64(),
        "per_second": run.ran.seconds.iter().map(|s| json!([s.new_orders, s.committed])).collect::<Vec<_>>(),
        "transactions": kinds.collect::<serde_json::Map<_, _>>(),
        "faults": run.faults,
    });
    joined(all, run.span.json())
}

pub fn figures(report: &Report) -> Value {
    let setting: serde_json::Map<_, _> =
        report.setting().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    json!({
        "command": output::command_line(), "setting": setting, "database_bytes": report.testbed.loaded_bytes,
        "cache_pages": report.testbed.devices.pages, "page_bytes": report.testbed.devices.page_size,
        "runs": report.runs.iter().map(|run| run_json(run)).collect::<Vec<_>>(),
    })
}

pub fn json(report: &Report) -> Result<String> {
    Ok(serde_json::to_string_pretty(&figures(report))? + "\n")
}
