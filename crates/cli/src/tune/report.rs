//! The results of `entresol tune`: on a terminal and as a page.

use super::{TuneResults, TuneRun};
use crate::output;
use entresol_report::{
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
    let knobs = results.knobs.iter().map(|knob| Column::number(&knob.name).help("At the end"));
    let columns = [
        Column::number("requests/s").help("Over the whole trace after the warm-up, the search included"),
        Column::number("regret").help("Time lost against the best fixed settings, as a share of theirs"),
        Column::number("last quarter").help("Requests per second over the last quarter of the requests"),
        Column::number("over start").help("Throughput over that of the settings the tuners began with"),
        Column::number("converged").help("Epochs after which the settings that are held no longer change").priority(2),
        Column::number("epochs").priority(3),
        Column::number("NVM pages/M").help("Pages written to the lower tier per million requests").priority(1),
        Column::number("years")
            .help("Until the lower tier is worn out at this rate, its wear spread evenly")
            .priority(1),
    ];
    let mut table =
        Table::new("Tuners and fixed settings", [Column::text("what")].into_iter().chain(knobs).chain(columns));
    let best = results.grid.first().map(|run| run.requests_per_second);
    let mut push = |what: String, run: &TuneRun| {
        let tuner = run.tuner.is_some();
        let values = run.values.iter().map(|&value| Cell::from(format!("{value}")));
        let over = run.requests_per_second / results.start.requests_per_second - 1.0;
        let cells = [
            Cell::fixed(run.requests_per_second, 0),
            best.map_or_else(Cell::missing, |best| Cell::percent(best / run.requests_per_second - 1.0, 1)),
            Cell::fixed(run.last_quarter_per_second, 0),
            Cell::percent(over, 1).tone(if over < 0.0 { Tone::Bad } else { Tone::Good }),
            if tuner { run.converged_after.into() } else { Cell::missing() },
            run.epochs.len().into(),
            Cell::fixed(run.pages_written_per_million, 0),
            run.years.map_or_else(Cell::missing, |years| Cell::fixed(years, 2)),
        ];
        table.push([Cell::from(what)].into_iter().chain(values).chain(cells));
    };
    results.tuners.iter().for_each(|run| push(run.tuner.clone().unwrap_or_default(), run));
    push("start".to_owned(), &results.start);
    results.grid.iter().take(GRID_SHOWN).enumerate().for_each(|(at, run)| push(format!("fixed {}", at + 1), run));
    if results.grid.len() > GRID_SHOWN {
        let last = results.grid.len();
        push(format!("fixed {last}"), &results.grid[last - 1]);
    }
    table
}

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
