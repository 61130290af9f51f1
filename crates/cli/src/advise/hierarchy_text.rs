//! The text that `advise hierarchy` prints.

use super::hierarchy::Advice;
use entresol_advise::hierarchy::{Answer, Candidate, Fate, Measured, Objective, Tried, Warning, WhatIf, Worse};
use entresol_advise::money::Money;
use entresol_render::{Cell, Column, NumberFormat, Table, TableOf, TextStyle, Tone, grouped, percent};
use std::fmt::Write;

/// Most rows of a table on the terminal; files have all.
const ROWS_MAX: usize = 24;
/// Most warnings in the summary; JSON has all.
const WARNINGS_MAX: usize = 8;
/// Lifetimes in years from here on are not printed.
const YEARS_MAX: f64 = 1e4;

/// The recommendation and its reasons, the front, and performance per price.
pub fn advice(advice: &Advice, style: TextStyle) -> String {
    let tried = advice.candidates;
    let mut out = summary(advice);
    out += "\n";
    out += &front(advice).to_text(style);
    let order = by_performance_per_price(tried);
    let shown = &order[..order.len().min(ROWS_MAX)];
    out += "\n";
    out += &table("Performance per price", tried, shown, advice.choice.best).to_text(style);
    if shown.len() < order.len() {
        let _ = writeln!(out, "{} more simulated; --json and --csv have all", order.len() - shown.len());
    }
    if let Some(found) = &advice.what_if {
        out += "\n";
        out += &what_if(found, style);
    }
    out
}

/// The front as a table.
pub fn front(advice: &Advice) -> Table {
    table("Front between price and throughput", advice.candidates, &advice.choice.front, advice.choice.best)
}

/// Positions of all measured candidates, the best first; with a sample, those simulated in full come before the others.
pub fn by_performance_per_price(tried: &[Tried]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tried.len()).filter(|&at| tried[at].figures().is_some()).collect();
    let per_dollar =
        |at: usize| tried[at].figures().map_or(0.0, |measured| measured.per_dollar.unwrap_or(f64::INFINITY));
    let sampled = |at: usize| tried[at].measured().is_none();
    order.sort_by(|&a, &b| sampled(a).cmp(&sampled(b)).then(per_dollar(b).total_cmp(&per_dollar(a))).then(a.cmp(&b)));
    order
}

/// The answers under other circumstances, the worth of more of each tier, and 001's break-even.
fn what_if(found: &WhatIf, style: TextStyle) -> String {
    answers(found).to_text(style) + &worth_of_more(found)
}

/// The answers under other circumstances.
pub fn answers(found: &WhatIf) -> Table {
    let number = |answer: &Answer, value, digits| answer.none.is_none().then(|| Cell::fixed(value, digits));
    let hierarchy = |answer: &Answer| match (&answer.none, answer.same) {
        (Some(none), _) => Cell::from(none.as_str()).tone(Tone::Muted),
        (None, true) => "the same".into(),
        (None, false) => Cell::from(answer.hierarchy.as_str()),
    };
    let relative = Column::number("relative rate")
        .help("throughput of the hierarchy recommended above, as a multiple of that of the best then");
    Table::of("Other circumstances", &found.answers)
        .column(Column::text("circumstance"), |answer| answer.what.as_str())
        .column(Column::text("the best then"), |answer| hierarchy(answer))
        .column(Column::number("price"), |answer| answer.none.is_none().then(|| price(answer.dollars)))
        .column(Column::number("requests/s"), |answer| number(answer, answer.requests_per_second, 0))
        .column(relative, |answer| answer.recommended_share.map(|share| Cell::fixed(share, 3)))
        .done()
}

/// The gain from more of each tier, per GB and per dollar, and the break-even of 001, equation 1, a line each.
pub fn worth_of_more(found: &WhatIf) -> String {
    let mut out = String::new();
    for more in &found.more {
        let (gb, per_gb) = (short(more.gb), signed(more.gain_per_gb));
        let _ = write!(out, "a GB more of {} (of {gb} added): {per_gb} requests/s", more.name);
        let _ = match more.gain_per_dollar {
            Some(per_dollar) => writeln!(out, ", {} for a dollar", signed(per_dollar)),
            None => writeln!(out),
        };
    }
    if let Some(even) = &found.break_even {
        let _ = writeln!(
            out,
            "{} GB more DRAM (${:.2}) are as good as {} GB of {} (${:.2}) by 001, equation 1; simulated: {} and {} requests/s",
            short(even.dram_gb),
            even.dram_dollars.dollars(),
            short(even.other_gb),
            even.other,
            even.other_dollars.dollars(),
            grouped(even.dram_per_second.round() as i128),
            grouped(even.other_per_second.round() as i128),
        );
    }
    out
}

/// A short number with its sign.
fn signed(value: f64) -> String {
    format!("{}{}", if value < 0.0 { "-" } else { "+" }, short(value.abs()))
}

