//! The text of the studies of `entresol burst simulate`.

use super::Results;
use super::report::{cells, redundancy, spread_columns, spread_json};
use super::study::{Candidate, LIGHT_OVERHEAD_S, NEAR_BEST, chosen};
use entresol_burst::simulate::Published;
use entresol_burst::{DrainPriority, Kind, Policy, Redundancy};
use entresol_render::{Cell, Column, Table, TextStyle};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The tables of all requested studies.
pub fn text(results: &Results) -> String {
    let mut text = String::new();
    let mut add = |title: &str, table: Table| {
        let _ = write!(text, "\n{title}\n{}", table.to_text(TextStyle::stdout()));
    };
    if let Some(published) = Published::of(&results.workload).filter(|_| !results.readings.is_empty()) {
        add(
            &format!(
                "simulated: each reading, the PFS fitted again: ldbb over published, ldbb over cdbb (published {})",
                published.ratio
            ),
            readings(results, &published),
        );
        add("grounds of each reading, by section of the thesis", grounds(results));
    }
    if !results.candidates.is_empty() {
        add(
            "simulated: p90 of one checkpoint and of all together, over the least possible and over cdbb's; core-hours \
             lost by a failure",
            candidates(results),
        );
        text.push('\n');
        choices(results, &mut text);
    }
    if !results.costs.is_empty() {
        let _ = write!(
            text,
            "\nmeasured on this machine: seconds of the coordinator's object for open, renew and commit; no message\n{}",
            costs(results).to_text(TextStyle::stdout())
        );
        let _ =
            writeln!(text, "published for light: {LIGHT_OVERHEAD_S} s of all checkpoints together, messages included");
    }
    text
}

fn yes_or_no(met: bool) -> Cell {
    Cell::from(if met { "yes" } else { "no" })
}

/// Columns: the fit, the spread of the ratio, and the published numbers that are met.
fn readings(results: &Results, published: &Published) -> Table {
    let fixed = [Column::text("reading"), Column::number("PFS GB/s"), Column::number("QE"), Column::number("pBWA")];
    let met = ["times", "range", "median"].map(Column::text);
    let mut table = Table::new("readings", fixed.into_iter().chain(spread_columns()).chain(met));
    for read in &results.readings {
        let fit = read.sensitivity.fit;
        let fixed = [
            Cell::from(read.reading.name),
            Cell::fixed(fit.pfs / 1e9, 3),
            Cell::fixed(fit.qe, 3),
            Cell::fixed(fit.pbwa, 3),
        ];
        let met = read.sensitivity.meets(published).map(yes_or_no);
        table.push(fixed.into_iter().chain(cells(&read.sensitivity.ratios)).chain(met));
    }
    table
}

fn grounds(results: &Results) -> Table {
    Table::of("grounds", &results.readings)
        .column(Column::text("reading"), |read| read.reading.name)
        .column(Column::text("ground"), |read| read.reading.ground)
        .done()
}

fn drain(policy: &Policy) -> &'static str {
    if policy.drain == DrainPriority::Fair { "fair" } else { "low" }
}

/// The candidate of `cdbb` with the same redundancy and drain priority.
fn of_cdbb<'a>(all: &'a [Candidate], policy: &Policy) -> Option<&'a Candidate> {
    all.iter().find(|other| {
        let other = other.policy;
        other.kind == Kind::Cdbb && other.redundancy == policy.redundancy && other.drain == policy.drain
    })
}

fn candidates(results: &Results) -> Table {
    let over_cdbb = |it: &Candidate, of: fn(&Candidate) -> f64| {
        of_cdbb(&results.candidates, &it.policy).map(|other| Cell::fixed(of(it) / of(other), 2))
    };
    Table::of("candidates", &results.candidates)
        .column(Column::text("policy"), |it| it.policy.kind.name())
        .column(Column::text("redundancy"), |it| redundancy(&it.policy))
        .column(Column::text("drain"), |it| drain(&it.policy))
        .column(Column::number("one p90"), |it| Cell::fixed(it.checkpoint_p90_s, 2))
        .column(Column::number("least"), |it| Cell::fixed(it.bound_p90_s, 2))
        .column(Column::number("/ cdbb"), |it| over_cdbb(it, |it| it.checkpoint_p90_s))
        .column(Column::number("all p90"), |it| Cell::fixed(it.total_p90_s, 1))
        .column(Column::number("/ cdbb "), |it| over_cdbb(it, |it| it.total_p90_s))
        .column(Column::number("core-hours"), |it| Cell::fixed(it.lost_core_hours, 3))
        .done()
}

