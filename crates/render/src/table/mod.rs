//! One table in three forms: for the terminal, for the page and for a file.

mod html;
mod text;

pub use text::TextStyle;

use crate::number::{MISSING, NumberFormat, grouped, percent, shortest};

/// A column: its name, side and importance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    name: String,
    right: bool,
    priority: u8,
    help: Option<String>,
}

impl Column {
    /// A column of text, aligned left.
    pub fn text(name: impl Into<String>) -> Column {
        Column { name: name.into(), right: false, priority: 0, help: None }
    }

    /// A column of numbers, aligned right.
    pub fn number(name: impl Into<String>) -> Column {
        Column { right: true, ..Column::text(name) }
    }

    /// Sets the order in which a narrow terminal drops columns: 0 (never, the default) to 255 (first). Of equal ones
    /// the rightmost goes first.
    pub fn priority(mut self, priority: u8) -> Column {
        self.priority = priority;
        self
    }

    /// Explains the column; shown on the page when the pointer rests on its name.
    pub fn help(mut self, help: impl Into<String>) -> Column {
        self.help = Some(help.into());
        self
    }
}

/// Value of a cell.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Missing,
    Text(String),
    Int(i128),
    /// A number that is not an integer: itself, and as shown.
    Real(f64, String),
}

/// Emphasis of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing.
    #[default]
    Plain,
    /// The best of its column.
    Strong,
    /// Better than something it is compared with.
    Good,
    /// Worse than something it is compared with.
    Bad,
    /// Unimportant.
    Muted,
}

/// A cell. Numbers keep their full precision beside the form in which they are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    value: Value,
    tone: Tone,
}

impl Cell {
    fn new(value: Value) -> Cell {
        Cell { value, tone: Tone::Plain }
    }

    /// An empty cell, shown as a dash.
    pub fn missing() -> Cell {
        Cell::new(Value::Missing)
    }

    /// A real number shown with `digits` decimals. Missing where it is not finite.
    pub fn fixed(value: f64, digits: usize) -> Cell {
        Cell::real(value, format!("{value:.digits$}"))
    }

    /// A fraction shown in per cent with `digits` decimals: `Cell::percent(0.5, 1)` is `50.0%`. Missing if it is not
    /// finite.
    pub fn percent(fraction: f64, digits: usize) -> Cell {
        Cell::real(fraction, percent(fraction, digits))
    }

    /// A number shown short with its unit: bytes as `64 MiB`, seconds as `1.5 ms`. Missing where it is not finite.
    pub fn short(value: f64, format: NumberFormat) -> Cell {
        Cell::real(value, format.short(value))
    }

    fn real(value: f64, shown: String) -> Cell {
        Cell::new(if value.is_finite() { Value::Real(value, shown) } else { Value::Missing })
    }

    /// Sets the tone.
    pub fn tone(mut self, tone: Tone) -> Cell {
        self.tone = tone;
        self
    }

    /// The text shown to a reader; integers have spaces between the thousands if `separate` is true.
    fn shown(&self, separate: bool) -> String {
        match &self.value {
            Value::Missing => MISSING.to_owned(),
            Value::Text(text) => text.clone(),
            Value::Int(n) if separate => grouped(*n),
            Value::Int(n) => n.to_string(),
            Value::Real(_, shown) => shown.clone(),
        }
    }

    /// The value in full precision, as in a file; empty if missing.
    fn exact(&self) -> String {
        match &self.value {
            Value::Missing => String::new(),
            Value::Text(text) => text.clone(),
            Value::Int(n) => n.to_string(),
            Value::Real(value, _) => shortest(*value),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::new(Value::Text(text.to_owned()))
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::new(Value::Text(text))
    }
}

macro_rules! cell_from_integer {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Cell {
            fn from(n: $kind) -> Cell {
                Cell::new(Value::Int(n.into()))
            }
        }
    )*};
}
cell_from_integer!(u32, u64, i32, i64);

