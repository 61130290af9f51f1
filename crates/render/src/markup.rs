//! A writer of HTML and SVG that cannot forget to escape or to close.
//!
//! The output is both HTML and well-formed XML, so that the tests can read it with a strict XML parser. Every text and
//! every attribute passes through [`escape`]; only [`Markup::asset`] writes raw text, and it takes only the crate's own
//! style sheets and script.

use std::fmt::{self, Display, Write};

/// An attribute: its name and its value, escaped when written.
pub(crate) type Attr<'a> = (&'static str, &'a dyn Display);

/// A coordinate in user units, written with one decimal: finer than a screen shows, and short.
#[derive(Clone, Copy)]
pub(crate) struct Px(pub(crate) f64);

impl Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_assert!(self.0.is_finite(), "a coordinate must be finite");
        let rounded = (self.0 * 10.0).round() / 10.0;
        // The addition turns -0 into 0.
        write!(f, "{}", rounded + 0.0)
    }
}

/// Markup under construction.
#[derive(Default)]
pub(crate) struct Markup {
    out: String,
    open: Vec<&'static str>,
}

impl Markup {
    /// Starts an element that holds others until [`Markup::close`].
    pub(crate) fn open(&mut self, tag: &'static str, attrs: &[Attr<'_>]) {
        self.start(tag, attrs);
        self.out.push('>');
        self.open.push(tag);
    }

    /// Ends the innermost open element, which must be a `tag`.
    pub(crate) fn close(&mut self, tag: &'static str) {
        let innermost = self.open.pop();
        assert_eq!(innermost, Some(tag), "elements must close in the order they opened");
        let _ = writeln!(self.out, "</{tag}>");
    }

    /// An element that holds only text.
    pub(crate) fn leaf(&mut self, tag: &'static str, attrs: &[Attr<'_>], text: impl Display) {
        self.start(tag, attrs);
        self.out.push('>');
        self.text(text);
        let _ = write!(self.out, "</{tag}>");
    }

    /// An element that holds nothing: an SVG shape, or an HTML element that never has content (`meta`, `input`).
    pub(crate) fn void(&mut self, tag: &'static str, attrs: &[Attr<'_>]) {
        self.start(tag, attrs);
        self.out.push_str("/>");
    }

    /// Text, escaped.
    pub(crate) fn text(&mut self, text: impl Display) {
        let _ = write!(Escaped(&mut self.out), "{text}");
    }

    /// A style sheet or script of this crate, unescaped as HTML wants it, fenced so that XML accepts it too.
    pub(crate) fn asset(&mut self, tag: &'static str, content: &str) {
        debug_assert!(!content.contains("]]>") && !content.contains("</"), "the asset would end its own element");
        let _ = writeln!(self.out, "<{tag}>/*<![CDATA[*/\n{}\n/*]]>*/</{tag}>", content.trim_end());
    }

    /// Finished markup of another writer.
    pub(crate) fn append(&mut self, other: &Markup) {
        assert!(other.open.is_empty(), "still open: {:?}", other.open);
        self.out.push_str(&other.out);
    }

    /// The finished text; `preamble` goes before it unchanged.
    pub(crate) fn finish(self, preamble: &'static str) -> String {
        assert!(self.open.is_empty(), "still open: {:?}", self.open);
        format!("{preamble}{}", self.out)
    }

    fn start(&mut self, tag: &'static str, attrs: &[Attr<'_>]) {
        self.out.push('<');
        self.out.push_str(tag);
        for (name, value) in attrs {
            let _ = write!(self.out, " {name}=\"");
            let _ = write!(Escaped(&mut self.out), "{value}");
            self.out.push('"');
        }
    }
}

struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(c),
                // XML has no way to write these, and HTML calls them errors.
                c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_text() {
        let mut m = Markup::default();
        m.leaf("p", &[("title", &"\"><script>alert('1')</script>")], "</p><script>&\u{0}\u{1b}[31m");
        let html = m.finish("");
        let doc = roxmltree::Document::parse(&html).expect("well-formed");
        assert_eq!(doc.root_element().text(), Some("</p><script>&\u{fffd}\u{fffd}[31m"));
        assert_eq!(doc.root_element().attribute("title"), Some("\"><script>alert('1')</script>"));
        assert_eq!(doc.descendants().filter(|n| n.is_element()).count(), 1);
    }

    #[test]
    #[should_panic(expected = "close in the order")]
    fn crossed_elements_are_refused() {
        let mut m = Markup::default();
        m.open("div", &[]);
        m.open("p", &[]);
        m.close("div");
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!(Px(12.0).to_string(), "12");
        assert_eq!(Px(-0.01).to_string(), "0");
        assert_eq!(Px(1.0 / 3.0).to_string(), "0.3");
    }
}
