//! Tables, charts, progress bars and the one HTML look that every command shares.
//!
//! This crate has no knowledge of policies or traces: callers pass names and numbers, and it returns text. A [`Page`]
//! becomes one self-contained HTML file: no network, no external fonts or scripts, readable without script, dark where
//! the reader's screen is, printable. A [`Table`] is also the form that commands print on the terminal and write as
//! CSV. [`Progress`] is the one progress bar.
//!
//! # One model of a result
//!
//! A result is a list of *items*, each with typed fields. Its forms are views of these items:
//!
//! - A **table**, [`Table::of`] the items: its columns, each with a name, a side, an importance for narrow terminals and
//!   an explanation, stand beside what they show of an item. A [`Cell`] is a text, an integer or a real number; a real
//!   number has its full precision for files, and a [`NumberFormat`] or a number of digits for readers. One table is
//!   text on a terminal, CSV, and HTML.
//! - **Series** for charts, of numbers with the format of their axis.
//! - A **page**: a title, the command that made it, and sections of text, facts, notes, charts and tables.
//! - **JSON**: the items themselves, by serde. Its keys are published names, and it has what no table shows, so that it
//!   is not made of the tables.
//!
//! A value that is not finite is never drawn: it leaves a gap, and the chart states the number of values left out.
//! Names are escaped everywhere. The same content gives the same bytes.
//!
//! ```
//! use entresol_render::*;
//!
//! let size = Axis::new("cache size", NumberFormat::Bytes).spread(Spread::Log2);
//! let miss = Axis::new("miss ratio", NumberFormat::Percent).at_least(0.0, 1.0);
//! let curves = LineChart::new("Miss-ratio curves", size, miss)
//!     .series(Series::new("lru", [(1048576.0, 0.8), (2097152.0, 0.6)]))
//!     .series(Series::new("arc", [(1048576.0, 0.7), (2097152.0, 0.5)]))
//!     .best(1, Better::Lower);
//!
//! let table = Table::of("Results", [("lru", 1234567u64, 0.4), ("arc", 1543209, 0.5)])
//!     .column(Column::text("policy"), |row| row.0)
//!     .column(Column::number("hits"), |row| row.1)
//!     .column(Column::number("hit ratio"), |row| Cell::percent(row.2, 2))
//!     .done();
//! print!("{}", table.to_text(TextStyle::stdout()));
//!
//! let page = Page::new("tpcc.csv")
//!     .command("entresol simulate tpcc.csv --policy lru,arc --size 1MiB,2MiB --html report.html")
//!     .section(Section::new("Miss ratio").chart(curves).note("The first tenth of the trace is warm-up."))
//!     .section(Section::new("All numbers").table(table));
//! let html: String = page.to_html();
//! assert!(html.starts_with("<!DOCTYPE html>"));
//! ```

mod chart;
mod colour;
mod markup;
mod number;
mod page;
mod progress;
mod table;

pub use chart::{
    Axis, BarChart, BarLayout, Better, Chart, Curve, HeatMap, Histogram, LineChart, Panel, Series, Spread, TimeSeries,
    log2_bucket,
};
pub use number::{NumberFormat, grouped, percent};
pub use page::{Page, Section};
pub use progress::{Progress, Unit};
pub use table::{Cell, Column, Table, TableOf, TextStyle, Tone};

/// Configuration of property tests, which draw the same cases every time. A failure prints its smallest input, and a
/// second run finds it again.
#[cfg(test)]
fn seeded() -> proptest::test_runner::Config {
    use proptest::test_runner::{Config, RngSeed};
    Config { rng_seed: RngSeed::Fixed(0x0e17_7e50), failure_persistence: None, cases: 512, ..Config::default() }
}
