//! Measurement: disk I/Os after a restart of a cache that shows the policy its pages, with the tables that it had learned
//! and without.

use super::Reuse;
use super::history::History;
use super::tests::driven_at;
use crate::counts::Counts;
use crate::info::Config;
use crate::interface::Policy;
use crate::options::Options;
use crate::state::Learned;
use entresol_core::{Page, Request};
use entresol_trace::{LoadOptions, Trace, load};
use std::path::Path;

const SEED: u64 = 42;
/// Requests after the restart whose disk I/Os are counted.
const COUNTED: [usize; 2] = [50_000, 200_000];
/// Parts of the stream before the restart, in twelfths.
const CUTS: [usize; 3] = [4, 6, 8];

const STREAMS: [(&str, &str); 6] = [
    ("PostgreSQL, TPC-C", "recorded/pg_tpcc_w20_sb32m.csv.zst"),
    ("MariaDB, TPC-C", "recorded/my_tpcc_w20_bp64m.csv.zst"),
    ("PostgreSQL, AuctionMark", "recorded/pg_auctionmark_sb16m_first1.2M.csv.zst"),
    ("PostgreSQL, TPC-C before the pool", "recorded/pg_tpcc_w20_prebuf.csv.zst"),
    ("PostgreSQL, TPC-H", "recorded/pg_tpch_sf1_sb64m.csv.zst"),
    ("OLTP", "public/OLTP.lis.zst"),
];

/// State that a restart keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kept {
    /// All: there is no restart.
    All,
    /// The pages of the cache, and which are dirty, as today.
    Pages,
    /// The pages and the tables.
    Tables,
    /// The pages and their histories.
    Histories,
    /// The pages, their histories and the tables, by the bytes that a cache keeps.
    Both,
}

impl Kept {
    const EVERY: [Kept; 5] = [Kept::All, Kept::Pages, Kept::Tables, Kept::Histories, Kept::Both];
}

fn driven(reuse: &mut Reuse, trace: &Trace, requests: impl Iterator<Item = Request>) -> Counts {
    driven_at(|page| trace.address(page), reuse, requests)
}

/// Pages of the cache, the longest unused first, and which are dirty.
fn residents(reuse: &Reuse) -> Vec<(Page, History)> {
    let held = (0..reuse.pages.residents()).map(|at| reuse.pages.page(at));
    let mut held: Vec<_> = held.map(|page| (page, reuse.pages.history(page))).collect();
    held.sort_by_key(|&(page, history)| (std::cmp::Reverse(history.age(reuse.tick)), page));
    held
}

/// The policy after a restart, which shows it the pages of the cache.
fn restarted(before: &Reuse, empty: &Reuse, trace: &Trace, kept: Kept) -> Reuse {
    if kept == Kept::All {
        return before.clone();
    }
    let mut reuse = empty.clone();
    if kept == Kept::Both {
        assert!(reuse.go_on_from(&before.tables()), "it is of the same size");
    }
    if kept == Kept::Tables {
        reuse.tables = before.tables.clone();
        (reuse.theta, reuse.period, reuse.until_build) = (before.theta, before.period, before.period);
    }
    let held = residents(before);
    for &(page, history) in &held {
        let show = if history.is_dirty() { Request::write(page.0) } else { Request::read(page.0) };
        driven(&mut reuse, trace, std::iter::once(show));
        if kept == Kept::Both {
            reuse.recall(page, before.history(page).expect("it is held"));
        }
    }
    if kept == Kept::Histories {
        reuse.tick = before.tick;
        held.iter().for_each(|&(page, history)| reuse.pages.set_history(page, history));
    }
    reuse
}

fn dirty(reuse: &Reuse) -> i64 {
    residents(reuse).iter().filter(|(_, history)| history.is_dirty()).count() as i64
}

/// Disk I/Os of the requests after a restart, dirty pages that are left counted as written.
fn disk_ios(reuse: &Reuse, trace: &Trace, from: usize) -> [i64; COUNTED.len()] {
    COUNTED.map(|counted| {
        let mut reuse = reuse.clone();
        let before = dirty(&reuse);
        let end = trace.len().min(from + counted);
        let counts = driven(&mut reuse, trace, (from..end).map(|at| trace.request(at)));
        (counts.fetches + counts.write_backs + counts.write_bypasses) as i64 + dirty(&reuse) - before
    })
}

#[test]
#[ignore = "a measurement of a minute, written down in lab/results/reuse.md: `make bench-reuse-restart`"]
fn what_a_restart_costs_with_the_tables_and_without() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/traces");
    for (name, file) in STREAMS {
        let path = data.join(file);
        if !path.exists() {
            entresol_skip::skipped!("data", "there is no {}", path.display());
            continue;
        }
        let trace = load(&path, &LoadOptions::default()).expect("a trace").trace;
        let capacity = trace.footprint() / 10;
        let config = Config {
            objects: trace.objects.len(),
            page_bytes: trace.page_bytes,
            seed: SEED,
            ..Config::single(trace.footprint(), capacity)
        };
        let empty = Reuse::new(&config, &Options::defaults(&Reuse::INFO)).expect("a policy");
        let (mut before, mut at) = (empty.clone(), 0);
        let mut sums = [[0; COUNTED.len()]; Kept::EVERY.len()];
        for cut in CUTS {
            let end = trace.len() / 12 * cut;
            driven(&mut before, &trace, (at..end).map(|at| trace.request(at)));
            at = end;
            for (sum, kept) in sums.iter_mut().zip(Kept::EVERY) {
                let reuse = restarted(&before, &empty, &trace, kept);
                sum.iter_mut().zip(disk_ios(&reuse, &trace, end)).for_each(|(sum, ios)| *sum += ios);
            }
        }
        let ratios = |at: usize| sums[1..].iter().map(move |sum| sum[at] as f64 / sums[0][at] as f64);
        let cells: Vec<String> =
            ratios(0).zip(ratios(1)).map(|(soon, later)| format!("{soon:.3} / {later:.3}")).collect();
        let used = before.tables().len();
        println!("| {name} | {} | {} | {used} | {} |", sums[0][1], cells.join(" | "), 10 * before.pages.residents());
    }
}
