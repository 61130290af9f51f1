//! Report of a benchmark of a load and queries at the same time: on the terminal, as JSON and as a page.

use super::ch::{ChArgs, Measured};
use super::parts::median;
use super::report;
use super::testbed::Testbed;
use super::variant::Variant;
use anyhow::Result;
use entresol_bench::ch::Query;
use entresol_cli::shared as output;
use entresol_render::{Axis, BarChart, BarLayout, Cell, Column, NumberFormat, Page, Section, Table, TextStyle, Tone};
use serde_json::{Value, json};

pub struct Report<'a> {
    pub arguments: &'a ChArgs,
    pub testbed: &'a Testbed,
    pub queries: &'a [&'static Query],
    pub runs: &'a [Measured],
}

/// A run in a line, for printing as soon as it is over.
pub fn line(run: &Measured) -> String {
    format!("{}, {:.0} queries/h", report::line(&run.load), run.queries_an_hour())
}

impl Report<'_> {
    /// Report on the clients, without the queries.
    fn load(&self) -> report::Report<'_> {
        let runs = self.runs.iter().map(|run| &run.load).collect();
        report::Report { arguments: &self.arguments.load, testbed: self.testbed, runs }
    }

    fn of(&self, variant: &Variant) -> impl Iterator<Item = &Measured> {
        self.runs.iter().filter(move |run| run.load.variant == *variant)
    }

    /// Queries answered an hour, the median over the runs.
    fn queries_an_hour(&self, variant: &Variant) -> f64 {
        median(self.of(variant).map(Measured::queries_an_hour).collect())
    }

    /// Seconds of every answer to a query, in all runs.
    fn seconds(&self, variant: &Variant, query: &Query) -> Vec<f64> {
        let asked = self.of(variant).flat_map(|run| &run.asked).filter(|asked| asked.number == query.number);
        asked.map(|asked| asked.seconds).collect()
    }

    /// The table of runs. The first variant is the baseline of the others.
    fn table(&self) -> Table {
        let load = self.load();
        let variants = load.variants();
        let first = variants[0];
        let against = || format!("against {}", first.name());
        let columns = [
            Column::text("cache"),
            Column::number("new orders/min").help("committed; medians where there are several runs"),
            Column::number(against()),
            Column::number("queries/h").help("answered in the time that is counted"),
            Column::number(against()),
            Column::number("p50 ms").help("New-Order"),
            Column::number("p99 ms").help("New-Order"),
            Column::number("hit ratio").help("of both loads"),
            Column::number("read hit ratio"),
            Column::number("write reduction").help("pages that were written but never below"),
            Column::text("checks"),
        ];
        let mut table = Table::new(format!("TPC-C-like load and CH's queries on {}", load.server()), columns);
        for variant in variants {
            let optional = |value: Option<f64>| value.map_or_else(Cell::missing, |value| Cell::percent(value, 1));
            let latency = |q: f64| {
                let of = |run: &super::tpcc::Measured| Some(run.ran.tallies[0].latency.quantile(q) as f64 / 1e6);
                Cell::fixed(load.middle(variant, of).unwrap_or_default(), 2)
            };
            // Where no query was answered in time, there is no factor.
            let factor = |its: f64, first: f64| match first > 0.0 {
                true => Cell::short(its / first, NumberFormat::Factor),
                false => Cell::missing(),
            };
            let sound = self.of(variant).all(|run| run.load.faults.is_empty());
            table.push([
                Cell::from(variant.name()),
                Cell::fixed(load.rate(variant), 0),
                factor(load.rate(variant), load.rate(first)),
                Cell::fixed(self.queries_an_hour(variant), 0),
                factor(self.queries_an_hour(variant), self.queries_an_hour(first)),
                latency(0.5),
                latency(0.99),
                optional(load.middle(variant, |run| Some(run.span.figures.cache?.hit_ratio()))),
                optional(load.middle(variant, |run| Some(run.span.figures.cache?.read_hit_ratio()))),
                optional(load.middle(variant, |run| Some(run.span.figures.cache?.write_reduction()))),
                if sound { Cell::from("sound").tone(Tone::Good) } else { Cell::from("BROKEN").tone(Tone::Bad) },
            ]);
        }
        table
    }

    /// Median seconds of each query under each variant.
    fn query_table(&self) -> Table {
        let load = self.load();
        let mut columns = vec![Column::text("query")];
        for variant in load.variants() {
            columns.push(Column::number(format!("{} s", variant.name())).help("median of all that were answered"));
            columns.push(Column::number("answered").help("times, warm-up included"));
        }
        let mut table = Table::new("Each query beside the load", columns);
        for query in self.queries {
            let mut row = vec![Cell::from(query.name())];
            for variant in load.variants() {
                let seconds = self.seconds(variant, query);
                let count = seconds.len() as u64;
                row.push(if count == 0 { Cell::missing() } else { Cell::fixed(median(seconds), 3) });
                row.push(count.into());
            }
            table.push(row);
        }
        table
    }

    fn setting(&self) -> Vec<(&'static str, String)> {
        let ChArgs { analysts, no_hints, .. } = self.arguments;
        let hints = match no_hints {
            true => "policies are not told of queries",
            false => "policies are told when a query begins and ends, and which tables it reads",
        };
        let queries: Vec<String> = self.queries.iter().map(|query| query.number.to_string()).collect();
        let mut setting = self.load().setting();
        setting
            .insert(2, ("queries", format!("{}, asked by {analysts}, each one after the other", queries.join(", "))));
        setting.insert(3, ("hints", hints.to_owned()));
        setting
    }
}

