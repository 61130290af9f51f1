//! Summary for a newcomer: the best policy per size, and its distance from the bound.

use super::results::{Role, TraceResults, distinct, label, size, write_ratio};
use entresol_report::{Cell, Column, Table, Tone, grouped, percent};
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
    /// The most hits of a policy that knows the future.
    pub bound: Option<&'r Row>,
    /// The baseline.
    pub base: Option<&'r Row>,
}

/// The rows worth naming at each size of a trace. Of equals the first in the catalogue is named.
pub fn summary<'r>(rows: &'r [Row], base: Option<&str>) -> Vec<AtSize<'r>> {
    let at = |wanted: String| {
        let here = || rows.iter().filter(|row| size(row) == wanted);
        let base = here().find(|row| Some(label(row).as_str()) == base);
        let least = base.map_or(0.0, Row::hit_ratio);
        let hits = |role| first_best(here().filter(|row| Role::of(row) == role), |row| -row.hit_ratio());
        AtSize {
            hits: hits(Role::Cache),
            writes: first_best(
                here().filter(|row| Role::of(row) == Role::Cache && row.hit_ratio() >= least),
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
    rows.min_by(|a, b| cost(a).total_cmp(&cost(b)))
}

/// The columns of a summary: those that any of its traces fills.
struct Shape {
    traces: bool,
    writes: bool,
    buffer: bool,
    bound: bool,
}

/// The summary as a table, a row per size and trace.
pub fn table(all: &[&TraceResults], base: Option<&str>) -> Table {
    let each: Vec<(&str, Vec<AtSize>)> =
        all.iter().map(|results| (results.named.name.as_str(), summary(&results.rows, base))).collect();
    let any = |of: fn(&AtSize) -> bool| each.iter().any(|(_, sizes)| sizes.iter().any(of));
    let shape = Shape {
        traces: all.len() > 1,
        writes: all.iter().any(|results| results.rows.iter().any(|row| row.writes > 0)),
        buffer: any(|at| at.buffer.is_some()),
        bound: any(|at| at.bound.is_some()),
    };
    let mut table = Table::new("The best per size", shape.columns(base));
    for (trace, sizes) in &each {
        sizes.iter().for_each(|at| table.push(shape.cells(trace, at, base)));
    }
    table
}

impl Shape {
    fn columns(&self, base: Option<&str>) -> Vec<Column> {
        let mut columns = Vec::new();
        columns.extend(self.traces.then(|| Column::text("trace")));
        columns.extend([Column::text("size"), Column::number("pages").priority(9)]);
        columns.extend([
            Column::text("most hits").help("of the policies that do not know the future"),
            Column::number("hit ratio").help("hits per request"),
        ]);
        columns.extend(base.map(|base| Column::number(base).priority(1).help("hits per request of the baseline")));
        if self.bound {
            let help = "hits per request with knowledge of the future: the most that is possible";
            columns.push(Column::number("bound").priority(2).help(help));
            let help = "of the hits that lie between the baseline and the bound, the share that the policy gains";
            columns.extend(base.map(|_| Column::number("gap closed").priority(5).help(help)));
        }
        if self.writes {
            columns.extend([
                Column::text("fewest writes").help(match base {
                    Some(base) => format!("of the caches that hit at least as often as {base}"),
                    None => "of the caches; write buffers are named apart".to_owned(),
                }),
                Column::number("written").help("pages written below per request"),
                Column::number("its hits").priority(4).help("hits per request of the policy with the fewest writes"),
            ]);
            let help = "pages written below per request by the baseline";
            columns.extend(base.map(|base| Column::number(format!("{base} writes")).priority(3).help(help)));
        }
        if self.writes && self.buffer {
            let help = "the write buffer that writes the fewest pages below; it does not cache reads";
            columns.extend([
                Column::text("write buffer").priority(7).help(help),
                Column::number("its writes").priority(6).help("pages written below per request"),
            ]);
        }
        columns
    }

    fn cells(&self, trace: &str, at: &AtSize, base: Option<&str>) -> Vec<Cell> {
        let name = |row: Option<&Row>| Cell::from(row.map(label));
        let hits = |row: Option<&Row>| row.map_or_else(Cell::missing, |row| Cell::percent(row.hit_ratio(), 2));
        let writes = |row: Option<&Row>| row.map_or_else(Cell::missing, |row| Cell::percent(write_ratio(row), 2));
        let any = at.hits.or(at.buffer).or(at.bound);
        let mut cells = Vec::new();
        cells.extend(self.traces.then(|| trace.into()));
        cells.extend([at.size.clone().into(), any.map(|row| row.capacity_pages).into()]);
        cells.extend([name(at.hits).tone(Tone::Strong), hits(at.hits)]);
        cells.extend(base.map(|_| hits(at.base)));
        if self.bound {
            cells.push(hits(at.bound));
            cells.extend(base.map(|_| gap_closed(at).map_or_else(Cell::missing, |share| Cell::percent(share, 0))));
        }
        if self.writes {
            cells.extend([name(at.writes).tone(Tone::Strong), writes(at.writes), hits(at.writes)]);
            cells.extend(base.map(|_| writes(at.base)));
        }
        if self.writes && self.buffer {
            cells.extend([name(at.buffer), writes(at.buffer)]);
        }
        cells
    }
}

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
        let ratio = |row: &Row| percent(row.hit_ratio(), 2);
        text +=
            &format!(" At {}, {} finds {} of the requested pages in the cache", middle.size, label(best), ratio(best));
        if let Some(other) = middle.base.filter(|base| label(base) != label(best)) {
            text += &format!(", {} {}", label(other), ratio(other));
        }
        if let Some(bound) = middle.bound {
            text += &format!("; {}, which knows the future and so is a bound, {}", label(bound), ratio(bound));
        }
        text.push('.');
    }
    if let (Some(fewest), true) = (middle.writes, first.writes > 0) {
        let written = |row: &Row| percent(write_ratio(row), 2);
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
}
