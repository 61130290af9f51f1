//! Report of restarts: on the terminal, as JSON and as a page.

use super::parts::{Asked, device_table_of, distinct, median};
use super::report;
use super::restart::{RestartRun, Restarted};
use super::testbed::Testbed;
use super::tpcc::LoadArgs;
use super::variant::Variant;
use anyhow::Result;
use entresol_cli::shared as output;
use entresol_render::{
    Axis, BarChart, BarLayout, Cell, Chart, Column, LineChart, NumberFormat, Page, Section, Series, Table, Tone,
};
use serde_json::{Value, json};
use std::time::Duration;

pub struct Report<'a> {
    pub arguments: &'a LoadArgs,
    /// Times between checkpoints, in the order of the restarts.
    pub intervals: &'a [Duration],
    pub testbed: &'a Testbed,
    pub stories: &'a [RestartRun],
}

/// Restarts of a variant, a line each, for printing as soon as they are over.
pub fn lines(restart_run: &RestartRun) -> String {
    let line = |restarted: &Restarted| {
        format!(
            "{}, run {}: checkpoints {} s apart: served after {:.2} s, answered after {:.2} s, then {:.0} new orders/min{}\n",
            restart_run.variant.name(),
            restart_run.repeat,
            restarted.interval_s,
            restarted.mounted_s,
            restarted.answered_s,
            restarted.after.new_orders_a_minute(),
            if restart_run.faults.is_empty() { "" } else { ": NOT SOUND" }
        )
    };
    let (name, repeat) = (restart_run.variant.name(), restart_run.repeat);
    let witness = restart_run.witness.iter().map(|found| format!("{name}, run {repeat}: {}\n", found.line()));
    restart_run.restarts.iter().map(line).chain(witness).collect()
}

impl Report<'_> {
    fn variants(&self) -> Vec<&Variant> {
        distinct(self.stories.iter().map(|restart_run| &restart_run.variant))
    }

    /// The intervals as seconds, by which restarts are found.
    fn intervals(&self) -> Vec<f64> {
        self.intervals.iter().map(|interval| interval.as_secs_f64()).collect()
    }

    fn of<'b>(&'b self, variant: &'b Variant, nth: usize) -> impl Iterator<Item = &'b Restarted> {
        self.stories
            .iter()
            .filter(move |restart_run| restart_run.variant == *variant)
            .filter_map(move |restart_run| restart_run.restarts.get(nth))
    }

    fn middle(&self, variant: &Variant, nth: usize, value: impl Fn(&Restarted) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.of(variant, nth).filter_map(value).collect();
        (!values.is_empty()).then(|| median(values))
    }

    fn answered(&self, variant: &Variant, nth: usize) -> f64 {
        self.middle(variant, nth, |its| Some(its.answered_s)).unwrap_or_default()
    }

    /// The table of restarts. The first variant is the baseline of the others.
    fn table(&self) -> Table {
        let variants = self.variants();
        let columns = [
            Column::text("checkpoints, s apart"),
            Column::text("cache"),
            Column::number("killed after s").help("from the beginning of the last checkpoint"),
            Column::number("log MiB").help("of the database's log, from there on"),
            Column::number("mounted s").help("until the process with the cache or the emulated device served"),
            Column::number("answered s").help("until the server answered, from the same beginning"),
            Column::number(format!("against {}", variants[0].name())),
            Column::number("read MiB").help("of files that the cache sees, until the server answered"),
            Column::number("from the cache").help("share of these reads"),
            Column::number("written MiB"),
            Column::number("new orders/min before").help("from the checkpoint to the kill"),
            Column::number("after").help("from when clients were at work again"),
            Column::text("checks"),
        ];
        let mut table = Table::new(format!("Restarts of {}", self.testbed.server.name()), columns);
        let page_size = self.testbed.devices.page_size;
        let optional =
            |value: Option<f64>, digits| value.map_or_else(Cell::missing, |value| Cell::fixed(value, digits));
        let mib = |bytes: Option<u64>| Some(bytes? as f64 / f64::from(1 << 20));
        for (nth, interval) in self.intervals().into_iter().enumerate() {
            for &variant in &variants {
                let middle = |value: &dyn Fn(&Restarted) -> Option<f64>| self.middle(variant, nth, value);
                let mut stories = self.stories.iter().filter(|restart_run| restart_run.variant == *variant);
                table.push([
                    Cell::from(interval.to_string()),
                    Cell::from(variant.name()),
                    optional(middle(&|its| Some(its.crash.after_s)), 1),
                    optional(middle(&|its| mib(Some(its.crash.redo_bytes))), 1),
                    optional(middle(&|its| Some(its.mounted_s)), 2),
                    Cell::fixed(self.answered(variant, nth), 2),
                    Cell::short(self.answered(variant, nth) / self.answered(variants[0], nth), NumberFormat::Factor),
                    optional(middle(&|its| mib(its.read_bytes(page_size))), 1),
                    middle(&|its| its.served()).map_or_else(Cell::missing, |share| Cell::percent(share, 1)),
                    optional(middle(&|its| mib(its.written_bytes(page_size))), 1),
                    optional(middle(&|its| its.before), 0),
                    optional(middle(&|its| Some(its.after.new_orders_a_minute())), 0),
                    if stories.all(|restart_run| restart_run.faults.is_empty()) {
                        Cell::from("sound").tone(Tone::Good)
                    } else {
                        Cell::from("BROKEN").tone(Tone::Bad)
                    },
                ]);
            }
        }
        table
    }

    fn device_table(&self) -> Option<Table> {
        let asked = |restart_run: &RestartRun| {
            let name = restart_run.variant.name().to_owned();
            let one = move |restarted: &Restarted| Asked {
                of: format!("{name}, {} s", restarted.interval_s),
                cache: restarted.recovery.cache_device,
                backing: restarted.recovery.backing_device,
                seconds: restarted.answered_s,
            };
            restart_run.restarts.iter().map(one).collect::<Vec<_>>()
        };
        device_table_of("Emulated devices, until the server answered", self.stories.iter().flat_map(asked))
    }

    fn setting(&self) -> Vec<(&'static str, String)> {
        let mut setting = report::setting(self.arguments, self.testbed);
        setting.push(("crash", "SIGKILL of the server and of the process that mounts".to_owned()));
        let intervals: Vec<String> = self.intervals().iter().map(|interval| format!("{interval} s")).collect();
        setting.push(("between checkpoints", intervals.join(", ") + ", each asked for by the benchmark"));
        setting
    }
}

