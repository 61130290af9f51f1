//! Report of a probe: on a terminal, and as a page with the charts of 002.

use crate::output;
use entresol_core::Size;
use entresol_probe::{Advice, Document, Experiment, Findings, Noise, Outcome, Series, Setup};
use entresol_render::{
    Axis, Cell, Column, LineChart, NumberFormat, Page, Section, Series as Drawn, Spread, Table, TextStyle, Tone,
};

/// The text of `--plan`. `wears` are the bytes over which writes spread.
pub fn plan(experiments: &[&Experiment], setup: &Setup, wears: u64, model: bool) -> String {
    let columns = [
        Column::text("experiment"),
        Column::text("measures"),
        Column::number("reads"),
        Column::number("writes"),
        Column::number("time"),
        Column::text("after").priority(1),
    ];
    let mut table = Table::new("Plan", columns);
    let row = |name: &str, about: &str, cost: entresol_probe::Cost| {
        let bytes = |bytes: u64| Cell::short(bytes as f64, NumberFormat::Bytes);
        [name.into(), about.into(), bytes(cost.read_bytes), bytes(cost.written_bytes), duration(cost.seconds).into()]
    };
    for experiment in experiments {
        let cells = row(experiment.name, experiment.about, (experiment.plan)(setup));
        table.push(cells.into_iter().chain([experiment.source.into()]));
    }
    let all = entresol_probe::cost(experiments, setup);
    table.push(row("all", "", all).into_iter().chain(["".into()]));
    let clock = if model { "virtual, by the model's clock" } else { "real" };
    format!(
        "{}\nAt most: a point ends with its time or its I/Os, whichever comes first. Time is {clock}.\n\
         Measured are {}. All writes are {:.1} times the {} that wear with them: as many program cycles, times the \
         device's own write amplification.\nNothing was run.\n",
        table.to_text(TextStyle::stdout()),
        shown(setup.working_set_bytes),
        all.written_bytes as f64 / wears as f64,
        shown(wears),
    )
}

