//! Report of a benchmark by an external load generator: on the terminal, as JSON and as a page.

use super::outside::Measured;
use super::parts::{Asked, device_table, median};
use super::span::joined;
use super::testbed::{RunArgs, Testbed, mib};
use super::variant::{Devices, Variant};
use anyhow::Result;
use entresol_cli::shared as output;
use entresol_render::{
    Axis, BarChart, BarLayout, Cell, Column, LineChart, NumberFormat, Page, Section, Series, Table, TextStyle, Tone,
};
use serde_json::{Value, json};

pub struct Report<'a> {
    pub arguments: &'a RunArgs,
    /// The program, its load and its database.
    pub what: &'a str,
    pub testbed: &'a Testbed,
    pub runs: &'a [Measured],
}

/// A run in a line, for printing as soon as it is over.
pub fn line(run: &Measured) -> String {
    let hits = run.span.hits();
    let sound = if run.faults.is_empty() { "" } else { ": NOT SOUND" };
    let (name, rate) = (run.variant.name(), run.said.per_second);
    format!("{name}, run {}: {rate:.1} transactions/s{hits}{sound}", run.repeat)
}

impl Report<'_> {
    fn variants(&self) -> Vec<&Variant> {
        let first = self.runs.iter().filter(|run| run.repeat == 1);
        first.map(|run| &run.variant).collect()
    }

    fn middle(&self, variant: &Variant, value: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.runs.iter().filter(|run| run.variant == *variant).filter_map(value).collect();
        (!values.is_empty()).then(|| median(values))
    }

    fn rate(&self, variant: &Variant) -> f64 {
        self.middle(variant, |run| Some(run.said.per_second)).unwrap_or_default()
    }

    fn title(&self) -> String {
        format!("{} on {}", self.what, self.testbed.server.name())
    }

    /// The table of runs. The first variant is the baseline of the others.
    fn table(&self) -> Table {
        let variants = self.variants();
        let first = variants[0];
        let columns = [
            Column::text("cache"),
            Column::number("transactions/s").help("as the program says; medians where there are several runs"),
            Column::number(format!("against {}", first.name())),
            Column::number("mean ms"),
            Column::number("p95 ms").help("where the program says it"),
            Column::number("hit ratio"),
            Column::number("read hit ratio"),
            Column::number("write reduction").help("pages that were written but never below"),
            Column::text("checks"),
        ];
        let mut table = Table::new(self.title(), columns);
        for variant in variants {
            let percent = |value: Option<f64>| value.map_or_else(Cell::missing, |value| Cell::percent(value, 1));
            let ms = |value: Option<f64>| value.map_or_else(Cell::missing, |value| Cell::fixed(value, 2));
            let sound = self.runs.iter().filter(|run| run.variant == *variant).all(|run| run.faults.is_empty());
            table.push([
                Cell::from(variant.name()),
                Cell::fixed(self.rate(variant), 1),
                Cell::short(self.rate(variant) / self.rate(first), NumberFormat::Factor),
                ms(self.middle(variant, |run| Some(run.said.mean_ms))),
                ms(self.middle(variant, |run| run.said.p95_ms)),
                percent(self.middle(variant, |run| Some(run.span.figures.cache?.hit_ratio()))),
                percent(self.middle(variant, |run| Some(run.span.figures.cache?.read_hit_ratio()))),
                percent(self.middle(variant, |run| Some(run.span.figures.cache?.write_reduction()))),
                if sound { Cell::from("sound").tone(Tone::Good) } else { Cell::from("BROKEN").tone(Tone::Bad) },
            ]);
        }
        table
    }

    fn device_table(&self) -> Option<Table> {
        device_table(self.runs.iter().map(|run| Asked {
            of: run.variant.name().to_owned(),
            cache: run.span.figures.cache_device,
            backing: run.span.figures.backing_device,
            seconds: run.span.seconds,
        }))
    }

    fn setting(&self) -> Vec<(&'static str, String)> {
        let RunArgs { clients, testbed, .. } = self.arguments;
        let Devices { page_size, pages, .. } = self.testbed.devices;
        let mut setting = vec![
            ("load", self.what.to_owned()),
            ("database", format!("{}, {}", self.testbed.server.name(), mib(self.testbed.loaded_bytes))),
            ("clients", format!("{clients}, seed {}", testbed.seed)),
            ("cache", format!("{pages} pages of {page_size} B, {}", mib(pages * u64::from(page_size)))),
        ];
        setting.extend(self.testbed.setting(testbed));
        let runs = self.runs.iter().map(|run| (&run.span, run.said.per_second));
        setting.extend(self.testbed.recorded(runs, "transaction"));
        setting
    }
}

pub fn text(report: &Report) -> String {
    let mut text = String::new();
    for table in [report.table()].into_iter().chain(report.device_table()) {
        text += &table.to_text(TextStyle::stdout());
        text += "\n";
    }
    for (name, value) in report.setting() {
        text += &format!("{name}: {value}\n");
    }
    text
}

pub fn page(report: &Report) -> Page {
    let variants = report.variants();
    let rates = Axis::new("transactions per second", NumberFormat::Count);
    let rates = BarChart::new("Throughput", rates, BarLayout::Grouped, variants.iter().map(|variant| variant.name()))
        .series("median", variants.iter().map(|variant| report.rate(variant)));
    let time = Axis::new("seconds", NumberFormat::Count);
    let per_second = Axis::new("transactions per second", NumberFormat::Count);
    let mut over_time = LineChart::new("Throughput over time, first runs", time, per_second);
    for run in report.runs.iter().filter(|run| run.repeat == 1) {
        let points = run.said.seconds.iter().enumerate().map(|(at, rate)| (at as f64 + 1.0, *rate));
        over_time = over_time.series(Series::new(run.variant.name(), points));
    }
    let mut page = Page::new(report.title())
        .command(output::command_line())
        .section(Section::new("Summary").table(report.table()).chart(rates))
        .section(Section::new("Over time").chart(over_time));
    if let Some(devices) = report.device_table() {
        page = page.section(Section::new("Devices").table(devices));
    }
    page.section(Section::new("How it was run").facts(report.setting()))
}

pub fn json(report: &Report) -> Result<String> {
    let run = |run: &Measured| -> Value {
        let said = &run.said;
        let all = json!({
            "cache": run.variant.name(), "repeat": run.repeat,
            "transactions": said.transactions, "transactions_per_second": said.per_second,
            "latency_ms": {"mean": said.mean_ms, "p95": said.p95_ms}, "per_second": said.seconds,
            "server_ready_s": run.ready.as_secs_f64(), "faults": run.faults,
        });
        joined(all, run.span.json())
    };
    let setting: serde_json::Map<_, _> =
        report.setting().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let all = json!({
        "command": output::command_line(), "setting": setting, "database_bytes": report.testbed.loaded_bytes,
        "cache_pages": report.testbed.devices.pages, "page_bytes": report.testbed.devices.page_size,
        "runs": report.runs.iter().map(run).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}
