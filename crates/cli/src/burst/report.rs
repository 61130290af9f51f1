//! The text that `entresol burst simulate` prints.

use super::study_report as study;
use super::{Lost, MTBF_HOURS, Results, Simulated};
use entresol_burst::simulate::{Published, median, quantile};
use entresol_burst::{Kind, Policy, Redundancy};
use entresol_render::{Cell, Column, Table, TextStyle};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Columns of a spread, and the quantiles that they show.
const SPREAD: [(&str, f64); 6] =
    [("min", 0.0), ("p25", 0.25), ("median", 0.5), ("p75", 0.75), ("p90", 0.9), ("max", 1.0)];

pub fn spread_columns() -> impl Iterator<Item = Column> {
    SPREAD.into_iter().map(|(name, _)| Column::number(name))
}

fn spread(values: &[f64]) -> [f64; SPREAD.len()] {
    SPREAD.map(|(_, share)| quantile(values.iter().copied(), share))
}

pub fn spread_json(values: &[f64]) -> Value {
    SPREAD.iter().zip(spread(values)).map(|((name, _), value)| ((*name).to_owned(), json!(value))).collect()
}

pub fn cells(values: &[f64]) -> [Cell; SPREAD.len()] {
    spread(values).map(|value| Cell::fixed(value, 2))
}

impl Simulated {
    fn totals_s(&self) -> Vec<f64> {
        self.outcomes.iter().map(|outcome| outcome.total_s()).collect()
    }

    fn program_totals_s(&self, program: usize) -> Vec<f64> {
        self.outcomes.iter().map(|outcome| outcome.program_s(program)).collect()
    }

    /// Times of all checkpoints of all programs and seeds.
    fn times_s(&self) -> Vec<f64> {
        self.outcomes.iter().flat_map(|outcome| outcome.times_s.iter().flatten().copied()).collect()
    }

    /// The totals of `base` over this policy's, seed by seed.
    fn ratios(&self, base: &Simulated) -> Vec<f64> {
        base.totals_s().iter().zip(self.totals_s()).map(|(base, own)| base / own).collect()
    }

    /// Shares of the bytes whose first destination was the local buffer, a remote one, and the PFS.
    fn shares(&self) -> [f64; 3] {
        let sum = |of: fn(&entresol_burst::simulate::Destinations) -> u64| {
            self.outcomes.iter().map(|outcome| of(&outcome.destinations) as f64).sum::<f64>()
        };
        let bytes = [sum(|to| to.local), sum(|to| to.remote), sum(|to| to.pfs)];
        let all: f64 = bytes.iter().sum();
        bytes.map(|bytes| bytes / all)
    }
}

impl Results {
    fn published(&self) -> Option<Published> {
        Published::of(&self.workload)
    }

    /// The published ratio of the first policy's totals to those of `policy`: only for `ldbb` to `cdbb`.
    fn published_ratio(&self, policy: &Policy) -> Option<f64> {
        let compared = self.simulated[0].policy.kind == Kind::Ldbb && policy.kind == Kind::Cdbb;
        self.published().filter(|_| compared).map(|published| published.ratio)
    }

    /// The published time of all six checkpoints of a program.
    fn published_s(&self, program: &str, policy: &Policy) -> Option<f64> {
        let published = self.published().filter(|_| policy.kind == Kind::Ldbb)?;
        match program {
            "QE" => Some(published.qe_s),
            "pBWA" => Some(published.pbwa_s),
            _ => None,
        }
    }
}

pub fn redundancy(policy: &Policy) -> &'static str {
    match policy.redundancy {
        Redundancy::None => "none",
        Redundancy::Partner => "partner",
        Redundancy::Xor => "xor",
    }
}

/// The policy's text without its redundancy, which has its own column.
fn without_redundancy(policy: &Policy) -> String {
    Policy { redundancy: Policy::new(policy.kind).redundancy, ..*policy }.to_string()
}

fn fixed_or_missing(value: Option<f64>) -> Cell {
    value.map_or_else(Cell::missing, |value| Cell::fixed(value, 2))
}

