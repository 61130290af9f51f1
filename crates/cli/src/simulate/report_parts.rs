//! The report's part about tables, indexes, files and queries: `entresol simulate --parts`.

use super::results::{distinct, label};
use entresol_render::{Cell, Column, Section, Table, Tone};
use entresol_sim::{PartRow, Row};

/// Most policies with a column each; more policies are listed below each other.
const POLICY_COLUMNS_MAX: usize = 8;

type Parts = fn(&Row) -> &[PartRow];

/// Hit ratios per object and per query; none if they were not counted.
pub fn section(rows: &[&Row], heading: String) -> Option<Section> {
    let kinds: [(&str, Parts); 2] = [("object", |row| &row.objects), ("query", |row| &row.queries)];
    let counted = kinds.into_iter().filter(|(_, of)| rows.iter().any(|row| !of(row).is_empty()));
    let labels = distinct(rows.iter().copied(), label);
    let tables: Vec<Table> = counted
        .map(|(kind, of)| {
            if labels.len() <= POLICY_COLUMNS_MAX {
                side_by_side(rows, &labels, kind, of)
            } else {
                long(rows, kind, of)
            }
        })
        .collect();
    if tables.is_empty() {
        return None;
    }
    let text = "Hits per request, of each part's own requests. The best of a line stands out.";
    let section =
        if labels.len() <= POLICY_COLUMNS_MAX { Section::new(heading).text(text) } else { Section::new(heading) };
    Some(tables.into_iter().fold(section, Section::table))
}

fn hit_ratio(part: &PartRow) -> f64 {
    (part.read_hits + part.write_hits) as f64 / part.requests.max(1) as f64
}

/// A line per size and part, a column per policy.
fn side_by_side(rows: &[&Row], labels: &[String], kind: &str, of: Parts) -> Table {
    let fixed = [Column::text("size"), Column::text(kind), Column::number("requests"), Column::number("writes")];
    let policies = labels.iter().map(|name| Column::number(name.clone()));
    let mut table = Table::new(format!("Per {kind}"), fixed.into_iter().chain(policies));
    for size in distinct(rows.iter().copied(), |row| row.size.clone()) {
        let here: Vec<Option<&Row>> = labels
            .iter()
            .map(|name| rows.iter().copied().find(|row| row.size == size && label(row) == *name))
            .collect();
        let Some(first) = here.iter().flatten().next() else { continue };
        for (i, part) in of(first).iter().enumerate() {
            // All rows of one trace list the same parts in the same order.
            let ratios: Vec<Option<f64>> = here.iter().map(|row| row.map(|row| hit_ratio(&of(row)[i]))).collect();
            let best = ratios.iter().flatten().copied().fold(0.0, f64::max);
            let cells = ratios.into_iter().map(|ratio| match ratio {
                None => Cell::missing(),
                Some(ratio) if ratio == best && best > 0.0 => Cell::percent(ratio, 2).tone(Tone::Strong),
                Some(ratio) => Cell::percent(ratio, 2),
            });
            let fixed = [size.clone().into(), part.name.clone().into(), part.requests.into(), part.writes.into()];
            table.push(fixed.into_iter().chain(cells));
        }
    }
    table
}

/// A line per policy, size and part.
fn long(rows: &[&Row], kind: &str, of: Parts) -> Table {
    let parts = rows.iter().flat_map(|row| of(row).iter().map(move |part| (*row, part)));
    Table::of(format!("Per {kind}"), parts)
        .column(Column::text("policy"), |(row, _)| label(row))
        .column(Column::text("size"), |(row, _)| row.size.clone())
        .column(Column::text(kind), |(_, part)| part.name.clone())
        .column(Column::number("requests"), |(_, part)| part.requests)
        .column(Column::number("writes"), |(_, part)| part.writes)
        .column(Column::number("hits"), |(_, part)| part.read_hits + part.write_hits)
        .column(Column::number("hit ratio"), |(_, part)| Cell::percent(hit_ratio(part), 2))
        .done()
}
