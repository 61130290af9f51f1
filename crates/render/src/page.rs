//! The page: one self-contained file.

use crate::chart::Chart;
use crate::colour::{self, Looks};
use crate::markup::Markup;
use crate::table::Table;

/// A page of sections, in order.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    subtitle: Option<String>,
    command: Option<String>,
    sections: Vec<Section>,
}

/// A part of a page under a heading of its own.
#[derive(Clone, Debug)]
pub struct Section {
    heading: String,
    blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
enum Block {
    Text(String),
    Facts(Vec<(String, String)>),
    Note(String),
    Chart(Box<Chart>),
    Grid(Vec<Chart>),
    Table(Table),
}

impl Section {
    /// A section without content yet.
    pub fn new(heading: impl Into<String>) -> Section {
        Section { heading: heading.into(), blocks: Vec::new() }
    }

    fn block(mut self, block: Block) -> Section {
        self.blocks.push(block);
        self
    }

    /// Adds text; an empty line starts a new paragraph.
    pub fn text(self, text: impl Into<String>) -> Section {
        self.block(Block::Text(text.into()))
    }

    /// Adds named values.
    pub fn facts<K: Into<String>, V: Into<String>>(self, facts: impl IntoIterator<Item = (K, V)>) -> Section {
        self.block(Block::Facts(facts.into_iter().map(|(k, v)| (k.into(), v.into())).collect()))
    }

    /// Adds a caveat that a reader must not miss.
    pub fn note(self, text: impl Into<String>) -> Section {
        self.block(Block::Note(text.into()))
    }

    /// Adds a chart as wide as the page.
    pub fn chart(self, chart: impl Into<Chart>) -> Section {
        self.block(Block::Chart(Box::new(chart.into())))
    }

    /// Adds charts side by side, as many in a row as fit.
    pub fn grid(self, charts: impl IntoIterator<Item = Chart>) -> Section {
        self.block(Block::Grid(charts.into_iter().collect()))
    }

    /// Adds a table.
    pub fn table(self, table: Table) -> Section {
        self.block(Block::Table(table))
    }
}

impl Page {
    /// A page without sections yet.
    pub fn new(title: impl Into<String>) -> Page {
        Page { title: title.into(), subtitle: None, command: None, sections: Vec::new() }
    }

    /// Sets the line below the title.
    pub fn subtitle(mut self, subtitle: impl Into<String>) -> Page {
        self.subtitle = Some(subtitle.into());
        self
    }

    /// Sets the command line that made the page, so that a reader can make it again.
    pub fn command(mut self, command: impl Into<String>) -> Page {
        self.command = Some(command.into());
        self
    }

    /// Adds a section at the end.
    pub fn section(mut self, section: Section) -> Page {
        self.sections.push(section);
        self
    }

    /// The page as one HTML document: no network, no date, the same bytes for the same content.
    pub fn to_html(&self) -> String {
        let looks = self.looks();
        let mut m = Markup::default();
        m.open("html", &[("lang", &"en")]);
        self.write_head(&mut m);
        m.open("body", &[]);
        self.write_header(&mut m);
        m.open("main", &[]);
        for (i, section) in self.sections.iter().enumerate() {
            m.open("section", &[("id", &anchor(i))]);
            m.leaf("h2", &[], &section.heading);
            for block in &section.blocks {
                block.write(&mut m, &looks);
            }
            m.close("section");
        }
        m.close("main");
        let version = env!("CARGO_PKG_VERSION");
        m.leaf(
            "footer",
            &[],
            format_args!("Made by entresol {version}. Self-contained: works without network or script."),
        );
        m.asset("script", include_str!("../assets/page.js"));
        m.close("body");
        m.close("html");
        m.finish("<!DOCTYPE html>\n")
    }

    /// The looks of all series of the page.
    fn looks(&self) -> Looks {
        let blocks = self.sections.iter().flat_map(|s| &s.blocks);
        Looks::of(&blocks.flat_map(Block::charts).map(Chart::names).collect::<Vec<_>>())
    }

    fn write_head(&self, m: &mut Markup) {
        m.open("head", &[]);
        m.void("meta", &[("charset", &"utf-8")]);
        m.void("meta", &[("name", &"viewport"), ("content", &"width=device-width, initial-scale=1")]);
        m.void("meta", &[("name", &"color-scheme"), ("content", &"light dark")]);
        m.leaf("title", &[], &self.title);
        m.asset("style", &colour::style_sheet());
        m.asset("style", include_str!("../assets/chart.css"));
        m.asset("style", include_str!("../assets/page.css"));
        m.close("head");
    }

    fn write_header(&self, m: &mut Markup) {
        m.open("header", &[]);
        m.leaf("h1", &[], &self.title);
        if let Some(subtitle) = &self.subtitle {
            m.leaf("p", &[("class", &"subtitle")], subtitle);
        }
        if let Some(command) = &self.command {
            m.open("div", &[("class", &"command")]);
            m.leaf("code", &[], command);
            m.leaf("button", &[("type", &"button"), ("hidden", &"hidden"), ("title", &"copy the command")], "copy");
            m.close("div");
        }
        if self.sections.len() > 2 {
            m.open("nav", &[("aria-label", &"sections")]);
            for (i, section) in self.sections.iter().enumerate() {
                m.leaf("a", &[("href", &format_args!("#{}", anchor(i)))], &section.heading);
            }
            m.close("nav");
        }
        m.close("header");
    }
}

fn anchor(section: usize) -> String {
    format!("s{}", section + 1)
}

impl Block {
    fn charts(&self) -> &[Chart] {
        match self {
            Block::Chart(chart) => std::slice::from_ref(chart),
            Block::Grid(charts) => charts,
            Block::Text(_) | Block::Facts(_) | Block::Note(_) | Block::Table(_) => &[],
        }
    }

    fn write(&self, m: &mut Markup, looks: &Looks) {
        match self {
            Block::Text(text) => {
                for paragraph in text.split("\n\n").filter(|p| !p.trim().is_empty()) {
                    m.leaf("p", &[], paragraph.trim());
                }
            }
            Block::Facts(facts) => {
                m.open("dl", &[("class", &"facts")]);
                for (key, value) in facts {
                    m.open("div", &[]);
                    m.leaf("dt", &[], key);
                    m.leaf("dd", &[], value);
                    m.close("div");
                }
                m.close("dl");
            }
            Block::Note(text) => m.leaf("p", &[("class", &"note"), ("role", &"note")], text),
            Block::Chart(chart) => chart.write_figure(m, looks, false),
            Block::Grid(charts) => {
                m.open("div", &[("class", &"grid-row")]);
                for chart in charts {
                    chart.write_figure(m, looks, true);
                }
                m.close("div");
            }
            Block::Table(table) => table.write_html(m),
        }
    }
}