/// The report as text.
pub fn text(results: &Results, figures: bool) -> String {
    let mut text = heading(results);
    let mut add = |title: &str, table: Table| {
        let _ = write!(text, "\n{title}\n{}", table.to_text(TextStyle::stdout()));
    };
    add("simulated: seconds of all checkpoints together, over the seeds", totals(results));
    if results.simulated.len() > 1 {
        let first = results.simulated[0].policy;
        add(&format!("simulated: {first} over each policy, seed by seed (figure 5.6)"), ratios(results));
    }
    add(
        "simulated: seconds of one checkpoint, over programs and seeds; where its bytes went first",
        checkpoints(results),
    );
    if figures {
        add(
            "simulated: seconds of each program's checkpoints together, over the seeds (figure 5.7)",
            programs(results),
        );
        add(
            "simulated: seconds of each program's checkpoints in turn, medians over the seeds (figure 5.8)",
            turns(results),
        );
    }
    if !results.lost.is_empty() {
        add("simulated: core-hours lost by one failure of a node, by mean time between failures", lost_work(results));
        add("simulated: restarts that found their newest complete checkpoint gone", newest_gone(results));
    }
    text + &study::text(results)
}

fn heading(results: &Results) -> String {
    let workload = &results.workload;
    let writers: u32 = workload.programs.iter().map(|program| program.writers).sum();
    let seeds = if results.seeds == 1 { "1 seed".to_owned() } else { format!("{} seeds", results.seeds) };
    let programs = if workload.programs.len() == 1 { "program" } else { "programs" };
    let mut text = format!(
        "simulated: {}, {} {programs}, {writers} writers on {} nodes, {} checkpoints each, PFS {:.3} GB/s, {seeds}\n",
        workload.name,
        workload.programs.len(),
        results.cluster.nodes,
        workload.checkpoints,
        results.cluster.pfs / 1e9,
    );
    if let Some(fit) = &results.fit {
        let (qe, pbwa) = (fit.qe, fit.pbwa);
        let _ = writeln!(text, "simulated over published under ldbb, after the fit: QE {qe:.3}, pBWA {pbwa:.3}");
    }
    text
}

fn totals(results: &Results) -> Table {
    let mut table = Table::new("totals", [Column::text("policy")].into_iter().chain(spread_columns()));
    for simulated in &results.simulated {
        table.push([Cell::from(simulated.policy.to_string())].into_iter().chain(cells(&simulated.totals_s())));
    }
    table
}

fn ratios(results: &Results) -> Table {
    let columns = [Column::text("policy")].into_iter().chain(spread_columns());
    let mut table = Table::new("ratios", columns.chain([Column::number("published")]));
    let base = &results.simulated[0];
    for simulated in &results.simulated[1..] {
        let row = [Cell::from(simulated.policy.to_string())].into_iter().chain(cells(&simulated.ratios(base)));
        table.push(row.chain([fixed_or_missing(results.published_ratio(&simulated.policy))]));
    }
    table
}

fn checkpoints(results: &Results) -> Table {
    let columns = [Column::text("policy")].into_iter().chain(spread_columns());
    let to = ["local", "remote", "PFS"].map(Column::number);
    let mut table = Table::new("checkpoints", columns.chain(to));
    for simulated in &results.simulated {
        let row = [Cell::from(simulated.policy.to_string())].into_iter().chain(cells(&simulated.times_s()));
        table.push(row.chain(simulated.shares().map(|share| Cell::percent(share, 1))));
    }
    table
}

fn programs(results: &Results) -> Table {
    let columns = [Column::text("program"), Column::text("policy")].into_iter().chain(spread_columns());
    let mut table = Table::new("programs", columns.chain([Column::number("published")]));
    for (at, program) in results.workload.programs.iter().enumerate() {
        for simulated in &results.simulated {
            let fixed = [Cell::from(program.name), simulated.policy.to_string().into()];
            let row = fixed.into_iter().chain(cells(&simulated.program_totals_s(at)));
            table.push(row.chain([fixed_or_missing(results.published_s(program.name, &simulated.policy))]));
        }
    }
    table
}

