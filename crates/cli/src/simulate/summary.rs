//! Summary for a newcomer: the best policy per size, and its distance from the bound.

use super::results::{Role, TraceResults, distinct, label, size, write_ratio};
use entresol_render::{Cell, Column, Table, Tone, grouped, percent};
use entresol_sim::Row;

/// The rows worth naming at one size.
pub struct AtSize<'r> {
    /// The size as given.
    pub size: String,
    /// The cache with the most hits.
    pub hits: Option<&'r Row>,
    /// The cache with the fewest writes to the backing store among those that hit as often as the baseline, if there is
    /// one. A cache that hits less can always write less.
    pub writes: Option<&'r Row>,
    /// The write buffer with the fewest writes to the backing store.
    pub buffer: Option<&'r Row>,
    /// The most hits of a policy that knows the future: a bound for caches that admit every page.
    pub bound: Option<&'r Row>,
    /// The baseline.
    pub base: Option<&'r Row>,
}

/// The rows worth naming at each size of a trace. Rows are compared as they are printed; of equals the first in the
/// catalogue is named.
pub fn summary<'r>(rows: &'r [Row], base: Option<&str>) -> Vec<AtSize<'r>> {
    let at = |wanted: String| {
        let here = || rows.iter().filter(|row| size(row) == wanted);
        let base = here().find(|row| Some(label(row).as_str()) == base);
        let least = base.map_or(0.0, |row| printed(row.hit_ratio()));
        let hits = |role| first_best(here().filter(|row| Role::of(row) == role), |row| -row.hit_ratio());
        AtSize {
            hits: hits(Role::Cache),
            writes: first_best(
                here().filter(|row| Role::of(row) == Role::Cache && printed(row.hit_ratio()) >= least),
                write_ratio,
            ),
            buffer: first_best(here().filter(|row| Role::of(row) == Role::WriteBuffer), write_ratio),
            bound: hits(Role::Offline),
            base,
            size: wanted,
        }
    };
    distinct(rows, size).into_iter().map(at).collect()
}

fn first_best<'r>(rows: impl Iterator<Item = &'r Row>, cost: impl Fn(&Row) -> f64) -> Option<&'r Row> {
    rows.min_by(|a, b| printed(cost(a)).total_cmp(&printed(cost(b))))
}

/// Decimals of the ratios that are printed, in per cent.
const DIGITS: usize = 2;

/// A ratio as a reader sees it, in per cent.
fn printed(ratio: f64) -> f64 {
    percent(ratio, DIGITS).trim_end_matches('%').parse().unwrap_or(f64::NAN)
}

/// The summary as a table, a row per size and trace. It has the columns that any trace fills.
pub fn table(all: &[&TraceResults], base: Option<&str>) -> Table {
    let each = all
        .iter()
        .flat_map(|results| summary(&results.rows, base).into_iter().map(|at| (results.named.name.as_str(), at)));
    let each: Vec<(&str, AtSize)> = each.collect();
    let writes = all.iter().any(|results| results.rows.iter().any(|row| row.writes > 0));
    let buffer = writes && each.iter().any(|(_, at)| at.buffer.is_some());
    let bound = each.iter().any(|(_, at)| at.bound.is_some());
    let name = |row: Option<&Row>| Cell::from(row.map(label));
    let hits = |row: Option<&Row>| row.map_or_else(Cell::missing, |row| Cell::percent(row.hit_ratio(), DIGITS));
    let written = |row: Option<&Row>| row.map_or_else(Cell::missing, |row| Cell::percent(write_ratio(row), DIGITS));
    let gap = |at: &AtSize| gap_closed(at).map_or_else(Cell::missing, |share| Cell::percent(share, 0));
    let pages = |at: &AtSize| at.hits.or(at.buffer).or(at.bound).map(|row| row.capacity_pages);
    let number = |name: &str, priority, help: &str| Column::number(name).priority(priority).help(help);
    let (with_base, base) = (base.is_some(), base.unwrap_or_default());
    let fewest = match with_base {
        true => format!("of the caches that hit at least as often as {base}"),
        false => "of the caches; write buffers are named apart".to_owned(),
    };
    let most = Column::text("most hits").help("of the policies that do not know the future");
    let base_writes = number(&format!("{base} writes"), 3, "pages written below per request by the baseline");
    Table::of("The best per size", each)
        .column_if(all.len() > 1, Column::text("trace"), |(trace, _)| *trace)
        .column(Column::text("size"), |(_, at)| at.size.clone())
        .column(Column::number("pages").priority(9), |(_, at)| pages(at))
        .column(most, |(_, at)| name(at.hits).tone(Tone::Strong))
        .column(number("hit ratio", 0, "hits per request"), |(_, at)| hits(at.hits))
        .column_if(with_base, number(base, 1, "hits per request of the baseline"), |(_, at)| hits(at.base))
        .column_if(bound, number("bound", 2, BOUND), |(_, at)| hits(at.bound))
        .column_if(bound && with_base, number("gap closed", 5, GAP), |(_, at)| gap(at))
        .column_if(writes, Column::text("fewest writes").help(fewest), |(_, at)| name(at.writes).tone(Tone::Strong))
        .column_if(writes, number("written", 0, "pages written below per request"), |(_, at)| written(at.writes))
        .column_if(writes, number("its hits", 4, ITS_HITS), |(_, at)| hits(at.writes))
        .column_if(writes && with_base, base_writes, |(_, at)| written(at.base))
        .column_if(buffer, Column::text("write buffer").priority(7).help(BUFFER), |(_, at)| name(at.buffer))
        .column_if(buffer, number("its writes", 6, "pages written below per request"), |(_, at)| written(at.buffer))
        .done()
}