pub fn text(report: &Report) -> String {
    report::tables(&report.table(), report.device_table(), report.setting())
}

/// New orders a minute by time since both processes began to start, a point for each whole second of load.
fn since_restart(restarted: &Restarted) -> impl Iterator<Item = (f64, f64)> + '_ {
    let whole = restarted.after.counted.as_secs() as usize;
    let seconds = restarted.after.seconds.iter().take(whole).enumerate();
    let points = seconds.map(|(at, second)| (restarted.at_work_s + at as f64 + 1.0, second.new_orders as f64 * 60.0));
    [(0.0, 0.0), (restarted.at_work_s, 0.0)].into_iter().chain(points)
}

pub fn page(report: &Report) -> Page {
    let (variants, intervals) = (report.variants(), report.intervals());
    let seconds = Axis::new("seconds until the server answered", NumberFormat::Count);
    let between = intervals.iter().map(|interval| format!("{interval} s between checkpoints"));
    let mut answered = BarChart::new("Restarts", seconds, BarLayout::Grouped, between);
    for variant in &variants {
        answered = answered.series(variant.name(), (0..intervals.len()).map(|nth| report.answered(variant, nth)));
    }
    let charts = intervals.iter().enumerate().map(|(nth, interval)| {
        let time = Axis::new("seconds since the restart began", NumberFormat::Count);
        let orders = Axis::new("new orders per minute", NumberFormat::Count);
        let mut chart = LineChart::new(format!("{interval} s between checkpoints"), time, orders);
        for restart_run in report.stories.iter().filter(|restart_run| restart_run.repeat == 1) {
            let restarted = restart_run.restarts.get(nth).into_iter();
            chart = restarted
                .fold(chart, |chart, its| chart.series(Series::new(restart_run.variant.name(), since_restart(its))));
        }
        Chart::from(chart)
    });
    let title = format!("Restarts of {} under a TPC-C-like load", report.testbed.server.name());
    let mut page = Page::new(title)
        .command(output::command_line())
        .section(Section::new("Summary").table(report.table()).chart(answered))
        .section(Section::new("Throughput after a restart, first runs").grid(charts));
    if let Some(devices) = report.device_table() {
        page = page.section(Section::new("Devices").table(devices));
    }
    page.section(Section::new("How it was run").facts(report.setting()).note(
        "Server and mount are killed in the middle between two checkpoints and started again at once. Nobody audited the load, \
         and it must not be compared with published results; what can be compared are the runs on this page.",
    ))
}

pub fn json(report: &Report) -> Result<String> {
    let page_size = report.testbed.devices.page_size;
    let one = |its: &Restarted| -> Value {
        json!({
            "interval_s": its.interval_s, "checkpoint_s": its.crash.checkpoint_s, "killed_after_s": its.crash.after_s,
            "log_bytes": its.crash.redo_bytes, "new_orders_per_minute_before": its.before,
            "mounted_s": its.mounted_s, "answered_s": its.answered_s, "at_work_s": its.at_work_s, "opened": its.opened,
            "read_bytes": its.read_bytes(page_size), "written_bytes": its.written_bytes(page_size),
            "read_from_cache": its.served(), "recovery": its.recovery,
            "new_orders_per_minute_after": its.after.new_orders_a_minute(),
            "pages_after": its.cache,
            "since_restart": since_restart(its).map(|(at, rate)| json!([at, rate])).collect::<Vec<_>>(),
        })
    };
    let restart_run = |restart_run: &RestartRun| -> Value {
        json!({
            "cache": restart_run.variant.name(), "repeat": restart_run.repeat, "faults": restart_run.faults,
            "restarts": restart_run.restarts.iter().map(one).collect::<Vec<_>>(),
        })
    };
    let setting: serde_json::Map<_, _> =
        report.setting().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let all = json!({
        "command": output::command_line(), "setting": setting, "database_bytes": report.testbed.loaded_bytes,
        "cache_pages": report.testbed.devices.pages, "page_bytes": page_size,
        "runs": report.stories.iter().map(restart_run).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}
