//! Report of a benchmark of queries: on the terminal, as JSON and as a page.

use super::daemon::{CacheFigures, DeviceFigures};
use super::parts::{Asked, device_table, distinct, median};
use super::testbed::{Testbed, mib};
use super::tpch::{Case, Measured, Timed, TpchArgs};
use super::variant::Variant;
use anyhow::Result;
use entresol_bench::tpch::{Answer, Query};
use entresol_cli::shared as output;
use entresol_render::{Axis, BarChart, BarLayout, Cell, Column, NumberFormat, Page, Section, Table, TextStyle, Tone};
use serde_json::{Value, json};

pub struct Report<'a> {
    pub arguments: &'a TpchArgs,
    pub testbed: &'a Testbed,
    pub queries: &'a [Query],
    pub expected: &'a [Answer],
    pub runs: &'a [Measured],
}

/// A run in a line, for printing as soon as it is over.
pub fn line(run: &Measured) -> String {
    let hits =
        cache(run).map_or(String::new(), |cache| format!(", read hit ratio {:.1} %", 100.0 * cache.read_hit_ratio()));
    let sound = if run.faults.is_empty() { "" } else { ": WRONG ANSWERS" };
    format!("{}, run {}: {:.2} s{hits}{sound}", run.case.name(), run.repeat, seconds(run))
}

fn optional_fixed(value: Option<f64>) -> Cell {
    value.map_or_else(Cell::missing, |value| Cell::fixed(value, 2))
}

fn seconds(run: &Measured) -> f64 {
    run.queries.iter().map(|timed| timed.seconds).sum()
}

/// Counts of the cache over all queries of a run.
fn cache(run: &Measured) -> Option<CacheFigures> {
    run.queries
        .iter()
        .map(|timed| timed.cache)
        .reduce(|sum, its| sum.zip(its).map(|(sum, its)| sum.and(&its)))
        .flatten()
}

fn device(run: &Measured, of: fn(&Timed) -> Option<DeviceFigures>) -> Option<DeviceFigures> {
    run.queries.iter().map(of).reduce(|sum, its| sum.zip(its).map(|(sum, its)| sum.and(&its))).flatten()
}

/// Busy seconds of the emulated devices, both together.
fn device_seconds(timed: &Timed) -> Option<f64> {
    let devices = [timed.cache_device, timed.backing_device];
    devices.into_iter().flatten().map(|device| device.busy_s).reduce(|sum, its| sum + its)
}