/// The chosen candidates: over all, and for each redundancy by itself.
fn choices(results: &Results, text: &mut String) {
    let kinds = [None, Some(Redundancy::None), Some(Redundancy::Partner), Some(Redundancy::Xor)];
    for kind in kinds {
        let of_kind = results.candidates.iter().filter(|it| kind.is_none_or(|kind| it.policy.redundancy == kind));
        let name = |found: Option<&Candidate>| {
            found.map_or_else(|| "none".to_owned(), |it| format!("{} {}", without(&it.policy), redundancy(&it.policy)))
        };
        let by_one = name(chosen(of_kind.clone(), |it| it.checkpoint_p90_s));
        let by_all = name(chosen(of_kind, |it| it.total_p90_s));
        let among = match kind {
            None => "all",
            Some(Redundancy::None) => "none",
            Some(Redundancy::Partner) => "partner",
            Some(Redundancy::Xor) => "xor",
        };
        let _ = writeln!(
            text,
            "least lost work within {NEAR_BEST} of the best p90, redundancy {among}: by one checkpoint {by_one}; by all {by_all}"
        );
    }
}

fn without(policy: &Policy) -> String {
    format!("{}:drain={}", policy.kind.name(), drain(policy))
}

fn costs(results: &Results) -> Table {
    Table::of("costs", &results.costs)
        .column(Column::text("policy"), |cost| cost.policy.to_string())
        .column(Column::number("answers"), |cost| Cell::fixed(cost.answers, 0))
        .column(Column::number("slowest checkpoint"), |cost| Cell::fixed(cost.checkpoint_s, 6))
        .column(Column::number("all checkpoints"), |cost| Cell::fixed(cost.total_s, 6))
        .done()
}

/// The readings as JSON.
pub fn readings_json(results: &Results) -> Vec<Value> {
    let Some(published) = Published::of(&results.workload) else { return Vec::new() };
    let one = |read: &super::study::Read| {
        let [times, range, middle] = read.sensitivity.meets(&published);
        json!({
            "reading": read.reading.name,
            "ground": read.reading.ground,
            "pfs_bytes_per_s": read.sensitivity.fit.pfs,
            "qe_over_published": read.sensitivity.fit.qe,
            "pbwa_over_published": read.sensitivity.fit.pbwa,
            "ldbb_over_cdbb": spread_json(&read.sensitivity.ratios),
            "times_within_a_tenth": times,
            "published_in_range": range,
            "median_within_a_quarter": middle,
        })
    };
    results.readings.iter().map(one).collect()
}

/// The candidates as JSON.
pub fn candidates_json(results: &Results) -> Vec<Value> {
    let one = |candidate: &Candidate| {
        json!({
            "policy": candidate.policy.to_string(),
            "checkpoint_p90_s": candidate.checkpoint_p90_s,
            "bound_p90_s": candidate.bound_p90_s,
            "total_p90_s": candidate.total_p90_s,
            "core_hours_per_failure": candidate.lost_core_hours,
        })
    };
    results.candidates.iter().map(one).collect()
}

/// The costs as JSON.
pub fn costs_json(results: &Results) -> Vec<Value> {
    let one = |cost: &super::study::Cost| {
        json!({
            "policy": cost.policy.to_string(),
            "answers": cost.answers,
            "slowest_checkpoint_s": cost.checkpoint_s,
            "all_checkpoints_s": cost.total_s,
        })
    };
    results.costs.iter().map(one).collect()
}
