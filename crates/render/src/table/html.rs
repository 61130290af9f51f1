//! The table of a page: the script makes it sortable and filterable and offers it as a file.

use super::{Cell, Table, Tone, Value};
use crate::markup::{Attr, Markup};

impl Table {
    /// Writes the table with a tool bar that the script shows.
    pub(crate) fn write_html(&self, m: &mut Markup) {
        m.open("div", &[("class", &"table"), ("data-name", &file_stem(&self.name))]);
        m.open("div", &[("class", &"tools")]);
        m.leaf("h3", &[], &self.name);
        let label = format!("filter the rows of {}", self.name);
        m.void(
            "input",
            &[("type", &"search"), ("placeholder", &"filter rows"), ("aria-label", &label), ("hidden", &"hidden")],
        );
        m.leaf("span", &[("class", &"shown"), ("role", &"status")], format_args!("{} rows", self.rows.len()));
        m.leaf(
            "button",
            &[("type", &"button"), ("hidden", &"hidden"), ("title", &"download the rows shown, in full precision")],
            "CSV",
        );
        m.close("div");
        m.open("div", &[("class", &"scroll"), ("tabindex", &"0"), ("role", &"region"), ("aria-label", &self.name)]);
        m.open("table", &[]);
        self.write_head(m);
        m.open("tbody", &[]);
        for row in &self.rows {
            m.open("tr", &[]);
            for (cell, column) in row.iter().zip(&self.columns) {
                write_cell(m, cell, column.right);
            }
            m.close("tr");
        }
        m.close("tbody");
        m.close("table");
        m.close("div");
        m.close("div");
    }

    fn write_head(&self, m: &mut Markup) {
        m.open("thead", &[]);
        m.open("tr", &[]);
        for column in &self.columns {
            let mut attrs: Vec<Attr<'_>> = vec![("scope", &"col")];
            if column.right {
                attrs.push(("class", &"n"));
            }
            if let Some(help) = &column.help {
                attrs.push(("title", help));
            }
            m.leaf("th", &attrs, &column.name);
        }
        m.close("tr");
        m.close("thead");
    }
}

/// Writes a cell: `data-v` is the value for sorting and for the CSV file.
fn write_cell(m: &mut Markup, cell: &Cell, right: bool) {
    let tone = match cell.tone {
        Tone::Plain => "",
        Tone::Strong => "strong",
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Muted => "muted",
    };
    let class = format!("{} {tone}", if right { "n" } else { "" });
    let class = class.trim();
    let exact = cell.exact();
    let mut attrs: Vec<Attr<'_>> = Vec::new();
    if !class.is_empty() {
        attrs.push(("class", &class));
    }
    match cell.value {
        Value::Text(_) => {}
        Value::Missing => attrs.push(("data-v", &"")),
        Value::Int(_) => attrs.push(("data-v", &exact)),
        Value::Real(..) => attrs.extend([("data-v", &exact as &dyn std::fmt::Display), ("title", &exact)]),
    }
    m.leaf("td", &attrs, cell.shown(false));
}

/// A file name made from a caption.
fn file_stem(name: &str) -> String {
    let stem: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let stem = stem.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    if stem.is_empty() { "table".to_owned() } else { stem }
}

#[cfg(test)]
mod tests {
    #[test]
    fn file_names_are_tame() {
        assert_eq!(super::file_stem("Results, per size (5 %)"), "results-per-size-5");
        assert_eq!(super::file_stem("../../<script>"), "script");
        assert_eq!(super::file_stem("…"), "table");
    }
}