/// Usage of tables and indexes as the policy classified it during a query; none if there is no verdict.
fn verdicts(timed: &Timed) -> Option<String> {
    let word = |object: &super::tpch::ObjectFigures| Some(format!("{} {}", object.name, object.verdict.as_ref()?));
    let words: Vec<String> = timed.objects.iter().filter_map(word).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

impl Report<'_> {
    fn cases(&self) -> Vec<&Case> {
        distinct(self.runs.iter().map(|run| &run.case))
    }

    /// The median over the runs of a case.
    fn middle(&self, case: &Case, value: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.runs.iter().filter(|run| run.case == *case).filter_map(value).collect();
        (!values.is_empty()).then(|| median(values))
    }

    fn total(&self, case: &Case) -> f64 {
        self.middle(case, |run| Some(seconds(run))).unwrap_or_default()
    }

    fn of_query(&self, case: &Case, at: usize, of: impl Fn(&Timed) -> Option<f64>) -> Option<f64> {
        self.middle(case, |run| of(&run.queries[at]))
    }

    fn device_total(&self, case: &Case) -> Option<f64> {
        self.middle(case, |run| run.queries.iter().map(device_seconds).sum())
    }

    fn bytes(&self, pages: u64) -> f64 {
        (pages * u64::from(self.testbed.devices.page_size)) as f64
    }

    /// The table of cases. The first case is the baseline of the others.
    fn table(&self) -> Table {
        let first = self.cases()[0];
        let columns = [
            Column::text("cache"),
            Column::number("pages"),
            Column::number("seconds").help("of all queries; medians where there are several runs"),
            Column::number(format!("against {}", first.name())).help("how many times as fast"),
            Column::number("device s").help("in which something was asked of emulated devices, both together"),
            Column::number(format!("against {}", first.name())).help("how many times less of that"),
            Column::number("hit ratio"),
            Column::number("read hit ratio"),
            Column::number("migrated MiB").help("pages admitted to the cache, or placed in it before a query"),
            Column::number("written back MiB"),
            Column::text("answers"),
        ];
        let mut table = Table::new(format!("Queries of TPC-H on {}", self.testbed.server.name()), columns);
        for case in self.cases() {
            let optional = |value: Option<f64>| value.map_or_else(Cell::missing, |value| Cell::percent(value, 1));
            let pages = |of: fn(&CacheFigures) -> u64| {
                let bytes = self.middle(case, |run| Some(self.bytes(of(&cache(run)?))));
                bytes.map_or_else(Cell::missing, |bytes| Cell::fixed(bytes / (1 << 20) as f64, 1))
            };
            let sound = self.runs.iter().filter(|run| run.case == *case).all(|run| run.faults.is_empty());
            table.push([
                Cell::from(case.name()),
                case.size.map_or_else(Cell::missing, |(_, pages)| pages.into()),
                Cell::fixed(self.total(case), 2),
                Cell::fixed(self.total(first) / self.total(case), 2),
                optional_fixed(self.device_total(case)),
                optional_fixed(self.device_total(first).zip(self.device_total(case)).map(|(first, its)| first / its)),
                optional(self.middle(case, |run| Some(cache(run)?.hit_ratio()))),
                optional(self.middle(case, |run| Some(cache(run)?.read_hit_ratio()))),
                pages(CacheFigures::migrated),
                pages(|cache| cache.write_backs),
                if sound { Cell::from("right").tone(Tone::Good) } else { Cell::from("WRONG").tone(Tone::Bad) },
            ]);
        }
        table
    }

    /// Seconds of each query in the first case, and the factor by which the others were faster; none without any
    /// seconds.
    fn query_table(&self, what: &str, of: fn(&Timed) -> Option<f64>) -> Option<Table> {
        let cases = self.cases();
        let mut columns = vec![Column::text("query"), Column::number("rows")];
        columns.push(Column::number(format!("{} {what}", cases[0].name())));
        columns.extend(cases[1..].iter().map(|case| Column::number(case.name())));
        let title = format!("Each query: {what} under {}, and how many times less under the others", cases[0].name());
        let mut table = Table::new(title, columns);
        for (at, query) in self.queries.iter().enumerate() {
            let first = self.of_query(cases[0], at, of)?;
            let mut row = vec![Cell::from(query.name()), self.expected[at].rows.into(), Cell::fixed(first, 3)];
            let less = |case: &&Case| optional_fixed(self.of_query(case, at, of).map(|its| first / its));
            row.extend(cases[1..].iter().map(less));
            table.push(row);
        }
        Some(table)
    }

    /// Tables by wall-clock time, by device time, and of prefetched data.
    fn query_tables(&self) -> impl Iterator<Item = Table> {
        let clock = self.query_table("seconds", |timed| Some(timed.seconds));
        [clock, self.query_table("device seconds", device_seconds), self.placing_table()].into_iter().flatten()
    }

    /// Table of the data prefetched before each query; none if there never was any.
    fn placing_table(&self) -> Option<Table> {
        let placed = |timed: &Timed| Some(self.bytes(timed.cache?.placed) / f64::from(1 << 20));
        let columns = [
            Column::text("cache"),
            Column::text("query"),
            Column::number("placed MiB").help("brought before the query"),
            Column::number("placing s").help("how long it took"),
            Column::number("query s"),
            Column::number("both s"),
        ];
        let mut table = Table::new("Tables and indexes that were placed, and the queries after that", columns);
        let is_placed =
            |case: &&Case| self.runs.iter().any(|run| run.case == **case && cache(run).is_some_and(|c| c.placed > 0));
        let cases: Vec<&Case> = self.cases().into_iter().filter(is_placed).collect();
        for &case in &cases {
            for (at, query) in self.queries.iter().enumerate() {
                table.push([
                    Cell::from(case.name()),
                    Cell::from(query.name()),
                    optional_fixed(self.of_query(case, at, placed)),
                    optional_fixed(self.of_query(case, at, |timed| Some(timed.placing_s))),
                    optional_fixed(self.of_query(case, at, |timed| Some(timed.seconds))),
                    optional_fixed(self.of_query(case, at, |timed| Some(timed.seconds + timed.placing_s))),
                ]);
            }
        }
        (!cases.is_empty()).then_some(table)
    }

    /// Table of the usage that policies classified, of those that judge tables, in first runs; none if there is no
    /// such policy.
    fn verdict_table(&self) -> Option<Table> {
        let columns = [Column::text("cache"), Column::text("query"), Column::text("found, most read first")];
        let mut table = Table::new("How tables and indexes were found to be read", columns);
        let mut any = false;
        for run in self.runs.iter().filter(|run| run.repeat == 1) {
            for (query, timed) in self.queries.iter().zip(&run.queries) {
                let Some(words) = verdicts(timed) else { continue };
                any = true;
                table.push([Cell::from(run.case.name()), Cell::from(query.name()), Cell::from(words)]);
            }
        }
        any.then_some(table)
    }

    fn object_table(&self) -> Table {
        let columns = [
            Column::text("cache"),
            Column::text("query"),
            Column::text("table or index"),
            Column::number("pages read"),
            Column::number("hit ratio"),
            Column::number("in the cache").help("pages, at the query's end"),
            Column::text("found"),
        ];
        let mut table = Table::new("Tables and indexes, in first runs", columns);
        for run in self.runs.iter().filter(|run| run.repeat == 1) {
            for (query, timed) in self.queries.iter().zip(&run.queries) {
                for object in &timed.objects {
                    table.push([
                        Cell::from(run.case.name()),
                        Cell::from(query.name()),
                        Cell::from(object.name.as_str()),
                        object.reads.into(),
                        Cell::percent(object.read_hits as f64 / object.reads as f64, 1),
                        object.resident.into(),
                        object.verdict.as_deref().map_or_else(Cell::missing, Cell::from),
                    ]);
                }
            }
        }
        table
    }

    fn device_table(&self) -> Option<Table> {
        device_table(self.runs.iter().map(|run| Asked {
            of: run.case.name(),
            cache: device(run, |timed| timed.cache_device),
            backing: device(run, |timed| timed.backing_device),
            seconds: seconds(run),
        }))
    }

    fn setting(&self) -> Vec<(&'static str, String)> {
        let TpchArgs { scale, no_hints, testbed, .. } = self.arguments;
        let server = self.testbed.server.name();
        let hints = match no_hints {
            true => "policies are not told of queries",
            false => "policies are told when a query begins and ends, and which tables it reads",
        };
        let mut setting = vec![
            ("database", format!("{server}, scale factor {scale}, {}", mib(self.testbed.loaded_bytes))),
            ("queries", format!("{}, one after the other, seed {}", self.queries.len(), testbed.seed)),
            ("hints", hints.to_owned()),
            ("pages of the cache", format!("of {} B", self.testbed.devices.page_size)),
        ];
        setting.extend(self.testbed.setting(testbed));
        setting
    }
}

