//! Report of overhead: on the terminal, as JSON and as a page.

use super::overhead::{LoadArg, Measured, On, OverheadArgs, Timed};
use super::parts::{distinct, median};
use super::testbed::{Testbed, mib};
use anyhow::Result;
use entresol_cli::shared as output;
use entresol_cli::shared::word;
use entresol_render::{Axis, BarChart, BarLayout, Cell, Column, NumberFormat, Page, Section, Table, TextStyle};
use serde_json::{Value, json};
use std::time::Duration;

pub struct Report<'a> {
    pub arguments: &'a OverheadArgs,
    pub testbed: &'a Testbed,
    pub runs: &'a [Measured],
}

/// Loads at one place, a line each, for printing as soon as they are over.
pub fn lines(run: &Measured) -> String {
    let line = |timed: &Timed| {
        let (rate, spent) = (timed.rate(), timed.spent_us(|timed| timed.processor.all()));
        let Measured { on, repeat, .. } = run;
        format!(
            "{}, run {repeat}, {}: {rate:.1} a second, {spent:.1} us of processor time each\n",
            on.name(),
            word(timed.load)
        )
    };
    run.loads.iter().map(line).collect()
}

impl Timed {
    /// Operations a second.
    fn rate(&self) -> f64 {
        self.pass.operations as f64 / self.pass.took.as_secs_f64()
    }

    /// Microseconds of processor time per operation.
    fn spent_us(&self, of: impl Fn(&Timed) -> Duration) -> f64 {
        of(self).as_secs_f64() * 1e6 / self.pass.operations.max(1) as f64
    }

    /// Pages requested of the cache per operation.
    fn pages(&self) -> Option<f64> {
        self.cache.map(|cache| (cache.reads + cache.writes) as f64 / self.pass.operations.max(1) as f64)
    }
}

/// The factors of a place and a load: medians over rounds.
struct Against {
    throughput: f64,
    processor: f64,
}

impl Report<'_> {
    fn places(&self) -> Vec<&On> {
        distinct(self.runs.iter().map(|run| &run.on))
    }

    fn find(&self, on: &On, repeat: u32, load: LoadArg) -> Option<&Timed> {
        let run = self.runs.iter().find(|run| run.on == *on && run.repeat == repeat)?;
        run.loads.iter().find(|timed| timed.load == load)
    }

    fn of(&self, on: &On, load: LoadArg) -> Vec<&Timed> {
        (1..=self.arguments.testbed.repeat).filter_map(|repeat| self.find(on, repeat, load)).collect()
    }

    fn middle(&self, on: &On, load: LoadArg, value: impl Fn(&Timed) -> f64) -> f64 {
        median(self.of(on, load).into_iter().map(value).collect())
    }

    /// Compares within each round: other load on the machine affects both sides of the comparison.
    fn against(&self, on: &On, load: LoadArg) -> Against {
        let first = self.places()[0];
        let ratios = |value: &dyn Fn(&Timed) -> f64| {
            let ratio = |repeat| {
                let (its, base) = (self.find(on, repeat, load)?, self.find(first, repeat, load)?);
                (value(base) > 0.0).then(|| value(its) / value(base))
            };
            median((1..=self.arguments.testbed.repeat).filter_map(ratio).collect())
        };
        let processor = ratios(&|timed: &Timed| timed.spent_us(|timed| timed.processor.all()));
        Against { throughput: ratios(&Timed::rate), processor }
    }

    fn table(&self) -> Table {
        let first = self.places()[0].name();
        let columns = [
            Column::text("load"),
            Column::text("on"),
            Column::number("a second").help("rows read or changed, or scans"),
            Column::number(format!("against {first}")).help("median of the rounds' factors"),
            Column::number("processor us").help("of server, mount and clients, an operation"),
            Column::number(format!("against {first}")).help("median of the rounds' factors"),
            Column::number("server us"),
            Column::number("mount us"),
            Column::number("clients us"),
            Column::number("pages asked").help("of the cache, an operation"),
        ];
        let mut table = Table::new(format!("What it costs {}", self.testbed.server.name()), columns);
        for &load in &self.arguments.load {
            for on in self.places() {
                let against = self.against(on, load);
                let spent =
                    |of: fn(&Timed) -> Duration| Cell::fixed(self.middle(on, load, |timed| timed.spent_us(of)), 1);
                let pages: Vec<f64> = self.of(on, load).into_iter().filter_map(Timed::pages).collect();
                table.push([
                    Cell::from(word(load)),
                    Cell::from(on.name()),
                    Cell::fixed(self.middle(on, load, Timed::rate), 2),
                    Cell::fixed(against.throughput, 3),
                    spent(|timed| timed.processor.all()),
                    Cell::fixed(against.processor, 3),
                    spent(|timed| timed.processor.server),
                    spent(|timed| timed.processor.mount),
                    spent(|timed| timed.processor.clients),
                    if pages.is_empty() { Cell::missing() } else { Cell::fixed(median(pages), 4) },
                ]);
            }
        }
        table
    }

    fn setting(&self) -> Vec<(&'static str, String)> {
        let OverheadArgs { warehouses, shrink, clients, testbed, .. } = self.arguments;
        let shrunk = if *shrink > 1 { format!(", its tables shrunk by {shrink}") } else { String::new() };
        let (server, bytes, devices) =
            (self.testbed.server.name(), mib(self.testbed.loaded_bytes), &self.testbed.devices);
        let cache = mib(devices.pages * u64::from(devices.page_size));
        let mut setting = vec![
            ("database", format!("{server}, {warehouses} warehouses{shrunk}, {bytes}")),
            ("clients", format!("{clients} that read and change rows, one that scans, seed {}", testbed.seed)),
            ("cache", format!("{} pages of {} B, {cache}", devices.pages, devices.page_size)),
        ];
        setting.extend(self.testbed.setting(testbed));
        setting
    }
}