const BOUND: &str = "hits per request with knowledge of the future: the most of a cache that admits every page; one that bypasses some may have more";
const GAP: &str = "of the hits that lie between the baseline and the bound, the share that the policy gains";
const ITS_HITS: &str = "hits per request of the policy with the fewest writes";
const BUFFER: &str = "the write buffer that writes the fewest pages below; it does not cache reads";

/// Share of the hits between the baseline and the bound that the best policy gains.
fn gap_closed(at: &AtSize) -> Option<f64> {
    let (best, base, bound) = (at.hits?.hit_ratio(), at.base?.hit_ratio(), at.bound?.hit_ratio());
    (bound > base).then(|| (best - base) / (bound - base))
}

/// The summary of one trace as text.
pub fn words(results: &TraceResults, base: Option<&str>) -> String {
    let rows = &results.rows;
    let sizes = summary(rows, base);
    let Some(first) = rows.first() else { return String::new() };
    let share = first.writes as f64 / first.requests.max(1) as f64;
    let mut text = format!(
        "{} policies at {} sizes answered {} page requests each, {} of them writes.",
        distinct(rows, label).len(),
        sizes.len(),
        grouped(i128::from(first.requests)),
        percent(share, 1),
    );
    let middle = &sizes[sizes.len() / 2];
    if let Some(best) = middle.hits {
        let ratio = |row: &Row| percent(row.hit_ratio(), DIGITS);
        text +=
            &format!(" At {}, {} finds {} of the requested pages in the cache", middle.size, label(best), ratio(best));
        if let Some(other) = middle.base.filter(|base| label(base) != label(best)) {
            text += &format!(", {} {}", label(other), ratio(other));
        }
        if let Some(bound) = middle.bound {
            text += &format!(
                "; {}, which knows the future and so bounds what admits every page, {}",
                label(bound),
                ratio(bound)
            );
        }
        text.push('.');
    }
    if let (Some(fewest), true) = (middle.writes, first.writes > 0) {
        let written = |row: &Row| percent(write_ratio(row), DIGITS);
        text +=
            &format!(" The fewest pages to the level below, {} per request, writes {}", written(fewest), label(fewest));
        if let Some(other) = middle.base.filter(|base| label(base) != label(fewest)) {
            text += &format!(", of the caches that hit as often as {}, which writes {}", label(other), written(other));
        }
        text.push('.');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: &str, hits: u64, write_backs: u64) -> Row {
        let (policy, size) = (policy.to_owned(), "5%".to_owned());
        Row { policy, size, requests: 100, reads: 60, writes: 40, read_hits: hits, write_backs, ..Row::default() }
    }

    #[test]
    fn bounds_and_write_buffers_are_not_the_best_cache() {
        let rows = [row("min", 90, 1), row("wrb", 10, 2), row("arc", 60, 30), row("lru", 50, 20), row("lfu", 1, 3)];
        let sizes = summary(&rows, Some("lru"));
        assert_eq!(sizes.len(), 1);
        let name = |row: Option<&Row>| row.map(label).unwrap_or_default();
        let at = &sizes[0];
        assert_eq!([name(at.hits), name(at.writes), name(at.buffer)], ["arc", "lru", "wrb"]);
        assert_eq!([name(at.bound), name(at.base)], ["min", "lru"]);
        assert!((gap_closed(at).expect("a gap") - 0.25).abs() < 1e-9);
        let alone = summary(&rows, None);
        assert_eq!((name(alone[0].writes), alone[0].base), ("lfu".to_owned(), None));
    }

    #[test]
    fn a_hit_that_nobody_sees_decides_nothing() {
        let of_many = |policy, hits, write_backs| Row { requests: 65_000, ..row(policy, hits, write_backs) };
        // One hit in 65,000 is less than a hundredth of a per cent, and so is one write.
        let rows = [of_many("lru", 29_993, 9_000), of_many("h-arc", 29_992, 5_001), of_many("arc", 29_994, 5_000)];
        let at = |rows: &[Row]| summary(rows, Some("lru")).remove(0).writes.map(label);
        assert_eq!(at(&rows), Some("h-arc".to_owned()), "of equals the first");
        assert_eq!(summary(&rows, Some("lru"))[0].hits.map(label), Some("lru".to_owned()));
        // Thirteen hits are seen.
        let rows = [of_many("lru", 29_993, 9_000), of_many("h-arc", 29_980, 5_000), of_many("arc", 29_993, 5_100)];
        assert_eq!(at(&rows), Some("arc".to_owned()));
    }
}