pub fn text(report: &Report) -> String {
    let more = [report.verdict_table(), report.device_table()].into_iter().flatten();
    let mut text = String::new();
    for table in [report.table()].into_iter().chain(report.query_tables()).chain(more) {
        text += &table.to_text(TextStyle::stdout());
        text += "\n";
    }
    for (name, value) in report.setting() {
        text += &format!("{name}: {value}\n");
    }
    text + "Queries of TPC-H: not audited, not comparable with published results.\n"
}

pub fn page(report: &Report) -> Page {
    let cases = report.cases();
    let against = format!("times as fast as {}", cases[0].name());
    let names: Vec<String> = report.queries.iter().map(Query::name).collect();
    let mut chart = BarChart::new("Each query", Axis::new(against, NumberFormat::Factor), BarLayout::Grouped, &names);
    for case in cases.iter().filter(|case| case.variant != Variant::None) {
        let seconds = |case: &Case, at| report.of_query(case, at, |timed| Some(timed.seconds)).unwrap_or_default();
        let factors = (0..names.len()).map(|at| seconds(cases[0], at) / seconds(case, at));
        chart = chart.series(case.name(), factors);
    }
    let queries = report.query_tables().fold(Section::new("Queries").chart(chart), Section::table);
    let mut page = Page::new(format!("Queries of TPC-H on {}", report.testbed.server.name()))
        .command(output::command_line())
        .section(Section::new("Summary").table(report.table()))
        .section(queries);
    if let Some(verdicts) = report.verdict_table() {
        page = page.section(Section::new("Verdicts").table(verdicts));
    }
    page = page.section(Section::new("Tables and indexes").table(report.object_table()));
    if let Some(devices) = report.device_table() {
        page = page.section(Section::new("Devices").table(devices));
    }
    page.section(Section::new("How it was run").facts(report.setting()).note(
        "Queries with parameters by the rules of TPC-H, on data of its generator. Nobody audited it, there are no refresh \
         functions, and it must not be compared with published results; what can be compared are the runs on this page.",
    ))
}

