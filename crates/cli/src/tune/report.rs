//! The results of `entresol tune`: on a terminal and as a page.

use super::{TuneResults, TuneRun};
use crate::output;
use entresol_render::{
    Axis, Cell, Column, NumberFormat, Page, Panel, Section, Series, Table, TextStyle, TimeSeries, Tone,
};
use entresol_tune::EpochRow;
use std::fmt::Write;

/// Number of best fixed settings shown; the worst is shown too, as a warning.
const GRID_SHOWN: usize = 5;

/// The report for a terminal.
pub fn text(results: &TuneResults) -> String {
    let style = TextStyle::stdout();
    let mut text = format!("{}\n{}\n", results.trace, compared(results).to_text(style));
    let lines = [verdict(results)].into_iter().chain(results.emulated.iter().cloned());
    lines.for_each(|line| writeln!(text, "{line}").expect("writing to a string"));
    text
}

/// The report as a page.
pub fn page(results: &TuneResults) -> Page {
    let mut page =
        Page::new(format!("Tuning of {}", results.policy)).subtitle(&results.trace).command(output::command_line());
    page = page
        .section(Section::new("Throughput").text(verdict(results)).chart(throughput(results)).table(compared(results)));
    if !results.emulated.is_empty() {
        let lines = results.emulated.iter();
        page = page.section(lines.fold(Section::new("Emulated devices"), |section, line| section.text(line)));
    }
    let settings = results.tuners.iter().map(|run| settings(results, run));
    page.section(settings.fold(Section::new("Settings over time").text(ROLES), |section, chart| section.chart(chart)))
}

const ROLES: &str = "The settings that each tuner holds after each epoch. Trials, and epochs at the settings that it began \
                     with, lie between; the JSON file has them.";

/// One line: the best fixed settings, and the distance of each tuner from them.
fn verdict(results: &TuneResults) -> String {
    let Some(best) = results.grid.first() else {
        return format!("epochs of {} requests; no fixed settings to compare with (--grid 0)", results.epoch_requests);
    };
    let each = results.tuners.iter().map(|run| {
        let name = run.tuner.as_deref().unwrap_or_default();
        format!("{name} {:+.1} %", percent_over(run.requests_per_second, best.requests_per_second))
    });
    format!(
        "epochs of {} requests; against the best of {} fixed settings ({}), the search included: {}",
        results.epoch_requests,
        results.grid.len(),
        named(results, &best.values),
        each.collect::<Vec<_>>().join(", ")
    )
}

fn percent_over(value: f64, base: f64) -> f64 {
    (value / base - 1.0) * 100.0
}

fn named(results: &TuneResults, values: &[f64]) -> String {
    results.knobs.iter().zip(values).map(|(knob, value)| format!("{}={value}", knob.name)).collect::<Vec<_>>().join(" ")
}

fn compared(results: &TuneResults) -> Table {
    let number = |name: &str, priority, help: &str| Column::number(name).priority(priority).help(help);
    let grid = || results.grid.iter().enumerate().map(|(at, run)| (format!("fixed {}", at + 1), run));
    let tuners = results.tuners.iter().map(|run| (run.tuner.clone().unwrap_or_default(), run));
    let start = ("start".to_owned(), &results.start);
    let lines = tuners.chain([start]).chain(grid().take(GRID_SHOWN)).chain(grid().skip(GRID_SHOWN).last());
    let mut table =
        Table::of("Tuners and fixed settings", lines).column(Column::text("what"), |(what, _)| what.clone());
    for (at, knob) in results.knobs.iter().enumerate() {
        table = table.column(Column::number(&knob.name).help("At the end"), |(_, run)| format!("{}", run.values[at]));
    }
    let best = results.grid.first().map(|run| run.requests_per_second);
    let regret = |run: &TuneRun| best.map(|best| Cell::percent(best / run.requests_per_second - 1.0, 1));
    let over_start = |run: &TuneRun| {
        let over = run.requests_per_second / results.start.requests_per_second - 1.0;
        Cell::percent(over, 1).tone(if over < 0.0 { Tone::Bad } else { Tone::Good })
    };
    let converged = |run: &TuneRun| run.tuner.is_some().then_some(run.converged_after);
    table
        .column(number("requests/s", 0, PER_SECOND), |(_, run)| Cell::fixed(run.requests_per_second, 0))
        .column(number("regret", 0, REGRET), |(_, run)| regret(run))
        .column(number("last quarter", 0, LAST_QUARTER), |(_, run)| Cell::fixed(run.last_quarter_per_second, 0))
        .column(number("over start", 0, OVER_START), |(_, run)| over_start(run))
        .column(number("converged", 2, CONVERGED), |(_, run)| converged(run))
        .column(Column::number("epochs").priority(3), |(_, run)| run.epochs.len())
        .column(number("NVM pages/M", 1, WRITTEN), |(_, run)| Cell::fixed(run.pages_written_per_million, 0))
        .column(number("years", 1, YEARS), |(_, run)| run.years.map(|years| Cell::fixed(years, 2)))
        .done()
}

const PER_SECOND: &str = "Over the whole trace after the warm-up, the search included";
const REGRET: &str = "Time lost against the best fixed settings, as a share of theirs";
const LAST_QUARTER: &str = "Requests per second over the last quarter of the requests";
const OVER_START: &str = "Throughput over that of the settings the tuners began with";
const CONVERGED: &str = "Epochs after which the settings that are held no longer change";
const WRITTEN: &str = "Pages written to the lower tier per million requests";
const YEARS: &str = "Until the lower tier is worn out at this rate, its wear spread evenly";

fn requests() -> Axis {
    Axis::new("requests", NumberFormat::Count)
}

/// Throughput over time: each tuner, the start, the best fixed settings.
fn throughput(results: &TuneResults) -> TimeSeries {
    let points = |run: &TuneRun| -> Vec<(f64, f64)> {
        let rate = |epoch: &EpochRow| ((epoch.at + epoch.requests) as f64, epoch.requests as f64 / epoch.seconds);
        run.epochs.iter().map(rate).collect()
    };
    let mut panel = Panel::new(Axis::new("requests per second", NumberFormat::Count).at_least(0.0, 0.0));
    for run in &results.tuners {
        panel = panel.series(Series::new(run.tuner.clone().unwrap_or_default(), points(run)));
    }
    panel = panel.series(Series::new("start", points(&results.start)));
    if let Some(best) = results.grid.first() {
        panel = panel.series(Series::new("best fixed", points(best)));
    }
    TimeSeries::new("Throughput per epoch", requests()).panel(panel)
}

/// The settings that a tuner holds, each as the index of its level, because levels span decades.
fn settings(results: &TuneResults, run: &TuneRun) -> TimeSeries {
    let mut panel = Panel::new(Axis::new("level, 0 the lowest", NumberFormat::Decimal).at_least(0.0, 0.0));
    for (at, knob) in results.knobs.iter().enumerate() {
        let level = |value: f64| knob.levels.partition_point(|&level| level < value) as f64;
        let held = run.epochs.iter().map(|epoch| ((epoch.at + epoch.requests) as f64, level(epoch.held[at])));
        panel = panel.series(Series::new(knob.name.clone(), held));
    }
    TimeSeries::new(run.tuner.clone().unwrap_or_default(), requests()).panel(panel)
}