pub fn text(report: &Report) -> String {
    let mut text = report.table().to_text(TextStyle::stdout()) + "\n";
    for (name, value) in report.setting() {
        text += &format!("{name}: {value}\n");
    }
    text
}

pub fn page(report: &Report) -> Page {
    let (places, loads) = (report.places(), &report.arguments.load);
    let chart = |title: &str, of: fn(Against) -> f64| {
        let factor = Axis::new(format!("against {}", places[0].name()), NumberFormat::Factor);
        let mut chart = BarChart::new(title, factor, BarLayout::Grouped, loads.iter().map(|&load| word(load)));
        for on in &places {
            chart = chart.series(on.name(), loads.iter().map(|&load| of(report.against(on, load))));
        }
        chart
    };
    let short = Section::new("Summary")
        .table(report.table())
        .chart(chart("Throughput", |against| against.throughput))
        .chart(chart("Processor time of an operation", |against| against.processor));
    Page::new(format!("What a mount and a cache cost {} where they cannot help", report.testbed.server.name()))
        .command(output::command_line())
        .section(short)
        .section(Section::new("How it was run").facts(report.setting()))
}

pub fn json(report: &Report) -> Result<String> {
    let timed = |timed: &Timed| -> Value {
        let spent = timed.processor;
        json!({
            "load": word(timed.load), "operations": timed.pass.operations, "seconds": timed.pass.took.as_secs_f64(),
            "processor_s": {"server": spent.server.as_secs_f64(), "mount": spent.mount.as_secs_f64(),
                "clients": spent.clients.as_secs_f64()},
            "pages": timed.cache,
        })
    };
    let run = |run: &Measured| {
        json!({
            "on": run.on.name(), "repeat": run.repeat, "loads": run.loads.iter().map(timed).collect::<Vec<_>>(),
        })
    };
    let against = report.arguments.load.iter().flat_map(|&load| {
        let row = move |on: &On| {
            let Against { throughput, processor } = report.against(on, load);
            json!({"load": word(load), "on": on.name(), "throughput": throughput, "processor": processor})
        };
        report.places().into_iter().map(row).collect::<Vec<_>>()
    });
    let setting: serde_json::Map<_, _> =
        report.setting().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let all = json!({
        "command": output::command_line(), "setting": setting, "database_bytes": report.testbed.loaded_bytes,
        "against_first": against.collect::<Vec<_>>(), "runs": report.runs.iter().map(run).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}