pub fn json(report: &Report) -> Result<String> {
    let answer = |answer: &Answer| json!({"rows": answer.rows, "checksum": format!("{:016x}", answer.checksum)});
    let query = |(query, expected): (&Query, &Answer)| -> Value {
        let parameters: serde_json::Map<_, _> =
            query.parameters.iter().map(|(name, value)| ((*name).to_owned(), value.as_str().into())).collect();
        json!({
            "name": query.name(), "number": query.number, "parameters": parameters, "sql": query.sql(),
            "answer_without_mount": answer(expected),
        })
    };
    let timed = |(query, timed): (&Query, &Timed)| -> Value {
        json!({
            "name": query.name(), "seconds": timed.seconds, "placing_s": timed.placing_s, "answer": answer(&timed.answer), "pages": timed.cache,
            "migrated_bytes": timed.cache.map(|cache| report.bytes(cache.migrated())), "device_s": device_seconds(timed),
            "cache_device": timed.cache_device, "backing_device": timed.backing_device, "objects": timed.objects,
        })
    };
    let run = |run: &Measured| -> Value {
        json!({
            "cache": run.case.variant.name(), "size": run.case.size.map(|(size, _)| size.to_string()),
            "cache_pages": run.case.size.map(|(_, pages)| pages), "repeat": run.repeat, "seconds": seconds(run),
            "placing_s": run.queries.iter().map(|timed| timed.placing_s).sum::<f64>(),
            "server_ready_s": run.ready.as_secs_f64(), "pages": cache(run),
            "migrated_bytes": cache(run).map(|cache| report.bytes(cache.migrated())),
            "cache_device": device(run, |timed| timed.cache_device),
            "backing_device": device(run, |timed| timed.backing_device),
            "queries": report.queries.iter().zip(&run.queries).map(timed).collect::<Vec<_>>(), "faults": run.faults,
        })
    };
    let setting: serde_json::Map<_, _> =
        report.setting().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let all = json!({
        "command": output::command_line(), "setting": setting, "database_bytes": report.testbed.loaded_bytes,
        "page_bytes": report.testbed.devices.page_size, "scale": report.arguments.scale,
        "queries": report.queries.iter().zip(report.expected).map(query).collect::<Vec<_>>(),
        "runs": report.runs.iter().map(run).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}