fn turns(results: &Results) -> Table {
    let numbers = (1..=results.workload.checkpoints).map(|number| Column::number(number.to_string()));
    let mut table = Table::new("turns", [Column::text("program"), Column::text("policy")].into_iter().chain(numbers));
    for (at, program) in results.workload.programs.iter().enumerate() {
        for simulated in &results.simulated {
            let of = |number: usize| median(simulated.outcomes.iter().map(|outcome| outcome.times_s[at][number]));
            let fixed = [Cell::from(program.name), simulated.policy.to_string().into()];
            let times = (0..results.workload.checkpoints as usize).map(|number| Cell::fixed(of(number), 2));
            table.push(fixed.into_iter().chain(times));
        }
    }
    table
}

fn by_mtbf(results: &Results, cell: impl Fn(&Lost, usize) -> Cell) -> Table {
    let hours = MTBF_HOURS.map(|hours| Column::number(format!("{hours} h")));
    let columns = [Column::text("policy"), Column::text("redundancy")].into_iter().chain(hours);
    let mut table = Table::new("lost work", columns);
    for lost in &results.lost {
        let fixed = [Cell::from(without_redundancy(&lost.policy)), redundancy(&lost.policy).into()];
        table.push(fixed.into_iter().chain((0..MTBF_HOURS.len()).map(|at| cell(lost, at))));
    }
    table
}

fn lost_work(results: &Results) -> Table {
    by_mtbf(results, |lost, at| Cell::fixed(lost.losses[at].core_hours_per_failure(), 3))
}

fn newest_gone(results: &Results) -> Table {
    by_mtbf(results, |lost, at| Cell::percent(lost.losses[at].newest_gone_share(), 2))
}

/// The report as JSON.
pub fn json(results: &Results) -> Value {
    let base = &results.simulated[0];
    let policies = results.simulated.iter().map(|simulated| {
        let programs = results.workload.programs.iter().enumerate().map(|(at, program)| {
            let by_seed: Vec<&Vec<f64>> = simulated.outcomes.iter().map(|outcome| &outcome.times_s[at]).collect();
            json!({
                "name": program.name,
                "bytes": program.bytes,
                "total_s": spread_json(&simulated.program_totals_s(at)),
                "published_total_s": results.published_s(program.name, &simulated.policy),
                "checkpoints_s_by_seed": by_seed,
            })
        });
        let [local, remote, pfs] = simulated.shares();
        json!({
            "policy": simulated.policy.to_string(),
            "total_s": spread_json(&simulated.totals_s()),
            "first_over_this": spread_json(&simulated.ratios(base)),
            "published_first_over_this": results.published_ratio(&simulated.policy),
            "checkpoint_s": spread_json(&simulated.times_s()),
            "share_local": local,
            "share_remote": remote,
            "share_pfs": pfs,
            "programs": programs.collect::<Vec<_>>(),
        })
    });
    let lost = results.lost.iter().flat_map(|lost| {
        MTBF_HOURS.iter().zip(&lost.losses).map(|(hours, loss)| {
            json!({
                "policy": lost.policy.to_string(),
                "redundancy": redundancy(&lost.policy),
                "mtbf_h": hours,
                "failures": loss.failures,
                "restarts": loss.restarts,
                "core_hours_per_failure": loss.core_hours_per_failure(),
                "newest_gone": loss.newest_gone,
            })
        })
    });
    json!({
        "simulated": true,
        "workload": results.workload.name,
        "seeds": results.seeds,
        "failures_per_seed": results.failures,
        "pfs_bytes_per_s": results.cluster.pfs,
        "fit": results.fit.map(|fit| json!({ "qe_over_published": fit.qe, "pbwa_over_published": fit.pbwa })),
        "policies": policies.collect::<Vec<_>>(),
        "lost_work": lost.collect::<Vec<_>>(),
        "readings": study::readings_json(results),
        "candidates": study::candidates_json(results),
        "coordinator": study::costs_json(results),
    })
}