pub fn text(report: &Report) -> String {
    let mut text = String::new();
    for table in [report.table(), report.query_table()].into_iter().chain(report.load().device_table()) {
        text += &table.to_text(TextStyle::stdout());
        text += "\n";
    }
    for (name, value) in report.setting() {
        text += &format!("{name}: {value}\n");
    }
    text + "Like CH-benCHmark: not audited, not comparable with published results.\n"
}

pub fn page(report: &Report) -> Page {
    let load = report.load();
    let variants = load.variants();
    let bars = |title: &str, what: &str, of: &dyn Fn(&Variant) -> f64| {
        let axis = Axis::new(what, NumberFormat::Count);
        BarChart::new(title, axis, BarLayout::Grouped, variants.iter().map(|variant| variant.name()))
            .series("median", variants.iter().map(|variant| of(variant)))
    };
    let orders = bars("Clients", "new orders per minute", &|variant| load.rate(variant));
    let queries = bars("Queries", "queries per hour", &|variant| report.queries_an_hour(variant));
    let mut page = Page::new(format!("TPC-C-like load and CH's queries on {}", load.server()))
        .command(output::command_line())
        .section(Section::new("Summary").table(report.table()).chart(orders).chart(queries))
        .section(Section::new("Over time").chart(load.over_time()))
        .section(Section::new("Queries").table(report.query_table()))
        .section(Section::new("Latency").table(load.latency_table()));
    if let Some(devices) = load.device_table() {
        page = page.section(Section::new("Devices").table(devices));
    }
    page.section(Section::new("How it was run").facts(report.setting()).note(
        "The five transactions of TPC-C in its mix, without think times, and beside them nine of the 22 queries that CH-benCHmark \
         makes of TPC-H's. Nobody audited it, and it must not be compared with published results; what can be compared are the \
         runs on this page.",
    ))
}

/// All figures as JSON: those of the clients, and in each run the queries answered beside them.
pub fn json(report: &Report) -> Result<String> {
    let mut all = report::figures(&report.load());
    let setting = report.setting().into_iter().map(|(name, value)| (name.to_owned(), Value::from(value)));
    all["setting"] = Value::Object(setting.collect());
    let sql = |query: &&Query| json!({"number": query.number, "sql": query.sql()});
    all["queries"] = report.queries.iter().map(sql).collect();
    for (run, at) in report.runs.iter().zip(0usize..) {
        all["runs"][at]["queries_per_hour"] = run.queries_an_hour().into();
        all["runs"][at]["queries"] = run
            .asked
            .iter()
            .map(|asked| {
                json!({
                    "number": asked.number, "session": asked.session, "seconds": asked.seconds, "rows": asked.rows,
                    "counted": asked.counted,
                })
            })
            .collect();
    }
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}
