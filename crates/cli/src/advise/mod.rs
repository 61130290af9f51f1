//! `entresol advise`: recommends, from a trace, devices to buy and objects to place.

mod hierarchy;
mod hierarchy_report;
mod hierarchy_text;

use crate::arguments::keyword;
use crate::output;
use crate::trace_source;
use crate::trace_source::ReadArgs;
use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use entresol_advise::cost::PageCosts;
use entresol_advise::placement::{ObjectUse, Placement, object_uses, pages_below, place};
use entresol_core::Size;
use entresol_device::profile;
use entresol_render::{Cell, Column, NumberFormat, Progress, Table, TextStyle, Tone, Unit, grouped};
use entresol_sim::{Addresses, CellOptions, LayerSpec, Mode, Row, parse_policies, run_cell};
use serde::Serialize;
use std::path::PathBuf;

/// Policies for comparison, unless others are named.
const POLICIES: &str = "table-placement,lru,2q,arc,lirs,s3-fifo,w-tinylfu,tac,heuristicdb";
/// Smallest device in bytes on which costs are measured.
const DEVICE_BYTES_MIN: u64 = 1 << 30;

/// Advice from a trace: devices to buy (the command `hierarchy`, also the default), and tables to place on a fast
/// device
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, disable_help_subcommand = true)]
pub struct AdviseArgs {
    #[command(subcommand)]
    command: Option<AdviseCommand>,
    #[command(flatten)]
    hierarchy: hierarchy::HierarchyArgs,
}

/// Subject of the advice.
#[derive(Subcommand)]
enum AdviseCommand {
    Placement(PlacementArgs),
    Hierarchy(Box<hierarchy::HierarchyArgs>),
}

/// Recommend tables and indexes for the fast device, and compare with caches of that size
///
/// A placed object is read from the backing store once, and its written pages go back there once at the end. The fast
/// device serves all accesses in between. The choice saves the most accesses to the backing store, or the
/// most time if both devices are named. It is exact unless stated otherwise. Objects are those that the trace names;
/// logs and temporary files are never placed.
#[derive(Args)]
pub struct PlacementArgs {
    /// Trace file, or generate:SPEC for a generated one
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Capacity of the fast device: bytes (10GiB), pages (2000p) or a share of all objects at their full length (20%)
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub budget: Size,
    /// The fast device: a built-in profile or a TOML file; its times count instead of accesses
    #[arg(long, value_name = "PROFILE", requires = "below")]
    pub fast: Option<String>,
    /// The device of the backing store
    #[arg(long, value_name = "PROFILE", requires = "fast")]
    pub below: Option<String>,
    /// Policies to compare with, at the same size
    #[arg(long, short, default_value = POLICIES, value_name = "LIST")]
    pub policy: String,
    /// Treatment of writes by the placement and by the caches; but in write-back, a written page of a placed object goes
    /// to both devices at once. The default here is another than that of a cache in use, which is write-through
    #[arg(long, value_parser = keyword::<Mode>(), default_value = "write-back")]
    pub mode: Mode,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Write everything to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Costs of one page on both devices, in microseconds.
#[derive(Serialize)]
struct Costs {
    fast: PageCosts,
    below: PageCosts,
}

/// A cache at the same size.
#[derive(Serialize)]
struct Compared {
    policy: String,
    hits: u64,
    pages_below: u64,
    migrated_pages: u64,
}

#[derive(Serialize)]
struct Advice<'a> {
    trace: &'a str,
    page_bytes: u32,
    budget_pages: u64,
    /// Absent if accesses were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    costs_us: Option<Costs>,
    objects: &'a [ObjectUse],
    placement: &'a Placement,
    policies: Vec<Compared>,
}

/// Runs the command.
pub fn run(arguments: &AdviseArgs, quiet: bool) -> Result<()> {
    match &arguments.command {
        Some(AdviseCommand::Placement(arguments)) => placement(arguments, quiet),
        Some(AdviseCommand::Hierarchy(arguments)) => hierarchy::run(arguments, quiet),
        None => hierarchy::run(&arguments.hierarchy, quiet),
    }
}

fn placement(arguments: &PlacementArgs, quiet: bool) -> Result<()> {
    let policies = parse_policies(&arguments.policy)?;
    if let Some(path) = &arguments.json {
        output::check_writable(path)?;
    }
    let named = trace_source::open(&arguments.trace, &arguments.read, policies.iter().any(|p| p.info.future), quiet)?;
    let trace = &named.trace;
    let uses = object_uses(trace);
    // A placed object takes its whole length, pages that no request touches included.
    let budget = arguments.budget.pages(trace.page_bytes, uses.iter().map(|object| object.pages).sum());
    ensure!(budget > 0, "a budget of {} is no page of {} B", arguments.budget, trace.page_bytes);
    let costs = costs(arguments, &uses, trace.page_bytes)?;
    let (below, fast) = costs.as_ref().map_or((PageCosts::ONE, PageCosts::NOTHING), |costs| (costs.below, costs.fast));
    let placement = place(&uses, budget, &below, &fast, arguments.mode);

    let addresses = Addresses::new(trace);
    let bar = Progress::start(&named.name, Some(policies.len() as u64), Unit::Items("policies"), quiet);
    let options = CellOptions { mode: arguments.mode, ..CellOptions::default() };
    let mut rows = Vec::new();
    for policy in &policies {
        let layer = LayerSpec { policy: policy.clone(), sizes: vec![Size::Pages(budget)] };
        rows.push(run_cell(&addresses, &[layer], arguments.budget.to_string(), &options)?);
        bar.advance(1);
    }
    drop(bar);
    if let Some(path) = &arguments.json {
        let policies = rows.iter().map(compared).collect();
        let (trace, page_bytes) = (named.name.as_str(), trace.page_bytes);
        let advice = Advice {
            trace,
            page_bytes,
            budget_pages: budget,
            costs_us: costs,
            objects: &uses,
            placement: &placement,
            policies,
        };
        output::write_file(path, (serde_json::to_string_pretty(&advice)? + "\n").as_bytes())?;
    }
    let in_time = arguments.fast.is_some();
    let objects = objects_table(&uses, &placement, trace.page_bytes, in_time).to_text(TextStyle::stdout());
    let compared = compared_table(&placement, &rows).to_text(TextStyle::stdout());
    let said = verdict(&placement, budget, in_time);
    output::print(&format!("{}\n{objects}{said}\n{compared}", trace_source::describe(&named)))
}

