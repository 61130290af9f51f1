//! The results of `entresol simulate` on a terminal.

use super::results::{Role, TraceResults, distinct, label, size, write_ratio};
use super::summary;
use crate::trace_source;
use entresol_render::{Cell, Column, Table, TextStyle, Tone};
use entresol_sim::{CellError, Row, Skipped};

/// The results of one trace: rankings and a summary if there are many policies and sizes, else one line per result.
pub fn text(results: &TraceResults, base: Option<&str>) -> String {
    let rows = &results.rows;
    let (sizes, labels) = (distinct(rows, size), distinct(rows, label));
    let mut text = format!("{}\n", trace_source::describe(&results.named));
    if sizes.len() < 2 || labels.len() < 4 || rows.iter().any(|row| row.size.contains(':')) {
        return text + &lines(rows).to_text(TextStyle::stdout());
    }
    text += &ranking("hit ratio", rows, &sizes, &labels, |row| -row.hit_ratio(), Row::hit_ratio);
    if rows.iter().any(|row| row.writes > 0) {
        text += &ranking("pages written below per request", rows, &sizes, &labels, write_ratio, write_ratio);
    }
    for role in [Role::Offline, Role::WriteBuffer] {
        if rows.iter().any(|row| Role::of(row) == role) {
            text += &format!("{}\n", role.meaning());
        }
    }
    text + "\nthe best per size\n" + &summary::table(&[results], base).to_text(TextStyle::stdout())
}

fn lines(rows: &[Row]) -> Table {
    let any = |count: fn(&Row) -> u64| rows.iter().any(|row| count(row) > 0);
    Table::of("Results", rows)
        .column(Column::text("policy"), |row| label(row))
        .column(Column::text("size"), |row| row.size.clone())
        .column(Column::number("pages").priority(2), |row| row.capacity_pages)
        .column(Column::number("hit ratio"), |row| Cell::percent(row.hit_ratio(), 2))
        .column(Column::number("read hits").priority(1), |row| row.read_hits)
        .column(Column::number("write hits").priority(1), |row| row.write_hits)
        .column(Column::number("fetches").priority(3), |row| row.fetches)
        .column(Column::number("write-backs"), |row| row.write_backs)
        .column(Column::number("I/Os").priority(4), |row| row.write_back_ios)
        .column_if(any(|row| row.write_throughs), Column::number("through"), |row| row.write_throughs)
        .column_if(any(|row| row.write_arounds), Column::number("around"), |row| row.write_arounds)
        .column(Column::number("bypasses").priority(5), |row| row.bypasses)
        .column(Column::number("dirty at end").priority(6), |row| row.dirty_at_end)
        .done()
}

/// A table of one figure with a column per size, the lowest mean cost first. The best cache of each column is
/// highlighted.
fn ranking(
    what: &str,
    rows: &[Row],
    sizes: &[String],
    labels: &[String],
    cost: impl Fn(&Row) -> f64,
    figure: impl Fn(&Row) -> f64,
) -> String {
    let find = |name: &String, wanted: &String| rows.iter().find(|row| size(row) == *wanted && label(row) == *name);
    let mean = |name: &&String| {
        let costs: Vec<f64> = sizes.iter().filter_map(|size| find(name, size).map(&cost)).collect();
        costs.iter().sum::<f64>() / costs.len().max(1) as f64
    };
    let mut order: Vec<&String> = labels.iter().collect();
    order.sort_by(|a, b| mean(a).total_cmp(&mean(b)).then_with(|| a.cmp(b)));
    let best = |wanted: &String| {
        let caches = rows.iter().filter(|row| size(row) == *wanted && Role::of(row) == Role::Cache);
        caches.map(&cost).min_by(f64::total_cmp)
    };
    let best: Vec<Option<f64>> = sizes.iter().map(best).collect();
    let columns = sizes.iter().map(|size| Column::number(size.clone()));
    let mut table = Table::new(what, [Column::text("policy"), Column::text("")].into_iter().chain(columns));
    for name in order {
        let role = rows.iter().find(|row| label(row) == *name).map_or(Role::Cache, Role::of);
        let tone = if role == Role::Cache { Tone::Plain } else { Tone::Muted };
        let cells = sizes.iter().zip(&best).map(|(size, best)| match find(name, size) {
            None => Cell::missing(),
            Some(row) if Some(cost(row)) == *best && role == Role::Cache => {
                Cell::percent(figure(row), 2).tone(Tone::Strong)
            }
            Some(row) => Cell::percent(figure(row), 2).tone(tone),
        });
        table.push([Cell::from(name.clone()).tone(tone), role.mark().into()].into_iter().chain(cells));
    }
    format!("\n{what}\n{}", table.to_text(TextStyle::stdout()))
}

/// The skipped cells, one line per cache size, with the reasons.
pub fn skipped_lines(skipped: &[Skipped], policies: usize) -> Vec<String> {
    let mut sizes: Vec<&str> = Vec::new();
    for skip in skipped {
        if !sizes.contains(&skip.size.as_str()) {
            sizes.push(&skip.size);
        }
    }
    let line = |size: &str| {
        let here: Vec<&Skipped> = skipped.iter().filter(|skip| skip.size == size).collect();
        let no_pages = here.iter().all(|skip| matches!(skip.error, CellError::NoPages { .. }));
        match here[0].error {
            CellError::NoPages { page_bytes, footprint, .. } if no_pages && here.len() == policies => {
                format!(
                    "skipped at {size}: all policies, for it is 0 pages of {page_bytes} B (footprint {footprint} pages)"
                )
            }
            _ => {
                let reasons: Vec<String> = here.iter().map(|skip| skip.error.to_string()).collect();
                format!("skipped at {size}: {}", reasons.join("; "))
            }
        }
    };
    sizes.into_iter().map(line).collect()
}