impl From<usize> for Cell {
    fn from(n: usize) -> Cell {
        Cell::new(Value::Int(n as i128))
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or_else(Cell::missing, Into::into)
    }
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    name: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

/// A table over items of a result, to which columns are added: each with what it shows of an item.
#[derive(Clone, Debug)]
pub struct TableOf<T> {
    items: Vec<T>,
    table: Table,
}

impl<T> TableOf<T> {
    /// Adds a column at the right.
    pub fn column<C: Into<Cell>>(mut self, column: Column, cell: impl Fn(&T) -> C) -> Self {
        self.table.columns.push(column);
        self.items.iter().zip(&mut self.table.rows).for_each(|(item, row)| row.push(cell(item).into()));
        self
    }

    /// Adds a column at the right if `wanted`.
    pub fn column_if<C: Into<Cell>>(self, wanted: bool, column: Column, cell: impl Fn(&T) -> C) -> Self {
        if wanted { self.column(column, cell) } else { self }
    }

    /// The table with its columns.
    pub fn done(self) -> Table {
        self.table
    }
}

impl Table {
    /// A table with a row for each item, and no columns yet. `name` is as for [`new`](Self::new).
    pub fn of<T>(name: impl Into<String>, items: impl IntoIterator<Item = T>) -> TableOf<T> {
        let items: Vec<T> = items.into_iter().collect();
        let rows = vec![Vec::new(); items.len()];
        TableOf { items, table: Table { rows, ..Table::new(name, []) } }
    }

    /// A table without rows yet. `name` is its caption on the page and the name of its CSV file there.
    pub fn new(name: impl Into<String>, columns: impl IntoIterator<Item = Column>) -> Table {
        Table { name: name.into(), columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row at the bottom.
    ///
    /// # Panics
    /// If the number of cells is not the number of columns.
    pub fn push(&mut self, row: impl IntoIterator<Item = Cell>) {
        let row: Vec<Cell> = row.into_iter().collect();
        assert_eq!(row.len(), self.columns.len(), "a row of table {} does not fit its columns", self.name);
        self.rows.push(row);
    }

    /// The table as comma-separated values (RFC 4180, line ends `\n`): a heading, numbers in full precision.
    pub fn to_csv(&self) -> String {
        let mut csv = csv_line(self.columns.iter().map(|c| c.name.clone()));
        for row in &self.rows {
            csv += &csv_line(row.iter().map(Cell::exact));
        }
        csv
    }
}

fn csv_line(fields: impl Iterator<Item = String>) -> String {
    let quoted =
        fields.map(|f| if f.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", f.replace('"', "\"\"")) } else { f });
    let mut line = quoted.collect::<Vec<_>>().join(",");
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_every_digit() {
        let mut table = Table::new("t", [Column::text("policy"), Column::number("hits"), Column::number("ratio")]);
        table.push(["arc, \"fast\"".into(), u64::MAX.into(), Cell::percent(1.0 / 3.0, 1)]);
        table.push(["lru".into(), 0u64.into(), Cell::fixed(f64::NAN, 2)]);
        let expected = "policy,hits,ratio\n\"arc, \"\"fast\"\"\",18446744073709551615,0.3333333333333333\nlru,0,\n";
        assert_eq!(table.to_csv(), expected);
    }

    #[test]
    fn a_table_over_items_has_the_columns_that_are_wanted() {
        let table = |with_size| {
            let items = Table::of("t", [("arc", 3_u64), ("lru", 4)]).column(Column::text("policy"), |item| item.0);
            items
                .column_if(with_size, Column::number("size"), |item| item.1)
                .column(Column::number("half"), |item| Cell::fixed(item.1 as f64 / 2.0, 0))
                .done()
        };
        assert_eq!(table(true).to_csv(), "policy,size,half\narc,3,1.5\nlru,4,2\n");
        assert_eq!(table(false).to_csv(), "policy,half\narc,1.5\nlru,2\n");
        assert_eq!(Table::of("t", [0_u64; 0]).column(Column::text("none"), |n| *n).done().to_csv(), "none\n");
    }

    #[test]
    #[should_panic(expected = "does not fit its columns")]
    fn a_short_row_is_refused() {
        Table::new("t", [Column::text("a"), Column::text("b")]).push(["x".into()]);
    }
}