/// The recommendation and its reasons.
pub fn summary(advice: &Advice) -> String {
    let tried = advice.candidates;
    let best = &tried[advice.choice.best];
    let measured = best.measured().expect("the choice was simulated");
    let mut out = String::new();
    let digits = if advice.footprint_gb < 1.0 { 4 } else { 1 };
    let _ = writeln!(
        out,
        "prices of {} ({}), budget ${}, {:.digits$} GB of data{}",
        advice.prices_of,
        advice.catalogue,
        advice.budget,
        advice.footprint_gb,
        if advice.scale == 1.0 { String::new() } else { format!(" at 1/{:.0} of its size", advice.scale) },
    );
    let count = |of: fn(&Fate) -> bool| tried.iter().filter(|entry| of(&entry.fate)).count();
    let simulated = count(|fate| matches!(fate, Fate::Simulated(_)));
    let beaten = count(|fate| matches!(fate, Fate::Beaten(_)));
    let impossible = count(|fate| matches!(fate, Fate::Impossible(_)));
    let _ = write!(
        out,
        "{} candidates: {simulated} simulated, {beaten} beaten by a cheaper one at their bound",
        tried.len()
    );
    if impossible > 0 {
        let _ = write!(out, ", {impossible} too small for their policy at this scale");
    }
    let _ = writeln!(out, "; {} combinations are beyond the budget", advice.beyond_budget);
    let _ = writeln!(out, "\nbuy {} for ${}", best.candidate, best.candidate.dollars);
    let _ = writeln!(out, "  {}", figures(measured));
    let _ = writeln!(out, "  why: {}", why(advice.objective));
    let bound = best.most_per_second;
    let share = percent(measured.requests_per_second / bound, 1);
    let _ = writeln!(
        out,
        "  {share} of the {} requests/s that no policy exceeds in these tiers",
        grouped(bound.round() as i128)
    );
    let _ = writeln!(out, "  {}", served(&best.candidate, measured));
    for line in neighbours(advice) {
        let _ = writeln!(out, "  {line}");
    }
    for line in warnings(advice) {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// The warnings, a line each, those about the recommendation first; at most [`WARNINGS_MAX`].
fn warnings(advice: &Advice) -> Vec<String> {
    let (tried, best) = (advice.candidates, advice.choice.best);
    let line = |Warning { at, what }: &Warning| {
        let whose = if *at == best { "warning, of the recommended hierarchy" } else { "warning" };
        let of = &tried[*at].candidate;
        match what {
            Worse::Slower { without, times } => {
                let without = &tried[*without].candidate;
                format!(
                    "{whose}: {of} is no faster than without its cache: {times:.3} times the throughput of {without}"
                )
            }
            Worse::Cramped(cramped) => format!("{whose}: {of}: {cramped}"),
            Worse::Worn { device, years } => format!(
                "{whose}: {of}: at this rate, day and night, {device} is worn out after {}; --min-lifetime leaves such \
                 hierarchies out",
                lifetime(*years)
            ),
        }
    };
    let (of_best, others): (Vec<_>, Vec<_>) = advice.warnings.iter().partition(|warning| warning.at == best);
    let mut lines: Vec<String> = of_best.into_iter().chain(others).map(line).collect();
    let more = lines.len().saturating_sub(WARNINGS_MAX);
    lines.truncate(WARNINGS_MAX);
    if more > 0 {
        lines.push(format!("{more} more warnings; --json has all"));
    }
    lines
}

/// A lifetime in words: years, or days where it is shorter than half a year.
fn lifetime(years: f64) -> String {
    if years < 0.5 { format!("{:.0} days", years * 365.25) } else { format!("{years:.1} years") }
}

fn why(objective: Objective) -> &'static str {
    match objective {
        Objective::Throughput => "no candidate within the limits has more throughput",
        Objective::PerDollar => "no candidate within the limits has more throughput for a dollar",
        Objective::Price => "no candidate within the limits is cheaper",
        Objective::P99 => "no candidate within the limits has a smaller 99th percentile",
        Objective::Lifetime => "no candidate within the limits lasts longer",
        Objective::Energy => "no candidate within the limits takes less energy for a request",
    }
}

fn figures(measured: &Measured) -> String {
    let mut parts = vec![format!("{} requests/s", grouped(measured.requests_per_second.round() as i128))];
    parts.extend(measured.per_dollar.map(|per_dollar| format!("{} a dollar", short(per_dollar))));
    parts.extend(measured.p99_us.map(|us| format!("p99 {}", NumberFormat::Seconds.short(us / 1e6))));
    let years = measured.lifetime_years.filter(|years| *years < YEARS_MAX);
    parts.extend(years.map(|years| format!("first device worn out after {} years", short(years))));
    parts.extend(measured.joules_per_request.map(|joules| format!("{joules:.2e} J a request")));
    parts.join(", ")
}

fn short(value: f64) -> String {
    if value >= 1000.0 {
        grouped(value.round() as i128)
    } else {
        format!("{value:.*}", if value < 10.0 { 2 } else { 1 })
    }
}

/// Share of the requests that each device serves, and the busiest device.
fn served(candidate: &Candidate, measured: &Measured) -> String {
    let each = candidate.parts.iter().zip(&measured.devices);
    let shares: Vec<String> = each
        .clone()
        .map(|(part, used)| format!("{} of the requests in {}", percent(used.served, 1), part.name))
        .collect();
    let busiest = each.max_by(|a, b| a.1.utilisation.total_cmp(&b.1.utilisation));
    let busiest =
        busiest.map(|(part, used)| format!("; {} is busiest, {} of the time", part.name, percent(used.utilisation, 0)));
    format!("it serves {}{}", shares.join(", "), busiest.unwrap_or_default())
}

/// Compares the recommendation with its next cheaper and next dearer neighbour on the front, a line each.
fn neighbours(advice: &Advice) -> Vec<String> {
    let (tried, front) = (advice.candidates, &advice.choice.front);
    let best = &tried[advice.choice.best];
    let per_second = |entry: &Tried| entry.figures().map_or(f64::NAN, |measured| measured.requests_per_second);
    let change = |at: usize, word: &str| {
        let other = &tried[at];
        let dollars = other.candidate.dollars.difference(best.candidate.dollars);
        let ratio = per_second(other) / per_second(best);
        format!("${dollars} {word}: {}, {ratio:.3} times the throughput", other.candidate)
    };
    let cheaper = front.iter().copied().rev().find(|&at| tried[at].candidate.dollars < best.candidate.dollars);
    let dearer = front.iter().copied().find(|&at| tried[at].candidate.dollars > best.candidate.dollars);
    [cheaper.map(|at| change(at, "less")), dearer.map(|at| change(at, "more"))].into_iter().flatten().collect()
}

/// These candidates, with their energy if that of any is known.
fn table(name: &str, tried: &[Tried], places: &[usize], best: usize) -> Table {
    let energy = |&at: &usize| tried[at].figures().is_some_and(|measured| measured.joules_per_request.is_some());
    let known = places.iter().any(energy);
    let priced = priced(name, tried, places.iter().copied(), Some(best));
    priced.column_if(known, Column::number("J/request").priority(3), |(_, entry)| energy_of(entry)).done()
}

/// A row per candidate, with all columns.
pub fn all(tried: &[Tried], places: impl IntoIterator<Item = usize>) -> Table {
    let fate = |entry: &Tried| match &entry.fate {
        Fate::Simulated(_) => "simulated",
        Fate::Estimated(_) => "estimated",
        Fate::Beaten(_) => "beaten",
        Fate::Impossible(_) => "too small",
    };
    let most = Column::number("at most/s").priority(4).help("no policies of these tiers have more throughput");
    priced("Candidates", tried, places, None)
        .column(Column::number("J/request").priority(3), |(_, entry)| energy_of(entry))
        .column(most, |(_, entry)| Cell::fixed(entry.most_per_second, 0))
        .column(Column::text("fate").priority(5), |(_, entry)| fate(entry))
        .done()
}

/// The first columns of a table of candidates. `best` stands out.
fn priced<'t>(
    name: &str,
    tried: &'t [Tried],
    places: impl IntoIterator<Item = usize>,
    best: Option<usize>,
) -> TableOf<(usize, &'t Tried)> {
    let hierarchy = |at: usize, entry: &Tried| {
        let estimated = if matches!(entry.fate, Fate::Estimated(_)) { "~ " } else { "" };
        let name = Cell::from(format!("{estimated}{}", entry.candidate));
        if best == Some(at) { name.tone(Tone::Good) } else { name }
    };
    let years = Column::number("years")
        .priority(1)
        .help("until the first device is worn out, at this rate day and night; none beyond ten thousand");
    let per_dollar = Column::number("per dollar").help("requests a second for each dollar (003, figure 10)");
    Table::of(name, places.into_iter().map(|at| (at, &tried[at])))
        .column(Column::text("hierarchy"), |(at, entry)| hierarchy(*at, entry))
        .column(Column::number("price"), |(_, entry)| price(entry.candidate.dollars))
        .column(Column::number("requests/s"), |(_, entry)| of(entry, |measured| Some(measured.requests_per_second), 0))
        .column(per_dollar, |(_, entry)| of(entry, |measured| measured.per_dollar, 2))
        .column(Column::number("mean us").priority(2), |(_, entry)| of(entry, |measured| Some(measured.mean_us), 2))
        .column(Column::number("p99 us").priority(1), |(_, entry)| of(entry, |measured| measured.p99_us, 1))
        .column(years, |(_, entry)| of(entry, |measured| measured.lifetime_years.filter(|years| *years < YEARS_MAX), 1))
}

fn price(amount: Money) -> Cell {
    Cell::fixed(amount.dollars(), amount.decimals())
}

fn energy_of(entry: &Tried) -> Cell {
    of(entry, |measured| measured.joules_per_request, 9)
}

fn of(entry: &Tried, field: fn(&Measured) -> Option<f64>, digits: usize) -> Cell {
    entry.figures().and_then(field).map(|value| Cell::fixed(value, digits)).into()
}