/// Costs on the two devices, if they are named; each device is as large as all objects.
fn costs(arguments: &PlacementArgs, uses: &[ObjectUse], page_bytes: u32) -> Result<Option<Costs>> {
    let (Some(fast), Some(below)) = (&arguments.fast, &arguments.below) else { return Ok(None) };
    let pages: u64 = uses.iter().map(|object| object.pages).sum();
    let bytes = (pages * u64::from(page_bytes)).next_multiple_of(DEVICE_BYTES_MIN);
    let of = |name: &str| -> Result<PageCosts> {
        let profile = profile::load(name)?;
        PageCosts::of_device(&profile, bytes, page_bytes).with_context(|| name.to_owned())
    };
    Ok(Some(Costs { fast: of(fast)?, below: of(below)? }))
}

fn compared(row: &Row) -> Compared {
    Compared {
        policy: row.policy.clone(),
        hits: row.read_hits + row.write_hits,
        pages_below: pages_below(row),
        migrated_pages: row.migrated(),
    }
}

/// A row per object that is accessed, the greatest saving for its size first.
fn objects_table(uses: &[ObjectUse], placement: &Placement, page_bytes: u32, in_time: bool) -> Table {
    let density = |object: usize| placement.saved[object] / uses[object].pages as f64;
    let mut order: Vec<usize> = (0..uses.len()).filter(|&object| uses[object].requests > 0).collect();
    order.sort_by(|&a, &b| density(b).total_cmp(&density(a)));
    let place = |object: usize| match (placement.placed[object], uses[object].passing) {
        (true, _) => Cell::from("fast").tone(Tone::Good),
        (false, true) => Cell::from("passing").tone(Tone::Muted),
        (false, false) => Cell::from("below"),
    };
    let amount = |value: f64| match in_time {
        true => Cell::short(value / 1e6, NumberFormat::Seconds),
        false => Cell::fixed(value, 1),
    };
    let saves = |value: f64| if in_time { amount(value) } else { (value as i64).into() };
    let bytes = |used: &ObjectUse| Cell::short((used.pages * u64::from(page_bytes)) as f64, NumberFormat::Bytes);
    Table::of("Objects", order)
        .column(Column::text("object"), |&object| uses[object].name.as_str())
        .column(Column::text("place"), |&object| place(object))
        .column(Column::number("size"), |&object| bytes(&uses[object]))
        .column(Column::number("random reads"), |&object| uses[object].random_reads)
        .column(Column::number("sequential").priority(1), |&object| uses[object].sequential_reads)
        .column(Column::number("writes").priority(2), |&object| uses[object].writes)
        .column(Column::number(if in_time { "saves" } else { "saves accesses" }), |&o| saves(placement.saved[o]))
        .column(Column::number("per page"), |&object| amount(density(object)))
        .done()
}

/// One line: the objects placed, and whether the placement is the best possible.
fn verdict(placement: &Placement, budget: u64, in_time: bool) -> String {
    let count = placement.placed.iter().filter(|placed| **placed).count();
    let (saved, bound) = match in_time {
        true => {
            let seconds = |us: f64| NumberFormat::Seconds.short(us / 1e6);
            (seconds(placement.saved_together), seconds(placement.bound))
        }
        false => {
            let accesses = |n: f64| format!("{} page accesses", grouped(n as i128));
            (accesses(placement.saved_together), accesses(placement.bound))
        }
    };
    let best =
        if placement.exact { "no choice saves more".into() } else { format!("no choice saves more than {bound}") };
    let (pages, budget) = (grouped(i128::from(placement.pages)), grouped(i128::from(budget)));
    format!("{count} placed, {pages} of {budget} pages; saves {saved} ({best})\n")
}

/// The placement beside caches of the same size, in order of accesses to the backing store.
fn compared_table(placement: &Placement, rows: &[Row]) -> Table {
    let moved = placement.pages_below - placement.accesses_below - placement.written_through;
    let mut lines = vec![("this placement", placement.requests_fast, placement.requests, placement.pages_below, moved)];
    for row in rows {
        let hits = row.read_hits + row.write_hits;
        lines.push((&row.policy, hits, row.requests, pages_below(row), row.migrated()));
    }
    lines.sort_by_key(|&(_, _, _, below, _)| below);
    let ratio = |hits: u64, requests: u64| if requests == 0 { f64::NAN } else { hits as f64 / requests as f64 };
    Table::of("Placement and caches of the same size", lines)
        .column(Column::text("what"), |(what, ..)| *what)
        .column(Column::number("hit ratio"), |&(_, hits, requests, ..)| Cell::percent(ratio(hits, requests), 1))
        .column(Column::number("pages below"), |(.., below, _)| *below)
        .column(Column::number("migrated").help("pages moved up, and down again"), |(.., moved)| *moved)
        .done()
}
