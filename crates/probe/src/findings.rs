//! Findings of experiments: tables, curves and fitted parameters.

use serde::{Deserialize, Serialize};

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number, in the unit of its column.
    Number(f64),
    /// A word, or why there is no number.
    Text(String),
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Cell::Number(number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::Text(text)
    }
}

/// A table of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Subject of the table.
    pub title: String,
    /// Heads of the columns.
    pub columns: Vec<String>,
    /// The unit of each column; empty where it has none.
    pub units: Vec<String>,
    /// Rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Name of the quantity or case that the line stands for.
    pub name: String,
    /// Its points, x ascending.
    pub points: Vec<(f64, f64)>,
}

/// A chart of lines that share their axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Subject of the chart.
    pub title: String,
    /// The x axis, with its unit.
    pub x_label: String,
    /// The y axis, with its unit.
    pub y_label: String,
    /// The lines.
    pub lines: Vec<Line>,
}

/// A number fitted to measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Its name, snake_case with the unit at the end.
    pub name: String,
    /// The best estimate. A yes or no is 1 or 0.
    pub value: f64,
    /// Its unit; empty for counts, ratios and yes or no.
    pub unit: String,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The experiment it comes from.
    pub from: String,
}

/// Findings of one experiment or several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Tables.
    pub tables: Vec<Table>,
    /// Curves.
    pub curves: Vec<Series>,
    /// Fitted parameters.
    pub fitted: Vec<Parameter>,
    /// Further remarks for a reader: refusals, limits of the method.
    pub notes: Vec<String>,
}

impl Findings {
    /// Appends what another experiment found. A parameter that both fitted is the later one's.
    pub fn merge(&mut self, other: Findings) {
        self.tables.extend(other.tables);
        self.curves.extend(other.curves);
        self.fitted.retain(|own| other.fitted.iter().all(|new| new.name != own.name));
        self.fitted.extend(other.fitted);
        self.notes.extend(other.notes);
    }

    /// A fitted parameter.
    pub fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.fitted.iter().find(|parameter| parameter.name == name)
    }

    /// The value of a fitted parameter.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.parameter(name).map(|parameter| parameter.value)
    }
}