fn shown(bytes: u64) -> String {
    Size::Bytes(bytes).to_string()
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 99.5 => format!("{s:.0} s"),
        s if s < 5970.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// The report for a terminal: measurements, fits and advice.
pub fn text(document: &Document) -> String {
    let findings = document.findings();
    let mut text = format!("{}\n", document.target.description);
    text += &fitted(&findings).to_text(TextStyle::stdout());
    text += &format!("\nNoise: {}\n", noise(document));
    for Advice { topic, recommendation, reason } in &document.advice {
        text += &format!("{}: {recommendation}; {reason}\n", sentence(topic));
    }
    if let Some(reason) = &document.no_profile {
        text += &format!("No profile for simulation: {reason}\n");
    }
    text
}

fn noise(document: &Document) -> String {
    if document.environment.is_none() {
        return "none, the model ran in virtual time".to_owned();
    }
    let Noise { steal, run_queue, load, processors, preemptions, contended, .. } = &document.noise;
    let disturbed = document.experiments.iter().filter(|outcome| outcome.noise.contended).count();
    let verdict = match contended {
        true => format!(
            "CONTENDED: numbers reflect the machine as much as the device ({disturbed} of {} experiments)",
            document.experiments.len()
        ),
        false if disturbed > 0 => format!("{disturbed} of {} experiments were contended", document.experiments.len()),
        false => "quiet".to_owned(),
    };
    format!(
        "{verdict}; steal {:.2}%, waiting for a processor {:.2}%, load {load:.1} on {processors} processors, {preemptions} preemptions",
        100.0 * steal,
        100.0 * run_queue,
    )
}

fn fitted(findings: &Findings) -> Table {
    Table::of("Fitted parameters", &findings.fitted)
        .column(Column::text("parameter"), |fitted| fitted.name.as_str())
        .column(Column::number("value"), |fitted| number(fitted.value))
        .column(Column::text("unit"), |fitted| fitted.unit.as_str())
        .column(Column::number("from").help(FROM), |fitted| number(fitted.low))
        .column(Column::number("to").help("Upper end"), |fitted| number(fitted.high))
        .column(Column::text("experiment").priority(1), |fitted| fitted.from.as_str())
        .done()
}

const FROM: &str = "Lower end of the confidence interval of 95 %";

/// A number with three or four significant digits.
fn number(value: f64) -> Cell {
    match value.abs() {
        v if v >= 100.0 || value.fract() == 0.0 => Cell::fixed(value, 0),
        v if v >= 10.0 => Cell::fixed(value, 1),
        v if v >= 1.0 => Cell::fixed(value, 2),
        _ => Cell::fixed(value, 3),
    }
}

/// The report as a page.
pub fn page(document: &Document) -> Page {
    let findings = document.findings();
    let mut summary = Section::new("Summary").facts(facts(document));
    summary = summary.note(format!("Noise: {}.", noise(document)));
    for caveat in &document.target.caveats {
        summary = summary.note(caveat.clone());
    }
    let mut page = Page::new(format!("Probe of {}", document.target.description))
        .subtitle(document.program.clone())
        .command(command_line())
        .section(summary);
    if !document.advice.is_empty() {
        page = page.section(Section::new("Advice for a cache").table(advice(document)));
    }
    for outcome in &document.experiments {
        page = page.section(section(outcome));
    }
    page.section(Section::new("Fitted parameters").text(FITTED).table(fitted(&findings)))
        .section(Section::new("Noise and cost").text(NOISE).table(costs(document)))
}

fn advice(document: &Document) -> Table {
    Table::of("Advice", &document.advice)
        .column(Column::text("about"), |advice| advice.topic.as_ref())
        .column(Column::text("advice"), |advice| advice.recommendation.as_str())
        .column(Column::text("because"), |advice| advice.reason.as_str())
        .done()
}

const FITTED: &str = "With confidence intervals of 95 %, by resampling the measurements. A value that equals both ends was \
                      counted or read off. A yes is 1, a no 0.";
const NOISE: &str = "Steal is the share of the processors' time that a hypervisor gave to others; waiting is the share \
                     of their time that the threads of I/O were ready to run and did not. Above 1 % either way an \
                     experiment is contended: its numbers reflect the machine as much as the device.";

/// The command that made the page, without the serial number.
fn command_line() -> String {
    let line = output::command_line();
    let Some((before, after)) = line.split_once("--destroy") else { return line };
    let mut rest = after.trim_start_matches([' ', '=']).splitn(2, ' ');
    let _serial = rest.next();
    let rest = rest.next().map(|rest| format!(" {rest}")).unwrap_or_default();
    format!("{before}--destroy SERIAL{rest}")
}

fn facts(document: &Document) -> Vec<(&'static str, String)> {
    let Document { target, environment, setup, seed, .. } = document;
    let mut facts = vec![
        ("measured", target.description.clone()),
        ("size", shown(target.capacity_bytes)),
        ("smallest I/O", shown(target.granule_bytes.into())),
        ("a point at most", format!("{} I/Os, {} s", setup.ios, setup.seconds)),
        ("seed", seed.to_string()),
    ];
    if let Some(machine) = environment {
        let below = if machine.hypervisor { ", under a hypervisor" } else { "" };
        facts.push(("system", format!("{}{below}", machine.system)));
        facts.push(("processor", format!("{} × {}", machine.processors, machine.processor)));
        facts.push(("memory", NumberFormat::Bytes.short(machine.memory_bytes as f64)));
    }
    facts
}

fn section(outcome: &Outcome) -> Section {
    let about = entresol_probe::experiments().iter().find(|experiment| experiment.name == outcome.experiment);
    let mut section = Section::new(outcome.experiment.clone());
    if let Some(experiment) = about {
        section = section.text(format!("{} ({}).", sentence(experiment.about), experiment.source));
    }
    if outcome.noise.contended {
        section = section.note(format!(
            "Contended: steal {:.1}%, waiting for a processor {:.1}%.",
            100.0 * outcome.noise.steal,
            100.0 * outcome.noise.run_queue
        ));
    }
    // Charts with many lines need the width of the page for their names.
    let (wide, narrow): (Vec<&Series>, Vec<&Series>) = outcome.findings.curves.iter().partition(|c| c.lines.len() > 4);
    section = wide.into_iter().filter_map(chart).fold(section, Section::chart);
    let narrow: Vec<LineChart> = narrow.into_iter().filter_map(chart).collect();
    section = match narrow.len() {
        0 | 1 => narrow.into_iter().fold(section, Section::chart),
        _ => section.grid(narrow.into_iter().map(Into::into)),
    };
    section = outcome.findings.tables.iter().map(table).fold(section, Section::table);
    let notes = &outcome.findings.notes;
    if notes.is_empty() { section } else { section.text(notes.join("\n\n")) }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Returns the number format of an axis, and the factor from its unit to the base unit of that format.
fn format(label: &str) -> (NumberFormat, f64) {
    let unit = label.split(' ').next().unwrap_or_default();
    match unit {
        "us" => (NumberFormat::Seconds, 1e-6),
        "ms" => (NumberFormat::Seconds, 1e-3),
        "KiB" => (NumberFormat::Bytes, 1024.0),
        "MiB" => (NumberFormat::Bytes, 1_048_576.0),
        "share" => (NumberFormat::Percent, 1.0),
        _ => (NumberFormat::Count, 1.0),
    }
}

/// Returns the name of an axis, without the unit that its numbers have.
fn axis_name(label: &str, format: NumberFormat, is_time: bool) -> String {
    let rest = label.split_once(' ').map_or("", |(_, rest)| rest);
    match format {
        NumberFormat::Seconds | NumberFormat::Bytes if !rest.is_empty() => rest.to_owned(),
        NumberFormat::Seconds if is_time => "time".to_owned(),
        NumberFormat::Seconds => "latency".to_owned(),
        NumberFormat::Bytes => "size".to_owned(),
        _ => label.to_owned(),
    }
}

/// A chart; none for series without points.
fn chart(series: &Series) -> Option<LineChart> {
    let points = || series.lines.iter().flat_map(|line| &line.points);
    points().next()?;
    let shared = series.y_label.starts_with("share");
    let axis = |label: &str, values: &mut dyn Iterator<Item = f64>, is_x: bool| {
        let (format, worth) = format(label);
        let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
        // Latencies of distributions, sizes and depths spread over powers; time and counts are linear.
        let wide = low > 0.0 && high / low >= if is_x { 30.0 } else { 100.0 };
        let spread = match format {
            NumberFormat::Seconds if wide && (shared || !is_x) => Spread::Log10,
            NumberFormat::Bytes if wide && is_x => Spread::Log2,
            NumberFormat::Count if wide && (label == "queue depth" || label == "threads") => Spread::Log2,
            NumberFormat::Count if wide && !is_x => Spread::Log10,
            _ => Spread::Linear,
        };
        let axis = Axis::new(axis_name(label, format, is_x && !shared), format).spread(spread);
        // A nearly constant value must not look as if it changed.
        (if spread == Spread::Linear { axis.at_least(0.0, 0.0) } else { axis }, worth)
    };
    let (x, x_worth) = axis(&series.x_label, &mut points().map(|point| point.0), true);
    let (y, y_worth) = axis(&series.y_label, &mut points().map(|point| point.1), false);
    let mut chart = LineChart::new(series.title.clone(), x, y);
    for line in &series.lines {
        let points = line.points.iter().map(|(x, y)| (x * x_worth, y * y_worth));
        chart = chart.series(Drawn::new(line.name.clone(), points).emphasised());
    }
    Some(chart)
}

fn table(found: &entresol_probe::Table) -> Table {
    let is_text = |column: usize| found.rows.iter().all(|row| matches!(row[column], entresol_probe::Cell::Text(_)));
    let heads = found.columns.iter().zip(&found.units).enumerate();
    let columns = heads.map(|(at, (head, unit))| {
        let head = if unit.is_empty() { head.clone() } else { format!("{head} ({unit})") };
        if is_text(at) { Column::text(head) } else { Column::number(head) }
    });
    let mut table = Table::new(found.title.clone(), columns);
    for row in &found.rows {
        table.push(row.iter().map(|cell| match cell {
            entresol_probe::Cell::Number(value) => number(*value),
            entresol_probe::Cell::Text(text) => text.as_str().into(),
        }));
    }
    table
}

fn costs(document: &Document) -> Table {
    let model = document.environment.is_none();
    let bytes = |bytes: u64| Cell::short(bytes as f64, NumberFormat::Bytes);
    let share = |share: f64| (!model).then(|| Cell::percent(share, 2));
    let verdict = |noise: &Noise| {
        let verdict = match (model, noise.contended) {
            (true, _) => "virtual time",
            (false, true) => "contended",
            (false, false) => "quiet",
        };
        Cell::from(verdict).tone(if noise.contended { Tone::Bad } else { Tone::Plain })
    };
    Table::of("Noise and cost", &document.experiments)
        .column(Column::text("experiment"), |outcome| outcome.experiment.as_str())
        .column(Column::number("I/Os"), |outcome| outcome.ios)
        .column(Column::number("read"), |outcome| bytes(outcome.read_bytes))
        .column(Column::number("written"), |outcome| bytes(outcome.written_bytes))
        .column(Column::number("seconds"), |outcome| number(outcome.seconds))
        .column(Column::number("steal"), |outcome| share(outcome.noise.steal))
        .column(Column::number("waiting"), |outcome| share(outcome.noise.run_queue))
        .column(Column::number("load"), |outcome| (!model).then(|| Cell::fixed(outcome.noise.load, 1)))
        .column(Column::text("verdict"), |outcome| verdict(&outcome.noise))
        .done()
}
