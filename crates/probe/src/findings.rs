//! Findings of experiments: tables, curves and fitted parameters.

use serde::{Deserialize, Serialize};

/// Title of the curve of a disk's seek times by distance, by which the fit of a profile finds it.
pub(crate) const SEEK_CURVE: &str = "Seek time by distance from the outer edge";

/// Title of the curve of a disk's bandwidth by position.
pub(crate) const ZONE_CURVE: &str = "Sequential read bandwidth by position";

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number, in the unit of its column.
    Number(f64),
    /// A word, or the reason for which there is no number.
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
    /// Quantity or case that the line stands for.
    pub name: String,
    /// Points of the line, x ascending.
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
    /// Name of the parameter, snake_case with the unit at the end.
    pub name: String,
    /// The best estimate; 1 or 0 for yes or no.
    pub value: f64,
    /// Unit of the parameter; empty for counts, ratios and yes or no.
    pub unit: String,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Experiment of which the parameter is a result.
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
    /// Appends the findings of another experiment. Of a parameter that both fitted, the later value counts.
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
